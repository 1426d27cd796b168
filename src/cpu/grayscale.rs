//! Luma in all three channels.

use super::simd::wide;
use crate::image::{Image, Pixel};

/// Replaces each pixel by its luma.
pub(crate) fn grayscale(image: &mut Image) {
    let pixels = image.pixels_mut();
    wide(
        #[inline(always)]
        || {
            for pixel in pixels {
                let luma = luma(*pixel);
                *pixel = [luma, luma, luma, 255];
            }
        },
    );
}

/// ITU-R 601 luma as Pillow's `convert("L")` has it: 16 fractional bits, rounded to nearest.
#[inline(always)]
pub(crate) fn luma([red, green, blue, _]: Pixel) -> u8 {
    ((u32::from(red) * 19595 + u32::from(green) * 38470 + u32::from(blue) * 7471 + 0x8000) >> 16) as u8
}
