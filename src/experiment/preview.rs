//! Contact sheets of augmented images.

use crate::error::{Error, Result};
use crate::fields::draw;
use crate::pipeline::{Builder, LastBatch, OnError};
use crate::raster::Image;
use crate::sheet::contact_sheet;
use crate::tensor::{DType, Layout};
use serde::Serialize;

/// Pixels between the images of a sheet.
const GAP_PX: u32 = 4;
/// Most images of a sheet.
const MAX_IMAGES: u64 = 10_000;

/// A contact sheet and the samples that are on it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Preview {
    /// The sheet.
    pub sheet: Image,
    /// The samples, in the order of the sheet: row by row.
    pub samples: Vec<PreviewedSample>,
}

/// A sample on a contact sheet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PreviewedSample {
    /// Row of its first image, from 1.
    pub row: u32,
    /// Column of its first image, from 1.
    pub column: u32,
    /// Index of the sample in the source.
    pub index: u64,
    /// Number of times that it came before in the epoch.
    pub repetition: u32,
    /// Its path or key; `None` for a stream.
    pub name: Option<String>,
}

/// Makes a contact sheet of the first `columns` x `rows` images of an epoch. The builder's operations must work on
/// 8-bit images, like those of [`Preset::pixel_transforms`](crate::Preset::pixel_transforms). With several views, each
/// row has all images of one sample, however many columns are asked for. Images that cannot be used are skipped. The
/// fields that the builder asks for are drawn over the images ([`draw`]).
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
/// let preview = preview(Pipeline::builder(source).random_resized_crop(16), 0, 2, 2)?;
/// assert_eq!(preview.sheet.size(), Size::new(2 * 16 + 3 * 4, 2 * 16 + 3 * 4));
/// assert_eq!((preview.samples[3].row, preview.samples[3].column, preview.samples[3].index), (2, 2, 3));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn preview(builder: Builder, epoch: u64, columns: u32, rows: u32) -> Result<Preview> {
    if !(1..=MAX_IMAGES).contains(&(u64::from(columns) * u64::from(rows))) {
        let got = u64::from(columns) * u64::from(rows);
        return Err(Error::parameter("preview", "columns and rows", "1 to 10000 images together", got));
    }
    let pipeline = builder
        .output(DType::U8, Layout::Nhwc)
        .last_batch(LastBatch::Keep)
        .on_error(OnError::Skip)
        .batch_size(columns as usize)
        .build()?;
    let images_of_a_sample = pipeline.view_sizes().iter().map(|(_, times)| *times).sum::<usize>() as u32;
    let columns = if images_of_a_sample > 1 { images_of_a_sample } else { columns };
    let wanted = (u64::from(columns) * u64::from(rows)).min(MAX_IMAGES) as usize;
    let (mut images, mut samples) = (Vec::new(), Vec::new());
    let mut batches = pipeline.epoch(epoch);
    'sheet: for batch in &mut batches {
        let batch = batch?;
        for (sample, repetition) in (0..batch.len()).zip(batch.repetitions()) {
            if images.len() >= wanted {
                break 'sheet;
            }
            let (place, index) = (images.len() as u32, batch.indices()[sample]);
            let (row, column, name) = (place / columns + 1, place % columns + 1, pipeline.name(index));
            samples.push(PreviewedSample { row, column, index, repetition, name });
            for (view, (size, times)) in pipeline.view_sizes().into_iter().enumerate() {
                for place in (0..times).map(|repetition| repetition * batch.len() + sample) {
                    let bytes = batch.view(view).map(|view| view.image_bytes(place)).transpose()?;
                    let mut image = bytes.map(|bytes| Image::from_rgb(size, bytes)).transpose()?;
                    let fields = batch.fields(view).and_then(|fields| fields.image(place));
                    image.iter_mut().zip(fields).for_each(|(image, fields)| draw(image, fields));
                    images.extend(image);
                }
            }
        }
    }
    if images.is_empty() {
        let error = batches.bad().into_iter().next().map_or_else(
            || Error::parameter("preview", "source", "a source with images", "none"),
            |bad| Error::decode("image", format!("{}: {}", bad.path, bad.error)),
        );
        return Err(error);
    }
    Ok(Preview { sheet: contact_sheet(&images, columns, GAP_PX)?, samples })
}
