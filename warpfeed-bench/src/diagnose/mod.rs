//! Finds out why a trainer waits, by measuring the pipeline alone, its parts, and with one part of its work done twice.

// A part is not left out but done twice, because a pipeline without one of its operations decodes other pixels. On a
// GPU, copies and kernels run at the same time, so their own durations do not show what they cost: the one that makes
// the pipeline nearly twice as slow when it is done twice is the bottleneck.
//
// A machine that is busy with other work is a finding of its own. Other processes slow every stage of a worker by the
// same factor; decoding would then be named, because it is the longest stage. Waiting for bytes and waiting for the
// step are recognized by other means, so those findings come first.

mod findings;
mod reading;

use super::environment::cores;
use super::report::plot::{Bar, bars};
use super::report::{Cell, Report, ReportTable};
use super::run::StageSeconds;
use super::spread::{Spread, turns, with_rounds};
use super::subject::{Model, Subject, no_gpu};
use super::train::{RunTimes, SteadyState, TrainingRun, about_setup, skipped, step_alone};
use findings::{Findings, StageRounds};
use reading::{Reading, read};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Duration;
use warpfeed::internal::Twice;
use warpfeed::ops::Transform;
use warpfeed::{Pipeline, PipelineBuilder, Result, Strategy};

/// Settings of the experiment.
#[derive(Debug, Clone)]
pub struct DiagnoseSettings {
    /// Images in a batch.
    pub batch_size: usize,
    /// Number of worker threads. If there are fewer than `cores`, the first remedy is more of them.
    pub threads: usize,
    /// Number of processors that workers may use.
    pub cores: usize,
    /// The operations. They must end in one size.
    pub ops: Vec<Transform>,
    /// Strategy by which they are run.
    pub strategy: Strategy,
    /// Time for each part, over all rounds.
    pub time: Duration,
    /// Measurements of each part, in turn with the others. With fewer than six, no stage surely takes the longest.
    pub rounds: u32,
}

impl DiagnoseSettings {
    /// Settings for these operations: a worker thread for each processor, batches of 32, and three seconds in eight
    /// rounds per part.
    #[must_use]
    pub fn new(ops: impl IntoIterator<Item = Transform>) -> Self {
        let (cores, ops, time) = (cores(), ops.into_iter().collect(), Duration::from_secs(3));
        Self { batch_size: 32, threads: cores, cores, ops, strategy: Strategy::Fused, time, rounds: 8 }
    }
}

/// The part of a training that limits its speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TrainingBottleneck {
    /// The storage: workers wait for bytes.
    Disk,
    /// The network, or the server: workers wait for bytes.
    Network,
    /// The program that writes the pipe.
    Pipe,
    /// Other work on this machine.
    OtherWork,
    /// Too few worker threads: fewer than processors.
    Threads,
    /// Costs of an image that do not depend on its size: opening a file, starting to decode.
    PerImage,
    /// Decoding.
    Decode,
    /// The operations.
    Augmentation,
    /// Copying to the GPU.
    Transfer,
    /// The GPU's kernels.
    Kernels,
    /// The training step: the pipeline is fast enough.
    Step,
}

/// Rates, in images per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rates {
    /// Rate of reading alone.
    pub read: f64,
    /// Rate of reading and decoding whole images.
    pub read_decode: f64,
    /// Rate of the pipeline without a training step.
    pub pipeline: f64,
    /// Rate of the pipeline if the CPU decodes the pixels of each image twice; infinite on a GPU.
    pub decode_twice: f64,
    /// Rate of the pipeline if the CPU runs the operations twice on what was decoded once; infinite on a GPU.
    pub operations_twice: f64,
    /// Rate of the pipeline if each batch is copied to the GPU twice; infinite on the CPU.
    pub transfer_twice: f64,
    /// Rate of the pipeline if the GPU's kernels run twice; infinite on the CPU.
    pub kernels_twice: f64,
    /// Rate of the training step alone, with every batch ready; infinite if it does nothing.
    pub step: f64,
    /// Rate of pipeline and training step together.
    pub whole: f64,
}

/// A worker's time for one image in seconds, by stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PerImage {
    /// Reading, waits included.
    pub read: f64,
    /// Decoding.
    pub decode: f64,
    /// Drawing and running the operations.
    pub augment: f64,
}

/// Results of the experiment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The report.
    pub report: Report,
    /// The bottleneck.
    pub bottleneck: TrainingBottleneck,
    /// Possible speed-up without the bottleneck, up to the next one; `None` if nothing else is near.
    pub gain: Option<f64>,
}

/// Measures the parts in rounds, in turn, and finds the bottleneck. `progress` is called for each part.
///
/// # Errors
/// [`Error::Parameter`](warpfeed::Error::Parameter) for a subject without usable images; errors of pipelines and the
/// step.
pub fn diagnose(
    subject: &Subject,
    settings: &DiagnoseSettings,
    model: &mut Model,
    progress: &mut dyn FnMut(&str),
) -> Result<Diagnosis> {
    let mut report = subject.report("diagnose", "What is the bottleneck, and what would be gained without it?")?;
    let on_gpu = subject.device.resolve()?.is_some();
    let (mean_px, mean_bytes) = report.data_set.as_ref().map_or((0.0, 0.0), |data| (data.mean_px, data.mean_bytes));
    let threads = settings.threads.max(1);
    // Built first, so that settings that a pipeline refuses are reported before anything is measured.
    let whole = builder(subject, settings, settings.ops.clone()).build()?;
    let (device, prefetch) = (whole.device_name(), whole.prefetch());
    // Frees its memory on the device for the measured pipelines.
    drop(whole);
    let parts: Vec<Part> = Part::ALL.into_iter().filter(|part| part.is_measured(on_gpu)).collect();
    let rounds = settings.rounds.max(1);
    let mut measured = Measured::default();
    for (done, (_, part)) in turns(parts.len(), rounds, subject.seed).into_iter().enumerate() {
        let part = parts[part];
        let rate = measured.add(part, subject, settings, model)?;
        let stated = if rate.is_finite() { format!("{rate:.0} images/s") } else { "no time".to_owned() };
        progress(&format!("{}/{} {}: {stated}", done + 1, parts.len() * rounds as usize, part.name()));
    }
    report.measured();

    let findings = Findings {
        rates: measured.rates(subject.intake),
        per_image: measured.per_image(),
        blocked: measured.reading.blocked(),
        accelerator_use: Spread::of(&measured.accelerator_use).map_or(0.0, |share| share.median),
        threads,
        cores: settings.cores,
        mean_px,
        mean_bytes,
        storage: subject.storage,
        taken: report.busy.map_or(0.0, |busy| busy.share()),
    };
    let bottleneck = findings.bottleneck();
    let gain = findings.without(bottleneck).map(|rate| rate / findings.rates.whole);
    let rivals = measured.stage_rounds().rivals(bottleneck).unwrap_or_default();
    let sentence = findings.sentence(bottleneck) + &rivals;
    report.answer = vec![sentence, findings.next(bottleneck), findings.remedy(bottleneck)];
    report.settings = json!({
        "device": device, "transforms": settings.ops, "strategy": settings.strategy, "threads": threads,
        "cores": settings.cores, "prefetch": prefetch, "batch_size": settings.batch_size, "step": model.about(),
        "rounds": rounds, "seconds_a_part": settings.time.as_secs_f64(), "seed": subject.seed,
    });
    report.tables = vec![measured.table(&findings.rates), findings.stages()];
    let bar = |part: Part| {
        let spread = measured.spread(part)?;
        let interval = Some((spread.low, spread.high));
        Some(Bar { name: part.name().to_owned(), value: spread.median, interval, marked: part == Part::Whole })
    };
    let rates: Vec<Bar> = Part::ALL.into_iter().filter_map(bar).collect();
    let svg = bars("Images per second: each part alone, and the whole", "images/s", &rates);
    report.plot("parts", "How fast each part would be alone, and the whole", svg);
    let stage = |(name, seconds): (&str, f64)| {
        let (name, value) = (name.to_owned(), 1e3 * seconds);
        Bar { name, value, interval: None, marked: false }
    };
    let svg = bars("A worker's time for one image", "ms", &findings.of_worker().map(stage));
    report.plot("stages", "What a worker spends its time on", svg);
    report.leading_plots = 2;
    report.notes.extend(about_setup(measured.runs.iter().map(|(_, run)| run)));
    report.notes.extend(skipped(measured.runs.iter().map(|(_, run)| run)));
    report.notes.extend([
        format!(
            "Each part was measured {rounds} times, in turn with the others: the median, and the interval in which the rounds lie."
        ),
        "Read and decode: whole images; the pipeline decodes only what its operations need, so it may be faster."
            .to_owned(),
        "Images/s and the trainer's share are of the batches between set-up and the end of an epoch.".to_owned(),
        "Step alone: every batch is there when the step asks, and no worker runs beside it.".to_owned(),
    ]);
    report.notes.push(
        "Twice: the pipeline with this part of its work done once more for the same pixels, and nothing else changed. How much \
         longer it then takes is what the part costs it; what takes time beside something slower does not show."
            .to_owned(),
    );
    if on_gpu {
        report.tables[0].blank.push("decoded twice, operations twice: the operations run on the GPU.".to_owned());
    } else {
        let reason = no_gpu().unwrap_or_else(|| "the operations run on the CPU".to_owned());
        report.tables[0].blank.push(format!("sent twice, kernels twice: {reason}."));
    }
    let spreads: Map<String, Value> =
        Part::ALL.into_iter().map(|part| (part.name().to_owned(), measured.with_rounds(part))).collect();
    report.figures = json!({ "bottleneck": bottleneck, "gain": gain, "findings": findings, "rounds": spreads });
    Ok(Diagnosis { report, bottleneck, gain })
}

/// A part that is measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
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
    const ALL: [Self; 9] = [
        Self::Read,
        Self::ReadDecode,
        Self::Pipeline,
        Self::DecodeTwice,
        Self::OperationsTwice,
        Self::TransferTwice,
        Self::KernelsTwice,
        Self::Step,
        Self::Whole,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadDecode => "read, decode",
            Self::Pipeline => "pipeline alone",
            Self::DecodeTwice => "decoded twice",
            Self::OperationsTwice => "operations twice",
            Self::TransferTwice => "sent twice",
            Self::KernelsTwice => "kernels twice",
            Self::Step => "step alone",
            Self::Whole => "whole",
        }
    }

    /// What the part does twice.
    fn twice(self) -> Option<Twice> {
        match self {
            Self::DecodeTwice => Some(Twice::Decode),
            Self::OperationsTwice => Some(Twice::Operations),
            Self::TransferTwice => Some(Twice::Transfer),
            Self::KernelsTwice => Some(Twice::Kernels),
            _ => None,
        }
    }

    /// Whether the part is measured where operations run on a GPU, or on the CPU.
    fn is_measured(self, on_gpu: bool) -> bool {
        match self.twice() {
            Some(Twice::Decode | Twice::Operations) => !on_gpu,
            Some(Twice::Transfer | Twice::Kernels) => on_gpu,
            None => true,
        }
    }
}

/// Results of all rounds.
#[derive(Default)]
struct Measured {
    /// Images per second in every round of every part.
    rates: Vec<(Part, f64)>,
    reading: Reading,
    /// Rounds of the parts that are pipelines.
    runs: Vec<(Part, RunTimes)>,
    /// The training step's share of the time, in each round of the whole.
    accelerator_use: Vec<f64>,
}

impl Measured {
    /// Measures a part once more. Returns images per second, infinite for a step that does nothing.
    fn add(&mut self, part: Part, subject: &Subject, settings: &DiagnoseSettings, model: &mut Model) -> Result<f64> {
        let time = settings.time / settings.rounds.max(1);
        let builder = builder(subject, settings, settings.ops.clone());
        let run = match part {
            Part::Read | Part::ReadDecode => {
                let reading = read(subject, settings.threads.max(1), time, part == Part::ReadDecode)?;
                if part == Part::Read {
                    self.reading += reading;
                }
                Err(reading.images_per_s())
            }
            Part::Step => Err(step_alone(builder, time, model.step.as_mut())?),
            Part::Whole => {
                let mut ignore = |_: &_| Ok(());
                let mut run = TrainingRun::start(model.step.as_mut(), &mut ignore);
                run.for_time(&builder.build()?, time)?;
                Ok(run.finish())
            }
            _ => {
                let pipeline = match part.twice() {
                    Some(part) => builder.build_twice(part)?,
                    None => builder.build()?,
                };
                Ok(alone(&pipeline, time)?)
            }
        };
        let rate = match run {
            Ok(run) => {
                let steady = SteadyState::of(&run.epochs);
                let rate = steady.map_or(0.0, |steady| steady.images_per_s);
                if part == Part::Whole {
                    self.accelerator_use.push(steady.map_or(0.0, |steady| steady.accelerator_use));
                }
                self.runs.push((part, run));
                rate
            }
            Err(rate) => rate,
        };
        self.rates.push((part, rate));
        Ok(rate)
    }

    /// The rounds of a part; `None` if it was not run, or takes no time.
    fn spread(&self, part: Part) -> Option<Spread> {
        let rates: Vec<f64> = self.rates.iter().filter(|rate| rate.0 == part).map(|rate| rate.1).collect();
        Spread::of(&rates).filter(|spread| spread.median.is_finite())
    }

    /// The rounds of a part for JSON.
    fn with_rounds(&self, part: Part) -> Value {
        let rates: Vec<f64> = self.rates.iter().filter(|rate| rate.0 == part).map(|rate| rate.1).collect();
        self.spread(part).map_or(Value::Null, |_| with_rounds(&rates))
    }

    /// Medians. The rate of reading from a pipe is limited to `intake`, the rate at which it delivered the kept images.
    fn rates(&self, intake: Option<f64>) -> Rates {
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
    fn table(&self, rates: &Rates) -> ReportTable {
        let columns = ["part", "images/s", "from", "to", "of the whole, times", "longer than alone, %"];
        let mut table = ReportTable::new("parts", "How fast each part would be alone", &columns);
        for part in Part::ALL {
            let spread = self.spread(part);
            let of = |of: fn(Spread) -> f64| Cell::number(spread.map(of), 0);
            let times = spread.map(|spread| spread.median / rates.whole.max(1e-9));
            let row = [of(|spread| spread.median), of(|spread| spread.low), of(|spread| spread.high)];
            let longer =
                spread.filter(|_| part.twice().is_some()).map(|spread| 100.0 * (rates.pipeline / spread.median - 1.0));
            let last = [Cell::number(times, 2), Cell::number(longer, 0)];
            table.rows.push([part.name().into()].into_iter().chain(row).chain(last).collect());
        }
        if rates.step.is_infinite() {
            table.blank.push("the step alone: it does nothing.".to_owned());
        }
        table
    }

    /// Time of the pipeline's workers per image and stage, in each round.
    fn stage_rounds(&self) -> StageRounds {
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
    fn per_image(&self) -> PerImage {
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

fn builder(subject: &Subject, settings: &DiagnoseSettings, ops: Vec<Transform>) -> PipelineBuilder {
    let builder = subject.builder().batch_size(settings.batch_size).threads(settings.threads);
    ops.into_iter().fold(builder.strategy(settings.strategy), PipelineBuilder::transform)
}

/// Runs a pipeline without a training step.
fn alone(pipeline: &Pipeline, time: Duration) -> Result<RunTimes> {
    let (mut none, mut ignore) = (Model::none(), |_: &_| Ok(()));
    let mut run = TrainingRun::start(none.step.as_mut(), &mut ignore);
    run.for_time(pipeline, time)?;
    Ok(run.finish())
}
