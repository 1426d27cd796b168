//! nvJPEG's objects by their handles, which are numbers. None is used twice.

use crate::buffer::Buffer;
use crate::driver::driver;
use crate::jpeg::{Result, Source};
use nvjpeg_sys::bindings::{
    cudaStream_t, nvjpegBackend_t, nvjpegDevAllocatorV2_t, nvjpegOutputFormat_t, nvjpegPinnedAllocatorV2_t,
    nvjpegStatus_t as Status,
};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpfeed_image::{Rect, Size};

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The living objects of a kind.
pub struct Table<T>(Mutex<BTreeMap<usize, Arc<T>>>);

impl<T> Table<T> {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Writes a new object's handle to `out`.
    pub fn insert<H>(&self, object: T, out: *mut *mut H) -> Result<()> {
        static NEXT: AtomicUsize = AtomicUsize::new(0x4000_0000);
        if out.is_null() {
            return Err(Status::NVJPEG_STATUS_INVALID_PARAMETER);
        }
        let number = NEXT.fetch_add(16, Ordering::Relaxed);
        lock(&self.0).insert(number, Arc::new(object));
        // SAFETY: not null, so by nvJPEG's contract memory for a handle.
        unsafe { out.write(std::ptr::without_provenance_mut(number)) };
        Ok(())
    }

    pub fn get<H>(&self, handle: *mut H) -> Result<Arc<T>> {
        lock(&self.0).get(&handle.addr()).cloned().ok_or(Status::NVJPEG_STATUS_INVALID_PARAMETER)
    }

    pub fn remove<H>(&self, handle: *mut H) -> Result<Arc<T>> {
        lock(&self.0).remove(&handle.addr()).ok_or(Status::NVJPEG_STATUS_INVALID_PARAMETER)
    }
}

pub static HANDLES: Table<Handle> = Table::new();
pub static DECODERS: Table<Decoder> = Table::new();
pub static STATES: Table<State> = Table::new();
pub static STREAMS: Table<JpegStream> = Table::new();
pub static PARAMETERS: Table<DecodeParams> = Table::new();
pub static PINNED: Table<Buffer> = Table::new();
pub static DEVICE: Table<Buffer> = Table::new();

/// Operations that use an object and have not run yet.
#[derive(Default)]
pub struct InFlight(Mutex<Vec<Arc<AtomicBool>>>);

/// Token of an operation. When it is dropped, the operation is done.
pub struct Token(Arc<AtomicBool>);

impl InFlight {
    pub fn begin(&self) -> Token {
        let done = Arc::new(AtomicBool::new(false));
        lock(&self.0).push(done.clone());
        Token(done)
    }

    pub fn is_under_way(&self) -> bool {
        let mut tokens = lock(&self.0);
        tokens.retain(|done| !done.load(Ordering::Acquire));
        !tokens.is_empty()
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

pub struct Handle {
    pub backend: nvjpegBackend_t,
    /// Whether chroma is interpolated.
    pub interpolates: bool,
    /// The caller's source of memory.
    pub allocators: Option<Allocators>,
    /// Sizes of pinned and of device memory are rounded up to multiples of these.
    pub padding_bytes: [AtomicUsize; 2],
    /// Whether a thread is in a call that decodes a batch.
    pub busy: AtomicBool,
}

/// A caller's allocators of device memory and of pinned memory.
#[derive(Clone, Copy)]
pub struct Allocators(pub nvjpegDevAllocatorV2_t, pub nvjpegPinnedAllocatorV2_t);

// SAFETY: by nvJPEG's contract the allocators may be called on any thread.
unsafe impl Send for Allocators {}
// SAFETY: as above.
unsafe impl Sync for Allocators {}

/// Number of allocations that callers' allocators have made, and of those that they have taken back.
pub static ALLOCATED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

impl Handle {
    /// Allocates memory for work on a stream. Returns its address and its size.
    pub fn allocate(&self, device: bool, bytes: usize, stream: cudaStream_t) -> Result<(usize, usize)> {
        let padding = self.padding_bytes[usize::from(device)].load(Ordering::Relaxed).max(4096);
        let bytes = bytes.next_multiple_of(padding);
        let Some(Allocators(of_device, of_host)) = &self.allocators else {
            return Ok((driver()?.allocate(device, bytes)?, bytes));
        };
        let (allocate, context) = match device {
            true => (of_device.dev_malloc, of_device.dev_ctx),
            false => (of_host.pinned_malloc, of_host.pinned_ctx),
        };
        let mut address: *mut c_void = ptr::null_mut();
        // SAFETY: by nvJPEG's contract the allocator has this type and writes the address.
        let code = allocate.map(|allocate| unsafe { allocate(context, &raw mut address, bytes, stream) });
        if code != Some(0) || address.is_null() {
            return Err(Status::NVJPEG_STATUS_ALLOCATOR_FAILURE);
        }
        ALLOCATED[0].fetch_add(1, Ordering::Relaxed);
        Ok((address as usize, bytes))
    }

    /// Frees memory that `allocate` has returned, after the work on a stream.
    pub fn free(&self, device: bool, (address, bytes): (usize, usize), stream: cudaStream_t) -> Result<()> {
        let Some(Allocators(of_device, of_host)) = &self.allocators else { return driver()?.free(device, address) };
        let (free, context) = match device {
            true => (of_device.dev_free, of_device.dev_ctx),
            false => (of_host.pinned_free, of_host.pinned_ctx),
        };
        // SAFETY: by nvJPEG's contract the allocator has this type; the memory is from it.
        let code = free.map(|free| unsafe { free(context, address as *mut c_void, bytes, stream) });
        ALLOCATED[1].fetch_add(1, Ordering::Relaxed);
        if code == Some(0) { Ok(()) } else { Err(Status::NVJPEG_STATUS_ALLOCATOR_FAILURE) }
    }
}

pub struct Decoder {
    pub handle: Arc<Handle>,
    pub backend: nvjpegBackend_t,
}

/// State of a decoder; without one, state for batches.
pub struct State {
    pub handle: Arc<Handle>,
    pub decoder: Option<Arc<Decoder>>,
    pub inner: Mutex<StateInner>,
    /// Device phases and batches that use the state.
    pub flight: InFlight,
}

#[derive(Default)]
pub struct StateInner {
    pub pinned: Option<Arc<Buffer>>,
    pub device: Option<Arc<Buffer>>,
    /// The image between two phases.
    pub image: Option<Phase>,
    pub batch_size: usize,
    pub format: Option<nvjpegOutputFormat_t>,
    /// Memory for batches, on the device and pinned.
    pub scratch: Option<[Buffer; 2]>,
    /// Whether memory was preallocated, and whether a batch was decoded.
    pub is_preallocated: bool,
    pub has_decoded: bool,
}

/// An image after the host phase.
#[derive(Clone)]
pub struct Phase {
    pub source: Source,
    pub checksum: u64,
    /// Size of the decoded part.
    pub size: Size,
    pub bytes: usize,
    /// The device buffer, once the transfer is queued.
    pub transferred_to: Option<Arc<Buffer>>,
}

pub struct JpegStream {
    pub handle: Arc<Handle>,
    pub parsed: Mutex<Parsed>,
}

/// What a stream has parsed.
#[derive(Clone, Default)]
pub enum Parsed {
    #[default]
    Nothing,
    Whole(Source),
    Header(Source),
    /// Parsing a header has failed, and no other call is allowed.
    Unusable,
}

pub struct DecodeParams {
    /// Kept, so that the handle is known to be in use.
    pub _handle: Arc<Handle>,
    pub format: Mutex<nvjpegOutputFormat_t>,
    /// The part that is decoded. `None`: all.
    pub region: Mutex<Option<Rect>>,
}
