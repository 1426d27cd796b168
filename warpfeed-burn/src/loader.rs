//! A pipeline as burn's data loader.

use crate::IntoBurn;
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpfeed::fields::BatchFields;
use warpfeed::source::{Source, SourceExt};
use warpfeed::{
    BadSample, Batch, DType, Epoch, EpochState, Error, Mixed, Pipeline, PipelineBuilder, Result, Stats, TargetType,
    Targets,
};

/// A batch in the form that burn's models train on, without its padding ([`LastBatch::Pad`](warpfeed::LastBatch::Pad)).
#[derive(Debug, Clone)]
pub struct ImageBatch {
    /// The images, `[N, C, H, W]` or in the pipeline's layout. With several views, the images of the first view.
    pub images: Tensor<4>,
    /// The views after the first one.
    pub views: Vec<Tensor<4>>,
    /// The classes, `[N]`; `None` if the source has no labels. [`labels`](Self::labels) is an error then.
    pub labels: Option<Tensor<1, Int>>,
    /// The index of each sample in the source.
    pub indices: Vec<u64>,
    /// The targets, `[N, K]`, if the pipeline delivers them
    /// ([`PipelineBuilder::targets`](warpfeed::PipelineBuilder::targets)).
    pub targets: Option<Tensor<2>>,
    /// Partners and shares of mixed images, padding included, for losses that take no soft targets
    /// ([`Mix::hard_labels`](warpfeed::Mix::hard_labels)); `None` without
    /// [`PipelineBuilder::mix`](warpfeed::PipelineBuilder::mix).
    pub mixed: Option<Mixed>,
    /// The fields of each view's images, as the pipeline delivers them
    /// ([`PipelineBuilder::fields`](warpfeed::PipelineBuilder::fields)): boxes, keypoints, masks, labels of objects.
    /// None without such fields. [`FieldIntoBurn`](crate::FieldIntoBurn) makes tensors of them.
    pub fields: Vec<BatchFields>,
}

impl ImageBatch {
    /// Turns a pipeline's batch into tensors on `device`.
    ///
    /// # Errors
    /// The errors of [`IntoBurn::into_burn`]; [`Error::Unsupported`] for targets that are not floats of one length.
    pub fn new(mut batch: Batch, device: &Device) -> Result<Self> {
        let (all, count) = (batch.len(), batch.len() - batch.padding());
        let tensor = |labels: &[u32]| {
            let labels: Vec<i64> = labels[..count].iter().map(|&label| label.into()).collect();
            Tensor::from_data(TensorData::new(labels, [count]), device)
        };
        let labels = batch.labels().ok().map(tensor);
        let indices = batch.indices()[..count].to_vec();
        let mixed = batch.mixed().cloned();
        let targets = batch.take_targets().map(|targets| dense(&targets, count, device)).transpose()?;
        // A view has `times` images of each sample: first the first image of every sample, then the second ones, and so
        // on.
        let own = |of_view: &BatchFields| {
            of_view.of_images(&(0..of_view.len()).filter(|i| i % all < count).collect::<Vec<_>>())
        };
        let fields = (0..).map_while(|i| batch.fields(i)).map(own).collect();
        let mut views = Vec::new();
        for view in batch.into_views() {
            let (shape, times) = (view.shape(), view.shape()[0] / all);
            let view = view.into_burn(device)?;
            views.push(if count == all { view } else { without_padding(view, shape, [times, all, count]) });
        }
        let images = views.remove(0);
        Ok(Self { images, views, labels, indices, targets, mixed, fields })
    }

    /// The classes, `[N]`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the remedy if the source has no labels.
    pub fn labels(&self) -> Result<Tensor<1, Int>> {
        self.labels.clone().ok_or_else(|| Error::Unsupported {
            feature: "training on labels of a source without labels".to_owned(),
            remedy:
                "name the field that holds them (RecordOptions::label), give labels (SourceExt::relabel), or train on \
                     targets or fields"
                    .to_owned(),
        })
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
        _ => Err(other_targets()),
    }
}

fn other_targets() -> Error {
    Error::Unsupported {
        feature: "targets other than floats in a batch for burn".to_owned(),
        remedy: "ask for floats (TargetSpec::floats, soft, multi_hot), or take the pipeline's own batches".to_owned(),
    }
}

/// Builds the pipeline of a loader, whose batches must become an [`ImageBatch`].
fn build(builder: PipelineBuilder) -> Result<Pipeline> {
    let pipeline = builder.build()?;
    if pipeline.targets().is_some_and(|targets| targets.element() != Some(TargetType::F32)) {
        return Err(other_targets());
    }
    if pipeline.dtype() == DType::U8 {
        return Err(Error::Unsupported {
            feature: "a loader of u8 images".to_owned(),
            remedy: "normalize, or take the pipeline's own batches and their into_burn_int".to_owned(),
        });
    }
    Ok(pipeline)
}

type Configure = dyn Fn(PipelineBuilder) -> PipelineBuilder + Send + Sync;

/// A pipeline as the data loader of burn's learner.
///
/// Each call of [`iter`](DataLoader::iter) runs the next epoch, so every pass over the data is shuffled and augmented
/// anew, by the pipeline's seed. A bad image ends the pass with an error or is skipped, depending on the pipeline's
/// [`OnError`](warpfeed::OnError). burn stops at an error. Progress counts images.
///
/// burn's learner takes the loader as an `Arc`. Keep a clone of it: [`state`](Self::state), [`stats`](Self::stats) and
/// [`bad`](Self::bad) tell about the latest pass while it runs and after it, and [`resuming`](Self::resuming) continues
/// from a state in mid-epoch.
///
/// For several devices burn splits the loader with `slice`. A part has a range of the source's samples, and a pipeline
/// of its own that shuffles and augments them, so it tells nothing to the loader that it is a part of. The builder's
/// threads and limit apply to each part. A part without samples gives an error when it is iterated.
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
///     builder.batch_size(4).transform(random_resized_crop(16)).normalize(IMAGENET_MEAN, IMAGENET_STD)
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
    /// Beginning of the next pass, if that is not the beginning of its epoch.
    state: Mutex<Option<EpochState>>,
    /// The latest pass. Copies of the loader for other devices share it.
    latest: Arc<Mutex<Option<SharedPass>>>,
}

/// A pass that its iterator and the loader share.
type SharedPass = Arc<Mutex<Pass>>;

/// One pass over the data.
enum Pass {
    Running(Epoch),
    /// A pass whose iterator was dropped.
    Dropped {
        state: EpochState,
        stats: Stats,
        bad: Vec<BadSample>,
    },
}

impl Pass {
    fn state(&self) -> EpochState {
        match self {
            Self::Running(epoch) => epoch.state(),
            Self::Dropped { state, .. } => state.clone(),
        }
    }

    fn stats(&self) -> Stats {
        match self {
            Self::Running(epoch) => epoch.stats(),
            Self::Dropped { stats, .. } => *stats,
        }
    }

    fn bad(&self) -> Vec<BadSample> {
        match self {
            Self::Running(epoch) => epoch.bad(),
            Self::Dropped { bad, .. } => bad.clone(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Loader {
    /// Makes a loader over `source`. `configure` gets a new builder and returns that of the pipeline. Batches are on
    /// `device`.
    ///
    /// # Errors
    /// The errors of [`PipelineBuilder::build`].
    pub fn new(
        source: impl Source + 'static,
        device: &Device,
        configure: impl Fn(PipelineBuilder) -> PipelineBuilder + Send + Sync + 'static,
    ) -> Result<Self> {
        let (source, device) = (source.into_source(), device.clone());
        let pipeline = Arc::new(Ok(build(configure(Pipeline::builder(Arc::clone(&source))))?));
        let (configure, epoch) = (Arc::new(configure), AtomicU64::new(0));
        Ok(Self { source, configure, pipeline, device, epoch, state: Mutex::default(), latest: Arc::default() })
    }

    /// Starts at this epoch instead of 0, to continue a training.
    #[must_use]
    pub fn starting_at(self, epoch: u64) -> Self {
        Self { epoch: epoch.into(), state: Mutex::default(), ..self }
    }

    /// Starts in mid-epoch, with the batch after that whose [`state`](Self::state) this was, to continue a training.
    /// The pass after it is the next epoch.
    ///
    /// ```
    /// # use burn::{data::dataloader::DataLoader, tensor::Device};
    /// # use warpfeed::{image::{Image, JpegOptions, encode_jpeg}, prelude::*};
    /// # use warpfeed_burn::Loader;
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// # let source = EncodedImages::new((0..10).map(|i| (jpeg.clone(), i % 2)));
    /// # let device = Device::flex();
    /// let open = || Loader::new(source.clone(), &device, |builder| builder.shuffle(7).batch_size(4).transform(CenterCrop::new(8)));
    /// let loader = open()?;
    /// let mut batches = loader.iter();
    /// batches.next();
    /// let state = loader.state().unwrap(); // to be saved as JSON
    /// let rest: Vec<u64> = batches.flat_map(|batch| batch.unwrap().indices).collect();
    ///
    /// let loader = open()?.resuming(&state)?;
    /// assert_eq!(loader.iter().flat_map(|batch| batch.unwrap().indices).collect::<Vec<_>>(), rest);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Pipeline::resume`].
    pub fn resuming(self, state: &EpochState) -> Result<Self> {
        if let Ok(pipeline) = &*self.pipeline {
            pipeline.resume(state)?;
        }
        Ok(Self { epoch: state.epoch().into(), state: Mutex::new(Some(state.clone())), ..self })
    }

    /// The state after the last batch that the latest pass has delivered; `None` before the first pass. Save it once
    /// the training step on this batch is done.
    #[must_use]
    pub fn state(&self) -> Option<EpochState> {
        self.latest().map(|pass| lock(&pass).state())
    }

    /// The statistics of the latest pass; `None` before the first one.
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        self.latest().map(|pass| lock(&pass).stats())
    }

    /// The bad samples of the latest pass that were skipped or replaced. See [`Epoch::bad`].
    #[must_use]
    pub fn bad(&self) -> Vec<BadSample> {
        self.latest().map_or_else(Vec::new, |pass| lock(&pass).bad())
    }

    fn latest(&self) -> Option<SharedPass> {
        lock(&self.latest).clone()
    }

    /// A copy of the loader that starts where its next pass does.
    fn part(&self) -> Self {
        Self {
            source: Arc::clone(&self.source),
            configure: Arc::clone(&self.configure),
            pipeline: Arc::clone(&self.pipeline),
            device: self.device.clone(),
            epoch: self.epoch.load(Ordering::Relaxed).into(),
            state: Mutex::new(lock(&self.state).clone()),
            latest: Arc::clone(&self.latest),
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
        let begun = match (&*self.pipeline, lock(&self.state).take()) {
            (Ok(pipeline), Some(state)) => pipeline.resume(&state).map_err(|error| error.to_string()),
            (Ok(pipeline), None) => Ok(pipeline.epoch(number)),
            (Err(error), _) => Err(error.to_string()),
        };
        let (device, all) = (&self.device, self.num_items());
        match begun {
            Ok(epoch) => {
                // A resumed epoch has fewer images.
                let done = all.saturating_sub(epoch.images().map_or(0, |images| images as usize));
                let pass = Arc::new(Mutex::new(Pass::Running(epoch)));
                *lock(&self.latest) = Some(Arc::clone(&pass));
                Box::new(Batches { pass: Some(pass), failed: None, device, done, all })
            }
            Err(message) => Box::new(Batches { pass: None, failed: Some(message), device, done: 0, all }),
        }
    }

    fn num_items(&self) -> usize {
        self.pipeline.as_ref().as_ref().ok().and_then(Pipeline::num_samples).unwrap_or(0) as usize
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<ImageBatch>> {
        Arc::new(Self { device: device.clone(), ..self.part() })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<ImageBatch>> {
        // With a partition or a limit there are fewer items than samples.
        let (items, samples) = (self.num_items().max(1) as u128, self.source.len());
        let at = |item: usize| ((item as u128 * u128::from(samples) / items) as u64).min(samples);
        let whole = self.part();
        let (source, pipeline) = match Arc::clone(&self.source).subset(at(start)..at(end).max(at(start))) {
            Ok(_) if lock(&whole.state).is_some() => (Arc::clone(&self.source), Err(parts_of_a_state())),
            Ok(part) => {
                let part = part.into_source();
                (Arc::clone(&part), build((self.configure)(Pipeline::builder(part))))
            }
            Err(error) => (Arc::clone(&self.source), Err(error)),
        };
        Arc::new(Self { source, pipeline: Arc::new(pipeline), latest: Arc::default(), ..whole })
    }
}

/// The error of a loader that is split before it has continued an epoch.
fn parts_of_a_state() -> Error {
    Error::Unsupported {
        feature: "splitting a loader for several devices in mid-epoch".to_owned(),
        remedy: "start with a whole epoch (Loader::starting_at)".to_owned(),
    }
}

/// Iterator over the batches of one epoch.
struct Batches<'a> {
    /// `None` if the pass could not begin.
    pass: Option<SharedPass>,
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
        let batch = match &mut *lock(self.pass.as_ref()?) {
            Pass::Running(epoch) => epoch.next()?,
            Pass::Dropped { .. } => return None,
        };
        let batch = batch.and_then(|batch| {
            self.done += batch.len() - batch.padding();
            ImageBatch::new(batch, self.device)
        });
        Some(batch.map_err(DatasetError::new))
    }
}

/// Ends the epoch's threads, and keeps its results so far.
impl Drop for Batches<'_> {
    fn drop(&mut self) {
        if let Some(pass) = &self.pass {
            let mut pass = lock(pass);
            *pass = Pass::Dropped { state: pass.state(), stats: pass.stats(), bad: pass.bad() };
        }
    }
}

impl DataLoaderIterator<ImageBatch> for Batches<'_> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.all, Some("images".to_owned()))
    }
}
