//! Resizing with Pillow's arithmetic: one axis at a time, 8 bits in between, weights in 22-bit fixed point.

use super::simd::wide;
use crate::image::{Image, Pixel, Rect, Size};
use crate::recipe::filter::{PassOrder, Taps, WEIGHT_BITS};
use crate::recipe::op::{Fill, Interpolation};

/// Resizes a complete image.
pub(crate) fn resize(input: &Image, size: Size, interpolation: Interpolation, order: PassOrder, out: &mut Image) {
    resized_crop(input, Rect::full(input.size()), size, interpolation, order, out);
}

/// Resizes the rectangle `window` of a complete image as if it were an image of its own.
pub(crate) fn resized_crop(
    input: &Image,
    window: Rect,
    size: Size,
    interpolation: Interpolation,
    order: PassOrder,
    out: &mut Image,
) {
    debug_assert_eq!(input.part(), Rect::full(input.whole()));
    debug_assert!(window.fits(input.size()));
    if window.size() == size {
        return super::crop::crop(input, window.x as i32, window.y as i32, size, Fill::BLACK, out);
    }
    if interpolation == Interpolation::Nearest {
        return repeat(input, window, size, out);
    }
    let columns = (window.width != size.width).then(|| Taps::new(window.width, size.width, interpolation));
    let rows = (window.height != size.height).then(|| Taps::new(window.height, size.height, interpolation));
    match (columns, rows) {
        (Some(columns), None) => horizontal(input, window, &columns, out),
        (None, Some(rows)) => vertical(input, window, &rows, out),
        (None, None) => {}
        (Some(columns), Some(rows)) => {
            let mut between = Image::default();
            if order.vertical_first(window.size(), size) {
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
fn repeat(input: &Image, window: Rect, size: Size, out: &mut Image) {
    out.reset(size);
    let columns = Taps::new(window.width, size.width, Interpolation::Nearest);
    let rows = Taps::new(window.height, size.height, Interpolation::Nearest);
    for (y, row) in rows.starts.iter().enumerate() {
        let from = &input.row(window.y + row)[window.x as usize..window.right() as usize];
        for (pixel, &column) in out.row_mut(y as u32).iter_mut().zip(&columns.starts) {
            *pixel = from[column as usize];
        }
    }
}

/// Resizes the rows of `window`.
fn horizontal(input: &Image, window: Rect, columns: &Taps, out: &mut Image) {
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
pub(crate) fn horizontal_row(from: &[Pixel], columns: &Taps, to: &mut [Pixel]) {
    for (x, pixel) in to.iter_mut().enumerate() {
        let (start, weights) = columns.of(x);
        let mut sums = [HALF; 4];
        for (tap, &weight) in from[start..start + weights.len()].iter().zip(weights) {
            for (sum, &byte) in sums.iter_mut().zip(tap) {
                *sum += i32::from(byte) * weight;
            }
        }
        *pixel = sums.map(to_byte);
    }
}

/// Resizes the columns of `window`.
fn vertical(input: &Image, window: Rect, rows: &Taps, out: &mut Image) {
    out.reset(Size::new(window.width, rows.len() as u32));
    for y in 0..rows.len() {
        let (start, weights) = rows.of(y);
        let row = |tap: usize| &input.row(window.y + (start + tap) as u32)[window.x as usize..window.right() as usize];
        let to = out.row_mut(y as u32);
        wide(
            #[inline(always)]
            || vertical_row(row, weights, to),
        );
    }
}

/// Half a unit of a sum's last place: sums are rounded to the nearest.
const HALF: i32 = 1 << (WEIGHT_BITS - 1);
/// Bytes made at once: their sums stay in registers.
const STEP: usize = 32;

/// Makes one row out of as many rows as there are weights, each as long as `to`.
#[inline(always)]
pub(crate) fn vertical_row<'a>(row: impl Fn(usize) -> &'a [Pixel], weights: &[i32], to: &mut [Pixel]) {
    let (steps, rest) = to.as_flattened_mut().as_chunks_mut::<STEP>();
    let mut at = 0;
    for step in steps {
        let mut sums = [HALF; STEP];
        for (tap, &weight) in weights.iter().enumerate() {
            let Some(bytes) = row(tap).as_flattened()[at..].first_chunk::<STEP>() else { return };
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
        let taps = weights.iter().enumerate();
        let sum: i32 = taps.map(|(tap, weight)| i32::from(row(tap).as_flattened()[at]) * weight).sum();
        *byte = to_byte(sum + HALF);
        at += 1;
    }
}

/// A sum, its fraction dropped, cut to 0..=255.
#[inline(always)]
pub(crate) fn to_byte(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}
