//! Resizing to whole patches that fit a sequence, for models of native resolution (NaFlex).

use super::filter::Interpolation;
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Resize, ResizedCrop, SizeEffect};
use crate::error::{Error, Result};
use crate::shapes::{BatchShape, SequenceCrop, SequenceSize};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Resizes an image so that it fills a sequence of patches: timm's `ResizeToSequence`. The length is that of the batch
/// ([`PipelineBuilder::sequences`](crate::PipelineBuilder::sequences)), or the transform's own. Sides are rounded up to
/// whole patches ([`SequenceSize`]).
///
/// ```
/// use warpfeed::ops::{SequenceResize, Transform};
///
/// Transform::from(SequenceResize::new(16).seq_len(256)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceResize {
    patch: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq_len: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_ratio: Option<f64>,
    #[serde(default)]
    interpolation: Interpolation,
}

impl SequenceResize {
    /// Square patches of this side in pixels.
    #[must_use]
    pub const fn new(patch: u32) -> Self {
        Self { patch, seq_len: None, max_ratio: None, interpolation: Interpolation::Bilinear }
    }

    /// Largest number of patches, where batches have no length of their own.
    #[must_use]
    pub const fn seq_len(mut self, patches: u32) -> Self {
        self.seq_len = Some(patches);
        self
    }

    /// The largest factor by which an image is enlarged; 1 forbids it. Default: 100.
    #[must_use]
    pub const fn max_ratio(mut self, ratio: f64) -> Self {
        self.max_ratio = Some(ratio);
        self
    }

    /// The filter. Default: bilinear.
    #[must_use]
    pub const fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// The size for sequences of this length.
    fn size(&self, seq_len: u32) -> SequenceSize {
        let size = SequenceSize::new(self.patch, seq_len);
        self.max_ratio.map_or(size, |ratio| size.max_ratio(ratio))
    }
}

/// The length of the sequences of a recipe's batch, or `own`.
fn seq_len(name: &'static str, recipe: &RecipeBuilder<'_>, own: Option<u32>) -> Result<u32> {
    match (recipe.sample().shape, own) {
        (Some(BatchShape::SeqLen(seq_len)), _) | (_, Some(seq_len)) => Ok(seq_len),
        _ => {
            let expected = "given, or a pipeline with sequences (PipelineBuilder::sequences, --sequences)";
            Err(Error::parameter(name, "seq_len", expected, "none"))
        }
    }
}

impl RandomTransform for SequenceResize {
    fn validate(&self) -> Result<()> {
        self.size(self.seq_len.unwrap_or(1)).validate()
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Varies
    }

    fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let fit = self.size(seq_len(Self::NAME, recipe, self.seq_len)?).of(recipe.size())?;
        recipe.push(Resize::new(fit.size).interpolation(self.interpolation))
    }
}

/// Cuts out a rectangle of random area and aspect and resizes it so that it fills a sequence of patches: timm's
/// `RandomResizedCropToSequence` ([`SequenceCrop`]). The aspect is drawn around the image's own.
///
/// ```
/// use warpfeed::ops::{RandomSequenceCrop, Transform};
///
/// Transform::from(RandomSequenceCrop::new(16).scale(0.5..=1.0).seq_len(256)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomSequenceCrop {
    patch: u32,
    #[serde(default = "default_scale", with = "super::written::range")]
    scale: RangeInclusive<f64>,
    #[serde(default = "default_ratio", with = "super::written::range")]
    ratio: RangeInclusive<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq_len: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_ratio: Option<f64>,
    #[serde(default)]
    interpolation: Interpolation,
}

fn default_scale() -> RangeInclusive<f64> {
    0.08..=1.0
}

fn default_ratio() -> RangeInclusive<f64> {
    3.0 / 4.0..=4.0 / 3.0
}

impl RandomSequenceCrop {
    /// Square patches of this side in pixels.
    #[must_use]
    pub fn new(patch: u32) -> Self {
        let (scale, ratio, interpolation) = (default_scale(), default_ratio(), Interpolation::Bilinear);
        Self { patch, scale, ratio, seq_len: None, max_ratio: None, interpolation }
    }

    /// Part of the image's area, uniform in the range. Default: 0.08 to 1.
    #[must_use]
    pub fn scale(mut self, scale: RangeInclusive<f64>) -> Self {
        self.scale = scale;
        self
    }

    /// Factor of the image's own ratio of width to height, log-uniform in the range. Default: 3/4 to 4/3.
    #[must_use]
    pub fn ratio(mut self, ratio: RangeInclusive<f64>) -> Self {
        self.ratio = ratio;
        self
    }

    /// Largest number of patches, where batches have no length of their own.
    #[must_use]
    pub fn seq_len(mut self, patches: u32) -> Self {
        self.seq_len = Some(patches);
        self
    }

    /// The largest factor by which the rectangle is enlarged; 1 forbids it. Default: 100.
    #[must_use]
    pub fn max_ratio(mut self, ratio: f64) -> Self {
        self.max_ratio = Some(ratio);
        self
    }

    /// The filter. Default: bilinear.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// The crop for sequences of this length.
    fn crop(&self, seq_len: u32) -> SequenceCrop {
        let size = SequenceResize { max_ratio: self.max_ratio, ..SequenceResize::new(self.patch) }.size(seq_len);
        SequenceCrop::new(size).scale(self.scale.clone()).ratio(self.ratio.clone())
    }
}

impl RandomTransform for RandomSequenceCrop {
    fn validate(&self) -> Result<()> {
        self.crop(self.seq_len.unwrap_or(1)).validate()
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Varies
    }

    fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let crop = self.crop(seq_len(Self::NAME, recipe, self.seq_len)?);
        let (rng, size) = recipe.start();
        let (rect, fit) = crop.draw(rng, size)?;
        recipe.push(ResizedCrop::new(rect, fit.size).interpolation(self.interpolation))
    }
}
