//! The inverse DCT of several blocks at a time: four with AVX-512, two with AVX2.
//!
//! The factorization of Loeffler, Ligtenberg and Moschytz with libjpeg's 13-bit constants, in the arithmetic of
//! libjpeg's assembler for x86, which Pillow uses. This includes absurd coefficients; `idct.h` has the same as plain
//! code. Sums of two inputs wrap at 16 bits, and the results of a pass saturate. Each vector holds the same row, or
//! column, of all blocks side by side.
#![allow(unsafe_code)]

use super::x86_shorts::Shorts;

/// The quantization steps of a component: each vector has a row of eight steps, repeated for each block.
pub(super) struct QuantSteps<V>([V; 8]);

impl<V: Shorts> QuantSteps<V> {
    /// # Safety
    /// The processor has the vector's instructions.
    #[inline(always)]
    pub(super) unsafe fn new(quant: &[u16; 64]) -> Self {
        let rows = quant.as_chunks::<8>().0;
        // SAFETY: as promised by the caller.
        Self(std::array::from_fn(|row| unsafe { V::repeat(&rows[row]) }))
    }
}

/// Converts blocks to samples: row by row, side by side.
///
/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
pub(super) unsafe fn samples<V: Shorts>(blocks: V::Blocks<'_>, steps: &QuantSteps<V>) -> [V::Row; 8] {
    // SAFETY: as promised by the caller.
    unsafe {
        let rows = V::load(blocks);
        let mut values = rows;
        for (value, steps) in values.iter_mut().zip(steps.0) {
            *value = value.times(steps);
        }
        let mut lines = pass::<V, 11>(values);

        // For blocks with nothing below the first row, the assembler takes a shortcut, which wraps where the full
        // transform saturates.
        let below = rows[2..].iter().fold(rows[1], |any, &row| any.or(row));
        if let Some(alone) = below.empty_blocks() {
            let shortcut = values[0].times_4();
            for line in &mut lines {
                *line = line.replaced_by(shortcut, alone);
            }
        }

        V::rows(pass::<V, 18>(transposed(lines)))
    }
}

/// The transform of eight vectors along one axis, divided by 2^`SHIFT`.
///
/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
unsafe fn pass<V: Shorts, const SHIFT: i32>(v: [V; 8]) -> [V; 8] {
    // SAFETY: as promised by the caller.
    unsafe {
        let zero = V::zero();
        let (sum04, difference04) = (v[0].plus(v[4]), v[0].minus(v[4]));
        let (sum37, sum15) = (v[3].plus(v[7]), v[1].plus(v[5]));
        // Products are sums of two with 32 bits: first those of the lower half of each block's columns, then those of
        // the upper half.
        let half = |sum04: V, difference04: V, pair26: V, sums: V, pair17: V, pair35: V| {
            // The value is in the upper 16 bits; shifting by 3 gives the value times 2^13.
            let sum = sum04.halved_long::<3>().plus_long(V::long(1 << (SHIFT - 1)));
            let difference = difference04.halved_long::<3>().plus_long(V::long(1 << (SHIFT - 1)));
            let low = pair26.products(10703, 4433);
            let high = pair26.products(4433, -10704);
            let even =
                [sum.plus_long(low), difference.plus_long(high), difference.minus_long(high), sum.minus_long(low)];
            let z3 = sums.products(-6436, 9633);
            let z4 = sums.products(9633, 6437);
            let odd = [
                pair17.products(4926, -7373).plus_long(z4),
                pair35.products(4177, -20995).plus_long(z3),
                pair35.products(-20995, -4176).plus_long(z4),
                pair17.products(-7373, -4927).plus_long(z3),
            ];
            let mut out = [zero; 8];
            for i in 0..4 {
                out[i] = even[i].plus_long(odd[i]).halved_long::<SHIFT>();
                out[7 - i] = even[i].minus_long(odd[i]).halved_long::<SHIFT>();
            }
            out
        };
        let lower = half(
            zero.low_16(sum04),
            zero.low_16(difference04),
            v[2].low_16(v[6]),
            sum37.low_16(sum15),
            v[1].low_16(v[7]),
            v[3].low_16(v[5]),
        );
        let upper = half(
            zero.high_16(sum04),
            zero.high_16(difference04),
            v[2].high_16(v[6]),
            sum37.high_16(sum15),
            v[1].high_16(v[7]),
            v[3].high_16(v[5]),
        );
        let mut out = lower;
        for (out, upper) in out.iter_mut().zip(upper) {
            *out = out.saturated(upper);
        }
        out
    }
}

/// Transposes each block.
///
/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
unsafe fn transposed<V: Shorts>(v: [V; 8]) -> [V; 8] {
    // SAFETY: as promised by the caller.
    unsafe {
        let words = |a: V, b: V| (a.low_16(b), a.high_16(b));
        let ((a0, a1), (a2, a3)) = (words(v[0], v[1]), words(v[2], v[3]));
        let ((a4, a5), (a6, a7)) = (words(v[4], v[5]), words(v[6], v[7]));
        let pairs = |a: V, b: V| (a.low_32(b), a.high_32(b));
        let ((b0, b1), (b2, b3)) = (pairs(a0, a2), pairs(a4, a6));
        let ((b4, b5), (b6, b7)) = (pairs(a1, a3), pairs(a5, a7));
        let fours = |a: V, b: V| (a.low_64(b), a.high_64(b));
        let ((c0, c1), (c2, c3)) = (fours(b0, b2), fours(b1, b3));
        let ((c4, c5), (c6, c7)) = (fours(b4, b6), fours(b5, b7));
        [c0, c1, c2, c3, c4, c5, c6, c7]
    }
}

#[cfg(test)]
mod tests {
    use super::super::DctBlock;
    use super::*;
    use crate::decode::kernel_steps::idct::inverse;
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};
    use std::arch::x86_64::*;

    /// Blocks as AVX-512 transforms them, side by side.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq")]
    fn four(blocks: &[DctBlock; 4], quant: &[u16; 64]) -> [[u8; 32]; 8] {
        // SAFETY: the processor has the features; a row has 32 bytes.
        unsafe {
            let rows = samples::<__m512i>(blocks.each_ref(), &QuantSteps::new(quant));
            rows.map(|row| std::mem::transmute::<__m256i, [u8; 32]>(row))
        }
    }

    /// Blocks as AVX2 transforms them, side by side.
    #[target_feature(enable = "avx2")]
    fn two(blocks: [&DctBlock; 2], quant: &[u16; 64]) -> [[u8; 16]; 8] {
        // SAFETY: the processor has the features; a row has 16 bytes.
        unsafe {
            let rows = samples::<__m256i>(blocks, &QuantSteps::new(quant));
            rows.map(|row| std::mem::transmute::<__m128i, [u8; 16]>(row))
        }
    }

    #[test]
    fn blocks_side_by_side_are_what_each_is_alone() {
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
            let mut want = [[0; 32]; 8];
            for (i, block) in blocks.iter().enumerate() {
                for (row, samples) in inverse(&block.0, &quant).as_chunks::<8>().0.iter().enumerate() {
                    want[row][8 * i..][..8].copy_from_slice(samples);
                }
            }
            let message = || format!("round {round}: {:?}, {quant:?}", blocks.each_ref().map(|block| block.0));
            // SAFETY: the processor has the features.
            unsafe {
                if crate::simd::has_avx512() {
                    assert!(four(&blocks, &quant) == want, "{}", message());
                }
                if crate::simd::has_avx2() {
                    let [a, b, c, d] = blocks.each_ref();
                    let (left, right) = (two([a, b], &quant), two([c, d], &quant));
                    let got: [_; 8] = std::array::from_fn(|row| [left[row], right[row]].concat());
                    assert!(got == want.map(|row| row.to_vec()), "{}", message());
                }
            }
        }
    }
}
