//! Resizing of the shorter side to a random length.

use super::check::{MAX_SIDE_PX, side, whole_range};
use super::filter::Interpolation;
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Resize, SizeEffect};
use crate::error::Result;
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Resizes the shorter side to a random length, aspect kept: `RandomResize` of torchvision's segmentation references,
/// and with [`step`](Self::step) and [`max_size`](Self::max_size) that of DETR. The longer side is
/// `int(size * longer / shorter)`.
///
/// ```
/// use warpfeed::ops::{RandomResize, Transform};
///
/// Transform::from(RandomResize::new(260..=1040)).validate()?;
/// Transform::from(RandomResize::new(480..=800).step(32).max_size(1333)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResize {
    #[serde(with = "super::written::range")]
    sizes: RangeInclusive<u32>,
    #[serde(default = "one")]
    step: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_size: Option<u32>,
    #[serde(default)]
    interpolation: Interpolation,
}

const fn one() -> u32 {
    1
}

impl RandomResize {
    /// Lengths of the shorter side in pixels, all equally likely; bilinear, and no limit of the longer side.
    #[must_use]
    pub const fn new(sizes: RangeInclusive<u32>) -> Self {
        Self { sizes, step: one(), max_size: None, interpolation: Interpolation::Bilinear }
    }

    setters! {
        /// Distance of the lengths that are drawn, from the first on. Default: 1.
        step: u32,
        /// Largest length of the longer side in pixels. Where it would be exceeded, the shorter side becomes
        /// `round(max_size * shorter / longer)`, as in DETR, but 1 pixel at least.
        max_size: u32 => Some,
        /// The filter.
        interpolation: Interpolation,
    }

    /// The size for a length of the shorter side, in Python's arithmetic.
    fn size(&self, Size { width, height }: Size, length: u32) -> Size {
        let [short, long] = [width.min(height), width.max(height)].map(f64::from);
        let length = match self.max_size.map(f64::from) {
            Some(most) if long / short * f64::from(length) > most => (most * short / long).round_ties_even().max(1.0),
            _ => f64::from(length),
        };
        let (short, long) = (length as u32, (length * long / short) as u32);
        if width <= height { Size::new(short, long) } else { Size::new(long, short) }
    }
}

impl RandomTransform for RandomResize {
    fn validate(&self) -> Result<()> {
        whole_range(Self::NAME, "sizes", &self.sizes, MAX_SIDE_PX, " pixels")?;
        side(Self::NAME, "step", self.step)?;
        self.max_size.map_or(Ok(()), |most| side(Self::NAME, "max_size", most))
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Varies
    }

    fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, input) = recipe.start();
        let (first, last) = (*self.sizes.start(), *self.sizes.end());
        let steps = rng.below(u64::from((last - first) / self.step) + 1) as u32;
        let size = self.size(input, first + self.step * steps);
        recipe.push(Resize::new(size).interpolation(self.interpolation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::recipe::draw_recipe;
    use crate::ops::transform::SampleInfo;
    use crate::ops::{Op, ResizeTo, SampleRng};
    use crate::rng::Pick;
    use crate::targets::Annotation;

    #[test]
    fn sizes_are_detrs() {
        let limited = RandomResize::new(480..=800).step(32).max_size(1333);
        assert_eq!(limited.size(Size::new(640, 480), 800), Size::new(1066, 800));
        // 1333 x 250 / 640 = 520.7, where torchvision's Resize takes 520 x 1333.
        assert_eq!(limited.size(Size::new(250, 640), 800), Size::new(521, 1333));
        assert_eq!(limited.size(Size::new(640, 428), 800), Size::new(1196, 800));
        // 1333 x 300 / 640 = 624.8; 625 x 640 / 300 = 1333.3.
        assert_eq!(limited.size(Size::new(640, 300), 800), Size::new(1333, 625));
        assert_eq!(limited.size(Size::new(1, 100_000), 480), Size::new(1, 100_000));
        assert_eq!(RandomResize::new(260..=1040).size(Size::new(300, 500), 260), Size::new(260, 433));
    }

    #[test]
    fn every_length_of_the_range_comes() {
        let drawn = |transform: RandomResize, index| {
            let (annotation, mut rng) = (Annotation::default(), SampleRng::for_sample(1, 0, index));
            let sample = SampleInfo::new(Pick { index, repetition: 0 }, Size::new(10, 20), &annotation);
            let recipe = draw_recipe(&[], &[transform.into()], &mut rng, sample, None).unwrap().ops;
            let [Op::Resize(Resize { to: ResizeTo::Exact(size), .. })] = recipe[..] else { panic!("{recipe:?}") };
            size.width
        };
        let all = |transform: RandomResize| -> Vec<u32> {
            let mut all: Vec<_> = (0..300).map(|index| drawn(transform.clone(), index)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        assert_eq!(all(RandomResize::new(40..=47)), (40..=47).collect::<Vec<_>>());
        assert_eq!(all(RandomResize::new(40..=64).step(10)), [40, 50, 60]);
    }

    #[test]
    #[allow(clippy::reversed_empty_ranges)]
    fn empty_ranges_are_refused() {
        assert!(RandomResize::new(0..=10).validate().is_err());
        assert!(RandomResize::new(20..=10).validate().is_err());
        assert!(RandomResize::new(10..=20).step(0).validate().is_err());
        assert!(RandomResize::new(10..=20).max_size(0).validate().is_err());
    }
}
