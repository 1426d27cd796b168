//! Headers of images that are read by position, without the pixels between their parts.

use super::npy::{self, NpyHeader};
use super::probe::{be32, jpeg, le32, png, pnm, webp};
use super::{Format, Header};

/// Number of bytes that are read first.
const START_BYTES: usize = 16 << 10;

/// Largest number of chunks of a PNG or WebP that are walked through. A file with more is read whole, which is faster.
const MAX_CHUNKS: usize = 1 << 14;

/// Number of bytes of a chunk's length and name.
const HEAD_BYTES: u64 = 8;

/// Reads the header of an image of `len_bytes` from its first 16 KiB, and reads on only where the header goes on: it is
/// the header that [`probe`](super::probe) gives for all bytes, orientations at a file's end included. `None` if that
/// takes all bytes: for images that are damaged, and for formats whose header may lie anywhere (NPZ, TIFF, bands).
///
/// `read` fills a buffer with the bytes from an offset on; it is never asked for bytes beyond `len_bytes`. `start` is
/// memory that the next image may reuse.
///
/// # Errors
/// The errors of `read`.
///
/// ```
/// use warpfeed_image::decode::probe_parts;
/// use warpfeed_image::{Image, JpegOptions, Size, encode_jpeg};
///
/// let bytes = encode_jpeg(&Image::new(Size::new(17, 5)), &JpegOptions::default())?;
/// let read = |offset: u64, part: &mut [u8]| {
///     part.copy_from_slice(&bytes[offset as usize..][..part.len()]);
///     Ok::<(), std::io::Error>(())
/// };
/// let header = probe_parts(bytes.len() as u64, &mut Vec::new(), read).unwrap();
/// assert_eq!(header.map(|header| header.size), Some(Size::new(17, 5)));
/// # Ok::<(), warpfeed_image::Error>(())
/// ```
pub fn probe_parts<E>(
    len_bytes: u64,
    start: &mut Vec<u8>,
    read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Option<Header>, E> {
    Parts { len_bytes, start, read }.header(START_BYTES)
}

struct Parts<'a, R> {
    len_bytes: u64,
    /// The first bytes, as many as were read.
    start: &'a mut Vec<u8>,
    read: R,
}

impl<E, R: FnMut(u64, &mut [u8]) -> Result<(), E>> Parts<'_, R> {
    fn header(&mut self, start_bytes: usize) -> Result<Option<Header>, E> {
        self.start.clear();
        if !self.lengthen(start_bytes)? {
            return Ok(None);
        }
        if self.start.starts_with(b"\x89PNG\r\n\x1a\n") {
            return self.png();
        }
        if self.start.starts_with(b"RIFF") && self.start.get(8..12) == Some(b"WEBP") {
            return self.webp();
        }
        if self.start.starts_with(npy::SIGNATURE) {
            return Ok(NpyHeader::read(self.start, self.len_bytes).ok().map(|header| header.header(Format::Npy)));
        }
        let header = match self.start.first_chunk() {
            Some([0xFF, 0xD8]) => jpeg,
            Some(b"P5" | b"P6") => pnm,
            _ => return Ok(None),
        };
        loop {
            match header(self.start) {
                Some(found) => return Ok(found.ok()),
                None if self.start.len() as u64 == self.len_bytes => return Ok(None),
                None => {}
            }
            if !self.lengthen(self.start.len().saturating_mul(4))? {
                return Ok(None);
            }
        }
    }

    /// Reads the first bytes up to this number. Returns `false` if there is too little memory.
    fn lengthen(&mut self, to: usize) -> Result<bool, E> {
        let from = self.start.len();
        let to = to.min(usize::try_from(self.len_bytes).unwrap_or(usize::MAX));
        if self.start.try_reserve(to.saturating_sub(from)).is_err() {
            return Ok(false);
        }
        self.start.resize(to.max(from), 0);
        (self.read)(from as u64, &mut self.start[from..])?;
        Ok(true)
    }

    /// The 8 bytes with which a chunk begins; `None` if the file ends before.
    fn head(&mut self, at: u64) -> Result<Option<[u8; HEAD_BYTES as usize]>, E> {
        if at.checked_add(HEAD_BYTES).is_none_or(|end| end > self.len_bytes) {
            return Ok(None);
        }
        let known = usize::try_from(at).ok().and_then(|at| self.start.get(at..)).and_then(<[u8]>::first_chunk);
        if let Some(known) = known {
            return Ok(Some(*known));
        }
        let mut head = [0; HEAD_BYTES as usize];
        (self.read)(at, &mut head)?;
        Ok(Some(head))
    }

    /// Appends `len` bytes to `parts`. Returns `false` if there is too little memory.
    fn append(&mut self, at: u64, len: u64, parts: &mut Vec<u8>) -> Result<bool, E> {
        let (before, Ok(len)) = (parts.len(), usize::try_from(len)) else { return Ok(false) };
        if parts.try_reserve(len).is_err() {
            return Ok(false);
        }
        let known = usize::try_from(at).ok().and_then(|at| self.start.get(at..)).and_then(|rest| rest.get(..len));
        if let Some(known) = known {
            parts.extend_from_slice(known);
            return Ok(true);
        }
        parts.resize(before + len, 0);
        (self.read)(at, &mut parts[before..])?;
        Ok(true)
    }

    /// The header of a PNG: that of a file with the same chunks, whose image data are empty.
    fn png(&mut self) -> Result<Option<Header>, E> {
        if self.start.get(8..16) != Some(b"\0\0\0\x0dIHDR") {
            return Ok(None);
        }
        let (mut file, mut at) = (self.start[..8].to_vec(), 8);
        for _ in 0..MAX_CHUNKS {
            let Some(head) = self.head(at)? else { return Ok(png(&file).and_then(Result::ok)) };
            let (len, name) = (u64::from(be32(&head, 0).unwrap_or(0)), &head[4..]);
            let end = at + HEAD_BYTES + len;
            if end > self.len_bytes || name == b"IEND" {
                return Ok(png(&file).and_then(Result::ok));
            }
            if matches!(name, b"IHDR" | b"acTL" | b"fcTL" | b"eXIf" | b"tEXt" | b"zTXt" | b"iTXt") {
                if !self.append(at, HEAD_BYTES + len, &mut file)? {
                    return Ok(None);
                }
            } else {
                file.extend([0; 4]);
                file.extend(name);
            }
            // The checksum, which is not verified.
            file.extend([0; 4]);
            at = end + 4;
        }
        Ok(None)
    }

    /// The header of a WebP. One with EXIF data or XMP is that of a file with only these chunks.
    fn webp(&mut self) -> Result<Option<Header>, E> {
        /// The flags for EXIF data and XMP.
        const TEXTS: u8 = 8 | 4;
        /// Length of the header, the first chunk included.
        const FIRST_BYTES: usize = 30;
        if self.start.get(12..20) != Some(b"VP8X\x0a\0\0\0")
            || self.start.get(20).is_none_or(|flags| flags & TEXTS == 0)
        {
            // Without the first bytes of a chunk of 10 bytes, the file is damaged.
            let is_odd = self.start.get(12..16) == Some(b"VP8X") && self.start.get(16..20) != Some(b"\x0a\0\0\0");
            return Ok(if is_odd { None } else { webp(self.start).and_then(Result::ok) });
        }
        if self.start.len() < FIRST_BYTES {
            return Ok(None);
        }
        let (mut file, mut at) = (self.start[..FIRST_BYTES].to_vec(), FIRST_BYTES as u64);
        for _ in 0..MAX_CHUNKS {
            let Some(head) = self.head(at)? else { return Ok(webp(&file).and_then(Result::ok)) };
            let len = u64::from(le32(&head, 4).unwrap_or(0));
            let end = at + HEAD_BYTES + len;
            if end > self.len_bytes {
                return Ok(webp(&file).and_then(Result::ok));
            }
            if matches!(&head[..4], b"EXIF" | b"XMP ") {
                if !self.append(at, HEAD_BYTES + len, &mut file)? {
                    return Ok(None);
                }
                file.resize(file.len() + (len & 1) as usize, 0);
            }
            at = end + (len & 1);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::probe;
    use crate::encode::{JpegOptions, encode_jpeg, encode_png};
    use crate::raster::{Image, Size};
    use std::convert::Infallible;

    const SIZE: Size = Size { width: 40, height: 30 };

    /// The header by parts, and the number of bytes that were read for it.
    fn parts(bytes: &[u8], start_bytes: usize) -> (Option<Header>, usize) {
        let mut read_bytes = 0;
        let read = |offset: u64, part: &mut [u8]| {
            read_bytes += part.len();
            part.copy_from_slice(&bytes[offset as usize..][..part.len()]);
            Ok::<(), Infallible>(())
        };
        let Ok(found) = Parts { len_bytes: bytes.len() as u64, start: &mut Vec::new(), read }.header(start_bytes);
        (found, read_bytes)
    }

    fn exif(orientation: u8) -> Vec<u8> {
        [&b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"[..], &[orientation, 0, 0, 0, 0, 0, 0, 0]].concat()
    }

    fn png_chunk(name: &[u8], data: &[u8]) -> Vec<u8> {
        [&(data.len() as u32).to_be_bytes()[..], name, data, &crc32fast::hash(&[name, data].concat()).to_be_bytes()]
            .concat()
    }

    fn riff(name: &[u8], data: &[u8]) -> Vec<u8> {
        [name, &(data.len() as u32).to_le_bytes(), data, &[0][..data.len() & 1]].concat()
    }

    fn webp(flags: u8, chunks: &[Vec<u8>]) -> Vec<u8> {
        let first = riff(b"VP8X", &[flags, 0, 0, 0, SIZE.width as u8 - 1, 0, 0, SIZE.height as u8 - 1, 0, 0]);
        let body = [&b"WEBP"[..], &first, &chunks.concat()].concat();
        [&b"RIFF"[..], &(body.len() as u32).to_le_bytes(), &body].concat()
    }

    /// Files with the orientation that the whole of each has.
    fn files() -> Vec<(&'static str, Vec<u8>, u8)> {
        let image = Image::new(SIZE);
        let mut files = Vec::new();
        for orientation in 1..=8_u8 {
            let options = JpegOptions { orientation: Some(orientation.into()), ..JpegOptions::default() };
            let jpeg = encode_jpeg(&image, &options).unwrap();
            let profile = [&b"\xFF\xE2\xFF\xFF"[..], &vec![7; 0xFFFD]].concat();
            let long = [&jpeg[..2], &profile, &profile, &jpeg[2..]].concat();
            files.push(("JPEG", jpeg, orientation));
            files.push(("JPEG with profiles", long, orientation));

            let png = encode_png(&image).unwrap();
            let at = png.windows(4).position(|name| name == b"IDAT").unwrap() - 4;
            let data = png_chunk(b"IDAT", &[9; 50_000]);
            let own = png_chunk(b"eXIf", &exif(orientation));
            files.push(("PNG, eXIf before", [&png[..at], &own, &data, &png[at..]].concat(), orientation));
            let end = png.len() - 12;
            let after = [&png[..at], &data, &data, &png[at..end], &own, &png[end..]].concat();
            files.push(("PNG, eXIf after", after, orientation));
            let beyond = [&png[..], &own].concat();
            files.push(("PNG, eXIf beyond the end", beyond, 1));
            let text =
                [&b"XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation=\""[..], &[b'0' + orientation, b'"']].concat();
            let xmp = [&png[..at], &data, &png[at..end], &png_chunk(b"iTXt", &text), &png[end..]].concat();
            files.push(("PNG, XMP after", xmp, orientation));

            let (pixels, end) = (riff(b"VP8L", &[3; 30_001]), riff(b"EXIF", &exif(orientation)));
            files.push(("WebP", webp(8, &[pixels.clone(), end.clone()]), orientation));
            files.push(("WebP without the flag", webp(0, &[pixels.clone(), end.clone()]), 1));
            let two = [pixels, end, riff(b"EXIF", &exif(orientation % 8 + 1))];
            files.push(("WebP with two", webp(8, &two), orientation));
        }
        files.push(("PNM", [&b"P6\n# "[..], &[b'x'; 5000], b"\n40 30\n255\n", &[0; 3600]].concat(), 1));
        files
    }

    #[test]
    fn parts_give_the_header_of_the_whole() {
        for (name, bytes, orientation) in files() {
            let whole = probe(&bytes).unwrap();
            assert_eq!((whole.size, whole.orientation), (SIZE, orientation), "{name}");
            for start_bytes in [40, 100, 1000, START_BYTES] {
                assert_eq!(parts(&bytes, start_bytes).0.as_ref(), Some(&whole), "{name}, {start_bytes}");
            }
        }
    }

    #[test]
    fn pixels_are_not_read() {
        for (name, bytes, _) in files() {
            let (header, read_bytes) = parts(&bytes, 64);
            assert!(header.is_some());
            let expected = if name == "JPEG with profiles" || name == "PNM" { bytes.len() } else { 1500 };
            assert!(read_bytes <= expected, "{name}: {read_bytes} of {}", bytes.len());
        }
    }

    #[test]
    fn a_truncated_file_has_the_header_of_its_bytes_or_none() {
        for (name, bytes, orientation) in files().into_iter().filter(|(_, _, orientation)| [1, 6].contains(orientation))
        {
            let step = if bytes.len() > 20_000 { 997 } else { 7 };
            let lengths = (0..bytes.len().min(200)).chain((200..bytes.len()).step_by(step));
            for len in lengths.chain(bytes.len().saturating_sub(60)..bytes.len()) {
                let (cut, whole) = (&bytes[..len], probe(&bytes[..len]).ok());
                for start_bytes in [33, START_BYTES] {
                    let found = parts(cut, start_bytes).0;
                    // The first chunk of a PNG is then not whole.
                    let is_left_out = found.is_none() && (26..33).contains(&len);
                    assert!(found == whole || is_left_out, "{name}, {orientation}: {len} bytes");
                }
            }
        }
    }

    #[test]
    fn damaged_bytes_give_the_header_of_the_whole_or_none() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for (name, bytes, _) in files().into_iter().skip(40).take(12) {
            for _ in 0..300 {
                let mut damaged = bytes.clone();
                for _ in 0..3 {
                    let at = if random() % 4 == 0 { random() % bytes.len() } else { random() % bytes.len().min(150) };
                    damaged[at] = random() as u8;
                }
                if let Some(found) = parts(&damaged, 64).0 {
                    assert_eq!(Some(found), probe(&damaged).ok(), "{name}");
                }
            }
        }
    }

    #[test]
    fn errors_of_the_reader_come_through() {
        let failed = probe_parts(100, &mut Vec::new(), |_, _| Err("gone"));
        assert_eq!(failed, Err("gone"));
        assert_eq!(probe_parts(0, &mut Vec::new(), |_, part| if part.is_empty() { Ok(()) } else { Err(()) }), Ok(None));
    }
}
