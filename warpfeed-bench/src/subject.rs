//! The images that experiments run on, and their common settings.

use super::environment::{DataSet, Environment, why_no_gpu};
use super::report::Report;
use super::step::{Outcome, TrainingStep};
use serde::Serialize;
use std::time::Instant;
use warpfeed::source::{EncodedImages, Input, Samples, Stream, StreamSample, StreamStart};
use warpfeed::{Batch, Device, EntryPoints, Error, OnError, Pipeline, PipelineBuilder, Result, StreamPriority};

/// Number of images that are kept of a stream that can be read only once, unless a limit is given.
const KEPT_IMAGES: u64 = 1_000;
/// Whole epochs that take as long as all rounds of an experiment.
const WHOLE_EPOCHS: u64 = 6;
/// Limit of their size in bytes.
const KEPT_BYTES: u64 = 1 << 30;

/// Images, and settings of the pipelines over them.
#[derive(Clone)]
pub struct Subject {
    /// Name of the images in reports.
    pub name: String,
    /// The images: a data set, or a stream that can be read any number of times.
    pub input: Input,
    /// The place that the images come from.
    pub storage: Storage,
    /// Images per second that a pipe gave. The first of them are kept in memory, and these are measured.
    pub intake: Option<f64>,
    /// Most images in an epoch.
    pub limit: Option<u64>,
    /// Number of worker threads. Default: one for each processor.
    pub threads: Option<usize>,
    /// Seed of order and random transforms.
    pub seed: u64,
    /// Device that runs the operations. `augment-load` ignores it: trial A runs on the CPU, trial B on the GPU.
    pub device: Device,
    /// Priority of the pipelines' streams on a GPU.
    pub stream_priority: StreamPriority,
}

/// The place that images come from. If a pipeline waits for bytes, it waits for this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Storage {
    /// Files on this machine.
    #[default]
    Disk,
    /// A server.
    Network,
    /// Another program.
    Pipe,
}

/// A model and its training step.
pub struct Model {
    /// A short name for tables.
    pub name: String,
    /// The model's training step.
    pub step: Box<dyn TrainingStep>,
}

impl Model {
    /// A model without training: the pipeline runs alone.
    #[must_use]
    pub fn none() -> Self {
        Self { name: "none".to_owned(), step: Box::new(NoStep) }
    }

    /// Description of the training step.
    pub(super) fn about(&self) -> String {
        self.step.name()
    }
}

struct NoStep;

impl TrainingStep for NoStep {
    fn name(&self) -> String {
        "no training".to_owned()
    }

    fn train(&mut self, _batch: Batch) -> Result<Outcome> {
        Ok(Outcome::default())
    }
}

impl Subject {
    /// All images of a data set or a stream.
    pub fn new(name: impl Into<String>, input: impl Into<Input>) -> Self {
        Self {
            name: name.into(),
            input: input.into(),
            storage: Storage::Disk,
            intake: None,
            limit: None,
            threads: None,
            seed: 0,
            device: Device::Auto,
            stream_priority: StreamPriority::default(),
        }
    }

    /// A builder for a shuffled pipeline over the images. Images that cannot be used are skipped and counted. Entry
    /// points are kept in memory only, so that no measurement depends on an earlier one.
    pub(super) fn builder(&self) -> PipelineBuilder {
        let builder = Pipeline::builder(self.input.clone()).shuffle(self.seed).on_error(OnError::Skip);
        let builder = builder.entry_points(EntryPoints::memory());
        let builder = self.limit.into_iter().fold(builder, PipelineBuilder::limit);
        self.threads
            .into_iter()
            .fold(builder.device(self.device).stream_priority(self.stream_priority), PipelineBuilder::threads)
    }

    /// Limits an epoch to a part of the images, unless there is a limit already: `rounds` of `epochs` take as long as
    /// six whole epochs. An epoch has at least four batches of `batch_size`. A stream of unknown length counts as 1,000
    /// images.
    ///
    /// ```
    /// use warpfeed_bench::subject::Subject;
    /// use warpfeed::source::EncodedImages;
    ///
    /// let images = EncodedImages::new((0..960).map(|_| (Vec::new(), 0)));
    /// let limit = |rounds| Subject::new("images", images.clone()).for_rounds(rounds, 1, 32).limit;
    /// assert_eq!([limit(1), limit(16), limit(60)], [Some(960), Some(360), Some(128)]);
    /// ```
    #[must_use]
    pub fn for_rounds(self, rounds: u32, epochs: u64, batch_size: usize) -> Self {
        let images = self.len().unwrap_or(KEPT_IMAGES);
        let all = u64::from(rounds.max(1)).saturating_mul(epochs.max(1));
        let part = images.saturating_mul(WHOLE_EPOCHS).div_ceil(all).max((batch_size as u64).saturating_mul(4));
        let part = if self.len().is_some() { part.min(images) } else { part };
        Self { limit: self.limit.or(Some(part)), ..self }
    }

    /// Number of images in an epoch; `None` for a stream without a limit.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "this is no collection, and experiments refuse one without images")]
    pub fn len(&self) -> Option<u64> {
        self.input.samples().into_iter().chain(self.limit).min()
    }

    /// Reads some images and summarizes them.
    ///
    /// # Errors
    /// The errors of [`DataSet::of`].
    pub fn data_set(&self) -> Result<DataSet> {
        DataSet::of(self.name.clone(), &self.input, self.len())
    }

    /// Limits the images to `limit` per epoch. Experiments read images again and again. So of a stream that can be read
    /// only once ([`Stream::repeats`]) the first images are kept in memory: `limit` of them, or 1,000, as far as they
    /// fit into 1 GiB.
    ///
    /// # Errors
    /// Errors of reading such a stream; [`Error::Parameter`] if it has no images.
    pub fn limited(name: impl Into<String>, input: impl Into<Input>, limit: Option<u64>) -> Result<Self> {
        let subject = match input.into() {
            Input::Stream(stream) if !stream.repeats() => Self::keep(name, stream.as_ref(), limit)?,
            input => Self::new(name, input),
        };
        Ok(Self { limit, ..subject })
    }

    fn keep(name: impl Into<String>, stream: &dyn Stream, limit: Option<u64>) -> Result<Self> {
        let begin = Instant::now();
        let (mut samples, mut kept) = (stream.begin(&StreamStart::whole(0))?, Vec::new());
        let mut room = KEPT_BYTES;
        while (kept.len() as u64) < limit.unwrap_or(KEPT_IMAGES) {
            let Some(sample) = next(samples.as_mut())? else { break };
            let StreamSample { bytes, label, .. } = sample;
            let Some(left) = room.checked_sub(bytes.len() as u64) else { break };
            room = left;
            kept.push((bytes, label));
        }
        if kept.is_empty() {
            return Err(Error::parameter("bench", "source", "a stream with images", "none"));
        }
        let intake = kept.len() as f64 / begin.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        let (bytes, labels): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
        let source = match labels.into_iter().collect::<Option<Vec<u32>>>() {
            Some(labels) => EncodedImages::new(bytes.into_iter().zip(labels)),
            None => EncodedImages::unlabeled(bytes),
        };
        let source = source.with_classes(stream.classes().iter().cloned());
        Ok(Self { storage: Storage::Pipe, intake: Some(intake), ..Self::new(name, source) })
    }

    /// An empty report on these images and this machine.
    pub(super) fn report(&self, experiment: &'static str, question: &'static str) -> Result<Report> {
        let mut report = Report::new(experiment, question, Environment::here());
        report.data_set = Some(self.data_set()?);
        if let Some(intake) = self.intake {
            report.notes.push(format!(
                "A pipe can be read only once. Its first images came at {intake:.0} images/s. They were kept in memory and \
                 measured."
            ));
        }
        if cfg!(debug_assertions) {
            report
                .notes
                .push("This is a debug build, which is several times slower. Do not use its figures.".to_owned());
        }
        Ok(report)
    }
}

/// The next sample that can be used.
pub(super) fn next(samples: &mut dyn Samples) -> Result<Option<StreamSample>> {
    loop {
        match samples.next() {
            Err(error) if error.is_bad_sample() => {}
            result => return result,
        }
    }
}

/// The reason why nothing can run on a GPU; `None` if there is a GPU.
pub(super) fn no_gpu() -> Option<String> {
    Device::Cuda(0).available().err().map(why_no_gpu)
}
