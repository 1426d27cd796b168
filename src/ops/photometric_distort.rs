//! Photometric distortion, as in the training of detectors.

use super::check::{probability, range};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::{Brightness, Contrast, Hue, Op, PermuteChannels, Saturation};
use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Brightness, contrast, saturation, hue and the channels' order, each changed with a probability: torchvision's v2
/// `RandomPhotometricDistort`, which comes from SSD. Contrast is changed after brightness or after hue, both equally
/// likely.
///
/// ```
/// use warpfeed::ops::{RandomPhotometricDistort, Transform};
///
/// Transform::from(RandomPhotometricDistort::new(0.5).contrast(0.8..=1.2)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomPhotometricDistort {
    #[serde(with = "super::written::range")]
    brightness: RangeInclusive<f64>,
    #[serde(with = "super::written::range")]
    contrast: RangeInclusive<f64>,
    #[serde(with = "super::written::range")]
    saturation: RangeInclusive<f64>,
    #[serde(with = "super::written::range")]
    hue: RangeInclusive<f64>,
    p: f64,
}

impl Default for RandomPhotometricDistort {
    fn default() -> Self {
        Self::new(0.5)
    }
}

impl RandomPhotometricDistort {
    /// Each change with probability `p`, in torchvision's ranges: brightness by 0.875 to 1.125, contrast and saturation
    /// by 0.5 to 1.5, hue by -0.05 to 0.05.
    #[must_use]
    pub const fn new(p: f64) -> Self {
        Self { brightness: 0.875..=1.125, contrast: 0.5..=1.5, saturation: 0.5..=1.5, hue: -0.05..=0.05, p }
    }

    setters! {
        /// Factors of brightness.
        brightness: RangeInclusive<f64>,
        /// Factors of contrast.
        contrast: RangeInclusive<f64>,
        /// Factors of saturation.
        saturation: RangeInclusive<f64>,
        /// Turns of hue, within -0.5 to 0.5.
        hue: RangeInclusive<f64>,
    }
}

impl RandomTransform for RandomPhotometricDistort {
    fn validate(&self) -> Result<()> {
        probability(Self::NAME, self.p)?;
        range(Self::NAME, "brightness", &self.brightness, 0.0, f64::INFINITY)?;
        range(Self::NAME, "contrast", &self.contrast, 0.0, f64::INFINITY)?;
        range(Self::NAME, "saturation", &self.saturation, 0.0, f64::INFINITY)?;
        range(Self::NAME, "hue", &self.hue, -0.5, 0.5)
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        // All numbers are drawn, so that a change that is left out does not alter the others.
        let mut factor = |range: &RangeInclusive<f64>| {
            let happens = rng.chance(self.p);
            let factor = rng.uniform(*range.start(), *range.end());
            happens.then_some(factor)
        };
        let brightness = factor(&self.brightness).map(|factor| Brightness::new(factor).into());
        let contrast = factor(&self.contrast).map(|factor| Contrast::new(factor).into());
        let saturation = factor(&self.saturation).map(|factor| Saturation::new(factor).into());
        let hue = factor(&self.hue).map(|factor| Hue::new(factor).into());
        let (early, permutes, mut order) = (rng.chance(0.5), rng.chance(self.p), [0, 1, 2]);
        rng.shuffle(&mut order);
        let (before, after) = if early { (contrast, None) } else { (None, contrast) };
        let permutation = permutes.then(|| PermuteChannels::new(order).into());
        let ops: [Option<Op>; 6] = [brightness, before, saturation, hue, after, permutation];
        ops.into_iter().flatten().try_for_each(|op| recipe.push(op))
    }
}
