//! The builder of a pipeline.

mod settings;
mod settle;

use super::cache::ImageCache;
use super::policy::{BadLimit, LastBatch, OnError, Policy};
use super::view::View;
use super::{PaddedPipeline, Pipeline, PipelineGroup, RaggedPipeline};
use crate::apply::opening::{Opening, Thumbnail};
use crate::backend::{self, CallersMemory, PixelForm, RunOptions};
use crate::device::{Device, JpegDecoder, StreamPriority};
use crate::error::{Error, Result};
use crate::mix::Mix;
use crate::ops::check::check_ops;
use crate::ops::filter::PassOrder;
use crate::ops::orientation::Orientation;
use crate::ops::transform::Transform;
use crate::ops::values::PixelValues;
use crate::ops::{ChannelNumbers, Normalize, TransformFile};
use crate::order::Partition;
use crate::pipeline::entry_points::EntryPoints;
use crate::pixels::Pixels;
use crate::plan::{Planner, Strategy};
use crate::preset::Preset;
use crate::raster::{DEFAULT_MAX_PIXELS, Size};
use crate::sampler::Sampler;
use crate::shapes::{Buckets, SizeSchedule, TokenBudget};
use crate::source::{ImageSizes, Input};
use crate::targets::TargetSpec;
use crate::tensor::{BatchMemory, DType, Layout};
pub use settings::{Setting, SettingEffect};
use std::path::PathBuf;
use std::sync::Arc;

/// Upper bounds of the memory that a pipeline takes, known before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryBound {
    /// Bytes of the batches being filled or ready, and of one batch held by the consumer. Each further batch that the
    /// consumer keeps adds [`batch_bytes`](Self::batch_bytes).
    pub batches_bytes: u64,
    /// Bytes of one batch, with its targets. If images differ in size: the most that they could have; for a padded
    /// batch, the size of the largest accepted batch in addition to its images.
    pub batch_bytes: u64,
    /// Largest number of unused bytes that are kept for later batches: of images that differ in size, and on a GPU of
    /// masks and of values that are copied to the images' device. At most [`PipelineBuilder::device_memory`], or 1 GiB,
    /// for each view, but always one tensor. Images of one size are not counted: their memory is part of
    /// [`batches_bytes`](Self::batches_bytes).
    pub spare_bytes: u64,
    /// Bytes of the fields of these batches, if each is a mask of the image: two for each pixel of an image. Masks of
    /// objects, whose number is not known before they are read, take a byte for each object and pixel instead. On a GPU
    /// they lie in GPU memory.
    pub fields_bytes: u64,
    /// Largest number of bytes of images, over all threads: per thread two buffers of the largest accepted image (three
    /// with several views) and the coefficients of a progressive image. Photographs of ordinary size take a small part
    /// of that. Memory for a larger image is released after it.
    pub images_bytes: u64,
    /// Largest number of encoded bytes, over all threads: per thread one file of the largest accepted size. It includes
    /// the data that a stream, or a source that fetches ahead, holds, and 512 MiB of headers with
    /// [`PipelineBuilder::gpu_direct`].
    pub encoded_bytes: u64,
    /// Bytes of an epoch's shuffled order.
    pub order_bytes: u64,
    /// Largest number of bytes of images in an [`ImageCache`](crate::ImageCache) in memory.
    pub cache_bytes: u64,
    /// Largest number of bytes of entry points that are in no file ([`PipelineBuilder::entry_points`]).
    pub entry_points_bytes: u64,
    /// Bytes of GPU memory for batches that are being filled or processed there; 0 on the CPU. At most as many bytes of
    /// host memory are used too, pinned unless [`PipelineBuilder::pinned`] says otherwise. Memory that nvJPEG allocates
    /// for itself is not included, but the 16 MiB are that [`PipelineBuilder::gpu_direct`] takes for each batch that is
    /// being finished. On a GPU the batches themselves ([`batches_bytes`](Self::batches_bytes)) also lie in
    /// GPU memory.
    pub device_bytes: u64,
    /// Bytes of GPU memory for encoded images that stay there ([`PipelineBuilder::device_cache`]); 0 on the CPU.
    pub device_cache_bytes: u64,
}

/// The sizes of a batch's images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shapes {
    /// One size, in one tensor.
    One,
    /// A size and a tensor each.
    Each,
    /// A size each, in one tensor whose sides are multiples of the number.
    Padded(u32),
}

/// A builder of pipelines. [`build`](Self::build) checks all settings and makes the pipeline.
///
/// ```
/// use warpfeed::prelude::*;
/// use warpfeed::{ops::Hflip, image::{Image, JpegOptions, encode_jpeg}};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let builder = Pipeline::builder(EncodedImages::new([(jpeg, 0)]));
/// let error = builder.clone().batch_size(0).transform(CenterCrop::new(8)).build().unwrap_err();
/// assert!(error.is_parameter());
/// assert_eq!(error.to_string(), "pipeline: batch_size must be 1 to 1048576, got 0");
/// // Images of a batch must have one size.
/// assert!(builder.clone().transform(Hflip).build().is_err());
/// assert!(builder.transform(Resize::shorter_side(10)).transform(CenterCrop::new(8)).build().is_ok());
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Clone)]
pub struct PipelineBuilder {
    input: Input,
    ops: Vec<Transform>,
    /// The number of operations that were added before the views, and the views.
    views: Option<(usize, Vec<View>)>,
    /// Whether images keep the sizes that the operations give them.
    shapes: Shapes,
    shuffle: bool,
    seed: u64,
    partition: Partition,
    equal_batches: bool,
    shares: u32,
    lanes: Option<u32>,
    limit: u64,
    targets: Option<TargetSpec>,
    fields: Vec<String>,
    sanitize: bool,
    sampler: Option<Sampler>,
    buckets: Option<Buckets>,
    unit: Option<u64>,
    sizes: Option<SizeSchedule>,
    sequences: Option<TokenBudget>,
    image_sizes: Option<Arc<ImageSizes>>,
    sizes_file: Option<PathBuf>,
    mix: Option<Mix>,
    device: Device,
    cache: Option<ImageCache>,
    entry_points: EntryPoints,
    /// Default: the number of processors.
    threads: Option<usize>,
    policy: Policy,
    opening: Opening,
    planner: Planner,
    /// The elements of all outputs.
    elements: PixelForm,
    pixels: Pixels,
    max_value: Option<f32>,
    /// Options of the run. `build` settles those that depend on the operations and the machine.
    options: RunOptions,
}

impl std::fmt::Debug for PipelineBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PipelineBuilder")
            .field("ops", &self.ops)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl PipelineBuilder {
    pub(super) fn new(input: Input) -> Self {
        Self {
            input,
            ops: Vec::new(),
            views: None,
            shapes: Shapes::One,
            shuffle: false,
            seed: 0,
            partition: Partition::WHOLE,
            equal_batches: false,
            shares: 1,
            lanes: None,
            limit: u64::MAX,
            targets: None,
            fields: Vec::new(),
            sanitize: true,
            sampler: None,
            buckets: None,
            unit: None,
            sizes: None,
            sequences: None,
            image_sizes: None,
            sizes_file: None,
            mix: None,
            device: Device::default(),
            cache: None,
            entry_points: EntryPoints::default(),
            threads: None,
            policy: Policy::default(),
            opening: Opening::default(),
            planner: Planner {
                strategy: Strategy::default(),
                order: PassOrder::default(),
                max_px: DEFAULT_MAX_PIXELS,
                values: None,
            },
            elements: PixelForm::default(),
            pixels: Pixels::Rgb,
            max_value: None,
            options: RunOptions::default(),
        }
    }

    /// Sets the number of images in a batch. Default: 32.
    #[must_use]
    pub fn batch_size(mut self, images: usize) -> Self {
        self.options.batch_size = images;
        self
    }

    /// Shuffles every epoch anew with this seed, which also becomes the seed of the random transforms.
    #[must_use]
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.shuffle = true;
        self.seed = seed;
        self
    }

    /// Sets the seed of the random transforms, without shuffling. Default: 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Delivers only one partition of the epoch's order: positions r, r + w, r + 2w, ... for rank r of w.
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partition = partition;
        self
    }

    /// Deals the samples to this number of shares once, and shuffles each share anew each epoch
    /// ([`ShardedOrder::shares`](crate::ShardedOrder::shares)). With as many shares as ranks each rank has the same
    /// samples in every epoch, and so what its [`device_cache`](Self::device_cache), its [`cache`](Self::cache) and the
    /// page cache of its machine keep. A batch of all ranks then mixes samples less than with one share, the default.
    /// [`build`](Self::build) refuses several shares of a stream or of a sampler's choice, and without shuffling.
    #[must_use]
    pub fn shares(mut self, shares: u32) -> Self {
        self.shares = shares;
        self
    }

    /// Gives all partitions the same number of batches, for trainers that exchange gradients after every batch. A
    /// partition with one sample fewer than others repeats a sample from the start of the order;
    /// [`Batch::padding`](crate::Batch::padding) counts it. With [`LastBatch::Drop`] the larger partitions drop a
    /// sample instead. This cannot be combined with [`OnError::Skip`], which can remove whole batches. Default: false.
    #[must_use]
    pub fn equal_batches(mut self, equal: bool) -> Self {
        self.equal_batches = equal;
        self
    }

    /// Reads a stream in this number of lanes, which are dealt to the ranks: rank r of w has the lanes r, r + w, and so
    /// on, and always reads from the one that has delivered fewest samples. The lanes decide the order, so the number
    /// of ranks may change within an epoch ([`Pipeline::state_after`](crate::Pipeline::state_after)); ranks beyond the
    /// lanes get nothing of it. Each lane has a window of its own. Default: the number of ranks that an epoch begins
    /// with. Lanes must be at least as many as ranks, and at most 65,536.
    #[must_use]
    pub fn lanes(mut self, lanes: u32) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// Ends every epoch after this many samples of its order.
    #[must_use]
    pub fn limit(mut self, samples: u64) -> Self {
        self.limit = samples;
        self
    }

    /// Delivers some samples more than once in an epoch, or not at all. Default: each sample once. Cannot be used with
    /// a stream.
    #[must_use]
    pub fn sampler(mut self, sampler: Sampler) -> Self {
        self.sampler = Some(sampler);
        self
    }

    /// Batches images by buckets: each batch has the size of one bucket, and all ranks have the same size in each step.
    /// Each image is resized and cropped to its bucket by [`BucketCrop`](crate::ops::BucketCrop), which the operations
    /// must have, with none after it that changes the size. The sizes are those of the images' headers, which
    /// [`build`](Self::build) reads unless [`image_sizes`](Self::image_sizes) gives them.
    ///
    /// An epoch's order is parted by bucket, each part is cut into units of a batch of all ranks
    /// ([`unit`](Self::unit)), and the units are shuffled; one that has the most pixels comes first. What is left of a
    /// bucket is a shorter batch ([`LastBatch::Keep`], which repeats samples up to a multiple of the number of ranks),
    /// is filled up with the bucket's first samples ([`LastBatch::Pad`]), or left out, other samples in each epoch
    /// ([`LastBatch::Drop`]). Samples that would never come are refused ([`Buckets::lossy`]). All ranks have equally many
    /// batches. A substitute of a bad sample is drawn from its bucket.
    ///
    /// `build` refuses buckets of a stream, with [`OnError::Skip`], an image cache or a thumbnail, and `build_ragged` and
    /// `build_padded` refuse them. See [`Buckets`] for an example.
    #[must_use]
    pub fn buckets(mut self, buckets: Buckets) -> Self {
        self.buckets = Some(buckets);
        self
    }

    /// Sets the number of positions of a unit ([`buckets`](Self::buckets)): a multiple of the images that all ranks have
    /// in a batch. The order then does not depend on the number of ranks, which may change within an epoch. Default: the
    /// images of a batch of all ranks.
    #[must_use]
    pub fn unit(mut self, positions: u64) -> Self {
        self.unit = Some(positions);
        self
    }

    /// Changes the size of images in the course of training: all images of a batch have the size of its step, the same on
    /// all ranks. Each image gets that size by [`BucketCrop`](crate::ops::BucketCrop) or by
    /// [`RandomResizedCrop`](crate::ops::RandomResizedCrop), whose own size then stands for nothing. All ranks have equally
    /// many batches ([`equal_batches`](Self::equal_batches)). A sample's pixels depend on its place in the epoch.
    ///
    /// ```
    /// use warpfeed::{image::{Image, JpegOptions, encode_jpeg}, prelude::*, shapes::SizeSchedule};
    ///
    /// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let source = EncodedImages::new((0..8).map(|label| (jpeg.clone(), label)));
    /// let pipeline = Pipeline::builder(source)
    ///     .batch_size(4)
    ///     .sizes(SizeSchedule::progressive([16, 24].map(Size::from), 2)?)
    ///     .transform(random_resized_crop(24))
    ///     .build()?;
    /// let sides = |epoch| pipeline.epoch(epoch).next().unwrap().map(|batch| batch.images().shape()[3]);
    /// assert_eq!((sides(0)?, sides(1)?), (16, 24));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn sizes(mut self, sizes: SizeSchedule) -> Self {
        self.sizes = Some(sizes);
        self
    }

    /// Batches images as sequences of patches, for models of native resolution (NaFlex): each batch has a length of its
    /// own, the same on all ranks, and as many images as the budget of tokens lets it have. The operations must have
    /// [`SequenceResize`](crate::ops::SequenceResize) or [`RandomSequenceCrop`](crate::ops::RandomSequenceCrop), and
    /// [`build_ragged`](Self::build_ragged) makes the pipeline; [`Batch::patches`](crate::Batch::patches) cuts the images
    /// into patches. The batch size is that of the budget. A sample's pixels depend on its place in the epoch.
    #[must_use]
    pub fn sequences(mut self, budget: TokenBudget) -> Self {
        self.sequences = Some(budget);
        self
    }

    /// Keeps the sizes that [`build`](Self::build) reads for [`buckets`](Self::buckets) in this file, so that a later
    /// `build` reads the headers of changed images alone ([`ImageSizes::scan_kept`]).
    #[must_use]
    pub fn sizes_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.sizes_file = Some(file.into());
        self
    }

    /// Gives the sizes of the source's images, for [`buckets`](Self::buckets), so that `build` does not read their
    /// headers. An image that turns out to have another size is a bad sample.
    #[must_use]
    pub fn image_sizes(mut self, sizes: impl Into<Arc<ImageSizes>>) -> Self {
        self.image_sizes = Some(sizes.into());
        self
    }

    /// Delivers targets in addition to images and labels ([`Batch::targets`](crate::Batch::targets)). A sample whose
    /// target is missing, or has another form than `targets` describes, is a bad sample. Default: no targets.
    #[must_use]
    pub fn targets(mut self, targets: TargetSpec) -> Self {
        self.targets = Some(targets);
        self
    }

    /// Delivers these fields of the samples ([`Batch::fields`](crate::Batch::fields)): boxes, masks, keypoints, and
    /// numbers of objects. They follow the recipe of each image, from the stored image on: its EXIF orientation comes
    /// first. After the last operation, boxes are cut at the edges of the image, and objects whose boxes are no longer
    /// valid are dropped ([`Sanitize`](crate::ops::Sanitize) with its defaults); [`sanitize`](Self::sanitize) turns
    /// that off, and [`Stats::dropped_objects`](crate::Stats::dropped_objects) counts them. A sample without one of the
    /// fields is a bad sample. Default: no fields.
    ///
    /// Masks and points are computed on the host, whatever device the images are on. [`MemoryBound::fields_bytes`]
    /// counts masks of images; the number of objects of a sample is not known beforehand.
    #[must_use]
    pub fn fields(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.fields = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether recipes of samples with fields end by dropping the objects whose boxes are no longer valid.
    /// Default: true.
    #[must_use]
    pub fn sanitize(mut self, sanitize: bool) -> Self {
        self.sanitize = sanitize;
        self
    }

    /// Mixes the images of each batch, after all other operations, and their targets if these are f32. An image then
    /// depends on the other samples of its batch, and so on batch size and partition, and an epoch can only be resumed
    /// with the same batch size. A batch that is shorter, or padded, is mixed as it is. Default: no mixing.
    #[must_use]
    pub fn mix(mut self, mix: Mix) -> Self {
        self.mix = Some(mix);
        self
    }

    /// Sets the policy for a last batch that is not full. Default: [`LastBatch::Keep`].
    #[must_use]
    pub fn last_batch(mut self, last: LastBatch) -> Self {
        self.policy.last = last;
        self
    }

    /// Sets the number of worker threads. With 0 the thread that asks for a batch makes it, no batch is prefetched, and
    /// [`Stats::consumer_wait`](crate::Stats::consumer_wait) is the time of all work. Default: the number of processors
    /// that this process may use.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets the number of batches that are being filled or ready ahead of the consumer. Default: 2.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.options.prefetch = batches;
        self
    }

    /// Sets the policy for samples that cannot be used. Default: [`OnError::Fail`].
    #[must_use]
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.policy.on_error = policy;
        self
    }

    /// Limits the number of bad samples; beyond it the epoch ends with [`Error::TooManyBad`]. Default: the epoch ends
    /// if its first 100 samples are bad, or all of them, and none was substituted. This keeps a run from training on
    /// the empty folder of an unmounted disk.
    ///
    /// ```
    /// # use warpfeed::prelude::*;
    /// # use warpfeed::{BadLimit, image::{Image, JpegOptions, encode_jpeg}};
    /// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let source = EncodedImages::new((0..10).map(|i| (jpeg[..if i < 2 { 50 } else { jpeg.len() }].to_vec(), i)));
    /// let builder = Pipeline::builder(source).transform(CenterCrop::new(8)).on_error(OnError::Skip);
    /// let epoch = |limit| builder.clone().max_bad(limit).build().map(|pipeline| pipeline.epoch(0));
    /// assert!(epoch(BadLimit::Share(0.2))?.all(|batch| batch.is_ok()));
    /// let error = epoch(BadLimit::Count(1))?.next().unwrap().unwrap_err();
    /// assert!(error.to_string().starts_with("2 of 10 samples cannot be used"));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn max_bad(mut self, limit: BadLimit) -> Self {
        self.policy.max_bad = Some(limit);
        self
    }

    /// Sets the handling of EXIF orientation. Default: it is applied.
    #[must_use]
    pub fn orientation(mut self, orientation: Orientation) -> Self {
        self.opening.orientation = orientation;
        self
    }

    /// Sets how recipes are run. Default: [`Strategy::Fused`].
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.planner.strategy = strategy;
        self
    }

    /// Sets which pass of a resize comes first; where results differ by it, it decides the pixels. Default:
    /// [`PassOrder::Pillow13`].
    #[must_use]
    pub fn pass_order(mut self, order: PassOrder) -> Self {
        self.planner.order = order;
        self
    }

    /// Sets the device that runs the recipes. Default: [`Device::Auto`].
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Sets the JPEG decoder for recipes that run on a GPU. Default: [`JpegDecoder::Auto`].
    #[must_use]
    pub fn jpeg_decoder(mut self, decoder: JpegDecoder) -> Self {
        self.options.jpeg_decoder = decoder;
        self
    }

    /// Sets the share of images that the hardware decoder gets on [`JpegDecoder::Hardware`] and
    /// [`JpegDecoder::HardwareDevice`], 0 to 1, of those that it supports. An image's size, chroma sampling and length
    /// decide whether it is among them, so runs repeat themselves. Default: 0.75.
    #[must_use]
    pub fn hardware_share(mut self, share: f64) -> Self {
        self.options.hardware_share = share;
        self
    }

    /// Limits the GPU memory, in bytes, of the batches that are being filled or processed there. Default: half of the
    /// memory that is free when the pipeline is built, without the part that earlier pipelines of the process may still
    /// take. It also limits the memory that is kept for later batches whose images differ in size
    /// ([`MemoryBound::spare_bytes`]).
    ///
    /// The device's decoders need memory for whole images. If a batch's share does not suffice, the CPU decodes, and
    /// only the needed part of the image is copied to the device
    /// ([`Decoded::for_memory`](crate::Decoded::for_memory)). If even that does not fit, the epoch ends
    /// with [`Error::OutOfDeviceMemory`].
    #[must_use]
    pub fn device_memory(mut self, bytes: u64) -> Self {
        self.options.device_memory_bytes = Some(bytes);
        self
    }

    /// Keeps encoded images in GPU memory, up to this many bytes, from one epoch to the next. Later epochs do not read
    /// them. Default: 0.
    ///
    /// An image stays once the GPU has decoded it with this crate's decoder ([`JpegDecoder::Auto`],
    /// [`JpegDecoder::Device`]), unless it has restart markers or is above 64 MiB. Bytes do not change; an image that
    /// changes in its source is not read again. Streams keep nothing.
    /// [`Decoded::device_cached`](crate::Decoded::device_cached) counts the images that were there, and
    /// [`Pipeline::limit_device_cache`](crate::Pipeline::limit_device_cache) gives memory back.
    #[must_use]
    pub fn device_cache(mut self, bytes: u64) -> Self {
        self.options.device_cache_bytes = bytes;
        self
    }

    /// Has the GPU read images from storage to its own memory, past the host (GPUDirect Storage, NVIDIA's cuFile).
    /// Default: `false`. On the CPU it does nothing.
    ///
    /// From its second epoch on, an image is read so if it lies in a local shard ([`RecordShards`] of WebDataset or
    /// RecordIO), this crate's decoder on the GPU has decoded it ([`JpegDecoder::Auto`], [`JpegDecoder::Device`]), it
    /// has no restart markers, and it is at most 8 MiB. If the shard was written since it was listed, or if a read
    /// fails, the host reads the image. Bytes do not change.
    /// [`Decoded::device_direct`](crate::Decoded::device_direct) counts the images, and
    /// [`Decoded::cpu_fallbacks`](crate::Decoded::cpu_fallbacks) the failed reads. [`build`](Self::build) fails if
    /// cuFile is missing or cannot be opened, and with another decoder.
    ///
    /// [`RecordShards`]: crate::source::RecordShards
    #[must_use]
    pub fn gpu_direct(mut self, direct: bool) -> Self {
        self.options.gpu_direct = direct;
        self
    }

    /// Caches decoded images from one epoch to the next. The CPU decodes these images, whatever
    /// [`jpeg_decoder`](Self::jpeg_decoder) says. Default: no cache.
    #[must_use]
    pub fn cache(mut self, cache: ImageCache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Sets where entry points are kept, and how many. Default: in the user's cache folder, at most 4 GiB.
    ///
    /// When the CPU decodes a baseline JPEG for the first time, the pipeline records about every 128 pixels where in
    /// the data an MCU begins. These entry points take less than a hundredth of the encoded bytes. In later epochs, and
    /// in later runs, the decoder uses them to skip data that a crop does not need, and with AVX-512 or AVX2 to
    /// decode 32 stretches of an image at a time. Batches are the same with and without entry points.
    ///
    /// Images are recognized by a keyed hash of their encoded bytes, so a changed file is decoded as a new one.
    #[must_use]
    pub fn entry_points(mut self, entry_points: EntryPoints) -> Self {
        self.entry_points = entry_points;
        self
    }

    /// Sets whether data for a GPU is staged in pinned memory, from which it is copied while the host goes on. Pinned
    /// memory is lost to all other programs, and some machines have little of it. From pageable memory the driver first
    /// copies to a buffer of its own, and the thread that finishes a batch waits for that copy. nvJPEG's own buffers
    /// are always pinned. Default: true.
    #[must_use]
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.options.pinned = pinned;
        self
    }

    /// Pins the batches that the CPU makes, for a trainer that copies them to the CUDA device `ordinal`. The copy then
    /// needs no intermediate buffer and runs while the host goes on. Has no effect on batches that a GPU makes.
    /// [`build`](Self::build) fails if there is no such device.
    ///
    /// A batch may be dropped, and handed to candle, burn or (by DLPack) libtorch with `non_blocking`, while the device
    /// still has to read it: the pipeline fills its memory again only after all work that was queued on this device
    /// when the batch was dropped. If a stream captures a CUDA graph just then, the epoch ends with an error, and the
    /// capture is lost. So a trainer that captures names the streams that read a batch
    /// ([`Tensor::read_on`](crate::Tensor::read_on); candle's is known), or gives memory of its own
    /// ([`batch_memory`](Self::batch_memory)).
    #[must_use]
    pub fn pin_batches(mut self, ordinal: u32) -> Self {
        self.options.pin_batches = Some(ordinal);
        self
    }

    /// Fills batches that the CPU makes in memory of the caller's. If another library has pinned that memory, for
    /// example, this saves a copy. Has no effect on batches that a GPU makes, nor on targets and fields.
    ///
    /// Each batch takes one block for each view when it is begun. Images that differ in size and are not padded take a
    /// block each. So `prefetch` batches have blocks at a time, and so do the batches that the consumer keeps.
    /// [`build`](Self::build) takes no block.
    ///
    /// A block is not filled again. It goes back to its owner when the batch is dropped, or to the consumer
    /// ([`Tensor::into_block`](crate::Tensor::into_block)). The provider of the blocks waits for work that is queued on
    /// them.
    #[must_use]
    pub fn batch_memory(mut self, memory: impl BatchMemory + 'static) -> Self {
        self.options.batch_memory = Some(CallersMemory(Arc::new(memory)));
        self
    }

    /// Decodes JPEGs at 1/2, 1/4 or 1/8 of their size, the smallest of these whose sides, as stored, are not below
    /// `size`. The recipes see images of that size. The rule and the pixels are those of Pillow's `Image.draft` after
    /// `Image.open`; other formats are decoded whole. Default: JPEGs are decoded whole, too.
    ///
    /// Large photographs then cost much less, but their pixels differ. For `.transform(Resize::shorter_side(256))` a
    /// size of 256 x 256 keeps at least 256 pixels a side; twice as much keeps the result closer to the whole image's.
    /// Random crops are taken from the draft, so a small crop of a small draft is enlarged. On a GPU, drafts are
    /// decoded by the CPU.
    ///
    /// ```
    /// use warpfeed::image::{Image, JpegOptions, Size, encode_jpeg};
    /// use warpfeed::prelude::*;
    /// use warpfeed::source::EncodedImages;
    ///
    /// let photograph = encode_jpeg(&Image::new(Size::new(2000, 1500)), &JpegOptions::default())?;
    /// let pipeline = Pipeline::builder(EncodedImages::new([(photograph, 0)]))
    ///     .preset(Preset::Eval)
    ///     .draft(Size::new(256, 256))
    ///     .build()?;
    /// for batch in pipeline.epoch(0) {
    ///     assert_eq!(batch?.stored_sizes(), [Size::new(500, 375)]);
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn draft(mut self, size: Size) -> Self {
        self.opening.draft = Some(size);
        self
    }

    /// Begins each recipe with a thumbnail of the image: Pillow's `Image.thumbnail` after `Image.open`, with its bytes
    /// for gray and RGB images. Others are converted to RGB first. Random crops are taken from the thumbnail. If a
    /// [`draft`](Self::draft) is set too, the thumbnail is made of that draft.
    ///
    /// ```
    /// use warpfeed::image::{Image, JpegOptions, Size, encode_jpeg};
    /// use warpfeed::prelude::*;
    /// use warpfeed::source::EncodedImages;
    /// use warpfeed::Thumbnail;
    ///
    /// let photograph = encode_jpeg(&Image::new(Size::new(2001, 1500)), &JpegOptions::default())?;
    /// let pipeline = Pipeline::builder(EncodedImages::new([(photograph, 0)]))
    ///     .thumbnail(Thumbnail::new(Size::new(256, 256)))
    ///     .transform(CenterCrop::new(192))
    ///     .build()?;
    /// let batch = pipeline.epoch(0).next().ok_or("no batch")??;
    /// // A draft of half the size has 1,001 columns; 1,000.5 of them are shown.
    /// assert_eq!(batch.stored_sizes(), [Size::new(1001, 750)]);
    /// assert_eq!(batch.recipes(0)?[0][0].output_size(Size::new(1001, 750))?, Size::new(256, 192));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn thumbnail(mut self, thumbnail: Thumbnail) -> Self {
        self.opening.thumbnail = Some(thumbnail);
        self
    }

    /// Sets the priority of the pipeline's CUDA streams. Default: low, so that a trainer on a high-priority stream goes
    /// first.
    #[must_use]
    pub fn stream_priority(mut self, priority: StreamPriority) -> Self {
        self.options.stream_priority = priority;
        self
    }

    /// Takes truncated JPEGs as they are, the missing part filled by the decoder, as Pillow does with
    /// `LOAD_TRUNCATED_IMAGES`. Otherwise they are bad samples.
    #[must_use]
    pub fn accept_truncated(mut self, accept: bool) -> Self {
        self.options.accept_truncated = accept;
        self
    }

    /// Limits the size of an image in pixels, as stored and after every operation of its recipe. Default: 128 million.
    #[must_use]
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.planner.max_px = pixels;
        self
    }

    /// Adds a transform: a random one, an operation with fixed parameters ([`Op`](crate::ops::Op)), or a combination.
    /// [`ops`](crate::ops) has them.
    #[must_use]
    pub fn transform(mut self, op: impl Into<Transform>) -> Self {
        self.ops.push(op.into());
        self
    }

    /// Sets the kind of pixels that images are decoded to. Default: RGB of 8 bits. Images of another kind keep their
    /// element type and all their channels: 16 bits, floating-point numbers, 1 to 64 channels. Operations of color and
    /// automatic augmentations are then refused by [`build`](Self::build).
    ///
    /// ```
    /// use warpfeed::Pixels;
    /// use warpfeed::prelude::*;
    ///
    /// // A file of NumPy's, as a microscope's program writes it: [height, width, 2] of 16 bits.
    /// let header = "{'descr': '<u2', 'fortran_order': False, 'shape': (8, 8, 2), }\n";
    /// let npy = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &[1; 256]].concat();
    /// let builder = Pipeline::builder(EncodedImages::new([(npy, 0)])).pixels(Pixels::Own).transform(CenterCrop::new(4));
    /// let pipeline = builder.output(DType::U16, Layout::Nchw).build()?;
    /// for batch in pipeline.epoch(0) {
    ///     assert_eq!(batch?.images().as_slice::<u16>()?, [257; 2 * 4 * 4]);
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn pixels(mut self, pixels: Pixels) -> Self {
        self.pixels = pixels;
        self
    }

    /// Sets the value that stands for 1 where whole numbers become floating-point numbers, and to which operations limit
    /// values: 4,095 of cameras with 12 bits in 16, 10,000 of satellites' reflectance. Default: the largest value of the
    /// pixels' type, 1 of floating-point numbers.
    #[must_use]
    pub fn max_value(mut self, value: f32) -> Self {
        self.max_value = Some(value);
        self
    }

    /// Normalizes the output: `(v / 255 - mean) / std` for each channel; other pixels than RGB are divided by their
    /// [`max_value`](Self::max_value), floating-point numbers by nothing. Transforms that are added after this call get
    /// normalized values.
    #[must_use]
    pub fn normalize(self, mean: impl Into<ChannelNumbers>, std: impl Into<ChannelNumbers>) -> Self {
        self.transform(Normalize::new(mean, std))
    }

    /// Adds the transforms and views of a preset. If the preset mixes images it also sets [`mix`](Self::mix), and if it
    /// repeats samples [`sampler`](Self::sampler). In these cases it sets [`targets`](Self::targets) too, unless
    /// targets were asked for before or the source names no classes; if it names none, call `targets` with
    /// [`Preset::targets`].
    ///
    /// A recipe of detection or segmentation sets [`fields`](Self::fields) to [`Preset::fields`] unless fields were
    /// asked for before, and turns [`sanitize`](Self::sanitize) off, as it drops objects itself at its own place. Where
    /// [`is_ragged`](Self::is_ragged) says so, images differ in size.
    #[must_use]
    pub fn preset(mut self, preset: Preset) -> Self {
        let classes = self.input.classes().len() as u32;
        if self.targets.is_none() && classes > 0 {
            self.targets = preset.targets(classes);
        }
        if self.fields.is_empty() {
            self = self.fields(preset.fields().iter().copied());
        }
        self.sanitize &= preset.fields().is_empty();
        self.mix = preset.mix().or(self.mix);
        if preset.repetitions() > 1 {
            self.sampler = Some(Sampler::repeated(preset.repetitions()));
        }
        self.transforms(preset.transforms())
    }

    /// Delivers these views of every sample ([`Batch::view`](crate::Batch::view)), each with its own transforms and
    /// size, from one read and one decoding. Operations added before this call come first in all views, operations
    /// added after it come last. The first image of the first view has the draws of a pipeline with that view alone. A
    /// sample that cannot be used is skipped, or substituted, in all views. All views share one normalization.
    ///
    /// ```
    /// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// use warpfeed::ops::RandomResizedCrop;
    /// use warpfeed::prelude::*;
    /// use warpfeed::view;
    ///
    /// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let crop = |side, scale| RandomResizedCrop::new(side).scale(scale).interpolation(Interpolation::Bicubic).into();
    /// let dino = Pipeline::builder(EncodedImages::new((0..4).map(|label| (jpeg.clone(), label))))
    ///     .views([view([crop(22, 0.4..=1.0)]).times(2), view([crop(9, 0.05..=0.4)]).times(8)])
    ///     .transform(random_horizontal_flip(0.5))
    ///     .normalize(IMAGENET_MEAN, IMAGENET_STD)
    ///     .build()?;
    /// for batch in dino.epoch(0) {
    ///     let batch = batch?;
    ///     assert_eq!(batch.len(), 4);
    ///     assert_eq!(batch.view(0).unwrap().shape(), [2 * 4, 3, 22, 22]);
    ///     assert_eq!(batch.view(1).unwrap().shape(), [8 * 4, 3, 9, 9]);
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn views(mut self, views: impl IntoIterator<Item = View>) -> Self {
        self.views = Some((self.ops.len(), views.into_iter().collect()));
        self
    }

    /// Sets the number of channels of the batches: 3 (red, green, blue) or 1. With 1 the image is converted to Pillow's
    /// `L` just before normalization; gray images keep their values. Mean and std must then have one value, given three
    /// times, and of the values of [`erasing`](crate::ops::RandomErasing) after normalization the first is used.
    /// Default: 3.
    ///
    /// ```
    /// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// use warpfeed::prelude::*;
    ///
    /// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let builder = Pipeline::builder(EncodedImages::new([(jpeg, 0)])).transform(CenterCrop::new(28)).channels(1);
    /// let gray = builder.clone().normalize([0.1307; 3], [0.3081; 3]).build()?;
    /// for batch in gray.epoch(0) {
    ///     assert_eq!(batch?.images().shape(), [1, 1, 28, 28]);
    /// }
    /// assert!(builder.normalize(IMAGENET_MEAN, IMAGENET_STD).build().is_err());
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn channels(mut self, channels: usize) -> Self {
        self.elements.channels = channels;
        self
    }

    /// Adds the transforms and views of a file.
    #[must_use]
    pub fn transforms(mut self, file: TransformFile) -> Self {
        let TransformFile { first, views, last } = file;
        self.ops.extend(first);
        if let Some(views) = views {
            self = self.views(views.into_iter().map(View::from));
        }
        self.ops.extend(last);
        self
    }

    /// Sets type and layout of the batches. Default: `f32` and NCHW.
    #[must_use]
    pub fn output(mut self, dtype: DType, layout: Layout) -> Self {
        (self.elements.dtype, self.elements.layout) = (dtype, layout);
        self
    }

    /// Checks all settings, takes the memory of the first batch, and makes the pipeline.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a parameter that is out of range or contradicts others, or a source without samples;
    /// [`Error::Limits`] for a batch over the largest size; [`Error::OutOfMemory`] or [`Error::OutOfDeviceMemory`] if
    /// there is no memory for a batch; [`Error::Device`] if the requested device is missing; [`Error::Io`] if the
    /// folder of an [`ImageCache`] cannot be made or listed.
    pub fn build(self) -> Result<Pipeline> {
        let device = self.device;
        Ok(self.build_each(&[device], &backend::open)?.swap_remove(0))
    }

    /// The same on a back end that does one part of the work twice.
    #[doc(hidden)]
    pub fn build_twice(self, part: backend::Twice) -> Result<Pipeline> {
        let device = self.device;
        let open = |device, options: &_, normalize| backend::open_twice(part, device, options, normalize);
        Ok(self.build_each(&[device], &open)?.swap_remove(0))
    }

    /// Whether the operations give images different sizes, so that the pipeline is made by
    /// [`build_ragged`](Self::build_ragged) or [`build_padded`](Self::build_padded).
    ///
    /// ```
    /// use warpfeed::prelude::*;
    ///
    /// let builder = Pipeline::builder(EncodedImages::new([(Vec::new(), 0)]));
    /// assert!(!builder.clone().preset(Preset::Ssd).is_ragged());
    /// assert!(builder.preset(Preset::FasterRcnn).is_ragged());
    /// ```
    #[must_use]
    pub fn is_ragged(&self) -> bool {
        let ends = || check_ops(&self.ops, self.stored_size(), self.values().ok()?.unwrap_or(PixelValues::RGB8)).ok();
        self.views.is_none()
            && self.buckets.is_none()
            && self.sizes.is_none()
            && ends().is_some_and(|ends| ends.size.is_none())
    }

    /// Makes a pipeline whose images keep the sizes that the operations give them: see [`RaggedPipeline`]. Otherwise
    /// like [`build`](Self::build).
    ///
    /// # Errors
    /// The errors of [`build`](Self::build), except that operations need not end in one size; [`Error::Parameter`] with
    /// several views, with [`mix`](Self::mix), and with [`LastBatch::Pad`].
    pub fn build_ragged(mut self) -> Result<RaggedPipeline> {
        self.shapes = Shapes::Each;
        let device = self.device;
        Ok(self.build_each(&[device], &backend::open)?.swap_remove(0))
    }

    /// Makes a pipeline whose images keep the sizes that the operations give them, padded to one tensor for each batch:
    /// see [`PaddedPipeline`]. The tensor's sides are those of the batch's widest and of its highest image, made
    /// multiples of `divisor`: 32 for feature pyramids, 1 for the images' own. Otherwise like [`build`](Self::build).
    ///
    /// # Errors
    /// The errors of [`build`](Self::build), except that operations need not end in one size; [`Error::Parameter`] with
    /// several views, with [`mix`](Self::mix), and for a divisor of 0 or above 65,536. The epoch ends with
    /// [`Error::Limits`] at a batch over the largest size.
    pub fn build_padded(mut self, divisor: u32) -> Result<PaddedPipeline> {
        self.shapes = Shapes::Padded(divisor);
        let device = self.device;
        Ok(self.build_each(&[device], &backend::open)?.swap_remove(0))
    }

    /// Makes a pipeline for each of these devices: see [`PipelineGroup`]. They share the worker threads.
    /// [`device_memory`](Self::device_memory) applies to each device by itself. All deliver the same number of batches,
    /// as with [`equal_batches`](Self::equal_batches). [`device`](Self::device) is ignored. Otherwise like
    /// [`build`](Self::build).
    ///
    /// # Errors
    /// The errors of [`build`](Self::build); [`Error::Parameter`] for an empty list, a GPU that is named twice,
    /// [`Device::Auto`], and [`OnError::Skip`]; [`Error::Unsupported`] over a stream.
    pub fn build_group(mut self, devices: impl IntoIterator<Item = Device>) -> Result<PipelineGroup> {
        let devices: Vec<Device> = devices.into_iter().collect();
        let named_twice = |&(i, device): &(usize, &Device)| *device != Device::Cpu && devices[..i].contains(device);
        let refused = |got: String| {
            let expected = "devices by name, one at least, each GPU once";
            Err(Error::parameter("build_group", "devices", expected, got))
        };
        if devices.is_empty() {
            return refused("none".to_owned());
        }
        if devices.contains(&Device::Auto) {
            return refused("auto".to_owned());
        }
        if let Some((_, device)) = devices.iter().enumerate().find(named_twice) {
            return refused(format!("{device} twice"));
        }
        if self.input.samples().is_none() {
            return Err(Error::Unsupported {
                feature: "several devices over a stream".to_owned(),
                remedy:
                    "they need equally many batches, and nobody knows how many a stream has: use a source of random \
                         access, or a process for each device"
                        .to_owned(),
            });
        }
        if self.policy.on_error == OnError::Skip {
            let expected = "fail or substitute with several devices, which need equally many batches";
            return Err(Error::parameter("build_group", "on_error", expected, "skip"));
        }
        self.equal_batches = true;
        self.build_each(&devices, &backend::open).map(PipelineGroup::new)
    }
}
