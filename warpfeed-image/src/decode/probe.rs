//! Headers: size, orientation and layout of an image, without decoding it.

use super::exif::{PngTexts, orientation};
use super::{Format, Header, bands, npy, npz, pnm};
use crate::error::{Error, Result};
use crate::planes::{Element, PixelKind};
use crate::raster::Size;
use std::borrow::Cow;

/// The marker of an index of rows, and its signature (`restarts.rs`).
pub(super) const INDEX_MARKER: u8 = 0xE9;
pub(super) const INDEX_SIGNATURE: &[u8] = b"warpfeed\0\0";
/// The signature of entry points in an image (`packed_points.rs`), which have the same marker.
pub(super) const POINTS_SIGNATURE: &[u8] = b"warpfeed\0\x03";

/// The signature of XMP in a segment of a JPEG.
const XMP_SIGNATURE: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
/// The flags of a WebP for EXIF data and XMP.
const EXIF_FLAG: u8 = 8;
const XMP_FLAG: u8 = 4;

/// Reads an image's header: its format, size, orientation and layout. Allocates hardly anything.
///
/// # Errors
/// [`Error::Decode`] if the bytes are not an image of one of the [formats](Format), or end inside the header.
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
    } else if bytes.starts_with(npy::SIGNATURE) {
        Ok(npy::NpyHeader::read(bytes, bytes.len() as u64)?.header(Format::Npy))
    } else if npz::is_npz(bytes) {
        npz::header(bytes)
    } else if matches!(bytes.first_chunk(), Some(b"II*\0" | b"MM\0*" | b"II+\0" | b"MM\0+")) {
        tiff(bytes)
    } else if bytes.starts_with(bands::SIGNATURE) {
        bands::read(bytes)
    } else if bytes.is_empty() {
        Err(Error::decode("image", "there are no bytes"))
    } else {
        let start = &bytes[..bytes.len().min(4)];
        Err(Error::decode(
            "image",
            format!("no JPEG, PNG, WebP, PNM, NPY, NPZ or TIFF: the bytes start with {start:02x?}"),
        ))
    }
}

#[cfg(feature = "tiff")]
fn tiff(bytes: &[u8]) -> Result<Header> {
    super::tiff::header(&bytes)
}

#[cfg(not(feature = "tiff"))]
fn tiff(_: &[u8]) -> Result<Header> {
    Err(no_tiff())
}

#[cfg(not(feature = "tiff"))]
pub(super) fn no_tiff() -> Error {
    Error::Unsupported {
        feature: "decoding TIFF in this build".to_owned(),
        remedy: "build warpfeed with its feature `tiff`".to_owned(),
    }
}

fn incomplete(format: &'static str) -> Error {
    Error::decode(format, "truncated: the data end inside the header")
}

pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn le24(bytes: &[u8], at: usize) -> Option<u32> {
    let b = bytes.get(at..at + 3)?;
    Some(u32::from(b[0]) | u32::from(b[1]) << 8 | u32::from(b[2]) << 16)
}

pub(super) fn header(format: Format, width: u32, height: u32) -> Header {
    Header {
        format,
        size: Size::new(width, height),
        full_size: Size::new(width, height),
        scale_denom: 1,
        orientation: 1,
        progressive: false,
        components: 3,
        precision_bits: 8,
        kind: PixelKind::RGB8,
        sampling: [(0, 0); 4],
        restart_interval_mcus: 0,
        rgb: false,
        process: 0,
        scan_offset_bytes: 0,
        has_alpha: false,
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
pub(super) fn jpeg(bytes: &[u8]) -> Option<Result<Header>> {
    let bad = |message: &str| Some(Err(Error::decode("JPEG", message)));
    let mut found: Option<Header> = None;
    let (mut exif, mut xmp): (Option<Cow<'_, [u8]>>, _) = (None, None);
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
                this.kind.channels = if this.components == 1 { 1 } else { 3 };
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
                this.orientation = orientation(exif.as_deref(), xmp);
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
            // EXIF data that are longer than a segment go on in the next one.
            0xE1 if segment.starts_with(b"Exif\0\0") => match &mut exif {
                Some(exif) => exif.to_mut().extend_from_slice(&segment[6..]),
                None => exif = Some(segment.into()),
            },
            0xE1 if segment.starts_with(XMP_SIGNATURE) => xmp = Some(&segment[XMP_SIGNATURE.len()..]),
            _ => {}
        }
        at = next;
    }
}

/// Reads IHDR, then looks for chunks with an orientation, before and after the image data, as far as the bytes go.
pub(super) fn png(bytes: &[u8]) -> Option<Result<Header>> {
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
    this.kind = png_kind(color, depth);
    this.components = this.kind.channels as u8;
    this.has_alpha = matches!(this.components, 2 | 4);
    let mut texts = PngTexts::default();
    // Of an animation Pillow reads no further than to its second image. The first may be no part of the animation.
    let (mut frames, mut has_data) = (0, false);
    let mut is_first_shown = false;
    let mut at = 8usize;
    while let (Some(len), Some(name)) = (be32(bytes, at), bytes.get(at + 4..at + 8)) {
        let Some(end) = (at + 8).checked_add(len as usize) else { break };
        let Some(data) = bytes.get(at + 8..end) else { break };
        match name {
            b"IEND" => break,
            b"IDAT" => has_data = true,
            b"acTL" if !has_data => frames = be32(data, 0).unwrap_or(0),
            b"fcTL" if !has_data => is_first_shown = true,
            b"fcTL" if frames > u32::from(is_first_shown) => break,
            _ => texts.chunk(name, data),
        }
        at = end.saturating_add(4).min(bytes.len());
    }
    this.orientation = texts.orientation();
    Some(Ok(this))
}

/// The kind of a PNG with this color type and this number of bits a sample. A palette's is that of its colors.
pub(super) fn png_kind(color: u8, bits: u8) -> PixelKind {
    let channels = match color {
        0 => 1,
        4 => 2,
        6 => 4,
        _ => 3,
    };
    PixelKind { element: if bits == 16 { Element::U16 } else { Element::U8 }, channels }
}

pub(super) fn pnm(bytes: &[u8]) -> Option<Result<Header>> {
    let found = pnm::header(bytes)?;
    Some(found.map(|(size, components, start)| Header {
        components,
        kind: PixelKind { channels: components.into(), ..PixelKind::RGB8 },
        scan_offset_bytes: start,
        ..header(Format::Pnm, size.width, size.height)
    }))
}

/// Reads the size from the first chunk, which is one of three kinds, then looks for an EXIF chunk.
pub(super) fn webp(bytes: &[u8]) -> Option<Result<Header>> {
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
    this.kind.channels = this.components.into();
    this.has_alpha = alpha;
    if name == b"VP8X" {
        let flags = bytes[20];
        let (mut exif, mut xmp) = (None, None);
        let mut at = 12usize;
        while let (Some(name), Some(len)) = (bytes.get(at..at + 4), le32(bytes, at + 4)) {
            let Some(end) = (at + 8).checked_add(len as usize) else { break };
            let Some(data) = bytes.get(at + 8..end) else { break };
            match name {
                b"EXIF" if flags & EXIF_FLAG != 0 => exif = exif.or(Some(data)),
                b"XMP " if flags & XMP_FLAG != 0 => xmp = xmp.or(Some(data)),
                _ => {}
            }
            // A byte of padding follows chunks of odd length.
            at = end.saturating_add(len as usize & 1).min(bytes.len());
        }
        this.orientation = orientation(exif.filter(|exif| !exif.is_empty()), xmp);
    }
    Some(Ok(this))
}
