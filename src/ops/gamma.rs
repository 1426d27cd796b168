//! Gamma correction: raising values to a power.

use super::byte_table::{self, ByteTable};
use super::check::not_negative;
use super::kernel::Kernel;
use super::values::{PixelValues, PointForm, ValueWork};
use super::{Operation, PassOrder, Primitive};
use crate::error::Result;
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use warpfeed_image::planes::Element;

/// Raises values of 0 to 1 to a power, and multiplies by a gain. On 8-bit values it is torchvision's `F.adjust_gamma` of a PIL image, which drops
/// fractions; 16-bit values are rounded. Floating-point numbers are refused, as powers of them differ between devices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Gamma {
    /// The exponent, 0 or more: below 1 makes dark values brighter.
    pub gamma: f64,
    /// Factor of the result, 0 or more.
    #[serde(default = "usual_gain")]
    pub gain: f64,
}

const fn usual_gain() -> f64 {
    1.0
}

impl Gamma {
    pub(super) const KERNELS: &'static [Kernel] = byte_table::KERNELS;

    /// A correction with this exponent, 0 or more.
    #[must_use]
    pub const fn new(gamma: f64) -> Self {
        Self { gamma, gain: usual_gain() }
    }

    setters! {
        /// Factor of the result, 0 or more.
        gain: f64,
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0.6), Self::new(2.2).gain(1.5)]
    }
}

impl Operation for Gamma {
    fn validate(&self) -> Result<()> {
        not_negative(Self::NAME, "gamma", self.gamma)?;
        not_negative(Self::NAME, "gain", self.gain)
    }

    fn values(&self, pixels: &PixelValues, input: Size, size: Size, order: PassOrder) -> Option<ValueWork> {
        match pixels.kind.element {
            Element::U8 => ValueWork::of(self.primitive(input), pixels, size, order),
            Element::U16 => {
                let max = f64::from(pixels.max_value);
                let value = |v: u32| {
                    let made = max * self.gain * libm::pow(f64::from(v) / max, self.gamma);
                    made.round_ties_even().min(max) as u16
                };
                Some(ValueWork::Points(PointForm::Words((0..=0xffff).map(value).collect())))
            }
            Element::F32 => None,
        }
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        let value = |v: u8| ((255.0 + 1.0 - 1e-3) * self.gain * libm::pow(f64::from(v) / 255.0, self.gamma)) as u8;
        Primitive::Table(ByteTable::new(value))
    }

    keeps_places!();
}
