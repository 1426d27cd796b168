//! The driver's objects, each freed when it is dropped: streams, events and memory. Errors contain the name of the
//! call.
//!
//! cudarc's own safe layer remembers only the last reader of memory, which is not enough for buffers with several (see
//! the head of this folder). Here the owners of memory order its users by events of their own.
#![allow(unsafe_code)]

use crate::device::StreamPriority;
use crate::error::{Error, Result};
use crate::memory;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, sys};
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Names of the CUDA driver's library.
const DRIVER_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// A CUDA context with several owners: the device's primary context.
pub(crate) type Context = Arc<CudaContext>;

/// Whether there is a driver to load. cudarc panics without one, so check this before any call of it.
pub(crate) fn driver_is_there() -> bool {
    DRIVER_NAMES.iter().any(|name| {
        // SAFETY: loading NVIDIA's driver library runs its initializers, which any program may run at any time, and
        // nothing of it is called here.
        let library = unsafe { libloading::Library::new(*name) };
        library.is_ok()
    })
}

/// The primary contexts that this process has retained, with the number of their device. Each is retained once and
/// kept, as CUDA's runtime does. If the last pipeline released its context, the driver would destroy it, and the next
/// pipeline would wait for a new one.
static CONTEXTS: Mutex<Vec<(u32, Context)>> = Mutex::new(Vec::new());

/// Number of devices that the driver shows.
pub(crate) fn device_count() -> Result<i32> {
    if !driver_is_there() {
        let message = format!(
            "no NVIDIA driver on this machine (looked for {} where the system's loader looks, LD_LIBRARY_PATH \
             included): install it, or use Device::Cpu (--device cpu)",
            DRIVER_NAMES.join(" and ")
        );
        return Err(Error::Device { call: "look for CUDA devices".to_owned(), message });
    }
    check("cuInit", result::init())?;
    check("cuDeviceGetCount", result::device::get_count())
}

/// The primary context of device `ordinal`. The context that is current on this thread stays current.
pub(crate) fn context(ordinal: u32) -> Result<Context> {
    let missing = |message| Error::Device { call: format!("open CUDA device {ordinal}"), message };
    let devices = device_count().map_err(|error| match error {
        Error::Device { message, .. } => missing(message),
        other => other,
    })?;
    if i64::from(ordinal) >= i64::from(devices) {
        let hidden = "numbered from 0 (CUDA_VISIBLE_DEVICES hides some)";
        return Err(missing(format!("the driver sees {devices} devices, {hidden}")));
    }
    let current = check("cuCtxGetCurrent", result::ctx::get_current())?;
    let context = retained(ordinal);
    let none = std::ptr::null_mut();
    // SAFETY: the driver refuses a context that is gone since; null stands for none.
    let restored =
        unsafe { result::ctx::set_current(current.unwrap_or(none)).or_else(|_| result::ctx::set_current(none)) };
    check("cuCtxSetCurrent", restored).and(context)
}

/// The primary context of a device that exists. Any context may be current on this thread afterwards.
fn retained(ordinal: u32) -> Result<Context> {
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = contexts.iter().position(|(of, _)| *of == ordinal) {
        let (_, known) = &contexts[at];
        match enter(known).map(|_entered| known.mem_get_info()) {
            Ok(Ok(_)) => return Ok(Arc::clone(known)),
            // The context has failed. The driver makes a new one once all owners have released it.
            Ok(Err(_)) => drop(contexts.swap_remove(at)),
            // Somebody has reset the device, and so all retained contexts are gone: there is nothing to release.
            Err(_) => std::mem::forget(contexts.swap_remove(at)),
        }
    }
    let context = check("cuDevicePrimaryCtxRetain", CudaContext::new(ordinal as usize))?;
    contexts.push((ordinal, Arc::clone(&context)));
    Ok(context)
}

/// Until it is dropped, this thread's calls do not disturb other threads that capture a graph. While a trainer captures
/// one in the global mode, a call that might synchronize, such as asking for an event, is refused on every thread, and the
/// capture is lost. In the relaxed mode it is neither. No stream of a pipeline is ever captured, so nothing here needs the
/// mode.
#[must_use]
pub(crate) struct Relaxed {
    /// The thread's mode before; `None` if the driver refused to change it.
    before: Option<sys::CUstreamCaptureMode>,
    /// Not `Send`: the mode is one thread's.
    _thread: PhantomData<*const ()>,
}

impl Relaxed {
    fn begin() -> Self {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the mode is read, and the one before is written, before the call returns.
        let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result();
        Self { before: exchanged.is_ok().then_some(mode), _thread: PhantomData }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some(mut mode) = self.before {
            // SAFETY: as in `begin`.
            let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        }
    }
}

/// [`Relaxed`] for calls of others, who may use a device or not. `None` where there is no driver.
pub(crate) fn relaxed() -> Option<Relaxed> {
    static DRIVER: OnceLock<bool> = OnceLock::new();
    DRIVER.get_or_init(driver_is_there).then(Relaxed::begin)
}

/// Keeps a context current on this thread until it is dropped, then restores the one before. A trainer's thread may
/// have its own context current, even one of another device. Meanwhile captures of others are not disturbed.
#[must_use]
pub(crate) struct Entered {
    pushed: bool,
    _relaxed: Relaxed,
}

/// Makes the context current on this thread.
pub(crate) fn enter(context: &Context) -> Result<Entered> {
    let current = check("cuCtxGetCurrent", result::ctx::get_current())?;
    let pushed = current != Some(context.cu_ctx());
    if pushed {
        // SAFETY: the context is retained, or the driver refuses it.
        check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(context.cu_ctx()) }.result())?;
    }
    Ok(Entered { pushed, _relaxed: Relaxed::begin() })
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = std::ptr::null_mut();
            // SAFETY: it was pushed on this thread, and whatever was pushed since has been popped.
            let _ = unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) };
        }
    }
}

/// Waits until the device has done all work that was queued in the context, on every stream. A capture of a trainer's is
/// lost by that, in whatever mode and thread; so what can be waited for by events is.
///
/// # Errors
/// [`Error::Device`] if the context has failed, or while one of its streams captures a graph.
pub(crate) fn wait_for_all(context: &Context) -> Result<()> {
    let _entered = enter(context)?;
    check("cuCtxSynchronize", result::ctx::synchronize())
}

/// Whether a call was refused because a stream captures a graph.
pub(crate) fn is_capture(error: &Error) -> bool {
    const FIRST: u32 = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as u32;
    const LAST: u32 = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD as u32;
    matches!(error, Error::Cuda { code: FIRST..=LAST, .. })
}

/// A value whose context must be current when it is dropped, such as nvJPEG's objects.
pub(crate) struct Scoped<T> {
    value: ManuallyDrop<T>,
    context: Context,
}

impl<T> Scoped<T> {
    pub(crate) fn new(context: &Context, value: T) -> Self {
        Self { value: ManuallyDrop::new(value), context: Arc::clone(context) }
    }
}

impl<T> Deref for Scoped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Scoped<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Scoped<T> {
    fn drop(&mut self) {
        let _entered = enter(&self.context);
        // SAFETY: it is dropped here and nowhere else.
        unsafe { ManuallyDrop::drop(&mut self.value) };
    }
}

/// Turns the driver's error into one with the name of the call, and the driver's name and text for the error.
pub(crate) fn check<T>(call: &str, result: std::result::Result<T, DriverError>) -> Result<T> {
    result.map_err(|error| {
        let text = |text: std::result::Result<&std::ffi::CStr, DriverError>| {
            text.map_or_else(
                |_| "an error that the driver does not know".to_owned(),
                |t| t.to_string_lossy().into_owned(),
            )
        };
        let mut message = text(error.error_string());
        match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                message += "; use a smaller batch_size or prefetch, or free memory of the device";
            }
            sys::CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU | sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
                message += "; build with WARPFEED_CUDA_ARCHS naming this device's architecture (`warpfeed doctor`)";
            }
            _ => {}
        }
        Error::Cuda { call: call.to_owned(), code: error.0 as u32, name: text(error.error_name()), message }
    })
}

/// Checks an allocation of `len_bytes` bytes and returns its address.
fn allocated<T>(
    context: &Context,
    call: &str,
    len_bytes: usize,
    address: std::result::Result<T, DriverError>,
) -> Result<T> {
    if matches!(address, Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))) {
        return Err(Error::OutOfDeviceMemory {
            what: "a batch",
            needed_bytes: len_bytes as u64,
            available_bytes: context.mem_get_info().map_or(0, |(free, _)| free as u64),
            remedy: "use a smaller batch_size or prefetch, or free memory of the device",
        });
    }
    check(call, address)
}

/// A stream of the context that does not wait for the default stream.
#[derive(Debug)]
pub(crate) struct Stream {
    raw: sys::CUstream,
    context: Context,
}

// SAFETY: streams belong to a context, not to a thread; the driver's functions on them are thread-safe.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new(context: &Context, priority: StreamPriority) -> Result<Self> {
        let _entered = enter(context)?;
        let (mut least, mut greatest, mut raw) = (0, 0, std::ptr::null_mut());
        // SAFETY: both numbers are written before the call returns.
        let range = unsafe { sys::cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest) }.result();
        check("cuCtxGetStreamPriorityRange", range)?;
        let priority = match priority {
            StreamPriority::Low => least,
            StreamPriority::High => greatest,
        };
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the stream is written before the call returns.
        let made = unsafe { sys::cuStreamCreateWithPriority(&raw mut raw, flags, priority) }.result();
        check("cuStreamCreateWithPriority", made)?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Makes work that is queued here later wait for the event.
    pub(crate) fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: both are alive.
        unsafe { wait(self.raw, event) }
    }

    /// Waits for all work queued here.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is alive.
        check("cuStreamSynchronize", unsafe { result::stream::synchronize(self.raw) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A failed context may refuse. Nothing can be done about it here, nor in the drops below.
        let _entered = enter(&self.context);
        // SAFETY: the stream is alive and its owner is gone; work that is queued on it goes on to its end.
        let _ = unsafe { result::stream::destroy(self.raw) };
    }
}

/// Makes work that is queued later on `stream` wait for the event.
///
/// # Safety
/// `stream` is a live stream, or one of the default streams.
pub(crate) unsafe fn wait(stream: sys::CUstream, event: &Event) -> Result<()> {
    let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    // SAFETY: the event is alive, the stream by contract.
    check("cuStreamWaitEvent", unsafe { result::stream::wait_event(stream, event.raw, flags) })
}

/// Checks that a stream can wait for a batch of this context, which must be current: it is of the same context, captures
/// no graph, and does not wait for a stream that does.
///
/// # Safety
/// `stream` is a live stream, or one of the default streams.
pub(crate) unsafe fn check_user(context: &Context, stream: sys::CUstream) -> Result<()> {
    let refuse = |expected: &str, got: &str| Err(Error::parameter("CudaBuffer::on_stream", "stream", expected, got));
    let mut owner = std::ptr::null_mut();
    // SAFETY: alive, by contract; the context is written before the call returns.
    check("cuStreamGetCtx", unsafe { sys::cuStreamGetCtx(stream, &raw mut owner) }.result())?;
    if owner != context.cu_ctx() {
        return refuse("one of the batch's device", "a stream of another device, or of another context");
    }
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: as above.
    let asked = unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) }.result();
    let expected = "one that captures no graph: copy the batch into the graph's own memory before its launch";
    // The legacy default stream cannot capture, but it would wait for the streams that do, which ends their captures.
    if asked == Err(DriverError(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)) {
        return refuse(expected, "the default stream while a stream captures that it waits for");
    }
    check("cuStreamIsCapturing", asked)?;
    if status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        return refuse(expected, "a stream that captures");
    }
    Ok(())
}

/// A point in a stream's work. An event that was never recorded counts as passed.
#[derive(Debug)]
pub(crate) struct Event {
    raw: sys::CUevent,
    context: Context,
}

// SAFETY: as for streams.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new(context: &Context) -> Result<Self> {
        Self::create(context, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// An event that measures time.
    pub(crate) fn timed(context: &Context) -> Result<Self> {
        Self::create(context, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn create(context: &Context, flags: sys::CUevent_flags) -> Result<Self> {
        let _entered = enter(context)?;
        let mut raw = std::ptr::null_mut();
        // A waiting thread sleeps instead of spinning: the core has other work.
        let flags = flags as u32 | sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
        // SAFETY: the event is written before the call returns.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut raw, flags) }.result())?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    /// Records the work queued on `stream` so far.
    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the stream is alive.
        unsafe { self.record_raw(stream.raw) }
    }

    /// Records the work queued on `stream` so far.
    ///
    /// # Safety
    /// `stream` is a live stream, or one of the default streams.
    pub(crate) unsafe fn record_raw(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: the event is alive, the stream by contract.
        check("cuEventRecord", unsafe { result::event::record(self.raw, stream) })
    }

    /// Makes the event's context current on this thread.
    pub(crate) fn enter(&self) -> Result<Entered> {
        enter(&self.context)
    }

    /// Waits until the recorded work is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the event is alive.
        check("cuEventSynchronize", unsafe { result::event::synchronize(self.raw) })
    }

    /// Whether the recorded work is known to be done.
    pub(crate) fn is_done(&self) -> bool {
        let Ok(_entered) = self.enter() else { return false };
        // SAFETY: the event is alive.
        unsafe { result::event::query(self.raw) }.is_ok()
    }

    /// Milliseconds from `start` to this event. Both must be timed, recorded and done.
    pub(crate) fn since_ms(&self, start: &Self) -> Option<f32> {
        let (elapsed_time, mut milliseconds) = (elapsed_time()?, 0.0);
        // SAFETY: both are alive, and there is room for the result.
        let result = unsafe { elapsed_time(&mut milliseconds, start.raw, self.raw) };
        (result == sys::CUresult::CUDA_SUCCESS).then_some(milliseconds)
    }
}

type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// Finds `cuEventElapsedTime`, which every driver has. Bindings for CUDA 13 have only its successor, which older
/// drivers lack.
fn elapsed_time() -> Option<ElapsedTime> {
    static FOUND: OnceLock<Option<ElapsedTime>> = OnceLock::new();
    let find = |name: &&str| {
        // SAFETY: an event exists, so this driver is loaded already, and cudarc never lets it go.
        let library = ManuallyDrop::new(unsafe { libloading::Library::new(*name) }.ok()?);
        // SAFETY: this is the function's type since CUDA 2.
        let function = unsafe { library.get::<ElapsedTime>(b"cuEventElapsedTime\0") };
        function.ok().map(|function| *function)
    };
    *FOUND.get_or_init(|| DRIVER_NAMES.iter().find_map(find))
}

impl Drop for Event {
    fn drop(&mut self) {
        let _entered = enter(&self.context);
        // SAFETY: the event is alive and its owner is gone.
        let _ = unsafe { result::event::destroy(self.raw) };
    }
}

/// Device memory. Freeing memory of a pool does not wait for its users on a card. So an owner that has waited for them
/// says so ([`idle`](Self::idle)). Other memory waits for the whole device when it is dropped, which ends a trainer's
/// capture; it is lost if nobody can wait.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    address: sys::CUdeviceptr,
    len_bytes: usize,
    context: Context,
    /// Whether nothing uses it any more.
    is_idle: bool,
    /// The pool that the memory is from, which must live as long.
    _pool: Option<Arc<MemoryPool>>,
}

impl DeviceMemory {
    /// Allocates `len_bytes` bytes, aligned to 256, with undefined contents.
    ///
    /// # Synchronization
    /// This may wait for the device. The memory is idle when this returns.
    pub(crate) fn new(context: &Context, len_bytes: usize) -> Result<Self> {
        let _entered = enter(context)?;
        // SAFETY: what it holds is written before it is read.
        let address = allocated(context, "cuMemAlloc", len_bytes, unsafe { result::malloc_sync(len_bytes.max(1)) })?;
        Ok(Self { address, len_bytes, context: Arc::clone(context), is_idle: false, _pool: None })
    }

    /// Says that nothing uses the memory any more.
    pub(crate) fn idle(&mut self) {
        self.is_idle = true;
    }

    /// Gives the memory to a caller who frees it.
    #[cfg(feature = "candle-cuda")]
    pub(crate) fn leak(self) -> u64 {
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: both are dropped once: `this` is never used again. A pool that is destroyed goes once its memory is freed.
        unsafe {
            std::ptr::drop_in_place(&raw mut this.context);
            std::ptr::drop_in_place(&raw mut this._pool);
        }
        this.address
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // In a failed context nothing runs any more. While a trainer captures a graph, nobody can wait: better lost.
        if !self.is_idle && wait_for_all(&self.context).is_err_and(|error| is_capture(&error)) {
            return;
        }
        let _entered = enter(&self.context);
        // SAFETY: it was allocated by `new` or a pool, is freed once, and nothing uses it any more.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

/// A stream-ordered pool of device memory. It keeps freed memory until it is dropped, so allocations are cheap. The
/// device's default pool stays as the trainer has set it.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    /// `None` on devices without pools.
    raw: Option<sys::CUmemoryPool>,
    context: Context,
}

// SAFETY: as for streams.
unsafe impl Send for MemoryPool {}
// SAFETY: as above.
unsafe impl Sync for MemoryPool {}

impl MemoryPool {
    pub(crate) fn new(context: &Context) -> Result<Self> {
        if !context.has_async_alloc() {
            return Ok(Self { raw: None, context: Arc::clone(context) });
        }
        let _entered = enter(context)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: zeros are valid in every field, and mean none of what is not set below.
        let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        // SAFETY: in every version of CUDA the number of the device follows the type, under different names.
        unsafe { (&raw mut properties.location).cast::<i32>().add(1).write(context.cu_device()) };
        // SAFETY: the pool is written before the call returns.
        check("cuMemPoolCreate", unsafe { sys::cuMemPoolCreate(&raw mut raw, &raw const properties) }.result())?;
        let pool = Self { raw: Some(raw), context: Arc::clone(context) };
        let mut threshold_bytes = u64::MAX;
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let value = (&raw mut threshold_bytes).cast::<c_void>();
        // SAFETY: the pool is alive; the threshold is a 64-bit number.
        check("cuMemPoolSetAttribute", unsafe { result::mem_pool::set_attribute(raw, threshold, value) })?;
        Ok(pool)
    }

    /// Allocates in the order of `stream`, for work that is queued there or waits for it.
    pub(crate) fn allocate(self: &Arc<Self>, stream: &Stream, len_bytes: usize) -> Result<DeviceMemory> {
        let Some(raw) = self.raw else { return DeviceMemory::new(&self.context, len_bytes) };
        let (context, mut address) = (&stream.context, 0);
        let _entered = enter(context)?;
        // SAFETY: the address is written before the call returns, and what the memory holds before it is read.
        let made = unsafe { sys::cuMemAllocFromPoolAsync(&raw mut address, len_bytes.max(1), raw, stream.raw) };
        allocated(context, "cuMemAllocFromPoolAsync", len_bytes, made.result())?;
        let (context, pool) = (Arc::clone(context), Some(Arc::clone(self)));
        Ok(DeviceMemory { address, len_bytes, context, is_idle: false, _pool: pool })
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        let Some(raw) = self.raw else { return };
        let _entered = enter(&self.context);
        // SAFETY: the pool is alive and its owner is gone; it goes once memory that was given away is freed.
        let _ = unsafe { sys::cuMemPoolDestroy(raw) };
    }
}

/// Host memory that copies to a device read: pinned, so that the copy runs while the host goes on, or pageable, from
/// which the driver first copies to a buffer of its own.
#[derive(Debug)]
pub(crate) struct HostMemory {
    start: NonNull<u8>,
    len_bytes: usize,
    /// The context of pinned memory, which the driver frees; `None` if pageable.
    context: Option<Context>,
}

// SAFETY: plain memory, owned.
unsafe impl Send for HostMemory {}
// SAFETY: through a shared reference only its address can be had.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates `len_bytes` zero bytes. Pinned memory is not write-combined, since the host may read it too.
    pub(crate) fn new(context: &Context, len_bytes: usize, pinned: bool) -> Result<Self> {
        let len_bytes = len_bytes.max(1);
        if !pinned {
            let bytes = memory::zeros::<u8>(len_bytes, "staging a batch", memory::SMALLER_BATCHES)?;
            let memory = Box::leak(bytes.into_boxed_slice());
            return Ok(Self { start: NonNull::from(memory).cast(), len_bytes, context: None });
        }
        let _entered = enter(context)?;
        // SAFETY: it is written right below.
        let start = unsafe { result::malloc_host(len_bytes, 0) };
        if matches!(start, Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))) {
            let remedy = "use a smaller batch_size or prefetch, or pageable memory (pinned(false), --pageable)";
            return Err(memory::refused::<u8>("staging a batch in pinned memory", len_bytes, remedy));
        }
        let start = check("cuMemHostAlloc", start)?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| Error::Device {
            call: "cuMemHostAlloc".to_owned(),
            message: "the driver gave no memory and no error".to_owned(),
        })?;
        // SAFETY: as long as was asked for, and nobody else's.
        unsafe { start.write_bytes(0, len_bytes) };
        Ok(Self { start, len_bytes, context: Some(Arc::clone(context)) })
    }

    /// Address of the first byte, valid for reads and writes of `len_bytes` bytes while this lives.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        let Some(context) = &self.context else {
            let memory = NonNull::slice_from_raw_parts(self.start, self.len_bytes);
            // SAFETY: it is the box that `new` leaked, of this length, and goes once.
            drop(unsafe { Box::from_raw(memory.as_ptr()) });
            return;
        };
        let _entered = enter(context);
        // SAFETY: it was allocated by `new` and is freed once.
        let _ = unsafe { result::free_host(self.start.as_ptr().cast::<c_void>()) };
    }
}

/// Existing host memory that is pinned until this is dropped. Its owner has waited by then for copies from it.
#[derive(Debug)]
pub(crate) struct Pin {
    start: NonNull<u8>,
    context: Context,
}

// SAFETY: what is pinned is pinned for all threads.
unsafe impl Send for Pin {}
// SAFETY: as above; nothing can be done with a shared reference.
unsafe impl Sync for Pin {}

impl Pin {
    /// Pins memory for copies in all contexts.
    ///
    /// # Safety
    /// The memory is allocated until this is dropped, and begins and ends with a page.
    pub(crate) unsafe fn new(context: &Context, memory: &mut [u8]) -> Result<Self> {
        let _entered = enter(context)?;
        let (start, len_bytes) = (NonNull::from(&mut *memory).cast::<u8>(), memory.len());
        // SAFETY: allocated, by contract.
        let pinned = unsafe {
            sys::cuMemHostRegister_v2(start.as_ptr().cast(), len_bytes, sys::CU_MEMHOSTREGISTER_PORTABLE).result()
        };
        if matches!(pinned, Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))) {
            let remedy = "use a smaller batch_size or prefetch, or leave out pin_batches";
            return Err(memory::refused::<u8>("pinning a batch", len_bytes, remedy));
        }
        check("cuMemHostRegister", pinned)?;
        Ok(Self { start, context: Arc::clone(context) })
    }

    /// The context that was named when the memory was pinned.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let _entered = enter(&self.context);
        // SAFETY: it was pinned by `new` and is still allocated.
        let _ = unsafe { sys::cuMemHostUnregister(self.start.as_ptr().cast()) };
    }
}

/// A loaded module of kernels.
#[derive(Debug)]
pub(crate) struct Module {
    raw: sys::CUmodule,
    context: Context,
}

// SAFETY: as for streams.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel of a module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function(sys::CUfunction);

// SAFETY: as for streams.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Loads a fat binary, a cubin, or PTX that ends in a zero byte.
    pub(crate) fn load(context: &Context, image: &[u8]) -> Result<Self> {
        let _entered = enter(context)?;
        // The driver reads the length from the image itself. Zeros stop it from reading past the end of a truncated
        // image.
        let mut padded = image.to_vec();
        padded.resize(image.len() + 4096, 0);
        // SAFETY: the image is the crate's own or one that the user has named, and zeros follow it.
        let raw = check("cuModuleLoadData", unsafe { result::module::load_data(padded.as_ptr().cast()) })?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    /// Finds a kernel by name. It is valid while the module lives.
    pub(crate) fn function(&self, name: &str) -> Result<Function> {
        let c_name = CString::new(name).unwrap_or_default();
        // SAFETY: the module is alive.
        let raw = unsafe { result::module::get_function(self.raw, c_name) };
        check(&format!("cuModuleGetFunction({name})"), raw).map(Function)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _entered = enter(&self.context);
        // SAFETY: the module is alive and its owner is gone, the streams that ran its kernels with it.
        let _ = unsafe { result::module::unload(self.raw) };
    }
}

/// Queues a launch of a kernel that takes one parameter.
///
/// # Safety
/// `P` is the kernel's parameter, everything that it points to is valid for the kernel's grid until the launch is done,
/// and the function's module is alive.
pub(crate) unsafe fn launch<P>(
    name: &str,
    function: Function,
    [grid_x, grid_y, grid_z]: [u32; 3],
    [block_x, block_y, block_z]: [u32; 3],
    stream: &Stream,
    parameter: &P,
) -> Result<()> {
    let mut parameters = [std::ptr::from_ref(parameter).cast_mut().cast::<c_void>()];
    let (grid, block) = ((grid_x, grid_y, grid_z), (block_x, block_y, block_z));
    // SAFETY: the driver copies the parameter before it returns; the rest is the contract.
    let launched = unsafe { result::launch_kernel(function.0, grid, block, 0, stream.raw, &mut parameters) };
    // The name is formatted only for an error.
    launched.or_else(|error| check(&format!("cuLaunchKernel({name})"), Err(error)))
}

/// Queues a copy of `len_bytes` bytes to the device.
///
/// # Safety
/// Both ranges are valid until the copy is done; nobody writes `from`, or uses `to`, before that.
pub(crate) unsafe fn upload(to: u64, from: *const u8, len_bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: readable for the length, by contract.
    let from = unsafe { std::slice::from_raw_parts(from, len_bytes) };
    // SAFETY: the contract.
    check("cuMemcpyHtoDAsync", unsafe { result::memcpy_htod_async(to, from, stream.raw) })
}

/// Queues zeros for a range of device memory.
///
/// # Safety
/// The range is valid until it is written; nobody uses it before that.
pub(crate) unsafe fn clear(to: u64, len_bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: the contract.
    check("cuMemsetD8Async", unsafe { result::memset_d8_async(to, 0, len_bytes, stream.raw) })
}

/// Queues a copy within the device.
///
/// # Safety
/// Both ranges are valid until the copy is done and do not overlap; nobody writes `from`, or uses `to`, before that.
pub(crate) unsafe fn copy(to: u64, from: u64, len_bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: the contract.
    check("cuMemcpyDtoDAsync", unsafe { result::memcpy_dtod_async(to, from, len_bytes, stream.raw) })
}

/// Queues a copy of `len_bytes` bytes to memory of the host. If that is not pinned, this waits for the copy.
///
/// # Safety
/// Both ranges are valid until the copy is done; nobody touches `to`, or writes `from`, before that.
pub(crate) unsafe fn download_later(to: *mut u8, from: u64, len_bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: writable for the length, by contract.
    let to = unsafe { std::slice::from_raw_parts_mut(to, len_bytes) };
    // SAFETY: the contract.
    check("cuMemcpyDtoHAsync", unsafe { result::memcpy_dtoh_async(to, from, stream.raw) })
}

/// Queues a copy to the host and waits for it.
///
/// # Safety
/// The device's range is valid, and nothing writes it that the stream does not wait for.
pub(crate) unsafe fn download(to: &mut [u8], from: u64, stream: &Stream) -> Result<()> {
    // SAFETY: the contract; `to` is borrowed until the stream has been waited for.
    check("cuMemcpyDtoHAsync", unsafe { result::memcpy_dtoh_async(to, from, stream.raw) })?;
    stream.synchronize()
}
