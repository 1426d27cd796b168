//! The common part of all calls, and the scheduler, which runs queued operations during calls.

use crate::api;
use crate::child;
use crate::config::{Config, DEVICES, NOOP};
use crate::error::{self, Code, Result};
use crate::kernels;
use crate::memory::{enter, host, memory, take_refusal};
use crate::random::Random;
use crate::state::{Kind, LEGACY, PER_THREAD, Place, Point, State, StreamOperation, Work, slot_of};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The state of each device's primary context, then those of contexts that programs have made. There is one lock for
/// all, so two kernels never run at the same time.
static STATE: LazyLock<Mutex<Vec<State>>> = LazyLock::new(|| {
    let config = Config::from_environment();
    let device = |device| {
        enter(device, device);
        State::new(config.clone(), device, device)
    };
    Mutex::new((0..*DEVICES).map(device).collect())
});
/// Signalled when a host function has returned.
static RETURNED: Condvar = Condvar::new();

thread_local! {
    /// Whether this thread is running a host function, in which CUDA forbids calls.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    /// The stack of contexts, by handle.
    pub static CONTEXTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// This thread's default streams, by the identifier of their context.
    static OWN_STREAM: RefCell<BTreeMap<u64, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// An argument through which a call returns something. By the API's contract it is null or points to memory for a T.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// An argument whose type depends on the request. The caller chooses the type that the API defines.
    pub fn untyped(pointer: *mut std::ffi::c_void) -> Self {
        Out(pointer.cast())
    }

    pub fn set(&self, value: T) -> Result<()> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the API that the caller keeps, memory for a T, which need not be
        // initialized.
        unsafe { self.0.write(value) };
        Ok(())
    }

    pub fn set_if_given(&self, value: T) {
        let _ = self.set(value);
    }
}

/// The preconditions of a call.
#[derive(Clone, Copy, PartialEq)]
pub enum Needs {
    Nothing,
    Init,
    /// A current context that has not failed.
    Context,
    /// A current context. If it has failed, the call still does its work, so that objects count as released, and then
    /// returns the failure.
    Release,
}

pub fn call(name: &'static str, needs: Needs, body: impl FnOnce(&mut Session) -> Result<()>) -> u32 {
    if IN_HOST_FUNCTION.get() {
        return Code::NOT_PERMITTED.0;
    }
    if child::refuses(name) {
        return Code::NOT_INITIALIZED.0;
    }
    let mut session = Session::open(name);
    let admitted = session.admit(needs).and_then(|()| api::check_captures(name, session.context_handle()));
    let result = admitted.and_then(|()| {
        let result = body(&mut session);
        match (needs, session.sticky) {
            (Needs::Release, Some(code)) => result.and(Err(code)),
            _ => result,
        }
    });
    if matches!(needs, Needs::Context | Needs::Release) {
        session.progress();
    }
    match result {
        Ok(()) => 0,
        Err(code) => {
            if code != Code::NOT_READY {
                session.log(&format!("{name} returns {}", error::name(code.0)));
            }
            code.0
        }
    }
}

/// The state of a device, locked for one call.
pub struct Session {
    /// Always present, except during a wait.
    guard: Option<MutexGuard<'static, Vec<State>>>,
    /// The slot of the current context, until the call selects another.
    slot: usize,
    pub call: &'static str,
}

impl Deref for Session {
    type Target = State;
    fn deref(&self) -> &State {
        &self.guard.as_ref().expect("the guard is only away inside of wait_for_return")[self.slot]
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guard.as_mut().expect("the guard is only away inside of wait_for_return")[self.slot]
    }
}

impl Session {
    pub fn open(call: &'static str) -> Self {
        Self::over(STATE.lock().unwrap_or_else(PoisonError::into_inner), call)
    }

    fn over(guard: MutexGuard<'static, Vec<State>>, call: &'static str) -> Self {
        // When the process ends, thread-local variables may be gone.
        let current = CONTEXTS.try_with(|stack| stack.borrow().last().copied()).ok().flatten();
        let slot = current.and_then(slot_of).filter(|&slot| slot < guard.len()).unwrap_or(0);
        let mut session = Session { guard: Some(guard), slot, call };
        session.switch(slot);
        session
    }

    /// Makes the context in another slot, which must exist, that of the rest of the call.
    pub fn switch(&mut self, slot: usize) {
        self.slot = slot;
        enter(self.device, slot);
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.guard.as_ref().map_or(0, |states| states.len())
    }

    /// Makes the context in an unused slot, on the device of the current one, that of the rest of the call.
    pub fn switch_to_unused(&mut self) {
        let (device, config, slots) = (self.device, self.config.clone(), self.slots());
        let seed = self.random.next();
        let unused = (*DEVICES..slots).find(|&slot| {
            self.guard.as_ref().is_some_and(|states| !states[slot].active && states[slot].device == device)
        });
        let slot = unused.unwrap_or(slots);
        enter(device, slot);
        if unused.is_none()
            && let Some(states) = &mut self.guard
        {
            states.push(State::new(config, device, slot));
        }
        self.switch(slot);
        self.random = Random::new(seed);
        self.initialized = true;
    }

    /// Makes the primary context of the device with this number that of the rest of the call.
    pub fn of(&mut self, device: c_int) -> Result<()> {
        let found = usize::try_from(device).ok().filter(|&device| device < *DEVICES);
        self.switch(found.ok_or(Code::INVALID_DEVICE)?);
        Ok(())
    }

    /// Makes this context, which must be alive, that of the rest of the call.
    pub fn of_context(&mut self, context: u64) -> Result<()> {
        let slot = slot_of(context).filter(|&slot| slot < self.slots()).ok_or(Code::INVALID_CONTEXT)?;
        self.switch(slot);
        let known = self.active && context == self.context_handle();
        if known { Ok(()) } else { Err(Code::INVALID_CONTEXT) }
    }

    /// Opens a session at the end of the process, when another thread may hold the lock forever.
    pub fn try_open(call: &'static str) -> Option<Self> {
        Some(Self::over(STATE.try_lock().ok()?, call))
    }

    fn admit(&mut self, needs: Needs) -> Result<()> {
        if needs == Needs::Nothing {
            return Ok(());
        }
        if !self.initialized {
            return Err(Code::NOT_INITIALIZED);
        }
        if needs == Needs::Init {
            return Ok(());
        }
        let current = CONTEXTS.with_borrow(|stack| stack.last().copied());
        let current = current.ok_or(Code::INVALID_CONTEXT)?;
        if !self.active || current != self.context_handle() {
            return Err(Code::CONTEXT_IS_DESTROYED);
        }
        if needs == Needs::Context { self.healthy() } else { Ok(()) }
    }

    /// The device works while the host is between calls: on all of the queued work, on some of it, or not at all.
    fn progress(&mut self) {
        if *NOOP {
            return;
        }
        let eagerness = self.eagerness;
        if self.random.chance(eagerness) {
            for _ in 0..=self.random.below(3) {
                self.step_any();
            }
        }
    }

    pub fn healthy(&self) -> Result<()> {
        self.sticky.map_or(Ok(()), Err)
    }

    /// The stream that a handle refers to on this thread.
    pub fn stream(&mut self, handle: u64) -> Result<u64> {
        match handle {
            0 | LEGACY => Ok(LEGACY),
            PER_THREAD => {
                let known = OWN_STREAM.with_borrow(|all| all.get(&self.id).copied());
                if let Some(own) = known {
                    return Ok(own);
                }
                // The number is below all handles given out, so that it cannot be taken for a stream that somebody
                // made.
                self.next_handle += 1;
                let own = 0x1000 + self.next_handle;
                let stream = self.new_stream(Kind::Blocking, 0, 0);
                self.streams.insert(own, stream);
                OWN_STREAM.with_borrow_mut(|all| all.insert(self.id, own));
                Ok(own)
            }
            _ if self.streams.get(&handle).is_some_and(|stream| !stream.destroyed) => Ok(handle),
            _ => Err(Code::INVALID_HANDLE),
        }
    }

    /// The context of a stream of any context.
    pub fn context_of_stream(&self, handle: u64) -> Option<u64> {
        let states = self.guard.as_ref()?;
        let of = |state: &&State| state.streams.get(&handle).is_some_and(|stream| !stream.destroyed);
        states.iter().find(of).map(|state| state.context_handle())
    }

    /// Waits for an event of another context than the current one.
    pub fn wait_for_other(&mut self, event: u64) -> Result<()> {
        let (own, states) = (self.slot, self.guard.as_ref().ok_or(Code::UNKNOWN)?);
        let other = states.iter().position(|state| state.events.contains_key(&event)).ok_or(Code::INVALID_HANDLE)?;
        self.switch(other);
        let (point, captured) = self.events.get(&event).map_or((None, None), |e| (e.point, e.captured.clone()));
        let waited = match captured {
            Some(captured) => api::refuse_event(&captured),
            None => point.map_or(Ok(()), |point| self.wait_for(&[point])),
        };
        self.switch(own);
        waited
    }

    /// Queues an operation on the stream that a handle refers to.
    pub fn submit(&mut self, handle: u64, work: Work) -> Result<Point> {
        self.submit_after(handle, work, Vec::new(), None)
    }

    pub fn submit_after(
        &mut self,
        handle: u64,
        work: Work,
        after: Vec<Point>,
        injected: Option<Code>,
    ) -> Result<Point> {
        let stream = self.stream(handle)?;
        if api::is_captured(self, stream)? {
            return Ok((stream, 0));
        }
        let call = self.call;
        let operation = StreamOperation { call, after, work, injected };
        if *NOOP { self.complete(stream, operation) } else { self.enqueue(stream, operation) }
    }

    /// Without queues: updates the counts for an operation, and runs work that the host waits for.
    fn complete(&mut self, stream: u64, operation: StreamOperation) -> Result<Point> {
        match operation.work {
            Work::Allocate { .. } | Work::Free { .. } | Work::Record { .. } => self.run(operation),
            Work::Host { .. } => {
                self.enqueue(stream, operation)?;
                self.run_next(stream);
            }
            _ => {}
        }
        Ok((stream, 0))
    }

    // The scheduler.

    fn blocked_by(&self, operation: &StreamOperation) -> Option<Point> {
        operation.after.iter().copied().find(|&point| !self.reached(point))
    }

    fn is_runnable(&self, stream: u64) -> bool {
        let Some(stream) = self.streams.get(&stream) else { return false };
        !stream.busy && stream.queue.front().is_some_and(|operation| self.blocked_by(operation).is_none())
    }

    /// Runs one operation of any stream that can run. Returns false if there is none.
    fn step_any(&mut self) -> bool {
        let runnable: Vec<u64> = self.streams.keys().copied().filter(|&id| self.is_runnable(id)).collect();
        if runnable.is_empty() {
            return false;
        }
        // Mostly chooses the stream with the highest weight, so that some streams run far ahead of others. Evenly drawn
        // steps would rarely do that.
        let chosen = if self.random.chance(64) {
            runnable[self.random.below(runnable.len())]
        } else {
            runnable.into_iter().max_by_key(|id| self.streams[id].weight).unwrap_or(LEGACY)
        };
        if self.random.chance(16) {
            let weight = self.random.next();
            if let Some(stream) = self.streams.get_mut(&chosen) {
                stream.weight = weight;
            }
        }
        self.run_next(chosen);
        true
    }

    /// Runs the stream's next operation, or one that it needs. Returns false if it waits for a host function.
    fn step_toward(&mut self, mut stream: u64) -> bool {
        while let Some(next) = self.streams.get(&stream) {
            if next.busy {
                return false;
            }
            let Some(operation) = next.queue.front() else { return false };
            match self.blocked_by(operation) {
                // Points refer only to work that was queued earlier, so this ends.
                Some((other, _)) => stream = other,
                None => {
                    self.run_next(stream);
                    return true;
                }
            }
        }
        false
    }

    /// Runs operations until all points are reached. A random choice decides whether only the needed ones run, or
    /// others as well.
    pub fn wait_for(&mut self, points: &[Point]) -> Result<()> {
        let only_needed = self.random.coin();
        while let Some(&(stream, _)) = points.iter().find(|&&point| !self.reached(point)) {
            let moved = if only_needed || self.random.coin() { self.step_toward(stream) } else { self.step_any() };
            if !moved {
                assert!(self.streams.values().any(|stream| stream.busy), "queued operations wait for each other");
                self.wait_for_return(None);
            }
        }
        self.healthy()
    }

    /// Often makes one step towards a point, so that a caller who polls gets there.
    pub fn poll(&mut self, point: Point) -> Result<()> {
        if !self.reached(point) && self.random.coin() {
            self.step_toward(point.0);
        }
        self.healthy()?;
        if self.reached(point) { Ok(()) } else { Err(Code::NOT_READY) }
    }

    pub fn wait_for_all(&mut self) -> Result<()> {
        if self.counts.pending == 0 {
            return self.healthy();
        }
        let points: Vec<Point> = self.streams.iter().map(|(&id, stream)| (id, stream.enqueued)).collect();
        self.wait_for(&points)
    }

    fn wait_for_return(&mut self, limit: Option<Duration>) {
        let guard = self.guard.take().expect("the guard is only away inside of this function");
        self.guard = Some(match limit {
            None => RETURNED.wait(guard).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => RETURNED.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0,
        });
    }

    fn run_next(&mut self, stream: u64) {
        let Some(operation) = self.streams.get_mut(&stream).and_then(|stream| stream.queue.pop_front()) else {
            return;
        };
        if let Work::Host { function, data } = operation.work {
            if self.sticky.is_none() {
                self.run_host_function(stream, function, data);
            } else {
                self.finish(stream);
            }
            return;
        }
        self.run(operation);
        self.finish(stream);
    }

    /// A host function runs on a thread of its own and without the lock, as in CUDA: it may wait for a lock that the
    /// thread in this call holds. It usually returns at once. Waiting a little keeps the order of events the same from
    /// run to run.
    fn run_host_function(&mut self, stream: u64, function: extern "C" fn(*mut std::ffi::c_void), data: usize) {
        let Some(running) = self.streams.get_mut(&stream) else { return };
        running.busy = true;
        let (done, device, slot) = (running.done, self.device, self.slot);
        std::thread::spawn(move || {
            IN_HOST_FUNCTION.set(true);
            enter(device, slot);
            function(data as *mut std::ffi::c_void);
            let mut session = Session::open("cuLaunchHostFunc");
            session.switch(slot);
            if let Some(what) = take_refusal() {
                session.illegal("cuLaunchHostFunc", &format!("the function touched memory that it may not: {what}"));
            }
            if let Some(stream) = session.streams.get_mut(&stream) {
                stream.busy = false;
            }
            session.finish(stream);
            RETURNED.notify_all();
        });
        let patience = std::time::Instant::now() + Duration::from_millis(200);
        while self.streams.get(&stream).is_some_and(|stream| stream.busy && stream.done == done) {
            let Some(left) = patience.checked_duration_since(std::time::Instant::now()) else { break };
            self.wait_for_return(Some(left));
        }
    }

    fn finish(&mut self, id: u64) {
        self.clock_ns += 1_000;
        self.counts.operations_run += 1;
        self.counts.pending = self.counts.pending.saturating_sub(1);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.done += 1;
            if stream.destroyed && stream.queue.is_empty() {
                self.remove_stream(id);
            }
        }
        if self.counts.pending == 0 {
            memory().drain_quarantine();
        }
    }

    fn run(&mut self, operation: StreamOperation) {
        let call = operation.call;
        if let Some(code) = operation.injected
            && self.sticky.is_none()
        {
            let seed = self.config.fail_seed;
            self.fail(code, format!("{call}: injected {} (CUDA_SIM_FAIL_SEED={seed})", error::name(code.0)));
        }
        // In a failed context only the counts are updated.
        let healthy = self.sticky.is_none();
        match operation.work {
            Work::Wait | Work::Host { .. } => {}
            Work::Record { event, recording } => {
                let now = self.clock_ns;
                if let Some(event) = self.events.get_mut(&event)
                    && event.recording == recording
                {
                    event.at_ns = Some(now);
                }
            }
            Work::Allocate { id } => memory().activate(id),
            Work::Free { id } => {
                let freed = memory().release(id);
                if let Err(damage) = freed {
                    self.illegal(call, &damage);
                }
            }
            Work::Copy { to, from, bytes } if healthy => {
                if self.require_live(call, to) && self.require_live(call, from) {
                    self.clock_ns += bytes as u64;
                    self.take_time(bytes);
                    // SAFETY: both ranges were checked against their blocks when the call was made, and the blocks were
                    // checked to exist just now. Pageable memory belongs to the caller, who waits for this. The ranges
                    // may overlap.
                    unsafe { std::ptr::copy(host(from.address()) as *const u8, host(to.address()) as *mut u8, bytes) };
                }
            }
            Work::CopyStaged { to, bytes } if healthy => {
                if self.require_live(call, to) {
                    self.clock_ns += bytes.len() as u64;
                    self.take_time(bytes.len());
                    // SAFETY: the range was checked when the call was made and is there, as above.
                    unsafe { std::ptr::copy(bytes.as_ptr(), host(to.address()) as *mut u8, bytes.len()) };
                }
            }
            Work::Fill { to, value, width, count } if healthy => {
                if self.require_live(call, to) {
                    self.clock_ns += (width * count) as u64;
                    let value = value.to_le_bytes();
                    for i in 0..count {
                        // SAFETY: element i is within width * count bytes, which were checked when the call was
                        // made; width is at most 4.
                        unsafe { std::ptr::copy(value.as_ptr(), host(to.address() + i * width) as *mut u8, width) };
                    }
                }
            }
            Work::Kernel { kernel, grid, block, shared_bytes, arguments } if healthy => {
                take_refusal();
                let order = self.random.next();
                let (name, status) = kernels::run(kernel, grid, block, shared_bytes, &arguments, order);
                self.clock_ns += 1_000;
                self.counts.kernels_run += 1;
                if let Some(what) = take_refusal() {
                    self.illegal(call, &format!("kernel {name}: {what}"));
                } else if status != 0 {
                    self.fail(Code::LAUNCH_FAILED, format!("{call}: kernel {name} failed with status {status}"));
                }
            }
            Work::External { function, data, places } => {
                let live = healthy && places.iter().all(|&place| self.require_live(call, place));
                self.clock_ns += 1_000;
                take_refusal();
                IN_HOST_FUNCTION.set(true);
                function(data as *mut std::ffi::c_void, live);
                IN_HOST_FUNCTION.set(false);
                if let Some(what) = take_refusal() {
                    self.illegal(call, &what);
                }
            }
            Work::Copy { .. } | Work::CopyStaged { .. } | Work::Fill { .. } | Work::Kernel { .. } => {}
        }
    }

    /// Takes the time of a copy over a slow link.
    fn take_time(&self, bytes: usize) {
        if self.config.copy_bytes_per_s > 0 {
            std::thread::sleep(Duration::from_secs_f64(bytes as f64 / self.config.copy_bytes_per_s as f64));
        }
    }

    fn require_live(&mut self, call: &str, place: Place) -> bool {
        let found = place.require_live();
        found.map_err(|what| self.illegal(call, &what)).is_ok()
    }
}
