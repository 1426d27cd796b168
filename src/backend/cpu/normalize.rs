//! Turns bytes into a batch's elements, in planes or interleaved.

use crate::raster::Pixel;
use crate::simd::{wide, widest};
use half::{bf16, f16};

/// An element type of a batch.
pub(crate) trait Cast: Copy + Default + PartialEq + Send + Sync + bytemuck::Pod {
    /// Whether elements are plain bytes, not values between 0 and 1.
    const BYTES: bool = false;

    /// The nearest element; ties go to even.
    fn from_f32(value: f32) -> Self;

    /// The nearest elements.
    #[inline(always)]
    fn convert(values: &[f32], elements: &mut [Self]) {
        for (element, value) in elements.iter_mut().zip(values) {
            *element = Self::from_f32(*value);
        }
    }
}

impl Cast for f32 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Cast for f16 {
    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }

    #[inline(always)]
    fn convert(values: &[f32], elements: &mut [Self]) {
        use half::slice::HalfFloatSliceExt;
        elements.convert_from_f32_slice(values);
    }
}

impl Cast for bf16 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        // NaN stays NaN. It does not occur here, but rounding could make it infinite.
        if value.is_nan() {
            return Self::NAN;
        }
        Self::from_bits(((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }
}

impl Cast for u8 {
    const BYTES: bool = true;

    #[inline(always)]
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
            if T::BYTES { T::from_f32(byte as f32) } else { T::from_f32(exact(byte as u8, channel)) }
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
        let holds = quick && !T::BYTES && (0..3).zip(arithmetic).all(|(channel, a)| equal(channel, a));
        Self { values, arithmetic: holds.then_some(arithmetic) }
    }

    /// Writes the first channels of a row to rows of planes, each as long as the row.
    pub(crate) fn planes<const N: usize>(&self, row: &[Pixel], planes: [&mut [T]; N]) {
        widest(
            #[inline(always)]
            || self.write_planes(row, planes),
        );
    }

    /// Writes a row to a row of three interleaved elements a pixel.
    pub(crate) fn interleaved(&self, row: &[Pixel], to: &mut [T]) {
        wide(
            #[inline(always)]
            || self.write_interleaved(row, to),
        );
    }

    #[inline(always)]
    fn write_planes<const N: usize>(&self, row: &[Pixel], planes: [&mut [T]; N]) {
        for (channel, plane) in planes.into_iter().enumerate() {
            let plane = &mut plane[..row.len()];
            let Some(arithmetic) = self.arithmetic else {
                let values = &self.values[channel];
                for (element, pixel) in plane.iter_mut().zip(row) {
                    *element = values[usize::from(pixel[channel])];
                }
                continue;
            };
            let arithmetic = arithmetic[channel];
            let mut values = [0.0; STEP];
            let (steps, rest) = plane.as_chunks_mut::<STEP>();
            let (pixels, pixels_rest) = row.as_chunks::<STEP>();
            for (elements, pixels) in steps.iter_mut().zip(pixels) {
                for i in 0..STEP {
                    // The compiler vectorizes shifts of whole pixels better than selected bytes.
                    values[i] = arithmetic.value((u32::from_le_bytes(pixels[i]) >> (8 * channel)) as u8);
                }
                T::convert(&values, elements);
            }
            for (element, pixel) in rest.iter_mut().zip(pixels_rest) {
                *element = self.values[channel][usize::from(pixel[channel])];
            }
        }
    }

    #[inline(always)]
    fn write_interleaved(&self, row: &[Pixel], to: &mut [T]) {
        let (to, _) = to.as_chunks_mut::<3>();
        for (elements, pixel) in to[..row.len()].iter_mut().zip(row) {
            *elements = std::array::from_fn(|channel| self.values[channel][usize::from(pixel[channel])]);
        }
    }
}

/// Number of elements that are computed at once.
const STEP: usize = 32;

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
