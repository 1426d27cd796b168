//! Solarization: inverting bright values.

use super::check::probability;
use super::kernel::{Kernel, Launcher};
use super::table::{self, Table};
use super::transform::{Drawing, Random};
use super::{CpuPass, Operation, Primitive, SizeEffect};
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Inverts the values from a threshold on: torchvision's `F.solarize`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Solarize {
    /// The smallest value that is inverted, 0 to 255. It may be fractional.
    pub threshold: f64,
}

impl Solarize {
    pub(super) const KERNELS: &'static [Kernel] = table::KERNELS;

    /// An operation that inverts each value from `threshold` on, 0 to 255.
    #[must_use]
    pub const fn new(threshold: f64) -> Self {
        Self { threshold }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0.0), Self::new(127.5)]
    }

    fn table(&self) -> Table {
        Table::new(|value| if f64::from(value) < self.threshold { value } else { 255 - value })
    }
}

impl Operation for Solarize {
    fn name(&self) -> &'static str {
        "solarize"
    }

    fn validate(&self) -> Result<()> {
        match self.threshold {
            0.0..=255.0 => Ok(()),
            threshold => Err(Error::parameter(self.name(), "threshold", "0 to 255", threshold)),
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

/// Inverts the values from a threshold on with a probability: torchvision's `RandomSolarize`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomSolarize {
    threshold: f64,
    p: f64,
}

impl RandomSolarize {
    /// A transform that inverts each value from `threshold` on, with probability `p`.
    #[must_use]
    pub const fn new(threshold: f64, p: f64) -> Self {
        Self { threshold, p }
    }
}

impl Random for RandomSolarize {
    fn name(&self) -> &'static str {
        "random_solarize"
    }

    fn validate(&self) -> Result<()> {
        probability(self.name(), self.p)?;
        Solarize::new(self.threshold).validate()
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Keeps
    }

    fn draw(&self, drawing: &mut Drawing<'_>) -> Result<()> {
        let (rng, _) = drawing.start();
        if rng.chance(self.p) {
            drawing.push(Solarize::new(self.threshold))?;
        }
        Ok(())
    }
}
