//! Files that are read by ranges of bytes.

use crate::error::{Error, Result};
use std::borrow::Cow;

/// A file, in memory or elsewhere, that can be read by ranges of bytes.
pub(crate) trait ReadAt {
    /// Length of the file.
    fn len_bytes(&self) -> u64;

    /// Reads `len` bytes from `offset` on. The caller has compared the range with the length.
    ///
    /// # Errors
    /// [`Error::Decode`] if the bytes cannot be read.
    fn read_at(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>>;
}

impl ReadAt for &[u8] {
    fn len_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.get(start..).and_then(|bytes| bytes.get(..len));
        bytes.map(Cow::Borrowed).ok_or_else(|| Error::decode("TIFF", format!("truncated: no bytes at {offset}")))
    }
}
