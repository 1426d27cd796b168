//! The driver's state of a context: streams, events, modules, functions, and the fault that failed it.

use crate::api::{Captured, forget_captures};
use crate::config::{Config, Leaks};
use crate::error::{self, Code, Result};
use crate::kernels::Arguments;
use crate::memory::memory;
use crate::ptx::Kernels;
use crate::random::Random;
use crate::report::Report;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

/// The handle of the legacy default stream. The null stream means this one too.
pub const LEGACY: u64 = 1;
/// The handle with which each thread refers to its own default stream.
pub const PER_THREAD: u64 = 2;

/// The first handle of contexts, and the place of the slot in a handle.
const CONTEXT: u64 = 0xC000_0000;
const SLOT_SHIFT: u32 = 24;
/// The first handle of other objects. Those of threads' own default streams are below.
const OBJECTS: u64 = 0x1_0000_0000;

/// The slot of a context, its place among the states; `None` if this is no context's handle.
pub fn slot_of(context: u64) -> Option<usize> {
    usize::try_from(context.checked_sub(CONTEXT)? >> SLOT_SHIFT).ok()
}

/// Counts contexts: each has an identifier of its own for the life of the process.
static CONTEXTS: AtomicU64 = AtomicU64::new(0);

/// Number of failures that are recorded.
const MESSAGES: usize = 64;

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// The single default stream. It waits for all blocking streams, and they wait for it.
    Legacy,
    Blocking,
    NonBlocking,
}

/// A stream and a number: the point at which this many operations of the stream are done.
pub type Point = (u64, u64);

/// An operation in a stream's queue.
pub struct StreamOperation {
    pub call: &'static str,
    /// Points of other streams that must be reached first.
    pub after: Vec<Point>,
    pub work: Work,
    /// The failure drawn for this operation.
    pub injected: Option<Code>,
}

pub enum Work {
    /// Only waits for the points.
    Wait,
    Record {
        event: u64,
        recording: u64,
    },
    /// Reads and writes both ends when it runs.
    Copy {
        to: Place,
        from: Place,
        bytes: usize,
    },
    /// A copy whose source was pageable, so its bytes were copied when the call was made.
    CopyStaged {
        to: Place,
        bytes: Vec<u8>,
    },
    Fill {
        to: Place,
        value: u32,
        width: usize,
        count: usize,
    },
    Allocate {
        id: u64,
    },
    Free {
        id: u64,
    },
    Kernel {
        kernel: usize,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        arguments: Arguments,
    },
    Host {
        function: extern "C" fn(*mut c_void),
        data: usize,
    },
    /// Another library's work on memory.
    External {
        function: External,
        data: usize,
        places: Vec<Place>,
    },
}

/// Does another library's work, or gives it up if `run` is false. Called once, with the data it was queued with.
pub type External = extern "C" fn(data: *mut c_void, run: bool);

/// An end of a copy.
#[derive(Clone, Copy)]
pub enum Place {
    Device {
        address: u64,
        id: u64,
    },
    Pinned {
        address: usize,
        id: u64,
    },
    /// Used only if the call itself waits until the operation has run.
    Pageable {
        address: usize,
    },
}

impl Place {
    pub fn address(self) -> usize {
        match self {
            Place::Device { address, .. } => address as usize,
            Place::Pinned { address, .. } | Place::Pageable { address } => address,
        }
    }

    /// Checks that the memory exists when the operation runs.
    pub fn require_live(self) -> std::result::Result<(), String> {
        match self {
            Place::Device { id, .. } => memory().require_live(id),
            Place::Pinned { address, id } => match memory().host_block(address) {
                Some((_, block)) if block.id == id => Ok(()),
                _ => Err("pinned memory was freed before the copy ran".into()),
            },
            Place::Pageable { .. } => Ok(()),
        }
    }
}

pub struct Stream {
    pub kind: Kind,
    pub flags: u32,
    pub priority: i32,
    /// The scheduler's random preference.
    pub weight: u64,
    pub queue: VecDeque<StreamOperation>,
    pub enqueued: u64,
    pub done: u64,
    /// Whether a host function of this stream is running.
    pub busy: bool,
    /// Whether the host has destroyed it. It is removed when its queue is empty.
    pub destroyed: bool,
}

#[derive(Default)]
pub struct Event {
    pub timed: bool,
    /// Whether threads that wait for it sleep.
    pub blocking: bool,
    /// The point of the last record; `None` if it was never recorded, or recorded in a capture.
    pub point: Option<Point>,
    /// Its place in a capture, if it was last recorded in one.
    pub captured: Option<Captured>,
    pub recording: u64,
    /// Simulated time at which that recording ran.
    pub at_ns: Option<u64>,
}

#[derive(Clone, Copy)]
pub struct Function {
    pub module: u64,
    pub kernel: usize,
    pub max_dynamic_shared_bytes: u32,
}

/// A context and its objects. The first states are those of the devices' primary contexts, with the devices' own
/// settings; others are of contexts that programs have made.
pub struct State {
    /// The device's number.
    pub device: usize,
    /// The place among all states.
    pub slot: usize,
    pub config: Config,
    pub random: Random,
    pub fail_random: Random,
    /// Number of calls, of 256, after which queued work progresses without being asked to. Drawn from the seed.
    pub eagerness: u64,
    pub initialized: bool,
    /// References to the primary context, which outlive its reset.
    pub context_references: u64,
    /// Whether the context exists.
    pub active: bool,
    pub context_flags: u32,
    context: u64,
    /// The context's identifier.
    pub id: u64,
    pub next_handle: u64,
    /// Handles of objects that are gone, which others may get.
    gone: Vec<u64>,
    /// Numbers of operations that streams had when they went: a stream that gets the handle counts on, so that points
    /// of the old one stay reached.
    ended: BTreeMap<u64, u64>,
    /// Number of recordings of all events.
    pub recordings: u64,
    pub streams: BTreeMap<u64, Stream>,
    pub events: BTreeMap<u64, Event>,
    /// With the kernels of their images, if those are run.
    pub modules: BTreeMap<u64, Option<Kernels>>,
    pub functions: BTreeMap<u64, Function>,
    pub graphs: BTreeSet<u64>,
    /// The numbers of pools that were made, by handle. Unlike handles, no number is used twice.
    pub pools: BTreeMap<u64, u64>,
    pub pool_attributes: BTreeMap<(u64, u32), u64>,
    pub limits: BTreeMap<u32, usize>,
    pub clock_ns: u64,
    pub sticky: Option<Code>,
    /// Failures in order, at most MESSAGES.
    pub messages: Vec<String>,
    pub counts: Report,
}

impl State {
    pub fn new(config: Config, device: usize, slot: usize) -> Self {
        let mut state = State {
            device,
            slot,
            random: Random::new(0),
            fail_random: Random::new(0),
            eagerness: 0,
            initialized: false,
            context_references: 0,
            active: false,
            context_flags: 0,
            context: 0,
            id: 0,
            next_handle: 0,
            gone: Vec::new(),
            ended: BTreeMap::new(),
            recordings: 0,
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            graphs: BTreeSet::new(),
            pools: BTreeMap::new(),
            pool_attributes: BTreeMap::new(),
            limits: BTreeMap::new(),
            clock_ns: 0,
            sticky: None,
            messages: Vec::new(),
            counts: Report::default(),
            config,
        };
        state.restart();
        state
    }

    /// Returns to the state before cuInit, with the settings in `config`. Handles from before are not used again.
    pub fn restart(&mut self) {
        self.random = Random::new(self.config.seed ^ ((self.slot - self.device) as u64) << 32);
        self.fail_random = Random::new(self.config.fail_seed ^ 0xFA11_FA11_FA11_FA11);
        // Some seeds run nothing before they must, some run nearly everything at once. Each finds mistakes that the
        // other does not.
        self.eagerness = [0, 0, 8, 64, 160, 256][self.random.below(6)];
        self.initialized = false;
        self.context_references = 0;
        self.counts = Report::default();
        self.messages.clear();
        self.clear_context();
        self.gone.clear();
        self.ended.clear();
        self.context = 0;
        // The memory of a device that other contexts of it are on is cleared with its primary context.
        if self.slot == self.device {
            memory().reset(self.config.memory_bytes);
        }
    }

    /// Makes the context. A primary context that was destroyed has the same handle again, or another one.
    pub fn activate(&mut self) {
        self.active = true;
        self.id = 1 + CONTEXTS.fetch_add(1, Ordering::Relaxed);
        if self.context == 0 || self.random.coin() && !self.config.same_context {
            self.context = CONTEXT + ((self.slot as u64) << SLOT_SHIFT) + self.id % 0xF_FFFF * 16;
        }
    }

    /// Drops everything that belongs to the context.
    pub fn clear_context(&mut self) {
        self.active = false;
        forget_captures(self.context, None);
        let streams: Vec<_> = self.streams.keys().copied().filter(|stream| *stream != LEGACY).collect();
        streams.into_iter().for_each(|stream| self.remove_stream(stream));
        let handles = self.events.keys().chain(self.modules.keys()).chain(self.functions.keys());
        self.gone.extend(handles.chain(&self.graphs).chain(self.pools.keys()));
        self.streams.clear();
        self.events.clear();
        self.modules.clear();
        self.functions.clear();
        self.graphs.clear();
        self.pool_attributes.clear();
        self.limits.clear();
        self.sticky = None;
        self.context_flags = 0;
        self.counts.pending = 0;
        let peak = memory().peak_bytes() as u64;
        self.counts.peak_bytes = self.counts.peak_bytes.max(peak);
        memory().clear();
        self.pools.values().for_each(|pool| memory().drop_pool(*pool));
        self.pools.clear();
        let legacy = self.new_stream(Kind::Legacy, 0, 0);
        self.streams.insert(LEGACY, legacy);
    }

    /// The context's handle, also after it was destroyed.
    pub fn context_handle(&self) -> u64 {
        self.context
    }

    /// A handle, which looks like a pointer: a new one, or that of an object that is gone.
    pub fn new_handle(&mut self) -> u64 {
        if !self.gone.is_empty() && self.random.coin() {
            let at = self.random.below(self.gone.len());
            return self.gone.swap_remove(at);
        }
        self.next_handle += 1;
        OBJECTS + ((self.slot as u64) << 40) + self.next_handle * 16
    }

    /// Says that an object is gone.
    pub fn free_handle(&mut self, handle: u64) {
        self.gone.push(handle);
    }

    /// Adds a stream under a handle.
    pub fn insert_stream(&mut self, handle: u64, mut stream: Stream) {
        stream.done = self.ended.remove(&handle).unwrap_or(0);
        stream.enqueued = stream.done;
        self.streams.insert(handle, stream);
    }

    /// Removes a stream whose queue is empty, or whose context goes.
    pub fn remove_stream(&mut self, handle: u64) {
        if let Some(stream) = self.streams.remove(&handle)
            && handle >= OBJECTS
        {
            self.ended.insert(handle, stream.enqueued);
            self.free_handle(handle);
        }
    }

    pub fn new_stream(&mut self, kind: Kind, flags: u32, priority: i32) -> Stream {
        Stream {
            kind,
            flags,
            priority,
            weight: self.random.next(),
            queue: VecDeque::new(),
            enqueued: 0,
            done: 0,
            busy: false,
            destroyed: false,
        }
    }

    pub fn reached(&self, point: Point) -> bool {
        // A stream that is gone has run everything.
        self.streams.get(&point.0).is_none_or(|stream| stream.done >= point.1)
    }

    /// Appends an operation to a stream's queue. Returns the point at which it is done.
    pub fn enqueue(&mut self, stream: u64, mut operation: StreamOperation) -> Result<Point> {
        let kind = self.streams.get(&stream).ok_or(Code::INVALID_HANDLE)?.kind;
        match kind {
            Kind::Legacy => {
                let blocking = self.streams.iter().filter(|(_, other)| other.kind == Kind::Blocking);
                operation.after.extend(blocking.map(|(&id, other)| (id, other.enqueued)));
            }
            Kind::Blocking => operation.after.push((LEGACY, self.streams[&LEGACY].enqueued)),
            Kind::NonBlocking => {}
        }
        let stream_id = stream;
        let stream = self.streams.get_mut(&stream_id).ok_or(Code::INVALID_HANDLE)?;
        stream.queue.push_back(operation);
        stream.enqueued += 1;
        self.counts.pending += 1;
        Ok((stream_id, stream.enqueued))
    }

    /// Fails the context as CUDA does: every later call returns the code until the context is destroyed.
    pub fn fail(&mut self, code: Code, message: String) {
        self.log(&format!("{} {message}", error::name(code.0)));
        if self.sticky.is_none() {
            self.sticky = Some(code);
            self.remember(message);
        }
    }

    pub fn illegal(&mut self, call: &str, what: &str) -> Code {
        self.counts.illegal_accesses += 1;
        let seed = self.config.seed;
        self.fail(Code::ILLEGAL_ADDRESS, format!("{call}: {what} (CUDA_SIM_SEED={seed})"));
        Code::ILLEGAL_ADDRESS
    }

    pub fn remember(&mut self, message: String) {
        if self.messages.len() < MESSAGES {
            self.messages.push(message);
        }
    }

    pub fn log(&self, text: &str) {
        if self.config.verbose {
            eprintln!("cuda-sim: {text}");
        }
    }

    /// Whether a failure is drawn for this call.
    pub fn draw_failure(&mut self) -> bool {
        if self.config.fail_rate <= 0.0 || self.fail_random.unit() >= self.config.fail_rate {
            return false;
        }
        self.counts.injected_failures += 1;
        true
    }

    /// Fails the call at once, and leaves the context as it is.
    pub fn injected(&mut self, call: &str, code: Code) -> Code {
        let message =
            format!("{call}: injected {} (CUDA_SIM_FAIL_SEED={})", error::name(code.0), self.config.fail_seed);
        self.log(&message);
        self.remember(message);
        code
    }

    pub fn report(&self) -> Report {
        let memory = memory();
        let (allocations, bytes) = memory.usable();
        Report {
            allocations: allocations as u64,
            allocation_bytes: bytes as u64,
            host_allocations: memory.host_blocks() as u64,
            streams: self.made_streams(),
            events: self.events.len() as u64,
            modules: self.modules.len() as u64,
            contexts: self.context_references,
            urgent_streams: self.streams.values().filter(|s| !s.destroyed && s.priority < 0).count() as u64,
            peak_bytes: self.counts.peak_bytes.max(memory.peak_bytes() as u64),
            ..self.counts
        }
    }

    fn made_streams(&self) -> u64 {
        self.streams.iter().filter(|(id, stream)| **id >= OBJECTS && !stream.destroyed).count() as u64
    }

    /// Reports the objects that are alive when the process ends. Returns the exit status if they fail the process.
    pub fn at_exit(&self) -> Option<i32> {
        let report = self.report();
        let live = report.allocations + report.host_allocations + report.streams + report.events + report.modules;
        if self.config.leaks == Leaks::Ignore || live + report.lost == 0 {
            return None;
        }
        eprintln!(
            "cuda-sim: alive at exit: {} device allocations ({} bytes), {} pinned, {} streams, {} events, {} modules; \
             {} objects were alive when the context was destroyed",
            report.allocations,
            report.allocation_bytes,
            report.host_allocations,
            report.streams,
            report.events,
            report.modules,
            report.lost
        );
        (self.config.leaks == Leaks::Fail).then_some(86)
    }
}
