//! Operations that replace each byte by a function of that byte.
#![allow(unsafe_code)]

use super::CpuPass;
use super::descriptors::{DevicePointer, SourceImage, TableSample};
use super::kernel::{CallRecorder, Kernel, KernelId};
use crate::error::Result;
use crate::raster::Size;

/// The kernel that applies all tables.
pub(crate) const KERNELS: &[Kernel] = &[Kernel::pixels("table_u8_nhwc")];

/// Bytes that are copied before a table is applied to them: they stay in the first cache.
const STEP_BYTES: usize = 4096;

/// A table with the new value of each byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ByteTable([u8; 256]);

impl ByteTable {
    pub(crate) fn new(value: impl Fn(u8) -> u8) -> Self {
        Self(std::array::from_fn(|byte| value(byte as u8)))
    }

    /// The table that applies this table, then `next`.
    pub(crate) fn then(&self, next: &Self) -> Self {
        Self(self.0.map(|byte| next.0[usize::from(byte)]))
    }

    /// Applies the table on the CPU, to whichever part of an image is stored.
    pub(super) fn pass(&self, pass: &mut CpuPass<'_>) {
        self.apply(pass.image.pixels_mut().as_flattened_mut());
    }

    /// The new values of all bytes.
    pub(crate) fn bytes(&self) -> &[u8; 256] {
        &self.0
    }

    /// Queues the table's kernel.
    pub(crate) fn launch(&self, on: &mut dyn CallRecorder) -> Result<()> {
        let table = on.put(&self.0)?;
        launch(on, table, 0);
        Ok(())
    }

    /// Writes the value of each byte in the table to the same place of `to`, which is as long.
    pub(crate) fn apply_to(&self, from: &[u8], to: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if crate::simd::has_avx512() {
            let len = from.len().min(to.len());
            // SAFETY: the processor has AVX-512 with byte shuffles, and both slices have so many bytes.
            return unsafe { avx512::apply(&self.0, from.as_ptr(), to.as_mut_ptr(), len) };
        }
        for (from, to) in from.chunks(STEP_BYTES).zip(to.chunks_mut(STEP_BYTES)) {
            to.copy_from_slice(from);
            self.apply(to);
        }
    }

    /// Replaces each byte by its value in the table.
    pub(crate) fn apply(&self, bytes: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if crate::simd::has_avx512() {
            let (start, len) = (bytes.as_mut_ptr(), bytes.len());
            // SAFETY: the processor has AVX-512 with byte shuffles, and the slice has so many bytes.
            return unsafe { avx512::apply(&self.0, start, start, len) };
        } else if crate::simd::has_avx2() {
            let (blocks, rest) = bytes.as_chunks_mut();
            // SAFETY: the processor has AVX2.
            unsafe { avx2::apply(&self.0, blocks) };
            return self.apply_plain(rest);
        }
        self.apply_plain(bytes);
    }

    fn apply_plain(&self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.0[usize::from(*byte)]);
    }
}

/// Queues the kernel for a table of 256 bytes on the device, or for one table per channel, `stride_bytes` apart.
pub(super) fn launch(on: &mut dyn CallRecorder, table: DevicePointer, stride_bytes: u32) {
    const TABLE: KernelId = KernelId::of("table_u8_nhwc");
    let SourceImage { pixels, pitch_bytes, width, height, .. } = on.source();
    let sample = TableSample { pixels, table, pitch_bytes, width, height, stride_bytes };
    on.call(TABLE, &sample, Size::new(width, height));
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    /// The table is 16 rows of 16 bytes; a shuffle looks up 32 bytes in a row. A shuffle gives 0 for an index whose
    /// highest bit is set. So for each row, the bytes that belong to another row get an index with the highest bit set.
    #[target_feature(enable = "avx2")]
    pub(super) fn apply(table: &[u8; 256], blocks: &mut [[u8; 32]]) {
        let (rows, _) = table.as_chunks::<16>();
        let mut lookup = [_mm256_setzero_si256(); 16];
        for (lookup, row) in lookup.iter_mut().zip(rows) {
            *lookup = _mm256_broadcastsi128_si256(bytemuck::cast(*row));
        }
        for block in blocks {
            let bytes: __m256i = bytemuck::cast(*block);
            let mut made = _mm256_setzero_si256();
            for (row, first) in lookup.iter().zip((0..=255_u8).step_by(16)) {
                // The place is 0 to 15 for the bytes of this row, and more for all others. After the addition it is
                // 0x70 to 0x7f, and 0x80 or more.
                let place = _mm256_xor_si256(bytes, _mm256_set1_epi8(first as i8));
                let index = _mm256_adds_epu8(place, _mm256_set1_epi8(0x70));
                made = _mm256_or_si256(made, _mm256_shuffle_epi8(*row, index));
            }
            *block = bytemuck::cast(made);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    /// The table is two halves of two vectors each. A shuffle looks up 64 bytes in a half by their low seven bits.
    ///
    /// # Safety
    /// `from` and `to` must have `len` bytes. They may be the same, but not overlap in another way.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) unsafe fn apply(table: &[u8; 256], from: *const u8, to: *mut u8, len: usize) {
        let (quarters, _) = table.as_chunks::<64>();
        // SAFETY: 64 bytes each; loads and stores need no alignment.
        let [a, b, c, d] = std::array::from_fn(|i| unsafe { _mm512_loadu_si512(quarters[i].as_ptr().cast()) });
        let made = |bytes: __m512i| {
            let (low, high) = (_mm512_permutex2var_epi8(a, bytes, b), _mm512_permutex2var_epi8(c, bytes, d));
            _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), low, high)
        };
        let mut done = 0;
        while done + 64 <= len {
            // SAFETY: 64 bytes are left (this function's contract).
            unsafe {
                let bytes = _mm512_loadu_si512(from.add(done).cast());
                _mm512_storeu_si512(to.add(done).cast(), made(bytes));
            }
            done += 64;
        }
        if done < len {
            let rest = (1 << (len - done)) - 1;
            // SAFETY: only the bytes that are left are read and written.
            unsafe {
                let bytes = _mm512_maskz_loadu_epi8(rest, from.add(done).cast());
                _mm512_mask_storeu_epi8(to.add(done).cast(), rest, made(bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ByteTable;

    #[test]
    fn vectors_give_what_the_table_has() {
        let table = ByteTable::new(|byte| byte.wrapping_mul(37) ^ 0x5a);
        for len in [0, 1, 31, 32, 33, 256, 1000] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 11 % 256) as u8).collect();
            let (mut fast, mut plain) = (bytes.clone(), bytes.clone());
            table.apply(&mut fast);
            table.apply_plain(&mut plain);
            assert_eq!(fast, plain);
            let mut other = vec![7; len + 1];
            table.apply_to(&bytes, &mut other[..len]);
            assert_eq!((&other[..len], other[len]), (&plain[..], 7));
            // On processors with AVX-512, `apply` does not test this code.
            #[cfg(target_arch = "x86_64")]
            if crate::simd::has_avx2() {
                let mut fast = bytes;
                let (blocks, rest) = fast.as_chunks_mut();
                // SAFETY: the processor has AVX2.
                unsafe { super::avx2::apply(&table.0, blocks) };
                table.apply_plain(rest);
                assert_eq!(fast, plain);
            }
        }
    }
}
