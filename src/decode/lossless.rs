//! PNG and WebP images, through the `image` crate.

use super::{Format, Header, out_of_memory};
use crate::error::{Error, Result};
use crate::image::{Image, Pixel, Rect};
use image::{ColorType, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

/// Decodes the whole image and keeps `part` of it.
///
/// Colours as Pillow's `convert("RGB")` gives them: transparency is dropped, not blended; palettes are looked up; grey
/// goes to all three channels. Of 16-bit samples the high byte is kept, which is what Pillow does for colour; its own
/// conversion of 16-bit grey clips every value above 255 to white, which nobody wants.
pub(super) fn decode(bytes: &[u8], header: &Header, part: Rect, out: &mut Image) -> Result<()> {
    let (name, format, what) = match header.format {
        Format::Png => ("PNG", ImageFormat::Png, "PNG decoder"),
        _ => ("WebP", ImageFormat::WebP, "WebP decoder"),
    };
    let mut limits = Limits::default();
    limits.max_image_width = Some(header.size.width);
    limits.max_image_height = Some(header.size.height);
    // Eight bytes a pixel at most, in the decoder and as its result, and what ancillary chunks may take.
    limits.max_alloc = Some(header.size.area_px().saturating_mul(16).saturating_add(16 << 20));
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let damaged = |error: ImageError| Error::decode(name, error.to_string());
    let decoder = reader.into_decoder().map_err(damaged)?;
    if decoder.dimensions() != (header.size.width, header.size.height) {
        return Err(Error::decode(name, "the size is not the one in the header"));
    }
    let color = decoder.color_type();
    let no_memory = || out_of_memory(what);
    let len_bytes = usize::try_from(decoder.total_bytes()).map_err(|_| no_memory())?;
    let mut samples = bytemuck::allocation::try_zeroed_vec(len_bytes).map_err(|()| no_memory())?;
    if header.format == Format::WebP {
        // Its decoder's own buffers, of at most eight bytes a pixel, end the process if they cannot be had: asked for here
        // first, that is an error.
        let mut room = Vec::<u64>::new();
        let area_px = usize::try_from(header.size.area_px()).map_err(|_| no_memory())?;
        room.try_reserve_exact(area_px).map_err(|_| no_memory())?;
    }
    decoder.read_image(&mut samples).map_err(damaged)?;
    out.reset_part(header.size, part);
    match color {
        ColorType::Rgb8 => cut::<3>(&samples, out, |p| [p[0], p[1], p[2], 255]),
        ColorType::Rgba8 => cut::<4>(&samples, out, |p| [p[0], p[1], p[2], 255]),
        ColorType::L8 => cut::<1>(&samples, out, |p| grey(p[0])),
        ColorType::La8 => cut::<2>(&samples, out, |p| grey(p[0])),
        ColorType::Rgb16 => cut::<6>(&samples, out, |p| [high(p, 0), high(p, 1), high(p, 2), 255]),
        ColorType::Rgba16 => cut::<8>(&samples, out, |p| [high(p, 0), high(p, 1), high(p, 2), 255]),
        ColorType::L16 => cut::<2>(&samples, out, |p| grey(high(p, 0))),
        ColorType::La16 => cut::<4>(&samples, out, |p| grey(high(p, 0))),
        _ => return Err(Error::decode(name, "the pixel format is not supported: convert it to 8-bit RGB")),
    }
    Ok(())
}

fn grey(value: u8) -> Pixel {
    [value, value, value, 255]
}

/// The high byte of the sample at `index`, of 16 bits in this machine's order.
fn high(samples: &[u8], index: usize) -> u8 {
    (u16::from_ne_bytes([samples[2 * index], samples[2 * index + 1]]) >> 8) as u8
}

/// Copies the part that `out` is of the whole image, which has `N` bytes a pixel.
fn cut<const N: usize>(samples: &[u8], out: &mut Image, pixel: impl Fn(&[u8; N]) -> Pixel) {
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
