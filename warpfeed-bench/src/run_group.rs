//! Runs the pipelines of several devices together.

use super::digest::Digest;
use super::run::{StageSeconds, Taken};
use serde::Serialize;
use std::ops::Range;
use std::thread;
use std::time::Instant;
use warpfeed::fields::DroppedObjects;
use warpfeed::internal::threads;
use warpfeed::{BadSample, Epoch, Error, Pipeline, PipelineGroup, Result, Stats, Tensor};

/// Results of a run on several devices, and its speed.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct GroupReport {
    /// Samples delivered to all devices, without padding.
    pub images: u64,
    /// Epochs run.
    pub epochs: u64,
    /// Seconds from the first request to the last batch.
    pub seconds: f64,
    /// Images per second of all devices together.
    pub images_per_s: f64,
    /// Seconds from `started` to the first batch of any device; `None` if there was none. The command starts the clock
    /// with the process.
    pub first_batch_s: Option<f64>,
    /// Number of worker threads, which the devices share.
    pub threads: usize,
    /// Time in each stage, for all devices.
    pub stages: StageSeconds,
    /// Results of each device.
    pub devices: Vec<DeviceReport>,
}

/// Results of one of several devices.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct DeviceReport {
    /// Name of the device.
    pub device: String,
    /// Samples delivered to the device, without padding.
    pub images: u64,
    /// Batches delivered to the device.
    pub batches: u64,
    /// Objects delivered with the images; `None` without fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Objects that operations dropped, by rule; `None` without fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_objects: Option<DroppedObjects>,
    /// Number of its samples that could not be used.
    pub bad_count: u64,
    /// The first 1,000 of these samples in each epoch.
    pub bad: Vec<BadSample>,
    /// [`Digest`] of the samples delivered to the device, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Runs `epochs` of a group to their ends, with one consumer thread per device. `started`: the time from which
/// [`GroupReport::first_batch_s`] counts. `progress` gets the number of images of each batch, from all threads.
///
/// # Errors
/// The first error of a device's epoch, after the other devices have finished theirs.
///
/// ```
/// use std::time::Instant;
/// use warpfeed_bench::run_group::run_group;
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let builder = Pipeline::builder(EncodedImages::new((0..5).map(|label| (jpeg.clone(), label))));
/// let group = builder.transform(CenterCrop::new(8)).build_group([Device::Cpu, Device::Cpu])?;
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
    let mut all: Vec<Taken<Tensor>> = group.pipelines().iter().map(|_| Taken::new(digest)).collect();
    for number in epochs.clone() {
        thread::scope(|scope| {
            let devices = group.epochs(number).into_iter().zip(&mut all).zip(0..);
            let start = |((epoch, taken), i): ((Epoch, _), usize)| {
                let taken: &mut Taken<Tensor> = taken;
                threads::spawn_scoped(scope, format!("device-{i}"), move || take(taken, epoch, started, progress))
            };
            let threads: Vec<_> = devices.map(start).collect();
            let ends =
                threads.into_iter().map(|thread| thread?.join().unwrap_or_else(|panic| Err(Error::panic(&*panic))));
            // All threads are joined before an error is returned.
            ends.collect::<Vec<Result<()>>>().into_iter().collect::<Result<()>>()
        })?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let mut stats = Stats::default();
    all.iter().for_each(|taken| stats += taken.stats);
    let first = all.iter().filter_map(|taken| taken.first).min();
    let device = |(pipeline, taken): (&Pipeline, Taken<Tensor>)| DeviceReport {
        device: pipeline.device_name(),
        images: taken.stats.images,
        batches: taken.stats.batches,
        objects: pipeline.has_fields().then_some(taken.stats.objects),
        dropped_objects: pipeline.has_fields().then_some(taken.stats.dropped_objects),
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

/// Takes all batches of an epoch.
fn take(taken: &mut Taken<Tensor>, mut epoch: Epoch, started: Instant, progress: &(dyn Fn(u64) + Sync)) -> Result<()> {
    let begin = Instant::now();
    for batch in epoch.by_ref() {
        let batch = batch?;
        progress(taken.take(&batch, started)?);
        taken.last = Some(batch);
    }
    taken.end(&epoch, begin);
    taken.wait()
}
