//! Blending with black.

use super::blend::blend;
use super::simd::wide;
use crate::picture::Picture;

/// Makes the picture `factor` times as bright.
pub(crate) fn brightness(picture: &mut Picture, factor: f64) {
    blend_with_color(picture, 0, factor as f32);
}

/// Blends every channel with one value.
pub(crate) fn blend_with_color(picture: &mut Picture, from: u8, factor: f32) {
    let pixels = picture.pixels_mut();
    wide(
        #[inline(always)]
        || {
            for byte in pixels.as_flattened_mut() {
                *byte = blend(from, *byte, factor);
            }
        },
    );
}
