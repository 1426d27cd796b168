//! The training steps that experiments run against, by name.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use warpfeed::experiment::step::{Pace, StatedStep, published, read_lengths};
use warpfeed::experiment::subject::{Model, Subject};
use warpfeed::{Error, Result};

/// Seed of the weights.
#[cfg(feature = "candle")]
const SEED: u64 = 42;

#[derive(Clone, Copy, Default, ValueEnum)]
enum PaceName {
    /// A kernel of that length runs on the GPU that the batches are on; for batches on the CPU, as sleep.
    #[default]
    Device,
    /// The thread sleeps, as it does while a GPU computes.
    Sleep,
    /// The thread computes, as it does where training runs on the CPU.
    Spin,
}

/// How models' training steps are had.
#[derive(Args)]
pub struct ModelOptions {
    /// TOML file with more steps and their milliseconds, as in resnet50 = 12.5.
    #[arg(long, value_name = "FILE.toml")]
    steps: Option<PathBuf>,
    /// How steps of a stated length spend their time.
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
    /// A network that candle trains on the CPU.
    fn candle(&self, name: &str, network: &str, classes: usize) -> Result<Model> {
        use warpfeed::experiment::step::{Architecture, CandleStep, Sgd};
        let network = match network {
            "resnet18" => Architecture::ResNet18,
            "resnet50" => Architecture::ResNet50,
            _ => return Err(unknown(name)),
        };
        let sgd = Sgd { learning_rate: self.learning_rate, ..Sgd::default() };
        let step = CandleStep::new(network, self.width, classes, sgd, SEED, &candle_core::Device::Cpu)?;
        Ok(Model { name: name.to_owned(), step: Box::new(step) })
    }
}

impl ModelOptions {
    /// A model by name, for images of so many classes.
    pub fn model(&self, name: &str, classes: usize) -> Result<Model> {
        #[cfg(feature = "candle")]
        if let Some(network) = name.strip_prefix("candle-") {
            return self.candle(name, network, classes);
        }
        #[cfg(not(feature = "candle"))]
        let _ = classes;
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
    let candle = if cfg!(feature = "candle") { "candle-resnet18, candle-resnet50, " } else { "" };
    Error::Parameter {
        operation: "bench",
        parameter: "step",
        expected: format!(
            "none, resnet18, resnet50, resnet152, {candle}milliseconds, or a name in the file of --steps"
        ),
        got: name.to_owned(),
    }
}

/// How many classes images have; ImageNet's number where they do not say.
pub fn classes(subject: &Subject) -> usize {
    Some(subject.input.classes().len()).filter(|&classes| classes > 0).unwrap_or(1_000)
}

/// Which training step.
#[derive(Args)]
pub struct StepOptions {
    /// The training step: none; resnet18, resnet50 or resnet152 (with the time published for a V100); milliseconds; or,
    /// with feature candle, candle-resnet18 or candle-resnet50, which train on the CPU.
    #[arg(long, value_name = "STEP", default_value = "none")]
    step: String,
    #[command(flatten)]
    models: ModelOptions,
}

impl StepOptions {
    /// The model of the option, as new.
    pub fn chosen(&self, subject: &Subject) -> Result<Model> {
        self.models.model(&self.step, classes(subject))
    }
}
