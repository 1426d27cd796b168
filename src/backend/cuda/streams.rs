//! The streams of one pipeline on a device: copies to the device are queued on one, kernels on the other.
#![allow(unsafe_code)]

use super::in_flight::InFlight;
use crate::cuda::driver::{self, Context, Entered, Stream};
use crate::device::StreamPriority;
use crate::error::Result;
use crate::trace::{Activity, Span};

/// A part of a batch's way over the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The copy to the device.
    Transfer,
    /// The kernels of its plans.
    Kernels,
}

/// A function that has a part queued: [`once`], but where an experiment measures what the part costs.
pub(super) type Queue = fn(Part, &dyn Fn() -> Result<()>) -> Result<()>;

/// Has a part queued.
pub(super) fn once(_: Part, queue: &dyn Fn() -> Result<()>) -> Result<()> {
    queue()
}

/// A context and two streams of it.
pub(super) struct Streams {
    /// Of kernels.
    pub(super) compute: Stream,
    /// Of copies to the device.
    pub(super) copy: Stream,
    pub(super) context: Context,
    queue: Queue,
}

impl Streams {
    pub(super) fn new(context: &Context, priority: StreamPriority, queue: Queue) -> Result<Self> {
        let (compute, copy) = (Stream::new(context, priority)?, Stream::new(context, priority)?);
        Ok(Self { compute, copy, context: Context::clone(context), queue })
    }

    /// Makes the context current on this thread.
    pub(super) fn enter(&self) -> Result<Entered> {
        driver::enter(&self.context)
    }

    /// Queues a part of a batch's way.
    pub(super) fn queue(&self, part: Part, queue: &dyn Fn() -> Result<()>) -> Result<()> {
        (self.queue)(part, queue)
    }

    /// Queues the copy of what the host has written for a batch since this was called last. Launches that are queued later
    /// come behind it.
    pub(super) fn upload(&self, batch: &InFlight) -> Result<()> {
        let _upload = Span::enter(Activity::Upload);
        // SAFETY: what was written is not written again; its memory is neither reset nor dropped before `done` has passed
        // (`Batches::begin`), or the streams have been waited for (`Gpu::abandon`).
        unsafe { batch.arena.upload(&self.copy, self.queue)? };
        batch.uploaded.record(&self.copy)?;
        self.compute.wait(&batch.uploaded)
    }

    /// Waits for all that was queued by anybody.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.copy.synchronize()?;
        self.compute.synchronize()
    }
}
