//! Posterization: keeping only the upper bits of each value.

use super::byte_table::{self, ByteTable};
use super::check::within;
use super::kernel::Kernel;
use super::values::{PixelValues, PointForm, ValueWork};
use super::{Operation, PassOrder, Primitive};
use crate::error::Result;
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use warpfeed_image::planes::Element;

/// Keeps the upper bits of each value and clears the others: torchvision's `F.posterize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Posterize {
    /// Number of bits that are kept, 0 to 8; of 16-bit values 0 to 16.
    pub bits: u8,
}

impl Posterize {
    pub(super) const KERNELS: &'static [Kernel] = byte_table::KERNELS;

    /// An operation that keeps `bits` bits, 0 to 8, of 16-bit values 0 to 16.
    #[must_use]
    pub const fn new(bits: u8) -> Self {
        Self { bits }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0), Self::new(3)]
    }
}

impl Operation for Posterize {
    fn validate(&self) -> Result<()> {
        within(Self::NAME, "bits", self.bits, 0..=16)
    }

    fn check_values(&self, pixels: &PixelValues) -> Result<()> {
        let most = if pixels.kind.element == Element::U16 { 16 } else { 8 };
        within(Self::NAME, "bits", self.bits, 0..=most)
    }

    fn values(&self, pixels: &PixelValues, input: Size, size: Size, order: PassOrder) -> Option<ValueWork> {
        match pixels.kind.element {
            Element::U8 => ValueWork::of(self.primitive(input), pixels, size, order),
            Element::U16 => {
                let mask = (0xffff_0000_u32 >> u32::from(self.bits.min(16))) as u16;
                Some(ValueWork::Points(PointForm::Mask(mask)))
            }
            Element::F32 => None,
        }
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        let mask = (0xff00_u16 >> self.bits.min(8)) as u8;
        Primitive::Table(ByteTable::new(|value| value & mask))
    }

    keeps_places!();
}

with_probability! {
    /// Keeps the upper bits of each value with a probability: torchvision's `RandomPosterize`.
    pub struct RandomPosterize { bits: u8 }

    /// A transform that keeps `bits` bits, 0 to 8, with probability `p`.
    pub fn new

    draws: Posterize::new(bits)
}
