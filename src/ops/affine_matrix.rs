//! Sampling through an affine matrix.

use super::check::finite_within;
use super::fill::Fill;
use super::filter::Interpolation;
use super::kernel::{Kernel, Launcher};
use super::sampling::{self, Sampling};
use super::{CpuPass, Operation, Primitive, SizeEffect};
use crate::error::Result;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Largest distance in the image that one pixel of the result comes to.
const MAX_STEP_PX: f64 = 1e3;
/// Largest move of the upper left corner.
const MAX_MOVE_PX: f64 = 1e8;
const IDENTITY: [f64; 6] = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0];

/// Takes the pixel at (x, y) from (a x + b y + c, d x + e y + f), on the same canvas: Pillow's `Image.transform` with
/// `AFFINE`. The matrix can also move by parts of a pixel, and no angle is rounded; timm's shears and translations need
/// both.
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
    /// Color outside the image: red, green, blue.
    #[serde(default)]
    pub fill: [u8; 3],
}

impl AffineMatrix {
    pub(super) const KERNELS: &'static [Kernel] = sampling::KERNELS;

    /// Sampling through `matrix`; nearest pixel, black outside.
    #[must_use]
    pub const fn new(matrix: [f64; 6]) -> Self {
        Self { matrix, interpolation: Interpolation::Nearest, fill: [0; 3] }
    }

    /// The filter: [`Nearest`](Interpolation::Nearest), [`Bilinear`](Interpolation::Bilinear) or
    /// [`Bicubic`](Interpolation::Bicubic).
    #[must_use]
    pub const fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// Color outside the image: red, green, blue.
    #[must_use]
    pub const fn fill(mut self, fill: [u8; 3]) -> Self {
        self.fill = fill;
        self
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
        ]
    }

    fn sampling(&self) -> Sampling {
        Sampling { matrix: self.matrix, interpolation: self.interpolation, fill: Fill::Color(self.fill) }
    }
}

impl Operation for AffineMatrix {
    fn name(&self) -> &'static str {
        "affine_matrix"
    }

    fn validate(&self) -> Result<()> {
        let [a, b, c, d, e, f] = self.matrix;
        finite_within(self.name(), "matrix", &[a, b, d, e], MAX_STEP_PX)?;
        finite_within(self.name(), "matrix", &[c, f], MAX_MOVE_PX)?;
        sampling::validate(self.name(), self.interpolation)
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        Ok(input)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Keeps
    }

    fn primitive(&self, _input: Size) -> Primitive {
        if self.matrix == IDENTITY { Primitive::Identity } else { Primitive::Affine(self.sampling()) }
    }

    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let size = pass.image.size();
        pass.replace(size, |input, out| self.sampling().make(input, size, Rect::full(size), out))
    }

    fn launch(&self, on: &mut dyn Launcher, part: Rect) -> Result<()> {
        let size = on.whole();
        self.sampling().launch(on, size, part)
    }
}
