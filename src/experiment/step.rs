//! Training steps (stand-in until the real ones are merged).

use crate::error::Result;
use crate::pipeline::Batch;
use std::time::Duration;

/// What a step has to say.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepResult {
    /// Loss.
    pub loss: Option<f64>,
    /// Accuracy.
    pub accuracy: Option<f64>,
}

/// A step.
pub trait Step {
    /// Runs it.
    ///
    /// # Errors
    /// Its own.
    fn step(&mut self, batch: &Batch) -> Result<StepResult>;
}

/// Stated length.
#[derive(Debug)]
pub struct Stated(pub Duration);

impl Step for Stated {
    fn step(&mut self, _batch: &Batch) -> Result<StepResult> {
        if !self.0.is_zero() {
            std::thread::sleep(self.0);
        }
        Ok(StepResult::default())
    }
}
