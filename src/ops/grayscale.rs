//! Luma in all three channels.

use super::descriptors::ColorSample;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::{CpuPass, Operation, Pass, Primitive, Reach};
use crate::error::Result;
use crate::raster::{Image, Rect, Size, luma};
use crate::simd::wide;
use serde::{Deserialize, Serialize};

/// Luma (ITU-R 601) in all three channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grayscale;

impl Grayscale {
    pub(super) const KERNELS: &'static [Kernel] = &[Kernel::pixels("grayscale_u8_nhwc")];

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self]
    }
}

impl Operation for Grayscale {
    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Around(0))
    }

    keeps_places!();
}

impl Pass for Grayscale {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        to_gray(pass.image);
        Ok(())
    }

    fn launch(&self, on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        const GRAYSCALE: KernelId = KernelId::of("grayscale_u8_nhwc");
        let image = on.source();
        let sample = ColorSample::of(&image);
        on.call(GRAYSCALE, &sample, Size::new(image.width, image.height));
        Ok(())
    }
}

with_probability! {
    /// Grayscale with a probability.
    pub struct RandomGrayscale {}

    /// A transform that acts with probability `p`, 0 to 1.
    pub fn new

    draws: Grayscale
}

/// Replaces each pixel by its luma.
fn to_gray(image: &mut Image) {
    let pixels = image.pixels_mut();
    wide(
        #[inline(always)]
        || {
            for pixel in pixels {
                let luma = luma(*pixel);
                *pixel = [luma, luma, luma, 255];
            }
        },
    );
}
