//! The owners of the driver's objects, and the errors of calls.
#![allow(unsafe_code)]

use super::{Context, enter};
use crate::error::{Error, Result};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Whether a call was refused because a stream captures a graph.
pub(crate) fn is_capture(error: &Error) -> bool {
    const FIRST: u32 = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as u32;
    const LAST: u32 = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD as u32;
    matches!(error, Error::Cuda { code: FIRST..=LAST, .. })
}

/// A value of a context, such as an object of the driver's or of nvJPEG's. It is dropped while its context is current.
/// If the context cannot be entered, the value is not dropped at all: it is gone with its context, and what has its
/// handle or its address now is somebody else's.
pub(crate) struct Scoped<T> {
    value: ManuallyDrop<T>,
    pub(super) context: Context,
}

impl<T> Scoped<T> {
    pub(crate) fn new(context: &Context, value: T) -> Self {
        Self { value: ManuallyDrop::new(value), context: Arc::clone(context) }
    }
}

impl<T> Deref for Scoped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Scoped<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Scoped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> Drop for Scoped<T> {
    fn drop(&mut self) {
        if let Ok(_entered) = enter(&self.context) {
            // SAFETY: it is dropped here and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// An object of the driver's, which one call frees. It exists only in a [`Scoped`].
pub(super) struct Raw<H: Copy> {
    pub(super) handle: H,
    free: unsafe fn(H) -> std::result::Result<(), DriverError>,
}

pub(super) type Owned<H> = Scoped<Raw<H>>;

impl<H: Copy> Owned<H> {
    /// # Safety
    /// `handle` is of this context, `free` frees it, and nothing else does. When this is dropped, nothing uses it that
    /// its being freed would harm.
    pub(super) unsafe fn of(
        context: &Context,
        handle: H,
        free: unsafe fn(H) -> std::result::Result<(), DriverError>,
    ) -> Self {
        Self::new(context, Raw { handle, free })
    }
}

// SAFETY: the driver's objects belong to a context, not to a thread, and its functions on them are thread-safe.
unsafe impl<H: Copy> Send for Raw<H> {}
// SAFETY: as above.
unsafe impl<H: Copy> Sync for Raw<H> {}

impl<H: Copy + fmt::Debug> fmt::Debug for Raw<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

impl<H: Copy> Drop for Raw<H> {
    fn drop(&mut self) {
        // A failed context may refuse. Nothing can be done about it here.
        // SAFETY: the contract of `Owned::of`; the context is current (`Scoped`).
        let _ = unsafe { (self.free)(self.handle) };
    }
}

/// Turns the driver's error into one with the name of the call, and the driver's name and text for the error.
pub(crate) fn check<T>(call: &str, result: std::result::Result<T, DriverError>) -> Result<T> {
    result.map_err(|error| {
        let text = |text: std::result::Result<&std::ffi::CStr, DriverError>| {
            text.map_or_else(
                |_| "an error that the driver does not know".to_owned(),
                |t| t.to_string_lossy().into_owned(),
            )
        };
        let mut message = text(error.error_string());
        match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                message += "; use a smaller batch_size or prefetch, or free memory of the device";
            }
            sys::CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU | sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
                message += "; build with WARPFEED_CUDA_ARCHS naming this device's architecture (`warpfeed doctor`)";
            }
            _ => {}
        }
        Error::Cuda { call: call.to_owned(), code: error.0 as u32, name: text(error.error_name()), message }
    })
}

/// Checks an allocation of `len_bytes` bytes and returns its address.
pub(super) fn allocated<T>(
    context: &Context,
    call: &str,
    len_bytes: usize,
    address: std::result::Result<T, DriverError>,
) -> Result<T> {
    if matches!(address, Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))) {
        return Err(Error::OutOfDeviceMemory {
            what: "a batch",
            needed_bytes: len_bytes as u64,
            available_bytes: context.mem_get_info().map_or(0, |(free, _)| free as u64),
            remedy: "use a smaller batch_size or prefetch, or free memory of the device",
        });
    }
    check(call, address)
}
