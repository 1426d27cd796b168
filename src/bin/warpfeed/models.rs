//! The training steps that experiments run against, by name.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use warpfeed::experiment::step::{Pace, StatedStep, published, read_lengths};
use warpfeed::experiment::subject::Model;
use warpfeed::{Error, Result};

#[derive(Clone, Copy, Default, ValueEnum)]
enum PaceName {
    /// The thread sleeps, as it does while a GPU computes.
    #[default]
    Sleep,
    /// The thread computes, as it does where training runs on the CPU.
    Spin,
}

/// How models' training steps are had.
#[derive(Args)]
pub struct ModelOptions {
    /// TOML file with further names of steps and their milliseconds: resnet50 = 12.5.
    #[arg(long, value_name = "FILE.toml")]
    steps: Option<PathBuf>,
    /// How steps of stated length pass their time.
    #[arg(long, value_enum, default_value_t)]
    pace: PaceName,
}

impl ModelOptions {
    /// A model by name.
    pub fn model(&self, name: &str) -> Result<Model> {
        if name == "none" {
            return Ok(Model::none());
        }
        let pace = match self.pace {
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
            None => {
                return Err(Error::Parameter {
                    operation: "bench",
                    parameter: "step",
                    expected: "none, resnet18, resnet50, resnet152, milliseconds, or a name in the file of --steps"
                        .to_owned(),
                    got: name.to_owned(),
                });
            }
        };
        Ok(Model { name: name.to_owned(), step: Box::new(step) })
    }
}

/// Which training step.
#[derive(Args)]
pub struct StepOptions {
    /// The training step: none, resnet18, resnet50, resnet152 (as published on a V100), or milliseconds.
    #[arg(long, value_name = "STEP", default_value = "none")]
    step: String,
    #[command(flatten)]
    models: ModelOptions,
}

impl StepOptions {
    /// The model of the option, as new.
    pub fn chosen(&self) -> Result<Model> {
        self.models.model(&self.step)
    }
}
