//! The interface through which parsers read a shard's bytes.

use crate::error::Result;
use std::ops::Range;

/// The bytes of a shard, which a parser reads from front to back.
pub(crate) trait Bytes {
    /// Whether the bytes come only once, so that the parser must copy images while it passes them.
    const ONCE: bool;

    /// Returns `len_bytes` bytes from `offset` on; `None` if the shard ends before that. Callers bound `len_bytes`.
    fn at(&mut self, offset: u64, len_bytes: usize) -> Result<Option<&[u8]>>;

    /// Makes the bytes in `range` readable in any order, as far as the shard has them.
    fn hold(&mut self, range: Range<u64>) -> Result<()>;

    /// Appends the bytes in `range` to `image` if bytes come only once. Returns `false` if the shard ends before that.
    fn take(&mut self, range: Range<u64>, image: &mut Vec<u8>) -> Result<bool>;

    /// Returns the shard's end if it is before `offset`. Skips the bytes before `offset`.
    fn end_before(&mut self, offset: u64) -> Result<Option<u64>>;

    /// Returns the position up to which the shard was read.
    fn read_to(&self) -> u64;

    /// Like [`at`](Self::at), for a fixed number of bytes.
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
