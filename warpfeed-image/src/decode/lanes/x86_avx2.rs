//! The walk of the lanes with AVX2: four vectors of eight, or fewer when few lanes are left. AVX2 has no permutation of
//! many bytes, so a block's component is looked up within 16 bytes.
#![allow(unsafe_code)]

use super::x86::{LANES, LaneStates, PerLane, load_eight};
use super::{BEFORE_DC, LOOK_BITS, Lanes};
use crate::decode::baseline::ZIGZAG;
use std::arch::x86_64::*;

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
            if let (Some(whole), false) = (from[at..].first_chunk::<32>(), after_ff) {
                let vector = _mm256_loadu_si256(whole.as_ptr().cast());
                _mm256_storeu_si256(out.add(len).cast(), vector);
                let ff = _mm256_movemask_epi8(_mm256_cmpeq_epi8(vector, _mm256_set1_epi8(-1))) as u32;
                if ff == 0 {
                    // The next chunk is loaded before this is known.
                    (at, len) = (at + 32, len + 32);
                    continue;
                }
                let clean = ff.trailing_zeros() as usize + 1;
                after_ff = true;
                (at, len) = (at + clean, len + clean);
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
    pub(super) fn eight(&self, group: usize) -> __m256i {
        const { assert!(size_of::<T>() == 4) };
        // SAFETY: each group has 8 numbers, which are 32 bytes.
        unsafe { _mm256_load_si256(self.0[8 * group..][..8].as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn set_eight(&mut self, group: usize, vector: __m256i) {
        const { assert!(size_of::<T>() == 4) };
        // SAFETY: each group has 8 numbers, which are 32 bytes.
        unsafe { _mm256_store_si256(self.0[8 * group..][..8].as_mut_ptr().cast(), vector) };
    }
}

/// Sixteen bytes, for each half of a vector.
#[target_feature(enable = "avx2")]
pub(super) fn both_halves(bytes: [u8; 16]) -> __m256i {
    // SAFETY: there are 16 bytes.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

/// Vectors that the lanes of AVX2 need in each step.
struct Walk {
    /// Component of each block of an MCU.
    components: __m256i,
    last_number: __m256i,
    /// The last place in the data at which a lane may read.
    limit: __m256i,
    /// Place in its block of each coefficient in the order of the data. After the last one are places that are not
    /// used.
    places: [u8; 128],
    out: *mut i16,
}

/// The coefficients of a step, one for each lane.
struct Coefficients {
    /// Index in the order of the data.
    indices: PerLane<u32>,
    /// Place of the first coefficient of the lane's block.
    firsts: PerLane<u32>,
    values: PerLane<i32>,
}

impl Coefficients {
    /// Stores the coefficients of the first `lanes` lanes.
    ///
    /// # Safety
    /// A lane's block must be one of those at `out`, and no index above 127.
    #[inline(always)]
    unsafe fn store(&self, lanes: usize, places: &[u8; 128], out: *mut i16) {
        for lane in 0..lanes {
            // SAFETY: as promised by the caller; no place is after the 63rd. All are read from arrays, because taking
            // single elements out of a vector would use the unit that everything else needs.
            unsafe {
                let index = (&raw const self.indices.0[lane]).read_volatile();
                let first = (&raw const self.firsts.0[lane]).read_volatile();
                let value = (&raw const self.values.0[lane]).cast::<i16>().read_volatile();
                let place = *places.get_unchecked(index as usize);
                *out.add(first as usize + usize::from(place)) = value;
            }
        }
    }
}

impl Lanes {
    /// Decodes the stretches. `None` if one of them does not end as it should.
    #[target_feature(enable = "avx2")]
    pub(super) fn run_avx2(&mut self) -> Option<()> {
        let mut components = [0; 16];
        for (place, &component) in components.iter_mut().zip(&self.components) {
            *place = self.same[component] as u8;
        }
        let mut places = [63u8; 128];
        places[..64].copy_from_slice(&ZIGZAG);
        let walk = Walk {
            components: both_halves(components),
            last_number: _mm256_set1_epi32(self.components.len() as i32 - 1),
            limit: _mm256_set1_epi32((self.data.len() - 8) as i32),
            places,
            out: self.blocks.as_mut_ptr().cast(),
        };
        let nowhere = (self.blocks.len() - 1) as u32;
        let mut state = LaneStates::new(nowhere);
        let mut todo = 0;
        loop {
            match self.assign(&mut state, &mut todo, nowhere)? {
                0 => return Some(()),
                live @ ..=8 => self.walk_avx2::<1>(&walk, &mut state, live)?,
                live @ ..=16 => self.walk_avx2::<2>(&walk, &mut state, live)?,
                live @ ..=24 => self.walk_avx2::<3>(&walk, &mut state, live)?,
                live => self.walk_avx2::<4>(&walk, &mut state, live)?,
            }
        }
    }

    /// Takes steps until one of the first `live` lanes comes to the end of its stretch. `None` if a lane meets a code
    /// that does not exist.
    ///
    /// Each part of a step is done for all vectors before the next part: what one waits for the others do meanwhile.
    /// For the same reason coefficients are stored in the next step.
    #[target_feature(enable = "avx2")]
    fn walk_avx2<const GROUPS: usize>(&self, walk: &Walk, state: &mut LaneStates, live: usize) -> Option<()> {
        let Walk { components, last_number, limit, ref places, out } = *walk;
        // As indices of a shuffle, numbers with these bits give the byte in the lowest place and zeros above.
        let lowest = _mm256_set1_epi32(0x8080_8000_u32 as i32);
        let swap = both_halves([3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12]);
        let (zero, one) = (_mm256_setzero_si256(), _mm256_set1_epi32(1));
        let (data, tables) = (self.data.as_ptr(), self.tables.as_ptr());
        let mut is_live = [zero; GROUPS];
        for (group, is_live) in is_live.iter_mut().enumerate() {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            *is_live = _mm256_cmpgt_epi32(_mm256_set1_epi32(live as i32 - 8 * group as i32), lanes);
        }
        let mut coefficients =
            Coefficients { indices: PerLane([0; LANES]), firsts: PerLane([0; LANES]), values: PerLane([0; LANES]) };
        coefficients.firsts.0.fill((self.blocks.len() as u32 - 1) << 6);
        let mut looks = PerLane([0u32; LANES]);
        loop {
            let (mut words, mut entries) = ([zero; GROUPS], [zero; GROUPS]);
            for g in 0..GROUPS {
                looks.set_eight(g, _mm256_min_epu32(_mm256_srli_epi32::<3>(state.bit.eight(g)), limit));
            }
            for (g, bits) in words.iter_mut().enumerate() {
                // SAFETY: a lane reads at most seven bytes after the limit, and these exist.
                let word = unsafe { load_eight::<1>(data, &looks, g) };
                let in_byte = _mm256_and_si256(state.bit.eight(g), _mm256_set1_epi32(7));
                *bits = _mm256_sllv_epi32(_mm256_shuffle_epi8(word, swap), in_byte);
                let first_bits = _mm256_srli_epi32::<{ 32 - LOOK_BITS as i32 }>(*bits);
                looks.set_eight(g, _mm256_add_epi32(state.table.eight(g), first_bits));
            }
            // SAFETY: the last step has set them, or they are those of the unused block.
            unsafe { coefficients.store(8 * GROUPS, places, out) };
            let mut any_long = zero;
            for g in 0..GROUPS {
                // SAFETY: each table has this many entries, and the last table one more.
                entries[g] = unsafe { load_eight::<2>(tables.cast(), &looks, g) };
                any_long = _mm256_or_si256(any_long, is_long(entries[g], is_live[g]));
            }
            if _mm256_testz_si256(any_long, any_long) == 0 {
                for g in 0..GROUPS {
                    let mut long = _mm256_movemask_ps(_mm256_castsi256_ps(is_long(entries[g], is_live[g])));
                    let (mut found, mut bits) = (PerLane([0u32; LANES]), PerLane([0u32; LANES]));
                    found.set_eight(0, entries[g]);
                    bits.set_eight(0, words[g]);
                    while long != 0 {
                        let lane = long.trailing_zeros() as usize;
                        let place = 8 * g + lane;
                        let (entry, word) = self.look_further(state.bit.0[place], state.table.0[place])?;
                        (found.0[lane], bits.0[lane]) = (entry.into(), word);
                        long &= long - 1;
                    }
                    (entries[g], words[g]) = (found.eight(0), bits.eight(0));
                }
            }
            for g in 0..GROUPS {
                let total = _mm256_and_si256(entries[g], _mm256_set1_epi32(31));
                state.bit.set_eight(g, _mm256_add_epi32(state.bit.eight(g), total));
                let size = _mm256_and_si256(_mm256_srli_epi32::<5>(entries[g]), _mm256_set1_epi32(15));
                let value = _mm256_sllv_epi32(words[g], _mm256_sub_epi32(total, size));
                let value = _mm256_srlv_epi32(value, _mm256_sub_epi32(_mm256_set1_epi32(32), size));
                let all = _mm256_sllv_epi32(one, size);
                let is_negative = _mm256_cmpgt_epi32(_mm256_srli_epi32::<1>(all), value);
                let value = _mm256_sub_epi32(value, _mm256_and_si256(is_negative, _mm256_sub_epi32(all, one)));
                coefficients.values.set_eight(g, value);
            }
            let mut ended = zero;
            for g in 0..GROUPS {
                let moves = _mm256_srli_epi32::<25>(_mm256_slli_epi32::<16>(entries[g]));
                let index = _mm256_add_epi32(state.index.eight(g), moves);
                let block = state.block.eight(g);
                // In lanes without a stretch, the index may be anything.
                coefficients.indices.set_eight(g, _mm256_and_si256(index, _mm256_set1_epi32(127)));
                coefficients.firsts.set_eight(g, _mm256_slli_epi32::<6>(block));

                let is_done = _mm256_cmpgt_epi32(index, _mm256_set1_epi32(62));
                let number = state.number.eight(g);
                let is_last = _mm256_cmpeq_epi32(number, last_number);
                let next = _mm256_andnot_si256(is_last, _mm256_add_epi32(number, one));
                let number = _mm256_blendv_epi8(number, next, is_done);
                state.number.set_eight(g, number);
                // The tables of a component are its DC code's and its AC code's, side by side.
                let component = _mm256_shuffle_epi8(components, _mm256_or_si256(number, lowest));
                let dc_table = _mm256_slli_epi32::<{ LOOK_BITS as i32 + 1 }>(component);
                let of_ac = _mm256_andnot_si256(is_done, _mm256_set1_epi32(1 << LOOK_BITS));
                state.table.set_eight(g, _mm256_or_si256(dc_table, of_ac));
                state.index.set_eight(g, _mm256_blendv_epi8(index, _mm256_set1_epi32(BEFORE_DC), is_done));
                let moved = _mm256_and_si256(is_done, is_live[g]);
                let block = _mm256_sub_epi32(block, moved);
                state.block.set_eight(g, block);
                let at_end = _mm256_and_si256(moved, _mm256_cmpeq_epi32(block, state.end.eight(g)));
                ended = _mm256_or_si256(ended, at_end);
            }
            if _mm256_testz_si256(ended, ended) == 0 {
                // SAFETY: this step has set them.
                unsafe { coefficients.store(8 * GROUPS, places, out) };
                return Some(());
            }
        }
    }
}

/// The live lanes whose table does not have their code.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn is_long(entries: __m256i, is_live: __m256i) -> __m256i {
    let total = _mm256_and_si256(entries, _mm256_set1_epi32(31));
    _mm256_and_si256(_mm256_cmpeq_epi32(total, _mm256_setzero_si256()), is_live)
}
