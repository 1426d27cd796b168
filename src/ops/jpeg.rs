//! Encoding as JPEG and decoding again.

use super::check::within;
use super::kernel::{CallRecorder, Kernel};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::{CpuPass, Operation, Pass, Primitive, Reach};
use crate::decode::{Decoder, probe};
use crate::encode::{JpegOptions, encode_jpeg};
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Encodes as JPEG, 4:2:0, and decodes again, with Pillow's bytes: torchvision's `JPEG` of a PIL image. Runs on the
/// CPU, also for recipes on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Jpeg {
    /// Quality of the JPEG, 1 to 100.
    pub quality: u8,
}

impl Jpeg {
    pub(super) const KERNELS: &'static [Kernel] = &[];

    /// An operation with this quality, 1 to 100.
    #[must_use]
    pub const fn new(quality: u8) -> Self {
        Self { quality }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(7), Self::new(90)]
    }
}

impl Operation for Jpeg {
    fn validate(&self) -> Result<()> {
        within(Self::NAME, "quality", self.quality, 1..=100)
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Whole)
    }

    keeps_places!();

    fn has_kernels(&self) -> bool {
        false
    }
}

impl Pass for Jpeg {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let bytes = encode_jpeg(pass.image, &JpegOptions { quality: self.quality, ..JpegOptions::default() })?;
        let header = probe(&bytes)?;
        Ok(Decoder::new()?.decode(&bytes, &header, Rect::full(header.size), false, pass.image)?)
    }

    fn launch(&self, _on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        Err(Error::Unsupported {
            feature: "jpeg on a GPU".to_owned(),
            remedy: "recipes with it run on the CPU".to_owned(),
        })
    }
}

/// Encodes as JPEG with a random quality, and decodes again: torchvision's v2 `JPEG`.
///
/// ```
/// use warpfeed::ops::{RandomJpeg, Transform};
///
/// Transform::from(RandomJpeg::new(30..=95)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomJpeg {
    #[serde(with = "super::written::range")]
    quality: RangeInclusive<u8>,
}

impl RandomJpeg {
    /// A quality uniform in the range.
    #[must_use]
    pub const fn new(quality: RangeInclusive<u8>) -> Self {
        Self { quality }
    }
}

impl RandomTransform for RandomJpeg {
    fn validate(&self) -> Result<()> {
        within(Self::NAME, "quality", *self.quality.start(), 1..=100)?;
        within(Self::NAME, "quality", *self.quality.end(), 1..=100)?;
        if self.quality.is_empty() {
            return Err(Error::parameter(Self::NAME, "quality", "a rising range", format!("{:?}", self.quality)));
        }
        Ok(())
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        let quality = rng.within(&(u32::from(*self.quality.start())..=u32::from(*self.quality.end())));
        recipe.push(Jpeg::new(quality as u8))
    }
}
