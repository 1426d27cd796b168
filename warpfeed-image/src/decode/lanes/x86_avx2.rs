//! The walk of the lanes with AVX2: four vectors of eight.
//!
//! AVX2 has gathers, shifts by a number for each lane, and blends. It has no permutation of many bytes, so the component
//! of a block is looked up by a shuffle within 16 bytes, and the place of a coefficient where it is stored.
#![allow(unsafe_code)]

use super::x86::{LANES, LaneStates, PerLane};
use super::{BEFORE_DC, LOOK_BITS, Lanes};
use crate::decode::baseline::ZIGZAG;
use std::arch::x86_64::*;
use std::time::Instant;

/// Number of vectors. Their instructions alternate: while one vector waits for its gathers, the others go on.
const GROUPS: usize = LANES / 8;

/// Gathers that are timed, and the most nanoseconds that one may take. On an Intel Xeon of 2023 (Emerald Rapids), where
/// the lanes pay, one takes 5.7. Processors that load the lanes one after the other, by design or by microcode against
/// leaks (Intel's Downfall), take several times as long; none of them was at hand to find the best limit.
const TIMED: u32 = 1_000;
const MOST_NS: u128 = 10;

/// Whether gathers are so fast that lanes pay: timed once, which takes 30 us where they are.
pub(super) fn gathers_are_fast() -> bool {
    let once = || {
        let start = Instant::now();
        // SAFETY: the caller has found AVX2.
        std::hint::black_box(unsafe { gather_often() });
        start.elapsed().as_nanos()
    };
    // What else runs can only make it slower.
    (0..5).map(|_| once()).min().is_some_and(|least| least <= MOST_NS * u128::from(TIMED))
}

/// Gathers from memory like tables, two vectors in turn, each from places that depend on the result before.
#[target_feature(enable = "avx2")]
fn gather_often() -> i32 {
    let table: [i32; 1 << 10] = std::array::from_fn(|i| (i as i32 * 37) & 1023);
    let mut places = [_mm256_setr_epi32(0, 100, 200, 300, 400, 500, 600, 700), _mm256_set1_epi32(77)];
    for _ in 0..TIMED / 2 {
        for place in &mut places {
            // SAFETY: all places are inside the table.
            *place = unsafe { _mm256_i32gather_epi32::<4>(table.as_ptr(), *place) };
        }
    }
    _mm256_extract_epi32::<0>(_mm256_add_epi32(places[0], places[1]))
}

/// Appends bytes, without the zero after each 0xFF.
///
/// # Safety
/// `to` must have room for all of `from` and `PAD_BYTES` more.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn unstuff(from: &[u8], to: &mut Vec<u8>) {
    let mut len = to.len();
    let mut after_ff = false;
    let mut at = 0;
    // SAFETY: only bytes of `from` are read; there is room for the written bytes, as the caller promises.
    unsafe {
        let out = to.as_mut_ptr();
        while at < from.len() {
            let chunk = &from[at..from.len().min(at + 32)];
            if let (Ok(whole), false) = (<&[u8; 32]>::try_from(chunk), after_ff) {
                let vector = _mm256_loadu_si256(whole.as_ptr().cast());
                _mm256_storeu_si256(out.add(len).cast(), vector);
                let ff = _mm256_movemask_epi8(_mm256_cmpeq_epi8(vector, _mm256_set1_epi8(-1))) as u32;
                // Up to the first 0xFF, which is followed by a byte of the next chunk or is looked at below.
                let clean = ff.trailing_zeros().min(31) + 1;
                after_ff = ff != 0;
                (at, len) = (at + clean as usize, len + clean as usize);
            } else {
                let byte = from[at];
                if byte != 0 || !after_ff {
                    *out.add(len) = byte;
                    len += 1;
                }
                after_ff = byte == 0xFF;
                at += 1;
            }
        }
        to.set_len(len);
    }
}

impl<T> PerLane<T> {
    #[target_feature(enable = "avx2")]
    fn eight(&self, group: usize) -> __m256i {
        const { assert!(size_of::<T>() == 4) };
        // SAFETY: each group has 8 numbers, which are 32 bytes.
        unsafe { _mm256_load_si256(self.0[8 * group..][..8].as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    fn set_eight(&mut self, group: usize, vector: __m256i) {
        const { assert!(size_of::<T>() == 4) };
        // SAFETY: each group has 8 numbers, which are 32 bytes.
        unsafe { _mm256_store_si256(self.0[8 * group..][..8].as_mut_ptr().cast(), vector) };
    }
}

/// Sixteen bytes, for each half of a vector.
#[target_feature(enable = "avx2")]
fn both_halves(bytes: [u8; 16]) -> __m256i {
    // SAFETY: there are 16 bytes.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

impl Lanes {
    /// Decodes the stretches. `None` if one of them does not end as it should.
    #[target_feature(enable = "avx2")]
    pub(super) fn run_avx2(&mut self) -> Option<()> {
        let blocks_in_mcu = self.components.len();
        let mut components = [0; 16];
        for (place, &component) in components.iter_mut().zip(&self.components) {
            *place = component as u8;
        }
        let components = both_halves(components);
        // As indices of a shuffle, numbers with these bits give the byte in the lowest place and zeros above.
        let lowest = _mm256_set1_epi32(0x8080_8000_u32 as i32);
        let last_number = _mm256_set1_epi32(blocks_in_mcu as i32 - 1);
        let mut places = [63u8; 128];
        places[..64].copy_from_slice(&ZIGZAG);
        let swap = both_halves([3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12]);
        let (zero, one) = (_mm256_setzero_si256(), _mm256_set1_epi32(1));
        let limit = _mm256_set1_epi32((self.data.len() - 8) as i32);
        let (data, tables) = (self.data.as_ptr(), self.tables.as_ptr());
        let out = self.blocks.as_mut_ptr().cast::<i16>();
        let nowhere = (self.blocks.len() - 1) as u32;

        let mut state = LaneStates::new(nowhere);
        let mut indices = PerLane([0u32; LANES]);
        let mut firsts = PerLane([0u32; LANES]);
        let mut values = PerLane([0i32; LANES]);
        let mut todo = 0;
        loop {
            let live_lanes = self.assign(&mut state, &mut todo, nowhere)?;
            if live_lanes == 0 {
                return Some(());
            }
            let mut live = [zero; GROUPS];
            for (group, live) in live.iter_mut().enumerate() {
                let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
                let own = _mm256_set1_epi32((live_lanes >> (8 * group) & 0xFF) as i32);
                *live = _mm256_cmpeq_epi32(_mm256_and_si256(own, bits), bits);
            }
            loop {
                let mut ended = 0;
                for (g, live) in live.iter().enumerate() {
                    let (bit, index) = (state.bit.eight(g), state.index.eight(g));
                    let (number, table) = (state.number.eight(g), state.table.eight(g));
                    let byte = _mm256_min_epu32(_mm256_srli_epi32::<3>(bit), limit);
                    // SAFETY: a lane reads at most seven bytes after the limit, and these exist.
                    let word = unsafe { _mm256_i32gather_epi32::<1>(data.cast(), byte) };
                    let word = _mm256_shuffle_epi8(word, swap);
                    let mut word = _mm256_sllv_epi32(word, _mm256_and_si256(bit, _mm256_set1_epi32(7)));
                    let look = _mm256_add_epi32(table, _mm256_srli_epi32::<{ 32 - LOOK_BITS as i32 }>(word));
                    // SAFETY: each table has this many entries, and the last table one more.
                    let mut entries = unsafe { _mm256_i32gather_epi32::<2>(tables.cast(), look) };
                    let total = _mm256_and_si256(entries, _mm256_set1_epi32(31));
                    let is_long = _mm256_and_si256(_mm256_cmpeq_epi32(total, zero), *live);
                    let mut long = _mm256_movemask_ps(_mm256_castsi256_ps(is_long));
                    if long != 0 {
                        let (mut found, mut bits) = (PerLane([0u32; LANES]), PerLane([0u32; LANES]));
                        found.set_eight(0, entries);
                        bits.set_eight(0, word);
                        while long != 0 {
                            let lane = long.trailing_zeros() as usize;
                            let place = 8 * g + lane;
                            let (entry, word) = self.look_further(state.bit.0[place], state.table.0[place])?;
                            (found.0[lane], bits.0[lane]) = (entry.into(), word);
                            long &= long - 1;
                        }
                        (entries, word) = (found.eight(0), bits.eight(0));
                    }
                    let total = _mm256_and_si256(entries, _mm256_set1_epi32(31));
                    let size = _mm256_and_si256(_mm256_srli_epi32::<5>(entries), _mm256_set1_epi32(15));
                    let moves = _mm256_srli_epi32::<25>(_mm256_slli_epi32::<16>(entries));
                    state.bit.set_eight(g, _mm256_add_epi32(bit, total));

                    let value = _mm256_sllv_epi32(word, _mm256_sub_epi32(total, size));
                    let value = _mm256_srlv_epi32(value, _mm256_sub_epi32(_mm256_set1_epi32(32), size));
                    let all = _mm256_sllv_epi32(one, size);
                    let is_negative = _mm256_cmpgt_epi32(_mm256_srli_epi32::<1>(all), value);
                    let value = _mm256_sub_epi32(value, _mm256_and_si256(is_negative, _mm256_sub_epi32(all, one)));
                    values.set_eight(g, value);

                    let was_dc = _mm256_cmpgt_epi32(zero, index);
                    let index = _mm256_add_epi32(index, moves);
                    let block = state.block.eight(g);
                    // In lanes without a stretch, the index may be anything.
                    indices.set_eight(g, _mm256_and_si256(index, _mm256_set1_epi32(127)));
                    firsts.set_eight(g, _mm256_slli_epi32::<6>(block));

                    let is_done = _mm256_cmpgt_epi32(index, _mm256_set1_epi32(62));
                    // The tables of a component are its DC code's and its AC code's, side by side.
                    let component = |number| _mm256_shuffle_epi8(components, _mm256_or_si256(number, lowest));
                    let dc_table = |number| _mm256_slli_epi32::<{ LOOK_BITS as i32 + 1 }>(component(number));
                    let ac_table = _mm256_or_si256(dc_table(number), _mm256_set1_epi32(1 << LOOK_BITS));
                    let table = _mm256_blendv_epi8(table, ac_table, was_dc);
                    let is_last = _mm256_cmpeq_epi32(number, last_number);
                    let next = _mm256_andnot_si256(is_last, _mm256_add_epi32(number, one));
                    let number = _mm256_blendv_epi8(number, next, is_done);
                    state.table.set_eight(g, _mm256_blendv_epi8(table, dc_table(number), is_done));
                    state.number.set_eight(g, number);
                    state.index.set_eight(g, _mm256_blendv_epi8(index, _mm256_set1_epi32(BEFORE_DC), is_done));
                    let moved = _mm256_and_si256(is_done, *live);
                    let block = _mm256_sub_epi32(block, moved);
                    state.block.set_eight(g, block);
                    let at_end = _mm256_and_si256(moved, _mm256_cmpeq_epi32(block, state.end.eight(g)));
                    ended |= _mm256_movemask_ps(_mm256_castsi256_ps(at_end));
                }
                for lane in 0..LANES {
                    // SAFETY: a lane's block is one of the existing blocks, no index is above 127, and no place is after
                    // the 63rd. All are read from arrays, because taking single elements out of a vector would use the
                    // unit that everything else needs.
                    unsafe {
                        let index = (&raw const indices.0[lane]).read_volatile();
                        let first = (&raw const firsts.0[lane]).read_volatile();
                        let value = (&raw const values.0[lane]).cast::<i16>().read_volatile();
                        let place = *places.get_unchecked(index as usize);
                        *out.add(first as usize + usize::from(place)) = value;
                    }
                }
                if ended != 0 {
                    break;
                }
            }
        }
    }
}
