//! Code that lanes of both kinds of vectors share.
#![allow(unsafe_code)]

use super::x86_idct::{QuantSteps, samples};
use super::x86_shorts::Shorts;
use super::{BEFORE_DC, LaneStretch, Lanes, LanesJob, x86_avx2, x86_avx512};
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
    /// The best that the processor has and the user allows.
    pub(super) fn best() -> Option<Self> {
        static BEST: OnceLock<Option<Vectors>> = OnceLock::new();
        *BEST.get_or_init(|| {
            if crate::simd::has_avx512() && std::is_x86_feature_detected!("avx512vbmi2") {
                Some(Self::Avx512)
            } else {
                crate::simd::has_avx2().then_some(Self::Avx2)
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
    fn blocks<'a>(block: impl FnMut(usize) -> &'a super::DctBlock) -> Self::Blocks<'a>;
    /// Stores the row's samples of the first `blocks` blocks.
    ///
    /// # Safety
    /// There is room for 8 bytes a block, and the processor has the vector's instructions.
    unsafe fn store(row: Self::Row, to: *mut u8, blocks: usize);
}

impl Store for __m512i {
    const BLOCKS: usize = 4;

    fn blocks<'a>(block: impl FnMut(usize) -> &'a super::DctBlock) -> [&'a super::DctBlock; 4] {
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

    fn blocks<'a>(block: impl FnMut(usize) -> &'a super::DctBlock) -> [&'a super::DctBlock; 2] {
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
    /// As for [`transform`](Self::transform), and the processor has the vector's instructions.
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
            // The padding of the last MCU is not part of the image.
            let width = (columns as usize * plane.columns).min(plane.width - first_column as usize * plane.columns);
            for y in 0..plane.rows.min(plane.height - row as usize * plane.rows) {
                // The place of the next block; the last one of a row may fill a vector by itself.
                let (mut place, mut column) = (plane.before + y * plane.columns, 0);
                let mut block = 0;
                for x in (0..width).step_by(V::BLOCKS) {
                    let some = V::blocks(|i| {
                        if x + i < width {
                            block = place;
                            (place, column) = (place + 1, column + 1);
                            if column == plane.columns {
                                (place, column) = (place + in_mcu - plane.columns, 0);
                            }
                        }
                        &blocks[block]
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

/// Loads the numbers at the places of eight lanes, which count units of `SCALE` bytes.
///
/// The loads come one after the other: gathers were not faster where it was measured, and some processors make them
/// slow, by design or by microcode against leaks.
///
/// # Safety
/// Four bytes must be readable at each place, and there are four groups.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn load_eight<const SCALE: usize>(from: *const u8, places: &PerLane<u32>, group: usize) -> __m256i {
    // SAFETY: as promised by the caller. Places are read from memory, because taking single elements out of a vector
    // would use the unit that everything else needs.
    unsafe {
        let place = (&raw const places.0).cast::<u32>().add(8 * group);
        let at = |lane| from.add(SCALE * place.add(lane).read_volatile() as usize).cast::<i32>().read_unaligned();
        let low = _mm_insert_epi32::<1>(_mm_cvtsi32_si128(at(0)), at(1));
        let low = _mm_insert_epi32::<3>(_mm_insert_epi32::<2>(low, at(2)), at(3));
        let high = _mm_insert_epi32::<1>(_mm_cvtsi32_si128(at(4)), at(5));
        let high = _mm_insert_epi32::<3>(_mm_insert_epi32::<2>(high, at(6)), at(7));
        _mm256_set_m128i(high, low)
    }
}

/// Place of each lane.
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

    /// Puts a lane at the beginning of a stretch.
    fn begin(&mut self, lane: usize, number: usize, stretch: &LaneStretch) {
        self.stretch[lane] = number;
        self.bit.0[lane] = stretch.bit;
        (self.block.0[lane], self.end.0[lane]) = (stretch.start, stretch.end);
        // A stretch starts with the first block of an MCU, which belongs to the first component.
        (self.number.0[lane], self.index.0[lane], self.table.0[lane]) = (0, BEFORE_DC, 0);
    }

    /// Has a lane without a stretch go on with that of another lane, which then has none.
    fn take_over(&mut self, lane: usize, other: usize, nowhere: u32) {
        self.stretch.swap(lane, other);
        self.bit.0[lane] = self.bit.0[other];
        self.index.0[lane] = self.index.0[other];
        self.number.0[lane] = self.number.0[other];
        self.table.0[lane] = self.table.0[other];
        (self.block.0[lane], self.end.0[lane]) = (self.block.0[other], self.end.0[other]);
        (self.block.0[other], self.end.0[other]) = (nowhere, nowhere);
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

    /// Gives new stretches to the lanes that are at the end of theirs. The first lanes are then those that have a
    /// stretch; returns how many. `None` if a stretch does not end where it should.
    pub(super) fn assign(&self, state: &mut LaneStates, todo: &mut usize, nowhere: u32) -> Option<usize> {
        let mut live = 0;
        for lane in 0..LANES {
            if state.block.0[lane] == state.end.0[lane] {
                if let Some(stretch) = self.stretches.get(state.stretch[lane])
                    && let Some(end) = stretch.end_bit
                    && !(end.saturating_sub(stretch.padding_bits)..=end).contains(&state.bit.0[lane])
                {
                    return None;
                }
                let Some(stretch) = self.stretches.get(*todo) else {
                    state.stretch[lane] = usize::MAX;
                    (state.block.0[lane], state.end.0[lane]) = (nowhere, nowhere);
                    continue;
                };
                state.begin(lane, *todo, stretch);
                *todo += 1;
            }
            if live < lane {
                state.take_over(live, lane, nowhere);
            }
            live += 1;
        }
        Some(live)
    }
}
