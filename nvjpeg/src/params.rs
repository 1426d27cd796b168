//! Parameters of a decoded image.

use std::ffi::c_int;
use std::ptr;

use nvjpeg_sys::bindings::{nvjpegDecodeParams_t, nvjpegOutputFormat_t};

use crate::error::{Error, Result};
use crate::handle::{Handle, call, call_optional};

/// The layout of decoded images: red, green, blue, interleaved.
pub(crate) const OUTPUT_FORMAT: nvjpegOutputFormat_t = nvjpegOutputFormat_t::NVJPEG_OUTPUT_RGBI;

/// A part of an image, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// The first column.
    pub x_px: u32,
    /// The first row.
    pub y_px: u32,
    /// Number of columns.
    pub width_px: u32,
    /// Number of rows.
    pub height_px: u32,
}

/// Parameters of a decoded image: the whole image or a region, as interleaved RGB.
#[derive(Debug)]
pub struct DecodeParams {
    raw: nvjpegDecodeParams_t,
    handle: Handle,
}

// SAFETY: a record of settings in host memory, bound to no thread.
unsafe impl Send for DecodeParams {}
// SAFETY: shared references change nothing. Decoding only reads it, and it is not among the objects that each thread needs its own of
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

    /// Sets the part of the next images that is decoded, which lies in them. `None`: all. The destination gets this part
    /// alone. With interpolated chroma, pixels at the region's sides may be wrong before nvJPEG 13.2, except where the
    /// image ends too.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`](crate::Error::MissingFunction),
    /// [`Error::Parameter`](crate::Error::Parameter) for numbers above `i32::MAX`, or
    /// [`Error::Status`](crate::Error::Status).
    pub fn set_region(&mut self, region: Option<Region>) -> Result<()> {
        const CALL: &str = "nvjpegDecodeParamsSetROI";
        let number = |number: u32| {
            c_int::try_from(number)
                .map_err(|_| Error::parameter(CALL, "region", format!("up to {}", c_int::MAX), number))
        };
        let [x, y, width, height] = match region {
            // nvjpeg.h: this removes the region.
            None => [0, 0, -1, -1],
            Some(Region { x_px, y_px, width_px, height_px }) => {
                [number(x_px)?, number(y_px)?, number(width_px)?, number(height_px)?]
            }
        };
        // SAFETY: the parameters are valid.
        unsafe { call_optional!(self.handle.library(), nvjpegDecodeParamsSetROI(self.raw, x, y, width, height)) }
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
