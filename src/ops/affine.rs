//! Rotation, scaling, shear and translation in one operation.

use super::affine_warp::{self, AffineWarp};
use super::check::{point, range};
use super::fill::Fill;
use super::filter::Interpolation;
use super::interpolations::Interpolations;
use super::kernel::Kernel;
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{ChannelNumbers, FieldContext, Op, Operation, Primitive};
use crate::error::{Error, Result};
use crate::fields::motion::Motion;
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Largest shear in degrees; it makes a side 57 times as long.
const MAX_SHEAR_DEGREES: f64 = 89.0;
/// Largest factor by which sides become longer or shorter.
const MAX_SCALE: f64 = 1000.0;

/// Shears, rotates and scales about a point, then translates, on the same canvas: torchvision's `F.affine` of a PIL
/// image.
///
/// ```
/// use warpfeed::ops::{Affine, Op};
///
/// let op: Op = serde_json::from_str(r#"{"op": "affine", "shear": [10, 0], "center": [0, 0]}"#)?;
/// assert_eq!(op, Affine::new().shear([10.0, 0.0]).center([0.0, 0.0]).into());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Affine {
    /// Clockwise angle, any finite value.
    #[serde(default)]
    pub degrees: f64,
    /// Move to the right and down, in pixels.
    #[serde(default, serialize_with = "super::written::short_pair")]
    pub translate: [f64; 2],
    /// Factor by which sides become longer.
    #[serde(default = "one")]
    pub scale: f64,
    /// Angles in degrees by which columns lean and rows fall, -89 to 89.
    #[serde(default)]
    pub shear: [f64; 2],
    /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or
    /// [`Bicubic`](Interpolation::Bicubic).
    #[serde(default = "Interpolation::nearest")]
    pub interpolation: Interpolation,
    /// Color outside the image: red, green, blue, or a number for each channel.
    #[serde(default)]
    pub fill: Fill,
    /// The point that rotation, scaling and shear leave where it is, in pixels from the left and the top. Default: the
    /// image's center.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<[f64; 2]>,
}

const fn one() -> f64 {
    1.0
}

impl Default for Affine {
    fn default() -> Self {
        Self::new()
    }
}

impl Affine {
    pub(super) const KERNELS: &'static [Kernel] = affine_warp::KERNELS;

    /// An operation that changes nothing yet; nearest pixel, black outside.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            degrees: 0.0,
            translate: [0.0; 2],
            scale: 1.0,
            shear: [0.0; 2],
            interpolation: Interpolation::Nearest,
            fill: Fill::BLACK,
            center: None,
        }
    }

    setters! {
        /// Clockwise angle, any finite value.
        degrees: f64,
        /// Factor by which sides become longer.
        scale: f64,
        /// Angles in degrees by which columns lean and rows fall, -89 to 89.
        shear: [f64; 2],
        /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or
        /// [`Bicubic`](Interpolation::Bicubic).
        interpolation: Interpolation,
        /// Color outside the image: red, green, blue, or a number for each channel.
        fill: into Fill,
        /// The point that rotation, scaling and shear leave where it is, in pixels from the left and the top.
        center: [f64; 2] => Some,
    }

    /// Move to the right and down, in pixels.
    #[must_use]
    pub fn translate<T: Into<f64>>(self, translate: [T; 2]) -> Self {
        Self { translate: translate.map(Into::into), ..self }
    }

    pub(super) fn examples(size: Size) -> Vec<Self> {
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let free = Self::new().degrees(-31.0).translate([3, -2]).scale(1.3).shear([12.0, -7.0]).fill([7, 130, 255]);
        vec![
            free,
            free.interpolation(Interpolation::Bilinear).center([0.2 * width, height]),
            free.interpolation(Interpolation::Bicubic).scale(0.7),
            Self::new().shear([-16.7, 0.0]).center([0.0; 2]),
            Self::new().shear([0.0, 16.7]).center([0.0; 2]).fill([9, 8, 7]),
            Self::new().translate([size.width as i32 / 3, -1]),
            Self::new().translate([1.25, -0.5]).interpolation(Interpolation::Bilinear),
            Self::new().scale(0.6).fill([1, 2, 3]),
        ]
    }

    /// The map from the result to an image of size `input`: the inverse of the operation, as torchvision computes it.
    fn matrix(&self, input: Size) -> [f64; 6] {
        let [cx, cy] = self.center.unwrap_or([f64::from(input.width) * 0.5, f64::from(input.height) * 0.5]);
        let [tx, ty] = self.translate;
        let (turn, [lean, fall]) = (radians(self.degrees), self.shear.map(radians));
        let (cos, sin) = (libm::cos(turn - fall), libm::sin(turn - fall));
        let a = cos / libm::cos(fall);
        let b = -cos * libm::tan(lean) / libm::cos(fall) - libm::sin(turn);
        let c = sin / libm::cos(fall);
        let d = -sin * libm::tan(lean) / libm::cos(fall) + libm::cos(turn);
        let [m0, m1, m3, m4] = [d, -b, -c, a].map(|value| value / self.scale);
        let m2 = m0 * (-cx - tx) + m1 * (-cy - ty) + cx;
        let m5 = m3 * (-cx - tx) + m4 * (-cy - ty) + cy;
        [m0, m1, m2, m3, m4, m5]
    }

    /// The map of points of an image of size `input`, as torchvision computes it for boxes; its center is the image's
    /// unless one is given.
    pub(super) fn map_of_points(&self, input: Size, center: Option<[f64; 2]>) -> [f64; 6] {
        let [cx, cy] = center.unwrap_or([f64::from(input.width) * 0.5, f64::from(input.height) * 0.5]);
        let [tx, ty] = self.translate;
        let (turn, [lean, fall]) = (radians(self.degrees), self.shear.map(radians));
        let a = libm::cos(turn - fall) / libm::cos(fall);
        let b = -(a * libm::tan(lean) + libm::sin(turn));
        let c = libm::sin(turn - fall) / libm::cos(fall);
        let d = libm::cos(turn) - c * libm::tan(lean);
        let [a, b, c, d] = [a, b, c, d].map(|value| value * self.scale);
        [a, b, cx + tx - a * cx - b * cy, c, d, cy + ty - c * cx - d * cy]
    }
}

/// Python's `math.radians`.
fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

impl Operation for Affine {
    fn validate(&self) -> Result<()> {
        if !self.degrees.is_finite() {
            return Err(Error::parameter(Self::NAME, "degrees", "a finite number", self.degrees));
        }
        point(Self::NAME, "translate", self.translate)?;
        if !(1.0 / MAX_SCALE..=MAX_SCALE).contains(&self.scale) {
            let expected = format!("1/{MAX_SCALE} to {MAX_SCALE}");
            return Err(Error::parameter(Self::NAME, "scale", expected, self.scale));
        }
        if !self.shear.iter().all(|shear| shear.abs() <= MAX_SHEAR_DEGREES) {
            let expected = format!("-{MAX_SHEAR_DEGREES} to {MAX_SHEAR_DEGREES} degrees");
            return Err(Error::parameter(Self::NAME, "shear", expected, format!("{:?}", self.shear)));
        }
        if let Some(center) = self.center {
            point(Self::NAME, "center", center)?;
        }
        self.fill.no_edge(Self::NAME)?;
        affine_warp::validate(Self::NAME, self.interpolation)
    }

    fn numbers(&self) -> Option<(&'static str, ChannelNumbers)> {
        self.fill.values().map(|values| ("fill", values))
    }

    fn primitive(&self, input: Size) -> Primitive<'_> {
        let (matrix, fill, [x, y]) = (self.matrix(input), self.fill, self.translate);
        // Without rotation, scaling and shear, the image may move by whole pixels.
        if matrix != [1.0, 0.0, -x, 0.0, 1.0, -y] || [x.fract(), y.fract()] != [0.0; 2] {
            return Primitive::Affine(AffineWarp { matrix, interpolation: self.interpolation, fill });
        }
        let [x, y] = [x, y].map(|pixels| pixels as i32);
        if [x, y] == [0, 0] { Primitive::Identity } else { Primitive::Crop { x: -x, y: -y, fill } }
    }

    fn motion(&self, input: Size) -> Result<Motion> {
        Ok(Motion::Affine(self.map_of_points(input, self.center)))
    }

    fn on_field(&self, _input: Size, how: &FieldContext) -> Result<Option<Op>> {
        how.same_size(Self::NAME)?;
        let filter = how.filter(self.interpolation, Interpolation::Bicubic);
        Ok(Some(self.interpolation(filter).fill(how.fill).into()))
    }
}

/// Rotates, translates, scales and shears by random amounts: torchvision's `RandomAffine`.
///
/// ```
/// use warpfeed::ops::{RandomAffine, Transform};
///
/// Transform::from(RandomAffine::new(-15.0..=15.0).translate([0.1, 0.1]).scale(0.8..=1.2)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAffine {
    #[serde(with = "super::written::range")]
    degrees: RangeInclusive<f64>,
    #[serde(default)]
    translate: [f64; 2],
    #[serde(with = "super::written::range", default = "only_1")]
    scale: RangeInclusive<f64>,
    #[serde(with = "super::written::range", default = "only_0")]
    shear_x: RangeInclusive<f64>,
    #[serde(with = "super::written::range", default = "only_0")]
    shear_y: RangeInclusive<f64>,
    #[serde(default = "Interpolations::nearest")]
    interpolation: Interpolations,
    #[serde(default)]
    fill: Fill,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    center: Option<[f64; 2]>,
}

const fn only_1() -> RangeInclusive<f64> {
    1.0..=1.0
}

const fn only_0() -> RangeInclusive<f64> {
    0.0..=0.0
}

impl RandomAffine {
    /// A clockwise rotation by an angle in `degrees`; nearest pixel, black outside.
    #[must_use]
    pub const fn new(degrees: RangeInclusive<f64>) -> Self {
        Self {
            degrees,
            translate: [0.0; 2],
            scale: only_1(),
            shear_x: only_0(),
            shear_y: only_0(),
            interpolation: Interpolations::nearest(),
            fill: Fill::BLACK,
            center: None,
        }
    }

    setters! {
        /// Largest move in either direction, as parts of the image's width and height, 0 to 1.
        translate: [f64; 2],
        /// Factors by which sides become longer.
        scale: RangeInclusive<f64>,
    }

    /// Angles in degrees by which columns lean and rows fall.
    #[must_use]
    pub fn shear(mut self, [x, y]: [RangeInclusive<f64>; 2]) -> Self {
        (self.shear_x, self.shear_y) = (x, y);
        self
    }

    /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or
    /// [`Bicubic`](Interpolation::Bicubic), or two filters; then one of them is drawn.
    #[must_use]
    pub fn interpolation(mut self, interpolation: impl Into<Interpolations>) -> Self {
        self.interpolation = interpolation.into();
        self
    }

    setters! {
        /// Color outside the image: red, green, blue, or a number for each channel.
        fill: into Fill,
        /// The point that rotation, scaling and shear leave where it is, in pixels from the left and the top.
        center: [f64; 2] => Some,
    }
}

impl RandomTransform for RandomAffine {
    fn validate(&self) -> Result<()> {
        range(Self::NAME, "degrees", &self.degrees, f64::NEG_INFINITY, f64::INFINITY)?;
        if !self.translate.iter().all(|part| (0.0..=1.0).contains(part)) {
            let got = format!("{:?}", self.translate);
            return Err(Error::parameter(Self::NAME, "translate", "two parts of the image's sides, 0 to 1", got));
        }
        range(Self::NAME, "scale", &self.scale, 1.0 / MAX_SCALE, MAX_SCALE)?;
        range(Self::NAME, "shear_x", &self.shear_x, -MAX_SHEAR_DEGREES, MAX_SHEAR_DEGREES)?;
        range(Self::NAME, "shear_y", &self.shear_y, -MAX_SHEAR_DEGREES, MAX_SHEAR_DEGREES)?;
        if let Some(center) = self.center {
            point(Self::NAME, "center", center)?;
        }
        self.interpolation.validate(|interpolation| affine_warp::validate(Self::NAME, interpolation))
    }

    fn takes(&self, pixels: &PixelValues) -> Option<Result<()>> {
        self.fill.values().map_or(Some(Ok(())), |fill| Some(pixels.check(Self::NAME, "fill", fill)))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, image) = recipe.start();
        let uniform =
            |range: &RangeInclusive<f64>, rng: &mut super::SampleRng| rng.uniform(*range.start(), *range.end());
        let degrees = uniform(&self.degrees, rng);
        let mut pixels = |part: f64, side: u32| {
            let most = part * f64::from(side);
            rng.uniform(-most, most).round_ties_even() as i32
        };
        let translate =
            [pixels(self.translate[0], image.width), pixels(self.translate[1], image.height)].map(f64::from);
        let scale = uniform(&self.scale, rng);
        let shear = [uniform(&self.shear_x, rng), uniform(&self.shear_y, rng)];
        let interpolation = self.interpolation.draw(rng);
        let Self { fill, center, .. } = *self;
        recipe.push(Affine { degrees, translate, scale, shear, interpolation, fill, center })
    }
}
