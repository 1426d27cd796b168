//! The device's JPEG decoder as plain code: what each kernel computes, and what it is tested against.
//!
//! A step is a function in a file of its own:
//!
//!     unstuff -> synchronize -> coefficients -> dc -> idct -> rgb
//!
//! The pixels are the CPU decoder's, or the image is flagged with a [`Reason`], and the CPU decodes it. So a step never
//! repairs anything. It flags whatever might make the CPU's decoder, which is strict here, refuse the image or go another
//! way. The CPU decodes from the scan's start down to one row of MCUs below the rectangle, so damage is looked for there.
//! Of an image with an index of its rows only the rows that are needed are read.

mod coefficients;
mod dc;
mod idct;
mod rgb;
mod synchronize;
#[cfg(test)]
mod tests;
mod unstuff;
mod walk;

use super::baseline::{Baseline, Reason};
use super::{Header, row_starts};
use crate::raster::{Image, Rect};
use coefficients::coefficients;
use std::ops::Range;
use unstuff::unstuff;

/// Decodes the rectangle `part`, which lies inside the image. `header` is what [`probe`](super::probe()) gave.
pub(crate) fn decode(bytes: &[u8], header: &Header, part: Rect) -> Result<Image, Reason> {
    let image = Baseline::new(bytes, header)?;
    let mut window = Window::new(&image, part);
    let (mut data, mut first_restart) = (&bytes[image.scan_offset_bytes..], 0);
    let mut starts = Vec::new();
    if row_starts(bytes, header, &mut starts) {
        first_restart = window.rows.start;
        data = &bytes[starts[first_restart as usize]..];
        window.check(&image, window.rows.clone());
    }
    let restarts = (image.restart_interval_mcus > 0).then_some(first_restart);
    let scan = unstuff(data, restarts)?;
    let runs = match restarts {
        Some(_) => synchronize::at_restarts(&image, &scan, &window.checked),
        None => synchronize::synchronize(&image, &scan, window.checked.end)?,
    };
    let mut found = coefficients(&image, &scan, &runs, &window)?;
    dc::sum(&image, &mut found.dc);
    let planes = idct::planes(&image, &window, &found);
    Ok(rgb::rgb(&image, &planes, part))
}

/// What a rectangle needs of an image.
struct Window {
    /// The MCUs of which samples are needed.
    columns: Range<u32>,
    rows: Range<u32>,
    /// The blocks of the scan whose codes must be good: all that the CPU may decode.
    checked: Range<usize>,
}

impl Window {
    fn new(image: &Baseline, part: Rect) -> Self {
        // Interpolated chroma looks one chroma sample to either side, which one pixel reaches.
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
        let mut this = Self { columns, rows, checked: 0..0 };
        this.check(image, 0..checked_rows);
        this
    }

    /// Has the blocks of these rows of MCUs checked, and no others.
    fn check(&mut self, image: &Baseline, rows: Range<u32>) {
        let row_blocks = image.mcu_columns as usize * image.mcu_blocks();
        self.checked = rows.start as usize * row_blocks..rows.end as usize * row_blocks;
    }

    /// MCUs in the window.
    fn mcus(&self) -> usize {
        self.columns.len() * self.rows.len()
    }

    /// The window's number of an MCU of the scan; `None` for one outside.
    fn place(&self, image: &Baseline, mcu: usize) -> Option<usize> {
        let (row, column) = ((mcu / image.mcu_columns as usize) as u32, (mcu % image.mcu_columns as usize) as u32);
        (self.rows.contains(&row) && self.columns.contains(&column))
            .then(|| (row - self.rows.start) as usize * self.columns.len() + (column - self.columns.start) as usize)
    }
}
