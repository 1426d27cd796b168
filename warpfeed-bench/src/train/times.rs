//! The times of epochs and runs, and their steady state.

use crate::report::plot::Stretch;
use crate::run::StageSeconds;
use crate::spread::Spread;
use serde::Serialize;

/// Most batches in a timeline; more could not be distinguished.
const SHOWN_BATCHES: usize = 400;

/// A step that takes fewer seconds per batch counts as no step.
pub(crate) const NO_STEP_S: f64 = 20e-6;

/// Lanes in a timeline of batches. See [`RunTimes::stretches`].
pub(crate) const LANES: [&str; 4] = ["set-up", "fetch", "train", "epoch"];

/// Times of one epoch in seconds. `seconds` is `setup_s + fetch_s + train_s` plus the loop's own small cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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

    /// Images per second that one core makes: those of a worker thread over its time in reading, decoding and
    /// augmenting. `None` without images.
    pub(crate) fn images_per_s_of_core(&self) -> Option<f64> {
        let working = self.stages.read + self.stages.decode + self.stages.augment;
        (self.images() > 0 && working > 0.0).then(|| self.images() as f64 / working)
    }

    /// Median set-up of an epoch in seconds; `None` if there are no epochs.
    #[must_use]
    pub fn setup_s(&self) -> Option<f64> {
        Spread::of(&self.epochs.iter().map(|epoch| epoch.setup_s).collect::<Vec<_>>()).map(|setup| setup.median)
    }

    /// The training step's share of each of so many intervals since the run began, 0 to 1.
    pub(crate) fn step_shares(&self, interval_s: f64, intervals: usize) -> Vec<f32> {
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
    pub(crate) fn stretches(&self) -> Vec<Stretch> {
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
