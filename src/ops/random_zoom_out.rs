//! Placing the image on a larger canvas.

use super::check::{probability, within};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Fill, Pad, SizeEffect};
use crate::error::{Error, Result};
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Largest factor of the sides.
const MAX_FACTOR: f32 = 1000.0;

/// Places the image at random on a larger canvas of one color, with a probability: torchvision's `RandomZoomOut`.
///
/// ```
/// use warpfeed::ops::{RandomZoomOut, Transform};
///
/// Transform::from(RandomZoomOut::new(0.5).fill([123, 117, 104])).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomZoomOut {
    p: f64,
    #[serde(with = "super::written::range", default = "usual_sides")]
    sides: RangeInclusive<f32>,
    #[serde(default)]
    fill: Fill,
}

const fn usual_sides() -> RangeInclusive<f32> {
    1.0..=4.0
}

impl RandomZoomOut {
    /// A transform that acts with probability `p`: a canvas with sides of 1 to 4 times the image's, black.
    #[must_use]
    pub const fn new(p: f64) -> Self {
        Self { p, sides: usual_sides(), fill: Fill::BLACK }
    }

    setters! {
        /// Factor of both sides, uniform in the range, 1 to 1,000.
        sides: RangeInclusive<f32>,
        /// Color of the canvas: red, green, blue.
        fill: into Fill,
    }

    /// The padding on the left, at the top, on the right and at the bottom, by three uniform numbers: torchvision's, in
    /// single precision.
    fn padding(&self, Size { width, height }: Size, [u, v, w]: [f32; 3]) -> [u32; 4] {
        let (low, high) = (*self.sides.start(), *self.sides.end());
        let factor = low + u * (high - low);
        let more = |side: u32| ((side as f32 * factor) as u32).saturating_sub(side);
        let (along, down) = (more(width), more(height));
        let (left, top) = ((along as f32 * v) as u32, (down as f32 * w) as u32);
        [left.min(along), top.min(down), along.saturating_sub(left), down.saturating_sub(top)]
    }
}

impl RandomTransform for RandomZoomOut {
    fn validate(&self) -> Result<()> {
        probability(Self::NAME, self.p)?;
        within(Self::NAME, "sides", *self.sides.start(), 1.0..=MAX_FACTOR)?;
        within(Self::NAME, "sides", *self.sides.end(), 1.0..=MAX_FACTOR)?;
        if self.sides.is_empty() {
            let got = format!("{:?}", self.sides);
            return Err(Error::parameter(Self::NAME, "sides", "a range from low to high", got));
        }
        Ok(())
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Varies
    }

    fn takes(&self, pixels: &PixelValues) -> Option<Result<()>> {
        self.fill.values().map_or(Some(Ok(())), |fill| Some(pixels.check(Self::NAME, "fill", fill)))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, size) = recipe.start();
        if !rng.chance(self.p) {
            return Ok(());
        }
        // torch's uniform numbers in single precision have 24 bits.
        let mut uniform = || rng.below(1 << 24) as f32 / (1 << 24) as f32;
        let sides = self.padding(size, [uniform(), uniform(), uniform()]);
        recipe.push(Pad::sides(sides).fill(self.fill))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::reference::draws;

    #[test]
    fn padding_is_torchvisions_for_its_numbers() {
        // From torchvision 0.29 with these numbers in place of torch.rand.
        let zoom = RandomZoomOut::new(1.0);
        let numbers = [0.019_701_848, 0.771_636_55, 0.929_578_54];
        assert_eq!(zoom.padding(Size::new(338, 674), numbers), [14, 36, 5, 3]);
        assert_eq!(zoom.padding(Size::new(100, 50), [0.0; 3]), [0; 4]);
    }

    #[test]
    #[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
    fn shared_draws() {
        for draw in draws("RandomZoomOut") {
            let sides: [f32; 2] = serde_json::from_value(draw.arguments["side_range"].clone()).unwrap();
            let zoom = RandomZoomOut::new(1.0).sides(sides[0]..=sides[1]);
            let padding = zoom.padding(draw.size(), draw.uniforms[..].try_into().unwrap());
            assert_eq!(serde_json::json!({ "padding": padding }), draw.result, "{:?}", draw.uniforms);
        }
    }
}
