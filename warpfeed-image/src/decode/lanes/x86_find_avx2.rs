//! The walk of the lanes that find entry points, with AVX2.
#![allow(unsafe_code)]

use super::find::{BadCode, Notes, SEVERAL_UNTIL, Scouts, TABLES, WORD_BITS};
use super::x86::{LANES, PerLane, load_eight};
use super::x86_avx2::{both_halves, is_long};
use super::{BEFORE_DC, LOOK_BITS, Lanes};
use std::arch::x86_64::*;

/// For each set of lanes: the numbers of those in it, in front.
static IN_FRONT: [[u8; 8]; 256] = {
    let mut order = [[0; 8]; 256];
    let mut set = 0;
    while set < 256 {
        let (mut lane, mut to) = (0, 0);
        while lane < 8 {
            if set >> lane & 1 == 1 {
                order[set][to] = lane as u8;
                to += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    order
};

/// Vectors that the lanes need in each step.
struct Walk {
    /// By the number of a block in its MCU: the number of its component's first table, and the places of its
    /// component's sum. A place of 32 is in the other number.
    first_tables: __m256i,
    shifts: [__m256i; 2],
    last_number: __m256i,
    /// The last place in the data at which a lane may read.
    limit: __m256i,
}

impl Lanes {
    /// Takes steps until lanes have come to their ends. Returns which of the lanes. `None` if there is no room for
    /// notes.
    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn scout_avx2(
        &self,
        tables: &[u16],
        scouts: &mut Scouts,
        notes: &mut Notes,
        bad: &mut Vec<BadCode>,
    ) -> Option<u32> {
        let mut by_number = [[0; 16]; 3];
        for (b, &component) in self.components.iter().enumerate() {
            by_number[0][b] = TABLES as u8 * self.same[component] as u8;
            by_number[1][b] = 16 * component as u8;
            by_number[2][b] = if component == 2 { 0 } else { 32 };
        }
        let [first_tables, low_shift, high_shift] = by_number;
        let walk = Walk {
            first_tables: both_halves(first_tables),
            shifts: [both_halves(low_shift), both_halves(high_shift)],
            last_number: _mm256_set1_epi32(self.components.len() as i32 - 1),
            limit: _mm256_set1_epi32((self.data.len() - 8) as i32),
        };
        match scouts.live {
            0..=8 => self.scout_eights::<1>(&walk, tables, scouts, notes, bad),
            9..=16 => self.scout_eights::<2>(&walk, tables, scouts, notes, bad),
            17..=24 => self.scout_eights::<3>(&walk, tables, scouts, notes, bad),
            _ => self.scout_eights::<4>(&walk, tables, scouts, notes, bad),
        }
    }

    /// Each part of a step is done for all vectors before the next part: what one waits for the others do meanwhile.
    #[target_feature(enable = "avx2,popcnt")]
    fn scout_eights<const GROUPS: usize>(
        &self,
        walk: &Walk,
        tables: &[u16],
        scouts: &mut Scouts,
        notes: &mut Notes,
        bad: &mut Vec<BadCode>,
    ) -> Option<u32> {
        let swap = both_halves([3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12]);
        let zero = _mm256_setzero_si256();
        let mut is_live = [zero; GROUPS];
        for (group, is_live) in is_live.iter_mut().enumerate() {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            *is_live = _mm256_cmpgt_epi32(_mm256_set1_epi32(scouts.live as i32 - 8 * group as i32), lanes);
        }
        let mut looks = PerLane([0u32; LANES]);
        // Number of bits that the second look-up may take.
        let mut left = PerLane([0u32; LANES]);
        loop {
            if notes.is_full() {
                return None;
            }
            let (mut words, mut entries) = ([zero; GROUPS], [zero; GROUPS]);
            for g in 0..GROUPS {
                looks.set_eight(g, _mm256_min_epu32(_mm256_srli_epi32::<3>(scouts.bit.eight(g)), walk.limit));
            }
            for (g, bits) in words.iter_mut().enumerate() {
                // SAFETY: a lane reads at most seven bytes after the limit, and these exist.
                let word = unsafe { load_eight::<1>(self.data.as_ptr(), &looks, g) };
                let in_byte = _mm256_and_si256(scouts.bit.eight(g), _mm256_set1_epi32(7));
                *bits = _mm256_sllv_epi32(_mm256_shuffle_epi8(word, swap), in_byte);
                looks.set_eight(g, look(walk, scouts, g, *bits));
            }
            let mut any_long = zero;
            for g in 0..GROUPS {
                // SAFETY: each table has this many entries, and the last table one more.
                entries[g] = unsafe { load_eight::<2>(tables.as_ptr().cast(), &looks, g) };
                any_long = _mm256_or_si256(any_long, is_long(entries[g], is_live[g]));
            }
            if _mm256_testz_si256(any_long, any_long) == 0 {
                for g in 0..GROUPS {
                    let mut long = _mm256_movemask_ps(_mm256_castsi256_ps(is_long(entries[g], is_live[g])));
                    let (mut found, mut bits) = (PerLane([0u32; LANES]), PerLane([0u32; LANES]));
                    found.set_eight(0, entries[g]);
                    bits.set_eight(0, words[g]);
                    while long != 0 {
                        let at = long.trailing_zeros() as usize;
                        let place = 8 * g + at;
                        let lane = (scouts.dc[1].0[place] >> 16) as usize;
                        let table = looks.0[place] & !((1 << LOOK_BITS) - 1);
                        let (entry, word) = self.scout_further(scouts.bit.0[place], table, lane, bad);
                        (found.0[at], bits.0[at]) = (entry.into(), word);
                        long &= long - 1;
                    }
                    (entries[g], words[g]) = (found.eight(0), bits.eight(0));
                }
            }
            for g in 0..GROUPS {
                let total = _mm256_and_si256(entries[g], _mm256_set1_epi32(31));
                add_difference(walk, scouts, g, entries[g], total, words[g]);
                advance(walk, scouts, g, entries[g], total);
                // The word may have the next code too. Of DC codes it is not taken, which saves work.
                looks.set_eight(g, look_ac(walk, scouts, g, _mm256_sllv_epi32(words[g], total)));
                let in_block = _mm256_cmpgt_epi32(scouts.index.eight(g), _mm256_set1_epi32(-1));
                let rest = _mm256_sub_epi32(_mm256_set1_epi32(WORD_BITS), total);
                left.set_eight(g, _mm256_and_si256(_mm256_and_si256(in_block, is_live[g]), rest));
            }
            let mut stopped = 0;
            for (g, is_live) in is_live.iter().enumerate() {
                // SAFETY: each table has this many entries, and the last table one more.
                let entry = unsafe { load_eight::<2>(tables.as_ptr().cast(), &looks, g) };
                let total = _mm256_and_si256(entry, _mm256_set1_epi32(31));
                // A code that the table does not have takes no bits, and does not advance the index.
                let goes_beyond = _mm256_cmpgt_epi32(total, left.eight(g));
                let entry = _mm256_andnot_si256(goes_beyond, entry);
                advance(walk, scouts, g, entry, _mm256_andnot_si256(goes_beyond, total));
                let begins = _mm256_cmpeq_epi32(scouts.index.eight(g), _mm256_set1_epi32(BEFORE_DC));
                let begins = _mm256_and_si256(begins, _mm256_cmpeq_epi32(scouts.number.eight(g), zero));
                let stops = note(scouts, g, _mm256_and_si256(begins, *is_live), notes);
                stopped |= (_mm256_movemask_ps(_mm256_castsi256_ps(stops)) as u32) << (8 * g);
            }
            if stopped != 0 {
                return Some(stopped);
            }
        }
    }
}

/// A byte for each lane, by the number of its block.
#[inline]
#[target_feature(enable = "avx2")]
fn by_number(bytes: __m256i, number: __m256i) -> __m256i {
    // As indices of a shuffle, numbers with these bits give the byte in the lowest place and zeros above.
    let lowest = _mm256_set1_epi32(0x8080_8000_u32 as i32);
    _mm256_shuffle_epi8(bytes, _mm256_or_si256(number, lowest))
}

/// The places at which eight lanes look up these bits.
#[inline]
#[target_feature(enable = "avx2")]
fn look(walk: &Walk, scouts: &Scouts, g: usize, words: __m256i) -> __m256i {
    let index = scouts.index.eight(g);
    // The tables of a component are side by side: for DC codes, one AC code, several AC codes.
    let is_ac = _mm256_cmpgt_epi32(index, _mm256_set1_epi32(-1));
    let is_one = _mm256_cmpgt_epi32(index, _mm256_set1_epi32(SEVERAL_UNTIL));
    let kind = _mm256_and_si256(is_ac, _mm256_add_epi32(_mm256_set1_epi32(2), is_one));
    place(_mm256_add_epi32(by_number(walk.first_tables, scouts.number.eight(g)), kind), words)
}

/// As above, where no lane is at a DC code.
#[inline]
#[target_feature(enable = "avx2")]
fn look_ac(walk: &Walk, scouts: &Scouts, g: usize, words: __m256i) -> __m256i {
    let is_one = _mm256_cmpgt_epi32(scouts.index.eight(g), _mm256_set1_epi32(SEVERAL_UNTIL));
    let kind = _mm256_add_epi32(_mm256_set1_epi32(2), is_one);
    place(_mm256_add_epi32(by_number(walk.first_tables, scouts.number.eight(g)), kind), words)
}

#[inline]
#[target_feature(enable = "avx2")]
fn place(table: __m256i, words: __m256i) -> __m256i {
    let first_bits = _mm256_srli_epi32::<{ 32 - LOOK_BITS as i32 }>(words);
    _mm256_or_si256(_mm256_slli_epi32::<{ LOOK_BITS as i32 }>(table), first_bits)
}

/// Adds the differences of lanes at DC codes to their sums.
#[inline]
#[target_feature(enable = "avx2")]
fn add_difference(walk: &Walk, scouts: &mut Scouts, g: usize, entry: __m256i, total: __m256i, words: __m256i) {
    let size = _mm256_and_si256(_mm256_srli_epi32::<5>(entry), _mm256_set1_epi32(15));
    let rest = _mm256_sub_epi32(_mm256_set1_epi32(32), size);
    let value = _mm256_sllv_epi32(words, _mm256_sub_epi32(total, size));
    // One that starts with 0 is negative.
    let is_positive = _mm256_srai_epi32::<31>(value);
    let ones = _mm256_srlv_epi32(_mm256_set1_epi32(-1), rest);
    let value = _mm256_sub_epi32(_mm256_srlv_epi32(value, rest), _mm256_andnot_si256(is_positive, ones));
    // A DC code's value has 16 bits.
    let is_dc = _mm256_srli_epi32::<16>(_mm256_srai_epi32::<31>(scouts.index.eight(g)));
    let (value, number) = (_mm256_and_si256(value, is_dc), scouts.number.eight(g));
    for (sums, shifts) in scouts.dc.iter_mut().zip(walk.shifts) {
        let difference = _mm256_sllv_epi32(value, by_number(shifts, number));
        sums.set_eight(g, _mm256_add_epi16(sums.eight(g), difference));
    }
}

/// Moves lanes on.
#[inline]
#[target_feature(enable = "avx2")]
fn advance(walk: &Walk, scouts: &mut Scouts, g: usize, entry: __m256i, total: __m256i) {
    scouts.bit.set_eight(g, _mm256_add_epi32(scouts.bit.eight(g), total));
    let moves = _mm256_srli_epi32::<25>(_mm256_slli_epi32::<16>(entry));
    let index = _mm256_add_epi32(scouts.index.eight(g), moves);
    let is_done = _mm256_cmpgt_epi32(index, _mm256_set1_epi32(62));
    let number = scouts.number.eight(g);
    let is_last = _mm256_cmpeq_epi32(number, walk.last_number);
    let next = _mm256_andnot_si256(is_last, _mm256_add_epi32(number, _mm256_set1_epi32(1)));
    scouts.number.set_eight(g, _mm256_blendv_epi8(number, next, is_done));
    scouts.index.set_eight(g, _mm256_blendv_epi8(index, _mm256_set1_epi32(BEFORE_DC), is_done));
}

/// Notes the places of lanes. Returns those that have come to their end.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn note(scouts: &Scouts, g: usize, lanes: __m256i, notes: &mut Notes) -> __m256i {
    let set = _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as usize;
    // SAFETY: a set has eight numbers.
    let order = unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(IN_FRONT[set].as_ptr().cast())) };
    let [first, second] = &mut notes.dc;
    let bit = scouts.bit.eight(g);
    for (to, from) in [(&mut notes.bits, bit), (first, scouts.dc[0].eight(g)), (second, scouts.dc[1].eight(g))] {
        // SAFETY: there is room for the notes of all lanes, since the notes were not full before this step.
        unsafe {
            let to = to.as_mut_ptr().add(notes.len).cast();
            _mm256_storeu_si256(to, _mm256_permutevar8x32_epi32(from, order));
        }
    }
    notes.len += set.count_ones() as usize;
    // Places are below 2^31.
    _mm256_andnot_si256(_mm256_cmpgt_epi32(scouts.end.eight(g), bit), lanes)
}
