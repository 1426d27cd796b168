//! Cutting out the center.

use super::check::sides;
use super::fill::Fill;
use super::kernel::Kernel;
use super::{Crop, FieldContext, Op, Operation, Primitive, SizeEffect};
use crate::error::Result;
use crate::fields::motion::Motion;
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Cuts out the center. Sides that are missing are black, as in torchvision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CenterCrop {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl CenterCrop {
    pub(super) const KERNELS: &'static [Kernel] = Crop::KERNELS;

    /// A rectangle of this size in the middle. A `u32` as size is a square.
    #[must_use]
    pub fn new(size: impl Into<Size>) -> Self {
        let Size { width, height } = size.into();
        Self { width, height }
    }

    pub(super) fn examples(Size { width, height }: Size) -> Vec<Self> {
        vec![Self::new(Size::new(width / 2 + 1, height / 3 + 1)), Self::new(Size::new(width + 5, height / 2 + 1))]
    }

    fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }

    /// The top left corner, as torchvision's `center_crop` computes it. It is negative where the image is smaller and
    /// is padded.
    pub(crate) fn place(&self, input: Size) -> (i32, i32) {
        // Padded first: (wanted - side) / 2 before, (wanted - side + 1) / 2 after. Then cropped about the center of the
        // padded image, ties to even.
        let axis = |side: u32, wanted: u32| {
            let (side, wanted) = (i64::from(side), i64::from(wanted));
            if wanted > side {
                return (-(wanted - side) / 2) as i32;
            }
            ((side - wanted) as f64 / 2.0).round_ties_even() as i32
        };
        (axis(input.width, self.width), axis(input.height, self.height))
    }
}

impl Operation for CenterCrop {
    fn validate(&self) -> Result<()> {
        sides(Self::NAME, self.width, self.height)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Becomes(self.size())
    }

    fn primitive(&self, input: Size) -> Primitive<'_> {
        let (x, y) = self.place(input);
        Primitive::Crop { x, y, fill: Fill::BLACK }
    }

    // Boxes move with the pixels. Where the image is smaller, torchvision's boxes are at times a pixel off.
    fn motion(&self, input: Size) -> Result<Motion> {
        let (x, y) = self.place(input);
        Ok(Motion::Shift([-x, -y]))
    }

    fn on_field(&self, input: Size, how: &FieldContext) -> Result<Option<Op>> {
        let (x, y) = self.place(input);
        let [x, y] = how.scaled(Self::NAME, [x, y])?;
        Ok(Some(Crop::new(x, y, how.scaled_size(Self::NAME, self.size())?).fill(Fill::Color(how.fill)).into()))
    }
}
