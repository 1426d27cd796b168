//! What lanes of both kinds of vectors share: which kind runs, the lanes' places in the data, and the samples of blocks.
#![allow(unsafe_code)]

use super::x86_idct::{QuantSteps, samples};
use super::x86_shorts::Shorts;
use super::{BEFORE_DC, Lanes, LanesJob, x86_avx2, x86_avx512};
use std::arch::x86_64::*;
use std::sync::OnceLock;

/// Number of lanes: more than a vector has, so that instructions of several vectors alternate.
pub(super) const LANES: usize = 32;

/// The instructions that lanes run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vectors {
    Avx512,
    Avx2,
}

impl Vectors {
    /// The best that the processor has and the user allows. `None` if decoding one by one is faster.
    pub(super) fn best() -> Option<Self> {
        static BEST: OnceLock<Option<Vectors>> = OnceLock::new();
        *BEST.get_or_init(|| {
            if crate::simd::has_avx512() && std::is_x86_feature_detected!("avx512vbmi2") {
                Some(Self::Avx512)
            } else {
                (crate::simd::has_avx2() && x86_avx2::gathers_are_fast()).then_some(Self::Avx2)
            }
        })
    }

    /// Appends bytes, without the zero after each 0xFF.
    pub(super) fn unstuff(self, from: &[u8], to: &mut Vec<u8>) {
        to.reserve(from.len() + super::PAD_BYTES);
        // SAFETY: the processor has the instructions, or this would be another value; there is room.
        unsafe {
            match self {
                Self::Avx512 => x86_avx512::unstuff(from, to),
                Self::Avx2 => x86_avx2::unstuff(from, to),
            }
        }
    }
}

/// A vector with its instructions for storing rows of samples.
trait Store: Shorts {
    const BLOCKS: usize;
    fn blocks<'a>(block: impl Fn(usize) -> &'a super::DctBlock) -> Self::Blocks<'a>;
    /// Stores the row's samples of the first `blocks` blocks.
    ///
    /// # Safety
    /// There is room for 8 bytes a block, and the processor has the vector's instructions.
    unsafe fn store(row: Self::Row, to: *mut u8, blocks: usize);
}

impl Store for __m512i {
    const BLOCKS: usize = 4;

    fn blocks<'a>(block: impl Fn(usize) -> &'a super::DctBlock) -> [&'a super::DctBlock; 4] {
        std::array::from_fn(block)
    }

    #[inline(always)]
    unsafe fn store(row: __m256i, to: *mut u8, blocks: usize) {
        // SAFETY: as promised by the caller.
        unsafe { _mm256_mask_storeu_epi8(to.cast(), u32::MAX >> (32 - 8 * blocks), row) }
    }
}

impl Store for __m256i {
    const BLOCKS: usize = 2;

    fn blocks<'a>(block: impl Fn(usize) -> &'a super::DctBlock) -> [&'a super::DctBlock; 2] {
        std::array::from_fn(block)
    }

    #[inline(always)]
    unsafe fn store(row: __m128i, to: *mut u8, blocks: usize) {
        // SAFETY: as promised by the caller.
        unsafe { if blocks == 1 { _mm_storel_epi64(to.cast(), row) } else { _mm_storeu_si128(to.cast(), row) } }
    }
}

impl LanesJob<'_> {
    /// Makes the samples of a row of MCUs whose blocks are decoded.
    ///
    /// # Safety
    /// `planes` must point to the rows of samples of each component. Each row must have room for the image's blocks
    /// from the first column on.
    pub(super) unsafe fn transform(&self, row: u32, first_column: u32, columns: u32, planes: *const *const *mut u8) {
        // SAFETY: as promised by the caller; the processor has the instructions, or there would be no lanes.
        unsafe {
            match self.lanes.vectors {
                Vectors::Avx512 => self.transform_avx512(row, first_column, columns, planes),
                Vectors::Avx2 => self.transform_avx2(row, first_column, columns, planes),
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn transform_avx512(&self, row: u32, first_column: u32, columns: u32, planes: *const *const *mut u8) {
        // SAFETY: as promised by the caller.
        unsafe { self.transform_with::<__m512i>(row, first_column, columns, planes) }
    }

    #[target_feature(enable = "avx2")]
    unsafe fn transform_avx2(&self, row: u32, first_column: u32, columns: u32, planes: *const *const *mut u8) {
        // SAFETY: as promised by the caller.
        unsafe { self.transform_with::<__m256i>(row, first_column, columns, planes) }
    }

    /// # Safety
    /// As of [`transform`](Self::transform), and the processor has the vector's instructions.
    #[inline(always)]
    unsafe fn transform_with<V: Store>(
        &self,
        row: u32,
        first_column: u32,
        columns: u32,
        planes: *const *const *mut u8,
    ) {
        let Self { lanes: Lanes { planes: all, blocks, components, .. }, band, .. } = self;
        let in_mcu = components.len();
        let decoded = self.decoded_columns(first_column, columns);
        let lead = (first_column - decoded.start) as usize;
        let row_blocks = decoded.len() * in_mcu;
        let blocks = &blocks[(row - band.start) as usize * row_blocks..]
            [lead * in_mcu..columns as usize * in_mcu + lead * in_mcu];
        for (number, plane) in all.iter().enumerate() {
            // SAFETY: as promised by the caller.
            let steps = unsafe { QuantSteps::<V>::new(&plane.quant) };
            // The padding of the last MCU is no part of the image.
            let width = (columns as usize * plane.columns).min(plane.width - first_column as usize * plane.columns);
            for y in 0..plane.rows.min(plane.height - row as usize * plane.rows) {
                for x in (0..width).step_by(V::BLOCKS) {
                    let some = V::blocks(|i| {
                        let x = (x + i).min(width - 1);
                        let (mcu, column) = (x / plane.columns, x % plane.columns);
                        &blocks[mcu * in_mcu + plane.before + y * plane.columns + column]
                    });
                    // SAFETY: as promised by the caller. No more blocks are written than there is room for.
                    unsafe {
                        for (line, samples) in samples(some, &steps).into_iter().enumerate() {
                            let to = (*(*planes.add(number)).add(8 * y + line)).add(8 * x);
                            V::store(samples, to, (width - x).min(V::BLOCKS));
                        }
                    }
                }
            }
        }
    }
}

/// One number per lane.
#[repr(align(64))]
pub(super) struct PerLane<T>(pub(super) [T; LANES]);

/// Where each lane is.
pub(super) struct LaneStates {
    /// Index of the lane's stretch.
    pub(super) stretch: [usize; LANES],
    /// Bit at which the lane's next code begins.
    pub(super) bit: PerLane<u32>,
    /// Index in its block of the lane's last coefficient.
    pub(super) index: PerLane<i32>,
    /// Number of the lane's block in its MCU.
    pub(super) number: PerLane<u32>,
    /// Start of the table for the lane's next code.
    pub(super) table: PerLane<u32>,
    /// Place of the lane's block. `end` is one past the stretch's last block.
    pub(super) block: PerLane<u32>,
    pub(super) end: PerLane<u32>,
}

impl LaneStates {
    /// Lanes without a stretch, whose blocks are the one at `nowhere`.
    pub(super) fn new(nowhere: u32) -> Self {
        Self {
            stretch: [usize::MAX; LANES],
            bit: PerLane([0; LANES]),
            index: PerLane([BEFORE_DC; LANES]),
            number: PerLane([0; LANES]),
            table: PerLane([0; LANES]),
            block: PerLane([nowhere; LANES]),
            end: PerLane([nowhere; LANES]),
        }
    }
}

impl Lanes {
    /// Decodes the stretches. `None` if one of them does not end as it should.
    pub(super) fn run(&mut self) -> Option<()> {
        // SAFETY: the processor has the instructions, or there would be no lanes.
        unsafe {
            match self.vectors {
                Vectors::Avx512 => self.run_avx512(),
                Vectors::Avx2 => self.run_avx2(),
            }
        }
    }

    /// Gives new stretches to the lanes that are at the end of theirs. Returns the lanes that have a stretch. `None` if
    /// a stretch does not end where it should.
    pub(super) fn assign(&self, state: &mut LaneStates, todo: &mut usize, nowhere: u32) -> Option<u32> {
        let mut live = 0;
        for lane in 0..LANES {
            if state.block.0[lane] != state.end.0[lane] {
                live |= 1 << lane;
                continue;
            }
            if let Some(stretch) = self.stretches.get(state.stretch[lane])
                && let Some(end) = stretch.end_bit
                && !(end.saturating_sub(stretch.padding_bits)..=end).contains(&state.bit.0[lane])
            {
                return None;
            }
            state.stretch[lane] = *todo;
            if let Some(stretch) = self.stretches.get(*todo) {
                *todo += 1;
                live |= 1 << lane;
                state.bit.0[lane] = stretch.bit;
                (state.block.0[lane], state.end.0[lane]) = (stretch.start, stretch.end);
                // A stretch starts with the first block of an MCU, which belongs to the first component.
                (state.number.0[lane], state.index.0[lane], state.table.0[lane]) = (0, BEFORE_DC, 0);
            } else {
                (state.block.0[lane], state.end.0[lane]) = (nowhere, nowhere);
            }
        }
        Some(live)
    }
}
