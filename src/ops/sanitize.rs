//! Dropping objects whose boxes are no longer valid.

use super::check::{not_negative, within};
use super::kernel::Kernel;
use super::{FieldContext, Op, Operation, Primitive};
use crate::error::Result;
use crate::fields::motion::{Motion, Selection};
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Cuts boxes at the edges of the image, unless their [`Clamping`](crate::fields::Clamping) is none, and drops the
/// objects whose boxes are then too small or reach outside: torchvision's `ClampBoundingBoxes` and
/// `SanitizeBoundingBoxes`, in the order that torchvision recommends. So no object is dropped because f32 rounds an
/// edge of its box across that of the image. Labels, numbers, keypoints and masks of an object are dropped with it;
/// torchvision keeps keypoints. It changes no pixel.
///
/// ```
/// use warpfeed::ops::{Op, Sanitize};
///
/// let op: Op = serde_json::from_str(r#"{"op": "sanitize", "min_size": 4}"#)?;
/// assert_eq!(op, Sanitize::new().min_size(4.0).into());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Sanitize {
    /// Least side of a box in pixels.
    #[serde(default = "one")]
    pub min_size: f32,
    /// Least area of a box in square pixels.
    #[serde(default = "one")]
    pub min_area: f32,
    /// Least share of the box's area that operations have left inside the image, 0 to 1.
    #[serde(default, skip_serializing_if = "is_0")]
    pub min_visibility: f32,
}

const fn one() -> f32 {
    1.0
}

fn is_0(value: &f32) -> bool {
    *value == 0.0
}

impl Default for Sanitize {
    fn default() -> Self {
        Self::new()
    }
}

impl Sanitize {
    pub(super) const KERNELS: &'static [Kernel] = &[];

    /// torchvision's defaults: sides of a pixel and an area of a square pixel at least.
    #[must_use]
    pub const fn new() -> Self {
        Self { min_size: one(), min_area: one(), min_visibility: 0.0 }
    }

    /// Drops only boxes that have no width or no height, or reach outside.
    pub(super) const fn without_area() -> Self {
        Self { min_size: f32::MIN_POSITIVE, min_area: 0.0, min_visibility: 0.0 }
    }

    setters! {
        /// Least side of a box in pixels.
        min_size: f32,
        /// Least area of a box in square pixels.
        min_area: f32,
        /// Least share of the box's area that operations have left inside the image, 0 to 1.
        min_visibility: f32,
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(), Self::new().min_size(3.0).min_visibility(0.25)]
    }
}

impl Operation for Sanitize {
    fn validate(&self) -> Result<()> {
        not_negative(Self::NAME, "min_size", self.min_size)?;
        not_negative(Self::NAME, "min_area", self.min_area)?;
        within(Self::NAME, "min_visibility", self.min_visibility, 0.0..=1.0)
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Identity
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        let Self { min_size, min_area, min_visibility } = *self;
        Ok(Motion::Select(Selection { least: Some([min_size, min_area]), min_visibility, center: None }))
    }

    fn on_field(&self, _input: Size, _how: &FieldContext) -> Result<Option<Op>> {
        Ok(None)
    }
}
