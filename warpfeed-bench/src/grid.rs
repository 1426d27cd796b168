//! The runner of all experiments: measures the cases of a grid in turn, round by round.

use super::events::Event;
use super::spread::{Spread, turns};
use super::step::TrainingStep;
use super::train::{EpochTimes, RunTimes, SteadyState, TrainingRun};
use super::usage::{Percentiles, Usage, UsageMonitor, percentiles};
use super::utilization;
use serde_json::{Value, json};
use warpfeed::Result;

/// Measures every case once in each round, in a random order. `measure` gets a case and the number of the round, and
/// returns what `progress` says of it.
pub(super) fn in_rounds<C>(
    cases: &mut [C],
    (rounds, seed): (u32, u64),
    progress: &mut dyn FnMut(&str),
    mut measure: impl FnMut(&mut C, u32) -> Result<String>,
) -> Result<()> {
    let turns = turns(cases.len(), rounds, seed);
    let all = turns.len();
    for (done, (round, case)) in turns.into_iter().enumerate() {
        let line = measure(&mut cases[case], round)?;
        progress(&format!("{}/{all} {line}", done + 1));
    }
    Ok(())
}

/// A case of a grid, with the times and the utilization of each of its rounds.
pub(super) struct Case<K> {
    pub(super) key: K,
    pub(super) runs: Vec<RunTimes>,
    pub(super) usage: Vec<Usage>,
    /// Epochs of a run that its figures are of.
    measured: fn(&RunTimes) -> &[EpochTimes],
}

impl<K> Case<K> {
    /// A case whose figures are of the epochs after the first, if there are more than one.
    pub(super) fn new(key: K) -> Self {
        Self { key, runs: Vec::new(), usage: Vec::new(), measured: RunTimes::later }
    }

    /// A case whose figures are of all epochs.
    pub(super) fn of_all_epochs(key: K) -> Self {
        Self { measured: |run| &run.epochs, ..Self::new(key) }
    }

    /// Measures the case once more, with the processors' utilization.
    pub(super) fn measure(
        &mut self,
        step: &mut dyn TrainingStep,
        on_event: &mut dyn FnMut(&Event) -> Result<()>,
        epochs: impl FnOnce(&mut TrainingRun<'_>) -> Result<()>,
    ) -> Result<()> {
        let monitor = UsageMonitor::start();
        let run = TrainingRun::measure(step, on_event, epochs)?;
        self.usage.push(monitor.stop());
        self.runs.push(run);
        Ok(())
    }

    /// A figure of each run.
    pub(super) fn figures(&self, of: impl Fn(&RunTimes) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(of).collect()
    }

    /// Median of a figure over the rounds.
    pub(super) fn median(&self, of: impl Fn(&RunTimes) -> Option<f64>) -> Option<f64> {
        Spread::median_of(&self.figures(of))
    }

    fn steady(&self, of: fn(&SteadyState) -> f64) -> Vec<f64> {
        self.figures(|run| SteadyState::of((self.measured)(run)).map(|steady| of(&steady)))
    }

    /// Images per second in each round.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.steady(|steady| steady.images_per_s)
    }

    /// Seconds per epoch in each round.
    pub(super) fn epochs_s(&self) -> Vec<f64> {
        self.steady(|steady| steady.epoch_s)
    }

    pub(super) fn images_per_s(&self) -> Option<Spread> {
        Spread::of(&self.rates())
    }

    pub(super) fn seconds(&self) -> Option<Spread> {
        Spread::of(&self.epochs_s())
    }

    /// The last round's images per second, or 0.
    pub(super) fn last_rate(&self) -> f64 {
        self.rates().last().copied().unwrap_or(0.0)
    }

    /// Images per second that the training step takes; `None` if it takes no time.
    pub(super) fn of_step(&self) -> Option<f64> {
        self.median(RunTimes::images_per_s_of_step)
    }

    /// Median share of the time that was spent in the training step, 0 to 1.
    pub(super) fn accelerator_use(&self) -> Option<f64> {
        Spread::median_of(&self.steady(|steady| steady.accelerator_use))
    }

    /// Waits for batches in all rounds, without the first of each epoch.
    pub(super) fn waits(&self) -> Vec<f64> {
        self.runs.iter().flat_map(RunTimes::waits).collect()
    }

    pub(super) fn wait_percentiles(&self) -> Option<Percentiles> {
        percentiles(&self.waits())
    }

    /// The case for JSON: `names` and all figures that experiments share.
    pub(super) fn json(&self, names: Value) -> Value {
        let mut value = names;
        value["accelerator_use"] = json!(self.accelerator_use());
        value["runs"] = json!(self.runs);
        value["utilization"] = utilization::figures(&self.usage);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_measured_in_every_round() {
        let (mut cases, mut lines) = ([Vec::new(), Vec::new(), Vec::new()], Vec::new());
        let mut measure = |case: &mut Vec<u32>, round| {
            case.push(round);
            Ok(format!("round {round}"))
        };
        in_rounds(&mut cases, (2, 7), &mut |line| lines.push(line.to_owned()), &mut measure).unwrap();
        assert_eq!(cases, [[0, 1], [0, 1], [0, 1]]);
        assert_eq!((&lines[0][..], &lines[5][..]), ("1/6 round 0", "6/6 round 1"));
    }
}
