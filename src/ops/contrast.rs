//! Contrast: blending with the image's mean luma.

use super::blend::blend;
use super::byte_table::{self, ByteTable};
use super::check::factor;
use super::descriptors::{ContrastSample, SourceImage};
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::{CpuPass, Operation, Pass, Primitive, Reach};
use crate::error::Result;
use crate::raster::{Pixel, Rect, Size, luma};
use crate::simd::wide;
use serde::{Deserialize, Serialize};

/// Blends with the image's mean gray.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Contrast {
    /// 0 is gray, 1 unchanged.
    pub factor: f64,
}

impl Contrast {
    pub(super) const KERNELS: &'static [Kernel] =
        &[Kernel::pixels("luma_sum_u8_nhwc"), Kernel::pixels("contrast_table_u8")];

    /// A blend with the image's mean gray: factor 0 is gray, 1 unchanged.
    #[must_use]
    pub const fn new(factor: f64) -> Self {
        Self { factor }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0.61), Self::new(1.8)]
    }
}

impl Operation for Contrast {
    fn validate(&self) -> Result<()> {
        factor(Self::NAME, self.factor)
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Whole)
    }

    keeps_places!();
}

impl Pass for Contrast {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        debug_assert_eq!(pass.image.part(), Rect::full(pass.image.whole()), "the mean is that of the complete image");
        let (mean, factor) = (mean_luma(pass.image.pixels()), self.factor as f32);
        ByteTable::new(|value| blend(mean, value, factor)).pass(pass);
        Ok(())
    }

    fn launch(&self, on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        const LUMA_SUM: KernelId = KernelId::of("luma_sum_u8_nhwc");
        const CONTRAST_TABLE: KernelId = KernelId::of("contrast_table_u8");
        let SourceImage { pixels, pitch_bytes, width, height, .. } = on.source();
        // The upload also sets the sum to zero.
        let luma_sum = on.put(&[0; size_of::<u64>()])?;
        let table = on.scratch(256)?;
        let factor = self.factor as f32;
        let sample = ContrastSample { pixels, luma_sum, table, pitch_bytes, width, height, factor };
        on.call(LUMA_SUM, &sample, Size::new(width, height));
        // A block of 32 x 8 threads makes the table.
        on.call(CONTRAST_TABLE, &sample, Size::new(32, 8));
        byte_table::launch(on, table, 0);
        Ok(())
    }
}

/// The mean of the pixels' luma, halves rounded up.
pub(crate) fn mean_luma(pixels: &[Pixel]) -> u8 {
    // Sums of blocks fit 32 bits, which makes vector code possible; the blocks are added up in 64 bits.
    const BLOCK: usize = 1 << 16;
    let sum: u64 = wide(
        #[inline(always)]
        || {
            let sum = |block: &[Pixel]| block.iter().map(|&pixel| u32::from(luma(pixel))).sum::<u32>();
            pixels.chunks(BLOCK).map(|block| u64::from(sum(block))).sum()
        },
    );
    // Python: int(sum / count + 0.5), in double precision.
    (sum as f64 / pixels.len() as f64 + 0.5) as u8
}
