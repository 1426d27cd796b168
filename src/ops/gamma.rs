//! Gamma correction: raising values to a power.

use super::byte_table::{self, ByteTable};
use super::check::not_negative;
use super::kernel::Kernel;
use super::values::{PixelValues, PointForm, ValueWork};
use super::{Operation, PassOrder, Primitive};
use crate::error::Result;
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
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

/// Tables that each thread keeps.
const KEPT: usize = 8;

thread_local! {
    /// The tables that were used last, the latest at the end, each with the bits of its exponent and gain.
    static TABLES: RefCell<Vec<([u64; 2], ByteTable)>> = const { RefCell::new(Vec::new()) };
}

impl Gamma {
    /// The table, which takes longer to make than to apply to a small image.
    fn kept_table(&self) -> ByteTable {
        let bits = [self.gamma.to_bits(), self.gain.to_bits()];
        TABLES.with_borrow_mut(|tables| {
            let known = tables.iter().position(|(known, _)| *known == bits);
            let (_, table) = match known {
                Some(place) => tables.remove(place),
                None => (bits, self.table()),
            };
            if tables.len() == KEPT {
                tables.remove(0);
            }
            tables.push((bits, table));
            table
        })
    }

    fn table(&self) -> ByteTable {
        ByteTable::new(|v| ((255.0 + 1.0 - 1e-3) * self.gain * libm::pow(f64::from(v) / 255.0, self.gamma)) as u8)
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
        Primitive::Table(self.kept_table())
    }

    keeps_places!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_tables_are_those_that_are_made() {
        for round in 0..3 {
            for i in (0..2 * KEPT).chain([3, 0, 15, 3]) {
                let gamma = Gamma::new(i as f64 / 4.0).gain(1.0 + round as f64);
                assert_eq!(gamma.kept_table(), gamma.table(), "{gamma:?}");
                let kept = TABLES.with_borrow(Vec::len);
                assert!(kept <= KEPT, "{kept}");
            }
        }
    }
}
