//! The parts of a training that diagnose measures, and their rounds.

use super::findings::StageRounds;
use super::reading::{Reading, read};
use super::{DiagnoseSettings, PerImage, Rates};
use crate::report::{Columns, ReportTable};
use crate::run::StageSeconds;
use crate::spread::{Spread, with_rounds};
use crate::subject::{Model, Subject};
use crate::train::{RunTimes, SteadyState, TrainingRun, alone, ignore, step_alone};
use serde_json::{Map, Value};
use warpfeed::internal::Twice;
use warpfeed::{PipelineBuilder, Result};

/// A part that is measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Read,
    ReadDecode,
    Pipeline,
    DecodeTwice,
    OperationsTwice,
    TransferTwice,
    KernelsTwice,
    Step,
    Whole,
}

impl Part {
    /// All parts by their names, and what they do twice.
    const NAMED: [(Self, &str, Option<Twice>); 9] = [
        (Self::Read, "read", None),
        (Self::ReadDecode, "read, decode", None),
        (Self::Pipeline, "pipeline alone", None),
        (Self::DecodeTwice, "decoded twice", Some(Twice::Decode)),
        (Self::OperationsTwice, "operations twice", Some(Twice::Operations)),
        (Self::TransferTwice, "sent twice", Some(Twice::Transfer)),
        (Self::KernelsTwice, "kernels twice", Some(Twice::Kernels)),
        (Self::Step, "step alone", None),
        (Self::Whole, "whole", None),
    ];

    pub(super) fn all() -> [Self; 9] {
        Self::NAMED.map(|(part, ..)| part)
    }

    pub(super) fn name(self) -> &'static str {
        Self::NAMED[self as usize].1
    }

    /// What the part does twice.
    fn twice(self) -> Option<Twice> {
        Self::NAMED[self as usize].2
    }

    /// Whether the part is measured where operations run on a GPU, or on the CPU.
    pub(super) fn is_measured(self, on_gpu: bool) -> bool {
        match self.twice() {
            Some(Twice::Decode | Twice::Operations) => !on_gpu,
            Some(Twice::Transfer | Twice::Kernels) => on_gpu,
            None => true,
        }
    }
}

/// Results of all rounds.
#[derive(Default)]
pub(super) struct Measured {
    /// Images per second in every round of every part.
    rates: Vec<(Part, f64)>,
    pub(super) reading: Reading,
    /// Rounds of the parts that are pipelines.
    pub(super) runs: Vec<(Part, RunTimes)>,
    /// The training step's share of the time, in each round of the whole.
    pub(super) accelerator_use: Vec<f64>,
}

impl Measured {
    /// Measures a part once more. Returns images per second, infinite for a step that does nothing.
    pub(super) fn add(
        &mut self,
        part: Part,
        subject: &Subject,
        settings: &DiagnoseSettings,
        model: &mut Model,
    ) -> Result<f64> {
        let time = settings.time / settings.rounds.max(1);
        let builder = builder(subject, settings);
        let run = match part {
            Part::Read | Part::ReadDecode => {
                let reading = read(subject, settings.threads.max(1), time, part == Part::ReadDecode)?;
                if part == Part::Read {
                    self.reading += reading;
                }
                return Ok(self.push(part, reading.images_per_s()));
            }
            Part::Step => return Ok(self.push(part, step_alone(builder, time, model.step.as_mut())?)),
            Part::Whole => {
                let pipeline = builder.build()?;
                TrainingRun::measure(model.step.as_mut(), &mut ignore, |run| run.for_time(&pipeline, time))?
            }
            _ => {
                let pipeline = match part.twice() {
                    Some(part) => builder.build_twice(part)?,
                    None => builder.build()?,
                };
                alone(|run| run.for_time(&pipeline, time))?
            }
        };
        let steady = SteadyState::of(&run.epochs);
        if part == Part::Whole {
            self.accelerator_use.push(steady.map_or(0.0, |steady| steady.accelerator_use));
        }
        self.runs.push((part, run));
        Ok(self.push(part, steady.map_or(0.0, |steady| steady.images_per_s)))
    }

    fn push(&mut self, part: Part, rate: f64) -> f64 {
        self.rates.push((part, rate));
        rate
    }

    fn rounds(&self, part: Part) -> Vec<f64> {
        self.rates.iter().filter(|rate| rate.0 == part).map(|rate| rate.1).collect()
    }

    /// The rounds of a part; `None` if it was not run, or takes no time.
    pub(super) fn spread(&self, part: Part) -> Option<Spread> {
        Spread::of(&self.rounds(part)).filter(|spread| spread.median.is_finite())
    }

    /// The rounds of all parts for JSON.
    pub(super) fn json(&self) -> Map<String, Value> {
        let rounds = |part: Part| self.spread(part).map_or(Value::Null, |_| with_rounds(&self.rounds(part)));
        Part::all().into_iter().map(|part| (part.name().to_owned(), rounds(part))).collect()
    }

    /// Medians. The rate of reading from a pipe is limited to `intake`, the rate at which it delivered the kept images.
    pub(super) fn rates(&self, intake: Option<f64>) -> Rates {
        let of = |part| self.spread(part).map_or(f64::INFINITY, |spread| spread.median);
        Rates {
            read: of(Part::Read).min(intake.unwrap_or(f64::INFINITY)),
            read_decode: of(Part::ReadDecode),
            pipeline: of(Part::Pipeline),
            decode_twice: of(Part::DecodeTwice),
            operations_twice: of(Part::OperationsTwice),
            transfer_twice: of(Part::TransferTwice),
            kernels_twice: of(Part::KernelsTwice),
            step: of(Part::Step),
            whole: of(Part::Whole),
        }
    }

    /// Table of the images per second of each part, compared with the median of the whole.
    pub(super) fn table(&self, rates: &Rates) -> ReportTable {
        let pipeline = rates.pipeline;
        let longer = move |part: &Part| Some(100.0 * (pipeline / part.twice().and(self.spread(*part))?.median - 1.0));
        Columns::new()
            .text("part", |part: &Part| part.name())
            .spread("images/s", 0, |part| self.spread(*part))
            .number("of the whole, times", 2, |part| Some(self.spread(*part)?.median / rates.whole.max(1e-9)))
            .number("longer than alone, %", 0, longer)
            .table("parts", "How fast each part would be alone", Part::all())
            .blank(rates.step.is_infinite().then(|| "the step alone: it does nothing.".to_owned()))
    }

    /// Time of the pipeline's workers per image and stage, in each round.
    pub(super) fn stage_rounds(&self) -> StageRounds {
        let runs = self.runs.iter().filter(|(part, run)| *part == Part::Pipeline && run.images() > 0);
        let mut rounds = StageRounds::default();
        for (_, run) in runs {
            let images = run.images() as f64;
            rounds.read.push(run.stages.read / images);
            rounds.decode.push(run.stages.decode / images);
            rounds.augment.push(run.stages.augment / images);
        }
        rounds
    }

    /// Time of the pipeline's workers per image and stage, over all rounds.
    pub(super) fn per_image(&self) -> PerImage {
        let runs = || self.runs.iter().filter(|(part, _)| *part == Part::Pipeline).map(|(_, run)| run);
        let images = runs().map(RunTimes::images).sum::<u64>().max(1) as f64;
        let of = |stage: fn(&StageSeconds) -> f64| runs().map(|run| stage(&run.stages)).sum::<f64>() / images;
        PerImage {
            read: of(|stages| stages.read),
            decode: of(|stages| stages.decode),
            augment: of(|stages| stages.augment),
        }
    }
}

pub(super) fn builder(subject: &Subject, settings: &DiagnoseSettings) -> PipelineBuilder {
    let builder = subject.builder().batch_size(settings.batch_size).threads(settings.threads);
    settings.ops.iter().cloned().fold(builder.strategy(settings.strategy), PipelineBuilder::transform)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_in_their_order() {
        assert!(Part::all().into_iter().all(|part| Part::NAMED[part as usize].0 == part));
    }
}
