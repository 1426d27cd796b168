//! Statistics of an epoch: counts and times, measured and not sampled.

use crate::backend::{Decoded, WorkStats, counts};
use crate::fields::DroppedObjects;
use crate::trace::ThreadTimes;
use serde::Serialize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

counts! {
    /// Counts and times of an epoch so far. Times of several threads are summed up.
    Stats {
        /// Samples delivered, without padding.
        images: u64 = sum,
        /// Batches delivered.
        batches: u64 = sum,
        /// Samples that could not be used.
        bad: u64 = sum,
        /// Encoded bytes read.
        read_bytes: u64 = sum,
        /// Time of reading encoded bytes from the source.
        read: Duration = sum,
        /// Time of decoding, header included.
        decode: Duration = sum,
        /// Time of drawing recipes and running them.
        augment: Duration = sum,
        /// Time of mixing batches on the CPU ([`PipelineBuilder::mix`](crate::PipelineBuilder::mix)). Mixing on a GPU
        /// is not included.
        mix: Duration = sum,
        /// Images by decoder.
        #[serde(flatten)]
        decoded: Decoded = sum,
        /// Samples that were smaller than a crop, so that its fill shows next to the image
        /// ([`RandomCrop::pad_if_needed`](crate::ops::RandomCrop::pad_if_needed)).
        smaller_than_crop: u64 = sum,
        /// Images read with more than 8 bits a sample. Only the high 8 bits were kept.
        sixteen_bits: u64 = sum,
        /// Images read with an alpha channel, which was dropped.
        alpha: u64 = sum,
        /// Objects in the images of samples with fields ([`PipelineBuilder::fields`](crate::PipelineBuilder::fields)),
        /// after all operations.
        objects: u64 = sum,
        /// Objects that operations dropped from these images, by rule.
        dropped_objects: DroppedObjects = sum,
        /// Images that came decoded from the cache.
        cached: u64 = sum,
        /// Sum of the distances, in positions, that the samples of a stream moved from their places in it.
        displacement_sum: u64 = sum,
        /// The largest of these distances.
        displacement_max: u64 = most,
        /// Time that the consumer waited for a batch.
        consumer_wait: Duration = sum,
        /// Time that worker threads waited for the consumer to take a batch.
        worker_wait: Duration = sum,
        /// Number of worker threads whose times are summed up.
        threads: u64 = most,
    }
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

/// What the worker threads have counted.
#[derive(Debug, Default)]
pub(super) struct Counters {
    stats: Mutex<Stats>,
    threads: Mutex<Vec<ThreadTimes>>,
}

impl Counters {
    /// Adds to the counts.
    pub(super) fn add(&self, add: impl FnOnce(&mut Stats)) {
        add(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds the work on an image.
    pub(super) fn add_work(&self, work: WorkStats) {
        self.add(|stats| {
            stats.decode += work.decode;
            stats.augment += work.augment;
            stats.decoded += work.decoded;
        });
    }

    /// Counts an image from the cache, which took `time` to find.
    pub(super) fn add_cached(&self, time: Duration) {
        self.add(|stats| {
            stats.cached += 1;
            stats.read += time;
        });
    }

    /// Begins a thread's times. Returns its number.
    pub(super) fn add_thread(&self) -> usize {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push(ThreadTimes::default());
        threads.len() - 1
    }

    /// Adds to the times of a thread.
    pub(super) fn add_times(&self, thread: usize, times: ThreadTimes) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)[thread] += times;
    }

    /// The times of each thread.
    pub(super) fn thread_times(&self) -> Vec<ThreadTimes> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The statistics that the workers count.
    pub(super) fn snapshot(&self) -> Stats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
