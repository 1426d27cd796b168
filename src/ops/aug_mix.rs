//! AugMix: an image mixed with several chains of operations.

use super::check::{ABOVE_0, within};
use super::filter::Interpolation;
use super::magnitude::{AugmentKind, Magnitudes, SamplingStyle};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::{Chain, Op, SampleRng, WeightedSum, affine_warp};
use crate::error::{Error, Result};
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Largest number of chains, and of operations in a chain.
const MOST: u32 = 100;

/// The image and several chains of operations, mixed by random weights: torchvision's `AugMix`, with operations as on
/// PIL images. (torchvision runs them on tensors, whose bytes differ a little.)
///
/// ```
/// use warpfeed::ops::{AugMix, Transform};
///
/// Transform::from(AugMix::new().severity(5).width(3)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AugMix {
    severity: u32,
    width: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<u32>,
    alpha: f64,
    all_ops: bool,
    interpolation: Interpolation,
    fill: [u8; 3],
}

impl Default for AugMix {
    fn default() -> Self {
        Self::new()
    }
}

impl AugMix {
    /// AugMix's defaults: severity 3 of 10, 3 chains of 1 to 3 operations of all kinds, alpha 1.0, bilinear, black
    /// outside.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            severity: 3,
            width: 3,
            depth: None,
            alpha: 1.0,
            all_ops: true,
            interpolation: Interpolation::Bilinear,
            fill: [0; 3],
        }
    }

    setters! {
        /// Strength of the operations: the largest bin of magnitudes that is drawn, of 10.
        severity: u32,
        /// Number of chains.
        width: u32,
        /// Number of operations in every chain. Default: 1 to 3, drawn for each chain.
        depth: u32 => Some,
        /// Parameter of the Dirichlet distributions that weights are drawn from.
        alpha: f64,
        /// Whether brightness, color, contrast and sharpness are among the operations.
        all_ops: bool,
        /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or
        /// [`Bicubic`](Interpolation::Bicubic).
        interpolation: Interpolation,
        /// Color outside the image: red, green, blue.
        fill: [u8; 3],
    }

    fn style(&self) -> SamplingStyle {
        SamplingStyle { interpolation: self.interpolation, fill: self.fill }
    }

    fn ops(&self, rng: &mut SampleRng, size: Size) -> Vec<Op> {
        let kinds = if self.all_ops { &KINDS[..] } else { &KINDS[..WITHOUT_ENHANCING] };
        let depth = self.depth.unwrap_or_else(|| 1 + rng.below(3) as u32);
        let mut op = || {
            let kind = kinds[rng.below(kinds.len() as u64) as usize];
            let bin = rng.below(u64::from(self.severity)) as u32;
            let negative = rng.below(2) == 1;
            MAGNITUDES.op(kind, bin, negative, size, self.style())
        };
        (0..depth).filter_map(|_| op()).collect()
    }
}

/// Kinds of operations, in torchvision's order.
const KINDS: [AugmentKind; 13] = [
    AugmentKind::ShearX,
    AugmentKind::ShearY,
    AugmentKind::TranslateX,
    AugmentKind::TranslateY,
    AugmentKind::Rotate,
    AugmentKind::Posterize,
    AugmentKind::Solarize,
    AugmentKind::AutoContrast,
    AugmentKind::Equalize,
    AugmentKind::Brightness,
    AugmentKind::Color,
    AugmentKind::Contrast,
    AugmentKind::Sharpness,
];
const WITHOUT_ENHANCING: usize = 9;

pub(super) const MAGNITUDES: Magnitudes = Magnitudes {
    bins: 10,
    shear: 0.3,
    translate: |side| side / 3.0,
    rotate: 30.0,
    enhance: 0.9,
    posterize: (4.0, 4.0),
};

impl RandomTransform for AugMix {
    fn validate(&self) -> Result<()> {
        within(Self::NAME, "severity", self.severity, 1..=MAGNITUDES.bins)?;
        within(Self::NAME, "width", self.width, 1..=MOST)?;
        within(Self::NAME, "depth", self.depth.unwrap_or(1), 1..=MOST)?;
        if !(self.alpha >= ABOVE_0 && self.alpha.is_finite()) {
            return Err(Error::parameter(Self::NAME, "alpha", "a finite number above 0", self.alpha));
        }
        affine_warp::validate(Self::NAME, self.interpolation)
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, size) = recipe.start();
        let beta = rng.dirichlet(self.alpha, 2);
        let weights = rng.dirichlet(self.alpha, self.width as usize);
        let [own, rest] = [beta[0] as f32, beta[1] as f32];
        let chains = weights.into_iter().map(|weight| Chain::new(weight as f32 * rest, self.ops(rng, size)));
        let mix = chains.fold(WeightedSum::new(own), WeightedSum::chain);
        recipe.push(mix)
    }

    fn most_steps(&self) -> u64 {
        u64::from(self.width) * u64::from(self.depth.unwrap_or(3))
    }
}
