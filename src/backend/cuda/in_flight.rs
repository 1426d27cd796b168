//! An in-flight batch: its memory, and its samples' remaining work.

use super::arena::Arena;
use super::decode::labeled_bytes;
use super::engines::{Engines, HardwareJob, Tracker};
use super::jpeg::{Decoding, Job};
use super::kernel::Call;
use super::limits::Limit;
use super::lock;
use super::masks::MovedMask;
use crate::backend::RunOptions;
use crate::cuda::driver::{Context, Event};
use crate::error::Result;
use crate::ops::kernel::Descriptor;
use crate::raster::Size;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A sample whose plans have been lowered to calls.
pub(super) struct Prepared {
    /// Size of the first of its images.
    pub(super) size: Size,
    /// The calls of each of its images.
    pub(super) calls: Vec<Vec<Call>>,
    pub(super) masks: Vec<MovedMask>,
    /// The encoded image, if the engines decode it with others. They get it when the sample is in its batch.
    pub(super) hardware_job: Option<HardwareJob>,
    /// The encoded image, if the kernels decode it with others of its batch.
    pub(super) jpeg_job: Option<Box<Job>>,
}

/// A batch that is filled, runs on the device, and is then reused for another one.
pub(crate) struct InFlight {
    /// Tells this use of the memory from others.
    pub(super) number: u64,
    /// The images on the engines. Dropped before their memory.
    engines: Mutex<Option<OnEngines>>,
    pub(super) arena: Arena,
    prepared: Mutex<Vec<Option<Prepared>>>,
    /// Number of samples that are still missing.
    unprepared: AtomicUsize,
    /// Events after the work for this batch on workers' streams, one for each stream.
    decoding: Mutex<Vec<Arc<Event>>>,
    /// Passes when all work of the last use is done.
    pub(super) done: Event,
    /// Passes when the staged pieces have arrived on the device.
    pub(super) uploaded: Event,
    /// Number of images that the engines are working on.
    pub(super) on_hardware: usize,
    jpeg: Mutex<Option<Decoding>>,
    /// Number of images that the kernels decode.
    pub(super) on_device: usize,
}

/// Images on the engines. When this is dropped, no image is left that they have not begun.
struct OnEngines(Arc<Tracker>);

impl Drop for OnEngines {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl InFlight {
    /// A batch with a share of a pipeline's limit.
    pub(super) fn new(context: &Context, (limit_bytes, limit): (usize, &Arc<Limit>), pinned: bool) -> Result<Self> {
        Ok(Self {
            number: 0,
            engines: Mutex::default(),
            arena: Arena::new(context, limit_bytes, pinned).part_of(limit),
            prepared: Mutex::default(),
            unprepared: AtomicUsize::new(0),
            decoding: Mutex::default(),
            done: Event::new(context)?,
            uploaded: Event::new(context)?,
            on_hardware: 0,
            jpeg: Mutex::default(),
            on_device: 0,
        })
    }

    /// Makes this the next batch, of `samples` samples. The caller has waited for its earlier work.
    pub(super) fn begin(&mut self, number: u64, samples: usize) {
        self.number = number;
        (self.on_hardware, self.on_device) = (0, 0);
        // Places that a batch was to find out which was given up.
        self.decoding_mut().iter_mut().for_each(Decoding::forget);
        *self.unprepared.get_mut() = samples;
        let places = self.prepared.get_mut().unwrap_or_else(PoisonError::into_inner);
        places.clear();
        places.resize_with(samples, || None);
        self.decoding.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Notes that a worker's stream decodes into the batch's memory. The memory is in use until the event has passed,
    /// even if the sample fails.
    pub(super) fn is_decoding(&self, queued: Arc<Event>) {
        let mut decoding = lock(&self.decoding);
        if !decoding.iter().any(|known| Arc::ptr_eq(known, &queued)) {
            decoding.push(queued);
        }
    }

    /// The events after the work on workers' streams.
    pub(super) fn decoding(&self) -> Vec<Arc<Event>> {
        lock(&self.decoding).clone()
    }

    pub(super) fn put(&self, sample: usize, prepared: Prepared) {
        if let Some(place) = lock(&self.prepared).get_mut(sample)
            && place.replace(prepared).is_none()
        {
            self.unprepared.fetch_sub(1, Relaxed);
        }
    }

    /// Number of samples that are still to be added, or were found to be bad.
    pub(super) fn unprepared(&self) -> usize {
        self.unprepared.load(Relaxed)
    }

    /// Number of all samples of the batch.
    pub(super) fn samples(&self) -> usize {
        lock(&self.prepared).len()
    }

    /// Bytes that the end of the batch stages for the samples that were added.
    pub(super) fn end_bytes(&mut self, options: &RunOptions) -> usize {
        let of = |sample: &Prepared| {
            let of_masks: usize = sample.masks.iter().map(MovedMask::calls).sum();
            (sample.calls.iter().map(Vec::len).sum::<usize>() + of_masks) * Descriptor::MOST_BYTES
                + labeled_bytes(options)
        };
        self.samples_mut().iter().flatten().map(of).sum()
    }

    /// Leaves the image of a sample to the engines.
    pub(super) fn put_on_engines(&self, engines: &Engines, sample: usize, job: HardwareJob) -> Result<()> {
        let tracker = {
            let mut known = lock(&self.engines);
            match &*known {
                Some(OnEngines(tracker)) => Arc::clone(tracker),
                None => Arc::clone(&known.insert(OnEngines(engines.tracker()?)).0),
            }
        };
        engines.queue(&tracker, sample, job);
        Ok(())
    }

    /// Tracks the batch's images on the engines. `None` until a batch in this memory has had one.
    pub(super) fn engines_mut(&mut self) -> Option<&Arc<Tracker>> {
        let engines = self.engines.get_mut().unwrap_or_else(PoisonError::into_inner);
        engines.as_ref().map(|OnEngines(tracker)| tracker)
    }

    /// The state of the crate's own decoder for this batch.
    pub(super) fn decoding_mut(&mut self) -> &mut Option<Decoding> {
        self.jpeg.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn samples_mut(&mut self) -> &mut Vec<Option<Prepared>> {
        self.prepared.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
