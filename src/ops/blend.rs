//! Pillow's `Image.blend`, which brightness, contrast and saturation use.

use crate::simd::truncate_f32;

/// `from + factor (to - from)` in single precision, limited to 0..=255, with the fraction dropped.
///
/// Pillow converts the factor to a C `float` and computes in single precision. For factors between 0 and 1 Pillow does
/// not limit the result, but then it is never outside.
#[inline(always)]
pub(crate) fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let difference = i32::from(to) - i32::from(from);
    truncate_f32(f32::from(from) + factor * difference as f32) as u8
}
