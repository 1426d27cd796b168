//! The driver's objects: streams, events, memory and modules. Errors contain the name of the call. Each object is in a
//! [`Scoped`], which frees it in its own context or not at all: another library may have reset the device.
#![allow(unsafe_code)]

use crate::device::StreamPriority;
use crate::error::{Error, Result};
use crate::os::memory;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, sys};
use std::ffi::{CString, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Names of the CUDA driver's library.
const DRIVER_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// A CUDA context with several owners: the device's primary context.
pub(crate) type Context = Arc<Primary>;

/// The primary context of a device, as this process has retained it.
pub(crate) struct Primary {
    cuda: ManuallyDrop<Arc<CudaContext>>,
    /// The driver's number of the context. After a reset of the device another context may have the same handle, but
    /// never the same number. `None` if the driver has no such numbers.
    id: Option<u64>,
    /// The process that has retained the context.
    process: u32,
}

impl Primary {
    /// The context, which is current on this thread.
    fn of_current(cuda: Arc<CudaContext>) -> Self {
        Self { cuda: ManuallyDrop::new(cuda), id: current_id().ok().flatten(), process: std::process::id() }
    }

    /// Whether this process has inherited the context from the one that forked it. Then no call of the driver may name
    /// it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Makes the context current on this thread.
    fn enter(&self) -> Result<Entered> {
        if self.is_inherited() {
            return Err(forked());
        }
        let entered = self.enter_again()?;
        if current_id()? == self.id { Ok(entered) } else { Err(gone()) }
    }

    fn enter_again(&self) -> Result<Entered> {
        let current = check("cuCtxGetCurrent", result::ctx::get_current())?;
        let pushed = current != Some(self.cu_ctx());
        if pushed {
            // SAFETY: the context is retained, or the driver refuses it.
            check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(self.cu_ctx()) }.result())?;
        }
        Ok(Entered { pushed, _relaxed: Relaxed::begin() })
    }
}

impl Deref for Primary {
    type Target = Arc<CudaContext>;

    fn deref(&self) -> &Arc<CudaContext> {
        &self.cuda
    }
}

impl fmt::Debug for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Primary(cuda:{})", self.ordinal())
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // A context that is gone has no retained count, and another one would be released instead.
        if self.enter().is_ok() {
            let _current = KeptCurrent::begin();
            // SAFETY: it is dropped here and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.cuda) };
        }
    }
}

fn forked() -> Error {
    Error::Device {
        call: "use a GPU".to_owned(),
        message:
            "this process was forked from one that uses it, and CUDA cannot be used in such a child: fork before the \
                  first use of a GPU, or spawn the process"
                .to_owned(),
    }
}

fn gone() -> Error {
    Error::Device {
        call: "use a CUDA context".to_owned(),
        message: "it is gone, because the device was reset: build a new pipeline".to_owned(),
    }
}

/// The number of the context that is current on this thread. `None` if the driver has no such numbers.
fn current_id() -> Result<Option<u64>> {
    type GetId = unsafe extern "C" fn(sys::CUcontext, *mut u64) -> sys::CUresult;
    static FOUND: OnceLock<Option<GetId>> = OnceLock::new();
    // SAFETY: this is the function's type since CUDA 12.0.
    let Some(get_id) = *FOUND.get_or_init(|| unsafe { optional(b"cuCtxGetId\0") }) else { return Ok(None) };
    let mut id = 0;
    // SAFETY: null stands for the current context; the number is written before the call returns.
    check("cuCtxGetId", unsafe { get_id(std::ptr::null_mut(), &raw mut id) }.result())?;
    Ok(Some(id))
}

/// A function that not every driver has, or that not all of cudarc's bindings name. The driver is in use already.
///
/// # Safety
/// `F` is the function's type.
unsafe fn optional<F: Copy>(name: &[u8]) -> Option<F> {
    let find = |library: &&str| {
        // SAFETY: this driver is loaded already, and cudarc never lets it go.
        let library = ManuallyDrop::new(unsafe { libloading::Library::new(*library) }.ok()?);
        // SAFETY: the contract.
        let function = unsafe { library.get::<F>(name) };
        function.ok().map(|function| *function)
    };
    DRIVER_NAMES.iter().find_map(find)
}

/// Keeps the context that is current on this thread current, whatever is done until this is dropped. cudarc's objects
/// make their own context current when they are dropped.
#[must_use]
struct KeptCurrent {
    /// `None` if the driver cannot tell.
    before: Option<sys::CUcontext>,
    /// Not `Send`: a context is current on one thread.
    _thread: PhantomData<*const ()>,
}

impl KeptCurrent {
    fn begin() -> Self {
        let before = result::ctx::get_current().ok().map(|current| current.unwrap_or(std::ptr::null_mut()));
        Self { before, _thread: PhantomData }
    }
}

impl Drop for KeptCurrent {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        // SAFETY: the driver refuses a context that is gone since; null stands for none.
        let _ = unsafe { result::ctx::set_current(before).or_else(|_| result::ctx::set_current(std::ptr::null_mut())) };
    }
}

/// Whether there is a driver to load. cudarc panics without one, so check this before any call of it.
pub fn driver_is_there() -> bool {
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

/// The process that has used the driver first.
static USER: OnceLock<u32> = OnceLock::new();

/// Whether this is a forked child of a process that has used the driver.
pub(crate) fn is_used_by_parent() -> bool {
    USER.get().is_some_and(|user| *user != std::process::id())
}

/// Number of devices that the driver shows.
pub(crate) fn device_count() -> Result<i32> {
    if is_used_by_parent() {
        return Err(forked());
    }
    if !driver_is_there() {
        let message = format!(
            "no NVIDIA driver on this machine (looked for {} where the system's loader looks, LD_LIBRARY_PATH \
             included): install it, or use Device::Cpu (--device cpu)",
            DRIVER_NAMES.join(" and ")
        );
        return Err(Error::Device { call: "look for CUDA devices".to_owned(), message });
    }
    check("cuInit", result::init())?;
    USER.get_or_init(std::process::id);
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
    let _current = KeptCurrent::begin();
    retained(ordinal)
}

/// The primary context of a device that exists. Any context may be current on this thread afterwards.
fn retained(ordinal: u32) -> Result<Context> {
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = contexts.iter().position(|(of, _)| *of == ordinal) {
        let (_, known) = &contexts[at];
        if enter(known).is_ok_and(|_entered| known.mem_get_info().is_ok()) {
            return Ok(Arc::clone(known));
        }
        // The context has failed, and the driver makes a new one once all owners have released it. Or it is gone.
        drop(take_left(known));
        drop(contexts.swap_remove(at));
    }
    let cuda = check("cuDevicePrimaryCtxRetain", CudaContext::new(ordinal as usize))?;
    let context = Arc::new(Primary::of_current(cuda));
    contexts.push((ordinal, Arc::clone(&context)));
    Ok(context)
}

/// Until it is dropped, this thread's calls do not disturb other threads that capture a graph. While a trainer captures
/// one in the global mode, a call that might synchronize, such as asking for an event, is refused on every thread, and
/// the capture is lost. In the relaxed mode it is neither. No stream of a pipeline is ever captured, so nothing here
/// needs the mode.
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
    (!is_used_by_parent() && *DRIVER.get_or_init(driver_is_there)).then(Relaxed::begin)
}

/// Keeps a context current on this thread until it is dropped, then restores the one before. A trainer's thread may
/// have its own context current, even one of another device. Meanwhile captures of others are not disturbed.
#[must_use]
pub(crate) struct Entered {
    pushed: bool,
    _relaxed: Relaxed,
}

/// Makes the context current on this thread.
///
/// # Errors
/// [`Error::Device`] if the context is gone, or if this is a forked child.
pub(crate) fn enter(context: &Context) -> Result<Entered> {
    context.enter()
}

/// Makes the context current as [`enter`] does, without asking whether it is gone. For work on a batch, whose beginning
/// has asked.
pub(crate) fn enter_again(context: &Context) -> Result<Entered> {
    context.enter_again()
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

/// A value without an owner that work of its context may still use.
type Left = (Context, Box<dyn Send>);

static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());

/// Drops a value that work of the context may still use once that work is done: after the next wait for the whole
/// context, or when it turns out that the context has failed. A forked child leaves the value to its parent.
pub(crate) fn leave(context: &Context, value: impl Send + 'static) {
    // In a child the lock may be held for ever.
    if context.is_inherited() {
        std::mem::forget(value);
    } else {
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).push((Arc::clone(context), Box::new(value)));
    }
}

/// Takes the values that were left in a context.
fn take_left(context: &Context) -> Vec<Left> {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.extract_if(.., |(of, _)| Arc::ptr_eq(of, context)).collect()
}

/// Waits until the device has done all work that was queued in the context, on every stream. A trainer's capture is
/// lost by that, in whatever mode and thread, so this is used only where events cannot be waited for.
///
/// # Errors
/// [`Error::Device`] if the context has failed, or while one of its streams captures a graph.
pub(crate) fn wait_for_all(context: &Context) -> Result<()> {
    let _entered = enter(context)?;
    let left = take_left(context);
    let waited = check("cuCtxSynchronize", result::ctx::synchronize());
    if waited.as_ref().is_err_and(is_capture) {
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
    }
    waited
}

/// Whether a call was refused because a stream captures a graph.
pub(crate) fn is_capture(error: &Error) -> bool {
    const FIRST: u32 = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as u32;
    const LAST: u32 = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD as u32;
    matches!(error, Error::Cuda { code: FIRST..=LAST, .. })
}

/// A value of a context, such as an object of the driver's or of nvJPEG's. It is dropped while its context is current.
/// If the context cannot be entered, the value is not dropped at all: it is gone with its context, and its handle or
/// address may belong to another object now.
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

impl<T: fmt::Debug> fmt::Debug for Scoped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> Drop for Scoped<T> {
    fn drop(&mut self) {
        if let Ok(_entered) = enter(&self.context) {
            // SAFETY: it is dropped here and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// An object of the driver's, which one call frees. It exists only in a [`Scoped`].
struct Raw<H: Copy> {
    handle: H,
    free: unsafe fn(H) -> std::result::Result<(), DriverError>,
}

type Owned<H> = Scoped<Raw<H>>;

impl<H: Copy> Owned<H> {
    /// # Safety
    /// `handle` is of this context, `free` frees it, and nothing else does. When this is dropped, nothing uses it that
    /// its being freed would harm.
    unsafe fn of(context: &Context, handle: H, free: unsafe fn(H) -> std::result::Result<(), DriverError>) -> Self {
        Self::new(context, Raw { handle, free })
    }
}

// SAFETY: the driver's objects belong to a context, not to a thread, and its functions on them are thread-safe.
unsafe impl<H: Copy> Send for Raw<H> {}
// SAFETY: as above.
unsafe impl<H: Copy> Sync for Raw<H> {}

impl<H: Copy + fmt::Debug> fmt::Debug for Raw<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

impl<H: Copy> Drop for Raw<H> {
    fn drop(&mut self) {
        // A failed context may refuse. Nothing can be done about it here.
        // SAFETY: the contract of `Owned::of`; the context is current (`Scoped`).
        let _ = unsafe { (self.free)(self.handle) };
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
pub(crate) struct Stream(Owned<sys::CUstream>);

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
        // SAFETY: it was just made, and work that is queued on it goes on to its end when it is destroyed.
        Ok(Self(unsafe { Owned::of(context, raw, |stream| result::stream::destroy(stream)) }))
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.0.handle
    }

    /// Makes work that is queued here later wait for the event.
    pub(crate) fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: both are alive.
        unsafe { wait(self.raw(), event) }
    }

    /// Waits for all work queued here.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is alive.
        unsafe { synchronize(self.raw()) }
    }
}

/// Makes work that is queued later on `stream` wait for the event.
///
/// # Safety
/// `stream` is a live stream, or one of the default streams.
pub(crate) unsafe fn wait(stream: sys::CUstream, event: &Event) -> Result<()> {
    let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    // SAFETY: the event is alive, the stream by contract.
    check("cuStreamWaitEvent", unsafe { result::stream::wait_event(stream, event.raw(), flags) })
}

/// Checks that a stream can wait for a batch of this context, which must be current: it is of the same context,
/// captures no graph, and does not wait for a stream that does.
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
    // SAFETY: as above.
    if unsafe { is_capturing(stream)? } {
        let expected = "one that captures no graph: copy the batch into the graph's own memory before its launch";
        return refuse(expected, "a stream that captures, or the default stream while one captures that waits for it");
    }
    Ok(())
}

/// Whether a stream captures a graph. For the legacy default stream also whether a stream of the context does that
/// waits for it: to wait or record on the default stream would end that capture. The context must be current.
///
/// # Safety
/// `stream` is a live stream, or one of the default streams.
pub(crate) unsafe fn is_capturing(stream: sys::CUstream) -> Result<bool> {
    let none = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let mut status = none;
    // SAFETY: alive, by contract; the status is written before the call returns.
    let asked = check("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) }.result());
    match asked {
        Err(error) if is_capture(&error) => Ok(true),
        asked => asked.map(|()| status != none),
    }
}

/// The driver's number of a stream, which no other stream has, even if it has the handle of one that is gone. `None` if
/// the driver has no such numbers, or if there is no such stream. The context must be current.
///
/// # Safety
/// `stream` is a stream, or one of the default streams.
pub(crate) unsafe fn stream_id(stream: sys::CUstream) -> Option<u64> {
    type GetId = unsafe extern "C" fn(sys::CUstream, *mut u64) -> sys::CUresult;
    static FOUND: OnceLock<Option<GetId>> = OnceLock::new();
    // SAFETY: this is the function's type since CUDA 12.0.
    let get_id = (*FOUND.get_or_init(|| unsafe { optional(b"cuStreamGetId\0") }))?;
    let mut id = 0;
    // SAFETY: the contract; the number is written before the call returns.
    unsafe { get_id(stream, &raw mut id) }.result().is_ok().then_some(id)
}

/// Waits for all work queued on a stream.
///
/// # Safety
/// `stream` is a live stream, or one of the default streams.
pub(crate) unsafe fn synchronize(stream: sys::CUstream) -> Result<()> {
    // SAFETY: the contract.
    check("cuStreamSynchronize", unsafe { result::stream::synchronize(stream) })
}

/// A point in a stream's work. An event that was never recorded counts as passed.
#[derive(Debug)]
pub(crate) struct Event(Owned<sys::CUevent>);

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
        // SAFETY: it was just made, and streams that wait for it go on waiting when it is destroyed.
        Ok(Self(unsafe { Owned::of(context, raw, |event| result::event::destroy(event)) }))
    }

    fn raw(&self) -> sys::CUevent {
        self.0.handle
    }

    /// Records the work queued on `stream` so far.
    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the stream is alive.
        unsafe { self.record_raw(stream.raw()) }
    }

    /// Records the work queued on `stream` so far.
    ///
    /// # Safety
    /// `stream` is a live stream, or one of the default streams.
    pub(crate) unsafe fn record_raw(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: the event is alive, the stream by contract.
        check("cuEventRecord", unsafe { result::event::record(self.raw(), stream) })
    }

    /// Makes the event's context current on this thread.
    pub(crate) fn enter(&self) -> Result<Entered> {
        enter(&self.0.context)
    }

    /// Waits until the recorded work is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the event is alive.
        check("cuEventSynchronize", unsafe { result::event::synchronize(self.raw()) })
    }

    /// Whether the recorded work is known to be done.
    pub(crate) fn is_done(&self) -> bool {
        let Ok(_entered) = enter_again(&self.0.context) else { return false };
        // SAFETY: the event is alive.
        unsafe { result::event::query(self.raw()) }.is_ok()
    }

    /// Milliseconds from `start` to this event. Both must be timed, recorded and done.
    pub(crate) fn since_ms(&self, start: &Self) -> Option<f32> {
        // Every driver has this function. Bindings for CUDA 13 have only its successor, which older drivers lack.
        type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;
        static FOUND: OnceLock<Option<ElapsedTime>> = OnceLock::new();
        // SAFETY: this is the function's type since CUDA 2.
        let elapsed_time = (*FOUND.get_or_init(|| unsafe { optional(b"cuEventElapsedTime\0") }))?;
        let mut milliseconds = 0.0;
        // SAFETY: both are alive, and there is room for the result.
        let result = unsafe { elapsed_time(&raw mut milliseconds, start.raw(), self.raw()) };
        (result == sys::CUresult::CUDA_SUCCESS).then_some(milliseconds)
    }
}

/// Device memory. Freeing memory of a pool does not wait for its users on a card. So an owner that has waited for them
/// says so ([`idle`](Self::idle)). Other memory waits for the whole device when it is dropped, which ends a trainer's
/// capture; while waiting is impossible, it is left for later.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    /// `None` once it was freed or given away.
    memory: Option<Owned<sys::CUdeviceptr>>,
    address: sys::CUdeviceptr,
    len_bytes: usize,
    /// Whether nothing uses it any more.
    is_idle: bool,
    /// The pool that the memory is from, which must live as long.
    pool: Option<Arc<MemoryPool>>,
}

impl DeviceMemory {
    /// Allocates `len_bytes` bytes, aligned to 256, with undefined contents.
    ///
    /// # Synchronization
    /// This may wait for the device. The memory is idle when this returns.
    pub(crate) fn new(context: &Context, len_bytes: usize) -> Result<Self> {
        let _entered = enter(context)?;
        // SAFETY: its contents are written before they are read.
        let address = allocated(context, "cuMemAlloc", len_bytes, unsafe { result::malloc_sync(len_bytes.max(1)) })?;
        // SAFETY: it was just allocated, as long as it is said to be.
        Ok(unsafe { Self::of(context, address, len_bytes, None) })
    }

    /// # Safety
    /// `len_bytes` bytes were allocated at the address, in this context, for this owner alone.
    unsafe fn of(context: &Context, address: u64, len_bytes: usize, pool: Option<Arc<MemoryPool>>) -> Self {
        // SAFETY: nothing uses the memory when it is freed (`drop`).
        let memory = unsafe { Owned::of(context, address, |address| result::free_sync(address)) };
        Self { memory: Some(memory), address, len_bytes, is_idle: false, pool }
    }

    /// Says that nothing uses the memory any more.
    pub(crate) fn idle(&mut self) {
        self.is_idle = true;
    }

    /// Says that work may use the memory again.
    pub(crate) fn in_use(&mut self) {
        self.is_idle = false;
    }

    /// Frees the memory once the work is done that `stream` has queued so far. The caller has made the stream wait for
    /// all users.
    ///
    /// # Synchronization
    /// Returns at once if the memory is from a pool; otherwise this waits for the stream.
    pub(crate) fn free_after(&mut self, stream: &Stream) -> Result<()> {
        if self.pool.is_none() {
            stream.synchronize()?;
            self.is_idle = true;
            return Ok(());
        }
        // SAFETY: from a pool, and freed once: it is forgotten below. Its users come before in the order of the stream.
        check("cuMemFreeAsync", unsafe { result::free_async(self.address, stream.raw()) })?;
        self.forget();
        Ok(())
    }

    /// Whether it is neither freed nor given away.
    pub(crate) fn is_there(&self) -> bool {
        self.memory.is_some()
    }

    /// Leaves the memory to whoever frees it.
    fn forget(&mut self) {
        if let Some(memory) = self.memory.take() {
            // Only the handle is forgotten. The context has an owner less.
            let mut memory = ManuallyDrop::new(memory);
            // SAFETY: it is dropped once: `memory` is never used again.
            unsafe { std::ptr::drop_in_place(&raw mut memory.context) };
        }
    }

    /// Gives the memory to a caller who frees it. A pool that is destroyed goes once its memory is freed.
    #[cfg(feature = "candle-cuda")]
    pub(crate) fn leak(&mut self) -> u64 {
        self.forget();
        self.address
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
        let Some(memory) = self.memory.take() else { return };
        // In a failed context nothing runs any more.
        if !self.is_idle && wait_for_all(&memory.context).is_err_and(|error| is_capture(&error)) {
            let context = Arc::clone(&memory.context);
            leave(&context, (memory, self.pool.take()));
        }
    }
}

/// A stream-ordered pool of device memory. It keeps freed memory, so allocations are cheap. The device's default pool
/// stays as the trainer has set it.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    /// `None` on devices without pools.
    raw: Option<Owned<sys::CUmemoryPool>>,
    context: Context,
}

impl MemoryPool {
    /// A pool that gives memory back to the device if more than `kept_bytes` of it are free.
    pub(crate) fn new(context: &Context, kept_bytes: u64) -> Result<Self> {
        if !context.has_async_alloc() {
            return Ok(Self { raw: None, context: Arc::clone(context) });
        }
        let _entered = enter(context)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: zeros are valid in every field, and mean that an option is off.
        let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        // SAFETY: in every version of CUDA the number of the device follows the type, under different names.
        unsafe { (&raw mut properties.location).cast::<i32>().add(1).write(context.cu_device()) };
        // SAFETY: the pool is written before the call returns.
        check("cuMemPoolCreate", unsafe { sys::cuMemPoolCreate(&raw mut raw, &raw const properties) }.result())?;
        // SAFETY: it was just made. It goes once memory that was given away is freed.
        let owned = unsafe { Owned::of(context, raw, |pool| sys::cuMemPoolDestroy(pool).result()) };
        let pool = Self { raw: Some(owned), context: Arc::clone(context) };
        let mut threshold_bytes = kept_bytes;
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let value = (&raw mut threshold_bytes).cast::<c_void>();
        // SAFETY: the pool is alive; the threshold is a 64-bit number.
        check("cuMemPoolSetAttribute", unsafe { result::mem_pool::set_attribute(raw, threshold, value) })?;
        Ok(pool)
    }

    /// Allocates in the order of `stream`, for work that is queued there or waits for it.
    pub(crate) fn allocate(self: &Arc<Self>, stream: &Stream, len_bytes: usize) -> Result<DeviceMemory> {
        let Some(raw) = &self.raw else { return DeviceMemory::new(&self.context, len_bytes) };
        let (context, mut address) = (&self.context, 0);
        let _entered = enter(context)?;
        // SAFETY: the address is written before the call returns, and the memory's contents are written before they are
        // read.
        let made =
            unsafe { sys::cuMemAllocFromPoolAsync(&raw mut address, len_bytes.max(1), raw.handle, stream.raw()) };
        allocated(context, "cuMemAllocFromPoolAsync", len_bytes, made.result())?;
        // SAFETY: it was just allocated, as long as it is said to be.
        Ok(unsafe { DeviceMemory::of(context, address, len_bytes, Some(Arc::clone(self))) })
    }
}

/// Host memory that copies to a device read: pinned, so that the copy runs while the host goes on, or pageable, from
/// which the driver first copies to a buffer of its own.
#[derive(Debug)]
pub(crate) struct HostMemory {
    start: NonNull<u8>,
    len_bytes: usize,
    _memory: Host,
}

/// The way in which host memory is freed.
#[derive(Debug)]
enum Host {
    Pinned(#[expect(dead_code, reason = "it is dropped")] Owned<*mut c_void>),
    Pageable(#[expect(dead_code, reason = "it is dropped")] Box<[u8]>),
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
            let mut memory = bytes.into_boxed_slice();
            return Ok(Self { start: NonNull::from(&mut *memory).cast(), len_bytes, _memory: Host::Pageable(memory) });
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
        // SAFETY: the memory is as long as requested, and only this code has it.
        unsafe { start.write_bytes(0, len_bytes) };
        // SAFETY: it was just allocated. Owners wait for copies from it before they drop it.
        let memory = unsafe { Owned::of(context, start.as_ptr().cast(), |start| result::free_host(start)) };
        Ok(Self { start, len_bytes, _memory: Host::Pinned(memory) })
    }

    /// Address of the first byte, valid for reads and writes of `len_bytes` bytes while this lives.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

/// Existing host memory that is pinned until this is dropped. Its owner has waited by then for copies from it.
#[derive(Debug)]
pub(crate) struct Pin(Owned<*mut c_void>);

impl Pin {
    /// Pins memory for copies in all contexts.
    ///
    /// # Safety
    /// The memory is allocated until this is dropped, and begins and ends with a page.
    pub(crate) unsafe fn new(context: &Context, memory: &mut [u8]) -> Result<Self> {
        let _entered = enter(context)?;
        let (start, len_bytes) = (memory.as_mut_ptr().cast::<c_void>(), memory.len());
        // SAFETY: allocated, by contract.
        let pinned = unsafe { sys::cuMemHostRegister_v2(start, len_bytes, sys::CU_MEMHOSTREGISTER_PORTABLE).result() };
        if matches!(pinned, Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))) {
            let remedy = "use a smaller batch_size or prefetch, or leave out pin_batches";
            return Err(memory::refused::<u8>("pinning a batch", len_bytes, remedy));
        }
        check("cuMemHostRegister", pinned)?;
        // SAFETY: it was just pinned, and is allocated until this is dropped.
        Ok(Self(unsafe { Owned::of(context, start, |start| sys::cuMemHostUnregister(start).result()) }))
    }

    /// The context that was named when the memory was pinned.
    pub(crate) fn context(&self) -> &Context {
        &self.0.context
    }
}

/// A loaded module of kernels.
#[derive(Debug)]
pub(crate) struct Module(Owned<sys::CUmodule>);

/// A kernel of a module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function(sys::CUfunction);

// SAFETY: as for the driver's other objects.
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
        // SAFETY: it was just loaded. The streams that ran its kernels have been waited for when its owner is dropped.
        Ok(Self(unsafe { Owned::of(context, raw, |module| result::module::unload(module)) }))
    }

    /// The context that the module was loaded in.
    pub(crate) fn context(&self) -> &Context {
        &self.0.context
    }

    /// Finds a kernel by name. It is valid while the module lives.
    pub(crate) fn function(&self, name: &str) -> Result<Function> {
        let c_name = CString::new(name).unwrap_or_default();
        // SAFETY: the module is alive.
        let raw = unsafe { result::module::get_function(self.0.handle, c_name) };
        check(&format!("cuModuleGetFunction({name})"), raw).map(Function)
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
    let launched = unsafe { result::launch_kernel(function.0, grid, block, 0, stream.raw(), &mut parameters) };
    // The name is formatted only for an error.
    launched.or_else(|error| check(&format!("cuLaunchKernel({name})"), Err(error)))
}

/// Queues a copy of `len_bytes` bytes to the device.
///
/// # Safety
/// Both ranges are valid until the copy is done. Before that, `from` is not written and `to` is not used.
pub(crate) unsafe fn upload(to: u64, from: *const u8, len_bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: readable for the length, by contract.
    let from = unsafe { std::slice::from_raw_parts(from, len_bytes) };
    // SAFETY: the contract.
    check("cuMemcpyHtoDAsync", unsafe { result::memcpy_htod_async(to, from, stream.raw()) })
}

/// Queues zeros for a range of device memory.
///
/// # Safety
/// The range is valid until it is written, and is not used before that.
pub(crate) unsafe fn clear(to: u64, len_bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: the contract.
    check("cuMemsetD8Async", unsafe { result::memset_d8_async(to, 0, len_bytes, stream.raw()) })
}

/// Queues a copy within the device.
///
/// # Safety
/// Both ranges are valid until the copy is done, and do not overlap. Before that, `from` is not written and `to` is not
/// used.
pub(crate) unsafe fn copy(to: u64, from: u64, len_bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: the contract.
    check("cuMemcpyDtoDAsync", unsafe { result::memcpy_dtod_async(to, from, len_bytes, stream.raw()) })
}

/// Queues a copy of `len_bytes` bytes to memory of the host. If that is not pinned, this waits for the copy.
///
/// # Safety
/// Both ranges are valid until the copy is done. Before that, `to` is not touched and `from` is not written.
pub(crate) unsafe fn download_later(to: *mut u8, from: u64, len_bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: writable for the length, by contract.
    let to = unsafe { std::slice::from_raw_parts_mut(to, len_bytes) };
    // SAFETY: the contract.
    check("cuMemcpyDtoHAsync", unsafe { result::memcpy_dtoh_async(to, from, stream.raw()) })
}

/// Queues a copy to the host and waits for it.
///
/// # Safety
/// The device's range is valid, and nothing writes it that the stream does not wait for.
pub(crate) unsafe fn download(to: &mut [u8], from: u64, stream: &Stream) -> Result<()> {
    // SAFETY: the contract; `to` is borrowed until the stream has been waited for.
    check("cuMemcpyDtoHAsync", unsafe { result::memcpy_dtoh_async(to, from, stream.raw()) })?;
    stream.synchronize()
}
