//! Fields of several samples on one canvas.

use super::{Field, Fields};
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
    /// Whether images are blended, so that no pixel of a mask is one sample's alone.
    pub(crate) blended: bool,
}

impl Join {
    /// Joins the fields of all samples on a canvas of size `canvas`.
    ///
    /// # Errors
    /// [`Error::Unfit`] if a field of another sample is missing, or is of another kind.
    pub(super) fn apply(&self, fields: &mut Fields, canvas: Size) -> Result<()> {
        fields.fields_mut().for_each(|field| place(field, self.at, canvas));
        for (other, at) in &self.others {
            for (name, field) in &mut fields.named {
                let joined = other.get(name).is_some_and(|other| self.add(field, other, *at, canvas));
                if !joined {
                    let cause = format!("the field {name} of several samples cannot be joined: they must be alike");
                    return Err(Error::unfit("fields", cause));
                }
            }
        }
        Ok(())
    }

    /// Adds a field of another sample. False if the two are of different kinds.
    fn add(&self, field: &mut Field, other: &Field, at: [u32; 2], canvas: Size) -> bool {
        let mut other = other.clone();
        if !matches!(&other, Field::Mask(mask) if !mask.is_of_objects()) {
            place(&mut other, at, canvas);
        }
        match (field, other) {
            (Field::Boxes(own), Field::Boxes(other)) => {
                own.append(&other);
                true
            }
            (Field::KeyPoints(own), Field::KeyPoints(other)) => own.append(&other),
            (Field::Mask(own), Field::Mask(other)) if own.is_of_objects() && other.is_of_objects() => {
                own.append(&other);
                true
            }
            (Field::Mask(own), Field::Mask(other)) if !own.is_of_objects() && !other.is_of_objects() => {
                !self.blended && own.paste(&other, at)
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
        }
    }
}

/// Puts a field at a place of a canvas.
fn place(field: &mut Field, at: [u32; 2], canvas: Size) {
    match field {
        Field::Boxes(boxes) => boxes.shift(at.map(|px| px as f32)),
        Field::KeyPoints(points) => points.shift(at.map(|px| px as f32)),
        Field::Mask(mask) if mask.size() != canvas => *mask = mask.placed(canvas, at),
        Field::Mask(_) | Field::Integers(_) | Field::Floats(_) => {}
    }
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
        let mut join = Join { at: [1, 0], others: vec![(Arc::clone(&other), [0, 1])], blended: false };
        join.apply(&mut fields, Size::new(3, 2)).unwrap();
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
        join.blended = true;
        assert!(join.apply(&mut sample(3, 1), Size::new(3, 2)).unwrap_err().is_bad_sample());
        let poorer = Fields::new().with(BOXES, Boxes::new(BoxFormat::Xyxy, Vec::new())).unwrap();
        join.others = vec![(Arc::new(poorer), [0, 0])];
        assert!(join.apply(&mut sample(3, 1), Size::new(3, 2)).unwrap_err().to_string().contains(LABELS));
    }
}
