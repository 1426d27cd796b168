//! Times epochs for several numbers of workers and several batch sizes: the grid of the published comparisons of
//! `num_workers`, with its columns.

use super::environment::available_memory_bytes;
use super::report::plot::{Series, grouped_bars};
use super::report::{Cell, Report, Table};
use super::subject::{Model, Subject};
use super::train::{Run, RunTimes, skipped};
use crate::error::{Error, Result};
use crate::ops::transform::Transform;
use crate::pipeline::{Builder, Pipeline};
use serde_json::json;

/// What to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Numbers of workers; with 0 the trainer's thread makes the batches.
    pub workers: Vec<usize>,
    /// Images a batch.
    pub batch_sizes: Vec<usize>,
    /// Epochs of each run.
    pub epochs: u64,
    /// The operations, ending in one size.
    pub ops: Vec<Transform>,
}

/// One cell of the grid.
struct Case {
    workers: usize,
    batch_size: usize,
    run: Result<RunTimes, String>,
}

impl Case {
    fn seconds(&self) -> Option<f64> {
        self.run.as_ref().ok()?.later_mean(|epoch| epoch.seconds)
    }
}

/// Runs every number of workers with every batch size, each on a fresh model from `model`. `progress` is called for
/// each.
///
/// # Errors
/// [`Error::Parameter`] for settings without workers, batches or an epoch; errors of pipelines and steps.
pub fn workers(
    subject: &Subject,
    settings: &Settings,
    model: &mut dyn FnMut() -> Result<Model>,
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    if settings.workers.is_empty() || settings.batch_sizes.is_empty() || settings.epochs == 0 {
        return Err(Error::parameter("workers", "workers, batch sizes and epochs", "one or more of each", "none"));
    }
    let mut report = subject.report("workers", "How many workers, and how large a batch?")?;
    let mut cases = Vec::new();
    let (mut step, mut learning_rate) = (String::new(), None);
    for &batch_size in &settings.batch_sizes {
        for &workers in &settings.workers {
            let mut model = model()?;
            step = model.about();
            learning_rate = model.step.learning_rate().or(learning_rate);
            let builder = subject.builder().threads(workers).batch_size(batch_size);
            let pipeline = settings.ops.iter().cloned().fold(builder, Builder::augment).build()?;
            let run = match cannot(&pipeline, batch_size, subject.len()) {
                Some(reason) => Err(reason),
                None => {
                    let mut ignore = |_: &_| Ok(());
                    let mut run = Run::start(model.step.as_mut(), &mut ignore);
                    for epoch in 0..settings.epochs {
                        run.epoch(&pipeline, epoch, None)?;
                    }
                    Ok(run.finish())
                }
            };
            let case = Case { workers, batch_size, run };
            let said = match &case.run {
                Ok(_) => format!("{:.2} s per epoch", case.seconds().unwrap_or(0.0)),
                Err(reason) => format!("not run: {reason}"),
            };
            let (done, all) = (cases.len() + 1, settings.workers.len() * settings.batch_sizes.len());
            progress(&format!("{done}/{all} {workers} workers, batches of {batch_size}: {said}"));
            cases.push(case);
        }
    }
    report.settings = json!({
        "workers": settings.workers, "batch_sizes": settings.batch_sizes, "epochs": settings.epochs, "step": step,
        "images_per_epoch": subject.len(), "seed": subject.seed, "learning_rate": learning_rate,
    });
    report.tables = vec![summary(settings, &cases), grid(learning_rate, &cases)];
    let groups: Vec<String> = settings.workers.iter().map(usize::to_string).collect();
    let find = |workers, batch_size| cases.iter().find(|case| (case.workers, case.batch_size) == (workers, batch_size));
    let series: Vec<Series> = (settings.batch_sizes.iter())
        .filter(|&&batch_size| cases.iter().any(|case| case.batch_size == batch_size && case.run.is_ok()))
        .map(|&batch_size| Series {
            name: format!("batch {batch_size}"),
            values: settings.workers.iter().map(|&workers| find(workers, batch_size)?.seconds()).collect(),
        })
        .collect();
    let svg = grouped_bars("Seconds per epoch", "s", "workers", &groups, &series);
    report.plot("seconds-per-epoch", "Seconds per epoch for each number of workers and batch size", svg);
    for &batch_size in &settings.batch_sizes {
        report.answer.extend(answer(batch_size, &cases));
        let reason = cases.iter().find_map(|case| (case.batch_size == batch_size).then_some(case.run.as_ref().err()?));
        report.tables[0].blank.extend(reason.map(|reason| format!("batches of {batch_size}: {reason}.")));
    }
    if report.answer.is_empty() {
        report.answer.push("Nothing was run; the table says why.".to_owned());
    }
    report.notes.extend(skipped(cases.iter().filter_map(|case| case.run.as_ref().ok())));
    if learning_rate.is_none() {
        report.tables[1].blank.push("learning rate: this step has none.".to_owned());
    }
    report.notes.push(format!("Training step: {step}."));
    if cases.iter().filter_map(|case| case.run.as_ref().ok()).all(|run| run.epochs.iter().all(|e| e.loss.is_none())) {
        report.tables[1].blank.push("loss, accuracy: this step trains nothing (see --step).".to_owned());
    }
    report.notes.push(
        "With 0 workers the trainer's thread makes each batch when it asks. Seconds per epoch are the mean of the epochs \
         after the first."
            .to_owned(),
    );
    report.figures = json!({
        "runs": cases.iter().map(|case| json!({
            "workers": case.workers, "batch_size": case.batch_size, "seconds_per_epoch": case.seconds(),
            "run": case.run.as_ref().ok(), "not_run": case.run.as_ref().err(),
        })).collect::<Vec<_>>(),
    });
    Ok(report)
}

/// Why a pipeline is not run.
fn cannot(pipeline: &Pipeline, batch_size: usize, images: u64) -> Option<String> {
    if batch_size as u64 > images {
        return Some(format!("there are {images} images an epoch"));
    }
    let (needs, free) = (pipeline.memory().batches_bytes, available_memory_bytes()?);
    (needs > free / 10 * 8)
        .then(|| format!("they take {:.1} GB of {:.1} GB free", needs as f64 / 1e9, free as f64 / 1e9))
}

fn answer(batch_size: usize, cases: &[Case]) -> Option<String> {
    let ran = || {
        cases.iter().filter(move |case| case.batch_size == batch_size).filter_map(|c| Some((c.workers, c.seconds()?)))
    };
    let (best, seconds) = ran().min_by(|a, b| a.1.total_cmp(&b.1))?;
    if best == 0 {
        return Some(format!("Batches of {batch_size}: fastest without workers, {seconds:.3} s per epoch."));
    }
    let without = ran().find(|(workers, _)| *workers == 0).map_or_else(String::new, |(_, own)| {
        format!("; {:.2} times as fast as without workers ({own:.3} s)", own / seconds)
    });
    let workers = if best == 1 { "worker" } else { "workers" };
    Some(format!("Batches of {batch_size}: fastest with {best} {workers}, {seconds:.3} s per epoch{without}."))
}

/// Seconds per epoch, a row a number of workers.
fn summary(settings: &Settings, cases: &[Case]) -> Table {
    let columns = settings.batch_sizes.iter().map(|batch_size| format!("batch {batch_size}, s"));
    let columns: Vec<String> = std::iter::once("workers".to_owned()).chain(columns).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new("seconds-per-epoch", "Seconds per epoch", &columns);
    for &workers in &settings.workers {
        let of = cases.iter().filter(|case| case.workers == workers);
        let seconds = of.map(|case| Cell::number(case.seconds(), 3));
        table.rows.push(std::iter::once(Cell::number(workers as f64, 0)).chain(seconds).collect());
    }
    table
}

/// The published grid's columns: a row an epoch.
fn grid(learning_rate: Option<f64>, cases: &[Case]) -> Table {
    let mut table = Table::new(
        "grid",
        "Every epoch",
        &[
            "run",
            "epoch",
            "loss",
            "accuracy",
            "epoch duration, s",
            "run duration, s",
            "learning rate",
            "batch size",
            "workers",
        ],
    );
    for (number, case) in cases.iter().enumerate() {
        let Ok(run) = &case.run else { continue };
        for epoch in &run.epochs {
            table.rows.push(vec![
                Cell::number(number as f64 + 1.0, 0),
                Cell::number(epoch.epoch as f64 + 1.0, 0),
                Cell::number(epoch.loss, 4),
                Cell::number(epoch.accuracy, 4),
                Cell::number(epoch.seconds, 3),
                Cell::number(epoch.start_s + epoch.seconds, 3),
                learning_rate.map_or(Cell::Blank, |rate| Cell::Text(rate.to_string())),
                Cell::number(case.batch_size as f64, 0),
                Cell::number(case.workers as f64, 0),
            ]);
        }
    }
    table
}
