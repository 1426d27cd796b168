//! Normalization, the end of a recipe (a plan's epilogue).

use super::kernel::{CallRecorder, Kernel};
use super::values::PixelValues;
use super::{ChannelNumbers, CpuPass, Finish, Operation, Pass, Primitive, Reach};
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};
use warpfeed_image::planes::Element;

/// Largest mean and std. Larger values are meant for pixels of 0 to 255.
const MAX_MEAN: f32 = 3.0;
const MAX_STD: f32 = 10.0;

/// Mean and std of each channel.
pub(crate) type Normalization = Option<(ChannelNumbers, ChannelNumbers)>;

/// Converts to `f32`: `(v / 255 - mean) / std` for each channel; whole numbers of 16 bits are divided by their largest
/// value, floating-point numbers by nothing. Only [`Erase`](crate::ops::Erase) may follow it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Normalize {
    /// Mean of red, green, blue, or of each channel, for values of 0 to 1; from -3 to 3. Of floating-point numbers any.
    pub mean: ChannelNumbers,
    /// Standard deviation of red, green, blue, or of each channel, for values of 0 to 1; above 0, up to 10. Of
    /// floating-point numbers any above 0.
    pub std: ChannelNumbers,
}

impl Normalize {
    pub(super) const KERNELS: &'static [Kernel] = &[];

    /// Normalization by this mean and standard deviation of red, green, blue, or of each channel, for values of 0 to 1.
    #[must_use]
    pub fn new(mean: impl Into<ChannelNumbers>, std: impl Into<ChannelNumbers>) -> Self {
        Self { mean: mean.into(), std: std.into() }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new([0.5; 3], [0.2; 3])]
    }

    fn wrong_mean(&self) -> Error {
        let expected = format!("numbers from -{MAX_MEAN} to {MAX_MEAN}, for values of 0 to 1");
        Error::parameter(Self::NAME, "mean", expected, format!("{:?}", self.mean))
    }

    fn wrong_std(&self) -> Error {
        let expected = format!("numbers above 0, up to {MAX_STD}, for values of 0 to 1");
        Error::parameter(Self::NAME, "std", expected, format!("{:?}", self.std))
    }

    fn misplaced(&self) -> Error {
        let expected = "after every operation on 8-bit pixels, only erase may follow";
        Error::parameter(Self::NAME, "place", expected, "an operation on 8-bit pixels")
    }
}

impl Operation for Normalize {
    fn validate(&self) -> Result<()> {
        if !self.mean.as_slice().iter().all(|v| v.is_finite()) {
            return Err(self.wrong_mean());
        }
        if !self.std.as_slice().iter().all(|v| *v > 0.0 && v.is_finite()) {
            return Err(self.wrong_std());
        }
        Ok(())
    }

    fn check_values(&self, pixels: &PixelValues) -> Result<()> {
        pixels.fit(Self::NAME, "mean", self.mean)?;
        pixels.fit(Self::NAME, "std", self.std)?;
        if pixels.kind.element == Element::F32 {
            return Ok(());
        }
        if !self.mean.as_slice().iter().all(|v| v.abs() <= MAX_MEAN) {
            return Err(self.wrong_mean());
        }
        if !self.std.as_slice().iter().all(|v| *v <= MAX_STD) {
            return Err(self.wrong_std());
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
