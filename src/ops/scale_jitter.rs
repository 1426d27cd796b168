//! Resizing by a random factor of the size that fits a target.

use super::check::{ABOVE_0, range, sides};
use super::filter::Interpolation;
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Resize, SizeEffect};
use crate::error::Result;
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Resizes the image so that it fits a target, aspect kept, times a random factor: torchvision's `ScaleJitter`, the
/// large-scale jitter of Mask R-CNN.
///
/// ```
/// use warpfeed::ops::{ScaleJitter, Transform};
///
/// Transform::from(ScaleJitter::new(1024).scale(0.8..=1.25)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleJitter {
    #[serde(with = "super::written::size")]
    target: Size,
    #[serde(with = "super::written::range", default = "usual_scale")]
    scale: RangeInclusive<f64>,
    #[serde(default)]
    interpolation: Interpolation,
}

const fn usual_scale() -> RangeInclusive<f64> {
    0.1..=2.0
}

impl ScaleJitter {
    /// A factor of 0.1 to 2, bilinear. A `u32` as target is a square.
    #[must_use]
    pub fn new(target: impl Into<Size>) -> Self {
        Self { target: target.into(), scale: usual_scale(), interpolation: Interpolation::Bilinear }
    }

    setters! {
        /// Factor of the size that fits the target, uniform in the range.
        scale: RangeInclusive<f64>,
        /// The filter.
        interpolation: Interpolation,
    }

    /// The size by a uniform number, in single precision as in torchvision, but a pixel at least.
    fn size(&self, input: Size, u: f32) -> Size {
        let (low, high) = (*self.scale.start(), *self.scale.end());
        let scale = low as f32 + u * (high - low) as f32;
        let ratio = |target: u32, side: u32| f64::from(target) / f64::from(side);
        let fits = ratio(self.target.height, input.height).min(ratio(self.target.width, input.width));
        let factor = fits as f32 * scale;
        let side = |side: u32| ((side as f32 * factor) as u32).max(1);
        Size::new(side(input.width), side(input.height))
    }
}

impl RandomTransform for ScaleJitter {
    fn validate(&self) -> Result<()> {
        sides(Self::NAME, self.target.width, self.target.height)?;
        range(Self::NAME, "scale", &self.scale, ABOVE_0, 1_000.0)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Varies
    }

    fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, input) = recipe.start();
        let size = self.size(input, rng.below(1 << 24) as f32 / (1 << 24) as f32);
        recipe.push(Resize::new(size).interpolation(self.interpolation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::reference::draws;

    #[test]
    fn sizes_are_torchvisions_for_its_number() {
        // From torchvision 0.29 with this number in place of torch.rand.
        assert_eq!(ScaleJitter::new(1024).size(Size::new(338, 674), 0.019_701_848), Size::new(70, 140));
        assert_eq!(ScaleJitter::new(10).size(Size::new(1000, 2), 0.0), Size::new(1, 1));
    }

    #[test]
    #[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
    fn shared_draws() {
        for draw in draws("ScaleJitter") {
            let pair = |name: &str| serde_json::from_value::<[f64; 2]>(draw.arguments[name].clone()).unwrap();
            let ([height, width], [low, high]) = (pair("target_size"), pair("scale_range"));
            let jitter = ScaleJitter::new(Size::new(width as u32, height as u32)).scale(low..=high);
            let Size { width, height } = jitter.size(draw.size(), draw.uniforms[0]);
            assert_eq!(serde_json::json!({ "size": [width, height] }), draw.result, "{:?}", draw.uniforms);
        }
    }
}
