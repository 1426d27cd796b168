//! The description of a pipeline.

mod settle;

use super::cache::ImageCache;
use super::policy::{BadLimit, LastBatch, OnError, Policy};
use super::view::View;
use super::{Pipeline, PipelineGroup, UnequalPipeline};
use crate::backend::{self, RunOptions};
use crate::device::{DecodePath, Device, StreamPriority};
use crate::error::{Error, Result};
use crate::mix::Mix;
use crate::ops::filter::PassOrder;
use crate::ops::orientation::Orientation;
use crate::ops::transform::{Transform, random_resized_crop, repeat};
use crate::ops::{CenterCrop, Normalize, Resize, TransformFile};
use crate::plan::{Planner, Strategy};
use crate::preset::Preset;
use crate::raster::{DEFAULT_MAX_PIXELS, Size};
use crate::sampler::Partition;
use crate::sampling::Sampling;
use crate::source::Input;
use crate::targets::TargetSpec;
use crate::tensor::{DType, Layout};

const DEFAULT_ENTRY_POINTS_BYTES: u64 = 512 << 20;

/// Memory that a pipeline takes, known before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBound {
    /// Bytes of batches being filled or ready, and of one held by the consumer. Each further batch that the consumer
    /// keeps is one more [`batch_bytes`](Self::batch_bytes).
    pub batches_bytes: u64,
    /// Bytes of one batch, with its targets; of unequal images the most that they could have.
    pub batch_bytes: u64,
    /// Most bytes of images, over all threads: two buffers of the largest accepted image each, three with several views, and
    /// the coefficients of a progressive one. Photographs of ordinary size take a small part of it, and what a larger one took is given
    /// back after it.
    pub images_bytes: u64,
    /// Most encoded bytes, over all threads: one file of the largest accepted size each; and what a stream holds, or
    /// a source that fetches ahead.
    pub encoded_bytes: u64,
    /// Bytes of the order of an epoch while it is shuffled.
    pub order_bytes: u64,
    /// Most bytes of images that an [`ImageCache`](crate::ImageCache) in memory keeps.
    pub cache_bytes: u64,
    /// Most bytes of entry points ([`Builder::entry_points`]).
    pub entry_points_bytes: u64,
    /// Bytes of a GPU's memory for batches that are being filled or under way there, and as many of host memory at most,
    /// pinned unless told otherwise ([`Builder::pinned`]); 0 on the CPU. What nvJPEG allocates for itself is not in it. On a
    /// GPU the batches themselves ([`batches_bytes`](Self::batches_bytes)) lie in its memory.
    pub device_bytes: u64,
}

/// Describes a pipeline; [`build`](Self::build) checks everything and makes it.
///
/// ```
/// use warpfeed::prelude::*;
/// use warpfeed::{ops::Hflip, image::{Image, JpegOptions, encode_jpeg}};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let builder = Pipeline::builder(EncodedImages::new([(jpeg, 0)]));
/// let error = builder.clone().batch_size(0).center_crop(8).build().unwrap_err();
/// assert!(error.is_parameter());
/// assert_eq!(error.to_string(), "pipeline: batch_size must be 1 to 1048576, got 0");
/// // Images of a batch must have one size.
/// assert!(builder.clone().augment(Hflip).build().is_err());
/// assert!(builder.resize_shorter(10).center_crop(8).build().is_ok());
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Clone)]
pub struct Builder {
    input: Input,
    ops: Vec<Transform>,
    /// How many of the operations come before the views' own, and the views.
    views: Option<(usize, Vec<View>)>,
    /// Whether images keep the sizes that the operations give them.
    unequal: bool,
    shuffle: bool,
    seed: u64,
    partition: Partition,
    even: bool,
    limit: u64,
    targets: Option<TargetSpec>,
    sampling: Option<Sampling>,
    mix: Option<Mix>,
    device: Device,
    cache: Option<ImageCache>,
    entry_points_bytes: u64,
    /// As many as there are processors if not given.
    threads: Option<usize>,
    policy: Policy,
    orientation: Orientation,
    planner: Planner,
    /// What the operations and the machine decide is settled by `build`.
    options: RunOptions,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("ops", &self.ops).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new(input: Input) -> Self {
        Self {
            input,
            ops: Vec::new(),
            views: None,
            unequal: false,
            shuffle: false,
            seed: 0,
            partition: Partition::WHOLE,
            even: false,
            limit: u64::MAX,
            targets: None,
            sampling: None,
            mix: None,
            device: Device::default(),
            cache: None,
            entry_points_bytes: DEFAULT_ENTRY_POINTS_BYTES,
            threads: None,
            policy: Policy::default(),
            orientation: Orientation::default(),
            planner: Planner { strategy: Strategy::default(), order: PassOrder::default(), max_px: DEFAULT_MAX_PIXELS },
            options: RunOptions::default(),
        }
    }

    /// Images a batch; 32 if not given.
    #[must_use]
    pub fn batch_size(mut self, images: usize) -> Self {
        self.options.batch_size = images;
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
        self.limit = samples;
        self
    }

    /// Delivers samples more than once an epoch, or not all of them; each once if not given. A stream has no such order.
    #[must_use]
    pub fn sampler(mut self, sampling: Sampling) -> Self {
        self.sampling = Some(sampling);
        self
    }

    /// Delivers targets beside images and labels ([`Batch::targets`](crate::Batch::targets)); none if not given. A sample whose
    /// target is missing or is not what was asked for is a bad sample.
    #[must_use]
    pub fn targets(mut self, targets: TargetSpec) -> Self {
        self.targets = Some(targets);
        self
    }

    /// Mixes the images of each batch, after everything else, and targets that are f32; not if not given. What an image
    /// becomes then depends on the batch that it is in, and so on batch size and partition; an epoch is resumed with the same
    /// batch size alone. A batch that is shorter, or padded, is mixed as it is.
    #[must_use]
    pub fn mix(mut self, mix: Mix) -> Self {
        self.mix = Some(mix);
        self
    }

    /// What to do with a last batch that is not full; kept if not given.
    #[must_use]
    pub fn last_batch(mut self, last: LastBatch) -> Self {
        self.policy.last = last;
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
        self.options.prefetch = batches;
        self
    }

    /// What to do with a sample that cannot be used; [`OnError::Fail`] if not given.
    #[must_use]
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.policy.on_error = policy;
        self
    }

    /// How many samples may be bad before the epoch ends with [`Error::TooManyBad`]. If not given, it ends where the first
    /// 100 samples or all of them are bad and none was substituted: an unmounted disk must not train on nothing.
    ///
    /// ```
    /// # use warpfeed::prelude::*;
    /// # use warpfeed::{BadLimit, image::{Image, JpegOptions, encode_jpeg}};
    /// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let source = EncodedImages::new((0..10).map(|i| (jpeg[..if i < 2 { 50 } else { jpeg.len() }].to_vec(), i)));
    /// let builder = Pipeline::builder(source).center_crop(8).on_error(OnError::Skip);
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

    /// What to do with EXIF orientation; applied if not given.
    #[must_use]
    pub fn orientation(mut self, orientation: Orientation) -> Self {
        self.orientation = orientation;
        self
    }

    /// How recipes are run; [`Strategy::Fused`] if not given.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.planner.strategy = strategy;
        self
    }

    /// Which pass of a resize comes first, where it shows; [`PassOrder::Pillow13`] if not given.
    #[must_use]
    pub fn pass_order(mut self, order: PassOrder) -> Self {
        self.planner.order = order;
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
        self.options.decode = path;
        self
    }

    /// Most memory of a GPU, in bytes, for the batches that are being filled or under way on it; half of what is free
    /// when the pipeline is built if not given. The device's decoders need memory for whole images: where a batch's share
    /// does not have it, the CPU decodes, and only the part of the image that is needed goes to the device
    /// ([`Stats::decoded_for_memory`](crate::Stats::decoded_for_memory)). Where that has no room either, the epoch ends with
    /// [`Error::OutOfDeviceMemory`].
    #[must_use]
    pub fn device_memory(mut self, bytes: u64) -> Self {
        self.options.device_memory_bytes = Some(bytes);
        self
    }

    /// Keeps decoded images from one epoch to the next; none if not given. The CPU decodes them, whatever
    /// [`decode`](Self::decode) says.
    #[must_use]
    pub fn cache(mut self, cache: ImageCache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Most memory that entry points take; 512 MiB if not given, none with 0. From the first time that the CPU decodes a
    /// baseline JPEG the pipeline keeps where in its data an MCU begins, about every 128 pixels: a hundredth of the encoded
    /// bytes. In later epochs it passes over what a crop does not need, and with AVX-512 decodes 32 stretches of the image
    /// at a time. Batches are the same as without.
    ///
    /// Those of the first images are kept, as long as there is room. An image is found by checksums of its encoded bytes,
    /// so a file that has changed is decoded as a new one.
    #[must_use]
    pub fn entry_points(mut self, bytes: u64) -> Self {
        self.entry_points_bytes = bytes;
        self
    }

    /// Whether what is copied to a GPU is staged in pinned memory, from which it is copied while the host goes on; true if
    /// not given. Pinned memory is lost to all other programs, and some machines have little of it to give: what is
    /// pageable the driver first copies to a buffer of its own, and the thread that ends a batch waits for that. nvJPEG's
    /// own buffers are pinned anyhow.
    #[must_use]
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.options.pinned = pinned;
        self
    }

    /// Pins the batches that the CPU makes, for a trainer that copies them to the CUDA device `ordinal`: they are copied
    /// straight from where they lie, while the host goes on. Batches that a GPU makes are in its own memory anyhow.
    /// [`build`](Self::build) fails where there is no such device.
    #[must_use]
    pub fn pin_batches(mut self, ordinal: u32) -> Self {
        self.options.pin_batches = Some(ordinal);
        self
    }

    /// Whose work a GPU does first where both have some; the trainer's if not given, if its stream has a higher priority.
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

    /// Largest image accepted, in pixels, as stored and at any point of its recipe; 128 million if not given.
    #[must_use]
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.planner.max_px = pixels;
        self
    }

    /// Adds an operation: a random one, one with fixed parameters ([`Op`](crate::ops::Op)), or a combination.
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

    /// Adds normalization: `(v / 255 - mean) / std` for each channel.
    #[must_use]
    pub fn normalize(self, mean: [f32; 3], std: [f32; 3]) -> Self {
        self.augment(Normalize::new(mean, std))
    }

    /// Adds the transforms of a preset, and its views. Of one that mixes, or that repeats samples, it also sets
    /// [`mix`](Self::mix) and [`sampler`](Self::sampler), and [`targets`](Self::targets) where none were asked for and the
    /// source names its classes. Where it does not, ask for [`Preset::targets`].
    #[must_use]
    pub fn preset(mut self, preset: Preset) -> Self {
        let classes = self.input.classes().len() as u32;
        if self.targets.is_none() && classes > 0 {
            self.targets = preset.targets(classes);
        }
        self.mix = preset.mix().or(self.mix);
        if preset.repetitions() > 1 {
            self.sampling = Some(Sampling::repeated(preset.repetitions()));
        }
        self.transforms(preset.transforms())
    }

    /// Delivers these views of every sample ([`Batch::view`](crate::Batch::view)), each with its own transforms and size, from
    /// one read and one decoding. Operations that are added before this come first in all views, those added after it last.
    /// The first image of the first view has the draws of a pipeline of that view alone. A sample that cannot be used is left
    /// out, or substituted, in all views. All views have one normalization.
    ///
    /// ```
    /// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// use warpfeed::ops::RandomResizedCrop;
    /// use warpfeed::prelude::*;
    ///
    /// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let crop = |side, scale| RandomResizedCrop::new(side).scale(scale).interpolation(Interpolation::Bicubic).into();
    /// let dino = Pipeline::builder(EncodedImages::new((0..4).map(|label| (jpeg.clone(), label))))
    ///     .views([view([crop(22, 0.4..=1.0)]).times(2), view([crop(9, 0.05..=0.4)]).times(8)])
    ///     .augment(random_horizontal_flip(0.5))
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

    /// Channels of the batches: 3 (red, green, blue) if not given, or 1. One is Pillow's `L` of the image that all operations
    /// but normalizing and what follows it have been through; a gray image keeps its values. It is normalized with one mean
    /// and one std, which are to be given three times, and of the values of [`erasing`](crate::ops::RandomErasing) behind
    /// that the first counts.
    ///
    /// ```
    /// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// use warpfeed::prelude::*;
    ///
    /// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let builder = Pipeline::builder(EncodedImages::new([(jpeg, 0)])).center_crop(28).channels(1);
    /// let gray = builder.clone().normalize([0.1307; 3], [0.3081; 3]).build()?;
    /// for batch in gray.epoch(0) {
    ///     assert_eq!(batch?.images().shape(), [1, 1, 28, 28]);
    /// }
    /// assert!(builder.normalize(IMAGENET_MEAN, IMAGENET_STD).build().is_err());
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn channels(mut self, channels: usize) -> Self {
        self.options.channels = channels;
        self
    }

    /// Adds the transforms, and views, of a file.
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

    /// Type and layout of the batches; `f32` and NCHW if not given.
    #[must_use]
    pub fn output(mut self, dtype: DType, layout: Layout) -> Self {
        self.options.dtype = dtype;
        self.options.layout = layout;
        self
    }

    /// Checks everything, takes the memory of the first batch, and makes the pipeline.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a parameter that is out of range or does not fit the others, or a source without samples;
    /// [`Error::Limits`] for a batch over the largest size; [`Error::OutOfMemory`] or [`Error::OutOfDeviceMemory`] if there
    /// is no memory for a batch; [`Error::Device`] if the device asked for is not there; [`Error::Io`] if the folder of a
    /// [`ImageCache`] cannot be made or listed.
    pub fn build(self) -> Result<Pipeline> {
        let device = self.device;
        Ok(self.build_each(&[device], &backend::open)?.swap_remove(0))
    }

    /// The same on a back end that `open` sets up, for experiments.
    #[cfg(feature = "experiment")]
    pub(crate) fn build_on(self, open: &backend::Open<'_>) -> Result<Pipeline> {
        let device = self.device;
        Ok(self.build_each(&[device], open)?.swap_remove(0))
    }

    /// As [`build`](Self::build), for images that each keep the size that the operations give them: see
    /// [`UnequalPipeline`].
    ///
    /// # Errors
    /// Those of [`build`](Self::build), but operations need not end in one size; [`Error::Parameter`] with several views, with
    /// [`mix`](Self::mix), and with [`LastBatch::Pad`].
    pub fn build_unequal(mut self) -> Result<UnequalPipeline> {
        self.unequal = true;
        self.build().map(UnequalPipeline::new)
    }

    /// As [`build`](Self::build), a pipeline for each of these devices: see [`PipelineGroup`]. They have the worker threads
    /// together, and each the memory of a device that [`device_memory`](Self::device_memory) gives. Each delivers as many
    /// batches as the others, as with [`even`](Self::even). [`device`](Self::device) says nothing here.
    ///
    /// # Errors
    /// Those of [`build`](Self::build); [`Error::Parameter`] for no device, for a GPU that is named twice, for
    /// [`Device::Auto`] and with [`OnError::Skip`]; [`Error::Unsupported`] over a stream.
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
        self.even = true;
        self.build_each(&devices, &backend::open).map(PipelineGroup::new)
    }
}
