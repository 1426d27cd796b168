//! The streams of one pipeline: for copies, for Huffman codes, and for all other kernels.
#![allow(unsafe_code)]

use super::in_flight::InFlight;
use crate::cuda::driver::{self, Context, Entered, Stream};
use crate::device::StreamPriority;
use crate::error::Result;
use crate::trace::{Activity, Span};

/// Largest number of streams for Huffman codes. A card has 8 hardware queues unless CUDA_DEVICE_MAX_CONNECTIONS says
/// otherwise, and the trainer has streams too; streams that share a queue wait for each other.
const HUFFMAN_STREAMS: usize = 4;

/// A part of a batch's work on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The copy to the device.
    Transfer,
    /// The kernels of the batch's plans.
    Kernels,
}

/// A function that queues a part: [`once`], or an experiment's own that measures the cost of the part.
pub(in crate::backend) type Queue = fn(Part, &dyn Fn() -> Result<()>) -> Result<()>;

/// Queues a part once.
pub(super) fn once(_: Part, queue: &dyn Fn() -> Result<()>) -> Result<()> {
    queue()
}

/// A context and its streams for a pipeline.
pub(super) struct Streams {
    /// The stream of kernels.
    pub(super) compute: Stream,
    /// The streams of the JPEG decoder's kernels up to its transforms. They take long and use little of the card, so
    /// those of several batches run at the same time, together with the other kernels of earlier batches.
    huffman: Vec<Stream>,
    /// The stream of copies to the device.
    pub(super) copy: Stream,
    pub(super) context: Context,
    queue: Queue,
}

impl Streams {
    /// Streams for a pipeline that finishes up to `batches` batches at a time.
    pub(super) fn new(context: &Context, priority: StreamPriority, batches: usize, queue: Queue) -> Result<Self> {
        let stream = || Stream::new(context, priority);
        let huffman = (0..batches.clamp(1, HUFFMAN_STREAMS)).map(|_| stream()).collect::<Result<_>>()?;
        Ok(Self { compute: stream()?, huffman, copy: stream()?, context: Context::clone(context), queue })
    }

    /// The stream of a batch's Huffman codes. Batches take turns.
    pub(super) fn huffman(&self, batch: &InFlight) -> &Stream {
        &self.huffman[(batch.number % self.huffman.len() as u64) as usize]
    }

    /// Number of batches whose Huffman codes are decoded at a time.
    pub(super) fn huffman_at_a_time(&self) -> usize {
        self.huffman.len()
    }

    /// Makes the context current on this thread.
    pub(super) fn enter(&self) -> Result<Entered> {
        driver::enter(&self.context)
    }

    /// The same for a sample of a batch, whose beginning has asked whether the context is gone.
    pub(super) fn enter_again(&self) -> Result<Entered> {
        driver::enter_again(&self.context)
    }

    /// Queues a part of a batch.
    pub(super) fn queue(&self, part: Part, queue: &dyn Fn() -> Result<()>) -> Result<()> {
        (self.queue)(part, queue)
    }

    /// Queues the copy of all data that the host has written for a batch since the last call. Launches that are queued
    /// later wait for it.
    pub(super) fn upload(&self, batch: &InFlight) -> Result<()> {
        let _upload = Span::enter(Activity::Upload);
        // SAFETY: the data are not written again. Their memory is neither reset nor dropped before `done` has passed
        // (`Batches::begin`) or the streams have been waited for (`Gpu::abandon`).
        unsafe { batch.arena.upload(&self.copy, self.queue)? };
        batch.uploaded.record(&self.copy)?;
        self.compute.wait(&batch.uploaded)
    }

    /// Waits for all work on the streams.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.copy.synchronize()?;
        self.huffman.iter().try_for_each(Stream::synchronize)?;
        self.compute.synchronize()
    }
}
