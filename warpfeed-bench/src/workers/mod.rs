//! Measures epochs for several numbers of workers, batch sizes and ways to store the images: the published comparisons
//! of `num_workers` ([`DEEPLIZARD`], [`GLUON`]) and of storage ([`SAGEMAKER_IO`]), with their columns.

mod beside;

use super::environment::{self, available_memory_bytes};
use super::published::{DEEPLIZARD, GLUON, SAGEMAKER_IO};
use super::report::plot::{Limit, OWN, Series, grouped_bars_with_limit, heat_map};
use super::report::{Cell, Report, ReportTable};
use super::spread::{Spread, turns, with_rounds};
use super::stored::Stored;
use super::subject::{Model, Subject};
use super::train::{RunTimes, SteadyState, TrainingRun, about_setup, evaluate, measured_epochs, skipped};
use super::usage::{Usage, UsageMonitor, means};
use super::utilization;
use super::verdict::{self, Choice, in_turn, level, pairs};
use serde_json::json;
use std::time::Instant;
use warpfeed::image::Size;
use warpfeed::ops::{CenterCrop, Op, Resize, Transform};
use warpfeed::source::Input;
use warpfeed::{Error, OnError, Pipeline, PipelineBuilder, Result};

/// Settings of the experiment.
#[derive(Clone)]
pub struct WorkersSettings {
    /// Numbers of workers. With 0 the trainer's thread makes the batches.
    pub workers: Vec<usize>,
    /// Numbers of images in a batch.
    pub batch_sizes: Vec<usize>,
    /// Epochs of each run.
    pub epochs: u64,
    /// Runs of each case, in turn with the others. With fewer than
    /// [`default_rounds`](super::verdict::default_rounds), smaller differences remain hidden.
    pub rounds: u32,
    /// The operations. They must end in one size.
    pub ops: Vec<Transform>,
    /// Images to evaluate a trained network on after each run, outside of the measured time. Default: none.
    pub evaluation: Option<Input>,
    /// Other ways to store the images. Each is measured like the subject's own.
    pub others: Vec<Stored>,
}

impl WorkersSettings {
    /// Number of comparisons of a report, by the numbers of its settings: all numbers of workers of a batch size and a
    /// way to store the images, and each further way with the subject's own.
    #[must_use]
    pub fn comparisons(workers: usize, batch_sizes: usize, others: usize) -> usize {
        batch_sizes * ((1 + others) * pairs(workers) + others * workers)
    }
}

/// One cell of the grid.
struct Case {
    /// Number of the way to store the images; 0 is the subject's own.
    stored: usize,
    workers: usize,
    batch_size: usize,
    /// The case's rounds, or the reason why it was not run.
    runs: Result<Vec<RunTimes>, String>,
    /// Utilization in each run.
    usage: Vec<Usage>,
    /// Accuracy after each run, if the step reports it.
    accuracies: Vec<f64>,
    /// Seconds of each evaluation.
    evaluations_s: Vec<f64>,
}

fn median(figures: &[f64]) -> Option<f64> {
    Spread::of(figures).map(|spread| spread.median)
}

impl Case {
    fn runs(&self) -> &[RunTimes] {
        self.runs.as_deref().unwrap_or(&[])
    }

    /// A figure of the steady state in each round.
    fn steady(&self, of: fn(&SteadyState) -> f64) -> Vec<f64> {
        self.runs().iter().filter_map(RunTimes::steady).map(|steady| of(&steady)).collect()
    }

    fn rates(&self) -> Vec<f64> {
        self.steady(|steady| steady.images_per_s)
    }

    fn epoch_s(&self) -> Vec<f64> {
        self.steady(|steady| steady.epoch_s)
    }

    fn seconds(&self) -> Option<Spread> {
        Spread::of(&self.epoch_s())
    }

    /// Images per second that the training step takes; `None` if it takes no time.
    fn of_step(&self) -> Option<f64> {
        median(&self.runs().iter().filter_map(RunTimes::images_per_s_of_step).collect::<Vec<_>>())
    }

    fn images_per_s(&self) -> Option<Spread> {
        Spread::of(&self.rates())
    }

    fn accelerator_use(&self) -> Option<f64> {
        Spread::of(&self.steady(|steady| steady.accelerator_use)).map(|share| share.median)
    }

    fn setup_s(&self) -> Vec<f64> {
        self.runs().iter().filter_map(RunTimes::setup_s).collect()
    }
}

/// Runs every number of workers with every batch size, each on a fresh model from `model`, for all rounds. `progress`
/// is called for each run.
///
/// # Errors
/// [`Error::Parameter`] for settings without workers, batches or an epoch; errors of pipelines and steps.
pub fn workers(
    subject: &Subject,
    settings: &WorkersSettings,
    model: &mut dyn FnMut() -> Result<Model>,
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    if settings.workers.is_empty() || settings.batch_sizes.is_empty() || settings.epochs == 0 {
        return Err(Error::parameter("workers", "workers, batch sizes and epochs", "one or more of each", "none"));
    }
    let mut report = subject.report("workers", "How many workers, and how large a batch?")?;
    let own = Stored::given(subject.input.clone());
    let all_stored: Vec<Stored> = std::iter::once(own).chain(settings.others.iter().cloned()).collect();
    let build = |stored: usize, workers, batch_size| {
        let stored = &all_stored[stored];
        let builder = Subject { input: stored.input.clone(), ..subject.clone() }.builder();
        let builder = stored.add_to(builder.threads(workers).batch_size(batch_size));
        settings.ops.iter().cloned().fold(builder, PipelineBuilder::transform).build()
    };
    let mut cases = Vec::new();
    let (mut device, mut prefetch) = (String::new(), 0);
    let of_stored = |stored| settings.batch_sizes.iter().map(move |&batch_size| (stored, batch_size));
    for (stored, batch_size) in (0..all_stored.len()).flat_map(of_stored) {
        for &workers in &settings.workers {
            let pipeline = build(stored, workers, batch_size)?;
            (device, prefetch) = (pipeline.device_name(), pipeline.prefetch());
            let runs = cannot(&pipeline, batch_size, subject.len()).map_or(Ok(Vec::new()), Err);
            if let Err(reason) = &runs {
                progress(&format!("{}, batches of {batch_size}: not run: {reason}", beside::workers(workers)));
            }
            let (usage, accuracies, evaluations_s) = (Vec::new(), Vec::new(), Vec::new());
            cases.push(Case { stored, workers, batch_size, runs, usage, accuracies, evaluations_s });
        }
    }
    // Made first, so that a model that cannot be made is reported before anything is measured.
    let first = model()?;
    let (step, learning_rate) = (first.about(), first.step.learning_rate());
    drop(first);
    for (number, stored) in all_stored.iter().enumerate().filter(|(_, stored)| stored.is_to_be_made()) {
        progress(&format!("{}: being made", stored.name));
        let pipeline = build(number, environment::cores(), settings.batch_sizes[0])?;
        for epoch in 0..settings.epochs {
            for batch in pipeline.epoch(epoch) {
                batch?;
            }
        }
    }
    let run: Vec<usize> = (0..cases.len()).filter(|&case| cases[case].runs.is_ok()).collect();
    let turns = turns(run.len(), settings.rounds, subject.seed);
    let all = turns.len();
    for (done, (_, turn)) in turns.into_iter().enumerate() {
        let Case { stored, workers, batch_size, runs, usage, accuracies, evaluations_s } = &mut cases[run[turn]];
        let Ok(runs) = runs else { continue };
        let mut model = model()?;
        let pipeline = build(*stored, *workers, *batch_size)?;
        let mut ignore = |_: &_| Ok(());
        let monitor = UsageMonitor::start();
        let mut run = TrainingRun::start(model.step.as_mut(), &mut ignore);
        for epoch in 0..settings.epochs {
            run.epoch(&pipeline, epoch, None)?;
        }
        let run = run.finish();
        usage.push(monitor.stop());
        if let Some(images) = &settings.evaluation {
            let held_out = evaluation(subject, settings, images, *workers)?;
            let start = Instant::now();
            if let Some(accuracy) = evaluate(model.step.as_mut(), &held_out)? {
                evaluations_s.push(start.elapsed().as_secs_f64());
                accuracies.push(accuracy);
            }
        }
        let (done, seconds) = (done + 1, run.later_seconds().unwrap_or(0.0));
        let name = if all_stored.len() > 1 { format!("{}, ", all_stored[*stored].name) } else { String::new() };
        let workers = beside::workers(*workers);
        progress(&format!("{done}/{all} {name}{workers}, batches of {batch_size}: {seconds:.2} s per epoch"));
        runs.push(run);
    }
    report.measured();
    let images = cases.iter().flat_map(Case::runs).flat_map(|run| run.epochs.first()).map(|epoch| epoch.images).max();
    report.settings = json!({
        "device": device, "transforms": settings.ops, "workers": settings.workers, "prefetch": prefetch,
        "batch_sizes": settings.batch_sizes, "epochs": settings.epochs, "rounds": settings.rounds.max(1),
        "stored": settings.others.iter().map(|stored| &stored.name).collect::<Vec<_>>(),
        "images_per_epoch": images, "step": step, "seed": subject.seed, "learning_rate": learning_rate,
    });
    let name_of = |case: &Case| match all_stored.len() {
        1 => Cell::Blank,
        _ => Cell::from(&*all_stored[case.stored].name),
    };
    let number = |number: usize| Cell::number(number as f64, 0);
    let names = |case: &Case| vec![name_of(case), number(case.workers), number(case.batch_size)];
    let usage = cases.iter().map(|case| (names(case), &case.usage[..]));
    report.tables = vec![
        summary(settings, &cases, &name_of),
        grid(learning_rate, &cases, &name_of),
        each(&cases, settings.evaluation.is_some(), &name_of),
        utilization::table(&["stored", "workers", "batch size"], usage),
    ];
    report.publications.extend([DEEPLIZARD, GLUON, SAGEMAKER_IO]);
    report.notes.push(utilization::NOTE.to_owned());
    plots(&mut report, settings, &cases, &all_stored);
    let ran = |stored: usize, batch_size: usize| {
        let of = move |case: &&Case| (case.stored, case.batch_size) == (stored, batch_size) && !case.runs().is_empty();
        cases.iter().filter(of)
    };
    let groups: Vec<(usize, usize)> = (0..all_stored.len()).flat_map(of_stored).collect();
    let within: usize = groups.iter().map(|&(stored, batch_size)| pairs(ran(stored, batch_size).count())).sum();
    let across = cases.iter().filter(|case| case.stored > 0 && !case.runs().is_empty()).count();
    let level = level(within + across);
    for (stored, batch_size) in groups {
        let rates: Vec<WorkerRates> = ran(stored, batch_size)
            .map(|case| WorkerRates { workers: case.workers, rates: case.rates(), seconds: case.seconds() })
            .collect();
        let name =
            if all_stored.len() > 1 { format!("{}, batches", all_stored[stored].name) } else { "Batches".into() };
        report.answer.extend(answer(&format!("{name} of {batch_size}"), rates, level));
        let not_run = |case: &&Case| (case.stored, case.batch_size) == (0, batch_size);
        let reason = cases.iter().filter(|_| stored == 0).filter(not_run).find_map(|case| case.runs.as_ref().err());
        report.tables[0].blank.extend(reason.map(|reason| format!("batches of {batch_size}: {reason}.")));
    }
    if report.answer.is_empty() {
        report.answer.push("Nothing was run; the table says why.".to_owned());
    }
    beside::add(&mut report, &cases, &all_stored, level);
    report.answer.extend(about_setup(cases.iter().flat_map(Case::runs)));
    report.notes.extend(skipped(cases.iter().flat_map(Case::runs)));
    if learning_rate.is_none() {
        report.tables[1].blank.push("learning rate: this step has none.".to_owned());
    }
    if cases.iter().flat_map(Case::runs).all(|run| run.epochs.iter().all(|epoch| epoch.loss.is_none())) {
        report.tables[1].blank.push(beside::NOT_TRAINED.to_owned());
    }
    // Above the long tables of every epoch and of utilization.
    report.tables[1..].rotate_right(beside::TABLES);
    report.notes.extend([verdict::note(settings.rounds), verdict::choice_note()]);
    report.notes.push("With 0 workers the trainer's thread makes each batch when it asks.".to_owned());
    report.notes.push(measured_epochs(settings.epochs));
    report.figures = json!({
        "cases": cases.iter().map(|case| json!({
            "stored": all_stored[case.stored].name, "workers": case.workers, "batch_size": case.batch_size, "steady_seconds_per_epoch": case.seconds(),
            "seconds_per_epoch": Spread::of(&case.runs().iter().filter_map(RunTimes::later_seconds).collect::<Vec<_>>()),
            "steady_images_per_s": with_rounds(&case.rates()), "setup_s": with_rounds(&case.setup_s()), "runs": case.runs(), "not_run": case.runs.as_ref().err(),
            "accelerator_use": case.accelerator_use(), "evaluation_accuracy": with_rounds(&case.accuracies), "evaluation_s": with_rounds(&case.evaluations_s),
            "utilization": utilization::figures(&case.usage),
        })).collect::<Vec<_>>(),
    });
    Ok(report)
}

/// A pipeline over `images` for evaluation: in the size that the network was trained on, without random operations.
fn evaluation(subject: &Subject, settings: &WorkersSettings, images: &Input, workers: usize) -> Result<Pipeline> {
    let build = |builder: PipelineBuilder, ops: Vec<Transform>| {
        ops.into_iter().fold(builder, PipelineBuilder::transform).build()
    };
    let size = build(subject.builder(), settings.ops.clone())?.image_size();
    let ops = if settings.ops.iter().all(|op| matches!(op, Transform::Explicit(_))) {
        settings.ops.clone()
    } else {
        let normalize = settings.ops.iter().filter(|op| matches!(op, Transform::Explicit(Op::Normalize(_)))).cloned();
        // As published for ImageNet: a margin of an eighth around the evaluated part.
        let Size { width, height } = size;
        let shorter_px = (width.max(height) * 8).div_ceil(7);
        let crop = [Resize::shorter_side(shorter_px).into(), CenterCrop::new(size).into()];
        crop.into_iter().chain(normalize).collect()
    };
    let batch_size = settings.batch_sizes.iter().copied().min().unwrap_or(1);
    let builder = Pipeline::builder(images.clone()).on_error(OnError::Skip).batch_size(batch_size);
    build(builder.threads(workers).device(subject.device), ops)
}

/// Reason why a pipeline cannot be run; `None` if it can.
fn cannot(pipeline: &Pipeline, batch_size: usize, images: Option<u64>) -> Option<String> {
    if let Some(images) = images.filter(|&images| batch_size as u64 > images) {
        return Some(format!("there are {images} images an epoch"));
    }
    let (needs, free) = (pipeline.memory().batches_bytes, available_memory_bytes()?);
    (needs > free / 10 * 8)
        .then(|| format!("they take {:.1} GB of {:.1} GB free", needs as f64 / 1e9, free as f64 / 1e9))
}

/// WorkerRates of one number of workers, by round.
struct WorkerRates {
    workers: usize,
    rates: Vec<f64>,
    seconds: Option<Spread>,
}

/// Sentence about the smallest number of workers that is as good as the fastest. `of`: name of the batches.
fn answer(of: &str, mut cases: Vec<WorkerRates>, level: f64) -> Option<String> {
    cases.sort_by_key(|case| case.workers);
    let rates: Vec<&[f64]> = cases.iter().map(|case| case.rates.as_slice()).collect();
    let choice = Choice::of(&rates, level)?;
    let workers = |case: usize| match cases[case].workers {
        0 => "no workers".to_owned(),
        workers => beside::workers(workers),
    };
    let measured = |case: usize| {
        let seconds = cases[case]
            .seconds
            .map(|Spread { median, low, high, .. }| format!("{median:.3} s per epoch ({low:.3} to {high:.3})"));
        format!("{}, {}", workers(case), seconds.unwrap_or_default())
    };
    let fastest = choice.fastest;
    let Some(smallest) = choice.smallest else {
        let rounds = rates[fastest].len();
        return Some(format!(
            "{of}: cannot tell how many workers are enough: {rounds} {} measured, and {} or more could tell \
             (--rounds). Fastest measured: {}.",
            if rounds == 1 { "round was" } else { "rounds were" },
            choice.rounds_needed().unwrap_or_default(),
            measured(fastest)
        ));
    };
    let mut sentence = format!(
        "{of}: {} {}",
        measured(smallest),
        match () {
            () if cases.len() == 1 => "is the only number that was measured",
            () if cases[smallest].workers == 0 => "are enough",
            () => "is the smallest number that is surely enough",
        }
    );
    match choice.verdicts[smallest] {
        Some(verdict) => {
            sentence += &format!(
                "; against the fastest measured, {}: {}",
                measured(fastest),
                verdict.words("slower", "faster")
            );
        }
        None if cases.len() > 1 => sentence += ", and the fastest measured",
        None => {}
    }
    let unclear: Vec<String> = choice.unclear().map(workers).collect();
    if !unclear.is_empty() {
        sentence += &format!("; the rounds cannot tell whether {} would be slower", unclear.join(", "));
    }
    if smallest > 0 && cases[0].workers == 0 {
        let without = in_turn(&rates, 0, smallest, level).words("slower", "faster");
        sentence += &format!("; against no workers: {without}");
    }
    Some(sentence + ".")
}

/// The name of a case's way to store the images, or blank if there is only one.
type NameOf<'a> = &'a dyn Fn(&Case) -> Cell;

/// Table of the seconds per epoch, one row per number of workers.
fn summary(settings: &WorkersSettings, cases: &[Case], name_of: NameOf<'_>) -> ReportTable {
    let of_batch = |batch_size: &usize| {
        [format!("batch {batch_size}, s"), format!("batch {batch_size}, ± %"), format!("batch {batch_size}, images/s")]
    };
    let columns = settings.batch_sizes.iter().flat_map(of_batch);
    let columns: Vec<String> = ["stored".to_owned(), "workers".to_owned()].into_iter().chain(columns).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = ReportTable::new("seconds-per-epoch", "Seconds per epoch, without set-up", &columns);
    for stored in 0..=settings.others.len() {
        for &workers in &settings.workers {
            let of_row: Vec<&Case> =
                cases.iter().filter(|case| (case.stored, case.workers) == (stored, workers)).collect();
            let figures = of_row.iter().flat_map(|case| {
                let (seconds, rate) = (case.seconds(), case.images_per_s());
                let share = seconds.filter(|seconds| seconds.rounds > 1).map(|seconds| 100.0 * seconds.share());
                [
                    Cell::number(seconds.map(|seconds| seconds.median), 3),
                    Cell::number(share, 1),
                    Cell::number(rate.map(|rate| rate.median), 0),
                ]
            });
            let Some(first) = of_row.first() else { continue };
            table.rows.push([name_of(first), Cell::number(workers as f64, 0)].into_iter().chain(figures).collect());
        }
    }
    table
}

/// The plots: seconds per epoch, with the step's as the least, and utilization over time by the number of workers.
fn plots(report: &mut Report, settings: &WorkersSettings, cases: &[Case], stored: &[Stored]) {
    let groups: Vec<String> = settings.workers.iter().map(usize::to_string).collect();
    let all = (0..stored.len()).flat_map(|stored| settings.batch_sizes.iter().map(move |&size| (stored, size)));
    let series: Vec<Series> = all
        .map(|(number, batch_size)| {
            let of = |&workers: &usize| {
                let is = |case: &&Case| (case.stored, case.workers, case.batch_size) == (number, workers, batch_size);
                cases.iter().find(is)?.seconds()
            };
            let name = if stored.len() > 1 { format!("{}, ", stored[number].name) } else { String::new() };
            let values: Vec<_> = settings.workers.iter().map(of).collect();
            Series::spread(format!("{name}batch {batch_size}"), &values)
        })
        .filter(Series::has_values)
        .collect();
    let of_step = |case: &Case| Some(case.seconds()?.median * case.images_per_s()?.median / case.of_step()?);
    let least = cases.iter().filter_map(of_step).min_by(f64::total_cmp);
    let least = least.map(|value| Limit { name: "at least, the step alone".to_owned(), value });
    let title = "Seconds per epoch, without set-up";
    let svg = grouped_bars_with_limit(title, "s", "workers", &groups, &series, OWN, least.as_ref());
    report.plot("seconds-per-epoch", "Seconds per epoch for each number of workers and batch size", svg);
    // Of the smallest batches, whose runs have the most samples.
    let Some(batch_size) =
        cases.iter().filter(|case| case.stored == 0 && !case.runs().is_empty()).map(|c| c.batch_size).min()
    else {
        return;
    };
    let shown = || cases.iter().filter(|case| (case.stored, case.batch_size) == (0, batch_size));
    type Of = fn(&Usage, &RunTimes) -> Vec<f32>;
    let of_cores: Of = |usage, _| means(&usage.cores).into_iter().map(|share| share as f32).collect();
    let of_gpus: Of = |usage, _| means(&usage.gpus).into_iter().map(|share| share as f32).collect();
    let of_step: Of = |usage, run| match run.images_per_s_of_step() {
        Some(_) => run.step_shares(usage.interval_s, usage.process.len()),
        None => Vec::new(),
    };
    for (file, what, of) in
        [("cores", "Processors", of_cores), ("gpu", "GPU", of_gpus), ("step", "Training step", of_step)]
    {
        let last = |case: &Case| {
            Some((case.workers, case.usage.last()?.interval_s, of(case.usage.last()?, case.runs().last()?)))
        };
        let rows: Vec<(usize, f64, Vec<f32>)> = shown().filter_map(last).filter(|row| !row.2.is_empty()).collect();
        let interval_s = rows.iter().map(|row| row.1).fold(0.0, f64::max);
        let named: Vec<(String, Vec<f32>)> = rows
            .iter()
            .map(|(workers, own_s, row)| (beside::workers(*workers), merged(row, interval_s / own_s)))
            .collect();
        let rows: Vec<(String, &[f32])> = named.iter().map(|(name, row)| (name.clone(), &row[..])).collect();
        if !rows.is_empty() {
            let title = format!("{what} over time, by number of workers; batches of {batch_size}");
            report.plot(format!("{file}-over-time"), title.clone(), heat_map(&title, &rows, interval_s, 0.0));
        }
    }
}

/// Means of so many neighbors.
fn merged(row: &[f32], neighbors: f64) -> Vec<f32> {
    row.chunks((neighbors.round() as usize).max(1))
        .map(|chunk| chunk.iter().sum::<f32>() / chunk.len() as f32)
        .collect()
}

/// Table of each case's other figures.
fn each(cases: &[Case], evaluated: bool, name_of: NameOf<'_>) -> ReportTable {
    let columns = [
        "workers",
        "batch size",
        "images/s",
        "accelerator use, %",
        "evaluation accuracy, %",
        "± %",
        "evaluation, s",
        "set-up, s",
        "stored",
    ];
    let mut table = ReportTable::new("cases", "Each case", &columns);
    table.in_files_only = true;
    for case in cases.iter().filter(|case| case.runs.is_ok()) {
        let accuracy = Spread::of(&case.accuracies);
        table.rows.push(vec![
            Cell::number(case.workers as f64, 0),
            Cell::number(case.batch_size as f64, 0),
            Cell::number(case.images_per_s().map(|rate| rate.median), 0),
            Cell::number(case.accelerator_use().map(|share| 100.0 * share), 1),
            Cell::number(accuracy.map(|accuracy| 100.0 * accuracy.median), 1),
            Cell::number(accuracy.filter(|accuracy| accuracy.rounds > 1).map(|accuracy| 100.0 * accuracy.share()), 1),
            Cell::number(median(&case.evaluations_s), 3),
            Cell::number(median(&case.setup_s()), 3),
            name_of(case),
        ]);
    }
    if cases.iter().all(|case| case.accuracies.is_empty()) {
        let reason =
            if evaluated { "this step is not evaluated (see --step)" } else { "no images to evaluate on (see --eval)" };
        table.blank.push(format!("evaluation accuracy: {reason}."));
    }
    table
}

/// ReportTable with the published grid's columns, one row per epoch.
fn grid(learning_rate: Option<f64>, cases: &[Case], name_of: NameOf<'_>) -> ReportTable {
    let mut table = ReportTable::new(
        "grid",
        "Every epoch",
        &[
            "run",
            "round",
            "epoch, from 0",
            "loss",
            "accuracy",
            "epoch duration, s",
            "run duration, s",
            "learning rate",
            "batch size",
            "workers",
            "stored",
        ],
    );
    for (number, case) in cases.iter().enumerate() {
        let epochs =
            (case.runs().iter().enumerate()).flat_map(|(round, run)| run.epochs.iter().map(move |e| (round, e)));
        for (round, epoch) in epochs {
            table.rows.push(vec![
                Cell::number(number as f64 + 1.0, 0),
                Cell::number(round as f64 + 1.0, 0),
                Cell::number(epoch.epoch as f64, 0),
                Cell::number(epoch.loss, 4),
                Cell::number(epoch.accuracy, 4),
                Cell::number(epoch.seconds, 3),
                Cell::number(epoch.start_s + epoch.seconds, 3),
                learning_rate.map_or(Cell::Blank, |rate| Cell::Text(rate.to_string())),
                Cell::number(case.batch_size as f64, 0),
                Cell::number(case.workers as f64, 0),
                name_of(case),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::configurations::tests::tells;
    use super::super::verdict::default_rounds;
    use super::super::verdict::simulated::{Noise, QUIET, rates};
    use super::*;

    const WORKERS: [usize; 6] = [0, 1, 2, 4, 8, 16];
    const COMPARISONS: usize = 60;

    /// The answer for one of four batch sizes.
    fn made(report: u64, medians: &[f64], rounds: u32, noise: Noise) -> String {
        let cases = WORKERS.into_iter().zip(rates(report, medians, rounds, noise)).map(|(workers, rates)| {
            let seconds = Spread::of(&rates.iter().map(|rate| 200.0 / rate).collect::<Vec<_>>());
            WorkerRates { workers, rates, seconds }
        });
        answer("Batches of 32", cases.collect(), level(COMPARISONS)).unwrap()
    }

    #[test]
    fn equal_numbers_of_workers_are_told_apart_in_one_of_a_hundred_reports_at_most() {
        let rounds = default_rounds(COMPARISONS);
        let told = |report: &u64| {
            (0..4).any(|batch_size| {
                let answer = made(4 * report + batch_size, &[1_000.0; 6], rounds, QUIET);
                tells(&answer) || !answer.starts_with("Batches of 32: no workers, ")
            })
        };
        let told = (0..1_000).filter(told).count();
        assert!(told <= 10, "{told} of 1,000 reports");
    }

    #[test]
    fn workers_that_make_5_percent_more_are_found() {
        let of_none = 1_000.0 / 1.05;
        let medians = [of_none, 1_000.0, 1_000.0, 1_000.0, 1_000.0, 1_000.0];
        let right = |report: &u64| {
            made(*report, &medians, default_rounds(COMPARISONS), QUIET).starts_with("Batches of 32: 1 worker, ")
        };
        let right = (0..300).filter(right).count();
        assert!(right >= 270, "{right} of 300 answers are right");
        let once = made(0, &medians, 1, QUIET);
        assert!(once.contains("cannot tell how many workers are enough: 1 round was measured"), "{once}");
        assert!(once.contains("Fastest measured: ") && !tells(&once), "{once}");
    }
}
