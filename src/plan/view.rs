//! An image seen through a chain of coordinate maps.

use crate::ops::byte_table::ByteTable;
use crate::ops::turn::{Exact, Turn};
use crate::raster::{Rect, Size};
use std::ops::Range;

/// Largest side that fits 16.16 fixed point. Larger images go through passes on the complete image.
const MAX_FIXED_SIDE_PX: u32 = 32_767;

/// One step of a coordinate chain: `x' = (a0 x + a1 y + a2) >> 16`, `y' = (a3 x + a4 y + a5) >> 16`. If the result is
/// outside `bounds`, the pixel is `fill`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ViewStep {
    /// Coefficients in 16.16 fixed point. Sums may wrap, because the final values fit.
    pub(crate) a: [i32; 6],
    /// Size of the image that the step reads.
    pub(crate) bounds: Size,
    /// Color of points outside the bounds.
    pub(crate) fill: [u8; 3],
}

impl ViewStep {
    /// This step, applied to the result of an exact map (on the way from the output to the image).
    fn after(self, inner: Exact) -> Self {
        let fold = |a0: i32, a1: i32, a2: i32| {
            [
                a0.wrapping_mul(inner.xx).wrapping_add(a1.wrapping_mul(inner.yx)),
                a0.wrapping_mul(inner.xy).wrapping_add(a1.wrapping_mul(inner.yy)),
                a2.wrapping_add(a0.wrapping_mul(inner.x0)).wrapping_add(a1.wrapping_mul(inner.y0)),
            ]
        };
        let a = self.a;
        let ([a0, a1, a2], [a3, a4, a5]) = (fold(a[0], a[1], a[2]), fold(a[3], a[4], a[5]));
        Self { a: [a0, a1, a2, a3, a4, a5], ..self }
    }

    /// Whether the step moves pixels by whole columns and rows, or mirrors them, as crops beyond the image do.
    fn is_shift(&self) -> bool {
        let [a0, a1, a2, a3, a4, a5] = self.a;
        // The offset of a mirror is not negative where it shows anything of the image. Other sums could wrap.
        let along = |scale: i32, offset: i32| scale == 1 << 16 || (scale == -1 << 16 && offset >= 0);
        a1 == 0 && a3 == 0 && along(a0, a2) && along(a4, a5)
    }

    /// Inclusive bounds of the places that a box of output coordinates maps to, clipped to the image. `None` if all of
    /// them are outside.
    fn reach(&self, [x0, y0, x1, y1]: [i64; 4]) -> Option<[i64; 4]> {
        let a = self.a.map(i64::from);
        // The box's corners give the extremes: the map is linear and the shift monotone.
        let extremes = |a0: i64, a1: i64, a2: i64, side: u32| {
            let (low_x, high_x) = if a0 >= 0 { (x0, x1) } else { (x1, x0) };
            let (low_y, high_y) = if a1 >= 0 { (y0, y1) } else { (y1, y0) };
            let low = (a2 + a0 * low_x + a1 * low_y) >> 16;
            let high = (a2 + a0 * high_x + a1 * high_y) >> 16;
            (low.max(0), high.min(i64::from(side) - 1))
        };
        let (x_low, x_high) = extremes(a[0], a[1], a[2], self.bounds.width);
        let (y_low, y_high) = extremes(a[3], a[4], a[5], self.bounds.height);
        (x_low <= x_high && y_low <= y_high).then_some([x_low, y_low, x_high, y_high])
    }
}

/// The columns of a view's row that show the image.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShownColumns {
    /// The columns, counted from the row's beginning.
    pub(crate) columns: Range<usize>,
    /// The row of the image before `map`.
    pub(crate) y: i32,
    /// The map of these columns, and of `y`, to the image's.
    pub(crate) map: Exact,
}

/// An image seen through a coordinate chain.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ImageView {
    /// Size of the image.
    pub(crate) input: Size,
    /// Size of the view.
    pub(crate) size: Size,
    /// Steps in the order in which coordinates go through them: the step nearest the output first.
    pub(crate) steps: Vec<ViewStep>,
    /// Map from the last step's coordinates to the image's.
    pub(crate) exact: Exact,
    /// Table for the bytes of the image. The steps' fills have gone through it already.
    pub(crate) table: Option<Box<ByteTable>>,
}

impl ImageView {
    /// An image as it is.
    pub(crate) fn plain(size: Size) -> Self {
        Self { input: size, size, steps: Vec::new(), exact: Exact::IDENTITY, table: None }
    }

    /// Applies a table to all bytes of the view, fills included.
    pub(super) fn table(&mut self, table: &ByteTable) {
        self.steps.iter_mut().for_each(|step| table.apply(&mut step.fill));
        self.table = Some(Box::new(match &self.table {
            Some(before) => before.then(table),
            None => *table,
        }));
    }

    /// Adds an exact map at the output's end of the chain: it belongs to the latest operation.
    fn exact(&mut self, map: Exact, size: Size) {
        match self.steps.first_mut() {
            Some(step) => *step = step.after(map),
            None => self.exact = self.exact.after(map),
        }
        self.size = size;
    }

    /// Adds a step at the output's end of the chain.
    pub(super) fn step(&mut self, a: [i32; 6], fill: [u8; 3], size: Size) {
        self.steps.insert(0, ViewStep { a, bounds: self.size, fill });
        self.size = size;
    }

    /// Mirrors or turns the view.
    pub(crate) fn turn(&mut self, turn: Turn) {
        self.exact(turn.map(self.size), turn.output_size(self.size));
    }

    /// Cuts out a rectangle that may reach outside. Returns false if this chain cannot express it.
    pub(crate) fn crop(&mut self, x: i32, y: i32, size: Size, fill: [u8; 3]) -> bool {
        let inside = x >= 0
            && y >= 0
            && x as u32 as u64 + u64::from(size.width) <= u64::from(self.size.width)
            && y as u32 as u64 + u64::from(size.height) <= u64::from(self.size.height);
        if !inside {
            let far = [x, y, x + size.width as i32, y + size.height as i32];
            if !self.fits_fixed() || far.iter().any(|v| v.unsigned_abs() > MAX_FIXED_SIDE_PX) {
                return false;
            }
            self.step([1 << 16, 0, 0, 0, 1 << 16, 0], fill, self.size);
        }
        self.exact(Exact::translate(x, y), size);
        true
    }

    pub(super) fn fits_fixed(&self) -> bool {
        self.size.width <= MAX_FIXED_SIDE_PX && self.size.height <= MAX_FIXED_SIDE_PX
    }

    /// Whether every row of the view is an unchanged run of a row of the image.
    pub(crate) fn is_plain_rows(&self) -> bool {
        self.steps.is_empty() && self.exact.xx == 1 && self.exact.yy == 1
    }

    /// Whether all steps are shifts: each keeps a run of columns, and fills the columns next to it.
    pub(crate) fn is_shifted(&self) -> bool {
        self.steps.iter().all(ViewStep::is_shift)
    }

    /// The columns that show the image, of `len` columns from column `x` of row `y`; `None` if there are none. All steps
    /// must be shifts. `fill` gets the other columns and their color.
    #[inline]
    pub(crate) fn shown(
        &self,
        y: u32,
        x: u32,
        len: usize,
        mut fill: impl FnMut(Range<usize>, [u8; 3]),
    ) -> Option<ShownColumns> {
        // Column `c` comes from column `sign * c + start`, for columns that are inside so far.
        let (mut sign, mut start, mut y) = (1, x as i32, y as i32);
        let mut inside = 0..len as i32;
        for ViewStep { a, bounds, fill: color } in &self.steps {
            let mirror = a[0] >> 16;
            (sign, start) = (mirror * sign, mirror * start + (a[2] >> 16));
            y = (a[4] >> 16) * y + (a[5] >> 16);
            let width = bounds.width as i32;
            let (first, end) = if sign > 0 { (-start, width - start) } else { (start + 1 - width, start + 1) };
            let within = |column: i32| column.clamp(inside.start, inside.end);
            let kept = if y as u32 >= bounds.height { inside.end..inside.end } else { within(first)..within(end) };
            fill(inside.start as usize..kept.start as usize, *color);
            fill(kept.end as usize..inside.end as usize, *color);
            if kept.is_empty() {
                return None;
            }
            inside = kept;
        }
        let e = self.exact;
        let (x0, y0) = (e.x0 + e.xx * start, e.y0 + e.yx * start);
        let map = Exact { xx: e.xx * sign, x0, yx: e.yx * sign, y0, ..e };
        Some(ShownColumns { columns: inside.start as usize..inside.end as usize, y, map })
    }

    /// The part of the image that `part` of the view shows; one pixel if it shows nothing but fill.
    ///
    /// There are two bounds, and the tighter one counts on each side. The first goes step by step: the box of the
    /// previous box, clipped to the step's image. The second follows the corners through all steps and does not grow
    /// with every turn.
    pub(super) fn reach(&self, part: Rect) -> Rect {
        const NOTHING: Rect = Rect { x: 0, y: 0, width: 1, height: 1 };
        let mut boxed =
            [i64::from(part.x), i64::from(part.y), i64::from(part.right()) - 1, i64::from(part.bottom()) - 1];
        let [left, top, right, bottom] = boxed.map(|v| v as f64);
        let mut corners = [(left, top), (right, top), (left, bottom), (right, bottom)];
        // Largest distance between a pixel and the place to which the steps would take it without rounding. It starts
        // at one pixel, for all else.
        let mut margin = 1.0;
        for step in &self.steps {
            match step.reach(boxed) {
                Some(next) => boxed = next,
                None => return NOTHING,
            }
            // The step rounds down, which moves a point by half a pixel on average; the deviation from that is at most
            // half a pixel.
            let a = step.a.map(|a| f64::from(a) / 65536.0);
            corners = corners.map(|(x, y)| (a[0] * x + a[1] * y + a[2] - 0.5, a[3] * x + a[4] * y + a[5] - 0.5));
            // The step stretches the deviation of earlier steps, and its own rounding adds at most half a pixel's
            // diagonal.
            margin = margin * stretch([a[0], a[1], a[3], a[4]]) + 1.01 * std::f64::consts::FRAC_1_SQRT_2;
        }
        if !self.steps.is_empty() {
            let extent = |values: [f64; 4]| {
                let low = values.into_iter().fold(f64::INFINITY, f64::min) - margin;
                let high = values.into_iter().fold(f64::NEG_INFINITY, f64::max) + margin;
                (low.floor() as i64, high.ceil() as i64)
            };
            let (x, y) = (extent(corners.map(|c| c.0)), extent(corners.map(|c| c.1)));
            boxed = [boxed[0].max(x.0), boxed[1].max(y.0), boxed[2].min(x.1), boxed[3].min(y.1)];
        }
        let [x0, y0, x1, y1] = boxed;
        if x0 > x1 || y0 > y1 {
            return NOTHING;
        }
        let (width, height) = ((x1 - x0 + 1) as u32, (y1 - y0 + 1) as u32);
        self.exact.rect(Rect { x: x0 as u32, y: y0 as u32, width, height })
    }
}

/// Largest factor by which a linear map makes a vector longer; 1 for rotations.
fn stretch([a, b, c, d]: [f64; 4]) -> f64 {
    let (squares, determinant) = (a * a + b * b + c * c + d * d, a * d - b * c);
    let longest = (squares * squares - 4.0 * determinant * determinant).max(0.0).sqrt();
    (0.5 * (squares + longest)).sqrt().max(1.0)
}
