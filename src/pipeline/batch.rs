//! Batches, and the pool that their memory comes from and goes back to.

use crate::tensor::{HostBuffer, Tensor};
use std::sync::{Arc, Mutex, PoisonError};

/// Pictures ready for a training step, with their labels. Dropping it gives its memory back to the pipeline.
///
/// ```
/// # use warpfeed::*;
/// # fn source(n: u32) -> Result<EncodedPictures> {
/// #     let jpeg = encode_jpeg(&Picture::new(Size::new(40, 30)), &JpegOptions::default())?;
/// #     Ok(EncodedPictures::new((0..n).map(|label| (jpeg.clone(), label))))
/// # }
/// let pipeline = Pipeline::builder(source(3)?).batch_size(4).last_batch(LastBatch::Pad).center_crop(8).build()?;
/// for batch in pipeline.epoch(0) {
///     let batch = batch?;
///     assert_eq!(batch.images().shape(), [4, 3, 8, 8]);
///     assert_eq!(batch.labels(), [0, 1, 2, 2]);
///     assert_eq!(batch.indices(), [0, 1, 2, 2]);
///     assert_eq!(batch.padding(), 1);
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Batch {
    images: Tensor,
    labels: Vec<u32>,
    indices: Vec<u64>,
    padding: usize,
    pool: Arc<Pool>,
}

impl Batch {
    pub(super) fn new(images: Tensor, labels: Vec<u32>, indices: Vec<u64>, padding: usize, pool: Arc<Pool>) -> Self {
        Self { images, labels, indices, padding, pool }
    }

    /// The pictures: `[N, 3, H, W]` or `[N, H, W, 3]`, in the order of the epoch.
    #[must_use]
    pub fn images(&self) -> &Tensor {
        &self.images
    }

    /// The label of each picture.
    #[must_use]
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The index of each picture in the source.
    #[must_use]
    pub fn indices(&self) -> &[u64] {
        &self.indices
    }

    /// Number of pictures, padding included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether it holds no picture. A pipeline never gives such a batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// How many pictures at the end are repetitions of the last one, there to fill the batch
    /// ([`LastBatch::Pad`](crate::LastBatch::Pad)).
    #[must_use]
    pub fn padding(&self) -> usize {
        self.padding
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.pool.give(self.images.take_buffer());
    }
}

/// Buffers of one batch each, for reuse: fresh memory costs the operating system a page fault every 4 KiB.
#[derive(Debug)]
pub(super) struct Pool {
    free: Mutex<Vec<HostBuffer>>,
    buffer_bytes: usize,
    keep: usize,
}

impl Pool {
    /// A pool of buffers of `buffer_bytes` that keeps at most `keep` of them.
    pub(super) fn new(buffer_bytes: usize, keep: usize) -> Self {
        Self { free: Mutex::default(), buffer_bytes, keep }
    }

    pub(super) fn take(&self) -> HostBuffer {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| HostBuffer::new(self.buffer_bytes))
    }

    pub(super) fn give(&self, buffer: HostBuffer) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.keep {
            free.push(buffer);
        }
    }
}
