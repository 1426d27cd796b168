//! A random crop that overlaps every object enough, as in MMDetection's SSD.

use super::check::{ABOVE_0, within};
use super::crop_search::{CropSearch, has_center, ious};
use super::recipe::RecipeBuilder;
use super::select_objects::SelectObjects;
use super::transform::{RandomTransform, SampleInfo};
use super::values::PixelValues;
use super::{Crop, SampleRng, SizeEffect};
use crate::error::{Error, Result};
use crate::fields::Boxes;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Rectangles for a least overlap, as in MMDetection.
const TRIALS: u32 = 50;
/// Least overlaps that are drawn, after which the image stays as it is. MMDetection's loop has no end.
const MAX_ROUNDS: u32 = 50;

/// Cuts out a random rectangle that overlaps every object enough: MMDetection's `MinIoURandomCrop`. Objects with their
/// centers outside are dropped ([`SelectObjects`]), and the others' boxes are cut.
///
/// A least overlap is drawn: one of [`new`](Self::new)'s, 0, or "as it is". Then up to 50 rectangles are drawn, with
/// sides of [`min_side`](Self::min_side) to 1 of the image's and a width of half to twice the height. The first is
/// taken whose intersection over union with every box is the overlap or more, if the center of a box lies inside. If
/// none is taken, another overlap is drawn, up to 50 times; after that the image stays as it is. An image without boxes
/// stays as it is; MMDetection crops it too. [`RandomIouCrop`](super::RandomIouCrop), torchvision's, asks for the
/// overlap of one box.
///
/// ```
/// use warpfeed::ops::{MinIouCrop, Transform};
///
/// Transform::from(MinIouCrop::new([0.1, 0.3, 0.5, 0.7, 0.9]).min_side(0.3)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MinIouCrop {
    min_ious: Vec<f64>,
    #[serde(default = "usual_side")]
    min_side: f64,
}

const fn usual_side() -> f64 {
    0.3
}

impl MinIouCrop {
    /// Least intersections over union, in addition to 0 and to leaving the image as it is; 1 leaves the image as it is,
    /// too. MMDetection's are 0.1, 0.3, 0.5, 0.7 and 0.9.
    #[must_use]
    pub fn new(min_ious: impl IntoIterator<Item = f64>) -> Self {
        Self { min_ious: min_ious.into_iter().collect(), min_side: usual_side() }
    }

    setters! {
        /// Least share of the image's sides, above 0 to 1. Default: 0.3.
        min_side: f64,
    }

    /// A rectangle with MMDetection's rounding; `None` if its aspect is not allowed.
    fn rect(&self, rng: &mut SampleRng, Size { width, height }: Size) -> Option<Rect> {
        let [whole_width, whole_height] = [width, height].map(f64::from);
        let mut side = |whole: f64| rng.uniform(self.min_side * whole, whole);
        let (w, h) = (side(whole_width), side(whole_height));
        let (x, y) = (rng.uniform(0.0, whole_width - w), rng.uniform(0.0, whole_height - h));
        let [left, top, right, bottom] = [x, y, x + w, y + h].map(|edge| edge as u32);
        let rect = Rect { x: left, y: top, width: right.min(width) - left, height: bottom.min(height) - top };
        (!rect.size().is_empty() && (0.5..=2.0).contains(&(h / w))).then_some(rect)
    }
}

/// Whether a crop is taken.
fn is_accepted(boxes: &Boxes, crop: Rect, min_iou: f32) -> bool {
    ious(boxes, crop).all(|iou| iou >= min_iou) && has_center(boxes, crop)
}

impl RandomTransform for MinIouCrop {
    fn validate(&self) -> Result<()> {
        within(Self::NAME, "min_side", self.min_side, ABOVE_0..=1.0)?;
        if !self.min_ious.iter().all(|iou| (0.0..=1.0).contains(iou)) {
            let got = format!("{:?}", self.min_ious);
            return Err(Error::parameter(Self::NAME, "min_ious", "overlaps of 0 to 1", got));
        }
        Ok(())
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Varies
    }

    fn depends_on_annotations(&self) -> bool {
        true
    }

    fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, SampleInfo { fields, size, .. }) = recipe.start_with_sample();
        let Some(boxes) = fields.and_then(|fields| fields.boxes()).filter(|boxes| !boxes.is_empty()) else {
            return Ok(());
        };
        let given = self.min_ious.iter().map(|iou| (*iou < 1.0).then_some(*iou));
        let options: Vec<_> = [None, Some(0.0)].into_iter().chain(given).collect();
        let search = CropSearch { options: &options, trials: TRIALS, rounds: MAX_ROUNDS };
        let found = search.find(rng, |rng| self.rect(rng, size), |crop, least| is_accepted(boxes, crop, least));
        let Some(crop) = found else { return Ok(()) };
        recipe.push(SelectObjects::centered_in(crop))?;
        recipe.push(Crop::new(crop.x as i32, crop.y as i32, crop.size()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::BoxFormat;
    use crate::ops::Op;
    use crate::ops::crop_search::drawn_for;

    #[test]
    fn every_box_needs_the_overlap_and_one_its_center() {
        let boxes = |rows: &[[f32; 4]]| Boxes::new(BoxFormat::Xyxy, rows.to_vec());
        let crop = Rect { x: 0, y: 0, width: 10, height: 10 };
        // Intersection 50, union 100.
        let half = [0.0, 0.0, 5.0, 10.0];
        assert!(is_accepted(&boxes(&[half]), crop, 0.5) && !is_accepted(&boxes(&[half]), crop, 0.51));
        let outside = [20.0, 20.0, 25.0, 25.0];
        assert!(is_accepted(&boxes(&[half, outside]), crop, 0.0) && !is_accepted(&boxes(&[half, outside]), crop, 0.1));
        // No center is inside.
        assert!(!is_accepted(&boxes(&[outside]), crop, 0.0));
    }

    #[test]
    fn searches_end_and_take_what_the_rule_allows() {
        let size = Size::new(100, 80);
        let ops = |rows: &[[f32; 4]], index| drawn_for(MinIouCrop::new([0.9]), size, rows, index);
        assert!((0..20).all(|index| ops(&[], index).is_empty()));
        // No rectangle has the center of a box outside the image.
        assert!((0..20).all(|index| ops(&[[200.0, 200.0, 210.0, 210.0]], index).is_empty()));
        // A box as large as the image. One of three overlaps leaves it as it is; with 0 a rectangle with the center
        // inside is soon found; with 0.9 one of 50 rectangles rarely is, and another overlap is drawn. So about half
        // stays.
        let (mut kept, mut least) = (0, 1.0_f64);
        for index in 0..400 {
            match &ops(&[[0.0, 0.0, 100.0, 80.0]], index)[..] {
                [] => kept += 1,
                [Op::SelectObjects(inside), Op::Crop(crop)] => {
                    assert_eq!((inside.x as i32, inside.y as i32, inside.width), (crop.x, crop.y, crop.width));
                    assert!((29..=100).contains(&crop.width) && (23..=80).contains(&crop.height), "{crop:?}");
                    least = least.min(f64::from(crop.width * crop.height) / 8_000.0);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!((100..=300).contains(&kept) && least < 0.5, "{kept} {least}");
    }
}
