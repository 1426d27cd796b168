//! PNG images as they are stored: 1 to 4 channels of 8 or 16 bits.

use super::lossless::{PngRows, RowPlace, buffer, open_png};
use super::stored::{ByteOrder, Places, Stored, StoredPixels};
use super::{Header, probe};
use crate::error::{Error, Result};
use crate::planes::{PixelKind, Planes};
use crate::raster::Rect;
use png::{ColorType, Transformations};

/// Decodes the channels `bands` of `part`.
///
/// Gray values of 1, 2 and 4 bits are those that are stored, and not scaled. A palette gives its colors. Transparent
/// colors (tRNS) are no channel.
pub(super) fn decode(bytes: &[u8], header: &Header, part: Rect, bands: &[u16], out: &mut Planes) -> Result<()> {
    let failed = |error: png::DecodingError| Error::decode("PNG", error.to_string());
    let mut reader = open_png(bytes, header, Transformations::IDENTITY)?;
    let info = reader.info();
    let (color, bits) = (info.color_type, info.bit_depth as u8);
    let kind = probe::png_kind(color as u8, bits);
    if kind != header.kind {
        return Err(Error::decode("PNG", "the pixel format is not the one in the header"));
    }
    let palette = (color == ColorType::Indexed).then(|| Palette::new(info.palette.as_deref().unwrap_or_default()));
    let samples = if palette.is_some() { 1 } else { usize::from(kind.channels) };
    let mut rows = PngRows::of(info.interlaced, header.size);
    let mut wide = buffer("a PNG decoder", Some(header.size.width as usize * usize::from(kind.channels)))?;
    // Not even a row of a giant image may end the process.
    drop(buffer("a PNG decoder", reader.output_line_size(header.size.width))?);
    out.reset_part(PixelKind { channels: bands.len() as u16, ..kind }, header.size, part)?;
    while let Some(row) = reader.next_row().map_err(failed)? {
        let Some(place) = rows.next() else { break };
        let Some((first, places)) = in_part(&place, part) else { continue };
        let data = row.data();
        let (bytes, stored) = match (&palette, bits) {
            (None, 16) => (data, Stored::U16),
            (None, 8) => (data, Stored::U8),
            (palette, _) => {
                // Only images with one sample a pixel have fewer than 8 bits.
                let pixels = place.count(header.size.width);
                let indices = (0..pixels).map(|i| {
                    let at = i * usize::from(bits);
                    let byte = data.get(at / 8).copied().unwrap_or(0);
                    byte >> (8 - usize::from(bits) - at % 8) & (0xFF >> (8 - bits))
                });
                match palette {
                    None => wide.iter_mut().zip(indices).for_each(|(to, index)| *to = index),
                    Some(Palette(colors)) => {
                        let to = wide.as_chunks_mut::<3>().0.iter_mut();
                        to.zip(indices).for_each(|(to, index)| *to = colors[usize::from(index)]);
                    }
                }
                (&wide[..], Stored::U8)
            }
        };
        let channels = if palette.is_some() { 3 } else { samples };
        let bytes = bytes.get(first * channels * stored.size_bytes()..).unwrap_or_default();
        let pixels = StoredPixels { bytes, stored, order: ByteOrder::Big, channels };
        for (to, band) in bands.iter().enumerate() {
            pixels.write(usize::from(*band), out, to, places);
        }
    }
    Ok(())
}

/// The first sample of a row that lies in `part`, and the places of the samples in the part's plane.
fn in_part(row: &RowPlace, part: Rect) -> Option<(usize, Places)> {
    let y = row.y.checked_sub(part.y).filter(|y| *y < part.height)?;
    let first = part.x.saturating_sub(row.x).div_ceil(row.step);
    let x = (row.x + first * row.step).checked_sub(part.x).filter(|x| *x < part.width)?;
    let start = y as usize * part.width as usize + x as usize;
    let count = (part.width - x).div_ceil(row.step) as usize;
    Some((first as usize, Places { start, count, step: row.step as usize }))
}

/// A palette of 256 colors. Those that the file lacks are black, as in Pillow.
struct Palette([[u8; 3]; 256]);

impl Palette {
    fn new(colors: &[u8]) -> Self {
        let mut all = [[0; 3]; 256];
        all.iter_mut().zip(colors.as_chunks::<3>().0).for_each(|(to, color)| *to = *color);
        Self(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{DecodeOptions, Decoder, probe};
    use crate::planes::Element;
    use crate::raster::Size;
    use png::BitDepth;

    fn chunk(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
        let named = [name, data].concat();
        let crc = named.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
        });
        [&(data.len() as u32).to_be_bytes()[..], &named, &(!crc).to_be_bytes()].concat()
    }

    /// A PNG of these samples, whole or in the seven passes of Adam7.
    fn file(
        size: Size,
        color: ColorType,
        depth: BitDepth,
        interlaced: bool,
        sample: impl Fn(u32, u32, u32) -> u16,
    ) -> Vec<u8> {
        let (bits, channels) = (depth as usize, color.samples() as u32);
        let mut data = Vec::new();
        let rows = PngRows::of(interlaced, size);
        for row in rows {
            data.push(0);
            let mut bit = 0;
            for x in (row.x..size.width).step_by(row.step as usize) {
                for c in 0..channels {
                    let value = sample(x, row.y, c);
                    match bits {
                        16 => data.extend(value.to_be_bytes()),
                        _ => {
                            if bit % 8 == 0 {
                                data.push(0);
                            }
                            *data.last_mut().unwrap() |= (value as u8) << (8 - bits - bit % 8);
                            bit += bits;
                        }
                    }
                }
            }
        }
        let sides = [size.width.to_be_bytes(), size.height.to_be_bytes()].concat();
        let header = [&sides[..], &[bits as u8, color as u8, 0, 0, interlaced.into()]].concat();
        let palette: Vec<u8> = (0..30).map(|i| 5 * i).collect();
        let palette = if color == ColorType::Indexed { chunk(b"PLTE", &palette) } else { Vec::new() };
        // A transparent color is no channel.
        let transparent: &[u8] = match color {
            ColorType::Indexed => &[0, 100, 200],
            ColorType::Grayscale => &[0, 1],
            ColorType::Rgb => &[0, 1, 0, 2, 0, 3],
            _ => &[],
        };
        let transparent = if transparent.is_empty() { Vec::new() } else { chunk(b"tRNS", transparent) };
        [
            &b"\x89PNG\r\n\x1a\n"[..],
            &chunk(b"IHDR", &header),
            &palette,
            &transparent,
            &chunk(b"IDAT", &miniz_oxide::deflate::compress_to_vec_zlib(&data, 1)),
            &chunk(b"IEND", &[]),
        ]
        .concat()
    }

    #[test]
    fn all_kinds_give_the_stored_values() {
        let mut decoder = Decoder::new().unwrap();
        for (color, depth) in [
            (ColorType::Grayscale, BitDepth::One),
            (ColorType::Grayscale, BitDepth::Two),
            (ColorType::Grayscale, BitDepth::Four),
            (ColorType::Grayscale, BitDepth::Eight),
            (ColorType::Grayscale, BitDepth::Sixteen),
            (ColorType::GrayscaleAlpha, BitDepth::Eight),
            (ColorType::GrayscaleAlpha, BitDepth::Sixteen),
            (ColorType::Rgb, BitDepth::Eight),
            (ColorType::Rgb, BitDepth::Sixteen),
            (ColorType::Rgba, BitDepth::Eight),
            (ColorType::Rgba, BitDepth::Sixteen),
            (ColorType::Indexed, BitDepth::One),
            (ColorType::Indexed, BitDepth::Two),
            (ColorType::Indexed, BitDepth::Four),
            (ColorType::Indexed, BitDepth::Eight),
        ] {
            for (size, interlaced) in [(13, 9), (1, 1), (8, 3)]
                .into_iter()
                .flat_map(|(w, h)| [(Size::new(w, h), false), (Size::new(w, h), true)])
            {
                let below = if color == ColorType::Indexed { 12.min(1 << depth as u32) } else { 1 << depth as u32 };
                let sample = |x: u32, y: u32, c: u32| ((x * 7919 + y * 104_729 + c * 40_503) % below) as u16;
                let bytes = file(size, color, depth, interlaced, sample);
                let header = probe(&bytes).unwrap();
                let element = if depth == BitDepth::Sixteen { Element::U16 } else { Element::U8 };
                let is_palette = color == ColorType::Indexed;
                let channels = if is_palette { 3 } else { color.samples() as u16 };
                assert_eq!(header.kind, PixelKind { element, channels });
                // Entries that the palette lacks are black.
                let value = |x, y, c: u16| match is_palette {
                    true => Some(5 * (3 * sample(x, y, 0) + c)).filter(|value| *value < 150).unwrap_or(0),
                    false => sample(x, y, c.into()),
                };
                let last = channels - 1;
                for (part, bands) in [
                    (Rect::full(size), None),
                    (Rect { x: size.width / 2, y: size.height / 3, width: size.width.div_ceil(2), height: 1 }, None),
                    (Rect { x: size.width - 1, y: 0, width: 1, height: size.height }, Some(vec![last, 0])),
                ] {
                    let mut planes = Planes::default();
                    let options = DecodeOptions::default();
                    decoder.decode_planes(&bytes, &header, part, bands.as_deref(), options, &mut planes).unwrap();
                    let bands = bands.unwrap_or((0..channels).collect());
                    assert_eq!(usize::from(planes.kind().channels), bands.len());
                    let want: Vec<u16> = bands
                        .iter()
                        .flat_map(|c| (part.y..part.bottom()).map(move |y| (c, y)))
                        .flat_map(|(c, y)| (part.x..part.right()).map(move |x| value(x, y, *c)))
                        .collect();
                    let got: Vec<u16> = match element {
                        Element::U16 => planes.values::<u16>().to_vec(),
                        _ => planes.values::<u8>().iter().map(|value| u16::from(*value)).collect(),
                    };
                    assert_eq!(got, want, "{color:?} {depth:?} {size} {interlaced} {part:?}");
                }
            }
        }
    }
}
