//! Batches.

use super::assembly::Parts;
use super::partners::SourcePartners;
use super::recipes::Drawn;
use super::state::{EpochState, Moment};
use crate::error::{Error, Result};
use crate::fields::BatchFields;
use crate::mix::Mixed;
use crate::ops::Op;
use crate::ops::part::Partners;
use crate::raster::Size;
use crate::shapes::BatchShape;
use crate::source::Input;
use crate::targets::Annotation;
use crate::tensor::{FieldTensor, Layout, Targets, Tensor};

/// Images ready for a training step, with their labels if the source has them. Dropping a batch gives its memory back
/// to the pipeline.
///
/// ```
/// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// # use warpfeed::prelude::*;
/// # fn source(n: u32) -> warpfeed::Result<EncodedImages> {
/// #     let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// #     Ok(EncodedImages::new((0..n).map(|label| (jpeg.clone(), label))))
/// # }
/// let pipeline = Pipeline::builder(source(3)?).batch_size(4).last_batch(LastBatch::Pad).transform(CenterCrop::new(8)).build()?;
/// for batch in pipeline.epoch(0) {
///     let batch = batch?;
///     assert_eq!(batch.images().shape(), [4, 3, 8, 8]);
///     assert_eq!(batch.labels()?, [0, 1, 2, 2]);
///     assert_eq!(batch.indices(), [0, 1, 2, 2]);
///     assert_eq!(batch.padding(), 1);
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// `I` is [`Tensor`] where all images of a view have one size; `Vec<Tensor>`, a tensor for each image, in the batches
/// of a [`RaggedPipeline`](crate::RaggedPipeline); [`PaddedImages`] in those of a
/// [`PaddedPipeline`](crate::PaddedPipeline).
#[derive(Debug)]
pub struct Batch<I = Tensor> {
    /// The images of each view; there is at least one view.
    views: Vec<I>,
    /// `None` if samples have no labels.
    labels: Option<Vec<u32>>,
    indices: Vec<u64>,
    pub(super) drawn: Vec<Drawn>,
    seen: Vec<Annotation>,
    targets: Option<Targets>,
    fields: Vec<BatchFields>,
    mixed: Option<Mixed>,
    padding: usize,
    pub(super) moment: Moment,
}

/// The form of a batch's images: [`Tensor`] if all have one size, `Vec<Tensor>` or [`PaddedImages`] if each has a size
/// of its own.
pub trait BatchImages: Sized + sealed::FromTensors {}

impl BatchImages for Tensor {}
impl BatchImages for Vec<Tensor> {}
impl BatchImages for PaddedImages {}

/// Images of different sizes in one tensor, each in the upper left corner of its place. The elements to its right and
/// below it are 0, also where images are normalized: the mean color, as in torchvision's detectors and in DETR.
#[derive(Debug)]
pub struct PaddedImages {
    tensor: Tensor,
    sizes: Vec<Size>,
}

impl PaddedImages {
    /// The images with their padding: `[N, 3, H, W]` or `[N, H, W, 3]`.
    #[must_use]
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The size of each image without padding: `[N]`.
    #[must_use]
    pub fn sizes(&self) -> &[Size] {
        &self.sizes
    }

    /// Number of images, height and width.
    fn planes(&self) -> [usize; 3] {
        let [n, a, b, c] = self.tensor.shape();
        if self.tensor.layout() == Layout::Nchw { [n, b, c] } else { [n, a, b] }
    }

    /// For each element of a plane whether it belongs to the image: `[N, H, W]` of 1 and 0. It is the `pixel_mask` of
    /// transformers; the mask of DETR's own code has 0 and 1 exchanged.
    #[must_use]
    pub fn pixel_mask(&self) -> Vec<u8> {
        let [_, height, width] = self.planes().map(|side| side as u32);
        let row = |y: u32, size: &Size| {
            let own = if y < size.height { size.width } else { 0 };
            (0..width).map(move |x| u8::from(x < own))
        };
        self.sizes.iter().flat_map(|size| (0..height).flat_map(move |y| row(y, size))).collect()
    }

    /// The [`pixel_mask`](Self::pixel_mask) as a tensor, for DLPack, candle, burn and tch: `[N, H, W]`, u8.
    #[must_use]
    pub fn pixel_mask_tensor(&self) -> FieldTensor {
        let [n, height, width] = self.planes();
        FieldTensor::of_bytes(self.pixel_mask(), vec![n, height, width])
    }

    /// Takes the tensor out. Its memory goes back to the pipeline when it is dropped.
    #[must_use]
    pub fn into_tensor(self) -> Tensor {
        self.tensor
    }
}

mod sealed {
    use super::{PaddedImages, Size, Tensor};

    /// Makes the views of a batch from a back end's results: tensors, and the sizes of padded images.
    pub trait FromTensors: Sized {
        fn views(tensors: Vec<Tensor>, sizes: Vec<Size>) -> Vec<Self>;

        /// The tensors of a view.
        fn tensors(&self) -> &[Tensor];
    }

    impl FromTensors for Tensor {
        fn views(tensors: Vec<Tensor>, _sizes: Vec<Size>) -> Vec<Self> {
            tensors
        }

        fn tensors(&self) -> &[Tensor] {
            std::slice::from_ref(self)
        }
    }

    impl FromTensors for Vec<Tensor> {
        fn views(tensors: Vec<Tensor>, _sizes: Vec<Size>) -> Vec<Self> {
            vec![tensors]
        }

        fn tensors(&self) -> &[Tensor] {
            self
        }
    }

    impl FromTensors for PaddedImages {
        fn views(tensors: Vec<Tensor>, sizes: Vec<Size>) -> Vec<Self> {
            tensors.into_iter().map(|tensor| Self { tensor, sizes: sizes.clone() }).collect()
        }

        fn tensors(&self) -> &[Tensor] {
            std::slice::from_ref(&self.tensor)
        }
    }
}

impl<I: BatchImages> Batch<I> {
    pub(super) fn new(parts: Parts, moment: Moment) -> Self {
        let Parts { images, sizes, labels, drawn, seen, targets, fields, mixed, padding } = parts;
        let indices = drawn.iter().map(|drawn| drawn.pick.index).collect();
        Self { views: I::views(images, sizes), labels, indices, drawn, seen, targets, fields, mixed, padding, moment }
    }

    /// The tensors of each view: one with all its images, or, if images differ in size, one for each.
    #[doc(hidden)]
    pub fn tensors(&self) -> impl Iterator<Item = &[Tensor]> {
        self.views.iter().map(I::tensors)
    }
}

impl<I> Batch<I> {
    /// The images in the order of the epoch: `[N, 3, H, W]` or `[N, H, W, 3]`, or, if they differ in size, a tensor for
    /// each, `[1, 3, H, W]` or `[1, H, W, 3]`. With several views, the images of the first view.
    #[must_use]
    pub fn images(&self) -> &I {
        &self.views[0]
    }

    /// View number `i` ([`PipelineBuilder::views`](crate::PipelineBuilder::views)), from 0; `None` if there are fewer.
    /// A view that comes `times` times has shape `[times x N, 3, H, W]`: the first image of every sample, then the
    /// second image of every sample, and so on.
    #[must_use]
    pub fn view(&self, i: usize) -> Option<&I> {
        self.views.get(i)
    }

    /// The label of each sample, padding included. It applies to all images of the sample.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the remedy if the source has no labels ([`has_labels`](Self::has_labels)).
    pub fn labels(&self) -> Result<&[u32]> {
        self.labels.as_deref().ok_or_else(no_labels)
    }

    /// Whether the samples have labels.
    #[must_use]
    pub fn has_labels(&self) -> bool {
        self.labels.is_some()
    }

    /// The targets, padding included; `None` without [`PipelineBuilder::targets`](crate::PipelineBuilder::targets).
    #[must_use]
    pub fn targets(&self) -> Option<&Targets> {
        self.targets.as_ref()
    }

    /// The fields of the images of view `i`, in the order of the images, padding included: boxes, keypoints and masks
    /// as the view's operations have moved them. Masks are where the images are, all else is in host memory. `None` if
    /// there are fewer views, and without [`PipelineBuilder::fields`](crate::PipelineBuilder::fields).
    #[must_use]
    pub fn fields(&self, i: usize) -> Option<&BatchFields> {
        self.fields.get(i)
    }

    /// The fields of each view, with masks in host memory.
    #[doc(hidden)]
    pub fn host_fields(&self) -> Result<Vec<BatchFields>> {
        self.fields.iter().map(BatchFields::to_host).collect()
    }

    /// The mixing partner of each image, padding included; `None` without
    /// [`PipelineBuilder::mix`](crate::PipelineBuilder::mix).
    #[must_use]
    pub fn mixed(&self) -> Option<&Mixed> {
        self.mixed.as_ref()
    }

    /// Takes the targets out of the batch, so that the images can stay in it.
    #[must_use]
    pub fn take_targets(&mut self) -> Option<Targets> {
        self.targets.take()
    }

    /// Checks that no targets are lost where images and labels alone are handed over. `call` is the name of the call
    /// for the error.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there are targets in the batch.
    pub fn check_targets_taken(&self, call: &str) -> Result<()> {
        if self.targets.is_none() {
            return Ok(());
        }
        Err(Error::Unsupported {
            feature: format!("leaving the targets behind in {call}"),
            remedy: "take them out before with Batch::take_targets, or build the pipeline without targets".to_owned(),
        })
    }

    /// The index of each sample in the source.
    #[must_use]
    pub fn indices(&self) -> &[u64] {
        &self.indices
    }

    /// Number of times that each sample came before in the epoch: 0, unless a sampler repeats samples
    /// ([`PipelineBuilder::sampler`](crate::PipelineBuilder::sampler)).
    #[must_use]
    pub fn repetitions(&self) -> Vec<u32> {
        self.drawn.iter().map(|drawn| drawn.pick.repetition).collect()
    }

    /// The size of each sample's image as it is stored, or of its draft
    /// ([`PipelineBuilder::draft`](crate::PipelineBuilder::draft)), before its EXIF orientation is applied.
    #[must_use]
    pub fn stored_sizes(&self) -> Vec<Size> {
        self.drawn.iter().map(|drawn| drawn.stored.size).collect()
    }

    /// The explicit operations, orientation included, that sample `i` of the batch has gone through, for each of its
    /// images, view after view. [`ops::PointMap`](crate::ops::PointMap) maps boxes and keypoints by them, from
    /// [`stored_sizes`](Self::stored_sizes) on. Mixing ([`mixed`](Self::mixed)) comes after them.
    ///
    /// They are drawn once more when they are asked for, so unused recipes cost nothing.
    ///
    /// ```
    /// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// # use warpfeed::prelude::*;
    /// use warpfeed::{Sampler, ops::PointMap};
    ///
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// # let source = EncodedImages::new((0..4).map(|label| (jpeg.clone(), label)));
    /// let pipeline = Pipeline::builder(source).sampler(Sampler::repeated(2)).transform(random_resized_crop(8)).build()?;
    /// for batch in pipeline.epoch(0) {
    ///     let batch = batch?;
    ///     assert_eq!((batch.repetitions(), batch.stored_sizes()[0]), (vec![0, 1, 0, 1], Size::new(40, 30)));
    ///     let map = PointMap::new(&batch.recipes(1)?[0], batch.stored_sizes()[1])?;
    ///     assert_eq!(map.size(), Size::new(8, 8));
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] if the batch has no such sample; the errors of the transforms, although none occurred when
    /// the batch was made.
    pub fn recipes(&self, i: usize) -> Result<Vec<Vec<Op>>> {
        let expected = || Error::parameter("Batch::recipes", "i", format!("below {}", self.len()), i);
        let drawn = self.drawn.get(i).copied().ok_or_else(expected)?;
        let seen = self.seen.get(i);
        let unseen = Annotation::default();
        let (setup, epoch) = (&*self.moment.setup, self.moment.epoch);
        let partners = match &setup.input {
            Input::DataSet(source) => Some(SourcePartners { setup, source: &**source }),
            Input::Stream(_) => None,
        };
        let partners = partners.as_ref().map(|partners| partners as &dyn Partners);
        setup.recipes.draw(epoch, drawn, seen.unwrap_or(&unseen), partners).map(|drawn| drawn.recipes)
    }

    /// Number of samples, padding included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// What the images have in common, where that differs from batch to batch
    /// ([`PipelineBuilder::buckets`](crate::PipelineBuilder::buckets)); `None` where all batches are alike.
    #[must_use]
    pub fn shape(&self) -> Option<BatchShape> {
        self.drawn.first()?.shape
    }

    /// Whether the batch has no image. A pipeline never delivers such a batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Number of samples at the end that only repeat the last one to fill the batch
    /// ([`LastBatch::Pad`](crate::LastBatch::Pad)).
    #[must_use]
    pub fn padding(&self) -> usize {
        self.padding
    }

    /// The state of the epoch after this batch. Save it once the training step on this batch is done.
    ///
    /// ```
    /// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// # use warpfeed::prelude::*;
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// # let source = EncodedImages::new((0..10).map(|label| (jpeg.clone(), label)));
    /// let pipeline = Pipeline::builder(source).batch_size(4).transform(CenterCrop::new(8)).build()?;
    /// let mut state = None;
    /// for batch in pipeline.epoch(0).take(2) {
    ///     state = Some(batch?.state());
    /// }
    /// let rest = pipeline.resume(&state.unwrap())?.next().unwrap()?;
    /// assert_eq!(rest.indices(), [8, 9]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub fn state(&self) -> EpochState {
        self.moment.state()
    }

    /// Takes the images out of the batch; with several views, those of the first view. Their memory goes back to the
    /// pipeline when the tensors are dropped.
    #[must_use]
    pub fn into_images(mut self) -> I {
        self.views.swap_remove(0)
    }

    /// Takes all views out of the batch. Their memory goes back to the pipeline when the tensors are dropped.
    #[must_use]
    pub fn into_views(self) -> Vec<I> {
        self.views
    }

    /// Takes images, labels and indices out of the batch; `None` for labels if the source has none. The images' memory
    /// goes back to the pipeline when the tensors are dropped.
    #[must_use]
    pub fn into_parts(mut self) -> (I, Option<Vec<u32>>, Vec<u64>) {
        (self.views.swap_remove(0), self.labels, self.indices)
    }
}

/// The error of a batch whose labels are asked for and that has none.
fn no_labels() -> Error {
    let expected = "a source with labels: its images have none. Name the field that holds them (RecordOptions::label, \
                    --label-field), give labels (SourceExt::relabel), take the images alone (Batch::into_images), or train \
                    on targets or fields";
    Error::parameter("Batch::labels", "source", expected, "one without labels")
}

#[cfg(feature = "candle")]
impl Batch {
    /// Turns images and labels (`[N]`, u32) into tensors of candle 0.11 on `device`, without the batch's padding. With
    /// several views, the images are those of the first view. candle's CPU gets the images without a copy: see
    /// [`Tensor::into_candle`], which also serves batches without labels. Targets are taken out before
    /// ([`take_targets`](Self::take_targets)): in a mixed batch they, and not the labels, describe the images.
    ///
    /// # Synchronization
    /// See [`Tensor::into_candle`].
    ///
    /// # Errors
    /// [`Error::Parameter`] if the source has no labels, [`Error::Unsupported`] if targets are left in the batch,
    /// [`Error::Device`] if candle cannot copy images and labels to `device`.
    pub fn into_candle(self, device: &candle_core::Device) -> Result<(candle_core::Tensor, candle_core::Tensor)> {
        self.check_targets_taken("Batch::into_candle")?;
        let (all, count) = (self.len(), self.len() - self.padding());
        let (images, labels, _) = self.into_parts();
        let labels = labels.ok_or_else(no_labels)?;
        let failed = |error| crate::tensor::candle_failed("Batch::into_candle", &error);
        let labels = candle_core::Tensor::from_slice(&labels[..count], count, device).map_err(failed)?;
        let mut images = images.into_candle(device)?;
        if count < all {
            // A view has the first images of all samples, then the second ones, and so on.
            let mut parts = (0..images.dim(0).map_err(failed)? / all).map(|time| images.narrow(0, time * all, count));
            let parts = parts.by_ref().collect::<candle_core::Result<Vec<_>>>().map_err(failed)?;
            images = candle_core::Tensor::cat(&parts, 0).map_err(failed)?;
        }
        Ok((images, labels))
    }
}
