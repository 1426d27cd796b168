//! The operations of the published trials, which `augment_load` compares.

use warpfeed::ops::{
    CenterCrop, Fill, Hflip, Interpolation, Normalize, Rotate, Transform, Vflip, random_horizontal_flip,
    random_resized_crop, random_rotation, random_vertical_flip, repeat,
};
use warpfeed::{IMAGENET_MEAN, IMAGENET_STD, Preset};

/// A published trial. Both trials end in 224 x 224 pixels, normalized with ImageNet's mean and standard deviation.
///
/// ```
/// use warpfeed_bench::trial::Trial;
/// use warpfeed::{PipelineBuilder, Pipeline, source::EncodedImages, image::Size};
///
/// let builder = Pipeline::builder(EncodedImages::new([(Vec::new(), 0)]));
/// let pipeline = Trial::A { load: 12 }.ops().into_iter().fold(builder, PipelineBuilder::transform).build()?;
/// assert_eq!(pipeline.image_size(), Size::new(224, 224));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// The load on the CPU: `load` times [flips with probability 0.5 each, rotation by -5 to 5 degrees, nearest], then
    /// a random resized crop.
    A {
        /// Number of repetitions.
        load: u32,
    },
    /// The load on the GPU: `load` times [both flips, rotation by 5 degrees, bilinear, with a growing canvas and a
    /// repeated edge], then a random resized crop to 256 and a center crop.
    B {
        /// Number of repetitions.
        load: u32,
    },
}

/// The operations of a preset. If it has an automatic augmentation, that is repeated `load` times in a row.
///
/// ```
/// use warpfeed::Preset;
/// use warpfeed_bench::trial::loaded;
///
/// assert_eq!(format!("{:?}", loaded(Preset::RandAugment, 4)[2]), "repeat");
/// ```
#[must_use]
pub fn loaded(preset: Preset, load: u32) -> Vec<Transform> {
    let Some(suite) = preset.suite() else { return preset.ops() };
    normalized(vec![random_resized_crop(224), random_horizontal_flip(0.5), repeat(load, [suite])])
}

fn normalized(mut pixel_ops: Vec<Transform>) -> Vec<Transform> {
    pixel_ops.push(Normalize::new(IMAGENET_MEAN, IMAGENET_STD).into());
    pixel_ops
}

impl Trial {
    /// The trial's operations.
    #[must_use]
    pub fn ops(self) -> Vec<Transform> {
        normalized(self.pixel_ops())
    }

    /// The trial's operations for 8-bit images: without normalization.
    #[must_use]
    pub fn pixel_ops(self) -> Vec<Transform> {
        match self {
            Self::A { load } => {
                let once = [random_horizontal_flip(0.5), random_vertical_flip(0.5), random_rotation(-5.0..=5.0)];
                vec![repeat(load, once), random_resized_crop(224)]
            }
            Self::B { load } => {
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
