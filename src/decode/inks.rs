//! CMYK to RGB.
#![allow(unsafe_code)]

use crate::raster::Pixel;

unsafe extern "C" {
    fn wf_jpeg_inks_to_rgb(row: *mut u8, width: u32);
}

/// Inks, stored inverted as Pillow takes all to be, to red, green, blue, 255.
pub(super) fn inks_to_rgb(row: &mut [Pixel]) {
    // SAFETY: the shim reads and writes four bytes for each of the pixels, of which an image's row has fewer than 2^32.
    unsafe { wf_jpeg_inks_to_rgb(row.as_mut_ptr().cast(), row.len() as u32) }
}
