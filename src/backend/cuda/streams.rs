//! The streams of one pipeline on a device: for copies to the device, for Huffman codes, and for all other kernels.
#![allow(unsafe_code)]

use super::in_flight::InFlight;
use crate::cuda::driver::{self, Context, Entered, Stream};
use crate::device::StreamPriority;
use crate::error::Result;
use crate::trace::{Activity, Span};

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
    /// The stream of the JPEG decoder's kernels up to its transforms. They take long and use little of the card, so those
    /// of the next batch run beside the other kernels of this one.
    pub(super) huffman: Stream,
    /// The stream of copies to the device.
    pub(super) copy: Stream,
    pub(super) context: Context,
    queue: Queue,
}

impl Streams {
    pub(super) fn new(context: &Context, priority: StreamPriority, queue: Queue) -> Result<Self> {
        let stream = || Stream::new(context, priority);
        let (compute, huffman, copy) = (stream()?, stream()?, stream()?);
        Ok(Self { compute, huffman, copy, context: Context::clone(context), queue })
    }

    /// Makes the context current on this thread.
    pub(super) fn enter(&self) -> Result<Entered> {
        driver::enter(&self.context)
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
        self.huffman.synchronize()?;
        self.compute.synchronize()
    }
}
