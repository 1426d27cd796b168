//! AutoAugment: pairs of operations found by a search.

use super::affine_warp;
use super::filter::Interpolation;
use super::magnitude::AugmentKind::{
    self, AutoContrast, Brightness, Color, Contrast, Equalize, Invert, Posterize, Rotate, Sharpness, ShearX, ShearY,
    Solarize, TranslateX, TranslateY,
};
use super::magnitude::{Magnitudes, SamplingStyle};
use super::rand_augment;
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// The data set that a policy was found for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AutoAugmentPolicy {
    /// ImageNet.
    ImageNet,
    /// CIFAR-10.
    Cifar10,
    /// Street View House Numbers.
    Svhn,
}

/// One of a policy's 25 pairs of operations, drawn for each sample. Each operation of the pair has its own probability:
/// torchvision's `AutoAugment` on PIL images.
///
/// ```
/// use warpfeed::ops::{AutoAugment, AutoAugmentPolicy, Transform};
///
/// Transform::from(AutoAugment::new(AutoAugmentPolicy::ImageNet)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoAugment {
    policy: AutoAugmentPolicy,
    #[serde(default = "Interpolation::nearest")]
    interpolation: Interpolation,
    #[serde(default)]
    fill: [u8; 3],
}

impl AutoAugment {
    /// A policy; nearest pixel, black outside.
    #[must_use]
    pub const fn new(policy: AutoAugmentPolicy) -> Self {
        Self { policy, interpolation: Interpolation::Nearest, fill: [0; 3] }
    }

    setters! {
        /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or
        /// [`Bicubic`](Interpolation::Bicubic).
        interpolation: Interpolation,
        /// Color outside the image: red, green, blue.
        fill: [u8; 3],
    }

    fn style(&self) -> SamplingStyle {
        SamplingStyle { interpolation: self.interpolation, fill: self.fill }
    }
}

impl RandomTransform for AutoAugment {
    fn validate(&self) -> Result<()> {
        affine_warp::validate(Self::NAME, self.interpolation)
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let pairs = self.policy.pairs();
        let (rng, _) = recipe.start();
        let chosen = rng.below(pairs.len() as u64) as usize;
        // The numbers of both operations are drawn, so that leaving one out does not change the other.
        let draws = [(); 2].map(|()| (rng.unit(), rng.below(2) == 0));
        for ((kind, p, bin), (unit, negative)) in pairs[chosen].into_iter().zip(draws) {
            if unit <= p {
                MAGNITUDES.push(recipe, (kind, bin, negative), self.style())?;
            }
        }
        Ok(())
    }

    fn most_steps(&self) -> u64 {
        2
    }
}

/// RandAugment's magnitudes, in ten bins.
pub(super) const MAGNITUDES: Magnitudes = rand_augment::magnitudes(10);

/// An operation's kind, its probability, and the bin of its magnitude. The bin is 0 for kinds without a magnitude.
type PolicyStep = (AugmentKind, f64, u32);

impl AutoAugmentPolicy {
    /// The policy's pairs.
    pub(super) const fn pairs(self) -> [[PolicyStep; 2]; 25] {
        match self {
            Self::ImageNet => IMAGENET,
            Self::Cifar10 => CIFAR10,
            Self::Svhn => SVHN,
        }
    }
}

#[rustfmt::skip]
const IMAGENET: [[PolicyStep; 2]; 25] = [
    [(Posterize, 0.4, 8), (Rotate, 0.6, 9)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
    [(Posterize, 0.6, 7), (Posterize, 0.6, 6)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Equalize, 0.4, 0), (Rotate, 0.8, 8)],
    [(Solarize, 0.6, 3), (Equalize, 0.6, 0)],
    [(Posterize, 0.8, 5), (Equalize, 1.0, 0)],
    [(Rotate, 0.2, 3), (Solarize, 0.6, 8)],
    [(Equalize, 0.6, 0), (Posterize, 0.4, 6)],
    [(Rotate, 0.8, 8), (Color, 0.4, 0)],
    [(Rotate, 0.4, 9), (Equalize, 0.6, 0)],
    [(Equalize, 0.0, 0), (Equalize, 0.8, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Rotate, 0.8, 8), (Color, 1.0, 2)],
    [(Color, 0.8, 8), (Solarize, 0.8, 7)],
    [(Sharpness, 0.4, 7), (Invert, 0.6, 0)],
    [(ShearX, 0.6, 5), (Equalize, 1.0, 0)],
    [(Color, 0.4, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
];

#[rustfmt::skip]
const CIFAR10: [[PolicyStep; 2]; 25] = [
    [(Invert, 0.1, 0), (Contrast, 0.2, 6)],
    [(Rotate, 0.7, 2), (TranslateX, 0.3, 9)],
    [(Sharpness, 0.8, 1), (Sharpness, 0.9, 3)],
    [(ShearY, 0.5, 8), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.5, 0), (Equalize, 0.9, 0)],
    [(ShearY, 0.2, 7), (Posterize, 0.3, 7)],
    [(Color, 0.4, 3), (Brightness, 0.6, 7)],
    [(Sharpness, 0.3, 9), (Brightness, 0.7, 9)],
    [(Equalize, 0.6, 0), (Equalize, 0.5, 0)],
    [(Contrast, 0.6, 7), (Sharpness, 0.6, 5)],
    [(Color, 0.7, 7), (TranslateX, 0.5, 8)],
    [(Equalize, 0.3, 0), (AutoContrast, 0.4, 0)],
    [(TranslateY, 0.4, 3), (Sharpness, 0.2, 6)],
    [(Brightness, 0.9, 6), (Color, 0.2, 8)],
    [(Solarize, 0.5, 2), (Invert, 0.0, 0)],
    [(Equalize, 0.2, 0), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.2, 0), (Equalize, 0.6, 0)],
    [(Color, 0.9, 9), (Equalize, 0.6, 0)],
    [(AutoContrast, 0.8, 0), (Solarize, 0.2, 8)],
    [(Brightness, 0.1, 3), (Color, 0.7, 0)],
    [(Solarize, 0.4, 5), (AutoContrast, 0.9, 0)],
    [(TranslateY, 0.9, 9), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.9, 0), (Solarize, 0.8, 3)],
    [(Equalize, 0.8, 0), (Invert, 0.1, 0)],
    [(TranslateY, 0.7, 9), (AutoContrast, 0.9, 0)],
];

#[rustfmt::skip]
const SVHN: [[PolicyStep; 2]; 25] = [
    [(ShearX, 0.9, 4), (Invert, 0.2, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.6, 0), (Solarize, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (AutoContrast, 0.8, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.4, 0)],
    [(ShearY, 0.9, 5), (Solarize, 0.2, 6)],
    [(Invert, 0.9, 0), (AutoContrast, 0.8, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (Solarize, 0.3, 3)],
    [(ShearY, 0.8, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.9, 0), (TranslateY, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Contrast, 0.3, 3), (Rotate, 0.8, 4)],
    [(Invert, 0.8, 0), (TranslateY, 0.0, 2)],
    [(ShearY, 0.7, 6), (Solarize, 0.4, 8)],
    [(Invert, 0.6, 0), (Rotate, 0.8, 4)],
    [(ShearY, 0.3, 7), (TranslateX, 0.9, 3)],
    [(ShearX, 0.1, 6), (Invert, 0.6, 0)],
    [(Solarize, 0.7, 2), (TranslateY, 0.6, 7)],
    [(ShearY, 0.8, 4), (Invert, 0.8, 0)],
    [(ShearX, 0.7, 9), (TranslateY, 0.8, 3)],
    [(ShearY, 0.8, 5), (AutoContrast, 0.7, 0)],
    [(ShearX, 0.7, 2), (Invert, 0.1, 0)],
];
