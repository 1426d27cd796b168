//! The pipeline that a builder makes, and its epochs: from a source to batches.
//!
//! Modules depend on each other in one direction: `recipes`, `policy` and `stats`; `cache`; `setup`, `context` (one
//! epoch of the setup), `assembly`, `worker` with `partners`, `schedule` (which thread does which position), and
//! `epoch` (the consumer's view). Only `schedule` gets the back end. On top are `receipts`, `rgb`, `log`, `replay` and
//! `stages`.
//!
//! A panic in a worker becomes an error of its sample. Decoders and scratch memory go back to a pool when an epoch
//! ends, and a batch's buffer when its tensor is dropped. The pipelines of a `PipelineGroup` share their worker
//! threads, which serve the epochs round-robin and skip those whose queue is full, so no consumer holds up another.
//!
//! All ranks share one order (`order`, `sampler`), and rank r of w takes its positions r, r + w, and so on. With `Skip`
//! a batch keeps its positions and is shorter: filled from the next batch, it would depend on which images are bad. A
//! state's position counts positions of the partition's order.
//!
//! All views share one normalization, because kernels write a batch through one table.

mod assembly;
mod batch;
mod batches;
mod bucketed;
mod builder;
mod cache;
mod context;
mod crops;
mod entry_points;
mod epoch;
mod group;
mod host_images;
mod log;
mod other_ranks;
mod partners;
mod planned;
mod policy;
mod receipts;
mod recipes;
mod replay;
mod rgb;
mod schedule;
mod sequences;
mod setup;
mod stages;
mod state;
mod stats;
mod unoptimized;
mod view;
mod wakeup;
mod worker;
mod worker_threads;

use crate::backend::{self, AnyBackend, MAX_BATCH_BYTES, RunOptions};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::order::Partition;
use crate::os::forks::OfProcess;
use crate::plan::Strategy;
use crate::preprocess::Preprocessor;
use crate::raster::Size;
use crate::rng::Pick;
use crate::shapes::{BatchShape, BucketStep, BucketSummary};
use crate::source::stream::Place;
use crate::source::{Input, SourceSummary};
use crate::targets::TargetSpec;
use crate::tensor::{DType, Tensor};
pub use batch::{Batch, BatchImages, PaddedImages};
pub use builder::{MemoryBound, PipelineBuilder, Setting, SettingEffect};
use cache::Cache;
pub use cache::{CacheUsage, ImageCache};
pub use crops::ImageCrop;
pub use entry_points::EntryPoints;
pub(crate) use entry_points::pack_key;
pub use epoch::Epoch;
use epoch::EpochStart;
pub use group::PipelineGroup;
pub use host_images::HostImages;
pub use log::{LogOptions, RunLog};
use partners::SourcePartners;
use policy::Policy;
pub use policy::{BadLimit, BadSample, LastBatch, OnError};
pub(crate) use policy::{IO_FAILURES, Losses, Tally, io_failure};
pub use receipts::Receipt;
use recipes::{Drawn, ViewTransforms};
pub use replay::{LogSummary, Replay};
use setup::Setup;
pub use stages::Stage;
pub use state::EpochState;
pub use stats::{Bottleneck, Stats};
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
pub use view::{View, five_crop, ten_crop, view};

/// Largest number of images in a batch.
const MAX_BATCH: u64 = 1 << 20;

/// A pipeline: built once, asked for epochs.
///
/// Cloning is cheap; clones share memory. A sample's pixels depend only on the source, the operations, the seed, the
/// epoch and the sample's index, not on threads, batch size, prefetch or partition. With [`PipelineBuilder::mix`] an
/// image is mixed with others of its batch, so its pixels also depend on batch size and partition, but never on threads
/// or prefetch.
///
/// `I` is the form of the batches' images: see [`Batch`].
pub struct Pipeline<I = Tensor> {
    setup: Arc<Setup>,
    /// The back end that runs the recipes.
    backend: Arc<AnyBackend>,
    /// Keeps both in a forked child, which can end neither threads nor devices of its parent.
    _kept: OfProcess<(Arc<Setup>, Arc<AnyBackend>)>,
    memory: MemoryBound,
    /// The device as the builder was given it.
    device: Device,
    images: PhantomData<fn() -> I>,
}

/// A pipeline whose images keep the sizes that the operations give them, for training detectors and for evaluation at
/// full size ([`PipelineBuilder::build_ragged`]). The images of a batch are a list of tensors. On a device,
/// [`CudaBuffer::labels_address`](crate::CudaBuffer::labels_address) is the address of the image's own label.
///
/// Memory is taken when images come, and is reused. A batch takes the memory of its images;
/// [`PipelineBuilder::max_pixels`] limits the size of each.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::ops::Resize;
/// use warpfeed::prelude::*;
///
/// let jpeg = |width, height| encode_jpeg(&Image::new(Size::new(width, height)), &JpegOptions::default());
/// let source = EncodedImages::new([(jpeg(40, 30)?, 0), (jpeg(20, 60)?, 1)]);
/// let pipeline = Pipeline::builder(source)
///     .transform(Resize::shorter_side_within(16, 32))
///     .normalize(IMAGENET_MEAN, IMAGENET_STD)
///     .build_ragged()?;
/// for batch in pipeline.epoch(0) {
///     let batch = batch?;
///     assert_eq!(batch.images()[0].shape(), [1, 3, 16, 21]);
///     assert_eq!(batch.images()[1].shape(), [1, 3, 32, 10]);
///     assert_eq!(batch.labels()?, [0, 1]);
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub type RaggedPipeline = Pipeline<Vec<Tensor>>;

/// A pipeline whose images keep the sizes that the operations give them, padded to one tensor for each batch
/// ([`PipelineBuilder::build_padded`]), for detectors such as DETR and torchvision's R-CNNs. Fields need no change:
/// padding lies to the right and below. [`BatchFields::padded_masks`](crate::fields::BatchFields::padded_masks) pads
/// masks likewise.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::ops::Resize;
/// use warpfeed::prelude::*;
///
/// let jpeg = |width, height| encode_jpeg(&Image::new(Size::new(width, height)), &JpegOptions::default());
/// let source = EncodedImages::new([(jpeg(40, 30)?, 0), (jpeg(20, 60)?, 1)]);
/// let pipeline = Pipeline::builder(source)
///     .transform(Resize::shorter_side_within(16, 32))
///     .normalize(IMAGENET_MEAN, IMAGENET_STD)
///     .build_padded(8)?;
/// for batch in pipeline.epoch(0) {
///     let batch = batch?;
///     assert_eq!(batch.images().tensor().shape(), [2, 3, 32, 24]);
///     assert_eq!(batch.images().sizes(), [Size::new(21, 16), Size::new(10, 32)]);
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub type PaddedPipeline = Pipeline<PaddedImages>;

impl<I> Clone for Pipeline<I> {
    fn clone(&self) -> Self {
        Self {
            _kept: self._kept.clone(),
            setup: Arc::clone(&self.setup),
            backend: Arc::clone(&self.backend),
            memory: self.memory,
            device: self.device,
            images: PhantomData,
        }
    }
}

impl<I> std::fmt::Debug for Pipeline<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("samples", &self.num_samples())
            .field("views", &self.setup.recipes.views)
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

impl Pipeline {
    /// Starts a builder for a pipeline that reads `input`: a [`Source`](crate::source::Source), a stream, or the result
    /// of [`open`](crate::source::open).
    ///
    /// ```no_run
    /// use warpfeed::ops::repeat;
    /// use warpfeed::prelude::*;
    ///
    /// let train = Pipeline::builder(ImageFolder::open("imagenette2/train")?)
    ///     .batch_size(256).shuffle(42).threads(8)
    ///     .transform(repeat(12, [random_horizontal_flip(0.5), random_vertical_flip(0.5), random_rotation(-5.0..=5.0)]))
    ///     .transform(random_resized_crop(224))
    ///     .normalize(IMAGENET_MEAN, IMAGENET_STD)
    ///     .output(DType::F32, Layout::Nchw)
    ///     .build()?;
    /// for batch in train.epoch(0) {
    ///     let batch = batch?;
    ///     assert_eq!(batch.images().shape()[1..], [3, 224, 224]);
    ///     assert_eq!(batch.labels()?.len(), batch.len());
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn builder(input: impl Into<Input>) -> PipelineBuilder {
        PipelineBuilder::new(input.into())
    }

    /// Width and height of every image of a batch. With several views, the size of the first view.
    #[must_use]
    pub fn image_size(&self) -> Size {
        self.view_sizes()[0].0
    }

    /// For each view, the size of its images and the number of images it has of each sample.
    #[must_use]
    pub fn view_sizes(&self) -> Vec<(Size, usize)> {
        let outputs = self.setup.options.outputs.iter();
        outputs.map(|output| (output.one_size(), output.times)).collect()
    }

    /// Makes one batch of all samples of an epoch, for linear probes, tests and small sets. Its samples, their order and
    /// their images are those of [`epoch`](Self::epoch), whatever [`LastBatch`] says. It has at most 2^20 samples and
    /// 64 GiB, and holds the images once: 2,000 images of 224 x 224 pixels take 1,148 MiB, and 13 MiB besides.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a stream, whose length is not known; [`Error::Parameter`] with
    /// [`PipelineBuilder::mix`], which depends on the batch; [`Error::Limits`] for too many samples;
    /// [`Error::OutOfMemory`] or [`Error::OutOfDeviceMemory`]; the errors of an epoch.
    ///
    /// ```
    /// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// # use warpfeed::prelude::*;
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// # let source = EncodedImages::new((0..10).map(|label| (jpeg.clone(), label)));
    /// let pipeline = Pipeline::builder(source).batch_size(4).transform(CenterCrop::new(8)).build()?;
    /// let whole = pipeline.collect(0)?;
    /// assert_eq!(whole.images().shape(), [10, 3, 8, 8]);
    /// assert_eq!(whole.labels()?, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn collect(&self, epoch: u64) -> Result<Batch> {
        let setup = &*self.setup;
        if setup.is_stream() {
            return Err(Error::Unsupported {
                feature: "collecting the samples of a stream".to_owned(),
                remedy: "its length is not known: take batches of Pipeline::epoch".to_owned(),
            });
        }
        if setup.bucketed.is_some() {
            return Err(Error::parameter("collect", "buckets", "none: images of one batch have one size", "some"));
        }
        if setup.mix.is_some() {
            return Err(Error::parameter("collect", "mix", "none, which depends on the batch", "a mix"));
        }
        let samples = setup.sampler.len().saturating_add(setup.sampler.padding()).min(setup.limit);
        let bytes = samples.saturating_mul(setup.options.sample_bytes(setup.recipes.planner.max_px));
        for (what, got, limit) in
            [("a whole epoch in samples", samples, MAX_BATCH), ("a whole epoch in bytes", bytes, MAX_BATCH_BYTES)]
        {
            if got > limit {
                let remedy = "set PipelineBuilder::limit, or take batches of Pipeline::epoch";
                return Err(Error::Limits { what, got, limit, remedy });
            }
        }
        let (batch_size, batch_images) = (samples as usize, samples as usize);
        let options = RunOptions { batch_size, batch_images, prefetch: 1, ..(*setup.options).clone() }.into();
        let policy = Policy { last: LastBatch::Keep, ..setup.policy };
        let backend = backend::open(self.device, &options, setup.normalize)?;
        let (setup, backend) = (Arc::new(Setup { options, policy, ..setup.clone() }), Arc::new(backend));
        let _kept = OfProcess::new((Arc::clone(&setup), Arc::clone(&backend)));
        let whole = Self { setup, backend, _kept, ..self.clone() };
        let mut batches = whole.epoch(epoch);
        batches.next().unwrap_or_else(|| Err(Error::parameter("collect", "samples", "one at least", "none")))
    }

    /// Makes a preprocessor with the operations, type, layout, batch size and device of this pipeline, for images that
    /// come one by one. The transforms must be deterministic, as they are in evaluation.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a transform is random, or if there are several views; the errors of
    /// [`Preprocessor::new`].
    ///
    /// ```
    /// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// use warpfeed::prelude::*;
    ///
    /// let jpeg = encode_jpeg(&Image::new(Size::new(400, 300)), &JpegOptions::default())?;
    /// let eval = Pipeline::builder(EncodedImages::new([(jpeg.clone(), 0)])).preset(Preset::Eval).build()?;
    /// let one = eval.preprocessor()?.run(&[&jpeg])?;
    /// for batch in eval.epoch(0) {
    ///     assert_eq!(batch?.images().as_bytes()?, one.as_bytes()?);
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn preprocessor(&self) -> Result<Preprocessor> {
        let mut images = self.setup.recipes.views.iter().flat_map(ViewTransforms::all);
        let (Some(transforms), None) = (images.next(), images.next()) else {
            return Err(Error::parameter("preprocessor", "views", "one, once", "several"));
        };
        let Setup { options, recipes, .. } = &*self.setup;
        Preprocessor::like(transforms, options, recipes.planner, recipes.opening, self.device)
    }
}

impl<I> Pipeline<I> {
    /// Starts an epoch and returns an iterator over its batches. Worker threads start now and end with the epoch, or
    /// when it is dropped.
    #[must_use]
    pub fn epoch(&self, epoch: u64) -> Epoch<I> {
        Epoch::start_all(vec![self.epoch_start(epoch)]).swap_remove(0)
    }

    fn epoch_start(&self, epoch: u64) -> EpochStart<'_> {
        let (setup, backend) = (&self.setup, &self.backend);
        let (changes, place) = (Arc::default(), setup.first_place());
        EpochStart { setup, backend, epoch, changes, first: 0, place, given: None }
    }

    /// Continues an epoch where [`Epoch::state`] was taken. The samples delivered before and after are together exactly
    /// those of one uninterrupted epoch. With another batch size the remaining samples come in batches of that size,
    /// and with [`LastBatch::Drop`] another number of samples at the end is dropped. With another number of ranks,
    /// [`state_after`](Self::state_after) makes the state to continue from.
    ///
    /// # Errors
    /// [`Error::Parameter`], which names the differences, if the state belongs to another source, seed, order or
    /// partition, was written by an incompatible version of this crate, is damaged, or has a position after the end of
    /// the epoch. If a stream is read again from the start, the first batch reports that its end comes before the
    /// position.
    pub fn resume(&self, state: &EpochState) -> Result<Epoch<I>> {
        Ok(Epoch::start_all(vec![self.rest(state)?]).swap_remove(0))
    }

    /// Number of batches that [`resume`](Self::resume) gives, if no sample is skipped: 0 at the end of the epoch.
    /// `None` for a stream.
    ///
    /// ```
    /// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// # use warpfeed::prelude::*;
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// # let source = EncodedImages::new((0..10).map(|label| (jpeg.clone(), label)));
    /// let pipeline = Pipeline::builder(source).batch_size(4).transform(CenterCrop::new(8)).build()?;
    /// let left = pipeline.epoch(0).map(|batch| pipeline.batches_left(&batch?.state()));
    /// assert_eq!(left.collect::<warpfeed::Result<Vec<_>>>()?, [Some(2), Some(1), Some(0)]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`resume`](Self::resume).
    pub fn batches_left(&self, state: &EpochState) -> Result<Option<u64>> {
        state.check(&self.setup)?;
        let setup = &*self.setup;
        let rest = setup.rest(state.epoch(), state.own_segments(), self.partition().world_size());
        if let Some(bucketed) = &setup.bucketed {
            let (_, batches, _) = bucketed.epoch(setup, state.epoch(), &rest, state.position())?;
            return Ok(Some(batches.count()));
        }
        let left = setup.positions(&rest, state.position());
        if let Some(planned) = &setup.planned {
            return Ok(Some(planned.batches(state.epoch(), state.position(), left, 0).0.count()));
        }
        Ok(setup.input.samples().map(|_| left.div_ceil(setup.options.batch_size as u64)))
    }

    fn rest(&self, state: &EpochState) -> Result<EpochStart<'_>> {
        state.check(&self.setup)?;
        if let Some(bucketed) = &self.setup.bucketed {
            // Whether these ranks can share what is left.
            let rest = self.setup.rest(state.epoch(), state.own_segments(), self.partition().world_size());
            bucketed.epoch(&self.setup, state.epoch(), &rest, state.position())?;
        }
        let (changes, first) = (Arc::new(state.changes()), state.position());
        let place = match state.place()? {
            // The state of an epoch that no rank has begun.
            Place::Cursor(None) if first == 0 => self.setup.first_place(),
            Place::Lanes(lanes) => Place::Lanes(lanes.dealt(self.partition())),
            place => place,
        };
        Ok(EpochStart { changes, first, place, ..self.epoch_start(state.epoch()) })
    }

    /// This rank's part of every epoch ([`PipelineBuilder::partition`]).
    #[must_use]
    pub fn partition(&self) -> Partition {
        self.setup.sampler.own_partition()
    }

    /// Number of samples in an epoch of this partition, without padding. `None` for a stream, whose length is not known
    /// beforehand.
    #[must_use]
    pub fn num_samples(&self) -> Option<u64> {
        let padding = self.setup.bucketed.as_ref().map_or(0, |bucketed| bucketed.padding_of(self.partition()));
        self.setup
            .input
            .samples()
            .map(|_| self.setup.sampler.len().min(self.setup.limit) - padding.min(self.setup.limit))
    }

    /// Largest number of samples in an epoch of this partition; `None` without a limit.
    #[doc(hidden)]
    pub fn limit(&self) -> Option<u64> {
        (self.setup.limit < u64::MAX).then_some(self.setup.limit)
    }

    /// Whether an epoch is known to have no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.num_samples() == Some(0)
    }

    /// The buckets that images go to, with the samples of each, and what an epoch has of them; empty without buckets
    /// ([`PipelineBuilder::buckets`]).
    #[must_use]
    pub fn buckets(&self) -> Vec<BucketSummary> {
        self.setup.bucketed.as_ref().map_or_else(Vec::new, |bucketed| bucketed.summaries())
    }

    /// The buckets that had too few samples, so that their images went to others ([`Buckets::min_samples`]).
    ///
    /// [`Buckets::min_samples`]: crate::shapes::Buckets::min_samples
    #[must_use]
    pub fn merged_buckets(&self) -> &[Size] {
        self.setup.bucketed.as_ref().map_or(&[], |bucketed| bucketed.merged())
    }

    /// The bucket of a sample; `None` if it has none.
    #[must_use]
    pub fn bucket_of(&self, index: u64) -> Option<Size> {
        self.setup.bucketed.as_ref()?.size_of(index)
    }

    /// The indices of the samples that never come, with buckets that may lose some ([`Buckets::lossy`]): images that go
    /// to no bucket, or whose headers cannot be read, and those of buckets that have no full batch.
    ///
    /// [`Buckets::lossy`]: crate::shapes::Buckets::lossy
    #[must_use]
    pub fn lost(&self) -> Vec<u64> {
        self.setup.bucketed.as_ref().map_or_else(Vec::new, |bucketed| bucketed.never())
    }

    /// The size of the images of each batch of this rank in epoch `epoch`, with the indices of its samples; `None`
    /// without buckets.
    ///
    /// # Errors
    /// The errors of the sampler.
    pub fn steps(&self, epoch: u64) -> Result<Option<Vec<BucketStep>>> {
        let setup = &*self.setup;
        let Some(bucketed) = &setup.bucketed else { return Ok(None) };
        let rest = setup.rest(epoch, &[], self.partition().world_size());
        let (picks, batches, _) = bucketed.epoch(setup, epoch, &rest, 0)?;
        let step = |number| {
            let positions = batches.start(number)..batches.start(number + 1);
            let indices = positions.filter_map(|position| picks.get(position)).map(|pick| pick.index).collect();
            Some(BucketStep::new(batches.shape(number)?.size()?, indices))
        };
        Ok(Some((0..batches.count()).filter_map(step).collect()))
    }

    /// Number of batches in an epoch, if no sample is skipped. `None` for a stream, and where it differs from epoch to epoch:
    /// with buckets if a sampler draws other samples in each, and for sizes over time with a budget of pixels
    /// ([`Epoch::batches`] says the number of one).
    #[must_use]
    pub fn batches(&self) -> Option<u64> {
        let setup = &*self.setup;
        if let Some(bucketed) = &setup.bucketed {
            return bucketed.batches_of_an_epoch(setup);
        }
        if let Some(planned) = &setup.planned {
            return planned.count(setup.epoch_positions(0));
        }
        let batches = setup.epoch_positions(0).div_ceil(setup.options.batch_size as u64);
        setup.input.samples().map(|_| batches)
    }

    /// Names of the classes, by label; empty if the source has none.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        self.setup.input.classes()
    }

    /// The path or key of sample `index`, for people; `None` for a stream, whose samples have names only while they are
    /// read, and if there is no such sample.
    #[must_use]
    pub fn name(&self, index: u64) -> Option<String> {
        match &self.setup.input {
            Input::DataSet(source) if index < source.len() => Some(source.name(index).into_owned()),
            _ => None,
        }
    }

    /// Contents of the source, and the files that it skipped.
    #[must_use]
    pub fn source_summary(&self) -> SourceSummary {
        self.setup.input.summary()
    }

    /// Number of worker threads; 0 if the consumer's thread makes the batches.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.setup.options.threads
    }

    /// Number of batches that are being filled or ready ahead of the consumer.
    #[must_use]
    pub fn prefetch(&self) -> usize {
        self.setup.options.prefetch
    }

    /// Name of the device that runs the recipes, for people.
    #[must_use]
    pub fn device_name(&self) -> String {
        self.backend.name().to_owned()
    }

    /// Type of the elements of images in batches.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.setup.options.elements().dtype
    }

    /// The targets that batches have; `None` without [`PipelineBuilder::targets`].
    #[must_use]
    pub fn targets(&self) -> Option<&TargetSpec> {
        self.setup.targets.as_ref()
    }

    /// Whether batches have fields ([`PipelineBuilder::fields`]).
    #[doc(hidden)]
    pub fn has_fields(&self) -> bool {
        !self.setup.fields.is_empty()
    }

    /// Strategy by which recipes are run ([`PipelineBuilder::strategy`]).
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        self.setup.recipes.planner.strategy
    }

    /// Current contents of the [`ImageCache`]; `None` without one.
    #[must_use]
    pub fn cache_usage(&self) -> Option<CacheUsage> {
        self.setup.cache.as_deref().map(Cache::usage)
    }

    /// Sets the limit of [`PipelineBuilder::device_cache`] anew, in bytes. Memory above it is freed as soon as the GPU has
    /// read it, which this waits for; a trainer's capture of a graph would break. The images are then read from their
    /// source again.
    pub fn limit_device_cache(&self, bytes: u64) {
        self.backend.limit_cached(bytes);
    }

    /// Folder in which entry points are kept; `None` if they are in memory only ([`PipelineBuilder::entry_points`]).
    #[must_use]
    pub fn entry_points_folder(&self) -> Option<&Path> {
        self.setup.options.entry_points.as_deref()?.folder()
    }

    /// Reason why entry points are in memory only, or packed ones are not trusted, although the pipeline did not ask
    /// for that. Pixels are the same; the next run takes longer.
    #[must_use]
    pub fn entry_points_failure(&self) -> Option<String> {
        self.setup.options.entry_points.as_deref()?.failure()
    }

    /// Upper bound of the memory that the pipeline takes.
    #[must_use]
    pub fn memory(&self) -> MemoryBound {
        self.memory
    }

    /// The explicit operations, orientation included, that sample `index` goes through in an epoch the first time it
    /// comes. `warpfeed apply --orientation ignore --ops` replays them. With several views, the operations of the first
    /// view's first image.
    ///
    /// # Errors
    /// Errors of reading the sample and its header, and of drawing its recipe; [`Error::Unsupported`] for a stream.
    ///
    /// ```
    /// use warpfeed::prelude::*;
    /// use warpfeed::{ApplyOptions, apply, Orientation, ops::{CenterCrop, Op, Rotate}, image::{Image, JpegOptions, encode_jpeg}};
    ///
    /// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let pipeline = Pipeline::builder(EncodedImages::new([(jpeg.clone(), 0)]))
    ///     .seed(7)
    ///     .transform(random_rotation(-5.0..=5.0))
    ///     .transform(CenterCrop::new(8))
    ///     .output(DType::U8, Layout::Nhwc)
    ///     .build()?;
    /// let recipe = pipeline.recipe(0, 0)?;
    /// assert!(matches!(recipe[..], [Op::Rotate(_), Op::CenterCrop(_)]));
    /// let options = ApplyOptions::default().dtype(DType::U8).layout(Layout::Nhwc).orientation(Orientation::Ignore);
    /// let replayed = apply(&jpeg, &recipe, &options)?;
    /// for batch in pipeline.epoch(0) {
    ///     assert_eq!(batch?.images().as_bytes()?, replayed.as_bytes()?);
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn recipe(&self, epoch: u64, index: u64) -> Result<Vec<Op>> {
        self.recipes(epoch, index).map(|mut recipes| recipes.swap_remove(0))
    }

    /// The explicit operations of every image that a batch has of the sample, view after view. See
    /// [`recipe`](Self::recipe).
    ///
    /// # Errors
    /// The errors of [`recipe`](Self::recipe).
    pub fn recipes(&self, epoch: u64, index: u64) -> Result<Vec<Vec<Op>>> {
        self.recipes_of(epoch, index, 0)
    }

    /// Like [`recipes`](Self::recipes), for a sample that came `repetition` times before in the epoch, where a sampler
    /// repeats samples ([`Batch::repetitions`]).
    ///
    /// # Errors
    /// The errors of [`recipe`](Self::recipe).
    pub fn recipes_of(&self, epoch: u64, index: u64, repetition: u32) -> Result<Vec<Vec<Op>>> {
        let source = self.setup.input.clone().into_data_set()?;
        if index >= source.len() {
            return Err(Error::parameter("recipe", "index", format!("below {}", source.len()), index));
        }
        let partners = SourcePartners { setup: &self.setup, source: &*source };
        let (stored, annotation) = partners.read(index)?;
        let bucket = self.setup.bucketed.as_ref().and_then(|bucketed| bucketed.size_of(index));
        let drawn = Drawn::new(Pick { index, repetition }, stored).in_batch(bucket.map(BatchShape::Size));
        let drawn = self.setup.recipes.draw(epoch, drawn, &annotation, Some(&partners))?;
        Ok(drawn.recipes)
    }
}
