//! Runs a pipeline over whole epochs and measures it.

use crate::device::Device;
use crate::error::Result;
use crate::pipeline::{BadSample, Batch, Pipeline, Stats};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::ops::Range;
use std::time::{Duration, Instant};

/// SHA-256 over samples in delivery order: each sample's label (`u32`, little endian) and output bytes, padding left
/// out. So it is the same for any number of threads, any prefetch, any batch size, and any form in which the same
/// samples are stored.
#[derive(Debug, Clone, Default)]
pub struct Digest {
    hash: Sha256,
}

impl Digest {
    /// Takes up the samples of a batch.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the batch is on a device.
    pub fn add(&mut self, batch: &Batch) -> Result<()> {
        let copy;
        let images = match batch.images().device() {
            Device::Cpu => batch.images(),
            _ => {
                copy = batch.images().to_host()?;
                &copy
            }
        };
        for (i, label) in batch.labels()[..batch.len() - batch.padding()].iter().enumerate() {
            self.hash.update(label.to_le_bytes());
            self.hash.update(images.picture_bytes(i)?);
        }
        Ok(())
    }

    /// The digest as 64 hexadecimal digits.
    #[must_use]
    pub fn finish(self) -> String {
        self.hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// Seconds spent in each stage. Those of several threads add up.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[non_exhaustive]
pub struct StageSeconds {
    /// Reading encoded bytes.
    pub read: f64,
    /// Decoding.
    pub decode: f64,
    /// Augmenting, normalisation included.
    pub augment: f64,
    /// The consumer waiting for batches.
    pub consumer_wait: f64,
    /// Worker threads waiting for the consumer.
    pub worker_wait: f64,
}

impl From<Stats> for StageSeconds {
    fn from(stats: Stats) -> Self {
        Self {
            read: stats.read.as_secs_f64(),
            decode: stats.decode.as_secs_f64(),
            augment: stats.augment.as_secs_f64(),
            consumer_wait: stats.consumer_wait.as_secs_f64(),
            worker_wait: stats.worker_wait.as_secs_f64(),
        }
    }
}

/// How many pictures each decoder decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DecodedPictures {
    /// The CPU.
    pub cpu: u64,
    /// nvJPEG, half on the CPU.
    pub hybrid: u64,
    /// A GPU's JPEG engines.
    pub hardware: u64,
}

/// What a run did and how fast.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RunReport {
    /// Samples delivered, padding not counted.
    pub pictures: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Epochs run.
    pub epochs: u64,
    /// From the first request to the last batch.
    pub seconds: f64,
    /// Pictures over seconds.
    pub pictures_per_s: f64,
    /// From the start (of the command, where the caller says so) to the first batch; `None` if there was none.
    pub first_batch_s: Option<f64>,
    /// Encoded bytes read.
    pub read_bytes: u64,
    /// Worker threads.
    pub threads: usize,
    /// Batches being filled or ready ahead of the consumer.
    pub prefetch: usize,
    /// The device, in words.
    pub device: String,
    /// How recipes were run.
    pub strategy: crate::Strategy,
    /// The largest amount of memory that the process has had resident, in bytes; `None` where the system does not say.
    pub peak_rss_bytes: Option<u64>,
    /// Pictures that each decoder decoded.
    pub decoded: DecodedPictures,
    /// Where the time went.
    pub stages: StageSeconds,
    /// Number of samples that could not be used.
    pub bad_count: u64,
    /// The first 1,000 of them of each epoch.
    pub bad: Vec<BadSample>,
    /// [`Digest`] of everything delivered, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Runs `epochs` of a pipeline to their ends. `started` is when [`RunReport::first_batch_s`] begins to count;
/// `progress` hears how many pictures each batch brought.
///
/// # Errors
/// The first error that an epoch ends with.
///
/// ```
/// use std::time::Instant;
/// use warpfeed::*;
///
/// let jpeg = encode_jpeg(&Picture::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let pipeline = Pipeline::builder(EncodedPictures::new((0..5).map(|label| (jpeg.clone(), label))));
/// let pipeline = pipeline.center_crop(8).build()?;
/// let report = experiment::run::run(&pipeline, 0..2, true, Instant::now(), &mut |_pictures| {})?;
/// assert_eq!((report.pictures, report.batches, report.bad_count), (10, 2, 0));
/// assert_eq!(report.digest.unwrap().len(), 64);
/// # Ok::<(), Error>(())
/// ```
pub fn run(
    pipeline: &Pipeline,
    epochs: Range<u64>,
    digest: bool,
    started: Instant,
    progress: &mut dyn FnMut(u64),
) -> Result<RunReport> {
    let mut stats = Stats::default();
    let (mut bad, mut first_batch) = (Vec::new(), None);
    let mut hash = digest.then(Digest::default);
    // The one before the current, until the device is done with the last.
    let mut last: Option<Batch> = None;
    let begin = Instant::now();
    let count = epochs.end.saturating_sub(epochs.start);
    for number in epochs {
        let mut epoch = pipeline.epoch(number);
        for batch in epoch.by_ref() {
            let batch = batch?;
            if first_batch.is_none() {
                batch.images().synchronize()?;
                first_batch = Some(started.elapsed());
            }
            if let Some(hash) = &mut hash {
                hash.add(&batch)?;
            }
            progress((batch.len() - batch.padding()) as u64);
            last = Some(batch);
        }
        stats += epoch.stats();
        bad.append(&mut epoch.bad());
    }
    if let Some(last) = last {
        last.images().synchronize()?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok(RunReport {
        pictures: stats.pictures,
        batches: stats.batches,
        epochs: count,
        seconds,
        pictures_per_s: stats.pictures as f64 / seconds.max(f64::MIN_POSITIVE),
        first_batch_s: first_batch.map(|time: Duration| time.as_secs_f64()),
        read_bytes: stats.read_bytes,
        threads: pipeline.threads(),
        prefetch: pipeline.prefetch(),
        device: pipeline.device_name(),
        strategy: pipeline.strategy(),
        peak_rss_bytes: peak_rss_bytes(),
        decoded: DecodedPictures {
            cpu: stats.decoded_cpu,
            hybrid: stats.decoded_hybrid,
            hardware: stats.decoded_hardware,
        },
        stages: stats.into(),
        bad_count: stats.bad,
        bad,
        digest: hash.map(Digest::finish),
    })
}

/// The largest amount of memory that this process has had resident, in bytes, as the kernel counts it.
#[must_use]
pub fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
