//! The decoder's state for an in-flight batch.
#![allow(unsafe_code)]

use super::kernels::{JpegKernels, Staged};
use crate::cuda::driver::{self, Context, Event, HostMemory, Stream};
use crate::error::Result;

/// What the decoder needs of an in-flight batch.
pub(in crate::backend::cuda) struct Decoding {
    /// A word for each image of a full batch, which the device copies here: why it flags the image.
    status: HostMemory,
    /// The words are here.
    judged: Event,
    began: Event,
    ended: Event,
}

impl Decoding {
    /// For batches of up to so many images.
    pub(super) fn new(context: &Context, images: usize) -> Result<Self> {
        Ok(Self {
            // Pinned whatever the rest is: the host would wait for a copy to pageable memory in the call.
            status: HostMemory::new(context, images * size_of::<u32>(), true)?,
            judged: Event::new(context)?,
            began: Event::timed(context)?,
            ended: Event::timed(context)?,
        })
    }

    /// How long the device took for the last batch, which it is done with.
    pub(in crate::backend::cuda) fn took_ms(&self) -> Option<f32> {
        self.ended.since_ms(&self.began)
    }

    /// Queues the launches, and waits for the images' status.
    ///
    /// # Safety
    /// The stream has been made to wait for the batch's staging memory, which is used again only after the batch is done.
    /// The batch has no more images than this is for.
    pub(super) unsafe fn queue(
        &mut self,
        images: &Staged,
        kernels: &JpegKernels,
        compute: &Stream,
    ) -> Result<Vec<u32>> {
        self.began.record(compute)?;
        // SAFETY: the images and all that they point to lie in the batch's arena; the rest is the contract.
        unsafe { images.judge(kernels, compute)? };
        let (status, len_bytes) = (self.status.start(), size_of::<u32>() * images.len());
        // SAFETY: there is a word for each image of a full batch, and nobody touches them before the event.
        unsafe { driver::download_later(status, images.status(), len_bytes, compute)? };
        self.judged.record(compute)?;
        // SAFETY: as above.
        unsafe { images.make(kernels, compute)? };
        self.ended.record(compute)?;
        self.judged.synchronize()?;
        // SAFETY: written by the copy that was just waited for; pinned memory begins at a page.
        Ok(unsafe { std::slice::from_raw_parts(status.cast::<u32>(), images.len()) }.to_vec())
    }
}
