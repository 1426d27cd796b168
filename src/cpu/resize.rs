//! Resizing with Pillow's arithmetic: one axis at a time, 8 bits in between, weights in 22-bit fixed point.

use super::simd::wide;
use crate::picture::{Picture, Pixel, Rect, Size};
use crate::recipe::op::{Fill, Interpolation};
use std::ops::Range;

/// Fractional bits of a weight.
pub(crate) const WEIGHT_BITS: u32 = 22;

/// Along one axis: from which input positions, with which weights, each output position is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Coefficients {
    /// First input position of each output position.
    pub(crate) starts: Vec<u32>,
    /// Number of input positions of each output position.
    pub(crate) counts: Vec<u32>,
    /// Weights, [`stride`](Self::stride) for each output position, those beyond its count 0.
    pub(crate) weights: Vec<i32>,
    /// Distance between the weights of two output positions.
    pub(crate) stride: usize,
}

impl Coefficients {
    /// For all `output` positions made from `input` positions.
    pub(crate) fn new(input: u32, output: u32, interpolation: Interpolation) -> Self {
        Self::window(input, output, 0..output, interpolation)
    }

    /// For the positions `range` of `output` positions made from `input` positions.
    ///
    /// `interpolation` is not [`Nearest`](Interpolation::Nearest), which has no weights: see [`nearest`].
    pub(crate) fn window(input: u32, output: u32, range: Range<u32>, interpolation: Interpolation) -> Self {
        debug_assert!(range.end <= output);
        let (filter, support): (fn(f64) -> f64, f64) = match interpolation {
            Interpolation::Nearest | Interpolation::Bilinear => (triangle, 1.0),
            Interpolation::Bicubic => (cubic, 2.0),
            Interpolation::Lanczos => (lanczos, 3.0),
        };
        let scale = f64::from(input) / f64::from(output);
        // Shrinking widens the filter; enlarging does not narrow it.
        let stretch = scale.max(1.0);
        let (support, squeeze) = (support * stretch, 1.0 / stretch);
        let stride = (support.ceil() as usize * 2 + 1).min(input as usize);
        let len = range.len();
        let mut made = Self {
            starts: Vec::with_capacity(len),
            counts: Vec::with_capacity(len),
            weights: vec![0; len * stride],
            stride,
        };
        let mut exact = vec![0.0; stride];
        for (position, weights) in range.zip(made.weights.chunks_exact_mut(stride)) {
            let center = (f64::from(position) + 0.5) * scale;
            let start = (center - support + 0.5).max(0.0) as u32;
            let end = ((center + support + 0.5) as u32).min(input);
            let exact = &mut exact[..(end - start) as usize];
            let mut sum = 0.0;
            for (tap, weight) in exact.iter_mut().enumerate() {
                *weight = filter(((tap as u32 + start) as f64 - center + 0.5) * squeeze);
                sum += *weight;
            }
            for (weight, exact) in weights.iter_mut().zip(exact.iter()) {
                let share = if sum == 0.0 { *exact } else { exact / sum };
                let scaled = share * f64::from(1u32 << WEIGHT_BITS);
                *weight = (if share < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i32;
            }
            made.starts.push(start);
            made.counts.push(end - start);
        }
        made
    }

    /// Number of output positions.
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// First input position and weights of the output position `index`, counted from the start of the window.
    #[inline(always)]
    pub(crate) fn taps(&self, index: usize) -> (usize, &[i32]) {
        let weights = &self.weights[index * self.stride..][..self.counts[index] as usize];
        (self.starts[index] as usize, weights)
    }
}

fn triangle(x: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 { 1.0 - x } else { 0.0 }
}

fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

fn lanczos(x: f64) -> f64 {
    let sinc = |x: f64| {
        let x = x * std::f64::consts::PI;
        if x == 0.0 { 1.0 } else { libm::sin(x) / x }
    };
    if (-3.0..3.0).contains(&x) { sinc(x) * sinc(x / 3.0) } else { 0.0 }
}

/// For each of the positions `range` of `output`, the one of `input` positions that it repeats.
pub(crate) fn nearest(input: u32, output: u32, range: Range<u32>) -> Vec<u32> {
    let step = f64::from(input) / f64::from(output);
    // Pillow adds the step up, which rounds differently from a product.
    let mut at = step * 0.5;
    let mut made = Vec::with_capacity(range.len());
    for position in 0..range.end {
        if position >= range.start {
            made.push((at as u32).min(input - 1));
        }
        at += step;
    }
    made
}

/// Whether Pillow (since 13) resizes the columns before the rows.
pub(crate) fn vertical_first(input: Size, output: Size) -> bool {
    let lost = |input: u32, output: u32| i64::from(input) - i64::from(output);
    let (columns, rows) = (lost(input.width, output.width), lost(input.height, output.height));
    rows > 0 && rows > 2 * columns
}

/// Resizes a complete picture.
pub(crate) fn resize(input: &Picture, size: Size, interpolation: Interpolation, out: &mut Picture) {
    resized_crop(input, Rect::full(input.size()), size, interpolation, out);
}

/// Resizes the rectangle `window` of a complete picture as if it were a picture of its own.
pub(crate) fn resized_crop(input: &Picture, window: Rect, size: Size, interpolation: Interpolation, out: &mut Picture) {
    debug_assert_eq!(input.part(), Rect::full(input.whole()));
    debug_assert!(window.fits(input.size()));
    if window.size() == size {
        return super::crop::crop(input, window.x as i32, window.y as i32, size, Fill::BLACK, out);
    }
    if interpolation == Interpolation::Nearest {
        return repeat(input, window, size, out);
    }
    let columns = (window.width != size.width).then(|| Coefficients::new(window.width, size.width, interpolation));
    let rows = (window.height != size.height).then(|| Coefficients::new(window.height, size.height, interpolation));
    match (columns, rows) {
        (Some(columns), None) => horizontal(input, window, &columns, out),
        (None, Some(rows)) => vertical(input, window, &rows, out),
        (None, None) => {}
        (Some(columns), Some(rows)) => {
            let mut between = Picture::default();
            if vertical_first(window.size(), size) {
                vertical(input, window, &rows, &mut between);
                horizontal(&between, Rect::full(between.size()), &columns, out);
            } else {
                horizontal(input, window, &columns, &mut between);
                vertical(&between, Rect::full(between.size()), &rows, out);
            }
        }
    }
}

/// Nearest neighbour.
fn repeat(input: &Picture, window: Rect, size: Size, out: &mut Picture) {
    out.reset(size);
    let columns = nearest(window.width, size.width, 0..size.width);
    let rows = nearest(window.height, size.height, 0..size.height);
    for (y, row) in rows.into_iter().enumerate() {
        let from = &input.row(window.y + row)[window.x as usize..window.right() as usize];
        for (pixel, &column) in out.row_mut(y as u32).iter_mut().zip(&columns) {
            *pixel = from[column as usize];
        }
    }
}

/// Resizes the rows of `window`.
fn horizontal(input: &Picture, window: Rect, columns: &Coefficients, out: &mut Picture) {
    out.reset(Size::new(columns.len() as u32, window.height));
    for y in 0..window.height {
        let from = &input.row(window.y + y)[window.x as usize..window.right() as usize];
        let to = out.row_mut(y);
        wide(
            #[inline(always)]
            || horizontal_row(from, columns, to),
        );
    }
}

/// Resizes one row.
#[inline(always)]
pub(crate) fn horizontal_row(from: &[Pixel], columns: &Coefficients, to: &mut [Pixel]) {
    for (x, pixel) in to.iter_mut().enumerate() {
        let (start, weights) = columns.taps(x);
        let mut sums = [1 << (WEIGHT_BITS - 1); 4];
        for (tap, &weight) in from[start..start + weights.len()].iter().zip(weights) {
            for (sum, &byte) in sums.iter_mut().zip(tap) {
                *sum += i32::from(byte) * weight;
            }
        }
        *pixel = sums.map(to_byte);
    }
}

/// Resizes the columns of `window`.
fn vertical(input: &Picture, window: Rect, rows: &Coefficients, out: &mut Picture) {
    out.reset(Size::new(window.width, rows.len() as u32));
    let stride = input.size().width as usize;
    let (left, width) = (window.x as usize, window.width as usize);
    for y in 0..rows.len() {
        let (start, weights) = rows.taps(y);
        let from = &input.pixels()[(window.y as usize + start) * stride + left..];
        let to = out.row_mut(y as u32);
        wide(
            #[inline(always)]
            || vertical_row(from, stride, weights, &mut to[..width]),
        );
    }
}

/// Bytes made at once: their sums stay in registers.
const STEP: usize = 32;

/// Makes one row out of `weights.len()` rows that begin `stride` pixels apart in `from`.
#[inline(always)]
pub(crate) fn vertical_row(from: &[Pixel], stride: usize, weights: &[i32], to: &mut [Pixel]) {
    let (from, stride) = (from.as_flattened(), stride * 4);
    let to = to.as_flattened_mut();
    let (steps, rest) = to.as_chunks_mut::<STEP>();
    let mut at = 0;
    for step in steps {
        let mut sums = [1 << (WEIGHT_BITS - 1); STEP];
        for (row, &weight) in weights.iter().enumerate() {
            let Some((bytes, _)) = from[row * stride + at..].split_first_chunk::<STEP>() else { return };
            for i in 0..STEP {
                sums[i] += i32::from(bytes[i]) * weight;
            }
        }
        for i in 0..STEP {
            step[i] = to_byte(sums[i]);
        }
        at += STEP;
    }
    for byte in rest {
        let sum: i32 =
            weights.iter().enumerate().map(|(row, weight)| i32::from(from[row * stride + at]) * weight).sum();
        *byte = to_byte(sum + (1 << (WEIGHT_BITS - 1)));
        at += 1;
    }
}

/// A sum, its fraction dropped, cut to 0..=255.
#[inline(always)]
pub(crate) fn to_byte(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}
