//! Runs the pipelines of several devices over whole epochs and measures them together.

use super::run::{Digest, StageSeconds};
use crate::error::{Error, Result};
use crate::pipeline::{BadSample, Epoch, Pipeline, PipelineGroup, Stats};
use crate::threads;
use serde::Serialize;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

/// What a run on several devices did and how fast.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct GroupReport {
    /// Samples delivered to all devices, padding not counted.
    pub images: u64,
    /// Epochs run.
    pub epochs: u64,
    /// From the first request to the last batch.
    pub seconds: f64,
    /// Images per second, of all devices together.
    pub images_per_s: f64,
    /// From the start (of the command, where the caller says so) to the first batch of any device; `None` if there was none.
    pub first_batch_s: Option<f64>,
    /// Worker threads, which the devices share.
    pub threads: usize,
    /// Where the time went, of all devices.
    pub stages: StageSeconds,
    /// What each device had.
    pub devices: Vec<DeviceReport>,
}

/// What one of several devices had.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct DeviceReport {
    /// The device, in words.
    pub device: String,
    /// Samples delivered to it, padding not counted.
    pub images: u64,
    /// Batches delivered to it.
    pub batches: u64,
    /// Its samples that could not be used.
    pub bad_count: u64,
    /// The first 1,000 of them of each epoch.
    pub bad: Vec<BadSample>,
    /// [`Digest`] of what was delivered to it, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Runs `epochs` of a group to their ends, each device's by a thread of its own. `started` is when
/// [`GroupReport::first_batch_s`] begins to count; `progress` hears how many images each batch brought, from all threads.
///
/// # Errors
/// The first error that the epoch of a device ends with, once the others have come to their ends.
///
/// ```
/// use std::time::Instant;
/// use warpfeed::experiment::run_group::run_group;
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let builder = Pipeline::builder(EncodedImages::new((0..5).map(|label| (jpeg.clone(), label))));
/// let group = builder.center_crop(8).build_group([Device::Cpu, Device::Cpu])?;
/// let report = run_group(&group, 0..2, true, Instant::now(), &|_images| {})?;
/// assert_eq!((report.images, report.devices[0].images, report.devices[1].images), (10, 6, 4));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn run_group(
    group: &PipelineGroup,
    epochs: Range<u64>,
    digest: bool,
    started: Instant,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<GroupReport> {
    let begin = Instant::now();
    let one = || Taken { hash: digest.then(Digest::default), ..Taken::default() };
    let mut all: Vec<Taken> = group.pipelines().iter().map(|_| one()).collect();
    for number in epochs.clone() {
        thread::scope(|scope| {
            let devices = group.epochs(number).into_iter().zip(&mut all).zip(0..);
            let take = |((epoch, taken), i): ((Epoch, _), usize)| {
                let taken: &mut Taken = taken;
                threads::spawn_scoped(scope, format!("device-{i}"), move || taken.take(epoch, started, progress))
            };
            let threads: Vec<_> = devices.map(take).collect();
            let ends =
                threads.into_iter().map(|thread| thread?.join().unwrap_or_else(|panic| Err(Error::panic(&*panic))));
            // Not before all have ended.
            ends.collect::<Vec<Result<()>>>().into_iter().collect::<Result<()>>()
        })?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let mut stats = Stats::default();
    all.iter().for_each(|taken| stats += taken.stats);
    let first = all.iter().filter_map(|taken| taken.first).min();
    let device = |(pipeline, taken): (&Pipeline, Taken)| DeviceReport {
        device: pipeline.device_name(),
        images: taken.stats.images,
        batches: taken.stats.batches,
        bad_count: taken.stats.bad,
        bad: taken.bad,
        digest: taken.hash.map(Digest::finish),
    };
    Ok(GroupReport {
        images: stats.images,
        epochs: epochs.end.saturating_sub(epochs.start),
        seconds,
        images_per_s: stats.images as f64 / seconds.max(f64::MIN_POSITIVE),
        first_batch_s: first.map(|time| time.as_secs_f64()),
        threads: group.pipelines()[0].threads(),
        stages: stats.into(),
        devices: group.pipelines().iter().zip(all).map(device).collect(),
    })
}

/// What a device was given so far.
#[derive(Default)]
struct Taken {
    stats: Stats,
    bad: Vec<BadSample>,
    hash: Option<Digest>,
    /// When its first batch was complete.
    first: Option<Duration>,
}

impl Taken {
    /// Takes an epoch to its end.
    fn take(&mut self, mut epoch: Epoch, started: Instant, progress: &(dyn Fn(u64) + Sync)) -> Result<()> {
        let mut last = None;
        for batch in epoch.by_ref() {
            let batch = batch?;
            if self.first.is_none() {
                batch.images().synchronize()?;
                self.first = Some(started.elapsed());
            }
            if let Some(hash) = &mut self.hash {
                hash.add(&batch)?;
            }
            progress((batch.len() - batch.padding()) as u64);
            last = Some(batch);
        }
        self.stats += epoch.stats();
        self.bad.append(&mut epoch.bad());
        last.map_or(Ok(()), |batch| batch.images().synchronize())
    }
}
