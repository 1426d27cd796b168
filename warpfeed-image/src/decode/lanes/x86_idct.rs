//! The inverse DCT of four blocks at a time, with AVX-512.
//!
//! The factorization of Loeffler, Ligtenberg and Moschytz with libjpeg's 13-bit constants, in the arithmetic of
//! libjpeg's assembler for x86, which Pillow uses. This includes absurd coefficients; `idct.h` has the same as plain
//! code. Sums of two inputs wrap at 16 bits, and the results of a pass saturate. Each vector holds the same row, or
//! column, of four blocks side by side.
#![allow(unsafe_code)]

use super::DctBlock;
use std::arch::x86_64::*;

/// The quantization steps of a component: each vector has a row of eight steps, repeated for four blocks.
pub(super) struct QuantSteps([__m512i; 8]);

impl QuantSteps {
    #[target_feature(enable = "avx512f")]
    pub(super) fn new(quant: &[u16; 64]) -> Self {
        let mut steps = [_mm512_setzero_si512(); 8];
        for (row, steps) in quant.as_chunks::<8>().0.iter().zip(&mut steps) {
            // SAFETY: eight steps are 16 bytes.
            *steps = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(row.as_ptr().cast()) });
        }
        Self(steps)
    }
}

/// Converts four blocks to samples: row by row, 32 side by side.
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
pub(super) fn four_blocks(blocks: [&DctBlock; 4], steps: &QuantSteps) -> [__m256i; 8] {
    let rows = load(blocks);
    let mut values = rows;
    for (value, steps) in values.iter_mut().zip(steps.0) {
        *value = _mm512_mullo_epi16(*value, steps);
    }
    let mut lines = pass::<11>(values);

    // For blocks with nothing below the first row, the assembler takes a shortcut, which wraps where the full transform
    // saturates.
    let below = rows[2..].iter().fold(rows[1], |any, &row| _mm512_or_si512(any, row));
    let halves = _mm512_testn_epi64_mask(below, below);
    let alone = halves & (halves >> 1) & 0x55;
    if alone != 0 {
        let shortcut = _mm512_slli_epi16(values[0], 2);
        for line in &mut lines {
            *line = _mm512_mask_mov_epi64(*line, alone | alone << 1, shortcut);
        }
    }

    bytes(pass::<18>(transposed(lines)))
}

/// Each row of all four blocks.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(blocks: [&DctBlock; 4]) -> [__m512i; 8] {
    // SAFETY: a block has 128 bytes and is aligned to 64.
    let half = |block: &DctBlock, at| unsafe { _mm512_load_si512(block.0.as_ptr().add(at).cast()) };
    let mut rows = [_mm512_setzero_si512(); 8];
    for (at, rows) in rows.chunks_exact_mut(4).enumerate() {
        let [a, b, c, d] = blocks.map(|block| half(block, 32 * at));
        let (ab, cd) = (_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0x44>(c, d));
        rows[0] = _mm512_shuffle_i64x2::<0x88>(ab, cd);
        rows[1] = _mm512_shuffle_i64x2::<0xDD>(ab, cd);
        let (ab, cd) = (_mm512_shuffle_i64x2::<0xEE>(a, b), _mm512_shuffle_i64x2::<0xEE>(c, d));
        rows[2] = _mm512_shuffle_i64x2::<0x88>(ab, cd);
        rows[3] = _mm512_shuffle_i64x2::<0xDD>(ab, cd);
    }
    rows
}

/// Two numbers of 16 bits, repeated.
#[inline]
#[target_feature(enable = "avx512f")]
fn pair(first: i16, second: i16) -> __m512i {
    _mm512_set1_epi32((second as i32) << 16 | i32::from(first as u16))
}

/// The transform of eight vectors along one axis, divided by 2^`SHIFT`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn pass<const SHIFT: u32>(v: [__m512i; 8]) -> [__m512i; 8] {
    let zero = _mm512_setzero_si512();
    let (sum04, difference04) = (_mm512_add_epi16(v[0], v[4]), _mm512_sub_epi16(v[0], v[4]));
    let (sum37, sum15) = (_mm512_add_epi16(v[3], v[7]), _mm512_add_epi16(v[1], v[5]));
    // Products are sums of two with 32 bits: first those of the lower half of each block's columns, then those of the
    // upper half.
    let half = |sum04, difference04, pair26, sums, pair17, pair35| {
        let round = _mm512_set1_epi32(1 << (SHIFT - 1));
        // The value is in the upper 16 bits; shifting by 3 gives the value times 2^13.
        let sum = _mm512_add_epi32(_mm512_srai_epi32::<3>(sum04), round);
        let difference = _mm512_add_epi32(_mm512_srai_epi32::<3>(difference04), round);
        let low = _mm512_madd_epi16(pair26, pair(10703, 4433));
        let high = _mm512_madd_epi16(pair26, pair(4433, -10704));
        let even = [
            _mm512_add_epi32(sum, low),
            _mm512_add_epi32(difference, high),
            _mm512_sub_epi32(difference, high),
            _mm512_sub_epi32(sum, low),
        ];
        let z3 = _mm512_madd_epi16(sums, pair(-6436, 9633));
        let z4 = _mm512_madd_epi16(sums, pair(9633, 6437));
        let odd = [
            _mm512_add_epi32(_mm512_madd_epi16(pair17, pair(4926, -7373)), z4),
            _mm512_add_epi32(_mm512_madd_epi16(pair35, pair(4177, -20995)), z3),
            _mm512_add_epi32(_mm512_madd_epi16(pair35, pair(-20995, -4176)), z4),
            _mm512_add_epi32(_mm512_madd_epi16(pair17, pair(-7373, -4927)), z3),
        ];
        let mut out = [zero; 8];
        for i in 0..4 {
            out[i] = _mm512_srai_epi32::<SHIFT>(_mm512_add_epi32(even[i], odd[i]));
            out[7 - i] = _mm512_srai_epi32::<SHIFT>(_mm512_sub_epi32(even[i], odd[i]));
        }
        out
    };
    let lower = half(
        _mm512_unpacklo_epi16(zero, sum04),
        _mm512_unpacklo_epi16(zero, difference04),
        _mm512_unpacklo_epi16(v[2], v[6]),
        _mm512_unpacklo_epi16(sum37, sum15),
        _mm512_unpacklo_epi16(v[1], v[7]),
        _mm512_unpacklo_epi16(v[3], v[5]),
    );
    let upper = half(
        _mm512_unpackhi_epi16(zero, sum04),
        _mm512_unpackhi_epi16(zero, difference04),
        _mm512_unpackhi_epi16(v[2], v[6]),
        _mm512_unpackhi_epi16(sum37, sum15),
        _mm512_unpackhi_epi16(v[1], v[7]),
        _mm512_unpackhi_epi16(v[3], v[5]),
    );
    let mut out = lower;
    for (out, upper) in out.iter_mut().zip(upper) {
        *out = _mm512_packs_epi32(*out, upper);
    }
    out
}

/// Transposes each block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transposed(v: [__m512i; 8]) -> [__m512i; 8] {
    let words = |a, b| (_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b));
    let ((a0, a1), (a2, a3)) = (words(v[0], v[1]), words(v[2], v[3]));
    let ((a4, a5), (a6, a7)) = (words(v[4], v[5]), words(v[6], v[7]));
    let pairs = |a, b| (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let ((b0, b1), (b2, b3)) = (pairs(a0, a2), pairs(a4, a6));
    let ((b4, b5), (b6, b7)) = (pairs(a1, a3), pairs(a5, a7));
    let fours = |a, b| (_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    let ((c0, c1), (c2, c3)) = (fours(b0, b2), fours(b1, b3));
    let ((c4, c5), (c6, c7)) = (fours(b4, b6), fours(b5, b7));
    [c0, c1, c2, c3, c4, c5, c6, c7]
}

/// Converts columns of 16 bits to bytes around 128, saturated, as the rows of all four blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn bytes(columns: [__m512i; 8]) -> [__m256i; 8] {
    // Makes pairs of neighboring columns.
    let pairs = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    let two = |a, b| {
        let packed = _mm512_xor_si512(_mm512_packs_epi16(a, b), _mm512_set1_epi8(-128));
        _mm512_shuffle_epi8(packed, pairs)
    };
    let [c0, c1, c2, c3, c4, c5, c6, c7] = columns;
    let (a, b, c, d) = (two(c0, c1), two(c2, c3), two(c4, c5), two(c6, c7));
    let (ab_upper, ab_lower) = (_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b));
    let (cd_upper, cd_lower) = (_mm512_unpacklo_epi16(c, d), _mm512_unpackhi_epi16(c, d));
    // Two rows of each block.
    let two_rows = [
        _mm512_unpacklo_epi32(ab_upper, cd_upper),
        _mm512_unpackhi_epi32(ab_upper, cd_upper),
        _mm512_unpacklo_epi32(ab_lower, cd_lower),
        _mm512_unpackhi_epi32(ab_lower, cd_lower),
    ];
    let mut rows = [_mm256_setzero_si256(); 8];
    for (rows, two) in rows.chunks_exact_mut(2).zip(two_rows) {
        let two = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), two);
        rows[0] = _mm512_castsi512_si256(two);
        rows[1] = _mm512_extracti64x4_epi64::<1>(two);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::kernel_steps::idct::inverse;
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    /// Four blocks, transformed by the plain code and by this one.
    fn both(blocks: &[DctBlock; 4], quant: &[u16; 64]) -> [[[u8; 32]; 8]; 2] {
        let (mut want, mut got) = ([[0; 32]; 8], [[0; 32]; 8]);
        for (i, block) in blocks.iter().enumerate() {
            for (row, samples) in inverse(&block.0, quant).as_chunks::<8>().0.iter().enumerate() {
                want[row][8 * i..][..8].copy_from_slice(samples);
            }
        }
        // SAFETY: the caller has asked for the features.
        let rows = unsafe { four_blocks(blocks.each_ref(), &QuantSteps::new(quant)) };
        for (to, row) in got.iter_mut().zip(rows) {
            // SAFETY: there is room for 32 bytes.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), row) };
        }
        [want, got]
    }

    #[test]
    fn four_blocks_are_what_each_is_alone() {
        if !crate::simd::has_avx512() {
            return;
        }
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for round in 0..20_000 {
            // From the coefficients of photographs to absurd ones.
            let (most, largest_step) = [(30, 40), (300, 20), (2048, 255), (i16::MAX, u16::MAX)][round % 4];
            let quant = std::array::from_fn(|_| rng.random_range(1..=largest_step));
            let blocks = std::array::from_fn(|_| {
                let filled = [1, 3, 8, 9, 20, 64][rng.random_range(0..6)];
                let mut block = DctBlock([0; 64]);
                for _ in 0..filled {
                    let at = rng.random_range(0..if filled < 9 { 8 } else { 64 });
                    block.0[at] = rng.random_range(-most..=most);
                }
                block
            });
            let [want, got] = both(&blocks, &quant);
            assert!(want == got, "round {round}: {:?}, {quant:?}", blocks.map(|block| block.0));
        }
    }
}
