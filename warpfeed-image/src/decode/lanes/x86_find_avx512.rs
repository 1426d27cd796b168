//! The walk of the lanes that find entry points, with AVX-512.
#![allow(unsafe_code)]

use super::find::{BadCode, Notes, SEVERAL_UNTIL, Scouts, TABLES, WORD_BITS};
use super::x86::{LANES, PerLane};
use super::x86_avx512::load_sixteen;
use super::{BEFORE_DC, LOOK_BITS, Lanes};
use std::arch::x86_64::*;

/// Vectors that the lanes need in each step.
struct Walk {
    /// By the number of a block in its MCU: the tables of its component, the number of the next block, and the places
    /// of its component's sum. A place of 32 is in the other number.
    dc_tables: __m512i,
    ac_tables: __m512i,
    next_number: __m512i,
    shifts: [__m512i; 2],
    /// The last place in the data at which a lane may read.
    limit: __m512i,
}

impl Lanes {
    /// Takes steps until lanes have come to their ends. Returns which of the lanes. `None` if there is no room for
    /// notes.
    #[target_feature(enable = "avx512f,avx512bw,popcnt")]
    pub(super) fn scout_avx512(
        &self,
        tables: &[u16],
        scouts: &mut Scouts,
        notes: &mut Notes,
        bad: &mut Vec<BadCode>,
    ) -> Option<u32> {
        let mut by_number = [const { PerLane([0u32; LANES]) }; 5];
        for (b, &component) in self.components.iter().enumerate() {
            let first_table = (TABLES * self.same[component] as u32) << LOOK_BITS;
            by_number[0].0[b] = first_table;
            by_number[1].0[b] = first_table + (1 << LOOK_BITS);
            by_number[2].0[b] = ((b + 1) % self.components.len()) as u32;
            by_number[3].0[b] = 16 * component as u32;
            by_number[4].0[b] = if component == 2 { 0 } else { 32 };
        }
        let [dc_tables, ac_tables, next_number, low_shift, high_shift] = &by_number;
        let walk = Walk {
            dc_tables: dc_tables.vector(0),
            ac_tables: ac_tables.vector(0),
            next_number: next_number.vector(0),
            shifts: [low_shift.vector(0), high_shift.vector(0)],
            limit: _mm512_set1_epi32((self.data.len() - 8) as i32),
        };
        if scouts.live <= 16 {
            self.scout_groups::<1>(&walk, tables, scouts, notes, bad)
        } else {
            self.scout_groups::<2>(&walk, tables, scouts, notes, bad)
        }
    }

    /// Each part of a step is done for all vectors before the next part: what one waits for the others do meanwhile.
    #[target_feature(enable = "avx512f,avx512bw,popcnt")]
    fn scout_groups<const GROUPS: usize>(
        &self,
        walk: &Walk,
        tables: &[u16],
        scouts: &mut Scouts,
        notes: &mut Notes,
        bad: &mut Vec<BadCode>,
    ) -> Option<u32> {
        let swap = _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
        let zero = _mm512_setzero_si512();
        let mut is_live = [0; GROUPS];
        for (group, is_live) in is_live.iter_mut().enumerate() {
            *is_live = (u32::MAX >> (32 - scouts.live) >> (16 * group)) as __mmask16;
        }
        let mut groups = [Group { bit: zero, index: zero, number: zero, sums: [zero; 2], end: zero }; GROUPS];
        for (g, group) in groups.iter_mut().enumerate() {
            group.load(scouts, g);
        }
        let mut looks = PerLane([0u32; LANES]);
        let stopped = loop {
            if notes.is_full() {
                return None;
            }
            let (mut words, mut entries) = ([zero; GROUPS], [zero; GROUPS]);
            for (g, group) in groups.iter().enumerate() {
                looks.set(g, _mm512_min_epu32(_mm512_srli_epi32(group.bit, 3), walk.limit));
            }
            for (g, (bits, group)) in words.iter_mut().zip(&groups).enumerate() {
                // SAFETY: a lane reads at most seven bytes after the limit, and these exist.
                let word = unsafe { load_sixteen::<1>(self.data.as_ptr(), &looks, g) };
                let in_byte = _mm512_and_si512(group.bit, _mm512_set1_epi32(7));
                *bits = _mm512_sllv_epi32(_mm512_shuffle_epi8(word, swap), in_byte);
                looks.set(g, group.look(walk, *bits));
            }
            let mut long = [0; GROUPS];
            let mut any_long = 0;
            for g in 0..GROUPS {
                // SAFETY: each table has this many entries, and the last table one more.
                entries[g] = unsafe { load_sixteen::<2>(tables.as_ptr().cast(), &looks, g) };
                long[g] = _mm512_mask_testn_epi32_mask(is_live[g], entries[g], _mm512_set1_epi32(31));
                any_long |= long[g];
            }
            if any_long != 0 {
                for g in 0..GROUPS {
                    let mut rest = long[g];
                    if rest != 0 {
                        groups[g].store(scouts, g);
                    }
                    while rest != 0 {
                        let at = 16 * g + rest.trailing_zeros() as usize;
                        let lane = (scouts.dc[1].0[at] >> 16) as usize;
                        let table = looks.0[at] & !((1 << LOOK_BITS) - 1);
                        let (found, bits) = self.scout_further(scouts.bit.0[at], table, lane, bad);
                        let this = rest & rest.wrapping_neg();
                        entries[g] = _mm512_mask_set1_epi32(entries[g], this, found.into());
                        words[g] = _mm512_mask_set1_epi32(words[g], this, bits as i32);
                        rest ^= this;
                    }
                }
            }
            for (g, group) in groups.iter_mut().enumerate() {
                let total = _mm512_and_si512(entries[g], _mm512_set1_epi32(31));
                group.add_difference(walk, entries[g], total, words[g]);
                group.advance(walk, entries[g], total, !0);
                // The word may have the next code too. Of DC codes it is not taken, which saves work.
                words[g] = _mm512_sllv_epi32(words[g], total);
                looks.set(g, group.look_ac(walk, words[g]));
                words[g] = _mm512_sub_epi32(_mm512_set1_epi32(WORD_BITS), total);
            }
            let mut stopped = 0;
            for (g, group) in groups.iter_mut().enumerate() {
                // SAFETY: each table has this many entries, and the last table one more.
                let entry = unsafe { load_sixteen::<2>(tables.as_ptr().cast(), &looks, g) };
                let total = _mm512_and_si512(entry, _mm512_set1_epi32(31));
                let in_block = _mm512_mask_cmpge_epi32_mask(is_live[g], group.index, zero);
                let fits = _mm512_mask_cmple_epi32_mask(in_block, total, words[g]);
                let fits = _mm512_mask_test_epi32_mask(fits, total, total);
                group.advance(walk, entry, total, fits);
                let begins = _mm512_mask_cmplt_epi32_mask(is_live[g], group.index, zero);
                let begins = _mm512_mask_testn_epi32_mask(begins, group.number, group.number);
                group.note(begins, notes);
                let stops = _mm512_mask_cmpge_epu32_mask(begins, group.bit, group.end);
                stopped |= u32::from(stops) << (16 * g);
            }
            if stopped != 0 {
                break stopped;
            }
        };
        for (g, group) in groups.iter().enumerate() {
            group.store(scouts, g);
        }
        Some(stopped)
    }
}

/// Sixteen lanes.
#[derive(Clone, Copy)]
struct Group {
    bit: __m512i,
    index: __m512i,
    number: __m512i,
    sums: [__m512i; 2],
    end: __m512i,
}

impl Group {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(&mut self, scouts: &Scouts, g: usize) {
        self.bit = scouts.bit.vector(g);
        self.index = scouts.index.vector(g);
        self.number = scouts.number.vector(g);
        self.sums = [scouts.dc[0].vector(g), scouts.dc[1].vector(g)];
        self.end = scouts.end.vector(g);
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(&self, scouts: &mut Scouts, g: usize) {
        scouts.bit.set(g, self.bit);
        scouts.index.set(g, self.index);
        scouts.number.set(g, self.number);
        scouts.dc[0].set(g, self.sums[0]);
        scouts.dc[1].set(g, self.sums[1]);
    }

    /// The places at which the lanes look up these bits.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn look(&self, walk: &Walk, words: __m512i) -> __m512i {
        let is_dc = _mm512_cmplt_epi32_mask(self.index, _mm512_setzero_si512());
        let first_bits = _mm512_srli_epi32(words, 32 - LOOK_BITS);
        let of_ac = self.look_ac(walk, words);
        _mm512_mask_add_epi32(of_ac, is_dc, _mm512_permutexvar_epi32(self.number, walk.dc_tables), first_bits)
    }

    /// As above, where no lane is at a DC code.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn look_ac(&self, walk: &Walk, words: __m512i) -> __m512i {
        let several = _mm512_cmple_epi32_mask(self.index, _mm512_set1_epi32(SEVERAL_UNTIL));
        let first_bits = _mm512_srli_epi32(words, 32 - LOOK_BITS);
        let place = _mm512_add_epi32(_mm512_permutexvar_epi32(self.number, walk.ac_tables), first_bits);
        _mm512_mask_add_epi32(place, several, place, _mm512_set1_epi32(1 << LOOK_BITS))
    }

    /// Adds the differences of lanes at DC codes to their sums.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn add_difference(&mut self, walk: &Walk, entry: __m512i, total: __m512i, words: __m512i) {
        let size = _mm512_and_si512(_mm512_srli_epi32(entry, 5), _mm512_set1_epi32(15));
        let rest = _mm512_sub_epi32(_mm512_set1_epi32(32), size);
        let value = _mm512_sllv_epi32(words, _mm512_sub_epi32(total, size));
        // One that starts with 0 is negative.
        let is_positive = _mm512_srai_epi32(value, 31);
        let ones = _mm512_srlv_epi32(_mm512_set1_epi32(-1), rest);
        let value = _mm512_sub_epi32(_mm512_srlv_epi32(value, rest), _mm512_andnot_si512(is_positive, ones));
        let is_dc = _mm512_cmplt_epi32_mask(self.index, _mm512_setzero_si512());
        let value = _mm512_maskz_and_epi32(is_dc, value, _mm512_set1_epi32(0xFFFF));
        for (sums, shifts) in self.sums.iter_mut().zip(walk.shifts) {
            let shift = _mm512_permutexvar_epi32(self.number, shifts);
            *sums = _mm512_add_epi16(*sums, _mm512_sllv_epi32(value, shift));
        }
    }

    /// Moves lanes on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn advance(&mut self, walk: &Walk, entry: __m512i, total: __m512i, lanes: __mmask16) {
        self.bit = _mm512_mask_add_epi32(self.bit, lanes, self.bit, total);
        let moves = _mm512_srli_epi32(_mm512_slli_epi32(entry, 16), 25);
        self.index = _mm512_mask_add_epi32(self.index, lanes, self.index, moves);
        let is_done = _mm512_cmpge_epi32_mask(self.index, _mm512_set1_epi32(63));
        self.number = _mm512_mask_permutexvar_epi32(self.number, is_done, self.number, walk.next_number);
        self.index = _mm512_mask_mov_epi32(self.index, is_done, _mm512_set1_epi32(BEFORE_DC));
    }

    /// Notes the places of lanes.
    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    fn note(&self, lanes: __mmask16, notes: &mut Notes) {
        let [first, second] = &mut notes.dc;
        for (to, from) in [(&mut notes.bits, self.bit), (first, self.sums[0]), (second, self.sums[1])] {
            // SAFETY: there is room for the notes of all lanes, since the notes were not full before this step.
            unsafe {
                _mm512_storeu_si512(to.as_mut_ptr().add(notes.len).cast(), _mm512_maskz_compress_epi32(lanes, from))
            };
        }
        notes.len += lanes.count_ones() as usize;
    }
}
