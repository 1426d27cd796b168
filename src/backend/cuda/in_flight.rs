//! One batch on its way through the device: its memory, and what its samples still need.
#![allow(unsafe_code)]

use super::arena::Arena;
use super::driver::{self, Context, Event};
use super::gpu::Gpu;
use super::kernel::Call;
use super::nvjpeg::{HardwareBatch, HardwareJob};
use super::worker::{Worker, lock};
use crate::error::Result;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A sample whose recipe has become calls.
pub(super) struct Prepared {
    pub(super) calls: Vec<Call>,
    /// Still encoded: the hardware decoder decodes it with the others of its batch.
    pub(super) hardware_job: Option<HardwareJob>,
}

/// A batch being filled, then on the device, then used again for another.
pub(crate) struct InFlight {
    /// Tells this use from others of the same memory.
    pub(super) number: u64,
    pub(super) arena: Arena,
    samples: Mutex<Vec<Option<Prepared>>>,
    /// How many of them are not there yet.
    unprepared: AtomicUsize,
    /// What workers' streams have been given to do for it, a stream an event.
    decoding: Mutex<Vec<Arc<Event>>>,
    /// What of the last use has been queued has been done.
    pub(super) done: Event,
    /// The pieces have arrived on the device.
    pub(super) uploaded: Event,
    hardware: Mutex<Option<HardwareBatch>>,
    pub(super) hardware_began: Event,
    pub(super) hardware_ended: Event,
    /// What the hardware decoder is at work on.
    pub(super) hardware_jobs: Vec<HardwareJob>,
}

impl InFlight {
    fn new(context: &Context, limit_bytes: usize, pinned: bool) -> Result<Self> {
        Ok(Self {
            number: 0,
            arena: Arena::new(context, limit_bytes, pinned),
            samples: Mutex::default(),
            unprepared: AtomicUsize::new(0),
            decoding: Mutex::default(),
            done: Event::new(context)?,
            uploaded: Event::new(context)?,
            hardware: Mutex::default(),
            hardware_began: Event::timed(context)?,
            hardware_ended: Event::timed(context)?,
            hardware_jobs: Vec::new(),
        })
    }

    /// Makes it the next batch, of so many samples. Whoever calls it has waited for what it did before.
    fn begin(&mut self, number: u64, samples: usize) {
        self.number = number;
        *self.unprepared.get_mut() = samples;
        let places = self.samples.get_mut().unwrap_or_else(PoisonError::into_inner);
        places.clear();
        places.resize_with(samples, || None);
        self.decoding.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Notes that a worker's stream is at work for it: whatever becomes of the sample, the memory is in use until then.
    pub(super) fn is_decoding(&self, queued: Arc<Event>) {
        let mut decoding = lock(&self.decoding);
        if !decoding.iter().any(|known| Arc::ptr_eq(known, &queued)) {
            decoding.push(queued);
        }
    }

    /// What workers' streams are at work on.
    pub(super) fn decoding(&self) -> Vec<Arc<Event>> {
        lock(&self.decoding).clone()
    }

    pub(super) fn put(&self, sample: usize, prepared: Prepared) {
        if let Some(place) = lock(&self.samples).get_mut(sample)
            && place.replace(prepared).is_none()
        {
            self.unprepared.fetch_sub(1, Relaxed);
        }
    }

    /// How many samples are still to be put in, or were found to be bad.
    pub(super) fn unprepared(&self) -> usize {
        self.unprepared.load(Relaxed)
    }

    /// The hardware decoder's state for this batch.
    pub(super) fn hardware_mut(&mut self) -> &mut Option<HardwareBatch> {
        self.hardware.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn samples_mut(&mut self) -> &mut Vec<Option<Prepared>> {
        self.samples.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In-flight batches that no samples are being put into: the one submitted first is the first to be done.
#[derive(Default)]
pub(super) struct Idle {
    pub(super) batches: VecDeque<InFlight>,
    /// How many there are, idle or not.
    made: usize,
}

impl Gpu {
    /// Begins a batch of so many samples.
    ///
    /// # Synchronization
    /// Waits until the device is done with the memory, which it is unless it is behind by all batches in flight.
    pub(super) fn begin_batch(&self, samples: usize) -> Result<InFlight> {
        driver::bind(&self.context)?;
        let idle = {
            let mut idle = lock(&self.idle);
            let more = idle.made < self.options.batches_at_a_time();
            let ready = idle.batches.front().is_some_and(|batch| !more || batch.done.is_done());
            let batch = if ready { idle.batches.pop_front() } else { None };
            idle.made += usize::from(batch.is_none());
            batch
        };
        let begun = match idle {
            Some(batch) => Ok(batch),
            None => InFlight::new(&self.context, self.in_flight_bytes, self.options.pinned),
        }
        .and_then(|batch| self.recycle(batch, samples));
        if begun.is_err() {
            lock(&self.idle).made -= 1;
        }
        begun
    }

    /// Makes the memory of a batch ready for another.
    fn recycle(&self, mut batch: InFlight, samples: usize) -> Result<InFlight> {
        batch.done.synchronize()?;
        if !batch.hardware_jobs.is_empty() {
            batch.hardware_ended.synchronize()?;
            if let Some(time_ms) = batch.hardware_ended.since_ms(&batch.hardware_began) {
                self.router.hardware_took(batch.hardware_jobs.len(), time_ms);
            }
            batch.hardware_jobs.drain(..).for_each(|job| self.keep_buffer(job.encoded.into_buffer()));
        }
        // SAFETY: all of its work has just been waited for; allocations live no longer than the call that writes them,
        // but for workers' staging memory, which is of an earlier number and so never written again.
        unsafe { batch.arena.reset() };
        batch.begin(1 + self.numbers.fetch_add(1, Relaxed), samples);
        Ok(batch)
    }

    /// Gives a batch up: waits for whatever of it is under way.
    pub(super) fn abandon_batch(&self, mut batch: InFlight) {
        // Where that fails, the context has, and its work with it: the memory is not used again.
        if driver::bind(&self.context).and_then(|()| self.settle_all(&batch)).is_ok() {
            batch.hardware_jobs.clear();
            batch.begin(0, 0);
            lock(&self.idle).batches.push_back(batch);
        } else {
            lock(&self.idle).made -= 1;
        }
    }

    /// Waits for all that a batch may have queued.
    fn settle_all(&self, batch: &InFlight) -> Result<()> {
        batch.decoding().iter().try_for_each(|event| event.synchronize())?;
        self.synchronize_streams()
    }

    /// Waits for all that was queued by anybody.
    pub(super) fn synchronize(&self) -> Result<()> {
        lock(&self.workers).iter().try_for_each(Worker::synchronize)?;
        self.synchronize_streams()
    }

    fn synchronize_streams(&self) -> Result<()> {
        if let Some(hardware) = self.hardware() {
            hardware.stream.synchronize()?;
        }
        self.copy.synchronize()?;
        self.compute.synchronize()
    }
}
