//! Parameters of a decoded image: format, part, scale, orientation.

use std::ptr;

use nvjpeg_sys::bindings::{nvjpegDecodeParams_t, nvjpegExifOrientation_t, nvjpegOutputFormat_t, nvjpegScaleFactor_t};

use crate::error::{Error, Result};
use crate::handle::{Handle, call, call_optional};
use crate::info::Orientation;

/// The layout of decoded images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutputFormat {
    /// The stored components, one plane each.
    Unchanged,
    /// Y, Cb and Cr, one plane each, with the stored chroma subsampling.
    Yuv,
    /// Luma alone, in the first plane.
    Y,
    /// Red, green and blue, one plane each.
    Rgb,
    /// Blue, green and red, one plane each.
    Bgr,
    /// Red, green, blue, interleaved in the first plane.
    RgbInterleaved,
    /// Blue, green, red, interleaved in the first plane.
    BgrInterleaved,
    /// The stored components, interleaved in the first plane, 16 bits each. CUDA 12.3.
    UnchangedInterleavedU16,
    /// One plane of Y, and one plane of interleaved Cb and Cr at half the width and height. CUDA 12.3.
    Nv12,
    /// Y, Cb, Y, Cr, interleaved in the first plane. CUDA 12.3.
    Yuy2,
    /// The stored components, interleaved in the first plane. CUDA 13.
    UnchangedInterleaved,
}

impl OutputFormat {
    pub(crate) fn raw(self) -> nvjpegOutputFormat_t {
        match self {
            Self::Unchanged => nvjpegOutputFormat_t::NVJPEG_OUTPUT_UNCHANGED,
            Self::Yuv => nvjpegOutputFormat_t::NVJPEG_OUTPUT_YUV,
            Self::Y => nvjpegOutputFormat_t::NVJPEG_OUTPUT_Y,
            Self::Rgb => nvjpegOutputFormat_t::NVJPEG_OUTPUT_RGB,
            Self::Bgr => nvjpegOutputFormat_t::NVJPEG_OUTPUT_BGR,
            Self::RgbInterleaved => nvjpegOutputFormat_t::NVJPEG_OUTPUT_RGBI,
            Self::BgrInterleaved => nvjpegOutputFormat_t::NVJPEG_OUTPUT_BGRI,
            Self::UnchangedInterleavedU16 => nvjpegOutputFormat_t::NVJPEG_OUTPUT_UNCHANGEDI_U16,
            Self::Nv12 => nvjpegOutputFormat_t::NVJPEG_OUTPUT_NV12,
            Self::Yuy2 => nvjpegOutputFormat_t::NVJPEG_OUTPUT_YUY2,
            Self::UnchangedInterleaved => nvjpegOutputFormat_t::NVJPEG_OUTPUT_UNCHANGEDI,
        }
    }
}

/// Factor by which the hardware decoders shrink an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scale {
    /// No shrinking.
    Full,
    /// Half the width and height.
    Half,
    /// A quarter of the width and height.
    Quarter,
    /// An eighth of the width and height.
    Eighth,
}

/// A part of an image, in pixels of the whole one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Roi {
    /// The first column.
    pub left_px: u32,
    /// The first row.
    pub top_px: u32,
    /// Number of columns.
    pub width_px: u32,
    /// Number of rows.
    pub height_px: u32,
}

/// Parameters of a decoded image: format, part, scale, orientation.
#[derive(Debug)]
pub struct DecodeParams {
    raw: nvjpegDecodeParams_t,
    handle: Handle,
}

// SAFETY: a record of settings in host memory, bound to no thread.
unsafe impl Send for DecodeParams {}
// SAFETY: all methods that change it take `&mut self`. Decoding only reads it, and it is not among the objects that
// each thread needs its own of by nvJPEG's documentation.
unsafe impl Sync for DecodeParams {}

impl DecodeParams {
    /// nvJPEG's defaults: the whole image.
    ///
    /// # Synchronization
    ///
    /// This and all setters run on the host only, complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub fn new(handle: &Handle) -> Result<Self> {
        handle.report_drop_error()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is valid; `raw` is written to before the call returns.
        unsafe { call!(handle.functions(), nvjpegDecodeParamsCreate(handle.as_raw(), &raw mut raw))? };
        Ok(Self { raw, handle: handle.clone() })
    }

    /// The layout of the output. Batches use the layout given to
    /// [`BatchState::initialize`](crate::BatchState::initialize).
    ///
    /// # Errors
    ///
    /// [`Error::Status`] for a format that this nvJPEG does not know.
    pub fn set_output_format(&mut self, format: OutputFormat) -> Result<()> {
        // SAFETY: the parameters are valid.
        unsafe { call!(self.handle.functions(), nvjpegDecodeParamsSetOutputFormat(self.raw, format.raw())) }
    }

    /// The part of the image to decode; `None` for the whole image.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] for an empty part or numbers above `i32::MAX`, or [`Error::Status`]. Whether the part lies
    /// inside the image is checked when decoding.
    pub fn set_roi(&mut self, roi: Option<Roi>) -> Result<()> {
        let [left, top, width, height] = match roi {
            None => [0, 0, -1, -1],
            Some(roi) => {
                let numbers = [roi.left_px, roi.top_px, roi.width_px, roi.height_px].map(i32::try_from);
                let [Ok(left), Ok(top), Ok(width @ 1..), Ok(height @ 1..)] = numbers else {
                    let expected = "at least 1 x 1 pixel within 2147483647";
                    return Err(Error::parameter("nvjpegDecodeParamsSetROI", "roi", expected, format!("{roi:?}")));
                };
                [left, top, width, height]
            }
        };
        // SAFETY: the parameters are valid.
        unsafe { call!(self.handle.functions(), nvjpegDecodeParamsSetROI(self.raw, left, top, width, height)) }
    }

    /// Whether CMYK images may be decoded to RGB. The conversion ignores their color profile.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub fn set_allow_cmyk(&mut self, allow: bool) -> Result<()> {
        // SAFETY: the parameters are valid.
        unsafe { call!(self.handle.functions(), nvjpegDecodeParamsSetAllowCMYK(self.raw, allow.into())) }
    }

    /// The factor by which to shrink. Only the hardware decoders can shrink.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`] before CUDA 11.6, or [`Error::Status`].
    pub fn set_scale(&mut self, scale: Scale) -> Result<()> {
        let factor = match scale {
            Scale::Full => nvjpegScaleFactor_t::NVJPEG_SCALE_NONE,
            Scale::Half => nvjpegScaleFactor_t::NVJPEG_SCALE_1_BY_2,
            Scale::Quarter => nvjpegScaleFactor_t::NVJPEG_SCALE_1_BY_4,
            Scale::Eighth => nvjpegScaleFactor_t::NVJPEG_SCALE_1_BY_8,
        };
        // SAFETY: the parameters are valid.
        unsafe { call_optional!(self.handle.library(), nvjpegDecodeParamsSetScaleFactor(self.raw, factor)) }
    }

    /// The turn that is applied to the image.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`] before CUDA 11.6, or [`Error::Status`].
    pub fn set_orientation(&mut self, orientation: Orientation) -> Result<()> {
        let raw: nvjpegExifOrientation_t = orientation.raw();
        // SAFETY: the parameters are valid.
        unsafe { call_optional!(self.handle.library(), nvjpegDecodeParamsSetExifOrientation(self.raw, raw)) }
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
