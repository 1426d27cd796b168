//! Which pixels of an image a next stage reads that samples it through an affine map. For a part that is turned, they
//! are much fewer than those of the rectangle around them.

use crate::raster::Rect;
use std::ops::Range;

/// Largest distance along an axis between a point and the center of a pixel that bicubic sampling reads there, and a
/// little more against rounding.
pub(crate) const REACH_PX: f64 = 2.01;

/// SampledPoints of an image from which a next stage samples.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SampledPoints {
    /// Corners of a convex shape, in order.
    corners: Vec<[f64; 2]>,
    /// Largest distance of a point from the shape along an axis, in pixels.
    margin_px: f64,
}

impl SampledPoints {
    /// All points of a rectangle.
    fn of(part: Rect) -> Self {
        let (xs, ys) = ([part.x, part.right()].map(f64::from), [part.y, part.bottom()].map(f64::from));
        let corners = vec![[xs[0], ys[0]], [xs[1], ys[0]], [xs[1], ys[1]], [xs[0], ys[1]]];
        Self { corners, margin_px: 0.0 }
    }

    /// The points that this map makes of them.
    #[must_use]
    pub(crate) fn mapped(mut self, [a, b, c, d, e, f]: [f64; 6]) -> Self {
        self.corners.iter_mut().for_each(|corner| {
            let [x, y] = *corner;
            *corner = [a * x + b * y + c, d * x + e * y + f];
        });
        self.margin_px *= (a.abs() + b.abs()).max(d.abs() + e.abs());
        self
    }

    /// The points of the rectangle that are nearest to each of them. `None` if numbers become too large.
    pub(crate) fn clamped(mut self, rect: Rect) -> Option<Self> {
        if !self.corners.as_flattened().iter().all(|v| v.is_finite()) || !self.margin_px.is_finite() {
            return None;
        }
        let bounds = [[rect.x, rect.right()].map(f64::from), [rect.y, rect.bottom()].map(f64::from)];
        let clamp = |point: [f64; 2]| [0, 1].map(|axis| point[axis].clamp(bounds[axis][0], bounds[axis][1]));
        if self.corners.iter().all(|corner| clamp(*corner) == *corner) {
            return Some(self);
        }
        // Between the rectangle's four lines, the nearest points of a side's points are on a line.
        let mut all = Vec::with_capacity(self.corners.len() + 8);
        for (from, to) in sides(&self.corners) {
            all.push(clamp(from));
            for axis in 0..2 {
                for bound in bounds[axis] {
                    let at = (bound - from[axis]) / (to[axis] - from[axis]);
                    if at > 0.0 && at < 1.0 {
                        all.push(clamp([0, 1].map(|axis| from[axis] + at * (to[axis] - from[axis]))));
                    }
                }
            }
        }
        self.corners = hull(all);
        Some(self)
    }

    /// The part of a rectangle within this distance of a point; one pixel if there is none.
    pub(crate) fn within(&self, px: f64, rect: Rect) -> Rect {
        let along = |axis: usize, start: u32, len: u32| {
            let values = || self.corners.iter().map(|corner| corner[axis]);
            let (first, last) = (f64::from(start), f64::from(start + len - 1));
            let low = values().fold(f64::INFINITY, f64::min) - self.margin_px - px;
            let high = values().fold(f64::NEG_INFINITY, f64::max) + self.margin_px + px;
            let (low, high) = (low.floor().clamp(first, last) as u32, high.floor().clamp(first, last) as u32);
            (low, high - low + 1)
        };
        let ((x, width), (y, height)) = (along(0, rect.x, rect.width), along(1, rect.y, rect.height));
        Rect { x, y, width, height }
    }

    /// The leftmost and the rightmost point of those between two lines across.
    fn between(&self, top: f64, bottom: f64) -> Option<(f64, f64)> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for ([ax, ay], [bx, by]) in sides(&self.corners) {
            if ay.max(by) < top || ay.min(by) > bottom {
                continue;
            }
            // Where the side crosses the lines, or where it ends.
            let ends =
                if ay == by { [0.0, 1.0] } else { [top, bottom].map(|line| ((line - ay) / (by - ay)).clamp(0.0, 1.0)) };
            for at in ends {
                low = low.min(ax + at * (bx - ax));
                high = high.max(ax + at * (bx - ax));
            }
        }
        (low <= high).then_some((low, high))
    }
}

/// The sides of a shape, each with both of its ends.
fn sides(corners: &[[f64; 2]]) -> impl Iterator<Item = ([f64; 2], [f64; 2])> {
    corners.iter().zip(corners.iter().cycle().skip(1)).map(|(from, to)| (*from, *to))
}

/// The corners of the smallest convex shape that contains the points, in order: Andrew's monotone chain.
fn hull(mut points: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    points.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    points.dedup();
    let mut hull = Vec::with_capacity(points.len() + 1);
    let mut chain = |points: &mut dyn Iterator<Item = &[f64; 2]>| {
        let start = hull.len();
        for &point in points {
            let turns = |[.., [ax, ay], [bx, by]]: &[[f64; 2]; 2]| {
                (bx - ax) * (point[1] - ay) - (by - ay) * (point[0] - ax) > 0.0
            };
            while hull.len() >= start + 2 && hull.last_chunk().is_some_and(|last| !turns(last)) {
                hull.pop();
            }
            hull.push(point);
        }
        hull.pop();
    };
    if points.len() < 3 {
        return points;
    }
    chain(&mut points.iter());
    chain(&mut points.iter().rev());
    hull
}

/// The pixels of a canvas that are needed: those of a rectangle, and of these only those next to the points from which
/// a next stage samples, if it does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NeededPixels<'a> {
    pub(crate) part: Rect,
    pub(crate) points: Option<&'a SampledPoints>,
}

impl NeededPixels<'_> {
    /// All places where a needed pixel's center may be.
    pub(super) fn centers(&self) -> SampledPoints {
        match self.points {
            Some(points) => SampledPoints { margin_px: points.margin_px + REACH_PX, ..points.clone() },
            None => SampledPoints::of(self.part),
        }
    }

    /// Number of rows that have the same needed columns.
    const ROWS: u32 = 8;

    /// Rows of the part, and the needed columns of each, both counted from the part's corner.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u32, Range<usize>)> {
        let Rect { x, y, width, height } = self.part;
        let mut columns = 0..width as usize;
        (0..height).map(move |row| {
            if let Some(points) = self.points
                && row % Self::ROWS == 0
            {
                let reach = points.margin_px + REACH_PX;
                let column = |v: f64| (v - f64::from(x)).clamp(0.0, f64::from(width)) as usize;
                let between = points.between(f64::from(y + row) - reach, f64::from(y + row + Self::ROWS) + reach);
                columns = between.map_or(0..0, |(low, high)| column(low - reach)..column(high + reach + 1.0));
            }
            (row, columns.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn clamped_shapes_contain_all_clamped_points() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for _ in 0..2000 {
            let part = Rect { x: 3, y: 5, width: rng.random_range(1..40), height: rng.random_range(1..40) };
            let mut number = || rng.random_range(-2.0..2.0);
            let map = [number(), number(), 20.0 * number(), number(), number(), 20.0 * number()];
            let bounds = Rect { x: 2, y: 0, width: 25, height: 30 };
            let shape = SampledPoints::of(part).mapped(map).clamped(bounds).unwrap();
            let [a, b, c, d, e, f] = map;
            for _ in 0..50 {
                let x = rng.random_range(f64::from(part.x)..=f64::from(part.right()));
                let y = rng.random_range(f64::from(part.y)..=f64::from(part.bottom()));
                let (x, y) = ((a * x + b * y + c).clamp(2.0, 27.0), (d * x + e * y + f).clamp(0.0, 30.0));
                let (low, high) = shape.between(y - 1e-9, y + 1e-9).expect("the point's row");
                assert!(low - 1e-6 <= x && x <= high + 1e-6, "{part:?} {map:?}: ({x}, {y}) beyond {low} to {high}");
            }
        }
    }
}
