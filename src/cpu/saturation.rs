//! Blending with the image's grey version.

use super::blend::blend;
use super::grayscale::luma;
use super::simd::wide;
use crate::image::Image;

/// Changes the saturation: blends each pixel with its luma.
pub(crate) fn saturation(image: &mut Image, factor: f64) {
    let factor = factor as f32;
    let pixels = image.pixels_mut();
    wide(
        #[inline(always)]
        || {
            for pixel in pixels {
                let grey = luma(*pixel);
                let [red, green, blue, _] = *pixel;
                *pixel = [blend(grey, red, factor), blend(grey, green, factor), blend(grey, blue, factor), 255];
            }
        },
    );
}
