//! Parsed images.

use std::marker::PhantomData;
use std::ptr;

use nvjpeg_sys::bindings::nvjpegJpegStream_t;

use crate::error::Result;
use crate::handle::{Handle, call, call_optional};

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
        Ok(Jpeg { stream: self, data: PhantomData })
    }

    /// Parses an image's header alone, for questions about the image. It is fast, but an image that is decoded one by
    /// one needs [`parse`](Self::parse), and nvJPEG up to 13.2 refuses valid images that EXIF data rotate. After an
    /// error the parser is good for nothing: make another.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`](crate::Error::MissingFunction), or those of [`parse`](Self::parse).
    pub fn parse_header<'a>(&'a mut self, jpeg: &'a [u8]) -> Result<Jpeg<'a>> {
        let (handle, functions) = (self.handle.as_raw(), self.handle.library());
        // SAFETY: as in `parse`.
        unsafe {
            call_optional!(functions, nvjpegJpegStreamParseHeader(handle, jpeg.as_ptr(), jpeg.len(), self.raw))?;
        }
        Ok(Jpeg { stream: self, data: PhantomData })
    }
}

impl Drop for JpegStream {
    fn drop(&mut self) {
        // SAFETY: the stream is valid and owned here; parsed images borrow it.
        self.handle.note_drop(unsafe { call!(self.handle.functions(), nvjpegJpegStreamDestroy(self.raw)) });
    }
}

/// An image that is parsed for decoding.
#[derive(Debug)]
pub struct Jpeg<'a> {
    stream: &'a JpegStream,
    data: PhantomData<&'a [u8]>,
}

/// The size of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Size {
    /// Number of columns.
    pub width_px: u32,
    /// Number of rows.
    pub height_px: u32,
}

impl Jpeg<'_> {
    /// The size of the whole image.
    ///
    /// # Errors
    ///
    /// [`Error::Status`](crate::Error::Status).
    pub fn size(&self) -> Result<Size> {
        let mut size = Size::default();
        let (width, height) = (&raw mut size.width_px, &raw mut size.height_px);
        // SAFETY: the stream is valid and has parsed a header; both numbers are written to before the call returns.
        unsafe {
            let functions = self.handle().functions();
            call!(functions, nvjpegJpegStreamGetFrameDimensions(self.as_raw(), width, height))?;
        }
        Ok(size)
    }

    /// Whether the handle's back end supports this image in a batch.
    ///
    /// # Synchronization
    ///
    /// Runs on the host only, complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`](crate::Error::MissingFunction), or [`Error::Status`](crate::Error::Status).
    pub fn is_for_batches(&self) -> Result<bool> {
        let handle = self.handle();
        let mut unsupported = -1;
        let out = &raw mut unsupported;
        // SAFETY: handle and stream are valid, and the stream was made from the handle; the number is written to before
        // the call returns.
        unsafe {
            call_optional!(handle.library(), nvjpegDecodeBatchedSupported(handle.as_raw(), self.as_raw(), out))?;
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
