//! An in-flight batch: its memory, and what its samples still need.

use super::arena::Arena;
use super::jpeg::{Decoding, Job};
use super::kernel::Call;
use super::lock;
use super::nvjpeg::{HardwareBatch, HardwareJob};
use crate::cuda::driver::{Context, Event, Scoped};
use crate::error::Result;
use crate::raster::Size;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A sample whose plans have become calls.
pub(super) struct Prepared {
    /// Of the first of its images.
    pub(super) size: Size,
    /// Of each of its images.
    pub(super) calls: Vec<Vec<Call>>,
    /// Still encoded: the hardware decoder decodes it with the others of its batch.
    pub(super) hardware_job: Option<HardwareJob>,
    /// Still encoded: the kernels decode it with the others of its batch.
    pub(super) jpeg_job: Option<Box<Job>>,
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
    /// All that the last use has queued is done.
    pub(super) done: Event,
    /// The pieces have arrived on the device.
    pub(super) uploaded: Event,
    hardware: Mutex<Option<Scoped<HardwareBatch>>>,
    /// How many images the hardware decoder is at work on.
    pub(super) on_hardware: usize,
    jpeg: Mutex<Option<Decoding>>,
    /// How many images the kernels decode.
    pub(super) on_device: usize,
}

impl InFlight {
    pub(super) fn new(context: &Context, limit_bytes: usize, pinned: bool) -> Result<Self> {
        Ok(Self {
            number: 0,
            arena: Arena::new(context, limit_bytes, pinned),
            samples: Mutex::default(),
            unprepared: AtomicUsize::new(0),
            decoding: Mutex::default(),
            done: Event::new(context)?,
            uploaded: Event::new(context)?,
            hardware: Mutex::default(),
            on_hardware: 0,
            jpeg: Mutex::default(),
            on_device: 0,
        })
    }

    /// Makes it the next batch, of so many samples. Whoever calls it has waited for what it did before.
    pub(super) fn begin(&mut self, number: u64, samples: usize) {
        self.number = number;
        (self.on_hardware, self.on_device) = (0, 0);
        *self.unprepared.get_mut() = samples;
        let places = self.samples.get_mut().unwrap_or_else(PoisonError::into_inner);
        places.clear();
        places.resize_with(samples, || None);
        self.decoding.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Notes that a worker's stream decodes into its memory. That is in use until the event has passed, whatever becomes
    /// of the sample.
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
    pub(super) fn hardware_mut(&mut self) -> &mut Option<Scoped<HardwareBatch>> {
        self.hardware.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of the crate's own decoder for this batch.
    pub(super) fn decoding_mut(&mut self) -> &mut Option<Decoding> {
        self.jpeg.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn samples_mut(&mut self) -> &mut Vec<Option<Prepared>> {
        self.samples.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
