//! Training steps of the experiments, by name.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use warpfeed::{Error, Result};
use warpfeed_bench::step::{Pace, StatedStep, published, read_lengths};
use warpfeed_bench::subject::{Model, Subject};

/// Seed of the network's weights.
#[cfg(feature = "candle")]
const SEED: u64 = 42;

#[derive(Clone, Copy, Default, ValueEnum)]
enum PaceName {
    /// Run a kernel of that length on the batches' GPU; sleep for batches on the CPU.
    #[default]
    Device,
    /// Sleep, like a thread that waits for a GPU.
    Sleep,
    /// Compute, like training on the CPU.
    Spin,
}

/// Options for the models' training steps.
#[derive(Args)]
pub struct ModelOptions {
    /// TOML file with more steps and their milliseconds, such as resnet50 = 12.5.
    #[arg(long, value_name = "FILE.toml")]
    steps: Option<PathBuf>,
    /// How a step of a given length spends its time.
    #[arg(long, value_enum, default_value_t)]
    pace: PaceName,
    /// Channels of the first stage of candle's networks [64 as published; fewer train faster]
    #[cfg(feature = "candle")]
    #[arg(long, value_name = "W", default_value_t = 64)]
    width: usize,
    /// Learning rate of candle's training.
    #[cfg(feature = "candle")]
    #[arg(long, value_name = "R", default_value_t = 0.1)]
    learning_rate: f64,
}

#[cfg(feature = "candle")]
impl ModelOptions {
    /// Makes a network that candle trains.
    fn candle(&self, name: &str, network: &str, subject: &Subject) -> Result<Model> {
        use warpfeed_bench::step::{Architecture, CandleStep, Sgd};
        let network = match network {
            "resnet18" => Architecture::ResNet18,
            "resnet50" => Architecture::ResNet50,
            "cnn" => Architecture::TwoConvolutions,
            _ => return Err(unknown(name)),
        };
        let sgd = Sgd { learning_rate: self.learning_rate, ..Sgd::default() };
        let step = CandleStep::new(network, self.width, classes(subject), sgd, SEED, &candle_device(subject)?)?;
        Ok(Model { name: name.to_owned(), step: Box::new(step) })
    }
}

/// The device that candle trains on: the images' GPU or the first one, if this build has candle-cuda; else the CPU.
#[cfg(feature = "candle")]
fn candle_device(subject: &Subject) -> Result<candle_core::Device> {
    let device = match subject.device {
        warpfeed::Device::Cuda(ordinal) => warpfeed::Device::Cuda(ordinal),
        _ => warpfeed::Device::Cuda(0),
    };
    match device {
        warpfeed::Device::Cuda(ordinal) if cfg!(feature = "candle-cuda") && device.available().is_ok() => {
            candle_core::Device::new_cuda_with_stream(ordinal as usize).map_err(|error| {
                let call = "open a GPU with candle".to_owned();
                Error::Device { call, message: error.to_string() }
            })
        }
        _ => Ok(candle_core::Device::Cpu),
    }
}

/// Number of classes of the images. If the source names none: ImageNet's 1,000.
#[cfg(feature = "candle")]
fn classes(subject: &Subject) -> usize {
    Some(subject.input.classes().len()).filter(|&classes| classes > 0).unwrap_or(1_000)
}

impl ModelOptions {
    /// Makes a model by its name, for these images.
    pub fn model(&self, name: &str, subject: &Subject) -> Result<Model> {
        if let Some(network) = name.strip_prefix("candle-") {
            #[cfg(feature = "candle")]
            return self.candle(name, network, subject);
            #[cfg(not(feature = "candle"))]
            return Err(Error::Unsupported {
                feature: format!("training {network} on {}", subject.name),
                remedy: "build warpfeed with the feature candle (cargo install warpfeed --features candle)".to_owned(),
            });
        }
        if name == "none" {
            return Ok(Model::none());
        }
        let pace = match self.pace {
            PaceName::Device => Pace::Device,
            PaceName::Sleep => Pace::Sleep,
            PaceName::Spin => Pace::Spin,
        };
        let of_file = self.steps.as_ref().map(read_lengths).transpose()?.and_then(|lengths| lengths.get(name).copied());
        let length = of_file.or_else(|| {
            let ms = name.strip_suffix("ms").unwrap_or(name).parse::<f64>().ok()?;
            Duration::try_from_secs_f64(ms / 1e3).ok()
        });
        let step = match length {
            Some(length) => StatedStep::new(name, length, pace)?,
            None if published(name).is_some() => StatedStep::published(name, pace)?,
            None => return Err(unknown(name)),
        };
        Ok(Model { name: name.to_owned(), step: Box::new(step) })
    }
}

fn unknown(name: &str) -> Error {
    let candle = if cfg!(feature = "candle") { "candle-resnet18, candle-resnet50, candle-cnn, " } else { "" };
    Error::Parameter {
        operation: "bench",
        parameter: "step",
        expected: format!(
            "none, resnet18, resnet50, resnet152, {candle}milliseconds, or a name in the file of --steps"
        ),
        got: name.to_owned(),
    }
}

/// Options for the training step.
#[derive(Args)]
pub struct StepOptions {
    /// Training step: none, resnet18, resnet50, resnet152, milliseconds, or a network of candle.
    ///
    /// candle's networks are candle-resnet18, candle-resnet50 and candle-cnn. The ResNets are steps of the length
    /// published for a V100. candle's networks need the feature candle; candle-cnn has two convolutions, for images as
    /// small as MNIST's. They train on a GPU with the feature candle-cuda, else on the CPU.
    #[arg(long, value_name = "STEP", default_value = "none")]
    step: String,
    #[command(flatten)]
    models: ModelOptions,
}

impl StepOptions {
    /// Makes the chosen model, untrained.
    pub fn chosen(&self, subject: &Subject) -> Result<Model> {
        self.models.model(&self.step, subject)
    }
}
