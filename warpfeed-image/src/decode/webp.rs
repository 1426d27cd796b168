//! The container of a WebP, by the rules of libwebp's demuxer.

use super::Header;
use super::probe::{le24, le32};
use crate::error::{Error, Result};
use std::borrow::Cow;

/// The flag of an animation in the header of an extended file.
const ANIMATION_FLAG: u8 = 2;

/// The first image of a WebP. What of the canvas it does not cover is black.
pub(super) struct Frame<'a> {
    /// A file with this image alone.
    pub(super) file: Cow<'a, [u8]>,
    /// Columns and rows before it on the canvas.
    pub(super) at: [u32; 2],
    /// Width and height.
    pub(super) size: (u32, u32),
}

/// A chunk's name and content, the chunk itself, and what follows it.
struct Chunk<'a> {
    name: &'a [u8],
    data: &'a [u8],
    whole: &'a [u8],
    rest: &'a [u8],
}

fn bad(message: &str) -> Error {
    Error::decode("WebP", message)
}

/// The first chunk of some bytes; `None` at their end.
fn chunk(bytes: &[u8]) -> Result<Option<Chunk<'_>>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let truncated = || bad("truncated: the data end inside a chunk");
    let len = le32(bytes, 4).ok_or_else(truncated)? as usize;
    // A byte of padding follows chunks of odd length.
    let end = len.checked_add(8 + (len & 1)).ok_or_else(truncated)?;
    let whole = bytes.get(..end).ok_or_else(truncated)?;
    Ok(Some(Chunk { name: &whole[..4], data: &whole[8..8 + len], whole, rest: &bytes[end..] }))
}

/// The first image of a file.
///
/// # Errors
/// [`Error::Decode`] if the file is not whole, or has no image.
pub(super) fn first_frame<'a>(bytes: &'a [u8], header: &Header) -> Result<Frame<'a>> {
    let (width, height) = (header.size.width, header.size.height);
    let len = le32(bytes, 4).unwrap_or(0) as usize;
    let Some(bytes) = bytes.get(..len.saturating_add(8)).filter(|bytes| bytes.len() > 12) else {
        return Err(bad("truncated: the file is shorter than its header says"));
    };
    let Some(first) = chunk(&bytes[12..])?.filter(|first| first.name == b"VP8X") else {
        return Ok(Frame { file: bytes.into(), at: [0; 2], size: (width, height) });
    };
    let is_animated = first.data.first().is_some_and(|flags| flags & ANIMATION_FLAG != 0);
    let (mut rest, mut found, mut has_parameters) = (first.rest, None, false);
    while let Some(next) = chunk(rest)? {
        match next.name {
            b"ANIM" => has_parameters = true,
            b"ANMF" if !has_parameters => return Err(bad("an animation without parameters")),
            b"ANMF" if is_animated && found.is_none() => {
                let numbers = [0, 3, 6, 9].map(|at| le24(next.data, at));
                let [Some(x), Some(y), Some(width), Some(height)] = numbers else {
                    return Err(bad("the header of a frame is too short"));
                };
                let image = next.data.get(16..).unwrap_or_default();
                found = Some(Frame { file: alone(image)?, at: [2 * x, 2 * y], size: (width + 1, height + 1) });
            }
            b"ALPH" | b"VP8 " | b"VP8L" if is_animated || has_parameters => {
                return Err(bad("an animation with an image outside of its frames"));
            }
            b"ALPH" | b"VP8 " | b"VP8L" if found.is_none() => {
                found = Some(Frame { file: alone(rest)?, at: [0; 2], size: (width, height) });
            }
            _ => {}
        }
        rest = next.rest;
    }
    let frame = found.ok_or_else(|| bad("there is no image"))?;
    let is_inside = |at: u32, side: u32, canvas: u32| at.checked_add(side).is_some_and(|end| end <= canvas);
    if is_inside(frame.at[0], frame.size.0, width) && is_inside(frame.at[1], frame.size.1, height) {
        return Ok(frame);
    }
    Err(bad("the first frame reaches outside of the canvas"))
}

/// A file with the image that chunks begin with: one without alpha, or a lossy one after its alpha.
fn alone(chunks: &[u8]) -> Result<Cow<'_, [u8]>> {
    let missing = || bad("a frame without an image");
    let first = chunk(chunks)?.ok_or_else(missing)?;
    let (alpha, image) = match first.name {
        b"ALPH" => (Some(first.whole), chunk(first.rest)?.filter(|next| next.name == b"VP8 ").ok_or_else(missing)?),
        b"VP8 " | b"VP8L" => (None, first),
        _ => return Err(missing()),
    };
    let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
    if let Some(alpha) = alpha {
        let sides = le32(image.data, 6).ok_or_else(|| bad("the lossy header is damaged"))?;
        let less_1 = |side: u32| (side & 0x3FFF).saturating_sub(1).to_le_bytes();
        file.extend(*b"VP8X\x0A\0\0\0\x10\0\0\0");
        file.extend(&less_1(sides)[..3]);
        file.extend(&less_1(sides >> 16)[..3]);
        file.extend(alpha);
    }
    file.extend(image.whole);
    let len = (file.len() - 8) as u32;
    file[4..8].copy_from_slice(&len.to_le_bytes());
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{DecodeOptions, Decoder, probe};
    use crate::planes::Planes;
    use crate::raster::{Image, Rect};

    fn riff(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
        let padding = if data.len() % 2 == 1 { &[0][..] } else { &[] };
        [name, &(data.len() as u32).to_le_bytes()[..], data, padding].concat()
    }

    fn file(flags: u8, canvas: [u32; 2], chunks: &[Vec<u8>]) -> Vec<u8> {
        let [width, height] = canvas.map(|side| (side - 1).to_le_bytes());
        let header = riff(b"VP8X", &[&[flags, 0, 0, 0], &width[..3], &height[..3]].concat());
        let data = [b"WEBP".to_vec(), header, chunks.concat()].concat();
        riff(b"RIFF", &data)
    }

    /// The colors of an image of 5 x 3 pixels with alpha, and its chunk.
    fn image(alpha: u8) -> (Vec<[u8; 3]>, Vec<u8>) {
        let rgba: Vec<[u8; 4]> = (0..15).map(|i| [17 * i, 200 - i, 9 + i, alpha]).collect();
        let mut file = Vec::new();
        let encoder = image_webp::WebPEncoder::new(&mut file);
        encoder.encode(rgba.as_flattened(), 5, 3, image_webp::ColorType::Rgba8).unwrap();
        (rgba.iter().map(|&[r, g, b, _]| [r, g, b]).collect(), file.split_off(12))
    }

    fn frame(at: [u32; 2], flags: u8, image: &[u8]) -> Vec<u8> {
        let numbers = [at[0] / 2, at[1] / 2, 4, 2, 100].map(u32::to_le_bytes);
        riff(
            b"ANMF",
            &[numbers.map(|number| [number[0], number[1], number[2]]).as_flattened(), &[flags], image].concat(),
        )
    }

    fn decoded(bytes: &[u8]) -> Result<Vec<[u8; 3]>> {
        let (header, mut image) = (probe(bytes)?, Image::default());
        Decoder::new()?.decode(bytes, &header, Rect::full(header.size), false, &mut image)?;
        // A part is cut out of the same pixels.
        let (size, mut cut) = (header.size, Image::default());
        let part = Rect { x: size.width / 2, y: 1, width: size.width.div_ceil(2), height: size.height - 1 };
        Decoder::new()?.decode(bytes, &header, part, false, &mut cut)?;
        let (whole, cut) = (image.to_rgb().as_chunks().0.to_vec(), cut.to_rgb().as_chunks().0.to_vec());
        for (y, row) in cut.chunks_exact(part.width as usize).enumerate() {
            let start = (y + 1) * size.width as usize + part.x as usize;
            assert_eq!(row, &whole[start..start + row.len()]);
        }
        Ok(whole)
    }

    /// As `Image.open(F).convert("RGB")` of Pillow 13, which tests/formats/images.py compares with.
    #[test]
    fn the_first_frame_is_neither_blended_nor_disposed_of() {
        let parameters = riff(b"ANIM", &[9, 8, 7, 6, 0, 0]);
        for alpha in [0, 128, 255] {
            let (colors, chunk) = image(alpha);
            for flags in 0..4 {
                let whole =
                    file(0x12, [5, 3], &[parameters.clone(), frame([0, 0], flags, &chunk), frame([0, 0], 0, &chunk)]);
                assert_eq!(decoded(&whole).unwrap(), colors, "alpha {alpha}, flags {flags}");
            }
            let inside = file(0x12, [9, 6], &[parameters.clone(), frame([2, 2], 0, &chunk)]);
            let want = (0..54).map(|i| (i % 9, i / 9)).map(|(x, y)| match (x, y) {
                (2..7, 2..5) => colors[(y - 2) * 5 + x - 2],
                _ => [0; 3],
            });
            assert!(want.eq(decoded(&inside).unwrap()), "alpha {alpha}");
        }
    }

    #[test]
    fn alpha_is_the_fourth_channel_and_0_around_the_frame() {
        let (colors, chunk) = image(128);
        let parameters = riff(b"ANIM", &[0; 6]);
        let inside = file(0x12, [9, 6], &[parameters, frame([2, 2], 0, &chunk)]);
        // Without the flag the file has no alpha, whatever its image has.
        for (flags, bytes) in [(0x10, inside), (0, file(0, [5, 3], &[chunk]))] {
            let (header, mut planes) = (probe(&bytes).unwrap(), Planes::default());
            let (size, part) = (header.size, Rect { x: 1, y: 1, width: header.size.width - 1, height: 2 });
            let mut decoder = Decoder::new().unwrap();
            decoder.decode_planes(&bytes, &header, part, None, DecodeOptions::default(), &mut planes).unwrap();
            let channels = if flags == 0 { 3 } else { 4 };
            assert_eq!((planes.kind().channels, planes.whole(), planes.part()), (channels, size, part));
            (0..usize::from(channels)).for_each(|channel| {
                let left = if flags == 0 { 0 } else { 2 };
                let want = (0..2 * part.width as usize).map(|i| {
                    let (x, y) = (1 + i % part.width as usize, 1 + i / part.width as usize);
                    match (x.checked_sub(left), y.checked_sub(left)) {
                        (Some(x @ 0..5), Some(y @ 0..3)) if channel < 3 => colors[5 * y + x][channel],
                        (Some(0..5), Some(0..3)) => 128,
                        _ => 0,
                    }
                });
                assert!(want.eq(planes.plane::<u8>(channel).iter().copied()), "channel {channel}, flags {flags}");
            });
        }
    }

    #[test]
    fn a_file_that_is_not_whole_is_an_error_and_flags_without_chunks_are_none() {
        let (colors, chunk) = image(255);
        let parameters = riff(b"ANIM", &[0; 6]);
        let animation = file(2, [5, 3], &[parameters.clone(), frame([0, 0], 0, &chunk), frame([0, 0], 0, &chunk)]);
        for end in 0..animation.len() {
            assert!(decoded(&animation[..end]).is_err(), "the first {end} bytes");
        }
        // EXIF data and XMP are announced, and are not there.
        assert_eq!(decoded(&file(0x1C, [5, 3], std::slice::from_ref(&chunk))).unwrap(), colors);
        for (wrong, message) in [
            (file(2, [5, 3], &[frame([0, 0], 0, &chunk)]), "without parameters"),
            (file(2, [5, 3], &[parameters.clone(), chunk.clone()]), "outside of its frames"),
            (file(2, [6, 5], &[parameters.clone(), frame([2, 0], 0, &chunk)]), "outside of the canvas"),
            (file(2, [5, 3], &[parameters.clone(), frame([0, 0], 0, &riff(b"JUNK", &[]))]), "without an image"),
            (file(0, [5, 3], &[parameters, frame([0, 0], 0, &chunk)]), "no image"),
            (file(0, [7, 3], &[chunk]), "size"),
        ] {
            let error = decoded(&wrong).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
