//! Stretching each channel's values to 0 to 255.

use super::histogram::{self, Histogram};
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::{CpuPass, Operation, Pass, Primitive, Reach};
use crate::error::Result;
use crate::raster::{Rect, Size};
use crate::simd::truncate_f64;
use serde::{Deserialize, Serialize};

/// Stretches the values of each channel from its smallest and largest to 0 and 255: torchvision's `F.autocontrast` of a
/// PIL image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Autocontrast;

impl Autocontrast {
    pub(super) const KERNELS: &'static [Kernel] = &[histogram::COUNT, Kernel::pixels("autocontrast_table_u8")];

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self]
    }
}

impl Operation for Autocontrast {
    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Whole)
    }

    keeps_places!();
}

impl Pass for Autocontrast {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        histogram::pass(pass, stretched);
        Ok(())
    }

    fn launch(&self, on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        const TABLE: KernelId = KernelId::of("autocontrast_table_u8");
        histogram::launch(on, TABLE)
    }
}

/// The table of Pillow's `ImageOps.autocontrast`, in doubles. A channel with a single value stays as it is.
fn stretched(counts: &Histogram) -> [u8; 256] {
    let low = counts.iter().position(|count| *count > 0).unwrap_or(0);
    let high = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    if high <= low {
        return std::array::from_fn(|value| value as u8);
    }
    let scale = 255.0 / (high - low) as f64;
    let offset = -(low as f64) * scale;
    std::array::from_fn(|value| truncate_f64(value as f64 * scale + offset) as u8)
}

with_probability! {
    /// Stretches each channel's values with a probability: torchvision's `RandomAutocontrast`.
    pub struct RandomAutocontrast {}

    /// A transform that acts with probability `p`.
    pub fn new

    draws: Autocontrast
}
