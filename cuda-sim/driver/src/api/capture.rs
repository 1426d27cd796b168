//! Capturing of graphs. What is queued on a capturing stream does not run, and its graph cannot be launched: this is about
//! what a capture forbids the program's other threads.

use crate::call::{Out, Session};
use crate::error::{Code, Result};
use std::cell::Cell;
use std::ffi::c_uint;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

const GLOBAL: c_uint = 0;
const RELAXED: c_uint = 2;

const NOT_CAPTURING: c_uint = 0;
const CAPTURING: c_uint = 1;
const INVALIDATED: c_uint = 2;

/// Calls that may synchronize without saying so. CUDA calls them potentially unsafe.
const UNSAFE: [&str; 12] = [
    "cuEventQuery",
    "cuMemAllocHost_v2",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamQuery",
];

struct Capture {
    context: u64,
    stream: u64,
    thread: ThreadId,
    mode: c_uint,
    valid: bool,
}

static CAPTURES: Mutex<Vec<Capture>> = Mutex::new(Vec::new());

thread_local! {
    /// How this thread's calls interact with captures.
    static MODE: Cell<c_uint> = const { Cell::new(GLOBAL) };
}

fn captures<T>(use_them: impl FnOnce(&mut Vec<Capture>) -> T) -> T {
    use_them(&mut CAPTURES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Refuses a call that captures forbid on this thread, and invalidates them.
pub fn check(call: &str, context: u64) -> Result<()> {
    captures(|all| {
        let own = thread::current().id();
        let unsafe_now = |capture: &Capture| match MODE.get() {
            RELAXED => false,
            mode => {
                let by_this_thread = capture.thread == own && capture.mode != RELAXED;
                by_this_thread || (mode == GLOBAL && capture.mode == GLOBAL)
            }
        };
        // A context cannot be waited for while one of its streams captures, whatever the mode. As on a card (an H200), the
        // captures are lost.
        let waits = |capture: &Capture| call == "cuCtxSynchronize" && capture.context == context;
        let is_unsafe = UNSAFE.contains(&call);
        let mut forbidden = false;
        for capture in all.iter_mut().filter(|capture| waits(capture) || (is_unsafe && unsafe_now(capture))) {
            (capture.valid, forbidden) = (false, true);
        }
        if forbidden { Err(Code::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    })
}

/// Whether a stream captures what is queued on it.
pub fn is_captured(context: u64, stream: u64) -> bool {
    captures(|all| all.iter().any(|capture| (capture.context, capture.stream) == (context, stream)))
}

fn status(sim: &mut Session, handle: u64) -> Result<c_uint> {
    let (stream, context) = (sim.stream(handle)?, sim.context_number());
    Ok(captures(|all| {
        let found = all.iter().find(|capture| (capture.context, capture.stream) == (context, stream));
        found.map_or(NOT_CAPTURING, |capture| if capture.valid { CAPTURING } else { INVALIDATED })
    }))
}

api! {
    Init fn cuThreadExchangeStreamCaptureMode(sim, mode: *mut c_uint) {
        if mode.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and the mode is read and written by the API's contract.
        let asked = unsafe { mode.read() };
        if asked > RELAXED {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: as above.
        unsafe { mode.write(MODE.replace(asked)) };
        Ok(())
    }
    Context fn cuStreamBeginCapture_v2(sim, handle: u64, mode: c_uint) {
        if status(sim, handle)? != NOT_CAPTURING {
            return Err(Code::ILLEGAL_STATE);
        }
        let (stream, context) = (sim.stream(handle)?, sim.context_number());
        captures(|all| all.push(Capture { context, stream, thread: thread::current().id(), mode, valid: true }));
        Ok(())
    }
    Context fn cuStreamEndCapture(sim, handle: u64, graph: Out<u64>) {
        let (stream, context) = (sim.stream(handle)?, sim.context_number());
        let ended = captures(|all| {
            let at = all.iter().position(|capture| (capture.context, capture.stream) == (context, stream))?;
            Some(all.remove(at))
        });
        match ended {
            None => Err(Code::ILLEGAL_STATE),
            Some(capture) if !capture.valid => Err(Code::STREAM_CAPTURE_INVALIDATED),
            Some(_) => {
                let handle = sim.new_handle();
                graph.set(handle)
            }
        }
    }
    Context fn cuStreamIsCapturing(sim, handle: u64, out: Out<c_uint>) {
        out.set(status(sim, handle)?)
    }
    Context fn cuStreamGetCaptureInfo_v3(
        sim, handle: u64, out: Out<c_uint>, _id: *mut u64, _graph: *mut u64, _dependencies: *mut u64,
        _edges: *mut u64, _count: *mut usize,
    ) {
        out.set(status(sim, handle)?)
    }
    Context fn cuGraphDestroy(sim, graph: u64) {
        if graph == 0 { Err(Code::INVALID_HANDLE) } else { Ok(()) }
    }
    Context fn cuGraphInstantiateWithFlags(sim, _out: *mut u64, _graph: u64, _flags: u64) {
        Err(Code::NOT_SUPPORTED)
    }
    Context fn cuGraphLaunch(sim, _graph: u64, _stream: u64) {
        Err(Code::NOT_SUPPORTED)
    }
    Context fn cuGraphUpload(sim, _graph: u64, _stream: u64) {
        Err(Code::NOT_SUPPORTED)
    }
    Context fn cuGraphExecDestroy(sim, _graph: u64) {
        Err(Code::INVALID_HANDLE)
    }
}
