//! Batches in device memory: buffers, the order of work on them, and their pool.
#![allow(unsafe_code)]

use super::driver::{self, Context, DeviceMemory, Event, MemoryPool, Stream};
use crate::device::StreamPriority;
use crate::error::{Error, Result};
use cudarc::driver::{CudaStream, sys};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Device memory of a tensor: the images, then their labels.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: DeviceMemory,
    /// Recorded when the batch is complete.
    pub(crate) ready: Event,
    /// Events of the streams that used the buffer last, recorded when the last batch in it was dropped.
    pub(crate) users: Vec<Event>,
}

impl Buffer {
    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    fn len_bytes(&self) -> usize {
        self.memory.len_bytes()
    }

    /// Waits until nothing uses the buffer any more.
    fn settle(&self) -> Result<()> {
        let _entered = self.ready.enter()?;
        self.users.iter().try_for_each(Event::synchronize)?;
        self.ready.synchronize()
    }

    /// Waits until the buffer is idle and frees it.
    fn free(mut self) {
        if self.settle().is_ok() {
            self.memory.idle();
        }
    }
}

/// Offset of the labels in a buffer whose images take `len_bytes` bytes.
pub(crate) fn labels_offset(len_bytes: usize) -> usize {
    len_bytes.next_multiple_of(256)
}

/// Size of a buffer for `len_bytes` bytes of images and `labels` labels.
pub(crate) fn with_labels(len_bytes: usize, labels: usize) -> usize {
    labels_offset(len_bytes) + labels * size_of::<u32>()
}

/// Number of values that go with a batch, such as boxes and labels: so many of their buffers are kept for each of a batch's.
const VALUES_OF_A_BATCH: usize = 4;

/// A pool of buffers.
#[derive(Debug)]
pub(crate) struct Pool {
    context: Context,
    ordinal: u32,
    /// Stream for copies to the host.
    reader: Stream,
    memory: Arc<MemoryPool>,
    keep: usize,
    /// The pool for values that go with batches ([`Pool::copy_beside`]), made when it is first used: in this one they
    /// would take the buffers of images.
    beside: OnceLock<Arc<Pool>>,
    /// Free buffers. The one that was given back first is taken first: its users are most likely done with it.
    free: Mutex<VecDeque<Buffer>>,
}

impl Pool {
    /// A pool that keeps at most `keep` buffers.
    pub(crate) fn new(context: &Context, ordinal: u32, keep: usize) -> Result<Self> {
        let (context, reader) = (Arc::clone(context), Stream::new(context, StreamPriority::Low)?);
        let memory = Arc::new(MemoryPool::new(&context)?);
        Ok(Self { context, ordinal, reader, memory, keep, beside: OnceLock::new(), free: Mutex::default() })
    }

    /// The pool for values that go with batches.
    fn beside(&self) -> Result<Arc<Self>> {
        if let Some(pool) = self.beside.get() {
            return Ok(Arc::clone(pool));
        }
        let pool = Arc::new(Self::new(&self.context, self.ordinal, self.keep.saturating_mul(VALUES_OF_A_BATCH))?);
        Ok(Arc::clone(self.beside.get_or_init(|| pool)))
    }

    /// Copies bytes to memory of their own on this device, which goes back to the pool for values that go with batches.
    pub(crate) fn copy_beside(&self, bytes: &[u8]) -> Result<CudaBuffer> {
        let pool = self.beside()?;
        let _entered = driver::enter(&pool.context)?;
        let buffer = pool.take(&pool.reader, bytes.len().max(1))?;
        buffer.users.iter().chain([&buffer.ready]).try_for_each(|event| pool.reader.wait(event))?;
        if !bytes.is_empty() {
            // SAFETY: the buffer is as long, and the stream waits for those who used it; `bytes` is borrowed until the
            // stream has been waited for.
            unsafe { driver::upload(buffer.address(), bytes.as_ptr(), bytes.len(), &pool.reader)? };
        }
        buffer.ready.record(&pool.reader)?;
        pool.reader.synchronize()?;
        Ok(CudaBuffer::new(buffer, pool, bytes.len()))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Buffer>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the smallest buffer of at least `len_bytes` bytes, or a new one, for work queued on `stream`. Its users
    /// may not be done with it yet.
    pub(crate) fn take(&self, stream: &Stream, len_bytes: usize) -> Result<Buffer> {
        let free = {
            let mut free = self.lock();
            let fitting = free.iter().enumerate().filter(|(_, buffer)| buffer.len_bytes() >= len_bytes);
            let smallest = fitting.min_by_key(|(_, buffer)| buffer.len_bytes()).map(|(i, _)| i);
            smallest.and_then(|i| free.remove(i))
        };
        if let Some(buffer) = free {
            return Ok(buffer);
        }
        let memory = self.memory.allocate(stream, len_bytes)?;
        let buffer = Buffer { memory, ready: Event::new(&self.context)?, users: Vec::new() };
        // A buffer that is never used is freed after its allocation, which is queued on the stream.
        buffer.ready.record(stream)?;
        Ok(buffer)
    }

    /// Keeps a buffer; if there are too many, frees the smallest.
    pub(crate) fn give(&self, buffer: Buffer) {
        let mut free = self.lock();
        free.push_back(buffer);
        let smallest = free.iter().enumerate().min_by_key(|(_, buffer)| buffer.len_bytes()).map(|(i, _)| i);
        let one_too_many = smallest.filter(|_| free.len() > self.keep).and_then(|i| free.remove(i));
        drop(free);
        one_too_many.into_iter().for_each(Buffer::free);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let free = self.free.get_mut().unwrap_or_else(PoisonError::into_inner);
        free.drain(..).for_each(Buffer::free);
    }
}

/// The legacy default stream. It and all streams without the non-blocking flag wait for one another.
const LEGACY: sys::CUstream = std::ptr::without_provenance_mut(1);
/// The default stream of the calling thread.
const PER_THREAD: sys::CUstream = std::ptr::without_provenance_mut(2);

/// A stream that was made to wait for a batch.
enum User {
    Cudarc(Arc<CudaStream>),
    Raw(sys::CUstream),
}

impl User {
    fn raw(&self) -> sys::CUstream {
        match self {
            Self::Cudarc(stream) => stream.cu_stream(),
            Self::Raw(stream) => *stream,
        }
    }

    /// The stream, named so that it means the same on every thread and includes this stream's work.
    fn raw_on_any_thread(&self) -> sys::CUstream {
        // The legacy default stream waits for every thread's default stream.
        if self.raw() == PER_THREAD { LEGACY } else { self.raw() }
    }

    /// Records the work queued on the stream so far.
    fn reached(&self, context: &Context) -> Result<Event> {
        let event = Event::new(context)?;
        // SAFETY: the stream is alive: kept so, or by the contract of `on_raw_stream`.
        unsafe { event.record_raw(self.raw_on_any_thread())? };
        Ok(event)
    }
}

/// The memory of a tensor on a CUDA device. Dropping it gives the memory back to the pipeline. The pipeline uses it
/// again only after the work that was queued, until then, on the streams that were made to wait for the batch.
pub struct CudaBuffer {
    /// `None` once dropped or given away.
    buffer: Option<Buffer>,
    pool: Arc<Pool>,
    len_bytes: usize,
    /// Whether labels follow the images.
    labeled: bool,
    users: Mutex<Vec<User>>,
}

// SAFETY: streams belong to a context, not to a thread.
unsafe impl Send for CudaBuffer {}
// SAFETY: as above; what changes is behind a lock.
unsafe impl Sync for CudaBuffer {}

impl fmt::Debug for CudaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaBuffer({} bytes on cuda:{})", self.len_bytes, self.pool.ordinal)
    }
}

impl CudaBuffer {
    /// A batch of `len_bytes` bytes in a buffer whose `ready` has been recorded.
    pub(crate) fn new(buffer: Buffer, pool: Arc<Pool>, len_bytes: usize) -> Self {
        Self { buffer: Some(buffer), pool, len_bytes, labeled: false, users: Mutex::default() }
    }

    /// A batch whose images' labels follow them, if samples have labels.
    pub(crate) fn of_images(buffer: Buffer, pool: Arc<Pool>, len_bytes: usize, labeled: bool) -> Self {
        let mut this = Self::new(buffer, pool, len_bytes);
        this.labeled = labeled;
        this
    }

    /// Size of the batch's images in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Waits until the batch is complete.
    ///
    /// # Errors
    /// [`Error::Device`] if the device has failed.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = driver::enter(&self.pool.context)?;
        self.buffer()?.ready.synchronize()
    }

    /// Number of the device.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.pool.ordinal
    }

    /// The context that the memory belongs to: the device's primary context.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.pool.context
    }

    /// Makes `stream` wait for the batch. Returns the device address of the first element, a multiple of 256.
    ///
    /// # Synchronization
    /// Returns at once. Work queued on `stream` after this call finds the batch complete. The memory is reused only
    /// after the work that is queued there until this buffer is dropped.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a stream of another device, and for one that captures a graph, in which the work would run
    /// only later, on whatever the memory then holds; [`Error::Device`] if the driver refuses, or if an earlier call on the
    /// device has failed.
    pub fn on_stream(&self, stream: &Arc<CudaStream>) -> Result<u64> {
        // SAFETY: the stream is alive, and kept so.
        unsafe { self.wait(User::Cudarc(Arc::clone(stream))) }
    }

    /// Makes a stream wait for the batch, given by its handle: a stream of another library, or null for the legacy
    /// default stream. See [`on_stream`](Self::on_stream).
    ///
    /// # Safety
    /// `stream` is a stream of this buffer's context, or a default stream, and lives until this buffer has been
    /// dropped.
    ///
    /// # Synchronization
    /// See [`on_stream`](Self::on_stream).
    ///
    /// # Errors
    /// The errors of [`on_stream`](Self::on_stream).
    pub unsafe fn on_raw_stream(&self, stream: sys::CUstream) -> Result<u64> {
        // SAFETY: the contract.
        unsafe { self.wait(User::Raw(stream)) }
    }

    /// # Safety
    /// The user's stream lives until this has been dropped.
    unsafe fn wait(&self, user: User) -> Result<u64> {
        let _entered = driver::enter(&self.pool.context)?;
        let buffer = self.buffer()?;
        // SAFETY: the contract.
        unsafe {
            driver::check_user(&self.pool.context, user.raw())?;
            driver::wait(user.raw(), &buffer.ready)?;
        }
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if !users.iter().any(|known| known.raw() == user.raw()) {
            users.push(user);
        }
        Ok(buffer.address())
    }

    /// The device address of the batch's labels: one 32-bit unsigned number per image. Use it only on a stream that
    /// [`on_stream`](Self::on_stream) has been called with.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the samples have no labels, or if the buffer is not one of images; [`Error::Device`] if the
    /// memory has been given away.
    pub fn labels_address(&self) -> Result<u64> {
        if !self.labeled {
            let expected = "images of a source with labels";
            return Err(Error::parameter("CudaBuffer::labels_address", "source", expected, "none"));
        }
        Ok(self.buffer()?.address() + labels_offset(self.len_bytes) as u64)
    }

    /// Waits for the batch and copies its images to other memory of the device, for libraries that cannot take over
    /// memory.
    ///
    /// # Safety
    /// `to` is the address of [`len_bytes`](Self::len_bytes) bytes of this device's memory, which nothing else uses
    /// until this returns.
    ///
    /// # Synchronization
    /// The copy is complete when this returns.
    ///
    /// # Errors
    /// [`Error::Device`] if the device fails.
    pub unsafe fn copy_to(&self, to: u64) -> Result<()> {
        let _entered = driver::enter(&self.pool.context)?;
        let buffer = self.buffer()?;
        self.pool.reader.wait(&buffer.ready)?;
        // SAFETY: the buffer is as long; what writes it is the batch, which the stream waits for; `to` by contract.
        unsafe { driver::copy(to, buffer.address(), self.len_bytes, &self.pool.reader)? };
        self.pool.reader.synchronize()
    }

    /// Waits for the batch and copies `to.len()` bytes from an offset on.
    pub(crate) fn read(&self, offset_bytes: usize, to: &mut [u8]) -> Result<()> {
        let _entered = driver::enter(&self.pool.context)?;
        let buffer = self.buffer()?;
        debug_assert!(offset_bytes + to.len() <= self.len_bytes);
        self.pool.reader.wait(&buffer.ready)?;
        // SAFETY: the buffer is longer than `to` from there; what writes it is the batch, which the stream waits for.
        unsafe { driver::download(to, buffer.address() + offset_bytes as u64, &self.pool.reader) }
    }

    /// The pool that the memory goes back to.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Gives the memory to the owner of `stream`, who frees it in the order of that stream. The memory begins with the
    /// batch's images.
    #[cfg(feature = "candle-cuda")]
    pub(crate) fn give_away(mut self, stream: &Arc<CudaStream>) -> Result<u64> {
        self.on_stream(stream)?;
        let users = std::mem::take(self.users.get_mut().unwrap_or_else(PoisonError::into_inner));
        let _entered = driver::enter(&self.pool.context)?;
        for user in users {
            // SAFETY: the stream is alive.
            unsafe { driver::wait(stream.cu_stream(), &user.reached(&self.pool.context)?)? };
        }
        match self.buffer.take() {
            Some(buffer) => Ok(buffer.memory.leak()),
            None => self.buffer().map(Buffer::address),
        }
    }

    /// The address for a consumer that does not say on which stream it works. The batch is complete for the streams
    /// that were made to wait for it. If there were none, it is complete when this returns, and the consumer must read
    /// it on the legacy default stream, or on one that this stream waits for.
    #[cfg(feature = "dlpack")]
    pub(crate) fn lend(&self) -> Result<u64> {
        if self.users.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            self.synchronize()?;
            return self.lend_unordered();
        }
        Ok(self.buffer()?.address())
    }

    /// The address for a consumer that waits for the batch by itself. See [`lend`](Self::lend).
    #[cfg(feature = "dlpack")]
    pub(crate) fn lend_unordered(&self) -> Result<u64> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).push(User::Raw(LEGACY));
        Ok(self.buffer()?.address())
    }

    fn buffer(&self) -> Result<&Buffer> {
        self.buffer.as_ref().ok_or_else(|| Error::Device {
            call: "use a batch".to_owned(),
            message: "its memory has been given away".to_owned(),
        })
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        let Some(mut buffer) = self.buffer.take() else { return };
        let users = std::mem::take(self.users.get_mut().unwrap_or_else(PoisonError::into_inner));
        let reached = driver::enter(&self.pool.context)
            .and_then(|_entered| users.iter().map(|user| user.reached(&self.pool.context)).collect::<Result<Vec<_>>>());
        match reached {
            Ok(events) => {
                buffer.users = events;
                self.pool.give(buffer);
            }
            // Where its users stand is not known, so it waits for the whole device.
            Err(_) => drop(buffer),
        }
    }
}
