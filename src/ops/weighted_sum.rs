//! The weighted sum of an image and of several chains of operations.

use super::blend::blend;
use super::check::within;
use super::descriptors::{MixSample, SourceImage, TargetImage};
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::values::PixelValues;
use super::{CpuPass, Crop, Equalize, Fill, Hflip, Invert, Op, Operation, Pass, Primitive, Reach, Sharpness, crop};
use crate::error::{Error, Result};
use crate::os::memory;
use crate::raster::{Image, Rect, Size};
use crate::simd::{truncate_f32, wide};
use serde::{Deserialize, Serialize};

/// Largest number of chains of one sum.
const MAX_CHAINS: usize = 100;

/// The weighted sum of the image and of the results of chains of operations. It is added up in order in single
/// precision and limited to 0 to 255, and fractions are dropped, as in torchvision's `AugMix`. timm's AugMix mixes only
/// the chains, with a weight of 0 for the image, and then blends the sum with the image ([`blend`](Self::blend)).
///
/// ```
/// use warpfeed::ops::{Chain, Hflip, WeightedSum, Op};
///
/// let op: Op = WeightedSum::new(0.5).chain(Chain::new(0.5, [Hflip.into()])).into();
/// assert_eq!(serde_json::to_string(&op)?, r#"{"op":"weighted_sum","weight":0.5,"chains":[{"weight":0.5,"ops":[{"op":"hflip"}]}]}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct WeightedSum {
    /// Weight of the image itself, 0 to 1.
    pub weight: f32,
    /// Chains whose results are added.
    pub chains: Vec<Chain>,
    /// Blend of the image and the sum, as by Pillow's `Image.blend`: 0 is the image, 1 the sum.
    #[serde(default = "whole", skip_serializing_if = "is_whole")]
    pub blend: f32,
}

const fn whole() -> f32 {
    1.0
}

fn is_whole(blend: &f32) -> bool {
    *blend == whole()
}

/// Operations that keep an image's size, and the weight of their result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Chain {
    /// Weight of the result, 0 to 1.
    pub weight: f32,
    /// Operations, in order.
    pub ops: Vec<Op>,
}

impl Chain {
    /// A chain of these operations, with a weight of 0 to 1.
    #[must_use]
    pub fn new(weight: f32, ops: impl IntoIterator<Item = Op>) -> Self {
        Self { weight, ops: ops.into_iter().collect() }
    }

    /// Fails if the operations change the image's size.
    fn check_size(&self, size: Size) -> Result<()> {
        let after = self.ops.iter().try_fold(size, |size, op| op.output_size(size))?;
        if after == size {
            return Ok(());
        }
        Err(Error::parameter(WeightedSum::NAME, "chains", format!("operations that keep the size, {size}"), after))
    }
}

impl WeightedSum {
    pub(super) const KERNELS: &'static [Kernel] =
        &[Kernel::pixels("mix_add_u8_nhwc"), Kernel::pixels("mix_cut_u8_nhwc")];

    /// A sum of the image alone, with a weight of 0 to 1.
    #[must_use]
    pub const fn new(weight: f32) -> Self {
        Self { weight, chains: Vec::new(), blend: whole() }
    }

    /// Adds a chain.
    #[must_use]
    pub fn chain(mut self, chain: Chain) -> Self {
        self.chains.push(chain);
        self
    }

    setters! {
        /// Blend of the image and the sum: 0 is the image, 1 the sum.
        blend: f32,
    }

    pub(super) fn examples(size: Size) -> Vec<Self> {
        let moved = Crop::new(1, -2, size).fill(Fill::Color([9, 99, 199])).into();
        let [turned, inverted] = [Hflip.into(), Invert.into()];
        let mix = Self::new(0.31).chain(Chain::new(0.2, [turned, moved])).chain(Chain::new(0.4, []));
        let rest = Chain::new(0.09, [inverted, Equalize.into(), Sharpness::new(1.8).into()]);
        let blended = WeightedSum { weight: 0.0, ..mix.clone() }.chain(Chain::new(0.6, [Invert.into()])).blend(0.37);
        vec![mix.chain(rest), Self::new(0.7), blended]
    }
}

impl Operation for WeightedSum {
    fn validate(&self) -> Result<()> {
        within(Self::NAME, "chains", self.chains.len(), 0..=MAX_CHAINS)?;
        let weights = self.chains.iter().map(|chain| ("weight", chain.weight));
        for (parameter, share) in weights.chain([("weight", self.weight), ("blend", self.blend)]) {
            within(Self::NAME, parameter, share, 0.0..=1.0)?;
        }
        self.chains.iter().flat_map(|chain| &chain.ops).try_for_each(|op| match op {
            Op::Normalize(_) | Op::ToFloat(_) | Op::WeightedSum(_) | Op::Custom(_) => {
                Err(Error::parameter(Self::NAME, "chains", "operations on 8-bit images, not sums of sums", op.name()))
            }
            op => op.validate().and_then(|()| op.takes(&PixelValues::RGB8)),
        })
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        self.chains.iter().try_for_each(|chain| chain.check_size(input))?;
        Ok(input)
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Whole)
    }

    keeps_places!();

    fn has_kernels(&self) -> bool {
        self.chains.iter().flat_map(|chain| &chain.ops).all(Op::has_kernels)
    }
}

impl Pass for WeightedSum {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let len = pass.image.pixels().as_flattened().len();
        let mut sums = memory::zeros::<f32>(len, "the sums of a mix", memory::FEWER_IMAGES)?;
        let mut add = |image: &Image, weight: f32| {
            wide(
                #[inline(always)]
                || {
                    let values = image.pixels().as_flattened();
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * f32::from(*value));
                },
            );
        };
        add(pass.image, self.weight);
        let mut made = Image::default();
        for chain in &self.chains {
            made.reserve(pass.image.size())?;
            made.reset(pass.image.size());
            made.pixels_mut().copy_from_slice(pass.image.pixels());
            chain.ops.iter().try_for_each(|op| op.apply_reusing(pass.order, &mut made, pass.spare))?;
            add(&made, chain.weight);
        }
        let values = pass.image.pixels_mut().as_flattened_mut();
        wide(
            #[inline(always)]
            || {
                let cut = |(value, sum): (&mut u8, &f32)| *value = blend(*value, truncate_f32(*sum) as u8, self.blend);
                values.iter_mut().zip(&sums).for_each(cut);
            },
        );
        Ok(())
    }

    fn launch(&self, on: &mut dyn CallRecorder, part: Rect) -> Result<()> {
        const ADD: KernelId = KernelId::of("mix_add_u8_nhwc");
        const CUT: KernelId = KernelId::of("mix_cut_u8_nhwc");
        let (original, size) = (on.source(), part.size());
        let sums = on.scratch(3 * size_of::<f32>() * size.area_px() as usize)?;
        let add = |on: &mut dyn CallRecorder, image: SourceImage, weight: f32, first: bool| {
            let SourceImage { pixels: image, pitch_bytes: image_pitch_bytes, width, height, .. } = image;
            let sample = MixSample {
                image,
                sums,
                image_pitch_bytes,
                width,
                height,
                weight,
                first: first.into(),
                ..MixSample::default()
            };
            on.call(ADD, &sample, size);
        };
        add(on, original, self.weight, true);
        for chain in &self.chains {
            on.go_back(original);
            if !chain.ops.is_empty() {
                // Some operations work in place, so they get a copy.
                crop::launch(on, 0, 0, size, Fill::BLACK)?;
                let mut whole = size;
                for op in &chain.ops {
                    whole = op.output_size(whole)?;
                    op.launch(on, Rect::full(whole))?;
                }
            }
            let made = on.source();
            add(on, made, chain.weight, false);
        }
        on.go_back(original);
        let TargetImage { pixels: made, pitch_bytes: made_pitch_bytes, width, height, .. } = on.target(size, part)?;
        let SourceImage { pixels: image, pitch_bytes: image_pitch_bytes, .. } = original;
        let weight = self.blend;
        let sample =
            MixSample { image, made, sums, image_pitch_bytes, made_pitch_bytes, width, height, weight, first: 0 };
        on.call(CUT, &sample, size);
        Ok(())
    }

    fn moves_pixels(&self) -> bool {
        true
    }
}
