//! Which configuration of a pipeline keeps a training step of given length busy, and which is the smallest that does.

use super::environment::available_memory_bytes;
use super::events::Event;
use super::report::plot::{Bar, bars, histogram, timeline};
use super::report::{Cell, Report, Table};
use super::subject::{Model, Subject, no_gpu};
use super::train::{LANES, Run, RunTimes, skipped};
use super::usage::Percentiles;
use crate::error::{Error, Result};
use crate::ops::transform::Transform;
use crate::pipeline::{Builder, Pipeline};
use crate::plan::Strategy;
use serde::Serialize;
use serde_json::json;
use std::time::{Duration, Instant};

/// A configuration this close to the best counts as equal: two measurements of the same one differ by as much.
const WITHIN: f64 = 0.02;
/// Bars of the plot: the best ones.
const SHOWN: usize = 12;

/// What to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Numbers of worker threads.
    pub threads: Vec<usize>,
    /// Batches ahead.
    pub prefetch: Vec<usize>,
    /// Whether the pipeline is kept from epoch to epoch, with its decoders and memory, or built anew for each.
    pub persistent: Vec<bool>,
    /// Whether what is copied to a GPU is staged in pinned memory ([`Builder::pinned`]); on the CPU nothing is.
    pub pinned: Vec<bool>,
    /// Images a batch.
    pub batch_size: usize,
    /// The operations, ending in one size.
    pub ops: Vec<Transform>,
    /// How they are run.
    pub strategy: Strategy,
    /// Time for each configuration and round.
    pub time: Duration,
    /// How often each is measured, in turn with the others; the best counts.
    pub rounds: u32,
}

/// One configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Configuration {
    /// Worker threads.
    pub threads: usize,
    /// Batches ahead.
    pub prefetch: usize,
    /// Whether the pipeline is kept from epoch to epoch.
    pub persistent: bool,
    /// Whether what is copied to the GPU is staged in pinned memory; `None` on the CPU.
    pub pinned: Option<bool>,
}

impl Configuration {
    fn name(self) -> String {
        let kept = if self.persistent { "" } else { ", built anew" };
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        let staged = if self.pageable() { ", pageable" } else { "" };
        format!("{} {threads}, prefetch {}{staged}{kept}", self.threads, self.prefetch)
    }

    fn pageable(self) -> bool {
        self.pinned == Some(false)
    }

    /// The configuration as options of the command.
    #[must_use]
    pub fn options(self) -> String {
        let staged = if self.pageable() { " --pageable" } else { "" };
        format!("--threads {} --prefetch {}{staged}", self.threads, self.prefetch)
    }

    /// The configuration as calls of [`Builder`].
    #[must_use]
    pub fn code(self) -> String {
        let staged = if self.pageable() { ".pinned(false)" } else { "" };
        format!(".threads({}).prefetch({}){staged}", self.threads, self.prefetch)
    }
}

/// What was found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Found {
    /// The report.
    pub report: Report,
    /// The fastest configuration.
    pub best: Configuration,
    /// The smallest configuration within 2 % of the fastest.
    pub smallest: Configuration,
}

/// Numbers of worker threads worth trying on so many processors, where each of `gpus` trainers keeps one to itself, or
/// two if there are more than eight for each: 1, 2, 3, 4, 6, 8, 12, ... and what is left.
///
/// ```
/// use warpfeed::experiment::configurations::worker_counts;
/// assert_eq!(worker_counts(2, 0), [1, 2]);
/// assert_eq!(worker_counts(2, 1), [1]);
/// assert_eq!(worker_counts(16, 1), [1, 2, 3, 4, 6, 8, 12, 14]);
/// assert_eq!(worker_counts(64, 8), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 56]);
/// ```
#[must_use]
pub fn worker_counts(cores: usize, gpus: usize) -> Vec<usize> {
    let for_each = if gpus > 0 && cores / gpus > 8 { 2 } else { 1 };
    let most = cores.saturating_sub(gpus * for_each).max(1);
    let mut counts: Vec<usize> =
        (0..usize::BITS - 1).flat_map(|i| [1 << i, 3 << i]).take_while(|&count| count <= 2 * most).collect();
    counts.retain(|&count| count < most);
    counts.push(most);
    counts.sort_unstable();
    counts
}

/// What one configuration gave, in its best round.
struct Case {
    configuration: Configuration,
    build_s: f64,
    run: RunTimes,
    /// By how much its rounds differ, as a share.
    spread: f64,
}

impl Case {
    fn take_better(&mut self, other: Self) {
        let (own, others) = (self.images_per_s(), other.images_per_s());
        let spread = self.spread.max(1.0 - own.min(others) / own.max(others));
        if others > own {
            *self = other;
        }
        self.spread = spread;
    }

    fn images_per_s(&self) -> f64 {
        self.run.images() as f64 / self.run.seconds.max(f64::MIN_POSITIVE)
    }

    fn setup_s(&self) -> f64 {
        self.build_s + self.run.epochs.iter().map(|epoch| epoch.setup_s).sum::<f64>()
    }
}

/// Measures every configuration against a model's training step. `on_event` hears everything, in order; `progress`
/// hears of each configuration.
///
/// # Errors
/// [`Error::Parameter`] for settings without a configuration, or with none that fits into memory; errors of pipelines
/// and the step.
pub fn configurations(
    subject: &Subject,
    settings: &Settings,
    model: &mut Model,
    on_event: &mut dyn FnMut(&Event) -> Result<()>,
    progress: &mut dyn FnMut(&str),
) -> Result<Found> {
    let question = "Which configuration keeps the trainer busy, and which is the smallest that does?";
    let mut report = subject.report("configurations", question)?;
    let (grid, too_large) = grid(subject, settings)?;
    let mut cases: Vec<Case> = Vec::new();
    let all = grid.len() * settings.rounds.max(1) as usize;
    let mut done = 0;
    for round in 0..settings.rounds.max(1) {
        for (number, &configuration) in grid.iter().enumerate() {
            let case = case(subject, settings, configuration, model, round, on_event)?;
            done += 1;
            progress(&format!("{done}/{all} {}: {:.0} images/s", configuration.name(), case.images_per_s()));
            match cases.get_mut(number) {
                Some(kept) => kept.take_better(case),
                None => cases.push(case),
            }
        }
    }
    cases.sort_by(|a, b| b.images_per_s().total_cmp(&a.images_per_s()));
    let Some(best) = cases.first() else {
        let got = too_large.unwrap_or_else(|| "none".to_owned());
        return Err(Error::parameter(
            "configurations",
            "threads, prefetch, persistent and pinned",
            "one that fits",
            got,
        ));
    };
    let good = cases.iter().filter(|case| case.images_per_s() >= (1.0 - WITHIN) * best.images_per_s());
    let size = |case: &&Case| {
        let Configuration { threads, prefetch, persistent, .. } = case.configuration;
        (threads, prefetch, !persistent, case.configuration.pageable())
    };
    let smallest = good.min_by_key(size).unwrap_or(best);
    report.answer = vec![
        format!(
            "Fastest: {}, {:.0} images/s, accelerator use {:.1} %.",
            best.configuration.name(),
            best.images_per_s(),
            100.0 * best.run.accelerator_use().unwrap_or(0.0)
        ),
        format!(
            "Smallest within 2 % of it: {} ({:.0} images/s): {}",
            smallest.configuration.name(),
            smallest.images_per_s(),
            smallest.configuration.options()
        ),
    ];
    let best_of = |pinned| cases.iter().find(|case| case.configuration.pinned == Some(pinned)).map(Case::images_per_s);
    if let (Some(pinned), Some(pageable)) = (best_of(true), best_of(false)) {
        report.answer.push(format!(
            "Pinned memory: {pinned:.0} images/s at best; pageable memory: {pageable:.0} ({:+.1} %).",
            100.0 * (pageable / pinned.max(f64::MIN_POSITIVE) - 1.0)
        ));
    }
    report.settings = json!({
        "threads": settings.threads, "prefetch": settings.prefetch, "persistent": settings.persistent,
        "pinned": settings.pinned,
        "batch_size": settings.batch_size, "strategy": settings.strategy, "seconds": settings.time.as_secs_f64(),
        "rounds": settings.rounds, "step": model.about(), "images_per_epoch": subject.len(), "seed": subject.seed,
    });
    report.tables = vec![ranking(&cases)];
    if best.configuration.pinned.is_none() {
        let reason = no_gpu().unwrap_or_else(|| "the operations run on the CPU".to_owned());
        report.tables[0].blank.push(format!("pinned: nothing is copied to a GPU ({reason})."));
    }
    let spread = cases.iter().map(|case| case.spread).fold(0.0, f64::max);
    let notes = [
        Some(format!("Training step: {}.", model.about())),
        Some(format!("Each was measured {} times, in turn with the others; its best round counts.", settings.rounds.max(1))),
        Some("Set-up is building the pipeline and waiting for the first batch of each epoch; it counts, told apart from waits.".to_owned()),
        best.configuration.pinned.map(|_| {
            "Pinned: what is copied to the GPU is staged in pinned memory, or in pageable memory.".to_owned()
        }),
        too_large,
        skipped(cases.iter().map(|case| &case.run)),
        (spread > WITHIN).then(|| {
            format!(
                "Rounds of one configuration differed by up to {:.0} %: differences below that mean nothing. Measure longer \
                 (--seconds), or on a quiet machine.",
                100.0 * spread
            )
        }),
    ];
    report.notes.extend(notes.into_iter().flatten());
    plots(&mut report, &cases, smallest);
    report.figures = json!({
        "best": best.configuration, "smallest": smallest.configuration,
        "ranking": cases.iter().map(|case| json!({
            "configuration": case.configuration, "images_per_s": case.images_per_s(), "setup_s": case.setup_s(),
            "wait_s": case.run.wait_percentiles(), "run": case.run,
        })).collect::<Vec<_>>(),
    });
    Ok(Found { best: best.configuration, smallest: smallest.configuration, report })
}

fn build(subject: &Subject, settings: &Settings, configuration: Configuration) -> Result<Pipeline> {
    let builder = subject.builder().batch_size(settings.batch_size).strategy(settings.strategy);
    let builder = builder.threads(configuration.threads).prefetch(configuration.prefetch);
    let builder = configuration.pinned.into_iter().fold(builder, Builder::pinned);
    settings.ops.iter().cloned().fold(builder, Builder::augment).build()
}

/// The configurations that fit into memory, and a word on those that do not.
fn grid(subject: &Subject, settings: &Settings) -> Result<(Vec<Configuration>, Option<String>)> {
    let (mut grid, mut left_out) = (Vec::new(), 0);
    let free = available_memory_bytes().unwrap_or(u64::MAX);
    let pinned = match subject.device.resolve()? {
        Some(_) => settings.pinned.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    for &threads in &settings.threads {
        for &prefetch in &settings.prefetch {
            for &persistent in &settings.persistent {
                for &pinned in &pinned {
                    let configuration = Configuration { threads, prefetch, persistent, pinned };
                    if build(subject, settings, configuration)?.memory().batches_bytes > free / 10 * 8 {
                        left_out += 1;
                    } else {
                        grid.push(configuration);
                    }
                }
            }
        }
    }
    let note = format!("{left_out} configurations were left out: their batches take more memory than is free.");
    Ok((grid, (left_out > 0).then_some(note)))
}

fn case(
    subject: &Subject,
    settings: &Settings,
    configuration: Configuration,
    model: &mut Model,
    round: u32,
    on_event: &mut dyn FnMut(&Event) -> Result<()>,
) -> Result<Case> {
    let name = format!("{}, round {}", configuration.name(), round + 1);
    on_event(&Event::RunStart { run: name.clone(), settings: json!(configuration) })?;
    let mut run = Run::start(model.step.as_mut(), on_event);
    let begin = Instant::now();
    let mut build_s = 0.0;
    let mut timed_build = || {
        let start = Instant::now();
        let pipeline = build(subject, settings, configuration);
        build_s += start.elapsed().as_secs_f64();
        pipeline
    };
    let mut pipeline = timed_build()?;
    if configuration.persistent {
        run.for_time(&pipeline, settings.time)?;
    } else {
        for number in 0.. {
            run.epoch(&pipeline, number, Some(begin + settings.time))?;
            if begin.elapsed() >= settings.time || pipeline.is_empty() {
                break;
            }
            pipeline = timed_build()?;
        }
    }
    let run = run.finish();
    on_event(&Event::RunEnd { run: name, seconds: run.seconds })?;
    Ok(Case { configuration, build_s, run, spread: 0.0 })
}

fn ranking(cases: &[Case]) -> Table {
    let mut table = Table::new(
        "ranking",
        "Configurations, the fastest first",
        &[
            "threads",
            "prefetch",
            "persistent",
            "pinned",
            "images/s",
            "of the best, %",
            "accelerator use, %",
            "set-up, s",
            "epochs",
            "wait p50, ms",
            "wait p95, ms",
            "wait p99, ms",
        ],
    );
    let best = cases.first().map_or(1.0, Case::images_per_s);
    for case in cases {
        let Configuration { threads, prefetch, persistent, pinned } = case.configuration;
        let yes_or_no = |value| Cell::from(if value { "yes" } else { "no" });
        let wait = case.run.wait_percentiles();
        let ms = |of: fn(Percentiles) -> f64| Cell::number(wait.map(|p| 1e3 * of(p)), 2);
        table.rows.push(vec![
            Cell::number(threads as f64, 0),
            Cell::number(prefetch as f64, 0),
            yes_or_no(persistent),
            pinned.map_or(Cell::Blank, yes_or_no),
            Cell::number(case.images_per_s(), 0),
            Cell::number(100.0 * case.images_per_s() / best, 1),
            Cell::number(case.run.accelerator_use().map(|share| 100.0 * share), 1),
            Cell::number(case.setup_s(), 3),
            Cell::number(case.run.epochs.len() as f64, 0),
            ms(|p| p.p50),
            ms(|p| p.p95),
            ms(|p| p.p99),
        ]);
    }
    table
}

fn plots(report: &mut Report, cases: &[Case], smallest: &Case) {
    let shown = &cases[..cases.len().min(SHOWN)];
    let bar = |case: &Case| Bar {
        name: case.configuration.name().replace("built anew", "anew"),
        value: case.images_per_s(),
        marked: case.configuration == smallest.configuration,
    };
    let shown: Vec<Bar> = shown.iter().map(bar).collect();
    let caption = format!("Images per second, the best {} of {}", shown.len(), cases.len());
    let title = format!("{caption}; the smallest as good in orange");
    report.plot("ranking", caption, bars(&title, "1/s", &shown));
    let name = smallest.configuration.name();
    let svg = timeline(&format!("Batches: {name}"), &LANES, &smallest.run.stretches());
    report.plot("timeline", format!("Set-up, fetch and train of each batch: {name}"), svg);
    let svg = histogram(&format!("Waits: {name}"), &smallest.run.waits());
    report.plot("waits", format!("How long the trainer waited for each batch: {name}"), svg);
}
