//! Brightness: blending with black.

use super::blend::blend;
use super::byte_table::{self, ByteTable};
use super::check::factor;
use super::kernel::Kernel;
use super::values::{PixelValues, PointForm, ValueWork};
use super::{Operation, PassOrder, Primitive};
use crate::error::Result;
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use warpfeed_image::planes::Element;

/// Blends with black.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Brightness {
    /// 0 is black, 1 unchanged.
    pub factor: f64,
}

impl Brightness {
    pub(super) const KERNELS: &'static [Kernel] = byte_table::KERNELS;

    /// A blend that makes images `factor` times as bright.
    #[must_use]
    pub const fn new(factor: f64) -> Self {
        Self { factor }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0.4), Self::new(1.37)]
    }
}

impl Operation for Brightness {
    fn validate(&self) -> Result<()> {
        factor(Self::NAME, self.factor)
    }

    fn values(&self, pixels: &PixelValues, input: Size, size: Size, order: PassOrder) -> Option<ValueWork> {
        match pixels.kind.element {
            // As on PIL images, which torchvision's tensors are not equal to.
            Element::U8 => ValueWork::of(self.primitive(input), pixels, size, order),
            Element::U16 | Element::F32 => {
                let (factor, max) = (self.factor as f32, pixels.max_value);
                Some(ValueWork::Points(PointForm::Scale { factor, max }))
            }
        }
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        let factor = self.factor as f32;
        Primitive::Table(ByteTable::new(|value| blend(0, value, factor)))
    }

    keeps_places!();
}
