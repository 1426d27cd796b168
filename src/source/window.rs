//! The bytes of a shard: at any position, or as they come.

use super::records::bytes::Bytes;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
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
    /// Where what was asked for last ends.
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
            // Where what is passed over is less than a request costs, it is read as well, more and more at once. That is
            // what lies behind what was asked for, however much more was read: one large read leads to no other.
            let near = self.file.delay_bytes() > offset.saturating_sub(self.asked_to);
            self.ahead = if near { (2 * self.ahead).min(MAX_WINDOW_BYTES) } else { WINDOW_BYTES };
            let wanted = self.ahead.max(len_bytes) as u64;
            self.buffer.resize(wanted.min(self.len_bytes - offset) as usize, 0);
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

/// Memory that is taken for a piece of a stream before it has come. More is taken as it comes.
const TRUSTED_BYTES: u64 = 1 << 20;

/// What comes once, from front to back.
pub(super) struct Forward {
    /// The shard's name, for messages.
    pub name: String,
    read: Box<dyn Read + Send>,
    /// What has come and may be looked at again.
    buffer: Vec<u8>,
    /// Where in the shard the buffer starts.
    start: u64,
    /// Whether nothing follows.
    ended: bool,
}

impl Forward {
    /// Over a shard, from byte `at` on.
    pub fn new(name: String, read: Box<dyn Read + Send>, at: u64) -> Self {
        Self { name, read, buffer: Vec::new(), start: at, ended: false }
    }

    fn broken(&self, error: &io::Error) -> Error {
        Error::Stream { shard: self.name.clone(), offset: self.read_to(), message: error.to_string() }
    }

    /// Gives up what lies before `offset`, which need not have come. `false` if the shard ends before.
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

    /// Reads on up to `end`, behind what is in the buffer.
    fn fill(&mut self, end: u64) -> Result<()> {
        let wanted = end.saturating_sub(self.read_to());
        if wanted > 0 {
            let read = append(&mut self.read, wanted, &mut self.buffer).map_err(|error| self.broken(&error))?;
            self.ended = read < wanted;
        }
        Ok(())
    }
}

/// Reads `wanted` bytes, or all that there are, behind those in `bytes`.
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
        // What was looked at before the end may be looked at again.
        if !self.ended && self.read_to() < offset {
            self.pass(offset)?;
        }
        Ok(Some(self.read_to()).filter(|&end| end < offset))
    }

    fn read_to(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }
}
