//! Cutting out a rectangle, which may reach beyond the image.

use super::check::{MAX_SIDE_PX, sides, within};
use super::descriptors::CropSample;
use super::fill::{Fill, opaque};
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{ChannelNumbers, FieldContext, Op, Operation, Pad, PadMode, Primitive, SizeEffect};
use crate::error::{Error, Result};
use crate::fields::motion::Motion;
use crate::raster::{Image, Rect, Size};
use serde::{Deserialize, Serialize};

/// Cuts out a rectangle. Where it reaches beyond the image, `fill` shows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Crop {
    /// First column, may be negative.
    pub x: i32,
    /// First row, may be negative.
    pub y: i32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Fill outside the image.
    #[serde(default)]
    pub fill: Fill,
}

impl Crop {
    pub(super) const KERNELS: &'static [Kernel] = &[Kernel::pixels("crop_u8_nhwc")];

    /// The rectangle of this size at column `x` and row `y`, black outside the image. A `u32` as size is a square.
    #[must_use]
    pub fn new(x: i32, y: i32, size: impl Into<Size>) -> Self {
        let Size { width, height } = size.into();
        Self { x, y, width, height, fill: Fill::BLACK }
    }

    setters! {
        /// Fill outside the image.
        fill: into Fill,
    }

    pub(super) fn examples(size: Size) -> Vec<Self> {
        vec![
            Self::new(0, 0, Size::new(size.width.div_ceil(2), size.height)),
            Self::new(-3, -2, size).fill(Fill::Color([7, 130, 255])),
            Self::new(-3, 1, size).fill(Fill::EDGE),
        ]
    }
}

impl Operation for Crop {
    fn validate(&self) -> Result<()> {
        sides(Self::NAME, self.width, self.height)?;
        let limit = MAX_SIDE_PX as i32;
        within(Self::NAME, "x", self.x, -limit..=limit)?;
        within(Self::NAME, "y", self.y, -limit..=limit)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Becomes(Size::new(self.width, self.height))
    }

    fn numbers(&self) -> Option<(&'static str, ChannelNumbers)> {
        self.fill.values().map(|values| ("fill", values))
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Crop { x: self.x, y: self.y, fill: self.fill }
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        Ok(Motion::Shift([-self.x, -self.y]))
    }

    fn on_field(&self, _input: Size, how: &FieldContext) -> Result<Option<Op>> {
        let [x, y] = how.scaled(Self::NAME, [self.x, self.y])?;
        let size = how.scaled_size(Self::NAME, Size::new(self.width, self.height))?;
        Ok(Some(Self::new(x, y, size).fill(Fill::Color(how.fill)).into()))
    }
}

/// Pads every side, then cuts out a rectangle at a uniform place. A padded image smaller than the rectangle is padded
/// further, on both sides (torchvision's `pad_if_needed`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    #[serde(with = "super::written::size")]
    size: Size,
    #[serde(default)]
    padding: u32,
    #[serde(default)]
    fill: Fill,
    #[serde(default, skip_serializing_if = "is_constant")]
    padding_mode: PadMode,
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pad_if_needed: bool,
}

fn yes() -> bool {
    true
}

fn is_constant(mode: &PadMode) -> bool {
    *mode == PadMode::Constant
}

impl RandomCrop {
    /// A crop of this size; no padding, black outside the image. A `u32` as size is a square.
    #[must_use]
    pub fn new(size: impl Into<Size>) -> Self {
        Self { size: size.into(), padding: 0, fill: Fill::BLACK, padding_mode: PadMode::Constant, pad_if_needed: true }
    }

    setters! {
        /// Pixels added on every side. Default: 0.
        padding: u32,
        /// Fill outside the image.
        fill: into Fill,
        /// Content of the padding, if it is not `fill`: torchvision's `padding_mode`. An image that is smaller than the
        /// rectangle even when padded is mirrored once, as by torchvision's v2; v1 mirrors what it has mirrored.
        padding_mode: PadMode,
        /// Whether a padded image that is smaller than the rectangle is padded further. Default: true, unlike
        /// torchvision's. With false such an image is a bad sample.
        pad_if_needed: bool,
    }

    fn at(&self, x: i32, y: i32) -> Crop {
        let fill = if self.padding_mode == PadMode::Edge { Fill::EDGE } else { self.fill };
        Crop::new(x, y, self.size).fill(fill)
    }
}

impl RandomTransform for RandomCrop {
    fn validate(&self) -> Result<()> {
        let most = MAX_SIDE_PX.saturating_sub(self.size.width.max(self.size.height));
        if self.padding > most {
            let expected = format!("0 to {most}: with the rectangle's side, {MAX_SIDE_PX} pixels");
            return Err(Error::parameter(Self::NAME, "padding", expected, self.padding));
        }
        if self.padding_mode != PadMode::Constant && self.fill != Fill::BLACK {
            return Err(Error::parameter(Self::NAME, "fill", "none with a padding_mode", format!("{:?}", self.fill)));
        }
        let start = -(self.padding as i32);
        self.at(start, start).validate()
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Becomes(self.size)
    }

    fn takes(&self, pixels: &PixelValues) -> Option<Result<()>> {
        self.fill.values().map_or(Some(Ok(())), |fill| Some(pixels.check(Self::NAME, "fill", fill)))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, image) = recipe.start();
        let fits = |image: u32, wanted: u32| u64::from(image) + 2 * u64::from(self.padding) >= u64::from(wanted);
        let fits = fits(image.width, self.size.width) && fits(image.height, self.size.height);
        if !(fits || self.pad_if_needed) {
            return Err(Error::unfit(
                Self::NAME,
                format!("a rectangle of {} is larger than the padded image of {image}", self.size),
            ));
        }
        let mut axis = |image: u32, wanted: u32| {
            let padded = i64::from(image) + 2 * i64::from(self.padding);
            let missing = (i64::from(wanted) - padded).max(0);
            let places = padded + 2 * missing - i64::from(wanted) + 1;
            (rng.below(places as u64) as i64 - i64::from(self.padding) - missing) as i32
        };
        let y = axis(image.height, self.size.height);
        let x = axis(image.width, self.size.width);
        if !matches!(self.padding_mode, PadMode::Reflect | PadMode::Symmetric) {
            return recipe.push(self.at(x, y));
        }
        // Only as much is mirrored as shows.
        let before = |at: i32| at.min(0).unsigned_abs();
        let after =
            |at: i32, wanted: u32, image: u32| (i64::from(at) + i64::from(wanted) - i64::from(image)).max(0) as u32;
        let right = after(x, self.size.width, image.width);
        let sides = [before(x), before(y), right, after(y, self.size.height, image.height)];
        if sides != [0; 4] {
            recipe.push(Pad::sides(sides).mode(self.padding_mode))?;
        }
        recipe.push(self.at(x.max(0), y.max(0)))
    }
}

/// Queues the kernel that cuts out the rectangle of `size` at (`x`, `y`).
pub(super) fn launch(on: &mut dyn CallRecorder, x: i32, y: i32, size: Size, fill: Fill) -> Result<()> {
    const CROP: KernelId = KernelId::of("crop_u8_nhwc");
    let source = on.source();
    let target = on.target(size, Rect::full(size))?;
    let (fill, outside) = fill.packed();
    on.call(CROP, &CropSample { source, target, x, y, fill, outside }, size);
    Ok(())
}

/// Cuts out the rectangle of `size` whose top left corner is pixel (`x`, `y`) of a complete image.
pub(crate) fn crop(input: &Image, x: i32, y: i32, size: Size, fill: Fill, out: &mut Image) {
    debug_assert_eq!(input.part(), Rect::full(input.whole()));
    out.reset(size);
    let (width, height) = (i64::from(input.size().width), i64::from(input.size().height));
    let (x, y) = (i64::from(x), i64::from(y));
    // Each row has `left` pixels from outside, then `inside` pixels starting at column `start`, then pixels from
    // outside again.
    let left = (-x).clamp(0, i64::from(size.width)) as usize;
    let start = x.clamp(0, width) as usize;
    let inside = ((x + i64::from(size.width)).clamp(0, width) as usize).saturating_sub(start);
    for row in 0..size.height {
        let line = out.row_mut(row);
        let source = y + i64::from(row);
        let (source, color) = match fill.rgb() {
            Some(color) if source < 0 || source >= height => {
                line.fill(opaque(color));
                continue;
            }
            Some(color) => (input.row(source as u32), Some(opaque(color))),
            None => (input.row(source.clamp(0, height - 1) as u32), None),
        };
        let right = left + inside;
        line[left..right].copy_from_slice(&source[start..start + inside]);
        line[..left].fill(color.unwrap_or(source[0]));
        line[right..].fill(color.unwrap_or(source[source.len() - 1]));
    }
}
