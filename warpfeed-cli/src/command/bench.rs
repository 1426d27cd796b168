//! `warpfeed bench`: the experiments, each with its report.

use super::diagnose::Diagnose;
use super::experiment::{DeviceOptions, GridOptions, ReportOptions, SubjectOptions};
use super::models::{ModelOptions, StepOptions};
use super::options::PresetOptions;
use super::peers::Peers;
use super::setting_args::choice;
use super::stored::StoredOptions;
use super::supply::Supply;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use warpfeed::ops::{Normalize, Resize, Transform};
use warpfeed::{IMAGENET_MEAN, IMAGENET_STD, Preset, Result, Strategy};
use warpfeed_bench::augment_load::augment_load;
use warpfeed_bench::configurations::configurations;
use warpfeed_bench::events::EventLog;
use warpfeed_bench::verdict::default_rounds;
use warpfeed_bench::workers::workers;
use warpfeed_bench::{augment_load, workers};

/// Smaller images are trained on at their own size.
const SMALL_PX: f64 = 64.0 * 64.0;

/// Run an experiment and report it
///
/// Results go to standard output, progress to standard error. --out writes report.html, report.json, CSV and SVG files.
#[derive(Args)]
pub struct Bench {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    AugmentLoad(AugmentLoad),
    Workers(Workers),
    Configurations(Configurations),
    Diagnose(Diagnose),
    Peers(Peers),
    Supply(Supply),
}

impl Bench {
    pub fn run(self) -> Result<()> {
        match self.experiment {
            Experiment::AugmentLoad(augment_load) => augment_load.run(),
            Experiment::Workers(workers) => workers.run(),
            Experiment::Configurations(configurations) => configurations.run(),
            Experiment::Diagnose(diagnose) => diagnose.run(),
            Experiment::Peers(peers) => peers.run(),
            Experiment::Supply(supply) => supply.run(),
        }
    }
}

/// Measure seconds per epoch as augmentation grows, on the CPU and on the GPU, for several models
///
/// Trial A augments on the CPU: N times flips and a rotation, then a random resized crop. Trial B augments on the GPU.
/// Both run as published; trial A's operations also run on the GPU. Cases that cannot run here are left blank.
#[derive(Args)]
struct AugmentLoad {
    #[command(flatten)]
    subject: SubjectOptions,
    /// Loads: numbers of repetitions of the flips and the rotation.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4, 8, 12], value_parser = clap::value_parser!(u32).range(0..=1000))]
    loads: Vec<u32>,
    /// Models: none, resnet18, resnet50, resnet152, milliseconds, or candle-resnet18, candle-resnet50, candle-cnn.
    ///
    /// none is the pipeline alone. The ResNets are steps of the length published for a V100. candle's networks need the
    /// feature candle. They train on a GPU with the feature candle-cuda, else on the CPU.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = ["none", "resnet18", "resnet50", "resnet152"])]
    models: Vec<String>,
    #[command(flatten)]
    step: ModelOptions,
    /// Strategies by which the CPU runs trial A.
    #[arg(long, value_parser = choice::<Strategy>("strategy"), value_delimiter = ',', default_value = "sequential,fused")]
    strategies: Vec<Strategy>,
    /// Add trials of this automatic augmentation: auto-augment, rand-augment, trivial-augment or aug-mix.
    ///
    /// It is repeated as often as the operations of the published trials.
    #[arg(long, value_name = "NAME")]
    preset: Option<Preset>,
    /// Images in a batch.
    #[arg(long, value_name = "B", default_value_t = 32)]
    batch_size: usize,
    /// Epochs of each run; if there are more than one, the first is reported separately.
    ///
    /// Without --limit an epoch has a part of the images, so that all rounds take as long as six whole epochs.
    #[arg(long, value_name = "E", default_value_t = 1)]
    epochs: u64,
    /// Runs of each case, in turn with the others [default: as many as the verdicts need, 16 or more]
    #[arg(long, value_name = "R")]
    rounds: Option<u32>,
    /// Worker threads [default: one for each processor]
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
    #[command(flatten)]
    report: ReportOptions,
}

impl AugmentLoad {
    fn run(self) -> Result<()> {
        let mut subject = self.subject.subject()?;
        let of_name = |name: &String| self.step.model(name, &subject);
        let mut models = self.models.iter().map(of_name).collect::<Result<Vec<_>>>()?;
        subject.threads = self.threads;
        let mut settings = augment_load::AugmentLoadSettings {
            loads: self.loads,
            batch_size: self.batch_size,
            epochs: self.epochs,
            rounds: 0,
            strategies: self.strategies,
            suite: self.preset,
        };
        settings.rounds = self.rounds.unwrap_or_else(|| default_rounds(settings.comparisons(models.len())));
        let subject = subject.for_rounds(settings.rounds, settings.epochs, settings.batch_size);
        self.report.run(|progress| augment_load(&subject, &settings, &mut models, progress))
    }
}

/// Measure seconds per epoch by number of workers and batch size
///
/// With 0 workers the trainer's thread makes the batches.
#[derive(Args)]
struct Workers {
    #[command(flatten)]
    subject: SubjectOptions,
    #[command(flatten)]
    device: DeviceOptions,
    /// Numbers of workers.
    #[arg(long, value_name = "W", value_delimiter = ',', default_values_t = [0, 1, 2, 4, 8, 16])]
    workers: Vec<usize>,
    /// Images in a batch.
    #[arg(long, value_name = "B", value_delimiter = ',', default_values_t = [64, 100, 1000, 10000])]
    batch_sizes: Vec<usize>,
    /// Epochs of each run; if there are more than one, the figures are of those after the first.
    ///
    /// Without --limit an epoch has a part of the images, so that all rounds take as long as six whole epochs.
    #[arg(long, value_name = "E", default_value_t = 1)]
    epochs: u64,
    /// Runs of each case, in turn with the others [default: as many as the verdicts need, 16 or more]
    #[arg(long, value_name = "R")]
    rounds: Option<u32>,
    /// Resize images to S x S pixels, without augmentation [default: small images at their size, others by --preset]
    #[arg(long, value_name = "S")]
    size: Option<u32>,
    #[command(flatten)]
    preset: PresetOptions,
    #[command(flatten)]
    step: StepOptions,
    /// Images to evaluate a trained network on after each run: a source with the same classes as SOURCE.
    #[arg(long, value_name = "SOURCE")]
    eval: Option<PathBuf>,
    #[command(flatten)]
    stored: StoredOptions,
    #[command(flatten)]
    report: ReportOptions,
}

impl Workers {
    fn run(self) -> Result<()> {
        let subject = self.device.on(&self.subject)?;
        let size = match self.size {
            Some(size) => Some(size),
            None => {
                let mean_px = subject.data_set()?.mean_px;
                (mean_px < SMALL_PX).then(|| mean_px.sqrt().round().max(1.0) as u32)
            }
        };
        let (counts, sizes) = (self.workers.len(), self.batch_sizes.len());
        let comparisons = workers::WorkersSettings::comparisons(counts, sizes, self.stored.count());
        let rounds = self.rounds.unwrap_or_else(|| default_rounds(comparisons));
        let fits = |batch_size: &&usize| subject.len().is_none_or(|images| **batch_size as u64 <= images);
        let largest = self.batch_sizes.iter().filter(fits).max().copied().unwrap_or(1);
        let subject = subject.for_rounds(rounds, self.epochs, largest);
        let ops = size.map_or_else(|| self.preset.ops(), |side| Ok(plain(side)))?;
        let (others, _folder) = self.stored.others(&self.subject, &subject, &ops)?;
        let settings = workers::WorkersSettings {
            workers: self.workers,
            batch_sizes: self.batch_sizes,
            epochs: self.epochs,
            rounds,
            ops,
            evaluation: self.eval.as_deref().map(|spec| self.subject.other(spec)).transpose()?,
            others,
        };
        self.report.run(|progress| workers(&subject, &settings, &mut || self.step.chosen(&subject), progress))
    }
}

/// Transforms that resize to `side` and normalize, without augmentation.
fn plain(side: u32) -> Vec<Transform> {
    vec![Resize::new(side).into(), Normalize::new(IMAGENET_MEAN, IMAGENET_STD).into()]
}

/// Measure configurations of the pipeline against a training step and rank them
///
/// With --out every batch is logged to events.jsonl while the experiment runs, one JSON line each.
#[derive(Args)]
struct Configurations {
    #[command(flatten)]
    subject: SubjectOptions,
    #[command(flatten)]
    grid: GridOptions,
    #[command(flatten)]
    device: DeviceOptions,
    #[command(flatten)]
    step: StepOptions,
    #[command(flatten)]
    report: ReportOptions,
}

impl Configurations {
    fn run(self) -> Result<()> {
        let settings = self.grid.settings(&[true, false], &[true, false], true)?;
        let subject = self.device.on(&self.subject)?;
        let mut model = self.step.chosen(&subject)?;
        self.report.run(|progress| {
            let folder = self.report.out.as_ref();
            let mut log = folder.map(|folder| EventLog::create(&folder.join("events.jsonl"))).transpose()?;
            let mut on_event = |event: &_| log.as_mut().map_or(Ok(()), |log| log.write(event));
            Ok(configurations(&subject, &settings, &mut model, &mut on_event, progress)?.report)
        })
    }
}
