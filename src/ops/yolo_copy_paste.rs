//! Copy-Paste of detectors of the YOLO family.

use super::check::within;
use super::recipe::RecipeBuilder;
use super::transform::{RandomTransform, SampleInfo};
use super::{CopyPaste, Hflip, KeepObjects, Op, Resize};
use crate::error::Result;
use crate::fields::{Boxes, Fields};
use serde::{Deserialize, Serialize};

/// An object is pasted if it covers less than this share of each box of the image.
const MOST_COVERED: f32 = 0.3;
/// Ultralytics adds this area to a box's before it divides by it.
const LEAST_AREA_PX: f32 = 1e-7;

/// Source of the objects of [`YoloCopyPaste`]: Ultralytics' `copy_paste_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CopyPasteMode {
    /// From the mirrored image.
    #[default]
    Flip,
    /// From another sample.
    Mixup,
}

/// Pastes objects over the image by their masks where they cover little of the existing objects: Ultralytics'
/// `CopyPaste`. A share of the objects that cover less than 0.3 of each box of the image is pasted, beginning with
/// those that cover least. Boxes of the image stay as they are, and masks lose the covered pixels. The sample must have
/// boxes and masks of objects among its fields. An image without objects stays as it is.
///
/// In the mode `Flip` the objects are the image's own, mirrored; the image is decoded a second time for them. In the
/// mode `Mixup` they are another sample's, after the transforms that come before this one in the pipeline, and the
/// share is also the probability that anything is pasted; if the other's size differs, it is resized to the image's.
///
/// ```
/// use warpfeed::ops::{CopyPasteMode, Transform, YoloCopyPaste};
///
/// let paste = Transform::from(YoloCopyPaste::new(0.5).mode(CopyPasteMode::Mixup));
/// assert_eq!(serde_json::to_string(&paste)?, r#"{"transform":"yolo_copy_paste","share":0.5,"mode":"mixup"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct YoloCopyPaste {
    share: f64,
    #[serde(default)]
    mode: CopyPasteMode,
}

impl YoloCopyPaste {
    /// Pastes this share, 0 to 1, of the mirrored objects that cover little: Ultralytics' `copy_paste`.
    #[must_use]
    pub const fn new(share: f64) -> Self {
        Self { share, mode: CopyPasteMode::Flip }
    }

    setters! {
        /// Source of the objects.
        mode: CopyPasteMode,
    }

    /// The numbers of the objects to paste, in rising order.
    fn choose(&self, pasted: &Boxes, own: &Boxes) -> Vec<u32> {
        let most = |[x1, y1, x2, y2]: [f32; 4]| {
            let shares = own.corners().map(|[left, top, right, bottom]| {
                let both = (x2.min(right) - x1.max(left)).max(0.0) * (y2.min(bottom) - y1.max(top)).max(0.0);
                both / ((right - left) * (bottom - top) + LEAST_AREA_PX)
            });
            shares.fold(0.0, f32::max)
        };
        let mut fit: Vec<(f32, u32)> = pasted.corners().map(most).zip(0..).collect();
        fit.retain(|(covered, _)| *covered < MOST_COVERED);
        fit.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        fit.truncate((self.share * fit.len() as f64).round_ties_even() as usize);
        let mut rows: Vec<u32> = fit.into_iter().map(|(_, row)| row).collect();
        rows.sort_unstable();
        rows
    }
}

impl RandomTransform for YoloCopyPaste {
    fn validate(&self) -> Result<()> {
        within(Self::NAME, "share", self.share, 0.0..=1.0)
    }

    fn depends_on_annotations(&self) -> bool {
        true
    }

    fn images(&self, before: u64) -> u64 {
        before.saturating_mul(2)
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let samples = recipe.partners(Self::NAME)?.samples();
        recipe.check_object_masks(Self::NAME)?;
        let (rng, SampleInfo { fields, size, .. }) = recipe.start_with_sample();
        let Some(own) = fields.and_then(Fields::boxes).filter(|boxes| !boxes.is_empty()).cloned() else {
            return Ok(());
        };
        let (mut part, objects, rows) = match self.mode {
            CopyPasteMode::Flip => {
                let mut mirrored = fields.cloned().unwrap_or_default();
                Op::from(Hflip).move_points(&mut mirrored, size)?;
                let rows = mirrored.boxes().map_or_else(Vec::new, |boxes| self.choose(boxes, &own));
                if rows.is_empty() {
                    return Ok(());
                }
                let mut part = recipe.own_part(Self::NAME)?;
                part.push(Hflip.into())?;
                (part, own.len(), rows)
            }
            CopyPasteMode::Mixup => {
                let (pastes, sample, mut rng) = (rng.chance(self.share), rng.below(samples), rng.fork());
                if !pastes {
                    return Ok(());
                }
                let mut part = recipe.partner(Self::NAME, sample, &mut rng)?;
                if part.size() != size {
                    part.push(Resize::new(size).into())?;
                }
                let Some(pasted) = part.fields().and_then(Fields::boxes) else { return Ok(()) };
                let (objects, rows) = (pasted.len(), self.choose(pasted, &own));
                (part, objects, rows)
            }
        };
        if rows.is_empty() {
            return Ok(());
        }
        if rows.len() < objects {
            part.push(KeepObjects::new(rows).into())?;
        }
        recipe.push(CopyPaste { part: part.at([0; 2]), margin: 0, refit: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::BoxFormat;

    #[test]
    fn objects_that_cover_little_are_chosen_those_that_cover_least_first() {
        let boxes = |rows: &[[f32; 4]]| Boxes::new(BoxFormat::Xyxy, rows.to_vec());
        let own = boxes(&[[0.0, 0.0, 10.0, 10.0], [20.0, 0.0, 22.0, 2.0]]);
        let pasted = boxes(&[
            [0.0, 0.0, 2.0, 10.0],
            [0.0, 0.0, 3.0, 10.0],
            [19.0, 1.0, 30.0, 1.5],
            [50.0, 50.0, 60.0, 60.0],
            [9.0, 9.0, 20.0, 20.0],
        ]);
        // Shares of the boxes: 0.2, 0.3, 0.25, 0 and 0.01.
        let chosen = |share| YoloCopyPaste::new(share).choose(&pasted, &own);
        assert_eq!(chosen(1.0), [0, 2, 3, 4]);
        assert_eq!(chosen(0.75), [0, 3, 4]);
        assert_eq!(chosen(0.5), [3, 4]);
        // Half of an object: Python rounds to the even number.
        assert_eq!((chosen(0.625), chosen(0.125), chosen(0.0)), (vec![3, 4], vec![], vec![]));
        assert_eq!(chosen(0.375), [3, 4], "1.5 objects are 2");
    }
}
