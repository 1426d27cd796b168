//! The part of an image that a device reads to decode a rectangle.

use super::Header;
use super::baseline::Baseline;
use super::entry_points::McuGrid;
use super::restarts::row_starts;
use crate::raster::Rect;
use std::ops::Range;

/// The part of an image that a rectangle needs.
#[derive(Debug)]
pub struct DecodeWindow {
    /// Columns of the MCUs whose samples are needed.
    pub columns: Range<u32>,
    /// Rows of the MCUs whose samples are needed.
    pub rows: Range<u32>,
    /// The blocks of the scan whose codes must be good: all blocks that the CPU may decode.
    pub checked: Range<usize>,
    /// The entropy-coded data of these blocks, as a range of the file. Without an index of rows they extend to the end
    /// of the data.
    pub data: Range<usize>,
    /// The number of the first restart marker in the data.
    pub first_restart: u32,
}

impl DecodeWindow {
    /// The window for `part`, which lies inside the image. `starts` is memory for an index of rows.
    #[must_use]
    pub fn new(image: &Baseline, bytes: &[u8], header: &Header, part: Rect, starts: &mut Vec<usize>) -> Self {
        let mut window = Self::from_front(image, bytes.len(), part);
        let has_rest = McuGrid::new(header).is_some_and(|grid| grid.has_rest(part));
        if has_rest && row_starts(bytes, header, starts) {
            let Range { start, end } = window.rows;
            let row_blocks = image.mcu_columns as usize * image.mcu_blocks();
            window.checked = start as usize * row_blocks..end as usize * row_blocks;
            window.data = starts[start as usize]..starts.get(end as usize).copied().unwrap_or(bytes.len());
            window.first_restart = start;
        }
        window
    }

    /// The window for `part` if nothing is known about the places of rows.
    pub(super) fn from_front(image: &Baseline, len_bytes: usize, part: Rect) -> Self {
        // Interpolation needs one chroma sample on either side; a margin of one pixel reaches it.
        let margins = image.components.iter().map(|component| image.pixels_a_sample(component));
        let (mut right, mut below) = (0, 0);
        for (columns, rows) in margins {
            right = right.max(u32::from(columns > 1));
            below = below.max(u32::from(rows > 1));
        }
        let mcus = |start: u32, end: u32, margin: u32, side: u32, count: u32| {
            start.saturating_sub(margin) / side..(end + margin).div_ceil(side).min(count)
        };
        let columns = mcus(part.x, part.right(), right, image.mcu.width, image.mcu_columns);
        let rows = mcus(part.y, part.bottom(), below, image.mcu.height, image.mcu_rows);
        let at_once = image.mcu_rows_at_once;
        let checked_rows = (rows.end.next_multiple_of(at_once) + at_once).min(image.mcu_rows);
        let checked = 0..checked_rows as usize * image.mcu_columns as usize * image.mcu_blocks();
        let data = image.scan_offset_bytes..len_bytes;
        Self { columns, rows, checked, data, first_restart: 0 }
    }

    /// Number of MCUs in the window.
    #[must_use]
    pub fn mcus(&self) -> usize {
        self.columns.len() * self.rows.len()
    }
}
