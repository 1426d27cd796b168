//! Vectors of 16-bit numbers for the inverse DCT: a row, or column, of several blocks, each in 128 bits.
#![allow(unsafe_code)]

use super::DctBlock;
use std::arch::x86_64::*;

/// A vector of AVX2 or AVX-512. All operations work within each block's 128 bits. Code that uses them has no closures:
/// a closure is compiled without the features of the function that it ends up in, and then calls each instruction.
///
/// # Safety
/// Every method needs a processor with the instructions of its vector: AVX-512 F, BW and DQ, or AVX2. Each is inlined
/// into a function that is compiled for them.
pub(super) trait Shorts: Copy {
    /// The blocks that fill a vector.
    type Blocks<'a>;
    /// A row of samples of all blocks, one byte each.
    type Row;

    unsafe fn zero() -> Self;
    /// Eight numbers for every block.
    unsafe fn repeat(row: &[u16; 8]) -> Self;
    /// A number of 32 bits in all places.
    unsafe fn long(value: i32) -> Self;
    /// Each row of all blocks.
    unsafe fn load(blocks: Self::Blocks<'_>) -> [Self; 8];

    unsafe fn or(self, other: Self) -> Self;
    unsafe fn plus(self, other: Self) -> Self;
    unsafe fn minus(self, other: Self) -> Self;
    /// The low 16 bits of each product.
    unsafe fn times(self, other: Self) -> Self;
    unsafe fn times_4(self) -> Self;
    unsafe fn plus_long(self, other: Self) -> Self;
    unsafe fn minus_long(self, other: Self) -> Self;
    /// Numbers of 32 bits, shifted right.
    unsafe fn halved_long<const TIMES: i32>(self) -> Self;
    /// For each pair of numbers the first times `first` plus the second times `second`, in 32 bits.
    unsafe fn products(self, first: i16, second: i16) -> Self;
    /// Numbers of 32 bits as saturated ones of 16: four of `self`, then four of `upper`.
    unsafe fn saturated(self, upper: Self) -> Self;

    /// Numbers of `self` and `other` in turn, from the lower half of each block, or from the upper one.
    unsafe fn low_16(self, other: Self) -> Self;
    unsafe fn high_16(self, other: Self) -> Self;
    unsafe fn low_32(self, other: Self) -> Self;
    unsafe fn high_32(self, other: Self) -> Self;
    unsafe fn low_64(self, other: Self) -> Self;
    unsafe fn high_64(self, other: Self) -> Self;

    /// The blocks whose numbers are all zero, as all ones; `None` if there are none.
    unsafe fn empty_blocks(self) -> Option<Self>;
    /// `other` where `places` has ones.
    unsafe fn replaced_by(self, other: Self, places: Self) -> Self;
    /// Converts columns to bytes around 128, saturated, as the rows of all blocks.
    unsafe fn rows(columns: [Self; 8]) -> [Self::Row; 8];
}

/// Two numbers of 16 bits as one of 32.
fn pair(first: i16, second: i16) -> i32 {
    i32::from(second) << 16 | i32::from(first as u16)
}

/// Implements the methods that are one instruction.
macro_rules! instructions {
    ($($name:ident($($other:ident)?) $intrinsic:ident)*) => {$(
        #[inline(always)]
        unsafe fn $name(self $(, $other: Self)?) -> Self {
            // SAFETY: as promised by the caller.
            unsafe { $intrinsic(self $(, $other)?) }
        }
    )*};
}

impl Shorts for __m512i {
    type Blocks<'a> = [&'a DctBlock; 4];
    type Row = __m256i;

    instructions! {
        or(other) _mm512_or_si512
        plus(other) _mm512_add_epi16
        minus(other) _mm512_sub_epi16
        times(other) _mm512_mullo_epi16
        plus_long(other) _mm512_add_epi32
        minus_long(other) _mm512_sub_epi32
        saturated(other) _mm512_packs_epi32
        low_16(other) _mm512_unpacklo_epi16
        high_16(other) _mm512_unpackhi_epi16
        low_32(other) _mm512_unpacklo_epi32
        high_32(other) _mm512_unpackhi_epi32
        low_64(other) _mm512_unpacklo_epi64
        high_64(other) _mm512_unpackhi_epi64
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: as promised by the caller.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn repeat(row: &[u16; 8]) -> Self {
        // SAFETY: as promised by the caller; eight numbers are 16 bytes.
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(row.as_ptr().cast())) }
    }

    #[inline(always)]
    unsafe fn long(value: i32) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    unsafe fn load(blocks: [&DctBlock; 4]) -> [Self; 8] {
        // SAFETY: as promised by the caller; a block has 128 bytes and is aligned to 64.
        unsafe {
            let mut rows = [_mm512_setzero_si512(); 8];
            for (at, rows) in rows.chunks_exact_mut(4).enumerate() {
                let mut halves = [_mm512_setzero_si512(); 4];
                for (half, block) in halves.iter_mut().zip(blocks) {
                    *half = _mm512_load_si512(block.0.as_ptr().add(32 * at).cast());
                }
                let [a, b, c, d] = halves;
                let (ab, cd) = (_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0x44>(c, d));
                rows[0] = _mm512_shuffle_i64x2::<0x88>(ab, cd);
                rows[1] = _mm512_shuffle_i64x2::<0xDD>(ab, cd);
                let (ab, cd) = (_mm512_shuffle_i64x2::<0xEE>(a, b), _mm512_shuffle_i64x2::<0xEE>(c, d));
                rows[2] = _mm512_shuffle_i64x2::<0x88>(ab, cd);
                rows[3] = _mm512_shuffle_i64x2::<0xDD>(ab, cd);
            }
            rows
        }
    }

    #[inline(always)]
    unsafe fn times_4(self) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { _mm512_slli_epi16::<2>(self) }
    }

    #[inline(always)]
    unsafe fn halved_long<const TIMES: i32>(self) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { _mm512_srav_epi32(self, _mm512_set1_epi32(TIMES)) }
    }

    #[inline(always)]
    unsafe fn products(self, first: i16, second: i16) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { _mm512_madd_epi16(self, _mm512_set1_epi32(pair(first, second))) }
    }

    #[inline(always)]
    unsafe fn empty_blocks(self) -> Option<Self> {
        // SAFETY: as promised by the caller.
        unsafe {
            let halves = _mm512_testn_epi64_mask(self, self);
            let alone = halves & (halves >> 1) & 0x55;
            if alone == 0 { None } else { Some(_mm512_maskz_set1_epi64(alone | alone << 1, -1)) }
        }
    }

    #[inline(always)]
    unsafe fn replaced_by(self, other: Self, places: Self) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { _mm512_ternarylogic_epi64::<0xCA>(places, other, self) }
    }

    #[inline(always)]
    unsafe fn rows(columns: [Self; 8]) -> [__m256i; 8] {
        // SAFETY: as promised by the caller.
        unsafe {
            let alternate = _mm512_broadcast_i32x4(alternating());
            let mut pairs = [_mm512_setzero_si512(); 4];
            for (pair, columns) in pairs.iter_mut().zip(columns.as_chunks::<2>().0) {
                let bytes = _mm512_xor_si512(_mm512_packs_epi16(columns[0], columns[1]), _mm512_set1_epi8(-128));
                *pair = _mm512_shuffle_epi8(bytes, alternate);
            }
            let mut rows = [_mm256_setzero_si256(); 8];
            let order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
            let both = two_rows(pairs);
            for (rows, two) in rows.chunks_exact_mut(2).zip(both) {
                let two = _mm512_permutexvar_epi64(order, two);
                rows[0] = _mm512_castsi512_si256(two);
                rows[1] = _mm512_extracti64x4_epi64::<1>(two);
            }
            rows
        }
    }
}

impl Shorts for __m256i {
    type Blocks<'a> = [&'a DctBlock; 2];
    type Row = __m128i;

    instructions! {
        or(other) _mm256_or_si256
        plus(other) _mm256_add_epi16
        minus(other) _mm256_sub_epi16
        times(other) _mm256_mullo_epi16
        plus_long(other) _mm256_add_epi32
        minus_long(other) _mm256_sub_epi32
        saturated(other) _mm256_packs_epi32
        low_16(other) _mm256_unpacklo_epi16
        high_16(other) _mm256_unpackhi_epi16
        low_32(other) _mm256_unpacklo_epi32
        high_32(other) _mm256_unpackhi_epi32
        low_64(other) _mm256_unpacklo_epi64
        high_64(other) _mm256_unpackhi_epi64
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: as promised by the caller.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn repeat(row: &[u16; 8]) -> Self {
        // SAFETY: as promised by the caller; eight numbers are 16 bytes.
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(row.as_ptr().cast())) }
    }

    #[inline(always)]
    unsafe fn long(value: i32) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { _mm256_set1_epi32(value) }
    }

    #[inline(always)]
    unsafe fn load([a, b]: [&DctBlock; 2]) -> [Self; 8] {
        // SAFETY: as promised by the caller; a block has eight rows of 16 bytes.
        unsafe {
            let (a, b) = (a.0.as_ptr().cast::<__m128i>(), b.0.as_ptr().cast::<__m128i>());
            let mut rows = [_mm256_setzero_si256(); 8];
            for (at, row) in rows.iter_mut().enumerate() {
                *row = _mm256_set_m128i(_mm_load_si128(b.add(at)), _mm_load_si128(a.add(at)));
            }
            rows
        }
    }

    #[inline(always)]
    unsafe fn times_4(self) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { _mm256_slli_epi16::<2>(self) }
    }

    #[inline(always)]
    unsafe fn halved_long<const TIMES: i32>(self) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { _mm256_srai_epi32::<TIMES>(self) }
    }

    #[inline(always)]
    unsafe fn products(self, first: i16, second: i16) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { _mm256_madd_epi16(self, _mm256_set1_epi32(pair(first, second))) }
    }

    #[inline(always)]
    unsafe fn empty_blocks(self) -> Option<Self> {
        // SAFETY: as promised by the caller.
        unsafe {
            let halves = _mm256_cmpeq_epi64(self, _mm256_setzero_si256());
            let alone = _mm256_and_si256(halves, _mm256_shuffle_epi32::<0x4E>(halves));
            if _mm256_testz_si256(alone, alone) == 1 { None } else { Some(alone) }
        }
    }

    #[inline(always)]
    unsafe fn replaced_by(self, other: Self, places: Self) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { _mm256_blendv_epi8(self, other, places) }
    }

    #[inline(always)]
    unsafe fn rows(columns: [Self; 8]) -> [__m128i; 8] {
        // SAFETY: as promised by the caller.
        unsafe {
            let alternate = _mm256_broadcastsi128_si256(alternating());
            let mut pairs = [_mm256_setzero_si256(); 4];
            for (pair, columns) in pairs.iter_mut().zip(columns.as_chunks::<2>().0) {
                let bytes = _mm256_xor_si256(_mm256_packs_epi16(columns[0], columns[1]), _mm256_set1_epi8(-128));
                *pair = _mm256_shuffle_epi8(bytes, alternate);
            }
            let mut rows = [_mm_setzero_si128(); 8];
            let both = two_rows(pairs);
            for (rows, two) in rows.chunks_exact_mut(2).zip(both) {
                let two = _mm256_permute4x64_epi64::<0b11_01_10_00>(two);
                rows[0] = _mm256_castsi256_si128(two);
                rows[1] = _mm256_extracti128_si256::<1>(two);
            }
            rows
        }
    }
}

/// The order in which bytes of two neighboring columns alternate.
#[inline(always)]
unsafe fn alternating() -> __m128i {
    // SAFETY: every x86-64 processor has these instructions.
    unsafe { _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15) }
}

/// Two rows of each block in each vector, of pairs of columns.
#[inline(always)]
unsafe fn two_rows<V: Shorts>([a, b, c, d]: [V; 4]) -> [V; 4] {
    // SAFETY: as promised by the caller.
    unsafe {
        let (ab_upper, ab_lower) = (a.low_16(b), a.high_16(b));
        let (cd_upper, cd_lower) = (c.low_16(d), c.high_16(d));
        [ab_upper.low_32(cd_upper), ab_upper.high_32(cd_upper), ab_lower.low_32(cd_lower), ab_lower.high_32(cd_lower)]
    }
}
