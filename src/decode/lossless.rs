//! PNG and WebP images, through the `image` crate.

use super::{Format, Header};
use crate::error::{Error, Result};
use crate::image::{Image, Pixel, Rect};
use image::{DynamicImage, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

/// Decodes the whole image and keeps `part` of it.
///
/// Colours as Pillow's `convert("RGB")` gives them: transparency is dropped, not blended; palettes are looked up; grey
/// goes to all three channels. Of 16-bit samples the high byte is kept, which is what Pillow does for colour; its own
/// conversion of 16-bit grey clips every value above 255 to white, which nobody wants.
pub(super) fn decode(bytes: &[u8], header: &Header, part: Rect, out: &mut Image) -> Result<()> {
    let (name, format) = match header.format {
        Format::Png => ("PNG", ImageFormat::Png),
        _ => ("WebP", ImageFormat::WebP),
    };
    let mut limits = Limits::default();
    limits.max_image_width = Some(header.size.width);
    limits.max_image_height = Some(header.size.height);
    // Eight bytes a pixel at most, once in the decoder and once as its result, and what ancillary chunks may take.
    limits.max_alloc = Some(header.size.area_px().saturating_mul(16).saturating_add(16 << 20));
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let image = reader.decode().map_err(|error| Error::decode(name, error.to_string()))?;
    if (image.width(), image.height()) != (header.size.width, header.size.height) {
        return Err(Error::decode(name, "the size is not the one in the header"));
    }
    out.reset_part(header.size, part);
    match image {
        DynamicImage::ImageRgb8(p) => cut::<_, 3>(p.as_raw(), out, |p| [p[0], p[1], p[2], 255]),
        DynamicImage::ImageRgba8(p) => cut::<_, 4>(p.as_raw(), out, |p| [p[0], p[1], p[2], 255]),
        DynamicImage::ImageLuma8(p) => cut::<_, 1>(p.as_raw(), out, |p| grey(p[0])),
        DynamicImage::ImageLumaA8(p) => cut::<_, 2>(p.as_raw(), out, |p| grey(p[0])),
        DynamicImage::ImageRgb16(p) => cut::<_, 3>(p.as_raw(), out, |p| [high(p[0]), high(p[1]), high(p[2]), 255]),
        DynamicImage::ImageRgba16(p) => cut::<_, 4>(p.as_raw(), out, |p| [high(p[0]), high(p[1]), high(p[2]), 255]),
        DynamicImage::ImageLuma16(p) => cut::<_, 1>(p.as_raw(), out, |p| grey(high(p[0]))),
        DynamicImage::ImageLumaA16(p) => cut::<_, 2>(p.as_raw(), out, |p| grey(high(p[0]))),
        _ => return Err(Error::decode(name, "the pixel format is not supported: convert it to 8-bit RGB")),
    }
    Ok(())
}

fn grey(value: u8) -> Pixel {
    [value, value, value, 255]
}

fn high(value: u16) -> u8 {
    (value >> 8) as u8
}

/// Copies the part that `out` is of the whole `samples`, `N` a pixel.
fn cut<T, const N: usize>(samples: &[T], out: &mut Image, pixel: impl Fn(&[T; N]) -> Pixel) {
    let (whole, part) = (out.whole(), out.part());
    let (pixels, _) = samples.as_chunks::<N>();
    for y in 0..part.height {
        let start = (part.y + y) as usize * whole.width as usize + part.x as usize;
        let row = &pixels[start..][..part.width as usize];
        for (to, from) in out.row_mut(y).iter_mut().zip(row) {
            *to = pixel(from);
        }
    }
}
