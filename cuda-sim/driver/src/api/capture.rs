//! Capturing of graphs: forbidden calls, and the streams that a capture draws in. Captured work does not run.

use crate::call::{Out, Session};
use crate::error::{Code, Result};
use crate::state::{Kind, LEGACY};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// A capture of a graph. Queued work does not run; its order is known by a count of each stream's nodes.
struct Capture {
    id: u64,
    context: u64,
    /// The stream that it was begun on.
    origin: u64,
    /// The streams that capture, each with the number of its nodes, and with how many of each stream's are before what
    /// it captures next.
    streams: BTreeMap<u64, (u64, Reached)>,
    thread: ThreadId,
    mode: c_uint,
    valid: bool,
}

/// Numbers of nodes, by stream.
type Reached = BTreeMap<u64, u64>;

/// The place in a capture that an event stands for.
#[derive(Clone)]
pub struct Captured {
    capture: u64,
    reached: Reached,
}

static CAPTURES: Mutex<Vec<Capture>> = Mutex::new(Vec::new());
static IDS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Mode in which this thread's calls interact with captures.
    static MODE: Cell<c_uint> = const { Cell::new(GLOBAL) };
}

fn captures<T>(use_them: impl FnOnce(&mut Vec<Capture>) -> T) -> T {
    use_them(&mut CAPTURES.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Capture {
    fn is_of(&self, context: u64, stream: u64) -> bool {
        self.context == context && self.streams.contains_key(&stream)
    }

    /// Loses the capture.
    fn refuse<T>(&mut self, code: Code) -> Result<T> {
        self.valid = false;
        Err(code)
    }

    /// The stream captures another node.
    fn node(&mut self, stream: u64) -> Result<()> {
        if !self.valid {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        if let Some((count, reached)) = self.streams.get_mut(&stream) {
            *count += 1;
            reached.insert(stream, *count);
        }
        Ok(())
    }
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
        // A context cannot be waited for while one of its streams captures, whatever the mode. As on a card (an H200),
        // the captures are lost.
        let waits = |capture: &Capture| call == "cuCtxSynchronize" && capture.context == context;
        let is_unsafe = UNSAFE.contains(&call);
        let mut forbidden = false;
        for capture in all.iter_mut().filter(|capture| waits(capture) || (is_unsafe && unsafe_now(capture))) {
            (capture.valid, forbidden) = (false, true);
        }
        if forbidden { Err(Code::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    })
}

/// Whether a stream captures the work that is queued on it. If so, another node is captured.
///
/// # Errors
/// `STREAM_CAPTURE_INVALIDATED` if the stream's capture is lost; the errors of [`check_legacy`].
pub fn takes(sim: &Session, stream: u64) -> Result<bool> {
    check_legacy(sim, stream)?;
    let context = sim.context_handle();
    captures(|all| match all.iter_mut().find(|capture| capture.is_of(context, stream)) {
        Some(capture) => capture.node(stream).map(|()| true),
        None => Ok(false),
    })
}

/// Refuses the legacy stream while a blocking stream of its context captures, and loses these captures: it would wait
/// for that stream.
pub fn check_legacy(sim: &Session, stream: u64) -> Result<()> {
    let context = sim.context_handle();
    let is_blocking = |id: &u64| sim.streams.get(id).is_some_and(|stream| stream.kind == Kind::Blocking);
    captures(|all| {
        let mut result = Ok(());
        for capture in all.iter_mut().filter(|capture| stream == LEGACY && capture.context == context) {
            if capture.streams.keys().any(is_blocking) {
                result = capture.refuse(Code::STREAM_CAPTURE_IMPLICIT);
            }
        }
        result
    })
}

/// Refuses to wait for a stream, or to ask for it, while it captures, and loses the capture.
pub fn check_idle(sim: &Session, stream: u64) -> Result<()> {
    check_legacy(sim, stream)?;
    let context = sim.context_handle();
    captures(|all| match all.iter_mut().find(|capture| capture.is_of(context, stream)) {
        Some(capture) => capture.refuse(Code::STREAM_CAPTURE_UNSUPPORTED),
        None => Ok(()),
    })
}

/// The place that an event stands for if it is recorded now on a stream that captures.
pub fn recorded(sim: &Session, stream: u64) -> Option<Captured> {
    let context = sim.context_handle();
    captures(|all| {
        let capture = all.iter().find(|capture| capture.is_of(context, stream))?;
        Some(Captured { capture: capture.id, reached: capture.streams[&stream].1.clone() })
    })
}

/// Refuses to wait for an event of a capture on the host, or to ask for it, and loses the capture.
pub fn refuse_event(event: &Captured) -> Result<()> {
    captures(|all| match all.iter_mut().find(|capture| capture.id == event.capture) {
        Some(capture) => capture.refuse(Code::CAPTURED_EVENT),
        None => Err(Code::CAPTURED_EVENT),
    })
}

/// Has a stream wait for an event that may be one of a capture. Returns whether that is all there is to it. A stream
/// that waits for an event of a capture captures from then on.
pub fn joins(sim: &Session, stream: u64, event: Option<&Captured>, recorded: bool, external: bool) -> Result<bool> {
    check_legacy(sim, stream)?;
    let context = sim.context_handle();
    captures(|all| {
        let own = all.iter().position(|capture| capture.is_of(context, stream));
        let Some(event) = event else {
            // An event from outside may not order work inside, unless it is to be a node.
            return match own {
                Some(at) if recorded && !external => all[at].refuse(Code::STREAM_CAPTURE_ISOLATION),
                own => Ok(own.is_some()),
            };
        };
        let Some(of) = all.iter().position(|capture| capture.id == event.capture) else {
            return Err(Code::CAPTURED_EVENT);
        };
        if own.is_some_and(|own| own != of) {
            let own = own.unwrap_or(of);
            all[own].valid = false;
            return all[of].refuse(Code::STREAM_CAPTURE_MERGE);
        }
        let capture = &mut all[of];
        if stream == LEGACY || capture.context != context {
            return capture.refuse(Code::STREAM_CAPTURE_ISOLATION);
        }
        if !capture.valid {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        let (_, reached) = capture.streams.entry(stream).or_default();
        for (&other, &count) in &event.reached {
            let known = reached.entry(other).or_default();
            *known = count.max(*known);
        }
        Ok(true)
    })
}

/// A stream that is destroyed, or whose context is, captures no more; the capture is lost.
pub fn forget(context: u64, stream: Option<u64>) {
    captures(|all| {
        all.retain(|capture| capture.context != context || stream.is_some_and(|stream| capture.origin != stream));
        for capture in all.iter_mut().filter(|capture| capture.context == context) {
            if stream.is_some_and(|stream| capture.streams.remove(&stream).is_some()) {
                capture.valid = false;
            }
        }
    });
}

fn status(sim: &mut Session, handle: u64) -> Result<c_uint> {
    let (stream, context) = (sim.stream(handle)?, sim.context_handle());
    // This one question loses no capture.
    let blocking = |id: &u64| sim.streams.get(id).is_some_and(|stream| stream.kind == Kind::Blocking);
    captures(|all| {
        if stream == LEGACY && all.iter().any(|of| of.context == context && of.streams.keys().any(blocking)) {
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
        let found = all.iter().find(|capture| capture.is_of(context, stream));
        Ok(found.map_or(NOT_CAPTURING, |capture| if capture.valid { CAPTURING } else { INVALIDATED }))
    })
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
        if mode > RELAXED {
            return Err(Code::INVALID_VALUE);
        }
        if status(sim, handle)? != NOT_CAPTURING {
            return Err(Code::ILLEGAL_STATE);
        }
        let (origin, context) = (sim.stream(handle)?, sim.context_handle());
        if origin == LEGACY {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let streams = BTreeMap::from([(origin, Default::default())]);
        let thread = thread::current().id();
        captures(|all| all.push(Capture { id, context, origin, streams, thread, mode, valid: true }));
        Ok(())
    }
    Context fn cuStreamEndCapture(sim, handle: u64, graph: Out<u64>) {
        let (stream, context) = (sim.stream(handle)?, sim.context_handle());
        let ended = captures(|all| {
            let at = all.iter().position(|capture| capture.is_of(context, stream)).ok_or(Code::ILLEGAL_STATE)?;
            if all[at].origin != stream {
                return all[at].refuse(Code::STREAM_CAPTURE_UNMATCHED);
            }
            if all[at].mode != RELAXED && all[at].thread != thread::current().id() {
                return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
            }
            Ok(all.remove(at))
        })?;
        graph.set_if_given(0);
        if !ended.valid {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        let reached = &ended.streams[&stream].1;
        let is_joined = |(other, (count, _)): (&u64, &(u64, Reached))| {
            *other == stream || *count == 0 || reached.get(other) >= Some(count)
        };
        if !ended.streams.iter().all(is_joined) {
            return Err(Code::STREAM_CAPTURE_UNJOINED);
        }
        let handle = sim.new_handle();
        sim.graphs.insert(handle);
        graph.set(handle)
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
        if !sim.graphs.remove(&graph) {
            return Err(Code::INVALID_HANDLE);
        }
        sim.free_handle(graph);
        Ok(())
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
