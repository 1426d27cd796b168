//! Saturation: blending with the image's gray version.

use super::blend::blend;
use super::check::factor;
use super::descriptors::ColorSample;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::{CpuPass, Operation, Pass, Primitive, Reach};
use crate::error::Result;
use crate::raster::{Image, Rect, Size, luma};
use crate::simd::wide;
use serde::{Deserialize, Serialize};

/// Blends with the image's gray version.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Saturation {
    /// 0 is gray, 1 unchanged.
    pub factor: f64,
}

impl Saturation {
    pub(super) const KERNELS: &'static [Kernel] = &[Kernel::pixels("saturation_u8_nhwc")];

    /// A blend with the image's gray version: factor 0 is gray, 1 unchanged.
    #[must_use]
    pub const fn new(factor: f64) -> Self {
        Self { factor }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0.61), Self::new(1.8)]
    }
}

impl Operation for Saturation {
    fn validate(&self) -> Result<()> {
        factor(Self::NAME, self.factor)
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Around(0))
    }

    keeps_places!();
}

impl Pass for Saturation {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        saturate(pass.image, self.factor as f32);
        Ok(())
    }

    fn launch(&self, on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        const SATURATION: KernelId = KernelId::of("saturation_u8_nhwc");
        let image = on.source();
        let sample = ColorSample { factor: self.factor as f32, ..ColorSample::of(&image) };
        on.call(SATURATION, &sample, Size::new(image.width, image.height));
        Ok(())
    }
}

/// Blends each pixel with its luma.
fn saturate(image: &mut Image, factor: f32) {
    let pixels = image.pixels_mut();
    wide(
        #[inline(always)]
        || {
            for pixel in pixels {
                let gray = luma(*pixel);
                let [red, green, blue, _] = *pixel;
                *pixel = [blend(gray, red, factor), blend(gray, green, factor), blend(gray, blue, factor), 255];
            }
        },
    );
}
