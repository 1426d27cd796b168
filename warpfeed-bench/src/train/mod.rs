//! The training loop of all experiments, with its clock.

mod notes;
mod times;

use super::events::Event;
use super::step::TrainingStep;
use super::subject::Model;
pub(crate) use notes::{about_setup, measured_epochs, skipped};
use std::time::{Duration, Instant};
pub use times::{BatchTimes, EpochTimes, RunTimes, SteadyState};
pub(crate) use times::{LANES, NO_STEP_S};
use warpfeed::{Error, Pipeline, PipelineBuilder, Result, Stats};

/// Most batches of a run whose times are kept one by one. Sums include all batches.
const KEPT_BATCHES: usize = 100_000;

/// A running measurement: epochs of one or several pipelines through one training step.
pub struct TrainingRun<'a> {
    step: &'a mut dyn TrainingStep,
    on_event: &'a mut dyn FnMut(&Event) -> Result<()>,
    begin: Instant,
    epochs: Vec<EpochTimes>,
    batches: Vec<BatchTimes>,
    stats: Stats,
}

impl<'a> TrainingRun<'a> {
    /// Starts a run and its clock. `on_event` is called for every batch and epoch.
    #[must_use]
    pub fn start(step: &'a mut dyn TrainingStep, on_event: &'a mut dyn FnMut(&Event) -> Result<()>) -> Self {
        Self { step, on_event, begin: Instant::now(), epochs: Vec::new(), batches: Vec::new(), stats: Stats::default() }
    }

    /// Measures what `epochs` runs.
    pub(super) fn measure(
        step: &'a mut dyn TrainingStep,
        on_event: &'a mut dyn FnMut(&Event) -> Result<()>,
        epochs: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<RunTimes> {
        let mut run = Self::start(step, on_event);
        epochs(&mut run)?;
        Ok(run.finish())
    }

    /// Runs one epoch, to its end or until `deadline` has passed, but at least two batches.
    ///
    /// # Errors
    /// The errors of the pipeline, the step and `on_event`.
    pub fn epoch(&mut self, pipeline: &Pipeline, number: u64, deadline: Option<Instant>) -> Result<()> {
        self.step.begin_epoch(number)?;
        let begin = Instant::now();
        let start_s = (begin - self.begin).as_secs_f64();
        let mut times = EpochTimes { epoch: number, start_s, ..EpochTimes::default() };
        let (mut asked, mut cut, mut batches) = (begin, false, Vec::new());
        let mut epoch = pipeline.epoch(number);
        for batch in epoch.by_ref() {
            let batch = batch?;
            // While the device is still making the batch, the time counts as waiting, not as training.
            batch.images().synchronize()?;
            let there = Instant::now();
            let images = (batch.len() - batch.padding()) as u64;
            let result = self.step.train(batch)?;
            // Work that the device still does belongs to this batch's step. The pipeline continues meanwhile.
            self.step.finish()?;
            let trained = Instant::now();
            let (fetch_s, train_s) = ((there - asked).as_secs_f64(), (trained - there).as_secs_f64());
            let first = times.batches == 0;
            let start_s = (asked - self.begin).as_secs_f64();
            if first {
                times.setup_s = fetch_s;
                (self.on_event)(&Event::SetUp { epoch: number, start_s, seconds: fetch_s })?;
            } else {
                times.fetch_s += fetch_s;
            }
            if self.batches.len() < KEPT_BATCHES {
                self.batches.push(BatchTimes { start_s, first, fetch_s, train_s });
            }
            batches.push((fetch_s, train_s, images));
            let (batch, fetch_s) = (times.batches, if first { 0.0 } else { fetch_s });
            (self.on_event)(&Event::Batch { epoch: number, batch, start_s, fetch_s, train_s, images })?;
            times.train_s += train_s;
            times.images += images;
            times.batches += 1;
            // Running means.
            let mean = |mean: Option<f64>, value: Option<f64>| {
                value.map(|value| mean.map_or(value, |mean| mean + (value - mean) / times.batches as f64))
            };
            (times.loss, times.accuracy) = (mean(times.loss, result.loss), mean(times.accuracy, result.accuracy));
            cut = times.batches > 1 && deadline.is_some_and(|deadline| trained >= deadline);
            if cut {
                break;
            }
            asked = Instant::now();
        }
        self.stats += epoch.stats();
        drop(epoch);
        times.seconds = begin.elapsed().as_secs_f64();
        // At the end of an epoch, the images that the threads have begun are finished, and no others are begun.
        let largest = batches.iter().map(|(.., images)| *images as usize).max().unwrap_or(1);
        let last = if cut { 0 } else { pipeline.threads().div_ceil(largest.max(1)) };
        let steady = batches.len().saturating_sub(1 + last).max(1);
        for (fetch_s, train_s, images) in batches.iter().skip(1).take(steady) {
            times.steady_s += fetch_s + train_s;
            times.steady_train_s += train_s;
            times.steady_images += images;
        }
        let EpochTimes { seconds, images, loss, accuracy, .. } = times;
        (self.on_event)(&Event::Epoch { epoch: number, start_s, seconds, images, loss, accuracy })?;
        self.epochs.push(times);
        Ok(())
    }

    /// Runs epochs from number 0 on until `time` has passed, but at least two batches of an epoch.
    ///
    /// # Errors
    /// The errors of [`epoch`](Self::epoch).
    pub fn for_time(&mut self, pipeline: &Pipeline, time: Duration) -> Result<()> {
        let deadline = Instant::now() + time;
        for number in 0.. {
            self.epoch(pipeline, number, Some(deadline))?;
            let nothing = self.epochs.last().is_none_or(|epoch| epoch.images == 0);
            if nothing || Instant::now() >= deadline {
                break;
            }
        }
        Ok(())
    }

    /// Ends the run and returns its times.
    #[must_use]
    pub fn finish(self) -> RunTimes {
        let seconds = self.begin.elapsed().as_secs_f64();
        RunTimes { seconds, epochs: self.epochs, batches: self.batches, stages: self.stats.into(), bad: self.stats.bad }
    }
}

/// Measures what `epochs` runs without a training step.
pub(super) fn alone(epochs: impl FnOnce(&mut TrainingRun<'_>) -> Result<()>) -> Result<RunTimes> {
    TrainingRun::measure(Model::none().step.as_mut(), &mut ignore, epochs)
}

/// Ignores events.
pub(super) fn ignore(_: &Event) -> Result<()> {
    Ok(())
}

/// Images per second of the training step alone, with every batch ready and no other work; infinite if it does nothing.
/// The step keeps the batches that it gets, so each batch is made while the clock is stopped.
///
/// # Errors
/// [`Error::Parameter`] for a source without usable images; errors of the pipeline and the step.
pub(super) fn step_alone(builder: PipelineBuilder, time: Duration, step: &mut dyn TrainingStep) -> Result<f64> {
    let (mut trained, mut images, mut batches) = (Duration::ZERO, 0, 0_u32);
    let begin = Instant::now();
    for batch in builder.threads(0).prefetch(1).build()?.epoch(0) {
        let batch = batch?;
        batch.images().synchronize()?;
        let (start, len) = (Instant::now(), batch.len());
        step.train(batch)?;
        step.finish()?;
        (trained, images, batches) = (trained + start.elapsed(), images + len, batches + 1);
        if begin.elapsed() >= time {
            break;
        }
    }
    if images == 0 {
        return Err(Error::parameter("bench", "source", "images that can be used", "none"));
    }
    let seconds = trained.as_secs_f64();
    Ok(if seconds < NO_STEP_S * f64::from(batches) { f64::INFINITY } else { images as f64 / seconds })
}

/// Share of a pipeline's images that a step classifies correctly, without training on them; `None` if it does not say.
pub(super) fn evaluate(step: &mut dyn TrainingStep, pipeline: &Pipeline) -> Result<Option<f64>> {
    let (mut right, mut images) = (0.0, 0);
    for batch in pipeline.epoch(0) {
        let batch = batch?;
        batch.images().synchronize()?;
        let count = batch.len() - batch.padding();
        let Some(accuracy) = step.evaluate(batch)? else { return Ok(None) };
        (right, images) = (right + accuracy * count as f64, images + count);
    }
    Ok((images > 0).then(|| right / images as f64))
}
