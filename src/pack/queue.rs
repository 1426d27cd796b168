//! Workers prepare samples in parallel; the samples come out in order.

use super::prepare::{PackScratch, Prepared, Preparer};
use super::reading::ANNOUNCED;
use crate::error::{Error, Result};
use crate::os::threads::spawn_scoped;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Number of samples for each worker that may be prepared before they are written.
const AHEAD: u64 = 4;

pub(super) struct Queue {
    end: u64,
    workers: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Index of the next sample that a worker takes.
    take: u64,
    /// Index of the next sample that comes out.
    give: u64,
    ready: BTreeMap<u64, Prepared>,
    stopped: bool,
}

impl Queue {
    pub fn new(samples: Range<u64>, workers: usize) -> Self {
        let state = State { take: samples.start, give: samples.start, ready: BTreeMap::new(), stopped: false };
        Self { end: samples.end, workers, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Runs the workers while `write` takes the prepared samples.
    pub fn run(&self, prepare: &Preparer, write: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        let mut work = Vec::with_capacity(self.workers);
        for _ in 0..self.workers {
            work.push(PackScratch::new()?);
        }
        let next = self.lock().take;
        (next..self.end.min(next + ANNOUNCED)).for_each(|index| prepare.announce(index));
        std::thread::scope(|scope| {
            // Stops the workers even if `write` panics or a worker cannot be started; otherwise the scope would wait
            // for them.
            let _stop = Stop(self);
            for (i, work) in work.into_iter().enumerate() {
                spawn_scoped(scope, format!("warpfeed-pack-{i}"), move || self.work(prepare, work))?;
            }
            write(self)
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, prepare: &Preparer, mut work: PackScratch) {
        let ahead = AHEAD * self.workers as u64;
        loop {
            let mut state = self.lock();
            while !state.stopped && state.take < self.end && state.take - state.give >= ahead {
                state = self.wait(state);
            }
            if state.stopped || state.take >= self.end {
                return;
            }
            let index = state.take;
            state.take += 1;
            drop(state);
            // The source may be the caller's own code, which can panic.
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                if self.end - index > ANNOUNCED {
                    prepare.announce(index + ANNOUNCED);
                }
                prepare.sample(index, &mut work)
            }));
            let failed =
                |panic: Box<dyn std::any::Any + Send>| Prepared { checksum: 0, image: Err(Error::panic(&*panic)) };
            let outcome = outcome.unwrap_or_else(failed);
            self.lock().ready.insert(index, outcome);
            self.changed.notify_all();
        }
    }

    /// Waits for the next sample in order and returns it with its index. `None` after the last sample.
    pub fn next(&self) -> Option<(u64, Prepared)> {
        let mut state = self.lock();
        if state.give >= self.end {
            return None;
        }
        loop {
            let index = state.give;
            if let Some(outcome) = state.ready.remove(&index) {
                state.give += 1;
                drop(state);
                self.changed.notify_all();
                return Some((index, outcome));
            }
            state = self.wait(state);
        }
    }

    /// The index after the last sample.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether all samples have come out.
    pub fn is_done(&self) -> bool {
        self.lock().give >= self.end
    }
}

struct Stop<'a>(&'a Queue);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        self.0.changed.notify_all();
    }
}
