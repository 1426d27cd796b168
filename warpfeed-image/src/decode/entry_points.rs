//! Entry points: places in the middle of a baseline JPEG's data at which decoding can begin.
//!
//! Codes have different lengths, and a DC coefficient is the difference to the one before, so a decoder has to walk
//! through all codes before a part. An entry point stores the result of this walk: the bit at which an MCU begins, and
//! each component's last DC coefficient there. There is one about every 128 pixels.

use super::Header;
use crate::raster::{Rect, Size};

/// Number of pixels from one entry point to the next, if the MCU's width divides it and the image is not narrower.
const STEP_PX: u32 = 128;
/// Largest size of a file, so that 32 bits can count the bits of its data.
pub(super) const MAX_BYTES: usize = 1 << 28;

/// `wf_entry_point` in `jpeg.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EntryPoint {
    /// Place of the next MCU's first bit: 8 times the offset of its byte in the file, plus its place in that byte,
    /// where 0 is the highest bit.
    pub bit: u32,
    /// Last DC coefficient of each component.
    pub dc: [i16; 4],
}

impl EntryPoint {
    /// Offset of the byte that contains the first bit.
    pub(super) fn byte(self) -> usize {
        (self.bit / 8) as usize
    }
}

/// Layout of an image's MCUs and entry points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct McuGrid {
    /// Size of an MCU in pixels.
    pub mcu: Size,
    pub columns: u32,
    pub rows: u32,
    pub components: usize,
}

impl McuGrid {
    /// The grid of an image. `None` if the image cannot have entry points.
    pub(super) fn new(header: &Header) -> Option<Self> {
        if !matches!(header.process, 0xC0 | 0xC1) {
            return None;
        }
        let components = usize::from(header.components);
        let factors = header.sampling.get(..components)?;
        let h = factors.iter().map(|&(h, _)| h).max()?;
        let v = factors.iter().map(|&(_, v)| v).max()?;
        // libjpeg decodes more than one MCU at a time for a single component with a sampling factor.
        if h == 0 || v == 0 || (components == 1 && (h, v) != (1, 1)) {
            return None;
        }
        let mcu = Size::new(8 * u32::from(h), 8 * u32::from(v));
        let Size { width, height } = header.full_size;
        let (columns, rows) = (width.div_ceil(mcu.width), height.div_ceil(mcu.height));
        Some(Self { mcu, columns, rows, components })
    }

    /// Number of MCUs from one learned entry point to the next.
    pub(super) fn step(&self) -> u32 {
        (STEP_PX / self.mcu.width).max(1).min(self.columns)
    }

    /// Largest number of points that are learned.
    pub(super) fn most_points(&self) -> usize {
        self.rows as usize * self.columns.div_ceil(self.step()) as usize + 1
    }

    /// Whether this rectangle allows skipping a whole row or column of MCUs. The neighboring row and column are needed
    /// to interpolate chroma.
    pub(super) fn has_rest(&self, part: Rect) -> bool {
        let Size { width, height } = self.mcu;
        part.y > height || part.x > width || part.right() + width < self.columns * width
    }

    /// The row after the last row of MCUs that libjpeg decodes for this rectangle. Interpolation needs one row of
    /// samples below.
    pub(super) fn rows_needed(&self, part: Rect) -> u32 {
        let margin = if self.mcu.height > 8 { self.mcu.height / 8 } else { 0 };
        (part.bottom() + margin).div_ceil(self.mcu.height).min(self.rows)
    }
}

/// Entry points of an image, row by row of MCUs, and one after the last MCU.
#[derive(Debug, Default)]
pub(super) struct ImageEntryPoints {
    pub points: Vec<EntryPoint>,
    /// Number of MCUs from one entry point to the next. Each row begins with an entry point.
    pub step: u32,
    /// Number of entry points in a row.
    pub a_row: u32,
    /// Number of whole rows before the last point.
    pub rows: u32,
    /// Starts between the points, as bytes of `entry_point_starts`. Empty if there are none.
    pub starts: Vec<u8>,
    /// Memory for reading the points from a file.
    pub buffer: Vec<u8>,
}

impl ImageEntryPoints {
    /// Removes all points, and prepares for an image with `columns` columns of MCUs.
    pub(super) fn reset(&mut self, columns: u32, step: u32) {
        self.points.clear();
        self.starts.clear();
        self.step = step;
        self.a_row = columns.div_ceil(step);
        self.rows = 0;
    }

    /// Counts the rows once all points are stored.
    pub(super) fn settle(&mut self) {
        self.rows = (self.points.len().saturating_sub(1) / self.a_row.max(1) as usize) as u32;
    }
}
