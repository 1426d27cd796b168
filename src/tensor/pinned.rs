//! Pinned memory of batches, and the streams that read it.
#![allow(unsafe_code)]

use crate::cuda::User;
use crate::cuda::driver::{self, Context, Event, Pin};
use crate::error::Result;
use cudarc::driver::{CudaStream, sys};
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A buffer's pin.
pub(super) struct Pinned {
    pin: Pin,
    /// The streams that were named as readers, whose work is not recorded yet.
    users: Mutex<Vec<User>>,
    /// Recorded where the other named streams stood when the buffer came back.
    read: Vec<Event>,
    /// Whether a named stream's work could not be recorded.
    is_unknown: bool,
    /// Whether the consumer has had the buffer's address.
    is_shown: AtomicBool,
}

/// What may still read a buffer, in the order in which buffers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Readers {
    /// Nothing.
    Done,
    /// Streams that were named, up to recorded events.
    Named,
    /// Any stream.
    Unknown,
    /// A stream that was named and captures a graph, so no event can be recorded on it.
    Capturing,
}

impl Pinned {
    /// Pins memory.
    ///
    /// # Safety
    /// The memory is allocated until this is dropped, and begins and ends with a page.
    pub(super) unsafe fn new(context: &Context, memory: &mut [u8]) -> Result<Self> {
        // SAFETY: the contract.
        let pin = unsafe { Pin::new(context, memory)? };
        Ok(Self { pin, users: Mutex::default(), read: Vec::new(), is_unknown: false, is_shown: AtomicBool::new(false) })
    }

    pub(super) fn context(&self) -> &Context {
        self.pin.context()
    }

    /// Adds a stream that reads the buffer.
    pub(super) fn read_on(&self, stream: &Arc<CudaStream>) -> Result<()> {
        let _entered = driver::enter(self.context())?;
        // SAFETY: the stream is alive.
        unsafe { driver::check_user("Tensor::read_on", driver::COPY_BEFORE, self.context(), stream.cu_stream())? };
        self.users.lock().unwrap_or_else(PoisonError::into_inner).push(User::Cudarc(Arc::clone(stream)));
        Ok(())
    }

    /// Notes that the consumer gets the buffer's address.
    pub(super) fn show(&self) {
        self.is_shown.store(true, Relaxed);
    }

    /// Records the work of the streams that were named. Returns what may still read the buffer.
    pub(super) fn readers(&mut self) -> Readers {
        let users = take(self.users.get_mut().unwrap_or_else(PoisonError::into_inner));
        if !users.is_empty() {
            self.record(users);
        }
        let is_capturing = !self.users.get_mut().unwrap_or_else(PoisonError::into_inner).is_empty();
        match (self.is_unknown, is_capturing, self.read.is_empty()) {
            _ if !*self.is_shown.get_mut() => Readers::Done,
            (true, ..) | (false, false, true) => Readers::Unknown,
            (false, true, _) => Readers::Capturing,
            _ if self.read.iter().all(Event::is_done) => Readers::Done,
            _ => Readers::Named,
        }
    }

    fn record(&mut self, users: Vec<User>) {
        let Ok(_entered) = driver::enter(self.pin.context()) else {
            // The streams are gone with their context, or are those of the process that forked this one.
            std::mem::forget(users);
            self.is_unknown = true;
            return;
        };
        for user in users {
            match user.reached(self.pin.context(), None) {
                Ok(Some(event)) => self.read.push(event),
                Ok(None) => self.users.get_mut().unwrap_or_else(PoisonError::into_inner).push(user),
                Err(_) => self.is_unknown = true,
            }
        }
    }

    /// Waits until nothing reads the buffer.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda) while a stream captures a graph.
    pub(super) fn wait(&mut self) -> Result<()> {
        match self.readers() {
            Readers::Done => Ok(()),
            Readers::Named => self.wait_for_named(),
            Readers::Unknown => driver::wait_for_all(self.context()),
            Readers::Capturing => {
                let refused = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                driver::check("wait for a stream that captures", refused.result())
            }
        }
    }

    /// Waits for the events that are recorded.
    pub(super) fn wait_for_named(&mut self) -> Result<()> {
        if self.read.is_empty() {
            return Ok(());
        }
        let _entered = driver::enter(self.context())?;
        self.read.iter().try_for_each(Event::synchronize)
    }

    /// Waits for the streams that were named, if no others may read the buffer. Returns whether it is idle.
    pub(super) fn try_wait(&mut self) -> bool {
        match self.readers() {
            Readers::Done => true,
            Readers::Named => self.wait_for_named().is_ok(),
            Readers::Unknown | Readers::Capturing => false,
        }
    }

    /// Forgets the readers of the last batch in the buffer.
    pub(super) fn forget_readers(&mut self) {
        self.read.clear();
        self.is_unknown = false;
        *self.is_shown.get_mut() = false;
    }
}
