//! Measures how long an epoch takes as augmentation grows: the comparison that Amazon and NVIDIA published
//! ([`SAGEMAKER_DALI`]).

mod answer;
mod plots;
mod tables;

use super::grid::{self, in_rounds};
use super::published::{self, SAGEMAKER_DALI};
use super::report::Report;
use super::spread::{Spread, with_rounds};
use super::subject::{Model, Subject, no_gpu};
use super::train::{RunTimes, about_setup, ignore, measured_epochs, skipped};
use super::trial::{Trial, loaded};
use super::utilization;
use super::verdict::{self, default_rounds};
use answer::Measured;
use serde_json::json;
use warpfeed::{Device, Error, Pipeline, PipelineBuilder, Preset, Result, Strategy};

/// Settings of the experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct AugmentLoadSettings {
    /// Loads: numbers of repetitions of the flips and the rotation.
    pub loads: Vec<u32>,
    /// Images in a batch.
    pub batch_size: usize,
    /// Epochs of each run. The first is reported separately, unless it is the only one.
    pub epochs: u64,
    /// Runs of each case, in turn with the others. With fewer than [`default_rounds`], smaller differences remain
    /// hidden.
    pub rounds: u32,
    /// Strategies by which the CPU runs trial A.
    pub strategies: Vec<Strategy>,
    /// A preset with an automatic augmentation ([`suite`](Preset::suite)). It gets trials of its own: a random resized
    /// crop and a flip, then the augmentation, repeated as often as the load says, fused.
    pub suite: Option<Preset>,
}

impl Default for AugmentLoadSettings {
    /// The published loads and batches, one epoch in as many rounds as four models' comparisons need, sequential and
    /// fused.
    fn default() -> Self {
        Self {
            loads: vec![1, 4, 8, 12],
            batch_size: 32,
            epochs: 1,
            rounds: default_rounds(24),
            strategies: vec![Strategy::Sequential, Strategy::Fused],
            suite: None,
        }
    }
}

/// One way to augment.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Arm {
    A(Strategy),
    BGpu,
    AGpu,
    Suite(Preset),
    SuiteGpu(Preset),
}

impl AugmentLoadSettings {
    /// Number of comparisons of a report on so many models: each way's growth with the load, and each way against the
    /// first at each load.
    #[must_use]
    pub fn comparisons(&self, models: usize) -> usize {
        let arms = self.arms().into_iter().filter(|arm| !arm.needs_gpu() || no_gpu().is_none()).count();
        models * (arms + arms.saturating_sub(1) * self.loads.len())
    }

    /// All ways to augment.
    fn arms(&self) -> Vec<Arm> {
        let own = self.strategies.iter().map(|&strategy| Arm::A(strategy)).chain([Arm::BGpu, Arm::AGpu]);
        own.chain(self.suite.into_iter().flat_map(|preset| [Arm::Suite(preset), Arm::SuiteGpu(preset)])).collect()
    }
}

impl Arm {
    fn needs_gpu(self) -> bool {
        matches!(self, Self::BGpu | Self::AGpu | Self::SuiteGpu(_))
    }

    fn name(self) -> String {
        match self {
            Self::A(strategy) => format!("A, CPU, {}", format!("{strategy:?}").to_lowercase()),
            Self::BGpu => "B, GPU".to_owned(),
            Self::AGpu => "A, GPU".to_owned(),
            Self::Suite(preset) => format!("{preset}, CPU"),
            Self::SuiteGpu(preset) => format!("{preset}, GPU"),
        }
    }

    fn pipeline(self, load: u32, subject: &Subject, settings: &AugmentLoadSettings) -> Result<Pipeline> {
        let builder = subject.builder().batch_size(settings.batch_size);
        let builder = builder.device(if self.needs_gpu() { Device::Cuda(0) } else { Device::Cpu });
        let (builder, ops) = match self {
            Self::A(strategy) => (builder.strategy(strategy), Trial::A { load }.ops()),
            Self::BGpu => (builder, Trial::B { load }.ops()),
            Self::AGpu => (builder, Trial::A { load }.ops()),
            Self::Suite(preset) | Self::SuiteGpu(preset) => (builder, loaded(preset, load)),
        };
        ops.into_iter().fold(builder, PipelineBuilder::transform).build()
    }

    fn file(self) -> String {
        self.name().to_lowercase().replace(", ", "-")
    }
}

/// What a case measures.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Key {
    model: usize,
    load: u32,
    arm: Arm,
}

type Case = grid::Case<Key>;

/// Everything that was measured, for tables, plots and the answer.
struct Results<'a> {
    loads: &'a [u32],
    models: &'a [Model],
    /// All ways to augment; those that were not run have no cases.
    arms: Vec<Arm>,
    cases: Vec<Case>,
    measured: Measured,
}

impl Results<'_> {
    fn case(&self, model: usize, load: u32, arm: Arm) -> Option<&Case> {
        self.cases.iter().find(|case| case.key == Key { model, load, arm })
    }

    fn lowest_load(&self) -> u32 {
        self.loads.iter().min().copied().unwrap_or(0)
    }

    fn highest_load(&self) -> u32 {
        self.loads.iter().max().copied().unwrap_or(0)
    }

    /// Seconds at a load, as times those of the first way to augment at the lowest load.
    fn growth(&self, model: usize, load: u32, arm: Arm) -> Option<Spread> {
        let by = self.measured.seconds(model, self.lowest_load(), self.arms[0])?.median;
        let Spread { median, low, high, rounds } = self.measured.seconds(model, load, arm)?;
        (by > 0.0).then(|| Spread { median: median / by, low: low / by, high: high / by, rounds })
    }

    /// Published seconds, as times those of trial A at the lowest load.
    fn published_growth(&self, model: usize, load: u32, of: fn(&published::PublishedEpoch) -> f64) -> Option<f64> {
        published::growth(&self.models[model].name, (self.lowest_load(), load), of)
    }
}

/// Runs every model with every load and way to augment. `progress` is called for each case.
///
/// # Errors
/// [`Error::Parameter`] for settings without a load or an epoch; errors of pipelines and steps.
pub fn augment_load(
    subject: &Subject,
    settings: &AugmentLoadSettings,
    models: &mut [Model],
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    let wrong = |parameter, expected, got: String| Error::parameter("augment-load", parameter, expected, got);
    if settings.loads.is_empty() || settings.strategies.is_empty() || settings.epochs == 0 || models.is_empty() {
        let parameters = "loads, strategies, epochs and models";
        return Err(wrong(parameters, "one or more of each", "none".to_owned()));
    }
    let mut report =
        subject.report("augment-load", "What does augmentation cost a training, on the CPU and on the GPU?")?;
    if let Some(preset) = settings.suite.filter(|preset| preset.suite().is_none()) {
        let expected = "auto-augment, rand-augment, trivial-augment or aug-mix";
        return Err(wrong("preset", expected, preset.to_string()));
    }
    let (arms, no_gpu) = (settings.arms(), no_gpu());
    let run: Vec<Arm> = arms.iter().copied().filter(|arm| no_gpu.is_none() || !arm.needs_gpu()).collect();
    let keys = (0..models.len()).flat_map(|model| settings.loads.iter().map(move |&load| (model, load)));
    let keys = keys.flat_map(|(model, load)| run.iter().map(move |&arm| Key { model, load, arm }));
    let mut cases: Vec<Case> = keys.map(Case::new).collect();
    let mut threads = 0;
    in_rounds(&mut cases, (settings.rounds, subject.seed), progress, |case, _| {
        let Key { model, load, arm } = case.key;
        let (pipeline, model) = (arm.pipeline(load, subject, settings)?, &mut models[model]);
        threads = pipeline.threads();
        case.measure(model.step.as_mut(), &mut ignore, |run| {
            (0..settings.epochs).try_for_each(|epoch| run.epoch(&pipeline, epoch, None))
        })?;
        let seconds = case.epochs_s().last().copied().unwrap_or(0.0);
        Ok(format!("{}, load {load}, {}: {seconds:.2} s per epoch", model.name, arm.name()))
    })?;
    report.measured();
    let measured = Measured::of(cases.iter().map(|case| (case.key, case.epochs_s())).collect());
    let measured = measured.ok_or_else(|| wrong("strategies", "one or more", "none".to_owned()))?;
    let results = Results { loads: &settings.loads, models, arms, cases, measured };
    let runs = || results.cases.iter().flat_map(|case| &case.runs);
    report.settings = json!({
        "trials": run.iter().map(|arm| arm.name()).collect::<Vec<_>>(), "loads": settings.loads,
        "batch_size": settings.batch_size, "threads": threads, "epochs": settings.epochs, "rounds": settings.rounds.max(1),
        "images_per_epoch": runs().flat_map(|run| run.epochs.first()).map(|epoch| epoch.images).max(), "seed": subject.seed,
        "models": results.models.iter().map(|model| json!({ "name": model.name, "step": model.about() })).collect::<Vec<_>>(),
    });
    report.tables = results.tables(no_gpu.as_deref());
    report.publications.push(SAGEMAKER_DALI);
    results.answer(&mut report);
    report.answer.extend(about_setup(runs()));
    report
        .answer
        .extend(no_gpu.is_some().then(|| "Trial B, and trial A on the GPU, were not run: there is no GPU.".into()));
    results.plots(&mut report);
    report.notes.extend(skipped(runs()));
    let notes = [
        "Savings are shares of the time. They are blank where the rounds show no difference.",
        "Heat maps and timelines show the last round.",
        utilization::NOTE,
        "Accelerator use is the share of the time that was spent in the training step.",
        "Trial B has its published operations: flips both ways, and 5 degrees bilinear on a growing canvas. They are more work \
         than trial A's. Compare trial A on the CPU with trial A on the GPU for equal work.",
    ];
    report.notes.extend([verdict::note(settings.rounds), measured_epochs(settings.epochs)]);
    report.notes.extend(notes.map(str::to_owned));
    let case = |case: &Case| {
        let Key { model, load, arm } = case.key;
        case.json(json!({
            "model": results.models[model].name, "load": load, "trial": arm.name(),
            "seconds_per_epoch": Spread::of(&case.figures(RunTimes::later_seconds)),
            "steady_seconds_per_epoch": case.seconds(), "steady_images_per_s": with_rounds(&case.rates()),
            "setup_s": with_rounds(&case.figures(RunTimes::setup_s)), "wait_s": case.wait_percentiles(),
        }))
    };
    report.figures = json!({
        "cases": results.cases.iter().map(case).collect::<Vec<_>>(),
        "published": published::EPOCHS, "gpu_not_run": no_gpu,
    });
    Ok(report)
}
