//! Several views of each image, from one read and one decoding.

use super::recipes::ViewTransforms;
use crate::error::{Error, Result};
use crate::ops::{CenterCrop, Corner, CornerCrop, Hflip, transform::Transform, written::WrittenView};
use crate::raster::Size;

/// Upper limit of [`View::times`].
const MAX_TIMES: u32 = 1_000;

/// One or more images of each sample, with transforms of their own. [`view`] makes a view, and
/// [`PipelineBuilder::views`](crate::PipelineBuilder::views) adds views to a pipeline.
#[derive(Debug, Clone)]
pub struct View {
    /// The transforms of each image of the view.
    images: Vec<Vec<Transform>>,
    times: u32,
}

/// Makes a view with one image of each sample, by these transforms.
#[must_use]
pub fn view(transforms: impl IntoIterator<Item = Transform>) -> View {
    View { images: vec![transforms.into_iter().collect()], times: 1 }
}

/// torchvision's `FiveCrop`: upper left, upper right, lower left and lower right corner, then the center. A `u32` means
/// a square. A smaller image is a bad sample.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
/// use warpfeed::{five_crop, ten_crop};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let builder = Pipeline::builder(EncodedImages::new([(jpeg, 0)])).transform(Resize::shorter_side(24));
/// for (crops, count) in [(five_crop(16), 5), (ten_crop(16), 10)] {
///     let pipeline = builder.clone().views([crops]).normalize(IMAGENET_MEAN, IMAGENET_STD).build()?;
///     for batch in pipeline.epoch(0) {
///         assert_eq!(batch?.images().shape(), [count, 3, 16, 16]);
///     }
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[must_use]
pub fn five_crop(size: impl Into<Size>) -> View {
    let size = size.into();
    let corners = [Corner::UpperLeft, Corner::UpperRight, Corner::LowerLeft, Corner::LowerRight];
    let mut crops: Vec<Vec<Transform>> = corners.map(|corner| vec![CornerCrop::new(corner, size).into()]).into();
    crops.push(vec![CenterCrop::new(size).into()]);
    View { images: crops, times: 1 }
}

/// torchvision's `TenCrop`: [`five_crop`], then the same five crops of the image flipped horizontally.
#[must_use]
pub fn ten_crop(size: impl Into<Size>) -> View {
    let mut view = five_crop(size);
    let mirrored: Vec<_> =
        view.images.iter().map(|crop| std::iter::once(Hflip.into()).chain(crop.iter().cloned()).collect()).collect();
    view.images.extend(mirrored);
    view
}

impl From<WrittenView> for View {
    fn from(WrittenView { transforms, times }: WrittenView) -> Self {
        view(transforms).times(times)
    }
}

impl View {
    /// Sets the number of images of each sample, each with its own draws. Default: 1.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// The view's transforms with those of all views around them.
    pub(super) fn between(&self, first: &[Transform], last: &[Transform]) -> Result<ViewTransforms> {
        if !(1..=MAX_TIMES).contains(&self.times) {
            return Err(Error::parameter("view", "times", format!("1 to {MAX_TIMES}"), self.times));
        }
        let whole = |crop: &Vec<Transform>| [first, crop, last].concat();
        Ok(ViewTransforms { images: self.images.iter().map(whole).collect(), times: self.times as usize })
    }
}
