//! An image's mask at a place among the transforms.

use super::point_map::PointMap;
use super::{Op, moved_masks};
use crate::error::{Error, Result};
use crate::fields::{Field, Fields, Mask, MaskValues};
use crate::raster::{Rect, Size};
use std::sync::Arc;

/// The mask of a stored image, read through the operations drawn so far.
pub(super) struct PlacedMask {
    values: Arc<MaskValues>,
    size: Size,
    fill: u16,
    /// The map from points of the image so far to the stored one.
    back: [f64; 6],
}

impl PlacedMask {
    /// The first mask of the image among `fields`, as `ops` have moved it; `None` without one. Through an affine map
    /// the stored mask is read, which moves nothing. After other operations the mask is moved.
    ///
    /// # Errors
    /// See [`moved_masks::moved`](super::moved_masks::moved).
    pub(super) fn new(fields: &Fields, ops: &[Op], stored: Size) -> Result<Option<Self>> {
        fn of_image(field: &Field) -> Option<&Mask> {
            if let Field::Mask(mask) = field { Some(mask).filter(|mask| !mask.is_of_objects()) } else { None }
        }
        let Some(mask) = fields.iter().find_map(|(_, field)| of_image(field)) else { return Ok(None) };
        let Some(values) = mask.planes().first() else { return Ok(None) };
        if mask.size() != stored {
            return Err(Mask::unfit(mask.size(), stored));
        }
        let map = match PointMap::new(ops, stored) {
            Ok(map) => map.back(),
            Err(Error::Unsupported { .. }) => None,
            Err(error) => return Err(error),
        };
        if let Some(back) = map {
            return Ok(Some(Self { values: Arc::clone(values), size: stored, fill: mask.fill(), back }));
        }
        let alone = Fields::new().with("mask", mask.clone())?;
        let moved = moved_masks::moved(&alone, ops, stored)?;
        let Some(Field::Mask(mask)) = moved.get("mask") else { return Ok(None) };
        let Some(values) = mask.planes().first() else { return Ok(None) };
        let back = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
        Ok(Some(Self { values: Arc::clone(values), size: mask.size(), fill: mask.fill(), back }))
    }

    /// Number of values that a pixel can have.
    pub(super) fn values(&self) -> usize {
        match &*self.values {
            MaskValues::U8(_) => 1 << 8,
            MaskValues::U16(_) => 1 << 16,
        }
    }

    /// Calls `see` with the value at the center of each pixel of a rectangle.
    pub(super) fn each(&self, rect: Rect, mut see: impl FnMut(u16)) {
        let [a, b, c, d, e, f] = self.back;
        let Size { width, height } = self.size;
        // A value in front of 0 must not be rounded to 0; NaN is nowhere.
        let index = |value: f64, side: u32| (value >= 0.0 && value < f64::from(side)).then_some(value as usize);
        for y in rect.y..rect.bottom() {
            let (cx, cy) = (b * (f64::from(y) + 0.5) + c, e * (f64::from(y) + 0.5) + f);
            for x in rect.x..rect.right() {
                let x = f64::from(x) + 0.5;
                let place = index(a * x + cx, width).zip(index(d * x + cy, height));
                see(place.map_or(self.fill, |(x, y)| {
                    let at = y * width as usize + x;
                    match &*self.values {
                        MaskValues::U8(values) => u16::from(values[at]),
                        MaskValues::U16(values) => values[at],
                    }
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Crop, Hflip, Resize, Rotate};

    fn seen(ops: &[Op]) -> Vec<u16> {
        let of = Size::new(3, 2);
        let fields = Fields::new()
            .with("masks", Mask::of_objects(of, [vec![1; 6]]).unwrap())
            .and_then(|fields| fields.with("mask", Mask::new(of, vec![1_u8, 2, 3, 4, 5, 6]).unwrap().with_fill(9)))
            .unwrap();
        let mask = PlacedMask::new(&fields, ops, of).unwrap().unwrap();
        let size = ops.iter().fold(of, |size, op| op.output_size(size).unwrap());
        let mut seen = Vec::new();
        mask.each(Rect::full(size), |value| seen.push(value));
        seen
    }

    #[test]
    fn a_mask_is_read_where_operations_have_put_it() {
        assert_eq!(seen(&[]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(seen(&[Hflip.into()]), [3, 2, 1, 6, 5, 4]);
        // A turn to the left.
        assert_eq!(seen(&[Rotate::new(90.0).expand(true).into()]), [3, 6, 2, 5, 1, 4]);
        assert_eq!(seen(&[Crop::new(1, -1, Size::new(3, 2)).into()]), [9, 9, 9, 2, 3, 9]);
        let twice = Resize::new(Size::new(6, 2)).into();
        assert_eq!(seen(&[Hflip.into(), twice]), [3, 3, 2, 2, 1, 1, 6, 6, 5, 5, 4, 4]);
    }
}
