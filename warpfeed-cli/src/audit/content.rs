//! Properties of a file by its bytes: format, transparency, animation, a JPEG's quality.

use warpfeed::image::{Format, Header};

/// libjpeg's luma table; a file's table is this one scaled by the quality (ITU-T T.81, table K.1).
const LUMA_TABLE: [u32; 64] = [
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51,
    87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121, 120, 101,
    72, 92, 95, 98, 112, 100, 103, 99,
];

/// The format that the first bytes of a file tell; `None` if they are no known format's.
pub(super) fn format_of(bytes: &[u8]) -> Option<&'static str> {
    let text = bytes.trim_ascii_start();
    let begins = |start: &str| text.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start.as_bytes()));
    Some(match bytes {
        [0xFF, 0xD8, 0xFF, ..] => Format::Jpeg.name(),
        [0x89, b'P', b'N', b'G', ..] => Format::Png.name(),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Format::WebP.name(),
        [b'P', b'5' | b'6', b' ' | b'\n' | b'\r' | b'\t' | b'#', ..] => Format::Pnm.name(),
        [b'G', b'I', b'F', b'8', ..] => "GIF",
        [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => "BMP",
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => "TIFF",
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', ..] => "AVIF",
        [_, _, _, _, b'f', b't', b'y', b'p', b'h' | b'm', ..] => "HEIF",
        [b'%', b'P', b'D', b'F', ..] => "PDF",
        _ if begins("<!doctype html") || begins("<html") => "HTML",
        _ if begins("<?xml") || begins("<svg") => "XML",
        _ => return None,
    })
}

/// The format that the ending of a file's name says; `None` if it is no image's.
pub(super) fn named_format(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    Some(match ending.to_ascii_lowercase().as_str() {
        "jpe" | "jfif" => Format::Jpeg.name(),
        "apng" => Format::Png.name(),
        "pnm" => Format::Pnm.name(),
        "gif" => "GIF",
        "bmp" => "BMP",
        "tif" | "tiff" => "TIFF",
        "avif" => "AVIF",
        "heic" | "heif" => "HEIF",
        other => Format::by_extension(other.as_bytes())?.name(),
    })
}

/// Whether an image has transparency, and whether it is an animation.
pub(super) fn alpha_and_animation(bytes: &[u8], header: &Header) -> (bool, bool) {
    match header.format {
        Format::Png => {
            let (mut alpha, mut animated) = (matches!(header.components, 2 | 4), false);
            // Both chunks come before the pixels.
            for name in chunks(bytes).take_while(|name| name != b"IDAT") {
                alpha |= &name == b"tRNS";
                animated |= &name == b"acTL";
            }
            (alpha, animated)
        }
        Format::WebP => {
            let animated = bytes.get(12..16) == Some(b"VP8X") && bytes.get(20).is_some_and(|flags| flags & 2 != 0);
            (header.components == 4, animated)
        }
        _ => (false, false),
    }
}

/// The names of a PNG's chunks, as far as they go.
fn chunks(bytes: &[u8]) -> impl Iterator<Item = [u8; 4]> {
    let mut at = 8_usize;
    std::iter::from_fn(move || {
        let len = u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
        let name = *bytes.get(at + 4..)?.first_chunk()?;
        // Length, name and checksum take 12 bytes.
        at = at.checked_add(12)?.checked_add(len as usize)?;
        Some(name)
    })
}

/// Whether a file that does not decode lacks its end.
pub(super) fn lacks_end(bytes: &[u8], header: &Header) -> bool {
    match header.format {
        Format::Jpeg => !warpfeed_image::decode::has_end(bytes, header),
        Format::Png => chunks(bytes).last().is_none_or(|name| &name != b"IEND"),
        Format::WebP => {
            let len = bytes.get(4..8).and_then(|len| Some(u32::from_le_bytes(*len.first_chunk()?)));
            len.is_some_and(|len| u64::from(len) + 8 > bytes.len() as u64)
        }
        Format::Pnm => {
            let wanted = header.size.area_px() * u64::from(header.components);
            ((bytes.len() - header.scan_offset_bytes.min(bytes.len())) as u64) < wanted
        }
        _ => false,
    }
}

/// The chroma subsampling of a JPEG in the usual words; `None` if it has other factors.
pub(super) fn sampling(header: &Header) -> Option<&'static str> {
    let [luma, blue, red, _] = header.sampling;
    if header.components == 1 {
        return Some("gray");
    }
    match (luma, blue, red) {
        ((1, 1), (1, 1), (1, 1)) => Some("4:4:4"),
        ((2, 1), (1, 1), (1, 1)) => Some("4:2:2"),
        ((2, 2), (1, 1), (1, 1)) => Some("4:2:0"),
        ((1, 2), (1, 1), (1, 1)) => Some("4:4:0"),
        ((4, 1), (1, 1), (1, 1)) => Some("4:1:1"),
        _ => None,
    }
}

/// The quality of a JPEG in libjpeg's scale: the one at which the sum of libjpeg's luma table is nearest to the sum of
/// the file's first table. `None` if the file has no table before its data.
pub(super) fn quality(bytes: &[u8]) -> Option<u8> {
    let sum = first_table_sum(bytes)?;
    // Of two that are as near, the higher one: tables of high qualities are the more frequent ones.
    (1..=100_u8).rev().min_by_key(|&quality| table_sum(quality).abs_diff(sum))
}

/// The sum of libjpeg's luma table at a quality.
fn table_sum(quality: u8) -> u32 {
    let quality = u32::from(quality);
    let percent = if quality < 50 { 5_000 / quality.max(1) } else { 200 - 2 * quality };
    LUMA_TABLE.iter().map(|value| ((value * percent + 50) / 100).clamp(1, 255)).sum()
}

/// The sum of the first quantization table of a JPEG.
fn first_table_sum(bytes: &[u8]) -> Option<u32> {
    let mut at = 2;
    loop {
        let &[0xFF, marker, high, low] = bytes.get(at..)?.first_chunk()? else { return None };
        let segment = bytes.get(at + 4..at + 2 + usize::from(u16::from_be_bytes([high, low])))?;
        match marker {
            0xDB => {
                let (&first, values) = segment.split_first()?;
                return if first >> 4 == 0 {
                    Some(values.get(..64)?.iter().map(|&value| u32::from(value)).sum())
                } else {
                    let (pairs, _) = values.get(..128)?.as_chunks::<2>();
                    Some(pairs.iter().map(|&pair| u32::from(u16::from_be_bytes(pair))).sum())
                };
            }
            0xDA | 0xD9 => return None,
            _ => at += 4 + segment.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpfeed::image::probe;
    use warpfeed::image::{ChromaSampling, JpegOptions, encode_jpeg};
    use warpfeed::image::{Image, Size};

    #[test]
    fn the_quality_is_the_encoders() {
        let image = Image::new(Size::new(8, 8));
        for quality in 1..=100 {
            let jpeg = encode_jpeg(&image, &JpegOptions { quality, ..JpegOptions::default() }).unwrap();
            assert_eq!(super::quality(&jpeg), Some(quality));
        }
        let jpeg = encode_jpeg(&image, &JpegOptions::default()).unwrap();
        assert!((0..jpeg.len()).all(|end| matches!(super::quality(&jpeg[..end]), None | Some(90))));
        assert_eq!(super::quality(b"\xff\xd8\xff\xd9"), None);
    }

    #[test]
    fn samplings_have_their_usual_names() {
        let image = Image::new(Size::new(8, 8));
        for (sampling, name) in [
            (ChromaSampling::S444, "4:4:4"),
            (ChromaSampling::S422, "4:2:2"),
            (ChromaSampling::S420, "4:2:0"),
            (ChromaSampling::S440, "4:4:0"),
            (ChromaSampling::S411, "4:1:1"),
        ] {
            let jpeg = encode_jpeg(&image, &JpegOptions { sampling, ..JpegOptions::default() }).unwrap();
            assert_eq!(super::sampling(&probe(&jpeg).unwrap()), Some(name));
        }
    }

    #[test]
    fn transparency_and_animation_are_told_by_headers() {
        let folder = std::path::Path::new("../tests/reference/images");
        let of = |bytes: &[u8]| alpha_and_animation(bytes, &probe(bytes).unwrap());
        for (name, alpha) in [
            ("rgba.png", true),
            ("grey-alpha.png", true),
            ("palette-transparent.png", true),
            ("alpha.webp", true),
            ("rgb.png", false),
            ("palette.png", false),
            ("lossy.webp", false),
            ("cmyk.jpg", false),
        ] {
            assert_eq!(of(&std::fs::read(folder.join(name)).unwrap()), (alpha, false), "{name}");
        }
        // An animation says so in a chunk after the header's, which ends at byte 33.
        let mut png = std::fs::read(folder.join("rgb.png")).unwrap();
        png.splice(33..33, *b"\0\0\0\x08acTL\0\0\0\x02\0\0\0\0....");
        assert_eq!(of(&png), (false, true));
        let mut webp = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0".to_vec();
        webp.extend([2, 0, 0, 0, 9, 0, 0, 9, 0, 0]);
        assert_eq!(of(&webp), (false, true));
    }

    #[test]
    fn formats_are_told_by_bytes_and_by_names() {
        for (bytes, name, format) in [
            (&b"\xff\xd8\xff\xe0"[..], "a/b.JPG", "JPEG"),
            (b"\x89PNG\r\n\x1a\n", "x.png", "PNG"),
            (b"RIFF\0\0\0\0WEBPVP8 ", "x.y.webp", "WebP"),
            (b"P6 1 1 255 abc", "x.ppm", "PNM"),
            (b"GIF89a", "x.gif", "GIF"),
            (b"II*\0", "x.tif", "TIFF"),
            (b"\0\0\0\x1cftypavif", "x.avif", "AVIF"),
        ] {
            assert_eq!((format_of(bytes), named_format(name)), (Some(format), Some(format)));
        }
        assert_eq!(format_of(b"\n <!DOCTYPE HTML><p>404"), Some("HTML"));
        assert_eq!((format_of(b"text"), format_of(b"")), (None, None));
        assert_eq!(named_format("shard.rec at byte 17"), None);
        assert_eq!(named_format("jpg"), None);
    }
}
