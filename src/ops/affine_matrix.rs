//! Sampling through an affine matrix.

use super::affine_warp::{self, AffineWarp};
use super::check::{finite_within, sides};
use super::fill::Fill;
use super::filter::Interpolation;
use super::kernel::Kernel;
use super::{ChannelNumbers, FieldContext, Op, Operation, Primitive, SizeEffect};
use crate::error::Result;
use crate::fields::motion::Motion;
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Largest distance in the image that one pixel of the result comes to.
const MAX_STEP_PX: f64 = 1e3;
/// Largest move of the upper left corner.
const MAX_MOVE_PX: f64 = 1e8;
const IDENTITY: [f64; 6] = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0];

/// Takes the pixel at (x, y) from (a x + b y + c, d x + e y + f): Pillow's `Image.transform` with `AFFINE`. The matrix
/// can also move by parts of a pixel, and no angle is rounded; timm's shears and translations need both.
///
/// ```
/// use warpfeed::ops::{AffineMatrix, Op};
///
/// let op: Op = serde_json::from_str(r#"{"op": "affine_matrix", "matrix": [1, 0.27, 0, 0, 1, 0]}"#)?;
/// assert_eq!(op, AffineMatrix::new([1.0, 0.27, 0.0, 0.0, 1.0, 0.0]).into());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AffineMatrix {
    /// a, b, c, d, e, f: the steps a, b, d, e within -1,000 to 1,000, the moves c, f within -100,000,000 to 100,000,000
    /// pixels. Coordinates count from the upper left corner; a pixel's center is at its index plus 0.5.
    pub matrix: [f64; 6],
    /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or
    /// [`Bicubic`](Interpolation::Bicubic).
    #[serde(default = "Interpolation::nearest")]
    pub interpolation: Interpolation,
    /// Color outside the image: red, green, blue, or a number for each channel.
    #[serde(default)]
    pub fill: Fill,
    /// Size of the result. Default: the image's.
    #[serde(default, with = "super::written::optional_size", skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
}

impl AffineMatrix {
    pub(super) const KERNELS: &'static [Kernel] = affine_warp::KERNELS;

    /// Sampling through `matrix` on the same canvas; nearest pixel, black outside.
    #[must_use]
    pub const fn new(matrix: [f64; 6]) -> Self {
        Self { matrix, interpolation: Interpolation::Nearest, fill: Fill::BLACK, size: None }
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
        let (bilinear, bicubic) = (Interpolation::Bilinear, Interpolation::Bicubic);
        vec![
            Self::new([1.0, -0.27, 0.0, 0.0, 1.0, 0.0]).interpolation(bilinear).fill([7, 130, 255]),
            Self::new([1.0, 0.0, 0.0, 0.24, 1.0, 0.0]).interpolation(bicubic).fill([7, 130, 255]),
            Self::new([1.0, 0.0, 0.405 * width, 0.0, 1.0, 0.0]).interpolation(bilinear).fill([9, 8, 7]),
            Self::new([1.0, 0.0, 0.0, 0.0, 1.0, -0.31 * height]).interpolation(bicubic),
            Self::new([0.7, 0.2, -1.5, 0.1, 1.3, 2.25]),
            Self::new(IDENTITY),
            Self::new([1.7, -0.3, 2.5, 0.2, 1.4, -3.0]).interpolation(bilinear).size(Size::new(23, 31)).fill([4, 5, 6]),
            Self::new(IDENTITY).size(Size::new(size.width + 3, 7)),
        ]
    }
}

impl Operation for AffineMatrix {
    fn validate(&self) -> Result<()> {
        let [a, b, c, d, e, f] = self.matrix;
        finite_within(Self::NAME, "matrix", &[a, b, d, e], MAX_STEP_PX)?;
        finite_within(Self::NAME, "matrix", &[c, f], MAX_MOVE_PX)?;
        self.size.map_or(Ok(()), |size| sides(Self::NAME, size.width, size.height))?;
        self.fill.no_edge(Self::NAME)?;
        affine_warp::validate(Self::NAME, self.interpolation)
    }

    fn size_effect(&self) -> SizeEffect {
        self.size.map_or(SizeEffect::Keeps, SizeEffect::Becomes)
    }

    fn numbers(&self) -> Option<(&'static str, ChannelNumbers)> {
        self.fill.values().map(|values| ("fill", values))
    }

    fn primitive(&self, input: Size) -> Primitive<'_> {
        if self.matrix == IDENTITY && self.size.is_none_or(|size| size == input) {
            return Primitive::Identity;
        }
        let Self { matrix, interpolation, fill, .. } = *self;
        Primitive::Affine(AffineWarp { matrix, interpolation, fill })
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        affine_warp::inverse(self.matrix).map(Motion::Affine).ok_or_else(|| affine_warp::flattens(Self::NAME))
    }

    fn on_field(&self, _input: Size, how: &FieldContext) -> Result<Option<Op>> {
        how.same_size(Self::NAME)?;
        let filter = how.filter(self.interpolation, Interpolation::Bicubic);
        Ok(Some(self.interpolation(filter).fill(how.fill).into()))
    }
}
