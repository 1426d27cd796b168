//! Blending with the image's mean luma.

use super::brightness::blend_with_color;
use super::grayscale::luma;
use super::simd::wide;
use crate::image::{Image, Pixel, Rect};

/// Changes the contrast of a complete image: blends it with its mean luma.
pub(crate) fn contrast(image: &mut Image, factor: f64) {
    debug_assert_eq!(image.part(), Rect::full(image.whole()), "the mean is that of the complete image");
    let mean = mean_luma(image.pixels());
    blend_with_color(image, mean, factor as f32);
}

/// The mean of the pixels' luma, halves rounded up.
pub(crate) fn mean_luma(pixels: &[Pixel]) -> u8 {
    // Sums of blocks fit 32 bits, which vectorise; blocks are added up in 64.
    const BLOCK: usize = 1 << 16;
    let sum: u64 = wide(
        #[inline(always)]
        || {
            let sum = |block: &[Pixel]| block.iter().map(|&pixel| u32::from(luma(pixel))).sum::<u32>();
            pixels.chunks(BLOCK).map(|block| u64::from(sum(block))).sum()
        },
    );
    // Python: int(sum / count + 0.5), in double precision.
    (sum as f64 / pixels.len() as f64 + 0.5) as u8
}
