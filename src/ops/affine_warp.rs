//! Sampling through an affine map, as rotations do it.
//!
//! If the fill is a color, this is Pillow's affine transform: nearest uses 16.16 fixed point; bilinear and bicubic use
//! double precision and drop the fraction of their result. If the fill is [`Fill::EDGE`], this is DALI's `fn.rotate`:
//! the edge's pixels continue without end, and bilinear rounds to nearest.

use super::descriptors::{RotateSample, SourceImage};
use super::fill::{Fill, opaque};
use super::filter::Interpolation;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::needed_pixels::{NeededPixels, SampledPoints};
use super::points::FixedPoints;
use super::rotation::fixed_point;
use super::turn::Exact;
use crate::error::{Error, Result};
use crate::raster::{Image, Pixel, Rect, Size};
use crate::simd::{truncate_f64, wide};
use std::ops::Range;

/// The kernels of all filters.
pub(crate) const KERNELS: &[Kernel] = &[
    Kernel::pixels("rotate_nearest_u8_nhwc"),
    Kernel::pixels("rotate_nearest_double_u8_nhwc"),
    Kernel::pixels("rotate_bilinear_u8_nhwc"),
    Kernel::pixels("rotate_bicubic_u8_nhwc"),
];

/// Checks that sampling at points supports a filter.
pub(crate) fn validate(name: &'static str, interpolation: Interpolation) -> Result<()> {
    match interpolation {
        Interpolation::Nearest | Interpolation::Bilinear | Interpolation::Bicubic => Ok(()),
        Interpolation::Box | Interpolation::Hamming | Interpolation::Lanczos => {
            let got = format!("{interpolation:?}").to_lowercase();
            Err(Error::parameter(name, "interpolation", "nearest, bilinear or bicubic", got))
        }
    }
}

/// The inverse map. `None` if the map flattens the image.
pub(crate) fn inverse([a, b, c, d, e, f]: [f64; 6]) -> Option<[f64; 6]> {
    let determinant = a * e - b * d;
    let [xx, xy, yx, yy] = [e, -b, -d, a].map(|value| value / determinant);
    let matrix = [xx, xy, -(xx * c + xy * f), yx, yy, -(yx * c + yy * f)];
    matrix.iter().all(|value| value.is_finite()).then_some(matrix)
}

/// The error for a map that puts the whole image on a line, so that points of the image have no place in the result.
pub(super) fn flattens(name: &'static str) -> Error {
    Error::parameter(name, "matrix", "one that has an inverse, where boxes or keypoints follow it", "one without")
}

/// An affine map from pixel centers of a canvas to points of the image, and the way in which the image is sampled
/// there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AffineWarp {
    /// The matrix, row by row.
    pub(crate) matrix: [f64; 6],
    /// Nearest, bilinear or, with a color as fill, bicubic.
    pub(crate) interpolation: Interpolation,
    /// Fill outside the image.
    pub(crate) fill: Fill,
}

impl AffineWarp {
    /// Makes the rectangle `part` of the canvas. `input` holds the rectangle that [`reach`](Self::reach) returns.
    pub(crate) fn make(&self, input: &Image, canvas: Size, part: Rect, out: &mut Image) {
        match self.interpolation {
            Interpolation::Nearest => nearest(input, self.matrix, canvas, self.fill, part, out),
            _ => self.make_of_view(SampledView::whole(input), canvas, &NeededPixels { part, points: None }, out),
        }
    }

    /// Makes the needed pixels of the canvas, from the four or sixteen pixels of the view around each point.
    pub(crate) fn make_of_view(&self, seen: SampledView<'_>, canvas: Size, needed: &NeededPixels<'_>, out: &mut Image) {
        out.reset_part(canvas, needed.part);
        if self.interpolation == Interpolation::Bicubic {
            return bicubic(seen, self.matrix, self.fill, needed, out);
        }
        #[cfg(target_arch = "x86_64")]
        if super::affine_warp_x86::bilinear(seen, self.matrix, self.fill, needed, out) {
            return;
        }
        bilinear_plain(seen, self.matrix, self.fill, needed, out);
    }

    /// Queues the kernel for the rectangle `part` of the canvas, which samples the view of size `size` that `exact` shows
    /// of the image.
    pub(crate) fn launch(
        &self,
        on: &mut dyn CallRecorder,
        exact: Exact,
        size: Size,
        canvas: Size,
        part: Rect,
    ) -> Result<()> {
        const NEAREST: KernelId = KernelId::of("rotate_nearest_u8_nhwc");
        const NEAREST_DOUBLE: KernelId = KernelId::of("rotate_nearest_double_u8_nhwc");
        const BILINEAR: KernelId = KernelId::of("rotate_bilinear_u8_nhwc");
        const BICUBIC: KernelId = KernelId::of("rotate_bicubic_u8_nhwc");
        let (source, right, down) = seen_by_kernel(on.source(), exact, size);
        let target = on.target(canvas, part)?;
        let (kernel, FixedPoints { fixed, doubt }) = match self.interpolation {
            Interpolation::Nearest => match fixed_point(self.matrix, canvas) {
                Some(fixed) => (NEAREST, FixedPoints { fixed: fixed.map(i64::from), doubt: 0 }),
                None => (NEAREST_DOUBLE, FixedPoints::nearest(self.matrix, canvas, size)),
            },
            Interpolation::Bicubic => (BICUBIC, FixedPoints::bicubic(self.matrix, canvas, size)),
            _ => (BILINEAR, FixedPoints::bilinear(self.matrix, canvas, size)),
        };
        let (fill, edge) = self.fill.packed();
        let matrix = self.matrix;
        let sample = RotateSample { source, target, matrix, fixed, fill, edge, doubt, right, down, reserved: 0 };
        on.call(kernel, &sample, part.size());
        Ok(())
    }

    /// The points from which the needed pixels of the canvas are sampled.
    pub(crate) fn points(&self, needed: &NeededPixels<'_>) -> SampledPoints {
        needed.centers().mapped(self.matrix)
    }

    /// The pixels of an image of size `input` that sampling `part` may read. Never empty.
    pub(crate) fn reach(&self, part: Rect, input: Size) -> Rect {
        let m = &self.matrix;
        let xs = [f64::from(part.x) + 0.5, f64::from(part.right()) - 0.5];
        let ys = [f64::from(part.y) + 0.5, f64::from(part.bottom()) - 0.5];
        let axis = |a: f64, b: f64, c: f64, side: u32| {
            let corners = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(i, j): (usize, usize)| a * xs[i] + b * ys[j] + c);
            let low = corners.into_iter().fold(f64::INFINITY, f64::min);
            let high = corners.into_iter().fold(f64::NEG_INFINITY, f64::max);
            // One pixel more on either side than the neighbors that are read, against rounding.
            let last = f64::from(side) - 1.0;
            let low = (low.floor() - 2.0).clamp(0.0, last) as u32;
            let high = (high.floor() + 2.0).clamp(0.0, last) as u32;
            (low, high - low + 1)
        };
        let (x, width) = axis(m[0], m[1], m[2], input.width);
        let (y, height) = axis(m[3], m[4], m[5], input.height);
        Rect { x, y, width, height }
    }
}

/// An image as the map `exact` shows it, for [`RotateSample`], and the distances to the view's next column and row in
/// bytes.
fn seen_by_kernel(image: SourceImage, exact: Exact, size: Size) -> (SourceImage, i32, i32) {
    let SourceImage { pixels, pitch_bytes, x, y, width, height, .. } = image;
    let stored = exact.output_part(Rect { x, y, width, height }, size);
    let pitch = pitch_bytes as i32;
    let (right, down) = (3 * exact.xx + pitch * exact.yx, 3 * exact.xy + pitch * exact.yy);
    let (first_x, first_y) = exact.apply(stored.x as i32, stored.y as i32);
    let first = 3 * (i64::from(first_x) - i64::from(x)) + i64::from(pitch) * (i64::from(first_y) - i64::from(y));
    let seen = SourceImage {
        pixels: pixels.wrapping_add_signed(first),
        x: stored.x,
        y: stored.y,
        width: stored.width,
        height: stored.height,
        whole_width: size.width,
        whole_height: size.height,
        ..image
    };
    (seen, right, down)
}

/// Makes the rectangle `part` of the canvas. Each pixel is the one whose area contains its point.
///
/// `input` may be a part of its whole that holds the rectangle of [`AffineWarp::reach`].
fn nearest(input: &Image, matrix: [f64; 6], canvas: Size, fill: Fill, part: Rect, out: &mut Image) {
    out.reset_part(canvas, part);
    let Some(fixed) = fixed_point(matrix, canvas) else {
        return nearest_double(input, matrix, fill, part, out);
    };
    let [a0, a1, a2, a3, a4, a5] = fixed.map(i64::from);
    let (whole, stored) = (input.whole(), input.part());
    let (pixels, stride) = (input.pixels(), stored.width as usize);
    for y in 0..part.height {
        let row = out.row_mut(y);
        let (column, line) = (i64::from(part.x), i64::from(part.y + y));
        let (mut x, mut y) = (a2 + a0 * column + a1 * line, a5 + a3 * column + a4 * line);
        match fill.rgb() {
            Some(color) => {
                let columns = inside::<16>(x, a0, whole.width, row.len());
                let inside = intersection(columns, inside::<16>(y, a3, whole.height, row.len()));
                row[..inside.start].fill(opaque(color));
                row[inside.end..].fill(opaque(color));
                x += a0 * inside.start as i64 - (i64::from(stored.x) << 16);
                y += a3 * inside.start as i64 - (i64::from(stored.y) << 16);
                for pixel in &mut row[inside] {
                    *pixel = pixels[(y >> 16) as usize * stride + (x >> 16) as usize];
                    x += a0;
                    y += a3;
                }
            }
            None => {
                for pixel in row {
                    *pixel = at_edge(input, x >> 16, y >> 16);
                    x += a0;
                    y += a3;
                }
            }
        }
    }
}

/// The range of `i` in `0..len` for which `start + i step` is inside `0..size`, all with `BITS` fractional bits.
pub(crate) fn inside<const BITS: u32>(start: i64, step: i64, size: u32, len: usize) -> Range<usize> {
    let end = i64::from(size) << BITS;
    let len = len as i64;
    // Smallest i with start + i step >= bound, for a positive step.
    let reaches = |start: i64, step: i64, bound: i64| (bound - start + step - 1).div_euclid(step).clamp(0, len);
    let (from, to) = match step {
        0 if (0..end).contains(&start) => (0, len),
        0 => (0, 0),
        1.. => (reaches(start, step, 0), reaches(start, step, end)),
        // Mirrored: -start + i (-step) > -end and <= 0.
        _ => (reaches(-start, -step, 1 - end), reaches(-start, -step, 1)),
    };
    from as usize..to.max(from) as usize
}

/// The intersection of two ranges. If it is empty, an empty range within `b`.
pub(super) fn intersection(a: Range<usize>, b: Range<usize>) -> Range<usize> {
    let start = a.start.clamp(b.start, b.end);
    start..a.end.clamp(start, b.end)
}

/// The pixel of the whole at (`x`, `y`), or the nearest stored pixel.
#[inline(always)]
fn at_edge(input: &Image, x: i64, y: i64) -> Pixel {
    let stored = input.part();
    let clamp = |v: i64, start: u32, len: u32| (v - i64::from(start)).clamp(0, i64::from(len) - 1) as usize;
    let (x, y) = (clamp(x, stored.x, stored.width), clamp(y, stored.y, stored.height));
    input.pixels()[y * stored.width as usize + x]
}

/// Pillow's nearest sampling where coordinates do not fit its fixed point: it adds up doubles.
fn nearest_double(input: &Image, matrix: [f64; 6], fill: Fill, part: Rect, out: &mut Image) {
    let m = matrix;
    let (width, height) = (f64::from(input.whole().width), f64::from(input.whole().height));
    let mut start = (m[2] + m[1] * 0.5 + m[0] * 0.5, m[5] + m[4] * 0.5 + m[3] * 0.5);
    for y in 0..part.bottom() {
        if y >= part.y {
            let (mut x_in, mut y_in) = start;
            let row = out.row_mut(y - part.y);
            for x in 0..part.right() {
                if x >= part.x {
                    let inside = x_in >= 0.0 && x_in < width && y_in >= 0.0 && y_in < height;
                    row[(x - part.x) as usize] = match fill.rgb() {
                        Some(color) if !inside => opaque(color),
                        _ => at_edge(input, x_in.floor() as i64, y_in.floor() as i64),
                    };
                }
                x_in += m[0];
                y_in += m[3];
            }
        }
        start.0 += m[1];
        start.1 += m[4];
    }
}

/// An image as a mirror, a turn or a crop shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampledView<'a> {
    pub(crate) image: &'a Image,
    /// Map from the view's pixels to the image's.
    pub(crate) exact: Exact,
    /// Size of the view.
    pub(crate) size: Size,
}

impl<'a> SampledView<'a> {
    /// The image itself.
    pub(crate) fn whole(image: &'a Image) -> Self {
        Self { image, exact: Exact::IDENTITY, size: image.whole() }
    }

    /// The part of the view whose pixels are stored.
    pub(super) fn stored(&self) -> Rect {
        self.exact.output_part(self.image.part(), self.size)
    }
}

/// The specification of bilinear sampling, pixel by pixel.
pub(super) fn bilinear_plain(
    seen: SampledView<'_>,
    matrix: [f64; 6],
    fill: Fill,
    needed: &NeededPixels<'_>,
    out: &mut Image,
) {
    let part = needed.part;
    for (y, columns) in needed.rows() {
        let line = Line::new(seen, matrix, fill, part.y + y);
        for (x, pixel) in (part.x + columns.start as u32..).zip(&mut out.row_mut(y)[columns]) {
            *pixel = line.bilinear(x);
        }
    }
}

/// Bicubic sampling, pixel by pixel.
fn bicubic(seen: SampledView<'_>, matrix: [f64; 6], fill: Fill, needed: &NeededPixels<'_>, out: &mut Image) {
    let part = needed.part;
    wide(
        #[inline(always)]
        || {
            for (y, columns) in needed.rows() {
                let line = Line::new(seen, matrix, fill, part.y + y);
                for (x, pixel) in (part.x + columns.start as u32..).zip(&mut out.row_mut(y)[columns]) {
                    *pixel = line.bicubic(x);
                }
            }
        },
    );
}

/// The cubic through the middle two of four values at `at` between them, with the slopes of a = -1.
#[inline(always)]
fn cubic([a, b, c, d]: [f64; 4], at: f64) -> f64 {
    let (second, third, fourth) = (c - a, 2.0 * (a - b) + c - d, b - a - c + d);
    b + at * (second + at * (third + at * fourth))
}

/// Values that the pixels of one row of the canvas share.
pub(super) struct Line<'a> {
    pixels: &'a [Pixel],
    /// The part of the view whose pixels are stored.
    stored: Rect,
    /// The index of the view's first pixel, and the distances to the next column and row.
    first: isize,
    column: isize,
    row: isize,
    width: f64,
    height: f64,
    /// The color outside the view; `None` for its edge.
    fill: Option<[u8; 3]>,
    /// Change of the point for one step to the right.
    pub(super) step: [f64; 2],
    /// The row's part of the point, and the constant part. They are two summands, because the sum of all three parts is
    /// rounded twice.
    pub(super) down: [f64; 2],
    pub(super) origin: [f64; 2],
}

impl<'a> Line<'a> {
    pub(super) fn new(seen: SampledView<'a>, matrix: [f64; 6], fill: Fill, y: u32) -> Self {
        let y = f64::from(y) + 0.5;
        let (held, e) = (seen.image.part(), seen.exact);
        let stride = held.width as isize;
        Self {
            pixels: seen.image.pixels(),
            stored: seen.stored(),
            first: (e.y0 as isize - held.y as isize) * stride + e.x0 as isize - held.x as isize,
            column: e.xx as isize + e.yx as isize * stride,
            row: e.xy as isize + e.yy as isize * stride,
            width: f64::from(seen.size.width),
            height: f64::from(seen.size.height),
            fill: fill.rgb(),
            step: [matrix[0], matrix[3]],
            down: [matrix[1] * y, matrix[4] * y],
            origin: [matrix[2], matrix[5]],
        }
    }

    /// The point of pixel `x`.
    #[inline(always)]
    fn point(&self, x: u32) -> (f64, f64) {
        let x = f64::from(x) + 0.5;
        let point = |axis: usize| self.step[axis] * x + self.down[axis] + self.origin[axis];
        (point(0), point(1))
    }

    /// The stored columns `first..first + N`, clamped, as distances in memory. Clamping to the stored part equals
    /// clamping to the whole, because the stored part holds all pixels that are read.
    #[inline(always)]
    fn columns<const N: usize>(&self, first: i32) -> [isize; N] {
        let Rect { x, width, .. } = self.stored;
        std::array::from_fn(|i| {
            first.saturating_add(i as i32).clamp(x as i32, (x + width) as i32 - 1) as isize * self.column
        })
    }

    /// The first pixel of the stored rows `first..first + N`, clamped.
    #[inline(always)]
    fn rows<const N: usize>(&self, first: i32) -> [isize; N] {
        let Rect { y, height, .. } = self.stored;
        let clamped = |i: usize| first.saturating_add(i as i32).clamp(y as i32, (y + height) as i32 - 1) as isize;
        std::array::from_fn(|i| self.first + clamped(i) * self.row)
    }

    #[inline(always)]
    fn bicubic(&self, x: u32) -> Pixel {
        let (x, y) = self.point(x);
        if let Some(color) = self.fill
            && !(x >= 0.0 && x < self.width && y >= 0.0 && y < self.height)
        {
            return opaque(color);
        }
        let (x, y) = (x - 0.5, y - 0.5);
        let (left, top) = (x.floor(), y.floor());
        let (dx, dy) = (x - left, y - top);
        let columns: [isize; 4] = self.columns(left as i32 - 1);
        let rows: [isize; 4] = self.rows(top as i32 - 1);
        std::array::from_fn(|channel| {
            let across = rows.map(|row| {
                let value = |column: isize| f64::from(self.pixels[(row + column) as usize][channel]);
                cubic(columns.map(value), dx)
            });
            truncate_f64(cubic(across, dy)) as u8
        })
    }

    pub(super) fn bilinear(&self, x: u32) -> Pixel {
        let (x, y) = self.point(x);
        let rounding = match self.fill {
            Some(color) if !(x >= 0.0 && x < self.width && y >= 0.0 && y < self.height) => {
                return opaque(color);
            }
            Some(_) => 0.0,
            None => 0.5,
        };
        let (x, y) = (x - 0.5, y - 0.5);
        let (left, top) = (x.floor(), y.floor());
        let (dx, dy) = (x - left, y - top);
        let columns: [isize; 2] = self.columns(left as i32);
        let [above, below]: [isize; 2] = self.rows(top as i32);
        let mix = |a: f64, b: f64, d: f64| a + (b - a) * d;
        let [[a, b], [c, d]] = [above, below].map(|row| columns.map(|column| self.pixels[(row + column) as usize]));
        std::array::from_fn(|channel| {
            let of = |pixel: Pixel| f64::from(pixel[channel]);
            truncate_f64(mix(mix(of(a), of(b), dx), mix(of(c), of(d), dx), dy) + rounding) as u8
        })
    }
}
