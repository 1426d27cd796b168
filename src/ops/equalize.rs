//! Spreading each channel's values evenly.

use super::histogram::{self, Histogram};
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::{CpuPass, Operation, Pass, Primitive, Reach};
use crate::error::Result;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Spreads the values of each channel evenly over 0 to 255: torchvision's `F.equalize` of a PIL image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equalize;

impl Equalize {
    pub(super) const KERNELS: &'static [Kernel] = &[histogram::COUNT, Kernel::pixels("equalize_table_u8")];

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self]
    }
}

impl Operation for Equalize {
    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Whole)
    }

    keeps_places!();
}

impl Pass for Equalize {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        histogram::pass(pass, equalized);
        Ok(())
    }

    fn launch(&self, on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        const TABLE: KernelId = KernelId::of("equalize_table_u8");
        histogram::launch(on, TABLE)
    }
}

/// The table of Pillow's `ImageOps.equalize`. A channel with few pixels or a single value stays as it is.
fn equalized(counts: &Histogram) -> [u8; 256] {
    let total: u32 = counts.iter().sum();
    let last = counts.iter().rev().find(|count| **count > 0).copied().unwrap_or(0);
    let step = (total - last) / 255;
    if step == 0 {
        return std::array::from_fn(|value| value as u8);
    }
    let mut below = u64::from(step / 2);
    counts.map(|count| {
        let made = (below / u64::from(step)).min(255) as u8;
        below += u64::from(count);
        made
    })
}

with_probability! {
    /// Spreads each channel's values evenly with a probability: torchvision's `RandomEqualize`.
    pub struct RandomEqualize {}

    /// A transform that acts with probability `p`.
    pub fn new

    draws: Equalize
}
