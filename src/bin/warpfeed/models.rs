//! The training steps that experiments run against, by name.

use clap::Args;
use std::time::Duration;
use warpfeed::experiment::step::Stated;
use warpfeed::experiment::subject::Model;
use warpfeed::{Error, Result};

/// Which training step.
#[derive(Args)]
pub struct StepOptions {
    /// The training step: none, resnet-18, resnet-50, resnet-152, or milliseconds.
    #[arg(long, value_name = "STEP", default_value = "none")]
    step: String,
}

impl StepOptions {
    /// The model of the option.
    pub fn chosen(&self) -> Result<Model> {
        self.model(&self.step)
    }

    /// A model by name.
    pub fn model(&self, name: &str) -> Result<Model> {
        let ms = match name {
            "none" => 0.0,
            "resnet-18" => 72.0,
            "resnet-50" => 159.0,
            "resnet-152" => 405.0,
            other => other.parse().map_err(|_| Error::Parameter {
                operation: "bench",
                parameter: "step",
                expected: "none, resnet-18, resnet-50, resnet-152 or milliseconds".to_owned(),
                got: other.to_owned(),
            })?,
        };
        let step = Stated(Duration::from_secs_f64(ms / 1e3));
        Ok(Model { name: name.to_owned(), about: format!("sleeps {ms} ms"), step: Box::new(step) })
    }

    /// Its learning rate, if it learns.
    pub fn learning_rate(&self) -> Option<f64> {
        None
    }
}
