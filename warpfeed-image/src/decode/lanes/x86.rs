//! The walk of the lanes through their stretches, and the samples of their blocks, with AVX-512.
#![allow(unsafe_code)]

use super::x86_idct::{QuantSteps, four_blocks};
use super::{BEFORE_DC, LOOK_BITS, Lanes, LanesJob};
use crate::decode::baseline::ZIGZAG;
use std::arch::x86_64::*;

/// Number of vectors of sixteen lanes. Their instructions alternate: while one vector waits for its gathers, the other
/// goes on.
const GROUPS: usize = 2;
const LANES: usize = 16 * GROUPS;

/// Whether the processor has the instructions and the user allows them.
pub(super) fn can_run() -> bool {
    crate::simd::has_avx512() && std::is_x86_feature_detected!("avx512vbmi2")
}

impl LanesJob<'_> {
    /// Makes the samples of a row of MCUs whose blocks are decoded.
    ///
    /// # Safety
    /// `planes` must point to the rows of samples of each component. Each row must have room for the image's blocks
    /// from the first column on.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn transform(&self, row: u32, first_column: u32, columns: u32, planes: *const *const *mut u8) {
        let Self { lanes: Lanes { planes: all, blocks, components, .. }, band, .. } = self;
        let in_mcu = components.len();
        let decoded = self.decoded_columns(first_column, columns);
        let lead = (first_column - decoded.start) as usize;
        let row_blocks = decoded.len() * in_mcu;
        let blocks = &blocks[(row - band.start) as usize * row_blocks..]
            [lead * in_mcu..columns as usize * in_mcu + lead * in_mcu];
        for (number, plane) in all.iter().enumerate() {
            let steps = QuantSteps::new(&plane.quant);
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

/// Appends bytes, without the zero after each 0xFF.
///
/// # Safety
/// `to` must have room for all of `from` and `PAD_BYTES` more.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
pub(super) unsafe fn unstuff(from: &[u8], to: &mut Vec<u8>) {
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

/// LaneStates of all lanes.
struct LaneStates {
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
    pub(super) fn run(&mut self) -> Option<()> {
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

        let mut state = LaneStates {
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
    fn assign(&self, state: &mut LaneStates, todo: &mut usize, nowhere: u32) -> Option<u32> {
        let mut live = 0;
        for lane in 0..LANES {
            if state.block.0[lane] != state.end.0[lane] {
                live |= 1 << lane;
                continue;
            }
            if let Some(stretch) = self.stretches.get(state.stretch[lane])
                && let Some(end) = stretch.end_bit
                && !(end.saturating_sub(stretch.padding_bits)..=end).contains(&state.bit.0[lane])
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
}
