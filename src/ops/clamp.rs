//! Cutting boxes at the edges of the image.

use super::kernel::Kernel;
use super::{FieldContext, Op, Operation, Primitive};
use crate::error::Result;
use crate::fields::motion::Motion;
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Cuts boxes at the edges of the image, whatever their [`Clamping`](crate::fields::Clamping): torchvision's
/// `ClampBoundingBoxes`. It changes no pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clamp;

impl Clamp {
    pub(super) const KERNELS: &'static [Kernel] = &[];

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self]
    }
}

impl Operation for Clamp {
    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Identity
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        Ok(Motion::Clamp)
    }

    fn on_field(&self, _input: Size, _how: &FieldContext) -> Result<Option<Op>> {
        Ok(None)
    }
}
