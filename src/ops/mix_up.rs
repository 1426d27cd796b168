//! Blending with another sample, the objects of both joined.

use super::check::within;
use super::kernel::{CallRecorder, Kernel};
use super::part::{Part, needs_a_pipeline};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::{CpuPass, FieldContext, Op, Operation, Pass, Primitive, Reach, Resize};
use crate::error::{Error, Result};
use crate::fields::motion::{Join, Motion, Shown};
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Blends the image with another of its size; fractions are dropped. The objects of both are joined. It runs on the
/// CPU. [`RandomMixUp`] draws it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MixUp {
    /// Share of the image, 0 to 1. The rest is the other's.
    pub share: f64,
    /// The other sample.
    pub part: Part,
}

impl MixUp {
    pub(super) const KERNELS: &'static [Kernel] = &[];

    /// A blend with another sample. `share` is the image's own share.
    #[must_use]
    pub const fn new(share: f64, part: Part) -> Self {
        Self { share, part }
    }

    /// None: an example cannot have another sample.
    pub(super) fn examples(_size: Size) -> Vec<Self> {
        Vec::new()
    }
}

impl Operation for MixUp {
    fn validate(&self) -> Result<()> {
        within(Self::NAME, "share", self.share, 0.0..=1.0)
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Whole)
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        let others = vec![(self.part.fields(Self::NAME)?, [0; 2])];
        Ok(Motion::Join(Join { at: [0; 2], others, shown: Shown::Blended }))
    }

    fn on_field(&self, _input: Size, _how: &FieldContext) -> Result<Option<Op>> {
        Err(needs_a_pipeline(Self::NAME))
    }

    fn joins(&self) -> bool {
        true
    }

    fn parts(&self) -> &[Part] {
        std::slice::from_ref(&self.part)
    }

    fn parts_mut(&mut self) -> &mut [Part] {
        std::slice::from_mut(&mut self.part)
    }

    fn has_kernels(&self) -> bool {
        false
    }
}

impl Pass for MixUp {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let (other, size) = (self.part.image(Self::NAME)?, pass.image.size());
        if other.size != size {
            return Err(Error::parameter(Self::NAME, "part", format!("an image of {size}"), other.size));
        }
        let blend = |own: u8, other: u8| (f64::from(own) * self.share + f64::from(other) * (1.0 - self.share)) as u8;
        for (row, other) in (0..size.height).zip(other.rows()) {
            for (to, from) in pass.image.row_mut(row).iter_mut().zip(other) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = blend(*to, *from));
            }
        }
        Ok(())
    }

    fn launch(&self, _on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        // Back ends run plans with this operation on the CPU (`Operation::has_kernels`).
        Err(needs_a_pipeline(Self::NAME))
    }
}

/// Blends the image with another sample by a share from Beta(alpha, alpha), and joins the objects of both: Ultralytics'
/// `MixUp`, which [`Maybe`](super::Maybe) gives a probability. The label and the target stay those of the sample;
/// [`PipelineBuilder::mix`](crate::PipelineBuilder::mix) is MixUp for classification.
///
/// The other is any sample of the source, after the transforms that come before this one in the pipeline, with draws of
/// its own; if its size differs, it is resized to the image's.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::ops::{Op, RandomMixUp};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let pipeline = Pipeline::builder(EncodedImages::new((0..4).map(|label| (jpeg.clone(), label))))
///     .transform(random_resized_crop(16))
///     .transform(maybe(0.9, [RandomMixUp::new(32.0).into()]))
///     .build()?;
/// let mixed = |index| pipeline.recipe(0, index).map(|recipe| matches!(recipe.last(), Some(Op::MixUp(_))));
/// assert!(mixed(0)? || mixed(1)?);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomMixUp {
    alpha: f64,
}

impl RandomMixUp {
    /// A share from Beta(alpha, alpha), alpha 0.001 to 1,000. Ultralytics' is 32.
    #[must_use]
    pub const fn new(alpha: f64) -> Self {
        Self { alpha }
    }
}

impl RandomTransform for RandomMixUp {
    fn validate(&self) -> Result<()> {
        within(Self::NAME, "alpha", self.alpha, 1e-3..=1e3)
    }

    fn images(&self, before: u64) -> u64 {
        before.saturating_mul(2)
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let samples = recipe.partners(Self::NAME)?.samples();
        let (rng, size) = recipe.start();
        let share = rng.dirichlet(self.alpha, 2)[0];
        let (sample, mut rng) = (rng.below(samples), rng.fork());
        let mut part = recipe.partner(Self::NAME, sample, &mut rng)?;
        if part.size() != size {
            part.push(Resize::new(size).into())?;
        }
        recipe.push(MixUp { share, part: part.at([0; 2]) })
    }
}
