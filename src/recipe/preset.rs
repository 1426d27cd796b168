//! The usual pipelines by name.

use crate::ops::fill::Fill;
use crate::ops::filter::Interpolation;
use crate::ops::transform::{
    Transform, random_horizontal_flip, random_resized_crop, random_rotation, random_vertical_flip, repeat,
};
use crate::ops::{CenterCrop, Hflip, Normalize, Resize, Rotate, Vflip};

/// Means of red, green, blue over ImageNet, of values in 0 to 1.
pub const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// Standard deviations of red, green, blue over ImageNet, of values in 0 to 1.
pub const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

/// A usual pipeline. All end in 224 x 224 pixels, normalised with ImageNet's mean and standard deviation.
///
/// ```
/// use warpfeed::{EncodedImages, Pipeline, Preset, Size};
///
/// let pipeline = Pipeline::builder(EncodedImages::default()).preset(Preset::TrialA { load: 12 }).build()?;
/// assert_eq!(pipeline.image_size(), Size::new(224, 224));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// For training: random resized crop, horizontal flip with probability 0.5.
    Train,
    /// For evaluation: shorter side 256, centre crop.
    Eval,
    /// The published CPU load (trial A): `load` times [flips with probability 0.5 each, rotation by -5 to 5 degrees,
    /// nearest], then a random resized crop.
    TrialA {
        /// How many times.
        load: u32,
    },
    /// The published GPU load (trial B): `load` times [both flips, rotation by 5 degrees, bilinear, the canvas grows and
    /// the edge is repeated], then a random resized crop to 256 and a centre crop.
    TrialB {
        /// How many times.
        load: u32,
    },
}

impl Preset {
    /// Its operations.
    #[must_use]
    pub fn ops(self) -> Vec<Transform> {
        let mut ops = self.pixel_ops();
        ops.push(Normalize::new(IMAGENET_MEAN, IMAGENET_STD).into());
        ops
    }

    /// Its operations on 8-bit images: all but normalisation.
    #[must_use]
    pub fn pixel_ops(self) -> Vec<Transform> {
        match self {
            Self::Train => vec![random_resized_crop(224), random_horizontal_flip(0.5)],
            Self::Eval => vec![Resize::shorter_side(256).into(), CenterCrop::new(224).into()],
            Self::TrialA { load } => {
                let once = [random_horizontal_flip(0.5), random_vertical_flip(0.5), random_rotation(-5.0..=5.0)];
                vec![repeat(load, once), random_resized_crop(224)]
            }
            Self::TrialB { load } => {
                let rotate = Rotate::new(5.0).interpolation(Interpolation::Bilinear).expand(true).fill(Fill::EDGE);
                vec![
                    repeat(load, [Hflip.into(), Vflip.into(), rotate.into()]),
                    random_resized_crop(256),
                    CenterCrop::new(224).into(),
                ]
            }
        }
    }
}
