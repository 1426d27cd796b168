//! Sampling through an affine map, as rotations do it.
//!
//! If the fill is a color, this is Pillow's affine transform: nearest uses 16.16 fixed point; bilinear and bicubic use
//! double precision and drop the fraction of their result. If the fill is [`Fill::EDGE`], this is DALI's `fn.rotate`:
//! the edge's pixels continue without end, and bilinear rounds to nearest.

use super::descriptors::RotateSample;
use super::fill::{Fill, opaque};
use super::filter::Interpolation;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::points::FixedPoints;
use super::rotation::fixed_point;
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
        Interpolation::Lanczos => {
            Err(Error::parameter(name, "interpolation", "nearest, bilinear or bicubic", "lanczos"))
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
            Interpolation::Bicubic => bicubic(input, self.matrix, canvas, self.fill, part, out),
            _ => bilinear(input, self.matrix, canvas, self.fill, part, out),
        }
    }

    /// Queues the kernel for the rectangle `part` of the canvas.
    pub(crate) fn launch(&self, on: &mut dyn CallRecorder, canvas: Size, part: Rect) -> Result<()> {
        const NEAREST: KernelId = KernelId::of("rotate_nearest_u8_nhwc");
        const NEAREST_DOUBLE: KernelId = KernelId::of("rotate_nearest_double_u8_nhwc");
        const BILINEAR: KernelId = KernelId::of("rotate_bilinear_u8_nhwc");
        const BICUBIC: KernelId = KernelId::of("rotate_bicubic_u8_nhwc");
        let source = on.source();
        let target = on.target(canvas, part)?;
        let whole = Size::new(source.whole_width, source.whole_height);
        let (kernel, FixedPoints { fixed, doubt }) = match self.interpolation {
            Interpolation::Nearest => match fixed_point(self.matrix, canvas) {
                Some(fixed) => (NEAREST, FixedPoints { fixed: fixed.map(i64::from), doubt: 0 }),
                None => (NEAREST_DOUBLE, FixedPoints::nearest(self.matrix, canvas, whole)),
            },
            Interpolation::Bicubic => (BICUBIC, FixedPoints::bicubic(self.matrix, canvas, whole)),
            _ => (BILINEAR, FixedPoints::bilinear(self.matrix, canvas, whole)),
        };
        let (fill, edge) = self.fill.packed();
        let sample = RotateSample { source, target, matrix: self.matrix, fixed, fill, edge, doubt, reserved: 0 };
        on.call(kernel, &sample, part.size());
        Ok(())
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
        match fill {
            Fill::Color(color) => {
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
            Fill::Edge(_) => {
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
fn intersection(a: Range<usize>, b: Range<usize>) -> Range<usize> {
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
                    row[(x - part.x) as usize] = match fill {
                        Fill::Color(color) if !inside => opaque(color),
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

/// Makes the rectangle `part` of the canvas, each pixel from the four pixels around its point.
///
/// `input` may be a part of its whole that holds the rectangle of [`AffineWarp::reach`].
fn bilinear(input: &Image, matrix: [f64; 6], canvas: Size, fill: Fill, part: Rect, out: &mut Image) {
    out.reset_part(canvas, part);
    #[cfg(target_arch = "x86_64")]
    if avx2::bilinear(input, matrix, fill, part, out) {
        return;
    }
    bilinear_plain(input, matrix, fill, part, out);
}

/// The specification of [`bilinear`], pixel by pixel.
pub(super) fn bilinear_plain(input: &Image, matrix: [f64; 6], fill: Fill, part: Rect, out: &mut Image) {
    for y in 0..part.height {
        let line = Line::new(input, matrix, fill, part.y + y);
        for (x, pixel) in (part.x..).zip(out.row_mut(y)) {
            *pixel = line.bilinear(x);
        }
    }
}

/// Makes the rectangle `part` of the canvas, each pixel from the sixteen pixels around its point.
///
/// `input` may be a part of its whole that holds the rectangle of [`AffineWarp::reach`].
fn bicubic(input: &Image, matrix: [f64; 6], canvas: Size, fill: Fill, part: Rect, out: &mut Image) {
    out.reset_part(canvas, part);
    wide(
        #[inline(always)]
        || {
            for y in 0..part.height {
                let line = Line::new(input, matrix, fill, part.y + y);
                for (x, pixel) in (part.x..).zip(out.row_mut(y)) {
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
struct Line<'a> {
    pixels: &'a [Pixel],
    stored: Rect,
    width: f64,
    height: f64,
    fill: Fill,
    /// Change of the point for one step to the right.
    step: [f64; 2],
    /// The row's part of the point, and the constant part. They are two summands, because the sum of all three parts is
    /// rounded twice.
    row: [f64; 2],
    origin: [f64; 2],
}

impl<'a> Line<'a> {
    fn new(input: &'a Image, matrix: [f64; 6], fill: Fill, y: u32) -> Self {
        let y = f64::from(y) + 0.5;
        Self {
            pixels: input.pixels(),
            stored: input.part(),
            width: f64::from(input.whole().width),
            height: f64::from(input.whole().height),
            fill,
            step: [matrix[0], matrix[3]],
            row: [matrix[1] * y, matrix[4] * y],
            origin: [matrix[2], matrix[5]],
        }
    }

    /// The point of pixel `x`.
    #[inline(always)]
    fn point(&self, x: u32) -> (f64, f64) {
        let x = f64::from(x) + 0.5;
        let point = |axis: usize| self.step[axis] * x + self.row[axis] + self.origin[axis];
        (point(0), point(1))
    }

    /// The stored columns or rows `first..first + N`, clamped. Clamping to the stored part equals clamping to the
    /// whole, because the stored part holds all pixels that are read.
    #[inline(always)]
    fn clamped<const N: usize>(first: i32, start: u32, len: u32) -> [usize; N] {
        std::array::from_fn(|i| (first + i as i32 - start as i32).clamp(0, len as i32 - 1) as usize)
    }

    #[inline(always)]
    fn bicubic(&self, x: u32) -> Pixel {
        let (x, y) = self.point(x);
        if let Fill::Color(color) = self.fill
            && !(x >= 0.0 && x < self.width && y >= 0.0 && y < self.height)
        {
            return opaque(color);
        }
        let (x, y) = (x - 0.5, y - 0.5);
        let (left, top) = (x.floor(), y.floor());
        let (dx, dy) = (x - left, y - top);
        let columns: [usize; 4] = Self::clamped(left as i32 - 1, self.stored.x, self.stored.width);
        let rows: [usize; 4] = Self::clamped(top as i32 - 1, self.stored.y, self.stored.height);
        let rows = rows.map(|y| &self.pixels[y * self.stored.width as usize..]);
        std::array::from_fn(|channel| {
            let across = rows.map(|row| cubic(columns.map(|x| f64::from(row[x][channel])), dx));
            truncate_f64(cubic(across, dy)) as u8
        })
    }

    fn bilinear(&self, x: u32) -> Pixel {
        let (x, y) = self.point(x);
        let rounding = match self.fill {
            Fill::Color(color) if !(x >= 0.0 && x < self.width && y >= 0.0 && y < self.height) => {
                return opaque(color);
            }
            Fill::Color(_) => 0.0,
            Fill::Edge(_) => 0.5,
        };
        let (x, y) = (x - 0.5, y - 0.5);
        let (left, top) = (x.floor(), y.floor());
        let (dx, dy) = (x - left, y - top);
        let columns: [usize; 2] = Self::clamped(left as i32, self.stored.x, self.stored.width);
        let rows: [usize; 2] = Self::clamped(top as i32, self.stored.y, self.stored.height);
        let [above, below] = rows.map(|y| &self.pixels[y * self.stored.width as usize..]);
        let mix = |a: f64, b: f64, d: f64| a + (b - a) * d;
        std::array::from_fn(|channel| {
            let of = |row: &[Pixel], column: usize| f64::from(row[column][channel]);
            let above = mix(of(above, columns[0]), of(above, columns[1]), dx);
            let below = mix(of(below, columns[0]), of(below, columns[1]), dx);
            truncate_f64(mix(above, below, dy) + rounding) as u8
        })
    }
}

/// [`bilinear`] with AVX2, eight pixels at a time.
///
/// Points are 32.32 fixed point and values single precision, so a value may be slightly off, and its byte may differ if
/// the value is close to a place where bytes change. [`Line::bilinear`] makes these pixels again, about one in a
/// thousand; all others are equal. This relies on bilinear interpolation being continuous: a point that is slightly
/// off, even across the border of a pixel, gives a value that is slightly off.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    #![allow(unsafe_code)]

    use super::{Fill, Line, inside, intersection, opaque};
    use crate::raster::{Image, Pixel, Rect};
    use crate::simd::has_avx2;
    use std::arch::x86_64::*;
    use std::ops::Range;

    /// Fractional bits of a point.
    const BITS: u32 = 32;
    /// Number of pixels whose points are computed by addition before a point is computed anew.
    const SEGMENT: usize = 512;
    /// Bound of a value's error. In units of 1e-5: points 3, for 512 steps off by 2^-33; fractions 3, for cutting to 24
    /// bits, on both axes, at 255 a pixel; arithmetic 0.8 for each of four roundings. The bound is more than twice the
    /// sum.
    const DOUBT: f32 = 1.0 / 4096.0;

    /// Makes the rectangle and returns true. Returns false if the processor has no AVX2, or if the image is too small
    /// or too large.
    pub(super) fn bilinear(input: &Image, matrix: [f64; 6], fill: Fill, part: Rect, out: &mut Image) -> bool {
        let stored = input.part();
        // Indices of pixels are 32-bit lanes, and each pixel needs neighbors to the right and below.
        if !has_avx2() || input.pixels().len() > i32::MAX as usize || stored.width < 2 || stored.height < 2 {
            return false;
        }
        for y in 0..part.height {
            let line = Line::new(input, matrix, fill, part.y + y);
            let mut first = part.x;
            for segment in out.row_mut(y).chunks_mut(SEGMENT) {
                make_segment(&line, first, segment);
                first += SEGMENT as u32;
            }
        }
        true
    }

    fn make_segment(line: &Line<'_>, first: u32, out: &mut [Pixel]) {
        let stored = line.stored;
        let fixed = |v: f64| (v * (1u64 << BITS) as f64).round() as i64;
        let x = f64::from(first) + 0.5;
        let start: [i64; 2] = std::array::from_fn(|axis| {
            let origin = f64::from([stored.x, stored.y][axis]);
            fixed(line.step[axis] * x + line.row[axis] + line.origin[axis] - 0.5 - origin)
        });
        let step = line.step.map(fixed);
        let len = out.len();
        // The pixels whose point lies between the centers of four stored pixels.
        let between = intersection(
            inside::<BITS>(start[0], step[0], stored.width - 1, len),
            inside::<BITS>(start[1], step[1], stored.height - 1, len),
        );
        let points = Points { start, step };
        match line.fill {
            Fill::Color(color) => {
                // The pixels whose point is inside the image or within a pixel of it.
                let margin = |axis: usize, origin: u32, size: f64| {
                    let start = start[axis] + ((i64::from(origin) + 2) << BITS);
                    inside::<BITS>(start, step[axis], size as u32 + 4, len)
                };
                let near = intersection(margin(0, stored.x, line.width), margin(1, stored.y, line.height));
                out[..near.start].fill(opaque(color));
                out[near.end..].fill(opaque(color));
                let between = intersection(between, near.clone());
                for x in (near.start..between.start).chain(between.end..near.end) {
                    out[x] = line.bilinear(first + x as u32);
                }
                // SAFETY: the processor has AVX2, and all points of `between` lie between stored pixels.
                unsafe { make::<false, false>(line, points, first, between, out) };
            }
            Fill::Edge(_) => {
                // SAFETY: the processor has AVX2, and outside `between` points are clamped.
                unsafe {
                    make::<true, true>(line, points, first, 0..between.start, out);
                    make::<true, true>(line, points, first, between.end..len, out);
                    make::<true, false>(line, points, first, between, out);
                }
            }
        }
    }

    /// The points of a segment's pixels, less half a pixel and less the origin of the stored part.
    #[derive(Clone, Copy)]
    struct Points {
        start: [i64; 2],
        step: [i64; 2],
    }

    /// Makes the pixels `range` of a segment.
    ///
    /// # Safety
    /// Unless `CLAMP` is set, the points of all of `range` are at least 0, and less than the stored width and height
    /// minus 1. The stored width and height are at least 2.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn make<const EDGE: bool, const CLAMP: bool>(
        line: &Line<'_>,
        points: Points,
        first: u32,
        range: Range<usize>,
        out: &mut [Pixel],
    ) {
        let Range { mut start, end } = range;
        let ends = [line.stored.width, line.stored.height].map(|v| ((i64::from(v) - 1) << BITS) - 1);
        let stride = line.stored.width as usize;
        let strides = _mm256_set1_epi32(stride as i32);
        // In this order, shuffles of two vectors of four come out in the order of the pixels.
        let vectors = |axis: usize, order: [i64; 4]| {
            let at = |i: i64| points.start[axis] + (start as i64 + i) * points.step[axis];
            _mm256_setr_epi64x(at(order[0]), at(order[1]), at(order[2]), at(order[3]))
        };
        let mut at = [0, 1].map(|axis| [vectors(axis, [0, 1, 4, 5]), vectors(axis, [2, 3, 6, 7])]);
        let eight = points.step.map(|step| _mm256_set1_epi64x(8 * step));
        while start < end {
            let len = (end - start).min(8);
            let mut whole_part = [_mm256_setzero_si256(); 2];
            let mut fraction_bits = [_mm256_setzero_si256(); 2];
            let mut fraction = [_mm256_setzero_ps(); 2];
            for axis in 0..2 {
                let [low, high] = at[axis].map(|v| {
                    // The last step may reach beyond the range. Clamped, its extra pixels can be loaded, and they are
                    // dropped.
                    let v = if CLAMP || len < 8 { clamp(v, ends[axis]) } else { v };
                    _mm256_castsi256_ps(v)
                });
                whole_part[axis] = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(low, high));
                let bits = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(low, high));
                fraction_bits[axis] = bits;
                let scale = _mm256_set1_ps(1.0 / (1 << 24) as f32);
                fraction[axis] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32::<8>(bits)), scale);
                at[axis] = at[axis].map(|v| _mm256_add_epi64(v, eight[axis]));
            }
            let index = _mm256_add_epi32(_mm256_mullo_epi32(whole_part[1], strides), whole_part[0]);
            // SAFETY: each index is that of a stored pixel that is neither in the last column nor in the last row, by
            // the caller's promise or because points are clamped.
            let [top, bottom] = unsafe { [load(line.pixels, index, 0), load(line.pixels, index, stride)] };
            let (made, mut doubt) = mix::<EDGE>(top, bottom, fraction);
            if !EDGE {
                doubt |= unsure_of_pixel(fraction_bits);
            }
            if len == 8 {
                let pixels: &mut [Pixel; 8] = (&mut out[start..start + 8]).try_into().expect("eight pixels");
                *pixels = bytemuck::cast(made);
            } else {
                let pixels: [Pixel; 8] = bytemuck::cast(made);
                out[start..end].copy_from_slice(&pixels[..len]);
            }
            doubt &= (1 << len) - 1;
            while doubt != 0 {
                let x = start + doubt.trailing_zeros() as usize;
                out[x] = line.bilinear(first + x as u32);
                doubt &= doubt - 1;
            }
            start += 8;
        }
    }

    /// A bit for each of the eight points that is so close to a pixel's center, by the fractions of its coordinates,
    /// that its exact place may be beyond the center, between other pixels. That matters if a value is just below a
    /// whole number, because the fraction is dropped: four equal bytes here say nothing about the bytes there.
    #[target_feature(enable = "avx2")]
    fn unsure_of_pixel(fraction: [__m256i; 2]) -> u32 {
        const CLOSE: i32 = 1 << 12;
        let [x, y] = fraction.map(|v| _mm256_add_epi32(v, _mm256_set1_epi32(CLOSE)));
        let high = _mm256_and_si256(_mm256_min_epu32(x, y), _mm256_set1_epi32(-2 * CLOSE));
        _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(high, _mm256_setzero_si256()))) as u32
    }

    /// Limits each of the four lanes to 0 to `end`.
    #[target_feature(enable = "avx2")]
    fn clamp(v: __m256i, end: i64) -> __m256i {
        let end = _mm256_set1_epi64x(end);
        let v = _mm256_blendv_epi8(v, end, _mm256_cmpgt_epi64(v, end));
        _mm256_andnot_si256(_mm256_cmpgt_epi64(_mm256_setzero_si256(), v), v)
    }

    /// The eight pixels at the indices plus `offset`, and their eight neighbors to the right.
    ///
    /// # Safety
    /// Each index plus `offset`, and each index plus `offset` plus 1, is that of a pixel.
    #[target_feature(enable = "avx2")]
    unsafe fn load(pixels: &[Pixel], index: __m256i, offset: usize) -> [__m256i; 2] {
        let index: [u32; 8] = bytemuck::cast(index);
        let pair = |i: usize| {
            let at = index[i] as usize + offset;
            debug_assert!(at + 1 < pixels.len());
            // SAFETY: `at` and `at + 1` are indices of pixels, by the caller's promise.
            unsafe { pixels.as_ptr().add(at).cast::<f64>() }
        };
        let four = |i: [usize; 4]| {
            // SAFETY: each pointer points to two pixels, 8 bytes, which need no alignment here.
            let [low, high] =
                unsafe { [[i[0], i[1]], [i[2], i[3]]].map(|i| _mm_loadh_pd(_mm_load_sd(pair(i[0])), pair(i[1]))) };
            _mm256_castpd_ps(_mm256_insertf128_pd::<1>(_mm256_castpd128_pd256(low), high))
        };
        let (a, b) = (four([0, 1, 4, 5]), four([2, 3, 6, 7]));
        let left = _mm256_shuffle_ps::<0b10_00_10_00>(a, b);
        let right = _mm256_shuffle_ps::<0b11_01_11_01>(a, b);
        [_mm256_castps_si256(left), _mm256_castps_si256(right)]
    }

    /// Eight pixels from their neighbors on the left and right, above and below, and a bit for each pixel that is in
    /// doubt.
    #[target_feature(enable = "avx2,fma")]
    fn mix<const EDGE: bool>(top: [__m256i; 2], bottom: [__m256i; 2], [dx, dy]: [__m256; 2]) -> (__m256i, u32) {
        let byte = _mm256_set1_epi32(255);
        let sign = _mm256_set1_ps(-0.0);
        let mut made = _mm256_set1_epi32(255 << 24);
        let mut doubt = _mm256_setzero_si256();
        macro_rules! channel {
            ($shift:literal) => {{
                let value =
                    |pixel: __m256i| _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32::<$shift>(pixel), byte));
                let lerp = |a: __m256, b: __m256, d: __m256| _mm256_fmadd_ps(_mm256_sub_ps(b, a), d, a);
                let above = lerp(value(top[0]), value(top[1]), dx);
                let below = lerp(value(bottom[0]), value(bottom[1]), dx);
                let mut exact = lerp(above, below, dy);
                if EDGE {
                    exact = _mm256_add_ps(exact, _mm256_set1_ps(0.5));
                }
                let nearest = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(exact);
                let distance = _mm256_andnot_ps(sign, _mm256_sub_ps(exact, nearest));
                let close = _mm256_cmp_ps::<_CMP_LT_OQ>(distance, _mm256_set1_ps(DOUBT));
                let close = _mm256_and_si256(_mm256_castps_si256(close), _mm256_set1_epi32(255 << $shift));
                doubt = _mm256_or_si256(doubt, close);
                made = _mm256_or_si256(made, _mm256_slli_epi32::<$shift>(_mm256_cvttps_epi32(exact)));
            }};
        }
        channel!(0);
        channel!(8);
        channel!(16);
        // Four equal bytes leave no doubt: every difference is 0.
        let differ = |a: __m256i, b: __m256i| _mm256_xor_si256(a, b);
        let uneven = _mm256_or_si256(differ(top[0], top[1]), differ(bottom[0], bottom[1]));
        let uneven = _mm256_or_si256(uneven, differ(top[0], bottom[0]));
        let sure = _mm256_cmpeq_epi32(_mm256_and_si256(doubt, uneven), _mm256_setzero_si256());
        (made, !_mm256_movemask_ps(_mm256_castsi256_ps(sure)) as u32)
    }
}
