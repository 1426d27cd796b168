//! Fields of several samples on one canvas.

use super::region::Region;
use super::{DropRule, DroppedObjects, Field, Fields};
use crate::error::{Error, Result};
use crate::raster::Size;
use std::sync::Arc;

/// The image comes to a place of a canvas, and other samples, with their objects, to theirs.
#[derive(Debug, Clone)]
pub(crate) struct Join {
    /// First column and row of the image.
    pub(crate) at: [u32; 2],
    /// The fields of each other sample, and the first column and row of its image.
    pub(crate) others: Vec<(Arc<Fields>, [u32; 2])>,
    /// Pixels that show the other samples.
    pub(crate) shown: Shown,
}

/// Pixels that show the other samples.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shown {
    /// All pixels where their images lie.
    Covering,
    /// No pixel alone: images are blended.
    Blended,
    /// The pixels of their objects.
    Objects {
        /// Pixels around the objects, along each axis, that are shown too.
        margin: u32,
        /// Whether boxes of the image's own objects are fitted to their remaining masks, and objects without a mask are
        /// dropped.
        refit: bool,
    },
}

impl Join {
    /// Joins the fields of all samples on a canvas of size `canvas`. `dropped` counts objects that are covered.
    ///
    /// # Errors
    /// [`Error::Unfit`] if a field of another sample is missing, or is of another kind; [`Error::Limits`] if all
    /// objects' masks together are too large.
    pub(super) fn apply(&self, fields: &mut Fields, canvas: Size, dropped: &mut DroppedObjects) -> Result<()> {
        fields.fields_mut().try_for_each(|field| place(field, self.at, canvas))?;
        for (other, at) in &self.others {
            let region = match self.shown {
                Shown::Objects { margin, refit } => {
                    let region = Region::of_objects(other, margin);
                    region.inspect(|region| dropped.add(DropRule::Covered, cut_out(fields, region, refit)))
                }
                Shown::Covering | Shown::Blended => None,
            };
            for (name, field) in &mut fields.named {
                let joined = other.get(name).map(|other| self.add(field, other, *at, canvas, region.as_ref()));
                if !joined.transpose()?.unwrap_or(false) {
                    let cause = format!("the field {name} of several samples cannot be joined: they must be alike");
                    return Err(Error::unfit("fields", cause));
                }
            }
        }
        Ok(())
    }

    /// Adds a field of another sample. False if the two are of different kinds.
    fn add(
        &self,
        field: &mut Field,
        other: &Field,
        at: [u32; 2],
        canvas: Size,
        region: Option<&Region>,
    ) -> Result<bool> {
        let mut other = other.clone();
        if !matches!(&other, Field::Mask(mask) if !mask.is_of_objects()) {
            place(&mut other, at, canvas)?;
        }
        Ok(match (field, other) {
            (Field::Boxes(own), Field::Boxes(other)) => {
                own.append(&other);
                true
            }
            (Field::KeyPoints(own), Field::KeyPoints(other)) => own.append(&other),
            (Field::Mask(own), Field::Mask(other)) if own.is_of_objects() && other.is_of_objects() => {
                own.append(&other)?;
                true
            }
            (Field::Mask(own), Field::Mask(other)) if !own.is_of_objects() && !other.is_of_objects() => {
                match (self.shown, region) {
                    (Shown::Covering, _) => own.paste(&other, at),
                    (Shown::Objects { .. }, Some(region)) => own.paste_region(&other, region),
                    _ => false,
                }
            }
            (Field::Integers(own), Field::Integers(other)) => {
                own.extend(other);
                true
            }
            (Field::Floats(own), Field::Floats(other)) => {
                own.extend(other);
                true
            }
            _ => false,
        })
    }
}

/// Takes the pixels of a region from all objects. Returns the number of objects that go.
fn cut_out(fields: &mut Fields, region: &Region, refit: bool) -> usize {
    let is_masks = |field: &&mut Field| matches!(field, Field::Mask(mask) if mask.is_of_objects());
    let Some(Field::Mask(masks)) = fields.fields_mut().find(is_masks) else { return 0 };
    let left = masks.cut_out(region);
    if !refit {
        return 0;
    }
    if let Some(boxes) = fields.boxes_mut() {
        boxes.refit(&left);
    }
    fields.keep(&left.iter().map(Option::is_some).collect::<Vec<_>>())
}

/// Puts a field at a place of a canvas.
fn place(field: &mut Field, at: [u32; 2], canvas: Size) -> Result<()> {
    match field {
        Field::Boxes(boxes) => boxes.shift(at.map(|px| px as f32)),
        Field::KeyPoints(points) => points.shift(at.map(|px| px as f32)),
        Field::Mask(mask) if mask.size() != canvas => *mask = mask.placed(canvas, at)?,
        Field::Mask(_) | Field::Image(_) | Field::Integers(_) | Field::Floats(_) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{BOXES, BoxFormat, Boxes, KEYPOINTS, KeyPoints, LABELS, MASK, MASKS, Mask, MaskValues};

    fn sample(label: i64, value: u8) -> Fields {
        let (size, object) = (Size::new(2, 1), vec![0, 1]);
        let boxes = Boxes::new(BoxFormat::Xywh, vec![[1.0, 0.0, 1.0, 1.0]]);
        Fields::new()
            .with(BOXES, boxes)
            .and_then(|fields| fields.with(LABELS, vec![label]))
            .and_then(|fields| fields.with(MASKS, Mask::of_objects(size, [object]).unwrap()))
            .and_then(|fields| fields.with(MASK, Mask::new(size, vec![value; 2]).unwrap().with_fill(9)))
            .and_then(|fields| fields.with(KEYPOINTS, KeyPoints::of_objects(1, vec![[0.5, 0.5]], vec![2]).unwrap()))
            .unwrap()
    }

    #[test]
    fn all_fields_come_to_their_places() {
        let (mut fields, other) = (sample(3, 1), Arc::new(sample(4, 2)));
        let mut join = Join { at: [1, 0], others: vec![(Arc::clone(&other), [0, 1])], shown: Shown::Covering };
        join.apply(&mut fields, Size::new(3, 2), &mut DroppedObjects::default()).unwrap();
        assert_eq!(fields.boxes().unwrap().rows(), [[2.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]);
        assert_eq!(fields.get(LABELS), Some(&Field::Integers(vec![3, 4])));
        let planes = |name: &str| match fields.get(name) {
            Some(Field::Mask(mask)) => mask.planes().iter().map(|plane| (**plane).clone()).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(planes(MASKS), [MaskValues::U8(vec![0, 0, 1, 0, 0, 0]), MaskValues::U8(vec![0, 0, 0, 0, 1, 0])]);
        assert_eq!(planes(MASK), [MaskValues::U8(vec![9, 1, 1, 2, 2, 9])]);
        let Some(Field::KeyPoints(points)) = fields.get(KEYPOINTS) else { panic!("{fields:?}") };
        assert_eq!(points.points(), [[1.5, 0.5], [0.5, 1.5]]);
        // No pixel of the mask of a blended image is one sample's alone.
        join.shown = Shown::Blended;
        let apply = |join: &Join| join.apply(&mut sample(3, 1), Size::new(3, 2), &mut DroppedObjects::default());
        assert!(apply(&join).unwrap_err().is_bad_sample());
        let poorer = Fields::new().with(BOXES, Boxes::new(BoxFormat::Xyxy, Vec::new())).unwrap();
        join.others = vec![(Arc::new(poorer), [0, 0])];
        assert!(apply(&join).unwrap_err().to_string().contains(LABELS));
    }

    #[test]
    fn pasted_objects_cut_those_below() {
        let canvas = Size::new(4, 1);
        let made = |rows: &[[f32; 4]], planes: &[[u8; 4]], labels: &[i64], values: [u8; 4]| {
            Fields::new()
                .with(BOXES, Boxes::new(BoxFormat::Xyxy, rows.to_vec()))
                .and_then(|fields| fields.with(LABELS, labels.to_vec()))
                .and_then(|fields| fields.with(MASKS, Mask::of_objects(canvas, planes.iter().map(|p| p.to_vec()))?))
                .and_then(|fields| fields.with(MASK, Mask::new(canvas, values.to_vec())?))
                .unwrap()
        };
        let own = || {
            let rows = [[0.0, 0.0, 3.5, 1.0], [2.0, 0.0, 3.0, 1.0]];
            made(&rows, &[[1, 1, 1, 0], [0, 0, 1, 0]], &[5, 6], [5, 5, 6, 0])
        };
        let other = made(&[[2.0, 0.0, 3.0, 1.0]], &[[0, 0, 1, 0]], &[7], [8, 8, 7, 8]);
        let joined = |margin, refit| {
            let (mut fields, others) = (own(), vec![(Arc::new(other.clone()), [0; 2])]);
            let join = Join { at: [0; 2], others, shown: Shown::Objects { margin, refit } };
            let mut dropped = DroppedObjects::default();
            join.apply(&mut fields, canvas, &mut dropped).unwrap();
            assert_eq!(dropped.total(), u64::from(refit), "{dropped:?}");
            fields
        };
        let rows = [[0.0, 0.0, 2.0, 1.0], [2.0, 0.0, 3.0, 1.0]];
        assert_eq!(joined(0, true), made(&rows, &[[1, 1, 0, 0], [0, 0, 1, 0]], &[5, 7], [5, 5, 7, 0]));
        // The margin shows the other image, and belongs to no object.
        let rows = [[0.0, 0.0, 1.0, 1.0], [2.0, 0.0, 3.0, 1.0]];
        assert_eq!(joined(1, true), made(&rows, &[[1, 0, 0, 0], [0, 0, 1, 0]], &[5, 7], [5, 8, 7, 8]));
        let rows = [[0.0, 0.0, 3.5, 1.0], [2.0, 0.0, 3.0, 1.0], [2.0, 0.0, 3.0, 1.0]];
        let planes = [[1, 1, 0, 0], [0; 4], [0, 0, 1, 0]];
        assert_eq!(joined(0, false), made(&rows, &planes, &[5, 6, 7], [5, 5, 7, 0]));
    }
}
