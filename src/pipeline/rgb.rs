//! A batch's images as 8-bit images, without the normalization.

use super::batch::{Batch, BatchImages};
use super::host_images::HostImages;
use super::recipes::Recipes;
use crate::error::Result;
use crate::ops::ChannelNumbers;
use crate::ops::normalize::Normalization;
use crate::raster::{Image, Size};
use crate::tensor::{DType, Layout};
use half::{bf16, f16};

impl Recipes {
    /// The normalization, which all views share.
    fn normalization(&self) -> Normalization {
        let mut transforms = self.views.iter().flat_map(|view| &view.images).flatten();
        transforms.find_map(|transform| transform.explicit()?.normalization())
    }
}

impl<I: BatchImages> Batch<I> {
    /// The images of each view as 8-bit images, in the order of the tensor: numbers become `(v * std + mean) * 255`,
    /// rounded to the nearest byte and cut off at 0 and 255. An `f32` or `f16` that was made of a byte becomes that
    /// byte again. Operations after normalization stay visible: mixing, and erased rectangles. Of images that are not RGB
    /// the first three channels are shown, or the only one as gray, 16 bits by their high byte. Images of a device are
    /// copied.
    ///
    /// ```
    /// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// # use warpfeed::prelude::*;
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// # let source = EncodedImages::new((0..4).map(|label| (jpeg.clone(), label)));
    /// let pipeline = Pipeline::builder(source).transform(CenterCrop::new(8)).normalize(IMAGENET_MEAN, IMAGENET_STD).build()?;
    /// for batch in pipeline.epoch(0) {
    ///     let views = batch?.to_rgb()?;
    ///     assert_eq!((views.len(), views[0].len(), views[0][0].to_rgb()), (1, 4, vec![0; 8 * 8 * 3]));
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the batch is on a device and cannot be copied;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is no memory for the images.
    pub fn to_rgb(&self) -> Result<Vec<Vec<Image>>> {
        let normalization = self.moment.setup.recipes.normalization();
        let view = |tensors| {
            let view = HostImages::new(tensors)?;
            let image = |i| rgb(view.image_bytes(i)?, view.shape(i), view.elements(i), normalization);
            (0..view.count()).map(image).collect()
        };
        self.tensors().map(view).collect()
    }
}

/// An image of a tensor of this shape as an 8-bit image.
pub(super) fn rgb(
    bytes: &[u8],
    [_, a, b, c]: [usize; 4],
    (dtype, layout): (DType, Layout),
    normalization: Normalization,
) -> Result<Image> {
    let (mean, std) = normalization.unwrap_or((ChannelNumbers::ZERO, ChannelNumbers::from(1.0)));
    let ([channels, height, width], planar) = match layout {
        Layout::Nchw => ([a, b, c], true),
        Layout::Nhwc => ([c, a, b], false),
    };
    let byte = |pixel: usize, channel: usize| {
        // Of one channel: gray.
        let channel = channel.min(channels - 1);
        let at = if planar { channel * width * height + pixel } else { pixel * channels + channel };
        let half = || [bytes[2 * at], bytes[2 * at + 1]];
        let value = match dtype {
            DType::U8 => return bytes[at],
            DType::U16 => return (u16::from_ne_bytes(half()) >> 8) as u8,
            DType::F32 => f32::from_ne_bytes([bytes[4 * at], bytes[4 * at + 1], bytes[4 * at + 2], bytes[4 * at + 3]]),
            DType::F16 => f16::from_ne_bytes(half()).to_f32(),
            DType::Bf16 => bf16::from_ne_bytes(half()).to_f32(),
        };
        ((value * std.of(channel) + mean.of(channel)) * 255.0).round() as u8
    };
    let (mut image, size) = (Image::default(), Size::new(width as u32, height as u32));
    image.reserve(size)?;
    image.reset(size);
    let pixels = (0..).zip(image.pixels_mut());
    pixels.for_each(|(pixel, to)| *to = [byte(pixel, 0), byte(pixel, 1), byte(pixel, 2), 255]);
    Ok(image)
}
