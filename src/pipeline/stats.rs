//! Statistics of an epoch: counts and times, measured and not sampled.

use crate::backend::CpuFallbacks;
use crate::backend::Decoded;
use crate::fields::DroppedObjects;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts and times of an epoch so far. Times of several threads are summed up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Samples delivered, without padding.
    pub images: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Samples that could not be used.
    pub bad: u64,
    /// Encoded bytes read.
    pub read_bytes: u64,
    /// Time of reading encoded bytes from the source.
    pub read: Duration,
    /// Time of decoding, header included.
    pub decode: Duration,
    /// Time of drawing recipes and running them.
    pub augment: Duration,
    /// Time of mixing batches on the CPU ([`PipelineBuilder::mix`](crate::PipelineBuilder::mix)). Mixing on a GPU is
    /// not included.
    pub mix: Duration,
    /// Images that the CPU decoded.
    pub decoded_cpu: u64,
    /// Images that nvJPEG's hybrid decoder decoded.
    pub decoded_hybrid: u64,
    /// Images that the device's hardware decoder decoded.
    pub decoded_hardware: u64,
    /// Images that the crate's own decoder on the device decoded.
    pub decoded_device: u64,
    /// Images that the CPU decoded because the device had not enough memory for whole images, which its decoders need.
    /// They are included in [`decoded_cpu`](Self::decoded_cpu).
    pub decoded_for_memory: u64,
    /// Images for which the CPU skipped rows and columns outside the needed part, using the restart markers that
    /// [`PackOptions::restarts`](crate::pack::PackOptions::restarts) writes. They are included in
    /// [`decoded_cpu`](Self::decoded_cpu).
    pub decoded_restarts: u64,
    /// Images that the CPU decoded from entry points
    /// ([`PipelineBuilder::entry_points`](crate::PipelineBuilder::entry_points)). They are included in
    /// [`decoded_cpu`](Self::decoded_cpu).
    pub decoded_entry_points: u64,
    /// Images that the crate's own decoder on the device decoded from entry points. They are included in
    /// [`decoded_device`](Self::decoded_device).
    pub decoded_device_entry_points: u64,
    /// Images that the crate's own decoder on the device left to the CPU, by reason. They are included in
    /// [`decoded_cpu`](Self::decoded_cpu), or bad.
    pub cpu_fallbacks: CpuFallbacks,
    /// Samples that were smaller than a crop, so that its fill shows next to the image
    /// ([`RandomCrop::pad_if_needed`](crate::ops::RandomCrop::pad_if_needed)).
    pub smaller_than_crop: u64,
    /// Objects in the images of samples with fields ([`PipelineBuilder::fields`](crate::PipelineBuilder::fields)),
    /// after all operations.
    pub objects: u64,
    /// Objects that operations dropped from these images, by rule.
    pub dropped_objects: DroppedObjects,
    /// Images that came decoded from the cache.
    pub cached: u64,
    /// Sum of the distances, in positions, that the samples of a stream moved from their places in it.
    pub displacement_sum: u64,
    /// The largest of these distances.
    pub displacement_max: u64,
    /// Time that the consumer waited for a batch.
    pub consumer_wait: Duration,
    /// Time that worker threads waited for the consumer to take a batch.
    pub worker_wait: Duration,
    /// Number of worker threads whose times are summed up.
    pub threads: u64,
}

/// The side of a pipeline that makes the other one wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// Batches come too slowly: reading, decoding and augmenting take longer than the training step. More threads, a
    /// cache or a GPU's decoder help.
    Loader,
    /// The training step takes longer, and worker threads wait for it. Loading costs no time.
    Step,
}

impl Stats {
    /// The loader if the consumer has waited longer than a worker thread on average, else the step.
    ///
    /// ```
    /// # use warpfeed::prelude::*;
    /// # use warpfeed::{Bottleneck, image::{Image, JpegOptions, encode_jpeg}};
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// # let source = EncodedImages::new((0..10).map(|label| (jpeg.clone(), label)));
    /// // Without threads the consumer makes each batch itself, and waits for all of it.
    /// let mut epoch = Pipeline::builder(source).threads(0).transform(CenterCrop::new(8)).build()?.epoch(0);
    /// assert_eq!(epoch.by_ref().count(), 1);
    /// assert_eq!(epoch.stats().bottleneck(), Bottleneck::Loader);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn bottleneck(&self) -> Bottleneck {
        let worker_wait = self.worker_wait.as_secs_f64() / self.threads.max(1) as f64;
        if self.consumer_wait.as_secs_f64() > worker_wait { Bottleneck::Loader } else { Bottleneck::Step }
    }
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.images += other.images;
        self.batches += other.batches;
        self.bad += other.bad;
        self.read_bytes += other.read_bytes;
        self.read += other.read;
        self.decode += other.decode;
        self.augment += other.augment;
        self.mix += other.mix;
        self.decoded_cpu += other.decoded_cpu;
        self.decoded_hybrid += other.decoded_hybrid;
        self.decoded_hardware += other.decoded_hardware;
        self.decoded_device += other.decoded_device;
        self.decoded_for_memory += other.decoded_for_memory;
        self.decoded_restarts += other.decoded_restarts;
        self.decoded_entry_points += other.decoded_entry_points;
        self.decoded_device_entry_points += other.decoded_device_entry_points;
        self.cpu_fallbacks += other.cpu_fallbacks;
        self.smaller_than_crop += other.smaller_than_crop;
        self.objects += other.objects;
        self.dropped_objects += other.dropped_objects;
        self.cached += other.cached;
        self.displacement_sum += other.displacement_sum;
        self.displacement_max = self.displacement_max.max(other.displacement_max);
        self.consumer_wait += other.consumer_wait;
        self.worker_wait += other.worker_wait;
        self.threads = self.threads.max(other.threads);
    }
}

/// Counters that the worker threads increase.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) read_bytes: AtomicU64,
    read: AtomicU64,
    decode: AtomicU64,
    augment: AtomicU64,
    mix: AtomicU64,
    decoded: Mutex<Decoded>,
    smaller_than_crop: AtomicU64,
    objects: AtomicU64,
    dropped_objects: Mutex<DroppedObjects>,
    cached: AtomicU64,
    worker_wait: AtomicU64,
}

impl Counters {
    pub(super) fn add_read(&self, bytes: usize, time: Duration) {
        self.read_bytes.fetch_add(bytes as u64, Relaxed);
        add(&self.read, time);
    }

    pub(super) fn add_decode(&self, time: Duration) {
        add(&self.decode, time);
    }

    pub(super) fn add_augment(&self, time: Duration) {
        add(&self.augment, time);
    }

    pub(super) fn add_mix(&self, time: Duration) {
        if !time.is_zero() {
            add(&self.mix, time);
        }
    }

    pub(super) fn add_decoded(&self, decoded: Decoded) {
        *self.decoded() += decoded;
    }

    fn decoded(&self) -> MutexGuard<'_, Decoded> {
        self.decoded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a sample that was smaller than a crop.
    pub(super) fn add_padded(&self) {
        self.smaller_than_crop.fetch_add(1, Relaxed);
    }

    /// Counts the objects of a sample, and those that operations dropped.
    pub(super) fn add_objects(&self, objects: usize, dropped: DroppedObjects) {
        self.objects.fetch_add(objects as u64, Relaxed);
        if dropped.total() > 0 {
            *self.dropped_objects() += dropped;
        }
    }

    fn dropped_objects(&self) -> MutexGuard<'_, DroppedObjects> {
        self.dropped_objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an image from the cache, which took `time` to find.
    pub(super) fn add_cached(&self, time: Duration) {
        self.cached.fetch_add(1, Relaxed);
        add(&self.read, time);
    }

    pub(super) fn add_worker_wait(&self, time: Duration) {
        add(&self.worker_wait, time);
    }

    /// The statistics that the workers count.
    pub(super) fn snapshot(&self) -> Stats {
        let time = |counter: &AtomicU64| Duration::from_nanos(counter.load(Relaxed));
        let decoded = *self.decoded();
        Stats {
            read_bytes: self.read_bytes.load(Relaxed),
            read: time(&self.read),
            decode: time(&self.decode),
            augment: time(&self.augment),
            mix: time(&self.mix),
            decoded_cpu: decoded.cpu,
            decoded_hybrid: decoded.hybrid,
            decoded_hardware: decoded.hardware,
            decoded_device: decoded.device,
            decoded_for_memory: decoded.for_memory,
            decoded_restarts: decoded.restarts,
            decoded_entry_points: decoded.entry_points,
            decoded_device_entry_points: decoded.device_entry_points,
            cpu_fallbacks: decoded.left,
            smaller_than_crop: self.smaller_than_crop.load(Relaxed),
            objects: self.objects.load(Relaxed),
            dropped_objects: *self.dropped_objects(),
            cached: self.cached.load(Relaxed),
            worker_wait: time(&self.worker_wait),
            ..Stats::default()
        }
    }
}

fn add(counter: &AtomicU64, time: Duration) {
    counter.fetch_add(time.as_nanos() as u64, Relaxed);
}
