//! Finds the smallest pipeline configuration that keeps a training step busy. Entry points are off, so that all epochs
//! are alike.

mod ranking;
mod settings;
mod tables;

use super::cores::Machine;
use super::environment::available_memory_bytes;
use super::events::Event;
use super::grid::{self, in_rounds};
use super::published::LARGER_SCALE;
use super::report::Report;
use super::spread::{Spread, with_rounds};
use super::subject::{Model, Subject};
use super::train::{NO_STEP_S, RunTimes, TrainingRun, about_setup, skipped};
use super::usage::percentiles;
use super::utilization;
use super::verdict;
pub(super) use ranking::Ranking;
#[cfg(test)]
pub(super) use ranking::tests as ranking_tests;
use serde_json::{Value, json};
pub use settings::{Configuration, ConfigurationsSettings, rounds_for, worker_counts};
use std::time::Instant;
use warpfeed::{EntryPoints, Error, Pipeline, PipelineBuilder, Result};

/// Results of the experiment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RankedConfigurations {
    /// The report.
    pub report: Report,
    /// The configuration that was measured to be the fastest.
    pub best: Configuration,
    /// The smallest configuration that is as good as the fastest; `None` if so few rounds cannot tell.
    pub smallest: Option<Configuration>,
    /// Images per second that the training step alone takes; `None` if it takes no time.
    pub step_images_per_s: Option<f64>,
    /// Images per second that one core makes while the step runs, in each round; none for a step that takes no time.
    images_per_s_a_core: Vec<f64>,
    /// Level of the report's comparisons.
    level: f64,
}

/// What a case measures, and the seconds that building its pipelines took in each round.
struct Key {
    configuration: Configuration,
    build_s: Vec<f64>,
}

type Case = grid::Case<Key>;

impl Case {
    fn name(&self) -> String {
        self.key.configuration.name()
    }

    /// The median of images per second; 0 if nothing was delivered.
    fn rate(&self) -> f64 {
        self.images_per_s().map_or(0.0, |rate| rate.median)
    }

    /// Seconds of set-up for each epoch, in each round: building the pipeline, where that is done anew, and the first
    /// batch.
    fn setup_s(&self) -> Vec<f64> {
        let of = |(run, build_s): (&RunTimes, &f64)| {
            let epochs = run.epochs.len().max(1) as f64;
            (build_s + run.epochs.iter().map(|epoch| epoch.setup_s).sum::<f64>()) / epochs
        };
        self.runs.iter().zip(&self.key.build_s).map(of).collect()
    }

    /// Images per second that the step takes, over all rounds; `None` if it takes no time.
    fn rate_of_step(&self) -> Option<f64> {
        let epochs = || self.runs.iter().flat_map(|run| &run.epochs);
        let training: f64 = epochs().map(|epoch| epoch.train_s).sum();
        let batches = epochs().map(|epoch| epoch.batches).sum::<u64>() as f64;
        let images = self.runs.iter().map(RunTimes::images).sum::<u64>() as f64;
        (training / batches > NO_STEP_S).then(|| images / training)
    }
}

/// All cases, the fastest first.
struct Results {
    cases: Vec<Case>,
    ranking: Ranking,
}

impl Results {
    fn of(mut cases: Vec<Case>, shares: usize) -> Option<Self> {
        let ranking = Ranking::of(cases.iter().map(|case| (case.key.configuration, case.rates())).collect(), shares)?;
        cases.sort_by(|a, b| b.rate().total_cmp(&a.rate()));
        Some(Self { cases, ranking })
    }

    fn find(&self, configuration: Configuration) -> &Case {
        self.cases.iter().find(|case| case.key.configuration == configuration).unwrap_or(&self.cases[0])
    }

    fn best(&self) -> &Case {
        self.find(self.ranking.fastest())
    }

    fn smallest(&self) -> Option<&Case> {
        self.ranking.smallest().map(|configuration| self.find(configuration))
    }

    /// The recommended case, or the fastest if none is recommended.
    fn shown(&self) -> &Case {
        self.smallest().unwrap_or_else(|| self.best())
    }

    fn baseline(&self) -> Option<&Case> {
        self.cases.iter().find(|case| case.key.configuration.is_baseline())
    }

    /// Ratio of a rate to the baseline's.
    fn times(&self, rate: f64) -> Option<f64> {
        Some(rate / self.baseline()?.rate().max(f64::MIN_POSITIVE))
    }

    fn json(&self) -> Vec<Value> {
        let case = |case: &Case| {
            case.json(json!({
                "configuration": case.key.configuration, "steady_images_per_s": with_rounds(&case.rates()),
                "against_the_fastest": self.ranking.verdict(case.key.configuration),
                "times_the_baseline": self.times(case.rate()), "setup_s": with_rounds(&case.setup_s()),
                "wait_s": percentiles(&case.waits()),
            }))
        };
        self.cases.iter().map(case).collect()
    }
}

/// Measures every configuration against a model's training step. `on_event` gets every event, in order; `progress` is
/// called for each configuration.
///
/// # Errors
/// [`Error::Parameter`] if the settings have no configuration, or none fits into memory; errors of pipelines and the
/// step.
pub fn configurations(
    subject: &Subject,
    settings: &ConfigurationsSettings,
    model: &mut Model,
    on_event: &mut dyn FnMut(&Event) -> Result<()>,
    progress: &mut dyn FnMut(&str),
) -> Result<RankedConfigurations> {
    let mut found = measure_all(subject, settings, model, 1, on_event, progress)?;
    let machine = Machine::here(settings.gpus);
    let (of_core, of_step) = (&found.images_per_s_a_core, found.step_images_per_s);
    found.report.answer.extend(of_step.and_then(|of_step| machine.sentence(of_core, of_step, found.level)));
    found.report.answer.extend(found.smallest.and_then(|smallest| machine.shared(smallest.threads)));
    machine.add_figures(&mut found.report, Spread::median_of(of_core), of_step);
    Ok(found)
}

/// Measures every configuration and ranks them. `shares`: the share of the report's level is one of so many.
pub(super) fn measure_all(
    subject: &Subject,
    settings: &ConfigurationsSettings,
    model: &mut Model,
    shares: usize,
    on_event: &mut dyn FnMut(&Event) -> Result<()>,
    progress: &mut dyn FnMut(&str),
) -> Result<RankedConfigurations> {
    let question = "Which configuration keeps the trainer busy, and which is the smallest that does?";
    let mut report = subject.report("configurations", question)?;
    let Grid { configurations, too_large, device } = grid(subject, settings)?;
    let key = |configuration| Key { configuration, build_s: Vec::new() };
    let mut cases: Vec<Case> = configurations.into_iter().map(key).map(Case::of_all_epochs).collect();
    in_rounds(&mut cases, (settings.rounds, subject.seed), progress, |case, round| {
        measure(case, subject, settings, model, round, on_event)?;
        Ok(format!("{}: {:.0} images/s", case.name(), case.last_rate()))
    })?;
    report.measured();
    let Some(results) = Results::of(cases, shares) else {
        let (got, parameters) =
            (too_large.unwrap_or_else(|| "none".to_owned()), "threads, prefetch, persistent and pinned");
        return Err(Error::parameter("configurations", parameters, "one that fits", got));
    };
    let (best, shown) = (results.best().key.configuration, results.shown());
    let of_step = shown.rate_of_step();
    let (answer, rows) = results.ranking.answer(of_step);
    report.answer = answer;
    let busy = of_step.map_or_else(String::new, |_| {
        format!("accelerator use {:.1} %, ", 100.0 * shown.accelerator_use().unwrap_or(0.0))
    });
    let setup = Spread::of(&shown.setup_s()).map(|setup| setup.words("s an epoch", 3)).unwrap_or_default();
    report.answer.push(format!("{}: {busy}set-up {setup}.", shown.name()));
    report.compare(rows);
    let runs = || results.cases.iter().flat_map(|case| &case.runs);
    report.answer.extend(about_setup(runs()));
    report.settings = json!({
        "device": device, "transforms": settings.ops, "strategy": settings.strategy, "threads": settings.threads,
        "prefetch": settings.prefetch, "persistent": settings.persistent, "pinned": best.pinned.map(|_| &settings.pinned),
        "batch_size": settings.batch_size, "step": model.about(), "rounds": settings.rounds.max(1),
        "seconds_a_round": settings.time.as_secs_f64(), "images_per_epoch": subject.len(), "seed": subject.seed,
    });
    report.tables = results.tables(Machine::here(settings.gpus), of_step);
    report.publications.push(LARGER_SCALE);
    let notes = [
        "The baseline has no worker thread, makes one batch at a time, and builds everything anew for each epoch.",
        utilization::NOTE,
        "Set-up is building the pipeline and waiting for the first batch of each epoch. Images/s and accelerator use leave \
         out set-up and the end of an epoch.",
        "Entry points are off, since they make images faster that have come before. Later epochs of a training may be faster.",
    ];
    report.notes.extend([verdict::note(settings.rounds), verdict::choice_note()]);
    report.notes.extend(notes.map(str::to_owned));
    let pinned = "Pinned says whether copies to the GPU are staged in pinned memory or in pageable memory.";
    report.notes.extend([best.pinned.map(|_| pinned.to_owned()), too_large, skipped(runs())].into_iter().flatten());
    results.plots(&mut report, of_step);
    let smallest = results.ranking.smallest();
    report.figures = json!({ "best": best, "smallest": smallest, "ranking": results.json() });
    let images_per_s_a_core = of_step.map_or_else(Vec::new, |_| shown.figures(RunTimes::images_per_s_of_core));
    let level = results.ranking.level();
    Ok(RankedConfigurations { best, smallest, step_images_per_s: of_step, images_per_s_a_core, level, report })
}

fn build(subject: &Subject, settings: &ConfigurationsSettings, configuration: Configuration) -> Result<Pipeline> {
    let builder = subject.builder().batch_size(settings.batch_size).strategy(settings.strategy);
    let builder =
        builder.threads(configuration.threads).prefetch(configuration.prefetch).entry_points(EntryPoints::none());
    let builder = configuration.pinned.into_iter().fold(builder, PipelineBuilder::pinned);
    settings.ops.iter().cloned().fold(builder, PipelineBuilder::transform).build()
}

/// The configurations that are measured.
struct Grid {
    configurations: Vec<Configuration>,
    /// Note about configurations that do not fit into memory.
    too_large: Option<String>,
    /// Name of the device that runs the operations.
    device: String,
}

fn grid(subject: &Subject, settings: &ConfigurationsSettings) -> Result<Grid> {
    let (mut grid, mut left_out, mut device) = (Vec::new(), 0, String::new());
    let free = available_memory_bytes().unwrap_or(u64::MAX);
    let pinned: Vec<Option<bool>> = match subject.device.resolve()? {
        Some(_) => settings.pinned.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    for configuration in settings.all(&pinned) {
        let pipeline = build(subject, settings, configuration)?;
        device = pipeline.device_name();
        if pipeline.memory().batches_bytes > free / 10 * 8 {
            left_out += 1;
        } else {
            grid.push(configuration);
        }
    }
    if settings.baseline {
        let pinned = pinned.first().copied().flatten().map(|_| false);
        grid.push(Configuration { threads: 0, prefetch: 1, persistent: false, pinned });
    }
    let note = format!("{left_out} configurations were left out: their batches take more memory than is free.");
    Ok(Grid { configurations: grid, too_large: (left_out > 0).then_some(note), device })
}

fn measure(
    case: &mut Case,
    subject: &Subject,
    settings: &ConfigurationsSettings,
    model: &mut Model,
    round: u32,
    on_event: &mut dyn FnMut(&Event) -> Result<()>,
) -> Result<()> {
    let (configuration, name) = (case.key.configuration, format!("{}, round {}", case.name(), round + 1));
    on_event(&Event::RunStart { run: name.clone(), settings: json!(configuration) })?;
    let mut build_s = 0.0;
    case.measure(model.step.as_mut(), on_event, |run| epochs(run, subject, settings, configuration, &mut build_s))?;
    case.key.build_s.push(build_s);
    on_event(&Event::RunEnd { run: name, seconds: case.runs.last().map_or(0.0, |run| run.seconds) })
}

/// Runs epochs for the time of a round, and adds the seconds spent on building pipelines.
fn epochs(
    run: &mut TrainingRun<'_>,
    subject: &Subject,
    settings: &ConfigurationsSettings,
    configuration: Configuration,
    build_s: &mut f64,
) -> Result<()> {
    let begin = Instant::now();
    let mut timed_build = || {
        let start = Instant::now();
        let pipeline = build(subject, settings, configuration);
        *build_s += start.elapsed().as_secs_f64();
        pipeline
    };
    let mut pipeline = timed_build()?;
    if configuration.persistent {
        return run.for_time(&pipeline, settings.time);
    }
    for number in 0.. {
        run.epoch(&pipeline, number, Some(begin + settings.time))?;
        if begin.elapsed() >= settings.time || pipeline.is_empty() {
            break;
        }
        pipeline = timed_build()?;
    }
    Ok(())
}
