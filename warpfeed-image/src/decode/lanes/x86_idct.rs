//! The inverse DCT of several blocks at a time: four with AVX-512, two with AVX2.
//!
//! The factorization of Loeffler, Ligtenberg and Moschytz with libjpeg's 13-bit constants, in the arithmetic of
//! libjpeg's assembler for x86; `idct.h` has the same as plain code. Sums of two inputs wrap at 16 bits, and the
//! results of a pass saturate. Each vector holds the same row, or column, of all blocks.
#![allow(unsafe_code)]

use super::x86_shorts::Shorts;

/// The quantization steps of a component: each vector has a row of eight steps, repeated for each block.
pub(super) struct QuantSteps<V>([V; 8]);

impl<V: Shorts> QuantSteps<V> {
    /// # Safety
    /// The processor has the vector's instructions.
    #[inline(always)]
    pub(super) unsafe fn new(quant: &[u16; 64]) -> Self {
        // SAFETY: as promised by the caller.
        unsafe {
            let mut steps = [V::zero(); 8];
            for (steps, row) in steps.iter_mut().zip(quant.as_chunks::<8>().0) {
                *steps = V::repeat(row);
            }
            Self(steps)
        }
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
        let mut below = rows[1];
        for row in &rows[2..] {
            below = below.or(*row);
        }
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
        let mut out = half_pass::<V, SHIFT>([
            zero.low_16(sum04),
            zero.low_16(difference04),
            v[2].low_16(v[6]),
            sum37.low_16(sum15),
            v[1].low_16(v[7]),
            v[3].low_16(v[5]),
        ]);
        let upper = half_pass::<V, SHIFT>([
            zero.high_16(sum04),
            zero.high_16(difference04),
            v[2].high_16(v[6]),
            sum37.high_16(sum15),
            v[1].high_16(v[7]),
            v[3].high_16(v[5]),
        ]);
        for (out, upper) in out.iter_mut().zip(upper) {
            *out = out.saturated(upper);
        }
        out
    }
}

/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
unsafe fn half_pass<V: Shorts, const SHIFT: i32>(pairs: [V; 6]) -> [V; 8] {
    let [sum04, difference04, pair26, sums, pair17, pair35] = pairs;
    // SAFETY: as promised by the caller.
    unsafe {
        // The value is in the upper 16 bits; shifting by 3 gives the value times 2^13.
        let round = V::long(1 << (SHIFT - 1));
        let sum = sum04.halved_long::<3>().plus_long(round);
        let difference = difference04.halved_long::<3>().plus_long(round);
        let low = pair26.products(10703, 4433);
        let high = pair26.products(4433, -10704);
        let even = [sum.plus_long(low), difference.plus_long(high), difference.minus_long(high), sum.minus_long(low)];
        let z3 = sums.products(-6436, 9633);
        let z4 = sums.products(9633, 6437);
        let odd = [
            pair17.products(4926, -7373).plus_long(z4),
            pair35.products(4177, -20995).plus_long(z3),
            pair35.products(-20995, -4176).plus_long(z4),
            pair17.products(-7373, -4927).plus_long(z3),
        ];
        let mut out = [V::zero(); 8];
        for i in 0..4 {
            out[i] = even[i].plus_long(odd[i]).halved_long::<SHIFT>();
            out[7 - i] = even[i].minus_long(odd[i]).halved_long::<SHIFT>();
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
        let mut words = v;
        let mut pairs = v;
        let mut out = v;
        for i in 0..4 {
            (words[2 * i], words[2 * i + 1]) = (v[2 * i].low_16(v[2 * i + 1]), v[2 * i].high_16(v[2 * i + 1]));
        }
        for (i, [a, b]) in [[0, 2], [4, 6], [1, 3], [5, 7]].into_iter().enumerate() {
            (pairs[2 * i], pairs[2 * i + 1]) = (words[a].low_32(words[b]), words[a].high_32(words[b]));
        }
        for (i, [a, b]) in [[0, 2], [1, 3], [4, 6], [5, 7]].into_iter().enumerate() {
            (out[2 * i], out[2 * i + 1]) = (pairs[a].low_64(pairs[b]), pairs[a].high_64(pairs[b]));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::DctBlock;
    use super::*;
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};
    use std::arch::x86_64::*;

    /// The samples of a block, row by row, in plain code: libjpeg's accurate integer transform as in its assembler for
    /// x86, for absurd coefficients too.
    fn inverse(coefficients: &[i16; 64], quant: &[u16; 64]) -> [u8; 64] {
        let mut values = [0; 64];
        for ((value, &coefficient), &step) in values.iter_mut().zip(coefficients).zip(quant) {
            *value = coefficient.wrapping_mul(step as i16);
        }
        let mut lines = [0; 64];
        if coefficients[8..].iter().all(|&coefficient| coefficient == 0) {
            // For such blocks the assembler takes a shortcut, which wraps where the full transform saturates.
            lines.chunks_exact_mut(8).for_each(|line| {
                line.iter_mut().zip(&values).for_each(|(to, value): (&mut i16, &i16)| *to = value.wrapping_mul(4));
            });
        } else {
            for column in 0..8 {
                let line = transform(std::array::from_fn(|i| values[8 * i + column]), 11);
                (0..8).for_each(|i| lines[8 * i + column] = line[i]);
            }
        }
        let mut samples = [0; 64];
        for (to, line) in samples.as_chunks_mut::<8>().0.iter_mut().zip(lines.as_chunks::<8>().0) {
            *to = transform(*line, 18).map(|value| (value.clamp(-128, 127) + 128) as u8);
        }
        samples
    }

    /// Transforms eight values, by the factorization of Loeffler, Ligtenberg and Moschytz with libjpeg's 13-bit
    /// constants. Sums of two inputs wrap at 16 bits; sums of products fit 32.
    fn transform(input: [i16; 8], shift: u32) -> [i16; 8] {
        let [in0, in1, in2, in3, in4, in5, in6, in7] = input;
        let wide = i32::from;
        let (sum, difference) = (wide(in0.wrapping_add(in4)) * 8192, wide(in0.wrapping_sub(in4)) * 8192);
        let low = wide(in2) * 10703 + wide(in6) * 4433;
        let high = wide(in2) * 4433 - wide(in6) * 10704;
        let even = [sum + low, difference + high, difference - high, sum - low];

        let (sum37, sum15) = (wide(in3.wrapping_add(in7)), wide(in1.wrapping_add(in5)));
        let z3 = sum37 * -6436 + sum15 * 9633;
        let z4 = sum37 * 9633 + sum15 * 6437;
        let odd = [
            wide(in1) * 4926 - wide(in7) * 7373 + z4,
            wide(in3) * 4177 - wide(in5) * 20995 + z3,
            wide(in3) * -20995 - wide(in5) * 4176 + z4,
            wide(in1) * -7373 - wide(in7) * 4927 + z3,
        ];

        // The value divided by 2^shift, rounded, saturated to 16 bits.
        let descale =
            |value: i32| ((value + (1 << (shift - 1))) >> shift).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        let mut out = [0; 8];
        for i in 0..4 {
            out[i] = descale(even[i] + odd[i]);
            out[7 - i] = descale(even[i] - odd[i]);
        }
        out
    }

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
