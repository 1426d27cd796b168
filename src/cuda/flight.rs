//! One batch on its way through the device: its memory, and what its samples still need.

use super::arena::Arena;
use super::driver::{Context, Event};
use super::kernel::Call;
use super::nvjpeg::{HardwareBatch, HardwareJob};
use crate::error::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A sample whose recipe has become calls.
pub(super) struct Prepared {
    pub(super) calls: Vec<Call>,
    /// Still encoded: the hardware decoder decodes it with the others of its batch.
    pub(super) hardware_job: Option<HardwareJob>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A batch being filled, then on the device, then used again for another.
pub(crate) struct InFlight {
    /// Tells this use from others of the same memory.
    pub(super) number: u64,
    pub(super) arena: Arena,
    samples: Mutex<Vec<Option<Prepared>>>,
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
    pub(super) fn new(context: &Context, limit_bytes: usize, pinned: bool) -> Result<Self> {
        Ok(Self {
            number: 0,
            arena: Arena::new(context, limit_bytes, pinned),
            samples: Mutex::default(),
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
    pub(super) fn begin(&mut self, number: u64, samples: usize) {
        self.number = number;
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
        if let Some(place) = lock(&self.samples).get_mut(sample) {
            *place = Some(prepared);
        }
    }

    /// The hardware decoder's state for this batch.
    pub(super) fn hardware_mut(&mut self) -> &mut Option<HardwareBatch> {
        self.hardware.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn samples_mut(&mut self) -> &mut Vec<Option<Prepared>> {
        self.samples.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
