//! JPEGs with entry points of their own. `pack --entry-points` decodes an image and puts its points into a segment
//! (APP9) before the tables, which other programs ignore.
//!
//! The segment has the signature `warpfeed`, 0, 3, then the packer's [`Seal`], and then the points in the form of
//! `entry_point_bytes`, farther apart if they need more bytes than a segment holds. They count from the beginning of
//! the data, so another program may change the segments before it.
//!
//! Points are trusted only under a seal of the reader's own [`PackKey`]. For others, the first decode walks through all
//! data up to the last row that it needs, with vectors, and checks each stretch where it ends (`LanesJob::reach`).
//! Wrong points cost time and never change a pixel.

use super::Header;
use super::entry_point_bytes::{from_bytes, to_bytes};
use super::entry_points::{EntryPoint, ImageEntryPoints, McuGrid};
use super::pack_key::{PackKey, Seal};
use super::probe::{INDEX_MARKER, INDEX_SIGNATURE, POINTS_SIGNATURE, be16, next_marker};

/// Bytes of a segment before its content: marker and length.
const SEGMENT_HEAD_BYTES: usize = 4;
const MAX_SEGMENT_BYTES: usize = 0xFFFF;

/// Reads an image's own points. Returns false if it has none for all of its MCUs.
pub(super) fn entries(bytes: &[u8], header: &Header, grid: &McuGrid, entries: &mut ImageEntryPoints) -> bool {
    let mut read = || {
        let points = bytes.get(header.packed_points.clone()?)?.get(Seal::BYTES..)?;
        from_bytes(points, grid, header.scan_offset_bytes, entries)?;
        (entries.points.len() == grid.rows as usize * entries.a_row as usize + 1).then_some(())
    };
    read().is_some()
}

/// Whether an image's own points are under a seal of this key.
pub(super) fn are_sealed(bytes: &[u8], header: &Header, key: &PackKey) -> bool {
    header.packed_points.as_ref().is_some_and(|points| Seal::at(points.start).is_valid(bytes, key))
}

/// Puts all of an image's points into the image, under a seal if there is a key. `None` if a segment does not hold
/// them.
pub(super) fn with_points(
    jpeg: &[u8],
    header: &Header,
    grid: &McuGrid,
    points: &[EntryPoint],
    key: Option<&PackKey>,
) -> Option<Vec<u8>> {
    let a_row = grid.columns.div_ceil(grid.step()) as usize;
    let (end, points) = points.split_last().filter(|(_, points)| points.len() == grid.rows as usize * a_row)?;
    let packed = (0..10).map(|doublings| 1 << doublings).find_map(|times| {
        let fewer = points.chunks(a_row).flat_map(|row| row.iter().step_by(times)).chain([end]).copied();
        let step = (grid.step() * times as u32).min(grid.columns);
        let packed = to_bytes(&fewer.collect::<Vec<_>>(), step, grid, header.scan_offset_bytes);
        (segment_bytes(&packed) <= MAX_SEGMENT_BYTES).then_some(packed)
    })?;
    with_segment(jpeg, header, &packed, key)
}

/// Length of a segment with these points, without its marker.
fn segment_bytes(packed: &[u8]) -> usize {
    2 + POINTS_SIGNATURE.len() + Seal::BYTES + packed.len()
}

/// Puts points in the form of `entry_point_bytes` into an image, under a seal if there is a key. `None` if a segment
/// does not hold them.
pub(super) fn with_segment(jpeg: &[u8], header: &Header, packed: &[u8], key: Option<&PackKey>) -> Option<Vec<u8>> {
    let len = u16::try_from(segment_bytes(packed)).ok()?;
    // The points follow the segments that describe the image, because programs look for those at the start. An index of
    // rows comes after them, because its checksum covers all that follows it.
    let index = header.row_index.as_ref().map(|index| index.start - INDEX_SIGNATURE.len() - SEGMENT_HEAD_BYTES);
    let mut before = 2;
    while Some(before) != index
        && let Some((0xE0..=0xEF | 0xFE, start)) = next_marker(jpeg, before)
    {
        before = start + usize::from(be16(jpeg, start)?);
    }
    let (front, rest) = jpeg.split_at_checked(before)?;
    let seal = Seal::at(before + SEGMENT_HEAD_BYTES + POINTS_SIGNATURE.len());
    let none = [0; Seal::BYTES];
    let mut image = [front, &[0xFF, INDEX_MARKER], &len.to_be_bytes(), POINTS_SIGNATURE, &none, packed, rest].concat();
    if let Some(key) = key {
        seal.put(&mut image, key);
    }
    Some(image)
}

/// The image without its own points.
pub(super) fn without_points(jpeg: &[u8], header: &Header) -> Option<Vec<u8>> {
    let range = header.packed_points.clone()?;
    let start = range.start.checked_sub(SEGMENT_HEAD_BYTES + POINTS_SIGNATURE.len())?;
    Some([jpeg.get(..start)?, jpeg.get(range.end..)?].concat())
}

#[cfg(test)]
mod tests {
    use super::super::jpeg::{DecodeOptions, JpegDecoder, PriorKnowledge};
    use super::*;
    use crate::decode::{EntryPointStore, probe};
    use crate::encode::{JpegOptions, encode_jpeg};
    use crate::raster::{Image, Rect, Size};

    /// A decoder's knowledge of an image without lanes: it cannot check points, so it uses only trusted ones.
    fn known(jpeg: &[u8], key: Option<PackKey>) -> PriorKnowledge {
        let store = EntryPointStore::new(1 << 20);
        let store = key.map_or_else(|| EntryPointStore::new(1 << 20), |key| store.with_pack_key(key));
        let mut decoder = JpegDecoder::new().unwrap();
        decoder.without_lanes();
        let how = DecodeOptions { accept_truncated: true, entry_points: Some(&store) };
        let part = Rect { x: 100, y: 150, width: 64, height: 32 };
        let Some(header) = probe(jpeg).ok().filter(|header| part.fits(header.size)) else {
            return PriorKnowledge::Nothing;
        };
        decoder.decode(jpeg, &header, part, how, &mut Image::default()).unwrap_or(PriorKnowledge::Nothing)
    }

    fn packed(quality: u8, key: Option<&PackKey>) -> Vec<u8> {
        let mut image = Image::new(Size::new(300, 200));
        (0..)
            .zip(image.pixels_mut())
            .for_each(|(i, pixel): (u32, _)| *pixel = (i.wrapping_mul(2_654_435_761)).to_be_bytes());
        let jpeg = encode_jpeg(&image, &JpegOptions { quality, ..JpegOptions::default() }).unwrap();
        let mut decoder = JpegDecoder::new().unwrap();
        decoder.with_entry_points(&jpeg, &probe(&jpeg).unwrap(), key, &mut image).unwrap().unwrap()
    }

    #[test]
    fn points_are_trusted_under_a_seal_of_the_own_key_alone() {
        let [own, others] = [1, 2].map(|word| PackKey::new([word; 4]));
        let sealed = packed(90, Some(&own));
        assert_eq!(known(&sealed, Some(own)), PriorKnowledge::EntryPoints);
        for (jpeg, key) in [(&sealed, Some(others)), (&sealed, None), (&packed(90, None), Some(own))] {
            assert_eq!(known(jpeg, key), PriorKnowledge::Nothing);
        }
    }

    #[test]
    fn points_of_an_earlier_version_are_not_read() {
        let sealed = packed(90, None);
        let mut older = sealed.clone();
        let version = probe(&sealed).unwrap().packed_points.unwrap().start - 1;
        older[version] -= 1;
        assert!(probe(&older).unwrap().packed_points.is_none());
    }

    #[test]
    fn a_seal_is_of_no_use_to_another_image_and_to_other_points() {
        let key = PackKey::new([7; 4]);
        let [sealed, other] = [90, 60].map(|quality| packed(quality, Some(&key)));
        for at in (0..sealed.len()).step_by(7).chain(20..200) {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_ne!(known(&changed, Some(key)), PriorKnowledge::EntryPoints, "byte {at}");
        }
        let [place, other_place] = [&sealed, &other].map(|jpeg| probe(jpeg).unwrap().packed_points.unwrap());
        let mut with_its_seal = other.clone();
        with_its_seal[other_place.start..][..Seal::BYTES].copy_from_slice(&sealed[place.start..][..Seal::BYTES]);
        assert_ne!(known(&with_its_seal, Some(key)), PriorKnowledge::EntryPoints);
        // Moved to another place in the same image, after a comment.
        let moved = [&sealed[..2], b"\xff\xfe\0\x04ab", &sealed[2..]].concat();
        assert_ne!(known(&moved, Some(key)), PriorKnowledge::EntryPoints);
    }
}
