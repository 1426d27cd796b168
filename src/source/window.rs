//! Positional reading of a file, with bounds.

use crate::error::{Error, Result};
use std::fs::File;
use std::io;
use std::path::Path;

/// Read at once while a shard is scanned. Small enough that pictures of 100 kB are passed over, not read.
const WINDOW_BYTES: usize = 8 << 10;

/// Reads `buffer.len()` bytes from `offset` on.
pub(super) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset);
    #[cfg(not(unix))]
    {
        use std::os::windows::fs::FileExt;
        let mut done = 0;
        while done < buffer.len() {
            match file.seek_read(&mut buffer[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A file seen through a small buffer, from front to back.
pub(super) struct Window<'a> {
    file: &'a File,
    path: &'a Path,
    len_bytes: u64,
    buffer: Vec<u8>,
    /// Where in the file the buffer starts.
    start: u64,
}

impl<'a> Window<'a> {
    pub fn new(file: &'a File, path: &'a Path, len_bytes: u64) -> Self {
        Self { file, path, len_bytes, buffer: Vec::new(), start: 0 }
    }

    /// The file's length in bytes when it was opened.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Whether `len_bytes` bytes from `offset` on lie in the file.
    pub fn holds(&self, offset: u64, len_bytes: u64) -> bool {
        offset.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes)
    }

    /// `len_bytes` bytes from `offset` on, or `None` if the file ends before them. Callers bound `len_bytes`.
    pub fn at(&mut self, offset: u64, len_bytes: usize) -> Result<Option<&[u8]>> {
        if !self.holds(offset, len_bytes as u64) {
            return Ok(None);
        }
        let end = offset + len_bytes as u64;
        if offset < self.start || end > self.start + self.buffer.len() as u64 {
            let wanted = WINDOW_BYTES.max(len_bytes) as u64;
            self.buffer.resize(wanted.min(self.len_bytes - offset) as usize, 0);
            self.start = offset;
            if let Err(error) = read_exact_at(self.file, &mut self.buffer, offset) {
                self.buffer.clear();
                return Err(Error::io("read", self.path)(error));
            }
        }
        Ok(Some(&self.buffer[(offset - self.start) as usize..][..len_bytes]))
    }

    /// As [`at`](Self::at), for a fixed number of bytes.
    pub fn array<const N: usize>(&mut self, offset: u64) -> Result<Option<[u8; N]>> {
        Ok(self.at(offset, N)?.and_then(|bytes| bytes.try_into().ok()))
    }
}
