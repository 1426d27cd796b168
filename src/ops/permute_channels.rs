//! Channels in another order, or some of them.

use super::descriptors::ColorSample;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::{PixelValues, ValueWork};
use super::{ChannelList, CpuPass, Operation, Pass, PassOrder, Primitive, Reach};
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
    /// Source channels: 0, 1 and 2 in any order for red, green and blue, or all channels of another image.
    pub order: ChannelList,
}

impl PermuteChannels {
    pub(super) const KERNELS: &'static [Kernel] = &[Kernel::pixels("permute_channels_u8_nhwc")];

    /// These channels become red, green and blue, or the channels of another image: all of them in any order.
    #[must_use]
    pub fn new(order: impl Into<ChannelList>) -> Self {
        Self { order: order.into() }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new([2, 0, 1]), Self::new([0, 2, 1])]
    }
}

impl Operation for PermuteChannels {
    fn validate(&self) -> Result<()> {
        let order = self.order.as_slice();
        if (0..order.len() as u8).all(|channel| order.contains(&channel)) {
            return Ok(());
        }
        Err(Error::parameter(Self::NAME, "order", "0, 1 and 2 in any order, or all channels", format!("{order:?}")))
    }

    fn check_values(&self, pixels: &PixelValues) -> Result<()> {
        let (order, channels) = (self.order.as_slice(), pixels.kind.channels);
        if order.len() == usize::from(channels) {
            return Ok(());
        }
        Err(Error::parameter(Self::NAME, "order", format!("all {channels} channels"), format!("{order:?}")))
    }

    fn values(&self, _pixels: &PixelValues, _input: Size, _size: Size, _order: PassOrder) -> Option<ValueWork> {
        Some(ValueWork::Select(self.order))
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        match self.order.rgb() {
            Some([0, 1, 2]) => Primitive::Identity,
            _ => Primitive::Pass(&self.order, Reach::Around(0)),
        }
    }

    keeps_places!();
}

/// Takes some of an image's channels, in any order and as often as you like: the result has as many.
///
/// ```
/// use warpfeed::ops::{ChannelList, Op, SelectChannels};
///
/// let op: Op = serde_json::from_str(r#"{"op": "select_channels", "channels": [7, 3]}"#)?;
/// assert_eq!(op, SelectChannels::new(ChannelList::new(&[7, 3]).unwrap()).into());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SelectChannels {
    /// Source channels; three of an RGB image.
    pub channels: ChannelList,
}

impl SelectChannels {
    pub(super) const KERNELS: &'static [Kernel] = PermuteChannels::KERNELS;

    /// These channels become the result's.
    #[must_use]
    pub fn new(channels: impl Into<ChannelList>) -> Self {
        Self { channels: channels.into() }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new([2, 2, 0])]
    }
}

impl Operation for SelectChannels {
    fn check_values(&self, pixels: &PixelValues) -> Result<()> {
        let (list, channels) = (self.channels.as_slice(), pixels.kind.channels);
        if let Some(missing) = list.iter().find(|channel| u16::from(**channel) >= channels) {
            return Err(Error::parameter(Self::NAME, "channels", format!("0 to {}", channels - 1), missing));
        }
        if pixels.is_rgb8() && list.len() != 3 {
            let expected = "three of an image that is read as RGB";
            return Err(Error::parameter(Self::NAME, "channels", expected, format!("{list:?}")));
        }
        Ok(())
    }

    fn values(&self, _pixels: &PixelValues, _input: Size, _size: Size, _order: PassOrder) -> Option<ValueWork> {
        Some(ValueWork::Select(self.channels))
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(&self.channels, Reach::Around(0))
    }

    keeps_places!();
}

/// On RGB images, whose operations have checked that there are three channels.
impl Pass for ChannelList {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let [red, green, blue] = self.rgb().unwrap_or([0, 1, 2]).map(usize::from);
        for pixel in pass.image.pixels_mut() {
            *pixel = [pixel[red], pixel[green], pixel[blue], pixel[3]];
        }
        Ok(())
    }

    fn launch(&self, on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        const PERMUTE: KernelId = KernelId::of("permute_channels_u8_nhwc");
        let [red, green, blue] = self.rgb().unwrap_or([0, 1, 2]).map(u32::from);
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
        let mut order: [u8; 3] = [0, 1, 2];
        rng.shuffle(&mut order);
        recipe.push(PermuteChannels::new(order))
    }
}
