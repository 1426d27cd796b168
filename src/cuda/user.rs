//! Streams that read batches, and points in their work.
#![allow(unsafe_code)]

use super::driver::{self, Context, Event, LEGACY};
use crate::error::{Error, Result};
use cudarc::driver::{CudaStream, sys};
use std::any::Any;
use std::sync::Arc;

/// The default stream of the calling thread.
pub(super) const PER_THREAD: sys::CUstream = std::ptr::without_provenance_mut(2);

/// What keeps a stream of another library's.
pub type StreamOwner = Arc<dyn Any + Send + Sync>;

/// A stream that reads a batch.
pub(crate) enum User {
    Cudarc(Arc<CudaStream>),
    /// A stream of another library's; its number, if the driver has numbers; and what keeps it, if the library said so.
    Raw(sys::CUstream, Option<u64>, Option<StreamOwner>),
}

// SAFETY: streams belong to a context, not to a thread.
unsafe impl Send for User {}

impl User {
    pub(super) fn raw(&self) -> sys::CUstream {
        match self {
            Self::Cudarc(stream) => stream.cu_stream(),
            Self::Raw(stream, ..) => *stream,
        }
    }

    /// Whether the stream lives as long as this.
    pub(super) fn keeps(&self) -> bool {
        !matches!(self, Self::Raw(_, _, None))
    }

    /// The stream, named so that it means the same on every thread and includes this stream's work.
    fn raw_on_any_thread(&self) -> sys::CUstream {
        // The legacy default stream waits for every thread's default stream.
        if self.raw() == PER_THREAD { LEGACY } else { self.raw() }
    }

    /// Whether an event cannot be recorded now, because it would belong to a graph. The context must be current.
    fn is_capturing(&self) -> Result<bool> {
        // SAFETY: the streams are alive: kept so, or by the contract of `Raw`.
        unsafe { Ok(driver::is_capturing(self.raw())? || self.raw() == PER_THREAD && driver::is_capturing(LEGACY)?) }
    }

    /// Records the work queued on the stream so far. `None` if the stream captures. The context must be current.
    ///
    /// # Errors
    /// [`Error::Device`] if the stream is gone, or if the context has failed.
    pub(crate) fn reached(&self, context: &Context, spare: Option<Event>) -> Result<Option<Event>> {
        if let &Self::Raw(stream, Some(id), _) = self
            // SAFETY: by the contract of whoever named them.
            && unsafe { driver::stream_id(stream) } != Some(id)
        {
            return Err(Error::parameter("CudaBuffer", "stream", "one that lives as long as the batch", "none"));
        }
        if self.is_capturing()? {
            return Ok(None);
        }
        let stream = self.raw_on_any_thread();
        let event = spare.map_or_else(|| Event::new(context), Ok);
        // SAFETY: the stream is alive, as in `is_capturing`.
        let recorded = event.and_then(|event| unsafe { event.record_raw(stream) }.map(|()| event));
        // A capture may have begun in between. The event is then a part of it, which does not harm it.
        if self.is_capturing()? {
            return Ok(None);
        }
        recorded.map(Some).or_else(|_| {
            // SAFETY: as above.
            unsafe { driver::synchronize(stream)? };
            // A new event counts as passed.
            Event::new(context).map(Some)
        })
    }
}
