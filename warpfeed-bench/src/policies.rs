//! Comparison of two policies of augmentation on the same images.

use serde::Serialize;
use warpfeed::image::{Image, Size, contact_sheet};
use warpfeed::internal::HostImages;
use warpfeed::ops::{Op, TransformFile};
use warpfeed::{
    Batch, DType, Epoch, Error, LastBatch, Layout, OnError, PipelineBuilder, RaggedPipeline, Result, Tensor,
};

/// Images in a batch, which decide about memory alone.
const BATCH: usize = 16;
/// Most pairs of a sheet.
const MOST_ROWS: usize = 1_000;
/// Pixels between the images of a sheet.
const GAP_PX: u32 = 4;

/// Differences that a policy makes where another was used before.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct PolicyDiff {
    /// Number of images that both policies made.
    pub images: u64,
    /// Number of those whose size or pixels differ.
    pub changed: u64,
    /// Mean of |a - b| over all values of the images of equal size, in levels of 0 to 255.
    pub mean: f64,
    /// Number of samples that each policy could not use.
    pub unusable: [u64; 2],
    /// The images that differ most, most first: those whose sizes differ, then by mean difference.
    pub most: Vec<ChangedImage>,
    /// Them with each policy.
    #[serde(skip)]
    pairs: Vec<[Pixels; 2]>,
}

impl PolicyDiff {
    /// The images that differ most, a row for each, the first policy's at the left; `None` if no image differs.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the sheet would have more than 2^28 pixels.
    pub fn sheet(&self) -> Result<Option<Image>> {
        let images = self.pairs.iter().flatten().map(|(size, bytes)| Ok(Image::from_rgb(*size, bytes)?));
        let images = images.collect::<Result<Vec<_>>>()?;
        if images.is_empty() { Ok(None) } else { contact_sheet(&images, 2, GAP_PX).map(Some) }
    }
}

/// An image that two policies make differently.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct ChangedImage {
    /// Index of the sample in the source.
    pub index: u64,
    /// Its path or key; `None` for a stream.
    pub name: Option<String>,
    /// Width and height with each policy.
    pub sizes: [[u32; 2]; 2],
    /// Mean and largest |a - b| over all values, in levels of 0 to 255; `None` if the sizes differ.
    pub difference: Option<(f64, u8)>,
    /// Share of the pixels that differ; 1 if the sizes differ.
    pub share: f64,
    /// The first operation of each policy's recipe that the other's does not have at its place, or no operation where
    /// the recipe has ended. `None` if the source is a stream.
    pub first: Option<[Option<Op>; 2]>,
}

/// An image's size and its bytes, HWC.
type Pixels = (Size, Vec<u8>);

/// Runs two policies over the source, seed and fields of `builder`, in the source's order, and compares their 8-bit
/// images before mixing. With several views these are the first view's. The `rows` images that differ most are kept.
/// Samples that a policy cannot use are left out. `progress` is called with the number of images so far.
///
/// # Errors
/// [`Error::Parameter`] if `rows` is not 1 to 1,000; the errors of [`PipelineBuilder::build_ragged`] and of its epochs.
///
/// ```
/// use warpfeed_bench::policies::diff;
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::ops::TransformFile;
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..5).map(|label| (jpeg.clone(), label)));
/// let policy = |text| TransformFile::parse(text, "policy");
/// let policies = [policy(r#"[{"op": "hflip"}]"#)?, policy(r#"[{"op": "invert"}]"#)?];
/// let found = diff(&Pipeline::builder(source), policies, 0, 2, |_| {})?;
/// assert_eq!((found.images, found.changed, found.mean, found.most.len()), (5, 5, 255.0, 2));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn diff(
    builder: &PipelineBuilder,
    policies: [TransformFile; 2],
    epoch: u64,
    rows: usize,
    mut progress: impl FnMut(u64),
) -> Result<PolicyDiff> {
    if !(1..=MOST_ROWS).contains(&rows) {
        return Err(Error::parameter("diff", "rows", format!("1 to {MOST_ROWS}"), rows));
    }
    let pipeline = |transforms: TransformFile| {
        let builder = builder.clone().output(DType::U8, Layout::Nhwc).last_batch(LastBatch::Keep).batch_size(BATCH);
        let transforms = transforms.without_normalize().into_first_view();
        transforms.into_iter().fold(builder.on_error(OnError::Skip), PipelineBuilder::transform).build_ragged()
    };
    let [a, b] = policies.map(pipeline);
    let (a, b) = (a?, b?);
    let (mut of_a, mut of_b) = (Samples::new(&a, epoch), Samples::new(&b, epoch));
    let mut found =
        PolicyDiff { images: 0, changed: 0, mean: 0.0, unusable: [0; 2], most: Vec::new(), pairs: Vec::new() };
    let mut of_one_size = 0_u64;
    while let Some((index, images)) = next_pair(&mut of_a, &mut of_b)? {
        found.images += 1;
        progress(found.images);
        let (difference, share) = compare(&images);
        if let Some((mean, _)) = difference {
            found.mean += mean;
            of_one_size += 1;
        }
        if share > 0.0 {
            found.changed += 1;
            let sizes = [&images[0], &images[1]].map(|(size, _)| [size.width, size.height]);
            let changed = ChangedImage { index, name: None, sizes, difference, share, first: None };
            let mean = |changed: &ChangedImage| changed.difference.map_or(f64::INFINITY, |(mean, _)| mean);
            let place = found.most.partition_point(|other| mean(other) >= mean(&changed));
            found.most.insert(place, changed);
            found.pairs.insert(place, images);
            found.most.truncate(rows);
            found.pairs.truncate(rows);
        }
    }
    found.mean /= of_one_size.max(1) as f64;
    found.unusable = [of_a.epoch.stats().bad, of_b.epoch.stats().bad];
    for changed in &mut found.most {
        changed.name = a.name(changed.index);
        // A stream has no recipes.
        let recipes = a.recipe(epoch, changed.index).ok().zip(b.recipe(epoch, changed.index).ok());
        changed.first = recipes.map(first_difference);
    }
    Ok(found)
}

/// The next sample that both epochs have, which come in the source's order. At the end both have been read to theirs.
fn next_pair(a: &mut Samples, b: &mut Samples) -> Result<Option<(u64, [Pixels; 2])>> {
    let mut both = (a.next()?, b.next()?);
    loop {
        both = match both {
            (Some((index, of_a)), Some((other, of_b))) if index == other => return Ok(Some((index, [of_a, of_b]))),
            (None, None) => return Ok(None),
            (Some(of_a), Some(of_b)) if of_a.0 > of_b.0 => (Some(of_a), b.next()?),
            (None, Some(_)) => (None, b.next()?),
            (Some(_), of_b) => (a.next()?, of_b),
        };
    }
}

/// The images of an epoch, one by one.
struct Samples {
    epoch: Epoch<Vec<Tensor>>,
    batch: Option<Batch<Vec<Tensor>>>,
    /// The next image of the batch.
    at: usize,
}

impl Samples {
    fn new(pipeline: &RaggedPipeline, epoch: u64) -> Self {
        Self { epoch: pipeline.epoch(epoch), batch: None, at: 0 }
    }

    /// The next image and the index of its sample.
    fn next(&mut self) -> Result<Option<(u64, Pixels)>> {
        if self.batch.as_ref().is_none_or(|batch| self.at >= batch.len()) {
            (self.batch, self.at) = (self.epoch.next().transpose()?, 0);
        }
        let Some(batch) = &self.batch else { return Ok(None) };
        let images = HostImages::new(batch.images())?;
        let [_, height, width, _] = images.shape(self.at);
        let pixels = (Size::new(width as u32, height as u32), images.image_bytes(self.at)?.to_vec());
        self.at += 1;
        Ok(Some((batch.indices()[self.at - 1], pixels)))
    }
}

/// The mean and the largest difference of two images of one size, and the share of pixels that differ.
fn compare([(size, a), (other, b)]: &[Pixels; 2]) -> (Option<(f64, u8)>, f64) {
    if size != other {
        return (None, 1.0);
    }
    let (mut sum, mut largest) = (0_u64, 0);
    for (a, b) in a.iter().zip(b) {
        let difference = a.abs_diff(*b);
        sum += u64::from(difference);
        largest = largest.max(difference);
    }
    let changed = a.as_chunks::<3>().0.iter().zip(b.as_chunks::<3>().0).filter(|(a, b)| a != b).count();
    (Some((sum as f64 / a.len().max(1) as f64, largest)), changed as f64 / size.area_px().max(1) as f64)
}

/// The first operation in which two recipes differ.
fn first_difference((a, b): (Vec<Op>, Vec<Op>)) -> [Option<Op>; 2] {
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    [a, b].map(|recipe| recipe.into_iter().nth(same))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpfeed::Pipeline;
    use warpfeed::image::{JpegOptions, encode_jpeg};
    use warpfeed::source::EncodedImages;

    fn builder() -> PipelineBuilder {
        let image = |shade: u8| {
            let mut image = Image::new(Size::new(24, 16));
            image.pixels_mut().fill([shade, 90, 60, 255]);
            encode_jpeg(&image, &JpegOptions::default()).unwrap()
        };
        let mut images: Vec<_> = (0..40).map(|i| (image(i * 6), 0)).collect();
        images[7].0.truncate(60);
        Pipeline::builder(EncodedImages::new(images)).threads(2)
    }

    fn policy(text: &str) -> TransformFile {
        TransformFile::parse(text, "policy").unwrap()
    }

    #[test]
    fn equal_policies_change_nothing_and_bad_images_are_counted() {
        let [a, b] = [(); 2].map(|()| policy(r#"[{"transform": "random_resized_crop", "size": [8, 8]}]"#));
        let found = diff(&builder(), [a, b], 3, 5, |_| {}).unwrap();
        assert_eq!((found.images, found.changed, found.mean, found.unusable), (39, 0, 0.0, [1, 1]));
        assert!(found.most.is_empty() && found.sheet().unwrap().is_none());
    }

    #[test]
    fn images_that_differ_most_come_first_with_the_operation() {
        let (a, b) = (policy("[]"), policy(r#"[{"op": "solarize", "threshold": 121}]"#));
        let found = diff(&builder(), [a, b], 0, 4, |_| {}).unwrap();
        // Red is i * 6: solarizing changes 127 and more by 2 * red - 255, whose largest is the last.
        assert_eq!((found.images, found.most.len()), (39, 4));
        assert!((18..=20).contains(&found.changed), "{found:?}");
        assert_eq!(found.most.iter().map(|changed| changed.index).collect::<Vec<_>>(), [39, 38, 37, 36]);
        let first = &found.most[0];
        assert!(matches!(&first.first, Some([None, Some(Op::Solarize(_))])), "{first:?}");
        assert!(first.share == 1.0 && first.difference.is_some_and(|(mean, most)| mean > 60.0 && most > 200));
        assert_eq!(found.sheet().unwrap().unwrap().size(), Size::new(2 * 24 + 3 * 4, 4 * 16 + 5 * 4));
    }

    #[test]
    fn a_policy_that_changes_sizes_differs_in_all_images() {
        let found = diff(
            &builder(),
            [policy("[]"), policy(r#"[{"op": "center_crop", "width": 8, "height": 8}]"#)],
            0,
            1,
            |_| {},
        );
        let found = found.unwrap();
        assert_eq!((found.changed, found.most[0].sizes, found.most[0].difference), (39, [[24, 16], [8, 8]], None));
        assert!(diff(&builder(), [policy("[]"), policy("[]")], 0, 0, |_| {}).unwrap_err().is_parameter());
    }
}
