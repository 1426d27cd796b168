//! Headers: size, orientation and layout of an image, without decoding it.

use super::{Format, Header, pnm};
use crate::error::{Error, Result};
use crate::raster::Size;

/// The marker of an index of rows, and its signature (`restarts.rs`).
pub(super) const INDEX_MARKER: u8 = 0xE9;
pub(super) const INDEX_SIGNATURE: &[u8] = b"warpfeed\0\0";
/// The signature of entry points in an image (`packed_points.rs`), which have the same marker.
pub(super) const POINTS_SIGNATURE: &[u8] = b"warpfeed\0\x03";

/// Reads an image's header: its format, size, orientation and layout. Allocates nothing.
///
/// # Errors
/// [`Error::Decode`] if the bytes are no JPEG, PNG, WebP or PNM image, or end inside the header.
///
/// # Examples
/// ```
/// use warpfeed_image::{Image, JpegOptions, Size, encode_jpeg, probe};
///
/// let bytes = encode_jpeg(&Image::new(Size::new(17, 5)), &JpegOptions::default())?;
/// let header = probe(&bytes)?;
/// assert_eq!(header.size, Size::new(17, 5));
/// assert_eq!(header.orientation, 1);
/// assert!(probe(b"no image").is_err());
/// # Ok::<(), warpfeed_image::Error>(())
/// ```
pub fn probe(bytes: &[u8]) -> Result<Header> {
    if bytes.starts_with(&[0xFF, 0xD8]) {
        jpeg(bytes).ok_or_else(|| incomplete("JPEG"))?
    } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        png(bytes).ok_or_else(|| incomplete("PNG"))?
    } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        webp(bytes).ok_or_else(|| incomplete("WebP"))?
    } else if bytes.starts_with(b"P5") || bytes.starts_with(b"P6") {
        pnm(bytes).ok_or_else(|| incomplete("PNM"))?
    } else if bytes.is_empty() {
        Err(Error::decode("image", "there are no bytes"))
    } else {
        let start = &bytes[..bytes.len().min(4)];
        Err(Error::decode("image", format!("no JPEG, PNG, WebP or PNM: the bytes start with {start:02x?}")))
    }
}

fn incomplete(format: &'static str) -> Error {
    Error::decode(format, "truncated: the data end inside the header")
}

pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn le24(bytes: &[u8], at: usize) -> Option<u32> {
    let b = bytes.get(at..at + 3)?;
    Some(u32::from(b[0]) | u32::from(b[1]) << 8 | u32::from(b[2]) << 16)
}

/// The orientation in a TIFF structure; 1 if it is missing or absurd.
fn orientation(tiff: &[u8]) -> u8 {
    let tiff = tiff.strip_prefix(b"Exif\0\0").unwrap_or(tiff);
    match orientation_tag(tiff) {
        Some(value @ 1..=8) => value as u8,
        _ => 1,
    }
}

/// The value of the orientation tag (0x0112, one short integer) in the first directory of a TIFF structure.
fn orientation_tag(tiff: &[u8]) -> Option<u16> {
    let little = match tiff.first_chunk()? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |bytes: &[u8], at| be16(bytes, at).map(|value| if little { value.swap_bytes() } else { value });
    let long = |bytes: &[u8], at| be32(bytes, at).map(|value| if little { value.swap_bytes() } else { value });
    let directory = tiff.get(long(tiff, 4)? as usize..)?;
    let count = short(directory, 0)?;
    let (entries, _) = directory[2..].as_chunks::<12>();
    let is_orientation = |entry: &&[u8; 12]| {
        short(*entry, 0) == Some(0x112) && short(*entry, 2) == Some(3) && long(*entry, 4) == Some(1)
    };
    short(entries.iter().take(count.into()).find(is_orientation)?, 8)
}

fn header(format: Format, width: u32, height: u32) -> Header {
    Header {
        format,
        size: Size::new(width, height),
        full_size: Size::new(width, height),
        scale_denom: 1,
        orientation: 1,
        progressive: false,
        components: 3,
        precision_bits: 8,
        sampling: [(0, 0); 4],
        restart_interval_mcus: 0,
        rgb: false,
        process: 0,
        scan_offset_bytes: 0,
        row_index: None,
        packed_points: None,
    }
}

/// The next marker, and the offset of the byte after it. As in libjpeg, bytes before a marker are skipped, and 0xFF may
/// be repeated.
pub(super) fn next_marker(bytes: &[u8], mut at: usize) -> Option<(u8, usize)> {
    while *bytes.get(at)? != 0xFF {
        at += 1;
    }
    while *bytes.get(at)? == 0xFF {
        at += 1;
    }
    Some((bytes[at], at + 1))
}

/// Reads the marker segments up to the first scan. `None` if the bytes end before it.
fn jpeg(bytes: &[u8]) -> Option<Result<Header>> {
    let bad = |message: &str| Some(Err(Error::decode("JPEG", message)));
    let mut found: Option<Header> = None;
    let mut exif = None;
    let mut restart_interval_mcus = 0;
    let (mut row_index, mut packed_points) = (None, None);
    // Whether there is a JFIF segment, and the transform in Adobe's segment. libjpeg uses them before the components'
    // names.
    let (mut jfif, mut adobe_transform) = (false, None);
    let mut at = 2;
    loop {
        let (marker, start) = next_marker(bytes, at)?;
        at = start;
        match marker {
            0x00 | 0x01 | 0xD0..=0xD7 => continue,
            0xD8 => return bad("a second start-of-image marker in the header"),
            0xD9 => return bad("the image ends before its data"),
            _ => {}
        }
        let len = usize::from(be16(bytes, at)?);
        if len < 2 {
            return bad("a header segment has an impossible length");
        }
        let next = at + len;
        let segment = bytes.get(at + 2..next)?;
        match marker {
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                if found.is_some() {
                    return bad("two frame headers");
                }
                let (Some(height), Some(width), true) = (be16(segment, 1), be16(segment, 3), segment.len() >= 6) else {
                    return bad("the frame header is too short");
                };
                if width == 0 || height == 0 {
                    return bad("the frame header says that the image is empty");
                }
                let mut this = header(Format::Jpeg, width.into(), height.into());
                this.precision_bits = segment[0];
                this.components = segment[5];
                this.process = marker;
                this.progressive = matches!(marker, 0xC2 | 0xC6 | 0xCA | 0xCE);
                if segment.len() != 6 + 3 * usize::from(this.components) {
                    return bad("the frame header's length does not fit its number of components");
                }
                this.rgb = segment[6..].chunks_exact(3).map(|component| component[0]).eq(*b"RGB");
                for (factors, component) in this.sampling.iter_mut().zip(segment[6..].chunks_exact(3)) {
                    *factors = (component[1] >> 4, component[1] & 15);
                }
                found = Some(this);
            }
            0xDA => {
                let Some(mut this) = found else {
                    return bad("a scan without a frame header");
                };
                this.orientation = exif.unwrap_or(1);
                this.restart_interval_mcus = restart_interval_mcus;
                this.rgb =
                    this.components == 3 && !jfif && adobe_transform.map_or(this.rgb, |transform| transform == 0);
                this.scan_offset_bytes = next;
                this.row_index = row_index;
                this.packed_points = packed_points;
                return Some(Ok(this));
            }
            0xDD => restart_interval_mcus = be16(segment, 0).unwrap_or(0),
            0xE0 if segment.starts_with(b"JFIF\0") => jfif = true,
            0xEE if segment.starts_with(b"Adobe") => adobe_transform = segment.get(11).copied(),
            INDEX_MARKER if segment.starts_with(INDEX_SIGNATURE) => {
                row_index = Some(next - segment.len() + INDEX_SIGNATURE.len()..next);
            }
            INDEX_MARKER if segment.starts_with(POINTS_SIGNATURE) => {
                packed_points = Some(next - segment.len() + POINTS_SIGNATURE.len()..next);
            }
            0xE1 if exif.is_none() && segment.starts_with(b"Exif\0\0") => exif = Some(orientation(segment)),
            _ => {}
        }
        at = next;
    }
}

/// Reads IHDR, then looks for an eXIf chunk, as far as the bytes go.
fn png(bytes: &[u8]) -> Option<Result<Header>> {
    if bytes.get(12..16)? != b"IHDR" {
        return Some(Err(Error::decode("PNG", "the first chunk is not the header")));
    }
    let (width, height) = (be32(bytes, 16)?, be32(bytes, 20)?);
    let (depth, color) = (*bytes.get(24)?, *bytes.get(25)?);
    if width == 0 || height == 0 || width > i32::MAX as u32 || height > i32::MAX as u32 {
        return Some(Err(Error::decode("PNG", format!("the header gives an impossible size, {width} x {height}"))));
    }
    let mut this = header(Format::Png, width, height);
    this.precision_bits = depth;
    this.components = match color {
        0 => 1,
        4 => 2,
        6 => 4,
        _ => 3,
    };
    let mut at = 8usize;
    while let (Some(len), Some(name)) = (be32(bytes, at), bytes.get(at + 4..at + 8)) {
        let Some(end) = (at + 8).checked_add(len as usize) else { break };
        match (name, bytes.get(at + 8..end)) {
            (b"eXIf", Some(data)) => {
                this.orientation = orientation(data);
                break;
            }
            (b"IEND", _) | (_, None) => break,
            _ => at = end.saturating_add(4).min(bytes.len()),
        }
    }
    Some(Ok(this))
}

fn pnm(bytes: &[u8]) -> Option<Result<Header>> {
    let found = pnm::header(bytes)?;
    Some(found.map(|(size, components, start)| Header {
        components,
        scan_offset_bytes: start,
        ..header(Format::Pnm, size.width, size.height)
    }))
}

/// Reads the size from the first chunk, which is one of three kinds, then looks for an EXIF chunk.
fn webp(bytes: &[u8]) -> Option<Result<Header>> {
    let bad = |message: &str| Some(Err(Error::decode("WebP", message)));
    let name: &[u8] = bytes.get(12..16)?;
    let (width, height, alpha) = match name {
        b"VP8X" => (le24(bytes, 24)? + 1, le24(bytes, 27)? + 1, bytes[20] & 0x10 != 0),
        b"VP8L" => {
            if *bytes.get(20)? != 0x2F {
                return bad("the lossless header is damaged");
            }
            let bits = le32(bytes, 21)?;
            ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, bits >> 28 & 1 != 0)
        }
        b"VP8 " => {
            if bytes.get(23..26)? != [0x9D, 0x01, 0x2A] {
                return bad("the lossy header is damaged");
            }
            let sides = le32(bytes, 26)?;
            (sides & 0x3FFF, sides >> 16 & 0x3FFF, false)
        }
        _ => return bad("the first chunk is not a header"),
    };
    if width == 0 || height == 0 {
        return bad("the header says that the image is empty");
    }
    let mut this = header(Format::WebP, width, height);
    this.components = if alpha { 4 } else { 3 };
    if name == b"VP8X" {
        let mut at = 12usize;
        while let (Some(name), Some(len)) = (bytes.get(at..at + 4), le32(bytes, at + 4)) {
            let Some(end) = (at + 8).checked_add(len as usize) else { break };
            match (name, bytes.get(at + 8..end)) {
                (b"EXIF", Some(data)) => {
                    this.orientation = orientation(data);
                    break;
                }
                (_, None) => break,
                // A byte of padding follows chunks of odd length.
                _ => at = end.saturating_add(len as usize & 1).min(bytes.len()),
            }
        }
    }
    Some(Ok(this))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientations_are_read_in_both_byte_orders() {
        let tiff = |little: bool, tag: u16, kind: u16, count: u32, value: u16| {
            let short = |value: u16| if little { value.to_le_bytes() } else { value.to_be_bytes() };
            let long = |value: u32| if little { value.to_le_bytes() } else { value.to_be_bytes() };
            let mut bytes = if little { b"II*\0" } else { b"MM\0*" }.to_vec();
            bytes.extend(long(9));
            bytes.push(0);
            bytes.extend(short(2));
            // Another tag, and the one that is asked for.
            for (tag, value) in [(0x100, 5), (tag, value)] {
                bytes.extend([short(tag), short(kind)].concat());
                bytes.extend(long(count));
                bytes.extend([short(value), short(0)].concat());
            }
            bytes
        };
        for little in [false, true] {
            for value in 0..300 {
                let expected = if (1..=8).contains(&value) { value as u8 } else { 1 };
                let bytes = tiff(little, 0x112, 3, 1, value);
                assert_eq!(orientation(&bytes), expected);
                assert_eq!(orientation(&[b"Exif\0\0", &bytes[..]].concat()), expected);
            }
            let bytes = tiff(little, 0x112, 3, 1, 6);
            assert!((0..bytes.len()).all(|end| orientation(&bytes[..end]) == 1), "truncated");
            for other in [tiff(little, 0x113, 3, 1, 6), tiff(little, 0x112, 4, 1, 6), tiff(little, 0x112, 3, 2, 6)] {
                assert_eq!(orientation(&other), 1);
            }
        }
    }
}
