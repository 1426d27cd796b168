//! Fitting an image into a canvas without changing its aspect.

use super::check::sides;
use super::filter::Interpolation;
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Fill, Pad, Resize, SizeEffect};
use crate::error::Result;
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Resizes the image so that it fits a canvas, aspect kept, and pads the rest on both sides: Ultralytics' `LetterBox`,
/// with its rounding, and with Pillow's resize in place of OpenCV's. It draws no random number.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::{ops::{Letterbox, Op}, prelude::*};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let pipeline = Pipeline::builder(EncodedImages::new([(jpeg, 0)])).transform(Letterbox::new(64)).build()?;
/// let recipe = pipeline.recipe(0, 0)?;
/// assert!(matches!(&recipe[..], [Op::Resize(_), Op::Pad(pad)] if (pad.left, pad.top) == (0, 8)));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Letterbox {
    #[serde(with = "super::written::size")]
    size: Size,
    #[serde(default = "gray")]
    fill: Fill,
    #[serde(default = "yes")]
    scale_up: bool,
    /// 0: the whole canvas is filled.
    #[serde(default)]
    stride: u32,
    #[serde(default)]
    interpolation: Interpolation,
}

const fn gray() -> Fill {
    Fill::Color([114; 3])
}

const fn yes() -> bool {
    true
}

impl Letterbox {
    /// A canvas of this size, gray (114), bilinear. A `u32` as size is a square.
    #[must_use]
    pub fn new(size: impl Into<Size>) -> Self {
        let interpolation = Interpolation::Bilinear;
        Self { size: size.into(), fill: gray(), scale_up: yes(), stride: 0, interpolation }
    }

    setters! {
        /// Color of the padding: red, green, blue.
        fill: into Fill,
        /// Whether smaller images are enlarged. Default: true.
        scale_up: bool,
        /// Pads only to the next multiple of this number of pixels within the canvas. Default: 0, the whole canvas.
        stride: u32,
        /// The filter.
        interpolation: Interpolation,
    }
}

impl RandomTransform for Letterbox {
    fn validate(&self) -> Result<()> {
        sides(Self::NAME, self.size.width, self.size.height)
    }

    fn size_effect(&self) -> SizeEffect {
        if self.stride == 0 { SizeEffect::Becomes(self.size) } else { SizeEffect::Varies }
    }

    fn takes(&self, pixels: &PixelValues) -> Option<Result<()>> {
        self.fill.values().map_or(Some(Ok(())), |fill| Some(pixels.check(Self::NAME, "fill", fill)))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (size, canvas) = (recipe.size(), self.size);
        let ratio = |side: u32, whole: u32| f64::from(side) / f64::from(whole);
        let fits = ratio(canvas.height, size.height).min(ratio(canvas.width, size.width));
        let factor = if self.scale_up { fits } else { fits.min(1.0) };
        let side = |side: u32| ((f64::from(side) * factor).round_ties_even() as u32).max(1);
        let fitted = Size::new(side(size.width), side(size.height));
        let missing = |whole: u32, side: u32| {
            let all = whole.saturating_sub(side);
            f64::from(if self.stride == 0 { all } else { all % self.stride }) / 2.0
        };
        // Of an odd number of pixels, one more comes after the image.
        let before = |half: f64| (half - 0.1).round() as u32;
        let after = |half: f64| (half + 0.1).round() as u32;
        let (along, down) = (missing(canvas.width, fitted.width), missing(canvas.height, fitted.height));
        if fitted != size {
            recipe.push(Resize::new(fitted).interpolation(self.interpolation))?;
        }
        let sides = [before(along), before(down), after(along), after(down)];
        if sides == [0; 4] { Ok(()) } else { recipe.push(Pad::sides(sides).fill(self.fill)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::crop_search::drawn_for;

    /// The size that the image is resized to, and the padding on the left, at the top, on the right and at the bottom.
    fn fitted(letterbox: &Letterbox, width: u32, height: u32) -> ([u32; 2], [u32; 4]) {
        let (mut size, mut padding) = ([width, height], [0; 4]);
        for op in drawn_for(letterbox.clone(), Size::new(width, height), &[], 0) {
            let after = op.output_size(Size::new(size[0], size[1])).unwrap();
            match op {
                crate::ops::Op::Pad(pad) => padding = [pad.left, pad.top, pad.right, pad.bottom],
                _ => size = [after.width, after.height],
            }
        }
        (size, padding)
    }

    /// By hand after Ultralytics' rule: r = min(s / H, s / W), sides round(W r), and of the padding p on each side
    /// round(p - 0.1) before and round(p + 0.1) after the image.
    #[test]
    fn sides_and_padding_are_ultralyticss() {
        let square = Letterbox::new(640);
        assert_eq!(fitted(&square, 640, 640), ([640, 640], [0; 4]));
        assert_eq!(fitted(&square, 1280, 720), ([640, 360], [0, 140, 0, 140]));
        // 500 * 1.28 and 375 * 1.28 are whole.
        assert_eq!(fitted(&square, 500, 375), ([640, 480], [0, 80, 0, 80]));
        // 427 / 640 of 640: an odd rest of 213 has one pixel more on the right.
        assert_eq!(fitted(&square, 427, 640), ([427, 640], [106, 0, 107, 0]));
        assert_eq!(fitted(&square.clone().scale_up(false), 100, 31), ([100, 31], [270, 304, 270, 305]));
        // The rest within a stride of 32: 640 - 360 = 280 = 8 * 32 + 24.
        assert_eq!(fitted(&square.clone().stride(32), 1280, 720), ([640, 360], [0, 12, 0, 12]));
        // Half a pixel is rounded to even: 0.5 * 321 = 160.5.
        assert_eq!(fitted(&Letterbox::new(Size::new(160, 640)), 320, 321), ([160, 160], [0, 240, 0, 240]));
        assert_eq!(fitted(&square, 10_000, 3), ([640, 1], [0, 319, 0, 320]));
    }
}
