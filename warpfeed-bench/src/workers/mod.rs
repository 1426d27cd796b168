//! Measures epochs by number of workers, batch size and storage: the published comparisons [`DEEPLIZARD`], [`GLUON`]
//! and [`SAGEMAKER_IO`].

mod answer;
mod plots;
mod publications;
mod tables;

use super::environment::{self, available_memory_bytes};
use super::grid::{self, in_rounds};
use super::published::{DEEPLIZARD, GLUON, SAGEMAKER_IO};
use super::report::{Cell, Report};
use super::spread::{Spread, with_rounds};
use super::stored::Stored;
use super::subject::{Model, Subject};
use super::train::{RunTimes, about_setup, evaluate, ignore, measured_epochs, skipped};
use super::utilization;
use super::verdict::{self, pairs};
use serde_json::{Value, json};
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
#[derive(Default)]
struct Key {
    /// Number of the way to store the images; 0 is the subject's own.
    stored: usize,
    workers: usize,
    batch_size: usize,
    /// The reason why it is not run.
    not_run: Option<String>,
    /// Accuracy after each run, if the step reports it.
    accuracies: Vec<f64>,
    /// Seconds of each evaluation.
    evaluations_s: Vec<f64>,
}

type Case = grid::Case<Key>;

/// Everything that was measured, for tables, plots and the answer.
struct Results<'a> {
    settings: &'a WorkersSettings,
    /// All ways to store the images.
    stored: Vec<Stored>,
    learning_rate: Option<f64>,
    cases: Vec<Case>,
}

impl Results<'_> {
    /// The cases that were run.
    fn ran(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(|case| !case.runs.is_empty())
    }

    /// A case that was run.
    fn case(&self, stored: usize, batch_size: usize, workers: usize) -> Option<&Case> {
        self.ran().find(|Case { key, .. }| (key.stored, key.batch_size, key.workers) == (stored, batch_size, workers))
    }

    /// The smallest batches that were run.
    fn smallest_batch(&self) -> usize {
        self.ran().map(|case| case.key.batch_size).min().unwrap_or(0)
    }

    /// Ways to store the images with batch sizes. Each is measured with all numbers of workers.
    fn groups(&self) -> Vec<(usize, usize)> {
        let of = |stored| self.settings.batch_sizes.iter().map(move |&batch_size| (stored, batch_size));
        (0..self.stored.len()).flat_map(of).collect()
    }

    /// The name of a way to store the images with a comma after it; nothing if there is only one.
    fn prefix(&self, stored: usize) -> String {
        if self.stored.len() > 1 { format!("{}, ", self.stored[stored].name) } else { String::new() }
    }

    fn stored_cell(&self, stored: usize) -> Cell {
        if self.stored.len() > 1 { self.stored[stored].name.as_str().into() } else { Cell::Blank }
    }

    fn json(&self) -> Vec<Value> {
        let case = |case: &Case| {
            let Key { stored, workers, batch_size, not_run, accuracies, evaluations_s } = &case.key;
            case.json(json!({
                "stored": self.stored[*stored].name, "workers": workers, "batch_size": batch_size,
                "steady_seconds_per_epoch": case.seconds(),
                "seconds_per_epoch": Spread::of(&case.figures(RunTimes::later_seconds)),
                "steady_images_per_s": with_rounds(&case.rates()),
                "setup_s": with_rounds(&case.figures(RunTimes::setup_s)), "not_run": not_run,
                "evaluation_accuracy": with_rounds(accuracies), "evaluation_s": with_rounds(evaluations_s),
            }))
        };
        self.cases.iter().map(case).collect()
    }
}

/// Builds the pipelines of all cases.
struct Pipelines<'a> {
    subject: &'a Subject,
    settings: &'a WorkersSettings,
    stored: &'a [Stored],
}

impl Pipelines<'_> {
    fn build(&self, stored: usize, workers: usize, batch_size: usize) -> Result<Pipeline> {
        let stored = &self.stored[stored];
        let builder = Subject { input: stored.input.clone(), ..self.subject.clone() }.builder();
        let builder = stored.add_to(builder.threads(workers).batch_size(batch_size));
        self.settings.ops.iter().cloned().fold(builder, PipelineBuilder::transform).build()
    }

    /// Runs an epoch of each way whose images are stored by it.
    fn store(&self, progress: &mut dyn FnMut(&str)) -> Result<()> {
        for (number, stored) in self.stored.iter().enumerate().filter(|(_, stored)| stored.is_to_be_made()) {
            progress(&format!("{}: being made", stored.name));
            let pipeline = self.build(number, environment::cores(), self.settings.batch_sizes[0])?;
            for epoch in 0..self.settings.epochs {
                pipeline.epoch(epoch).try_for_each(|batch| batch.map(drop))?;
            }
        }
        Ok(())
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
    let stored: Vec<Stored> = std::iter::once(own).chain(settings.others.iter().cloned()).collect();
    let mut results = Results { settings, stored: stored.clone(), learning_rate: None, cases: Vec::new() };
    let pipelines = Pipelines { subject, settings, stored: &stored };
    let (mut device, mut prefetch) = (String::new(), 0);
    for (stored, batch_size) in results.groups() {
        for &workers in &settings.workers {
            let pipeline = pipelines.build(stored, workers, batch_size)?;
            (device, prefetch) = (pipeline.device_name(), pipeline.prefetch());
            let not_run = cannot(&pipeline, batch_size, subject.len());
            if let Some(reason) = &not_run {
                progress(&format!("{}, batches of {batch_size}: not run: {reason}", count(workers)));
            }
            results.cases.push(Case::new(Key { stored, workers, batch_size, not_run, ..Key::default() }));
        }
    }
    // Made first, so that a model that cannot be made is reported before anything is measured.
    let first = model()?;
    let step = first.about();
    results.learning_rate = first.step.learning_rate();
    drop(first);
    pipelines.store(progress)?;
    let prefixes: Vec<String> = (0..stored.len()).map(|stored| results.prefix(stored)).collect();
    let mut run: Vec<&mut Case> = results.cases.iter_mut().filter(|case| case.key.not_run.is_none()).collect();
    in_rounds(&mut run, (settings.rounds, subject.seed), progress, |case, _| {
        let Key { stored, workers, batch_size, .. } = case.key;
        let (mut model, pipeline) = (model()?, pipelines.build(stored, workers, batch_size)?);
        case.measure(model.step.as_mut(), &mut ignore, |run| {
            (0..settings.epochs).try_for_each(|epoch| run.epoch(&pipeline, epoch, None))
        })?;
        if let Some(images) = &settings.evaluation {
            let held_out = evaluation(subject, settings, images, workers)?;
            let start = Instant::now();
            if let Some(accuracy) = evaluate(model.step.as_mut(), &held_out)? {
                case.key.evaluations_s.push(start.elapsed().as_secs_f64());
                case.key.accuracies.push(accuracy);
            }
        }
        let seconds = case.runs.last().and_then(RunTimes::later_seconds).unwrap_or(0.0);
        let (prefix, workers) = (&prefixes[stored], count(workers));
        Ok(format!("{prefix}{workers}, batches of {batch_size}: {seconds:.2} s per epoch"))
    })?;
    report.measured();
    let runs = || results.cases.iter().flat_map(|case| &case.runs);
    report.settings = json!({
        "device": device, "transforms": settings.ops, "workers": settings.workers, "prefetch": prefetch,
        "batch_sizes": settings.batch_sizes, "epochs": settings.epochs, "rounds": settings.rounds.max(1),
        "stored": settings.others.iter().map(|stored| &stored.name).collect::<Vec<_>>(),
        "images_per_epoch": runs().flat_map(|run| run.epochs.first()).map(|epoch| epoch.images).max(),
        "step": step, "seed": subject.seed, "learning_rate": results.learning_rate,
    });
    report.tables = results.tables();
    report.publications.extend([DEEPLIZARD, GLUON, SAGEMAKER_IO]);
    results.plots(&mut report);
    results.answer(&mut report);
    report.answer.extend(about_setup(runs()));
    report.notes.push(utilization::NOTE.to_owned());
    report.notes.extend(skipped(runs()));
    report.notes.extend([verdict::note(settings.rounds), verdict::choice_note()]);
    report.notes.push("With 0 workers the trainer's thread makes each batch when it asks.".to_owned());
    report.notes.push(measured_epochs(settings.epochs));
    report.figures = json!({ "cases": results.json() });
    Ok(report)
}

/// A number of workers in words.
fn count(workers: usize) -> String {
    match workers {
        0 => "no workers".to_owned(),
        1 => "1 worker".to_owned(),
        workers => format!("{workers} workers"),
    }
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
        let normalize = settings
            .ops
            .iter()
            .filter(|op| matches!(op, Transform::Explicit(Op::Normalize(_) | Op::ToFloat(_))))
            .cloned();
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
