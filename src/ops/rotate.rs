//! Rotation about the center or another point, by any angle.

use super::affine_warp::{self, AffineWarp};
use super::check::{point, range};
use super::fill::Fill;
use super::filter::Interpolation;
use super::interpolations::Interpolations;
use super::kernel::Kernel;
use super::recipe::RecipeBuilder;
use super::rotation::Rotation;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Affine, ChannelNumbers, FieldContext, Op, Operation, Primitive, SizeEffect};
use crate::error::{Error, Result};
use crate::fields::motion::Motion;
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Rotates counter-clockwise, about the image's center unless another point is given.
///
/// If the fill is a color, this is Pillow's rotation, with Pillow's canvas for `expand`. If the fill is [`Fill::EDGE`],
/// this is DALI's `fn.rotate`, with DALI's canvas.
///
/// ```
/// use warpfeed::{ops::{Interpolation, Op, Rotate}, image::Size};
///
/// let op: Op = Rotate::new(90.0).interpolation(Interpolation::Bilinear).expand(true).into();
/// assert_eq!(op.output_size(Size::new(40, 30))?, Size::new(30, 40));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Rotate {
    /// Counter-clockwise angle, any finite value.
    pub degrees: f64,
    /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or, with a color as fill,
    /// [`Bicubic`](Interpolation::Bicubic).
    #[serde(default = "Interpolation::nearest")]
    pub interpolation: Interpolation,
    /// Whether the canvas grows to hold all corners.
    #[serde(default)]
    pub expand: bool,
    /// Fill outside the image.
    #[serde(default)]
    pub fill: Fill,
    /// The point that stays where it is, in pixels from the left and the top; allowed only if the fill is a color.
    /// Default: the image's center.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<[f64; 2]>,
}

impl Rotate {
    pub(super) const KERNELS: &'static [Kernel] = affine_warp::KERNELS;

    /// A rotation on the same canvas; nearest pixel, black outside.
    #[must_use]
    pub const fn new(degrees: f64) -> Self {
        Self { degrees, interpolation: Interpolation::Nearest, expand: false, fill: Fill::BLACK, center: None }
    }

    setters! {
        /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or, with a color as
        /// fill, [`Bicubic`](Interpolation::Bicubic).
        interpolation: Interpolation,
        /// Whether the canvas grows to hold all corners.
        expand: bool,
        /// Fill outside the image.
        fill: into Fill,
        /// The point that stays where it is, in pixels from the left and the top.
        center: [f64; 2] => Some,
    }

    pub(super) fn examples(size: Size) -> Vec<Self> {
        let (bilinear, color) = (Interpolation::Bilinear, Fill::Color([7, 130, 255]));
        let center = [0.3 * f64::from(size.width), f64::from(size.height)];
        vec![
            Self::new(-4.7).fill(color),
            Self::new(31.0).expand(true).fill(color),
            Self::new(12.0).fill(Fill::EDGE),
            Self::new(90.0).expand(true),
            Self::new(180.0),
            Self::new(-90.0).expand(true),
            Self::new(17.3).interpolation(bilinear).fill(color),
            Self::new(5.0).interpolation(bilinear).expand(true).fill(Fill::EDGE),
            Self::new(-70.0).interpolation(Interpolation::Bicubic).expand(true).fill(color),
            Self::new(33.3).center(center).fill(color),
            Self::new(180.0).center(center),
        ]
    }

    fn rotation(&self, input: Size) -> Rotation {
        Rotation::new(input, self.degrees, self.expand, self.fill, self.center)
    }
}

impl Operation for Rotate {
    fn validate(&self) -> Result<()> {
        if !self.degrees.is_finite() {
            return Err(Error::parameter(Self::NAME, "degrees", "a finite number", self.degrees));
        }
        let edge = self.fill == Fill::EDGE;
        match self.center {
            Some(_) if edge => {
                return Err(Error::parameter(Self::NAME, "center", "none with the edge as fill", "one"));
            }
            Some(center) => point(Self::NAME, "center", center)?,
            None => {}
        }
        affine_warp::validate(Self::NAME, self.interpolation)?;
        if edge && self.interpolation == Interpolation::Bicubic {
            let expected = "nearest or bilinear with the edge as fill";
            return Err(Error::parameter(Self::NAME, "interpolation", expected, "bicubic"));
        }
        Ok(())
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        Ok(if self.expand { self.rotation(input).canvas(input) } else { input })
    }

    fn size_effect(&self) -> SizeEffect {
        if self.expand { SizeEffect::Varies } else { SizeEffect::Keeps }
    }

    fn numbers(&self) -> Option<(&'static str, ChannelNumbers)> {
        self.fill.values().map(|values| ("fill", values))
    }

    fn primitive(&self, input: Size) -> Primitive<'_> {
        match self.rotation(input) {
            Rotation::None => Primitive::Identity,
            Rotation::Turn(turn) => Primitive::Turn(turn),
            Rotation::Free { matrix, .. } => {
                Primitive::Affine(AffineWarp { matrix, interpolation: self.interpolation, fill: self.fill })
            }
        }
    }

    fn motion(&self, input: Size) -> Result<Motion> {
        // A canvas that grows has Pillow's whole pixels, so boxes follow Pillow's map. Otherwise torchvision moves
        // boxes by a map of its own, also at multiples of 90 degrees.
        if !self.expand {
            return Ok(Motion::Affine(Affine::new().degrees(-self.degrees).map_of_points(input, self.center)));
        }
        let matrix = match self.rotation(input) {
            Rotation::None => return Ok(Motion::Keeps),
            Rotation::Turn(turn) => turn.map(input).matrix(),
            Rotation::Free { matrix, .. } => matrix,
        };
        affine_warp::inverse(matrix).map(Motion::Affine).ok_or_else(|| affine_warp::flattens(Self::NAME))
    }

    fn on_field(&self, _input: Size, how: &FieldContext) -> Result<Option<Op>> {
        // A quarter turn with its canvas, or a half turn, is one at any size.
        let turns = if self.expand { 90.0 } else { 180.0 };
        if self.degrees % turns != 0.0 || self.center.is_some() {
            how.same_size(Self::NAME)?;
        }
        // With the edge as fill the canvas is DALI's.
        let edge = self.fill == Fill::EDGE;
        let fill = if edge { Fill::EDGE } else { Fill::Color(how.fill) };
        let most = if edge { Interpolation::Bilinear } else { Interpolation::Bicubic };
        Ok(Some(self.interpolation(how.filter(self.interpolation, most)).fill(fill).into()))
    }
}

/// Rotates about the center by an angle that is uniform in a range.
///
/// ```
/// use warpfeed::ops::{Fill, Interpolation, RandomRotation, Transform};
///
/// let rotation = RandomRotation::new(-5.0..=5.0).interpolation(Interpolation::Bilinear).fill(Fill::EDGE);
/// Transform::from(rotation).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomRotation {
    #[serde(with = "super::written::range")]
    degrees: RangeInclusive<f64>,
    #[serde(default = "Interpolations::nearest")]
    interpolation: Interpolations,
    #[serde(default)]
    expand: bool,
    #[serde(default)]
    fill: Fill,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    center: Option<[f64; 2]>,
}

impl RandomRotation {
    /// A counter-clockwise rotation by an angle in `degrees`, on the same canvas; nearest pixel, black outside.
    #[must_use]
    pub const fn new(degrees: RangeInclusive<f64>) -> Self {
        Self { degrees, interpolation: Interpolations::nearest(), expand: false, fill: Fill::BLACK, center: None }
    }

    /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or, with a color as fill,
    /// [`Bicubic`](Interpolation::Bicubic); or two filters; then one of them is drawn.
    #[must_use]
    pub fn interpolation(mut self, interpolation: impl Into<Interpolations>) -> Self {
        self.interpolation = interpolation.into();
        self
    }

    setters! {
        /// Whether the canvas grows to hold all corners.
        expand: bool,
        /// Fill outside the image.
        fill: into Fill,
        /// The point that stays where it is, in pixels from the left and the top.
        center: [f64; 2] => Some,
    }

    fn by(&self, degrees: f64, interpolation: Interpolation) -> Rotate {
        let Self { expand, fill, center, .. } = *self;
        Rotate { degrees, interpolation, expand, fill, center }
    }
}

impl RandomTransform for RandomRotation {
    fn validate(&self) -> Result<()> {
        range(Self::NAME, "degrees", &self.degrees, f64::NEG_INFINITY, f64::INFINITY)?;
        self.interpolation.validate(|interpolation| self.by(*self.degrees.start(), interpolation).validate())
    }

    fn size_effect(&self) -> SizeEffect {
        if self.expand { SizeEffect::Varies } else { SizeEffect::Keeps }
    }

    fn takes(&self, pixels: &PixelValues) -> Option<Result<()>> {
        Some(Op::from(self.by(*self.degrees.start(), Interpolation::Nearest)).takes(pixels))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        let degrees = rng.uniform(*self.degrees.start(), *self.degrees.end());
        let interpolation = self.interpolation.draw(rng);
        recipe.push(self.by(degrees, interpolation))
    }
}
