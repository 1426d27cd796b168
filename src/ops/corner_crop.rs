//! Cutting out a corner.

use super::check::sides;
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Crop, SizeEffect};
use crate::error::{Error, Result};
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// A corner of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Corner {
    /// Left and at the top.
    UpperLeft,
    /// Right and at the top.
    UpperRight,
    /// Left and at the bottom.
    LowerLeft,
    /// Right and at the bottom.
    LowerRight,
}

/// Cuts out a corner. The transform draws nothing; it exists because the corner's place depends on the image's size.
/// Images smaller than the rectangle are an error.
///
/// ```
/// use warpfeed::ops::{Corner, CornerCrop, Transform};
///
/// Transform::from(CornerCrop::new(Corner::LowerRight, 224)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CornerCrop {
    corner: Corner,
    #[serde(with = "super::written::size")]
    size: Size,
}

impl CornerCrop {
    /// A rectangle of this size in a corner. A `u32` as size is a square.
    #[must_use]
    pub fn new(corner: Corner, size: impl Into<Size>) -> Self {
        Self { corner, size: size.into() }
    }
}

impl RandomTransform for CornerCrop {
    fn validate(&self) -> Result<()> {
        sides(Self::NAME, self.size.width, self.size.height)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Becomes(self.size)
    }

    fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let image = recipe.size();
        let Size { width, height } = self.size;
        if width > image.width || height > image.height {
            return Err(Error::unfit(
                Self::NAME,
                format!("{} is larger than the image of {image}: resize it first", self.size),
            ));
        }
        let (right, bottom) = ((image.width - width) as i32, (image.height - height) as i32);
        let (x, y) = match self.corner {
            Corner::UpperLeft => (0, 0),
            Corner::UpperRight => (right, 0),
            Corner::LowerLeft => (0, bottom),
            Corner::LowerRight => (right, bottom),
        };
        recipe.push(Crop::new(x, y, self.size))
    }
}
