//! Contact sheets of augmented images.

use serde::Serialize;
use std::collections::BTreeSet;
use warpfeed::fields::{Field, Fields, LABELS, draw};
use warpfeed::image::{Image, Size, contact_sheet};
use warpfeed::internal::HostImages;
use warpfeed::{Batch, BatchImages, DType, Error, LastBatch, Layout, OnError, Pipeline, PipelineBuilder, Result};

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
    /// Names of its class, and of those of its objects, as far as the source names them.
    pub classes: Vec<String>,
}

/// Makes a contact sheet of the first `columns` x `rows` images of an epoch. The builder's operations must work on
/// 8-bit images, like those of [`Preset::pixel_transforms`](warpfeed::Preset::pixel_transforms). With several views,
/// each row has all images of one sample, however many columns are asked for. Images may differ in size. Images that
/// cannot be used are skipped. The fields that the builder asks for are drawn over the images ([`draw`]).
///
/// # Errors
/// [`Error::Parameter`] for a sheet without images; the errors of [`PipelineBuilder::build`]; [`Error::Decode`] with
/// the first image's name if none can be used.
///
/// ```
/// use warpfeed_bench::preview::preview;
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..5).map(|label| (jpeg.clone(), label)));
/// let preview = preview(Pipeline::builder(source).transform(random_resized_crop(16)), 0, 2, 2)?;
/// assert_eq!(preview.sheet.size(), Size::new(2 * 16 + 3 * 4, 2 * 16 + 3 * 4));
/// assert_eq!((preview.samples[3].row, preview.samples[3].column, preview.samples[3].index), (2, 2, 3));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn preview(builder: PipelineBuilder, epoch: u64, columns: u32, rows: u32) -> Result<Preview> {
    if !(1..=MAX_IMAGES).contains(&(u64::from(columns) * u64::from(rows))) {
        let got = u64::from(columns) * u64::from(rows);
        return Err(Error::parameter("preview", "columns and rows", "1 to 10000 images together", got));
    }
    let builder = builder
        .output(DType::U8, Layout::Nhwc)
        .last_batch(LastBatch::Keep)
        .on_error(OnError::Skip)
        .batch_size(columns as usize);
    if builder.is_ragged() {
        return sheet(&builder.build_ragged()?, epoch, columns, rows);
    }
    let pipeline = builder.build()?;
    let images_of_a_sample = pipeline.view_sizes().iter().map(|(_, times)| *times).sum::<usize>() as u32;
    sheet(&pipeline, epoch, if images_of_a_sample > 1 { images_of_a_sample } else { columns }, rows)
}

/// The sheet of a pipeline whose batches are bytes, NHWC.
fn sheet<I: BatchImages>(pipeline: &Pipeline<I>, epoch: u64, columns: u32, rows: u32) -> Result<Preview> {
    let wanted = (u64::from(columns) * u64::from(rows)).min(MAX_IMAGES) as usize;
    let (mut images, mut samples) = (Vec::new(), Vec::new());
    let mut batches = pipeline.epoch(epoch);
    'sheet: for batch in &mut batches {
        let batch = batch?;
        let views = batch.tensors().map(HostImages::new).collect::<Result<Vec<_>>>()?;
        let fields = batch.host_fields()?;
        for (sample, repetition) in (0..batch.len()).zip(batch.repetitions()) {
            if images.len() >= wanted {
                break 'sheet;
            }
            let (place, index) = (images.len() as u32, batch.indices()[sample]);
            let (row, column, name) = (place / columns + 1, place % columns + 1, pipeline.name(index));
            let classes = classes(pipeline, &batch, sample, fields.first().and_then(|fields| fields.image(sample)));
            samples.push(PreviewedSample { row, column, index, repetition, name, classes });
            for (number, view) in views.iter().enumerate() {
                for place in (sample..view.count()).step_by(batch.len()) {
                    let [_, height, width, _] = view.shape(place);
                    let size = Size::new(width as u32, height as u32);
                    let mut image = Image::from_rgb(size, view.image_bytes(place)?)?;
                    if let Some(fields) = fields.get(number).and_then(|fields| fields.image(place)) {
                        draw(&mut image, fields);
                    }
                    images.push(image);
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

/// Names of the class of a batch's sample, and of those of its objects, each once.
fn classes<I>(pipeline: &Pipeline<I>, batch: &Batch<I>, sample: usize, fields: Option<&Fields>) -> Vec<String> {
    let own = batch.labels().ok().and_then(|labels| labels.get(sample)).map(|&label| i64::from(label));
    let objects = match fields.and_then(|fields| fields.get(LABELS)) {
        Some(Field::Integers(labels)) => &labels[..],
        _ => &[],
    };
    let name = |label: i64| usize::try_from(label).ok().and_then(|label| pipeline.classes().get(label)).cloned();
    let labels: BTreeSet<i64> = own.into_iter().chain(objects.iter().copied()).collect();
    labels.into_iter().filter_map(name).collect()
}
