//! From a source to batches: the pipeline that a builder makes, and its epochs.

mod assembly;
mod batch;
mod builder;
mod cache;
mod context;
mod crew;
mod epoch;
mod group;
mod inner;
mod policy;
mod recipes;
mod schedule;
mod state;
mod stats;
mod unequal;
mod view;
mod worker;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::plan::Strategy;
use crate::preprocess::Preprocessor;
use crate::raster::Size;
use crate::sampling::Pick;
use crate::source::Input;
pub use batch::Batch;
pub use builder::{Builder, MemoryBound};
pub(crate) use builder::{DEFAULT_MAX_PIXELS, MAX_THREADS, check_ops, one_size};
use cache::Cache;
pub use cache::{CacheUsage, ImageCache};
use epoch::Beginning;
pub use epoch::Epoch;
pub use group::PipelineGroup;
use inner::Inner;
pub use policy::{BadLimit, BadSample, LastBatch, OnError};
pub(crate) use policy::{IO_FAILURES, Losses, Tally, io_failure};
pub use recipes::Orientation;
pub(crate) use recipes::oriented;
use recipes::{Crops, Stored};
use schedule::Runs;
pub use state::EpochState;
pub use stats::{Bottleneck, Stats};
use std::sync::Arc;
pub use unequal::{UnequalBatch, UnequalEpoch, UnequalPipeline};
pub use view::{View, five_crop, ten_crop, view};

/// A pipeline: built once, asked for epochs.
///
/// Cheap to clone; clones share memory. A sample's pixels depend on the source, the operations, the seed, the epoch and
/// the sample's index alone: not on threads, batch size, prefetch or partition. Where batches are mixed ([`Builder::mix`]), a
/// sample's pixels depend on its batch, and so on batch size and partition as well; on threads and prefetch they never do.
#[derive(Clone)]
pub struct Pipeline {
    inner: Arc<Inner>,
    /// What runs the recipes.
    backend: Arc<dyn Runs>,
    memory: MemoryBound,
    /// As it was asked for.
    device: Device,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("samples", &self.len())
            .field("views", &self.inner.recipes.views)
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

impl Pipeline {
    /// Begins the description of a pipeline that reads `input`: a [`Source`](crate::source::Source), a stream, or what
    /// [`open`](crate::source::open) gives.
    ///
    /// ```no_run
    /// use warpfeed::prelude::*;
    ///
    /// let train = Pipeline::builder(ImageFolder::open("imagenette2/train")?)
    ///     .batch_size(256).shuffle(42).threads(8)
    ///     .repeat(12, [random_horizontal_flip(0.5), random_vertical_flip(0.5), random_rotation(-5.0..=5.0)])
    ///     .random_resized_crop(224)
    ///     .normalize(IMAGENET_MEAN, IMAGENET_STD)
    ///     .output(DType::F32, Layout::Nchw)
    ///     .build()?;
    /// for batch in train.epoch(0) {
    ///     let batch = batch?;
    ///     assert_eq!(batch.images().shape()[1..], [3, 224, 224]);
    ///     assert_eq!(batch.labels().len(), batch.len());
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn builder(input: impl Into<Input>) -> Builder {
        Builder::new(input.into())
    }

    /// The batches of one epoch. Worker threads start now and end with the epoch, or when it is dropped.
    #[must_use]
    pub fn epoch(&self, epoch: u64) -> Epoch {
        Epoch::start_all(vec![self.beginning(epoch)]).swap_remove(0)
    }

    fn beginning(&self, epoch: u64) -> Beginning<'_> {
        Beginning { inner: &self.inner, backend: &self.backend, epoch, first: 0, cursor: None }
    }

    /// The rest of an epoch, from where [`Epoch::state`] was taken, to the very sample: what is delivered before and after
    /// is together what one undisturbed epoch delivers. Another batch size goes on in other batches, and with
    /// [`LastBatch::Drop`] another rest is dropped.
    ///
    /// # Errors
    /// [`Error::Parameter`] with what differs, if the state was taken of another source, seed, order or partition, or by a
    /// version of this crate whose states mean something else, if it is damaged, or if its position is beyond the end of
    /// the epoch. Where a stream is read again from the start, its end shows with the first batch.
    pub fn resume(&self, state: &EpochState) -> Result<Epoch> {
        Ok(Epoch::start_all(vec![self.rest(state)?]).swap_remove(0))
    }

    fn rest(&self, state: &EpochState) -> Result<Beginning<'_>> {
        state.check(&self.inner, self.inner.all_positions())?;
        let (first, cursor) = (state.position(), state.cursor()?);
        Ok(Beginning { first, cursor, ..self.beginning(state.epoch()) })
    }

    /// Samples an epoch, in this partition, padding not counted; `None` for a stream, of which nobody knows before its end.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        self.inner.input.samples().map(|_| self.inner.sampler.len().min(self.inner.limit))
    }

    /// Whether an epoch is known to have no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Batches an epoch, if no sample is skipped; `None` for a stream.
    #[must_use]
    pub fn batches(&self) -> Option<u64> {
        let batches = self.inner.positions(0).div_ceil(self.inner.options.batch_size as u64);
        self.inner.input.samples().map(|_| batches)
    }

    /// Names of the classes, by label; empty if the source has none.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        self.inner.input.classes()
    }

    /// Width and height of every image of a batch; with several views, of the first.
    #[must_use]
    pub fn image_size(&self) -> Size {
        self.view_sizes()[0].0
    }

    /// For each view the width and height of its images, and how many a batch has of each sample.
    #[must_use]
    pub fn view_sizes(&self) -> Vec<(Size, usize)> {
        self.inner.options.views.iter().map(|view| (view.size, view.times)).collect()
    }

    /// Number of worker threads; 0 if the consumer's thread makes the batches.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.inner.options.threads
    }

    /// Batches being filled or ready ahead of the consumer.
    #[must_use]
    pub fn prefetch(&self) -> usize {
        self.inner.options.prefetch
    }

    /// The device that recipes run on, in words.
    #[must_use]
    pub fn device_name(&self) -> String {
        self.backend.name().to_owned()
    }

    /// How recipes are run.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        self.inner.options.strategy
    }

    /// How full its [`ImageCache`] is; `None` without one.
    #[must_use]
    pub fn cache_usage(&self) -> Option<CacheUsage> {
        self.inner.cache.as_deref().map(Cache::usage)
    }

    /// The memory it takes at most.
    #[must_use]
    pub fn memory(&self) -> MemoryBound {
        self.memory
    }

    /// A preprocessor with the operations, the type and layout, the batch size and the device of this pipeline, for images
    /// that come one by one. Its transforms must draw nothing, as those of evaluation.
    ///
    /// # Errors
    /// [`Error::Parameter`] if they draw, or if there are several views; those of [`Preprocessor::new`].
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
        let mut images = self.inner.recipes.views.iter().flat_map(Crops::all);
        let (Some(transforms), None) = (images.next(), images.next()) else {
            return Err(Error::parameter("preprocessor", "views", "one, once", "several"));
        };
        Preprocessor::like(transforms, &self.inner.options, self.inner.recipes.orientation, self.device)
    }

    /// The explicit operations that sample `index` goes through in an epoch, the first time that it comes, orientation
    /// included: what
    /// `warpfeed apply --orientation ignore --ops` replays. With several views, those of the first image of the first.
    ///
    /// # Errors
    /// Those of reading the sample and its header, and of drawing its recipe; [`Error::Unsupported`] for a stream.
    ///
    /// ```
    /// use warpfeed::prelude::*;
    /// use warpfeed::{ApplyOptions, apply, Orientation, ops::{CenterCrop, Op, Rotate}, image::{Image, JpegOptions, encode_jpeg}};
    ///
    /// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let pipeline = Pipeline::builder(EncodedImages::new([(jpeg.clone(), 0)]))
    ///     .seed(7)
    ///     .augment(random_rotation(-5.0..=5.0))
    ///     .center_crop(8)
    ///     .output(DType::U8, Layout::Nhwc)
    ///     .build()?;
    /// let recipe = pipeline.recipe(0, 0)?;
    /// assert!(matches!(recipe[..], [Op::Rotate(_), Op::CenterCrop(_)]));
    /// let options = ApplyOptions { orientation: Orientation::Ignore, ..ApplyOptions::default() };
    /// let replayed = apply(&jpeg, &recipe, &options)?;
    /// for batch in pipeline.epoch(0) {
    ///     assert_eq!(batch?.images().as_bytes()?, replayed.as_bytes()?);
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn recipe(&self, epoch: u64, index: u64) -> Result<Vec<Op>> {
        self.recipes(epoch, index).map(|mut recipes| recipes.swap_remove(0))
    }

    /// The same for each image that a batch has of the sample, view after view.
    ///
    /// # Errors
    /// As of [`recipe`](Self::recipe).
    pub fn recipes(&self, epoch: u64, index: u64) -> Result<Vec<Vec<Op>>> {
        let source = self.inner.input.clone().into_data_set()?;
        if index >= source.len() {
            return Err(Error::parameter("recipe", "index", format!("below {}", source.len()), index));
        }
        let mut buffer = Vec::new();
        let bytes = source.read(index, &mut buffer)?;
        let header = self.inner.recipes.header(bytes)?;
        self.inner.recipes.draw(epoch, Pick { index, repetition: 0 }, Stored::from(&header))
    }
}
