//! Red, green and blue in another order.

use super::descriptors::ColorSample;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::{CpuPass, Operation, Pass, Primitive, Reach};
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Puts the channels in another order: torchvision's v2 `F.permute_channels`.
///
/// ```
/// use warpfeed::ops::{Op, PermuteChannels};
///
/// let op: Op = serde_json::from_str(r#"{"op": "permute_channels", "order": [2, 1, 0]}"#)?;
/// assert_eq!(op, PermuteChannels::new([2, 1, 0]).into());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PermuteChannels {
    /// Source channels of red, green and blue: 0, 1 and 2 in any order.
    pub order: [u8; 3],
}

impl PermuteChannels {
    pub(super) const KERNELS: &'static [Kernel] = &[Kernel::pixels("permute_channels_u8_nhwc")];

    /// These channels become red, green and blue: 0, 1 and 2 in any order.
    #[must_use]
    pub const fn new(order: [u8; 3]) -> Self {
        Self { order }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new([2, 0, 1]), Self::new([0, 2, 1])]
    }
}

impl Operation for PermuteChannels {
    fn validate(&self) -> Result<()> {
        if (0..3).all(|channel| self.order.contains(&channel)) {
            return Ok(());
        }
        Err(Error::parameter(Self::NAME, "order", "0, 1 and 2 in any order", format!("{:?}", self.order)))
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        match self.order {
            [0, 1, 2] => Primitive::Identity,
            _ => Primitive::Pass(self, Reach::Around(0)),
        }
    }

    keeps_places!();
}

impl Pass for PermuteChannels {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let [red, green, blue] = self.order.map(usize::from);
        for pixel in pass.image.pixels_mut() {
            *pixel = [pixel[red], pixel[green], pixel[blue], pixel[3]];
        }
        Ok(())
    }

    fn launch(&self, on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        const PERMUTE: KernelId = KernelId::of("permute_channels_u8_nhwc");
        let [red, green, blue] = self.order.map(u32::from);
        let sample = ColorSample { order: red | green << 2 | blue << 4, ..ColorSample::of(&on.source()) };
        on.call(PERMUTE, &sample, Size::new(sample.width, sample.height));
        Ok(())
    }
}

/// Puts the channels in random order: torchvision's v2 `RandomChannelPermutation`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomChannelPermutation {}

impl RandomChannelPermutation {
    /// A permutation in which each order is equally likely.
    #[must_use]
    pub const fn new() -> Self {
        Self {}
    }
}

impl RandomTransform for RandomChannelPermutation {
    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        let mut order = [0, 1, 2];
        rng.shuffle(&mut order);
        recipe.push(PermuteChannels::new(order))
    }
}
