//! The horizontal pass of a resize with AVX2 or AVX-512: two output pixels at a time, equal to
//! [`horizontal_row`](crate::ops::resize::horizontal_row).
//!
//! `_mm256_madd_epi16` multiplies pairs of 16-bit numbers and adds the products, but weights have 22 fractional bits.
//! So each weight is split into 15 low bits and the rest, which are summed separately and combined at the end. This is
//! exact, because 32-bit sums may wrap as long as the true result fits.

#![allow(unsafe_code)]

use crate::ops::filter::{LOW_BITS, Taps, WEIGHT_BITS};
use crate::raster::Pixel;
use crate::simd::{has_avx2, has_avx512};
use std::arch::x86_64::*;

/// Number of input pixels that one group of weights covers.
const GROUP: usize = 4;

/// Weights of a group for two output pixels, one in each lane, in the order of the multiplication: for each channel the
/// weights of two neighboring pixels.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Weights {
    /// Low parts: the first two pixels' weights, then those of the other two.
    low: [[i16; 16]; 2],
    /// High parts, in the same order.
    high: [[i16; 16]; 2],
}

/// Weights of a whole row, in the form for vectors.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// The first input pixel of each output pixel. The number of entries is even.
    starts: Vec<u32>,
    /// The groups of each pair of output pixels.
    weights: Vec<Weights>,
    /// Number of groups of each pair.
    groups: usize,
    /// Length of the input row in pixels.
    width: usize,
}

impl Prepared {
    /// Prepares `taps` for rows of `width` pixels. Returns `false` if vectors cannot be used: without AVX2, or if the
    /// row is shorter than the groups of an output pixel.
    pub(crate) fn prepare(&mut self, taps: &Taps, width: usize) -> bool {
        self.groups = taps.most().div_ceil(GROUP);
        self.width = width;
        let reach = self.groups * GROUP;
        if !has_avx2() || reach > width || taps.len() == 0 {
            return false;
        }
        let outputs = taps.len().next_multiple_of(2);
        self.starts.clear();
        self.weights.clear();
        self.weights.resize(outputs / 2 * self.groups, Weights { low: [[0; 16]; 2], high: [[0; 16]; 2] });
        for i in 0..outputs {
            // If the number of outputs is odd, the last one is computed twice and stored once.
            let (tap_start, weights) = taps.of(i.min(taps.len() - 1));
            // Groups that would reach beyond the row begin earlier, with weights of 0.
            let start = tap_start.min(width - reach);
            self.starts.push(start as u32);
            let groups = &mut self.weights[i / 2 * self.groups..][..self.groups];
            for (tap, weight) in weights.iter().enumerate() {
                let at = tap + tap_start - start;
                let (group, at) = (&mut groups[at / GROUP], at % GROUP);
                for channel in 0..4 {
                    let place = i % 2 * 8 + channel * 2 + at % 2;
                    group.low[at / 2][place] = (weight & ((1 << LOW_BITS) - 1)) as i16;
                    group.high[at / 2][place] = (weight >> LOW_BITS) as i16;
                }
            }
        }
        true
    }

    /// Resizes one row of the prepared width.
    pub(crate) fn row(&self, from: &[Pixel], to: &mut [Pixel]) {
        assert!(from.len() == self.width && to.len().next_multiple_of(2) == self.starts.len());
        // SAFETY: `prepare` found AVX2, and all starts plus the groups' reach are within the row, whose length was just
        // checked.
        unsafe { if has_avx512() { self.vectors_512(from, to) } else { self.vectors_256(from, to) } };
    }

    /// Computes the row with `sums`, which returns both pixels of a pair from their first input pixels and their
    /// weights.
    #[inline(always)]
    fn pairs(&self, to: &mut [Pixel], sums: impl Fn([usize; 2], &[Weights]) -> [Pixel; 2]) {
        let mut pairs = self.starts.as_chunks::<2>().0.iter().zip(self.weights.chunks_exact(self.groups));
        let sums = |(starts, groups): (&[u32; 2], _)| sums(starts.map(|start| start as usize), groups);
        let (whole, rest) = to.as_chunks_mut::<2>();
        for (out, pair) in whole.iter_mut().zip(&mut pairs) {
            *out = sums(pair);
        }
        if let (Some(out), Some(pair)) = (rest.first_mut(), pairs.next()) {
            *out = sums(pair)[0];
        }
    }

    /// # Safety
    /// `from` must have the length that `prepare` was told.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
    unsafe fn vectors_512(&self, from: &[Pixel], to: &mut [Pixel]) {
        // The order of the weights: the left output's first two pixels, the right one's, then their other two. Each
        // channel has the bytes of two neighboring pixels as 16-bit numbers.
        const ORDER: [u8; 64] = {
            let mut order = [0; 64];
            let mut i = 0;
            while i < 32 {
                let (two, right, channel, pixel) = (i / 16, i / 8 % 2, i % 8 / 2, i % 2);
                order[2 * i] = (16 * right + 4 * (2 * two + pixel) + channel) as u8;
                i += 1;
            }
            order
        };
        const LOW_BYTES: u64 = 0x5555_5555_5555_5555;
        // SAFETY: 64 bytes; the load needs no alignment.
        let order = unsafe { _mm512_loadu_si512(ORDER.as_ptr().cast()) };
        let half = _mm512_zextsi256_si512(_mm256_set1_epi32(1 << (WEIGHT_BITS - 1)));
        self.pairs(to, |[mut left, mut right], groups| {
            let (mut low, mut high) = (half, _mm512_setzero_si512());
            for group in groups {
                // SAFETY: start + 4 * groups <= the row's length, in pixels of 4 bytes; the weights are aligned to 64
                // bytes by the struct, and the pixels' loads need no alignment.
                let (pixels, low_weights, high_weights) = unsafe {
                    let left = _mm_loadu_si128(from.as_ptr().add(left).cast());
                    let right = _mm_loadu_si128(from.as_ptr().add(right).cast());
                    (
                        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(left), right),
                        _mm512_load_si512(group.low.as_ptr().cast()),
                        _mm512_load_si512(group.high.as_ptr().cast()),
                    )
                };
                let pixels = _mm512_maskz_permutexvar_epi8(LOW_BYTES, order, _mm512_castsi256_si512(pixels));
                low = _mm512_dpwssd_epi32(low, pixels, low_weights);
                high = _mm512_dpwssd_epi32(high, pixels, high_weights);
                left += GROUP;
                right += GROUP;
            }
            let parts = _mm512_add_epi32(low, _mm512_slli_epi32::<LOW_BITS>(high));
            let sum = _mm256_add_epi32(_mm512_castsi512_si256(parts), _mm512_extracti64x4_epi64::<1>(parts));
            let value = _mm256_max_epi32(_mm256_srai_epi32::<{ WEIGHT_BITS as i32 }>(sum), _mm256_setzero_si256());
            let bytes = _mm_cvtsi128_si64(_mm256_cvtusepi32_epi8(value)).to_le_bytes();
            bytemuck::cast(bytes)
        });
    }

    /// # Safety
    /// `from` must have the length that `prepare` was told.
    #[target_feature(enable = "avx2")]
    unsafe fn vectors_256(&self, from: &[Pixel], to: &mut [Pixel]) {
        // Bytes of two neighboring pixels become pairs of 16-bit numbers, one pair for each channel.
        const X: i8 = -1;
        let first = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, X, 4, X, 1, X, 5, X, 2, X, 6, X, 3, X, 7, X));
        let second = _mm256_broadcastsi128_si256(_mm_setr_epi8(8, X, 12, X, 9, X, 13, X, 10, X, 14, X, 11, X, 15, X));
        let half = _mm256_set1_epi32(1 << (WEIGHT_BITS - 1));
        self.pairs(to, |[mut left, mut right], groups| {
            let (mut low, mut high) = (half, _mm256_setzero_si256());
            for group in groups {
                // SAFETY: start + 4 * groups <= the row's length, in pixels of 4 bytes; loads need no alignment.
                let pixels = unsafe {
                    let left = _mm_loadu_si128(from.as_ptr().add(left).cast());
                    let right = _mm_loadu_si128(from.as_ptr().add(right).cast());
                    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(left), right)
                };
                let pixels = [_mm256_shuffle_epi8(pixels, first), _mm256_shuffle_epi8(pixels, second)];
                for (i, pixels) in pixels.into_iter().enumerate() {
                    // SAFETY: both are 16 numbers of 16 bits, aligned to 32 bytes by the struct.
                    let (low_weights, high_weights) = unsafe {
                        (
                            _mm256_load_si256(group.low[i].as_ptr().cast()),
                            _mm256_load_si256(group.high[i].as_ptr().cast()),
                        )
                    };
                    low = _mm256_add_epi32(low, _mm256_madd_epi16(pixels, low_weights));
                    high = _mm256_add_epi32(high, _mm256_madd_epi16(pixels, high_weights));
                }
                left += GROUP;
                right += GROUP;
            }
            let sum = _mm256_add_epi32(low, _mm256_slli_epi32::<{ LOW_BITS as i32 }>(high));
            let value = _mm256_srai_epi32::<{ WEIGHT_BITS as i32 }>(sum);
            let bytes = _mm256_packus_epi16(_mm256_packus_epi32(value, value), value);
            [_mm256_extract_epi32::<0>(bytes), _mm256_extract_epi32::<4>(bytes)].map(i32::to_le_bytes)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::vertical::tests::extremes;
    use crate::ops::filter::Interpolation;
    use crate::ops::resize::horizontal_row;

    #[test]
    fn equals_the_plain_row() {
        for (input, output) in [(500, 224), (224, 500), (333, 97), (9, 5), (64, 63), (1000, 3), (5, 80), (37, 36)] {
            for interpolation in [Interpolation::Bilinear, Interpolation::Bicubic, Interpolation::Lanczos] {
                let taps = Taps::new(input, output, interpolation);
                let from = extremes(input as usize, 1);
                let mut prepared = Prepared::default();
                if !prepared.prepare(&taps, from.len()) {
                    continue;
                }
                let mut want = vec![[0; 4]; output as usize];
                let mut got = want.clone();
                horizontal_row(&from, &taps, &mut want);
                prepared.row(&from, &mut got);
                assert_eq!(got, want, "{input} to {output} {interpolation:?}");
                // With AVX-512, `row` has not used this code.
                // SAFETY: the row has the length that `prepare` was told, and `prepare` has found AVX2.
                unsafe { prepared.vectors_256(&from, &mut got) };
                assert_eq!(got, want, "{input} to {output} {interpolation:?}, AVX2");
            }
        }
    }
}
