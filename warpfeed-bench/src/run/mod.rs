//! Runs a pipeline over whole epochs and measures it.

mod report;

use super::digest::Digest;
use super::run_state::{Earlier, Saved, StateFile};
pub use report::{DecoderCounts, EpochSpeed, RunReport, StageSeconds, TargetCounts, ThreadSeconds};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};
use warpfeed::{
    BadSample, Batch, BatchImages, Epoch, EpochState, Error, Pipeline, Result, RunLog, Stats, Tensor, ThreadTimes,
};

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
/// Its steps count the batches of all processes of the run, from 0. A batch is logged before the state counts it. So no
/// batch is missing in the log, and the batch after which a process ended may be there twice.
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
    let begin = Instant::now();
    let mut taken = Taken::new(digest);
    let _lock = file.map(|file| file.lock(pipeline.partition())).transpose()?;
    let found = file.map(|file| file.find(pipeline)).transpose()?.flatten();
    let mut writer = file.map(|file| file.writer(pipeline.partition(), found.as_ref())).transpose()?;
    let (earlier, other_ranks) = (found.as_ref().and_then(Saved::earlier), found.as_ref().and_then(Saved::other_ranks));
    found.as_ref().map_or(Ok(()), |found| taken.continue_digest(found))?;
    let resumed = found.map(|found| found.epoch);
    let mut delivered = earlier.unwrap_or_default();
    if delivered.images > 0 {
        progress(&Progress { images: delivered.images, before: Stats::default(), epoch: None });
    }
    for number in first_epoch(resumed.as_ref(), &epochs)?..epochs.end {
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
            let images = taken.take(&batch, started)?;
            if let Some(log) = &mut log {
                log.write(delivered.batches, &batch)?;
            }
            // The file may have any numbers.
            delivered.images = delivered.images.saturating_add(images);
            delivered.batches = delivered.batches.saturating_add(1);
            save(epoch.state(), delivered, &taken.hash)?;
            progress(&Progress { images, before: taken.stats, epoch: Some(&epoch) });
            taken.last = Some(batch);
        }
        // A last batch whose images were all skipped is not delivered, so its state is written here.
        save(epoch.state(), delivered, &taken.hash)?;
        taken.end(&epoch, epoch_begin);
    }
    taken.wait()?;
    writer.map_or(Ok(()), |writer| writer.finish())?;
    let mut report = taken.report(pipeline, &epochs, begin.elapsed());
    (report.earlier, report.other_ranks) = (earlier, other_ranks);
    report.log_chain = log.and_then(|log| log.chain());
    Ok(report)
}

/// The epoch that a run begins with: the resumed one, or the first.
fn first_epoch(resumed: Option<&EpochState>, epochs: &Range<u64>) -> Result<u64> {
    let Some(epoch) = resumed.map(EpochState::epoch) else { return Ok(epochs.start) };
    if epochs.contains(&epoch) {
        return Ok(epoch);
    }
    let expected = format!("in one of the epochs from {} to below {}", epochs.start, epochs.end);
    Err(Error::parameter("run", "state", expected, format!("epoch {epoch}")))
}

/// Everything that was delivered so far.
pub(super) struct Taken<I: BatchImages> {
    pub(super) stats: Stats,
    pub(super) bad: Vec<BadSample>,
    pub(super) hash: Option<Digest>,
    /// Time at which the first batch was complete.
    pub(super) first: Option<Duration>,
    targets: Option<TargetCounts>,
    each_epoch: Vec<EpochSpeed>,
    /// The times of each thread, in the order in which the threads began.
    threads: Vec<ThreadTimes>,
    /// The batch before the current one, kept until the device is done with it.
    pub(super) last: Option<Batch<I>>,
}

impl<I: BatchImages> Taken<I> {
    pub(super) fn new(digest: bool) -> Self {
        Self {
            stats: Stats::default(),
            bad: Vec::new(),
            hash: digest.then(Digest::default),
            first: None,
            targets: None,
            each_epoch: Vec::new(),
            threads: Vec::new(),
            last: None,
        }
    }

    /// Continues the digest of an earlier process.
    fn continue_digest(&mut self, found: &Saved) -> Result<()> {
        let Some(hash) = &mut self.hash else { return Ok(()) };
        let unfinished = found.digest.as_deref().and_then(Digest::from_unfinished);
        *hash = unfinished.ok_or_else(|| {
            let got = "one without it or with a damaged one: leave the digest out, or remove the file to begin anew";
            Error::parameter("run", "state", "of a run with a digest", got)
        })?;
        Ok(())
    }

    /// Takes a batch. Returns its images, without padding.
    pub(super) fn take(&mut self, batch: &Batch<I>, started: Instant) -> Result<u64> {
        if self.first.is_none() {
            synchronize(batch)?;
            self.first = Some(started.elapsed());
        }
        if let Some(targets) = batch.targets() {
            self.targets.get_or_insert_default().add(targets);
        }
        if let Some(hash) = &mut self.hash {
            hash.add(batch)?;
        }
        Ok((batch.len() - batch.padding()) as u64)
    }

    /// Takes the statistics of an epoch that has ended.
    pub(super) fn end(&mut self, epoch: &Epoch<I>, begin: Instant) {
        self.each_epoch.push(EpochSpeed::new(&epoch.stats(), begin.elapsed()));
        self.stats += epoch.stats();
        let times = epoch.thread_times();
        self.threads.resize(self.threads.len().max(times.len()), ThreadTimes::default());
        self.threads.iter_mut().zip(times).for_each(|(sum, times)| *sum += times);
        self.bad.append(&mut epoch.bad());
    }

    /// Waits until the device is done with the last batch.
    pub(super) fn wait(&mut self) -> Result<()> {
        self.last.take().map_or(Ok(()), |last| synchronize(&last))
    }

    fn report(self, pipeline: &Pipeline<I>, epochs: &Range<u64>, time: Duration) -> RunReport {
        let (stats, seconds) = (self.stats, time.as_secs_f64());
        let moved = stats.displacement_sum > 0;
        RunReport {
            images: stats.images,
            batches: stats.batches,
            epochs: epochs.end.saturating_sub(epochs.start),
            seconds,
            images_per_s: stats.images as f64 / seconds.max(f64::MIN_POSITIVE),
            first_batch_s: self.first.map(|time| time.as_secs_f64()),
            read_bytes: stats.read_bytes,
            threads: pipeline.threads(),
            prefetch: pipeline.prefetch(),
            device: pipeline.device_name(),
            strategy: pipeline.strategy(),
            peak_rss_bytes: peak_rss_bytes(),
            decoded: stats.into(),
            source: pipeline.source_summary(),
            smaller_than_crop: stats.smaller_than_crop,
            sixteen_bits: stats.sixteen_bits,
            alpha: stats.alpha,
            objects: pipeline.has_fields().then_some(stats.objects),
            dropped_objects: pipeline.has_fields().then_some(stats.dropped_objects),
            cached: stats.cached,
            cache: pipeline.cache_usage(),
            entry_points_folder: pipeline.entry_points_folder().map(Path::to_owned),
            targets: self.targets,
            stages: stats.into(),
            thread_seconds: self.threads.into_iter().map(ThreadSeconds).collect(),
            each_epoch: self.each_epoch,
            bad_count: stats.bad,
            bad: self.bad,
            displacement_mean: moved.then(|| stats.displacement_sum as f64 / stats.images.max(1) as f64),
            displacement_max: moved.then_some(stats.displacement_max),
            earlier: None,
            other_ranks: None,
            digest: self.hash.map(Digest::finish),
            log_chain: None,
        }
    }
}

/// Waits until the device is done with a batch.
fn synchronize<I: BatchImages>(batch: &Batch<I>) -> Result<()> {
    batch.tensors().flatten().try_for_each(Tensor::synchronize)
}

/// Peak resident memory of this process in bytes, as the kernel counts it.
#[must_use]
pub fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
