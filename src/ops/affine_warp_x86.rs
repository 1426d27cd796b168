//! Bilinear sampling with AVX2, eight pixels at a time, and where points are near each other with AVX-512, sixteen at a
//! time.
//!
//! Points are 32.32 fixed point and values single precision, so a value may be slightly off, and its byte may differ if
//! the value is close to a place where bytes change. [`Line::bilinear`] makes these pixels again, about one in a
//! thousand; all others are equal. This relies on bilinear interpolation being continuous: a point that is slightly
//! off, even across the border of a pixel, gives a value that is slightly off.
#![allow(unsafe_code)]

use super::affine_warp::{Line, SampledView, inside, intersection};
use super::fill::{Fill, opaque};
use super::needed_pixels::NeededPixels;
use super::turn::Exact;
use crate::raster::{Image, Pixel, Rect};
use crate::simd::{has_avx2, has_avx512};
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

/// Makes the needed pixels and returns true. Returns false if the processor has no AVX2, or if the image is too small
/// or too large.
pub(super) fn bilinear(
    seen: SampledView<'_>,
    matrix: [f64; 6],
    fill: Fill,
    needed: &NeededPixels<'_>,
    out: &mut Image,
) -> bool {
    let (held, stored) = (seen.image.part(), seen.stored());
    // Indices of pixels are 32-bit lanes, and each pixel needs neighbors to the right and below.
    if !has_avx2() || seen.image.pixels().len() > i32::MAX as usize || stored.width < 2 || stored.height < 2 {
        return false;
    }
    let part = seen.exact.rect(stored);
    let offset = (part.y - held.y) as usize * held.width as usize + (part.x - held.x) as usize;
    let source = Source {
        pixels: &seen.image.pixels()[offset..],
        stride: held.width as usize,
        part,
        view: seen.exact.rect(Rect::full(seen.size)),
        exact: seen.exact,
        fill,
    };
    for (y, columns) in needed.rows() {
        let line = Line::new(seen, matrix, fill, needed.part.y + y);
        let mut first = needed.part.x + columns.start as u32;
        for segment in out.row_mut(y)[columns].chunks_mut(SEGMENT) {
            make_segment(&source, &line, first, segment);
            first += SEGMENT as u32;
        }
    }
    true
}

/// The pixels around the points. Mirrored and turned views are sampled where the image has their pixels: a point in
/// them is a point of the image.
struct Source<'a> {
    /// The pixels of `part`, and all after them.
    pixels: &'a [Pixel],
    stride: usize,
    /// The part of the image that the view shows and that is stored.
    part: Rect,
    /// The part of the image that the view shows.
    view: Rect,
    exact: Exact,
    fill: Fill,
}

fn make_segment(source: &Source<'_>, line: &Line<'_>, first: u32, out: &mut [Pixel]) {
    let (part, view, e) = (source.part, source.view, source.exact);
    let fixed = |v: f64| (v * (1u64 << BITS) as f64).round() as i64;
    let turn =
        |[x, y]: [f64; 2]| [f64::from(e.xx) * x + f64::from(e.xy) * y, f64::from(e.yx) * x + f64::from(e.yy) * y];
    let x = f64::from(first) + 0.5;
    let [x, y] = turn([0, 1].map(|axis| line.step[axis] * x + line.down[axis] + line.origin[axis] - 0.5));
    let start = [x + f64::from(e.x0) - f64::from(part.x), y + f64::from(e.y0) - f64::from(part.y)].map(fixed);
    let step = turn(line.step).map(fixed);
    let len = out.len();
    // The pixels whose point lies between the centers of four stored pixels.
    let between = intersection(
        inside::<BITS>(start[0], step[0], part.width - 1, len),
        inside::<BITS>(start[1], step[1], part.height - 1, len),
    );
    let points = Points { start, step };
    match source.fill.rgb() {
        Some(color) => {
            // The pixels whose point is inside the view or within a pixel of it.
            let margin = |axis: usize, part: u32, view: u32, size: u32| {
                let start = start[axis] + ((i64::from(part) - i64::from(view) + 2) << BITS);
                inside::<BITS>(start, step[axis], size + 4, len)
            };
            let near = intersection(margin(0, part.x, view.x, view.width), margin(1, part.y, view.y, view.height));
            out[..near.start].fill(opaque(color));
            out[near.end..].fill(opaque(color));
            let between = intersection(between, near.clone());
            for x in (near.start..between.start).chain(between.end..near.end) {
                out[x] = line.bilinear(first + x as u32);
            }
            // SAFETY: the processor has AVX2, and all points of `between` lie between stored pixels.
            unsafe { make::<false, false>(source, line, points, first, between, out) };
        }
        None => {
            // SAFETY: the processor has AVX2, and outside `between` points are clamped.
            unsafe {
                make::<true, true>(source, line, points, first, 0..between.start, out);
                make::<true, true>(source, line, points, first, between.end..len, out);
                make::<true, false>(source, line, points, first, between, out);
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

impl Points {
    /// The point of a segment's pixel.
    fn at(self, pixel: usize) -> [i64; 2] {
        [0, 1].map(|axis| self.start[axis] + pixel as i64 * self.step[axis])
    }
}

/// Whether sixteen points in a row always lie in sixteen columns and three rows.
fn is_near(step: [i64; 2]) -> bool {
    step[0].unsigned_abs() <= 1 << BITS && step[1].unsigned_abs().saturating_mul(15) <= 2 << BITS
}

/// Makes the pixels `range` of a segment.
///
/// # Safety
/// Unless `CLAMP` is set, the points of all of `range` are at least 0, and less than the part's width and height minus
/// 1. The part's width and height are at least 2.
#[target_feature(enable = "avx2,fma")]
unsafe fn make<const EDGE: bool, const CLAMP: bool>(
    source: &Source<'_>,
    line: &Line<'_>,
    points: Points,
    first: u32,
    range: Range<usize>,
    out: &mut [Pixel],
) {
    let Range { mut start, end } = range;
    if !CLAMP && has_avx512() && is_near(points.step) {
        // SAFETY: the processor has AVX-512, points are near each other, and the caller promises the rest.
        start = unsafe { make_near::<EDGE>(source, line, points, first, start..end, out) };
    }
    let ends = [source.part.width, source.part.height].map(|v| ((i64::from(v) - 1) << BITS) - 1);
    let stride = source.stride;
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
        let [top, bottom] = unsafe { [load(source.pixels, index, 0), load(source.pixels, index, stride)] };
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

/// Distance from a pixel's center that may be none, in 2^-32 pixels.
const CLOSE: i32 = 1 << 12;

/// A bit for each of the eight points that is so close to a pixel's center, by the fractions of its coordinates,
/// that its exact place may be beyond the center, between other pixels. That matters if a value is just below a
/// whole number, because the fraction is dropped: four equal bytes here say nothing about the bytes there.
#[target_feature(enable = "avx2")]
fn unsure_of_pixel(fraction: [__m256i; 2]) -> u32 {
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
            let value = |pixel: __m256i| _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32::<$shift>(pixel), byte));
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

/// Makes the first pixels `range` of a segment, sixteen at a time, from four rows of vectors: the points are near each
/// other. Returns the first pixel that is left.
///
/// # Safety
/// As for [`make`] without `CLAMP`, and [`is_near`] is true.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
unsafe fn make_near<const EDGE: bool>(
    source: &Source<'_>,
    line: &Line<'_>,
    points: Points,
    first: u32,
    range: Range<usize>,
    out: &mut [Pixel],
) -> usize {
    let Range { mut start, end } = range;
    let lanes = |axis: usize, from: i64| {
        let at: [i64; 8] = std::array::from_fn(|i| points.at(start)[axis] + (from + i as i64) * points.step[axis]);
        // SAFETY: eight lanes of 64 bits are read.
        unsafe { _mm512_loadu_si512(at.as_ptr().cast()) }
    };
    let mut at = [0, 1].map(|axis| [lanes(axis, 0), lanes(axis, 8)]);
    let sixteen = points.step.map(|step| _mm512_set1_epi64(16 * step));
    let upper = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    let lower = _mm512_sub_epi32(upper, _mm512_set1_epi32(1));
    let scale = _mm512_set1_ps(1.0 / (1 << 24) as f32);
    while start + 16 <= end {
        let [column, row] = [0, 1].map(|axis| {
            let at = points.at(start)[axis];
            (at.min(at + 15 * points.step[axis]) >> BITS) as usize
        });
        // If there is no fourth row, no point lies in the third one.
        let last_row = source.part.height as usize - 1;
        let rows: [usize; 4] = std::array::from_fn(|i| (row + i).min(last_row) * source.stride + column);
        if rows[3] + 17 > source.pixels.len() {
            break;
        }
        let [x, y] = at.map(|[low, high]| _mm512_permutex2var_epi32(low, upper, high));
        let fraction_bits = at.map(|[low, high]| _mm512_permutex2var_epi32(low, lower, high));
        let [dx, dy] = fraction_bits.map(|bits| _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srli_epi32::<8>(bits)), scale));
        for axis in 0..2 {
            at[axis] = at[axis].map(|v| _mm512_add_epi64(v, sixteen[axis]));
        }
        // Places in the vectors of two rows, and whether the point is in the third row.
        let down = _mm512_sub_epi32(y, _mm512_set1_epi32(row as i32));
        let across = _mm512_sub_epi32(x, _mm512_set1_epi32(column as i32));
        let places = _mm512_add_epi32(across, _mm512_slli_epi32::<4>(down));
        let is_third = _mm512_cmpgt_epi32_mask(down, _mm512_set1_epi32(1));
        let [left, right] = [0, 1].map(|side| {
            let read = rows.map(|row| {
                debug_assert!(row + side + 16 <= source.pixels.len());
                // SAFETY: sixteen pixels can be read from here.
                unsafe { _mm512_loadu_si512(source.pixels.as_ptr().add(row + side).cast()) }
            });
            [0, 1].map(|below| {
                let picked = _mm512_permutex2var_epi32(read[below], places, read[below + 1]);
                _mm512_mask_permutexvar_epi32(picked, is_third, places, read[below + 2])
            })
        });
        let (made, mut doubt) = mix_near::<EDGE>([left[0], right[0]], [left[1], right[1]], [dx, dy]);
        if !EDGE {
            let [x, y] = fraction_bits.map(|v| _mm512_add_epi32(v, _mm512_set1_epi32(CLOSE)));
            let high = _mm512_and_si512(_mm512_min_epu32(x, y), _mm512_set1_epi32(-2 * CLOSE));
            doubt |= _mm512_testn_epi32_mask(high, high);
        }
        let pixels = &mut out[start..start + 16];
        // SAFETY: sixteen pixels have room for the vector.
        unsafe { _mm512_storeu_si512(pixels.as_mut_ptr().cast(), made) };
        while doubt != 0 {
            let x = start + doubt.trailing_zeros() as usize;
            out[x] = line.bilinear(first + x as u32);
            doubt &= doubt - 1;
        }
        start += 16;
    }
    start
}

/// [`mix`] for sixteen pixels.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
fn mix_near<const EDGE: bool>(top: [__m512i; 2], bottom: [__m512i; 2], [dx, dy]: [__m512; 2]) -> (__m512i, u16) {
    let byte = _mm512_set1_epi32(255);
    let mut made = _mm512_set1_epi32(255 << 24);
    let mut doubt = 0;
    macro_rules! channel {
        ($shift:literal) => {{
            let value = |pixel: __m512i| _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32::<$shift>(pixel), byte));
            let lerp = |a: __m512, b: __m512, d: __m512| _mm512_fmadd_ps(_mm512_sub_ps(b, a), d, a);
            let above = lerp(value(top[0]), value(top[1]), dx);
            let below = lerp(value(bottom[0]), value(bottom[1]), dx);
            let mut exact = lerp(above, below, dy);
            if EDGE {
                exact = _mm512_add_ps(exact, _mm512_set1_ps(0.5));
            }
            let distance = _mm512_abs_ps(_mm512_reduce_ps::<0>(exact));
            doubt |= _mm512_cmp_ps_mask::<_CMP_LT_OQ>(distance, _mm512_set1_ps(DOUBT));
            made = _mm512_or_si512(made, _mm512_slli_epi32::<$shift>(_mm512_cvttps_epi32(exact)));
        }};
    }
    channel!(0);
    channel!(8);
    channel!(16);
    // Four equal pixels leave no doubt.
    let differ = |a: __m512i, b: __m512i| _mm512_xor_si512(a, b);
    let uneven = _mm512_or_si512(differ(top[0], top[1]), differ(bottom[0], bottom[1]));
    let uneven = _mm512_or_si512(uneven, differ(top[0], bottom[0]));
    (made, doubt & _mm512_test_epi32_mask(uneven, uneven))
}
