//! The decoder's state for an in-flight batch.
#![allow(unsafe_code)]

use super::kernels::{JpegKernels, Staged};
use super::learning::{Learning, UnstoredPlaces};
use crate::backend::cuda::streams::Streams;
use crate::cuda::driver::{self, Event, HostMemory, Stream};
use crate::error::Result;

/// The decoder's state for an in-flight batch.
pub(in crate::backend::cuda) struct Decoding {
    /// One word for each image of a full batch, copied here by the device: the reason for which it flags the image.
    status: HostMemory,
    /// The images whose places are found out, and the memory that the device copies the places to.
    learning: Option<(Learning, HostMemory)>,
    /// Number of batches whose Huffman codes are decoded at a time.
    at_a_time: usize,
    began: Event,
    /// Passes when the words have arrived.
    judged: Event,
    making: Event,
    ended: Event,
}

impl Decoding {
    /// State for batches of up to `images` images. To host memory that is not pinned, the status is copied by a call
    /// that waits for it.
    pub(super) fn new(streams: &Streams, images: usize, pinned: bool) -> Result<Self> {
        let context = &streams.context;
        Ok(Self {
            status: HostMemory::new(context, images * size_of::<u32>(), pinned)?,
            learning: None,
            at_a_time: streams.huffman_at_a_time(),
            began: Event::timed(context)?,
            judged: Event::timed(context)?,
            making: Event::timed(context)?,
            ended: Event::timed(context)?,
        })
    }

    /// The device's time for the last batch, which must be complete: that of the slower half, because the Huffman codes
    /// of the next batches are decoded during the second half of this one. These batches share their time.
    pub(in crate::backend::cuda) fn took_ms(&self) -> Option<f32> {
        let huffman = self.judged.since_ms(&self.began)? / self.at_a_time as f32;
        Some(huffman.max(self.ended.since_ms(&self.making)?))
    }

    /// Queues the launches, and waits for the images' status.
    ///
    /// # Safety
    /// `huffman` and the stream of kernels have been made to wait for the batch's staging memory, which is reused only
    /// after the batch is done. The batch has no more images than [`new`](Self::new) was told.
    pub(super) unsafe fn queue(
        &mut self,
        images: &Staged,
        (learning, unstored): (Learning, &UnstoredPlaces),
        pinned: bool,
        kernels: &JpegKernels,
        huffman: &Stream,
        Streams { compute, context, .. }: &Streams,
    ) -> Result<Vec<u32>> {
        self.began.record(huffman)?;
        // SAFETY: the images and all memory that they point to lie in the batch's arena; the rest is the contract.
        unsafe { images.judge(kernels, huffman)? };
        let (status, len_bytes) = (self.status.start(), size_of::<u32>() * images.len());
        // SAFETY: there is a word for each image of a full batch, and the words are not used before the event.
        unsafe { driver::download_later(status, images.status(), len_bytes, huffman)? };
        self.judged.record(huffman)?;
        compute.wait(&self.judged)?;
        self.making.record(compute)?;
        // SAFETY: as above.
        unsafe { images.make(kernels, compute)? };
        self.ended.record(compute)?;
        // Without host memory the places are lost, and that costs a later epoch time.
        if learning.len_bytes() > 0
            && let Ok(places) = unstored.memory(&learning, context, pinned)
        {
            // SAFETY: the memory is long enough, and it is not used before the batch is done. The places lie in the
            // arena.
            unsafe { driver::download_later(places.start(), learning.address(), learning.len_bytes(), compute)? };
            self.learning = Some((learning, places));
        }
        self.judged.synchronize()?;
        // SAFETY: the copy that wrote the words has just been waited for.
        let words = unsafe { std::slice::from_raw_parts(status.cast_const(), len_bytes) };
        let status: Vec<_> = words.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        self.learning.iter_mut().for_each(|(learning, _)| learning.judge(&status));
        Ok(status)
    }

    /// Forgets the places to be learned.
    pub(in crate::backend::cuda) fn forget(&mut self) {
        self.learning = None;
    }

    /// Hands over the places that were found out. The batch's work has been waited for.
    pub(super) fn collect(&mut self, unstored: &UnstoredPlaces) {
        if let Some((learning, memory)) = self.learning.take() {
            unstored.add(learning, memory);
        }
    }
}
