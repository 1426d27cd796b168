//! Contact sheets of augmented images.

use crate::error::{Error, Result};
use crate::pipeline::{Builder, LastBatch, OnError};
use crate::raster::Image;
use crate::sheet::contact_sheet;
use crate::tensor::{DType, Layout};

/// Pixels between the images of a sheet.
const GAP_PX: u32 = 4;

/// Makes a contact sheet of the first `columns` x `rows` images of an epoch. The builder's operations must work on
/// 8-bit images, like those of [`Preset::pixel_transforms`](crate::Preset::pixel_transforms). With several views, all
/// images of a sample come one after the other. Images that cannot be used are skipped.
///
/// # Errors
/// [`Error::Parameter`] for a sheet without images; the errors of [`Builder::build`]; [`Error::Decode`] with the first
/// image's name if none can be used.
///
/// ```
/// use warpfeed::experiment::preview::preview;
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..5).map(|label| (jpeg.clone(), label)));
/// let sheet = preview(Pipeline::builder(source).random_resized_crop(16), 0, 2, 2)?;
/// assert_eq!(sheet.size(), Size::new(2 * 16 + 3 * 4, 2 * 16 + 3 * 4));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn preview(builder: Builder, epoch: u64, columns: u32, rows: u32) -> Result<Image> {
    let wanted = u64::from(columns) * u64::from(rows);
    if !(1..=10_000).contains(&wanted) {
        return Err(Error::parameter("preview", "columns and rows", "1 to 10000 images together", wanted));
    }
    let pipeline = builder
        .output(DType::U8, Layout::Nhwc)
        .last_batch(LastBatch::Keep)
        .on_error(OnError::Skip)
        .batch_size(columns as usize)
        .build()?;
    let mut images = Vec::new();
    let mut batches = pipeline.epoch(epoch);
    for batch in &mut batches {
        let batch = batch?;
        for sample in 0..batch.len() {
            for (view, (size, times)) in pipeline.view_sizes().into_iter().enumerate() {
                for place in (0..times).map(|repetition| repetition * batch.len() + sample) {
                    let view = batch.view(view).map(|view| view.image_bytes(place)).transpose()?;
                    images.extend(view.map(|bytes| Image::from_rgb(size, bytes)).transpose()?);
                }
            }
        }
        if images.len() as u64 >= wanted {
            break;
        }
    }
    images.truncate(wanted as usize);
    if images.is_empty() {
        let error = batches.bad().into_iter().next().map_or_else(
            || Error::parameter("preview", "source", "a source with images", "none"),
            |bad| Error::decode("image", format!("{}: {}", bad.path, bad.error)),
        );
        return Err(error);
    }
    contact_sheet(&images, columns, GAP_PX)
}
