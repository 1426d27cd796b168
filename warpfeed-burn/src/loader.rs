//! A pipeline as burn's data loader.

use crate::IntoBurn;
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warpfeed::source::{Compose, Source};
use warpfeed::{Batch, Builder, Epoch, Error, Pipeline, Result, TargetType, Targets};

/// A batch in the form that burn's models train on, without its padding ([`LastBatch::Pad`](warpfeed::LastBatch::Pad)).
#[derive(Debug, Clone)]
pub struct ImageBatch {
    /// The images, `[N, C, H, W]` or in the pipeline's layout. With several views, the images of the first view.
    pub images: Tensor<4>,
    /// The views after the first one.
    pub views: Vec<Tensor<4>>,
    /// The classes, `[N]`.
    pub labels: Tensor<1, Int>,
    /// The targets, `[N, K]`, if the pipeline delivers them ([`Builder::targets`](warpfeed::Builder::targets)).
    pub targets: Option<Tensor<2>>,
}

impl ImageBatch {
    /// Turns a pipeline's batch into tensors on `device`.
    ///
    /// # Errors
    /// The errors of [`IntoBurn::into_burn`]; [`Error::Unsupported`] for targets that are not floats of one length.
    pub fn new(mut batch: Batch, device: &Device) -> Result<Self> {
        let (all, count) = (batch.len(), batch.len() - batch.padding());
        let labels: Vec<i64> = batch.labels()[..count].iter().map(|&label| label.into()).collect();
        let labels = Tensor::from_data(TensorData::new(labels, [count]), device);
        let targets = batch.take_targets().map(|targets| dense(&targets, count, device)).transpose()?;
        let mut views = Vec::new();
        for view in batch.into_views() {
            // A view has `times` images of each sample: first the first image of every sample, then the second ones,
            // and so on.
            let (shape, times) = (view.shape(), view.shape()[0] / all);
            let view = view.into_burn(device)?;
            views.push(if count == all { view } else { without_padding(view, shape, [times, all, count]) });
        }
        let images = views.remove(0);
        Ok(Self { images, views, labels, targets })
    }
}

/// Keeps the first `count` of `all` samples, in a view with `times` images of each sample.
fn without_padding(view: Tensor<4>, [_, a, b, c]: [usize; 4], [times, all, count]: [usize; 3]) -> Tensor<4> {
    view.reshape([times, all, a, b * c]).narrow(1, 0, count).reshape([times * count, a, b, c])
}

fn dense(targets: &Targets, count: usize, device: &Device) -> Result<Tensor<2>> {
    match targets {
        Targets::Numbers(numbers) if numbers.element() == TargetType::F32 => {
            let ([_, len], host) = (numbers.shape(), numbers.to_host()?);
            let values = host.as_slice::<f32>()?[..count * len].to_vec();
            Ok(Tensor::from_data(TensorData::new(values, [count, len]), device))
        }
        _ => Err(Error::Unsupported {
            feature: "targets other than floats in a batch for burn".to_owned(),
            remedy: "ask for floats (TargetSpec::floats, soft), or take the pipeline's own batches".to_owned(),
        }),
    }
}

type Configure = dyn Fn(Builder) -> Builder + Send + Sync;

/// A pipeline as the data loader of burn's learner.
///
/// Each call of [`iter`](DataLoader::iter) runs the next epoch, so every pass over the data is shuffled and augmented
/// anew, by the pipeline's seed. A bad image ends the pass with an error or is skipped, depending on the pipeline's
/// [`OnError`](warpfeed::OnError). burn stops at an error. Progress counts images.
///
/// For several devices burn splits the loader with `slice`. A part has a range of the source's samples, and a pipeline
/// of its own that shuffles and augments them. The builder's threads and limit apply to each part. A part without
/// samples gives an error when it is iterated.
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
    /// The pipeline. The error is that of a part without samples, which [`DataLoader::slice`] cannot report.
    pipeline: Arc<Result<Pipeline>>,
    device: Device,
    /// Number of the next epoch.
    epoch: AtomicU64,
}

impl Loader {
    /// Makes a loader over `source`. `configure` gets a new builder and returns that of the pipeline. Batches are on
    /// `device`.
    ///
    /// # Errors
    /// The errors of [`Builder::build`].
    pub fn new(
        source: impl Source + 'static,
        device: &Device,
        configure: impl Fn(Builder) -> Builder + Send + Sync + 'static,
    ) -> Result<Self> {
        let (source, device) = (source.into_source(), device.clone());
        let pipeline = Arc::new(Ok(configure(Pipeline::builder(Arc::clone(&source))).build()?));
        Ok(Self { source, configure: Arc::new(configure), pipeline, device, epoch: AtomicU64::new(0) })
    }

    /// Starts at this epoch instead of 0, to continue a training.
    #[must_use]
    pub fn starting_at(self, epoch: u64) -> Self {
        Self { epoch: epoch.into(), ..self }
    }

    /// A copy of the loader that starts at its next epoch.
    fn part(&self) -> Self {
        Self {
            source: Arc::clone(&self.source),
            configure: Arc::clone(&self.configure),
            pipeline: Arc::clone(&self.pipeline),
            device: self.device.clone(),
            epoch: self.epoch.load(Ordering::Relaxed).into(),
        }
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("device", &self.device).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl DataLoader<ImageBatch> for Loader {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<ImageBatch> + 'a> {
        let number = self.epoch.fetch_add(1, Ordering::Relaxed);
        let (epoch, failed) = match &*self.pipeline {
            Ok(pipeline) => (Some(pipeline.epoch(number)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Box::new(Batches { epoch, failed, device: &self.device, done: 0, all: self.num_items() })
    }

    fn num_items(&self) -> usize {
        self.pipeline.as_ref().as_ref().ok().and_then(Pipeline::len).unwrap_or(0) as usize
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<ImageBatch>> {
        Arc::new(Self { device: device.clone(), ..self.part() })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<ImageBatch>> {
        // With a partition or a limit there are fewer items than samples.
        let (items, samples) = (self.num_items().max(1) as u128, self.source.len());
        let at = |item: usize| ((item as u128 * u128::from(samples) / items) as u64).min(samples);
        let (source, pipeline) = match Arc::clone(&self.source).subset(at(start)..at(end).max(at(start))) {
            Ok(part) => {
                let part = part.into_source();
                (Arc::clone(&part), (self.configure)(Pipeline::builder(part)).build())
            }
            Err(error) => (Arc::clone(&self.source), Err(error)),
        };
        Arc::new(Self { source, pipeline: Arc::new(pipeline), ..self.part() })
    }
}

/// Iterator over the batches of one epoch.
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
            self.done += batch.len() - batch.padding();
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
