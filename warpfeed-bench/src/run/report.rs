//! The results of a run.

use crate::run_state::{Earlier, OtherRanks};
use serde::{Serialize, Serializer};
use std::path::PathBuf;
use std::time::Duration;
use warpfeed::fields::DroppedObjects;
use warpfeed::source::SourceSummary;
use warpfeed::{BadSample, CacheUsage, CpuFallbacks, Stats, Strategy, Targets, ThreadTimes};

/// Seconds spent in each stage, summed over all threads.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[non_exhaustive]
pub struct StageSeconds {
    /// Reading encoded bytes.
    pub read: f64,
    /// Decoding.
    pub decode: f64,
    /// Augmenting, normalization included.
    pub augment: f64,
    /// Mixing batches on the CPU.
    pub mix: f64,
    /// The consumer's waits for batches.
    pub consumer_wait: f64,
    /// The worker threads' waits for the consumer.
    pub worker_wait: f64,
}

impl From<Stats> for StageSeconds {
    fn from(stats: Stats) -> Self {
        Self {
            read: stats.read.as_secs_f64(),
            decode: stats.decode.as_secs_f64(),
            augment: stats.augment.as_secs_f64(),
            mix: stats.mix.as_secs_f64(),
            consumer_wait: stats.consumer_wait.as_secs_f64(),
            worker_wait: stats.worker_wait.as_secs_f64(),
        }
    }
}

/// What a worker thread spent its time on: see [`ThreadTimes`]. As JSON the seconds of each activity that took any.
#[derive(Debug, Clone, Copy)]
pub struct ThreadSeconds(pub ThreadTimes);

impl Serialize for ThreadSeconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let by_name = self.0.by_name().into_iter().filter(|(_, time)| !time.is_zero());
        serializer.collect_map(by_name.map(|(name, time)| (name, time.as_secs_f64())))
    }
}

/// Number of images by decoder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DecoderCounts {
    /// Images decoded by the CPU.
    pub cpu: u64,
    /// Images decoded by nvJPEG's hybrid decoder.
    pub hybrid: u64,
    /// Images decoded by a GPU's hardware decoder.
    pub hardware: u64,
    /// Images decoded by the crate's own decoder on a GPU.
    pub device: u64,
    /// Images among `cpu` for which rows and columns outside the needed part were skipped, using the restart markers
    /// that [`PackOptions::restarts`](warpfeed::pack::PackOptions::restarts) writes.
    pub restarts: u64,
    /// Images among `cpu` that were decoded from entry points
    /// ([`PipelineBuilder::entry_points`](warpfeed::PipelineBuilder::entry_points)).
    pub entry_points: u64,
    /// Images among `device` that were decoded from entry points.
    pub device_entry_points: u64,
    /// Images among `device` whose data the GPU had kept since an earlier epoch
    /// ([`PipelineBuilder::device_cache`](warpfeed::PipelineBuilder::device_cache)).
    pub device_cached: u64,
    /// Images among `device` that the GPU has read past the host
    /// ([`PipelineBuilder::gpu_direct`](warpfeed::PipelineBuilder::gpu_direct)).
    pub device_direct: u64,
    /// Images among `cpu` for which the GPU had not enough memory as a whole.
    pub for_memory: u64,
    /// Images that the crate's own decoder on a GPU left to the CPU, by reason.
    pub cpu_fallbacks: CpuFallbacks,
}

impl From<Stats> for DecoderCounts {
    fn from(stats: Stats) -> Self {
        Self {
            cpu: stats.decoded.cpu,
            hybrid: stats.decoded.hybrid,
            hardware: stats.decoded.hardware,
            device: stats.decoded.device,
            restarts: stats.decoded.restarts,
            entry_points: stats.decoded.entry_points,
            device_entry_points: stats.decoded.device_entry_points,
            device_cached: stats.decoded.device_cached,
            device_direct: stats.decoded.device_direct,
            for_memory: stats.decoded.for_memory,
            cpu_fallbacks: stats.decoded.cpu_fallbacks,
        }
    }
}

/// Targets that were delivered, padding included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TargetCounts {
    /// Number of images with a target.
    pub images: u64,
    /// Number of all numbers in them; 0 if targets are bytes.
    pub numbers: u64,
    /// Number of all bytes in them.
    pub bytes: u64,
}

impl TargetCounts {
    pub(super) fn add(&mut self, targets: &Targets) {
        let (images, numbers, bytes) = match targets {
            Targets::Numbers(targets) => {
                let [images, len] = targets.shape();
                (images, images * len, 4 * images * len)
            }
            Targets::Bytes(targets) => (targets.offsets().len() - 1, 0, targets.values().len()),
        };
        self.images += images as u64;
        self.numbers += numbers as u64;
        self.bytes += bytes as u64;
    }
}

/// Results of a run, and its speed.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RunReport {
    /// Samples delivered, without padding.
    pub images: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Epochs run.
    pub epochs: u64,
    /// Seconds from the first request to the last batch.
    pub seconds: f64,
    /// Images per second.
    pub images_per_s: f64,
    /// Seconds from `started` to the first batch; `None` if there was none. The command starts the clock with the
    /// process.
    pub first_batch_s: Option<f64>,
    /// Encoded bytes read.
    pub read_bytes: u64,
    /// Number of worker threads.
    pub threads: usize,
    /// Number of batches being filled or ready ahead of the consumer.
    pub prefetch: usize,
    /// Name of the device.
    pub device: String,
    /// Strategy by which recipes were run.
    pub strategy: Strategy,
    /// Peak resident memory of the process in bytes; `None` if the system does not say.
    pub peak_rss_bytes: Option<u64>,
    /// Number of images by decoder.
    pub decoded: DecoderCounts,
    /// What the source has, and what it skipped.
    pub source: SourceSummary,
    /// Images that were smaller than a crop, so that its fill shows around them.
    pub smaller_than_crop: u64,
    /// Images read with more than 8 bits a sample. Only the high 8 bits were kept.
    pub sixteen_bits: u64,
    /// Images read with an alpha channel, which was dropped.
    pub alpha: u64,
    /// Objects delivered with the images, padding excluded; `None` without fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Objects that operations dropped, by rule; `None` without fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_objects: Option<DroppedObjects>,
    /// Images that came decoded from the cache.
    pub cached: u64,
    /// Contents of the image cache at the end; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheUsage>,
    /// Folder in which entry points are kept; `None` if they are in memory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_points_folder: Option<PathBuf>,
    /// Targets delivered; `None` if none were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub targets: Option<TargetCounts>,
    /// Time in each stage.
    pub stages: StageSeconds,
    /// Seconds of each worker thread by activity, without the activities inside it. Threads of several epochs are added
    /// up in the order in which they began.
    pub thread_seconds: Vec<ThreadSeconds>,
    /// Speed of each epoch. Later epochs may be faster, because earlier ones have filled caches.
    pub each_epoch: Vec<EpochSpeed>,
    /// Number of samples that could not be used.
    pub bad_count: u64,
    /// The first 1,000 samples of each epoch that could not be used.
    pub bad: Vec<BadSample>,
    /// Mean distance that samples moved from their places in a stream; `None` if none moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub displacement_mean: Option<f64>,
    /// The largest of these distances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub displacement_max: Option<u64>,
    /// Samples and batches that earlier processes of the same run delivered. Everything else in this report, except the
    /// digest, belongs to this process alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Earlier>,
    /// Samples and batches that had been delivered when the number of ranks changed last; `None` if it has not changed.
    /// They are not in [`earlier`](Self::earlier), and no part of the digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_ranks: Option<OtherRanks>,
    /// [`Digest`](crate::digest::Digest) of everything delivered, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The hash of the log's last line, if the log has a chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_chain: Option<String>,
}

/// Speed of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EpochSpeed {
    /// Samples delivered, without padding.
    pub images: u64,
    /// Seconds from the request for its first batch to its last batch.
    pub seconds: f64,
    /// Images per second.
    pub images_per_s: f64,
    /// Seconds spent decoding, summed over all threads.
    pub decode_s: f64,
}

impl EpochSpeed {
    pub(super) fn new(stats: &Stats, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        let images_per_s = stats.images as f64 / seconds.max(f64::MIN_POSITIVE);
        Self { images: stats.images, seconds, images_per_s, decode_s: stats.decode.as_secs_f64() }
    }
}
