//! Rows of luma and chroma to red, green and blue in libjpeg's arithmetic (`jdcolor.c`): constants in 16 bits of
//! fraction, one rounding for each channel. libjpeg has vectors for it only if nasm was there when it was built.
#![allow(unsafe_code)]

use super::jpeg::Convert;
use crate::simd;
use std::arch::x86_64::*;

/// The conversion for this processor; `None` where libjpeg's own is as good.
pub(super) fn convert() -> Option<Convert> {
    if simd::has_avx512() {
        Some(convert_512)
    } else if simd::has_avx2() {
        Some(convert_256)
    } else {
        None
    }
}

/// A pixel, from luma and chroma.
fn pixel(luma: u8, blue: u8, red: u8) -> [u8; 4] {
    let (luma, blue, red) = (i32::from(luma), i32::from(blue) - 128, i32::from(red) - 128);
    let rounded = |sum: i32| luma + ((sum + 0x8000) >> 16);
    let byte = |value: i32| value.clamp(0, 255) as u8;
    [byte(rounded(91_881 * red)), byte(rounded(-22_554 * blue - 46_802 * red)), byte(rounded(116_130 * blue)), 255]
}

/// # Safety
/// The samples are readable and the pixels writable, `width` of each.
unsafe fn plain(luma: *const u8, blue: *const u8, red: *const u8, out: *mut u8, columns: std::ops::Range<usize>) {
    for x in columns {
        // SAFETY: the contract.
        unsafe { out.cast::<[u8; 4]>().add(x).write_unaligned(pixel(*luma.add(x), *blue.add(x), *red.add(x))) };
    }
}

/// What libjpeg's constants are, times 2^16, once a whole number is taken off that they would not fit 16 bits with: 1 for
/// red in red, 2 for blue in blue, -1 for red in green.
const REST_OF_RED: i16 = 26_345;
const REST_OF_BLUE: i16 = -14_942;
const REST_OF_GREEN: i16 = 18_734;
const BLUE_IN_GREEN: i16 = -22_554;

macro_rules! converts {
    (
        $name:ident, $features:literal, $step:literal, $load:ident, $widen:ident, $set:ident,
        $set_long:ident, $add:ident, $sub:ident, $high:ident, $halve:ident, $low:ident, $upper:ident, $madd:ident,
        $add_long:ident, $shift_long:ident, $saturate:ident, $max:ident, $min:ident, $or:ident, $left:ident, $store:ident
    ) => {
        /// # Safety
        /// The samples are readable and the pixels writable, `width` of each.
        #[target_feature(enable = $features)]
        unsafe extern "C" fn $name(luma: *const u8, blue: *const u8, red: *const u8, out: *mut u8, width: u32) {
            let (width, step) = (width as usize, $step);
            let (center, one, none, most) = ($set(128), $set(1), $set(0), $set(255));
            let (opaque, half) = ($set(-256), $set_long(0x8000));
            let green = $set_long(i32::from(REST_OF_GREEN) << 16 | i32::from(BLUE_IN_GREEN as u16));
            let mut x = 0;
            while x + step <= width {
                // SAFETY: so many samples are left.
                let y = unsafe { $load(luma.add(x).cast()) };
                // SAFETY: as above.
                let (b, r) = unsafe { ($load(blue.add(x).cast()), $load(red.add(x).cast())) };
                let (y, b, r) = ($widen(y), $sub($widen(b), center), $sub($widen(r), center));
                // Twice the product's high half, plus 1, halved: rounded as libjpeg rounds.
                let rest_of_red = $halve::<1>($add($high($add(r, r), $set(REST_OF_RED)), one));
                let rest_of_blue = $halve::<1>($add($high($add(b, b), $set(REST_OF_BLUE)), one));
                let in_red = $add($add(y, r), rest_of_red);
                let in_blue = $add($add(y, $add(b, b)), rest_of_blue);
                let first = $shift_long::<16>($add_long($madd($low(b, r), green), half));
                let second = $shift_long::<16>($add_long($madd($upper(b, r), green), half));
                let in_green = $add($sub(y, r), $saturate(first, second));
                let red_of = $min($max(in_red, none), most);
                let green_of = $min($max(in_green, none), most);
                let blue_of = $min($max(in_blue, none), most);
                let front = $or(red_of, $left::<8>(green_of));
                let back = $or(blue_of, opaque);
                // SAFETY: so many pixels are left.
                unsafe { $store($low(front, back), $upper(front, back), out.add(4 * x)) };
                x += step;
            }
            // SAFETY: the contract.
            unsafe { plain(luma, blue, red, out, x..width) };
        }
    };
}

converts!(
    convert_512,
    "avx512f,avx512bw",
    32,
    _mm256_loadu_si256,
    _mm512_cvtepu8_epi16,
    _mm512_set1_epi16,
    _mm512_set1_epi32,
    _mm512_add_epi16,
    _mm512_sub_epi16,
    _mm512_mulhi_epi16,
    _mm512_srai_epi16,
    _mm512_unpacklo_epi16,
    _mm512_unpackhi_epi16,
    _mm512_madd_epi16,
    _mm512_add_epi32,
    _mm512_srai_epi32,
    _mm512_packs_epi32,
    _mm512_max_epi16,
    _mm512_min_epi16,
    _mm512_or_si512,
    _mm512_slli_epi16,
    store_512
);
converts!(
    convert_256,
    "avx2",
    16,
    _mm_loadu_si128,
    _mm256_cvtepu8_epi16,
    _mm256_set1_epi16,
    _mm256_set1_epi32,
    _mm256_add_epi16,
    _mm256_sub_epi16,
    _mm256_mulhi_epi16,
    _mm256_srai_epi16,
    _mm256_unpacklo_epi16,
    _mm256_unpackhi_epi16,
    _mm256_madd_epi16,
    _mm256_add_epi32,
    _mm256_srai_epi32,
    _mm256_packs_epi32,
    _mm256_max_epi16,
    _mm256_min_epi16,
    _mm256_or_si256,
    _mm256_slli_epi16,
    store_256
);

/// Stores pixels of which each vector has every second four.
///
/// # Safety
/// `to` is writable for both.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn store_512(low: __m512i, high: __m512i, to: *mut u8) {
    let first = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high);
    let second = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high);
    // SAFETY: the contract.
    unsafe {
        _mm512_storeu_si512(to.cast(), first);
        _mm512_storeu_si512(to.add(64).cast(), second);
    }
}

/// Stores pixels of which each vector has every second four.
///
/// # Safety
/// `to` is writable for both.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_256(low: __m256i, high: __m256i, to: *mut u8) {
    // SAFETY: the contract.
    unsafe {
        _mm256_storeu_si256(to.cast(), _mm256_permute2x128_si256::<0x20>(low, high));
        _mm256_storeu_si256(to.add(32).cast(), _mm256_permute2x128_si256::<0x31>(low, high));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libjpeg's tables, as `jdcolor.c` makes them.
    fn of_tables(luma: u8, blue: u8, red: u8) -> [u8; 4] {
        let fix = |x: f64| (x * 65_536.0 + 0.5) as i64;
        let (luma, blue, red) = (i64::from(luma), i64::from(blue) - 128, i64::from(red) - 128);
        let in_red = (fix(1.402) * red + 32_768) >> 16;
        let in_blue = (fix(1.772) * blue + 32_768) >> 16;
        let in_green = (-fix(0.344_14) * blue + 32_768 - fix(0.714_14) * red) >> 16;
        let byte = |value: i64| value.clamp(0, 255) as u8;
        [byte(luma + in_red), byte(luma + in_green), byte(luma + in_blue), 255]
    }

    #[test]
    fn all_colors_are_those_of_libjpeg() {
        let lumas: Vec<u8> = (0..=255).collect();
        let ways: Vec<Convert> =
            [simd::has_avx512().then_some(convert_512 as Convert), simd::has_avx2().then_some(convert_256 as Convert)]
                .into_iter()
                .flatten()
                .collect();
        for blue in 0..=255 {
            for red in 0..=255 {
                let want: Vec<[u8; 4]> = lumas.iter().map(|luma| of_tables(*luma, blue, red)).collect();
                assert_eq!(lumas.iter().map(|luma| pixel(*luma, blue, red)).collect::<Vec<_>>(), want);
                // Rows of any length, of which nothing is written beyond the end.
                let width = 256 - usize::from(red) % 37;
                for convert in &ways {
                    let mut got = vec![[7; 4]; 257];
                    let chroma = [[blue; 256], [red; 256]];
                    let (luma, out) = (lumas.as_ptr(), got.as_mut_ptr().cast());
                    // SAFETY: the processor has the instructions, and the rows are as long.
                    unsafe { convert(luma, chroma[0].as_ptr(), chroma[1].as_ptr(), out, width as u32) };
                    assert_eq!(got[..width], want[..width]);
                    assert!(got[width..].iter().all(|pixel| *pixel == [7; 4]));
                }
            }
        }
    }
}
