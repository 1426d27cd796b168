//! Streams and events.
#![allow(unsafe_code)]

use super::{Context, Entered, Owned, check, enter, enter_again, is_capture, optional};
use crate::device::StreamPriority;
use crate::error::{Error, Result};
use cudarc::driver::{result, sys};
use std::sync::OnceLock;

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

/// What to do with a batch where a graph is captured.
pub(crate) const COPY_BEFORE: &str = "copy the batch into the graph's own memory before its launch";

/// Checks that a stream can wait for work of this context, which must be current: it is of the same context, captures no
/// graph, and does not wait for a stream that does. `instead` is the remedy for one that captures.
///
/// # Safety
/// `stream` is a live stream, or one of the default streams.
pub(crate) unsafe fn check_user(
    call: &'static str,
    instead: &str,
    context: &Context,
    stream: sys::CUstream,
) -> Result<()> {
    let refuse = |expected: &str, got: &str| Err(Error::parameter(call, "stream", expected, got));
    let mut owner = std::ptr::null_mut();
    // SAFETY: alive, by contract; the context is written before the call returns.
    check("cuStreamGetCtx", unsafe { sys::cuStreamGetCtx(stream, &raw mut owner) }.result())?;
    if owner != context.cu_ctx() {
        return refuse("one of the same device", "a stream of another device, or of another context");
    }
    // SAFETY: as above.
    if unsafe { is_capturing(stream)? } {
        let expected = format!("one that captures no graph: {instead}");
        return refuse(&expected, "a stream that captures, or the default stream while one captures that waits for it");
    }
    Ok(())
}

/// The legacy default stream. It and all streams without the non-blocking flag wait for one another.
pub(crate) const LEGACY: sys::CUstream = std::ptr::without_provenance_mut(1);

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
