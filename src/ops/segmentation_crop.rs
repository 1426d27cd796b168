//! A crop of a fixed size for segmentation.

use super::check::{ABOVE_0, sides, within};
use super::placed_mask::PlacedMask;
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Crop, Fill, Pad, SampleRng, SizeEffect};
use crate::error::Result;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Cuts out a rectangle at a random place and pads it on the right and at the bottom to a fixed size: the crop of
/// torchvision's segmentation references. The padding of a mask has the mask's own value
/// ([`Mask::with_fill`](crate::fields::Mask::with_fill)).
///
/// With [`max_class_share`](Self::max_class_share) it is mmsegmentation's `RandomCrop` with `cat_max_ratio`: another
/// rectangle is drawn if one has a single class in the image's mask, or if a class has this share of it or more, up to
/// [`tries`](Self::tries) times; the last rectangle is taken as it is. An image without a mask is cropped at the first
/// place.
///
/// ```
/// use warpfeed::ops::{SegmentationCrop, Transform};
///
/// Transform::from(SegmentationCrop::new(512).max_class_share(0.75)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentationCrop {
    #[serde(with = "super::written::size")]
    size: Size,
    #[serde(default)]
    fill: Fill,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_class_share: Option<f64>,
    #[serde(default = "usual_ignored")]
    ignored: u16,
    #[serde(default = "usual_tries")]
    tries: u32,
}

/// Largest number of rectangles that are drawn after the first.
const MAX_TRIES: u32 = 1_000;

const fn usual_ignored() -> u16 {
    255
}

const fn usual_tries() -> u32 {
    10
}

impl SegmentationCrop {
    /// A crop of this size; black where the image is smaller, whatever the classes. A `u32` as size is a square.
    #[must_use]
    pub fn new(size: impl Into<Size>) -> Self {
        Self {
            size: size.into(),
            fill: Fill::BLACK,
            max_class_share: None,
            ignored: usual_ignored(),
            tries: usual_tries(),
        }
    }

    setters! {
        /// Color of the padding: red, green, blue.
        fill: into Fill,
        /// Share of a rectangle's pixels in the mask that every class must stay below, above 0 to 1. The mask is the
        /// one at this place among the transforms: it is read at the pixels' centers through affine maps, and moved
        /// through other operations. Transforms that join samples must come after this one.
        max_class_share: f64 => Some,
        /// The value of a mask that is not a class. Default: 255.
        ignored: u16,
        /// Number of rectangles that are drawn after the first because of the classes, 1 to 1,000. Default: 10.
        tries: u32,
    }

    /// Whether a rectangle has several classes, and each in less than `most` of its pixels that have a class.
    fn is_mixed(&self, mask: &PlacedMask, rect: Rect, most: f64) -> bool {
        let mut counts = vec![0_u32; mask.values()];
        mask.each(rect, |value| counts[usize::from(value)] += 1);
        if let Some(ignored) = counts.get_mut(usize::from(self.ignored)) {
            *ignored = 0;
        }
        let classes = counts.iter().filter(|&&count| count > 0).count();
        let all: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        let largest = counts.into_iter().max().unwrap_or(0);
        classes > 1 && f64::from(largest) < most * all as f64
    }
}

impl RandomTransform for SegmentationCrop {
    fn validate(&self) -> Result<()> {
        sides(Self::NAME, self.size.width, self.size.height)?;
        within(Self::NAME, "tries", self.tries, 1..=MAX_TRIES)?;
        self.max_class_share.map_or(Ok(()), |share| within(Self::NAME, "max_class_share", share, ABOVE_0..=1.0))
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Becomes(self.size)
    }

    fn depends_on_annotations(&self) -> bool {
        self.max_class_share.is_some()
    }

    fn takes(&self, pixels: &PixelValues) -> Option<Result<()>> {
        self.fill.values().map_or(Some(Ok(())), |fill| Some(pixels.check(Self::NAME, "fill", fill)))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let input = recipe.size();
        let (width, height) = (input.width.min(self.size.width), input.height.min(self.size.height));
        let (along, down) = (input.width - width, input.height - height);
        let place = |rng: &mut SampleRng| {
            let y = rng.below(u64::from(down) + 1) as u32;
            Rect { x: rng.below(u64::from(along) + 1) as u32, y, width, height }
        };
        let cut = match self.max_class_share {
            None => place(recipe.start().0),
            Some(most) => {
                let mask = recipe.mask()?;
                let (rng, _) = recipe.start();
                let mut cut = place(rng);
                if let Some(mask) = mask {
                    for _ in 0..self.tries {
                        if self.is_mixed(&mask, cut, most) {
                            break;
                        }
                        cut = place(rng);
                    }
                }
                cut
            }
        };
        if cut.size() != input {
            recipe.push(Crop::new(cut.x as i32, cut.y as i32, cut.size()))?;
        }
        if cut.size() != self.size {
            let sides = [0, 0, self.size.width - width, self.size.height - height];
            recipe.push(Pad::sides(sides).fill(self.fill))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{Fields, Mask};
    use crate::ops::recipe::draw_recipe;
    use crate::ops::transform::{SampleInfo, Transform};
    use crate::ops::{Hflip, Op};
    use crate::rng::Pick;
    use crate::targets::Annotation;
    use std::sync::Arc;

    fn drawn(transforms: &[Transform], image: Size, mask: Option<Mask>, index: u64) -> Vec<Op> {
        let fields = mask.map(|mask| Arc::new(Fields::new().with("mask", mask).unwrap()));
        let annotation = Annotation { fields, ..Annotation::default() };
        let sample = SampleInfo::new(Pick { index, repetition: 0 }, image, &annotation);
        draw_recipe(&[], transforms, &mut SampleRng::for_sample(1, 0, index), sample, None).unwrap().ops
    }

    /// First columns of the crops that are drawn after `first`, in a mask whose last 10 of 40 columns are another
    /// class.
    fn columns(crop: &SegmentationCrop, first: Option<Transform>) -> Vec<i32> {
        let of = Size::new(40, 10);
        let classes: Vec<u8> = (0..400).map(|i| if i % 40 < 30 { 4 } else { 6 }).collect();
        let transforms: Vec<Transform> = first.into_iter().chain([crop.clone().into()]).collect();
        let of = |index| match drawn(&transforms, of, Mask::new(of, classes.clone()).ok(), index).last() {
            Some(Op::Crop(crop)) => crop.x,
            other => panic!("{other:?}"),
        };
        let mut columns: Vec<i32> = (0..300).map(of).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    #[test]
    fn smaller_images_are_padded_on_the_right_and_at_the_bottom() {
        let crop = SegmentationCrop::new(Size::new(20, 30)).fill([1, 2, 3]);
        let ops = |image| drawn(&[crop.clone().into()], image, None, 0);
        let padded: Op = Pad::sides([0, 0, 0, 5]).fill([1, 2, 3]).into();
        assert!(matches!(&ops(Size::new(26, 25))[..], [Op::Crop(cut), pad]
            if (0..=6).contains(&cut.x) && (cut.y, cut.width, cut.height) == (0, 20, 25) && *pad == padded));
        assert_eq!(ops(Size::new(20, 25)), [padded]);
        assert!(ops(Size::new(20, 30)).is_empty());
    }

    #[test]
    fn rectangles_with_too_much_of_a_class_are_drawn_again() {
        let all = SegmentationCrop::new(10);
        assert_eq!(columns(&all, None), (0..=30).collect::<Vec<_>>());
        // Below three quarters of a class are 3 to 7 of 10 columns of each.
        let mixed = all.clone().max_class_share(0.75).tries(1_000);
        assert_eq!(columns(&mixed, None), [23, 24, 25, 26, 27]);
        assert_eq!(columns(&mixed, Some(Hflip.into())), [3, 4, 5, 6, 7]);
        // No rectangle has two classes besides the ignored one, so the last of few is taken.
        let single = all.max_class_share(0.75).ignored(6).tries(2);
        assert_eq!(columns(&single, None), (0..=30).collect::<Vec<_>>());
    }

    /// After an operation that is not an affine map, the mask is the one that is delivered.
    #[test]
    fn classes_are_looked_at_where_other_operations_have_put_them() {
        let size = Size::new(40, 10);
        let values: Vec<u8> = (0..400).map(|i| u8::from(i % 40 >= 30)).collect();
        let fields = Fields::new().with("mask", Mask::new(size, values).unwrap()).unwrap();
        let annotation = Annotation { fields: Some(Arc::new(fields)), ..Annotation::default() };
        let crop = SegmentationCrop::new(10).max_class_share(0.75).tries(1_000);
        let narrowed = crate::ops::Perspective {
            startpoints: [[0.0, 0.0], [39.0, 0.0], [39.0, 9.0], [0.0, 9.0]],
            endpoints: [[0.0, 0.0], [19.0, 0.0], [19.0, 9.0], [0.0, 9.0]],
            interpolation: crate::ops::Interpolation::Bilinear,
            fill: Fill::BLACK,
            size: None,
        };
        let mut columns = std::collections::BTreeSet::new();
        for index in 0..40 {
            let sample = SampleInfo::new(Pick { index, repetition: 0 }, size, &annotation);
            let list = [narrowed.into(), crop.clone().into()];
            let drawn = draw_recipe(&[], &list, &mut SampleRng::for_sample(1, 0, index), sample, None).unwrap().ops;
            let Some(Op::Crop(crop)) = drawn.last() else { panic!("{drawn:?}") };
            columns.insert(crop.x);
        }
        // The second class has the columns from 15 to 19 now, and the pixels outside are of the first.
        assert!(columns.iter().all(|x| (8..=16).contains(x)) && columns.len() > 3, "{columns:?}");
    }
}
