//! Dilation by a square.

use super::kernel::{Kernel, KernelId, Launcher};
use super::transform::{Drawing, Random};
use super::{CpuPass, Operation, Primitive, Reach, SizeEffect, check, rank};
use crate::error::Result;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Replaces each value by the largest value in a square around it, for each channel: OpenCV's `dilate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Dilate {
    /// Side of the square in pixels, 1 to 255.
    pub kernel: u32,
}

impl Dilate {
    pub(super) const KERNELS: &'static [Kernel] =
        &[Kernel::pixels("dilate_rows_u8_nhwc"), Kernel::pixels("dilate_columns_u8_nhwc")];

    /// Dilation by a square with this side in pixels.
    #[must_use]
    pub const fn new(kernel: u32) -> Self {
        Self { kernel }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(3), Self::new(4)]
    }
}

impl Operation for Dilate {
    fn name(&self) -> &'static str {
        "dilate"
    }

    fn validate(&self) -> Result<()> {
        check::kernel(self.name(), self.kernel)
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        Ok(input)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Keeps
    }

    fn primitive(&self, _input: Size) -> Primitive {
        Primitive::Pass(Reach::Around(self.kernel / 2))
    }

    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let part = pass.part;
        pass.replace(part.size(), |input, out| rank::filter::<true>(input, self.kernel, part, out))
    }

    fn launch(&self, on: &mut dyn Launcher, part: Rect) -> Result<()> {
        const KERNELS: [KernelId; 2] = [KernelId::of("dilate_rows_u8_nhwc"), KernelId::of("dilate_columns_u8_nhwc")];
        rank::launch(on, KERNELS, self.kernel, part)
    }
}

/// Dilation by a square whose side is uniform in a range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomDilation {
    #[serde(with = "super::transform::range")]
    kernel: RangeInclusive<u32>,
}

impl RandomDilation {
    /// Dilation by a square whose side is uniform in `kernel` pixels.
    #[must_use]
    pub const fn new(kernel: RangeInclusive<u32>) -> Self {
        Self { kernel }
    }
}

impl Random for RandomDilation {
    fn name(&self) -> &'static str {
        "random_dilation"
    }

    fn validate(&self) -> Result<()> {
        check::kernels(self.name(), &self.kernel)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Keeps
    }

    fn draw(&self, drawing: &mut Drawing<'_>) -> Result<()> {
        let (rng, _) = drawing.start();
        let kernel = rng.within(&self.kernel);
        drawing.push(Dilate::new(kernel))
    }
}
