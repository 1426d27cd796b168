//! DALI's random crop by the overlap of boxes.

use super::check::{ABOVE_0, range, within};
use super::crop_search::{CropSearch, has_center, ious, shares_inside};
use super::keep_objects::KeepObjects;
use super::recipe::RecipeBuilder;
use super::select_objects::SelectObjects;
use super::transform::{RandomTransform, SampleInfo};
use super::values::PixelValues;
use super::{Crop, Op, SampleRng, SizeEffect};
use crate::error::{Error, Result};
use crate::fields::Boxes;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Largest number of rectangles for a threshold.
const MAX_ATTEMPTS: u32 = 1_000;
/// Rectangles after which the image stays as it is. DALI's `total_num_attempts` has no end unless it is set.
const MAX_RECTANGLES: u32 = 10_000;

/// Cuts out a random rectangle that boxes overlap enough: DALI's `random_bbox_crop`, followed by its `slice`. Objects
/// with their centers outside are dropped ([`SelectObjects`]), or by [`prune`](Self::prune), and the others' boxes are
/// cut.
///
/// A threshold is drawn, or no crop if [`allow_no_crop`](Self::allow_no_crop) says so, all equally likely; then up to
/// [`attempts`](Self::attempts) rectangles. One is taken if its aspect is right, if all boxes, or one of them, overlap
/// it by the threshold, and if an object stays. Otherwise another threshold is drawn, until 10,000 rectangles were
/// drawn; after that the image stays as it is, and so does an image without boxes. DALI draws for ever in both cases,
/// unless `total_num_attempts` ends it. Rectangles have whole pixels before boxes are compared with them, so that boxes
/// stay with the pixels; DALI compares shares and rounds afterwards.
///
/// ```
/// use warpfeed::ops::{RandomBboxCrop, Transform};
///
/// let ssd = RandomBboxCrop::new([0.0, 0.1, 0.3, 0.5, 0.7, 0.9]).scaling(0.3..=1.0).aspect_ratio(0.5..=2.0);
/// Transform::from(ssd.attempts(50).all_boxes(false)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomBboxCrop {
    thresholds: Vec<f64>,
    #[serde(with = "super::written::range", default = "only_1")]
    scaling: RangeInclusive<f64>,
    #[serde(with = "super::written::range", default = "only_1")]
    aspect_ratio: RangeInclusive<f64>,
    #[serde(default = "one")]
    attempts: u32,
    #[serde(default = "yes")]
    all_boxes: bool,
    #[serde(default = "yes")]
    allow_no_crop: bool,
    #[serde(default)]
    overlap: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prune: Option<f64>,
}

const fn only_1() -> RangeInclusive<f64> {
    1.0..=1.0
}

const fn one() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

impl RandomBboxCrop {
    /// Least intersections over union, and DALI's defaults: rectangles of the image's size and aspect, one attempt, for
    /// all boxes, or no crop.
    #[must_use]
    pub fn new(thresholds: impl IntoIterator<Item = f64>) -> Self {
        Self {
            thresholds: thresholds.into_iter().collect(),
            scaling: only_1(),
            aspect_ratio: only_1(),
            attempts: one(),
            all_boxes: yes(),
            allow_no_crop: yes(),
            overlap: false,
            prune: None,
        }
    }

    setters! {
        /// Share of the image's sides, uniform in the range for each side. The range lies within 0 to 1.
        scaling: RangeInclusive<f64>,
        /// Width over height, both as shares of the image's sides: 1 is the image's own aspect. If the range is a
        /// single number, the shorter side is made to fit the longer one; otherwise rectangles outside of it are not
        /// taken.
        aspect_ratio: RangeInclusive<f64>,
        /// Rectangles for a threshold, 1 to 1,000: DALI's `num_attempts`.
        attempts: u32,
        /// Whether all boxes must overlap by the threshold. With false one must. DALI's `all_boxes_above_threshold`.
        all_boxes: bool,
        /// Whether the image may stay as it is, as if that were one more threshold.
        allow_no_crop: bool,
        /// Whether thresholds are shares of a box's area that lie inside the rectangle (DALI's `threshold_type`
        /// "overlap"), and not intersections over union.
        overlap: bool,
        /// Least share of a box's area inside the rectangle by which its object stays, 0 to 1, wherever its center is:
        /// DALI's `bbox_prune_threshold`.
        prune: f64 => Some,
    }

    /// A rectangle of whole pixels; `None` if its aspect is not allowed.
    fn rect(&self, rng: &mut SampleRng, Size { width, height }: Size) -> Option<Rect> {
        let mut side = || rng.uniform(*self.scaling.start(), *self.scaling.end());
        let (mut w, mut h) = (side(), side());
        let (low, high) = (*self.aspect_ratio.start(), *self.aspect_ratio.end());
        if low == high {
            let longer = w.max(h);
            (w, h) = if low > 1.0 { (longer, longer / low) } else { (longer * low, longer) };
        } else if !self.aspect_ratio.contains(&(w / h)) {
            return None;
        }
        let mut edges = |share: f64, whole: u32| {
            let first = rng.uniform(0.0, 1.0 - share);
            [first, first + share].map(|edge| ((edge * f64::from(whole)).round() as u32).min(whole))
        };
        let ([left, right], [top, bottom]) = (edges(w, width), edges(h, height));
        let rect = Rect { x: left, y: top, width: right - left, height: bottom - top };
        (!rect.size().is_empty()).then_some(rect)
    }

    /// Whether a crop is taken.
    fn is_accepted(&self, boxes: &Boxes, crop: Rect, threshold: f32) -> bool {
        let shares: Vec<f32> =
            if self.overlap { shares_inside(boxes, crop).collect() } else { ious(boxes, crop).collect() };
        let is_enough = |share: &f32| *share >= threshold;
        let overlaps = if self.all_boxes { shares.iter().all(is_enough) } else { shares.iter().any(is_enough) };
        overlaps && self.kept(boxes, crop).map_or_else(|| has_center(boxes, crop), |kept| !kept.rows.is_empty())
    }

    /// The objects that stay by their share inside a crop; `None` if their centers decide.
    fn kept(&self, boxes: &Boxes, crop: Rect) -> Option<KeepObjects> {
        let least = self.prune? as f32;
        Some(KeepObjects::those(shares_inside(boxes, crop).map(|share| share >= least)))
    }
}

impl RandomTransform for RandomBboxCrop {
    fn validate(&self) -> Result<()> {
        range(Self::NAME, "scaling", &self.scaling, ABOVE_0, 1.0)?;
        range(Self::NAME, "aspect_ratio", &self.aspect_ratio, ABOVE_0, f64::INFINITY)?;
        within(Self::NAME, "attempts", self.attempts, 1..=MAX_ATTEMPTS)?;
        self.prune.map_or(Ok(()), |prune| within(Self::NAME, "prune", prune, 0.0..=1.0))?;
        if self.thresholds.is_empty() || !self.thresholds.iter().all(|threshold| (0.0..=1.0).contains(threshold)) {
            let got = format!("{:?}", self.thresholds);
            return Err(Error::parameter(Self::NAME, "thresholds", "overlaps of 0 to 1, at least one", got));
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
        let no_crop = self.allow_no_crop.then_some(None);
        let options: Vec<_> = self.thresholds.iter().copied().map(Some).chain(no_crop).collect();
        let rounds = MAX_RECTANGLES / self.attempts;
        let search = CropSearch { options: &options, trials: self.attempts, rounds };
        let takes = |crop, threshold| self.is_accepted(boxes, crop, threshold);
        let Some(crop) = search.find(rng, |rng| self.rect(rng, size), takes) else { return Ok(()) };
        let centered = || Op::from(SelectObjects::centered_in(crop));
        let selected = self.kept(boxes, crop).map_or_else(centered, Op::from);
        recipe.push(selected)?;
        recipe.push(Crop::new(crop.x as i32, crop.y as i32, crop.size()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{BoxFormat, Fields};
    use crate::ops::crop_search::drawn_for;

    const SIZE: Size = Size::new(100, 80);

    fn boxes(rows: &[[f32; 4]]) -> Boxes {
        Boxes::new(BoxFormat::Xyxy, rows.to_vec())
    }

    #[test]
    fn all_boxes_or_one_overlap_by_either_measure() {
        let crop = Rect { x: 0, y: 0, width: 10, height: 10 };
        // Half of the first box is inside, and half of the union; a quarter of the second, and a fiftieth.
        let two = boxes(&[[0.0, 0.0, 10.0, 20.0], [8.0, 9.0, 12.0, 11.0]]);
        let all = RandomBboxCrop::new([0.0]);
        let any = all.clone().all_boxes(false);
        // No center is strictly inside; by their shares objects stay.
        assert!(!all.is_accepted(&two, crop, 0.0));
        let (all, any) = (all.prune(0.25), any.prune(0.25));
        assert!(all.is_accepted(&two, crop, 0.01) && !all.is_accepted(&two, crop, 0.1));
        assert!(any.is_accepted(&two, crop, 0.5) && !any.is_accepted(&two, crop, 0.51));
        let (all, any) = (all.overlap(true), any.overlap(true));
        assert!(all.is_accepted(&two, crop, 0.25) && !all.is_accepted(&two, crop, 0.26));
        assert!(any.is_accepted(&two, crop, 0.5) && !any.is_accepted(&two, crop, 0.51));
        assert_eq!(any.kept(&two, crop), Some(KeepObjects::new([0, 1])));
        assert_eq!(any.clone().prune(0.3).kept(&two, crop), Some(KeepObjects::new([0])));
        assert!(!any.prune(0.6).is_accepted(&two, crop, 0.0), "no object stays");
    }

    /// Means over 20,480 draws of DALI 2.4 for these boxes, in shares of the sides: images left whole, and of the
    /// others width, height, left, top, and the number of objects that stay. Ours are over 3,000 draws; the bounds are
    /// five standard errors of both or more.
    #[test]
    fn draws_are_distributed_as_dalis() {
        let new = |thresholds: &[f64]| RandomBboxCrop::new(thresholds.iter().copied()).scaling(0.3..=1.0);
        let ssd = new(&[0.0, 0.1, 0.3, 0.5, 0.7, 0.9]).aspect_ratio(0.5..=2.0).attempts(50);
        let any = new(&[0.0, 0.1, 0.3, 0.5]).aspect_ratio(0.5..=2.0).all_boxes(false).allow_no_crop(false);
        let narrow = new(&[0.05]).aspect_ratio(0.5..=0.5).attempts(5);
        let pruned = new(&[0.0]).scaling(0.3..=0.6).aspect_ratio(0.5..=2.0).attempts(3).allow_no_crop(false).prune(0.4);
        let overlap = new(&[0.6]).aspect_ratio(0.5..=2.0).attempts(3).allow_no_crop(false).overlap(true);
        let dali = [
            (ssd, [0.3511, 0.7271, 0.7117, 0.1423, 0.1572, 1.6456]),
            (any, [0.0, 0.6615, 0.66, 0.1562, 0.17, 1.3981]),
            (new(&[0.1]).attempts(5), [0.5034, 0.833, 0.833, 0.0922, 0.091, 1.9442]),
            (narrow, [0.6108, 0.4462, 0.8925, 0.3264, 0.0548, 1.0565]),
            (pruned, [0.0, 0.4636, 0.4677, 0.2488, 0.2732, 1.0195]),
            (overlap, [0.0, 0.8393, 0.8073, 0.0877, 0.1132, 2.0]),
        ];
        let (size, rows) = (Size::new(1_000, 1_000), [[100.0, 200.0, 500.0, 600.0], [600.0, 500.0, 900.0, 950.0]]);
        for (transform, want) in dali {
            let (mut cut, mut sums) = (0, [0.0; 5]);
            for index in 0..3_000 {
                let ops = drawn_for(transform.clone(), size, &rows, index);
                let Some(Op::Crop(crop)) = ops.last() else { continue };
                let mut fields = Fields::new().with("boxes", boxes(&rows)).unwrap();
                ops[0].move_points(&mut fields, size).unwrap();
                let places = [crop.width as f64, crop.height as f64, crop.x.into(), crop.y.into()];
                let drawn = places.map(|px: f64| px / 1_000.0).into_iter().chain([fields.objects() as f64]);
                sums.iter_mut().zip(drawn).for_each(|(sum, drawn)| *sum += drawn);
                cut += 1;
            }
            let got = [1.0 - f64::from(cut) / 3_000.0].into_iter().chain(sums.map(|sum| sum / f64::from(cut)));
            for ((got, want), bound) in got.zip(want).zip([0.05, 0.03, 0.03, 0.03, 0.03, 0.08]) {
                assert!((got - want).abs() <= bound, "{transform:?}: {got} {want}");
            }
        }
    }

    #[test]
    fn images_without_boxes_stay_and_searches_end() {
        let crop = RandomBboxCrop::new([0.5]).allow_no_crop(false);
        assert!(drawn_for(crop.clone(), SIZE, &[], 0).is_empty());
        assert!(drawn_for(crop, SIZE, &[[200.0, 200.0, 210.0, 210.0]], 0).is_empty());
    }
}
