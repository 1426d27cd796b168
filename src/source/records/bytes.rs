//! The bytes of a shard as parsers look at them.

use crate::error::Result;
use std::ops::Range;

/// The bytes of a shard, which parsers look at from front to back.
pub(crate) trait Bytes {
    /// Whether images must be taken in passing, as the bytes come once.
    const ONCE: bool;

    /// `len_bytes` bytes from `offset` on; `None` if the shard ends before. Callers bound `len_bytes`.
    fn at(&mut self, offset: u64, len_bytes: usize) -> Result<Option<&[u8]>>;

    /// Makes that what lies at `range` can be looked at in any order, as far as it is there.
    fn hold(&mut self, range: Range<u64>) -> Result<()>;

    /// Adds what lies at `range` to `image` where bytes come once. `false` if the shard ends before.
    fn take(&mut self, range: Range<u64>, image: &mut Vec<u8>) -> Result<bool>;

    /// Where the shard ends, if that is before `offset`. What lies before `offset` is passed over.
    fn end_before(&mut self, offset: u64) -> Result<Option<u64>>;

    /// How far has been read.
    fn read_to(&self) -> u64;

    /// As [`at`](Self::at), for a fixed number of bytes.
    fn array<const N: usize>(&mut self, offset: u64) -> Result<Option<[u8; N]>> {
        Ok(self.at(offset, N)?.and_then(|bytes| bytes.try_into().ok()))
    }
}

/// Bytes in memory.
impl Bytes for &[u8] {
    const ONCE: bool = false;

    fn at(&mut self, offset: u64, len_bytes: usize) -> Result<Option<&[u8]>> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(start.checked_add(len_bytes).and_then(|end| self.get(start..end)))
    }

    fn hold(&mut self, _range: Range<u64>) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, range: Range<u64>, _image: &mut Vec<u8>) -> Result<bool> {
        Ok(range.end <= self.len() as u64)
    }

    fn end_before(&mut self, offset: u64) -> Result<Option<u64>> {
        Ok(Some(self.len() as u64).filter(|&end| end < offset))
    }

    fn read_to(&self) -> u64 {
        self.len() as u64
    }
}
