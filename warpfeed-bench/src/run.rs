//! Runs a pipeline over whole epochs and measures it.

use super::digest::Digest;
use super::run_state::{Earlier, OtherRanks, Saved, StateFile};
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use warpfeed::fields::DroppedObjects;
use warpfeed::source::SourceSummary;
use warpfeed::{
    BadSample, Batch, BatchImages, CacheUsage, CpuFallbacks, Epoch, EpochState, Error, Pipeline, Result, RunLog, Stats,
    Strategy, Targets, Tensor,
};

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
    /// Images among `cpu` for which the GPU had not enough memory as a whole.
    pub for_memory: u64,
    /// Images that the crate's own decoder on a GPU left to the CPU, by reason.
    pub cpu_fallbacks: CpuFallbacks,
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
    fn add(&mut self, targets: &Targets) {
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
    /// What the source has, and what it passed over.
    pub source: SourceSummary,
    /// Images that were smaller than a crop, so that its fill shows beside them.
    pub smaller_than_crop: u64,
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
    /// [`Digest`] of everything delivered, if asked for.
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
    fn new(stats: &Stats, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        let images_per_s = stats.images as f64 / seconds.max(f64::MIN_POSITIVE);
        Self { images: stats.images, seconds, images_per_s, decode_s: stats.decode.as_secs_f64() }
    }
}

/// Progress of a run after a batch.
#[derive(Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// Images in this batch, without padding. In the first call: images that earlier processes of the run delivered.
    pub images: u64,
    /// Statistics of the epochs before this one.
    before: Stats,
    /// `None` before the first batch of this process.
    epoch: Option<&'a dyn Counted>,
}

/// An epoch, whatever the form of its images.
trait Counted: fmt::Debug {
    fn stats(&self) -> Stats;
}

impl<I> Counted for Epoch<I> {
    fn stats(&self) -> Stats {
        Self::stats(self)
    }
}

impl Progress<'_> {
    /// Counts and times of this process so far. This reads every counter, so do not call it for every batch.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.before;
        if let Some(epoch) = self.epoch {
            stats += epoch.stats();
        }
        stats
    }
}

/// Runs `epochs` of a pipeline to their ends. `started`: the time from which [`RunReport::first_batch_s`] counts.
/// `progress` is called for each batch.
///
/// # Errors
/// The first error that an epoch ends with.
///
/// ```
/// use std::time::Instant;
/// use warpfeed_bench::run::run;
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let pipeline = Pipeline::builder(EncodedImages::new((0..5).map(|label| (jpeg.clone(), label))));
/// let pipeline = pipeline.transform(CenterCrop::new(8)).build()?;
/// let report = run(&pipeline, 0..2, true, Instant::now(), &mut |_progress| {})?;
/// assert_eq!((report.images, report.batches, report.bad_count), (10, 2, 0));
/// assert_eq!(report.digest.unwrap().len(), 64);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn run<I: BatchImages>(
    pipeline: &Pipeline<I>,
    epochs: Range<u64>,
    digest: bool,
    started: Instant,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<RunReport> {
    run_logged(pipeline, epochs, digest, (None, None), started, progress)
}

/// Like [`run`], but continues from the state in `file` if an earlier process was interrupted, even by a signal, and
/// keeps the file up to date. All processes together deliver the same samples as one uninterrupted run, with the same
/// digest. If a process ends after delivering a batch and before writing its state, the next one delivers that batch
/// again. A run of several ranks may be continued with another number of ranks ([`StateFile`]); a digest then covers
/// what this rank delivers since.
///
/// # Errors
/// The errors of [`run`]; [`Error::Parameter`], which names the differences, if the file belongs to another run;
/// [`Error::Io`] if it cannot be read or written. It is also [`Error::Parameter`], with the process, if another one
/// writes the file.
///
/// ```
/// use std::time::Instant;
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed_bench::run::{run, run_with_state};
/// use warpfeed_bench::run_state::StateFile;
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let pipeline = Pipeline::builder(EncodedImages::new((0..5).map(|label| (jpeg.clone(), label))));
/// let pipeline = pipeline.batch_size(2).transform(CenterCrop::new(8)).build()?;
/// let folder = tempfile::tempdir().unwrap();
/// let file = StateFile { path: folder.path().join("state.json"), settings: "crop of 8".into() };
///
/// let first = run_with_state(&pipeline, 0..1, true, &file, Instant::now(), &mut |_progress| {})?;
/// assert_eq!((first.images, first.earlier), (5, None));
/// // A second epoch more.
/// let second = run_with_state(&pipeline, 0..2, true, &file, Instant::now(), &mut |_progress| {})?;
/// assert_eq!((second.images, second.earlier.unwrap().images), (5, 5));
/// let undisturbed = run(&pipeline, 0..2, true, Instant::now(), &mut |_progress| {})?;
/// assert_eq!(second.digest, undisturbed.digest);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn run_with_state<I: BatchImages>(
    pipeline: &Pipeline<I>,
    epochs: Range<u64>,
    digest: bool,
    file: &StateFile,
    started: Instant,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<RunReport> {
    run_logged(pipeline, epochs, digest, (Some(file), None), started, progress)
}

/// Like [`run_with_state`] if there is a file for the state, else like [`run`], with a line in a log for each batch.
/// The steps are the batches of all processes of the run, from 0. A batch is logged before the state counts it, so none
/// is missing in the log, and the batch after which a process ended may be there twice.
///
/// # Errors
/// The errors of [`run_with_state`]; [`Error::Io`] if the log cannot be written.
pub fn run_logged<I: BatchImages>(
    pipeline: &Pipeline<I>,
    epochs: Range<u64>,
    digest: bool,
    (file, mut log): (Option<&StateFile>, Option<&mut RunLog>),
    started: Instant,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<RunReport> {
    let mut stats = Stats::default();
    let (mut bad, mut first_batch, mut each_epoch) = (Vec::new(), None, Vec::new());
    let mut targets: Option<TargetCounts> = None;
    let mut hash = digest.then(Digest::default);
    // The batch before the current one, kept until the device is done with it.
    let mut last: Option<Batch<I>> = None;
    let synchronize = |batch: &Batch<I>| batch.tensors().flatten().try_for_each(Tensor::synchronize);
    let begin = Instant::now();
    let _lock = file.map(|file| file.lock(pipeline.partition())).transpose()?;
    let found = file.map(|file| file.find(pipeline)).transpose()?.flatten();
    let mut writer = file.map(|file| file.writer(pipeline.partition(), found.as_ref())).transpose()?;
    let (earlier, other_ranks) = (found.as_ref().and_then(Saved::earlier), found.as_ref().and_then(Saved::other_ranks));
    if let (Some(hash), Some(found)) = (&mut hash, &found) {
        let unfinished = found.digest.as_deref().and_then(Digest::from_unfinished);
        *hash = unfinished.ok_or_else(|| {
            let got = "one without it or with a damaged one: leave the digest out, or remove the file to begin anew";
            Error::parameter("run", "state", "of a run with a digest", got)
        })?;
    }
    let resumed = found.map(|found| found.epoch);
    let mut delivered = earlier.unwrap_or_default();
    if delivered.images > 0 {
        progress(&Progress { images: delivered.images, before: Stats::default(), epoch: None });
    }
    let start = resumed.as_ref().map_or(epochs.start, EpochState::epoch);
    if resumed.is_some() && !epochs.contains(&start) {
        let expected = format!("in one of the epochs from {} to below {}", epochs.start, epochs.end);
        return Err(Error::parameter("run", "state", expected, format!("epoch {start}")));
    }
    for number in start..epochs.end {
        let epoch_begin = Instant::now();
        let mut epoch = match &resumed {
            Some(state) => pipeline.resume(&state.for_epoch(number))?,
            None => pipeline.epoch(number),
        };
        let mut save = |epoch: EpochState, delivered: Earlier, hash: &Option<Digest>| {
            let Some(writer) = &mut writer else { return Ok(()) };
            writer.write(epoch, delivered, hash.as_ref().map(Digest::unfinished))
        };
        while let Some(batch) = epoch.next() {
            let batch = batch?;
            if first_batch.is_none() {
                synchronize(&batch)?;
                first_batch = Some(started.elapsed());
            }
            if let Some(delivered) = batch.targets() {
                targets.get_or_insert_default().add(delivered);
            }
            if let Some(hash) = &mut hash {
                hash.add(&batch)?;
            }
            let images = (batch.len() - batch.padding()) as u64;
            if let Some(log) = &mut log {
                log.write(delivered.batches, &batch)?;
            }
            // The file may have any numbers.
            delivered.images = delivered.images.saturating_add(images);
            delivered.batches = delivered.batches.saturating_add(1);
            save(epoch.state(), delivered, &hash)?;
            progress(&Progress { images, before: stats, epoch: Some(&epoch) });
            last = Some(batch);
        }
        // A last batch whose images were all skipped is not delivered, so its state is written here.
        save(epoch.state(), delivered, &hash)?;
        each_epoch.push(EpochSpeed::new(&epoch.stats(), epoch_begin.elapsed()));
        stats += epoch.stats();
        bad.append(&mut epoch.bad());
    }
    if let Some(last) = last {
        synchronize(&last)?;
    }
    if let Some(writer) = writer {
        writer.finish()?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok(RunReport {
        images: stats.images,
        batches: stats.batches,
        epochs: epochs.end.saturating_sub(epochs.start),
        seconds,
        images_per_s: stats.images as f64 / seconds.max(f64::MIN_POSITIVE),
        first_batch_s: first_batch.map(|time: Duration| time.as_secs_f64()),
        read_bytes: stats.read_bytes,
        threads: pipeline.threads(),
        prefetch: pipeline.prefetch(),
        device: pipeline.device_name(),
        strategy: pipeline.strategy(),
        peak_rss_bytes: peak_rss_bytes(),
        decoded: DecoderCounts {
            cpu: stats.decoded_cpu,
            hybrid: stats.decoded_hybrid,
            hardware: stats.decoded_hardware,
            device: stats.decoded_device,
            restarts: stats.decoded_restarts,
            entry_points: stats.decoded_entry_points,
            device_entry_points: stats.decoded_device_entry_points,
            for_memory: stats.decoded_for_memory,
            cpu_fallbacks: stats.cpu_fallbacks,
        },
        source: pipeline.source_summary(),
        smaller_than_crop: stats.smaller_than_crop,
        objects: pipeline.has_fields().then_some(stats.objects),
        dropped_objects: pipeline.has_fields().then_some(stats.dropped_objects),
        cached: stats.cached,
        cache: pipeline.cache_usage(),
        entry_points_folder: pipeline.entry_points_folder().map(Path::to_owned),
        targets,
        stages: stats.into(),
        each_epoch,
        bad_count: stats.bad,
        bad,
        displacement_mean: (stats.displacement_sum > 0)
            .then(|| stats.displacement_sum as f64 / stats.images.max(1) as f64),
        displacement_max: (stats.displacement_sum > 0).then_some(stats.displacement_max),
        earlier,
        other_ranks,
        digest: hash.map(Digest::finish),
        log_chain: log.and_then(|log| log.chain()),
    })
}

/// Peak resident memory of this process in bytes, as the kernel counts it.
#[must_use]
pub fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
