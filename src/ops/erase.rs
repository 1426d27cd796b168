//! Overwriting a rectangle.

use super::check::{ABOVE_0, finite, inside, probability, range, sides};
use super::fill::{opaque, packed};
use super::kernel::{Kernel, KernelId, Launcher};
use super::params::EraseSample;
use super::transform::{Drawing, Random};
use super::{CpuPass, Operation, Primitive, Reach, SizeEffect, rectangle};
use crate::error::Result;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Overwrites a rectangle. May follow [`Normalize`](crate::ops::Normalize).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Erase {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Red, green, blue: 0 to 255 before [`Normalize`](crate::ops::Normalize), in normalized units after it.
    #[serde(default)]
    pub value: [f32; 3],
}

impl Erase {
    pub(super) const KERNELS: &'static [Kernel] = &[Kernel::pixels("erase_u8_nhwc")];

    /// The rectangle `rect`, with 0.
    #[must_use]
    pub const fn new(rect: Rect) -> Self {
        let Rect { x, y, width, height } = rect;
        Self { x, y, width, height, value: [0.0; 3] }
    }

    /// Red, green, blue: 0 to 255 before [`Normalize`](crate::ops::Normalize), in normalized units after it.
    #[must_use]
    pub const fn value(mut self, value: [f32; 3]) -> Self {
        self.value = value;
        self
    }

    pub(super) fn examples(size: Size) -> Vec<Self> {
        let (width, height) = (size.width.div_ceil(3), size.height.div_ceil(2));
        vec![Self::new(Rect { x: size.width - width, y: 0, width, height }).value([99.5, 0.0, 255.0])]
    }

    /// The rectangle.
    pub(crate) fn rect(&self) -> Rect {
        Rect { x: self.x, y: self.y, width: self.width, height: self.height }
    }

    /// Where it lies in a stored part of an image; `None` if that has nothing of it.
    fn within(&self, part: Rect) -> Option<Rect> {
        let area = self.rect();
        let (left, right) = (area.x.max(part.x), area.right().min(part.right()));
        let (top, bottom) = (area.y.max(part.y), area.bottom().min(part.bottom()));
        let place = || Rect { x: left - part.x, y: top - part.y, width: right - left, height: bottom - top };
        (left < right && top < bottom).then(place)
    }

    /// Red, green, blue, rounded to the nearest integer, halves away from 0, and cut to 0 to 255.
    fn color(&self) -> [u8; 3] {
        self.value.map(|v| v.round() as u8)
    }
}

impl Operation for Erase {
    fn name(&self) -> &'static str {
        "erase"
    }

    fn validate(&self) -> Result<()> {
        sides(self.name(), self.width, self.height)?;
        finite(self.name(), "value", self.value)
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        inside(self.name(), self.rect(), input)?;
        Ok(input)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Keeps
    }

    fn primitive(&self, _input: Size) -> Primitive {
        Primitive::Pass(Reach::Around(0))
    }

    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let Some(Rect { x, y, width, height }) = self.within(pass.image.part()) else { return Ok(()) };
        let pixel = opaque(self.color());
        for y in y..y + height {
            pass.image.row_mut(y)[x as usize..][..width as usize].fill(pixel);
        }
        Ok(())
    }

    fn launch(&self, on: &mut dyn Launcher, _part: Rect) -> Result<()> {
        const ERASE: KernelId = KernelId::of("erase_u8_nhwc");
        let image = on.source();
        let stored = Rect { x: image.x, y: image.y, width: image.width, height: image.height };
        let Some(Rect { x, y, width, height }) = self.within(stored) else { return Ok(()) };
        let (pixels, pitch_bytes, value) = (image.pixels, image.pitch_bytes, packed(self.color()));
        on.call(ERASE, &EraseSample { pixels, pitch_bytes, x, y, width, height, value }, Size::new(width, height));
        Ok(())
    }
}

/// Overwrites a random rectangle with a probability: torchvision's `RandomErasing`. Where ten attempts find no rectangle
/// smaller than the image, nothing is erased.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomErasing {
    p: f64,
    #[serde(with = "super::transform::range", default = "RandomErasing::usual_scale")]
    scale: RangeInclusive<f64>,
    #[serde(with = "super::transform::range", default = "RandomErasing::usual_ratio")]
    ratio: RangeInclusive<f64>,
    #[serde(default)]
    value: [f32; 3],
}

impl RandomErasing {
    /// With probability `p`, 2 to 33 % of the area at an aspect of 0.3 to 3.3, with 0.
    #[must_use]
    pub const fn new(p: f64) -> Self {
        Self { p, scale: Self::usual_scale(), ratio: Self::usual_ratio(), value: [0.0; 3] }
    }

    const fn usual_scale() -> RangeInclusive<f64> {
        0.02..=0.33
    }

    const fn usual_ratio() -> RangeInclusive<f64> {
        0.3..=3.3
    }

    /// Part of the image's area, uniform in the range.
    #[must_use]
    pub const fn scale(mut self, scale: RangeInclusive<f64>) -> Self {
        self.scale = scale;
        self
    }

    /// Height over width, log-uniform in the range.
    #[must_use]
    pub const fn ratio(mut self, ratio: RangeInclusive<f64>) -> Self {
        self.ratio = ratio;
        self
    }

    /// Red, green, blue: 0 to 255 before normalization, in normalized units after it.
    #[must_use]
    pub const fn value(mut self, value: [f32; 3]) -> Self {
        self.value = value;
        self
    }
}

impl Random for RandomErasing {
    fn name(&self) -> &'static str {
        "random_erasing"
    }

    fn validate(&self) -> Result<()> {
        probability(self.name(), self.p)?;
        range(self.name(), "scale", &self.scale, ABOVE_0, 1.0)?;
        range(self.name(), "ratio", &self.ratio, ABOVE_0, f64::INFINITY)?;
        finite(self.name(), "value", self.value)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Keeps
    }

    fn draw(&self, drawing: &mut Drawing<'_>) -> Result<()> {
        let (rng, image) = drawing.start();
        if rng.chance(self.p)
            && let Some(rect) = rectangle::erasing(rng, image, &self.scale, &self.ratio)
        {
            drawing.push(Erase::new(rect).value(self.value))?;
        }
        Ok(())
    }
}
