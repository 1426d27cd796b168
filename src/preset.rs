//! The usual pipelines by name.

use crate::ops::transform::{Transform, random_horizontal_flip, random_resized_crop};
use crate::ops::{AugMix, AutoAugment, AutoAugmentPolicy, CenterCrop, Normalize, RandAugment, Resize, TrivialAugment};

/// Means of red, green, blue over ImageNet, of values in 0 to 1.
pub const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// Standard deviations of red, green, blue over ImageNet, of values in 0 to 1.
pub const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

/// A usual pipeline. All end in 224 x 224 pixels, normalized with ImageNet's mean and standard deviation.
///
/// ```
/// use warpfeed::{Pipeline, Preset, source::EncodedImages, image::Size};
///
/// let images = EncodedImages::new([(Vec::new(), 0)]);
/// let pipeline = Pipeline::builder(images).preset(Preset::Train).build()?;
/// assert_eq!(pipeline.image_size(), Size::new(224, 224));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preset {
    /// For training: random resized crop, horizontal flip with probability 0.5.
    Train,
    /// As [`Train`](Self::Train), then [`AutoAugment`] for ImageNet.
    AutoAugment,
    /// As [`Train`](Self::Train), then [`RandAugment`].
    RandAugment,
    /// As [`Train`](Self::Train), then [`TrivialAugment`].
    TrivialAugment,
    /// As [`Train`](Self::Train), then [`AugMix`].
    AugMix,
    /// For evaluation: shorter side 256, center crop.
    Eval,
}

impl Preset {
    /// Its operations.
    #[must_use]
    pub fn ops(self) -> Vec<Transform> {
        let mut ops = self.pixel_ops();
        ops.push(Normalize::new(IMAGENET_MEAN, IMAGENET_STD).into());
        ops
    }

    /// Its operations on 8-bit images: all but normalization.
    #[must_use]
    pub fn pixel_ops(self) -> Vec<Transform> {
        match self {
            Self::Train => vec![random_resized_crop(224), random_horizontal_flip(0.5)],
            Self::AutoAugment => train_with(AutoAugment::new(AutoAugmentPolicy::ImageNet)),
            Self::RandAugment => train_with(RandAugment::new()),
            Self::TrivialAugment => train_with(TrivialAugment::new()),
            Self::AugMix => train_with(AugMix::new()),
            Self::Eval => vec![Resize::shorter_side(256).into(), CenterCrop::new(224).into()],
        }
    }
}

/// The operations of [`Preset::Train`] on 8-bit images, and one more.
fn train_with(augment: impl Into<Transform>) -> Vec<Transform> {
    let mut ops = Preset::Train.pixel_ops();
    ops.push(augment.into());
    ops
}
