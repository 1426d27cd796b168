//! Pillow's `Image.blend`, which brightness, contrast and saturation are.

use crate::simd::truncate_f32;

/// `from + factor (to - from)` in single precision, cut to 0..=255, its fraction dropped.
///
/// Pillow takes the factor as a C `float` and computes in that. Between 0 and 1 it does not cut, but then there is
/// nothing to cut.
#[inline(always)]
pub(crate) fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let difference = i32::from(to) - i32::from(from);
    truncate_f32(f32::from(from) + factor * difference as f32) as u8
}
