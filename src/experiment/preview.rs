//! Contact sheets of augmented images.

use crate::error::{Error, Result};
use crate::ops::transform::Transform;
use crate::pipeline::{Builder, LastBatch, OnError};
use crate::raster::{Image, Size};
use crate::sheet::contact_sheet;
use crate::tensor::{DType, Layout};

/// Pixels between the images of a sheet.
const GAP_PX: u32 = 4;

/// The first `columns` x `rows` images of an epoch as a contact sheet, after `pixel_ops` (operations on 8-bit images,
/// as of [`Preset::pixel_ops`](crate::Preset::pixel_ops)). Images that cannot be used are skipped.
///
/// # Errors
/// [`Error::Parameter`] for a sheet without images; what [`Builder::build`] refuses; [`Error::Decode`] with the first
/// image's name if none can be used.
///
/// ```
/// use warpfeed::experiment::preview::preview;
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..5).map(|label| (jpeg.clone(), label)));
/// let sheet = preview(Pipeline::builder(source), vec![random_resized_crop(16)], 0, 2, 2)?;
/// assert_eq!(sheet.size(), Size::new(2 * 16 + 3 * 4, 2 * 16 + 3 * 4));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn preview(builder: Builder, pixel_ops: Vec<Transform>, epoch: u64, columns: u32, rows: u32) -> Result<Image> {
    let wanted = u64::from(columns) * u64::from(rows);
    if !(1..=10_000).contains(&wanted) {
        return Err(Error::parameter("preview", "columns and rows", "1 to 10000 images together", wanted));
    }
    let pipeline = pixel_ops
        .into_iter()
        .fold(builder, Builder::augment)
        .output(DType::U8, Layout::Nhwc)
        .last_batch(LastBatch::Keep)
        .on_error(OnError::Skip)
        .batch_size(columns as usize)
        .build()?;
    let Size { width, height } = pipeline.image_size();
    let mut images = Vec::new();
    let mut batches = pipeline.epoch(epoch);
    for batch in &mut batches {
        let batch = batch?;
        for i in 0..batch.len() {
            if (images.len() as u64) < wanted {
                images.push(Image::from_rgb(Size { width, height }, batch.images().image_bytes(i)?)?);
            }
        }
        if images.len() as u64 == wanted {
            break;
        }
    }
    if images.is_empty() {
        let error = batches.bad().into_iter().next().map_or_else(
            || Error::parameter("preview", "source", "a source with images", "none"),
            |bad| Error::decode("image", format!("{}: {}", bad.path, bad.error)),
        );
        return Err(error);
    }
    contact_sheet(&images, columns, GAP_PX)
}
