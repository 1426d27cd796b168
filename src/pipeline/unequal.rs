//! Pipelines and batches with images of different sizes: a batch is a list of tensors.

use super::batch::Batch;
use super::policy::BadSample;
use super::state::{EpochState, Moment};
use super::stats::Stats;
use super::{Epoch, MemoryBound, Pipeline};
use crate::error::Result;
use crate::ops::Op;
use crate::tensor::{Targets, Tensor};

/// A pipeline whose images keep the sizes that the operations give them, for training detectors and for evaluation at
/// full size. A batch is a list of tensors. In all else it is like a [`Pipeline`].
///
/// Memory is taken when images come, and is reused. A batch takes the memory of its images;
/// [`Builder::max_pixels`](crate::Builder::max_pixels) limits the size of each.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::ops::Resize;
/// use warpfeed::prelude::*;
///
/// let jpeg = |width, height| encode_jpeg(&Image::new(Size::new(width, height)), &JpegOptions::default());
/// let source = EncodedImages::new([(jpeg(40, 30)?, 0), (jpeg(20, 60)?, 1)]);
/// let pipeline = Pipeline::builder(source)
///     .augment(Resize::shorter_side_within(16, 32))
///     .normalize(IMAGENET_MEAN, IMAGENET_STD)
///     .build_unequal()?;
/// for batch in pipeline.epoch(0) {
///     let batch = batch?;
///     assert_eq!(batch.images()[0].shape(), [1, 3, 16, 21]);
///     assert_eq!(batch.images()[1].shape(), [1, 3, 32, 10]);
///     assert_eq!(batch.labels(), [0, 1]);
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct UnequalPipeline {
    pipeline: Pipeline,
}

impl UnequalPipeline {
    pub(super) fn new(pipeline: Pipeline) -> Self {
        Self { pipeline }
    }

    /// Starts an epoch and returns an iterator over its batches. See [`Pipeline::epoch`].
    #[must_use]
    pub fn epoch(&self, epoch: u64) -> UnequalEpoch {
        UnequalEpoch { epoch: self.pipeline.epoch(epoch) }
    }

    /// Continues an epoch from a state. See [`Pipeline::resume`].
    ///
    /// # Errors
    /// The errors of [`Pipeline::resume`].
    pub fn resume(&self, state: &EpochState) -> Result<UnequalEpoch> {
        Ok(UnequalEpoch { epoch: self.pipeline.resume(state)? })
    }

    /// The explicit operations that a sample goes through. See [`Pipeline::recipe`].
    ///
    /// # Errors
    /// The errors of [`Pipeline::recipe`].
    pub fn recipe(&self, epoch: u64, index: u64) -> Result<Vec<Op>> {
        self.pipeline.recipe(epoch, index)
    }

    /// Number of samples in an epoch. See [`Pipeline::len`].
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        self.pipeline.len()
    }

    /// Whether an epoch is known to have no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pipeline.is_empty()
    }

    /// Number of batches in an epoch. See [`Pipeline::batches`].
    #[must_use]
    pub fn batches(&self) -> Option<u64> {
        self.pipeline.batches()
    }

    /// Names of the classes, by label; empty if the source has none.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        self.pipeline.classes()
    }

    /// Name of the device that runs the recipes, for people.
    #[must_use]
    pub fn device_name(&self) -> String {
        self.pipeline.device_name()
    }

    /// Upper bound of the memory that the pipeline takes.
    #[must_use]
    pub fn memory(&self) -> MemoryBound {
        self.pipeline.memory()
    }
}

/// An iterator over the batches of one epoch of an [`UnequalPipeline`], like [`Epoch`] for a [`Pipeline`].
#[derive(Debug)]
pub struct UnequalEpoch {
    epoch: Epoch,
}

impl UnequalEpoch {
    /// The state after the last batch. See [`Epoch::state`].
    #[must_use]
    pub fn state(&self) -> EpochState {
        self.epoch.state()
    }

    /// Counts and times of the epoch so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.epoch.stats()
    }

    /// The samples so far that could not be used. See [`Epoch::bad`].
    #[must_use]
    pub fn bad(&self) -> Vec<BadSample> {
        self.epoch.bad()
    }
}

impl Iterator for UnequalEpoch {
    type Item = Result<UnequalBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.epoch.next()?.map(UnequalBatch::from))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.epoch.size_hint()
    }
}

/// A batch whose images may differ in size. Dropping it gives its memory back to the pipeline.
#[derive(Debug)]
pub struct UnequalBatch {
    images: Vec<Tensor>,
    labels: Vec<u32>,
    indices: Vec<u64>,
    targets: Option<Targets>,
    padding: usize,
    moment: Moment,
}

impl From<Batch> for UnequalBatch {
    fn from(batch: Batch) -> Self {
        let Batch { images, others, labels, indices, targets, padding, moment, .. } = batch;
        let images = std::iter::once(images).chain(others).collect();
        Self { images, labels, indices, targets, padding, moment }
    }
}

impl UnequalBatch {
    /// The images, in the order of the epoch: each `[1, 3, H, W]` or `[1, H, W, 3]`. On a device,
    /// [`CudaBuffer::labels_address`](crate::CudaBuffer::labels_address) is the address of the image's own label.
    #[must_use]
    pub fn images(&self) -> &[Tensor] {
        &self.images
    }

    /// The label of each image.
    #[must_use]
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The index of each image's sample in the source.
    #[must_use]
    pub fn indices(&self) -> &[u64] {
        &self.indices
    }

    /// The targets; `None` without [`Builder::targets`](crate::Builder::targets).
    #[must_use]
    pub fn targets(&self) -> Option<&Targets> {
        self.targets.as_ref()
    }

    /// Takes the targets out of the batch, so that the images can stay in it.
    #[must_use]
    pub fn take_targets(&mut self) -> Option<Targets> {
        self.targets.take()
    }

    /// Number of images, padding included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether the batch has no image. A pipeline never delivers such a batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Number of images at the end that only repeat others, for [`Builder::even`](crate::Builder::even).
    #[must_use]
    pub fn padding(&self) -> usize {
        self.padding
    }

    /// The state of the epoch after this batch. See [`Batch::state`].
    #[must_use]
    pub fn state(&self) -> EpochState {
        self.moment.state()
    }

    /// Takes images, labels and indices out of the batch.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Tensor>, Vec<u32>, Vec<u64>) {
        (self.images, self.labels, self.indices)
    }
}
