//! Conversion to floating-point numbers, the end of a recipe.

use super::kernel::Kernel;
use super::values::{PixelValues, ValueWork};
use super::{ChannelNumbers, Finish, Operation, PassOrder, Primitive};
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Converts to `f32`: whole numbers are divided by their largest value, floating-point numbers stay as they are. Only
/// [`Erase`](crate::ops::Erase) may follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToFloat;

impl ToFloat {
    pub(super) const KERNELS: &'static [Kernel] = &[];

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self]
    }
}

impl Operation for ToFloat {
    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Identity
    }

    keeps_places!();

    fn values(&self, _pixels: &PixelValues, _input: Size, _size: Size, _order: PassOrder) -> Option<ValueWork> {
        Some(ValueWork::Keep)
    }

    fn finish(&self) -> Option<Finish> {
        // Nothing is subtracted, and division by 1 changes nothing.
        Some(Finish::Normalize(ChannelNumbers::ZERO, ChannelNumbers::from(1.0)))
    }
}
