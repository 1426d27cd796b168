//! RandAugment: several random operations with one magnitude.

use super::affine_warp;
use super::check::within;
use super::filter::Interpolation;
use super::magnitude::{AugmentKind, Magnitudes, SamplingStyle, validate_bins};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Largest number of operations in a row.
const MAX_OPS: u32 = 100;

/// Several operations of 14 equally likely kinds, all with the same magnitude: torchvision's `RandAugment` on PIL
/// images.
///
/// ```
/// use warpfeed::ops::{Interpolation, RandAugment, Transform};
///
/// let augment = RandAugment::new().ops(2).magnitude(9).interpolation(Interpolation::Bilinear).fill([124, 116, 104]);
/// Transform::from(augment).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandAugment {
    ops: u32,
    magnitude: u32,
    bins: u32,
    interpolation: Interpolation,
    fill: [u8; 3],
}

impl Default for RandAugment {
    fn default() -> Self {
        Self::new()
    }
}

impl RandAugment {
    /// torchvision's defaults: two operations of magnitude 9 of 31, nearest pixel, black outside.
    #[must_use]
    pub const fn new() -> Self {
        Self { ops: 2, magnitude: 9, bins: 31, interpolation: Interpolation::Nearest, fill: [0; 3] }
    }

    setters! {
        /// Number of operations.
        ops: u32,
        /// Magnitude of all operations: a bin, starting at 0.
        magnitude: u32,
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

/// The magnitudes of RandAugment, divided into `bins` bins.
pub(super) const fn magnitudes(bins: u32) -> Magnitudes {
    Magnitudes {
        bins,
        shear: 0.3,
        translate: |side| 150.0 / 331.0 * side,
        rotate: 30.0,
        enhance: 0.9,
        posterize: (8.0, 4.0),
    }
}

impl RandomTransform for RandAugment {
    fn validate(&self) -> Result<()> {
        within(Self::NAME, "ops", self.ops, 0..=MAX_OPS)?;
        validate_bins(Self::NAME, self.bins)?;
        if self.magnitude >= self.bins {
            let expected = format!("0 to {}, below the number of bins", self.bins - 1);
            return Err(Error::parameter(Self::NAME, "magnitude", expected, self.magnitude));
        }
        affine_warp::validate(Self::NAME, self.interpolation)
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        let draws: Vec<_> = (0..self.ops)
            .map(|_| (AugmentKind::ALL[rng.below(AugmentKind::ALL.len() as u64) as usize], rng.below(2) == 1))
            .collect();
        let magnitudes = magnitudes(self.bins);
        draws
            .into_iter()
            .try_for_each(|(kind, negative)| magnitudes.push(recipe, (kind, self.magnitude, negative), self.style()))
    }

    fn most_steps(&self) -> u64 {
        u64::from(self.ops).max(1)
    }
}
