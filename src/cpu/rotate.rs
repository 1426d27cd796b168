//! Turning by any angle.
//!
//! With a colour as fill this is Pillow's affine transform: 16.16 fixed point for nearest, double precision for
//! bilinear, which drops the fraction of its result. With [`Fill::EDGE`] the nearest pixel of the edge continues the
//! picture for ever and bilinear rounds its result to nearest, as DALI's `fn.rotate`.

use super::crop::opaque;
use super::flip;
use super::simd::truncate_f64;
use crate::picture::{Picture, Pixel, Rect, Size};
use crate::recipe::op::{Fill, Interpolation};
use crate::recipe::rotation::{Rotation, fixed_point};
use std::ops::Range;

/// Turns a complete picture counter-clockwise.
pub(crate) fn rotate(
    input: &Picture,
    degrees: f64,
    interpolation: Interpolation,
    expand: bool,
    fill: Fill,
    out: &mut Picture,
) {
    match Rotation::new(input.size(), degrees, expand, fill) {
        Rotation::None => out.clone_from(input),
        Rotation::Quarter => flip::quarter_turn(input, out),
        Rotation::Half => {
            out.clone_from(input);
            flip::half_turn(out);
        }
        Rotation::ThreeQuarters => flip::three_quarter_turn(input, out),
        Rotation::Free { matrix, canvas } => {
            let part = Rect::full(canvas);
            match interpolation {
                Interpolation::Nearest => rotate_nearest(input, matrix, canvas, fill, part, out),
                _ => rotate_bilinear(input, matrix, canvas, fill, part, out),
            }
        }
    }
}

/// The rectangle of a picture of size `input` that [`rotate_bilinear`] and [`rotate_nearest`] read to make `part` of
/// their canvas. Never empty.
pub(crate) fn source(input: Size, matrix: [f64; 6], part: Rect) -> Rect {
    let m = matrix;
    let (left, right) = (f64::from(part.x), f64::from(part.right()));
    let (top, bottom) = (f64::from(part.y), f64::from(part.bottom()));
    let corners = [(left, top), (right, top), (left, bottom), (right, bottom)];
    // Two pixels of margin: half a pixel to the neighbour's centre, the neighbour, and what fixed point rounds.
    let extent = |values: [f64; 4], size: u32| {
        let min = values.into_iter().fold(f64::INFINITY, f64::min).floor() - 2.0;
        let max = values.into_iter().fold(f64::NEG_INFINITY, f64::max).ceil() + 2.0;
        let start = min.clamp(0.0, f64::from(size - 1)) as u32;
        (start, (max.clamp(1.0, f64::from(size)) as u32).max(start + 1) - start)
    };
    let (x, width) = extent(corners.map(|(x, y)| m[0] * x + m[1] * y + m[2]), input.width);
    let (y, height) = extent(corners.map(|(x, y)| m[3] * x + m[4] * y + m[5]), input.height);
    Rect { x, y, width, height }
}

/// Makes the rectangle `part` of the canvas, each pixel the one whose area holds its point.
///
/// `input` may be a part of its whole that holds what [`source`] names.
pub(crate) fn rotate_nearest(
    input: &Picture,
    matrix: [f64; 6],
    canvas: Size,
    fill: Fill,
    part: Rect,
    out: &mut Picture,
) {
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
                let inside = inside(x, a0, whole.width, row.len());
                let inside = intersection(inside, self::inside(y, a3, whole.height, row.len()));
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

/// The steps `i` of `0..len` with `start + i step` inside `0..size`, 16 fractional bits.
pub(crate) fn inside(start: i64, step: i64, size: u32, len: usize) -> Range<usize> {
    let end = i64::from(size) << 16;
    let len = len as i64;
    // Smallest i with start + i step >= bound, for a positive step.
    let reaches = |start: i64, step: i64, bound: i64| (bound - start + step - 1).div_euclid(step).clamp(0, len);
    let (from, to) = match step {
        0 if (0..end).contains(&start) => (0, len),
        0 => (0, 0),
        1.. => (reaches(start, step, 0), reaches(start, step, end)),
        // Mirrored: -start + i (-step) > -end, and <= 0.
        _ => (reaches(-start, -step, 1 - end), reaches(-start, -step, 1)),
    };
    from as usize..to.max(from) as usize
}

fn intersection(a: Range<usize>, b: Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// The pixel of the whole at (`x`, `y`), or the nearest one that is stored.
#[inline(always)]
fn at_edge(input: &Picture, x: i64, y: i64) -> Pixel {
    let stored = input.part();
    let clamp = |v: i64, start: u32, len: u32| (v - i64::from(start)).clamp(0, i64::from(len) - 1) as usize;
    let (x, y) = (clamp(x, stored.x, stored.width), clamp(y, stored.y, stored.height));
    input.pixels()[y * stored.width as usize + x]
}

/// What Pillow does where coordinates do not fit its fixed point: it adds up doubles.
fn nearest_double(input: &Picture, matrix: [f64; 6], fill: Fill, part: Rect, out: &mut Picture) {
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

/// Makes the rectangle `part` of the canvas, each pixel from the four around its point.
///
/// `input` may be a part of its whole that holds what [`source`] names.
pub(crate) fn rotate_bilinear(
    input: &Picture,
    matrix: [f64; 6],
    canvas: Size,
    fill: Fill,
    part: Rect,
    out: &mut Picture,
) {
    out.reset_part(canvas, part);
    #[cfg(target_arch = "x86_64")]
    if avx2::bilinear(input, matrix, fill, part, out) {
        return;
    }
    bilinear(input, matrix, fill, part, out);
}

/// [`rotate_bilinear`], pixel by pixel.
fn bilinear(input: &Picture, matrix: [f64; 6], fill: Fill, part: Rect, out: &mut Picture) {
    for y in 0..part.height {
        let line = Line::new(input, matrix, fill, part.y + y);
        for (x, pixel) in (part.x..).zip(out.row_mut(y)) {
            *pixel = line.bilinear(x);
        }
    }
}

/// What the pixels of one row of the canvas have in common.
struct Line<'a> {
    pixels: &'a [Pixel],
    stored: Rect,
    width: f64,
    height: f64,
    fill: Fill,
    /// Change of the point for a step to the right.
    step: [f64; 2],
    /// The row's share of the point, and the constant. Two summands, because the sum of all three is rounded twice.
    row: [f64; 2],
    origin: [f64; 2],
}

impl<'a> Line<'a> {
    fn new(input: &'a Picture, matrix: [f64; 6], fill: Fill, y: u32) -> Self {
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

    fn bilinear(&self, x: u32) -> Pixel {
        let x = f64::from(x) + 0.5;
        let point = |axis: usize| self.step[axis] * x + self.row[axis] + self.origin[axis];
        let (x, y) = (point(0), point(1));
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
        let (left, top) = (left as i32, top as i32);
        // Clamping to what is stored is clamping to the whole, since what is stored holds all that is read.
        let clamp = |v: i32, start: u32, len: u32| (v - start as i32).clamp(0, len as i32 - 1) as usize;
        let columns = [left, left + 1].map(|x| clamp(x, self.stored.x, self.stored.width));
        let rows = [top, top + 1].map(|y| clamp(y, self.stored.y, self.stored.height));
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

/// [`rotate_bilinear`] with AVX2: four points at once, then for each the four channels of its pixel at once. The
/// operations on every number are those of [`Line::bilinear`], in the same order.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    #![allow(unsafe_code)]

    use super::{Line, opaque};
    use crate::cpu::simd::has_avx2;
    use crate::picture::{Picture, Pixel, Rect};
    use crate::recipe::op::Fill;
    use std::arch::x86_64::*;

    /// Does it and says so, or leaves it where the processor has no AVX2 or the picture is too large.
    pub(super) fn bilinear(input: &Picture, matrix: [f64; 6], fill: Fill, part: Rect, out: &mut Picture) -> bool {
        // Indices of pixels are 32-bit lanes.
        if !has_avx2() || input.pixels().len() > i32::MAX as usize {
            return false;
        }
        for y in 0..part.height {
            let line = Line::new(input, matrix, fill, part.y + y);
            // SAFETY: the processor has AVX2.
            unsafe { row(&line, part.x, out.row_mut(y)) };
        }
        true
    }

    #[target_feature(enable = "avx2")]
    fn row(line: &Line<'_>, first: u32, out: &mut [Pixel]) {
        let set = |v: f64| _mm256_set1_pd(v);
        let (step, rows, origin) = (line.step.map(set), line.row.map(set), line.origin.map(set));
        let (zero, half) = (_mm256_setzero_pd(), set(0.5));
        let (width, height) = (set(line.width), set(line.height));
        let (edge, color) = match line.fill {
            Fill::Color(color) => (false, _mm_set1_epi32(i32::from_le_bytes(opaque(color)))),
            Fill::Edge(_) => (true, _mm_setzero_si128()),
        };
        let rounding = if edge { half } else { zero };
        let stride = line.stored.width as i32;
        let start = [line.stored.x, line.stored.y].map(|v| _mm_set1_epi32(v as i32));
        let last = [line.stored.width, line.stored.height].map(|v| _mm_set1_epi32(v as i32 - 1));
        let clamp = |v: __m128i, axis: usize| {
            let v = _mm_sub_epi32(v, start[axis]);
            _mm_min_epi32(_mm_max_epi32(v, _mm_setzero_si128()), last[axis])
        };
        let one = _mm_set1_epi32(1);
        let stride = _mm_set1_epi32(stride);

        let mut columns = _mm256_add_pd(set(f64::from(first)), _mm256_setr_pd(0.5, 1.5, 2.5, 3.5));
        let (quads, rest) = out.as_chunks_mut::<4>();
        let done = first + (quads.len() * 4) as u32;
        for quad in quads {
            let point = |axis: usize| {
                _mm256_add_pd(_mm256_add_pd(_mm256_mul_pd(step[axis], columns), rows[axis]), origin[axis])
            };
            let (x, y) = (point(0), point(1));
            columns = _mm256_add_pd(columns, set(4.0));
            let mut inside = _mm256_setzero_pd();
            if !edge {
                let inside_x =
                    _mm256_and_pd(_mm256_cmp_pd::<_CMP_GE_OQ>(x, zero), _mm256_cmp_pd::<_CMP_LT_OQ>(x, width));
                let inside_y =
                    _mm256_and_pd(_mm256_cmp_pd::<_CMP_GE_OQ>(y, zero), _mm256_cmp_pd::<_CMP_LT_OQ>(y, height));
                inside = _mm256_and_pd(inside_x, inside_y);
                if _mm256_movemask_pd(inside) == 0 {
                    *quad = bytemuck::cast(color);
                    continue;
                }
            }
            let (x, y) = (_mm256_sub_pd(x, half), _mm256_sub_pd(y, half));
            let (left, top) = (_mm256_floor_pd(x), _mm256_floor_pd(y));
            let dx: [f64; 4] = bytemuck::cast(_mm256_sub_pd(x, left));
            let dy: [f64; 4] = bytemuck::cast(_mm256_sub_pd(y, top));
            let (left, top) = (_mm256_cvttpd_epi32(left), _mm256_cvttpd_epi32(top));
            let right = clamp(_mm_add_epi32(left, one), 0);
            let bottom = _mm_mullo_epi32(clamp(_mm_add_epi32(top, one), 1), stride);
            let left = clamp(left, 0);
            let top = _mm_mullo_epi32(clamp(top, 1), stride);
            let index = |a: __m128i, b: __m128i| -> [u32; 4] { bytemuck::cast(_mm_add_epi32(a, b)) };
            let indices = [index(top, left), index(top, right), index(bottom, left), index(bottom, right)];
            let made: [__m128i; 4] = std::array::from_fn(|i| {
                let load = |corner: usize| {
                    let pixel = line.pixels[indices[corner][i] as usize];
                    _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(i32::from_le_bytes(pixel))))
                };
                let mix = |a: __m256d, b: __m256d, d: __m256d| _mm256_add_pd(a, _mm256_mul_pd(_mm256_sub_pd(b, a), d));
                let (dx, dy) = (set(dx[i]), set(dy[i]));
                let made = mix(mix(load(0), load(1), dx), mix(load(2), load(3), dx), dy);
                _mm256_cvttpd_epi32(if edge { _mm256_add_pd(made, rounding) } else { made })
            });
            let made = _mm_packus_epi16(_mm_packs_epi32(made[0], made[1]), _mm_packs_epi32(made[2], made[3]));
            let made = if edge {
                made
            } else {
                let inside = _mm256_castpd_si256(inside);
                let low = _mm_castsi128_ps(_mm256_castsi256_si128(inside));
                let high = _mm_castsi128_ps(_mm256_extracti128_si256::<1>(inside));
                let inside = _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(low, high));
                _mm_blendv_epi8(color, made, inside)
            };
            *quad = bytemuck::cast(made);
        }
        for (x, pixel) in (done..).zip(rest) {
            *pixel = line.bilinear(x);
        }
    }
}
