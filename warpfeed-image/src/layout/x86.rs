//! The copies in vectors of x86-64. Each function returns the number of pixels that it has copied: all, or with AVX2
//! all but the last few.

use super::Rows;
use crate::raster::Pixel;
use crate::simd::{has_avx2, has_avx512};
use std::arch::x86_64::*;

/// `rgb` has three bytes for each pixel of `to`.
pub(super) fn triples_to_pixels(rgb: &[u8], to: &mut [Pixel]) -> usize {
    debug_assert_eq!(rgb.len(), 3 * to.len());
    // SAFETY: the processor has the instructions, and the lengths are those of the functions' contracts.
    unsafe {
        match (has_avx512(), has_avx2()) {
            (true, _) => triples_to_pixels_512(rgb, to),
            (_, true) => triples_to_pixels_256(rgb, to),
            _ => 0,
        }
    }
}

/// `to` has three bytes for each pixel.
pub(super) fn pixels_to_triples(pixels: &[Pixel], to: &mut [u8]) -> usize {
    debug_assert_eq!(to.len(), 3 * pixels.len());
    // SAFETY: the processor has the instructions, and the lengths are those of the functions' contracts.
    unsafe {
        match (has_avx512(), has_avx2()) {
            (true, _) => pixels_to_triples_512(pixels, to),
            (_, true) => pixels_to_triples_256(pixels, to),
            _ => 0,
        }
    }
}

/// The planes are as long as `to`.
pub(super) fn planes_to_pixels(planes: [&[u8]; 3], to: &mut [Pixel]) -> usize {
    debug_assert!(planes.iter().all(|plane| plane.len() == to.len()));
    // SAFETY: the processor has the instructions, and the lengths are those of the functions' contracts.
    unsafe {
        match (has_avx512(), has_avx2()) {
            (true, _) => planes_to_pixels_512(planes, to),
            (_, true) => planes_to_pixels_256(planes, to),
            _ => 0,
        }
    }
}

/// The planes, at most four, are as long as `pixels`.
pub(super) fn pixels_to_planes<const N: usize>(pixels: &[Pixel], planes: &mut [&mut [u8]; N]) -> usize {
    debug_assert!(N <= 4 && planes.iter().all(|plane| plane.len() == pixels.len()));
    // SAFETY: the processor has the instructions, and the lengths are those of the functions' contracts.
    unsafe {
        match (has_avx512(), has_avx2()) {
            (true, _) => pixels_to_planes_512(pixels, planes),
            (_, true) => pixels_to_planes_256(pixels, planes),
            _ => 0,
        }
    }
}

/// Returns how many bytes of each row it has copied.
///
/// # Safety
/// `count` rows of `len` bytes, a multiple of `N`, must lie at both places.
pub(super) unsafe fn mirrored_rows<const N: usize>(
    from: *const u8,
    of: Rows,
    to: *mut u8,
    on: Rows,
    len: usize,
    count: usize,
) -> usize {
    // SAFETY: the processor has the instructions, and the rest is this function's contract.
    unsafe {
        match (has_avx512(), has_avx2()) {
            (true, _) => mirrored_512::<N>(from, of, to, on, len, count),
            (_, true) if N == 1 => mirrored_bytes_256(from, of, to, on, len, count),
            (_, true) if N == 3 => mirrored_triples_256(from, of, to, on, len, count),
            _ => 0,
        }
    }
}

impl Rows {
    /// Where row `i` begins in the memory at `start`.
    #[inline(always)]
    fn at(&self, start: *const u8, i: isize) -> *const u8 {
        start.wrapping_add(self.first).wrapping_offset(self.step * i)
    }
}

/// Transposes by perfect shuffles: after each, a byte's place is its former one with the bits rotated by one, and after
/// four of them row and column are swapped. Each processor of x86-64 has the instructions.
#[inline]
pub(super) fn transposed(rows: [[u8; 16]; 16]) -> [[u8; 16]; 16] {
    let mut rows: [__m128i; 16] = rows.map(bytemuck::cast);
    for _ in 0..4 {
        let mut next = rows;
        for i in 0..8 {
            // SAFETY: each processor of x86-64 has SSE2.
            unsafe {
                next[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + 8]);
                next[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + 8]);
            }
        }
        rows = next;
    }
    rows.map(bytemuck::cast)
}

/// For each byte of whole units of `N` bytes, the byte in the reverse order of the units at the end of a vector.
const fn reverse<const N: usize>() -> [u8; 64] {
    let mut places = [0; 64];
    let mut i = 0;
    while i < 64 / N * N {
        places[i] = (64 - N - i / N * N + i % N) as u8;
        i += 1;
    }
    places
}

/// Number of pixels in a vector of AVX-512.
const LANES: usize = 16;

/// For each byte of 16 pixels, the byte of 16 triples. Fourth bytes are overwritten.
const SPREAD: [u8; 64] = {
    let mut places = [0; 64];
    let mut i = 0;
    while i < 64 {
        places[i] = (i / 4 * 3 + i % 4) as u8;
        i += 1;
    }
    places
};

/// For each byte of 16 triples, the byte of 16 pixels.
const PACK: [u8; 64] = {
    let mut places = [0; 64];
    let mut i = 0;
    while i < 48 {
        places[i] = (i / 3 * 4 + i % 3) as u8;
        i += 1;
    }
    places
};

/// The fourth byte of each pixel.
const FOURTH: i32 = 0xff00_0000_u32 as i32;

/// A mask of the first `count` of 64 bytes.
fn first(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// # Safety
/// `rgb` must have three bytes for each pixel of `to`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn triples_to_pixels_512(rgb: &[u8], to: &mut [Pixel]) -> usize {
    // SAFETY: the table is as long as a vector.
    let places = unsafe { _mm512_loadu_si512(SPREAD.as_ptr().cast()) };
    let fourth = _mm512_set1_epi32(FOURTH);
    for (i, to) in to.chunks_mut(LANES).enumerate() {
        // SAFETY: only the bytes of the pixels in this chunk are read and written.
        unsafe {
            let from = _mm512_maskz_loadu_epi8(first(3 * to.len()), rgb.as_ptr().add(3 * LANES * i).cast());
            let pixels = _mm512_or_si512(_mm512_permutexvar_epi8(places, from), fourth);
            if to.len() == LANES {
                _mm512_storeu_si512(to.as_mut_ptr().cast(), pixels);
            } else {
                _mm512_mask_storeu_epi8(to.as_mut_ptr().cast(), first(4 * to.len()), pixels);
            }
        }
    }
    to.len()
}

/// # Safety
/// `to` must have three bytes for each pixel.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn pixels_to_triples_512(pixels: &[Pixel], to: &mut [u8]) -> usize {
    // SAFETY: the table is as long as a vector.
    let places = unsafe { _mm512_loadu_si512(PACK.as_ptr().cast()) };
    for (from, to) in pixels.chunks(LANES).zip(to.chunks_mut(3 * LANES)) {
        // SAFETY: only the bytes of the pixels in this chunk are read and written.
        unsafe {
            let from = _mm512_maskz_loadu_epi8(first(4 * from.len()), from.as_ptr().cast());
            let packed = _mm512_permutexvar_epi8(places, from);
            if to.len() == 3 * LANES {
                _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_castsi512_si256(packed));
                _mm_storeu_si128(to.as_mut_ptr().add(32).cast(), _mm512_extracti32x4_epi32::<2>(packed));
            } else {
                _mm512_mask_storeu_epi8(to.as_mut_ptr().cast(), first(to.len()), packed);
            }
        }
    }
    pixels.len()
}

/// # Safety
/// The planes must be as long as `to`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn planes_to_pixels_512(planes: [&[u8]; 3], to: &mut [Pixel]) -> usize {
    let fourth = _mm512_set1_epi32(FOURTH);
    for (i, to) in to.chunks_mut(LANES).enumerate() {
        let mask = first(to.len()) as u16;
        // SAFETY: only the bytes of the pixels in this chunk are read and written.
        unsafe {
            let [red, green, blue] = planes
                .map(|plane| _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, plane.as_ptr().add(LANES * i).cast())));
            let pixels = _mm512_or_si512(
                _mm512_or_si512(red, _mm512_slli_epi32::<8>(green)),
                _mm512_or_si512(_mm512_slli_epi32::<16>(blue), fourth),
            );
            if to.len() == LANES {
                _mm512_storeu_si512(to.as_mut_ptr().cast(), pixels);
            } else {
                _mm512_mask_storeu_epi8(to.as_mut_ptr().cast(), first(4 * to.len()), pixels);
            }
        }
    }
    to.len()
}

/// # Safety
/// The planes must be as long as `pixels`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pixels_to_planes_512<const N: usize>(pixels: &[Pixel], planes: &mut [&mut [u8]; N]) -> usize {
    for (i, from) in pixels.chunks(LANES).enumerate() {
        let len = from.len();
        // SAFETY: only the bytes of the pixels in this chunk are read.
        let mut from = unsafe { _mm512_maskz_loadu_epi8(first(4 * len), from.as_ptr().cast()) };
        for plane in planes.iter_mut() {
            let bytes = _mm512_cvtepi32_epi8(from);
            // SAFETY: only the bytes of the pixels in this chunk are written.
            unsafe {
                let to = plane.as_mut_ptr().add(LANES * i);
                if len == LANES {
                    _mm_storeu_si128(to.cast(), bytes);
                } else {
                    _mm_mask_storeu_epi8(to.cast(), first(len) as u16, bytes);
                }
            }
            from = _mm512_srli_epi32::<8>(from);
        }
    }
    pixels.len()
}

/// Number of pixels in a vector of AVX2.
const LANES_256: usize = 8;
/// Number of bytes of the first four triples, from which the other four are loaded.
const HALF: usize = 12;

/// # Safety
/// `rgb` must have three bytes for each pixel of `to`.
#[target_feature(enable = "avx2")]
unsafe fn triples_to_pixels_256(rgb: &[u8], to: &mut [Pixel]) -> usize {
    // SAFETY: the table is longer than half a vector.
    let places = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(SPREAD.as_ptr().cast()) });
    let fourth = _mm256_set1_epi32(FOURTH);
    let mut done = 0;
    for to in to.as_chunks_mut::<LANES_256>().0 {
        // The second half is loaded with four bytes more than it needs.
        if 3 * done + HALF + 16 > rgb.len() {
            break;
        }
        // SAFETY: as just checked; the chunk is as long as a vector.
        unsafe {
            let from = rgb.as_ptr().add(3 * done);
            let both = _mm256_loadu2_m128i(from.add(HALF).cast(), from.cast());
            let pixels = _mm256_or_si256(_mm256_shuffle_epi8(both, places), fourth);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), pixels);
        }
        done += LANES_256;
    }
    done
}

/// # Safety
/// `to` must have three bytes for each pixel.
#[target_feature(enable = "avx2")]
unsafe fn pixels_to_triples_256(pixels: &[Pixel], to: &mut [u8]) -> usize {
    // SAFETY: the table is longer than half a vector.
    let places = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(PACK.as_ptr().cast()) });
    let mut done = 0;
    for from in pixels.as_chunks::<LANES_256>().0 {
        // The second half is stored with four bytes more than it has, which the next step overwrites.
        if 3 * done + HALF + 16 > to.len() {
            break;
        }
        // SAFETY: as just checked; the chunk is as long as a vector.
        unsafe {
            let packed = _mm256_shuffle_epi8(_mm256_loadu_si256(from.as_ptr().cast()), places);
            let to = to.as_mut_ptr().add(3 * done);
            _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed));
            _mm_storeu_si128(to.add(HALF).cast(), _mm256_extracti128_si256::<1>(packed));
        }
        done += LANES_256;
    }
    done
}

/// # Safety
/// The planes must be as long as `to`.
#[target_feature(enable = "avx2")]
unsafe fn planes_to_pixels_256(planes: [&[u8]; 3], to: &mut [Pixel]) -> usize {
    let fourth = _mm256_set1_epi32(FOURTH);
    let chunks = to.as_chunks_mut::<LANES_256>().0;
    for (i, to) in chunks.iter_mut().enumerate() {
        // SAFETY: the planes and the chunk have the eight pixels.
        unsafe {
            let [red, green, blue] =
                planes.map(|plane| _mm256_cvtepu8_epi32(_mm_loadl_epi64(plane.as_ptr().add(LANES_256 * i).cast())));
            let pixels = _mm256_or_si256(
                _mm256_or_si256(red, _mm256_slli_epi32::<8>(green)),
                _mm256_or_si256(_mm256_slli_epi32::<16>(blue), fourth),
            );
            _mm256_storeu_si256(to.as_mut_ptr().cast(), pixels);
        }
    }
    LANES_256 * chunks.len()
}

/// # Safety
/// The planes must be as long as `pixels`.
#[target_feature(enable = "avx2")]
unsafe fn pixels_to_planes_256<const N: usize>(pixels: &[Pixel], planes: &mut [&mut [u8]; N]) -> usize {
    let low = _mm256_set1_epi32(255);
    let chunks = pixels.as_chunks::<LANES_256>().0;
    for (i, from) in chunks.iter().enumerate() {
        // SAFETY: the chunk is as long as a vector.
        let mut from = unsafe { _mm256_loadu_si256(from.as_ptr().cast()) };
        for plane in planes.iter_mut() {
            let values = _mm256_and_si256(from, low);
            let halves = _mm_packus_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256::<1>(values));
            // SAFETY: the plane has the eight pixels.
            unsafe {
                _mm_storel_epi64(plane.as_mut_ptr().add(LANES_256 * i).cast(), _mm_packus_epi16(halves, halves));
            }
            from = _mm256_srli_epi32::<8>(from);
        }
    }
    LANES_256 * chunks.len()
}

/// # Safety
/// See [`mirrored_rows`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn mirrored_512<const N: usize>(
    from: *const u8,
    of: Rows,
    to: *mut u8,
    on: Rows,
    len: usize,
    count: usize,
) -> usize {
    let table = const { reverse::<N>() };
    // SAFETY: the table is as long as a vector.
    let places = unsafe { _mm512_loadu_si512(table.as_ptr().cast()) };
    let step = 64 / N * N;
    for i in 0..count as isize {
        let (from, to) = (of.at(from, i), on.at(to, i).cast_mut());
        let mut done = 0;
        // Stores with masks take many times as long. A full one may write bytes that the next one makes.
        while done + 64 <= len {
            // SAFETY: 64 bytes are left in both rows.
            unsafe {
                let units = _mm512_loadu_si512(from.add(len - done - 64).cast());
                _mm512_storeu_si512(to.add(done).cast(), _mm512_permutexvar_epi8(places, units));
            }
            done += step;
        }
        if N == 1 && done < len && len >= 64 {
            // The last vector makes bytes again that are made already.
            // SAFETY: the rows have 64 bytes.
            unsafe {
                let units = _mm512_loadu_si512(from.cast());
                _mm512_storeu_si512(to.add(len - 64).cast(), _mm512_permutexvar_epi8(places, units));
            }
        } else if done < len {
            let mask = first(len - done);
            // SAFETY: the first bytes of the row are the last of a vector. Those that lie before it are masked, and the
            // other row has as many bytes left.
            unsafe {
                let start = from.wrapping_add(len - done).wrapping_sub(64);
                let units = _mm512_maskz_loadu_epi8(!first(64 - (len - done)), start.cast());
                let made = _mm512_permutexvar_epi8(places, units);
                _mm512_mask_storeu_epi8(to.add(done).cast(), mask, made);
            }
        }
    }
    len
}

/// # Safety
/// See [`mirrored_rows`].
#[target_feature(enable = "avx2")]
unsafe fn mirrored_bytes_256(from: *const u8, of: Rows, to: *mut u8, on: Rows, len: usize, count: usize) -> usize {
    const STEP: usize = 32;
    let places = _mm256_broadcastsi128_si256(_mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    if len < STEP {
        return 0;
    }
    for i in 0..count as isize {
        let (from, to) = (of.at(from, i), on.at(to, i).cast_mut());
        // The last vector may make bytes again that are made already.
        for done in (0..=len - STEP).step_by(STEP).chain([len - STEP]) {
            // SAFETY: `done` and the vector's length are at most `len`.
            unsafe {
                let bytes = _mm256_loadu_si256(from.add(len - STEP - done).cast());
                let halves = _mm256_shuffle_epi8(bytes, places);
                _mm256_storeu_si256(to.add(done).cast(), _mm256_permute4x64_epi64::<0b0100_1110>(halves));
            }
        }
    }
    len
}

/// # Safety
/// See [`mirrored_rows`].
#[target_feature(enable = "avx2")]
unsafe fn mirrored_triples_256(from: *const u8, of: Rows, to: *mut u8, on: Rows, len: usize, count: usize) -> usize {
    // Five triples. The load has one byte before them, the store one byte after them, which the next step overwrites.
    const STEP: usize = 15;
    let places = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0);
    let mut done = 0;
    for i in 0..count as isize {
        let (from, to) = (of.at(from, i), on.at(to, i).cast_mut());
        done = 0;
        while done + STEP < len {
            // SAFETY: 16 bytes are left in both rows.
            unsafe {
                let bytes = _mm_loadu_si128(from.add(len - done - STEP - 1).cast());
                _mm_storeu_si128(to.add(done).cast(), _mm_shuffle_epi8(bytes, places));
            }
            done += STEP;
        }
    }
    done
}
