//! TrivialAugment: one random operation with a random magnitude.

use super::affine_warp;
use super::filter::Interpolation;
use super::magnitude::{AugmentKind, Magnitudes, SamplingStyle, validate_bins};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// One operation of 14 equally likely kinds, with a random magnitude: torchvision's `TrivialAugmentWide` on PIL images.
///
/// ```
/// use warpfeed::ops::{Transform, TrivialAugment};
///
/// Transform::from(TrivialAugment::new().fill([124, 116, 104])).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrivialAugment {
    bins: u32,
    interpolation: Interpolation,
    fill: [u8; 3],
}

impl Default for TrivialAugment {
    fn default() -> Self {
        Self::new()
    }
}

impl TrivialAugment {
    /// torchvision's defaults: 31 bins of magnitudes, nearest pixel, black outside.
    #[must_use]
    pub const fn new() -> Self {
        Self { bins: 31, interpolation: Interpolation::Nearest, fill: [0; 3] }
    }

    setters! {
        /// Number of bins that magnitudes are divided into.
        bins: u32,
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

/// The magnitudes of TrivialAugment, divided into `bins` bins.
pub(super) const fn magnitudes(bins: u32) -> Magnitudes {
    Magnitudes { bins, shear: 0.99, translate: |_| 32.0, rotate: 135.0, enhance: 0.99, posterize: (8.0, 6.0) }
}

impl RandomTransform for TrivialAugment {
    fn validate(&self) -> Result<()> {
        validate_bins(Self::NAME, self.bins)?;
        affine_warp::validate(Self::NAME, self.interpolation)
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        let kind = AugmentKind::ALL[rng.below(AugmentKind::ALL.len() as u64) as usize];
        let bin = rng.below(u64::from(self.bins)) as u32;
        let negative = rng.below(2) == 1;
        magnitudes(self.bins).push(recipe, (kind, bin, negative), self.style())
    }
}
