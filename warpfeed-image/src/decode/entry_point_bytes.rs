//! Entry points as bytes: the form in which they are kept in memory, in files and in images.
//!
//! Numbers have 7 bits per byte, the lowest first; the highest bit is set if more bytes follow. First comes the number
//! of MCUs from one point to the next; then for each point its bit, as the difference to the point before, and each
//! component's DC coefficient, as the difference to the point above. A difference that may be negative has its sign in
//! the lowest bit. The first bit counts from the beginning of the data; above the first row all coefficients are 0. A
//! zero in place of the first number says that starts for a device follow (`entry_point_starts`), and then comes the
//! number of bytes before them.

use super::entry_points::{EntryPoint, ImageEntryPoints, McuGrid};

/// Writes points that are `step` MCUs apart, of an image whose data begin at the byte `scan_offset_bytes`.
pub(super) fn to_bytes(points: &[EntryPoint], step: u32, grid: &McuGrid, scan_offset_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 * points.len() + 3);
    put(&mut bytes, step);
    let first_row = [[0; 4]].into_iter().cycle().take(grid.columns.div_ceil(step) as usize);
    let above = first_row.chain(points.iter().map(|point| point.dc));
    let mut last_bit = 8 * scan_offset_bytes as u32;
    for (point, above) in points.iter().zip(above) {
        put(&mut bytes, point.bit.wrapping_sub(last_bit));
        for (&dc, above) in point.dc.iter().zip(above).take(grid.components) {
            let difference = i32::from(dc) - i32::from(above);
            put(&mut bytes, ((difference << 1) ^ (difference >> 31)) as u32);
        }
        last_bit = point.bit;
    }
    bytes
}

/// Puts starts after the points that [`to_bytes`] has written.
pub(super) fn with_starts(points: &[u8], starts: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    put(&mut bytes, points.len() as u32);
    [&bytes, points, starts].concat()
}

/// Reads what [`to_bytes`] or [`with_starts`] has written. `None` if the bytes cannot be the points of such an image.
pub(super) fn from_bytes(
    mut bytes: &[u8],
    grid: &McuGrid,
    scan_offset_bytes: usize,
    entries: &mut ImageEntryPoints,
) -> Option<()> {
    let mut starts: &[u8] = &[];
    let mut step = take(&mut bytes)?;
    if step == 0 {
        let len_bytes = take(&mut bytes)? as usize;
        (bytes, starts) = bytes.split_at_checked(len_bytes)?;
        step = take(&mut bytes)?;
    }
    if step == 0 || step > grid.columns {
        return None;
    }
    entries.reset(grid.columns, step);
    entries.starts.extend_from_slice(starts);
    let most = grid.rows as usize * entries.a_row as usize + 1;
    let mut bit = u32::try_from(8 * scan_offset_bytes).ok()?;
    while !bytes.is_empty() {
        bit = bit.checked_add(take(&mut bytes)?)?;
        let above = entries.points.len().checked_sub(entries.a_row as usize);
        let mut dc = above.map_or([0; 4], |above| entries.points[above].dc);
        for dc in dc.iter_mut().take(grid.components) {
            let difference = take(&mut bytes)?;
            let difference = (difference >> 1) as i32 ^ -((difference & 1) as i32);
            *dc = i32::from(*dc).checked_add(difference)?.try_into().ok()?;
        }
        if entries.points.len() == most {
            return None;
        }
        entries.points.push(EntryPoint { bit, dc });
    }
    entries.settle();
    Some(())
}

/// Writes a number.
pub(super) fn put(bytes: &mut Vec<u8>, mut number: u32) {
    while number > 0x7F {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a number.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return number.try_into().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raster::Size;
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    const GRID: McuGrid = McuGrid { mcu: Size { width: 16, height: 16 }, columns: 20, rows: 9, components: 3 };

    #[test]
    fn points_come_back_from_their_bytes() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for round in 0..200 {
            let step = rng.random_range(1..=20);
            let mut bit = 8 * 600 + rng.random_range(0..8);
            let count = if round == 0 { 0 } else { rng.random_range(0..=9 * 20_u32.div_ceil(step) as usize + 1) };
            let points: Vec<_> = (0..count)
                .map(|_| {
                    let digits = rng.random_range(1..24);
                    bit += rng.random_range(0..1 << digits);
                    EntryPoint { bit, dc: [rng.random(), rng.random(), rng.random_range(-2..2), 0] }
                })
                .collect();
            let bytes = to_bytes(&points, step, &GRID, 600);
            let mut entries = ImageEntryPoints::default();
            from_bytes(&bytes, &GRID, 600, &mut entries).unwrap();
            assert_eq!((entries.points, entries.step), (points, step));
        }
    }

    #[test]
    fn other_bytes_are_refused_or_are_no_more_points_than_the_image_has() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let mut entries = ImageEntryPoints::default();
        let mut refused = 0;
        for _ in 0..2000 {
            let len = rng.random_range(0..400);
            let bytes: Vec<u8> = (0..len).map(|_| rng.random::<u8>() & 0x9F).collect();
            if from_bytes(&bytes, &GRID, 600, &mut entries).is_none() {
                refused += 1;
            } else {
                assert!(entries.points.len() <= 9 * 20 + 1 && entries.rows <= 9);
            }
        }
        assert!((1000..2000).contains(&refused), "{refused}");
        // One more point than the image can have.
        let bytes = to_bytes(&[EntryPoint::default(); 9 + 2], 20, &GRID, 0);
        assert!(from_bytes(&bytes, &GRID, 0, &mut entries).is_none());
    }
}
