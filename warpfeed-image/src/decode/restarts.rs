//! JPEGs with an index of their rows. `pack --restarts` puts a restart marker after each row of MCUs, and stores the
//! places of the rows. A decoder can then skip rows above a rectangle, and data to the right of it.
//!
//! The index is a segment (APP9) before the tables, which other programs ignore:
//!
//! | bytes | content |
//! | --- | --- |
//! | 10 | `warpfeed` and two zeros; the second zero is the version |
//! | 4 | CRC-32C, big endian, of all following bytes, up to and including the end-of-image marker |
//! | 1 to 4 for each row | number of the row's bytes, including the marker after them: 7 bits per byte, the lowest first; the highest bit is set if more bytes follow |
//!
//! If the checksum does not match, the image is decoded as if it had no index. Whoever supplies an image can also give
//! it a false index. So the decoder looks for all markers in the data: each row must end with the marker that is due,
//! and there may be no other marker and no fill byte. Then each row begins where a decoder that starts at the first row
//! begins it. A false index can only hide damage in skipped rows of its own image.

use super::Header;
use super::entry_points::{EntryPoint, ImageEntryPoints, MAX_BYTES, McuGrid};
use super::probe::{INDEX_MARKER, INDEX_SIGNATURE, be16, next_marker, probe};
use std::ops::Range;

const CRC_BYTES: usize = 4;

/// The number of rows of MCUs; `None` if the image does not have a restart interval of one row.
fn rows(header: &Header) -> Option<usize> {
    let grid = McuGrid::new(header)?;
    (u32::from(header.restart_interval_mcus) == grid.columns).then_some(grid.rows as usize)
}

/// The marker after a row.
fn end_of_row(row: usize, rows: usize) -> [u8; 2] {
    [0xFF, if row + 1 == rows { 0xD9 } else { 0xD0 + (row % 8) as u8 }]
}

/// Finds the start of each row's data in the index. Returns false if there is no index, or if it does not match the
/// bytes.
pub(super) fn row_starts(bytes: &[u8], header: &Header, starts: &mut Vec<usize>) -> bool {
    starts.clear();
    read(bytes, header, |start| starts.push(start)).is_some()
}

/// The starts of the rows as entry points. Returns false if there is no index, or if it does not match the bytes.
pub(super) fn entries(bytes: &[u8], header: &Header, grid: &McuGrid, entries: &mut ImageEntryPoints) -> bool {
    entries.reset(grid.columns, grid.columns);
    if header.row_index.is_none() || bytes.len() > MAX_BYTES {
        return false;
    }
    let points = &mut entries.points;
    let end = read(bytes, header, |start| points.push(EntryPoint { bit: 8 * start as u32, dc: [0; 4] }));
    // This point is before the end-of-image marker.
    points.extend(end.map(|end| EntryPoint { bit: 8 * (end - 2) as u32, dc: [0; 4] }));
    entries.settle();
    end.is_some()
}

/// Calls `found` with the start of each row's data. Returns the end of the last row's marker. `None` if there is no
/// index, or if it does not match the bytes.
fn read(bytes: &[u8], header: &Header, mut found: impl FnMut(usize)) -> Option<usize> {
    let Range { start, end } = header.row_index.clone()?;
    let rows = rows(header)?;
    let (crc, lengths) = bytes.get(start..end)?.split_first_chunk::<CRC_BYTES>()?;
    let mut at = header.scan_offset_bytes;
    let mut markers = Markers::new(bytes, at);
    let (mut row, mut len, mut shift) = (0, 0, 0);
    for &byte in lengths {
        len |= usize::from(byte & 0x7F) << shift;
        shift += 7;
        if byte & 0x80 != 0 && shift < 28 {
            continue;
        }
        found(at);
        at += len;
        if row >= rows || bytes.get(at.checked_sub(2)?..at)? != end_of_row(row, rows) || markers.next() != Some(at - 2)
        {
            return None;
        }
        (row, len, shift) = (row + 1, 0, 0);
    }
    let is_whole = row == rows && shift == 0;
    (is_whole && crc32c::crc32c(&bytes[start + CRC_BYTES..at]) == u32::from_be_bytes(*crc)).then_some(at)
}

/// The place of each 0xFF in entropy-coded data that is not followed by a zero: markers, and fill bytes before them.
struct Markers<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Markers<'a> {
    fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }
}

impl Iterator for Markers<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        for found in memchr::memchr_iter(0xFF, self.bytes.get(self.at..)?) {
            let place = self.at + found;
            if self.bytes.get(place + 1) != Some(&0) {
                self.at = place + 2;
                return Some(place);
            }
        }
        None
    }
}

/// Whether a JPEG has an index that matches.
#[must_use]
pub fn is_indexed(bytes: &[u8], header: &Header) -> bool {
    row_starts(bytes, header, &mut Vec::new())
}

/// Puts an index of its rows into a whole JPEG with a restart marker after each row of MCUs; [`to_baseline`] makes such
/// a JPEG of any other. `None` for other images. The caller has decoded the image, so damage does not stay hidden in
/// rows that are skipped later.
///
/// ```
/// use warpfeed_image::decode::{indexed, is_indexed};
/// use warpfeed_image::{Image, JpegOptions, Size, encode_jpeg, probe, to_baseline};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(64, 48)), &JpegOptions::default())?;
/// let indexed = indexed(&to_baseline(&jpeg, true)?).expect("a restart marker after each row");
/// assert!(is_indexed(&indexed, &probe(&indexed)?));
/// # Ok::<(), warpfeed_image::Error>(())
/// ```
///
/// [`to_baseline`]: crate::to_baseline
#[must_use]
pub fn indexed(jpeg: &[u8]) -> Option<Vec<u8>> {
    let header = probe(jpeg).ok()?;
    let rows = rows(&header)?;
    let mut lengths = Vec::new();
    let mut at = header.scan_offset_bytes;
    let mut markers = Markers::new(jpeg, at);
    for row in 0..rows {
        let marker = markers.next()?;
        if jpeg.get(marker..marker + 2)? != end_of_row(row, rows) {
            return None;
        }
        let mut len = marker + 2 - at;
        at += len;
        while len > 0x7F {
            lengths.push(len as u8 | 0x80);
            len >>= 7;
        }
        lengths.push(len as u8);
    }
    // The index follows the segments that describe the image, because programs look for those at the start.
    let mut before = 2;
    while let Some((0xE0..=0xEF | 0xFE, start)) = next_marker(jpeg, before) {
        before = start + usize::from(be16(jpeg, start)?);
    }
    let len = u16::try_from(2 + INDEX_SIGNATURE.len() + CRC_BYTES + lengths.len()).ok()?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&lengths), &jpeg[before..at]);
    let segment =
        [&[0xFF, INDEX_MARKER], &len.to_be_bytes()[..], INDEX_SIGNATURE, &crc.to_be_bytes(), &lengths].concat();
    Some([&jpeg[..before], &segment, &jpeg[before..at]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::to_baseline;
    use crate::{
        decode::{DecodeOptions, Decoder, PriorKnowledge},
        encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg},
        raster::{Image, Rect, Size},
    };
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    fn image(size: Size, rng: &mut ChaCha8Rng) -> Image {
        let mut image = Image::new(size);
        for y in 0..size.height {
            for (pixel, x) in image.row_mut(y).iter_mut().zip(0..) {
                *pixel = [x * 3 + y, x + 2 * y, 255 + y, 0]
                    .map(|value: u32| (value as u8).wrapping_add(rng.random::<u8>() / 4));
            }
        }
        image
    }

    /// The JPEG with restart markers and an index.
    fn with_index(jpeg: &[u8]) -> Vec<u8> {
        indexed(&to_baseline(jpeg, true).unwrap()).unwrap()
    }

    /// The same bytes, with a changed signature of the index.
    fn without_index(jpeg: &[u8]) -> Vec<u8> {
        let mut jpeg = jpeg.to_vec();
        if let Some(at) = jpeg.windows(INDEX_SIGNATURE.len()).position(|bytes| bytes == INDEX_SIGNATURE) {
            jpeg[at] = b'W';
        }
        jpeg
    }

    /// The pixels, and whether the index was used.
    fn decode(jpeg: &[u8], part: Rect, tolerant: bool) -> Result<(Vec<crate::raster::Pixel>, bool), String> {
        let mut out = Image::default();
        let header = probe(jpeg).map_err(|error| error.to_string())?;
        let decoded = Decoder::new().unwrap().decode_with(
            jpeg,
            &header,
            part,
            DecodeOptions { accept_truncated: tolerant, ..DecodeOptions::default() },
            &mut out,
        );
        decoded.map(|knew| (out.pixels().to_vec(), knew == PriorKnowledge::RowIndex)).map_err(|error| error.to_string())
    }

    fn random_part(rng: &mut ChaCha8Rng, size: Size) -> Rect {
        let (x, y) = (rng.random_range(0..size.width), rng.random_range(0..size.height));
        Rect { x, y, width: rng.random_range(1..=size.width - x), height: rng.random_range(1..=size.height - y) }
    }

    #[test]
    fn an_index_changes_no_pixel() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut skipped = 0;
        for size in [(1, 1), (8, 40), (17, 33), (66, 34), (131, 97)].map(|(width, height)| Size::new(width, height)) {
            let source = image(size, &mut rng);
            for color in [JpegColor::Ycc, JpegColor::Gray, JpegColor::Cmyk, JpegColor::Ycck, JpegColor::Rgb] {
                for (horizontal, vertical) in [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (3, 1), (2, 4)] {
                    let sampling = ChromaSampling { horizontal, vertical };
                    for progressive in [false, true] {
                        let options = JpegOptions { sampling, progressive, color, ..JpegOptions::default() };
                        // Four inks with the coarsest samplings have more blocks than an MCU may have.
                        let Ok(plain) = encode_jpeg(&source, &options) else { continue };
                        let marked = with_index(&plain);
                        assert!(is_indexed(&marked, &probe(&marked).unwrap()));
                        for tolerant in [false, true] {
                            let part = random_part(&mut rng, size);
                            for part in [part, Rect::full(size)] {
                                let (want, _) = decode(&plain, part, tolerant).unwrap();
                                let (got, skips) = decode(&marked, part, tolerant).unwrap();
                                assert!(got == want, "{options:?}, {part:?} of {size}, tolerant: {tolerant}");
                                let grid = McuGrid::new(&probe(&marked).unwrap());
                                assert!(skips || !grid.is_some_and(|grid| grid.has_rest(part)));
                                skipped += u32::from(skips);
                            }
                        }
                    }
                }
            }
        }
        assert!(skipped > 200, "{skipped}");
    }

    /// Codes outside of the needed part are not read: this is the purpose of the index.
    #[test]
    fn what_lies_above_and_to_the_right_is_not_touched() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let source = image(Size::new(160, 128), &mut rng);
        let mut jpeg = with_index(&encode_jpeg(&source, &JpegOptions::default()).unwrap());
        let header = probe(&jpeg).unwrap();
        let mut starts = Vec::new();
        assert!(row_starts(&jpeg, &header, &mut starts));
        assert_eq!(starts.len(), 8);
        let part = Rect { x: 0, y: 64, width: 40, height: 16 };
        let (want, _) = decode(&jpeg, part, false).unwrap();
        // The rows above have no codes at all, and the last third of the needed rows has none.
        for (row, start) in starts.windows(2).enumerate().map(|(row, bounds)| (row, bounds[0]..bounds[1] - 2)) {
            let needed = if (3..6).contains(&row) { 2 * start.len() / 3 } else { 0 };
            jpeg[start.start + needed..start.end].fill(0xFE);
        }
        let at = header.row_index.clone().unwrap().start;
        let crc = crc32c::crc32c(&jpeg[at + CRC_BYTES..]);
        jpeg[at..at + CRC_BYTES].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(decode(&jpeg, part, false), Ok((want, true)));
        decode(&without_index(&jpeg), part, false).unwrap_err();
    }

    /// Damage makes the index unfit, and the result is that without an index.
    #[test]
    fn damage_is_found_as_without_an_index() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let source = image(Size::new(93, 71), &mut rng);
        let (mut refused, mut decoded, mut skipped) = (0, 0, 0);
        for color in [JpegColor::Ycc, JpegColor::Gray, JpegColor::Cmyk] {
            for sampling in [ChromaSampling::S444, ChromaSampling::S420] {
                let plain = encode_jpeg(&source, &JpegOptions { color, sampling, ..JpegOptions::default() }).unwrap();
                let marked = with_index(&plain);
                let index = probe(&marked).unwrap().row_index.unwrap();
                for round in 0..400 {
                    let mut jpeg = marked.clone();
                    let from = if round % 4 == 0 { index.clone() } else { 2..jpeg.len() };
                    let at = rng.random_range(from);
                    match round % 7 {
                        0 => jpeg.truncate(at),
                        1 => drop(jpeg.remove(at)),
                        2 => jpeg.insert(at, rng.random()),
                        3 => jpeg.extend(rng.random::<[u8; 2]>()),
                        _ => jpeg[at] = rng.random(),
                    }
                    if probe(&jpeg).is_ok_and(|header| header.size != source.size()) {
                        continue;
                    }
                    let part = random_part(&mut rng, source.size());
                    for tolerant in [false, true] {
                        let got = decode(&jpeg, part, tolerant);
                        skipped += u32::from(got.as_ref().is_ok_and(|(_, skipped)| *skipped));
                        let (got, want) =
                            (got.map(|(pixels, _)| pixels), decode(&without_index(&jpeg), part, tolerant));
                        assert!(
                            got == want.map(|(pixels, _)| pixels),
                            "{color:?}, {sampling:?}, round {round}, {part:?}"
                        );
                        *if got.is_ok() { &mut decoded } else { &mut refused } += 1;
                    }
                }
            }
        }
        // Two more bytes after the end, and a byte that was replaced by itself, cannot be noticed.
        assert!(refused > 500 && decoded > 2000 && (100..1500).contains(&skipped), "{refused} {decoded} {skipped}");
    }

    /// Some programs keep unknown segments and rewrite the data. The index that they leave does not match.
    #[test]
    fn an_index_of_other_data_is_not_believed() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let size = Size::new(80, 64);
        let [one, other] = [(); 2].map(|()| {
            let options =
                JpegOptions { sampling: ChromaSampling::S444, restart_interval_rows: 1, ..JpegOptions::default() };
            encode_jpeg(&image(size, &mut rng), &options).unwrap()
        });
        let marked = indexed(&one).unwrap();
        let index = probe(&marked).unwrap().row_index.unwrap();
        let segment = &marked[index.start - INDEX_SIGNATURE.len() - 4..index.end];
        let stale = [&other[..2], segment, &other[2..]].concat();
        let header = probe(&stale).unwrap();
        assert!(header.row_index.is_some() && !is_indexed(&stale, &header));
        let part = Rect { x: 3, y: 50, width: 9, height: 9 };
        assert_eq!(decode(&stale, part, false), decode(&other, part, false));
        // An image that warpfeed rewrites has one index, its own.
        let again = with_index(&stale);
        assert_eq!(again.windows(INDEX_SIGNATURE.len()).filter(|bytes| *bytes == INDEX_SIGNATURE).count(), 1);
        assert!(is_indexed(&again, &probe(&again).unwrap()));
    }

    #[test]
    fn only_whole_images_with_a_marker_behind_each_row_get_an_index() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let source = image(Size::new(50, 60), &mut rng);
        let encoded = |options| encode_jpeg(&source, &options).unwrap();
        let rows = |restart_interval_rows| JpegOptions { restart_interval_rows, ..JpegOptions::default() };
        let good = encoded(rows(1));
        assert!(indexed(&good).is_some());
        assert!(indexed(&encoded(rows(0))).is_none() && indexed(&encoded(rows(2))).is_none());
        assert!(indexed(&encoded(JpegOptions { progressive: true, ..rows(1) })).is_none());
        // With this sampling factor, libjpeg decodes two rows at a time.
        assert!(indexed(&encoded(JpegOptions { color: JpegColor::Gray, ..rows(1) })).is_none());
        assert!(indexed(&good[..good.len() - 2]).is_none());
        let marker = good.windows(2).position(|pair| pair == [0xFF, 0xD1]).unwrap();
        let mut wrong = good.clone();
        wrong[marker + 1] = 0xD2;
        assert!(indexed(&wrong).is_none());
    }

    #[test]
    fn what_describes_the_image_stays_in_front() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let options = JpegOptions { orientation: Some(6), progressive: true, ..JpegOptions::default() };
        let jpeg = encode_jpeg(&image(Size::new(50, 60), &mut rng), &options).unwrap();
        let profile = b"\xFF\xE2\0\x14ICC_PROFILE\0\x01\x01abcd";
        let comment = b"\xFF\xFE\0\x07hello";
        let marked = with_index(&[&jpeg[..2], profile, comment, &jpeg[2..]].concat());
        let header = probe(&marked).unwrap();
        assert_eq!((header.orientation, header.progressive), (6, false));
        let index = header.row_index.unwrap();
        for segment in [&profile[..], comment] {
            let at = marked.windows(segment.len()).position(|bytes| bytes == segment).unwrap();
            assert!(at < index.start);
        }
        assert_eq!(marked[index.end..][..2], [0xFF, 0xDB], "the tables follow");
    }
}
