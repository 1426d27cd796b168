//! Arrays in NumPy's `.npy` files, format versions 1 to 3: [H, W] or [H, W, C], in C or Fortran order.

use super::stored::{ByteOrder, Places, Stored, StoredPixels, all_bands};
use super::{Format, Header, probe};
use crate::error::{Error, Result};
use crate::planes::{Element, MAX_CHANNELS, PixelKind, Planes};
use crate::raster::{Rect, Size};

/// The first bytes of such a file.
pub(super) const SIGNATURE: &[u8] = b"\x93NUMPY";

/// Largest length of the header that is read. NumPy itself reads 10,000 bytes.
pub(super) const MAX_HEADER_BYTES: usize = 1 << 16;

/// The content of a file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NpyHeader {
    size: Size,
    channels: u16,
    stored: Stored,
    order: ByteOrder,
    /// Whether the first axis varies fastest.
    is_fortran: bool,
    /// Offset of the values.
    start: usize,
}

fn bad(message: impl Into<String>) -> Error {
    Error::decode("NPY", message)
}

impl NpyHeader {
    /// Reads the header. `len_bytes` is the length of the whole file; `bytes` may be only its start.
    ///
    /// # Errors
    /// [`Error::Decode`] if the header is damaged, if the array is no image, or if the values do not fit the file.
    pub(super) fn read(bytes: &[u8], len_bytes: u64) -> Result<Self> {
        let truncated = || bad("truncated: the data end inside the header");
        let version = *bytes.get(6).ok_or_else(truncated)?;
        let (start, len) = match version {
            1 => (10, bytes.get(8..10).map(|len| usize::from(u16::from_le_bytes([len[0], len[1]])))),
            2 | 3 => (12, probe::le32(bytes, 8).map(|len| len as usize)),
            _ => {
                return Err(bad(format!("format version {version} is not supported: write the array with numpy.save")));
            }
        };
        let len = len.ok_or_else(truncated)?;
        if len > MAX_HEADER_BYTES {
            return Err(bad(format!("the header has {len} bytes, more than {MAX_HEADER_BYTES}")));
        }
        let text = bytes.get(start..start + len).ok_or_else(truncated)?;
        let Fields { descr, is_fortran, shape } = fields(text)?;
        let (stored, order) = value_type(descr)?;
        let (size, channels) = image_shape(&shape)?;
        let header = Self { size, channels, stored, order, is_fortran, start: start + len };
        if len_bytes < header.end() {
            return Err(bad(format!("truncated: there are {len_bytes} of {} bytes", header.end())));
        }
        Ok(header)
    }

    /// The type of the values and the number of channels in [`Planes`].
    fn kind(&self) -> PixelKind {
        PixelKind { element: self.stored.element(), channels: self.channels }
    }

    /// Offset of the end of the values.
    pub(super) fn end(&self) -> u64 {
        self.size.area_px().saturating_mul(self.pixel_bytes() as u64).saturating_add(self.start as u64)
    }

    fn pixel_bytes(&self) -> usize {
        self.stored.size_bytes() * usize::from(self.channels)
    }

    /// The header as other formats have it.
    pub(super) fn header(&self, format: Format) -> Header {
        Header {
            components: self.channels as u8,
            precision_bits: 8 * self.stored.size_bytes() as u8,
            kind: self.kind(),
            scan_offset_bytes: self.start,
            ..probe::header(format, self.size.width, self.size.height)
        }
    }

    /// Copies the channels `bands` of a part of the image.
    pub(super) fn decode(&self, bytes: &[u8], part: Rect, bands: &[u16], out: &mut Planes) -> Result<()> {
        let values = bytes.get(self.start..).unwrap_or_default();
        let kind = PixelKind { channels: bands.len() as u16, ..self.kind() };
        out.reset_part(kind, self.size, part)?;
        let (width, height) = (part.width as usize, part.height as usize);
        let value_bytes = self.stored.size_bytes();
        let run = |first: usize, count: usize, channels: usize| {
            let bytes = values.get(first * value_bytes..).unwrap_or_default();
            let bytes = &bytes[..bytes.len().min(count * channels * value_bytes)];
            StoredPixels { bytes, stored: self.stored, order: self.order, channels }
        };
        if self.is_fortran {
            // Columns follow each other, then channels.
            for (to, band) in bands.iter().enumerate() {
                for x in 0..width {
                    let column = usize::from(*band) * self.size.width as usize + part.x as usize + x;
                    let first = column * self.size.height as usize + part.y as usize;
                    run(first, height, 1).write(0, out, to, Places { start: x, count: height, step: width });
                }
            }
            return Ok(());
        }
        let channels = usize::from(self.channels);
        for y in 0..height {
            let first = (part.y as usize + y) * self.size.width as usize + part.x as usize;
            let row = run(first * channels, width, channels);
            for (to, band) in bands.iter().enumerate() {
                row.write(usize::from(*band), out, to, Places { start: y * width, count: width, step: 1 });
            }
        }
        Ok(())
    }
}

/// Refuses arrays that have no RGB form: all but those of bytes with 1 or 3 channels.
pub(super) fn check_rgb(header: &Header) -> Result<()> {
    match header.kind {
        PixelKind { element: Element::U8, channels: 1 | 3 } => Ok(()),
        kind => Err(super::no_rgb(header.format, kind)),
    }
}

/// Decodes the channels `bands` of `part`.
pub(super) fn decode(bytes: &[u8], header: &Header, part: Rect, bands: &[u16], out: &mut Planes) -> Result<()> {
    let found = NpyHeader::read(bytes, bytes.len() as u64)?;
    if (found.size, found.kind()) != (header.size, header.kind) {
        return Err(bad("the array is not the one of the header"));
    }
    debug_assert!(bands.iter().all(|band| all_bands(found.kind()).contains(band)));
    found.decode(bytes, part, bands, out)
}

/// The three entries of a header.
#[derive(Debug, PartialEq, Eq)]
struct Fields<'a> {
    descr: &'a str,
    is_fortran: bool,
    shape: Vec<u64>,
}

/// Reads a header's text, a literal of a Python dictionary.
fn fields(text: &[u8]) -> Result<Fields<'_>> {
    let damaged = || bad("the header is damaged: it is not the dictionary that numpy.save writes");
    let text = std::str::from_utf8(text).map_err(|_| damaged())?;
    let mut rest = text.trim().strip_prefix('{').ok_or_else(damaged)?;
    let (mut descr, mut is_fortran, mut shape) = (None, None, None);
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            if !after.is_empty() {
                return Err(damaged());
            }
            break;
        }
        let (key, after) = quoted(rest).ok_or_else(damaged)?;
        let value = after.trim_start().strip_prefix(':').ok_or_else(damaged)?.trim_start();
        let after = match key {
            "descr" if value.starts_with('[') => {
                return Err(bad("an array of structures is not supported: store one field of it as an array"));
            }
            "descr" => {
                let (found, after) = quoted(value).ok_or_else(damaged)?;
                descr = Some(found);
                after
            }
            "fortran_order" => {
                let (found, after) = match value.strip_prefix("True") {
                    Some(after) => (true, after),
                    None => (false, value.strip_prefix("False").ok_or_else(damaged)?),
                };
                is_fortran = Some(found);
                after
            }
            "shape" => {
                let (found, after) =
                    value.strip_prefix('(').and_then(|value| value.split_once(')')).ok_or_else(damaged)?;
                shape = Some(numbers(found).ok_or_else(damaged)?);
                after
            }
            _ => return Err(damaged()),
        };
        rest = after.trim_start();
        if let Some(after) = rest.strip_prefix(',') {
            rest = after;
        } else if !rest.starts_with('}') {
            return Err(damaged());
        }
    }
    match (descr, is_fortran, shape) {
        (Some(descr), Some(is_fortran), Some(shape)) => Ok(Fields { descr, is_fortran, shape }),
        _ => Err(damaged()),
    }
}

/// The text between two quotation marks of the same kind, and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// Whole numbers with commas between them. Python 2 has written an L behind large ones.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let text = text.trim();
    let text = text.strip_suffix(',').unwrap_or(text);
    if text.is_empty() {
        return Some(Vec::new());
    }
    let number = |text: &str| {
        let text = text.trim();
        let digits = text.strip_suffix('L').unwrap_or(text);
        // The parser would accept a sign.
        if digits.starts_with('+') { None } else { digits.parse().ok() }
    };
    // More axes than any image has are not kept.
    text.split(',').take(9).map(number).collect()
}

/// The type of an array's values.
fn value_type(descr: &str) -> Result<(Stored, ByteOrder)> {
    let order = match descr.as_bytes().first() {
        Some(b'<') => Some(ByteOrder::Little),
        Some(b'>') => Some(ByteOrder::Big),
        Some(b'|') => Some(ByteOrder::NATIVE),
        _ => None,
    };
    let name = descr.get(1..).unwrap_or_default();
    let refused = |what: &str, remedy: &str| Err(bad(format!("values of type {what} are not supported: {remedy}")));
    let numbers = "store the array as uint8, uint16 or float32";
    let stored = match name {
        "u1" | "b1" => Stored::U8,
        "i1" => Stored::I8,
        "u2" => Stored::U16,
        "i2" => Stored::I16,
        "f2" => Stored::F16,
        "f4" => Stored::F32,
        "u4" => return refused("u32", numbers),
        "i4" => return refused("i32", numbers),
        "u8" => return refused("u64", numbers),
        "i8" => return refused("i64", numbers),
        "f8" => return refused("f64", numbers),
        "f12" | "f16" => return refused("longdouble", numbers),
        "c8" | "c16" | "c24" | "c32" => return refused("complex", "store the real and the imaginary part as channels"),
        _ if name.starts_with('O') => {
            return refused("object", "they are pickled, and reading them could run code: store numbers");
        }
        _ if name.starts_with('V') => return refused("void", "store one field of the structures as an array"),
        _ => return refused(&format!("{descr:?}"), numbers),
    };
    match order {
        Some(order) => Ok((stored, order)),
        None => refused(&format!("{descr:?}"), numbers),
    }
}

/// The size and the number of channels of an array.
fn image_shape(shape: &[u64]) -> Result<(Size, u16)> {
    let refused = |why: &str| {
        let axes: Vec<String> = shape.iter().map(u64::to_string).collect();
        Err(bad(format!("an array of shape [{}] is no image: {why}", axes.join(", "))))
    };
    let (height, width, channels) = match *shape {
        [height, width] => (height, width, 1),
        [height, width, channels] => (height, width, channels),
        _ => return refused("store it as [height, width] or [height, width, channels]"),
    };
    if shape.contains(&0) {
        return refused("an axis is empty");
    }
    if channels > u64::from(MAX_CHANNELS) {
        return refused(&format!(
            "{channels} channels are more than {MAX_CHANNELS}: if the first axis has the channels, store the array as \
             [height, width, channels]"
        ));
    }
    match (i32::try_from(width), i32::try_from(height)) {
        (Ok(width), Ok(height)) => Ok((Size::new(width as u32, height as u32), channels as u16)),
        _ => refused("its sides are too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{DecodeOptions, Decoder};
    use crate::raster::Image;

    fn file(version: u8, descr: &str, is_fortran: bool, shape: &str, values: &[u8]) -> Vec<u8> {
        let fortran = if is_fortran { "True" } else { "False" };
        let text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        let mut bytes = [SIGNATURE, &[version, 0]].concat();
        match version {
            1 => bytes.extend((text.len() as u16).to_le_bytes()),
            _ => bytes.extend((text.len() as u32).to_le_bytes()),
        }
        [&bytes[..], text.as_bytes(), values].concat()
    }

    fn decoded(bytes: &[u8], part: Option<Rect>, bands: Option<&[u16]>) -> Result<Planes> {
        let (header, mut planes) = (probe::probe(bytes)?, Planes::default());
        let part = part.unwrap_or(Rect::full(header.size));
        Decoder::new()?.decode_planes(bytes, &header, part, bands, DecodeOptions::default(), &mut planes)?;
        Ok(planes)
    }

    #[test]
    fn all_types_orders_and_versions_give_their_values() {
        // [2, 3, 2] in C order, and the same in Fortran order.
        let order_c: Vec<u8> = (0..12).collect();
        let order_fortran: Vec<u8> =
            (0..12).map(|i| (i % 2, i / 2 % 3, i / 6)).map(|(y, x, c)| y * 6 + x * 2 + c).collect();
        let plane = |c: u8| (0..6).map(|i| 2 * i + c).collect::<Vec<u8>>();
        for version in 1..=3 {
            for (is_fortran, values) in [(false, &order_c), (true, &order_fortran)] {
                let wide = |to: fn(u8) -> Vec<u8>| values.iter().flat_map(|value| to(*value)).collect::<Vec<u8>>();
                for (descr, bytes, element) in [
                    ("|u1", wide(|v| vec![v]), Element::U8),
                    ("|b1", wide(|v| vec![v]), Element::U8),
                    ("|i1", wide(|v| vec![v.wrapping_neg()]), Element::F32),
                    ("<u2", wide(|v| vec![v, 1]), Element::U16),
                    (">u2", wide(|v| vec![1, v]), Element::U16),
                    ("<i2", wide(|v| (-i16::from(v)).to_le_bytes().to_vec()), Element::F32),
                    (">i2", wide(|v| (-i16::from(v)).to_be_bytes().to_vec()), Element::F32),
                    ("<f4", wide(|v| (-f32::from(v)).to_le_bytes().to_vec()), Element::F32),
                    (">f4", wide(|v| (-f32::from(v)).to_be_bytes().to_vec()), Element::F32),
                ] {
                    let bytes = file(version, descr, is_fortran, "(2, 3, 2)", &bytes);
                    let planes = decoded(&bytes, None, None).unwrap();
                    let kind = PixelKind { element, channels: 2 };
                    assert_eq!((planes.kind(), planes.size()), (kind, Size::new(3, 2)));
                    for c in 0..2 {
                        let plane = plane(c);
                        let channel = usize::from(c);
                        match element {
                            Element::U8 => assert_eq!(planes.plane::<u8>(channel), plane, "{descr}"),
                            Element::U16 => {
                                assert!(
                                    planes.plane::<u16>(channel).iter().eq(plane
                                        .iter()
                                        .map(|v| u16::from(*v) + 256)
                                        .collect::<Vec<_>>()
                                        .iter()),
                                    "{descr}"
                                );
                            }
                            Element::F32 => {
                                let want: Vec<f32> = plane.iter().map(|v| -f32::from(*v)).collect();
                                assert_eq!(planes.plane::<f32>(channel), want, "{descr}");
                            }
                        }
                    }
                    let part = Rect { x: 1, y: 1, width: 2, height: 1 };
                    let cut = decoded(&bytes, Some(part), Some(&[1, 0, 1])).unwrap();
                    assert_eq!((cut.part(), cut.whole(), cut.kind().channels), (part, Size::new(3, 2), 3));
                    let value_bytes = element.size_bytes();
                    let inside = |c: usize| &planes.as_bytes()[(6 * c + 4) * value_bytes..][..2 * value_bytes];
                    assert_eq!(cut.as_bytes(), [inside(1), inside(0), inside(1)].concat(), "{descr}");
                }
            }
        }
    }

    #[test]
    fn arrays_of_bytes_become_rgb() {
        let rgb: Vec<u8> = (0..18).collect();
        for (shape, values, want) in [
            ("(2, 3, 3)", &rgb[..], rgb.clone()),
            ("(2, 3)", &rgb[..6], rgb[..6].iter().flat_map(|v| [*v; 3]).collect()),
            ("(2L, 3L, 1L)", &rgb[..6], rgb[..6].iter().flat_map(|v| [*v; 3]).collect()),
        ] {
            let bytes = file(1, "|u1", false, shape, values);
            let (header, mut image) = (probe::probe(&bytes).unwrap(), Image::default());
            Decoder::new().unwrap().decode(&bytes, &header, Rect::full(header.size), false, &mut image).unwrap();
            assert_eq!(image.to_rgb(), want);
        }
        let bytes = file(1, "<u2", false, "(2, 2, 2)", &[0; 16]);
        let (header, mut image) = (probe::probe(&bytes).unwrap(), Image::default());
        let error = Decoder::new().unwrap().decode(&bytes, &header, Rect::full(header.size), false, &mut image);
        let error = error.unwrap_err();
        assert!(error.is_bad_image() && error.to_string().contains("2 channels of u16"), "{error}");
    }

    #[test]
    fn other_arrays_are_refused_by_name() {
        for (descr, shape, words) in [
            ("<f8", "(2, 2)", "f64"),
            ("<i4", "(2, 2)", "i32"),
            ("<u4", "(2, 2)", "u32"),
            ("<i8", "(2, 2)", "i64"),
            ("<u8", "(2, 2)", "u64"),
            ("<c8", "(2, 2)", "complex"),
            ("|O", "(2, 2)", "pickled"),
            ("|V6", "(2, 2)", "void"),
            ("<U3", "(2, 2)", "<U3"),
            ("u2", "(2, 2)", "u2"),
            ("=u2", "(2, 2)", "=u2"),
            ("<u2", "()", "[]"),
            ("<u2", "(7,)", "[7]"),
            ("<u2", "(1, 2, 3, 4)", "[1, 2, 3, 4]"),
            ("<u2", "(0, 5, 3)", "empty"),
            ("<u2", "(2, 2, 65)", "65 channels"),
            ("<u2", "(4000000000, 4000000000, 4)", "too long"),
            ("<u2", "(2000000000, 2000000000, 64)", "truncated"),
            ("<u2", "(-2, 2)", "damaged"),
            ("<u2", "(+2, 2)", "damaged"),
            ("<u2", "(2; 2)", "damaged"),
            ("<u2", "(99999999999999999999, 2)", "damaged"),
        ] {
            let error = probe::probe(&file(1, descr, false, shape, &[0; 64])).unwrap_err();
            assert!(error.is_bad_image() && error.to_string().contains(words), "{descr}, {shape}: {error}");
        }
        let structured = b"\x93NUMPY\x01\0\x40\0{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (3,)}  ";
        assert!(probe::probe(structured).unwrap_err().to_string().contains("structures"));
    }

    #[test]
    fn truncations_and_flips_are_errors_or_pixels() {
        let bytes = file(1, "<u2", true, "(2, 2, 2)", &[7; 16]);
        for end in 0..bytes.len() {
            assert!(decoded(&bytes[..end], None, None).is_err_and(|error| error.is_bad_image()), "{end} bytes");
        }
        for at in 0..bytes.len() {
            for flip in 1..=255 {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                assert!(decoded(&bytes, None, None).map_or_else(|error| error.is_bad_image(), |_| true));
            }
        }
    }
}
