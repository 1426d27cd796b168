//! The walk of the lanes with AVX-512: two vectors of sixteen, or one when few lanes are left.
#![allow(unsafe_code)]

use super::x86::{LANES, LaneStates, PerLane, load_eight};
use super::{BEFORE_DC, LOOK_BITS, Lanes};
use crate::decode::baseline::ZIGZAG;
use std::arch::x86_64::*;

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

impl<T> PerLane<T> {
    #[target_feature(enable = "avx512f")]
    pub(super) fn vector(&self, group: usize) -> __m512i {
        const { assert!(size_of::<T>() == 4) };
        // SAFETY: each group has 16 numbers, which are 64 bytes.
        unsafe { _mm512_load_si512(self.0[16 * group..][..16].as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn set(&mut self, group: usize, vector: __m512i) {
        const { assert!(size_of::<T>() == 4) };
        // SAFETY: each group has 16 numbers, which are 64 bytes.
        unsafe { _mm512_store_si512(self.0[16 * group..][..16].as_mut_ptr().cast(), vector) };
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn vectors<const GROUPS: usize>(&self) -> [__m512i; GROUPS] {
        let mut vectors = [_mm512_setzero_si512(); GROUPS];
        for (group, vector) in vectors.iter_mut().enumerate() {
            *vector = self.vector(group);
        }
        vectors
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn set_all<const GROUPS: usize>(&mut self, vectors: [__m512i; GROUPS]) {
        for (group, vector) in vectors.into_iter().enumerate() {
            self.set(group, vector);
        }
    }
}

/// Vectors that the lanes need in each step.
struct Walk {
    /// By the number of a block in its MCU: the tables of its component, and the number of the next block.
    dc_tables: __m512i,
    ac_tables: __m512i,
    next_number: __m512i,
    /// Place in its block of each coefficient in the order of the data. After the last one are places that are not
    /// used.
    low_places: __m512i,
    high_places: __m512i,
    /// The last place in the data at which a lane may read.
    limit: __m512i,
    out: *mut i16,
}

/// The coefficients of a step, one for each lane.
struct Coefficients {
    addresses: PerLane<u32>,
    values: PerLane<i32>,
}

impl Coefficients {
    /// Stores the coefficients of the first `lanes` lanes.
    ///
    /// # Safety
    /// Each address must be that of a coefficient at `out`.
    #[inline(always)]
    unsafe fn store(&self, lanes: usize, out: *mut i16) {
        for lane in 0..lanes {
            // SAFETY: as promised by the caller. All is read from arrays, because taking single elements out of a
            // vector would use the unit that everything else needs.
            unsafe {
                let address = (&raw const self.addresses.0[lane]).read_volatile();
                let value = (&raw const self.values.0[lane]).cast::<i16>().read_volatile();
                *out.add(address as usize) = value;
            }
        }
    }
}

/// Loads the numbers at sixteen places: as [`load_eight`].
///
/// # Safety
/// See [`load_eight`].
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn load_sixteen<const SCALE: usize>(from: *const u8, places: &PerLane<u32>, group: usize) -> __m512i {
    // SAFETY: as promised by the caller.
    let (low, high) =
        unsafe { (load_eight::<SCALE>(from, places, 2 * group), load_eight::<SCALE>(from, places, 2 * group + 1)) };
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

impl Lanes {
    /// Decodes the stretches. `None` if one of them does not end as it should.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) fn run_avx512(&mut self) -> Option<()> {
        let blocks_in_mcu = self.components.len();
        let (mut dc_tables, mut ac_tables, mut next_number) =
            (PerLane([0u32; LANES]), PerLane([0u32; LANES]), PerLane([0u32; LANES]));
        for (b, &component) in self.components.iter().enumerate() {
            let same = self.same[component];
            dc_tables.0[b] = ((2 * same) << LOOK_BITS) as u32;
            ac_tables.0[b] = ((2 * same + 1) << LOOK_BITS) as u32;
            next_number.0[b] = ((b + 1) % blocks_in_mcu) as u32;
        }
        let mut places = [63u8; 128];
        places[..64].copy_from_slice(&ZIGZAG);
        // SAFETY: there are 128 bytes.
        let (low_places, high_places) =
            unsafe { (_mm512_loadu_si512(places.as_ptr().cast()), _mm512_loadu_si512(places.as_ptr().add(64).cast())) };
        let walk = Walk {
            dc_tables: dc_tables.vector(0),
            ac_tables: ac_tables.vector(0),
            next_number: next_number.vector(0),
            low_places,
            high_places,
            limit: _mm512_set1_epi32((self.data.len() - 8) as i32),
            out: self.blocks.as_mut_ptr().cast::<i16>(),
        };
        let nowhere = (self.blocks.len() - 1) as u32;
        let mut state = LaneStates::new(nowhere);
        let mut todo = 0;
        loop {
            match self.assign(&mut state, &mut todo, nowhere)? {
                0 => return Some(()),
                live @ ..=16 => self.walk_avx512::<1>(&walk, &mut state, live)?,
                live => self.walk_avx512::<2>(&walk, &mut state, live)?,
            }
        }
    }

    /// Takes steps until one of the first `live` lanes comes to the end of its stretch. `None` if a lane meets a code
    /// that does not exist.
    ///
    /// Each part of a step is done for all vectors before the next part: what one waits for the others do meanwhile.
    /// For the same reason coefficients are stored in the next step.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn walk_avx512<const GROUPS: usize>(&self, walk: &Walk, state: &mut LaneStates, live: usize) -> Option<()> {
        let Walk { dc_tables, ac_tables, next_number, low_places, high_places, limit, out } = *walk;
        let swap = _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
        let (zero, one) = (_mm512_setzero_si512(), _mm512_set1_epi32(1));
        let last_place = _mm512_set1_epi32(63);
        let (data, tables) = (self.data.as_ptr(), self.tables.as_ptr());
        let mut is_live = [0; GROUPS];
        for (group, is_live) in is_live.iter_mut().enumerate() {
            *is_live = (u32::MAX >> (32 - live) >> (16 * group)) as __mmask16;
        }
        let (mut bit, mut index, mut number) =
            (state.bit.vectors::<GROUPS>(), state.index.vectors::<GROUPS>(), state.number.vectors::<GROUPS>());
        let (mut table, mut block, end) =
            (state.table.vectors::<GROUPS>(), state.block.vectors::<GROUPS>(), state.end.vectors::<GROUPS>());
        let nowhere = (self.blocks.len() as u32 - 1) << 6;
        let mut coefficients = Coefficients { addresses: PerLane([nowhere; LANES]), values: PerLane([0; LANES]) };
        let mut looks = PerLane([0u32; LANES]);
        loop {
            let (mut words, mut entries) = ([zero; GROUPS], [zero; GROUPS]);
            for (g, bit) in bit.iter().enumerate() {
                looks.set(g, _mm512_min_epu32(_mm512_srli_epi32(*bit, 3), limit));
            }
            for (g, bits) in words.iter_mut().enumerate() {
                // SAFETY: a lane reads at most seven bytes after the limit, and these exist.
                let word = unsafe { load_sixteen::<1>(data, &looks, g) };
                let in_byte = _mm512_and_si512(bit[g], _mm512_set1_epi32(7));
                *bits = _mm512_sllv_epi32(_mm512_shuffle_epi8(word, swap), in_byte);
                looks.set(g, _mm512_add_epi32(table[g], _mm512_srli_epi32(*bits, 32 - LOOK_BITS)));
            }
            // SAFETY: the last step has set them, or they are those of the unused block.
            unsafe { coefficients.store(16 * GROUPS, out) };
            let mut long = [0; GROUPS];
            let mut any_long = 0;
            for g in 0..GROUPS {
                // SAFETY: each table has this many entries, and the last table one more.
                entries[g] = unsafe { load_sixteen::<2>(tables.cast(), &looks, g) };
                long[g] = _mm512_mask_testn_epi32_mask(is_live[g], entries[g], _mm512_set1_epi32(31));
                any_long |= long[g];
            }
            if any_long != 0 {
                for g in 0..GROUPS {
                    state.bit.set(g, bit[g]);
                    state.table.set(g, table[g]);
                    let mut rest = long[g];
                    while rest != 0 {
                        let lane = 16 * g + rest.trailing_zeros() as usize;
                        let (found, bits) = self.look_further(state.bit.0[lane], state.table.0[lane])?;
                        let this = rest & rest.wrapping_neg();
                        entries[g] = _mm512_mask_set1_epi32(entries[g], this, found.into());
                        words[g] = _mm512_mask_set1_epi32(words[g], this, bits as i32);
                        rest ^= this;
                    }
                }
            }
            let mut ended = 0;
            for g in 0..GROUPS {
                let total = _mm512_and_si512(entries[g], _mm512_set1_epi32(31));
                bit[g] = _mm512_add_epi32(bit[g], total);
                let size = _mm512_and_si512(_mm512_srli_epi32(entries[g], 5), _mm512_set1_epi32(15));
                let value = _mm512_sllv_epi32(words[g], _mm512_sub_epi32(total, size));
                let value = _mm512_srlv_epi32(value, _mm512_sub_epi32(_mm512_set1_epi32(32), size));
                let all = _mm512_sllv_epi32(one, size);
                let is_negative = _mm512_cmplt_epu32_mask(value, _mm512_srli_epi32(all, 1));
                let value = _mm512_mask_sub_epi32(value, is_negative, value, _mm512_sub_epi32(all, one));
                coefficients.values.set(g, value);

                let moves = _mm512_srli_epi32(_mm512_slli_epi32(entries[g], 16), 25);
                index[g] = _mm512_add_epi32(index[g], moves);
                // In lanes without a stretch, the index may be anything.
                let place = _mm512_permutex2var_epi8(low_places, index[g], high_places);
                let first = _mm512_slli_epi32(block[g], 6);
                coefficients.addresses.set(g, _mm512_or_si512(first, _mm512_and_si512(place, last_place)));

                let is_done = _mm512_cmpge_epi32_mask(index[g], last_place);
                number[g] = _mm512_mask_permutexvar_epi32(number[g], is_done, number[g], next_number);
                table[g] = _mm512_permutexvar_epi32(number[g], ac_tables);
                table[g] = _mm512_mask_permutexvar_epi32(table[g], is_done, number[g], dc_tables);
                index[g] = _mm512_mask_mov_epi32(index[g], is_done, _mm512_set1_epi32(BEFORE_DC));
                let moved = is_done & is_live[g];
                block[g] = _mm512_mask_add_epi32(block[g], moved, block[g], one);
                ended |= _mm512_mask_cmpeq_epi32_mask(moved, block[g], end[g]);
            }
            if ended != 0 {
                // SAFETY: this step has set them.
                unsafe { coefficients.store(16 * GROUPS, out) };
                break;
            }
        }
        state.bit.set_all(bit);
        state.index.set_all(index);
        state.number.set_all(number);
        state.table.set_all(table);
        state.block.set_all(block);
        Some(())
    }
}
