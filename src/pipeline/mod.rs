//! From a source to batches: the pipeline that a builder makes, and its epochs.

mod batch;
mod builder;
mod cache;
mod epoch;
mod state;
mod stats;
mod store;
mod worker;

use crate::backend::cpu::executor::{Executor, Job};
use crate::backend::cpu::output::{Output, Tables};
use crate::cuda::gpu::Gpu;
use crate::decode::{Header, probe};
use crate::error::{Error, Result};
use crate::image::{Size, check_pixels};
use crate::ops::Op;
use crate::ops::filter::PassOrder;
use crate::ops::orientation_ops;
use crate::ops::rng::SampleRng;
use crate::ops::transform::{Transform, draw_recipe};
use crate::plan::Strategy;
use crate::sampler::Sampler;
use crate::source::stream::Feed;
use crate::source::{Source, Stream, StreamStart};
use crate::tensor::{DType, Layout, Pool};
pub use batch::Batch;
pub(crate) use builder::DEFAULT_MAX_PIXELS;
pub use builder::{Builder, LastBatch, MemoryBound, OnError, Orientation};
use cache::Cache;
pub use cache::{CacheUsage, ImageCache};
pub use epoch::{BadSample, Epoch};
pub use state::EpochState;
pub use stats::Stats;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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
    source: Arc<dyn Source>,
    /// Of the source, once it has been asked for.
    fingerprint: OnceLock<u64>,
    /// The source's stream, if it is one, and whether that is to be shuffled.
    stream: Option<(Arc<dyn Stream>, bool)>,
    sampler: Sampler,
    seed: u64,
    ops: Vec<Transform>,
    /// Size of every image of a batch.
    size: Size,
    tables: Tables,
    batch_size: usize,
    last: LastBatch,
    /// Most samples an epoch.
    limit: u64,
    threads: usize,
    prefetch: usize,
    on_error: OnError,
    orientation: Orientation,
    strategy: Strategy,
    pass_order: PassOrder,
    accept_truncated: bool,
    max_px: u64,
    dtype: DType,
    layout: Layout,
    pool: Arc<Pool>,
    /// Decoded images that are kept, if any are to be.
    cache: Option<Cache>,
    /// The device that recipes run on, if it is not the CPU.
    gpu: Option<Arc<Gpu>>,
    /// Decoders and scratch memory of threads that have ended, for the next epoch's.
    executors: Mutex<Vec<Executor>>,
}

impl Inner {
    /// The stream of an epoch from its position `first` on, which is at `place`, if that is what the source is.
    fn feed(&self, epoch: u64, first: u64, place: Option<Vec<u8>>) -> Option<Feed> {
        let (stream, shuffle) = self.stream.as_ref()?;
        let (shuffle, partition) = (shuffle.then_some(self.seed), self.sampler.own_partition());
        let start = StreamStart { epoch, shuffle, partition, place, stopped: Arc::default() };
        Some(Feed::new(Arc::clone(stream), start, first, (self.batch_size, self.prefetch, self.threads)))
    }

    /// Whether epochs are shuffled.
    fn is_shuffled(&self) -> bool {
        self.stream.as_ref().map_or(self.sampler.is_shuffled(), |(_, shuffle)| *shuffle)
    }

    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| self.source.fingerprint())
    }

    /// Positions of an epoch's order, padding included, whatever becomes of a last batch that is not full.
    fn all_positions(&self) -> u64 {
        (self.sampler.len() + self.sampler.padding()).min(self.limit)
    }

    /// Positions that an epoch delivers from its position `first` on.
    fn positions(&self, first: u64) -> u64 {
        let (rest, batch) = (self.all_positions().saturating_sub(first), self.batch_size as u64);
        match self.last {
            LastBatch::Drop => rest / batch * batch,
            LastBatch::Keep | LastBatch::Pad => rest,
        }
    }

    fn shape(&self, images: usize) -> [usize; 4] {
        let (width, height) = (self.size.width as usize, self.size.height as usize);
        match self.layout {
            Layout::Nchw => [images, 3, height, width],
            Layout::Nhwc => [images, height, width, 3],
        }
    }

    fn slot_bytes(&self) -> usize {
        3 * self.size.area_px() as usize * self.dtype.size_bytes()
    }

    fn output<'a>(&'a self, slot: &'a mut [u8]) -> Output<'a> {
        Output::new(slot, self.size, &self.tables, self.layout)
    }

    /// What is to be done with one encoded image.
    fn job<'a>(&self, bytes: &'a [u8], header: &'a Header, ops: &'a [Op]) -> Job<'a> {
        Job {
            bytes,
            header,
            ops,
            strategy: self.strategy,
            order: self.pass_order,
            accept_truncated: self.accept_truncated,
            max_px: self.max_px,
        }
    }

    fn executor(&self) -> Result<Executor> {
        let kept = self.executors.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(Executor::new, Ok)
    }

    fn give_executor(&self, executor: Executor) {
        let mut executors = self.executors.lock().unwrap_or_else(PoisonError::into_inner);
        if executors.len() < self.threads.max(1) {
            executors.push(executor);
        }
    }

    /// Reads the header of an encoded image and holds it against the limits.
    fn header(&self, bytes: &[u8]) -> Result<Header> {
        let header = probe(bytes)?;
        check_pixels(header.size, self.max_px)?;
        Ok(header)
    }

    /// The explicit operations for a sample in an epoch.
    fn recipe(&self, epoch: u64, index: u64, stored: Stored) -> Result<Vec<Op>> {
        let mut draw = SampleRng::for_sample(self.seed, epoch, index);
        let mut recipe = oriented(stored.orientation, self.orientation);
        let size = recipe.iter().try_fold(stored.size, |size, op| op.output_size(size))?;
        recipe.append(&mut draw_recipe(&self.ops, &mut draw, size)?);
        Ok(recipe)
    }
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
    /// Begins the description of a pipeline that reads from `source`.
    ///
    /// ```no_run
    /// use warpfeed::*;
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
    /// # Ok::<(), Error>(())
    /// ```
    pub fn builder(source: impl Source + 'static) -> Builder {
        Builder::new(Arc::new(source))
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

    /// Samples an epoch, in this partition, padding not counted. Of a stream no more is known than the
    /// [`limit`](Builder::limit): [`u64::MAX`] without one.
    #[must_use]
    pub fn len(&self) -> u64 {
        let len = if self.inner.stream.is_some() { u64::MAX } else { self.inner.sampler.len() };
        len.min(self.inner.limit)
    }

    /// Whether an epoch has no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Batches an epoch, if no sample is skipped.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.inner.positions(0).div_ceil(self.inner.batch_size as u64)
    }

    /// Names of the classes, by label; empty if the source has none.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        self.inner.source.classes()
    }

    /// Width and height of every image of a batch.
    #[must_use]
    pub fn image_size(&self) -> Size {
        self.inner.size
    }

    /// Number of worker threads; 0 if the consumer's thread makes the batches.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.inner.threads
    }

    /// Batches being filled or ready ahead of the consumer.
    #[must_use]
    pub fn prefetch(&self) -> usize {
        self.inner.prefetch
    }

    /// The device that recipes run on, in words.
    #[must_use]
    pub fn device_name(&self) -> String {
        self.inner.gpu.as_ref().map_or_else(|| "cpu".to_owned(), |gpu| gpu.name().to_owned())
    }

    /// How recipes are run.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        self.inner.strategy
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
    /// Those of reading the sample and its header, and of drawing its recipe.
    ///
    /// ```
    /// use warpfeed::*;
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
    /// # Ok::<(), Error>(())
    /// ```
    pub fn recipe(&self, epoch: u64, index: u64) -> Result<Vec<Op>> {
        let mut buffer = Vec::new();
        if index >= self.inner.source.len() {
            let expected = format!("below {}", self.inner.source.len());
            return Err(Error::parameter("recipe", "index", expected, index));
        }
        let bytes = self.inner.source.read(index, &mut buffer)?;
        let header = self.inner.header(bytes)?;
        self.inner.recipe(epoch, index, Stored::from(&header))
    }
}
