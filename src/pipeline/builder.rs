//! The description of a pipeline, and the checks that it goes through before it runs.

use super::cache::{Cache, ImageCache};
use super::{Inner, Pipeline};
use crate::backend::cpu::output::Tables;
use crate::cuda::gpu::{Ablation, Gpu, Settings};
use crate::device::{DecodePath, Device};
use crate::error::{Error, Result};
use crate::image::Size;
use crate::ops::filter::PassOrder;
use crate::ops::transform::{Transform, random_resized_crop, repeat};
use crate::ops::{CenterCrop, Normalize, Op, Resize, SizeEffect};
use crate::plan::Strategy;
use crate::recipe::preset::Preset;
use crate::sampler::{Even, Partition, Sampler};
use crate::source::{MAX_ENCODED_BYTES, Source};
use crate::tensor::{DType, Layout, Pool};
use std::num::NonZero;
use std::sync::{Arc, Mutex, OnceLock};

/// Largest image accepted unless the builder says otherwise.
pub(crate) const DEFAULT_MAX_PIXELS: u64 = 128_000_000;
/// Batches being filled or ready unless the builder says otherwise: one ready, one being filled.
const DEFAULT_PREFETCH: usize = 2;
/// Most worker threads.
const MAX_THREADS: usize = 1_024;
/// Most operations a sample: repetitions in repetitions multiply, and a worker that draws them cannot be stopped.
const MAX_OPERATIONS: u64 = 100_000;
/// Memory of a decoded pixel.
const PIXEL_BYTES: u64 = 4;
/// Memory of a pixel in the cache.
const KEPT_PIXEL_BYTES: u64 = 3;
/// Memory of a pixel's coefficients in a progressive image: four components, 16 bits each, at most.
const COEFFICIENT_BYTES: u64 = 8;
/// Largest batch in bytes.
const MAX_BATCH_BYTES: u64 = 1 << 36;

/// What to do with a sample that cannot be read or decoded, or is over a limit.
///
/// ```
/// use warpfeed::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let cut = jpeg[..jpeg.len() / 2].to_vec();
/// let source = EncodedImages::new([(jpeg.clone(), 0), (cut, 1), (jpeg, 2)]);
/// let builder = |policy| Pipeline::builder(source.clone()).on_error(policy).center_crop(8).build();
///
/// let mut epoch = builder(OnError::Skip)?.epoch(0);
/// for batch in epoch.by_ref() {
///     assert_eq!(batch?.labels(), [0, 2]);
/// }
/// assert_eq!((epoch.bad().len(), epoch.bad()[0].index), (1, 1));
///
/// let error = builder(OnError::Fail)?.epoch(0).next().unwrap().unwrap_err();
/// assert!(error.is_bad_sample() && error.to_string().contains("truncated"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The batches before it are delivered, then its error, and the epoch ends.
    #[default]
    Fail,
    /// It is left out, counted and reported ([`Epoch::bad`](crate::Epoch::bad)); its batch is that much shorter.
    Skip,
    /// Another sample, drawn from the same seed, takes its place; it is counted and reported.
    Substitute,
}

/// What to do with a last batch that is not full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LastBatch {
    /// It is delivered, shorter than the others.
    #[default]
    Keep,
    /// It is left out.
    Drop,
    /// It is filled with repetitions of its last image ([`Batch::padding`](crate::Batch::padding) says how many). So is a batch that
    /// [`OnError::Skip`] has made shorter.
    Pad,
}

/// What to do with an image's EXIF orientation tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Orientation {
    /// The image is turned as the tag says, before anything else.
    #[default]
    Apply,
    /// The image is taken as it is stored.
    Ignore,
}

/// Memory that a pipeline takes, known before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBound {
    /// Bytes of batches being filled or ready, and of one held by the consumer. Each further batch that the consumer
    /// keeps is one more [`batch_bytes`](Self::batch_bytes).
    pub batches_bytes: u64,
    /// Bytes of one batch.
    pub batch_bytes: u64,
    /// Most bytes of images, over all threads: two buffers of the largest accepted image each, and the coefficients
    /// of a progressive one. Photographs of ordinary size take a small part of it, and what a larger one took is given
    /// back after it.
    pub images_bytes: u64,
    /// Most encoded bytes, over all threads: one file of the largest accepted size each; and what a stream holds, or
    /// a source that fetches ahead.
    pub encoded_bytes: u64,
    /// Bytes of the order of an epoch while it is shuffled.
    pub order_bytes: u64,
    /// Most bytes of images that a [`ImageCache`](crate::ImageCache) in memory keeps.
    pub cache_bytes: u64,
    /// Bytes of a GPU's memory for batches that are being filled or under way there, and as many of host memory at most,
    /// pinned unless told otherwise ([`Builder::pinned`]); 0 on the CPU. What nvJPEG allocates for itself is not in it. On a
    /// GPU the batches themselves ([`batches_bytes`](Self::batches_bytes)) lie in its memory.
    pub device_bytes: u64,
}

/// Describes a pipeline; [`build`](Self::build) checks everything and makes it.
///
/// ```
/// use warpfeed::*;
///
/// let builder = || Pipeline::builder(EncodedImages::default());
/// let error = builder().batch_size(0).center_crop(8).build().unwrap_err();
/// assert!(error.is_parameter());
/// assert_eq!(error.to_string(), "pipeline: batch_size must be 1 to 1048576, got 0");
/// // Images of a batch must have one size.
/// assert!(builder().augment(Hflip).build().is_err());
/// assert!(builder().resize_shorter(10).center_crop(8).build().is_ok());
/// ```
pub struct Builder {
    source: Arc<dyn Source>,
    ops: Vec<Transform>,
    batch_size: usize,
    shuffle: bool,
    seed: u64,
    partition: Partition,
    even: bool,
    last: LastBatch,
    threads: Option<usize>,
    prefetch: Option<usize>,
    on_error: OnError,
    orientation: Orientation,
    strategy: Strategy,
    pass_order: PassOrder,
    device: Device,
    decode: DecodePath,
    device_memory_bytes: Option<u64>,
    cache: Option<ImageCache>,
    pinned: bool,
    again: Ablation,
    accept_truncated: bool,
    max_px: u64,
    limit: Option<u64>,
    dtype: DType,
    layout: Layout,
}

impl Builder {
    pub(super) fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            ops: Vec::new(),
            batch_size: 32,
            shuffle: false,
            seed: 0,
            partition: Partition::WHOLE,
            even: false,
            last: LastBatch::default(),
            threads: None,
            prefetch: None,
            on_error: OnError::default(),
            orientation: Orientation::default(),
            strategy: Strategy::default(),
            pass_order: PassOrder::default(),
            device: Device::default(),
            decode: DecodePath::default(),
            device_memory_bytes: None,
            cache: None,
            pinned: true,
            again: Ablation::Nothing,
            accept_truncated: false,
            max_px: DEFAULT_MAX_PIXELS,
            limit: None,
            dtype: DType::F32,
            layout: Layout::Nchw,
        }
    }

    /// Images a batch; 32 if not given.
    #[must_use]
    pub fn batch_size(mut self, images: usize) -> Self {
        self.batch_size = images;
        self
    }

    /// Shuffles every epoch anew, by this seed, which also becomes the seed of the augmentations.
    #[must_use]
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.shuffle = true;
        self.seed = seed;
        self
    }

    /// The seed of the augmentations, without shuffling; 0 if not given.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Delivers one partition of the epoch's order only: positions r, r + w, r + 2w, ... for rank r of w.
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partition = partition;
        self
    }

    /// Whether all partitions give the same number of batches, which trainers that exchange gradients after every batch need;
    /// not if not given. Where a partition has one sample fewer than others, it repeats one from the start of the order, which
    /// [`Batch::padding`](crate::Batch::padding) counts; with [`LastBatch::Drop`] the sample more is dropped.
    /// It does not go with [`OnError::Skip`], by which a whole batch may be missing.
    #[must_use]
    pub fn even(mut self, even: bool) -> Self {
        self.even = even;
        self
    }

    /// Ends every epoch after this many samples of its order.
    #[must_use]
    pub fn limit(mut self, samples: u64) -> Self {
        self.limit = Some(samples);
        self
    }

    /// What to do with a last batch that is not full; kept if not given.
    #[must_use]
    pub fn last_batch(mut self, last: LastBatch) -> Self {
        self.last = last;
        self
    }

    /// Worker threads; one for each processor that this process may use if not given. With 0 the thread that asks for a
    /// batch makes it, and none is made ahead: [`Stats::consumer_wait`](crate::Stats::consumer_wait) is then all of the
    /// work.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Batches being filled or ready ahead of the consumer; 2 if not given.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = Some(batches);
        self
    }

    /// What to do with a sample that cannot be used; [`OnError::Fail`] if not given.
    #[must_use]
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.on_error = policy;
        self
    }

    /// What to do with EXIF orientation; applied if not given.
    #[must_use]
    pub fn orientation(mut self, orientation: Orientation) -> Self {
        self.orientation = orientation;
        self
    }

    /// How recipes are run; [`Strategy::Fused`] if not given.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Which pass of a resize comes first, where it shows; [`PassOrder::Pillow13`] if not given.
    #[must_use]
    pub fn pass_order(mut self, order: PassOrder) -> Self {
        self.pass_order = order;
        self
    }

    /// Where recipes are run; [`Device::Auto`] if not given.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Who decodes JPEGs where recipes run on a GPU; [`DecodePath::Auto`] if not given.
    #[must_use]
    pub fn decode(mut self, path: DecodePath) -> Self {
        self.decode = path;
        self
    }

    /// Most memory of a GPU, in bytes, for the batches that are being filled or under way on it; half of what is free
    /// when the pipeline is built if not given. A batch that needs more than its share ends with
    /// [`Error::Limits`] on the sample that no longer fits.
    #[must_use]
    pub fn device_memory(mut self, bytes: u64) -> Self {
        self.device_memory_bytes = Some(bytes);
        self
    }

    /// Keeps decoded images from one epoch to the next; none if not given. The CPU decodes them, whatever
    /// [`decode`](Self::decode) says.
    #[must_use]
    pub fn cache(mut self, cache: ImageCache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Whether what is copied to a GPU is staged in pinned memory, from which it is copied while the host goes on; true if
    /// not given. Pinned memory is lost to all other programs, and some machines have little of it to give: what is
    /// pageable the driver first copies to a buffer of its own, and the thread that ends a batch waits for that. nvJPEG's
    /// own buffers are pinned anyhow.
    #[must_use]
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// What the device does twice, for experiments.
    pub(crate) fn again(mut self, again: Ablation) -> Self {
        self.again = again;
        self
    }

    /// Takes truncated JPEGs as they are, the missing part filled by the decoder, as Pillow does with
    /// `LOAD_TRUNCATED_IMAGES`. Otherwise they are bad samples.
    #[must_use]
    pub fn accept_truncated(mut self, accept: bool) -> Self {
        self.accept_truncated = accept;
        self
    }

    /// Largest image accepted, in pixels, as stored and at any point of its recipe; 128 million if not given.
    #[must_use]
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.max_px = pixels;
        self
    }

    /// Adds an operation: a random one, one with fixed parameters ([`Op`]), or a combination.
    #[must_use]
    pub fn augment(mut self, op: impl Into<Transform>) -> Self {
        self.ops.push(op.into());
        self
    }

    /// Adds `ops`, `n` times over with fresh draws each time: the augmentation load.
    #[must_use]
    pub fn repeat(self, n: u32, ops: impl IntoIterator<Item = Transform>) -> Self {
        self.augment(repeat(n, ops))
    }

    /// Adds torchvision's `RandomResizedCrop(size)` with its defaults. A `u32` is a square.
    #[must_use]
    pub fn random_resized_crop(self, size: impl Into<Size>) -> Self {
        self.augment(random_resized_crop(size))
    }

    /// Adds a bilinear resize to a width and height.
    #[must_use]
    pub fn resize(self, size: Size) -> Self {
        self.augment(Resize::new(size))
    }

    /// Adds a bilinear resize of the shorter side, aspect kept.
    #[must_use]
    pub fn resize_shorter(self, side: u32) -> Self {
        self.augment(Resize::shorter_side(side))
    }

    /// Adds the cut of the center. A `u32` is a square.
    #[must_use]
    pub fn center_crop(self, size: impl Into<Size>) -> Self {
        self.augment(CenterCrop::new(size))
    }

    /// Adds normalisation: `(v / 255 - mean) / std` for each channel.
    #[must_use]
    pub fn normalize(self, mean: [f32; 3], std: [f32; 3]) -> Self {
        self.augment(Normalize::new(mean, std))
    }

    /// Adds the operations of a preset.
    #[must_use]
    pub fn preset(mut self, preset: Preset) -> Self {
        self.ops.extend(preset.ops());
        self
    }

    /// Type and layout of the batches; `f32` and NCHW if not given.
    #[must_use]
    pub fn output(mut self, dtype: DType, layout: Layout) -> Self {
        self.dtype = dtype;
        self.layout = layout;
        self
    }

    /// Checks everything and makes the pipeline.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a parameter that is out of range or does not fit the others, with what is allowed;
    /// [`Error::Device`] if the device asked for is not there; [`Error::Io`] if the folder of a [`ImageCache`] cannot be
    /// made or listed.
    pub fn build(self) -> Result<Pipeline> {
        let ordinal = self.device.resolve()?;
        let within = |parameter, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(value);
            }
            Err(Error::parameter("pipeline", parameter, format!("{least} to {most}"), value))
        };
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = within("threads", self.threads.unwrap_or(processors), 0, MAX_THREADS)?;
        let prefetch = within("prefetch", self.prefetch.unwrap_or(DEFAULT_PREFETCH), 1, 1 << 20)?;
        let batch_size = within("batch_size", self.batch_size, 1, 1 << 20)?;
        if self.max_px == 0 {
            return Err(Error::parameter("pipeline", "max_pixels", "1 or more", 0));
        }
        let (size, normalize) = check_ops(&self.ops)?;
        if normalize.is_some() && self.dtype == DType::U8 {
            return Err(Error::parameter("output", "dtype", "f32, f16 or bf16 after normalize", "u8"));
        }
        let len = self.source.len();
        let stream = self.source.stream().map(|stream| (stream, self.shuffle));
        // A stream shuffles by itself.
        let shuffled = self.shuffle && stream.is_none();
        let mut sampler = if shuffled { Sampler::shuffled(len, self.seed) } else { Sampler::sequential(len) }
            .partition(self.partition);
        if stream.is_some() && (self.even || self.on_error == OnError::Substitute) {
            let feature = if self.even { "even" } else { "OnError::Substitute" };
            return Err(Error::Unsupported {
                feature: format!("{feature} over a stream"),
                remedy: "a stream's samples are known when they come: use a source of random access".to_owned(),
            });
        }
        if self.even {
            if self.on_error == OnError::Skip {
                let expected = "fail or substitute with even";
                return Err(Error::parameter("pipeline", "on_error", expected, "skip"));
            }
            sampler = sampler.even(if self.last == LastBatch::Drop { Even::Cut } else { Even::Padded });
        }
        let slot_bytes = 3 * size.area_px() * self.dtype.size_bytes() as u64;
        let batch_bytes = slot_bytes * batch_size as u64;
        if batch_bytes > MAX_BATCH_BYTES {
            return Err(Error::Limits {
                what: "a batch in bytes",
                got: batch_bytes,
                limit: MAX_BATCH_BYTES,
                remedy: "use a smaller batch_size or image",
            });
        }
        let order_record = if u32::try_from(len).is_ok() { 4 } else { 8 };
        // Without worker threads the consumer's does their work.
        let working = threads.max(1) as u64;
        let tables = Tables::new(self.dtype, normalize);
        let settings = Settings {
            size,
            dtype: self.dtype,
            layout: self.layout,
            strategy: self.strategy,
            order: self.pass_order,
            decode: self.decode,
            accept_truncated: self.accept_truncated,
            max_px: self.max_px,
            batch_size,
            // Those being filled or ready, and one that the device is still at work on when it has been taken.
            flights: prefetch + 1,
            outputs: prefetch + 1,
            threads,
            memory_bytes: self.device_memory_bytes,
            pinned: self.pinned,
            again: self.again,
        };
        let gpu = ordinal.map(|ordinal| Gpu::open(ordinal, settings, &tables)).transpose()?;
        let is_stream = stream.is_some();
        let cache = self.cache.as_ref().map(|cache| Cache::open(cache, is_stream)).transpose()?;
        // A kept image is made and read beside the others.
        let kept_bytes = if cache.is_some() { KEPT_PIXEL_BYTES } else { 0 };
        let memory = MemoryBound {
            batches_bytes: batch_bytes * (prefetch as u64 + 1),
            batch_bytes,
            images_bytes: ((2 * PIXEL_BYTES + COEFFICIENT_BYTES + kept_bytes) * working).saturating_mul(self.max_px),
            encoded_bytes: MAX_ENCODED_BYTES * working
                + stream.as_ref().map_or(self.source.ahead_bytes(), |(stream, _)| stream.memory_bytes()),
            order_bytes: if shuffled { len.saturating_mul(order_record) } else { 0 },
            cache_bytes: self.cache.as_ref().map_or(0, ImageCache::memory_bytes),
            device_bytes: gpu.as_ref().map_or(0, Gpu::memory_bytes),
        };
        Ok(Pipeline {
            memory,
            inner: Arc::new(Inner {
                source: self.source,
                fingerprint: OnceLock::new(),
                stream,
                sampler,
                seed: self.seed,
                ops: self.ops,
                size,
                tables,
                cache,
                gpu: gpu.map(Arc::new),
                batch_size,
                last: self.last,
                limit: self.limit.unwrap_or(u64::MAX),
                threads,
                prefetch,
                on_error: self.on_error,
                orientation: self.orientation,
                strategy: self.strategy,
                pass_order: self.pass_order,
                accept_truncated: self.accept_truncated,
                max_px: self.max_px,
                dtype: self.dtype,
                layout: self.layout,
                pool: Arc::new(Pool::new(self.dtype, batch_bytes as usize, prefetch + 1)),
                executors: Mutex::default(),
            }),
        })
    }
}

/// Mean and standard deviation of each channel.
type Normalization = Option<([f32; 3], [f32; 3])>;

/// Checks the operations one by one and together; the size they all end in, and the normalisation.
fn check_ops(ops: &[Transform]) -> Result<(Size, Normalization)> {
    ops.iter().try_for_each(Transform::validate)?;
    let steps = ops.iter().fold(0, |sum: u64, op| sum.saturating_add(op.most_steps()));
    if steps > MAX_OPERATIONS {
        let expected = format!("at most {MAX_OPERATIONS} operations together, counted as often as repeat repeats them");
        return Err(Error::parameter("pipeline", "operations", expected, steps));
    }
    let mut normalize = None;
    let mut size = None;
    for op in ops {
        match op {
            Transform::Explicit(Op::Normalize(Normalize { mean, std })) => {
                if normalize.is_some() {
                    return Err(Error::parameter("normalize", "place", "once, at the end", "twice"));
                }
                normalize = Some((*mean, *std));
            }
            Transform::Explicit(Op::Erase(_)) | Transform::RandomErasing(_) => {}
            _ if normalize.is_some() => {
                let expected = "before normalize (only erasing may follow it)";
                return Err(Error::parameter("pipeline", "place of an operation", expected, op.name()));
            }
            _ => {}
        }
        match op.size_effect() {
            SizeEffect::Keeps => {}
            SizeEffect::Becomes(new) => size = Some(new),
            SizeEffect::Varies => size = None,
        }
    }
    let size = size.ok_or_else(|| {
        Error::parameter(
            "pipeline",
            "operations",
            "such that every image ends in the same size: end with a resize to a width and height, a crop, or a random \
             resized crop",
            "operations that leave the size to the image",
        )
    })?;
    Ok((size, normalize))
}
