//! Readers of a shard's bytes: by position, or from front to back.

use super::records::bytes::Bytes;
use crate::error::{Error, Result};
use crate::os::memory;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::AtomicBool;

pub(super) use warpfeed_image::file::read_exact_at;

/// Number of bytes that are read at once while a shard is scanned. Small enough that images of 100 kB are skipped, not
/// read.
const WINDOW_BYTES: usize = 8 << 10;

/// Largest number of bytes that are read at once, for small images in remote shards.
const MAX_WINDOW_BYTES: usize = 1 << 20;

/// Bytes that can be read at any position.
pub(crate) trait ReadAt: Send + Sync {
    /// Fills `buffer` with the bytes from `offset` on.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// Fills `buffer` with a whole sample, which a cache may keep. Gives up waiting once `stopped` is set.
    fn read_sample(&self, buffer: &mut [u8], offset: u64, _stopped: &AtomicBool) -> Result<()> {
        self.read_at(buffer, offset)
    }

    /// Announces that a sample will be read.
    fn prefetch(&self, _offset: u64, _len_bytes: u64) {}

    /// Number of bytes that take as long to read as the fixed cost of one request. Default: 0.
    fn delay_bytes(&self) -> u64 {
        0
    }
}

/// A file that is scanned from front to back through a small buffer.
pub(super) struct Window<'a> {
    file: &'a dyn ReadAt,
    len_bytes: u64,
    buffer: Vec<u8>,
    /// Position of the buffer's start in the file.
    start: u64,
    /// Number of bytes that are read at once.
    ahead: usize,
    /// End of the range that was requested last.
    asked_to: u64,
}

impl<'a> Window<'a> {
    pub fn new(file: &'a dyn ReadAt, len_bytes: u64) -> Self {
        Self { file, len_bytes, buffer: Vec::new(), start: 0, ahead: WINDOW_BYTES, asked_to: 0 }
    }

    /// Whether `len_bytes` bytes from `offset` on lie in the file.
    fn holds(&self, offset: u64, len_bytes: u64) -> bool {
        offset.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes)
    }
}

impl Bytes for Window<'_> {
    const ONCE: bool = false;

    fn at(&mut self, offset: u64, len_bytes: usize) -> Result<Option<&[u8]>> {
        if !self.holds(offset, len_bytes as u64) {
            return Ok(None);
        }
        let (end, read_to) = (offset + len_bytes as u64, self.start + self.buffer.len() as u64);
        if offset < self.start || end > read_to {
            // If reading the gap takes less time than a request, the gap is read too, in growing windows. The gap is
            // measured from the end of the last requested range, not of the buffer, so that one large read does not
            // cause another.
            let near = self.file.delay_bytes() > offset.saturating_sub(self.asked_to);
            self.ahead = if near { (2 * self.ahead).min(MAX_WINDOW_BYTES) } else { WINDOW_BYTES };
            let wanted = self.ahead.max(len_bytes) as u64;
            let wanted = wanted.min(self.len_bytes - offset) as usize;
            self.buffer.clear();
            memory::reserve(&mut self.buffer, wanted, "a part of a file", memory::FEWER_IMAGES)?;
            self.buffer.resize(wanted, 0);
            self.start = offset;
            if let Err(error) = self.file.read_at(&mut self.buffer, offset) {
                self.buffer.clear();
                return Err(error);
            }
        }
        self.asked_to = end;
        Ok(Some(&self.buffer[(offset - self.start) as usize..][..len_bytes]))
    }

    fn hold(&mut self, _range: Range<u64>) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, range: Range<u64>, _image: &mut Vec<u8>) -> Result<bool> {
        Ok(range.end <= self.len_bytes)
    }

    fn end_before(&mut self, offset: u64) -> Result<Option<u64>> {
        Ok(Some(self.len_bytes).filter(|&end| end < offset))
    }

    fn read_to(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }
}

/// Largest number of bytes that are allocated before a piece of a stream is read. The buffer grows as data arrive.
const TRUSTED_BYTES: u64 = 1 << 20;

/// A shard that can be read only once, from front to back.
pub(super) struct Forward {
    /// The shard's name, for messages.
    pub name: String,
    read: Box<dyn Read + Send>,
    /// Bytes that have been read and may be requested again.
    buffer: Vec<u8>,
    /// Position of the buffer's start in the shard.
    start: u64,
    /// Whether the end of the shard has been reached.
    ended: bool,
}

impl Forward {
    /// Makes a reader of a shard whose next byte is byte `at`.
    pub fn new(name: String, read: Box<dyn Read + Send>, at: u64) -> Self {
        Self { name, read, buffer: Vec::new(), start: at, ended: false }
    }

    fn broken(&self, error: &io::Error) -> Error {
        Error::Stream { shard: self.name.clone(), offset: self.read_to(), message: error.to_string() }
    }

    /// Discards all bytes before `offset`, including those not read yet. Returns `false` if the shard ends before.
    fn pass(&mut self, offset: u64) -> Result<bool> {
        let gone = offset.saturating_sub(self.start).min(self.buffer.len() as u64);
        self.buffer.drain(..gone as usize);
        self.start += gone;
        let left = offset.saturating_sub(self.start);
        if left > 0 {
            let skipped = io::copy(&mut (&mut self.read).take(left), &mut io::sink());
            let skipped = skipped.map_err(|error| self.broken(&error))?;
            self.start += skipped;
            self.ended = skipped < left;
        }
        Ok(self.start >= offset)
    }

    /// Appends the bytes up to `end` to the buffer.
    fn fill(&mut self, end: u64) -> Result<()> {
        let wanted = end.saturating_sub(self.read_to());
        if wanted > 0 {
            let read = append(&mut self.read, wanted, &mut self.buffer).map_err(|error| self.broken(&error))?;
            self.ended = read < wanted;
        }
        Ok(())
    }
}

/// Appends `wanted` bytes, or as many as there are, to `bytes`. Returns their number.
fn append(read: &mut dyn Read, wanted: u64, bytes: &mut Vec<u8>) -> io::Result<u64> {
    bytes.try_reserve_exact(wanted.min(TRUSTED_BYTES) as usize)?;
    read.take(wanted).read_to_end(bytes).map(|read| read as u64)
}

impl Bytes for Forward {
    const ONCE: bool = true;

    fn at(&mut self, offset: u64, len_bytes: usize) -> Result<Option<&[u8]>> {
        let end = offset.saturating_add(len_bytes as u64);
        if end > self.read_to() {
            if !self.pass(offset)? {
                return Ok(None);
            }
            self.fill(end)?;
        }
        debug_assert!(offset >= self.start, "what was passed cannot be looked at again");
        let start = offset.checked_sub(self.start).map(|start| start as usize);
        Ok(start.and_then(|start| self.buffer.get(start..start + len_bytes)))
    }

    fn hold(&mut self, range: Range<u64>) -> Result<()> {
        if self.pass(range.start)? { self.fill(range.end) } else { Ok(()) }
    }

    fn take(&mut self, range: Range<u64>, image: &mut Vec<u8>) -> Result<bool> {
        if !self.pass(range.start)? {
            return Ok(false);
        }
        let ready = self.buffer.len().min((range.end - range.start) as usize);
        image.extend_from_slice(&self.buffer[..ready]);
        self.buffer.drain(..ready);
        self.start += ready as u64;
        let wanted = range.end - self.start;
        if wanted > 0 {
            let read = append(&mut self.read, wanted, image).map_err(|error| self.broken(&error))?;
            self.start += read;
            self.ended = read < wanted;
        }
        Ok(self.start == range.end)
    }

    fn end_before(&mut self, offset: u64) -> Result<Option<u64>> {
        // At the end the buffer is kept, because its bytes may be requested again.
        if !self.ended && self.read_to() < offset {
            self.pass(offset)?;
        }
        Ok(Some(self.read_to()).filter(|&end| end < offset))
    }

    fn read_to(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }
}
