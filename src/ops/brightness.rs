//! Brightness: blending with black.

use super::blend::blend;
use super::check::factor;
use super::kernel::{Kernel, Launcher};
use super::table::{self, Table};
use super::{CpuPass, Operation, Primitive, SizeEffect};
use crate::error::Result;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Blends with black.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Brightness {
    /// 0 is black, 1 unchanged.
    pub factor: f64,
}

impl Brightness {
    pub(super) const KERNELS: &'static [Kernel] = table::KERNELS;

    /// A blend that makes images `factor` times as bright.
    #[must_use]
    pub const fn new(factor: f64) -> Self {
        Self { factor }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0.4), Self::new(1.37)]
    }

    fn table(&self) -> Table {
        let factor = self.factor as f32;
        Table::new(|value| blend(0, value, factor))
    }
}

impl Operation for Brightness {
    fn name(&self) -> &'static str {
        "brightness"
    }

    fn validate(&self) -> Result<()> {
        factor(self.name(), self.factor)
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
