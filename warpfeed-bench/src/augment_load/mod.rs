//! Measures how long an epoch takes as augmentation grows, on the CPU and on the GPU, for training steps of several
//! lengths.
//!
//! This repeats the comparison that Amazon and NVIDIA published for SageMaker and DALI ([`SAGEMAKER_DALI`]). Trial A
//! augments on the CPU, trial B on the GPU. Their operations differ, so trial A's also run on the GPU.

mod plots;

use super::published::{self, SAGEMAKER_DALI};
use super::report::{Cell, Report, ReportTable};
use super::spread::{Spread, turns, with_rounds};
use super::subject::{Model, Subject, no_gpu};
use super::train::{RunTimes, SteadyState, TrainingRun, about_setup, measured_epochs, skipped};
use super::trial::{Trial, loaded};
use super::usage::{Percentiles, Usage, UsageMonitor, percentiles, too_few};
use super::utilization;
use super::verdict::{self, Verdict, default_rounds, in_percent, in_turn, level};
use serde_json::json;
use warpfeed::{Device, Error, PipelineBuilder, Preset, Result, Strategy};

/// AugmentLoadSettings of the experiment.
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

    fn file(self) -> String {
        self.name().to_lowercase().replace(", ", "-")
    }
}

/// Results of one case.
struct Case {
    model: usize,
    load: u32,
    arm: Arm,
    /// The case's rounds.
    runs: Vec<RunTimes>,
    /// Utilization in each round.
    usage: Vec<Usage>,
}

impl Case {
    fn figures(&self, of: impl Fn(&RunTimes) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(of).collect()
    }

    /// Median of a figure over the rounds.
    fn median(&self, of: impl Fn(&RunTimes) -> Option<f64>) -> Option<f64> {
        Spread::of(&self.figures(of)).map(|spread| spread.median)
    }

    /// A figure of the steady state in each round.
    fn steady(&self, of: fn(&SteadyState) -> f64) -> Vec<f64> {
        self.figures(|run| run.steady().map(|steady| of(&steady)))
    }

    /// Images per second that the training step takes; `None` if it takes no time.
    fn of_step(&self) -> Option<f64> {
        Spread::of(&self.figures(|run| run.images_per_s_of_step())).map(|rate| rate.median)
    }

    fn accelerator_use(&self) -> Option<f64> {
        Spread::of(&self.steady(|steady| steady.accelerator_use)).map(|share| share.median)
    }

    /// Percentiles of the waits in all rounds.
    fn waits(&self) -> Option<Percentiles> {
        percentiles(&self.runs.iter().flat_map(RunTimes::waits).collect::<Vec<_>>())
    }
}

/// Reduction from `old` to `new`, in percent.
fn improvement(old: Option<f64>, new: Option<f64>) -> Option<f64> {
    Some(100.0 * (1.0 - new? / old?))
}

/// Seconds of the steady state that the images of an epoch take, of all cases by round.
struct Measured {
    /// Model, load and way to augment of each case, and its seconds.
    cases: Vec<((usize, u32, Arm), Vec<f64>)>,
    /// The lowest and the highest load.
    loads: (u32, u32),
    /// The way to augment that the others are compared with.
    first: Arm,
    level: f64,
}

impl Measured {
    /// `None` without cases.
    fn of(cases: Vec<((usize, u32, Arm), Vec<f64>)>) -> Option<Self> {
        let &((_, _, first), _) = cases.first()?;
        let loads = cases.iter().map(|((_, load, _), _)| *load);
        let loads = (loads.clone().min()?, loads.max()?);
        // Each way at the highest load is compared with the lowest, and at each load with the first way.
        let grows = cases.iter().filter(|((_, load, _), _)| *load == loads.1 && loads.0 < loads.1).count();
        let others = cases.iter().filter(|((_, _, arm), _)| *arm != first).count();
        Some(Self { cases, loads, first, level: level(grows + others) })
    }

    fn figures(&self, case: (usize, u32, Arm)) -> Option<&[f64]> {
        self.cases.iter().find(|(of, _)| *of == case).map(|(_, seconds)| seconds.as_slice())
    }

    fn seconds(&self, model: usize, load: u32, arm: Arm) -> Option<Spread> {
        Spread::of(self.figures((model, load, arm))?)
    }

    /// Case `b` against case `a` of a model; `None` if either was not run.
    fn verdict(&self, model: usize, a: (u32, Arm), b: (u32, Arm)) -> Option<Verdict> {
        let of_model: Vec<_> =
            self.cases.iter().filter(|((of, ..), seconds)| *of == model && !seconds.is_empty()).collect();
        let find = |(load, arm)| of_model.iter().position(|(of, _)| *of == (model, load, arm));
        let seconds: Vec<&[f64]> = of_model.iter().map(|(_, seconds)| seconds.as_slice()).collect();
        Some(in_turn(&seconds, find(a)?, find(b)?, self.level))
    }

    /// Share of the time that a way saves against the first at a load, in percent; `None` if the rounds show none.
    fn saved(&self, model: usize, load: u32, arm: Arm) -> Option<f64> {
        match self.verdict(model, (load, self.first), (load, arm))? {
            Verdict::Smaller(ratio) | Verdict::Larger(ratio) => Some(100.0 * (1.0 - ratio.estimate)),
            _ => None,
        }
    }

    /// Sentences on a model. `rates`: what was measured at the highest load; `None` without a training step.
    fn answer(&self, model: usize, name: &str, rates: &dyn Fn(Arm) -> Option<StepRates>) -> Vec<String> {
        let (low, high) = self.loads;
        let arms =
            self.cases.iter().filter(|((of, load, _), _)| (*of, *load) == (model, high)).map(|((.., arm), _)| *arm);
        let part = |arm: Arm| {
            let (from, to) = (self.seconds(model, low, arm)?, self.seconds(model, high, arm)?);
            let rates = rates(arm);
            let busy = rates.map_or_else(String::new, |rates| format!(", accelerator use {:.0} %", 100.0 * rates.busy));
            if low == high {
                return Some(format!("{:.2} s with {}{busy}", to.median, arm.name()));
            }
            let longer = self.verdict(model, (low, arm), (high, arm))?.words("shorter", "longer");
            let why = rates.and_then(StepRates::why).unwrap_or_default();
            Some(format!("{longer} with {}{why} ({:.2} to {:.2} s{busy})", arm.name(), from.median, to.median))
        };
        let parts = arms.clone().filter_map(part).collect::<Vec<_>>().join("; ");
        let mut answer = vec![if low == high {
            format!("{name}: at load {high} an epoch takes {parts}.")
        } else {
            let published = published::seconds(name, low).zip(published::seconds(name, high)).map(|(from, to)| {
                let change = in_percent(to.trial_a_s / from.trial_a_s, "shorter", "longer");
                format!("published with trial A, {change}; here, ")
            });
            let published = published.unwrap_or_default();
            format!("{name}, time of an epoch at load {high} against load {low}: {published}{parts}.")
        }];
        let on_gpu = arms.into_iter().find(|arm| *arm == Arm::BGpu);
        let against = on_gpu.and_then(|arm| self.verdict(model, (high, self.first), (high, arm)));
        answer.extend(against.map(|verdict| {
            let words = verdict.words("shorter", "longer");
            let published = published::seconds(name, high).map(|epoch| {
                format!("published, {}; here, ", in_percent(epoch.trial_b_s / epoch.trial_a_s, "shorter", "longer"))
            });
            let published = published.unwrap_or_default();
            format!(
                "{name}, time of trial B on the GPU at load {high}, against {}: {published}{words}.",
                self.first.name()
            )
        }));
        answer
    }
}

/// Rates with a training step, in images per second.
#[derive(Debug, Clone, Copy)]
struct StepRates {
    /// Accelerator use, 0 to 1.
    busy: f64,
    /// Rate of the pipeline alone, if it was measured.
    pipeline: Option<f64>,
    /// Rate that the step takes, if it takes time.
    step: Option<f64>,
}

impl StepRates {
    /// The reason why an epoch grows or does not.
    fn why(self) -> Option<String> {
        let (pipeline, step) = self.pipeline.zip(self.step)?;
        Some(format!(", since the pipeline alone makes {pipeline:.0} images/s and the step takes {step:.0}"))
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
    if settings.loads.is_empty() || settings.strategies.is_empty() || settings.epochs == 0 || models.is_empty() {
        return Err(Error::parameter(
            "augment-load",
            "loads, strategies, epochs and models",
            "one or more of each",
            "none",
        ));
    }
    let mut report =
        subject.report("augment-load", "What does augmentation cost a training, on the CPU and on the GPU?")?;
    let no_gpu = no_gpu();
    if let Some(preset) = settings.suite.filter(|preset| preset.suite().is_none()) {
        let expected = "auto-augment, rand-augment, trivial-augment or aug-mix";
        return Err(Error::parameter("augment-load", "preset", expected, preset));
    }
    let mut arms = settings.arms();
    if no_gpu.is_some() {
        arms.retain(|arm| !arm.needs_gpu());
    }
    let mut cases = Vec::new();
    for model in 0..models.len() {
        for &load in &settings.loads {
            cases.extend(arms.iter().map(|&arm| {
                let (runs, usage) = (Vec::new(), Vec::new());
                Case { model, load, arm, runs, usage }
            }));
        }
    }
    let turns = turns(cases.len(), settings.rounds, subject.seed);
    let (all, mut threads) = (turns.len(), 0);
    for (done, (_, number)) in turns.into_iter().enumerate() {
        let case = &mut cases[number];
        let model = &mut models[case.model];
        threads = measure(subject, settings, model, case)?;
        let seconds = case.runs.last().and_then(RunTimes::steady).map_or(0.0, |steady| steady.epoch_s);
        let (load, arm) = (case.load, case.arm.name());
        progress(&format!("{}/{all} {}, load {load}, {arm}: {seconds:.2} s per epoch", done + 1, model.name));
    }
    report.measured();
    let seconds = cases.iter().map(|case| ((case.model, case.load, case.arm), case.steady(|steady| steady.epoch_s)));
    let seconds = Measured::of(seconds.collect())
        .ok_or_else(|| Error::parameter("augment-load", "strategies", "one or more", "none"))?;
    let images = cases.iter().flat_map(|case| &case.runs).flat_map(|run| run.epochs.first());
    report.settings = json!({
        "trials": arms.iter().map(|arm| arm.name()).collect::<Vec<_>>(), "loads": settings.loads,
        "batch_size": settings.batch_size, "threads": threads, "epochs": settings.epochs, "rounds": settings.rounds.max(1),
        "images_per_epoch": images.map(|epoch| epoch.images).max(), "seed": subject.seed,
        "models": models.iter().map(|model| json!({ "name": model.name, "step": model.about() })).collect::<Vec<_>>(),
    });
    let names = |case: &Case| {
        vec![models[case.model].name.as_str().into(), Cell::number(f64::from(case.load), 0), case.arm.name().into()]
    };
    let usage = cases.iter().map(|case| (names(case), &case.usage[..]));
    report.tables = vec![
        summary(settings, models, &seconds),
        growth(settings, models, &seconds),
        published_table(),
        published_utilization(settings, models, &cases),
        details(models, &cases),
        utilization::table(&["model", "load", "trial"], usage),
    ];
    report.publications.push(SAGEMAKER_DALI);
    answer(&mut report, models, &cases, &seconds, no_gpu.as_deref());
    plots::add(&mut report, settings, models, &cases, &seconds);
    report.notes.extend(skipped(cases.iter().flat_map(|case| &case.runs)));
    report.notes.extend([
        verdict::note(settings.rounds),
        measured_epochs(settings.epochs),
        "What is saved is a share of the time, blank where the rounds show no difference. Heat maps and timelines are of the \
         last round."
            .to_owned(),
        utilization::NOTE.to_owned(),
        "Accelerator use is the share of the time that was spent in the training step.".to_owned(),
        "B's operations are those published: flips both ways, 5 degrees bilinear on a growing canvas; they are more work \
         than A's. A on the GPU is the matched comparison."
            .to_owned(),
    ]);
    report.figures = json!({
        "cases": cases.iter().map(|case| json!({
            "model": models[case.model].name, "load": case.load, "trial": case.arm.name(),
            "seconds_per_epoch": Spread::of(&case.figures(RunTimes::later_seconds)),
            "steady_seconds_per_epoch": seconds.seconds(case.model, case.load, case.arm),
            "steady_images_per_s": with_rounds(&case.steady(|steady| steady.images_per_s)),
            "setup_s": with_rounds(&case.figures(RunTimes::setup_s)),
            "accelerator_use": case.accelerator_use(), "wait_s": case.waits(),
            "runs": case.runs, "utilization": utilization::figures(&case.usage),
        })).collect::<Vec<_>>(),
        "published": published::EPOCHS,
        "gpu_not_run": no_gpu,
    });
    Ok(report)
}

/// Runs a case once more. Returns the number of worker threads.
fn measure(subject: &Subject, settings: &AugmentLoadSettings, model: &mut Model, case: &mut Case) -> Result<usize> {
    let builder = subject.builder().batch_size(settings.batch_size);
    let load = case.load;
    let builder = builder.device(if case.arm.needs_gpu() { Device::Cuda(0) } else { Device::Cpu });
    let (builder, ops) = match case.arm {
        Arm::A(strategy) => (builder.strategy(strategy), Trial::A { load }.ops()),
        Arm::BGpu => (builder, Trial::B { load }.ops()),
        Arm::AGpu => (builder, Trial::A { load }.ops()),
        Arm::Suite(preset) | Arm::SuiteGpu(preset) => (builder, loaded(preset, load)),
    };
    let pipeline = ops.into_iter().fold(builder, PipelineBuilder::transform).build()?;
    let monitor = UsageMonitor::start();
    let mut ignore = |_: &_| Ok(());
    let mut run = TrainingRun::start(model.step.as_mut(), &mut ignore);
    for epoch in 0..settings.epochs {
        run.epoch(&pipeline, epoch, None)?;
    }
    case.runs.push(run.finish());
    case.usage.push(monitor.stop());
    Ok(pipeline.threads())
}

/// Table of the seconds per epoch, beside the published ones.
fn summary(settings: &AugmentLoadSettings, models: &[Model], seconds: &Measured) -> ReportTable {
    let arms = settings.arms();
    let (first, others) = (arms[0], &arms[1..]);
    let mut columns = vec!["model".to_owned(), "load".to_owned()];
    columns.extend(arms.iter().flat_map(|arm| [format!("{}, s", arm.name()), format!("{}, ± %", arm.name())]));
    columns.extend(others.iter().map(|arm| format!("{} saves, %", arm.name())));
    columns.extend(["published A, s", "published B, s", "published B saves, %"].map(str::to_owned));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let title = format!("Seconds per epoch without set-up, and the time saved against {}", first.name());
    let mut table = ReportTable::new("seconds-per-epoch", title, &columns);
    let mut hidden = false;
    for (number, model) in models.iter().enumerate() {
        for &load in &settings.loads {
            let mut row = vec![model.name.as_str().into(), Cell::number(f64::from(load), 0)];
            row.extend(arms.iter().flat_map(|&arm| {
                let seconds = seconds.seconds(number, load, arm);
                let share = seconds.filter(|seconds| seconds.rounds > 1).map(|seconds| 100.0 * seconds.share());
                [Cell::number(seconds.map(|seconds| seconds.median), 3), Cell::number(share, 1)]
            }));
            let saved: Vec<Option<f64>> = others.iter().map(|&arm| seconds.saved(number, load, arm)).collect();
            hidden |= others
                .iter()
                .zip(&saved)
                .any(|(&arm, saved)| saved.is_none() && seconds.seconds(number, load, arm).is_some());
            row.extend(saved.into_iter().map(|saved| Cell::number(saved, 1)));
            let published = published::seconds(&model.name, load);
            let (a, b) = (published.map(|p| p.trial_a_s), published.map(|p| p.trial_b_s));
            row.extend([Cell::number(a, 2), Cell::number(b, 2), Cell::number(improvement(a, b), 1)]);
            table.rows.push(row);
        }
    }
    if hidden {
        table.blank.push("what is saved: the rounds show no difference.".to_owned());
    }
    table
}

/// Time that a model's times are compared with: its first way to augment at the lowest load.
fn reference(settings: &AugmentLoadSettings, model: usize, seconds: &Measured) -> Option<f64> {
    let low = settings.loads.iter().min()?;
    Some(seconds.seconds(model, *low, Arm::A(*settings.strategies.first()?))?.median)
}

/// Ratio of a published time to trial A's published time at the lowest load of `loads`.
fn published_growth(loads: &[u32], model: &str, load: u32, of: fn(&published::PublishedEpoch) -> f64) -> Option<f64> {
    let low = published::seconds(model, *loads.iter().min()?)?;
    Some(of(published::seconds(model, load)?) / low.trial_a_s)
}

/// Table of the times relative to the lowest load: measured and published ones by the same measure.
fn growth(settings: &AugmentLoadSettings, models: &[Model], seconds: &Measured) -> ReportTable {
    let arms = settings.arms();
    let low = settings.loads.iter().min().copied().unwrap_or(0);
    let columns = arms.iter().map(|arm| arm.name()).chain(["published A", "published B"].map(str::to_owned));
    let columns: Vec<String> = ["model", "load"].map(str::to_owned).into_iter().chain(columns).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let title = format!("Times the epoch of {} at load {low}; published, of A at load {low}", arms[0].name());
    let mut table = ReportTable::new("growth", title, &columns);
    for (number, model) in models.iter().enumerate() {
        let reference = reference(settings, number, seconds);
        for &load in &settings.loads {
            let mut row = vec![model.name.as_str().into(), Cell::number(f64::from(load), 0)];
            let own = |&arm: &Arm| Some(seconds.seconds(number, load, arm)?.median / reference?);
            row.extend(arms.iter().map(|arm| Cell::number(own(arm), 2)));
            let published = |of: fn(&published::PublishedEpoch) -> f64| {
                Cell::number(published_growth(&settings.loads, &model.name, load, of), 2)
            };
            row.extend([published(|epoch| epoch.trial_a_s), published(|epoch| epoch.trial_b_s)]);
            table.rows.push(row);
        }
    }
    table
}

/// Table of all published figures.
fn published_table() -> ReportTable {
    let title = "Published seconds per epoch, what trial B saves, and times trial A at load 1";
    let columns = ["model", "load", "A, s", "B, s", "B saves, %", "A, times", "B, times"];
    let mut table = ReportTable::new("published", title, &columns);
    table.in_files_only = true;
    for epoch in &published::EPOCHS {
        let growth = |of: fn(&published::PublishedEpoch) -> f64| {
            Cell::number(published_growth(&[1], epoch.model, epoch.load, of), 2)
        };
        table.rows.push(vec![
            epoch.model.into(),
            Cell::number(f64::from(epoch.load), 0),
            Cell::number(epoch.trial_a_s, 2),
            Cell::number(epoch.trial_b_s, 2),
            Cell::number(improvement(Some(epoch.trial_a_s), Some(epoch.trial_b_s)), 1),
            growth(|epoch| epoch.trial_a_s),
            growth(|epoch| epoch.trial_b_s),
        ]);
    }
    table
}

/// Table of the published 95th percentiles of utilization beside those of the same model and load.
fn published_utilization(settings: &AugmentLoadSettings, models: &[Model], cases: &[Case]) -> ReportTable {
    let (model, load) = published::UTILIZATION_OF;
    let arms = settings.arms();
    let columns = ["of", "published A, %", "published B, %"].map(str::to_owned).into_iter();
    let columns: Vec<String> = columns.chain(arms.iter().map(|arm| format!("{}, %", arm.name()))).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let title = format!("95th percentile of utilization, {model} at load {load}");
    let mut table = ReportTable::new("published-utilization", title, &columns);
    let of_case = |arm: Arm, of: &str| {
        let case = cases.iter().find(|case| (&*models[case.model].name, case.load, case.arm) == (model, load, arm))?;
        utilization::p95(of, &case.usage)
    };
    for (of, a, b) in published::UTILIZATION {
        let own = arms.iter().map(|&arm| Cell::number(of_case(arm, of), 0));
        let published = [of.into(), Cell::number(a, 0), Cell::number(b, 0)];
        table.rows.push(published.into_iter().chain(own).collect());
    }
    table
        .blank
        .push(format!("{model} at load {load} was not run so, there is no GPU, or there are fewer than 20 samples."));
    table
}

/// Table of all cases with their times.
fn details(models: &[Model], cases: &[Case]) -> ReportTable {
    let mut table = ReportTable::new(
        "cases",
        "Every case",
        &[
            "model",
            "load",
            "trial",
            "images/s",
            "per epoch, s",
            "set-up, s",
            "first epoch, s",
            "accelerator use, %",
            "wait p50, ms",
            "wait p95, ms",
            "wait p99, ms",
        ],
    );
    table.in_files_only = true;
    let mut few = false;
    for case in cases {
        let steady = |of: fn(&SteadyState) -> f64| case.median(|run| run.steady().map(|steady| of(&steady)));
        let mut row = vec![models[case.model].name.as_str().into(), Cell::number(f64::from(case.load), 0)];
        row.push(case.arm.name().into());
        row.push(Cell::number(steady(|steady| steady.images_per_s), 0));
        row.push(Cell::number(steady(|steady| steady.epoch_s), 3));
        row.push(Cell::number(case.median(RunTimes::setup_s), 3));
        row.push(Cell::number(case.median(|run| Some(run.epochs.first()?.seconds)), 3));
        row.push(Cell::number(case.accelerator_use().map(|share| 100.0 * share), 1));
        let wait = case.waits();
        few |= wait.is_some_and(|wait| wait.p99.is_none());
        let ms = |of: fn(Percentiles) -> Option<f64>| Cell::number(wait.and_then(of).map(|seconds| 1e3 * seconds), 2);
        row.extend([ms(|p| Some(p.p50)), ms(|p| p.p95), ms(|p| p.p99)]);
        table.rows.push(row);
    }
    table.blank.extend(few.then(|| format!("wait: {}", too_few("batches"))));
    table
}

fn answer(report: &mut Report, models: &[Model], cases: &[Case], seconds: &Measured, no_gpu: Option<&str>) {
    for (number, model) in models.iter().enumerate() {
        let find = |model: usize, arm| {
            cases.iter().find(|case| (case.model, case.load, case.arm) == (model, seconds.loads.1, arm))
        };
        let rates = |arm| {
            let case = find(number, arm).filter(|_| model.name != "none")?;
            let alone = models.iter().position(|model| model.name == "none").and_then(|none| find(none, arm));
            let pipeline = alone.and_then(|alone| alone.median(|run| Some(run.steady()?.images_per_s)));
            Some(StepRates { busy: case.accelerator_use()?, pipeline, step: case.of_step() })
        };
        let name = if model.name == "none" { "The pipeline alone" } else { &model.name };
        report.answer.extend(seconds.answer(number, name, &rates));
    }
    report.answer.extend(about_setup(cases.iter().flat_map(|case| &case.runs)));
    if let Some(reason) = no_gpu {
        report.answer.push("Trial B, and trial A on the GPU, were not run: there is no GPU to run them on.".to_owned());
        let load = seconds.loads.1;
        let saved = |model: &Model| {
            let epoch = published::seconds(&model.name, load)?;
            Some(format!("{} with {}", in_percent(epoch.trial_b_s / epoch.trial_a_s, "shorter", "longer"), model.name))
        };
        let saved: Vec<String> = models.iter().filter_map(saved).collect();
        if !saved.is_empty() {
            report.answer.push(format!(
                "Published, time of an epoch with trial B on the GPU at load {load}, against trial A: {}.",
                saved.join(", ")
            ));
        }
        for table in report.tables.iter_mut().filter(|table| ["seconds-per-epoch", "growth"].contains(&table.name)) {
            table.blank.push(format!("the GPU's columns: {reason}."));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::configurations::tests::tells;
    use super::super::verdict::simulated::{Noise, QUIET, rates};
    use super::*;

    const ARMS: [Arm; 2] = [Arm::A(Strategy::Sequential), Arm::A(Strategy::Fused)];

    /// Seconds of four models. `seconds`: those of a load and a way.
    fn made(report: u64, seconds: impl Fn(u32, Arm) -> f64, noise: Noise) -> Measured {
        let AugmentLoadSettings { loads, rounds, .. } = AugmentLoadSettings::default();
        let of_model = |model| {
            let keys: Vec<_> = loads.iter().flat_map(|&load| ARMS.map(|arm| (model, load, arm))).collect();
            let medians: Vec<f64> = keys.iter().map(|&(_, load, arm)| 1.0 / seconds(load, arm)).collect();
            let rates = rates(4 * report + model as u64, &medians, rounds, noise).into_iter();
            let seconds = rates.map(|rates| rates.into_iter().map(|rate| 1.0 / rate).collect::<Vec<f64>>());
            keys.into_iter().zip(seconds).collect::<Vec<_>>()
        };
        Measured::of((0..4).flat_map(of_model).collect()).unwrap()
    }

    fn answer(measured: &Measured, model: usize) -> String {
        let rates = StepRates { busy: 0.5, pipeline: Some(556.0), step: Some(444.0) };
        measured.answer(model, "resnet18", &|_| Some(rates)).join(" ")
    }

    #[test]
    fn equal_loads_are_told_apart_in_one_of_a_hundred_reports_at_most() {
        let told = |report: &u64| {
            let measured = made(*report, |_, _| 0.5, QUIET);
            let saves = |model| [1, 4, 8, 12].iter().any(|&load| measured.saved(model, load, ARMS[1]).is_some());
            (0..4).any(|model| saves(model) || tells(&answer(&measured, model)))
        };
        let told = (0..1_000).filter(told).count();
        assert!(told <= 10, "{told} of 1,000 reports");
    }

    #[test]
    fn loads_that_take_5_percent_longer_are_found() {
        let (mut grows, mut saves) = (0, 0);
        for report in 0..100 {
            let measured = made(report, |load, arm| if load == 12 && arm == ARMS[0] { 0.525 } else { 0.5 }, QUIET);
            for model in 0..4 {
                let verdict = measured.verdict(model, (1, ARMS[0]), (12, ARMS[0])).unwrap();
                grows += usize::from(matches!(verdict, Verdict::Larger(_)));
                assert_eq!(verdict.differs(), tells(answer(&measured, model).split(';').nth(1).unwrap()));
                saves += usize::from(measured.saved(model, 12, ARMS[1]).is_some());
            }
        }
        assert!(grows >= 360 && saves >= 360, "{grows} and {saves} of 400 found");
    }

    #[test]
    fn published_growth_stands_beside_ours_with_the_reason() {
        let measured = made(0, |load, arm| if load == 12 && arm == ARMS[0] { 1.0 } else { 0.5 }, QUIET);
        let answer = answer(&measured, 0);
        let begin = "resnet18, time of an epoch at load 12 against load 1: published with trial A, 87 % longer; here, ";
        assert!(answer.starts_with(begin), "{answer}");
        let why = "since the pipeline alone makes 556 images/s and the step takes 444 (";
        assert!(answer.contains(&format!("with A, CPU, sequential, {why}")), "{answer}");
        assert!(answer.contains(&format!("with A, CPU, fused, {why}")), "{answer}");
        assert!(!measured.answer(0, "vit", &|_| None).join(" ").contains("published"));
    }

    #[test]
    fn published_utilization_stands_beside_that_of_its_case() {
        let models = [super::super::subject::Model { name: "resnet18".to_owned(), ..Model::none() }];
        let usage = Usage { cores: vec![vec![0.5; 20]], ..Usage::default() };
        let case = Case { model: 0, load: 12, arm: ARMS[1], runs: Vec::new(), usage: vec![usage] };
        let table = published_utilization(&AugmentLoadSettings::default(), &models, &[case]);
        let rows: Vec<Vec<String>> = table.rows.iter().map(|row| row.iter().map(Cell::text).collect()).collect();
        assert_eq!(rows, [["CPU", "100", "65", "", "50", "", ""], ["GPU", "31", "55", "", "", "", ""]]);
    }

    #[test]
    fn one_load_is_told_without_growth() {
        let seconds = |arm| ((0, 4, arm), vec![0.5]);
        let measured = Measured::of(ARMS.map(seconds).into()).unwrap();
        let answer = answer(&measured, 0);
        assert!(
            answer.starts_with("resnet18: at load 4 an epoch takes 0.50 s with A, CPU, sequential, acc"),
            "{answer}"
        );
        assert_eq!(measured.saved(0, 4, ARMS[1]), None, "one round shows nothing");
    }
}
