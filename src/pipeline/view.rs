//! Several views of each image, from one read and one decoding.

use super::recipes::Crops;
use crate::error::{Error, Result};
use crate::ops::{CenterCrop, Corner, CornerCrop, Hflip, transform::Transform, written::WrittenView};
use crate::raster::Size;

/// Most repetitions of a view.
const MAX_TIMES: u32 = 1_000;

/// What a batch has of each sample: images that go through transforms of their own. [`view`] makes one, and
/// [`Builder::views`](crate::Builder::views) takes them.
#[derive(Debug, Clone)]
pub struct View {
    /// The transforms of each of its images.
    crops: Vec<Vec<Transform>>,
    times: u32,
}

/// A view of each image through these transforms.
#[must_use]
pub fn view(transforms: impl IntoIterator<Item = Transform>) -> View {
    View { crops: vec![transforms.into_iter().collect()], times: 1 }
}

/// torchvision's `FiveCrop`: the corners, upper left, upper right, lower left, lower right, then the center. A `u32` is a
/// square. An image that is smaller cannot be used.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
/// use warpfeed::{five_crop, ten_crop};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let builder = Pipeline::builder(EncodedImages::new([(jpeg, 0)])).resize_shorter(24);
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
    View { crops, times: 1 }
}

/// torchvision's `TenCrop`: [`five_crop`], then the same of the image mirrored left and right.
#[must_use]
pub fn ten_crop(size: impl Into<Size>) -> View {
    let mut view = five_crop(size);
    let mirrored: Vec<_> =
        view.crops.iter().map(|crop| std::iter::once(Hflip.into()).chain(crop.iter().cloned()).collect()).collect();
    view.crops.extend(mirrored);
    view
}

impl From<WrittenView> for View {
    fn from(WrittenView { transforms, times }: WrittenView) -> Self {
        view(transforms).times(times)
    }
}

impl View {
    /// So many images of each sample, each with draws of its own; 1 if not given.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// Its transforms between those that all views begin and end with.
    pub(super) fn between(&self, first: &[Transform], last: &[Transform]) -> Result<Crops> {
        if !(1..=MAX_TIMES).contains(&self.times) {
            return Err(Error::parameter("view", "times", format!("1 to {MAX_TIMES}"), self.times));
        }
        let whole = |crop: &Vec<Transform>| [first, crop, last].concat();
        Ok(Crops { of: self.crops.iter().map(whole).collect(), times: self.times as usize })
    }
}
