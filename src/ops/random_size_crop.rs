//! A crop of random size at a random place.

use super::check::{MAX_SIDE_PX, whole_range};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Crop, Sanitize, SizeEffect};
use crate::error::Result;
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Cuts out a rectangle with random sides at a random place: DETR's `RandomSizeCrop`. Width and height are drawn
/// independently from the range, at most the image's own; a side of the image that is shorter than the range stays
/// whole. Objects whose boxes the crop leaves without area are dropped.
///
/// ```
/// use warpfeed::ops::{RandomSizeCrop, Transform};
///
/// Transform::from(RandomSizeCrop::new(384..=600)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomSizeCrop {
    #[serde(with = "super::written::range")]
    sides: RangeInclusive<u32>,
}

impl RandomSizeCrop {
    /// Sides of the rectangle in pixels.
    #[must_use]
    pub const fn new(sides: RangeInclusive<u32>) -> Self {
        Self { sides }
    }
}

impl RandomTransform for RandomSizeCrop {
    fn validate(&self) -> Result<()> {
        whole_range(Self::NAME, "sides", &self.sides, MAX_SIDE_PX, " pixels")
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Varies
    }

    fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, Size { width, height }) = recipe.start();
        let mut side = |whole: u32| rng.within(&((*self.sides.start()).min(whole)..=(*self.sides.end()).min(whole)));
        let size = Size::new(side(width), side(height));
        let mut first = |whole: u32, side: u32| rng.below(u64::from(whole - side) + 1) as i32;
        let (y, x) = (first(height, size.height), first(width, size.width));
        recipe.push(Crop::new(x, y, size))?;
        recipe.push(Sanitize::without_area())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::recipe::draw_recipe;
    use crate::ops::transform::SampleInfo;
    use crate::ops::{Op, SampleRng};
    use crate::rng::Pick;
    use crate::targets::Annotation;

    #[test]
    fn rectangles_have_all_sizes_and_lie_inside() {
        let (image, annotation) = (Size::new(13, 6), Annotation::default());
        let (mut widths, mut places) = (vec![0; 14], vec![0; 14]);
        for index in 0..2_000 {
            let (mut rng, pick) = (SampleRng::for_sample(2, 0, index), Pick { index, repetition: 0 });
            let transform = RandomSizeCrop::new(8..=10).into();
            let ops =
                draw_recipe(&[], &[transform], &mut rng, SampleInfo::new(pick, image, &annotation), None).unwrap().ops;
            let [Op::Crop(crop), Op::Sanitize(_)] = &ops[..] else { panic!("{ops:?}") };
            assert_eq!((crop.y, crop.height), (0, 6), "the image is lower than the range");
            assert!(crop.x >= 0 && crop.x as u32 + crop.width <= 13, "{crop:?}");
            widths[crop.width as usize] += 1;
            places[crop.x as usize] += 1;
        }
        // Three widths, 667 times each; six standard deviations are 126.
        assert!(widths[8..=10].iter().all(|&n| (541..=793).contains(&n)), "{widths:?}");
        assert!(places[..=5].iter().all(|&n| n > 0), "{places:?}");
    }
}
