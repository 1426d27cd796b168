//! A pipeline as burn's data loader.

use crate::ImageBatch;
use crate::batch::other_targets;
use crate::pass::{Batches, Failed, SharedLatest, Then, lock};
use burn::data::dataloader::{DataLoader, DataLoaderIterator};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use warpfeed::source::{Input, SourceExt, SourceSummary};
use warpfeed::{BadSample, DType, EpochState, Error, Pipeline, PipelineBuilder, Result, Stats, TargetType};

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
    if images_of(&pipeline).is_none() {
        return Err(Error::Unsupported {
            feature: "a loader of a stream, whose number of images is not known".to_owned(),
            remedy:
                "give the number of images of an epoch (PipelineBuilder::limit), or open the shards without a window"
                    .to_owned(),
        });
    }
    Ok(pipeline)
}

/// Number of images of an epoch, or the largest number of a stream; `None` for a stream without a limit.
fn images_of(pipeline: &Pipeline) -> Option<u64> {
    pipeline.num_samples().or_else(|| pipeline.limit())
}

type Configure = dyn Fn(PipelineBuilder) -> PipelineBuilder + Send + Sync;

/// A pipeline as the data loader of burn's learner.
///
/// Each call of [`iter`](DataLoader::iter) runs the next epoch, so every pass over the data is shuffled and augmented
/// anew, by the pipeline's seed. A bad image ends the pass with an error or is skipped, depending on the pipeline's
/// [`OnError`](warpfeed::OnError). burn stops at an error.
///
/// Progress counts images, skipped ones and those that [`LastBatch::Drop`](warpfeed::LastBatch::Drop) leaves out
/// included. It is complete with the last batch and not before, because burn then applies the last accumulated
/// gradients. If the remaining images may all be skipped ([`OnError::Skip`](warpfeed::OnError::Skip)), and for a
/// stream, a batch is therefore delivered when the next one has been made.
///
/// burn's learner takes the loader as an `Arc`, and iterates a copy for its device that counts its own epochs: make a
/// new loader for the next training. Keep a clone of the `Arc`: [`state`](Self::state), [`stats`](Self::stats) and
/// [`bad`](Self::bad) tell about the latest pass while it runs and after it, and [`resuming`](Self::resuming) continues
/// from a state in mid-epoch. `B` is the type of the batches: [`map`](Self::map) changes it.
///
/// For several devices burn splits the loader with `slice`. A part has a range of the source's samples, and a
/// pipeline of its own that shuffles and augments them. The parts share the limit of the epoch and the numbering of
/// [`ImageBatch::indices`]. After a split, [`stats`](Self::stats) and [`bad`](Self::bad) of the whole loader are
/// theirs. The builder's threads and sampler apply to each part. A part without samples gives an error when it is
/// iterated, and so does each part of a stream, of a loader that resumes in mid-epoch, and of ranks with different
/// numbers of samples.
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
pub struct Loader<B = ImageBatch> {
    input: Input,
    configure: Arc<Configure>,
    pipeline: Arc<Pipeline>,
    device: Device,
    /// Number of the next epoch.
    epoch: AtomicU64,
    /// Beginning of the next pass, if that is not the beginning of its epoch.
    state: Mutex<Option<EpochState>>,
    /// The latest pass. Copies of the loader for other devices share it.
    latest: SharedLatest,
    then: Arc<Then<B>>,
    /// Index of the input's first sample in the source of the whole loader.
    first: u64,
}

impl Loader {
    /// Makes a loader over `input`: a source, or what [`open`](warpfeed::source::open) and
    /// [`open_splits`](warpfeed::source::open_splits) return. `configure` gets a new builder and returns that of the
    /// pipeline. Batches are on `device`.
    ///
    /// burn asks for the number of images before a pass. A stream therefore needs
    /// [`PipelineBuilder::limit`], with the number of its images or fewer. If it has less, the last batch completes the
    /// progress.
    ///
    /// # Errors
    /// The errors of [`PipelineBuilder::build`]; [`Error::Unsupported`] for u8 images, targets that are not floats, and
    /// a stream without a limit.
    pub fn new(
        input: impl Into<Input>,
        device: &Device,
        configure: impl Fn(PipelineBuilder) -> PipelineBuilder + Send + Sync + 'static,
    ) -> Result<Self> {
        let (input, device) = (input.into(), device.clone());
        let pipeline = Arc::new(build(configure(Pipeline::builder(input.clone())))?);
        Ok(Self {
            input,
            configure: Arc::new(configure),
            pipeline,
            device,
            epoch: AtomicU64::new(0),
            state: Mutex::default(),
            latest: Arc::default(),
            then: Arc::new(Ok),
            first: 0,
        })
    }
}

impl<B> Loader<B> {
    /// Turns each batch into another type, such as the input of a model that has its own. The loader otherwise stays
    /// what it was.
    ///
    /// ```
    /// use burn::{data::dataloader::DataLoader, tensor::{Device, Tensor}};
    /// use warpfeed::{image::{Image, JpegOptions, encode_jpeg}, prelude::*};
    /// use warpfeed_burn::Loader;
    ///
    /// struct MnistBatch {
    ///     images: Tensor<3>, // [N, 28, 28]
    ///     names: Vec<Option<String>>,
    /// }
    ///
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(28, 28)), &JpegOptions::default())?;
    /// # let source = EncodedImages::new((0..10).map(|i| (jpeg.clone(), i)));
    /// let loader = Loader::new(source, &Device::default(), |builder| {
    ///     builder.batch_size(4).transform(CenterCrop::new(28)).channels(1)
    /// })?;
    /// let pipeline = loader.pipeline().clone();
    /// let loader = loader.map(move |batch| MnistBatch {
    ///     images: batch.images.squeeze_dim(1),
    ///     names: batch.indices.iter().map(|&index| pipeline.name(index)).collect(),
    /// });
    /// let batch = loader.iter().next().unwrap().unwrap();
    /// assert_eq!((batch.images.dims(), batch.names.len()), ([4, 28, 28], 4));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn map<O>(self, map: impl Fn(B) -> O + Send + Sync + 'static) -> Loader<O>
    where
        B: 'static,
    {
        self.then(move |batch| Ok(map(batch)))
    }

    /// Turns each batch into another type, like [`map`](Self::map). An error is that of the batch, and burn stops.
    ///
    /// ```
    /// # use burn::{data::dataloader::DataLoader, tensor::Device};
    /// # use warpfeed::{image::{Image, JpegOptions, encode_jpeg}, prelude::*};
    /// # use warpfeed_burn::Loader;
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(28, 28)), &JpegOptions::default())?;
    /// # let source = EncodedImages::new((0..10).map(|i| (jpeg.clone(), i)));
    /// let loader = Loader::new(source, &Device::default(), |builder| {
    ///     builder.batch_size(4).transform(CenterCrop::new(28))
    /// })?;
    /// let loader = loader.try_map(|batch| Ok::<_, warpfeed::Error>((batch.labels()?, batch.images)));
    /// let (labels, images) = loader.iter().next().unwrap().unwrap();
    /// assert_eq!((labels.dims(), images.dims()), ([4], [4, 3, 28, 28]));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn try_map<O, E>(self, map: impl Fn(B) -> Result<O, E> + Send + Sync + 'static) -> Loader<O>
    where
        B: 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        // `io::Error` is an error that any other one can be made into.
        self.then(move |batch| map(batch).map_err(|error| DatasetError::new(io::Error::other(error))))
    }

    fn then<O>(self, map: impl Fn(B) -> Result<O, DatasetError> + Send + Sync + 'static) -> Loader<O>
    where
        B: 'static,
    {
        let Self { input, configure, pipeline, device, epoch, state, latest, then, first } = self;
        let then = Arc::new(move |batch| then(batch).and_then(&map));
        Loader { input, configure, pipeline, device, epoch, state, latest, then, first }
    }

    /// Starts at this epoch instead of 0, to continue a training. burn's `checkpoint(n)` belongs to `starting_at(n)`.
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
        self.pipeline.resume(state)?;
        Ok(Self { epoch: state.epoch().into(), state: Mutex::new(Some(state.clone())), ..self })
    }

    /// The pipeline: its number of batches, recipes, memory and others. Its epochs are not passes of the loader.
    #[must_use]
    pub fn pipeline(&self) -> &Arc<Pipeline> {
        &self.pipeline
    }

    /// Names of the classes, by label; empty if the source has none.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        self.pipeline.classes()
    }

    /// The path or key of sample `index` ([`ImageBatch::indices`]); `None` if there is no such sample, and for a
    /// stream.
    #[must_use]
    pub fn name(&self, index: u64) -> Option<String> {
        self.pipeline.name(index)
    }

    /// Contents of the source, and the files that it skipped because they are not images that it takes: print it once.
    #[must_use]
    pub fn summary(&self) -> SourceSummary {
        self.pipeline.source_summary()
    }

    /// The state after the last batch that the latest pass has delivered; `None` before the first pass and after a
    /// split. Save it once the training step on this batch is done.
    #[must_use]
    pub fn state(&self) -> Option<EpochState> {
        lock(&self.latest).state()
    }

    /// The statistics of the latest pass, or of those of all parts; `None` before the first one.
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        lock(&self.latest).stats()
    }

    /// The bad samples of the latest pass, or of those of all parts, that were skipped or replaced. See
    /// [`Epoch::bad`](warpfeed::Epoch::bad).
    #[must_use]
    pub fn bad(&self) -> Vec<BadSample> {
        lock(&self.latest).bad()
    }

    /// Number of images of an epoch, or the largest number of a stream.
    fn images(&self) -> u64 {
        images_of(&self.pipeline).unwrap_or(0)
    }

    /// A copy of the loader that starts where its next pass does.
    fn copy(&self) -> Self {
        Self {
            input: self.input.clone(),
            configure: Arc::clone(&self.configure),
            pipeline: Arc::clone(&self.pipeline),
            device: self.device.clone(),
            epoch: self.epoch.load(Ordering::Relaxed).into(),
            state: Mutex::new(lock(&self.state).clone()),
            latest: Arc::clone(&self.latest),
            then: Arc::clone(&self.then),
            first: self.first,
        }
    }

    /// The loader of a part of the samples, those of items `start` to `end`.
    fn part(&self, start: usize, end: usize) -> Result<Self> {
        if lock(&self.state).is_some() {
            return Err(unsplit("in mid-epoch", "start with a whole epoch (Loader::starting_at)"));
        }
        let Input::DataSet(source) = &self.input else {
            return Err(unsplit("over a stream", "open the shards without a window, for random access"));
        };
        let (items, samples) = (u128::from(self.images().max(1)), source.len());
        let ranks = u64::from(self.pipeline.partition().world_size());
        if samples % ranks != 0 {
            // The ranks have different numbers of items, so that their parts would not be of the same samples.
            let remedy = "make the number of samples a multiple of the number of ranks (SourceExt::subset)";
            return Err(unsplit("of a partition that is larger than others", remedy));
        }
        // With a partition or a limit there are fewer items than samples.
        let at = |item: usize| ((item as u128 * u128::from(samples) / items) as u64).min(samples);
        let (range, count) = (at(start)..at(end).max(at(start)), end.saturating_sub(start) as u64);
        let part = Arc::clone(source).subset(range.clone())?.into_source();
        let builder = || (self.configure)(Pipeline::builder(Arc::clone(&part)));
        let mut pipeline = build(builder())?;
        if pipeline.num_samples().is_some_and(|samples| samples > count) {
            pipeline = build(builder().limit(count))?;
        }
        let (input, pipeline, first) = (part.into(), Arc::new(pipeline), self.first + range.start);
        let latest = lock(&self.latest).split(range);
        Ok(Self { input, pipeline, latest, first, ..self.copy() })
    }
}

/// The error of a loader that cannot be split.
fn unsplit(what: &str, remedy: &str) -> Error {
    Error::Unsupported { feature: format!("splitting a loader {what} for several devices"), remedy: remedy.to_owned() }
}

impl<B> fmt::Debug for Loader<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("device", &self.device).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl<B: 'static> DataLoader<B> for Loader<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<B> + 'a> {
        let (number, state) = (self.epoch.fetch_add(1, Ordering::Relaxed), lock(&self.state).take());
        let epoch = match &state {
            Some(state) => match self.pipeline.resume(state) {
                Ok(epoch) => epoch,
                Err(error) => return Box::new(Failed::new(error, self.images())),
            },
            None => self.pipeline.epoch(number),
        };
        let of = (&self.device, &*self.then, self.first);
        let batches = Batches::new(epoch, state.map(|state| state.position()), self.images(), of);
        lock(&self.latest).begin(Arc::clone(&batches.pass));
        Box::new(batches)
    }

    fn num_items(&self) -> usize {
        usize::try_from(self.images()).unwrap_or(usize::MAX)
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<B>> {
        Arc::new(Self { device: device.clone(), ..self.copy() })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B>> {
        match self.part(start, end) {
            Ok(part) => Arc::new(part),
            Err(error) => Arc::new(NoPart::<B> { error, batches: PhantomData }),
        }
    }
}

/// A part that cannot be made: it gives the error when it is iterated, because [`DataLoader::slice`] cannot.
struct NoPart<B> {
    error: Error,
    batches: PhantomData<fn() -> B>,
}

impl<B: 'static> DataLoader<B> for NoPart<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<B> + 'a> {
        Box::new(Failed::new(self.error.clone(), 0))
    }

    fn num_items(&self) -> usize {
        0
    }

    fn to_device(&self, _device: &Device) -> Arc<dyn DataLoader<B>> {
        Arc::new(Self { error: self.error.clone(), batches: PhantomData })
    }

    fn slice(&self, _start: usize, _end: usize) -> Arc<dyn DataLoader<B>> {
        self.to_device(&Device::default())
    }
}
