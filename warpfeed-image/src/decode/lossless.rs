//! PNG and WebP images.

#[cfg(feature = "webp")]
use super::webp::{Frame, first_frame};
use super::{Format, Header};
use crate::error::{Error, Result};
use crate::memory;
#[cfg(feature = "webp")]
use crate::raster::Pixel;
use crate::raster::{Image, Rect, Size};
use png::{BitDepth, ColorType, Transformations};
use std::io::Cursor;

/// Decodes the whole image and keeps `part` of it.
///
/// Colors are those of Pillow's `convert("RGB")`: transparency is dropped and not blended, palettes are looked up, and
/// gray is copied to all three channels. The high byte of 16-bit samples is kept, as Pillow does for color. Pillow's
/// conversion of 16-bit gray differs: it makes every value above 255 white, which is of no use.
pub(super) fn decode(bytes: &[u8], header: &Header, part: Rect, out: &mut Image) -> Result<()> {
    match header.format {
        Format::Png => png(bytes, header, part, out),
        _ => webp(bytes, header, part, false, out),
    }
}

/// A decoder of a PNG's rows.
pub(super) fn open_png<'a>(
    bytes: &'a [u8],
    header: &Header,
    transformations: Transformations,
) -> Result<png::Reader<Cursor<&'a [u8]>>> {
    let failed = |error: png::DecodingError| Error::decode("PNG", error.to_string());
    // Rows go where they belong one by one, so that an image of eight bytes a pixel takes no more memory than its
    // result. The limit allows some of the widest rows, and memory for ancillary chunks.
    let limit_bytes = u64::from(header.size.width).saturating_mul(64).saturating_add(16 << 20);
    let limits = png::Limits { bytes: usize::try_from(limit_bytes).unwrap_or(usize::MAX) };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(transformations);
    let reader = decoder.read_info().map_err(failed)?;
    if reader.info().size() != (header.size.width, header.size.height) {
        return Err(Error::decode("PNG", "the size is not the one in the header"));
    }
    Ok(reader)
}

fn png(bytes: &[u8], header: &Header, part: Rect, out: &mut Image) -> Result<()> {
    let failed = |error: png::DecodingError| Error::decode("PNG", error.to_string());
    // Looks up palettes, and expands gray of 1, 2 and 4 bits to 8.
    let mut reader = open_png(bytes, header, Transformations::EXPAND)?;
    let to_pixel = to_pixel(reader.output_color_type())?;
    out.reset_part(header.size, part);
    let mut rows = PngRows::of(reader.info().interlaced, header.size);
    // Not even a row of a giant image may end the process.
    drop(buffer("a PNG decoder", reader.output_line_size(header.size.width))?);
    while let Some(row) = reader.next_row().map_err(failed)? {
        let Some(place) = rows.next() else { break };
        place.write(row.data(), to_pixel, out);
    }
    Ok(())
}

/// Writes the pixel of a sample.
#[derive(Clone, Copy)]
struct ToPixel {
    sample_bytes: usize,
    /// Places of red, green and blue in a sample. The first byte of 16 bits is the high one.
    places: [usize; 3],
}

fn to_pixel((color, depth): (ColorType, BitDepth)) -> Result<ToPixel> {
    let bytes = match depth {
        BitDepth::Eight => 1,
        BitDepth::Sixteen => 2,
        _ => 0,
    };
    let (channels, is_color) = match color {
        ColorType::Grayscale => (1, 0),
        ColorType::GrayscaleAlpha => (2, 0),
        ColorType::Rgb => (3, 1),
        ColorType::Rgba => (4, 1),
        ColorType::Indexed => (0, 0),
    };
    if channels * bytes == 0 {
        return Err(Error::decode("PNG", "the pixel format is not supported: convert it to 8-bit RGB"));
    }
    Ok(ToPixel { sample_bytes: channels * bytes, places: [0, 1, 2].map(|channel| channel * bytes * is_color) })
}

/// The rows of a PNG in the order in which they come: those of the image, or those of Adam7's seven passes.
pub(super) struct PngRows {
    size: Size,
    passes: &'static [[u32; 4]],
    line: u32,
}

/// Places of a row's samples in the image.
pub(super) struct RowPlace {
    pub(super) x: u32,
    pub(super) step: u32,
    pub(super) y: u32,
}

impl PngRows {
    pub(super) fn of(interlaced: bool, size: Size) -> Self {
        /// First column and row, and from one column and row to the next.
        const ADAM7: [[u32; 4]; 7] =
            [[0, 0, 8, 8], [4, 0, 8, 8], [0, 4, 4, 8], [2, 0, 4, 4], [0, 2, 2, 4], [1, 0, 2, 2], [0, 1, 1, 2]];
        Self { size, passes: if interlaced { &ADAM7 } else { &[[0, 0, 1, 1]] }, line: 0 }
    }
}

impl Iterator for PngRows {
    type Item = RowPlace;

    fn next(&mut self) -> Option<RowPlace> {
        loop {
            let [x, first, step, rows] = *self.passes.first()?;
            let y = first + self.line * rows;
            if x < self.size.width && y < self.size.height {
                self.line += 1;
                return Some(RowPlace { x, step, y });
            }
            (self.passes, self.line) = (&self.passes[1..], 0);
        }
    }
}

impl RowPlace {
    /// Number of the row's samples in an image of this width.
    pub(super) fn count(&self, width: u32) -> usize {
        (width - self.x).div_ceil(self.step) as usize
    }

    /// Writes those samples of the row that lie in `out`'s part.
    fn write(&self, samples: &[u8], to_pixel: ToPixel, out: &mut Image) {
        let part = out.part();
        let Some(y) = self.y.checked_sub(part.y).filter(|y| *y < part.height) else { return };
        let row = out.row_mut(y);
        let [red, green, blue] = to_pixel.places;
        // The first sample in the part.
        let first = part.x.saturating_sub(self.x).div_ceil(self.step);
        let Some(start) = (self.x + first * self.step).checked_sub(part.x) else { return };
        let to = row.iter_mut().skip(start as usize);
        let from = samples.chunks_exact(to_pixel.sample_bytes).skip(first as usize);
        let from = from.map(|from| [from[red], from[green], from[blue], 255]);
        match self.step {
            1 => to.zip(from).for_each(|(to, from)| *to = from),
            step => to.step_by(step as usize).zip(from).for_each(|(to, from)| *to = from),
        }
    }
}

/// Decodes a WebP. The fourth byte of the pixels is the alpha value if `with_alpha` says so.
#[cfg(feature = "webp")]
pub(super) fn webp(bytes: &[u8], header: &Header, part: Rect, with_alpha: bool, out: &mut Image) -> Result<()> {
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
    let outside = [0, 0, 0, if with_alpha { 0 } else { 255 }];
    match (decoder.has_alpha(), with_alpha) {
        (true, true) => place(&samples, &frame, outside, out, |pixel| *pixel),
        (true, false) => place(&samples, &frame, outside, out, |&[r, g, b, _]| [r, g, b, 255]),
        (false, _) => place(&samples, &frame, outside, out, |&[r, g, b]| [r, g, b, 255]),
    }
    Ok(())
}

/// Copies `out`'s part of a canvas that is `outside` around the image in `samples`, which have `N` bytes a pixel.
#[cfg(feature = "webp")]
fn place<const N: usize>(
    samples: &[u8],
    frame: &Frame<'_>,
    outside: Pixel,
    out: &mut Image,
    pixel: impl Fn(&[u8; N]) -> Pixel,
) {
    let (part, [left, top], (width, height)) = (out.part(), frame.at, frame.size);
    let (pixels, _) = samples.as_chunks::<N>();
    let (first, last) = (part.x.max(left), part.right().min(left + width));
    for y in 0..part.height {
        let row = out.row_mut(y);
        let from = (part.y + y).checked_sub(top).filter(|from| *from < height && first < last);
        if from.is_none() || last - first < part.width {
            row.fill(outside);
        }
        if let Some(from) = from {
            let start = from as usize * width as usize + (first - left) as usize;
            let from = &pixels[start..][..(last - first) as usize];
            row[(first - part.x) as usize..].iter_mut().zip(from).for_each(|(to, from)| *to = pixel(from));
        }
    }
}

#[cfg(not(feature = "webp"))]
pub(super) fn webp(_: &[u8], _: &Header, _: Rect, _: bool, _: &mut Image) -> Result<()> {
    Err(Error::Unsupported {
        feature: "decoding WebP in this build".to_owned(),
        remedy: "build warpfeed with its feature `webp`".to_owned(),
    })
}

/// Zeros for a decoder.
pub(super) fn buffer(what: &'static str, len_bytes: Option<usize>) -> Result<Vec<u8>> {
    memory::zeros(len_bytes.unwrap_or(usize::MAX), what, memory::FEWER_IMAGES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoder, probe};
    use crate::raster::Size;

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
    fn interlaced_rows_lie_where_the_whole_image_has_them() {
        // The encoder makes no Adam7, so its passes are put together here.
        for (width, height) in [(1_u32, 1_u32), (2, 3), (5, 3), (8, 8), (9, 17), (33, 2)] {
            let sample = |x: u32, y: u32| [(x * 7 + y) as u8, 1, (y * 5) as u8, 2, (x ^ y) as u8, 3];
            let mut stored = Vec::new();
            for [x0, y0, dx, dy] in [
                [0_u32, 0_u32, 8_u32, 8_u32],
                [4, 0, 8, 8],
                [0, 4, 4, 8],
                [2, 0, 4, 4],
                [0, 2, 2, 4],
                [1, 0, 2, 2],
                [0, 1, 1, 2],
            ] {
                for y in (y0..height).step_by(dy as usize).filter(|_| x0 < width) {
                    stored.push(0);
                    (x0..width).step_by(dx as usize).for_each(|x| stored.extend(sample(x, y)));
                }
            }
            let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
            let mut chunk = |name: &[u8; 4], data: &[u8]| {
                bytes.extend((data.len() as u32).to_be_bytes());
                let start = bytes.len();
                bytes.extend_from_slice(name);
                bytes.extend_from_slice(data);
                let crc = bytes[start..].iter().fold(u32::MAX, |crc, byte| {
                    (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
                });
                bytes.extend((!crc).to_be_bytes());
            };
            let (sides, kind) = ([width.to_be_bytes(), height.to_be_bytes()].concat(), [16, 2, 0, 0, 1]);
            chunk(b"IHDR", &[&sides[..], &kind].concat());
            chunk(b"IDAT", &miniz_oxide::deflate::compress_to_vec_zlib(&stored, 1));
            chunk(b"IEND", &[]);
            let pixel = |x, y| [sample(x, y)[0], sample(x, y)[2], sample(x, y)[4]];
            for part in [
                Rect::full(Size::new(width, height)),
                Rect { x: width / 2, y: height / 3, width: width - width / 2, height: height - height / 3 },
                Rect { x: width - 1, y: height - 1, width: 1, height: 1 },
            ] {
                let rows = (part.y..part.bottom()).flat_map(|y| (part.x..part.right()).map(move |x| (x, y)));
                let want: Vec<[u8; 3]> = rows.map(|(x, y)| pixel(x, y)).collect();
                assert_eq!(decoded(&bytes, part), want.as_flattened(), "{part:?} of {width} x {height}");
            }
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
