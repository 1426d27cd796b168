//! Pipelines whose images each have a size of their own, and their batches: lists of tensors.

use super::batch::Batch;
use super::policy::BadSample;
use super::state::{EpochState, Moment};
use super::stats::Stats;
use super::{Epoch, MemoryBound, Pipeline};
use crate::error::Result;
use crate::ops::Op;
use crate::tensor::{Targets, Tensor};

/// A pipeline whose images keep the size that the operations give each of them, as detection is trained and as
/// evaluation at full size needs it: a batch is a list of tensors. Everything else is as in a [`Pipeline`].
///
/// Memory is taken as images come, and is used again. A batch takes what its images need;
/// [`Builder::max_pixels`](crate::Builder::max_pixels) limits each of them.
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

    /// The batches of one epoch, as of [`Pipeline::epoch`].
    #[must_use]
    pub fn epoch(&self, epoch: u64) -> UnequalEpoch {
        UnequalEpoch { epoch: self.pipeline.epoch(epoch) }
    }

    /// The rest of an epoch, as of [`Pipeline::resume`].
    ///
    /// # Errors
    /// As of [`Pipeline::resume`].
    pub fn resume(&self, state: &EpochState) -> Result<UnequalEpoch> {
        Ok(UnequalEpoch { epoch: self.pipeline.resume(state)? })
    }

    /// The explicit operations that a sample goes through, as of [`Pipeline::recipe`].
    ///
    /// # Errors
    /// As of [`Pipeline::recipe`].
    pub fn recipe(&self, epoch: u64, index: u64) -> Result<Vec<Op>> {
        self.pipeline.recipe(epoch, index)
    }

    /// Samples an epoch, as of [`Pipeline::len`].
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        self.pipeline.len()
    }

    /// Whether an epoch is known to have no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pipeline.is_empty()
    }

    /// Batches an epoch, as of [`Pipeline::batches`].
    #[must_use]
    pub fn batches(&self) -> Option<u64> {
        self.pipeline.batches()
    }

    /// Names of the classes, by label; empty if the source has none.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        self.pipeline.classes()
    }

    /// The device that recipes run on, in words.
    #[must_use]
    pub fn device_name(&self) -> String {
        self.pipeline.device_name()
    }

    /// The memory it takes at most.
    #[must_use]
    pub fn memory(&self) -> MemoryBound {
        self.pipeline.memory()
    }
}

/// An iterator over the batches of one epoch of an [`UnequalPipeline`], as [`Epoch`] is over a pipeline's.
#[derive(Debug)]
pub struct UnequalEpoch {
    epoch: Epoch,
}

impl UnequalEpoch {
    /// Where it stands, as of [`Epoch::state`].
    #[must_use]
    pub fn state(&self) -> EpochState {
        self.epoch.state()
    }

    /// What has been done so far and where the time went.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.epoch.stats()
    }

    /// The samples that could not be used so far, as of [`Epoch::bad`].
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

/// A batch whose images each have a size of their own. Dropping one gives its memory back to the pipeline.
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
    /// The images, in the order of the epoch: each `[1, 3, H, W]` or `[1, H, W, 3]`. On a device
    /// [`CudaBuffer::labels_address`](crate::CudaBuffer::labels_address) is that of the image's own label.
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

    /// The targets that were asked for ([`Builder::targets`](crate::Builder::targets)).
    #[must_use]
    pub fn targets(&self) -> Option<&Targets> {
        self.targets.as_ref()
    }

    /// The targets, to be given away before the images are.
    #[must_use]
    pub fn take_targets(&mut self) -> Option<Targets> {
        self.targets.take()
    }

    /// Number of images, padding included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether it holds no image. A pipeline never gives such a batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// How many images at the end repeat others, as [`Builder::even`](crate::Builder::even) asks for.
    #[must_use]
    pub fn padding(&self) -> usize {
        self.padding
    }

    /// Where its epoch stands after this batch, as of [`Batch::state`].
    #[must_use]
    pub fn state(&self) -> EpochState {
        self.moment.state()
    }

    /// Images, labels and indices, to be given away.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Tensor>, Vec<u32>, Vec<u64>) {
        (self.images, self.labels, self.indices)
    }
}
