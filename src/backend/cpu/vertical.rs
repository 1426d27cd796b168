//! The vertical pass of a resize: one row out of several, equal to [`vertical_row`]. With AVX-512, one instruction
//! multiplies two rows' bytes with their weights, which are split in two to fit 16 bits.

#![allow(unsafe_code)]

use crate::ops::resize::vertical_row;
use crate::raster::Pixel;
use crate::simd::wide;

/// Largest number of rows whose addresses are found once, not for each step of the pass. More are needed only if an
/// image shrinks to less than a fifteenth of its height, or with Lanczos to less than a fifth.
const MOST: usize = 32;

/// Computes `out` from one row for each weight. Each row must be at least as long as `out`.
pub(super) fn vertical_pass<'a>(row: impl Fn(usize) -> &'a [Pixel], weights: &[i32], out: &mut [Pixel]) {
    let mut found: [&[u8]; MOST] = [&[]; MOST];
    let Some(rows) = found.get_mut(..weights.len()) else {
        return wide(
            #[inline(always)]
            || vertical_row(row, weights, out),
        );
    };
    for (tap, found) in rows.iter_mut().enumerate() {
        *found = row(tap)[..out.len()].as_flattened();
    }
    #[cfg(target_arch = "x86_64")]
    if crate::simd::has_avx512() {
        // SAFETY: the processor has AVX-512 with dot products, and the rows are as long as `out`.
        return unsafe { avx512::vertical(rows, weights, out.as_flattened_mut()) };
    }
    wide(
        #[inline(always)]
        || vertical_row(|tap| rows[tap].as_chunks().0, weights, out),
    );
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::MOST;
    use crate::ops::filter::{LOW_BITS, WEIGHT_BITS};
    use std::arch::x86_64::*;

    const BLOCK: usize = 64;

    /// # Safety
    /// There must be as many rows as weights, at most [`MOST`], and each at least as long as `to`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) unsafe fn vertical(rows: &[&[u8]], weights: &[i32], to: &mut [u8]) {
        // For each two rows: their first bytes, and the parts of their weights as pairs of 16 bits. An odd last row is
        // paired with itself, with a weight of 0.
        let mut pairs = [([to.as_ptr(); 2], [0_i32; 2]); MOST.div_ceil(2)];
        let pairs = &mut pairs[..weights.len().div_ceil(2)];
        let two = rows.chunks(2).zip(weights.chunks(2));
        for ((starts, parts), (rows, weights)) in pairs.iter_mut().zip(two) {
            let (first, second) = (weights[0], weights.get(1).copied().unwrap_or(0));
            *starts = [rows[0].as_ptr(), rows[rows.len() - 1].as_ptr()];
            let low = (1 << LOW_BITS) - 1;
            *parts = [first & low | (second & low) << 16, (first >> LOW_BITS) & 0xffff | (second >> LOW_BITS) << 16];
        }
        let mut at = 0;
        while at < to.len() {
            let mask = u64::MAX >> BLOCK.saturating_sub(to.len() - at);
            // SAFETY: only the bytes of the mask are touched, which all rows and `to` have from `at` on.
            unsafe {
                let made = block(pairs, at, mask);
                _mm512_mask_storeu_epi8(to.as_mut_ptr().add(at).cast(), mask, made);
            }
            at += BLOCK;
        }
    }

    /// # Safety
    /// The bytes of the mask, from `at` on, must be there in all rows.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn block(pairs: &[([*const u8; 2], [i32; 2])], at: usize, mask: u64) -> __m512i {
        let zero = _mm512_setzero_si512();
        let mut low = [_mm512_set1_epi32(1 << (WEIGHT_BITS - 1)); 4];
        let mut high = [zero; 4];
        for (starts, weights) in pairs {
            // SAFETY: this function's contract.
            let rows = starts.map(|start| unsafe { _mm512_maskz_loadu_epi8(mask, start.add(at).cast()) });
            let weights = weights.map(|pair| _mm512_set1_epi32(pair));
            // Interleaves the bytes of both rows and widens them to 16 bits.
            let halves = [_mm512_unpacklo_epi8(rows[0], rows[1]), _mm512_unpackhi_epi8(rows[0], rows[1])];
            for (half, both) in halves.into_iter().enumerate() {
                let values = [_mm512_unpacklo_epi8(both, zero), _mm512_unpackhi_epi8(both, zero)];
                for (quarter, values) in values.into_iter().enumerate() {
                    let place = 2 * half + quarter;
                    low[place] = _mm512_dpwssd_epi32(low[place], values, weights[0]);
                    high[place] = _mm512_dpwssd_epi32(high[place], values, weights[1]);
                }
            }
        }
        let value = |place: usize| {
            let sum = _mm512_add_epi32(low[place], _mm512_slli_epi32::<LOW_BITS>(high[place]));
            _mm512_srai_epi32::<WEIGHT_BITS>(sum)
        };
        // Packing restores the order that unpacking has changed.
        let halves = [_mm512_packs_epi32(value(0), value(1)), _mm512_packs_epi32(value(2), value(3))];
        _mm512_packus_epi16(halves[0], halves[1])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ops::filter::{Interpolation, Taps};

    /// Pixels with extreme values, for which sums are largest and results are clipped.
    pub(in super::super) fn extremes(width: usize, seed: usize) -> Vec<Pixel> {
        let mut state = seed as u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state >> 31 == 0 { 0 } else { 255 }
        };
        (0..width).map(|_| [0; 4].map(|_: i32| random())).collect()
    }

    #[test]
    fn equals_the_plain_row() {
        for (input, output) in [(50, 22), (22, 50), (9, 5), (64, 63), (100, 3), (5, 80), (400, 7)] {
            for interpolation in [Interpolation::Bilinear, Interpolation::Bicubic, Interpolation::Lanczos] {
                let taps = Taps::new(input, output, interpolation);
                for width in [0, 1, 15, 16, 17, 100] {
                    let rows: Vec<Vec<Pixel>> = (0..input as usize).map(|y| extremes(width, y)).collect();
                    for i in 0..taps.len() {
                        let (start, weights) = taps.of(i);
                        let row = |tap: usize| &rows[start + tap][..];
                        let (mut want, mut got) = (vec![[0; 4]; width], vec![[7; 4]; width]);
                        vertical_row(row, weights, &mut want);
                        vertical_pass(row, weights, &mut got);
                        assert_eq!(got, want, "{input} to {output} {interpolation:?}, {width} wide, row {i}");
                    }
                }
            }
        }
    }
}
