//! PNG and WebP images.

#[cfg(feature = "webp")]
use super::webp::{Frame, first_frame};
use super::{Format, Header};
use crate::error::{Error, Result};
use crate::memory;
use crate::raster::{Image, Pixel, Rect};
use png::{BitDepth, ColorType, Transformations};
use std::io::Cursor;

/// Decodes the whole image and keeps `part` of it.
///
/// Colors are those of Pillow's `convert("RGB")`: transparency is dropped and not blended, palettes are looked up, and
/// gray is copied to all three channels. Of 16-bit samples the high byte is kept, as Pillow does for color. Pillow's
/// conversion of 16-bit gray differs: it makes every value above 255 white, which nobody wants.
pub(super) fn decode(bytes: &[u8], header: &Header, part: Rect, out: &mut Image) -> Result<()> {
    match header.format {
        Format::Png => png(bytes, header, part, out),
        _ => webp(bytes, header, part, out),
    }
}

fn png(bytes: &[u8], header: &Header, part: Rect, out: &mut Image) -> Result<()> {
    let failed = |error: png::DecodingError| Error::decode("PNG", error.to_string());
    // The limit allows eight bytes a pixel, once in the decoder and once for its result, and memory for ancillary
    // chunks.
    let limit_bytes = header.size.area_px().saturating_mul(16).saturating_add(16 << 20);
    let limits = png::Limits { bytes: usize::try_from(limit_bytes).unwrap_or(usize::MAX) };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    // Looks up palettes, and expands gray of 1, 2 and 4 bits to 8.
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(failed)?;
    if reader.info().size() != (header.size.width, header.size.height) {
        return Err(Error::decode("PNG", "the size is not the one in the header"));
    }
    let mut samples = buffer("a PNG decoder", reader.output_buffer_size())?;
    reader.next_frame(&mut samples).map_err(failed)?;
    out.reset_part(header.size, part);
    // The first byte of 16 bits is the high one.
    match reader.output_color_type() {
        (ColorType::Grayscale, BitDepth::Eight) => cut(&samples, out, |&[v]| [v, v, v, 255]),
        (ColorType::Grayscale, BitDepth::Sixteen) => cut(&samples, out, |&[v, _]| [v, v, v, 255]),
        (ColorType::GrayscaleAlpha, BitDepth::Eight) => cut(&samples, out, |&[v, _]| [v, v, v, 255]),
        (ColorType::GrayscaleAlpha, BitDepth::Sixteen) => cut(&samples, out, |&[v, _, _, _]| [v, v, v, 255]),
        (ColorType::Rgb, BitDepth::Eight) => cut(&samples, out, |&[r, g, b]| [r, g, b, 255]),
        (ColorType::Rgb, BitDepth::Sixteen) => cut(&samples, out, |&[r, _, g, _, b, _]| [r, g, b, 255]),
        (ColorType::Rgba, BitDepth::Eight) => cut(&samples, out, |&[r, g, b, _]| [r, g, b, 255]),
        (ColorType::Rgba, BitDepth::Sixteen) => cut(&samples, out, |&[r, _, g, _, b, _, _, _]| [r, g, b, 255]),
        _ => return Err(Error::decode("PNG", "the pixel format is not supported: convert it to 8-bit RGB")),
    }
    Ok(())
}

#[cfg(feature = "webp")]
fn webp(bytes: &[u8], header: &Header, part: Rect, out: &mut Image) -> Result<()> {
    let failed = |error: image_webp::DecodingError| Error::decode("WebP", error.to_string());
    let frame = first_frame(bytes, header)?;
    let mut decoder = image_webp::WebPDecoder::new(Cursor::new(&*frame.file)).map_err(failed)?;
    if decoder.dimensions() != frame.size {
        return Err(Error::decode("WebP", "the size is not the one in the header"));
    }
    let mut samples = buffer("a WebP decoder", decoder.output_buffer_size())?;
    // The decoder's own buffers, of at most eight bytes a pixel, would end the process if there is no memory. Asking
    // for this memory first makes that an error.
    let area_px = u64::from(frame.size.0) * u64::from(frame.size.1);
    drop(buffer("a WebP decoder", usize::try_from(area_px.saturating_mul(8)).ok())?);
    decoder.read_image(&mut samples).map_err(failed)?;
    out.reset_part(header.size, part);
    if decoder.has_alpha() {
        place(&samples, &frame, out, |&[r, g, b, _]| [r, g, b, 255]);
    } else {
        place(&samples, &frame, out, |&[r, g, b]| [r, g, b, 255]);
    }
    Ok(())
}

/// Copies `out`'s part of a canvas that is black outside of the image in `samples`, which have `N` bytes a pixel.
#[cfg(feature = "webp")]
fn place<const N: usize>(samples: &[u8], frame: &Frame<'_>, out: &mut Image, pixel: impl Fn(&[u8; N]) -> Pixel) {
    let (part, [left, top], (width, height)) = (out.part(), frame.at, frame.size);
    let (pixels, _) = samples.as_chunks::<N>();
    let (first, last) = (part.x.max(left), part.right().min(left + width));
    for y in 0..part.height {
        let row = out.row_mut(y);
        let from = (part.y + y).checked_sub(top).filter(|from| *from < height && first < last);
        if from.is_none() || last - first < part.width {
            row.fill([0, 0, 0, 255]);
        }
        if let Some(from) = from {
            let start = from as usize * width as usize + (first - left) as usize;
            let from = &pixels[start..][..(last - first) as usize];
            row[(first - part.x) as usize..].iter_mut().zip(from).for_each(|(to, from)| *to = pixel(from));
        }
    }
}

#[cfg(not(feature = "webp"))]
fn webp(_: &[u8], _: &Header, _: Rect, _: &mut Image) -> Result<()> {
    Err(Error::Unsupported {
        feature: "decoding WebP in this build".to_owned(),
        remedy: "build warpfeed with its feature `webp`".to_owned(),
    })
}

fn buffer(what: &'static str, len_bytes: Option<usize>) -> Result<Vec<u8>> {
    memory::zeros(len_bytes.unwrap_or(usize::MAX), what, memory::FEWER_IMAGES)
}

/// Copies `out`'s part of the whole image in `samples`, which have `N` bytes a pixel.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decode::{Decoder, probe},
        raster::Size,
    };

    /// A PNG of 5 x 3 pixels, whose rows are padded with zero bits.
    fn encoded(color: ColorType, depth: BitDepth, data: &[u8], transparent: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 5, 3);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == ColorType::Indexed {
            encoder.set_palette((0..48).map(|i| 5 * i).collect::<Vec<u8>>());
            if transparent {
                encoder.set_trns(vec![0, 100, 200]);
            }
        }
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        bytes
    }

    fn decoded(bytes: &[u8], part: Rect) -> Vec<u8> {
        let mut image = Image::default();
        Decoder::new().unwrap().decode(bytes, &probe(bytes).unwrap(), part, false, &mut image).unwrap();
        image.to_rgb()
    }

    #[test]
    fn every_kind_of_png_gives_eight_bit_colors() {
        let whole = Rect::full(Size::new(5, 3));
        let part = Rect { x: 1, y: 1, width: 3, height: 2 };
        let check = |color, depth, transparent, samples: &[u16], rgb: fn(&[u16]) -> [u8; 3]| {
            let channels = samples.len() / 15;
            let bits = depth as usize;
            let row = |row: &[u16]| {
                let mut bytes = vec![0; (row.len() * bits).div_ceil(8)];
                for (i, &sample) in row.iter().enumerate() {
                    match bits {
                        16 => bytes[2 * i..][..2].copy_from_slice(&sample.to_be_bytes()),
                        _ => bytes[i * bits / 8] |= (sample as u8) << (8 - bits - i * bits % 8),
                    }
                }
                bytes
            };
            let data: Vec<u8> = samples.chunks(5 * channels).flat_map(row).collect();
            let want: Vec<[u8; 3]> = samples.chunks(channels).map(rgb).collect();
            let bytes = encoded(color, depth, &data, transparent);
            assert_eq!(decoded(&bytes, whole), want.as_flattened(), "{color:?} {depth:?}");
            let inside: Vec<u8> = [6, 7, 8, 11, 12, 13].into_iter().flat_map(|i| want[i]).collect();
            assert_eq!(decoded(&bytes, part), inside, "part, {color:?} {depth:?}");
        };
        let samples = |count: u16, below: u32| -> Vec<u16> {
            (0..15 * u32::from(count)).map(|i| (i * 40_503 % below) as u16).collect()
        };
        let palette: fn(&[u16]) -> [u8; 3] = |p| [0, 1, 2].map(|i| 5 * (3 * p[0] as u8 + i));
        check(ColorType::Grayscale, BitDepth::One, false, &samples(1, 2), |p| [255 * p[0] as u8; 3]);
        check(ColorType::Grayscale, BitDepth::Two, false, &samples(1, 4), |p| [85 * p[0] as u8; 3]);
        check(ColorType::Grayscale, BitDepth::Four, false, &samples(1, 16), |p| [17 * p[0] as u8; 3]);
        check(ColorType::Grayscale, BitDepth::Eight, false, &samples(1, 256), |p| [p[0] as u8; 3]);
        check(ColorType::Grayscale, BitDepth::Sixteen, false, &samples(1, 65_536), |p| [(p[0] >> 8) as u8; 3]);
        check(ColorType::GrayscaleAlpha, BitDepth::Eight, false, &samples(2, 256), |p| [p[0] as u8; 3]);
        check(ColorType::GrayscaleAlpha, BitDepth::Sixteen, false, &samples(2, 65_536), |p| [(p[0] >> 8) as u8; 3]);
        check(ColorType::Rgb, BitDepth::Eight, false, &samples(3, 256), |p| [0, 1, 2].map(|i| p[i] as u8));
        check(ColorType::Rgb, BitDepth::Sixteen, false, &samples(3, 65_536), |p| [0, 1, 2].map(|i| (p[i] >> 8) as u8));
        check(ColorType::Rgba, BitDepth::Eight, false, &samples(4, 256), |p| [0, 1, 2].map(|i| p[i] as u8));
        check(ColorType::Rgba, BitDepth::Sixteen, false, &samples(4, 65_536), |p| [0, 1, 2].map(|i| (p[i] >> 8) as u8));
        for transparent in [false, true] {
            check(ColorType::Indexed, BitDepth::Two, transparent, &samples(1, 4), palette);
            check(ColorType::Indexed, BitDepth::Four, transparent, &samples(1, 16), palette);
            check(ColorType::Indexed, BitDepth::Eight, transparent, &samples(1, 16), palette);
        }
    }

    #[test]
    fn a_damaged_or_truncated_png_is_an_error() {
        let bytes = encoded(ColorType::Rgb, BitDepth::Eight, &[7; 45], false);
        let whole = Rect::full(Size::new(5, 3));
        let decode = |bytes: &[u8]| {
            probe(bytes)
                .and_then(|header| decode(bytes, &header, whole, &mut Image::default()))
                .map_err(|e| e.to_string())
        };
        decode(&bytes).unwrap();
        for end in 0..bytes.len() - 16 {
            assert!(decode(&bytes[..end]).is_err(), "the first {end} bytes");
        }
        for at in 8..bytes.len() - 16 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            assert!(decode(&bytes).is_err(), "byte {at}");
        }
    }
}
