//! A crop to a fixed size that pads smaller images.

use super::check::sides;
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Crop, Fill, Pad, Sanitize, SizeEffect};
use crate::error::Result;
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Cuts out a rectangle at a random place and pads it on the right and at the bottom to a fixed size: `FixedSizeCrop`
/// of torchvision's detection references, which follows [`ScaleJitter`](super::ScaleJitter) there. One random number
/// decides about the place on both axes. Objects whose boxes the crop leaves without area are dropped.
///
/// ```
/// use warpfeed::ops::{FixedSizeCrop, Transform};
///
/// Transform::from(FixedSizeCrop::new(1024)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedSizeCrop {
    #[serde(with = "super::written::size")]
    size: Size,
    #[serde(default)]
    fill: Fill,
}

impl FixedSizeCrop {
    /// A crop of this size; black where the image is smaller. A `u32` as size is a square.
    #[must_use]
    pub fn new(size: impl Into<Size>) -> Self {
        Self { size: size.into(), fill: Fill::BLACK }
    }

    setters! {
        /// Color of the padding: red, green, blue.
        fill: into Fill,
    }
}

impl RandomTransform for FixedSizeCrop {
    fn validate(&self) -> Result<()> {
        sides(Self::NAME, self.size.width, self.size.height)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Becomes(self.size)
    }

    fn takes(&self, pixels: &PixelValues) -> Option<Result<()>> {
        self.fill.values().map_or(Some(Ok(())), |fill| Some(pixels.check(Self::NAME, "fill", fill)))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, input) = recipe.start();
        let u = rng.unit();
        let cut = Size::new(input.width.min(self.size.width), input.height.min(self.size.height));
        let (along, down) = (input.width - cut.width, input.height - cut.height);
        if cut != input {
            let [x, y] = [along, down].map(|more| (f64::from(more) * u) as i32);
            recipe.push(Crop::new(x, y, cut))?;
            recipe.push(Sanitize::without_area())?;
        }
        if cut != self.size {
            let sides = [0, 0, self.size.width - cut.width, self.size.height - cut.height];
            recipe.push(Pad::sides(sides).fill(self.fill))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Op;
    use crate::ops::crop_search::drawn_for;

    #[test]
    fn one_number_decides_about_both_axes_and_padding_comes_after_the_image() {
        let (size, wide) = (Size::new(100, 80), Size::new(300, 50));
        let mut places = std::collections::BTreeSet::new();
        for index in 0..200 {
            let ops = drawn_for(FixedSizeCrop::new(size), Size::new(300, 280), &[], index);
            let [Op::Crop(crop), Op::Sanitize(_)] = &ops[..] else { panic!("{ops:?}") };
            assert_eq!((crop.width, crop.height, crop.x), (100, 80, crop.y), "200 pixels are left on both axes");
            assert!((0..200).contains(&crop.x));
            places.insert(crop.x);
            let ops = drawn_for(FixedSizeCrop::new(size).fill([9; 3]), wide, &[], index);
            let [Op::Crop(crop), Op::Sanitize(_), Op::Pad(pad)] = &ops[..] else { panic!("{ops:?}") };
            assert_eq!((crop.width, crop.height, crop.y), (100, 50, 0));
            assert_eq!(([pad.left, pad.top, pad.right, pad.bottom], pad.fill), ([0, 0, 0, 30], Fill::Color([9; 3])));
        }
        assert!(places.len() > 100, "{places:?}");
        assert!(drawn_for(FixedSizeCrop::new(size), size, &[], 0).is_empty());
    }
}
