//! Inverting each value.

use super::byte_table::{self, ByteTable};
use super::kernel::Kernel;
use super::values::{PixelValues, PointForm, ValueWork};
use super::{Operation, PassOrder, Primitive};
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use warpfeed_image::planes::Element;

/// Replaces each value v by 255 - v: torchvision's `F.invert`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invert;

impl Invert {
    pub(super) const KERNELS: &'static [Kernel] = byte_table::KERNELS;

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self]
    }
}

impl Operation for Invert {
    fn values(&self, pixels: &PixelValues, input: Size, size: Size, order: PassOrder) -> Option<ValueWork> {
        match pixels.kind.element {
            Element::U8 => ValueWork::of(self.primitive(input), pixels, size, order),
            Element::U16 | Element::F32 => Some(ValueWork::Points(PointForm::Invert { max: pixels.max_value })),
        }
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Table(ByteTable::new(|value| 255 - value))
    }

    keeps_places!();
}

with_probability! {
    /// Inverts with a probability: torchvision's `RandomInvert`.
    pub struct RandomInvert {}

    /// A transform that acts with probability `p`, 0 to 1.
    pub fn new

    draws: Invert
}
