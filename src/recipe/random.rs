//! Random operations: distributions from which the explicit operations of a sample's recipe are drawn.

use super::op::{Fill, Interpolation, MAX_KERNEL_PX, MAX_SIDE_PX, Op, Resize, ResizeTo};
use super::rng::SampleRng;
use crate::error::{Error, Result};
use crate::image::Size;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Attempts at a random rectangle before the fallback, as in torchvision.
const RECTANGLE_ATTEMPTS: u32 = 10;
/// Most repetitions of one [`repeat`].
const MAX_REPEAT: u32 = 1_000;

/// An augmentation of the caller's own: draws explicit operations, among them possibly [`Op::Custom`].
///
/// ```
/// use std::sync::Arc;
/// use warpfeed::*;
///
/// /// Darker at random, never brighter.
/// struct Dusk;
///
/// impl Augmentation for Dusk {
///     fn name(&self) -> &'static str {
///         "dusk"
///     }
///     fn draw(&self, draw: &mut SampleRng, _size: Size) -> Result<Vec<Op>> {
///         Ok(vec![Op::Brightness { factor: draw.uniform(0.2, 1.0) }])
///     }
/// }
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let pipeline = Pipeline::builder(EncodedImages::new([(jpeg, 0)]))
///     .augment(Transform::Custom(Arc::new(Dusk)))
///     .center_crop(8)
///     .build()?;
/// assert!(matches!(pipeline.recipe(0, 0)?[0], Op::Brightness { factor } if factor < 1.0));
/// # Ok::<(), Error>(())
/// ```
pub trait Augmentation: Send + Sync {
    /// The augmentation's name, for messages.
    fn name(&self) -> &'static str;

    /// Draws the operations for an image of size `size`. All randomness must come from `draw`, so that a sample's
    /// pixels do not depend on threads, batches or the machine. The image's size must stay as it is.
    ///
    /// # Errors
    /// What goes wrong ends the epoch as an error on this sample.
    fn draw(&self, draw: &mut SampleRng, size: Size) -> Result<Vec<Op>>;
}

/// An operation whose parameters are drawn for each sample, or a combination of such.
///
/// The functions beside it ([`random_horizontal_flip`] and so on) make the usual ones. Every field can be set:
///
/// ```
/// use warpfeed::*;
///
/// let load = repeat(4, [random_vertical_flip(0.5), random_rotation(-5.0..=5.0)]);
/// let sometimes = maybe(0.1, [one_of([gaussian_blur(9, 0.1..=2.0), random_dilation(2..=3), random_grayscale(1.0)])]);
/// let jitter = color_jitter(0.4, 0.4, 0.4, 0.1);
/// let square = Transform::ResizedCrop {
///     size: Size::new(224, 224),
///     scale: 0.5..=1.0,
///     ratio: 1.0..=1.0,
///     interpolation: Interpolation::Bicubic,
/// };
/// for op in [&load, &sometimes, &jitter, &square, &random_erasing(0.25), &random_crop(32, 32, 4)] {
///     op.validate()?;
/// }
/// assert!(random_horizontal_flip(1.5).validate().is_err());
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Transform {
    /// Always this operation, with these numbers.
    Explicit(Op),
    /// Mirrors left and right with probability `p`.
    HorizontalFlip {
        /// Probability, 0 to 1.
        p: f64,
    },
    /// Mirrors top and bottom with probability `p`.
    VerticalFlip {
        /// Probability, 0 to 1.
        p: f64,
    },
    /// Rotates by an angle uniform in a range.
    Rotation {
        /// Counter-clockwise angle.
        degrees: RangeInclusive<f64>,
        /// Nearest or bilinear.
        interpolation: Interpolation,
        /// Whether the canvas grows.
        expand: bool,
        /// What shows outside the image.
        fill: Fill,
    },
    /// Pads every side, then cuts out a rectangle at a uniform place. Where the padded image is smaller than the
    /// rectangle, what is missing is added on both sides (torchvision's `pad_if_needed`).
    Crop {
        /// Size of the rectangle.
        size: Size,
        /// Pixels added on every side.
        padding: u32,
        /// What shows outside the image.
        fill: Fill,
    },
    /// Cuts out a rectangle of random area and aspect and resizes it: torchvision's `RandomResizedCrop`, with its ten
    /// attempts and its fallback to the central crop.
    ResizedCrop {
        /// Size of the result.
        size: Size,
        /// Part of the image's area, uniform in the range, within 0 to 1.
        scale: RangeInclusive<f64>,
        /// Width over height, log-uniform in the range.
        ratio: RangeInclusive<f64>,
        /// The filter.
        interpolation: Interpolation,
    },
    /// Brightness, contrast, saturation and hue by random factors in random order: torchvision's `ColorJitter`. A range
    /// of `1..=1` (hue: `0..=0`) leaves that one out.
    ColorJitter {
        /// Factors of brightness.
        brightness: RangeInclusive<f64>,
        /// Factors of contrast.
        contrast: RangeInclusive<f64>,
        /// Factors of saturation.
        saturation: RangeInclusive<f64>,
        /// Turns of hue, within -0.5 to 0.5.
        hue: RangeInclusive<f64>,
    },
    /// Grey with probability `p`.
    Grayscale {
        /// Probability, 0 to 1.
        p: f64,
    },
    /// Gaussian blur with a standard deviation uniform in a range.
    GaussianBlur {
        /// Side of the kernel in pixels, odd.
        kernel: u32,
        /// Standard deviation in pixels.
        sigma: RangeInclusive<f64>,
    },
    /// Dilation by a square, its side uniform in a range.
    Dilation {
        /// Side of the square in pixels.
        kernel: RangeInclusive<u32>,
    },
    /// Erosion by a square, its side uniform in a range.
    Erosion {
        /// Side of the square in pixels.
        kernel: RangeInclusive<u32>,
    },
    /// Overwrites a random rectangle with probability `p`: torchvision's `RandomErasing`. Where ten attempts find no
    /// rectangle smaller than the image, nothing is erased.
    Erasing {
        /// Probability, 0 to 1.
        p: f64,
        /// Part of the image's area, uniform in the range.
        scale: RangeInclusive<f64>,
        /// Height over width, log-uniform in the range.
        ratio: RangeInclusive<f64>,
        /// Red, green, blue: 0 to 255 before normalisation, in normalised units after it.
        value: [f32; 3],
    },
    /// One of these, each as likely as the others.
    OneOf(Vec<Transform>),
    /// All of these in order with probability `p`, else none.
    Maybe {
        /// Probability, 0 to 1.
        p: f64,
        /// The operations.
        ops: Vec<Transform>,
    },
    /// These in order, `n` times over, each time with fresh draws: the augmentation load.
    Repeat {
        /// How many times.
        n: u32,
        /// The operations.
        ops: Vec<Transform>,
    },
    /// The caller's own.
    Custom(Arc<dyn Augmentation>),
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Op> for Transform {
    fn from(op: Op) -> Self {
        Self::Explicit(op)
    }
}

/// Mirrors left and right with probability `p`.
#[must_use]
pub fn random_horizontal_flip(p: f64) -> Transform {
    Transform::HorizontalFlip { p }
}

/// Mirrors top and bottom with probability `p`.
#[must_use]
pub fn random_vertical_flip(p: f64) -> Transform {
    Transform::VerticalFlip { p }
}

/// Rotates about the centre by an angle uniform in `degrees`, nearest pixel, same canvas, black outside.
#[must_use]
pub fn random_rotation(degrees: RangeInclusive<f64>) -> Transform {
    Transform::Rotation { degrees, interpolation: Interpolation::Nearest, expand: false, fill: Fill::BLACK }
}

/// Pads every side with `padding` black pixels, then cuts out `width` x `height` at a uniform place.
#[must_use]
pub fn random_crop(width: u32, height: u32, padding: u32) -> Transform {
    Transform::Crop { size: Size { width, height }, padding, fill: Fill::BLACK }
}

/// Cuts out 8 to 100 % of the area at an aspect of 3/4 to 4/3 and resizes it to `width` x `height`, bilinear.
#[must_use]
pub fn random_resized_crop(width: u32, height: u32) -> Transform {
    Transform::ResizedCrop {
        size: Size { width, height },
        scale: 0.08..=1.0,
        ratio: 3.0 / 4.0..=4.0 / 3.0,
        interpolation: Interpolation::Bilinear,
    }
}

/// torchvision's `ColorJitter(brightness, contrast, saturation, hue)`: factors from `max(0, 1 - v)` to `1 + v`, hue from
/// `-hue` to `hue`.
#[must_use]
pub fn color_jitter(brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Transform {
    let around_1 = |v: f64| (1.0 - v).max(0.0)..=1.0 + v;
    Transform::ColorJitter {
        brightness: around_1(brightness),
        contrast: around_1(contrast),
        saturation: around_1(saturation),
        hue: -hue..=hue,
    }
}

/// Grey with probability `p`.
#[must_use]
pub fn random_grayscale(p: f64) -> Transform {
    Transform::Grayscale { p }
}

/// Gaussian blur with a `kernel` of so many pixels and a standard deviation uniform in `sigma` pixels.
#[must_use]
pub fn gaussian_blur(kernel: u32, sigma: RangeInclusive<f64>) -> Transform {
    Transform::GaussianBlur { kernel, sigma }
}

/// Dilation by a square of a side uniform in `kernel` pixels.
#[must_use]
pub fn random_dilation(kernel: RangeInclusive<u32>) -> Transform {
    Transform::Dilation { kernel }
}

/// Erosion by a square of a side uniform in `kernel` pixels.
#[must_use]
pub fn random_erosion(kernel: RangeInclusive<u32>) -> Transform {
    Transform::Erosion { kernel }
}

/// Overwrites 2 to 33 % of the area, at an aspect of 0.3 to 3.3, with 0, with probability `p`.
#[must_use]
pub fn random_erasing(p: f64) -> Transform {
    Transform::Erasing { p, scale: 0.02..=0.33, ratio: 0.3..=3.3, value: [0.0; 3] }
}

/// One of `ops`, each as likely as the others.
#[must_use]
pub fn one_of(ops: impl IntoIterator<Item = Transform>) -> Transform {
    Transform::OneOf(ops.into_iter().collect())
}

/// All of `ops` with probability `p`, else none.
#[must_use]
pub fn maybe(p: f64, ops: impl IntoIterator<Item = Transform>) -> Transform {
    Transform::Maybe { p, ops: ops.into_iter().collect() }
}

/// `ops` in order, `n` times over, each time with fresh draws.
#[must_use]
pub fn repeat(n: u32, ops: impl IntoIterator<Item = Transform>) -> Transform {
    Transform::Repeat { n, ops: ops.into_iter().collect() }
}

/// What an operation does to the size of any image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeEffect {
    /// Keeps it.
    Keeps,
    /// Makes it this one.
    Becomes(Size),
    /// Depends on the image or on the draw.
    Varies,
}

impl SizeEffect {
    fn then(self, next: Self) -> Self {
        match next {
            Self::Keeps => self,
            other => other,
        }
    }
}

impl Transform {
    /// The operation's name, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Explicit(op) => op.name(),
            Self::HorizontalFlip { .. } => "random_horizontal_flip",
            Self::VerticalFlip { .. } => "random_vertical_flip",
            Self::Rotation { .. } => "random_rotation",
            Self::Crop { .. } => "random_crop",
            Self::ResizedCrop { .. } => "random_resized_crop",
            Self::ColorJitter { .. } => "color_jitter",
            Self::Grayscale { .. } => "random_grayscale",
            Self::GaussianBlur { .. } => "gaussian_blur",
            Self::Dilation { .. } => "random_dilation",
            Self::Erosion { .. } => "random_erosion",
            Self::Erasing { .. } => "random_erasing",
            Self::OneOf(_) => "one_of",
            Self::Maybe { .. } => "maybe",
            Self::Repeat { .. } => "repeat",
            Self::Custom(custom) => custom.name(),
        }
    }

    /// Checks every parameter.
    ///
    /// # Errors
    /// [`Error::Parameter`] with what is allowed.
    pub fn validate(&self) -> Result<()> {
        let name = self.name();
        let probability = |p: f64| match p {
            0.0..=1.0 => Ok(()),
            _ => Err(Error::parameter(name, "p", "a probability, 0 to 1", p)),
        };
        let range = |parameter, range: &RangeInclusive<f64>, low: f64, high: f64| {
            let (start, end) = (*range.start(), *range.end());
            if start.is_finite() && end.is_finite() && low <= start && start <= end && end <= high {
                return Ok(());
            }
            let bounds = match (low.is_finite(), high.is_finite()) {
                (true, true) => format!(" within {low} to {high}"),
                (true, false) => format!(", {low} or more"),
                _ => String::new(),
            };
            Err(Error::parameter(name, parameter, format!("a rising range{bounds}"), format!("{start}..={end}")))
        };
        let kernel = |range: &RangeInclusive<u32>| {
            if *range.start() >= 1 && range.start() <= range.end() && *range.end() <= MAX_KERNEL_PX {
                return Ok(());
            }
            let got = format!("{range:?}");
            Err(Error::parameter(name, "kernel", format!("a rising range within 1 to {MAX_KERNEL_PX} pixels"), got))
        };
        // The smallest values above 0: an area or aspect of 0 has no logarithm and no pixels.
        const ABOVE_0: f64 = 1e-6;
        match self {
            Self::Explicit(op) => op.validate(),
            Self::HorizontalFlip { p } | Self::VerticalFlip { p } | Self::Grayscale { p } => probability(*p),
            Self::Rotation { degrees, interpolation, expand, fill } => {
                range("degrees", degrees, f64::NEG_INFINITY, f64::INFINITY)?;
                let (degrees, interpolation, expand, fill) = (*degrees.start(), *interpolation, *expand, *fill);
                Op::Rotate { degrees, interpolation, expand, fill }.validate()
            }
            Self::Crop { size, padding, fill } => {
                let most = MAX_SIDE_PX.saturating_sub(size.width.max(size.height));
                if *padding > most {
                    let expected = format!("0 to {most}: with the rectangle's side, {MAX_SIDE_PX} pixels");
                    return Err(Error::parameter(name, "padding", expected, padding));
                }
                let x = -(*padding as i32);
                Op::Crop { x, y: x, width: size.width, height: size.height, fill: *fill }.validate()
            }
            Self::ResizedCrop { size, scale, ratio, interpolation } => {
                range("scale", scale, ABOVE_0, 1.0)?;
                range("ratio", ratio, ABOVE_0, f64::INFINITY)?;
                Op::Resize(Resize { to: ResizeTo::Exact(*size), interpolation: *interpolation }).validate()
            }
            Self::ColorJitter { brightness, contrast, saturation, hue } => {
                range("brightness", brightness, 0.0, f64::INFINITY)?;
                range("contrast", contrast, 0.0, f64::INFINITY)?;
                range("saturation", saturation, 0.0, f64::INFINITY)?;
                range("hue", hue, -0.5, 0.5)
            }
            Self::GaussianBlur { kernel, sigma } => {
                range("sigma", sigma, ABOVE_0, f64::INFINITY)?;
                Op::GaussianBlur { kernel: *kernel, sigma: *sigma.start() }.validate()
            }
            Self::Dilation { kernel: k } | Self::Erosion { kernel: k } => kernel(k),
            Self::Erasing { p, scale, ratio, value } => {
                probability(*p)?;
                range("scale", scale, ABOVE_0, 1.0)?;
                range("ratio", ratio, ABOVE_0, f64::INFINITY)?;
                Op::Erase { x: 0, y: 0, width: 1, height: 1, value: *value }.validate()
            }
            Self::OneOf(ops) => {
                if ops.is_empty() {
                    return Err(Error::parameter(name, "ops", "at least one operation", "none"));
                }
                ops.iter().try_for_each(Self::validate_nested)
            }
            Self::Maybe { p, ops } => {
                probability(*p)?;
                ops.iter().try_for_each(Self::validate_nested)
            }
            Self::Repeat { n, ops } => {
                if *n > MAX_REPEAT {
                    return Err(Error::parameter(name, "n", format!("0 to {MAX_REPEAT}"), n));
                }
                ops.iter().try_for_each(Self::validate_nested)
            }
            Self::Custom(_) => Ok(()),
        }
    }

    /// As [`validate`](Self::validate), for an operation inside a combination.
    fn validate_nested(&self) -> Result<()> {
        if matches!(self, Self::Explicit(Op::Normalize { .. })) {
            return Err(Error::parameter("normalize", "place", "outside one_of, maybe and repeat", "inside"));
        }
        self.validate()
    }

    /// What it does to the size of any image.
    pub(crate) fn size_effect(&self) -> SizeEffect {
        let all = |ops: &[Self]| ops.iter().fold(SizeEffect::Keeps, |effect, op| effect.then(op.size_effect()));
        match self {
            Self::Explicit(op) => match *op {
                Op::Resize(Resize { to: ResizeTo::Exact(size), .. }) => SizeEffect::Becomes(size),
                Op::Resize(_) | Op::Rotate { expand: true, .. } => SizeEffect::Varies,
                Op::Crop { width, height, .. } | Op::CenterCrop { width, height } => {
                    SizeEffect::Becomes(Size { width, height })
                }
                Op::ResizedCrop { out_width, out_height, .. } => SizeEffect::Becomes(Size::new(out_width, out_height)),
                _ => SizeEffect::Keeps,
            },
            Self::Rotation { expand: true, .. } => SizeEffect::Varies,
            Self::Crop { size, .. } | Self::ResizedCrop { size, .. } => SizeEffect::Becomes(*size),
            Self::OneOf(ops) => {
                let first = ops.first().map_or(SizeEffect::Keeps, Self::size_effect);
                if ops.iter().all(|op| op.size_effect() == first) { first } else { SizeEffect::Varies }
            }
            Self::Maybe { ops, .. } => match all(ops) {
                SizeEffect::Keeps => SizeEffect::Keeps,
                _ => SizeEffect::Varies,
            },
            Self::Repeat { n: 0, .. } => SizeEffect::Keeps,
            Self::Repeat { ops, .. } => all(ops),
            _ => SizeEffect::Keeps,
        }
    }

    /// Most steps that drawing it takes, however it is nested.
    pub(crate) fn most_steps(&self) -> u64 {
        let all = |ops: &[Self]| ops.iter().fold(1, |sum: u64, op| sum.saturating_add(op.most_steps()));
        match self {
            Self::OneOf(ops) | Self::Maybe { ops, .. } => all(ops),
            Self::Repeat { n, ops } => u64::from(*n).saturating_mul(all(ops)),
            _ => 1,
        }
    }

    /// How many places it takes in the sequence of draws, whatever is drawn: a draw never moves another's numbers.
    fn places(&self) -> u32 {
        let all = |ops: &[Self]| ops.iter().fold(0, |sum: u32, op| sum.saturating_add(op.places()));
        match self {
            Self::OneOf(ops) | Self::Maybe { ops, .. } => all(ops).saturating_add(1),
            Self::Repeat { n, ops } => n.saturating_mul(all(ops)),
            _ => 1,
        }
    }
}

/// A recipe under construction: draws operations and follows the image's size through them.
pub(crate) struct Drawing<'a> {
    draw: &'a mut SampleRng,
    place: u32,
    size: Size,
    recipe: Vec<Op>,
}

/// Draws the recipe of one sample: the explicit operations that `ops` come to for an image of size `size`.
///
/// # Errors
/// [`Error::Parameter`] where an explicit rectangle does not fit the image, [`Error::Limits`] where it grows too large.
pub(crate) fn draw_recipe(ops: &[Transform], draw: &mut SampleRng, size: Size) -> Result<Vec<Op>> {
    let mut drawing = Drawing { draw, place: 0, size, recipe: Vec::with_capacity(ops.len() + 8) };
    ops.iter().try_for_each(|op| drawing.add(op))?;
    Ok(drawing.recipe)
}

impl Drawing<'_> {
    fn push(&mut self, op: Op) -> Result<()> {
        self.size = op.output_size(self.size)?;
        self.recipe.push(op);
        Ok(())
    }

    fn add(&mut self, op: &Transform) -> Result<()> {
        let after = self.place.saturating_add(op.places());
        // Rewinding to the place's own part of the stream is a block of the cipher: not for what draws nothing.
        if !matches!(op, Transform::Explicit(_) | Transform::Repeat { .. }) {
            self.draw.at(self.place);
        }
        match op {
            Transform::Explicit(op) => self.push(op.clone())?,
            Transform::HorizontalFlip { p } => {
                if self.draw.chance(*p) {
                    self.push(Op::Hflip)?;
                }
            }
            Transform::VerticalFlip { p } => {
                if self.draw.chance(*p) {
                    self.push(Op::Vflip)?;
                }
            }
            Transform::Rotation { degrees, interpolation, expand, fill } => {
                let degrees = self.draw.uniform(*degrees.start(), *degrees.end());
                self.push(Op::Rotate { degrees, interpolation: *interpolation, expand: *expand, fill: *fill })?;
            }
            Transform::Crop { size, padding, fill } => {
                let op = random_crop_place(self.draw, self.size, *size, *padding, *fill);
                self.push(op)?;
            }
            Transform::ResizedCrop { size, scale, ratio, interpolation } => {
                let [x, y, width, height] = resized_crop_place(self.draw, self.size, scale, ratio);
                let (out_width, out_height, interpolation) = (size.width, size.height, *interpolation);
                self.push(Op::ResizedCrop { x, y, width, height, out_width, out_height, interpolation })?;
            }
            Transform::ColorJitter { brightness, contrast, saturation, hue } => {
                let mut factor = |range: &RangeInclusive<f64>, unchanged: f64| {
                    let factor = self.draw.uniform(*range.start(), *range.end());
                    (*range != (unchanged..=unchanged)).then_some(factor)
                };
                let mut jitter = [
                    factor(brightness, 1.0).map(|factor| Op::Brightness { factor }),
                    factor(contrast, 1.0).map(|factor| Op::Contrast { factor }),
                    factor(saturation, 1.0).map(|factor| Op::Saturation { factor }),
                    factor(hue, 0.0).map(|factor| Op::Hue { factor }),
                ];
                self.draw.shuffle(&mut jitter);
                jitter.into_iter().flatten().try_for_each(|op| self.push(op))?;
            }
            Transform::Grayscale { p } => {
                if self.draw.chance(*p) {
                    self.push(Op::Grayscale)?;
                }
            }
            Transform::GaussianBlur { kernel, sigma } => {
                let sigma = self.draw.uniform(*sigma.start(), *sigma.end());
                self.push(Op::GaussianBlur { kernel: *kernel, sigma })?;
            }
            Transform::Dilation { kernel } => {
                let kernel = integer(self.draw, kernel);
                self.push(Op::Dilate { kernel })?;
            }
            Transform::Erosion { kernel } => {
                let kernel = integer(self.draw, kernel);
                self.push(Op::Erode { kernel })?;
            }
            Transform::Erasing { p, scale, ratio, value } => {
                if self.draw.chance(*p)
                    && let Some([x, y, width, height]) = erasing_place(self.draw, self.size, scale, ratio)
                {
                    self.push(Op::Erase { x, y, width, height, value: *value })?;
                }
            }
            Transform::OneOf(ops) => {
                let chosen = self.draw.below(ops.len() as u64) as usize;
                self.place += 1;
                for (i, op) in ops.iter().enumerate() {
                    let next = self.place.saturating_add(op.places());
                    if i == chosen {
                        self.add(op)?;
                    }
                    self.place = next;
                }
            }
            Transform::Maybe { p, ops } => {
                if self.draw.chance(*p) {
                    self.place += 1;
                    ops.iter().try_for_each(|op| self.add(op))?;
                }
            }
            Transform::Repeat { n, ops } => {
                for _ in 0..*n {
                    ops.iter().try_for_each(|op| self.add(op))?;
                }
            }
            Transform::Custom(custom) => {
                let before = self.size;
                for op in custom.draw(self.draw, before)? {
                    // The batch's type is settled when the pipeline is built, and by the pipeline's own normalize.
                    if matches!(op, Op::Normalize { .. }) {
                        let expected = "only 8-bit operations: normalize belongs to the pipeline";
                        return Err(Error::parameter(custom.name(), "operations", expected, op.name()));
                    }
                    self.push(op)?;
                }
                if self.size != before {
                    let got = self.size.to_string();
                    return Err(Error::parameter(custom.name(), "size", format!("unchanged, {before}"), got));
                }
            }
        }
        self.place = after;
        Ok(())
    }
}

fn integer(draw: &mut SampleRng, range: &RangeInclusive<u32>) -> u32 {
    range.start() + draw.below(u64::from(range.end() - range.start()) + 1) as u32
}

/// Rounds as Python's `round`: ties to even.
fn round(value: f64) -> i64 {
    value.round_ties_even() as i64
}

fn log_uniform(draw: &mut SampleRng, range: &RangeInclusive<f64>) -> f64 {
    libm::exp(draw.uniform(libm::log(*range.start()), libm::log(*range.end())))
}

fn random_crop_place(draw: &mut SampleRng, image: Size, size: Size, padding: u32, fill: Fill) -> Op {
    let mut axis = |image: u32, wanted: u32| {
        let padded = i64::from(image) + 2 * i64::from(padding);
        let missing = (i64::from(wanted) - padded).max(0);
        let places = padded + 2 * missing - i64::from(wanted) + 1;
        (draw.below(places as u64) as i64 - i64::from(padding) - missing) as i32
    };
    let y = axis(image.height, size.height);
    let x = axis(image.width, size.width);
    Op::Crop { x, y, width: size.width, height: size.height, fill }
}

/// torchvision's `RandomResizedCrop.get_params`: x, y, width, height.
fn resized_crop_place(
    draw: &mut SampleRng,
    image: Size,
    scale: &RangeInclusive<f64>,
    ratio: &RangeInclusive<f64>,
) -> [u32; 4] {
    let (w, h) = (i64::from(image.width), i64::from(image.height));
    let area = (w * h) as f64;
    for _ in 0..RECTANGLE_ATTEMPTS {
        let target_area = area * draw.uniform(*scale.start(), *scale.end());
        let aspect = log_uniform(draw, ratio);
        let width = round((target_area * aspect).sqrt());
        let height = round((target_area / aspect).sqrt());
        if (1..=w).contains(&width) && (1..=h).contains(&height) {
            let y = draw.below((h - height + 1) as u64) as u32;
            let x = draw.below((w - width + 1) as u64) as u32;
            return [x, y, width as u32, height as u32];
        }
    }
    let aspect = w as f64 / h as f64;
    let (width, height) = if aspect < *ratio.start() {
        (w, round(w as f64 / ratio.start()))
    } else if aspect > *ratio.end() {
        (round(h as f64 * ratio.end()), h)
    } else {
        (w, h)
    };
    // A sliver of an image: the nearest allowed aspect may round to nothing or reach outside.
    let (width, height) = (width.clamp(1, w), height.clamp(1, h));
    [((w - width) / 2) as u32, ((h - height) / 2) as u32, width as u32, height as u32]
}

/// torchvision's `RandomErasing.get_params`: x, y, width, height.
fn erasing_place(
    draw: &mut SampleRng,
    image: Size,
    scale: &RangeInclusive<f64>,
    ratio: &RangeInclusive<f64>,
) -> Option<[u32; 4]> {
    let (w, h) = (i64::from(image.width), i64::from(image.height));
    let area = (w * h) as f64;
    for _ in 0..RECTANGLE_ATTEMPTS {
        let erase_area = area * draw.uniform(*scale.start(), *scale.end());
        let aspect = log_uniform(draw, ratio);
        let height = round((erase_area * aspect).sqrt());
        let width = round((erase_area / aspect).sqrt());
        if (1..h).contains(&height) && (1..w).contains(&width) {
            let y = draw.below((h - height + 1) as u64) as u32;
            let x = draw.below((w - width + 1) as u64) as u32;
            return Some([x, y, width as u32, height as u32]);
        }
    }
    None
}
