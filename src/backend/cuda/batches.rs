//! The in-flight batches of a pipeline, which are reused.
#![allow(unsafe_code)]

use super::in_flight::InFlight;
use super::limits::Limit;
use super::lock;
use crate::cuda::driver::Context;
use crate::error::Result;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The in-flight batches of a pipeline. Each is reused once the device is done with it.
pub(super) struct Batches {
    context: Context,
    /// Largest device memory of a batch, in bytes.
    pub(super) limit_bytes: usize,
    limit: Arc<Limit>,
    pinned: bool,
    /// Largest number of in-flight batches.
    most: usize,
    idle: Mutex<Idle>,
    /// Number of the batch that was begun last.
    numbers: AtomicU64,
}

/// In-flight batches that are not being filled, in the order of submission, so the first one is done first.
#[derive(Default)]
struct Idle {
    batches: VecDeque<InFlight>,
    /// Number of in-flight batches, idle or not.
    made: usize,
}

impl Batches {
    /// At most `most` batches, which share the limit.
    pub(super) fn new(context: &Context, limit: Arc<Limit>, pinned: bool, most: usize) -> Self {
        let (idle, numbers, limit_bytes) = (Mutex::default(), AtomicU64::new(0), limit.bytes / most);
        Self { context: Arc::clone(context), limit_bytes, limit, pinned, most, idle, numbers }
    }

    /// Begins a batch of `samples` samples. `done` receives the batch that used the memory before and is complete.
    ///
    /// # Synchronization
    /// Waits until the device is done with the memory. It usually is; otherwise all in-flight batches are still on the
    /// device.
    pub(super) fn begin(&self, samples: usize, done: impl FnOnce(&mut InFlight) -> Result<()>) -> Result<InFlight> {
        let idle = {
            let mut idle = lock(&self.idle);
            let more = idle.made < self.most;
            let ready = idle.batches.front().is_some_and(|batch| !more || batch.done.is_done());
            let batch = if ready { idle.batches.pop_front() } else { None };
            idle.made += usize::from(batch.is_none());
            batch
        };
        let begun = match idle {
            Some(batch) => Ok(batch),
            None => InFlight::new(&self.context, (self.limit_bytes, &self.limit), self.pinned),
        }
        .and_then(|batch| self.recycle(batch, samples, done));
        if begun.is_err() {
            self.lose();
        }
        begun
    }

    /// Prepares the memory of a completed batch for another.
    fn recycle(
        &self,
        mut batch: InFlight,
        samples: usize,
        done: impl FnOnce(&mut InFlight) -> Result<()>,
    ) -> Result<InFlight> {
        batch.done.synchronize()?;
        done(&mut batch)?;
        // SAFETY: all work of the batch has just been waited for. Allocations live no longer than the call that writes
        // them, except workers' staging memory, which belongs to an earlier batch number and so is never written again.
        unsafe { batch.arena.reset() };
        batch.begin(1 + self.numbers.fetch_add(1, Relaxed), samples);
        Ok(batch)
    }

    /// Waits for the batches that were submitted, and calls `done` for each.
    pub(super) fn wait(&self, mut done: impl FnMut(&mut InFlight)) -> Result<()> {
        lock(&self.idle).batches.iter_mut().try_for_each(|batch| {
            batch.done.synchronize()?;
            done(batch);
            Ok(())
        })
    }

    /// Says that the device has done all work.
    pub(super) fn idle(&self) {
        lock(&self.idle).batches.iter_mut().for_each(|batch| batch.arena.idle());
    }

    /// Takes back a batch that was submitted.
    pub(super) fn give(&self, batch: InFlight) {
        lock(&self.idle).batches.push_back(batch);
    }

    /// Takes back a batch that was not submitted and has no work on the device.
    pub(super) fn give_up(&self, mut batch: InFlight) {
        batch.begin(0, 0);
        self.give(batch);
    }

    /// Allows another batch to replace one that is lost.
    pub(super) fn lose(&self) {
        lock(&self.idle).made -= 1;
    }
}
