//! A pipeline as burn's data loader.

use crate::IntoBurn;
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warpfeed::source::{Compose, Source};
use warpfeed::{Batch, Builder, Epoch, Error, Pipeline, Result, TargetType, Targets};

/// A batch as a model of burn is trained on it.
#[derive(Debug, Clone)]
pub struct ImageBatch {
    /// `[N, C, H, W]`, or as the pipeline's output is.
    pub images: Tensor<4>,
    /// The classes, `[N]`.
    pub labels: Tensor<1, Int>,
    /// What the images are trained towards beside their class, `[N, K]`, where the pipeline delivers targets or mixes
    /// images.
    pub targets: Option<Tensor<2>>,
}

impl ImageBatch {
    /// A batch of a pipeline on `device`.
    ///
    /// # Errors
    /// Those of [`IntoBurn::into_burn`], and [`Error::Unsupported`] for targets that are not floats of one length.
    pub fn new(mut batch: Batch, device: &Device) -> Result<Self> {
        let targets = match batch.take_targets() {
            Some(targets) => Some(dense(&targets, device)?),
            None => None,
        };
        let (images, labels, _) = batch.into_parts();
        let labels: Vec<i32> = labels.into_iter().map(|label| label as i32).collect();
        let count = labels.len();
        let labels = Tensor::from_data(TensorData::new(labels, [count]), device);
        Ok(Self { images: images.into_burn(device)?, labels, targets })
    }
}

fn dense(targets: &Targets, device: &Device) -> Result<Tensor<2>> {
    match targets {
        Targets::Numbers(numbers) if numbers.element() == TargetType::F32 => {
            let (shape, host) = (numbers.shape(), numbers.to_host()?);
            let values = host.as_slice::<f32>()?.to_vec();
            Ok(Tensor::from_data(TensorData::new(values, shape), device))
        }
        _ => Err(Error::Unsupported {
            feature: "targets that are no floats as burn's floats".to_owned(),
            remedy: "take them from the batches of the pipeline itself".to_owned(),
        }),
    }
}

type Configure = dyn Fn(Builder) -> Builder + Send + Sync;

/// A pipeline as the data loader of burn's learner.
///
/// Each call of [`iter`](DataLoader::iter) runs the next epoch, so every pass over the data is shuffled and augmented
/// anew, as the pipeline's seed says. A bad image ends the pass with an error, or is left out, as the pipeline's
/// [`OnError`](warpfeed::OnError) says; burn stops at an error.
///
/// ```
/// use burn::{data::dataloader::DataLoader, tensor::Device};
/// use warpfeed::prelude::*;
/// use warpfeed::{image::{Image, JpegOptions, encode_jpeg}};
/// use warpfeed_burn::Loader;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..10).map(|i| (jpeg.clone(), i % 2)));
/// let loader = Loader::new(source, &Device::flex(), |builder| {
///     builder.batch_size(4).random_resized_crop(16).normalize(IMAGENET_MEAN, IMAGENET_STD)
/// })?;
/// assert_eq!((loader.num_items(), loader.iter().count()), (10, 3));
/// let half = loader.slice(0, 5); // as for two devices
/// assert_eq!(half.iter().next().unwrap().unwrap().images.dims(), [4, 3, 16, 16]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub struct Loader {
    source: Arc<dyn Source>,
    configure: Arc<Configure>,
    /// Or why there is none: a part without samples, which [`DataLoader::slice`] cannot refuse.
    pipeline: Result<Pipeline>,
    device: Device,
    epoch: AtomicU64,
}

impl Loader {
    /// A loader over `source`, of the pipeline that `configure` makes of a new builder, with batches on `device`.
    ///
    /// # Errors
    /// Those of [`Builder::build`].
    pub fn new(
        source: impl Source + 'static,
        device: &Device,
        configure: impl Fn(Builder) -> Builder + Send + Sync + 'static,
    ) -> Result<Self> {
        let mut loader = Self::with(source.into_source(), Arc::new(configure), device.clone(), 0);
        loader.pipeline = Ok(loader.pipeline?);
        Ok(loader)
    }

    /// Begins at another epoch than 0, for training that goes on.
    #[must_use]
    pub fn starting_at(self, epoch: u64) -> Self {
        Self { epoch: epoch.into(), ..self }
    }

    fn with(source: Arc<dyn Source>, configure: Arc<Configure>, device: Device, epoch: u64) -> Self {
        let pipeline = configure(Pipeline::builder(Arc::clone(&source))).build();
        Self { source, configure, pipeline, device, epoch: epoch.into() }
    }
}

impl DataLoader<ImageBatch> for Loader {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<ImageBatch> + 'a> {
        let number = self.epoch.fetch_add(1, Ordering::Relaxed);
        let (epoch, failed) = match &self.pipeline {
            Ok(pipeline) => (Some(pipeline.epoch(number)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Box::new(Batches { epoch, failed, device: &self.device, done: 0, all: self.num_items() })
    }

    fn num_items(&self) -> usize {
        self.pipeline.as_ref().ok().and_then(Pipeline::len).unwrap_or(0) as usize
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<ImageBatch>> {
        let (source, configure) = (Arc::clone(&self.source), Arc::clone(&self.configure));
        Arc::new(Self::with(source, configure, device.clone(), self.epoch.load(Ordering::Relaxed)))
    }

    /// The samples `start` to `end` of the source, as a data set of their own: shuffled and augmented among themselves.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<ImageBatch>> {
        let end = (end as u64).min(self.source.len());
        let part = Arc::clone(&self.source).subset((start as u64).min(end)..end);
        let part: Arc<dyn Source> = match part {
            Ok(part) => part.into_source(),
            // The bounds are those of the source, so there is nothing to refuse.
            Err(_) => Arc::clone(&self.source),
        };
        let epoch = self.epoch.load(Ordering::Relaxed);
        Arc::new(Self::with(part, Arc::clone(&self.configure), self.device.clone(), epoch))
    }
}

/// The batches of one epoch.
struct Batches<'a> {
    epoch: Option<Epoch>,
    failed: Option<String>,
    device: &'a Device,
    done: usize,
    all: usize,
}

impl Iterator for Batches<'_> {
    type Item = Result<ImageBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(message) = self.failed.take() {
            return Some(Err(DatasetError::new(std::io::Error::other(message))));
        }
        let batch = self.epoch.as_mut()?.next()?;
        let batch = batch.and_then(|batch| {
            self.done += batch.len();
            ImageBatch::new(batch, self.device)
        });
        Some(batch.map_err(DatasetError::new))
    }
}

impl DataLoaderIterator<ImageBatch> for Batches<'_> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.all, Some("images".to_owned()))
    }
}
