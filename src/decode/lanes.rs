//! Entropy decoding of 32 stretches of an image at a time, with AVX-512.
//!
//! A decoder spends its time waiting: for the length of one code before it can look up the next, and for branches that
//! cannot be predicted, such as the end of a block or a long code. Entry points give many places to begin at. So each
//! lane walks through a stretch of its own, and all lanes execute the same instructions: a look-up is one gather from
//! the data and one from the tables, and the end of a block is a blend. Only codes of more than [`LOOK_BITS`] bits are
//! looked up one by one.
//!
//! Each stretch must end where the next one begins. Otherwise the entry points belong to other data, and no result is
//! used.
#![allow(unsafe_code)]

use super::Header;
use super::baseline::{Baseline, ZIGZAG};
use super::entry_points::{Entries, EntryPoint, Grid};
use super::huffman::Code;
use super::idct::{Block, Steps, four_blocks};
use crate::raster::{Rect, Size};
use std::arch::x86_64::*;
use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Number of vectors of sixteen lanes. Their instructions alternate: while one vector waits for its gathers, the other
/// goes on.
const GROUPS: usize = 2;
const LANES: usize = 16 * GROUPS;
/// Bits of a look-up. Tables then have 4 kB each, and the four or six tables in use stay in the first level of cache
/// beside the data.
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
struct Stretch {
    /// Bit at which the stretch's data start, in memory without stuffed bytes.
    bit: u32,
    /// Upper bound of the bit at which the last MCU ends; it may end up to seven bits earlier, because of padding.
    /// `None` if the stretch is not decoded to its end.
    end_bit: Option<u32>,
    len_bytes: u32,
    /// Place of the stretch's first block. `end` is one past the last block.
    start: u32,
    end: u32,
    dc: [i16; 4],
}

/// Memory for decoding with lanes, which is reused for the next image.
#[derive(Default)]
pub(super) struct Lanes {
    /// The DC code and the AC code of each component of the last image. `tables` has a table of [`LOOK_BITS`] for each
    /// code.
    codes: Vec<Code>,
    tables: Vec<u16>,
    /// Component of each block of an MCU.
    components: Vec<usize>,
    planes: Vec<Plane>,
    /// Entropy-coded data, without stuffed bytes.
    data: Vec<u8>,
    stretches: Vec<Stretch>,
    blocks: Vec<Block>,
}

/// A component's samples.
struct Plane {
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
    entries: &'a Entries,
    columns: u32,
    /// The row after the last row of MCUs that is expected to be needed.
    end_row: u32,
    /// The rows whose blocks are decoded.
    band: Range<u32>,
}

/// `wf_decode_row` in `jpeg.c`.
///
/// # Safety
/// `context` must be a [`LanesJob`] that nobody else uses. `planes` must point to the rows of samples of each
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
        if !job.band.contains(&row) {
            job.band = row..row + job.decode(row, first_column, columns)?;
        }
        // SAFETY: as promised by the caller; the processor has the features, or there would be no lanes.
        unsafe { job.transform(row, first_column, columns, planes) };
        Some(())
    };
    // No panic may leave a function that C has called.
    catch_unwind(AssertUnwindSafe(decoded)).ok().flatten().is_some().into()
}

impl Lanes {
    /// Memory for lanes. `None` if the processor lacks the instructions.
    pub(super) fn new() -> Option<Self> {
        let can = crate::simd::has_avx512() && std::is_x86_feature_detected!("avx512vbmi2");
        can.then(Self::default)
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
            let plane = Plane { columns, rows, before, width, height, quant: component.quant };
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
        entries: &'a Entries,
        grid: &Grid,
        part: Rect,
    ) -> Option<Self> {
        let stretch = entries.step * grid.mcu.width;
        let stretches = part.height.div_ceil(grid.mcu.height) * part.width.div_ceil(stretch);
        (stretches >= MIN_STRETCHES).then_some(())?;
        lanes.make_tables(bytes, header)?;
        Some(Self { lanes, bytes, entries, columns: grid.columns, end_row: grid.rows_needed(part), band: 0..0 })
    }

    /// Decodes the blocks of several rows of MCUs, starting with `row`. Returns the number of rows. `None` if they
    /// cannot be decoded from the entry points.
    fn decode(&mut self, row: u32, first_column: u32, columns: u32) -> Option<u32> {
        let Self { lanes, bytes, entries, .. } = self;
        let Entries { points, step, a_row, rows } = *entries;
        if row >= *rows || columns == 0 || first_column + columns > self.columns {
            return None;
        }
        let in_mcu = lanes.components.len();
        // Decoding starts at an entry point, which may come before the first column.
        let from = first_column / step;
        let stride = (first_column - from * step + columns) as usize * in_mcu;
        let rows = self.end_row.max(row + 1).min(*rows) - row;
        let rows = rows.min((BAND_BLOCKS / stride).max(1) as u32);
        lanes.data.clear();
        lanes.stretches.clear();
        for r in 0..rows {
            let mut column = from * step;
            let mut start = r as usize * stride;
            for number in from..(first_column + columns).div_ceil(*step) {
                let at = ((row + r) * a_row + number) as usize;
                let (point, next) = (*points.get(at)?, *points.get(at + 1)?);
                let whole = (column + step).min(self.columns);
                let end_column = whole.min(first_column + columns);
                let end = start + (end_column - column) as usize * in_mcu;
                let bit = u32::try_from(8 * lanes.data.len()).ok()?;
                let taken = point.bit % 8;
                let max_len = (whole - column) as usize * in_mcu * MAX_BLOCK_BYTES;
                let end_bit = append(bytes, point, next, max_len, &mut lanes.data)?;
                lanes.stretches.push(Stretch {
                    bit: bit + taken,
                    end_bit: (end_column == whole).then_some(end_bit),
                    len_bytes: (lanes.data.len() - bit as usize / 8) as u32,
                    start: start as u32,
                    end: end as u32,
                    dc: point.dc,
                });
                (column, start) = (end_column, end);
            }
        }
        lanes.data.resize(lanes.data.len() + PAD_BYTES, 0);
        let len = rows as usize * stride;
        lanes.blocks.clear();
        lanes.blocks.try_reserve(len + 1).ok()?;
        // One more block, for lanes that have nothing to do.
        lanes.blocks.resize(len + 1, Block([0; 64]));
        lanes.stretches.sort_unstable_by_key(|stretch| std::cmp::Reverse(stretch.len_bytes));
        // SAFETY: the processor has the features, or there would be no lanes.
        unsafe { lanes.run() }?;
        lanes.sum_dc();
        Some(rows)
    }

    /// Makes the samples of a row of MCUs whose blocks are decoded.
    ///
    /// # Safety
    /// `planes` must point to the rows of samples of each component. Each row must have room for the image's blocks
    /// from the first column on.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn transform(&self, row: u32, first_column: u32, columns: u32, planes: *const *const *mut u8) {
        let Self { lanes: Lanes { planes: all, blocks, components, .. }, entries, band, .. } = self;
        let in_mcu = components.len();
        let lead = (first_column % entries.step) as usize;
        let row_blocks = (lead + columns as usize) * in_mcu;
        let blocks = &blocks[(row - band.start) as usize * row_blocks..]
            [lead * in_mcu..columns as usize * in_mcu + lead * in_mcu];
        for (number, plane) in all.iter().enumerate() {
            let steps = Steps::new(&plane.quant);
            // The padding of the last MCU is no part of the image.
            let width = (columns as usize * plane.columns).min(plane.width - first_column as usize * plane.columns);
            for y in 0..plane.rows.min(plane.height - row as usize * plane.rows) {
                for x in (0..width).step_by(4) {
                    let four = std::array::from_fn(|i| {
                        let x = (x + i).min(width - 1);
                        let (mcu, column) = (x / plane.columns, x % plane.columns);
                        &blocks[mcu * in_mcu + plane.before + y * plane.columns + column]
                    });
                    let samples = four_blocks(four, &steps);
                    let mask = u32::MAX >> (32 - 8 * (width - x).min(4));
                    for (line, samples) in samples.into_iter().enumerate() {
                        // SAFETY: as promised by the caller. No more blocks are written than there is room for.
                        unsafe {
                            let to = (*(*planes.add(number)).add(8 * y + line)).add(8 * x);
                            _mm256_mask_storeu_epi8(to.cast(), mask, samples);
                        }
                    }
                }
            }
        }
    }
}

/// Appends the data between two entry points, without stuffed bytes. Returns the bit at which they end.
fn append(bytes: &[u8], point: EntryPoint, next: EntryPoint, max_len: usize, data: &mut Vec<u8>) -> Option<u32> {
    let mut end = next.byte();
    let taken = next.bit % 8;
    if taken != 0 {
        end += 1;
    } else if matches!(bytes.get(end.checked_sub(2)?..end)?, [0xFF, 0xD0..=0xD7]) {
        end -= 2;
    }
    let from = bytes.get(point.byte()..end).filter(|from| from.len() <= max_len)?;
    data.try_reserve(from.len() + PAD_BYTES).ok()?;
    // SAFETY: the processor has the features, or there would be no lanes; there is room.
    unsafe { unstuff(from, data) };
    u32::try_from(8 * data.len()).ok()?.checked_sub((8 - taken) % 8)
}

/// Appends bytes, without the zero after each 0xFF.
///
/// # Safety
/// `to` must have room for all of `from` and [`PAD_BYTES`] more.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
unsafe fn unstuff(from: &[u8], to: &mut Vec<u8>) {
    let mut len = to.len();
    let mut after_ff = 0;
    for chunk in from.chunks(64) {
        let valid = u64::MAX >> (64 - chunk.len());
        // SAFETY: only bytes of the chunk are read; there is room for the written bytes, as the caller promises.
        unsafe {
            let vector = _mm512_maskz_loadu_epi8(valid, chunk.as_ptr().cast());
            let ff = _mm512_cmpeq_epi8_mask(vector, _mm512_set1_epi8(-1));
            let keep = valid & !(_mm512_testn_epi8_mask(vector, vector) & (ff << 1 | after_ff));
            after_ff = ff >> 63;
            let vector = if keep == u64::MAX { vector } else { _mm512_maskz_compress_epi8(keep, vector) };
            _mm512_storeu_si512(to.as_mut_ptr().add(len).cast(), vector);
            len += keep.count_ones() as usize;
        }
    }
    // SAFETY: `len` bytes have been written.
    unsafe { to.set_len(len) };
}

/// One number per lane.
#[repr(align(64))]
struct PerLane<T>([T; LANES]);

impl<T> PerLane<T> {
    #[target_feature(enable = "avx512f")]
    fn vector(&self, group: usize) -> __m512i {
        const { assert!(size_of::<T>() == 4) };
        // SAFETY: each group has 16 numbers, which are 64 bytes.
        unsafe { _mm512_load_si512(self.0[16 * group..][..16].as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    fn set(&mut self, group: usize, vector: __m512i) {
        const { assert!(size_of::<T>() == 4) };
        // SAFETY: each group has 16 numbers, which are 64 bytes.
        unsafe { _mm512_store_si512(self.0[16 * group..][..16].as_mut_ptr().cast(), vector) };
    }

    #[target_feature(enable = "avx512f")]
    fn vectors(&self) -> [__m512i; GROUPS] {
        let mut vectors = [_mm512_setzero_si512(); GROUPS];
        for (group, vector) in vectors.iter_mut().enumerate() {
            *vector = self.vector(group);
        }
        vectors
    }

    #[target_feature(enable = "avx512f")]
    fn set_all(&mut self, vectors: [__m512i; GROUPS]) {
        for (group, vector) in vectors.into_iter().enumerate() {
            self.set(group, vector);
        }
    }
}

/// State of all lanes.
struct State {
    /// Index of the lane's stretch.
    stretch: [usize; LANES],
    /// Bit at which the lane's next code begins.
    bit: PerLane<u32>,
    /// Index in its block of the lane's last coefficient.
    index: PerLane<i32>,
    /// Number of the lane's block in its MCU.
    number: PerLane<u32>,
    /// Start of the table for the lane's next code.
    table: PerLane<u32>,
    /// Place of the lane's block. `end` is one past the stretch's last block.
    block: PerLane<u32>,
    end: PerLane<u32>,
}

impl Lanes {
    /// Decodes the stretches. `None` if one of them does not end as it should.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn run(&mut self) -> Option<()> {
        let blocks_in_mcu = self.components.len();
        let (mut dc_tables, mut ac_tables, mut next_number) =
            (PerLane([0u32; LANES]), PerLane([0u32; LANES]), PerLane([0u32; LANES]));
        for (b, &component) in self.components.iter().enumerate() {
            dc_tables.0[b] = ((2 * component) << LOOK_BITS) as u32;
            ac_tables.0[b] = ((2 * component + 1) << LOOK_BITS) as u32;
            next_number.0[b] = ((b + 1) % blocks_in_mcu) as u32;
        }
        let (dc_tables, ac_tables, next_number) = (dc_tables.vector(0), ac_tables.vector(0), next_number.vector(0));
        let mut places = [63u8; 128];
        places[..64].copy_from_slice(&ZIGZAG);
        // SAFETY: there are 128 bytes.
        let (low_places, high_places) =
            unsafe { (_mm512_loadu_si512(places.as_ptr().cast()), _mm512_loadu_si512(places.as_ptr().add(64).cast())) };
        let swap = _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
        let (zero, one) = (_mm512_setzero_si512(), _mm512_set1_epi32(1));
        let last_place = _mm512_set1_epi32(63);
        let limit = _mm512_set1_epi32((self.data.len() - 8) as i32);
        let (data, tables) = (self.data.as_ptr(), self.tables.as_ptr());
        let out = self.blocks.as_mut_ptr().cast::<i16>();
        let nowhere = (self.blocks.len() - 1) as u32;

        let mut state = State {
            stretch: [usize::MAX; LANES],
            bit: PerLane([0; LANES]),
            index: PerLane([BEFORE_DC; LANES]),
            number: PerLane([0; LANES]),
            table: PerLane([0; LANES]),
            block: PerLane([nowhere; LANES]),
            end: PerLane([nowhere; LANES]),
        };
        let mut addresses = PerLane([0u32; LANES]);
        let mut values = PerLane([0i32; LANES]);
        let mut todo = 0;
        loop {
            let live = self.assign(&mut state, &mut todo, nowhere)?;
            if live == 0 {
                return Some(());
            }
            let live: [__mmask16; GROUPS] = std::array::from_fn(|group| (live >> (16 * group)) as u16);
            let (mut bit, mut index, mut number) = (state.bit.vectors(), state.index.vectors(), state.number.vectors());
            let (mut table, mut block, end) = (state.table.vectors(), state.block.vectors(), state.end.vectors());
            loop {
                let mut ended = 0;
                for g in 0..GROUPS {
                    let byte = _mm512_min_epu32(_mm512_srli_epi32(bit[g], 3), limit);
                    // SAFETY: a lane reads at most seven bytes after the limit, and these exist.
                    let word = unsafe { _mm512_i32gather_epi32::<1>(byte, data.cast()) };
                    let word = _mm512_shuffle_epi8(word, swap);
                    let mut word = _mm512_sllv_epi32(word, _mm512_and_si512(bit[g], _mm512_set1_epi32(7)));
                    let look = _mm512_add_epi32(table[g], _mm512_srli_epi32(word, 32 - LOOK_BITS));
                    // SAFETY: each table has this many entries, and the last table one more.
                    let mut entries = unsafe { _mm512_i32gather_epi32::<2>(look, tables.cast()) };
                    let long = _mm512_mask_testn_epi32_mask(live[g], entries, _mm512_set1_epi32(31));
                    if long != 0 {
                        state.bit.set(g, bit[g]);
                        state.table.set(g, table[g]);
                        let mut rest = long;
                        while rest != 0 {
                            let lane = 16 * g + rest.trailing_zeros() as usize;
                            let (found, bits) = self.look_further(state.bit.0[lane], state.table.0[lane])?;
                            let this = rest & rest.wrapping_neg();
                            entries = _mm512_mask_set1_epi32(entries, this, found.into());
                            word = _mm512_mask_set1_epi32(word, this, bits as i32);
                            rest ^= this;
                        }
                    }
                    let total = _mm512_and_si512(entries, _mm512_set1_epi32(31));
                    let size = _mm512_and_si512(_mm512_srli_epi32(entries, 5), _mm512_set1_epi32(15));
                    let moves = _mm512_srli_epi32(_mm512_slli_epi32(entries, 16), 25);
                    bit[g] = _mm512_add_epi32(bit[g], total);

                    let value = _mm512_sllv_epi32(word, _mm512_sub_epi32(total, size));
                    let value = _mm512_srlv_epi32(value, _mm512_sub_epi32(_mm512_set1_epi32(32), size));
                    let all = _mm512_sllv_epi32(one, size);
                    let is_negative = _mm512_cmplt_epu32_mask(value, _mm512_srli_epi32(all, 1));
                    let value = _mm512_mask_sub_epi32(value, is_negative, value, _mm512_sub_epi32(all, one));

                    let was_dc = _mm512_cmplt_epi32_mask(index[g], zero);
                    index[g] = _mm512_add_epi32(index[g], moves);
                    // In lanes without a stretch, the index may be anything.
                    let place = _mm512_permutex2var_epi8(low_places, index[g], high_places);
                    let first = _mm512_slli_epi32(block[g], 6);
                    addresses.set(g, _mm512_or_si512(first, _mm512_and_si512(place, last_place)));
                    values.set(g, value);

                    let is_done = _mm512_cmpge_epi32_mask(index[g], last_place);
                    table[g] = _mm512_mask_permutexvar_epi32(table[g], was_dc, number[g], ac_tables);
                    number[g] = _mm512_mask_permutexvar_epi32(number[g], is_done, number[g], next_number);
                    table[g] = _mm512_mask_permutexvar_epi32(table[g], is_done, number[g], dc_tables);
                    index[g] = _mm512_mask_mov_epi32(index[g], is_done, _mm512_set1_epi32(BEFORE_DC));
                    let moved = is_done & live[g];
                    block[g] = _mm512_mask_add_epi32(block[g], moved, block[g], one);
                    ended |= _mm512_mask_cmpeq_epi32_mask(moved, block[g], end[g]);
                }
                for lane in 0..LANES {
                    // SAFETY: a lane's block is one of the existing blocks, and no place is after the 63rd. The rest is
                    // read from arrays, because taking single elements out of a vector would use the unit that
                    // everything else needs.
                    unsafe {
                        let address = (&raw const addresses.0[lane]).read_volatile();
                        let value = (&raw const values.0[lane]).cast::<i16>().read_volatile();
                        *out.add(address as usize) = value;
                    }
                }
                if ended != 0 {
                    break;
                }
            }
            state.bit.set_all(bit);
            state.index.set_all(index);
            state.number.set_all(number);
            state.table.set_all(table);
            state.block.set_all(block);
        }
    }

    /// Gives new stretches to the lanes that are at the end of theirs. Returns the lanes that have a stretch. `None` if
    /// a stretch does not end where it should.
    fn assign(&self, state: &mut State, todo: &mut usize, nowhere: u32) -> Option<u32> {
        let mut live = 0;
        for lane in 0..LANES {
            if state.block.0[lane] != state.end.0[lane] {
                live |= 1 << lane;
                continue;
            }
            if let Some(stretch) = self.stretches.get(state.stretch[lane])
                && let Some(end) = stretch.end_bit
                && !(end.saturating_sub(7)..=end).contains(&state.bit.0[lane])
            {
                return None;
            }
            state.stretch[lane] = *todo;
            if let Some(stretch) = self.stretches.get(*todo) {
                *todo += 1;
                live |= 1 << lane;
                state.bit.0[lane] = stretch.bit;
                (state.block.0[lane], state.end.0[lane]) = (stretch.start, stretch.end);
                // A stretch starts with the first block of an MCU, which belongs to the first component.
                (state.number.0[lane], state.index.0[lane], state.table.0[lane]) = (0, BEFORE_DC, 0);
            } else {
                (state.block.0[lane], state.end.0[lane]) = (nowhere, nowhere);
            }
        }
        Some(live)
    }

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

    /// Converts the DC coefficients from differences to values.
    fn sum_dc(&mut self) {
        for stretch in &self.stretches {
            let mut dc = stretch.dc.map(i32::from);
            for mcu in self.blocks[stretch.start as usize..stretch.end as usize].chunks_exact_mut(self.components.len())
            {
                for (Block(block), &component) in mcu.iter_mut().zip(&self.components) {
                    let dc = &mut dc[component & 3];
                    *dc = dc.wrapping_add(block[0].into());
                    block[0] = *dc as i16;
                }
            }
        }
    }
}
