//! nvJPEG's objects by their handles, which are numbers. None is used twice.

use crate::buffer::Buffer;
use crate::jpeg::{Result, Source};
use nvjpeg_sys::bindings::{nvjpegBackend_t, nvjpegOutputFormat_t, nvjpegStatus_t as Status};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// Whether a thread is in a call that decodes a batch.
    pub busy: AtomicBool,
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
}

/// An image after the host phase.
#[derive(Clone)]
pub struct Phase {
    pub source: Source,
    pub checksum: u64,
    pub bytes: usize,
    /// The device buffer, once the transfer is queued.
    pub transferred_to: Option<Arc<Buffer>>,
}

pub struct JpegStream {
    pub handle: Arc<Handle>,
    pub source: Mutex<Option<Source>>,
}

pub struct DecodeParams {
    /// Kept, so that the handle is known to be in use.
    pub _handle: Arc<Handle>,
    pub format: Mutex<nvjpegOutputFormat_t>,
}
