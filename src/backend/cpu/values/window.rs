//! Passes whose values depend on a square around each: Gaussian blur, dilation and erosion.

use super::number::Number;
use crate::ops::gaussian_blur::{BETWEEN_BITS, BlurAxis, WEIGHT_BITS, all_weights, exact_weights, reflect};
use crate::ops::morphology::windows;
use crate::raster::Rect;
use crate::simd::{wide, widest};
use warpfeed_image::planes::Planes;

/// The arithmetic of Gaussian blur: that of `ops/gaussian_blur.rs` for bytes; doubles for other types, taps in order, and
/// one rounding at the end.
pub(super) trait Blur: Number {
    type Weight: Copy;
    /// A sum of values of a row.
    type Row: Copy + Default;
    /// A sum of sums.
    type Sum: Copy + Default;

    /// The weights of all taps.
    fn weights(axis: BlurAxis) -> Vec<<Self as Blur>::Weight>;

    fn add_value(sum: Self::Row, value: Self, weight: <Self as Blur>::Weight) -> Self::Row;

    /// A row's sum as columns take it.
    fn between(sum: Self::Row) -> Self::Row;

    fn add_row(sum: Self::Sum, row: Self::Row, weight: <Self as Blur>::Weight) -> Self::Sum;

    fn blurred(sum: Self::Sum) -> Self;
}

impl Blur for u8 {
    type Weight = u32;
    type Row = u32;
    type Sum = u64;

    fn weights(axis: BlurAxis) -> Vec<u32> {
        all_weights(axis)
    }

    #[inline(always)]
    fn add_value(sum: u32, value: Self, weight: u32) -> u32 {
        sum + u32::from(value) * weight
    }

    #[inline(always)]
    fn between(sum: u32) -> u32 {
        (sum + (1 << (WEIGHT_BITS - BETWEEN_BITS - 1))) >> (WEIGHT_BITS - BETWEEN_BITS)
    }

    #[inline(always)]
    fn add_row(sum: u64, row: u32, weight: u32) -> u64 {
        sum + u64::from(row) * u64::from(weight)
    }

    #[inline(always)]
    fn blurred(sum: u64) -> Self {
        const BITS: u32 = WEIGHT_BITS + BETWEEN_BITS;
        ((sum + (1 << (BITS - 1)) - 1 + ((sum >> BITS) & 1)) >> BITS) as Self
    }
}

macro_rules! blur_in_doubles {
    ($($type:ty: $round:expr,)*) => {
        $(impl Blur for $type {
            type Weight = f64;
            type Row = f64;
            type Sum = f64;

            fn weights(axis: BlurAxis) -> Vec<f64> {
                exact_weights(axis)
            }

            #[inline(always)]
            fn add_value(sum: f64, value: Self, weight: f64) -> f64 {
                sum + weight * f64::from(value)
            }

            #[inline(always)]
            fn between(sum: f64) -> f64 {
                sum
            }

            #[inline(always)]
            fn add_row(sum: f64, row: f64, weight: f64) -> f64 {
                sum + weight * row
            }

            #[inline(always)]
            fn blurred(sum: f64) -> Self {
                Self::of_sampled($round(sum))
            }
        })*
    };
}

blur_in_doubles! {
    u16: f64::round_ties_even,
    f32: |sum| sum,
}

/// Makes the rectangle that `out` holds of a blurred image: rows, then columns. `input` holds it with half a kernel around
/// it, as far as the image has that; beyond, it is reflected.
pub(super) fn blur<T: Blur>(input: &Planes, axes: [BlurAxis; 2], out: &mut Planes) {
    let (whole, held, part) = (input.whole(), input.part(), out.part());
    let [across, down] = axes.map(T::weights);
    let (width, stride) = (part.width as usize, held.width as usize);
    let margins = |(kernel, _): BlurAxis, start: u32, len: u32, whole: u32, held: u32| -> Vec<usize> {
        let radius = i64::from(kernel / 2);
        let places = -radius..i64::from(len) + radius;
        places.map(|at| (reflect(i64::from(start) + at, whole) - held) as usize).collect()
    };
    let columns = margins(axes[0], part.x, part.width, whole.width, held.x);
    let rows = margins(axes[1], part.y, part.height, whole.height, held.y);
    let mut line = vec![T::default(); columns.len()];
    let mut between = vec![T::Row::default(); held.height as usize * width];
    let mut sums = vec![T::Sum::default(); width];
    for channel in 0..usize::from(input.kind().channels) {
        let from = input.plane::<T>(channel);
        for (from, between) in from.chunks_exact(stride).zip(between.chunks_exact_mut(width)) {
            line.iter_mut().zip(&columns).for_each(|(to, x)| *to = from[*x]);
            between.fill(T::Row::default());
            widest(
                #[inline(always)]
                || {
                    for (tap, weight) in across.iter().enumerate() {
                        for (sum, value) in between.iter_mut().zip(&line[tap..]) {
                            *sum = T::add_value(*sum, *value, *weight);
                        }
                    }
                    between.iter_mut().for_each(|sum| *sum = T::between(*sum));
                },
            );
        }
        for (y, to) in out.plane_mut::<T>(channel).chunks_exact_mut(width).enumerate() {
            sums.fill(T::Sum::default());
            widest(
                #[inline(always)]
                || {
                    for (row, weight) in rows[y..].iter().zip(&down) {
                        for (sum, row) in sums.iter_mut().zip(&between[row * width..][..width]) {
                            *sum = T::add_row(*sum, *row, *weight);
                        }
                    }
                    to.iter_mut().zip(&sums).for_each(|(to, sum)| *to = T::blurred(*sum));
                },
            );
        }
    }
}

/// Makes the rectangle that `out` holds of a dilated image, or of an eroded one: rows, then columns.
pub(super) fn extreme<T: Number>(input: &Planes, kernel: u32, largest: bool, out: &mut Planes) {
    let (held, part): (Rect, Rect) = (input.part(), out.part());
    let (kernel, anchor) = (kernel as usize, i64::from(kernel / 2));
    let (width, height) = (part.width as usize, part.height as usize);
    let (left, top) = (i64::from(part.x) - anchor, i64::from(part.y) - anchor);
    // Values that are held of a line that begins at `start`; others are those of the line's first or last value, which
    // change neither the largest nor the smallest.
    let clamp = |at: i64, start: u32, len: u32| (at - i64::from(start)).clamp(0, i64::from(len) - 1) as usize;
    let columns: Vec<usize> =
        (left..left + (width + kernel - 1) as i64).map(|x| clamp(x, held.x, held.width)).collect();
    let mut rows = vec![T::default(); (height + kernel - 1) * width];
    let mut line = vec![T::default(); columns.len()];
    let run = |values: &mut [T], step: usize| {
        wide(
            #[inline(always)]
            || {
                if largest {
                    windows::<true, _>(values, kernel, step)
                } else {
                    windows::<false, _>(values, kernel, step)
                }
            },
        );
    };
    for channel in 0..usize::from(input.kind().channels) {
        let from = input.plane::<T>(channel);
        for (y, to) in (top..).zip(rows.chunks_exact_mut(width)) {
            let from = &from[clamp(y, held.y, held.height) * held.width as usize..][..held.width as usize];
            line.iter_mut().zip(&columns).for_each(|(to, x)| *to = from[*x]);
            run(&mut line, 1);
            to.copy_from_slice(&line[..width]);
        }
        run(&mut rows, width);
        out.plane_mut::<T>(channel).copy_from_slice(&rows[..height * width]);
    }
}
