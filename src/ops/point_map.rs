//! Maps of points through a recipe, for boxes and keypoints.

use super::affine_warp::inverse;
use super::{Op, Primitive};
use crate::error::{Error, Result};
use crate::raster::Size;

/// The map from points of an image to their places after a list of operations.
///
/// Coordinates are in pixels from the upper left corner of the image, as in torchvision's bounding boxes: the first
/// pixel reaches from 0 to 1, and its center is at 0.5. Add 0.5 to a pixel's index to get its center. Subtract 0.5 for
/// torchvision's keypoints, whose flips count from center to center (`W - 1 - x`). Points outside the image or outside
/// a crop keep their coordinates there.
///
/// Sampling rounds: a nearest rotation shows a pixel up to half a pixel away from its place in this map.
///
/// ```
/// use warpfeed::image::{Rect, Size};
/// use warpfeed::ops::{Hflip, PointMap, ResizedCrop};
///
/// let crop = ResizedCrop::new(Rect { x: 10, y: 0, width: 20, height: 40 }, 80);
/// let map = PointMap::new(&[crop.into(), Hflip.into()], Size::new(60, 40))?;
/// assert_eq!(map.size(), Size::new(80, 80));
/// assert_eq!(map.point([10.0, 5.0]), [80.0, 10.0]);
/// assert_eq!(map.boxed([15.0, 5.0, 20.0, 20.0]), [40.0, 10.0, 60.0, 40.0]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PointMap {
    /// Maps `(x, y)` to `(m0 x + m1 y + m2, m3 x + m4 y + m5)`.
    matrix: [f64; 6],
    input: Size,
    size: Size,
}

impl PointMap {
    /// The map of `ops` on an image of size `input`. `ops` is a recipe as [`Pipeline::recipe`](crate::Pipeline::recipe)
    /// returns it. If the recipe contains the EXIF orientation, `input` is the size of the stored image, before it is
    /// turned.
    ///
    /// # Errors
    /// [`Error::Parameter`] and [`Error::Limits`] for an operation that is wrong or does not fit;
    /// [`Error::Unsupported`] for one whose motion is not an affine map, such as [`Op::Custom`].
    pub fn new(ops: &[Op], input: Size) -> Result<Self> {
        let mut map = Self { matrix: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0], input, size: input };
        for op in ops {
            let size = op.output_size(map.size)?;
            map.then(step(op, map.size, size)?);
            map.size = size;
        }
        Ok(map)
    }

    /// The size of the image that points are mapped to.
    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }

    /// The place of the point `[x, y]` afterwards.
    #[must_use]
    pub fn point(&self, point: [f64; 2]) -> [f64; 2] {
        apply(self.matrix, point)
    }

    /// The bounding box of the corners of the box `[left, top, right, bottom]` afterwards. It may reach outside the
    /// image.
    #[must_use]
    pub fn boxed(&self, [left, top, right, bottom]: [f64; 4]) -> [f64; 4] {
        let corners = [[left, top], [right, top], [left, bottom], [right, bottom]].map(|corner| self.point(corner));
        let around = |axis: usize| {
            let values = corners.map(|corner| corner[axis]);
            let low = values.into_iter().fold(f64::INFINITY, f64::min);
            (low, values.into_iter().fold(f64::NEG_INFINITY, f64::max))
        };
        let ((left, right), (top, bottom)) = (around(0), around(1));
        [left, top, right, bottom]
    }

    /// The map from points of the result back to the image.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the operations put the whole image on a line.
    pub fn inverse(&self) -> Result<Self> {
        let matrix = self.back().ok_or_else(|| {
            Error::parameter("PointMap", "operations", "such that their map has an inverse", "a map without one")
        })?;
        Ok(Self { matrix, input: self.size, size: self.input })
    }

    /// The matrix of the map back; `None` if the map flattens the image.
    pub(super) fn back(&self) -> Option<[f64; 6]> {
        inverse(self.matrix)
    }

    /// Appends another map.
    fn then(&mut self, next: [f64; 6]) {
        let ([a, b, c, d, e, f], n) = (self.matrix, next);
        let linear = |x: f64, y: f64| [n[0] * x + n[1] * y, n[3] * x + n[4] * y];
        let ([xx, yx], [xy, yy], [x, y]) = (linear(a, d), linear(b, e), apply(n, [c, f]));
        self.matrix = [xx, xy, x, yx, yy, y];
    }
}

fn apply(m: [f64; 6], [x, y]: [f64; 2]) -> [f64; 2] {
    [m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]]
}

/// The map of one operation, from an image of size `input` to its result of size `output`.
fn step(op: &Op, input: Size, output: Size) -> Result<[f64; 6]> {
    let unsupported = || Error::Unsupported {
        feature: format!("following points through {}", op.name()),
        remedy: "leave it out where boxes or keypoints matter".to_owned(),
    };
    Ok(match op.primitive(input) {
        Primitive::Pass(pass, _) if pass.moves_pixels() => return Err(unsupported()),
        Primitive::Identity | Primitive::Table(_) | Primitive::Pass(..) => [1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        Primitive::Turn(turn) => inverse(turn.map(input).matrix()).ok_or_else(unsupported)?,
        Primitive::Affine(sampling) => inverse(sampling.matrix).ok_or_else(unsupported)?,
        Primitive::Crop { x, y, .. } => [1.0, 0.0, -f64::from(x), 0.0, 1.0, -f64::from(y)],
        Primitive::Resample(of) => {
            let ([x, y], window) = (of.scale(output).map(f64::recip), of.window);
            [x, 0.0, -x * f64::from(window.x), 0.0, y, -y * f64::from(window.y)]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::filter::PassOrder;
    use crate::ops::{CenterCrop, Crop, Custom, Hflip, Interpolation, Reach, Resize, ResizedCrop, Rotate, Vflip};
    use crate::raster::{Image, Rect};

    const SIZE: Size = Size::new(61, 47);
    /// Distance from a dot's center to its edges, in pixels.
    const REACH_PX: u32 = 3;

    /// The result of `ops` on a gray image, with a bright dot around a pixel if one is given.
    fn made(ops: &[Op], dot: Option<[u32; 2]>) -> Image {
        let mut image = Image::new(SIZE);
        image.pixels_mut().fill([60, 60, 60, 255]);
        if let Some([x, y]) = dot {
            for y in y - REACH_PX..=y + REACH_PX {
                image.row_mut(y)[(x - REACH_PX) as usize..=(x + REACH_PX) as usize].fill([200, 190, 180, 255]);
            }
        }
        ops.iter().for_each(|op| op.apply_reusing(PassOrder::default(), &mut image, &mut Image::default()).unwrap());
        image
    }

    /// The center of the pixels that a dot has changed. `None` if the dot is no longer visible.
    fn seen(ops: &[Op], dot: [u32; 2]) -> Option<[f64; 2]> {
        let (with, without) = (made(ops, Some(dot)), made(ops, None));
        let change = |a: &[u8; 4], b: &[u8; 4]| (0..3).map(|c| f64::from(a[c].abs_diff(b[c]))).sum::<f64>();
        let changes: Vec<f64> = with.pixels().iter().zip(without.pixels()).map(|(a, b)| change(a, b)).collect();
        // Changes far from the dot, such as those by the mean, are smaller.
        let least = 0.5 * changes.iter().fold(0.0, |most: f64, &change| most.max(change));
        let (mut sum, mut center) = (0.0, [0.0; 2]);
        for (i, change) in changes.into_iter().enumerate().filter(|(_, change)| *change > least) {
            let (x, y) = (i as u32 % with.size().width, i as u32 / with.size().width);
            sum += change;
            center[0] += change * (f64::from(x) + 0.5);
            center[1] += change * (f64::from(y) + 0.5);
        }
        (sum > 0.0).then(|| center.map(|value| value / sum))
    }

    /// Compares the places of dots with the map, and returns the number of comparisons.
    fn check(ops: &[Op]) -> usize {
        let map = PointMap::new(ops, SIZE).unwrap();
        let mut compared = 0;
        // A blur near an edge shifts the center of the visible part.
        let blurred: u32 = ops
            .iter()
            .map(|op| if let Primitive::Pass(_, Reach::Around(px)) = op.primitive(SIZE) { px } else { 0 })
            .sum();
        for dot in [[9, 8], [50, 9], [30, 23], [12, 37], [40, 30], [51, 38]] {
            let around = f64::from(REACH_PX + blurred) + 2.0;
            let [x, y] = dot.map(|value| f64::from(value) + 0.5);
            let [left, top, right, bottom] = map.boxed([x - around, y - around, x + around, y + around]);
            let Size { width, height } = map.size();
            // A dot at the edge is only partly visible.
            if left < 0.0 || top < 0.0 || right > f64::from(width) || bottom > f64::from(height) {
                continue;
            }
            let [want_x, want_y] = map.point([x, y]);
            let Some([seen_x, seen_y]) = seen(ops, dot) else { continue };
            let near = (seen_x - want_x).abs() < 0.8 && (seen_y - want_y).abs() < 0.8;
            assert!(near, "{ops:?}: the dot at ({x}, {y}) is at ({seen_x}, {seen_y}), not at ({want_x}, {want_y})");
            compared += 1;
        }
        compared
    }

    #[test]
    fn a_bright_dot_ends_where_the_map_says() {
        let mut compared = 0;
        for op in Op::examples(SIZE) {
            // Only operations with a motion of their own have no map.
            if PointMap::new(std::slice::from_ref(&op), SIZE).is_ok()
                && !matches!(op, Op::Normalize(_) | Op::ToFloat(_))
            {
                compared += check(&[op]);
            }
        }
        assert!(compared > 100, "{compared}");
    }

    #[test]
    fn maps_are_put_one_behind_the_other() {
        let bilinear = |degrees| Rotate::new(degrees).interpolation(Interpolation::Bilinear).expand(true).into();
        let window = Rect { x: 5, y: 3, width: 50, height: 40 };
        let lists: [Vec<Op>; 4] = [
            vec![Hflip.into(), Rotate::new(90.0).expand(true).into(), Crop::new(-4, 2, Size::new(50, 55)).into()],
            vec![bilinear(20.0), Vflip.into(), CenterCrop::new(Size::new(60, 50)).into(), bilinear(-35.0)],
            vec![ResizedCrop::new(window, Size::new(90, 120)).into(), Hflip.into(), bilinear(10.0)],
            vec![Rotate::new(12.0).into(), Resize::shorter_side(94).into(), Vflip.into(), Rotate::new(-7.0).into()],
        ];
        for ops in &lists {
            assert!(check(ops) >= 2, "{ops:?}");
        }
    }

    #[test]
    fn what_moves_pixels_in_its_own_way_is_refused() {
        let custom = Op::Custom(Custom::new("swirl", |_| ()));
        let error = PointMap::new(&[Hflip.into(), custom], SIZE).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("swirl"), "{error}");
        let outside = ResizedCrop::new(Rect { x: 50, y: 0, width: 20, height: 20 }, 8);
        assert!(PointMap::new(&[outside.into()], SIZE).unwrap_err().is_parameter());
    }
}
