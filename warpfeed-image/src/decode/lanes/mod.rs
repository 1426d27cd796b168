//! Entropy decoding of 32 stretches of an image at a time, with AVX-512 or AVX2.
//!
//! A decoder waits for the length of one code before it can look up the next, and for branches. So each lane walks
//! through a stretch between entry points, and all lanes execute the same instructions: a look-up is one load from the
//! data and one from the tables for each lane, and the end of a block is a blend. Only codes of more than [`LOOK_BITS`]
//! bits are looked up one by one. If a stretch does not end where the next one begins, the entry points belong to other
//! data, and the image is decoded from its start. This file does not depend on the vectors' instructions.
#![allow(unsafe_code)]

mod find;
mod x86;
mod x86_avx2;
mod x86_avx512;
mod x86_find_avx2;
mod x86_find_avx512;
mod x86_idct;
mod x86_shorts;

use super::Header;
use super::baseline::Baseline;
use super::entry_points::{EntryPoint, ImageEntryPoints, McuGrid};
use super::huffman::Code;
use crate::raster::{Rect, Size};
use find::Finder;
pub(super) use find::find;
use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use x86::Vectors;

/// Bits of a look-up. Tables then have 4 kB each, and the four or six tables in use stay in the first level of cache
/// together with the data.
const LOOK_BITS: u32 = 11;
/// Number of blocks that are decoded before any are used, unless a row of MCUs has more. They take 1 MiB.
const BAND_BLOCKS: usize = 1 << 13;
/// Number of stretches below which decoding one after the other is as fast.
const MIN_STRETCHES: u32 = 8;
/// Upper bound of a block's data in bytes: codes, coefficients and stuffing. Longer data cannot be a block.
const MAX_BLOCK_BYTES: usize = 64 * 8;
/// Number of bytes that may be read after the data, and that may be written after the data while they are prepared.
const PAD_BYTES: usize = 64;
/// Number by which the end of a block advances the index. A DC coefficient advances it by the same number, from
/// [`BEFORE_DC`] to 0.
const END_OF_BLOCK: u16 = 64;
const BEFORE_DC: i32 = -64;

/// The data between two entry points, or the first part of them.
#[derive(Debug, Clone, Copy)]
struct LaneStretch {
    /// Bit at which the stretch's data start, in memory without stuffed bytes.
    bit: u32,
    /// Upper bound of the bit at which the last MCU ends; it may end up to `padding_bits` earlier. `None` if the
    /// stretch is not decoded to its end.
    end_bit: Option<u32>,
    padding_bits: u32,
    len_bytes: u32,
    /// Place of the stretch's first block. `end` is one past the last block.
    start: u32,
    end: u32,
    dc: [i16; 4],
    /// The last DC coefficients after the stretch, if they must be right.
    end_dc: Option<[i16; 4]>,
}

/// Coefficients at their places, row by row.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct DctBlock([i16; 64]);

/// Memory for decoding with lanes, which is reused for the next image.
pub(super) struct Lanes {
    vectors: Vectors,
    /// The DC code and the AC code of each component of the last image. `tables` has a table of [`LOOK_BITS`] for each
    /// code.
    codes: Vec<Code>,
    tables: Vec<u16>,
    /// For each component: the first component with the same codes, whose tables it uses. They stay in the cache.
    same: Vec<usize>,
    /// Component of each block of an MCU.
    components: Vec<usize>,
    planes: Vec<PlaneLayout>,
    /// Entropy-coded data, without stuffed bytes.
    data: Vec<u8>,
    stretches: Vec<LaneStretch>,
    blocks: Vec<DctBlock>,
    finder: Finder,
}

/// A component's samples.
struct PlaneLayout {
    /// Columns and rows of blocks in an MCU, and the number of blocks of other components before them in the MCU.
    columns: usize,
    rows: usize,
    before: usize,
    /// Size of the component's plane, in blocks.
    width: usize,
    height: usize,
    quant: [u16; 64],
}

/// An image that is decoded with lanes.
pub(super) struct LanesJob<'a> {
    lanes: &'a mut Lanes,
    bytes: &'a [u8],
    entries: &'a ImageEntryPoints,
    columns: u32,
    /// The row after the last row of MCUs that is expected to be needed.
    end_row: u32,
    /// The rows whose blocks are decoded.
    band: Range<u32>,
    /// The beginning of the data, if the entry points may be anybody's and have to be checked.
    unchecked: Option<ScanStart>,
}

/// The beginning of an image's data, from which entry points are checked.
#[derive(Clone, Copy)]
struct ScanStart {
    bit: u32,
    /// Rows of MCUs from one restart marker to the next; 0 without restarts.
    restart_rows: u32,
}

/// `wf_decode_row` in `jpeg.c`.
///
/// # Safety
/// `context` must be a [`LanesJob`] that is not used elsewhere. `planes` must point to the rows of samples of each
/// component. Each row must have room for the image's blocks from the first column on.
pub(super) unsafe extern "C" fn decode_row(
    context: *mut c_void,
    row: u32,
    first_column: u32,
    columns: u32,
    planes: *const *const *mut u8,
) -> i32 {
    // SAFETY: as promised by the caller.
    let job = unsafe { &mut *context.cast::<LanesJob<'_>>() };
    let decoded = || {
        job.reach(row, first_column, columns)?;
        // SAFETY: as promised by the caller.
        unsafe { job.transform(row, first_column, columns, planes) };
        Some(())
    };
    // No panic may leave a function that C has called.
    catch_unwind(AssertUnwindSafe(decoded)).ok().flatten().is_some().into()
}

/// Whether a part has enough stretches for decoding with lanes to pay, if entry points are `step` MCUs apart.
pub(super) fn pays(grid: &McuGrid, part: Rect, step: u32) -> bool {
    part.height.div_ceil(grid.mcu.height) * part.width.div_ceil(step * grid.mcu.width) >= MIN_STRETCHES
}

impl Lanes {
    /// Memory for lanes. `None` if the processor lacks the instructions.
    pub(super) fn new() -> Option<Self> {
        Vectors::best().map(Self::on)
    }

    /// Memory for lanes that use AVX2. `None` if the processor lacks it.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn with_avx2() -> Option<Self> {
        crate::simd::has_avx2().then(|| Self::on(Vectors::Avx2))
    }

    /// Has entry points be found in small images too.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn find_in_small_images(&mut self) {
        (self.finder.bytes_a_block, self.finder.stretch_bytes) = (1, 8);
    }

    /// Memory for lanes that run on these vectors.
    fn on(vectors: Vectors) -> Self {
        Self {
            vectors,
            codes: Vec::new(),
            tables: Vec::new(),
            same: Vec::new(),
            components: Vec::new(),
            planes: Vec::new(),
            data: Vec::new(),
            stretches: Vec::new(),
            blocks: Vec::new(),
            finder: Finder::default(),
        }
    }

    /// Makes the tables for an image. `None` if lanes cannot decode the image.
    fn make_tables(&mut self, bytes: &[u8], header: &Header) -> Option<()> {
        let image = Baseline::new(bytes, header).ok()?;
        let mut before = 0;
        self.planes.clear();
        self.planes.extend(image.components.iter().map(|component| {
            let (columns, rows) = (component.columns as usize, component.rows as usize);
            let (wide, high) = image.pixels_a_sample(component);
            let Size { width, height } = image.size;
            let (width, height) = (width.div_ceil(8 * wide) as usize, height.div_ceil(8 * high) as usize);
            let plane = PlaneLayout { columns, rows, before, width, height, quant: component.quant };
            before += columns * rows;
            plane
        }));
        let codes = image.components.into_iter().flat_map(|component| [component.dc, component.ac]);
        for (number, code) in codes.enumerate() {
            if self.codes.get(number).is_some_and(|last| *last == code) {
                continue;
            }
            let start = number << LOOK_BITS;
            self.tables.resize(self.tables.len().max(start + (1 << LOOK_BITS) + 2), 0);
            make_table(&code, number % 2 == 1, &mut self.tables[start..start + (1 << LOOK_BITS)]);
            if number < self.codes.len() { self.codes[number] = code } else { self.codes.push(code) }
        }
        let codes = |component: usize| &self.codes[2 * component..2 * component + 2];
        self.same.clear();
        self.same
            .extend((0..self.planes.len()).map(|component| {
                (0..component).find(|&before| codes(before) == codes(component)).unwrap_or(component)
            }));
        self.components = image.block_components;
        Some(())
    }
}

/// The number by which a symbol advances the index.
fn advance(symbol: u8, is_ac: bool) -> u16 {
    if !is_ac || (symbol & 15 == 0 && symbol != 0xF0) { END_OF_BLOCK } else { u16::from(symbol >> 4) + 1 }
}

/// The table entry for bits that begin with a code. From the low end: 5 bits for the length of code and coefficient
/// together, 4 for the coefficient's length, 7 for the number by which the index advances.
fn entry(len: u32, symbol: u8, is_ac: bool) -> u16 {
    let size = u16::from(symbol & 15);
    (len as u16 + size) | size << 5 | advance(symbol, is_ac) << 9
}

/// Fills a table. An entry is 0 if the code is longer than the look-up, or if the four bytes that a lane reads may not
/// hold the code and its coefficient.
fn make_table(code: &Code, is_ac: bool, table: &mut [u16]) {
    table.fill(0);
    let mut next = 0;
    for len in 1..=LOOK_BITS {
        next <<= 1;
        let end = code.end[len as usize];
        if end == 0 {
            continue;
        }
        for value in next..end {
            let symbol = code.symbols[(value as i32 + code.first[len as usize]) as usize & 255];
            if len + u32::from(symbol & 15) <= 25 {
                let room = 1 << (LOOK_BITS - len);
                table[value as usize * room..][..room].fill(entry(len, symbol, is_ac));
            }
        }
        next = end;
    }
}

impl<'a> LanesJob<'a> {
    /// Prepares an image. `None` if lanes cannot decode it, or if the part has too few entry points to pay.
    pub(super) fn begin(
        lanes: &'a mut Lanes,
        bytes: &'a [u8],
        header: &Header,
        entries: &'a ImageEntryPoints,
        grid: &McuGrid,
        part: Rect,
        are_trusted: bool,
    ) -> Option<Self> {
        pays(grid, part, entries.step).then_some(())?;
        lanes.make_tables(bytes, header)?;
        let start = ScanStart {
            bit: u32::try_from(8 * header.scan_offset_bytes).ok()?,
            restart_rows: u32::from(header.restart_interval_mcus) / grid.columns,
        };
        let end_row = grid.rows_needed(part);
        let unchecked = (!are_trusted).then_some(start);
        Some(Self { lanes, bytes, entries, columns: grid.columns, end_row, band: 0..0, unchecked })
    }

    /// Makes sure that the blocks of a row are decoded. Rows are asked for from top to bottom.
    ///
    /// Checks untrusted entry points from the beginning of the data on: the first must be there, and each stretch must
    /// end at the bit, and with the DC coefficients, with which the next one begins. There may be no markers between
    /// them but those that are due. So all of them are places that a decoder comes to from the front.
    fn reach(&mut self, row: u32, first_column: u32, columns: u32) -> Option<()> {
        while !self.band.contains(&row) {
            let next = if self.unchecked.is_some() { self.band.end } else { row };
            if next > row {
                return None;
            }
            self.band = next..next + self.decode(next, first_column, columns)?;
        }
        Some(())
    }

    /// The row after the last decoded one. If the entry points had to be checked, those before it are right.
    pub(super) fn decoded_rows(&self) -> u32 {
        self.band.end
    }

    /// The columns of MCUs that are decoded of each row: from the entry point before the first needed column on, or all
    /// of them if the entry points must be checked.
    fn decoded_columns(&self, first_column: u32, columns: u32) -> Range<u32> {
        match self.unchecked {
            None => first_column - first_column % self.entries.step..first_column + columns,
            Some(_) => 0..self.columns,
        }
    }

    /// Decodes the blocks of several rows of MCUs, starting with `row`. Returns the number of rows. `None` if they
    /// cannot be decoded from the entry points.
    fn decode(&mut self, row: u32, first_column: u32, columns: u32) -> Option<u32> {
        let ImageEntryPoints { points, step, a_row, rows, .. } = self.entries;
        if row >= *rows || columns == 0 || first_column + columns > self.columns {
            return None;
        }
        let needed = self.decoded_columns(first_column, columns);
        let Self { lanes, bytes, unchecked, .. } = self;
        let in_mcu = lanes.components.len();
        let from = needed.start / step;
        let stride = needed.len() * in_mcu;
        let rows = self.end_row.max(row + 1).min(*rows) - row;
        let rows = rows.min((BAND_BLOCKS / stride).max(1) as u32);
        lanes.data.clear();
        lanes.stretches.clear();
        for r in 0..rows {
            let mut column = from * step;
            let mut start = r as usize * stride;
            for number in from..needed.end.div_ceil(*step) {
                let at = ((row + r) * a_row + number) as usize;
                let (point, next) = (*points.get(at)?, *points.get(at + 1)?);
                let whole = (column + step).min(self.columns);
                let end_column = whole.min(needed.end);
                let end = start + (end_column - column) as usize * in_mcu;
                let bit = u32::try_from(8 * lanes.data.len()).ok()?;
                let taken = point.bit % 8;
                let max_len = (whole - column) as usize * in_mcu * MAX_BLOCK_BYTES;
                let mut boundary = Boundary { padding_bits: 7, end_dc: None };
                if let Some(start) = unchecked {
                    if row + r == 0 && number == 0 && (point.bit, point.dc) != (start.bit, [0; 4]) {
                        return None;
                    }
                    let ended_rows =
                        if whole == self.columns && row + r + 1 < self.entries.rows { row + r + 1 } else { 0 };
                    boundary = start.check(bytes, point, next, ended_rows)?;
                }
                let end_bit = append(bytes, point, next, max_len, lanes.vectors, &mut lanes.data)?;
                lanes.stretches.push(LaneStretch {
                    bit: bit + taken,
                    end_bit: (end_column == whole).then_some(end_bit),
                    padding_bits: boundary.padding_bits,
                    len_bytes: (lanes.data.len() - bit as usize / 8) as u32,
                    start: start as u32,
                    end: end as u32,
                    dc: point.dc,
                    end_dc: boundary.end_dc,
                });
                (column, start) = (end_column, end);
            }
        }
        lanes.data.resize(lanes.data.len() + PAD_BYTES, 0);
        let len = rows as usize * stride;
        lanes.blocks.clear();
        lanes.blocks.try_reserve(len + 1).ok()?;
        // One more block, for lanes that have nothing to do.
        lanes.blocks.resize(len + 1, DctBlock([0; 64]));
        lanes.stretches.sort_unstable_by_key(|stretch| std::cmp::Reverse(stretch.len_bytes));
        lanes.run()?;
        lanes.sum_dc()?;
        Some(rows)
    }
}

/// Required end of a stretch.
struct Boundary {
    padding_bits: u32,
    end_dc: Option<[i16; 4]>,
}

impl ScanStart {
    /// Checks the data between two entry points for markers. Returns how they must end. `ended_rows` is the number of
    /// rows before `next`, or 0 if `next` is not the beginning of a row. `None` if a decoder would not come from one
    /// point to the other.
    fn check(self, bytes: &[u8], point: EntryPoint, next: EntryPoint, ended_rows: u32) -> Option<Boundary> {
        let end = (next.bit as usize).div_ceil(8);
        let is_due = self.restart_rows > 0 && ended_rows > 0 && ended_rows.is_multiple_of(self.restart_rows);
        let (data_end, boundary) = if is_due {
            let marker = [0xFF, 0xD0 + (ended_rows / self.restart_rows - 1) as u8 % 8];
            let at = end.checked_sub(2)?;
            if !next.bit.is_multiple_of(8) || next.dc != [0; 4] || *bytes.get(at..end)? != marker {
                return None;
            }
            (at, Boundary { padding_bits: 7, end_dc: None })
        } else {
            // A zero after 0xFF is not data.
            if bytes.get(next.byte().checked_sub(1)?)? == &0xFF {
                return None;
            }
            (end, Boundary { padding_bits: 0, end_dc: Some(next.dc) })
        };
        let data = bytes.get(point.byte()..data_end)?;
        let is_stuffed = |at: usize| bytes.get(point.byte() + at + 1) == Some(&0);
        memchr::memchr_iter(0xFF, data).all(is_stuffed).then_some(boundary)
    }
}

/// Appends the data between two entry points, without stuffed bytes. Returns the bit at which they end.
fn append(
    bytes: &[u8],
    point: EntryPoint,
    next: EntryPoint,
    max_len: usize,
    vectors: Vectors,
    data: &mut Vec<u8>,
) -> Option<u32> {
    let mut end = next.byte();
    let taken = next.bit % 8;
    if taken != 0 {
        end += 1;
    } else if matches!(bytes.get(end.checked_sub(2)?..end)?, [0xFF, 0xD0..=0xD7]) {
        end -= 2;
    }
    let from = bytes.get(point.byte()..end).filter(|from| from.len() <= max_len)?;
    data.try_reserve(from.len() + PAD_BYTES).ok()?;
    vectors.unstuff(from, data);
    u32::try_from(8 * data.len()).ok()?.checked_sub((8 - taken) % 8)
}

impl Lanes {
    /// The entry of a code that its table does not have, and the 32 bits that begin with this code. `None` if there is
    /// no such code.
    #[cold]
    fn look_further(&self, bit: u32, base: u32) -> Option<(u16, u32)> {
        let number = (base >> LOOK_BITS) as usize;
        let bytes = self.data.get(bit as usize / 8..)?.first_chunk::<8>()?;
        let bits = u64::from_be_bytes(*bytes) << (bit % 8);
        let (len, symbol) = self.codes.get(number)?.symbol(bits)?;
        Some((entry(len, symbol, number % 2 == 1), (bits >> 32) as u32))
    }

    /// Converts the DC coefficients from differences to values. `None` if a stretch does not end with those that it
    /// should end with.
    fn sum_dc(&mut self) -> Option<()> {
        for stretch in &self.stretches {
            let mut dc = stretch.dc.map(i32::from);
            for mcu in self.blocks[stretch.start as usize..stretch.end as usize].chunks_exact_mut(self.components.len())
            {
                for (DctBlock(block), &component) in mcu.iter_mut().zip(&self.components) {
                    let dc = &mut dc[component & 3];
                    *dc = dc.wrapping_add(block[0].into());
                    block[0] = *dc as i16;
                }
            }
            if stretch.end_dc.is_some_and(|end_dc| end_dc.map(i32::from) != dc) {
                return None;
            }
        }
        Some(())
    }
}
