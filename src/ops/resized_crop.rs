//! Cutting out a rectangle and resizing it like an image.

use super::check::{ABOVE_0, inside, range, side, sides};
use super::filter::Interpolation;
use super::interpolations::Interpolations;
use super::kernel::Kernel;
use super::recipe::RecipeBuilder;
use super::resize::Resample;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{FieldContext, Op, Operation, Primitive, Resize, SizeEffect, rectangle};
use crate::error::Result;
use crate::fields::motion::Motion;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Cuts out a rectangle inside the image, then resizes it as if it were an image of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ResizedCrop {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Columns after resizing.
    pub out_width: u32,
    /// Rows after resizing.
    pub out_height: u32,
    /// The filter.
    #[serde(default)]
    pub interpolation: Interpolation,
}

impl ResizedCrop {
    pub(super) const KERNELS: &'static [Kernel] = Resize::KERNELS;

    /// An operation that cuts out `rect` and resizes it to `size`, bilinear. A `u32` as size is a square.
    #[must_use]
    pub fn new(rect: Rect, size: impl Into<Size>) -> Self {
        let Rect { x, y, width, height } = rect;
        let Size { width: out_width, height: out_height } = size.into();
        Self { x, y, width, height, out_width, out_height, interpolation: Interpolation::Bilinear }
    }

    setters! {
        /// The filter.
        interpolation: Interpolation,
    }

    pub(super) fn examples(size: Size) -> Vec<Self> {
        let (width, height) = (size.width.div_ceil(2), size.height.div_ceil(3));
        let rect = Rect { x: size.width - width, y: size.height / 3, width, height };
        let smaller = Size::new(size.width / 3 + 1, size.height / 4 + 1);
        vec![Self::new(rect, smaller), Self::new(rect, rect.size()).interpolation(Interpolation::Bicubic)]
    }

    fn rect(&self) -> Rect {
        Rect { x: self.x, y: self.y, width: self.width, height: self.height }
    }

    fn size(&self) -> Size {
        Size::new(self.out_width, self.out_height)
    }
}

impl Operation for ResizedCrop {
    fn validate(&self) -> Result<()> {
        sides(Self::NAME, self.width, self.height)?;
        side(Self::NAME, "out_width", self.out_width)?;
        side(Self::NAME, "out_height", self.out_height)
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        inside(Self::NAME, self.rect(), input)?;
        Ok(self.size())
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Becomes(self.size())
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Resample(Resample::of(self.rect(), self.interpolation))
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        Ok(Motion::Window(self.rect()))
    }

    fn on_field(&self, _input: Size, how: &FieldContext) -> Result<Option<Op>> {
        let rect = how.scaled_rect(Self::NAME, self.rect())?;
        let own = Self::new(rect, how.scaled_size(Self::NAME, self.size())?);
        Ok(Some(own.interpolation(how.filter(self.interpolation, Interpolation::Lanczos)).into()))
    }
}

/// Cuts out a rectangle of random area and aspect and resizes it: torchvision's `RandomResizedCrop`, with its ten
/// attempts and its fallback to the central crop.
///
/// ```
/// use warpfeed::ops::{Interpolation, RandomResizedCrop, Transform};
///
/// let crop = RandomResizedCrop::new(224).scale(0.5..=1.0).interpolation(Interpolation::Bicubic);
/// Transform::from(crop).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    #[serde(with = "super::written::size")]
    size: Size,
    #[serde(with = "super::written::range", default = "RandomResizedCrop::usual_scale")]
    scale: RangeInclusive<f64>,
    #[serde(with = "super::written::range", default = "RandomResizedCrop::usual_ratio")]
    ratio: RangeInclusive<f64>,
    #[serde(default)]
    interpolation: Interpolations,
}

impl RandomResizedCrop {
    /// A crop of 8 to 100 % of the area at an aspect of 3/4 to 4/3, resized to `size`, bilinear. A `u32` as size is a
    /// square.
    #[must_use]
    pub fn new(size: impl Into<Size>) -> Self {
        let (scale, ratio) = (Self::usual_scale(), Self::usual_ratio());
        Self { size: size.into(), scale, ratio, interpolation: Interpolations::default() }
    }

    const fn usual_scale() -> RangeInclusive<f64> {
        0.08..=1.0
    }

    const fn usual_ratio() -> RangeInclusive<f64> {
        3.0 / 4.0..=4.0 / 3.0
    }

    setters! {
        /// Part of the image's area, uniform in the range. The range lies within 0 to 1.
        scale: RangeInclusive<f64>,
        /// Aspect (width / height), log-uniform in the range.
        ratio: RangeInclusive<f64>,
    }

    /// The filter, or two filters; then one of them is drawn.
    #[must_use]
    pub fn interpolation(mut self, interpolation: impl Into<Interpolations>) -> Self {
        self.interpolation = interpolation.into();
        self
    }
}

impl RandomTransform for RandomResizedCrop {
    fn validate(&self) -> Result<()> {
        range(Self::NAME, "scale", &self.scale, ABOVE_0, 1.0)?;
        range(Self::NAME, "ratio", &self.ratio, ABOVE_0, f64::INFINITY)?;
        Resize::new(self.size).validate()
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Becomes(self.size)
    }

    fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let size = recipe.batch_size().unwrap_or(self.size);
        let (rng, image) = recipe.start();
        let rect = rectangle::resized_crop(rng, image, &self.scale, &self.ratio);
        let interpolation = self.interpolation.draw(rng);
        recipe.push(ResizedCrop::new(rect, size).interpolation(interpolation))
    }
}
