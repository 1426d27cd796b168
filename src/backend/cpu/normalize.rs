//! Turns bytes into a batch's elements, in planes or interleaved.
#![allow(unsafe_code)]

use crate::raster::Pixel;
use crate::simd::wide;
use crate::tensor::DType;
use half::{bf16, f16};

/// An element type of a batch.
pub(crate) trait Cast: Copy + Default + PartialEq + Send + Sync + bytemuck::Pod {
    const DTYPE: DType;

    /// The nearest element; ties go to even.
    fn from_f32(value: f32) -> Self;
}

impl Cast for f32 {
    const DTYPE: DType = DType::F32;

    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Cast for f16 {
    const DTYPE: DType = DType::F16;

    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Cast for bf16 {
    const DTYPE: DType = DType::Bf16;

    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// A plain byte, not a value between 0 and 1.
impl Cast for u8 {
    const DTYPE: DType = DType::U8;

    fn from_f32(value: f32) -> Self {
        value.round_ties_even() as u8
    }
}

/// The element for each byte value of each channel.
///
/// `f32`: `(v / 255 - mean) / std`, rounded after each operation, or `v / 255`. `f16` and `bf16`: the `f32` value
/// rounded to the nearest. `u8`: the byte itself.
pub(crate) struct Table<T> {
    values: [[T; 256]; 3],
    /// Arithmetic for the same elements, if it gives the same bits for all 256 bytes.
    arithmetic: Option<[Arithmetic; 3]>,
}

/// `(v / 255 - mean) / std` for one channel, with multiplications instead of divisions. The quotient by the rounded
/// reciprocal is wrong in its last bit at most. A remainder that is computed without rounding corrects it.
#[derive(Clone, Copy)]
struct Arithmetic {
    mean: f32,
    std: f32,
    reciprocal: f32,
}

impl Arithmetic {
    #[inline(always)]
    fn value(self, byte: u8) -> f32 {
        const RECIPROCAL: f32 = 1.0 / 255.0;
        let divide = |a: f32, b: f32, reciprocal: f32| {
            let quotient = a * reciprocal;
            (-b).mul_add(quotient, a).mul_add(reciprocal, quotient)
        };
        divide(divide(f32::from(byte), 255.0, RECIPROCAL) - self.mean, self.std, self.reciprocal)
    }
}

impl<T: Cast> Table<T> {
    /// The element for each byte value of each channel.
    pub(crate) fn values(&self) -> &[[T; 256]; 3] {
        &self.values
    }

    /// The table for a mean and a standard deviation of each channel, or without normalization.
    pub(crate) fn new(normalize: Option<([f32; 3], [f32; 3])>) -> Self {
        let exact = |byte: u8, channel: usize| {
            let value = f32::from(byte) / 255.0;
            normalize.map_or(value, |(mean, std)| (value - mean[channel]) / std[channel])
        };
        let element = |channel: usize, byte: usize| {
            if T::DTYPE == DType::U8 { T::from_f32(byte as f32) } else { T::from_f32(exact(byte as u8, channel)) }
        };
        let values = std::array::from_fn(|channel| std::array::from_fn(|byte| element(channel, byte)));
        let arithmetic = std::array::from_fn(|channel| {
            let (mean, std) = normalize.map_or((0.0, 1.0), |(mean, std)| (mean[channel], std[channel]));
            Arithmetic { mean, std, reciprocal: 1.0 / std }
        });
        let equal = |channel: usize, arithmetic: Arithmetic| {
            (0..=255).all(|byte| arithmetic.value(byte).to_bits() == exact(byte, channel).to_bits())
        };
        #[cfg(target_arch = "x86_64")]
        let quick = crate::simd::has_avx2();
        #[cfg(not(target_arch = "x86_64"))]
        let quick = false;
        let holds = quick && T::DTYPE != DType::U8 && (0..3).zip(arithmetic).all(|(channel, a)| equal(channel, a));
        Self { values, arithmetic: holds.then_some(arithmetic) }
    }

    /// Writes the first channels of a row to rows of planes, each as long as the row.
    pub(crate) fn planes<const N: usize>(&self, row: &[Pixel], planes: [&mut [T]; N]) {
        for (channel, plane) in planes.into_iter().enumerate() {
            let plane = &mut plane[..row.len()];
            let done = self.arithmetic.map_or(0, |arithmetic| compute(row, channel, arithmetic[channel], plane));
            let values = &self.values[channel];
            for (element, pixel) in plane[done..].iter_mut().zip(&row[done..]) {
                *element = values[usize::from(pixel[channel])];
            }
        }
    }

    /// Writes a row to a row of three interleaved elements a pixel.
    pub(crate) fn interleaved(&self, row: &[Pixel], to: &mut [T]) {
        wide(
            #[inline(always)]
            || self.write_interleaved(row, to),
        );
    }

    #[inline(always)]
    fn write_interleaved(&self, row: &[Pixel], to: &mut [T]) {
        let (to, _) = to.as_chunks_mut::<3>();
        for (elements, pixel) in to[..row.len()].iter_mut().zip(row) {
            *elements = std::array::from_fn(|channel| self.values[channel][usize::from(pixel[channel])]);
        }
    }
}

/// Computes the elements of a channel, all but the last few of a row. Returns their number.
#[cfg(target_arch = "x86_64")]
fn compute<T: Cast>(row: &[Pixel], channel: usize, by: Arithmetic, plane: &mut [T]) -> usize {
    // SAFETY: the processor has AVX-512, or AVX2, without which arithmetic is not used.
    unsafe {
        match (channel, crate::simd::has_avx512()) {
            (0, true) => x86::compute_512::<T, 0>(row, by, plane),
            (1, true) => x86::compute_512::<T, 8>(row, by, plane),
            (_, true) => x86::compute_512::<T, 16>(row, by, plane),
            (0, false) => x86::compute_256::<T, 0>(row, by, plane),
            (1, false) => x86::compute_256::<T, 8>(row, by, plane),
            (_, false) => x86::compute_256::<T, 16>(row, by, plane),
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn compute<T: Cast>(_: &[Pixel], _: usize, _: Arithmetic, _: &mut [T]) -> usize {
    0
}

/// [`Arithmetic::value`] in vectors. Compilers vectorize it in some builds and not in others.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Arithmetic, Cast, Pixel};
    use crate::tensor::DType;
    use std::arch::x86_64::*;

    /// Number of elements whose computations overlap.
    const STEP: usize = 32;

    macro_rules! computes {
        (
            $name:ident, $features:literal, $floats:ident, $store:ident, $places:ident,
            $load:ident, $shift:ident, $and:ident, $int:ident, $float:ident, $convert:ident, $mul:ident, $sub:ident,
            $fma:ident, $fnma:ident
        ) => {
            #[target_feature(enable = $features)]
            pub(super) fn $name<T: Cast, const SHIFT: $places>(
                row: &[Pixel],
                by: Arithmetic,
                plane: &mut [T],
            ) -> usize {
                const LANES: usize = size_of::<$floats>() / 4;
                let divide = |a: $floats, b: $floats, reciprocal: $floats| {
                    let quotient = $mul(a, reciprocal);
                    $fma($fnma(b, quotient, a), reciprocal, quotient)
                };
                let (most, per_most) = ($float(255.0), $float(1.0 / 255.0));
                let (mean, std, per_std) = ($float(by.mean), $float(by.std), $float(by.reciprocal));
                let (steps, _) = plane.as_chunks_mut::<STEP>();
                for (elements, pixels) in steps.iter_mut().zip(row.as_chunks::<STEP>().0) {
                    let (elements, pixels) = (elements.as_chunks_mut::<LANES>().0, pixels.as_chunks::<LANES>().0);
                    for (elements, pixels) in elements.iter_mut().zip(pixels) {
                        // SAFETY: the pixels are as long as a vector.
                        let pixels = unsafe { $load(pixels.as_ptr().cast()) };
                        let bytes = $and($shift::<SHIFT>(pixels), $int(255));
                        let value = $sub(divide($convert(bytes), most, per_most), mean);
                        $store(divide(value, std, per_std), elements);
                    }
                }
                STEP * steps.len()
            }
        };
    }

    computes!(
        compute_512,
        "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c",
        __m512,
        store_512,
        u32,
        _mm512_loadu_si512,
        _mm512_srli_epi32,
        _mm512_and_si512,
        _mm512_set1_epi32,
        _mm512_set1_ps,
        _mm512_cvtepi32_ps,
        _mm512_mul_ps,
        _mm512_sub_ps,
        _mm512_fmadd_ps,
        _mm512_fnmadd_ps
    );
    computes!(
        compute_256,
        "avx2,fma,f16c",
        __m256,
        store_256,
        i32,
        _mm256_loadu_si256,
        _mm256_srli_epi32,
        _mm256_and_si256,
        _mm256_set1_epi32,
        _mm256_set1_ps,
        _mm256_cvtepi32_ps,
        _mm256_mul_ps,
        _mm256_sub_ps,
        _mm256_fmadd_ps,
        _mm256_fnmadd_ps
    );

    /// The elements nearest to sixteen values.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    fn store_512<T: Cast>(values: __m512, to: &mut [T; 16]) {
        let to = to.as_mut_ptr();
        // SAFETY: sixteen elements of their type's size have room for the vector.
        unsafe {
            match T::DTYPE {
                DType::F32 => _mm512_storeu_ps(to.cast(), values),
                DType::F16 => {
                    _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values));
                }
                DType::Bf16 => {
                    let bits = _mm512_castps_si512(values);
                    let even = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
                    let bits = _mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
                    _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(bits)));
                }
                DType::U8 | DType::U16 => unreachable!("bytes are not computed"),
            }
        }
    }

    /// The elements nearest to eight values.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn store_256<T: Cast>(values: __m256, to: &mut [T; 8]) {
        let to = to.as_mut_ptr();
        // SAFETY: eight elements of their type's size have room for the vector.
        unsafe {
            match T::DTYPE {
                DType::F32 => _mm256_storeu_ps(to.cast(), values),
                DType::F16 => _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values)),
                DType::Bf16 => {
                    let bits = _mm256_castps_si256(values);
                    let even = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
                    let bits = _mm256_add_epi32(bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
                    let bits = _mm256_srli_epi32::<16>(bits);
                    let [low, high] = [_mm256_castsi256_si128(bits), _mm256_extracti128_si256::<1>(bits)];
                    _mm_storeu_si128(to.cast(), _mm_packus_epi32(low, high));
                }
                DType::U8 | DType::U16 => unreachable!("bytes are not computed"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_rounded_three_times() {
        fn check<T: Cast + std::fmt::Debug>(
            row: &[Pixel],
            normalize: Option<([f32; 3], [f32; 3])>,
            want: impl Fn(usize, u8) -> T,
        ) {
            let table = Table::<T>::new(normalize);
            let mut planes = [0, 1, 2].map(|_| vec![T::default(); row.len()]);
            table.planes(row, planes.each_mut().map(|plane| &mut plane[..]));
            let mut interleaved = vec![T::default(); 3 * row.len()];
            table.interleaved(row, &mut interleaved);
            for (x, pixel) in row.iter().enumerate() {
                for channel in 0..3 {
                    let want = want(channel, pixel[channel]);
                    assert_eq!(planes[channel][x], want);
                    assert_eq!(interleaved[3 * x + channel], want);
                }
            }
        }
        let (mean, std) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
        let value = |channel: usize, byte: u8| (f32::from(byte) / 255.0 - mean[channel]) / std[channel];
        let normalized = Some((mean, std));
        // Lengths around the number of pixels that are computed at once, and enough for all byte values.
        for len in [1, 2, 31, 32, 33, 65, 600] {
            let row: Vec<Pixel> = (0..len).map(|x| [x as u8, (x * 7) as u8, 255 - x as u8, 255]).collect();
            let row = &row[..];
            check(row, normalized, value);
            check(row, normalized, |channel, byte| half::f16::from_f32(value(channel, byte)));
            check(row, normalized, |channel, byte| half::bf16::from_f32(value(channel, byte)));
            check(row, None, |_, byte| f32::from(byte) / 255.0);
            check(row, None, |_, byte| byte);
            // If arithmetic by reciprocals overflows, the table must be used.
            let (mean, std) = ([0.0, 1e30, -0.5], [1e-40, 1e-30, f32::MAX]);
            check(row, Some((mean, std)), |channel, byte| (f32::from(byte) / 255.0 - mean[channel]) / std[channel]);
        }
    }
}
