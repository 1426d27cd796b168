//! Mirroring left and right.

use super::check::probability;
use super::kernel::{Kernel, Launcher};
use super::transform::{Drawing, Random};
use super::turn::Turn;
use super::{CpuPass, Operation, Primitive, SizeEffect};
use crate::error::Result;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Mirrors left and right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hflip;

impl Hflip {
    pub(super) const KERNELS: &'static [Kernel] = Turn::KERNELS;

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self]
    }
}

impl Operation for Hflip {
    fn name(&self) -> &'static str {
        "hflip"
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
        Primitive::Turn(Turn::Hflip)
    }

    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        Turn::Hflip.pass(pass)
    }

    fn launch(&self, on: &mut dyn Launcher, _part: Rect) -> Result<()> {
        Turn::Hflip.launch(on)
    }
}

/// Mirrors left and right with a probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomHorizontalFlip {
    p: f64,
}

impl RandomHorizontalFlip {
    /// A transform that acts with probability `p`, 0 to 1.
    #[must_use]
    pub const fn new(p: f64) -> Self {
        Self { p }
    }
}

impl Random for RandomHorizontalFlip {
    fn name(&self) -> &'static str {
        "random_horizontal_flip"
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
            drawing.push(Hflip)?;
        }
        Ok(())
    }
}
