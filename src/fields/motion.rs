//! Operations' effect on points, for boxes and keypoints: the only file that applies it.
//!
//! Boxes have torchvision's values, bit for bit: each product and sum is rounded to f32, and boxes are clamped after
//! each operation that can move them across an edge.

use super::boxes::{BoxFormat, convert};
pub(crate) use super::join::{Join, Shown};
use super::keypoints::PointConvention;
use super::{Boxes, Clamping, DropRule, DroppedObjects, Field, Fields, KeyPoints};
use crate::error::Result;
use crate::raster::{Rect, Size};
use std::fmt;
use std::sync::Arc;

/// An operation's effect on points of an image.
#[derive(Debug, Clone)]
pub(crate) enum Motion {
    /// Points keep their coordinates.
    Keeps,
    /// Left and right change places.
    MirrorX,
    /// Top and bottom change places.
    MirrorY,
    /// Points move by whole pixels; then boxes are clamped.
    Shift([i32; 2]),
    /// Coordinates are multiplied by the ratio of the size after and these columns and rows of the image before.
    Scale([f64; 2]),
    /// A rectangle is cut out, boxes are clamped to it, and it is scaled to the size after.
    Window(Rect),
    /// `(x, y)` becomes `(a x + b y + c, d x + e y + f)`; then boxes are clamped.
    Affine([f64; 6]),
    /// As `Affine`, divided by `g x + h y + 1`, which is not guarded, as in torchvision.
    Projective([f64; 8]),
    /// Each pixel moves by a displacement of its own, and points jump to pixels.
    Displaced(Displacements),
    /// The caller's map of points; then boxes are clamped.
    Mapped(PointFunction),
    /// Boxes are clamped, whatever their clamping says.
    Clamp,
    /// Objects are dropped.
    Select(Selection),
    /// All objects are dropped but those with these numbers.
    Keep(Vec<u32>),
    /// Keypoints outside become not labeled.
    Unlabel,
    /// The fields of other samples are added.
    Join(Join),
}

/// The displacement of each pixel: pixel (x, y) shows what was at (x + dx, y + dy).
#[derive(Debug, Clone)]
pub(crate) struct Displacements {
    pub(crate) width: u32,
    /// Pixels to the right and down, row by row.
    pub(crate) pairs: Vec<[f32; 2]>,
}

/// A map of points of an image of a given size.
#[derive(Clone)]
pub(crate) struct PointFunction(pub(crate) Arc<dyn Fn([f32; 2], Size) -> [f32; 2] + Send + Sync>);

impl fmt::Debug for PointFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PointFunction")
    }
}

/// Rule for objects that stay: they pass all tests.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Selection {
    /// The box's center lies strictly inside.
    pub(crate) center: Option<Rect>,
    /// Least side and least area of a box, which lies inside the image. Boxes are clamped before.
    pub(crate) least: Option<[f32; 2]>,
    /// Least share of the box's area that operations have left inside the image.
    pub(crate) min_visibility: f32,
}

impl Motion {
    /// Moves the boxes and keypoints of `fields` from an image of size `input` to one of size `output`, and drops
    /// objects, which `dropped` counts. Masks stay as they are, except those of objects that go, and where samples are
    /// joined.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) if the fields of several samples cannot be joined.
    pub(crate) fn apply(
        &self,
        fields: &mut Fields,
        input: Size,
        output: Size,
        dropped: &mut DroppedObjects,
    ) -> Result<()> {
        match self {
            Self::Select(selection) => {
                selection.apply(fields, input, dropped);
                return Ok(());
            }
            Self::Keep(rows) => {
                let kept: Vec<bool> =
                    (0..).take(fields.objects()).map(|row| rows.binary_search(&row).is_ok()).collect();
                dropped.add(DropRule::KeepObjects, fields.keep(&kept));
                return Ok(());
            }
            Self::Join(join) => return join.apply(fields, output, dropped),
            _ => {}
        }
        for field in fields.fields_mut() {
            match field {
                Field::Boxes(boxes) => self.move_boxes(boxes, input, output),
                Field::KeyPoints(points) => self.move_points(points, input, output),
                Field::Mask(_) | Field::Image(_) | Field::Integers(_) | Field::Floats(_) => {}
            }
        }
        Ok(())
    }

    fn move_boxes(&self, boxes: &mut Boxes, input: Size, output: Size) {
        let format = boxes.format();
        match self {
            Self::Keeps | Self::Select(_) | Self::Keep(_) | Self::Unlabel | Self::Join(_) => {}
            Self::MirrorX => boxes.rows_mut().iter_mut().for_each(|row| mirror(row, 0, format, input.width as f32)),
            Self::MirrorY => boxes.rows_mut().iter_mut().for_each(|row| mirror(row, 1, format, input.height as f32)),
            Self::Shift(by) => {
                boxes.shift(by.map(|px| px as f32));
                clamp(boxes, output);
            }
            Self::Scale(shown) => scale(boxes, ratio(output, *shown)),
            Self::Window(window) => {
                boxes.shift([window.x, window.y].map(|px| -(px as f32)));
                clamp(boxes, window.size());
                scale(boxes, ratio(output, sides(window.size())));
            }
            Self::Affine(_) | Self::Projective(_) | Self::Displaced(_) | Self::Mapped(_) => {
                let point = self.of_point(input, f32::ceil);
                for i in 0..boxes.len() {
                    let [x1, y1, x2, y2] = convert(boxes.rows()[i], format, BoxFormat::Xyxy);
                    let moved = [[x1, y1], [x2, y1], [x2, y2], [x1, y2]].map(&point);
                    let least = |axis: usize| moved.iter().fold(f32::INFINITY, |low, point| low.min(point[axis]));
                    let most = |axis: usize| moved.iter().fold(f32::NEG_INFINITY, |high, point| high.max(point[axis]));
                    let around = [least(0), least(1), most(0), most(1)];
                    match boxes.clamping() {
                        Clamping::Soft => boxes.set_clamped(i, around, output),
                        Clamping::None => boxes.rows_mut()[i] = convert(around, BoxFormat::Xyxy, format),
                    }
                }
            }
            Self::Clamp => boxes.clamp(input),
        }
    }

    fn move_points(&self, points: &mut KeyPoints, input: Size, output: Size) {
        let index = if points.convention() == PointConvention::PixelIndex { 1.0 } else { 0.0 };
        let [width, height] = [input.width as f32, input.height as f32];
        let each = |points: &mut KeyPoints, of: &dyn Fn([f32; 2]) -> [f32; 2]| {
            points.points_mut().iter_mut().for_each(|point| *point = of(*point));
        };
        match self {
            Self::Keeps | Self::Clamp | Self::Select(_) | Self::Keep(_) | Self::Join(_) => {}
            Self::Unlabel => points.unlabel_outside([width - index, height - index]),
            Self::MirrorX => {
                each(points, &|[x, y]| [-(x - (width - index)), y]);
                points.swap_sides();
            }
            Self::MirrorY => each(points, &|[x, y]| [x, -(y - (height - index))]),
            Self::Shift([right, down]) => each(points, &|[x, y]| [x + *right as f32, y + *down as f32]),
            Self::Scale(shown) => {
                let [along, down] = ratio(output, *shown);
                each(points, &|[x, y]| [x * along, y * down]);
            }
            Self::Window(window) => {
                let [along, down] = ratio(output, sides(window.size()));
                each(points, &|[x, y]| [(x - window.x as f32) * along, (y - window.y as f32) * down]);
            }
            Self::Affine(_) | Self::Projective(_) | Self::Displaced(_) | Self::Mapped(_) => {
                each(points, &self.of_point(input, f32::trunc));
            }
        }
    }

    /// The map of single points. `to_pixel` rounds the coordinates of a point that jumps to a pixel.
    fn of_point(&self, input: Size, to_pixel: fn(f32) -> f32) -> Box<dyn Fn([f32; 2]) -> [f32; 2] + '_> {
        match self {
            Self::Affine(matrix) => {
                let [a, b, c, d, e, f] = matrix.map(|value| value as f32);
                Box::new(move |[x, y]| [(x * a + y * b) + c, (x * d + y * e) + f])
            }
            Self::Projective(matrix) => {
                let [a, b, c, d, e, f, g, h] = matrix.map(|value| value as f32);
                Box::new(move |[x, y]| {
                    let divisor = (x * g + y * h) + 1.0;
                    [((x * a + y * b) + c) / divisor, ((x * d + y * e) + f) / divisor]
                })
            }
            Self::Displaced(Displacements { width, pairs }) => Box::new(move |[x, y]| {
                let index = |value: f32, side: u32| clamped_index(to_pixel(value), side);
                let (i, j) = (index(x, input.width), index(y, input.height));
                let at = j as usize * *width as usize + i as usize;
                let [along, down] = pairs.get(at).copied().unwrap_or_default();
                [i as f32 - along, j as f32 - down]
            }),
            Self::Mapped(PointFunction(map)) => Box::new(move |point| map(point, input)),
            _ => Box::new(|point| point),
        }
    }
}

impl Selection {
    fn apply(&self, fields: &mut Fields, size: Size, dropped: &mut DroppedObjects) {
        let Some(boxes) = fields.boxes_mut() else { return };
        let mut broken: Vec<Option<DropRule>> = vec![None; boxes.len()];
        let mut first = |rules: Vec<Option<DropRule>>| {
            broken.iter_mut().zip(rules).for_each(|(broken, rule)| *broken = broken.or(rule));
        };
        if let Some(rect) = self.center {
            let inside = boxes.centers_inside(rect);
            first(inside.into_iter().map(|inside| (!inside).then_some(DropRule::SelectObjects)).collect());
        }
        if let Some([min_size, min_area]) = self.least {
            clamp(boxes, size);
            first(boxes.broken_rules(size, min_size, min_area).collect());
        }
        if self.min_visibility > 0.0 {
            let too_little = |share| (share < self.min_visibility).then_some(DropRule::MinVisibility);
            first(boxes.visible().map(too_little).collect());
        }
        broken.iter().flatten().for_each(|rule| dropped.add(*rule, 1));
        fields.keep(&broken.iter().map(Option::is_none).collect::<Vec<_>>());
    }
}

/// `value` as the index of one of `side` pixels.
fn clamped_index(value: f32, side: u32) -> u32 {
    // A conversion from f32 saturates, and makes 0 of NaN.
    (value.max(0.0) as u32).min(side.saturating_sub(1))
}

fn mirror(row: &mut [f32; 4], axis: usize, format: BoxFormat, side: f32) {
    let (low, high) = (row[axis], row[axis + 2]);
    match format {
        BoxFormat::Xyxy => (row[axis], row[axis + 2]) = (-(high - side), -(low - side)),
        BoxFormat::Xywh => row[axis] = -((low + high) - side),
        BoxFormat::Cxcywh => row[axis] = -(low - side),
    }
}

fn scale(boxes: &mut Boxes, [along, down]: [f32; 2]) {
    boxes
        .rows_mut()
        .iter_mut()
        .for_each(|[a, b, c, d]| (*a, *b, *c, *d) = (*a * along, *b * down, *c * along, *d * down));
}

fn clamp(boxes: &mut Boxes, size: Size) {
    if boxes.clamping() == Clamping::Soft {
        boxes.clamp(size);
    }
}

/// The ratio of two sizes, as torchvision rounds it.
fn ratio(output: Size, [columns, rows]: [f64; 2]) -> [f32; 2] {
    let [width, height] = sides(output);
    [(width / columns) as f32, (height / rows) as f32]
}

fn sides(size: Size) -> [f64; 2] {
    [size.width, size.height].map(f64::from)
}
