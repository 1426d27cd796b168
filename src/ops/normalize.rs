//! Normalization, the end of a recipe (a plan's epilogue).

use super::kernel::{CallRecorder, Kernel};
use super::{CpuPass, Finish, Operation, Pass, Primitive, Reach};
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Largest mean and std. Larger values are meant for pixels of 0 to 255.
const MAX_MEAN: f32 = 3.0;
const MAX_STD: f32 = 10.0;

/// Mean and std of each channel.
pub(crate) type Normalization = Option<([f32; 3], [f32; 3])>;

/// Converts to `f32`: `(v / 255 - mean) / std` for each channel. Only [`Erase`](crate::ops::Erase) may follow it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Normalize {
    /// Mean of red, green, blue, for values of 0 to 1; from -3 to 3.
    pub mean: [f32; 3],
    /// Standard deviation of red, green, blue, for values of 0 to 1; above 0, up to 10.
    pub std: [f32; 3],
}

impl Normalize {
    pub(super) const KERNELS: &'static [Kernel] = &[];

    /// Normalization by this mean and standard deviation of red, green, blue, for values of 0 to 1.
    #[must_use]
    pub const fn new(mean: [f32; 3], std: [f32; 3]) -> Self {
        Self { mean, std }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new([0.5; 3], [0.2; 3])]
    }

    fn misplaced(&self) -> Error {
        let expected = "after every operation on 8-bit pixels, only erase may follow";
        Error::parameter(Self::NAME, "place", expected, "an operation on 8-bit pixels")
    }
}

impl Operation for Normalize {
    fn validate(&self) -> Result<()> {
        if !self.mean.iter().all(|v| v.abs() <= MAX_MEAN) {
            let expected = format!("three numbers from -{MAX_MEAN} to {MAX_MEAN}, for values of 0 to 1");
            return Err(Error::parameter(Self::NAME, "mean", expected, format!("{:?}", self.mean)));
        }
        if !self.std.iter().all(|v| *v > 0.0 && *v <= MAX_STD) {
            let expected = format!("three numbers above 0, up to {MAX_STD}, for values of 0 to 1");
            return Err(Error::parameter(Self::NAME, "std", expected, format!("{:?}", self.std)));
        }
        Ok(())
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Whole)
    }

    keeps_places!();

    fn finish(&self) -> Option<Finish> {
        Some(Finish::Normalize(self.mean, self.std))
    }
}

impl Pass for Normalize {
    fn pass(&self, _pass: &mut CpuPass<'_>) -> Result<()> {
        Err(self.misplaced())
    }

    fn launch(&self, _on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        Err(self.misplaced())
    }
}
