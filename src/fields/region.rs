//! The pixels where objects of another sample are pasted.

use super::{Field, Fields};
use crate::raster::Size;
use std::ops::Range;

/// Pixels of an image, row by row: whether each shows another sample.
pub(crate) struct Region {
    width: usize,
    inside: Vec<bool>,
}

impl Region {
    /// The pixels of all objects that masks have, and those at most `margin` pixels away along each axis. `None` if no
    /// field has masks of objects.
    pub(crate) fn of_objects(fields: &Fields, margin: u32) -> Option<Self> {
        let masks = fields.iter().find_map(|(_, field)| match field {
            Field::Mask(mask) if mask.is_of_objects() => Some(mask),
            _ => None,
        })?;
        let Size { width, height } = masks.size();
        let (width, height, margin) = (width as usize, height as usize, margin as usize);
        let mut inside = vec![false; width * height];
        masks.add_to(&mut inside);
        if margin > 0 {
            let near = |at: usize, side: usize| at.saturating_sub(margin)..(at + margin + 1).min(side);
            let row = |row: usize| row * width..(row + 1) * width;
            let mut wide = Vec::with_capacity(inside.len());
            for row in inside.chunks_exact(width) {
                wide.extend((0..width).map(|x| row[near(x, width)].contains(&true)));
            }
            for y in 0..height {
                let own = &mut inside[row(y)];
                for other in near(y, height) {
                    own.iter_mut().zip(&wide[row(other)]).for_each(|(own, other)| *own |= other);
                }
            }
        }
        Some(Self { width, inside })
    }

    /// Whether each pixel of a row is in the region.
    pub(crate) fn row(&self, row: u32) -> &[bool] {
        &self.inside[row as usize * self.width..][..self.width]
    }

    /// Whether each pixel is in the region, row by row.
    pub(super) fn pixels(&self) -> &[bool] {
        &self.inside
    }
}

/// The columns and rows around the pixels of a plane that are not 0; `None` if there are none.
pub(super) fn around(plane: &[u8], width: usize) -> Option<[Range<usize>; 2]> {
    let mut found: Option<[Range<usize>; 2]> = None;
    for (y, row) in plane.chunks_exact(width).enumerate() {
        let is_set = |value: &u8| *value != 0;
        if let (Some(first), Some(last)) = (row.iter().position(is_set), row.iter().rposition(is_set)) {
            let [columns, rows] = found.unwrap_or([first..last + 1, y..y + 1]);
            found = Some([columns.start.min(first)..columns.end.max(last + 1), rows.start..y + 1]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{MASKS, Mask};

    #[test]
    fn a_region_unites_objects_and_grows_within_the_image() {
        let size = Size::new(6, 4);
        let plane = |pixels: &[usize]| (0..24).map(|i| u8::from(pixels.contains(&i))).collect::<Vec<u8>>();
        let masks = Mask::of_objects(size, [plane(&[0]), plane(&[17])]).unwrap();
        let fields = Fields::new().with(MASKS, masks).unwrap();
        let inside = |margin| {
            let region = Region::of_objects(&fields, margin).unwrap();
            region.pixels().iter().map(|inside| u8::from(*inside)).collect::<Vec<u8>>()
        };
        assert_eq!(inside(0), plane(&[0, 17]));
        assert_eq!(inside(1), plane(&[0, 1, 6, 7, 10, 11, 16, 17, 22, 23]));
        assert_eq!(inside(2), plane(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 21, 22, 23]));
        assert!(Region::of_objects(&Fields::new().with("labels", vec![3]).unwrap(), 1).is_none());
    }

    #[test]
    fn a_box_lies_around_all_pixels() {
        assert_eq!(around(&[0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0], 4), Some([1..4, 1..2]));
        assert_eq!(around(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9], 4), Some([0..4, 0..3]));
        assert_eq!(around(&[0; 12], 4), None);
    }
}
