//! The images that experiments run on, and the settings that all experiments share.

use super::environment::{DataSet, Environment};
use super::report::Report;
use super::step::{Outcome, Step};
use crate::device::{Device, StreamPriority};
use crate::error::{Error, Result};
use crate::pipeline::{Batch, Builder, OnError, Pipeline};
use crate::source::Source;
use std::sync::Arc;

/// Images, and how pipelines over them are built.
#[derive(Clone)]
pub struct Subject {
    /// What the images are called in reports.
    pub name: String,
    /// The images.
    pub source: Arc<dyn Source>,
    /// Most images an epoch.
    pub limit: Option<u64>,
    /// Worker threads; one for each processor if not given.
    pub threads: Option<usize>,
    /// Seed of order and augmentations.
    pub seed: u64,
    /// Where the operations run. `augment-load` ignores it: trial A runs on the CPU, trial B on the GPU.
    pub device: Device,
    /// Whose work a GPU does first.
    pub stream_priority: StreamPriority,
}

/// A model and its training step.
pub struct Model {
    /// A short name, for tables.
    pub name: String,
    /// Its training step.
    pub step: Box<dyn Step>,
}

impl Model {
    /// No training: the pipeline alone.
    #[must_use]
    pub fn none() -> Self {
        Self { name: "none".to_owned(), step: Box::new(NoStep) }
    }

    /// A description of its step.
    pub(super) fn about(&self) -> String {
        self.step.name()
    }
}

struct NoStep;

impl Step for NoStep {
    fn name(&self) -> String {
        "no training".to_owned()
    }

    fn train(&mut self, _batch: Batch) -> Result<Outcome> {
        Ok(Outcome::default())
    }
}

impl Subject {
    /// All images of a source.
    pub fn new(name: impl Into<String>, source: impl Source + 'static) -> Self {
        Self {
            name: name.into(),
            source: Arc::new(source),
            limit: None,
            threads: None,
            seed: 42,
            device: Device::Auto,
            stream_priority: StreamPriority::default(),
        }
    }

    /// A pipeline over the images, shuffled; those that cannot be used are skipped and counted.
    pub(super) fn builder(&self) -> Builder {
        let builder = Pipeline::builder(Arc::clone(&self.source)).shuffle(self.seed).on_error(OnError::Skip);
        let builder = self.limit.into_iter().fold(builder, Builder::limit);
        self.threads
            .into_iter()
            .fold(builder.device(self.device).stream_priority(self.stream_priority), Builder::threads)
    }

    /// Images an epoch.
    pub(super) fn len(&self) -> u64 {
        self.source.len().min(self.limit.unwrap_or(u64::MAX))
    }

    /// An empty report about these images on this machine.
    pub(super) fn report(&self, experiment: &'static str, question: &'static str) -> Result<Report> {
        let mut report = Report::new(experiment, question, Environment::here());
        report.data_set = Some(DataSet::of(self.name.clone(), self.source.as_ref())?);
        if cfg!(debug_assertions) {
            report.notes.push("This is a debug build, several times slower: no figure for anybody else.".to_owned());
        }
        Ok(report)
    }
}

/// Why there is nothing to run on a GPU; `None` if there is.
pub(super) fn no_gpu() -> Option<String> {
    Device::Cuda(0).available().err().map(|error| match error {
        Error::Device { message, .. } => message,
        error => error.to_string(),
    })
}
