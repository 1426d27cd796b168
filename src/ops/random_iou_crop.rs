//! A random crop that shows enough of an object, for SSD.

use super::check::{ABOVE_0, range, within};
use super::crop_search::{CropSearch, ious};
use super::recipe::RecipeBuilder;
use super::select_objects::SelectObjects;
use super::transform::{RandomTransform, SampleInfo};
use super::values::PixelValues;
use super::{Crop, SampleRng, SizeEffect};
use crate::error::{Error, Result};
use crate::fields::Boxes;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Rounds of drawing a least overlap and trying crops for it, after which the image stays as it is. torchvision's loop
/// has no end.
const MAX_ROUNDS: u32 = 50;
/// Largest number of crops that are tried in a round.
const MAX_TRIALS: u32 = 1_000;

/// Cuts out a random rectangle that overlaps at least one object enough: torchvision's `RandomIoUCrop`. Objects with
/// their centers outside are dropped ([`SelectObjects`]), and the others' boxes are cut.
///
/// A least overlap is drawn from [`options`](Self::options); 1 or more leaves the image as it is. Then up to
/// [`trials`](Self::trials) rectangles are drawn. The first is taken that contains the center of a box, if one of these
/// boxes has at least the drawn intersection over union with it. If none is taken, another overlap is drawn, up to 50
/// times; after that the image stays as it is. An image without boxes stays as it is.
///
/// ```
/// use warpfeed::ops::{RandomIouCrop, Transform};
///
/// Transform::from(RandomIouCrop::new().scale(0.5..=1.0).trials(20)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomIouCrop {
    #[serde(with = "super::written::range", default = "usual_scale")]
    scale: RangeInclusive<f64>,
    #[serde(with = "super::written::range", default = "usual_aspect")]
    aspect: RangeInclusive<f64>,
    #[serde(default = "usual_options")]
    options: Vec<f64>,
    #[serde(default = "usual_trials")]
    trials: u32,
}

const fn usual_scale() -> RangeInclusive<f64> {
    0.3..=1.0
}

const fn usual_aspect() -> RangeInclusive<f64> {
    0.5..=2.0
}

fn usual_options() -> Vec<f64> {
    vec![0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
}

const fn usual_trials() -> u32 {
    40
}

impl Default for RandomIouCrop {
    fn default() -> Self {
        Self::new()
    }
}

impl RandomIouCrop {
    /// torchvision's defaults: sides of 0.3 to 1 of the image's, an aspect of 0.5 to 2, overlaps of 0, 0.1, 0.3, 0.5,
    /// 0.7, 0.9 and 1, and 40 trials.
    #[must_use]
    pub fn new() -> Self {
        Self { scale: usual_scale(), aspect: usual_aspect(), options: usual_options(), trials: usual_trials() }
    }

    setters! {
        /// Share of the image's sides, uniform in the range for each side. The range lies within 0 to 1.
        scale: RangeInclusive<f64>,
        /// Width over height that a rectangle must have.
        aspect: RangeInclusive<f64>,
        /// Number of rectangles that are tried for an overlap, 1 to 1,000.
        trials: u32,
    }

    /// Least intersections over union, one of them drawn for each sample; 1 or more leaves the image as it is.
    #[must_use]
    pub fn options(mut self, options: impl IntoIterator<Item = f64>) -> Self {
        self.options = options.into_iter().collect();
        self
    }

    /// A rectangle with torchvision's rounding; `None` if its aspect is not allowed.
    fn rect(&self, rng: &mut SampleRng, Size { width, height }: Size) -> Option<Rect> {
        let (low, high) = (*self.scale.start(), *self.scale.end());
        let mut side = |whole: u32| (f64::from(whole) * (low + (high - low) * rng.unit())) as u32;
        let (w, h) = (side(width), side(height));
        let (x, y) = (f64::from(width - w) * rng.unit(), f64::from(height - h) * rng.unit());
        let rect = Rect { x: x as u32, y: y as u32, width: w, height: h };
        (!rect.size().is_empty() && self.aspect.contains(&(f64::from(w) / f64::from(h)))).then_some(rect)
    }
}

/// Whether a crop is taken: the center of a box lies strictly inside, and one of these boxes overlaps the crop by
/// `min_iou` at least.
fn is_accepted(boxes: &Boxes, crop: Rect, min_iou: f32) -> bool {
    ious(boxes, crop).zip(boxes.centers_inside(crop)).any(|(iou, inside)| inside && iou >= min_iou)
}

impl RandomTransform for RandomIouCrop {
    fn validate(&self) -> Result<()> {
        range(Self::NAME, "scale", &self.scale, ABOVE_0, 1.0)?;
        range(Self::NAME, "aspect", &self.aspect, ABOVE_0, f64::INFINITY)?;
        within(Self::NAME, "trials", self.trials, 1..=MAX_TRIALS)?;
        if self.options.is_empty() || !self.options.iter().all(|option| *option >= 0.0) {
            let got = format!("{:?}", self.options);
            return Err(Error::parameter(Self::NAME, "options", "overlaps of 0 or more, at least one", got));
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
        let options: Vec<_> = self.options.iter().map(|option| (*option < 1.0).then_some(*option)).collect();
        let search = CropSearch { options: &options, trials: self.trials, rounds: MAX_ROUNDS };
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

    #[test]
    fn a_crop_needs_a_center_inside_and_the_overlap_of_that_box() {
        let boxes = |rows: &[[f32; 4]]| Boxes::new(BoxFormat::Xyxy, rows.to_vec());
        let crop = Rect { x: 0, y: 0, width: 10, height: 10 };
        // Intersection 50, union 100.
        let half = [0.0, 0.0, 5.0, 10.0];
        assert!(is_accepted(&boxes(&[half]), crop, 0.5));
        assert!(!is_accepted(&boxes(&[half]), crop, 0.51));
        // The center is on the edge.
        assert!(!is_accepted(&boxes(&[[5.0, 0.0, 15.0, 10.0]]), crop, 0.0));
        // The box that overlaps most has its center outside.
        assert!(!is_accepted(&boxes(&[[0.0, 0.0, 21.0, 10.0], [4.0, 4.0, 5.0, 5.0]]), crop, 0.1));
        assert!(!is_accepted(&boxes(&[]), crop, 0.0));
    }

    #[test]
    #[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
    fn shared_crops_are_accepted_as_by_torchvision() {
        #[derive(Deserialize)]
        struct Case {
            boxes: Vec<[f32; 4]>,
            crop: [u32; 4],
            min_iou: f32,
            accepted: bool,
        }
        let cases: Vec<Case> = crate::ops::tests::reference::lines("iou_crops.jsonl");
        for (number, Case { boxes, crop: [x, y, width, height], min_iou, accepted }) in cases.iter().enumerate() {
            let crop = Rect { x: *x, y: *y, width: *width, height: *height };
            let boxes = Boxes::new(BoxFormat::Xyxy, boxes.clone());
            assert_eq!(is_accepted(&boxes, crop, *min_iou), *accepted, "line {number}");
        }
        assert!(cases.iter().any(|case| case.accepted) && cases.iter().any(|case| !case.accepted));
    }
}
