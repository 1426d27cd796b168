//! The training loop of all experiments: fetches a batch, trains on it, and reads the clock in between.

use super::events::Event;
use super::report::plot::Stretch;
use super::run::StageSeconds;
use super::spread::Spread;
use super::step::TrainingStep;
use serde::Serialize;
use std::time::{Duration, Instant};
use warpfeed::{Error, Pipeline, PipelineBuilder, Result, Stats};

/// Most batches of a run whose times are kept one by one. Sums include all batches.
const KEPT_BATCHES: usize = 100_000;
/// Most batches in a timeline; more could not be told apart.
const SHOWN_BATCHES: usize = 400;

/// A step that takes fewer seconds per batch counts as no step.
pub(super) const NO_STEP_S: f64 = 20e-6;

/// Lanes in a timeline of batches. See [`RunTimes::stretches`].
pub(super) const LANES: [&str; 4] = ["set-up", "fetch", "train", "epoch"];

/// Times of one epoch in seconds. `seconds` is `setup_s + fetch_s + train_s` plus the loop's own small cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EpochTimes {
    /// Number of the epoch.
    pub epoch: u64,
    /// Time of the request for the epoch, since the run began.
    pub start_s: f64,
    /// Seconds from the request for the epoch to its end.
    pub seconds: f64,
    /// Seconds from the request for the epoch to its first batch.
    pub setup_s: f64,
    /// Seconds of waiting for all further batches.
    pub fetch_s: f64,
    /// Seconds in the training step.
    pub train_s: f64,
    /// Images delivered, without padding.
    pub images: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Seconds of the steady state: waiting for its batches, and training on them. See [`SteadyState`].
    pub steady_s: f64,
    /// Seconds in the training step in the steady state.
    pub steady_train_s: f64,
    /// Images of the steady state.
    pub steady_images: u64,
    /// Mean loss over the batches, if the step reports it.
    pub loss: Option<f64>,
    /// Mean accuracy over the batches, 0 to 1, if the step reports it.
    pub accuracy: Option<f64>,
}

/// Times of one batch, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BatchTimes {
    /// Time of the request for the batch, since the run began.
    pub start_s: f64,
    /// Whether the batch is the first of an epoch; then `fetch_s` is the set-up.
    pub first: bool,
    /// Seconds until the batch was there.
    pub fetch_s: f64,
    /// Seconds in the training step.
    pub train_s: f64,
}

/// A running measurement: epochs of one or several pipelines through one training step.
pub struct TrainingRun<'a> {
    step: &'a mut dyn TrainingStep,
    on_event: &'a mut dyn FnMut(&Event) -> Result<()>,
    begin: Instant,
    epochs: Vec<EpochTimes>,
    batches: Vec<BatchTimes>,
    stats: Stats,
}

/// Times of a run.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RunTimes {
    /// Seconds from the start of the run to its end.
    pub seconds: f64,
    /// Times of its epochs.
    pub epochs: Vec<EpochTimes>,
    /// Times of its first 100,000 batches.
    #[serde(skip)]
    pub batches: Vec<BatchTimes>,
    /// Time in each stage of the pipelines.
    pub stages: StageSeconds,
    /// Samples that could not be used and were skipped.
    pub bad: u64,
}

/// Steady state of epochs: the batches between set-up and the end. The first batch of each epoch is set-up. At its end
/// the threads finish what they have begun, which would make many threads look faster; so as many of the last batches
/// are left out as hold an image for each thread, except in an epoch that was cut short. Epochs of one batch have no
/// steady state; if there are no others, the figures are of whole epochs.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SteadyState {
    /// Images per second.
    pub images_per_s: f64,
    /// Seconds that the images of an epoch take at this rate.
    pub epoch_s: f64,
    /// Share of the time that was spent in the training step, 0 to 1.
    pub accelerator_use: f64,
}

impl SteadyState {
    /// The steady state of these epochs; `None` if they have no images.
    #[must_use]
    pub fn of(epochs: &[EpochTimes]) -> Option<Self> {
        let sum = |of: fn(&EpochTimes) -> f64| epochs.iter().map(of).sum::<f64>();
        let all = sum(|epoch| epoch.images as f64);
        let mut images = sum(|epoch| epoch.steady_images as f64);
        let (mut train_s, mut seconds) = (sum(|epoch| epoch.steady_train_s), sum(|epoch| epoch.steady_s));
        if images <= 0.0 {
            (images, train_s, seconds) = (all, sum(|epoch| epoch.train_s), sum(|epoch| epoch.seconds));
        }
        let images_per_s = images / seconds.max(f64::MIN_POSITIVE);
        (images > 0.0).then(|| Self {
            images_per_s,
            epoch_s: all / epochs.len() as f64 / images_per_s,
            accelerator_use: train_s / seconds.max(f64::MIN_POSITIVE),
        })
    }
}

impl<'a> TrainingRun<'a> {
    /// Starts a run and its clock. `on_event` is called for every batch and epoch.
    #[must_use]
    pub fn start(step: &'a mut dyn TrainingStep, on_event: &'a mut dyn FnMut(&Event) -> Result<()>) -> Self {
        Self { step, on_event, begin: Instant::now(), epochs: Vec::new(), batches: Vec::new(), stats: Stats::default() }
    }

    /// Runs one epoch, to its end or until `deadline` has passed, but at least two batches.
    ///
    /// # Errors
    /// The errors of the pipeline, the step and `on_event`.
    pub fn epoch(&mut self, pipeline: &Pipeline, number: u64, deadline: Option<Instant>) -> Result<()> {
        self.step.begin_epoch(number)?;
        let begin = Instant::now();
        let start_s = (begin - self.begin).as_secs_f64();
        let mut times = EpochTimes {
            epoch: number,
            start_s,
            seconds: 0.0,
            setup_s: 0.0,
            fetch_s: 0.0,
            train_s: 0.0,
            images: 0,
            batches: 0,
            steady_s: 0.0,
            steady_train_s: 0.0,
            steady_images: 0,
            loss: None,
            accuracy: None,
        };
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

/// Fewest batches of an epoch whose set-up needs no mention.
const MANY_BATCHES: u64 = 50;

/// Sentence about set-up, for epochs of few batches; `None` if there are many.
pub(super) fn about_setup<'a>(runs: impl Iterator<Item = &'a RunTimes>) -> Option<String> {
    let epochs: Vec<&EpochTimes> = runs.flat_map(|run| &run.epochs).collect();
    let batches = epochs.iter().map(|epoch| epoch.batches).max().filter(|&batches| batches < MANY_BATCHES)?;
    let sum = |of: fn(&EpochTimes) -> f64| epochs.iter().map(|epoch| of(epoch)).sum::<f64>();
    let share = 100.0 * sum(|epoch| epoch.setup_s) / sum(|epoch| epoch.seconds).max(f64::MIN_POSITIVE);
    Some(match batches {
        0 | 1 => {
            "Every epoch has a single batch: these figures are of set-up, and tell nothing of longer epochs.".to_owned()
        }
        _ => format!(
            "The longest epoch that was measured has {batches} batches, so {share:.0} % of the time was set-up, the wait for the first batch. It is \
             told apart: other figures are of the batches between set-up and the end."
        ),
    })
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

/// Note on the epochs that figures are of.
pub(super) fn measured_epochs(epochs: u64) -> String {
    let of = if epochs > 1 { "of the epochs after the first" } else { "of the epoch" };
    format!(
        "Seconds per epoch, images/s and accelerator use are {of}, without set-up: of the batches between it and the end, for \
         all images of an epoch."
    )
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

/// Note on samples that runs skipped; `None` if there were none.
pub(super) fn skipped<'a>(runs: impl Iterator<Item = &'a RunTimes>) -> Option<String> {
    let bad = runs.map(|run| run.bad).sum::<u64>();
    (bad > 0).then(|| format!("Images that could not be used were skipped {bad} times: warpfeed run names them."))
}

impl RunTimes {
    /// Images delivered, without padding.
    #[must_use]
    pub fn images(&self) -> u64 {
        self.epochs.iter().map(|epoch| epoch.images).sum()
    }

    /// Seconds of waiting for each batch, without the first batch of each epoch.
    #[must_use]
    pub fn waits(&self) -> Vec<f64> {
        self.batches.iter().filter(|batch| !batch.first).map(|batch| batch.fetch_s).collect()
    }

    /// The epochs after the first one, which also warms up caches. If there is only one epoch: that one.
    #[must_use]
    pub fn later(&self) -> &[EpochTimes] {
        if self.epochs.len() > 1 { &self.epochs[1..] } else { &self.epochs }
    }

    /// Mean seconds of the [later](Self::later) epochs.
    #[must_use]
    pub fn later_seconds(&self) -> Option<f64> {
        let later = self.later();
        (!later.is_empty()).then(|| later.iter().map(|epoch| epoch.seconds).sum::<f64>() / later.len() as f64)
    }

    /// Steady state of the [later](Self::later) epochs; `None` if they have no images.
    #[must_use]
    pub fn steady(&self) -> Option<SteadyState> {
        SteadyState::of(self.later())
    }

    /// Images per second that the training step takes; `None` if it takes no time.
    #[must_use]
    pub fn images_per_s_of_step(&self) -> Option<f64> {
        let sum = |of: fn(&EpochTimes) -> f64| self.epochs.iter().map(of).sum::<f64>();
        let train_s = sum(|epoch| epoch.train_s);
        (train_s > NO_STEP_S * sum(|epoch| epoch.batches as f64)).then(|| self.images() as f64 / train_s)
    }

    /// Median set-up of an epoch in seconds; `None` if there are no epochs.
    #[must_use]
    pub fn setup_s(&self) -> Option<f64> {
        Spread::of(&self.epochs.iter().map(|epoch| epoch.setup_s).collect::<Vec<_>>()).map(|setup| setup.median)
    }

    /// The training step's share of each of so many intervals since the run began, 0 to 1.
    pub(super) fn step_shares(&self, interval_s: f64, intervals: usize) -> Vec<f32> {
        let mut shares = vec![0.0; intervals];
        for batch in &self.batches {
            let (from, to) = (batch.start_s + batch.fetch_s, batch.start_s + batch.fetch_s + batch.train_s);
            let (first, last) = ((from / interval_s) as usize, (to / interval_s) as usize);
            for (i, share) in shares.iter_mut().enumerate().take(last + 1).skip(first) {
                let (begin, end) = (i as f64 * interval_s, (i + 1) as f64 * interval_s);
                *share += ((to.min(end) - from.max(begin)) / interval_s).max(0.0) as f32;
            }
        }
        shares
    }

    /// The first batches and their epochs as stretches of time in [`LANES`].
    pub(super) fn stretches(&self) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        for batch in &self.batches[..self.batches.len().min(SHOWN_BATCHES)] {
            let there = batch.start_s + batch.fetch_s;
            stretches.push(Stretch { lane: usize::from(!batch.first), start_s: batch.start_s, end_s: there });
            stretches.push(Stretch { lane: 2, start_s: there, end_s: there + batch.train_s });
        }
        let end = stretches.last().map_or(0.0, |last| last.end_s);
        let epochs = self.epochs.iter().filter(|epoch| epoch.start_s < end);
        stretches.extend(epochs.map(|epoch| {
            let end_s = (epoch.start_s + epoch.seconds).min(end);
            Stretch { lane: 3, start_s: epoch.start_s, end_s }
        }));
        stretches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_has_its_share_of_each_interval() {
        let batch = |start_s, fetch_s, train_s| BatchTimes { start_s, first: false, fetch_s, train_s };
        let batches = vec![batch(0.0, 0.1, 0.3), batch(0.4, 0.0, 0.1)];
        let run = RunTimes { seconds: 0.5, epochs: Vec::new(), batches, stages: StageSeconds::default(), bad: 0 };
        let shares = run.step_shares(0.2, 3);
        let want = [0.5, 1.0, 0.5];
        assert!(shares.iter().zip(want).all(|(share, want)| (share - want).abs() < 1e-6), "{shares:?}");
        assert_eq!((run.step_shares(0.2, 1).len(), run.step_shares(0.2, 0).len()), (1, 0));
    }
}
