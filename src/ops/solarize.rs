//! Solarization: inverting bright values.

use super::byte_table::{self, ByteTable};
use super::check::{finite_within, within};
use super::kernel::Kernel;
use super::values::{PixelValues, PointForm, ValueWork};
use super::{Operation, PassOrder, Primitive};
use crate::error::Result;
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use warpfeed_image::planes::Element;

/// Inverts the values from a threshold on: torchvision's `F.solarize`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Solarize {
    /// The smallest value that is inverted, in the image's units: 0 to 255 for bytes. It may be fractional.
    pub threshold: f64,
}

impl Solarize {
    pub(super) const KERNELS: &'static [Kernel] = byte_table::KERNELS;

    /// An operation that inverts each value from `threshold` on, 0 to 255.
    #[must_use]
    pub const fn new(threshold: f64) -> Self {
        Self { threshold }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0.0), Self::new(127.5)]
    }
}

impl Operation for Solarize {
    fn validate(&self) -> Result<()> {
        finite_within(Self::NAME, "threshold", &[self.threshold], f64::MAX)
    }

    fn check_values(&self, pixels: &PixelValues) -> Result<()> {
        match pixels.kind.element {
            Element::F32 => Ok(()),
            element => within(Self::NAME, "threshold", self.threshold, 0.0..=f64::from(element.max_value())),
        }
    }

    fn values(&self, pixels: &PixelValues, input: Size, size: Size, order: PassOrder) -> Option<ValueWork> {
        match pixels.kind.element {
            Element::U8 => ValueWork::of(self.primitive(input), pixels, size, order),
            Element::U16 | Element::F32 => {
                let (threshold, max) = (self.threshold, pixels.max_value);
                Some(ValueWork::Points(PointForm::Solarize { threshold, max }))
            }
        }
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Table(ByteTable::new(|value| if f64::from(value) < self.threshold { value } else { 255 - value }))
    }

    keeps_places!();
}

with_probability! {
    /// Inverts the values from a threshold on with a probability: torchvision's `RandomSolarize`.
    pub struct RandomSolarize { threshold: f64 }

    /// A transform that inverts each value from `threshold` on, with probability `p`.
    pub fn new

    draws: Solarize::new(threshold)
}
