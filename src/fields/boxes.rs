//! Boxes of objects, their formats, and their validity.

use super::{DropRule, keep_rows};
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The meaning of a box's four numbers, in pixels from the upper left corner of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum BoxFormat {
    /// Left, top, right, bottom.
    #[default]
    #[serde(rename = "XYXY")]
    Xyxy,
    /// Left, top, width, height.
    #[serde(rename = "XYWH")]
    Xywh,
    /// Center, width, height.
    #[serde(rename = "CXCYWH")]
    Cxcywh,
}

impl FromStr for BoxFormat {
    type Err = Error;

    /// Reads `XYXY`, `XYWH` or `CXCYWH`, in capitals or not.
    fn from_str(text: &str) -> Result<Self> {
        match &*text.to_ascii_uppercase() {
            "XYXY" => Ok(Self::Xyxy),
            "XYWH" => Ok(Self::Xywh),
            "CXCYWH" => Ok(Self::Cxcywh),
            _ => Err(Error::parameter("boxes", "format", "XYXY, XYWH or CXCYWH", text)),
        }
    }
}

/// Share of a side by which f32 may round an edge across it: 16 times the distance of two numbers just below the side.
const ROUNDING: f32 = 16.0 * f32::EPSILON / 2.0;

/// Whether boxes are cut at the edges of the image by operations that move them across.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clamping {
    /// Boxes are cut by each crop, padding, rotation, affine and perspective map, as in torchvision. A box outside the
    /// image ends flat on its edge; none is removed.
    #[default]
    Soft,
    /// Boxes are never cut.
    None,
}

/// Boxes, one for each object of a sample.
///
/// ```
/// use warpfeed::fields::{BoxFormat, Boxes};
///
/// let boxes = Boxes::new(BoxFormat::Xywh, vec![[10.0, 20.0, 30.0, 40.0]]);
/// assert_eq!(boxes.to(BoxFormat::Xyxy).rows(), [[10.0, 20.0, 40.0, 60.0]]);
/// assert_eq!(boxes.to(BoxFormat::Cxcywh).rows(), [[25.0, 40.0, 30.0, 40.0]]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Boxes {
    format: BoxFormat,
    clamping: Clamping,
    rows: Vec<[f32; 4]>,
    /// The share of each box's area that clamping has left; empty as long as no box was cut.
    visible: Vec<f32>,
}

impl Boxes {
    /// Boxes of this format, which operations clamp softly.
    #[must_use]
    pub const fn new(format: BoxFormat, rows: Vec<[f32; 4]>) -> Self {
        Self { format, clamping: Clamping::Soft, rows, visible: Vec::new() }
    }

    /// Sets whether operations cut the boxes at the edges of the image.
    #[must_use]
    pub fn with_clamping(mut self, clamping: Clamping) -> Self {
        self.clamping = clamping;
        self
    }

    /// The meaning of the numbers.
    #[must_use]
    pub const fn format(&self) -> BoxFormat {
        self.format
    }

    /// Whether operations cut the boxes at the edges of the image.
    #[must_use]
    pub const fn clamping(&self) -> Clamping {
        self.clamping
    }

    /// The four numbers of each box.
    #[must_use]
    pub fn rows(&self) -> &[[f32; 4]] {
        &self.rows
    }

    /// Number of boxes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no box.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The boxes in another format, with torchvision's arithmetic: each sum and product is rounded to f32.
    #[must_use]
    pub fn to(&self, format: BoxFormat) -> Self {
        let rows = self.rows.iter().map(|row| convert(*row, self.format, format)).collect();
        Self { format, rows, visible: self.visible.clone(), ..*self }
    }

    /// The boxes as left, top, right, bottom.
    pub(crate) fn corners(&self) -> impl Iterator<Item = [f32; 4]> + '_ {
        self.rows.iter().map(|row| convert(*row, self.format, BoxFormat::Xyxy))
    }

    /// Whether each box is valid in an image of size `size`: torchvision's `SanitizeBoundingBoxes`. A valid box has
    /// sides of at least `min_size` pixels and an area of at least `min_area` square pixels, and lies inside the image.
    /// Unlike in torchvision, an edge that is outside by no more than f32 may round it counts as inside.
    ///
    /// ```
    /// use warpfeed::{fields::{BoxFormat, Boxes}, image::Size};
    ///
    /// let boxes = Boxes::new(BoxFormat::Xyxy, vec![[0.0, 0.0, 9.0, 9.0], [0.0, 0.0, 9.0, 0.5], [5.0, 5.0, 11.0, 9.0]]);
    /// assert_eq!(boxes.valid(Size::new(10, 10), 1.0, 1.0), [true, false, false]);
    /// ```
    #[must_use]
    pub fn valid(&self, size: Size, min_size: f32, min_area: f32) -> Vec<bool> {
        self.broken_rules(size, min_size, min_area).map(|rule| rule.is_none()).collect()
    }

    /// The first rule of [`valid`](Self::valid) that each box breaks.
    pub(super) fn broken_rules(
        &self,
        size: Size,
        min_size: f32,
        min_area: f32,
    ) -> impl Iterator<Item = Option<DropRule>> + '_ {
        let inside = |low: f32, high: f32, side: u32| {
            let (side, rounding) = (side as f32, side as f32 * ROUNDING);
            low.min(high) >= -rounding && low.max(high) <= side + rounding
        };
        self.corners().map(move |[x1, y1, x2, y2]| {
            let (w, h) = (x2 - x1, y2 - y1);
            // No comparison with NaN is true.
            let (is_long, is_large) = (w >= min_size && h >= min_size, w * h >= min_area);
            if !is_long {
                Some(DropRule::MinSize)
            } else if !is_large {
                Some(DropRule::MinArea)
            } else if !(inside(x1, x2, size.width) && inside(y1, y2, size.height)) {
                Some(DropRule::Outside)
            } else {
                None
            }
        })
    }

    /// Checks that each box is one on an image of size `size`: finite numbers, no negative side, and not outside the
    /// image.
    ///
    /// # Errors
    /// A message that names the first other box.
    pub(crate) fn check(&self, size: Size) -> Result<(), String> {
        let [width, height] = [size.width as f32, size.height as f32];
        for (i, (row, [x1, y1, x2, y2])) in self.rows.iter().zip(self.corners()).enumerate() {
            if !(row.iter().all(|value| value.is_finite()) && x2 >= x1 && y2 >= y1) {
                return Err(format!("object {i}: {row:?} is no box in the format {:?}", self.format));
            }
            if x1 > width || y1 > height || x2 < 0.0 || y2 < 0.0 {
                return Err(format!("object {i}: the box {row:?} lies outside the image of {size}"));
            }
        }
        Ok(())
    }

    /// Whether the center of each box lies strictly inside a rectangle, as torchvision's `RandomIoUCrop` and DETR's
    /// crop ask.
    pub(crate) fn centers_inside(&self, rect: Rect) -> Vec<bool> {
        let [left, top, right, bottom] = [rect.x, rect.y, rect.right(), rect.bottom()].map(|side| side as f32);
        let inside = |[x1, y1, x2, y2]: [f32; 4]| {
            let (x, y) = (0.5 * (x1 + x2), 0.5 * (y1 + y2));
            left < x && x < right && top < y && y < bottom
        };
        self.corners().map(inside).collect()
    }

    /// The area of each box, and of its part inside a rectangle, in square pixels.
    pub(crate) fn areas(&self, rect: Rect) -> impl Iterator<Item = [f32; 2]> + '_ {
        let [left, top, right, bottom] = [rect.x, rect.y, rect.right(), rect.bottom()].map(|side| side as f32);
        self.corners().map(move |[x1, y1, x2, y2]| {
            let both = (x2.min(right) - x1.max(left)).max(0.0) * (y2.min(bottom) - y1.max(top)).max(0.0);
            [(x2 - x1) * (y2 - y1), both]
        })
    }

    /// The share of each box's area that operations have left inside the image: 1 if none has cut it.
    pub(crate) fn visible(&self) -> impl Iterator<Item = f32> + '_ {
        (0..self.rows.len()).map(|i| self.visible.get(i).copied().unwrap_or(1.0))
    }

    /// The rows, to be changed in place.
    pub(super) fn rows_mut(&mut self) -> &mut [[f32; 4]] {
        &mut self.rows
    }

    /// Moves the boxes to the right and down.
    pub(super) fn shift(&mut self, [right, down]: [f32; 2]) {
        let corners = self.format == BoxFormat::Xyxy;
        for row in &mut self.rows {
            (row[0], row[1]) = (row[0] + right, row[1] + down);
            if corners {
                (row[2], row[3]) = (row[2] + right, row[3] + down);
            }
        }
    }

    /// Cuts the boxes at the edges of an image, whatever their clamping says.
    pub(super) fn clamp(&mut self, size: Size) {
        for i in 0..self.rows.len() {
            // Also where nothing is cut: a width that comes back from corners may have lost its last digit.
            self.set_clamped(i, convert(self.rows[i], self.format, BoxFormat::Xyxy), size);
        }
    }

    /// Sets box `i` to left, top, right, bottom, cut at the edges of an image.
    pub(super) fn set_clamped(&mut self, i: usize, corners: [f32; 4], size: Size) {
        let [width, height] = [size.width as f32, size.height as f32];
        let area = |[x1, y1, x2, y2]: [f32; 4]| (x2 - x1) * (y2 - y1);
        let [x1, y1, x2, y2] = corners;
        let cut = [clamped(x1, width), clamped(y1, height), clamped(x2, width), clamped(y2, height)];
        self.rows[i] = convert(cut, BoxFormat::Xyxy, self.format);
        if cut != corners && area(corners) > 0.0 {
            self.visible.resize(self.rows.len(), 1.0);
            self.visible[i] *= area(cut) / area(corners);
        }
    }

    /// Sets the boxes for which there is one to left, top, right, bottom. The parts that operations have cut off stay
    /// known.
    pub(super) fn refit(&mut self, corners: &[Option<[f32; 4]>]) {
        let format = self.format;
        for (row, corners) in self.rows.iter_mut().zip(corners) {
            if let Some(corners) = corners {
                *row = convert(*corners, BoxFormat::Xyxy, format);
            }
        }
    }

    /// Adds other boxes after these, in the format of these.
    pub(super) fn append(&mut self, other: &Self) {
        if !self.visible.is_empty() || !other.visible.is_empty() {
            self.visible = self.visible().chain(other.visible()).collect();
        }
        self.rows.extend(other.to(self.format).rows);
    }

    pub(super) fn keep(&mut self, kept: &[bool]) {
        keep_rows(&mut self.rows, kept);
        keep_rows(&mut self.visible, kept);
    }
}

/// `value` within 0 to `most`; NaN stays NaN.
fn clamped(value: f32, most: f32) -> f32 {
    if value < 0.0 {
        0.0
    } else if value > most {
        most
    } else {
        value
    }
}

/// A box in another format, in torchvision's steps.
pub(super) fn convert(row: [f32; 4], from: BoxFormat, to: BoxFormat) -> [f32; 4] {
    use BoxFormat::{Cxcywh, Xywh, Xyxy};
    let [a, b, c, d] = row;
    match (from, to) {
        (Xyxy, Xyxy) | (Xywh, Xywh) | (Cxcywh, Cxcywh) => row,
        (Xyxy, Xywh) => [a, b, c - a, d - b],
        (Xyxy, Cxcywh) => {
            let (w, h) = (c - a, d - b);
            [(a * 2.0 + w) / 2.0, (b * 2.0 + h) / 2.0, w, h]
        }
        (Xywh, Xyxy) => [a, b, c + a, d + b],
        (Xywh, Cxcywh) => [a + c / 2.0, b + d / 2.0, c, d],
        (Cxcywh, Xywh) => [a - c / 2.0, b - d / 2.0, c, d],
        (Cxcywh, Xyxy) => {
            let (x, y) = (a - c / 2.0, b - d / 2.0);
            [x, y, c + x, d + y]
        }
    }
}
