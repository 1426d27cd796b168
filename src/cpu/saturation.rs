//! Blending with the picture's grey version.

use super::blend::blend;
use super::grayscale::luma;
use super::simd::wide;
use crate::picture::Picture;

/// Changes the saturation: blends each pixel with its luma.
pub(crate) fn saturation(picture: &mut Picture, factor: f64) {
    let factor = factor as f32;
    let pixels = picture.pixels_mut();
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
