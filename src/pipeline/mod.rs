//! From a source to batches: the pipeline that a builder makes, and its epochs.

mod assembly;
mod batch;
mod builder;
mod cache;
mod context;
mod epoch;
mod policy;
mod schedule;
mod state;
mod stats;
mod worker;

use crate::backend::{AnyBackend, RunOptions};
use crate::decode::{Header, probe};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::ops::orientation_ops;
use crate::ops::rng::SampleRng;
use crate::ops::transform::{Transform, draw_recipe};
use crate::plan::Strategy;
use crate::raster::{Size, check_pixels};
use crate::sampler::Sampler;
use crate::source::stream::Feed;
use crate::source::{Input, Reader, StreamStart};
pub use batch::Batch;
pub use builder::{Builder, LastBatch, MemoryBound, Orientation};
pub(crate) use builder::{DEFAULT_MAX_PIXELS, MAX_THREADS};
use cache::Cache;
pub use cache::{CacheUsage, ImageCache};
pub use epoch::Epoch;
pub use policy::{BadLimit, BadSample, OnError};
pub(crate) use policy::{IO_FAILURES, Losses, Tally, io_failure};
use schedule::Runs;
pub use state::EpochState;
pub use stats::{Bottleneck, Stats};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// A pipeline: built once, asked for epochs.
///
/// Cheap to clone; clones share memory. A sample's pixels depend on the source, the operations, the seed, the epoch and
/// the sample's index alone: not on threads, batch size, prefetch or partition.
#[derive(Clone)]
pub struct Pipeline {
    inner: Arc<Inner>,
    memory: MemoryBound,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("samples", &self.len())
            .field("ops", &self.inner.ops)
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

/// What the builder has settled.
struct Inner {
    input: Input,
    /// Of the input, once it has been asked for.
    fingerprint: OnceLock<u64>,
    /// Whether epochs are shuffled.
    shuffle: bool,
    sampler: Sampler,
    seed: u64,
    /// Most samples an epoch.
    limit: u64,
    ops: Vec<Transform>,
    options: Arc<RunOptions>,
    policy: Policy,
    /// Decoded images that are kept, if any are to be.
    cache: Option<Cache>,
    /// What runs the recipes.
    backend: Arc<dyn Runs>,
}

/// What the pipeline itself does, whatever runs the recipes.
#[derive(Debug, Clone, Copy, Default)]
struct Policy {
    on_error: OnError,
    max_bad: Option<BadLimit>,
    last: LastBatch,
    orientation: Orientation,
}

impl From<AnyBackend> for Arc<dyn Runs> {
    fn from(backend: AnyBackend) -> Self {
        match backend {
            AnyBackend::Cpu(cpu) => Arc::new(cpu),
            AnyBackend::Cuda(gpu) => Arc::new(*gpu),
        }
    }
}

impl Inner {
    /// Where the samples of an epoch are read, from its position `first` on, which in a stream is at `place`.
    fn reader(&self, epoch: u64, first: u64, place: Option<Vec<u8>>, stopped: &Arc<AtomicBool>) -> Reader {
        match &self.input {
            Input::DataSet(source) => Reader::DataSet(Arc::clone(source)),
            Input::Stream(stream) => {
                let (shuffle, partition) = (self.shuffle.then_some(self.seed), self.sampler.own_partition());
                let start = StreamStart { epoch, shuffle, partition, place, stopped: Arc::clone(stopped) };
                let sizes = (self.options.batch_size, self.options.prefetch, self.options.threads);
                Reader::Stream(Arc::new(Feed::new(Arc::clone(stream), start, first, sizes)))
            }
        }
    }

    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| self.input.fingerprint())
    }

    /// Positions of an epoch's order, padding included, whatever becomes of a last batch that is not full.
    fn all_positions(&self) -> u64 {
        all_positions(&self.sampler, self.limit)
    }

    /// Positions that an epoch delivers from its position `first` on.
    fn positions(&self, first: u64) -> u64 {
        let (rest, batch) = (self.all_positions().saturating_sub(first), self.options.batch_size as u64);
        match self.policy.last {
            LastBatch::Drop => rest / batch * batch,
            LastBatch::Keep | LastBatch::Pad => rest,
        }
    }

    /// Reads the header of an encoded image and holds it against the limits.
    fn header(&self, bytes: &[u8]) -> Result<Header> {
        let header = probe(bytes)?;
        check_pixels(header.size, self.options.max_px)?;
        Ok(header)
    }

    /// The explicit operations for a sample in an epoch.
    fn recipe(&self, epoch: u64, index: u64, stored: Stored) -> Result<Vec<Op>> {
        let mut draw = SampleRng::for_sample(self.seed, epoch, index);
        let mut recipe = oriented(stored.orientation, self.policy.orientation);
        let size = recipe.iter().try_fold(stored.size, |size, op| op.output_size(size))?;
        recipe.append(&mut draw_recipe(&self.ops, &mut draw, size)?);
        Ok(recipe)
    }
}

/// Positions of an epoch of so many samples at most, padding included.
fn all_positions(sampler: &Sampler, limit: u64) -> u64 {
    (sampler.len() + sampler.padding()).min(limit)
}

/// What a recipe is drawn for: an image as it is stored.
#[derive(Debug, Clone, Copy)]
struct Stored {
    size: Size,
    /// Its orientation tag.
    orientation: u8,
}

impl From<&Header> for Stored {
    fn from(header: &Header) -> Self {
        Self { size: header.size, orientation: header.orientation }
    }
}

/// The operations that an orientation tag asks for, if it is to be applied.
pub(crate) fn oriented(tag: u8, orientation: Orientation) -> Vec<Op> {
    match orientation {
        Orientation::Apply => orientation_ops(tag),
        Orientation::Ignore => Vec::new(),
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
        Epoch::start(Arc::clone(&self.inner), epoch, 0, None)
    }

    /// The rest of an epoch, from where [`Epoch::state`] was taken, to the very sample: what is delivered before and after
    /// is together what one undisturbed epoch delivers. Another batch size goes on in other batches, and with
    /// [`LastBatch::Drop`] another rest is dropped.
    ///
    /// # Errors
    /// [`Error::Parameter`] with what differs, if the state was taken of another source, seed, order or partition, or by a
    /// version of this crate whose states mean something else.
    pub fn resume(&self, state: &EpochState) -> Result<Epoch> {
        state.check(&self.inner, self.inner.all_positions())?;
        Ok(Epoch::start(Arc::clone(&self.inner), state.epoch(), state.position(), state.place()?))
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

    /// Width and height of every image of a batch.
    #[must_use]
    pub fn image_size(&self) -> Size {
        self.inner.options.size
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
        self.inner.backend.name().to_owned()
    }

    /// How recipes are run.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        self.inner.options.strategy
    }

    /// How full its [`ImageCache`] is; `None` without one.
    #[must_use]
    pub fn cache_usage(&self) -> Option<CacheUsage> {
        self.inner.cache.as_ref().map(Cache::usage)
    }

    /// The memory it takes at most.
    #[must_use]
    pub fn memory(&self) -> MemoryBound {
        self.memory
    }

    /// The explicit operations that sample `index` goes through in an epoch, orientation included: what
    /// `warpfeed apply --orientation ignore --ops` replays.
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
        let source = self.inner.input.clone().into_data_set()?;
        if index >= source.len() {
            return Err(Error::parameter("recipe", "index", format!("below {}", source.len()), index));
        }
        let mut buffer = Vec::new();
        let bytes = source.read(index, &mut buffer)?;
        let header = self.inner.header(bytes)?;
        self.inner.recipe(epoch, index, Stored::from(&header))
    }
}
