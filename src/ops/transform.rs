//! Random transforms: distributions of explicit operations. A transform is in the file of its operation; the list
//! `transforms!` below makes [`Transform`] from them.

use super::catalog::{CatalogEntry, entry};
pub use super::named::Named;
use super::recipe::RecipeBuilder;
use super::values::PixelValues;
use super::{AutoAugmentPolicy, Corner, Grayscale, Hflip, Op, SizeEffect, Vflip};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::raster::Size;
use crate::rng::{Pick, SampleRng};
use crate::shapes::{BatchShape, Buckets, cover};
use crate::targets::{Annotation, Target};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Interface of every transform.
pub(crate) trait RandomTransform {
    /// Checks every parameter. Default: every value is allowed.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// The effect on the size of any image. Default: the size stays the same.
    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Keeps
    }

    /// Checks whether the transform draws operations for images with these values alone, with numbers that fit them;
    /// `None` if it takes RGB of 8 bits alone. Default: that, or what its parts take.
    fn takes(&self, pixels: &PixelValues) -> Option<Result<()>> {
        match self.parts() {
            [] => None,
            parts => Some(parts.iter().try_for_each(|part| part.takes(pixels))),
        }
    }

    /// Draws the transform's operations.
    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()>;

    /// Number of regions of the random stream that the transform takes, whatever is drawn, so that a draw never changes
    /// another transform's numbers. It is 1 unless the transform is a combination.
    fn regions(&self) -> u32 {
        1
    }

    /// Whether draws depend on the sample's label, target or fields, and not on its size alone. Default: they do not.
    fn depends_on_annotations(&self) -> bool {
        false
    }

    /// Whether the transform leaves it to masks which objects stay, so that draws after it cannot know. Default: it
    /// does not.
    fn may_drop_objects(&self) -> bool {
        false
    }

    /// The transforms that this one combines. Default: none.
    fn parts(&self) -> &[Transform] {
        &[]
    }

    /// Upper bound of the images that go into one after the transform, if `before` have gone into each before it.
    /// Default: those of its parts, one after the other.
    fn images(&self, before: u64) -> u64 {
        images_after(self.parts(), before)
    }

    /// Upper bound of the steps that drawing takes, however the transform is nested. Default: one, and those of its
    /// parts.
    fn most_steps(&self) -> u64 {
        self.parts().iter().fold(1, |sum, transform| sum.saturating_add(transform.most_steps()))
    }
}

/// Upper bound of the images that go into one after transforms, if `before` have gone into each before them.
pub(crate) fn images_after(transforms: &[Transform], before: u64) -> u64 {
    transforms.iter().fold(before, |images, transform| transform.random().images(images))
}

/// The sample that operations are drawn for.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SampleInfo<'a> {
    /// Index of the sample in the source.
    pub index: u64,
    /// Number of times that the sample came before in the epoch: 0, unless a sampler repeats samples.
    pub repetition: u32,
    /// Number of the epoch.
    pub epoch: u64,
    /// The image's size at this place among the transforms.
    pub size: Size,
    /// The sample's label; `None` if it has none.
    pub label: Option<u32>,
    /// The sample's target in the form that [`PipelineBuilder::targets`](crate::PipelineBuilder::targets) asks for: a
    /// class, floats or bytes; `None` without targets.
    pub target: Option<&'a Target>,
    /// The sample's fields at this place among the transforms, without masks and auxiliary images; `None` if the
    /// pipeline has none ([`PipelineBuilder::fields`](crate::PipelineBuilder::fields)).
    pub fields: Option<&'a Fields>,
    /// What the images of the sample's batch have in common, where that differs from batch to batch
    /// ([`PipelineBuilder::buckets`](crate::PipelineBuilder::buckets)); `None` where all batches are alike.
    pub shape: Option<BatchShape>,
    /// The rule by which images cover buckets.
    buckets: Option<&'a Buckets>,
    /// Masks before they are moved.
    unmoved: Unmoved<'a>,
}

/// The fields of a sample as it is stored, and the operations drawn for it so far.
#[derive(Debug, Clone, Copy)]
struct Unmoved<'a> {
    fields: Option<&'a Fields>,
    ops: &'a [Op],
    stored: Size,
}

impl<'a> SampleInfo<'a> {
    pub(crate) fn new(
        Pick { index, repetition }: Pick,
        size: Size,
        Annotation { label, target, fields }: &'a Annotation,
    ) -> Self {
        let (target, fields) = (target.as_ref(), fields.as_deref());
        let unmoved = Unmoved { fields, ops: &[], stored: size };
        let (shape, buckets) = (None, None);
        Self { index, repetition, epoch: 0, size, label: *label, target, fields, shape, buckets, unmoved }
    }

    /// The sample in a batch of this shape.
    pub(crate) fn in_batch(self, shape: Option<BatchShape>, buckets: Option<&'a Buckets>) -> Self {
        Self { shape, buckets, ..self }
    }

    /// Another sample in the same batch.
    pub(super) fn in_same_batch<'b>(&self, other: SampleInfo<'b>) -> SampleInfo<'b>
    where
        'a: 'b,
    {
        other.in_batch(self.shape, self.buckets)
    }

    /// The size to which an image of this size is resized before it is cropped to `bucket`.
    pub(crate) fn covering(&self, size: Size, bucket: Size) -> Size {
        match self.buckets {
            Some(buckets) => buckets.covering(size, bucket),
            None => cover(size, bucket),
        }
    }

    /// The masks and auxiliary images of the sample at this place among the transforms, under their names; none if the
    /// pipeline has none. They are moved when this is called, by the operations before, with the bytes that the sample
    /// is delivered with; a transform that does not ask costs nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) after a transform that joins samples; the errors of
    /// operations.
    pub fn masks(&self) -> Result<Fields> {
        let Unmoved { fields, ops, stored } = self.unmoved;
        fields.map_or_else(|| Ok(Fields::new()), |fields| super::moved_masks::moved(fields, ops, stored))
    }

    /// The sample after operations, with its other fields.
    pub(super) fn after<'b>(self, ops: &'b [Op], fields: Option<&'b Fields>) -> SampleInfo<'b>
    where
        'a: 'b,
    {
        SampleInfo { fields, unmoved: Unmoved { ops, ..self.unmoved }, ..self }
    }

    /// The sample as it is stored, its size, and the operations drawn for it so far.
    pub(super) fn unmoved(self) -> (Self, Size, &'a [Op]) {
        let Unmoved { fields, ops, stored } = self.unmoved;
        (Self { fields, ..self }, stored, ops)
    }

    /// The sample in this epoch.
    pub(crate) fn in_epoch(self, epoch: u64) -> Self {
        Self { epoch, ..self }
    }
}

/// The caller's own transform. It draws explicit operations, which may include [`Op::Custom`].
///
/// ```
/// use warpfeed::prelude::*;
/// use warpfeed::{ops::{Brightness, CustomTransform, Op, SampleInfo, SampleRng}, image::{Image, JpegOptions, encode_jpeg}};
///
/// /// Darker at random, never brighter, and images of class 1 more than others.
/// struct Dusk;
///
/// impl CustomTransform for Dusk {
///     fn name(&self) -> &'static str {
///         "dusk"
///     }
///     fn draw(&self, rng: &mut SampleRng, sample: &SampleInfo<'_>) -> warpfeed::Result<Vec<Op>> {
///         let most = if sample.label == Some(1) { 0.5 } else { 1.0 };
///         Ok(vec![Brightness::new(rng.uniform(0.2, most)).into()])
///     }
/// }
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let pipeline = Pipeline::builder(EncodedImages::new([(jpeg, 0)])).transform(Dusk).transform(CenterCrop::new(8)).build()?;
/// assert!(matches!(&pipeline.recipe(0, 0)?[0], Op::Brightness(drawn) if drawn.factor < 1.0));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub trait CustomTransform: Send + Sync {
    /// The transform's name, for messages.
    fn name(&self) -> &'static str;

    /// Draws the operations for an image of a sample. All randomness must come from `rng`, so that a sample's pixels do
    /// not depend on threads, batches or the machine.
    ///
    /// # Errors
    /// An error ends the epoch as an error on this sample.
    fn draw(&self, rng: &mut SampleRng, sample: &SampleInfo<'_>) -> Result<Vec<Op>>;

    /// The effect of the operations on the image's size. It is checked on every draw. Default: the size stays the same.
    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Keeps
    }

    /// Whether boxes, keypoints and masks can follow everything that it draws: operations of this crate, and
    /// [`Custom`](super::Custom) ones that say where points go. Default: false, and then a pipeline with fields
    /// ([`PipelineBuilder::fields`](crate::PipelineBuilder::fields)) is not built.
    fn fields_follow(&self) -> bool {
        false
    }
}

macro_rules! transforms {
    ($($(#[doc = $doc:literal])* $written:literal $module:ident::$name:ident = $example:expr,)*) => {
        $(
            use super::$module::$name;

            impl $name {
                /// The name in the written form.
                pub(super) const NAME: &'static str = $written;
            }
        )*

        /// Exports the types of all transforms.
        macro_rules! export_transforms {
            () => {
                $(pub use $module::$name;)*
            };
        }

        /// A random transform: an operation whose parameters are drawn for each sample, or a combination of transforms.
        ///
        /// Each transform is a type of its own, and `into()` makes a `Transform` of it. Functions such as
        /// [`random_horizontal_flip`] make the usual ones:
        ///
        /// ```
        /// use warpfeed::ops::{RandomInvert, RandomResizedCrop, repeat};
        /// use warpfeed::prelude::*;
        ///
        /// let load = repeat(4, [random_vertical_flip(0.5), random_rotation(-5.0..=5.0)]);
        /// let some = [random_gaussian_blur(9, 0.1..=2.0), random_dilation(2..=3), RandomInvert::new(1.0).into()];
        /// let sometimes = maybe(0.1, [one_of(some)]);
        /// let square = RandomResizedCrop::new(224).scale(0.5..=1.0).interpolation(Interpolation::Bicubic);
        /// for transform in [load, sometimes, color_jitter(0.4, 0.4, 0.4, 0.1), square.into(), random_crop(32, 4)] {
        ///     transform.validate()?;
        /// }
        /// assert!(random_horizontal_flip(1.5).validate().is_err());
        /// # Ok::<(), warpfeed::Error>(())
        /// ```
        ///
        /// The written form is `{"transform": "random_rotation", "degrees": [-5, 5], ...}`, or an operation in the
        /// written form of [`Op`]. The caller's own transforms have no written form.
        #[derive(Clone, Serialize)]
        #[serde(tag = "transform")]
        #[non_exhaustive]
        pub enum Transform {
            $($(#[doc = $doc])* #[serde(rename = $written)] $name($name),)*
            /// The caller's own transform.
            #[serde(skip)]
            Custom(Arc<dyn CustomTransform>),
            /// A transform whose random numbers have a name.
            #[serde(untagged)]
            Named(Named),
            /// An explicit operation, the same for every sample.
            #[serde(untagged)]
            Explicit(Op),
        }

        /// The written form of transforms that have a name.
        #[derive(Deserialize)]
        #[serde(tag = "transform")]
        pub(super) enum Tagged {
            $(#[serde(rename = $written)] $name($name),)*
        }

        impl From<Tagged> for Transform {
            fn from(tagged: Tagged) -> Self {
                match tagged {
                    $(Tagged::$name(transform) => Self::$name(transform),)*
                }
            }
        }

        $(
            impl From<$name> for Transform {
                fn from(transform: $name) -> Self {
                    Self::$name(transform)
                }
            }
        )*

        impl Transform {
            /// The transforms in the catalog.
            pub(super) fn catalog() -> Result<Vec<CatalogEntry>> {
                Ok(vec![$(entry::<$name>(concat!($($doc),*), stringify!($example), $example)),*])
            }

            pub(super) fn random(&self) -> &dyn RandomTransform {
                match self {
                    $(Self::$name(transform) => transform,)*
                    Self::Named(named) => named,
                    Self::Explicit(op) => op,
                    Self::Custom(custom) => custom,
                }
            }

            /// The transform's name, for messages.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $name::NAME,)*
                    Self::Named(_) => self.unnamed().name(),
                    Self::Explicit(op) => op.name(),
                    Self::Custom(custom) => custom.name(),
                }
            }
        }
    };
}

transforms! {
    /// Mirrors left and right with a probability.
    "random_horizontal_flip" flip::RandomHorizontalFlip = RandomHorizontalFlip::new(0.5),
    /// Mirrors top and bottom with a probability.
    "random_vertical_flip" flip::RandomVerticalFlip = RandomVerticalFlip::new(0.5),
    /// Rotates about the center by a random angle.
    "random_rotation" rotate::RandomRotation = RandomRotation::new(-5.0..=5.0),
    /// Rotates, translates, scales and shears by random amounts.
    "random_affine" affine::RandomAffine = RandomAffine::new(-5.0..=5.0),
    /// Pads every side, then cuts out a rectangle at a random place.
    "random_crop" crop::RandomCrop = RandomCrop::new(224),
    /// Resizes to cover the batch's bucket, and cuts it out.
    "bucket_crop" bucket_crop::BucketCrop = BucketCrop::new(),
    /// Resizes to fill a sequence of patches.
    "sequence_resize" sequence_crop::SequenceResize = SequenceResize::new(16).seq_len(64),
    /// Cuts out a rectangle of random area and aspect, then resizes it to fill a sequence of patches.
    "random_sequence_crop" sequence_crop::RandomSequenceCrop =
        RandomSequenceCrop::new(16).seq_len(64),
    /// Cuts out a corner.
    "corner_crop" corner_crop::CornerCrop = CornerCrop::new(Corner::UpperLeft, 224),
    /// Cuts out a rectangle of random area and aspect, then resizes it.
    "random_resized_crop" resized_crop::RandomResizedCrop = RandomResizedCrop::new(224),
    /// Changes brightness, contrast, saturation and hue by random factors in random order.
    "color_jitter" color_jitter::ColorJitter = ColorJitter::new(),
    /// Replaces each pixel by its luma with a probability.
    "random_grayscale" grayscale::RandomGrayscale = RandomGrayscale::new(0.1),
    /// Puts the channels in random order.
    "random_channel_permutation" permute_channels::RandomChannelPermutation = RandomChannelPermutation::new(),
    /// Changes brightness, contrast, saturation, hue and the channels' order, each with a probability.
    "random_photometric_distort" photometric_distort::RandomPhotometricDistort = RandomPhotometricDistort::new(0.5),
    /// Gaussian blur with a random standard deviation.
    "random_gaussian_blur" gaussian_blur::RandomGaussianBlur = RandomGaussianBlur::new(9, 0.1..=2.0),
    /// Adds fresh normal noise.
    "random_gaussian_noise" gaussian_noise::RandomGaussianNoise = RandomGaussianNoise::new(0.1),
    /// Replaces each value by the largest in a square of random size around it.
    "random_dilation" morphology::RandomDilation = RandomDilation::new(2..=3),
    /// Replaces each value by the smallest in a square of random size around it.
    "random_erosion" morphology::RandomErosion = RandomErosion::new(2..=3),
    /// Replaces each value v by 255 - v with a probability.
    "random_invert" invert::RandomInvert = RandomInvert::new(0.5),
    /// Keeps the upper bits of each value with a probability.
    "random_posterize" posterize::RandomPosterize = RandomPosterize::new(4, 0.5),
    /// Inverts the values from a threshold on with a probability.
    "random_solarize" solarize::RandomSolarize = RandomSolarize::new(128.0, 0.5),
    /// Spreads each channel's values evenly with a probability.
    "random_equalize" equalize::RandomEqualize = RandomEqualize::new(0.5),
    /// Stretches each channel's values to 0 to 255 with a probability.
    "random_autocontrast" autocontrast::RandomAutocontrast = RandomAutocontrast::new(0.5),
    /// Sharpens or smooths with a probability.
    "random_sharpness" sharpness::RandomSharpness = RandomSharpness::new(2.0, 0.5),
    /// Moves the corners inwards by random amounts with a probability.
    "random_perspective" perspective::RandomPerspective = RandomPerspective::new(0.5, 0.5),
    /// Moves pixels by fresh noise.
    "random_elastic" elastic::RandomElastic = RandomElastic::new(),
    /// Pillow's Gaussian blur with a random radius.
    "random_pillow_gaussian_blur" pillow_gaussian_blur::RandomPillowGaussianBlur =
        RandomPillowGaussianBlur::new(0.1..=2.0),
    /// Encodes as JPEG with a random quality and decodes again.
    "random_jpeg" jpeg::RandomJpeg = RandomJpeg::new(50..=95),
    /// Overwrites random rectangles with a probability.
    "random_erasing" erase::RandomErasing = RandomErasing::new(0.25),
    /// Cuts out a random rectangle that overlaps at least one object enough.
    "random_iou_crop" random_iou_crop::RandomIouCrop = RandomIouCrop::new(),
    /// Cuts out a random rectangle that overlaps every object enough.
    "min_iou_crop" min_iou_crop::MinIouCrop = MinIouCrop::new([0.1, 0.3, 0.5, 0.7, 0.9]),
    /// Cuts out a random rectangle that boxes overlap enough.
    "random_bbox_crop" random_bbox_crop::RandomBboxCrop = RandomBboxCrop::new([0.0, 0.1, 0.3]),
    /// Places the image at random on a larger canvas with a probability.
    "random_zoom_out" random_zoom_out::RandomZoomOut = RandomZoomOut::new(0.5),
    /// Resizes the image so that it fits a canvas, and pads the rest on both sides.
    "letterbox" letterbox::Letterbox = Letterbox::new(640),
    /// Rotates, scales, shears, moves and tilts the image by random amounts.
    "yolo_perspective" yolo_perspective::YoloPerspective = YoloPerspective::new(640),
    /// Places four or nine samples on a canvas.
    "random_mosaic" mosaic::RandomMosaic = RandomMosaic::new(640),
    /// Blends with another sample by a random share.
    "random_mix_up" mix_up::RandomMixUp = RandomMixUp::new(32.0),
    /// Pastes random objects of another sample.
    "random_copy_paste" copy_paste::RandomCopyPaste = RandomCopyPaste::new(),
    /// Pastes objects where they cover little of the existing objects.
    "yolo_copy_paste" yolo_copy_paste::YoloCopyPaste = YoloCopyPaste::new(0.5),
    /// Resizes the image so that it fits a target, times a random factor.
    "scale_jitter" scale_jitter::ScaleJitter = ScaleJitter::new(1024),
    /// Resizes the shorter side to one of several lengths.
    "random_shortest_size" random_shortest_size::RandomShortestSize = RandomShortestSize::new([480, 512]),
    /// Cuts out a rectangle at a random place and pads it to a fixed size.
    "fixed_size_crop" fixed_size_crop::FixedSizeCrop = FixedSizeCrop::new(1024),
    /// Resizes the shorter side to a random length.
    "random_resize" random_resize::RandomResize = RandomResize::new(260..=1040),
    /// Cuts out a rectangle with random sides at a random place.
    "random_size_crop" random_size_crop::RandomSizeCrop = RandomSizeCrop::new(384..=600),
    /// Cuts out a rectangle at a random place and pads it to a fixed size, for segmentation.
    "segmentation_crop" segmentation_crop::SegmentationCrop = SegmentationCrop::new(480),
    /// Runs a random pair of a policy's operations.
    "auto_augment" auto_augment::AutoAugment = AutoAugment::new(AutoAugmentPolicy::ImageNet),
    /// Runs several operations of random kinds with the same magnitude.
    "rand_augment" rand_augment::RandAugment = RandAugment::new(),
    /// Runs one operation of a random kind with a random magnitude.
    "trivial_augment" trivial_augment::TrivialAugment = TrivialAugment::new(),
    /// Mixes the image and several chains of operations by random weights.
    "aug_mix" aug_mix::AugMix = AugMix::new(),
    /// Runs timm's RandAugment, AutoAugment, AugMix or 3-Augment, described by the text of timm's `--aa`.
    "timm_augment" timm_augment::TimmAugment = TimmAugment::parse("rand-m9-mstd0.5-inc1")?,
    /// Runs one of several transforms.
    "one_of" combine::OneOf = OneOf::new([Hflip.into(), Vflip.into()]),
    /// Runs several transforms in random order.
    "random_order" combine::RandomOrder = RandomOrder::new([Hflip.into(), Vflip.into()]),
    /// Runs several transforms in order with a probability.
    "maybe" combine::Maybe = Maybe::new(0.5, [Hflip.into()]),
    /// Runs one transform, and others from later epochs on.
    "by_epoch" by_epoch::ByEpoch = ByEpoch::new(Hflip).then(90, Vflip),
    /// Runs transforms in order several times, each time with fresh draws.
    "repeat" combine::Repeat = Repeat::new(2, [random_rotation(-5.0..=5.0)]),
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Op> for Transform {
    fn from(op: Op) -> Self {
        Self::Explicit(op)
    }
}

impl<T: CustomTransform + 'static> From<T> for Transform {
    fn from(transform: T) -> Self {
        Self::Custom(Arc::new(transform))
    }
}

impl Transform {
    /// Checks every parameter.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the allowed values.
    pub fn validate(&self) -> Result<()> {
        self.random().validate()
    }

    /// The effect on the size of any image.
    pub(crate) fn size_effect(&self) -> SizeEffect {
        self.random().size_effect()
    }

    /// Checks whether the transform takes images with these values.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it does not; [`Error::Parameter`] for numbers that do not fit the image's channels.
    pub(crate) fn takes(&self, pixels: &PixelValues) -> Result<()> {
        match self.random().takes(pixels) {
            Some(taken) => taken,
            None if pixels.is_rgb8() => Ok(()),
            None => Err(pixels.refused(self.name())),
        }
    }

    /// Upper bound of the steps that drawing takes, however the transform is nested.
    pub(crate) fn most_steps(&self) -> u64 {
        self.random().most_steps()
    }

    /// Whether draws depend on the sample's label, target or fields.
    pub(crate) fn depends_on_annotations(&self) -> bool {
        self.random().depends_on_annotations() || self.random().parts().iter().any(Self::depends_on_annotations)
    }

    /// Calls `each` with the transforms that this one combines, at any depth, in their order; with itself if there are
    /// none.
    pub(crate) fn each_leaf<'a>(&'a self, each: &mut dyn FnMut(&'a Self)) {
        match self.random().parts() {
            [] => each(self),
            parts => parts.iter().for_each(|part| part.each_leaf(each)),
        }
    }

    /// The operation, if the transform is one.
    pub(crate) fn explicit(&self) -> Option<&Op> {
        if let Self::Explicit(op) = self { Some(op) } else { None }
    }

    /// Checks that fields can follow a transform of the caller's.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it does not say so.
    pub(crate) fn check_following(&self) -> Result<()> {
        match self {
            Self::Explicit(Op::Custom(own)) => own.check_following(),
            Self::Custom(own) if !own.fields_follow() => Err(Error::Unsupported {
                feature: format!("following fields through {}", own.name()),
                remedy: "say that they can follow what it draws (CustomTransform::fields_follow), or ask for no fields"
                    .to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether the transform leaves it to masks which objects stay, so that draws after it cannot know.
    pub(crate) fn may_drop_objects(&self) -> bool {
        self.random().may_drop_objects()
    }

    /// The name of an explicit operation with other samples in it, at any depth.
    pub(crate) fn with_parts(&self) -> Option<&'static str> {
        match self {
            Self::Explicit(op) if !op.parts().is_empty() => Some(op.name()),
            _ => self.random().parts().iter().find_map(Self::with_parts),
        }
    }

    /// Number of regions of the random stream that the transform takes.
    pub(super) fn regions(&self) -> u32 {
        self.random().regions()
    }
}

/// Refuses an operation with other samples, which only this crate's transforms draw.
pub(crate) fn refuse_parts(name: &'static str, op: Option<&'static str>) -> Result<()> {
    let expected = "without other samples, which random_mosaic and others draw";
    op.map_or(Ok(()), |op| Err(Error::parameter(name, "operations", expected, op)))
}

impl RandomTransform for Op {
    fn validate(&self) -> Result<()> {
        self.validate()
    }

    fn takes(&self, pixels: &PixelValues) -> Option<Result<()>> {
        Some(self.takes(pixels))
    }

    fn size_effect(&self) -> SizeEffect {
        self.size_effect()
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        recipe.push(self.clone())
    }
}

impl RandomTransform for Arc<dyn CustomTransform> {
    fn size_effect(&self) -> SizeEffect {
        (**self).size_effect()
    }

    fn depends_on_annotations(&self) -> bool {
        true
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (name, before) = ((**self).name(), recipe.size());
        let (rng, sample) = recipe.start_with_sample();
        for op in (**self).draw(rng, &sample)? {
            // The pipeline's own normalize decides the batch's type when the pipeline is built.
            if op.normalization().is_some() {
                let expected = "only 8-bit operations: normalize belongs to the pipeline";
                return Err(Error::parameter(name, "operations", expected, op.name()));
            }
            refuse_parts(name, (!op.parts().is_empty()).then_some(op.name()))?;
            recipe.push(op)?;
        }
        let expected = match (**self).size_effect() {
            SizeEffect::Keeps if recipe.size() != before => format!("unchanged, {before}"),
            SizeEffect::Becomes(size) if recipe.size() != size => format!("{size}, as it says"),
            SizeEffect::Keeps | SizeEffect::Becomes(_) | SizeEffect::Varies => return Ok(()),
        };
        Err(Error::parameter(name, "size", expected, recipe.size()))
    }
}

/// Makes the list end in one channel: puts a conversion to gray before the normalization.
pub(crate) fn end_gray(transforms: &mut Vec<Transform>) {
    let is_normalize = |op: &Transform| op.explicit().is_some_and(|op| op.normalization().is_some());
    let end = transforms.iter().position(is_normalize).unwrap_or(transforms.len());
    transforms.insert(end, Grayscale.into());
}

/// Mirrors left and right with probability `p`.
#[must_use]
pub fn random_horizontal_flip(p: f64) -> Transform {
    RandomHorizontalFlip::new(p).into()
}

/// Mirrors top and bottom with probability `p`.
#[must_use]
pub fn random_vertical_flip(p: f64) -> Transform {
    RandomVerticalFlip::new(p).into()
}

/// Rotates about the center by an angle uniform in `degrees`: nearest pixel, same canvas, black outside.
#[must_use]
pub fn random_rotation(degrees: RangeInclusive<f64>) -> Transform {
    RandomRotation::new(degrees).into()
}

/// Pads every side with `padding` black pixels, then cuts out a rectangle of this size at a uniform place. A `u32` as
/// size is a square.
#[must_use]
pub fn random_crop(size: impl Into<Size>, padding: u32) -> Transform {
    RandomCrop::new(size).padding(padding).into()
}

/// Cuts out 8 to 100 % of the area at an aspect of 3/4 to 4/3 and resizes it to `size`, bilinear. A `u32` as size is a
/// square.
#[must_use]
pub fn random_resized_crop(size: impl Into<Size>) -> Transform {
    RandomResizedCrop::new(size).into()
}

/// torchvision's `ColorJitter(brightness, contrast, saturation, hue)`: factors from `max(0, 1 - v)` to `1 + v`, hue
/// from `-hue` to `hue`.
#[must_use]
pub fn color_jitter(brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Transform {
    let around_1 = |v: f64| (1.0 - v).max(0.0)..=1.0 + v;
    let jitter = ColorJitter::new().brightness(around_1(brightness)).contrast(around_1(contrast));
    jitter.saturation(around_1(saturation)).hue(-hue..=hue).into()
}

/// Converts to gray with probability `p`.
#[must_use]
pub fn random_grayscale(p: f64) -> Transform {
    RandomGrayscale::new(p).into()
}

/// Gaussian blur with a kernel of `kernel` pixels and a standard deviation uniform in `sigma` pixels.
#[must_use]
pub fn random_gaussian_blur(kernel: u32, sigma: RangeInclusive<f64>) -> Transform {
    RandomGaussianBlur::new(kernel, sigma).into()
}

/// Dilation by a square whose side is uniform in `kernel` pixels.
#[must_use]
pub fn random_dilation(kernel: RangeInclusive<u32>) -> Transform {
    RandomDilation::new(kernel).into()
}

/// Erosion by a square whose side is uniform in `kernel` pixels.
#[must_use]
pub fn random_erosion(kernel: RangeInclusive<u32>) -> Transform {
    RandomErosion::new(kernel).into()
}

/// Overwrites a rectangle with 0, with probability `p`: 2 to 33 % of the area, at an aspect of 0.3 to 3.3.
#[must_use]
pub fn random_erasing(p: f64) -> Transform {
    RandomErasing::new(p).into()
}

/// Gray, solarized from 128 on, or blurred, all equally likely: 3-Augment of DeiT III, which is followed by a color
/// jitter.
#[must_use]
pub fn three_augment() -> Transform {
    one_of([
        random_grayscale(1.0),
        RandomSolarize::new(128.0, 1.0).into(),
        RandomPillowGaussianBlur::new(0.1..=2.0).into(),
    ])
}

/// One of `transforms`, all equally likely. [`OneOf::weights`] changes the probabilities.
#[must_use]
pub fn one_of(transforms: impl IntoIterator<Item = Transform>) -> Transform {
    OneOf::new(transforms).into()
}

/// All of `transforms`, in random order.
#[must_use]
pub fn random_order(transforms: impl IntoIterator<Item = Transform>) -> Transform {
    RandomOrder::new(transforms).into()
}

/// All of `transforms` with probability `p`, otherwise none: torchvision's `RandomApply`.
#[must_use]
pub fn maybe(p: f64, transforms: impl IntoIterator<Item = Transform>) -> Transform {
    Maybe::new(p, transforms).into()
}

/// `transforms` in order, `n` times, each time with fresh draws.
#[must_use]
pub fn repeat(n: u32, transforms: impl IntoIterator<Item = Transform>) -> Transform {
    Repeat::new(n, transforms).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::recipe::draw_recipe;
    use crate::ops::{AutoAugmentPolicy, CenterCrop, Corner, ErasingNoise, Fill, Hflip, Interpolation};

    fn all() -> Vec<Transform> {
        vec![
            random_horizontal_flip(0.5),
            random_vertical_flip(0.5),
            RandomRotation::new(-5.0..=5.0).interpolation(Interpolation::Bilinear).fill(Fill::EDGE).into(),
            RandomAffine::new(-9.0..=9.0).translate([0.1, 0.2]).scale(0.8..=1.2).shear([-5.0..=5.0, 0.0..=3.0]).into(),
            RandomCrop::new(Size::new(30, 20)).padding(4).fill(Fill::Color([1, 2, 3])).into(),
            CornerCrop::new(Corner::LowerRight, Size::new(28, 19)).into(),
            random_resized_crop(Size::new(40, 30)),
            RandomResizedCrop::new(40).interpolation([Interpolation::Bilinear, Interpolation::Bicubic]).into(),
            color_jitter(0.4, 0.3, 0.2, 0.1),
            random_grayscale(0.5),
            random_gaussian_blur(9, 0.1..=2.0),
            RandomGaussianNoise::new(0.2).mean(0.1).clip(false).into(),
            RandomChannelPermutation::new().into(),
            RandomPhotometricDistort::new(0.6).brightness(0.5..=1.5).hue(-0.1..=0.2).into(),
            random_dilation(2..=3),
            random_erosion(1..=4),
            RandomInvert::new(0.5).into(),
            RandomPosterize::new(3, 0.5).into(),
            RandomSolarize::new(127.5, 0.5).into(),
            RandomEqualize::new(0.5).into(),
            RandomAutocontrast::new(0.5).into(),
            RandomSharpness::new(1.7, 0.5).into(),
            RandomErasing::new(0.9).value([1.0, 2.0, 3.0]).into(),
            RandomErasing::new(0.9).noise(ErasingNoise::PerBox).count(1..=3).into(),
            RandomErasing::new(0.9).noise(ErasingNoise::PerPixel).std(0.5).into(),
            RandomPerspective::new(0.4, 0.7).fill([4, 5, 6]).into(),
            RandomElastic::new().alpha([30.0, 20.0]).sigma(4.0).fill([7, 8, 9]).into(),
            RandomPillowGaussianBlur::new(0.1..=2.0).into(),
            RandomJpeg::new(30..=90).into(),
            RandomIouCrop::new().options([0.1, 0.5]).trials(20).into(),
            MinIouCrop::new([0.1, 0.5]).min_side(0.4).into(),
            RandomBboxCrop::new([0.1]).scaling(0.3..=0.9).attempts(9).all_boxes(false).overlap(true).prune(0.2).into(),
            RandomZoomOut::new(0.7).sides(1.0..=2.0).fill([9, 8, 7]).into(),
            Letterbox::new(Size::new(50, 70)).fill([1, 2, 3]).into(),
            YoloPerspective::new(Size::new(50, 70)).degrees(9.0).shear(5.0).fill([1, 2, 3]).min_area(0.01).into(),
            YoloPerspective::new(60).translate(0.2).scale(0.9).perspective(1e-3).into(),
            ScaleJitter::new(60).scale(0.5..=1.5).into(),
            RandomShortestSize::new([30, 40]).max_size(55).into(),
            FixedSizeCrop::new(Size::new(50, 60)).fill([1, 2, 3]).into(),
            RandomResize::new(20..=60).step(7).max_size(70).into(),
            RandomSizeCrop::new(20..=50).into(),
            SegmentationCrop::new(Size::new(50, 60)).fill([1, 2, 3]).max_class_share(0.75).ignored(0).tries(3).into(),
            three_augment(),
            AutoAugment::new(AutoAugmentPolicy::Svhn).into(),
            RandAugment::new().ops(3).interpolation(Interpolation::Bicubic).into(),
            TrivialAugment::new().fill([1, 2, 3]).into(),
            AugMix::new().depth(2).into(),
            TimmAugment::parse("rand-m9-mstd0.5-inc1").unwrap().interpolation(Interpolation::Bicubic).into(),
            TimmAugment::parse("augmix-m5-w2-d2").unwrap().fill([1, 2, 3]).translate(0.2).into(),
            one_of([Hflip.into(), random_rotation(0.0..=9.0)]),
            OneOf::new([Hflip.into(), random_rotation(0.0..=9.0)]).weights([1.0, 2.5]).into(),
            random_order([random_rotation(0.0..=9.0), random_grayscale(0.5), random_resized_crop(20)]),
            maybe(0.5, [CenterCrop::new(8).into()]),
            ByEpoch::new(CenterCrop::new(8)).then(2, CenterCrop::new(9)).into(),
            repeat(3, [random_vertical_flip(0.5)]),
        ]
    }

    fn drawn(transforms: &[Transform], index: u64) -> Vec<Op> {
        let annotation = Annotation::default();
        let sample = SampleInfo::new(Pick { index, repetition: 0 }, Size::new(64, 48), &annotation);
        draw_recipe(&[], transforms, &mut SampleRng::for_sample(7, 1, index), sample, None).unwrap().ops
    }

    #[test]
    fn transforms_are_written_down_by_their_names() {
        for transform in all() {
            transform.validate().unwrap();
            let written = serde_json::to_value(&transform).unwrap();
            assert_eq!(written["transform"], transform.name());
            let mut unknown = written.clone();
            unknown["more"] = 1.into();
            assert!(serde_json::from_value::<Transform>(unknown).is_err(), "{written}");
        }
        let text = r#"[{"op": "hflip"}, {"transform": "random_rotation", "degrees": [-5, 5]}]"#;
        let read: Vec<Transform> = serde_json::from_str(text).unwrap();
        assert_eq!(drawn(&read, 0), drawn(&[Hflip.into(), random_rotation(-5.0..=5.0)], 0));
        let read = |text: &str| drawn(&[serde_json::from_str(text).unwrap()], 0);
        assert_eq!(read(r#"{"transform": "rand_augment"}"#), drawn(&[RandAugment::new().into()], 0));
        assert_eq!(read(r#"{"transform": "aug_mix", "depth": 2}"#), drawn(&[AugMix::new().depth(2).into()], 0));
        let policy = AutoAugment::new(AutoAugmentPolicy::Cifar10);
        assert_eq!(read(r#"{"transform": "auto_augment", "policy": "cifar10"}"#), drawn(&[policy.into()], 0));
        let moved = RandomAffine::new(0.0..=0.0).translate([0.5, 0.0]);
        let text = r#"{"transform": "random_affine", "degrees": [0, 0], "translate": [0.5, 0]}"#;
        assert_eq!(read(text), drawn(&[moved.into()], 0));
        struct Mine;
        impl CustomTransform for Mine {
            fn name(&self) -> &'static str {
                "mine"
            }
            fn draw(&self, _rng: &mut SampleRng, _sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
                Ok(Vec::new())
            }
        }
        assert!(serde_json::to_string(&Transform::from(Mine)).is_err());
    }

    /// Effects on the size have a default, so they are compared with recipes.
    #[test]
    fn effects_on_the_size_are_those_of_recipes() {
        let size = Size::new(64, 48);
        for transform in all() {
            for index in 0..20 {
                let recipe = drawn(std::slice::from_ref(&transform), index);
                let made = recipe.iter().fold(size, |size, op| op.output_size(size).unwrap());
                match transform.size_effect() {
                    SizeEffect::Keeps => assert_eq!(made, size, "{transform:?}"),
                    SizeEffect::Becomes(becomes) => assert_eq!(made, becomes, "{transform:?}"),
                    SizeEffect::Varies => {}
                }
            }
        }
    }

    #[test]
    fn what_is_read_again_draws_the_same() {
        let text = serde_json::to_string(&all()).unwrap();
        let read: Vec<Transform> = serde_json::from_str(&text).unwrap();
        for index in 0..50 {
            assert_eq!(drawn(&read, index), drawn(&all(), index));
        }
    }
}
