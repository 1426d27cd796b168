//! Blending with black.

use super::blend::blend;
use super::simd::wide;
use crate::image::Image;

/// Makes the image `factor` times as bright.
pub(crate) fn brightness(image: &mut Image, factor: f64) {
    blend_with_color(image, 0, factor as f32);
}

/// Blends every channel with one value.
pub(crate) fn blend_with_color(image: &mut Image, from: u8, factor: f32) {
    let pixels = image.pixels_mut();
    wide(
        #[inline(always)]
        || {
            for byte in pixels.as_flattened_mut() {
                *byte = blend(from, *byte, factor);
            }
        },
    );
}
