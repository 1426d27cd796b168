//! Parameters of a decoded image.

use std::ptr;

use nvjpeg_sys::bindings::{nvjpegDecodeParams_t, nvjpegOutputFormat_t};

use crate::error::Result;
use crate::handle::{Handle, call};

/// The layout of decoded images: red, green, blue, interleaved.
pub(crate) const OUTPUT_FORMAT: nvjpegOutputFormat_t = nvjpegOutputFormat_t::NVJPEG_OUTPUT_RGBI;

/// Parameters of a decoded image: the whole image, as interleaved RGB.
#[derive(Debug)]
pub struct DecodeParams {
    raw: nvjpegDecodeParams_t,
    handle: Handle,
}

// SAFETY: a record of settings in host memory, bound to no thread.
unsafe impl Send for DecodeParams {}
// SAFETY: nothing changes it. Decoding only reads it, and it is not among the objects that each thread needs its own of
// by nvJPEG's documentation.
unsafe impl Sync for DecodeParams {}

impl DecodeParams {
    /// Parameters for a handle's decoders.
    ///
    /// # Synchronization
    ///
    /// Runs on the host only, complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::Status`](crate::Error::Status).
    pub fn new(handle: &Handle) -> Result<Self> {
        handle.report_drop_error()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is valid; `raw` is written to before the call returns.
        unsafe { call!(handle.functions(), nvjpegDecodeParamsCreate(handle.as_raw(), &raw mut raw))? };
        let params = Self { raw, handle: handle.clone() };
        // SAFETY: the parameters are valid.
        unsafe { call!(handle.functions(), nvjpegDecodeParamsSetOutputFormat(raw, OUTPUT_FORMAT))? };
        Ok(params)
    }

    pub(crate) fn as_raw(&self) -> nvjpegDecodeParams_t {
        self.raw
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for DecodeParams {
    fn drop(&mut self) {
        // SAFETY: the parameters are valid and owned here. The contracts of the functions that start a decode say that
        // no decode is using them.
        self.handle.note_drop(unsafe { call!(self.handle.functions(), nvjpegDecodeParamsDestroy(self.raw)) });
    }
}
