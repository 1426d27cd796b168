//! Pools of device memory for batches.
#![allow(unsafe_code)]

use super::buffer::{Buffer, CudaBuffer, settle_aside};
use super::driver::{self, Context, Event, MemoryPool, Stream};
use crate::device::StreamPriority;
use crate::error::{Error, Result};
use crate::os::memory::Asked;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Number of values that go with a batch, such as boxes and labels. For each kept batch, as many buffers for values are
/// kept.
const VALUES_OF_A_BATCH: usize = 4;
/// Largest number of bytes that are kept of values that go with batches.
pub(crate) const VALUES_BYTES: u64 = 64 << 20;

/// A pool of buffers.
#[derive(Debug)]
pub(crate) struct Pool {
    context: Context,
    ordinal: u32,
    /// Stream for copies to the host.
    reader: Stream,
    memory: Arc<MemoryPool>,
    /// Largest number of unused buffers, and of their bytes. One buffer is kept whatever its size.
    keep: usize,
    keep_bytes: u64,
    /// The pool for values that go with batches ([`Pool::copy_beside`]), made when it is first used: in this one they
    /// would take the buffers of images.
    beside: OnceLock<Arc<Pool>>,
    spares: Mutex<Spares>,
}

/// The buffers that no batch has.
#[derive(Debug)]
struct Spares {
    /// Buffers to be used again. The one that was given back first is taken first: its users are most likely done with
    /// it.
    free: VecDeque<Buffer>,
    /// Buffers to be freed once their users are done, in the order in which they came back.
    excess: VecDeque<Buffer>,
    /// Buffers whose users have no known end: a stream was gone before the batch. They are freed when the pool ends, or
    /// when memory is short.
    held: Vec<Buffer>,
    asked: Asked,
}

impl Pool {
    /// A pool that keeps at most `keep` buffers with `keep_bytes` bytes.
    pub(crate) fn new(context: &Context, ordinal: u32, keep: usize, keep_bytes: u64) -> Result<Self> {
        let (context, reader) = (Arc::clone(context), Stream::new(context, StreamPriority::Low)?);
        let memory = Arc::new(MemoryPool::new(&context, keep_bytes)?);
        let spares =
            Spares { free: VecDeque::new(), excess: VecDeque::new(), held: Vec::new(), asked: Asked::of_last(keep) };
        let (beside, spares) = (OnceLock::new(), Mutex::new(spares));
        Ok(Self { context, ordinal, reader, memory, keep, keep_bytes, beside, spares })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub(super) fn reader(&self) -> &Stream {
        &self.reader
    }

    /// The pool for values that go with batches.
    fn beside(&self) -> Result<Arc<Self>> {
        if let Some(pool) = self.beside.get() {
            return Ok(Arc::clone(pool));
        }
        let keep = self.keep.saturating_mul(VALUES_OF_A_BATCH);
        let pool = Arc::new(Self::new(&self.context, self.ordinal, keep, VALUES_BYTES)?);
        Ok(Arc::clone(self.beside.get_or_init(|| pool)))
    }

    /// Copies bytes to memory of their own on this device, which goes back to the pool for values that go with batches.
    pub(crate) fn copy_beside(&self, bytes: &[u8]) -> Result<CudaBuffer> {
        let pool = self.beside()?;
        let _entered = driver::enter(&pool.context)?;
        let buffer = pool.take(&pool.reader, bytes.len().max(1))?;
        buffer.events().try_for_each(|event| pool.reader.wait(event))?;
        if !bytes.is_empty() {
            // SAFETY: the buffer is as long, and the stream waits for those who used it; `bytes` is borrowed until the
            // stream has been waited for.
            unsafe { driver::upload(buffer.address(), bytes.as_ptr(), bytes.len(), &pool.reader)? };
        }
        buffer.ready.record(&pool.reader)?;
        pool.reader.synchronize()?;
        Ok(CudaBuffer::new(buffer, pool, bytes.len()))
    }

    fn lock(&self) -> MutexGuard<'_, Spares> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the smallest buffer of at least `len_bytes` bytes, or a new one, for work queued on `stream`. Its users
    /// may not be done with it yet. A buffer that is much larger is left for others, unless memory is short.
    pub(crate) fn take(&self, stream: &Stream, len_bytes: usize) -> Result<Buffer> {
        settle_aside();
        self.free_excess(stream);
        let free = {
            let mut spares = self.lock();
            spares.asked.note(len_bytes);
            spares.take(len_bytes, Asked::most_for(len_bytes))
        };
        match free {
            Some(buffer) => Ok(buffer),
            None => self.make(stream, len_bytes),
        }
    }

    fn make(&self, stream: &Stream, len_bytes: usize) -> Result<Buffer> {
        let memory = match self.memory.allocate(stream, len_bytes) {
            Err(error @ Error::OutOfDeviceMemory { .. }) => {
                let (larger, others) = {
                    let mut spares = self.lock();
                    let larger = spares.take(len_bytes, usize::MAX);
                    let others = if larger.is_none() { spares.clear() } else { Vec::new() };
                    (larger, others)
                };
                if let Some(buffer) = larger {
                    return Ok(buffer);
                }
                if others.is_empty() {
                    return Err(error);
                }
                drop(others);
                self.memory.allocate(stream, len_bytes)?
            }
            memory => memory?,
        };
        Buffer::new(memory, &self.context, stream)
    }

    /// Frees excess buffers, in the order of `stream`: those whose users are done, and those that are more than are
    /// kept.
    fn free_excess(&self, stream: &Stream) {
        loop {
            let first = {
                let mut spares = self.lock();
                let too_many = spares.excess.len() > self.keep;
                let is_next = |buffer: &Buffer| too_many || buffer.events().all(Event::is_done);
                if spares.excess.front().is_some_and(is_next) { spares.excess.pop_front() } else { None }
            };
            let Some(buffer) = first else { return };
            // A failed context frees nothing, and the next call says so.
            let _ = buffer.free_after(stream);
        }
    }

    /// Keeps a buffer. If there are too many, the buffer that is largest compared with recent requests is freed.
    pub(crate) fn give(&self, buffer: Buffer) {
        let mut spares = self.lock();
        spares.free.push_back(buffer);
        while let Some(at) = spares.surplus(self.keep, self.keep_bytes) {
            let surplus = spares.free.remove(at);
            spares.excess.extend(surplus);
        }
    }

    /// Keeps a buffer whose users have no known end.
    pub(super) fn hold(&self, mut buffer: Buffer) {
        // In a failed context nothing runs any more.
        if buffer.ready.record(&self.reader).is_ok() {
            buffer.is_held = true;
            self.lock().held.push(buffer);
        }
    }
}

impl Spares {
    /// Takes the smallest free buffer with `len_bytes` to `most_bytes` bytes.
    fn take(&mut self, len_bytes: usize, most_bytes: usize) -> Option<Buffer> {
        let fits = |buffer: &Buffer| (len_bytes..=most_bytes).contains(&buffer.len_bytes());
        let fitting = self.free.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        let (smallest, _) = fitting.min_by_key(|(_, buffer)| buffer.len_bytes())?;
        self.free.remove(smallest)
    }

    /// The free buffer that is one too many.
    fn surplus(&self, keep: usize, keep_bytes: u64) -> Option<usize> {
        let lens = || self.free.iter().map(Buffer::len_bytes);
        // One is kept always, however large batches are.
        let is_large = || self.free.len() > 1 && lens().map(|len| len as u64).sum::<u64>() > keep_bytes;
        let is_full = self.free.len() > keep || is_large();
        if is_full { self.asked.surplus(lens()) } else { None }
    }

    /// Takes all buffers.
    fn clear(&mut self) -> Vec<Buffer> {
        self.free.drain(..).chain(self.excess.drain(..)).chain(self.held.drain(..)).collect()
    }
}
