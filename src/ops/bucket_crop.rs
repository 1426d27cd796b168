//! Resizing and cropping to the bucket of a batch.

use super::check::MAX_SIDE_PX;
use super::filter::Interpolation;
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::PixelValues;
use super::{Crop, Resize, SizeEffect};
use crate::error::{Error, Result};
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Resizes an image so that it covers the bucket of its batch, then cuts the bucket out, at the center or at a random
/// place ([`PipelineBuilder::buckets`](crate::PipelineBuilder::buckets)).
///
/// The resized image has the bucket's width or height, and the other side is rounded half up, or as the preset's system
/// does ([`Buckets::covering`](crate::shapes::Buckets::covering)). At the center, a crop leaves out as many pixels before it as
/// after it, or one less. An image so thin that it would become longer than 65,535 pixels is cropped first.
///
/// ```
/// use warpfeed::ops::BucketCrop;
/// use warpfeed::{image::{Image, JpegOptions, encode_jpeg}, prelude::*, shapes::Buckets};
///
/// let jpeg = |width, height| encode_jpeg(&Image::new(Size::new(width, height)), &JpegOptions::default());
/// let source = EncodedImages::new([(jpeg(40, 30)?, 0), (jpeg(30, 40)?, 1), (jpeg(44, 30)?, 2)]);
/// let pipeline = Pipeline::builder(source)
///     .batch_size(2)
///     .buckets(Buckets::list([Size::new(32, 24), Size::new(24, 32)]))
///     .transform(BucketCrop::new().random(true))
///     .build()?;
/// let shapes = pipeline.epoch(0).map(|batch| Ok(batch?.images().shape())).collect::<warpfeed::Result<Vec<_>>>()?;
/// assert_eq!(shapes, [[2, 3, 24, 32], [1, 3, 32, 24]]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketCrop {
    #[serde(default)]
    random: bool,
    #[serde(default)]
    interpolation: Interpolation,
}

impl BucketCrop {
    /// A crop at the center.
    #[must_use]
    pub const fn new() -> Self {
        Self { random: false, interpolation: Interpolation::Bilinear }
    }

    /// Whether the place of the crop is random, each place equally likely. Default: false.
    #[must_use]
    pub const fn random(mut self, random: bool) -> Self {
        self.random = random;
        self
    }

    /// The filter of the resize. Default: bilinear.
    #[must_use]
    pub const fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }
}

impl RandomTransform for BucketCrop {
    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Varies
    }

    fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let Some(bucket) = recipe.batch_size() else {
            let expected = "for a pipeline with buckets or sizes over time (PipelineBuilder::buckets, --buckets)";
            return Err(Error::parameter(Self::NAME, "buckets", expected, "none"));
        };
        let resized = recipe.sample().covering(recipe.size(), bucket);
        let (rng, size) = recipe.start();
        let is_thin = resized.width.max(resized.height) > MAX_SIDE_PX;
        // What the crop is taken from, and its size.
        let (whole, shown) = if is_thin {
            let part = |side: u32, shown: u32, of: u32| {
                (u64::from(side) * u64::from(shown)).div_ceil(of.into()).clamp(1, side.into()) as u32
            };
            let width = part(size.width, bucket.width, resized.width);
            (size, Size::new(width, part(size.height, bucket.height, resized.height)))
        } else {
            (resized, bucket)
        };
        let left_out = [whole.width - shown.width, whole.height - shown.height];
        let mut place = left_out.map(|side| (side / 2) as i32);
        if self.random {
            let mut below = |side: u32| rng.below(u64::from(side) + 1) as i32;
            let y = below(left_out[1]);
            place = [below(left_out[0]), y];
        }
        if !is_thin && resized != size {
            recipe.push(Resize::new(resized).interpolation(self.interpolation))?;
        }
        if shown != whole {
            recipe.push(Crop::new(place[0], place[1], shown))?;
        }
        if is_thin {
            recipe.push(Resize::new(bucket).interpolation(self.interpolation))?;
        }
        Ok(())
    }
}
