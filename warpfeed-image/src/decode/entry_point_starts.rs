//! Starts between entry points: bits at which an MCU begins, for a decoder with many threads, for which entry points
//! are too far apart. A start has no DC coefficients, which would take most of the bytes: a device sums them up from
//! the entry point before.
//!
//! Numbers are those of `entry_point_bytes`. First comes the number of bits of a part (about [`START_BITS`]). Each row
//! of MCUs begins with the number of its bytes. The number of starts between two entry points follows from their
//! distance. A start is a number: the difference of its bit to the place that divides the distance evenly, with the
//! sign in the lowest bit, and below it the number of MCUs since the start before. If that is 0, there is no such
//! start. A start takes 2 bytes.

use super::entry_point_bytes::{put, take};
use super::entry_points::{EntryPoint, ImageEntryPoints, McuGrid};
use std::ops::Range;

/// Number of bits from one start to the next, on average. With it, starts and entry points take a fortieth of a
/// photograph's bytes. kernels/README.md in the repository has the times for it.
pub(super) const START_BITS: u32 = 1000;

/// A place at which an MCU begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// Number of the MCU in its row.
    pub column: u32,
    /// Bit in the file, as in an entry point.
    pub bit: u32,
}

/// The even division of the data between two entry points into parts.
struct Parts {
    count: u32,
    first_bit: u32,
    part_bits: u32,
}

impl Parts {
    /// The division into parts of about `bits` bits.
    fn new(bits: u32, point: EntryPoint, next: EntryPoint) -> Self {
        let distance = next.bit.saturating_sub(point.bit);
        let count = (distance.saturating_add(bits / 2) / bits.max(1)).max(1);
        Self { count, first_bit: point.bit, part_bits: distance / count }
    }

    /// The places at which parts begin, without the first.
    fn places(&self) -> impl Iterator<Item = u32> {
        let Self { count, first_bit, part_bits } = *self;
        (1..count).map(move |part| first_bit.saturating_add(part.saturating_mul(part_bits)))
    }
}

/// Number of bits for the number of MCUs between two starts, which is below `step`.
fn column_bits(step: u32) -> u32 {
    u32::BITS - (step.max(1) - 1).leading_zeros()
}

/// Chooses starts for whole rows of MCUs and writes them. `mcus` are the bits of all MCUs, row by row, and of the end
/// of the last row; `points` are the entry points of these rows, `step` MCUs apart, and of the end.
pub(super) fn to_bytes(mcus: &[u32], points: &[EntryPoint], grid: &McuGrid, step: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(mcus.len());
    put(&mut bytes, START_BITS);
    let (mut pairs, bits) = (points.windows(2), column_bits(step));
    let mut row_bytes = Vec::new();
    let (_, mcus) = mcus.split_last().unwrap_or((&0, &[]));
    for row in mcus.chunks_exact(grid.columns as usize) {
        row_bytes.clear();
        for (stretch, pair) in row.chunks(step as usize).zip(&mut pairs) {
            let [point, next] = [pair[0], pair[1]];
            let mut last = 0;
            for place in Parts::new(START_BITS, point, next).places() {
                // The nearest MCU after the last start.
                let after = last + 1 + stretch[last + 1..].partition_point(|&bit| bit < place);
                let before = (after - 1).max(last + 1);
                let distance = |at: usize| stretch.get(at).map_or(u32::MAX, |bit| bit.abs_diff(place));
                let nearest = if distance(before) < distance(after) { before } else { after };
                let Some(&bit) = stretch.get(nearest) else {
                    put(&mut row_bytes, 0);
                    continue;
                };
                let difference = bit.wrapping_sub(place) as i32;
                put(
                    &mut row_bytes,
                    (((difference << 1) ^ (difference >> 31)) as u32) << bits | (nearest - last) as u32,
                );
                last = nearest;
            }
        }
        put(&mut bytes, row_bytes.len() as u32);
        bytes.extend(&row_bytes);
    }
    bytes
}

/// Reads the starts of some rows of MCUs. Calls `found` with the number of the entry point before, or with the entry
/// point's own start first, in the order of the data. `None` if they cannot be those of an image with these points.
pub(super) fn each(
    entries: &ImageEntryPoints,
    grid: &McuGrid,
    rows: Range<u32>,
    mut found: impl FnMut(usize, Start),
) -> Option<()> {
    let ImageEntryPoints { points, step, a_row, starts, .. } = entries;
    let bits = column_bits(*step);
    let mut rest = &starts[..];
    let part_bits = if rest.is_empty() { u32::MAX } else { take(&mut rest)? };
    for row in 0..rows.end {
        let mut row_bytes: &[u8] = &[];
        if !starts.is_empty() {
            let len_bytes = take(&mut rest)? as usize;
            (row_bytes, rest) = rest.split_at_checked(len_bytes)?;
        }
        if row < rows.start {
            continue;
        }
        for number in 0..*a_row {
            let at = (row * a_row + number) as usize;
            let (point, next) = (*points.get(at)?, *points.get(at + 1)?);
            let mut start = Start { column: number * step, bit: point.bit };
            let end = (start.column + step).min(grid.columns);
            found(at, start);
            for place in Parts::new(part_bits, point, next).places() {
                let value = take(&mut row_bytes)?;
                let (difference, mcus) = (value >> bits, value & ((1 << bits) - 1));
                if mcus == 0 {
                    continue;
                }
                let bit = place.checked_add_signed((difference >> 1) as i32 ^ -((difference & 1) as i32))?;
                let column = start.column + mcus;
                if bit <= start.bit || bit >= next.bit || column >= end {
                    return None;
                }
                start = Start { column, bit };
                found(at, start);
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raster::Size;
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    /// Bits of MCUs of different sizes: all, and of the entry points among them.
    fn mcus(rng: &mut ChaCha8Rng, grid: &McuGrid, step: u32) -> (Vec<u32>, ImageEntryPoints) {
        let mut bit = 5000;
        let most = rng.random_range(2..3000);
        let mut entries = ImageEntryPoints::default();
        entries.reset(grid.columns, step);
        let mut mcus = Vec::new();
        for number in 0..=grid.columns * grid.rows {
            if (number % grid.columns).is_multiple_of(step) {
                entries.points.push(EntryPoint { bit, ..EntryPoint::default() });
            }
            mcus.push(bit);
            bit += rng.random_range(1..most);
        }
        entries.settle();
        (mcus, entries)
    }

    #[test]
    fn starts_are_mcus_that_divide_the_data_evenly() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..100 {
            let mcu = Size { width: 8, height: 8 };
            let (columns, rows) = (rng.random_range(1..60), rng.random_range(1..20));
            let grid = McuGrid { mcu, columns, rows, components: 3 };
            let step = rng.random_range(1..=grid.columns.min(16));
            let (mcus, mut entries) = mcus(&mut rng, &grid, step);
            entries.starts = to_bytes(&mcus, &entries.points, &grid, step);
            let first_row = rng.random_range(0..rows);
            let mut found = Vec::new();
            each(&entries, &grid, first_row..rows, |at, start| {
                let row = at as u32 / entries.a_row;
                found.push((row, start.column));
                assert_eq!(mcus[(row * columns + start.column) as usize], start.bit);
            })
            .unwrap();
            assert!(found.is_sorted() && found.windows(2).all(|pair| pair[0] != pair[1]));
            let all = |row: u32| (0..columns).map(move |column| (row, column));
            let bit = |(row, column): (u32, u32)| mcus[(row * columns + column) as usize];
            for pair in found.windows(2) {
                // More than one MCU only if a start between them would not halve a distance above that of starts.
                let between = all(pair[0].0).filter(|mcu| (pair[0]..pair[1]).contains(mcu)).count();
                let largest = mcus.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
                assert!(between < 2 || bit(pair[1]) - bit(pair[0]) <= 3 * START_BITS / 2 + 2 * largest);
            }
        }
    }

    #[test]
    fn other_bytes_are_refused_or_are_starts_between_the_points() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let grid = McuGrid { mcu: Size { width: 8, height: 8 }, columns: 40, rows: 9, components: 3 };
        let (mcus, mut entries) = mcus(&mut rng, &grid, 16);
        let right = to_bytes(&mcus, &entries.points, &grid, 16);
        let mut refused = 0;
        for _ in 0..2000 {
            entries.starts = right.clone();
            for _ in 0..3 {
                let at = rng.random_range(0..right.len());
                entries.starts[at] = rng.random();
            }
            let read = each(&entries, &grid, 0..9, |at, start| {
                let (point, next) = (entries.points[at], entries.points[at + 1]);
                assert!((point.bit..next.bit).contains(&start.bit) && start.column < 40);
            });
            refused += u32::from(read.is_none());
        }
        assert!(refused > 500, "{refused}");
    }
}
