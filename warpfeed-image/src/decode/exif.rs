//! The orientation of an image, as Pillow's `Image.getexif` finds it: in the EXIF directory, and if that has none, in
//! XMP.
//!
//! Pillow's rules, not the standard's: the first entry of a tag counts, of any type that is a number, with any count;
//! values out of line count against the size of the data; and EXIF data without a TIFF structure hide the XMP.

use super::probe::{be16, be32};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_PARSE_ZLIB_HEADER, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use std::borrow::Cow;
use std::str;

/// The tag of the orientation.
const TAG: u16 = 0x0112;

/// Largest number of bytes of a compressed text, as in Pillow, which refuses an image with more.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// EXIF data that Pillow does not read.
struct Unreadable;

/// The orientation, 1 to 8, from EXIF data and XMP; 1 if there is none, or another value.
pub(super) fn orientation(exif: Option<&[u8]>, xmp: Option<&[u8]>) -> u8 {
    let found = match exif.map(directory) {
        Some(Err(Unreadable)) => return 1,
        Some(Ok(found)) => found,
        None => None,
    };
    found.or_else(|| in_xmp(xmp?)).filter(|value| (1..=8).contains(value)).unwrap_or(1)
}

/// The orientation in the first directory of EXIF data: 0 if its value is not a whole number of one digit. `None`
/// without the tag.
fn directory(exif: &[u8]) -> Result<Option<u8>, Unreadable> {
    let mut tiff = exif;
    for _ in 0..2 {
        tiff = tiff.strip_prefix(b"Exif\0\0").unwrap_or(tiff);
    }
    if tiff.is_empty() {
        return Ok(None);
    }
    let little = match tiff.first_chunk() {
        Some(b"MM\0*" | b"MM*\0" | b"MM\0+") => false,
        Some(b"II*\0" | b"II\0*") => true,
        _ => return Err(Unreadable),
    };
    let short = |bytes: &[u8], at| be16(bytes, at).map(|value| if little { value.swap_bytes() } else { value });
    let long = |bytes: &[u8], at| be32(bytes, at).map(|value| if little { value.swap_bytes() } else { value });
    let start = long(tiff, 4).ok_or(Unreadable)? as usize;
    let Some(entries) = tiff.get(start..) else { return Ok(None) };
    let Some(count) = short(entries, 0) else { return Ok(None) };
    let mut out_of_line_bytes = 0;
    // A bit for each tag that has come with a value, after which others of its kind do not count.
    let mut known = [0_u64; 1 << 10];
    for entry in entries[2..].as_chunks::<12>().0.iter().take(count.into()) {
        let [tag, kind] = [0, 2].map(|at| short(entry, at).unwrap_or(0));
        let [values, offset] = [4, 8].map(|at| u64::from(long(entry, at).unwrap_or(0)));
        let (word, bit) = (usize::from(tag >> 6), 1 << (tag & 63));
        if known[word] & bit != 0 {
            continue;
        }
        let unit_bytes = match kind {
            1 | 2 | 6 | 7 => 1,
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 | 16 => 8,
            _ => continue,
        };
        let bytes = values * unit_bytes;
        let value = if bytes <= 4 {
            &entry[8..8 + bytes as usize]
        } else {
            out_of_line_bytes += bytes;
            if out_of_line_bytes > tiff.len() as u64 {
                continue;
            }
            // Pillow reads no further than to the first value that lies outside.
            match tiff.get(offset as usize..(offset + bytes) as usize) {
                Some(value) => value,
                None => return Ok(None),
            }
        };
        if value.is_empty() {
            continue;
        }
        if tag == TAG {
            return Ok(Some(digit(value, kind, little)));
        }
        known[word] |= bit;
    }
    Ok(None)
}

/// The first of an entry's values, if it is a whole number from 1 to 8; else 0.
fn digit(value: &[u8], kind: u16, little: bool) -> u8 {
    fn first<const N: usize>(value: &[u8], little: bool) -> [u8; N] {
        let mut first = [0; N];
        first.copy_from_slice(&value[..N]);
        if !little {
            first.reverse();
        }
        first
    }
    // The numerator of a fraction comes first, in both byte orders.
    let fraction = |signed: bool| {
        let [above, below] = [0, 4].map(|at| {
            let part = u32::from_le_bytes(first(&value[at..], little));
            if signed { i64::from(part as i32) } else { i64::from(part) }
        });
        (1..=8).find(|whole| below != 0 && above == whole * below)
    };
    let whole = |float: f64| (1..=8).find(|whole| *whole as f64 == float);
    let number = match kind {
        3 => Some(i64::from(u16::from_le_bytes(first(value, little)))),
        4 | 13 => Some(i64::from(u32::from_le_bytes(first(value, little)))),
        5 => fraction(false),
        6 => Some(i64::from(value[0] as i8)),
        8 => Some(i64::from(i16::from_le_bytes(first(value, little)))),
        9 => Some(i64::from(i32::from_le_bytes(first(value, little)))),
        10 => fraction(true),
        11 => whole(f32::from_le_bytes(first(value, little)).into()),
        12 => whole(f64::from_le_bytes(first(value, little))),
        16 => i64::try_from(u64::from_le_bytes(first(value, little))).ok(),
        // Bytes and text are not numbers.
        _ => None,
    };
    number.and_then(|number| u8::try_from(number).ok()).filter(|number| *number <= 8).unwrap_or(0)
}

/// The first digit that XMP gives as the orientation.
fn in_xmp(xmp: &[u8]) -> Option<u8> {
    const NAME: &[u8] = b"tiff:Orientation";
    let mut places = memchr::memmem::find_iter(xmp, NAME);
    places.find_map(|at| {
        let rest = &xmp[at + NAME.len()..];
        let value = rest.strip_prefix(b"=\"").or_else(|| rest.strip_prefix(b">"))?;
        value.first().filter(|digit| digit.is_ascii_digit()).map(|digit| digit - b'0')
    })
}

/// The texts and profiles of a PNG that say how it is turned. A later chunk replaces an earlier one.
#[derive(Default)]
pub(super) struct PngTexts<'a> {
    /// EXIF data; `None` inside if they are text, which Pillow does not read.
    exif: Option<Option<&'a [u8]>>,
    /// ImageMagick's form of EXIF data, in hexadecimal.
    raw_profile: Option<Cow<'a, [u8]>>,
    /// XMP that is text in its character set, and as bytes.
    xml: Option<Cow<'a, [u8]>>,
    xmp: Option<Cow<'a, [u8]>>,
}

impl<'a> PngTexts<'a> {
    /// Takes a chunk.
    pub(super) fn chunk(&mut self, name: &[u8], data: &'a [u8]) {
        match name {
            // Pillow puts the prefix before it, and takes two away.
            b"eXIf" => self.exif = Some(Some(data).filter(|data| !data.starts_with(b"Exif\0\0Exif\0\0"))),
            b"tEXt" => {
                let (key, text) = split(data).unwrap_or((data, &[]));
                if key == b"exif" {
                    self.exif = Some(Some(text));
                } else {
                    self.text(key, || Some(text.into()));
                }
            }
            b"zTXt" => {
                let (key, text) = split(data).unwrap_or((data, &[]));
                self.text(key, || match text {
                    [] => Some(Cow::default()),
                    [0, packed @ ..] => Some(inflate(packed).unwrap_or_default().into()),
                    _ => None,
                });
            }
            b"iTXt" => {
                let _ = self.international(data);
            }
            _ => {}
        }
    }

    fn international(&mut self, data: &'a [u8]) -> Option<()> {
        let (key, rest) = split(data)?;
        if !matches!(key, b"exif" | b"Raw profile type exif" | b"XML:com.adobe.xmp" | b"xmp") {
            return None;
        }
        let ([is_packed, method], rest) = rest.split_first_chunk()?;
        let (language, rest) = split(rest)?;
        let (translated_key, text) = split(rest)?;
        let text: Cow<'_, [u8]> = match (is_packed, method) {
            (0, _) => text.into(),
            (_, 0) => inflate(text)?.into(),
            _ => return None,
        };
        if key == b"XML:com.adobe.xmp" {
            self.xmp = Some(text.clone());
        }
        if [language, translated_key, &text].iter().all(|text| str::from_utf8(text).is_ok()) {
            self.text(key, || Some(text));
        }
        Some(())
    }

    /// Takes a text, which is made only where it matters.
    fn text(&mut self, key: &[u8], text: impl FnOnce() -> Option<Cow<'a, [u8]>>) {
        let place = match key {
            b"exif" => {
                self.exif = Some(None);
                return;
            }
            b"Raw profile type exif" => &mut self.raw_profile,
            b"XML:com.adobe.xmp" => &mut self.xml,
            // Pillow searches bytes there, and finds nothing in a text.
            b"xmp" => {
                self.xmp = None;
                return;
            }
            _ => return,
        };
        if let Some(text) = text() {
            *place = Some(text);
        }
    }

    /// The orientation that they give.
    pub(super) fn orientation(&self) -> u8 {
        let profile = match (self.exif, &self.raw_profile) {
            (Some(None), _) => return 1,
            (Some(Some(exif)), _) => Some(Cow::Borrowed(exif)),
            (None, Some(profile)) => match from_hex(profile) {
                Some(exif) => Some(exif.into()),
                None => return 1,
            },
            (None, None) => None,
        };
        let xml = self.xml.as_deref().filter(|xml| !xml.is_empty());
        orientation(profile.as_deref(), xml.or(self.xmp.as_deref()))
    }
}

/// The bytes before and after the first zero.
fn split(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(0, data)?;
    Some((&data[..at], &data[at + 1..]))
}

/// Uncompressed bytes, also of a stream that ends early; `None` if it is damaged or longer than [`MAX_TEXT_BYTES`].
fn inflate(packed: &[u8]) -> Option<Vec<u8>> {
    let flags = TINFL_FLAG_PARSE_ZLIB_HEADER | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | TINFL_FLAG_HAS_MORE_INPUT;
    let (mut stream, mut out) = (Box::<DecompressorOxide>::default(), Vec::new());
    let (mut read, mut made) = (0, 0);
    loop {
        out.resize((2 * made).clamp(1 << 12, MAX_TEXT_BYTES + 1), 0);
        let (status, more_read, more_made) = decompress(&mut stream, &packed[read..], &mut out, made, flags);
        (read, made) = (read + more_read, made + more_made);
        match status {
            TINFLStatus::HasMoreOutput if made <= MAX_TEXT_BYTES => {}
            TINFLStatus::Done | TINFLStatus::NeedsMoreInput if made <= MAX_TEXT_BYTES => {
                out.truncate(made);
                return Some(out);
            }
            _ => return None,
        }
    }
}

/// The bytes of a raw profile: hexadecimal digits from the fourth line on.
fn from_hex(profile: &[u8]) -> Option<Vec<u8>> {
    let mut lines = profile.split(|byte| *byte == b'\n').skip(3);
    let digits: Vec<u8> = lines.by_ref().flatten().copied().collect();
    let (mut bytes, mut at) = (Vec::with_capacity(digits.len() / 2), 0);
    while at < digits.len() {
        // Between bytes, as Python has them; not within one.
        if matches!(digits[at], b' ' | 9..=13) {
            at += 1;
            continue;
        }
        let [high, low] = [0, 1].map(|i| digits.get(at + i).and_then(|digit| (*digit as char).to_digit(16)));
        bytes.push((high? << 4 | low?) as u8);
        at += 2;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXIF data with another entry and one for the orientation, whose value lies after the directory if it is long.
    fn exif(little: bool, kind: u16, count: u32, value: &[u8]) -> Vec<u8> {
        let short = |value: u16| if little { value.to_le_bytes() } else { value.to_be_bytes() };
        let long = |value: u32| if little { value.to_le_bytes() } else { value.to_be_bytes() };
        let mut bytes = if little { b"II*\0" } else { b"MM\0*" }.to_vec();
        bytes.extend(long(9));
        bytes.push(0);
        bytes.extend(short(2));
        bytes.extend([short(0x100), short(3)].concat());
        bytes.extend([long(1), long(5)].concat());
        bytes.extend([short(TAG), short(kind)].concat());
        bytes.extend(long(count));
        let mut value = value.to_vec();
        if value.len() > 4 {
            bytes.extend(long(bytes.len() as u32 + 4));
        } else {
            value.resize(4, 0);
        }
        bytes.extend(value);
        bytes
    }

    #[test]
    fn orientations_are_read_in_both_byte_orders_and_all_types() {
        for little in [false, true] {
            let order = |mut le: Vec<u8>| {
                if !little {
                    le.reverse();
                }
                le
            };
            for value in 0..300_u16 {
                let expected = if (1..=8).contains(&value) { value as u8 } else { 1 };
                let bytes = exif(little, 3, 1, &order(value.to_le_bytes().to_vec()));
                for prefix in [&b""[..], b"Exif\0\0", b"Exif\0\0Exif\0\0"] {
                    assert_eq!(orientation(Some(&[prefix, &bytes].concat()), None), expected);
                }
                let long = exif(little, 4, 1, &order(u32::from(value).to_le_bytes().to_vec()));
                assert_eq!(orientation(Some(&long), None), expected);
            }
            let fraction = |above: u32, below: u32| {
                [order(above.to_le_bytes().to_vec()), order(below.to_le_bytes().to_vec())].concat()
            };
            for (kind, count, value, expected) in [
                (3, 2, [order(vec![6, 0]), order(vec![3, 0])].concat(), 6),
                (3, 3, [order(vec![6, 0]), order(vec![3, 0]), vec![0, 0]].concat(), 6),
                (5, 1, fraction(6, 1), 6),
                (5, 1, fraction(12, 2), 6),
                (5, 1, fraction(13, 2), 1),
                (5, 1, fraction(6, 0), 1),
                (10, 1, fraction(-6_i32 as u32, -1_i32 as u32), 6),
                (11, 1, order(6_f32.to_le_bytes().to_vec()), 6),
                (12, 1, order(6_f64.to_le_bytes().to_vec()), 6),
                (16, 1, order(6_u64.to_le_bytes().to_vec()), 6),
                (6, 1, vec![6], 6),
                (1, 1, vec![6], 1),
                (2, 2, b"6\0".to_vec(), 1),
                (7, 1, vec![6], 1),
                (3, 0, vec![6, 0], 1),
                (99, 1, order(vec![6, 0]), 1),
            ] {
                let bytes = exif(little, kind, count, &value);
                assert_eq!(orientation(Some(&bytes), None), expected, "type {kind}, {count} times, little {little}");
            }
            let bytes = exif(little, 3, 1, &order(vec![6, 0]));
            assert!((0..bytes.len()).all(|end| orientation(Some(&bytes[..end]), None) == 1), "truncated");
        }
    }

    #[test]
    fn xmp_counts_where_there_is_no_exif_orientation() {
        let xmp = |value: &str| format!("<a tiff:Orientation> tiff:Orientation='3' {value} tiff:Orientation=\"2\"");
        for (value, expected) in [
            ("tiff:Orientation=\"6\"", 6),
            ("<tiff:Orientation>8</tiff:Orientation>", 8),
            ("", 2),
            ("tiff:Orientation=\"9\"", 1),
        ] {
            assert_eq!(orientation(None, Some(xmp(value).as_bytes())), expected, "{value}");
        }
        let six = xmp("tiff:Orientation=\"6\"");
        let six = Some(six.as_bytes());
        let without = exif(true, 3, 0, &[]);
        assert_eq!(orientation(Some(&without), six), 6);
        assert_eq!(orientation(Some(b"Exif\0\0"), six), 6);
        assert_eq!(orientation(Some(&exif(true, 3, 1, &[0, 0])), six), 1, "an absurd value is one");
        assert_eq!(orientation(Some(b"Exif\0\0no TIFF structure"), six), 1);
    }

    #[test]
    fn long_and_damaged_streams_end() {
        let packed = |len: usize| miniz_oxide::deflate::compress_to_vec_zlib(&vec![7; len], 1);
        assert_eq!(inflate(&packed(100_000)).unwrap(), vec![7; 100_000]);
        assert!(inflate(&packed(MAX_TEXT_BYTES + 1)).is_none());
        let bytes = packed(100_000);
        assert!((0..bytes.len()).all(|end| inflate(&bytes[..end]).is_some()), "the beginning of a stream is no error");
        assert!(inflate(b"no stream").is_none());
        assert_eq!(from_hex(b"\nexif\n 3\n0a F\n0 1b").unwrap(), [0x0a, 0xf0, 0x1b]);
        assert!(from_hex(b"\nexif\n 3\n0").is_none() && from_hex(b"\nexif\n 3\n0g").is_none());
    }
}
