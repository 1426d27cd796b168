//! Keypoints of objects or of an image.

use super::keep_rows;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The meaning of a keypoint's coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointConvention {
    /// Pixels from the corner of the image, as those of boxes: the center of the first pixel is (0.5, 0.5). Points stay
    /// on their pixels through every operation.
    #[default]
    Corner,
    /// torchvision's: the first pixel is (0, 0), and a mirror maps x to W - 1 - x; but resizing, rotating and the other
    /// operations treat the numbers as those of corners, so that a point leaves its pixel by up to a pixel.
    PixelIndex,
}

/// Keypoints: a number of points for each object of a sample, or points of the image that belong to no object.
///
/// ```
/// use warpfeed::fields::KeyPoints;
///
/// // Two objects with a left and a right eye each; the second's right eye is hidden. A mirror exchanges the two.
/// let eyes = vec![[4.0, 5.0], [8.0, 5.0], [30.0, 9.0], [0.0, 0.0]];
/// let eyes = KeyPoints::of_objects(2, eyes, vec![2, 2, 2, 0])?.flip_index([1, 0])?;
/// assert_eq!((eyes.objects(), eyes.per_object()), (Some(2), 2));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct KeyPoints {
    /// Number of points of an object; 0 if the points belong to none.
    per_object: usize,
    points: Vec<[f32; 2]>,
    /// 0: not labeled, 1: hidden, 2: visible.
    visibility: Vec<u8>,
    convention: PointConvention,
    /// For each point of an object in a mirror image, the number of the point that it was.
    flip_index: Option<Arc<[usize]>>,
}

impl KeyPoints {
    /// Points of the image, all visible.
    #[must_use]
    pub fn of_image(points: Vec<[f32; 2]>) -> Self {
        let visibility = vec![2; points.len()];
        Self { per_object: 0, points, visibility, convention: PointConvention::Corner, flip_index: None }
    }

    /// `per_object` points for each object: those of the first object first. `visibility` is COCO's: 0 for a point that
    /// is not labeled, 1 for one that is hidden, 2 for one that is visible.
    ///
    /// # Errors
    /// [`Error::Parameter`] if `per_object` is 0, does not divide the number of points, or the numbers of points and
    /// visibilities differ.
    pub fn of_objects(per_object: usize, points: Vec<[f32; 2]>, visibility: Vec<u8>) -> Result<Self> {
        if per_object == 0 || !points.len().is_multiple_of(per_object) || visibility.len() != points.len() {
            let got = format!("{} points, {} visibilities", points.len(), visibility.len());
            let expected = format!("{per_object} for each object, 1 at least, each with its visibility");
            return Err(Error::parameter("keypoints", "points", expected, got));
        }
        Ok(Self { per_object, points, visibility, convention: PointConvention::Corner, flip_index: None })
    }

    /// Sets the meaning of the coordinates.
    #[must_use]
    pub fn with_convention(mut self, convention: PointConvention) -> Self {
        self.convention = convention;
        self
    }

    /// Sets which points of an object change places when the image is mirrored left and right: point `i` of the mirror
    /// image is point `flip_index[i]`, as in YOLO's `flip_idx`. Points that are not labeled become (0, 0), as in
    /// torchvision's references.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless it has each number below [`per_object`](Self::per_object) once.
    pub fn flip_index(mut self, flip_index: impl Into<Arc<[usize]>>) -> Result<Self> {
        let flip_index = flip_index.into();
        let mut sorted = flip_index.to_vec();
        sorted.sort_unstable();
        if self.per_object == 0 || !sorted.iter().copied().eq(0..self.per_object) {
            let expected = format!("each number below {}, the points of an object, once", self.per_object);
            return Err(Error::parameter("keypoints", "flip_index", expected, format!("{flip_index:?}")));
        }
        self.flip_index = Some(flip_index);
        Ok(self)
    }

    /// Number of objects; `None` if the points belong to none.
    #[must_use]
    pub fn objects(&self) -> Option<usize> {
        self.points.len().checked_div(self.per_object)
    }

    /// Number of points of each object; 0 if the points belong to none.
    #[must_use]
    pub const fn per_object(&self) -> usize {
        self.per_object
    }

    /// The coordinates, those of the first object first.
    #[must_use]
    pub fn points(&self) -> &[[f32; 2]] {
        &self.points
    }

    /// COCO's visibility of each point: 0 not labeled, 1 hidden, 2 visible.
    #[must_use]
    pub fn visibility(&self) -> &[u8] {
        &self.visibility
    }

    /// The meaning of the coordinates.
    #[must_use]
    pub const fn convention(&self) -> PointConvention {
        self.convention
    }

    /// The points that change places in a mirror image; `None` if none do.
    pub(crate) fn mirrored(&self) -> Option<&[usize]> {
        self.flip_index.as_deref()
    }

    /// These points at other places. In a mirror image, points of the left and of the right are swapped.
    pub(crate) fn mapped(&self, mirrored: bool, of: impl Fn([f32; 2]) -> [f32; 2]) -> Self {
        let mut mapped = self.clone();
        mapped.points.iter_mut().for_each(|point| *point = of(*point));
        if mirrored {
            mapped.swap_sides();
        }
        mapped
    }

    /// The coordinates, to be changed in place.
    pub(super) fn points_mut(&mut self) -> &mut [[f32; 2]] {
        &mut self.points
    }

    /// Exchanges the points of the left and the right, if it is known which they are.
    pub(super) fn swap_sides(&mut self) {
        let Some(flip_index) = &self.flip_index else { return };
        let objects = self.points.chunks_exact_mut(self.per_object);
        for (points, visibility) in objects.zip(self.visibility.chunks_exact_mut(self.per_object)) {
            let old: Vec<_> = points.iter().copied().zip(visibility.iter().copied()).collect();
            for (place, &from) in flip_index.iter().enumerate() {
                let (point, seen) = old[from];
                (points[place], visibility[place]) = (if seen == 0 { [0.0; 2] } else { point }, seen);
            }
        }
    }

    /// Makes the points not labeled that lie outside of 0 to `most`.
    pub(super) fn unlabel_outside(&mut self, most: [f32; 2]) {
        for (point, seen) in self.points.iter().zip(&mut self.visibility) {
            if !point.iter().zip(most).all(|(value, most)| (0.0..=most).contains(value)) {
                *seen = 0;
            }
        }
    }

    /// Moves the points to the right and down.
    pub(super) fn shift(&mut self, [right, down]: [f32; 2]) {
        self.points.iter_mut().for_each(|[x, y]| (*x, *y) = (*x + right, *y + down));
    }

    /// Adds other points after these. False if an object has another number of them, or they count from another place.
    pub(super) fn append(&mut self, other: &Self) -> bool {
        if self.objects() == Some(0) && other.per_object > 0 {
            // Without objects, nothing may have said how many points each would have.
            self.per_object = other.per_object;
            self.flip_index.clone_from(&other.flip_index);
        }
        let counts_alike = self.per_object == other.per_object || self.per_object > 0 && other.objects() == Some(0);
        let alike = counts_alike && self.convention == other.convention;
        if alike {
            self.points.extend_from_slice(&other.points);
            self.visibility.extend_from_slice(&other.visibility);
        }
        alike
    }

    pub(super) fn keep(&mut self, kept: &[bool]) {
        let kept: Vec<bool> = kept.iter().flat_map(|kept| std::iter::repeat_n(*kept, self.per_object)).collect();
        keep_rows(&mut self.points, &kept);
        keep_rows(&mut self.visibility, &kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_no_object_take_the_form_of_others() {
        let none = KeyPoints::of_objects(1, Vec::new(), Vec::new()).unwrap();
        let two = KeyPoints::of_objects(2, vec![[1.0; 2]; 4], vec![2; 4]).unwrap().flip_index([1, 0]).unwrap();
        for (mut own, other) in [(none.clone(), two.clone()), (two.clone(), none.clone())] {
            assert!(own.append(&other));
            assert_eq!(own, two);
        }
        // Points of objects and of images are no more one field than those of three and of two.
        let three = KeyPoints::of_objects(3, vec![[1.0; 2]; 3], vec![2; 3]).unwrap();
        assert!(!three.clone().append(&two) && !none.clone().append(&KeyPoints::of_image(vec![[1.0; 2]])));
        assert!(!KeyPoints::of_image(Vec::new()).append(&none));
    }
}
