//! Inverting each value.

use super::check::probability;
use super::kernel::{Kernel, Launcher};
use super::table::{self, Table};
use super::transform::{Drawing, Random};
use super::{CpuPass, Operation, Primitive, SizeEffect};
use crate::error::Result;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Replaces each value v by 255 - v: torchvision's `F.invert`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invert;

impl Invert {
    pub(super) const KERNELS: &'static [Kernel] = table::KERNELS;

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self]
    }

    fn table(&self) -> Table {
        Table::new(|value| 255 - value)
    }
}

impl Operation for Invert {
    fn name(&self) -> &'static str {
        "invert"
    }

    fn validate(&self) -> Result<()> {
        Ok(())
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

/// Inverts with a probability: torchvision's `RandomInvert`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomInvert {
    p: f64,
}

impl RandomInvert {
    /// A transform that acts with probability `p`, 0 to 1.
    #[must_use]
    pub const fn new(p: f64) -> Self {
        Self { p }
    }
}

impl Random for RandomInvert {
    fn name(&self) -> &'static str {
        "random_invert"
    }

    fn validate(&self) -> Result<()> {
        probability(self.name(), self.p)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Keeps
    }

    fn draw(&self, drawing: &mut Drawing<'_>) -> Result<()> {
        let (rng, _) = drawing.start();
        if rng.chance(self.p) {
            drawing.push(Invert)?;
        }
        Ok(())
    }
}
