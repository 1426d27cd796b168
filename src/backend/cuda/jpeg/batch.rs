//! The decoder's state for an in-flight batch.
#![allow(unsafe_code)]

use super::kernels::{JpegKernels, Staged};
use crate::cuda::driver::{self, Context, Event, HostMemory, Stream};
use crate::error::Result;

/// The decoder's state for an in-flight batch.
pub(in crate::backend::cuda) struct Decoding {
    /// One word for each image of a full batch, copied here by the device: the reason for which it flags the image.
    status: HostMemory,
    began: Event,
    /// Passes when the words have arrived.
    judged: Event,
    making: Event,
    ended: Event,
}

impl Decoding {
    /// State for batches of up to `images` images.
    pub(super) fn new(context: &Context, images: usize) -> Result<Self> {
        Ok(Self {
            // Pinned even if other memory is not, because a copy to pageable memory would block the call.
            status: HostMemory::new(context, images * size_of::<u32>(), true)?,
            began: Event::timed(context)?,
            judged: Event::timed(context)?,
            making: Event::timed(context)?,
            ended: Event::timed(context)?,
        })
    }

    /// The device's time for the last batch, which must be complete: that of the slower half, because the first half of
    /// the next batch runs beside the second half of this one.
    pub(in crate::backend::cuda) fn took_ms(&self) -> Option<f32> {
        Some(self.judged.since_ms(&self.began)?.max(self.ended.since_ms(&self.making)?))
    }

    /// Queues the launches, and waits for the images' status.
    ///
    /// # Safety
    /// Both streams have been made to wait for the batch's staging memory, which is reused only after the batch is done.
    /// The batch has no more images than [`new`](Self::new) was told.
    pub(super) unsafe fn queue(
        &mut self,
        images: &Staged,
        kernels: &JpegKernels,
        huffman: &Stream,
        compute: &Stream,
    ) -> Result<Vec<u32>> {
        self.began.record(huffman)?;
        // SAFETY: the images and all memory that they point to lie in the batch's arena; the rest is the contract.
        unsafe { images.judge(kernels, huffman)? };
        let (status, len_bytes) = (self.status.start(), size_of::<u32>() * images.len());
        // SAFETY: there is a word for each image of a full batch, and nobody uses the words before the event.
        unsafe { driver::download_later(status, images.status(), len_bytes, huffman)? };
        self.judged.record(huffman)?;
        compute.wait(&self.judged)?;
        self.making.record(compute)?;
        // SAFETY: as above.
        unsafe { images.make(kernels, compute)? };
        self.ended.record(compute)?;
        self.judged.synchronize()?;
        // SAFETY: the copy that wrote the words has just been waited for; pinned memory begins at a page.
        Ok(unsafe { std::slice::from_raw_parts(status.cast::<u32>(), images.len()) }.to_vec())
    }
}
