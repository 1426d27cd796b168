//! Dropping objects whose centers lie outside a rectangle.

use super::check::{inside, sides};
use super::kernel::Kernel;
use super::{FieldContext, Op, Operation, Primitive};
use crate::error::Result;
use crate::fields::motion::{Motion, Selection};
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Keeps the objects whose boxes have their centers strictly inside a rectangle, and drops the others with all their
/// fields. It changes no pixel. Transforms whose crop decides about objects put it before the crop, so that a recipe
/// describes the effect on objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SelectObjects {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl SelectObjects {
    pub(super) const KERNELS: &'static [Kernel] = &[];

    /// The objects whose centers lie in `rect`.
    #[must_use]
    pub const fn centered_in(rect: Rect) -> Self {
        let Rect { x, y, width, height } = rect;
        Self { x, y, width, height }
    }

    pub(super) fn examples(Size { width, height }: Size) -> Vec<Self> {
        vec![Self { x: 0, y: height / 4, width: width.div_ceil(2), height: height - height / 4 }]
    }

    fn rect(&self) -> Rect {
        Rect { x: self.x, y: self.y, width: self.width, height: self.height }
    }
}

impl Operation for SelectObjects {
    fn validate(&self) -> Result<()> {
        sides(Self::NAME, self.width, self.height)
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        inside(Self::NAME, self.rect(), input)?;
        Ok(input)
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Identity
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        Ok(Motion::Select(Selection { center: Some(self.rect()), ..Selection::default() }))
    }

    fn on_field(&self, _input: Size, _how: &FieldContext) -> Result<Option<Op>> {
        Ok(None)
    }
}
