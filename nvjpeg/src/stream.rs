//! Parsed images, and information about them.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;

use nvjpeg_sys::bindings::{
    NVJPEG_MAX_COMPONENT, nvjpegChromaSubsampling_t, nvjpegExifOrientation_t, nvjpegJpegEncoding_t, nvjpegJpegStream_t,
};

use crate::error::Result;
use crate::handle::{Handle, call, call_optional};
use crate::info::{ComponentSize, Encoding, ImageInfo, Orientation, Subsampling};
use crate::params::DecodeParams;

/// A parser of images, one after another. Its memory is reused for each image. Each worker has its own.
#[derive(Debug)]
pub struct JpegStream {
    raw: nvjpegJpegStream_t,
    handle: Handle,
}

// SAFETY: nvJPEG's documentation asks for one stream per thread at a time, and does not bind a stream to a thread.
unsafe impl Send for JpegStream {}

impl JpegStream {
    /// A parser that has parsed nothing yet.
    ///
    /// # Synchronization
    ///
    /// This and parsing run on the host only, complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::Status`](crate::Error::Status).
    pub fn new(handle: &Handle) -> Result<Self> {
        handle.report_drop_error()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is valid; `raw` is written to before the call returns.
        unsafe { call!(handle.functions(), nvjpegJpegStreamCreate(handle.as_raw(), &raw mut raw))? };
        Ok(Self { raw, handle: handle.clone() })
    }

    /// Parses an image for decoding. The compressed data are not copied, and metadata are not kept.
    ///
    /// # Errors
    ///
    /// [`Error::Status`](crate::Error::Status) for an image that is damaged or truncated, or a kind of JPEG that nvJPEG
    /// does not know.
    pub fn parse<'a>(&'a mut self, jpeg: &'a [u8]) -> Result<Jpeg<'a>> {
        let (save_metadata, save_stream) = (0, 0);
        // SAFETY: handle and stream are valid. `jpeg` is readable for its length as long as the result lives, and so as
        // long as nvJPEG may refer to it.
        unsafe {
            call!(
                self.handle.functions(),
                nvjpegJpegStreamParse(
                    self.handle.as_raw(),
                    jpeg.as_ptr(),
                    jpeg.len(),
                    save_metadata,
                    save_stream,
                    self.raw,
                )
            )?;
        }
        Ok(Jpeg { header: Header { stream: self, data: PhantomData } })
    }

    /// Parses only an image's header. This is faster, and enough to choose a decoder.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`](crate::Error::MissingFunction), or [`Error::Status`](crate::Error::Status) for a
    /// header that is damaged or truncated, or a kind of JPEG that nvJPEG does not know.
    pub fn parse_header<'a>(&'a mut self, jpeg: &'a [u8]) -> Result<Header<'a>> {
        // SAFETY: as in `parse`.
        unsafe {
            call_optional!(
                self.handle.library(),
                nvjpegJpegStreamParseHeader(self.handle.as_raw(), jpeg.as_ptr(), jpeg.len(), self.raw)
            )?;
        }
        Ok(Header { stream: self, data: PhantomData })
    }
}

impl Drop for JpegStream {
    fn drop(&mut self) {
        // SAFETY: the stream is valid and owned here; parsed images borrow it.
        self.handle.note_drop(unsafe { call!(self.handle.functions(), nvjpegJpegStreamDestroy(self.raw)) });
    }
}

/// A parsed header.
#[derive(Debug)]
pub struct Header<'a> {
    stream: &'a JpegStream,
    data: PhantomData<&'a [u8]>,
}

/// An image that is parsed for decoding. It also has everything that a [`Header`] has.
#[derive(Debug)]
pub struct Jpeg<'a> {
    header: Header<'a>,
}

impl<'a> Deref for Jpeg<'a> {
    type Target = Header<'a>;

    fn deref(&self) -> &Header<'a> {
        &self.header
    }
}

impl Header<'_> {
    /// Sizes and subsampling.
    ///
    /// # Errors
    ///
    /// [`Error::Status`](crate::Error::Status).
    pub fn info(&self) -> Result<ImageInfo> {
        let functions = self.stream.handle.functions();
        let (mut count, mut whole) = (0, ComponentSize::default());
        let mut components = [ComponentSize::default(); NVJPEG_MAX_COMPONENT as usize];
        let mut subsampling = nvjpegChromaSubsampling_t::NVJPEG_CSS_UNKNOWN;
        // SAFETY: the stream is valid and has parsed a header; each number is written to before its call returns.
        unsafe {
            let (width, height) = (&raw mut whole.width_px, &raw mut whole.height_px);
            call!(functions, nvjpegJpegStreamGetFrameDimensions(self.as_raw(), width, height))?;
            call!(functions, nvjpegJpegStreamGetComponentsNum(self.as_raw(), &raw mut count))?;
            call!(functions, nvjpegJpegStreamGetChromaSubsampling(self.as_raw(), &raw mut subsampling))?;
        }
        let mut kept = 0;
        for (index, component) in (0..count).zip(&mut components) {
            let (width, height) = (&raw mut component.width_px, &raw mut component.height_px);
            // SAFETY: as above; `index` is below the number of components.
            unsafe {
                call!(functions, nvjpegJpegStreamGetComponentDimensions(self.as_raw(), index, width, height))?;
            }
            kept += 1;
        }
        let mut info = ImageInfo::new(components, kept, Subsampling::from_raw(subsampling));
        (info.width_px, info.height_px) = (whole.width_px, whole.height_px);
        Ok(info)
    }

    /// The coding.
    ///
    /// # Errors
    ///
    /// [`Error::Status`](crate::Error::Status).
    pub fn encoding(&self) -> Result<Encoding> {
        let mut raw = nvjpegJpegEncoding_t::NVJPEG_ENCODING_UNKNOWN;
        // SAFETY: the stream is valid and has parsed a header; `raw` is written to before the call returns.
        unsafe {
            call!(self.stream.handle.functions(), nvjpegJpegStreamGetJpegEncoding(self.as_raw(), &raw mut raw))?;
        }
        Ok(match raw {
            nvjpegJpegEncoding_t::NVJPEG_ENCODING_BASELINE_DCT => Encoding::Baseline,
            nvjpegJpegEncoding_t::NVJPEG_ENCODING_EXTENDED_SEQUENTIAL_DCT_HUFFMAN => Encoding::ExtendedSequential,
            nvjpegJpegEncoding_t::NVJPEG_ENCODING_PROGRESSIVE_DCT_HUFFMAN => Encoding::Progressive,
            nvjpegJpegEncoding_t::NVJPEG_ENCODING_LOSSLESS_HUFFMAN => Encoding::Lossless,
            _ => Encoding::Unknown,
        })
    }

    /// Number of bits of a sample.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`](crate::Error::MissingFunction) before CUDA 12.3, or
    /// [`Error::Status`](crate::Error::Status).
    pub fn precision_bits(&self) -> Result<u32> {
        let mut bits = 0;
        // SAFETY: the stream is valid and has parsed a header; `bits` is written to before the call returns.
        unsafe {
            let library = self.stream.handle.library();
            call_optional!(library, nvjpegJpegStreamGetSamplePrecision(self.as_raw(), &raw mut bits))?;
        }
        Ok(bits)
    }

    /// The turn that brings the image upright, from its EXIF data.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`](crate::Error::MissingFunction) before CUDA 11.6, or
    /// [`Error::Status`](crate::Error::Status).
    pub fn orientation(&self) -> Result<Orientation> {
        let mut raw = nvjpegExifOrientation_t::NVJPEG_ORIENTATION_UNKNOWN;
        // SAFETY: the stream is valid and has parsed a header; `raw` is written to before the call returns.
        unsafe {
            let library = self.stream.handle.library();
            call_optional!(library, nvjpegJpegStreamGetExifOrientation(self.as_raw(), &raw mut raw))?;
        }
        let found = Orientation::ALL.into_iter().find(|orientation| orientation.raw() == raw);
        Ok(found.unwrap_or(Orientation::Unknown))
    }

    /// Whether the handle's back end supports this image in a batch, with these parameters if given. Ask a whole
    /// [`Jpeg`]: a header alone does not show that an image has several scans or is damaged.
    ///
    /// # Synchronization
    ///
    /// Runs on the host only, complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`](crate::Error::MissingFunction) (before CUDA 11.6 with parameters),
    /// [`Error::Parameter`](crate::Error::Parameter) for parameters of another handle, or
    /// [`Error::Status`](crate::Error::Status).
    pub fn is_for_batches(&self, params: Option<&DecodeParams>) -> Result<bool> {
        let (handle, library) = (self.handle(), self.handle().library());
        let mut unsupported = -1;
        let out = &raw mut unsupported;
        if let Some(params) = params {
            handle.require_same(params.handle(), "nvjpegDecodeBatchedSupportedEx", "params")?;
            // SAFETY: all objects are valid and of one handle; the number is written to before the call returns.
            unsafe {
                call_optional!(
                    library,
                    nvjpegDecodeBatchedSupportedEx(handle.as_raw(), self.as_raw(), params.as_raw(), out)
                )?;
            }
        } else {
            // SAFETY: as above.
            unsafe {
                call_optional!(library, nvjpegDecodeBatchedSupported(handle.as_raw(), self.as_raw(), out))?;
            }
        }
        // 0 means yes, as nvjpeg.h says.
        Ok(unsupported == 0)
    }

    pub(crate) fn as_raw(&self) -> nvjpegJpegStream_t {
        self.stream.raw
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.stream.handle
    }
}
