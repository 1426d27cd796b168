//! Batches in device memory, and the order of work on them.
#![allow(unsafe_code)]

use super::driver::{self, COPY_BEFORE, Context, DeviceMemory, Event, Stream};
use super::pool::Pool;
use super::user::{PER_THREAD, StreamOwner, User};
use crate::error::{Error, Result};
use cudarc::driver::{CudaContext, CudaStream, sys};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Device memory of a tensor: the images, then their labels.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(super) memory: DeviceMemory,
    /// Recorded when the batch is complete.
    pub(crate) ready: Event,
    /// Events of the streams that used the buffer last, recorded when the last batch in it was dropped.
    pub(crate) users: Vec<Event>,
    /// Whether unknown streams may still use it: to free it, the whole context must be waited for.
    pub(super) is_held: bool,
}

impl Buffer {
    /// A buffer that nothing uses after the work that `stream` has queued so far, which includes its allocation.
    pub(super) fn new(memory: DeviceMemory, context: &Context, stream: &Stream) -> Result<Self> {
        let this = Self { memory, ready: Event::new(context)?, users: Vec::new(), is_held: false };
        this.ready.record(stream)?;
        Ok(this)
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.memory.len_bytes()
    }

    /// The events after which nothing uses the buffer.
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.users.iter().chain([&self.ready])
    }

    /// Frees the buffer in the order of a stream, without waiting for it.
    pub(super) fn free_after(mut self, stream: &Stream) -> Result<()> {
        self.events().try_for_each(|event| stream.wait(event))?;
        self.memory.free_after(stream)
    }
}

impl Drop for Buffer {
    /// Waits until the buffer is idle, and frees it.
    fn drop(&mut self) {
        let wait = || {
            let _entered = self.ready.enter()?;
            self.events().try_for_each(Event::synchronize)
        };
        if !self.is_held && self.memory.is_there() && wait().is_ok() {
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

/// A buffer that its tensor has given back, with the streams whose work on it is not recorded yet.
struct Returned {
    buffer: Buffer,
    users: Vec<User>,
    pool: Arc<Pool>,
}

/// Buffers whose streams captured graphs when their tensors were dropped. An event that is recorded on a capturing
/// stream belongs to the graph, and to wait for the context would end the capture. So the events are recorded later,
/// once the streams no longer capture.
static ASIDE: Mutex<Vec<Returned>> = Mutex::new(Vec::new());
/// Number of buffers put aside, so that the lock is taken only if there are some.
static ASIDE_LEN: AtomicUsize = AtomicUsize::new(0);

fn lock_aside() -> MutexGuard<'static, Vec<Returned>> {
    ASIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the buffers that were put aside to their pools if their streams no longer capture.
pub(crate) fn settle_aside() {
    if ASIDE_LEN.load(Relaxed) == 0 || driver::is_used_by_parent() {
        return;
    }
    let all = std::mem::take(&mut *lock_aside());
    // Without the lock: this may drop pools.
    let still: Vec<Returned> = all.into_iter().filter_map(|returned| returned.settle(Vec::new())).collect();
    let mut aside = lock_aside();
    aside.extend(still);
    ASIDE_LEN.store(aside.len(), Relaxed);
}

impl Returned {
    /// Records the work of the buffer's users, and gives it to its pool. Comes back if one of them captures a graph.
    /// Events of `spare` are used first.
    fn settle(mut self, mut spare: Vec<Event>) -> Option<Self> {
        let users = std::mem::take(&mut self.users);
        let context = Arc::clone(self.pool.context());
        // cudarc's streams make their own context current when they are dropped, so they are dropped while it is.
        let Ok(_entered) = driver::enter(&context) else {
            // Gone are the buffer and the streams, or they are those of the process that forked this one.
            std::mem::forget(users);
            return None;
        };
        let mut is_known = true;
        for user in users {
            match user.reached(&context, spare.pop()) {
                Ok(Some(event)) => self.buffer.users.push(event),
                Ok(None) => self.users.push(user),
                Err(_) => is_known = false,
            }
        }
        match (is_known, self.users.is_empty()) {
            (false, _) => {
                self.users.clear();
                self.pool.hold(self.buffer);
            }
            (true, true) => self.pool.give(self.buffer),
            (true, false) => return Some(self),
        }
        None
    }
}

/// The memory of a tensor on a CUDA device. Dropping it gives the memory back to the pipeline. The pipeline uses it
/// again only after the work that was queued, until then, on the streams that were made to wait for the batch. If one
/// of them captures a graph at that time: after the work that is queued when it no longer does.
pub struct CudaBuffer {
    /// `None` once dropped or given away.
    buffer: Option<Buffer>,
    pool: Arc<Pool>,
    len_bytes: usize,
    /// Whether labels follow the images.
    labeled: bool,
    users: Mutex<Vec<User>>,
}

impl fmt::Debug for CudaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaBuffer({} bytes on cuda:{})", self.len_bytes, self.pool.ordinal())
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
        let _entered = driver::enter(self.pool.context())?;
        self.buffer()?.ready.synchronize()
    }

    /// Number of the device.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.pool.ordinal()
    }

    /// The context that the memory belongs to: the device's primary context.
    #[must_use]
    pub fn context(&self) -> &Arc<CudaContext> {
        self.pool.context()
    }

    /// Makes `stream` wait for the batch. Returns the device address of the first element, a multiple of 256.
    ///
    /// # Synchronization
    /// Returns at once. Work queued on `stream` after this call finds the batch complete. The memory is reused only
    /// after the work that is queued there until this buffer is dropped.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a stream of another device, and for one that captures a graph, in which the work would
    /// run only later, on whatever the memory then holds; [`Error::Device`] if the driver refuses, or if an earlier
    /// call on the device has failed.
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
        unsafe { self.wait(User::Raw(stream, None, None)) }
    }

    /// Makes a stream wait for the batch, given by its handle and by what keeps it: an object of another library that
    /// destroys the stream when it is dropped, for example. It is kept until the stream's work on the batch is known.
    /// See [`on_stream`](Self::on_stream).
    ///
    /// # Safety
    /// `stream` is a stream of this buffer's context, or a default stream, and lives as long as `owner`.
    ///
    /// # Synchronization
    /// See [`on_stream`](Self::on_stream).
    ///
    /// # Errors
    /// The errors of [`on_stream`](Self::on_stream).
    pub unsafe fn on_kept_stream(&self, stream: sys::CUstream, owner: StreamOwner) -> Result<u64> {
        // SAFETY: the contract; the owner is kept with the stream.
        unsafe { self.wait(User::Raw(stream, None, Some(owner))) }
    }

    /// # Safety
    /// The user's stream lives until this has been dropped.
    unsafe fn wait(&self, mut user: User) -> Result<u64> {
        let _entered = driver::enter(self.pool.context())?;
        let buffer = self.buffer()?;
        // SAFETY: the contract.
        unsafe {
            driver::check_user("CudaBuffer::on_stream", COPY_BEFORE, self.pool.context(), user.raw())?;
            driver::wait(user.raw(), &buffer.ready)?;
            if let User::Raw(stream, id, _) = &mut user
                && *stream > PER_THREAD
            {
                *id = driver::stream_id(*stream);
            }
        }
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if user.keeps() || !users.iter().any(|known| known.raw() == user.raw()) {
            users.push(user);
        }
        Ok(buffer.address())
    }

    /// The device address of the batch's labels: one 32-bit unsigned number per image. Use it only on a stream that
    /// [`on_stream`](Self::on_stream) has been called with.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the samples have no labels, or if the buffer is not one of images; [`Error::Device`] if
    /// the memory has been given away.
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
        let _entered = driver::enter(self.pool.context())?;
        let buffer = self.buffer()?;
        self.pool.reader().wait(&buffer.ready)?;
        // SAFETY: the buffer is as long; what writes it is the batch, which the stream waits for; `to` by contract.
        unsafe { driver::copy(to, buffer.address(), self.len_bytes, self.pool.reader())? };
        self.pool.reader().synchronize()
    }

    /// Waits for the batch and copies `to.len()` bytes from an offset on.
    pub(crate) fn read(&self, offset_bytes: usize, to: &mut [u8]) -> Result<()> {
        let _entered = driver::enter(self.pool.context())?;
        let buffer = self.buffer()?;
        debug_assert!(offset_bytes + to.len() <= self.len_bytes);
        self.pool.reader().wait(&buffer.ready)?;
        // SAFETY: the buffer is longer than `to` from there; what writes it is the batch, which the stream waits for.
        unsafe { driver::download(to, buffer.address() + offset_bytes as u64, self.pool.reader()) }
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
        let _entered = driver::enter(self.pool.context())?;
        let users = self.users.get_mut().unwrap_or_else(PoisonError::into_inner);
        for user in &*users {
            let Some(event) = user.reached(self.pool.context(), None)? else {
                let expected = "a tensor whose streams capture no graph";
                return Err(Error::parameter("CudaBuffer::give_away", "stream", expected, "one that captures"));
            };
            // SAFETY: the stream is alive.
            unsafe { driver::wait(stream.cu_stream(), &event)? };
        }
        users.clear();
        match self.buffer.take() {
            Some(mut buffer) => Ok(buffer.memory.leak()),
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
        let address = self.buffer()?.address();
        self.users.lock().unwrap_or_else(PoisonError::into_inner).push(User::Raw(driver::LEGACY, None, None));
        Ok(address)
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
        // The batch has been made to wait for the events of its memory's last users, so they can be recorded anew.
        let spare = std::mem::take(&mut buffer.users);
        let returned = Returned { buffer, users, pool: Arc::clone(&self.pool) };
        if let Some(returned) = returned.settle(spare) {
            let mut aside = lock_aside();
            aside.push(returned);
            ASIDE_LEN.store(aside.len(), Relaxed);
        }
        settle_aside();
    }
}
