//! The driver's objects: streams, events, memory and modules. Errors contain the name of the call.
//!
//! Each object is in a [`Scoped`]: its context may be gone, because another library has reset the device, or the
//! process is a forked child.
#![allow(unsafe_code)]

mod memory;
mod module;
mod scoped;
mod stream;

pub(crate) use memory::{DeviceMemory, HostMemory, MemoryPool, Pin, clear, copy, download, download_later, upload};
pub(crate) use module::{Function, Module, launch};
use scoped::{Owned, allocated};
pub(crate) use scoped::{Scoped, check, is_capture};
pub(crate) use stream::{COPY_BEFORE, Event, LEGACY, Stream, check_user, is_capturing, stream_id, synchronize, wait};

use crate::error::{Error, Result};
use cudarc::driver::result;
use cudarc::driver::{CudaContext, sys};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
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
        // A context that is gone has lost what was retained of it, and another one would be released instead.
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
    /// Not `Send`: what is current is current on one thread.
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

/// Waits until the device has done all work that was queued in the context, on every stream. A capture of a trainer's
/// on a non-blocking stream is lost by that, in whatever mode and thread; so what can be waited for by events is.
///
/// # Errors
/// [`Error::Device`] if the context has failed, or while one of its streams captures a graph.
pub(crate) fn wait_for_all(context: &Context) -> Result<()> {
    let _entered = enter(context)?;
    // SAFETY: a default stream. The driver says of it whether a blocking stream captures, and that capture goes on.
    if unsafe { is_capturing(LEGACY)? } {
        return check("cuCtxSynchronize", sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT.result());
    }
    let left = take_left(context);
    let waited = check("cuCtxSynchronize", result::ctx::synchronize());
    if waited.as_ref().is_err_and(is_capture) {
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
    }
    waited
}
