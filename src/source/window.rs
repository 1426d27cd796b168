//! Positional reading of a file, with bounds.

use crate::error::Result;
use std::fs::File;
use std::io;
use std::sync::atomic::AtomicBool;

/// Read at once while a shard is scanned. Small enough that images of 100 kB are passed over, not read.
const WINDOW_BYTES: usize = 8 << 10;

/// What it grows to where small images are remote.
const MAX_WINDOW_BYTES: usize = 1 << 20;

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

/// Bytes that can be read at any position.
pub(super) trait ReadAt: Send + Sync {
    /// Fills `buffer` with what lies from `offset` on.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// The same for a whole sample, which a cache may keep. Who waits for it gives up once `stopped` is set.
    fn read_sample(&self, buffer: &mut [u8], offset: u64, _stopped: &AtomicBool) -> Result<()> {
        self.read_at(buffer, offset)
    }

    /// Says that a sample will be read.
    fn prefetch(&self, _offset: u64, _len_bytes: u64) {}

    /// So many bytes take as long to read as one more request takes beside its bytes.
    fn delay_bytes(&self) -> u64 {
        0
    }
}

/// A file seen through a small buffer, from front to back.
pub(super) struct Window<'a> {
    file: &'a dyn ReadAt,
    len_bytes: u64,
    buffer: Vec<u8>,
    /// Where in the file the buffer starts.
    start: u64,
    /// How much is read at once.
    ahead: usize,
}

impl<'a> Window<'a> {
    pub fn new(file: &'a dyn ReadAt, len_bytes: u64) -> Self {
        Self { file, len_bytes, buffer: Vec::new(), start: 0, ahead: WINDOW_BYTES }
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
        let (end, read_to) = (offset + len_bytes as u64, self.start + self.buffer.len() as u64);
        if offset < self.start || end > read_to {
            // Where what is passed over is less than a request costs, it is read as well, more and more at once.
            let near = self.file.delay_bytes() > offset.saturating_sub(read_to);
            self.ahead = if near { (2 * self.ahead).min(MAX_WINDOW_BYTES) } else { WINDOW_BYTES };
            let wanted = self.ahead.max(len_bytes) as u64;
            self.buffer.resize(wanted.min(self.len_bytes - offset) as usize, 0);
            self.start = offset;
            if let Err(error) = self.file.read_at(&mut self.buffer, offset) {
                self.buffer.clear();
                return Err(error);
            }
        }
        Ok(Some(&self.buffer[(offset - self.start) as usize..][..len_bytes]))
    }

    /// As [`at`](Self::at), for a fixed number of bytes.
    pub fn array<const N: usize>(&mut self, offset: u64) -> Result<Option<[u8; N]>> {
        Ok(self.at(offset, N)?.and_then(|bytes| bytes.try_into().ok()))
    }
}
