//! The published trials' operations: the loads that `augment_load` compares.

use crate::recipe::op::{Fill, Interpolation, Op};
use crate::recipe::preset::{IMAGENET_MEAN, IMAGENET_STD};
use crate::recipe::random::{
    Transform, random_horizontal_flip, random_resized_crop, random_rotation, random_vertical_flip, repeat,
};

/// A published trial. Both end in 224 x 224 pixels, normalized with ImageNet's mean and standard deviation.
///
/// ```
/// use warpfeed::experiment::trial::Trial;
/// use warpfeed::{Builder, EncodedImages, Pipeline, Size};
///
/// let builder = Pipeline::builder(EncodedImages::default());
/// let pipeline = Trial::A { load: 12 }.ops().into_iter().fold(builder, Builder::augment).build()?;
/// assert_eq!(pipeline.image_size(), Size::new(224, 224));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// The load of the CPU: `load` times [flips with probability 0.5 each, rotation by -5 to 5 degrees, nearest], then
    /// a random resized crop.
    A {
        /// How many times.
        load: u32,
    },
    /// The load of the GPU: `load` times [both flips, rotation by 5 degrees, bilinear, the canvas grows and the edge is
    /// repeated], then a random resized crop to 256 and a center crop.
    B {
        /// How many times.
        load: u32,
    },
}

impl Trial {
    /// Its operations.
    #[must_use]
    pub fn ops(self) -> Vec<Transform> {
        let mut ops = self.pixel_ops();
        ops.push(Op::Normalize { mean: IMAGENET_MEAN, std: IMAGENET_STD }.into());
        ops
    }

    /// Its operations on 8-bit images: all but normalization.
    #[must_use]
    pub fn pixel_ops(self) -> Vec<Transform> {
        match self {
            Self::A { load } => {
                let once = [random_horizontal_flip(0.5), random_vertical_flip(0.5), random_rotation(-5.0..=5.0)];
                vec![repeat(load, once), random_resized_crop(224, 224)]
            }
            Self::B { load } => {
                let rotate =
                    Op::Rotate { degrees: 5.0, interpolation: Interpolation::Bilinear, expand: true, fill: Fill::EDGE };
                vec![
                    repeat(load, [Op::Hflip.into(), Op::Vflip.into(), rotate.into()]),
                    random_resized_crop(256, 256),
                    Op::CenterCrop { width: 224, height: 224 }.into(),
                ]
            }
        }
    }
}
