//! The arithmetic of each element type.

use crate::ops::filter::{WEIGHT_BITS, Weight};
use crate::simd::truncate_f64;
use warpfeed_image::planes::Value;

/// A type of values, with the arithmetic of its reference.
pub(super) trait Number: Value + Default + Into<f64> {
    /// A weight of a resize.
    type Weight: Weight + Send + Sync;
    /// A value on its way through sums of a resize.
    type Wide: Copy + Default + Send + Sync;
    /// Where a sum begins.
    const START: Self::Wide;
    /// The number to add to a sampled value before its fraction is dropped, if the edge is the fill.
    const EDGE_ROUNDING: f64;

    /// Whether the type has whole numbers.
    const IS_WHOLE: bool;

    fn to_f32(self) -> f32;

    fn wide(self) -> Self::Wide;

    /// `sum + value * weight`, rounded after each operation.
    fn add(sum: Self::Wide, value: Self::Wide, weight: Self::Weight) -> Self::Wide;

    /// The value of a resize's sum.
    fn of_sum(sum: Self::Wide) -> Self;

    /// The value of a number in the image's units.
    fn of_number(number: f32) -> Self;

    #[inline(always)]
    fn to_f64(self) -> f64 {
        self.into()
    }

    /// `self - other`, as the reference rounds it.
    fn minus(self, other: Self) -> f64;

    /// The third and the fourth coefficient of a cubic through four values, as the reference rounds them.
    fn curvature(values: [Self; 4]) -> [f64; 2];

    /// A value that was sampled between pixels.
    fn of_sampled(value: f64) -> Self;

    /// A value with a sum of normal noise, `deviate * sigma + mean`.
    fn noisy(self, noise: f32, clip: bool, max: f32) -> Self;

    /// A value that overwrites, with or without noise: whole numbers are rounded.
    fn overwriting(value: f32, noisy: bool) -> Self;
}

/// The differences of whole numbers are exact.
fn whole_curvature([a, b, c, d]: [f64; 4]) -> [f64; 2] {
    [2.0 * (a - b) + c - d, b - a - c + d]
}

/// The common part of the types of whole numbers.
macro_rules! whole_numbers {
    () => {
        const EDGE_ROUNDING: f64 = 0.5;
        const IS_WHOLE: bool = true;

        #[inline(always)]
        fn to_f32(self) -> f32 {
            self.into()
        }

        fn of_number(number: f32) -> Self {
            number as Self
        }

        #[inline(always)]
        fn minus(self, other: Self) -> f64 {
            f64::from(self) - f64::from(other)
        }

        #[inline(always)]
        fn curvature(values: [Self; 4]) -> [f64; 2] {
            whole_curvature(values.map(f64::from))
        }

        #[inline(always)]
        fn noisy(self, noise: f32, clip: bool, max: f32) -> Self {
            let sum = i32::from(self) + noise as i32;
            if clip { sum.clamp(0, max as i32) as Self } else { sum as Self }
        }

        fn overwriting(value: f32, noisy: bool) -> Self {
            if noisy { value.round_ties_even() as Self } else { value.round() as Self }
        }
    };
}

/// The types whose resizes add up doubles.
macro_rules! sums_in_doubles {
    () => {
        type Weight = f64;
        type Wide = f64;
        const START: f64 = 0.0;

        #[inline(always)]
        fn wide(self) -> f64 {
            self.into()
        }

        #[inline(always)]
        fn add(sum: f64, value: f64, weight: f64) -> f64 {
            sum + value * weight
        }
    };
}

impl Number for u8 {
    whole_numbers!();

    type Weight = i32;
    type Wide = i32;
    const START: i32 = 1 << (WEIGHT_BITS - 1);

    #[inline(always)]
    fn wide(self) -> i32 {
        self.into()
    }

    #[inline(always)]
    fn add(sum: i32, value: i32, weight: i32) -> i32 {
        sum + value * weight
    }

    #[inline(always)]
    fn of_sum(sum: i32) -> Self {
        (sum >> WEIGHT_BITS).clamp(0, 255) as Self
    }

    #[inline(always)]
    fn of_sampled(value: f64) -> Self {
        truncate_f64(value) as Self
    }
}

impl Number for u16 {
    whole_numbers!();
    sums_in_doubles!();

    #[inline(always)]
    fn of_sum(sum: f64) -> Self {
        // Halves away from zero; below it all values are 0.
        Self::of_sampled(sum + 0.5)
    }

    #[inline(always)]
    fn of_sampled(value: f64) -> Self {
        // Each of these compiles to one instruction, and the first turns NaN into 0.
        let value = if value > 0.0 { value } else { 0.0 };
        let value = if value < 65_535.0 { value } else { 65_535.0 };
        value as i32 as Self
    }
}

impl Number for f32 {
    sums_in_doubles!();

    const EDGE_ROUNDING: f64 = 0.0;
    const IS_WHOLE: bool = false;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn of_sum(sum: f64) -> Self {
        sum as Self
    }

    fn of_number(number: f32) -> Self {
        number
    }

    // Pillow subtracts in single precision before it widens.
    #[inline(always)]
    fn minus(self, other: Self) -> f64 {
        (self - other).into()
    }

    #[inline(always)]
    fn curvature([a, b, c, d]: [Self; 4]) -> [f64; 2] {
        [(2.0 * (a - b) + c - d).into(), (b - a - c + d).into()]
    }

    #[inline(always)]
    fn of_sampled(value: f64) -> Self {
        value as Self
    }

    // Physical units have no limits.
    #[inline(always)]
    fn noisy(self, noise: f32, _clip: bool, _max: f32) -> Self {
        self + noise
    }

    fn overwriting(value: f32, _noisy: bool) -> Self {
        value
    }
}
