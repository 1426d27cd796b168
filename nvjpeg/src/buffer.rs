//! Buffers that a decoder state works in.

use std::ptr;

use nvjpeg_sys::bindings::{cudaStream_t, nvjpegBufferDevice_t, nvjpegBufferPinned_t};

use crate::error::Result;
use crate::handle::{Handle, call, call_optional};

macro_rules! buffer {
    ($(#[$doc:meta])* $name:ident, $raw:ty, $create:ident, $resize:ident, $destroy:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            raw: $raw,
            handle: Handle,
        }

        // SAFETY: nvJPEG's documentation asks for one buffer per decoding thread at a time, and does not bind a buffer
        // to a thread.
        unsafe impl Send for $name {}

        impl $name {
            /// An empty buffer, which grows as images need it. CUDA provides the memory.
            ///
            /// # Synchronization
            ///
            /// Complete on return.
            ///
            /// # Errors
            ///
            /// [`Error::Status`](crate::Error::Status).
            pub fn new(handle: &Handle) -> Result<Self> {
                handle.report_drop_error()?;
                let mut raw = ptr::null_mut();
                // SAFETY: the handle is valid; a null allocator stands for CUDA's; `raw` is written to before the call
                // returns.
                unsafe { call!(handle.functions(), $create(handle.as_raw(), ptr::null_mut(), &raw mut raw))? };
                Ok(Self { raw, handle: handle.clone() })
            }

            /// Reserves at least `size_bytes` bytes, so that decoding need not allocate.
            ///
            /// # Safety
            ///
            /// `stream` must be a live stream of the handle's device, or null. No work on another stream may be using
            /// this buffer.
            ///
            /// # Synchronization
            ///
            /// The old memory is freed in the order of `stream`. The new memory is for work that is queued there
            /// afterwards.
            ///
            /// # Errors
            ///
            /// [`Error::MissingFunction`](crate::Error::MissingFunction) before CUDA 12.3, or
            /// [`Error::Status`](crate::Error::Status).
            pub unsafe fn reserve(&mut self, size_bytes: usize, stream: cudaStream_t) -> Result<()> {
                // SAFETY: the buffer is valid; the stream is by this function's contract.
                unsafe { call_optional!(self.handle.library(), $resize(self.raw, size_bytes, stream)) }
            }

            pub(crate) fn as_raw(&self) -> $raw {
                self.raw
            }

            pub(crate) fn handle(&self) -> &Handle {
                &self.handle
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the buffer is valid and owned here. A state that it is attached to owns it and is destroyed
                // before it.
                self.handle.note_drop(unsafe { call!(self.handle.functions(), $destroy(self.raw)) });
            }
        }
    };
}

buffer! {
    /// Pinned host memory, which the host phase writes and the transfer reads.
    PinnedBuffer, nvjpegBufferPinned_t, nvjpegBufferPinnedCreate, nvjpegBufferPinnedResize, nvjpegBufferPinnedDestroy
}

buffer! {
    /// Device memory, which the transfer writes and the device phase works in.
    DeviceBuffer, nvjpegBufferDevice_t, nvjpegBufferDeviceCreate, nvjpegBufferDeviceResize, nvjpegBufferDeviceDestroy
}
