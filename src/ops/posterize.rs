//! Posterization: keeping only the upper bits of each value.

use super::check::probability;
use super::kernel::{Kernel, Launcher};
use super::table::{self, Table};
use super::transform::{Drawing, Random};
use super::{CpuPass, Operation, Primitive, SizeEffect};
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Keeps the upper bits of each value and clears the others: torchvision's `F.posterize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Posterize {
    /// Number of bits that are kept, 0 to 8.
    pub bits: u8,
}

impl Posterize {
    pub(super) const KERNELS: &'static [Kernel] = table::KERNELS;

    /// An operation that keeps `bits` bits, 0 to 8.
    #[must_use]
    pub const fn new(bits: u8) -> Self {
        Self { bits }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0), Self::new(3)]
    }

    fn table(&self) -> Table {
        let mask = (0xff00_u16 >> self.bits.min(8)) as u8;
        Table::new(|value| value & mask)
    }
}

impl Operation for Posterize {
    fn name(&self) -> &'static str {
        "posterize"
    }

    fn validate(&self) -> Result<()> {
        match self.bits {
            0..=8 => Ok(()),
            bits => Err(Error::parameter(self.name(), "bits", "0 to 8", bits)),
        }
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        Ok(input)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Keeps
    }

    fn primitive(&self, _input: Size) -> Primitive {
        Primitive::Table(self.table())
    }

    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        self.table().pass(pass);
        Ok(())
    }

    fn launch(&self, on: &mut dyn Launcher, _part: Rect) -> Result<()> {
        self.table().launch(on)
    }
}

/// Keeps the upper bits of each value with a probability: torchvision's `RandomPosterize`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPosterize {
    bits: u8,
    p: f64,
}

impl RandomPosterize {
    /// A transform that keeps `bits` bits, 0 to 8, with probability `p`.
    #[must_use]
    pub const fn new(bits: u8, p: f64) -> Self {
        Self { bits, p }
    }
}

impl Random for RandomPosterize {
    fn name(&self) -> &'static str {
        "random_posterize"
    }

    fn validate(&self) -> Result<()> {
        probability(self.name(), self.p)?;
        Posterize::new(self.bits).validate()
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Keeps
    }

    fn draw(&self, drawing: &mut Drawing<'_>) -> Result<()> {
        let (rng, _) = drawing.start();
        if rng.chance(self.p) {
            drawing.push(Posterize::new(self.bits))?;
        }
        Ok(())
    }
}
