//! JPEGs with entry points of their own. `pack --entry-points` decodes an image and puts its points into a segment (APP9)
//! before the tables, which other programs ignore. All other bytes stay as they are.
//!
//! The segment has the signature `warpfeed`, 0, 2, and then the points in the form of `entry_point_bytes`. They count from
//! the beginning of the data, so other programs may change the segments before it. If the points need more bytes than a
//! segment holds, they are farther apart.
//!
//! Whoever supplies an image can give it any points. So they are not trusted: the first decode walks through all data up
//! to the last row that it needs, with vectors, and checks each stretch where it ends (`LanesJob::reach`). The points that
//! have stood this check are stored under the image's key. They are those that decoding from the front would have found,
//! so points of another image, and damaged ones, cost time and never change a pixel. Without vectors nothing would be gained
//! in the first decode, and the points are not used.

use super::Header;
use super::entry_point_bytes::{from_bytes, to_bytes};
use super::entry_points::{EntryPoint, ImageEntryPoints, McuGrid};
use super::probe::{INDEX_MARKER, INDEX_SIGNATURE, POINTS_SIGNATURE, be16, next_marker};

/// Bytes of a segment before its content: marker and length.
const SEGMENT_HEAD_BYTES: usize = 4;
const MAX_SEGMENT_BYTES: usize = 0xFFFF;

/// Reads an image's own points. Returns false if it has none for all of its MCUs.
pub(super) fn entries(bytes: &[u8], header: &Header, grid: &McuGrid, entries: &mut ImageEntryPoints) -> bool {
    let mut read = || {
        let points = bytes.get(header.packed_points.clone()?)?;
        from_bytes(points, grid, header.scan_offset_bytes, entries)?;
        (entries.points.len() == grid.rows as usize * entries.a_row as usize + 1).then_some(())
    };
    read().is_some()
}

/// Puts an image's points, of which none is missing, into the image. `None` if a segment does not hold them.
pub(super) fn with_points(jpeg: &[u8], header: &Header, grid: &McuGrid, points: &[EntryPoint]) -> Option<Vec<u8>> {
    let a_row = grid.columns.div_ceil(grid.step()) as usize;
    let (end, points) = points.split_last().filter(|(_, points)| points.len() == grid.rows as usize * a_row)?;
    let packed = (0..10).map(|doublings| 1 << doublings).find_map(|times| {
        let fewer = points.chunks(a_row).flat_map(|row| row.iter().step_by(times)).chain([end]).copied();
        let step = (grid.step() * times as u32).min(grid.columns);
        let packed = to_bytes(&fewer.collect::<Vec<_>>(), step, grid, header.scan_offset_bytes);
        (2 + POINTS_SIGNATURE.len() + packed.len() <= MAX_SEGMENT_BYTES).then_some(packed)
    })?;
    with_segment(jpeg, header, &packed)
}

/// Puts points in the form of `entry_point_bytes` into an image. `None` if a segment does not hold them.
pub(super) fn with_segment(jpeg: &[u8], header: &Header, packed: &[u8]) -> Option<Vec<u8>> {
    let len = u16::try_from(2 + POINTS_SIGNATURE.len() + packed.len()).ok()?;
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
    Some([front, &[0xFF, INDEX_MARKER], &len.to_be_bytes(), POINTS_SIGNATURE, packed, rest].concat())
}

/// The image without its own points.
pub(super) fn without_points(jpeg: &[u8], header: &Header) -> Option<Vec<u8>> {
    let range = header.packed_points.clone()?;
    let start = range.start.checked_sub(SEGMENT_HEAD_BYTES + POINTS_SIGNATURE.len())?;
    Some([jpeg.get(..start)?, jpeg.get(range.end..)?].concat())
}
