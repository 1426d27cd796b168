//! Conversion of CMYK to RGB.
#![allow(unsafe_code)]

use crate::raster::Pixel;

unsafe extern "C" {
    fn wf_jpeg_inks_to_rgb(row: *mut u8, width: u32);
}

/// Converts inks to red, green, blue, 255. The inks are stored inverted, as Pillow assumes for all images.
pub(super) fn inks_to_rgb(row: &mut [Pixel]) {
    // SAFETY: the shim reads and writes four bytes for each pixel. An image's row has fewer than 2^32 pixels.
    unsafe { wf_jpeg_inks_to_rgb(row.as_mut_ptr().cast(), row.len() as u32) }
}
