//! Resizing of the shorter side to one of several lengths.

use super::check::side;
use super::filter::Interpolation;
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Resize, SizeEffect};
use crate::error::{Error, Result};
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Resizes the shorter side to one of several lengths, all equally likely, or to less, so that the longer side stays
/// within a limit: torchvision's `RandomShortestSize`, the multi-scale training of detectors.
///
/// ```
/// use warpfeed::ops::{RandomShortestSize, Transform};
///
/// Transform::from(RandomShortestSize::new((480..=800).step_by(32)).max_size(1333)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomShortestSize {
    sizes: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_size: Option<u32>,
    #[serde(default)]
    interpolation: Interpolation,
}

impl RandomShortestSize {
    /// Lengths of the shorter side in pixels; bilinear, and no limit of the longer side.
    #[must_use]
    pub fn new(sizes: impl IntoIterator<Item = u32>) -> Self {
        Self { sizes: sizes.into_iter().collect(), max_size: None, interpolation: Interpolation::Bilinear }
    }

    setters! {
        /// Largest length of the longer side in pixels.
        max_size: u32 => Some,
        /// The filter.
        interpolation: Interpolation,
    }

    /// The size for a length of the shorter side. torchvision drops the fractions of both sides.
    fn size(&self, Size { width, height }: Size, short: u32) -> Size {
        let ratio = |length: u32, side: u32| f64::from(length) / f64::from(side);
        let most = self.max_size.map_or(f64::INFINITY, |most| ratio(most, width.max(height)));
        let factor = ratio(short, width.min(height)).min(most);
        let side = |side: u32| ((f64::from(side) * factor) as u32).max(1);
        Size::new(side(width), side(height))
    }
}

impl RandomTransform for RandomShortestSize {
    fn validate(&self) -> Result<()> {
        if self.sizes.is_empty() {
            return Err(Error::parameter(Self::NAME, "sizes", "one at least", "none"));
        }
        let all = self.sizes.iter().map(|size| ("sizes", *size));
        all.chain(self.max_size.map(|most| ("max_size", most))).try_for_each(|(name, px)| side(Self::NAME, name, px))
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Varies
    }

    fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, input) = recipe.start();
        let Some(short) = self.sizes.get(rng.below(self.sizes.len() as u64) as usize) else { return Ok(()) };
        let size = self.size(input, *short);
        recipe.push(Resize::new(size).interpolation(self.interpolation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::reference::draws;

    #[test]
    fn sizes_are_torchvisions() {
        let sizes = RandomShortestSize::new([640]).max_size(1333);
        assert_eq!(sizes.size(Size::new(338, 674), 640), Size::new(640, 1276));
        assert_eq!(sizes.size(Size::new(100, 674), 640), Size::new(197, 1333));
        assert_eq!(RandomShortestSize::new([640]).size(Size::new(100, 674), 640), Size::new(640, 4313));
    }

    #[test]
    #[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
    fn shared_draws() {
        for draw in draws("RandomShortestSize") {
            let [short, long] = ["min_size", "max_size"].map(|name| draw.arguments[name].as_u64().unwrap() as u32);
            let Size { width, height } = RandomShortestSize::new([short]).max_size(long).size(draw.size(), short);
            assert_eq!(serde_json::json!({ "size": [width, height] }), draw.result, "{}", draw.size());
        }
    }
}
