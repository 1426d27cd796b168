//! Perspective: the image as a plane in space.

use super::check::{point, probability, sides, within};
use super::descriptors::PerspectiveSample;
use super::fill::{Fill, opaque, packed};
use super::filter::Interpolation;
use super::interpolations::Interpolations;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::{PixelValues, Projective, ValueWork};
use super::{
    ChannelNumbers, CpuPass, FieldContext, Op, Operation, Pass, PassOrder, Primitive, Reach, SizeEffect, affine_warp,
};
use crate::error::{Error, Result};
use crate::fields::motion::Motion;
use crate::raster::{Image, Pixel, Rect, Size};
use serde::{Deserialize, Serialize};

/// Moves four points of an image to four others, and all pixels with them as on a plane in space: torchvision's
/// `F.perspective` of a PIL image.
///
/// Points are computed in whole numbers, on CPU and GPU alike. They are within 2^-16 pixels of Pillow's points, which
/// are doubles. With the nearest pixel, about one pixel in 10,000 is its neighbor; bilinear values sometimes differ by
/// 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Perspective {
    /// Four points of the image, `[x, y]` in pixels, no three on a line.
    pub startpoints: [[f64; 2]; 4],
    /// The places to which these points move.
    pub endpoints: [[f64; 2]; 4],
    /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or
    /// [`Bicubic`](Interpolation::Bicubic).
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Color outside the image: red, green, blue, or a number for each channel.
    #[serde(default)]
    pub fill: Fill,
    /// Size of the result. Default: the image's.
    #[serde(default, with = "super::written::optional_size", skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
}

/// Fractional bits of the map's coefficients.
const BITS: u32 = 40;
/// Fractional bits of a point.
const POINT_BITS: u32 = 16;
const HALF: i64 = 1 << (POINT_BITS - 1);

/// The map from pixel (x, y) of the result to the image: both coordinates and their divisor. Each of the three is `a (2
/// x + 1) + b (2 y + 1) + c`.
type Projection = [i64; 9];

impl Perspective {
    pub(super) const KERNELS: &'static [Kernel] =
        &[Kernel::pixels("perspective_u8_nhwc"), Kernel::pixels("perspective_bicubic_u8_nhwc")];

    /// A map that moves `startpoints` to `endpoints` on the same canvas; bilinear, black outside.
    #[must_use]
    pub const fn new(startpoints: [[f64; 2]; 4], endpoints: [[f64; 2]; 4]) -> Self {
        Self { startpoints, endpoints, interpolation: Interpolation::Bilinear, fill: Fill::BLACK, size: None }
    }

    setters! {
        /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or
        /// [`Bicubic`](Interpolation::Bicubic).
        interpolation: Interpolation,
        /// Color outside the image: red, green, blue, or a number for each channel.
        fill: into Fill,
        /// Size of the result.
        size: Size => Some,
    }

    pub(super) fn examples(size: Size) -> Vec<Self> {
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let start = [[0.0, 0.0], [width, 0.0], [width, height], [0.0, height]];
        let end = [[0.1 * width, 0.2 * height], [0.8 * width, 0.0], [width, 0.9 * height], [0.0, 0.7 * height]];
        let example = Self::new(start, end).fill([9, 99, 199]);
        let filters = [Interpolation::Bilinear, Interpolation::Nearest, Interpolation::Bicubic];
        let resized = example.size(Size::new(size.width.div_ceil(2), size.height + 9));
        filters.map(|filter| example.interpolation(filter)).into_iter().chain([resized]).collect()
    }

    fn refused(&self) -> Error {
        let expected = "four points, no three of them on a line, and four that they go to in the same way";
        Error::parameter(Self::NAME, "points", expected, format!("{:?}", (self.startpoints, self.endpoints)))
    }

    /// The coefficients of the map from the result to the image. Like torchvision, solves in doubles and rounds the
    /// solution to single precision.
    fn solved(&self) -> Result<[f64; 8]> {
        let solved = solve(&self.startpoints, &self.endpoints).ok_or_else(|| self.refused())?;
        Ok(solved.map(|v| f64::from(v as f32)))
    }

    /// The map for a result of size `size`. Fails if there is none, or if it does not fit 64 bits.
    fn coefficients(&self, size: Size) -> Result<Projection> {
        let [a, b, c, d, e, f, g, h] = self.solved()?;
        let scale = (1_u64 << BITS) as f64;
        let fixed = [0.5 * a, 0.5 * b, c, 0.5 * d, 0.5 * e, f, 0.5 * g, 0.5 * h, 1.0].map(|v| (v * scale).round());
        let sides = [2.0 * f64::from(size.width), 2.0 * f64::from(size.height), 1.0];
        let most = |row: usize| (0..3).map(|i| fixed[3 * row + i].abs() * sides[i]).sum::<f64>();
        // The divisor needs 16 bits more, because remainders are multiplied by 2^16.
        let fits = most(0) < 2f64.powi(62) && most(1) < 2f64.powi(62) && most(2) < 2f64.powi(46);
        if fits { Ok(fixed.map(|v| v as i64)) } else { Err(self.refused()) }
    }
}

/// The eight coefficients of the map from `end` to `start`, by Gaussian elimination with the largest pivots.
fn solve(start: &[[f64; 2]; 4], end: &[[f64; 2]; 4]) -> Option<[f64; 8]> {
    let mut rows = [[0.0; 9]; 8];
    for (i, (&[x, y], &[u, v])) in end.iter().zip(start).enumerate() {
        rows[2 * i] = [x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, u];
        rows[2 * i + 1] = [0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y, v];
    }
    for column in 0..8 {
        let pivot = (column..8).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        rows.swap(column, pivot);
        let row = rows[column];
        if row[column].abs() < 1e-9 {
            return None;
        }
        for (i, other) in rows.iter_mut().enumerate() {
            if i != column {
                let factor = other[column] / row[column];
                other.iter_mut().zip(row).for_each(|(to, from)| *to -= factor * from);
            }
        }
    }
    let solved = std::array::from_fn(|i| rows[i][8] / rows[i][i]);
    solved.iter().all(|v: &f64| v.is_finite()).then_some(solved)
}

impl Operation for Perspective {
    fn validate(&self) -> Result<()> {
        for (parameter, points) in [("startpoints", self.startpoints), ("endpoints", self.endpoints)] {
            points.into_iter().try_for_each(|at| point(Self::NAME, parameter, at))?;
        }
        self.size.map_or(Ok(()), |size| sides(Self::NAME, size.width, size.height))?;
        self.fill.no_edge(Self::NAME)?;
        affine_warp::validate(Self::NAME, self.interpolation)
    }

    fn size_effect(&self) -> SizeEffect {
        self.size.map_or(SizeEffect::Keeps, SizeEffect::Becomes)
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        let size = self.size.unwrap_or(input);
        self.coefficients(size).map(|_| size)
    }

    fn numbers(&self) -> Option<(&'static str, ChannelNumbers)> {
        self.fill.values().map(|values| ("fill", values))
    }

    fn values(&self, _pixels: &PixelValues, _input: Size, _size: Size, _order: PassOrder) -> Option<ValueWork> {
        let (map, interpolation) = (self.solved().ok()?, self.interpolation);
        Some(ValueWork::Perspective(Projective { map, interpolation, fill: self.fill.values()? }))
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Whole)
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        let [a, b, c, d, e, f, g, h] = self.solved()?;
        let determinant = a * e - b * d;
        let inverse = [
            e - f * h,
            -b + c * h,
            b * f - c * e,
            -d + f * g,
            a - c * g,
            -a * f + c * d,
            -e * g + d * h,
            -a * h + b * g,
        ];
        Ok(Motion::Projective(inverse.map(|value| value / determinant)))
    }

    fn on_field(&self, _input: Size, how: &FieldContext) -> Result<Option<Op>> {
        how.same_size(Self::NAME)?;
        let filter = how.filter(self.interpolation, Interpolation::Bicubic);
        Ok(Some(self.interpolation(filter).fill(how.fill).into()))
    }
}

impl Pass for Perspective {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let bounds = pass.image.size();
        let size = self.size.unwrap_or(bounds);
        let coefficients = self.coefficients(size)?;
        pass.replace(size, |image, out| {
            out.reset(size);
            for y in 0..size.height {
                for (x, to) in (0..).zip(out.row_mut(y)) {
                    *to = match (point_of(&coefficients, x, y, bounds), self.interpolation) {
                        (None, _) => opaque(self.fill.color()),
                        (Some([x, y]), Interpolation::Nearest) => {
                            image.row((y >> POINT_BITS) as u32)[(x >> POINT_BITS) as usize]
                        }
                        (Some(at), Interpolation::Bicubic) => bicubic(image, at),
                        (Some(at), _) => mixed(image, at),
                    };
                }
            }
        })
    }

    fn launch(&self, on: &mut dyn CallRecorder, part: Rect) -> Result<()> {
        const PERSPECTIVE: KernelId = KernelId::of("perspective_u8_nhwc");
        const BICUBIC: KernelId = KernelId::of("perspective_bicubic_u8_nhwc");
        let (source, size) = (on.source(), self.size.unwrap_or(on.whole()));
        let coefficients = self.coefficients(size)?;
        let target = on.target(size, part)?;
        let bilinear = u32::from(self.interpolation == Interpolation::Bilinear);
        let sample = PerspectiveSample { source, target, coefficients, fill: packed(self.fill.color()), bilinear };
        let kernel = if self.interpolation == Interpolation::Bicubic { BICUBIC } else { PERSPECTIVE };
        on.call(kernel, &sample, part.size());
        Ok(())
    }

    fn moves_pixels(&self) -> bool {
        true
    }
}

/// The point of the image that pixel (x, y) of the result shows. `None` if it is outside an image of size `size`.
fn point_of(coefficients: &Projection, x: u32, y: u32, size: Size) -> Option<[i64; 2]> {
    let (x, y) = (2 * i64::from(x) + 1, 2 * i64::from(y) + 1);
    let along = |row: usize| coefficients[row] * x + coefficients[row + 1] * y + coefficients[row + 2];
    let divisor = along(6);
    if divisor == 0 {
        return None;
    }
    let coordinate = |row: usize, side: u32| {
        // A positive divisor makes the remainder a positive fraction.
        let (dividend, divisor) = if divisor < 0 { (-along(row), -divisor) } else { (along(row), divisor) };
        let whole = dividend.div_euclid(divisor);
        let fraction = (dividend.rem_euclid(divisor) << POINT_BITS) / divisor;
        (0..i64::from(side)).contains(&whole).then_some(whole << POINT_BITS | fraction)
    };
    Some([coordinate(0, size.width)?, coordinate(3, size.height)?])
}

/// The weighted sum of the four pixels around a point, fractions dropped.
fn mixed(image: &Image, at: [i64; 2]) -> Pixel {
    let [x, y] = at.map(|v| v - HALF);
    let size = image.size();
    let [left, top] = [x >> POINT_BITS, y >> POINT_BITS];
    let column = |x: i64| x.clamp(0, i64::from(size.width) - 1) as usize;
    let row = |y: i64| image.row(y.clamp(0, i64::from(size.height) - 1) as u32);
    let [above, below] = [row(top), row(top + 1)];
    let [left, right] = [column(left), column(left + 1)];
    let share = |v: i64| (v & ((1 << POINT_BITS) - 1)) as u64;
    let mix = |a: u64, b: u64, share: u64| a * ((1 << POINT_BITS) - share) + b * share;
    std::array::from_fn(|channel| {
        let of = |row: &[Pixel]| mix(row[left][channel].into(), row[right][channel].into(), share(x));
        (mix(of(above), of(below), share(y)) >> (2 * POINT_BITS)) as u8
    })
}

/// Fractional bits of the cubic's weights and intermediate values.
const CUBIC_BITS: u32 = 24;

/// The cubic through the middle two of four values, with the slopes of a = -1, as in Pillow.
fn cubic(v: [i64; 4], at: i64) -> i64 {
    let (second, fourth) = (v[2] - v[0], v[1] - v[0] - v[2] + v[3]);
    let third = 2 * (v[0] - v[1]) + v[2] - v[3];
    let slope = second + (((third + ((fourth * at) >> CUBIC_BITS)) * at) >> CUBIC_BITS);
    v[1] + ((slope * at) >> CUBIC_BITS)
}

/// Cubic convolution of the sixteen pixels around a point, fractions dropped.
fn bicubic(image: &Image, at: [i64; 2]) -> Pixel {
    let [x, y] = at.map(|v| v - HALF);
    let size = image.size();
    let near = |first: i64, side: u32| -> [usize; 4] {
        std::array::from_fn(|i| (first - 1 + i as i64).clamp(0, i64::from(side) - 1) as usize)
    };
    let columns = near(x >> POINT_BITS, size.width);
    let rows = near(y >> POINT_BITS, size.height).map(|y| image.row(y as u32));
    let share = |v: i64| (v & ((1 << POINT_BITS) - 1)) << (CUBIC_BITS - POINT_BITS);
    let (right, lower) = (share(x), share(y));
    std::array::from_fn(|channel| {
        let across = rows.map(|row| cubic(columns.map(|x| i64::from(row[x][channel]) << CUBIC_BITS), right));
        (cubic(across, lower) >> CUBIC_BITS).clamp(0, 255) as u8
    })
}

/// Moves the corners inwards by random amounts, with a probability: torchvision's `RandomPerspective`. Images with a
/// single row or column stay as they are, and so do images whose corners would move onto a line.
///
/// ```
/// use warpfeed::ops::{RandomPerspective, Transform};
///
/// Transform::from(RandomPerspective::new(0.5, 0.5)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPerspective {
    distortion: f64,
    p: f64,
    #[serde(default)]
    interpolation: Interpolations,
    #[serde(default)]
    fill: Fill,
}

impl RandomPerspective {
    /// A transform that acts with probability `p` and moves corners by up to `distortion` of half the sides, 0 to 1;
    /// bilinear, black outside.
    #[must_use]
    pub const fn new(distortion: f64, p: f64) -> Self {
        Self { distortion, p, interpolation: Interpolations::Always(Interpolation::Bilinear), fill: Fill::BLACK }
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
    }

    fn between(&self, startpoints: [[f64; 2]; 4], endpoints: [[f64; 2]; 4]) -> Perspective {
        Perspective::new(startpoints, endpoints).fill(self.fill)
    }
}

impl RandomTransform for RandomPerspective {
    fn validate(&self) -> Result<()> {
        probability(Self::NAME, self.p)?;
        within(Self::NAME, "distortion", self.distortion, 0.0..=1.0)?;
        self.interpolation.validate(|interpolation| affine_warp::validate(Self::NAME, interpolation))
    }

    fn takes(&self, pixels: &PixelValues) -> Option<Result<()>> {
        self.fill.values().map_or(Some(Ok(())), |fill| Some(pixels.check(Self::NAME, "fill", fill)))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, size) = recipe.start();
        let happens = rng.chance(self.p);
        let Size { width, height } = size;
        let mut inwards = |side: u32| {
            let most = (self.distortion * f64::from(side / 2)) as u32;
            f64::from(rng.within(&(0..=most)))
        };
        let mut corner = || [inwards(width), inwards(height)];
        let (right, bottom) = (f64::from(width) - 1.0, f64::from(height) - 1.0);
        let [a, b, c, d] = [corner(), corner(), corner(), corner()];
        let start = [[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]];
        let end = [a, [right - b[0], b[1]], [right - c[0], bottom - c[1]], [d[0], bottom - d[1]]];
        let op = self.between(start, end).interpolation(self.interpolation.draw(rng));
        if happens && op.coefficients(size).is_ok() {
            recipe.push(op)?;
        }
        Ok(())
    }
}
