//! Measures how long an epoch takes as augmentation grows, on the CPU and on the GPU, for training steps of several
//! lengths.
//!
//! This repeats the comparison that Amazon and NVIDIA published for SageMaker and DALI ([`SAGEMAKER_DALI`]). Trial A
//! augments on the CPU, trial B on the GPU. Their operations differ, so trial A's also run on the GPU.

mod plots;

use super::published::{self, SAGEMAKER_DALI};
use super::report::{Cell, Report, Table};
use super::spread::{Spread, turns};
use super::subject::{Model, Subject, no_gpu};
use super::train::{Run, RunTimes, rounds_note, skipped};
use super::trial::{Trial, loaded};
use super::usage::{Percentiles, Sampling, Usage, percentiles};
use super::utilization;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::pipeline::Builder;
use crate::plan::Strategy;
use crate::preset::Preset;
use serde_json::json;

/// Settings of the experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Loads: numbers of repetitions of the flips and the rotation.
    pub loads: Vec<u32>,
    /// Images in a batch.
    pub batch_size: usize,
    /// Epochs of each run. The first is reported separately, unless it is the only one.
    pub epochs: u64,
    /// Runs of each case, in turn with the others. The median counts.
    pub rounds: u32,
    /// Strategies by which the CPU runs trial A.
    pub strategies: Vec<Strategy>,
    /// A preset with an automatic augmentation ([`suite`](Preset::suite)). It gets trials of its own: a random resized
    /// crop and a flip, then the augmentation, repeated as often as the load says, fused.
    pub suite: Option<Preset>,
}

impl Default for Settings {
    /// The published loads and batches, three rounds of two epochs, sequential and fused.
    fn default() -> Self {
        Self {
            loads: vec![1, 4, 8, 12],
            batch_size: 32,
            epochs: 2,
            rounds: 3,
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

impl Settings {
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
    fn spread(&self, of: impl Fn(&RunTimes) -> Option<f64>) -> Option<Spread> {
        Spread::of(&self.runs.iter().filter_map(of).collect::<Vec<_>>())
    }

    fn seconds(&self) -> Option<Spread> {
        self.spread(RunTimes::later_seconds)
    }

    fn accelerator_use(&self) -> Option<f64> {
        self.spread(RunTimes::accelerator_use).map(|share| share.median)
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

/// Reduction from `old` to `new`, in percent, as measured; 0 if neither is shorter beyond doubt.
fn saved(old: Option<Spread>, new: Option<Spread>) -> Option<f64> {
    let (old, new) = (old?, new?);
    if old.rounds > 1 && old.equals(&new) { Some(0.0) } else { improvement(Some(old.median), Some(new.median)) }
}

/// Runs every model with every load and way to augment. `progress` is called for each case.
///
/// # Errors
/// [`Error::Parameter`] for settings without a load or an epoch; errors of pipelines and steps.
pub fn augment_load(
    subject: &Subject,
    settings: &Settings,
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
        let seconds = case.runs.last().and_then(RunTimes::later_seconds).unwrap_or(0.0);
        let (load, arm) = (case.load, case.arm.name());
        progress(&format!("{}/{all} {}, load {load}, {arm}: {seconds:.2} s per epoch", done + 1, model.name));
    }
    report.measured();
    let find = |model: usize, load: u32, arm: Arm| {
        cases.iter().find(|case| (case.model, case.load, case.arm) == (model, load, arm))
    };
    let seconds = |model, load, arm| find(model, load, arm).and_then(Case::seconds);
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
        details(models, &cases),
        utilization::table(&["model", "load", "trial"], usage),
    ];
    report.publications.push(SAGEMAKER_DALI);
    answer(&mut report, settings, models, &cases, no_gpu.as_deref());
    plots::add(&mut report, settings, models, &cases, &seconds);
    report.notes.extend(skipped(cases.iter().flat_map(|case| &case.runs)));
    report.notes.extend([
        rounds_note(settings.rounds),
        "Seconds per epoch and images/s are of the epochs after the first, set-up included; what is saved is a share of the \
         time, 0 where the times are equal. Heat maps and timelines are of the last round."
            .to_owned(),
        utilization::NOTE.to_owned(),
        "Accelerator use is the time in the training step over the time of the epochs.".to_owned(),
        "B's operations are those published: flips both ways, 5 degrees bilinear on a growing canvas; they are more work \
         than A's. A on the GPU is the matched comparison."
            .to_owned(),
    ]);
    report.figures = json!({
        "cases": cases.iter().map(|case| json!({
            "model": models[case.model].name, "load": case.load, "trial": case.arm.name(),
            "seconds_per_epoch": case.seconds(), "accelerator_use": case.accelerator_use(),
            "images_per_s": case.spread(RunTimes::later_images_per_s), "wait_s": case.waits(),
            "runs": case.runs, "utilization": utilization::figures(&case.usage),
        })).collect::<Vec<_>>(),
        "published": published::EPOCHS,
        "gpu_not_run": no_gpu,
    });
    Ok(report)
}

/// Runs a case once more. Returns the number of worker threads.
fn measure(subject: &Subject, settings: &Settings, model: &mut Model, case: &mut Case) -> Result<usize> {
    let builder = subject.builder().batch_size(settings.batch_size);
    let load = case.load;
    let builder = builder.device(if case.arm.needs_gpu() { Device::Cuda(0) } else { Device::Cpu });
    let (builder, ops) = match case.arm {
        Arm::A(strategy) => (builder.strategy(strategy), Trial::A { load }.ops()),
        Arm::BGpu => (builder, Trial::B { load }.ops()),
        Arm::AGpu => (builder, Trial::A { load }.ops()),
        Arm::Suite(preset) | Arm::SuiteGpu(preset) => (builder, loaded(preset, load)),
    };
    let pipeline = ops.into_iter().fold(builder, Builder::augment).build()?;
    let sampling = Sampling::start();
    let mut ignore = |_: &_| Ok(());
    let mut run = Run::start(model.step.as_mut(), &mut ignore);
    for epoch in 0..settings.epochs {
        run.epoch(&pipeline, epoch, None)?;
    }
    case.runs.push(run.finish());
    case.usage.push(sampling.stop());
    Ok(pipeline.threads())
}

type Seconds<'a> = &'a dyn Fn(usize, u32, Arm) -> Option<Spread>;

/// Table of the seconds per epoch, beside the published ones.
fn summary(settings: &Settings, models: &[Model], seconds: Seconds<'_>) -> Table {
    let arms = settings.arms();
    let (first, others) = (arms[0], &arms[1..]);
    let mut columns = vec!["model".to_owned(), "load".to_owned()];
    columns.extend(arms.iter().flat_map(|arm| [format!("{}, s", arm.name()), format!("{}, +-%", arm.name())]));
    columns.extend(others.iter().map(|arm| format!("{} saves, %", arm.name())));
    columns.extend(["published A, s", "published B, s", "published B saves, %"].map(str::to_owned));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let title = format!("Seconds per epoch, and the time saved against {}", first.name());
    let mut table = Table::new("seconds-per-epoch", title, &columns);
    for (number, model) in models.iter().enumerate() {
        for &load in &settings.loads {
            let mut row = vec![model.name.as_str().into(), Cell::number(f64::from(load), 0)];
            row.extend(arms.iter().flat_map(|&arm| {
                let seconds = seconds(number, load, arm);
                let share = seconds.filter(|seconds| seconds.rounds > 1).map(|seconds| 100.0 * seconds.share());
                [Cell::number(seconds.map(|seconds| seconds.median), 3), Cell::number(share, 1)]
            }));
            let against = seconds(number, load, first);
            row.extend(others.iter().map(|&arm| Cell::number(saved(against, seconds(number, load, arm)), 1)));
            let published = published::seconds(&model.name, load);
            let (a, b) = (published.map(|p| p.trial_a_s), published.map(|p| p.trial_b_s));
            row.extend([Cell::number(a, 2), Cell::number(b, 2), Cell::number(improvement(a, b), 1)]);
            table.rows.push(row);
        }
    }
    table
}

/// Time that a model's times are compared with: its first way to augment at the lowest load.
fn reference(settings: &Settings, model: usize, seconds: Seconds<'_>) -> Option<f64> {
    let low = settings.loads.iter().min()?;
    Some(seconds(model, *low, Arm::A(*settings.strategies.first()?))?.median)
}

/// Ratio of a published time to trial A's published time at the lowest load of `loads`.
fn published_growth(loads: &[u32], model: &str, load: u32, of: fn(&published::Epoch) -> f64) -> Option<f64> {
    let low = published::seconds(model, *loads.iter().min()?)?;
    Some(of(published::seconds(model, load)?) / low.trial_a_s)
}

/// Table of the times relative to the lowest load: measured and published ones by the same measure.
fn growth(settings: &Settings, models: &[Model], seconds: Seconds<'_>) -> Table {
    let arms = settings.arms();
    let low = settings.loads.iter().min().copied().unwrap_or(0);
    let columns = arms.iter().map(|arm| arm.name()).chain(["published A", "published B"].map(str::to_owned));
    let columns: Vec<String> = ["model", "load"].map(str::to_owned).into_iter().chain(columns).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let title = format!("Times the epoch of {} at load {low}; published, of A at load {low}", arms[0].name());
    let mut table = Table::new("growth", title, &columns);
    for (number, model) in models.iter().enumerate() {
        let reference = reference(settings, number, seconds);
        for &load in &settings.loads {
            let mut row = vec![model.name.as_str().into(), Cell::number(f64::from(load), 0)];
            let own = |&arm: &Arm| Some(seconds(number, load, arm)?.median / reference?);
            row.extend(arms.iter().map(|arm| Cell::number(own(arm), 2)));
            let published = |of: fn(&published::Epoch) -> f64| {
                Cell::number(published_growth(&settings.loads, &model.name, load, of), 2)
            };
            row.extend([published(|epoch| epoch.trial_a_s), published(|epoch| epoch.trial_b_s)]);
            table.rows.push(row);
        }
    }
    table
}

/// Table of all published figures.
fn published_table() -> Table {
    let title = "Published seconds per epoch, what trial B saves, and times trial A at load 1";
    let columns = ["model", "load", "A, s", "B, s", "B saves, %", "A, times", "B, times"];
    let mut table = Table::new("published", title, &columns);
    table.in_files_only = true;
    for epoch in &published::EPOCHS {
        let growth =
            |of: fn(&published::Epoch) -> f64| Cell::number(published_growth(&[1], epoch.model, epoch.load, of), 2);
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

/// Table of all cases with their times.
fn details(models: &[Model], cases: &[Case]) -> Table {
    let mut table = Table::new(
        "cases",
        "Every case",
        &[
            "model",
            "load",
            "trial",
            "images/s",
            "per epoch, s",
            "first epoch, s",
            "accelerator use, %",
            "wait p50, ms",
            "wait p95, ms",
            "wait p99, ms",
        ],
    );
    table.in_files_only = true;
    for case in cases {
        let first =
            Spread::of(&case.runs.iter().filter_map(|run| Some(run.epochs.first()?.seconds)).collect::<Vec<_>>());
        let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
        let mut row = vec![models[case.model].name.as_str().into(), Cell::number(f64::from(case.load), 0)];
        row.push(case.arm.name().into());
        row.push(Cell::number(median(case.spread(RunTimes::later_images_per_s)), 0));
        row.push(Cell::number(median(case.seconds()), 3));
        row.push(Cell::number(median(first), 3));
        row.push(Cell::number(case.accelerator_use().map(|share| 100.0 * share), 1));
        let wait = case.waits();
        let ms = |of: fn(Percentiles) -> f64| Cell::number(wait.map(|p| 1e3 * of(p)), 2);
        row.extend([ms(|p| p.p50), ms(|p| p.p95), ms(|p| p.p99)]);
        table.rows.push(row);
    }
    table
}

fn answer(report: &mut Report, settings: &Settings, models: &[Model], cases: &[Case], no_gpu: Option<&str>) {
    let (Some(&low), Some(&high)) = (settings.loads.iter().min(), settings.loads.iter().max()) else { return };
    for (number, model) in models.iter().enumerate() {
        let mut parts = Vec::new();
        let at = |load, arm| {
            let found = cases.iter().find(|case| (case.model, case.load, case.arm) == (number, load, arm));
            found.and_then(Case::seconds)
        };
        for case in cases.iter().filter(|case| case.model == number && case.load == high) {
            let (Some(from), Some(to)) = (at(low, case.arm), case.seconds()) else { continue };
            let busy = 100.0 * case.accelerator_use().unwrap_or(0.0);
            let busy = if model.name == "none" { String::new() } else { format!(", accelerator use {busy:.0} %") };
            let longer = if from.rounds > 1 && from.equals(&to) {
                "as long".to_owned()
            } else {
                change(to.median / from.median)
            };
            let times = format!("{:.2} to {:.2} s{busy}", from.median, to.median);
            parts.push(format!("{longer} with {} ({times})", case.arm.name()));
        }
        let model = if model.name == "none" { "The pipeline alone" } else { &model.name };
        let parts = parts.join("; ");
        report.answer.push(format!("{model}: from load {low} to {high} an epoch takes {parts}."));
        let saved = settings.strategies.first().and_then(|&first| saved(at(high, Arm::A(first)), at(high, Arm::BGpu)));
        report.answer.extend(saved.map(|saved| {
            let what = match saved {
                0.0 => "takes as long".to_owned(),
                0.0.. => format!("saves {saved:.1} % of the time"),
                _ => format!("takes {:.2} times as long", 1.0 - saved / 100.0),
            };
            format!("{model}: at load {high} trial B on the GPU {what}.")
        }));
    }
    if let Some(reason) = no_gpu {
        report.answer.push("Trial B, and trial A on the GPU, were not run: there is no GPU to run them on.".to_owned());
        for table in report.tables.iter_mut().filter(|table| ["seconds-per-epoch", "growth"].contains(&table.name)) {
            table.blank.push(format!("the GPU's columns: {reason}."));
        }
    }
}

/// The change of a time as text.
fn change(ratio: f64) -> String {
    match 100.0 * (ratio - 1.0) {
        100.0.. => format!("{ratio:.2} times as long"),
        percent @ 0.5.. => format!("{percent:.0} % longer"),
        percent @ ..-0.5 => format!("{:.0} % less", -percent),
        _ => "as long".to_owned(),
    }
}
