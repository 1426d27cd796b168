//! warpfeed's experiments and a training loop, with ResNets on libtorch.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;
use warpfeed::ops::{random_horizontal_flip, random_resized_crop};
use warpfeed::{
    DType, Device, Error, IMAGENET_MEAN, IMAGENET_STD, Layout, OnError, Pipeline, Preset, Result, Strategy,
    source::open,
};
use warpfeed_bench::augment_load::{AugmentLoadSettings, augment_load};
use warpfeed_bench::step::{Sgd, TrainingStep};
use warpfeed_bench::subject::{Model, Subject};
use warpfeed_bench::train::TrainingRun;
use warpfeed_tch::{Network, Precision, TchStep};

/// Trains ResNets with libtorch on warpfeed's batches.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    AugmentLoad(AugmentLoad),
    Train(Train),
}

/// Options for images and training.
#[derive(Args)]
struct Common {
    /// Folder of class folders, list, IDX file or shards.
    source: String,
    /// End each epoch after K images.
    #[arg(long, value_name = "K")]
    limit: Option<u64>,
    /// Images in a batch.
    #[arg(long, value_name = "B", default_value_t = 32)]
    batch_size: usize,
    /// Worker threads [default: one for each processor]
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
    /// Seed of order, random transforms and weights.
    #[arg(long, value_name = "S", default_value_t = 42)]
    seed: u32,
    /// Device that libtorch trains on: auto, cpu, cuda:I. auto is cuda:0 if libtorch has CUDA.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Device,
    /// Number format of training.
    #[arg(long, value_enum, default_value_t)]
    precision: Precision,
    /// Learning rate of the first epoch.
    #[arg(long, value_name = "R", default_value_t = 0.1)]
    learning_rate: f64,
}

impl Common {
    fn subject(&self) -> Result<Subject> {
        let mut subject = Subject::limited(self.source.as_str(), open(&self.source)?, self.limit)?;
        (subject.threads, subject.seed) = (self.threads, self.seed.into());
        Ok(subject)
    }

    fn device(&self) -> tch::Device {
        match self.device {
            Device::Cpu => tch::Device::Cpu,
            Device::Cuda(ordinal) => tch::Device::Cuda(ordinal as usize),
            _ => tch::Device::cuda_if_available(),
        }
    }

    /// Makes the network, untrained. If the images name no classes, it has ImageNet's number of them.
    fn step(&self, network: Network, subject: &Subject) -> Result<TchStep> {
        let classes = match subject.input.classes().len() {
            0 => 1_000,
            classes => u32::try_from(classes).unwrap_or(u32::MAX),
        };
        let sgd = Sgd { learning_rate: self.learning_rate, ..Sgd::default() };
        TchStep::new(network, self.precision, classes, sgd, self.seed.into(), self.device())
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum StrategyName {
    Fused,
    Sequential,
}

/// Measure seconds per epoch as augmentation grows, on the CPU and on the GPU, for several networks
///
/// This is `warpfeed bench augment-load` with real training.
#[derive(Args)]
struct AugmentLoad {
    #[command(flatten)]
    common: Common,
    /// Loads: numbers of repetitions of the flips and the rotation.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 4, 8, 12], value_parser = clap::value_parser!(u32).range(0..=1000))]
    loads: Vec<u32>,
    /// Networks to train.
    #[arg(long, value_name = "NAME,...", value_enum, value_delimiter = ',', default_values_t = [Network::Resnet18, Network::Resnet50, Network::Resnet152])]
    models: Vec<Network>,
    /// Strategies by which the CPU runs trial A.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [StrategyName::Sequential, StrategyName::Fused])]
    strategies: Vec<StrategyName>,
    /// Add trials of this automatic augmentation: auto-augment, rand-augment, trivial-augment or aug-mix.
    #[arg(long, value_name = "NAME")]
    preset: Option<Preset>,
    /// Epochs of each run; if there are more than one, the first is reported separately.
    ///
    /// Without --limit an epoch has a part of the images, so that all rounds take as long as six whole epochs.
    #[arg(long, value_name = "E", default_value_t = 1)]
    epochs: u64,
    /// Runs of each case, in turn with the others.
    #[arg(long, value_name = "R", default_value_t = 16)]
    rounds: u32,
    /// Write report.html, report.json, CSV and SVG files into this folder.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl AugmentLoad {
    fn run(self) -> Result<()> {
        let subject = self.common.subject()?;
        let of = |&network: &Network| -> Result<Model> {
            let step = Box::new(self.common.step(network, &subject)?);
            Ok(Model { name: network.name().to_owned(), step })
        };
        let mut models = self.models.iter().map(of).collect::<Result<Vec<_>>>()?;
        let strategies = self.strategies.iter().map(|name| match name {
            StrategyName::Fused => Strategy::Fused,
            StrategyName::Sequential => Strategy::Sequential,
        });
        let settings = AugmentLoadSettings {
            loads: self.loads,
            batch_size: self.common.batch_size,
            epochs: self.epochs,
            rounds: self.rounds,
            strategies: strategies.collect(),
            suite: self.preset,
        };
        let subject = subject.for_rounds(settings.rounds, settings.epochs, settings.batch_size);
        let report = augment_load(&subject, &settings, &mut models, &mut |line| eprintln!("{line}"))?;
        if let Some(folder) = &self.out {
            report.write(folder)?;
        }
        print!("{}", report.text());
        Ok(())
    }
}

/// Train a network, and print loss and accuracy of each epoch
#[derive(Args)]
struct Train {
    #[command(flatten)]
    common: Common,
    /// Network to train.
    #[arg(long, value_enum, default_value = "resnet18")]
    model: Network,
    /// Number of epochs.
    #[arg(long, value_name = "E", default_value_t = 10)]
    epochs: u64,
    /// Side of the images in pixels.
    #[arg(long, value_name = "PX", default_value_t = 224)]
    size: u32,
    /// Device that the pipeline decodes and augments on: auto, cpu, cuda:I.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pipeline_device: Device,
}

impl Train {
    fn run(self) -> Result<()> {
        let subject = self.common.subject()?;
        let mut step = self.common.step(self.model, &subject)?;
        let builder = Pipeline::builder(subject.input.clone()).shuffle(subject.seed).on_error(OnError::Skip);
        let builder = subject.threads.into_iter().fold(builder, warpfeed::PipelineBuilder::threads);
        let builder = subject.limit.into_iter().fold(builder, warpfeed::PipelineBuilder::limit);
        let builder = builder.device(self.pipeline_device).batch_size(self.common.batch_size);
        let builder = builder.transform(random_resized_crop(self.size)).transform(random_horizontal_flip(0.5));
        let pipeline = builder.normalize(IMAGENET_MEAN, IMAGENET_STD).output(DType::F32, Layout::Nchw).build()?;
        println!("{}", step.name());
        let images = pipeline.num_samples().map_or_else(String::new, |images| format!(", {images} images an epoch"));
        println!("Pipeline on {}{images}", pipeline.device_name());
        println!("epoch      loss  accuracy  images/s");
        let mut say = |event: &_| {
            if let warpfeed_bench::events::Event::Epoch { epoch, seconds, images, loss, accuracy, .. } = event {
                let number = |value: &Option<f64>| value.map_or_else(String::new, |value| format!("{value:.4}"));
                let (loss, accuracy, speed) = (number(loss), number(accuracy), *images as f64 / seconds);
                println!("{epoch:>5}  {loss:>8}  {accuracy:>8}  {speed:>10.1}");
            }
            Ok(())
        };
        let mut run = TrainingRun::start(&mut step, &mut say);
        for epoch in 0..self.epochs {
            run.epoch(&pipeline, epoch, None)?;
        }
        let times = run.finish();
        if times.bad > 0 {
            eprintln!("Images that could not be used were skipped {} times.", times.bad);
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::AugmentLoad(augment_load) => augment_load.run(),
        Command::Train(train) => train.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warpfeed-tch: {error}");
            ExitCode::from(match error {
                Error::Device { .. } => 3,
                Error::Parameter { .. } => 2,
                _ => 1,
            })
        }
    }
}
