//! Sampling points of kernels: an affine map in fixed point, and a bound of its error.
//!
//! Most cards are slow at doubles, so kernels compute a pixel in doubles only if the error could change it
//! (`kernels/sampling.cuh`).

use super::descriptors::ALL_IN_DOUBT;
use crate::raster::Size;

/// Fractional bits of a coordinate.
const BITS: i32 = 44;
/// Upper bound of sides and coordinates, in pixels, so that a coordinate in fixed point has at most 62 bits and a sign.
const MOST_PX: f64 = (1 << 18) as f64;

/// A map from pixels of a canvas to coordinates, as kernels take it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FixedPoints {
    /// For each axis: the step to the right, the step down, and the coordinate of the first pixel.
    pub(crate) fixed: [i64; 6],
    /// Bound of the error of the kernel's result, in the kernel's unit. [`ALL_IN_DOUBT`] if the map does not fit.
    pub(crate) doubt: u32,
}

impl FixedPoints {
    const UNFIT: Self = Self { fixed: [0; 6], doubt: ALL_IN_DOUBT };

    /// Points for `rotate_bilinear`, less half a pixel.
    ///
    /// The error of a coordinate has three parts. Steps are off by 2^-45 each and sides are below 2^18, which gives at
    /// most 2^-26 pixels. The doubles of the reference and those here are rounded eight times below 2^18, which gives
    /// less than 2^-32. The kernel cuts a coordinate to 24 bits, and half of the last place is added here, which gives
    /// 2^-25. The sum is less than 1.6 x 2^-25.
    pub(crate) fn bilinear(matrix: [f64; 6], canvas: Size, whole: Size) -> Self {
        const HALF_OF_24_BITS: i64 = 1 << (BITS - 25);
        let mut points = match reach(matrix, canvas, whole) {
            Some(_) => Self { fixed: fixed(matrix, 0.5), doubt: if exact(matrix) { 0 } else { 2 } },
            None => return Self::UNFIT,
        };
        points.fixed[2] += HALF_OF_24_BITS;
        points.fixed[5] += HALF_OF_24_BITS;
        points
    }

    /// Points for `rotate_bicubic`: the points of `bilinear`. The kernel knows the error of its values, which is never
    /// 0.
    pub(crate) fn bicubic(matrix: [f64; 6], canvas: Size, whole: Size) -> Self {
        let points = Self::bilinear(matrix, canvas, whole);
        let doubt = if points.doubt == ALL_IN_DOUBT { ALL_IN_DOUBT } else { 8 };
        Self { doubt, ..points }
    }

    /// Points for `rotate_nearest_double`, whose reference adds up steps along rows and columns. The doubt is in 2^-32
    /// pixels.
    pub(crate) fn nearest(matrix: [f64; 6], canvas: Size, whole: Size) -> Self {
        let Some(reach) = reach(matrix, canvas, whole) else { return Self::UNFIT };
        let steps = f64::from(canvas.width) + f64::from(canvas.height);
        // In both, each sum is rounded by at most half of its last place, and a step by 2^-45. Cutting fixed point to
        // 32 bits adds one unit.
        let off_px = (steps + 8.0) * reach * (0.5 * f64::EPSILON) + (steps + 1.0) * 2f64.powi(-BITS - 1);
        let doubt = if exact(matrix) { 0 } else { (off_px * 2f64.powi(32)).ceil() as u32 + 1 };
        Self { fixed: fixed(matrix, 0.0), doubt }
    }
}

/// Upper bound of a coordinate and of all partial sums of it. `None` if it does not fit fixed point.
fn reach(matrix: [f64; 6], canvas: Size, whole: Size) -> Option<f64> {
    let sides = [canvas.width, canvas.height, whole.width, whole.height].map(f64::from);
    let axis = |a: f64, b: f64, c: f64| a.abs() * (sides[0] + 1.0) + b.abs() * (sides[1] + 1.0) + c.abs() + 1.0;
    let [a0, a1, a2, a3, a4, a5] = matrix;
    let reaches = [axis(a0, a1, a2), axis(a3, a4, a5)];
    // NaN fails this test.
    let fits = sides.into_iter().chain(reaches).all(|value| value < MOST_PX);
    fits.then_some(reaches[0].max(reaches[1]))
}

/// Whether the reference's doubles and fixed point are exact. This leaves room for the products of two fractions and a
/// byte, so nothing is rounded.
fn exact(matrix: [f64; 6]) -> bool {
    matrix.into_iter().all(|value| (value * (1 << 20) as f64).fract() == 0.0)
}

/// The map to the points of pixel centers, less `offset` pixels.
fn fixed([a0, a1, a2, a3, a4, a5]: [f64; 6], offset: f64) -> [i64; 6] {
    let fix = |value: f64| (value * 2f64.powi(BITS)).round() as i64;
    let first = |a: f64, b: f64, c: f64| fix(c + b * 0.5 + a * 0.5 - offset);
    [fix(a0), fix(a1), first(a0, a1, a2), fix(a3), fix(a4), first(a3, a4, a5)]
}
