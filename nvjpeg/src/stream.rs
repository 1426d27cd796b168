//! What an image's header says.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;

use nvjpeg_sys::bindings::{
    NVJPEG_MAX_COMPONENT, nvjpegChromaSubsampling_t, nvjpegExifOrientation_t, nvjpegJpegEncoding_t, nvjpegJpegStream_t,
};

use crate::error::Result;
use crate::handle::{Handle, call, call_optional};

/// How much smaller the chroma planes are than the luma plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subsampling {
    /// 4:4:4, equal size.
    S444,
    /// 4:2:2, half the width.
    S422,
    /// 4:2:0, half the width and height.
    S420,
    /// 4:4:0, half the height.
    S440,
    /// 4:1:1, a quarter of the width.
    S411,
    /// 4:1:0, a quarter of the width and half the height.
    S410,
    /// 4:1:0, the other way round.
    S410V,
    /// No chroma.
    Gray,
    /// Another, or another number of components than one or three.
    Unknown,
}

impl Subsampling {
    pub(crate) fn from_raw(raw: nvjpegChromaSubsampling_t) -> Self {
        match raw {
            nvjpegChromaSubsampling_t::NVJPEG_CSS_444 => Self::S444,
            nvjpegChromaSubsampling_t::NVJPEG_CSS_422 => Self::S422,
            nvjpegChromaSubsampling_t::NVJPEG_CSS_420 => Self::S420,
            nvjpegChromaSubsampling_t::NVJPEG_CSS_440 => Self::S440,
            nvjpegChromaSubsampling_t::NVJPEG_CSS_411 => Self::S411,
            nvjpegChromaSubsampling_t::NVJPEG_CSS_410 => Self::S410,
            nvjpegChromaSubsampling_t::NVJPEG_CSS_410V => Self::S410V,
            nvjpegChromaSubsampling_t::NVJPEG_CSS_GRAY => Self::Gray,
            _ => Self::Unknown,
        }
    }

    pub(crate) fn raw(self) -> nvjpegChromaSubsampling_t {
        match self {
            Self::S444 => nvjpegChromaSubsampling_t::NVJPEG_CSS_444,
            Self::S422 => nvjpegChromaSubsampling_t::NVJPEG_CSS_422,
            Self::S420 => nvjpegChromaSubsampling_t::NVJPEG_CSS_420,
            Self::S440 => nvjpegChromaSubsampling_t::NVJPEG_CSS_440,
            Self::S411 => nvjpegChromaSubsampling_t::NVJPEG_CSS_411,
            Self::S410 => nvjpegChromaSubsampling_t::NVJPEG_CSS_410,
            Self::S410V => nvjpegChromaSubsampling_t::NVJPEG_CSS_410V,
            Self::Gray => nvjpegChromaSubsampling_t::NVJPEG_CSS_GRAY,
            Self::Unknown => nvjpegChromaSubsampling_t::NVJPEG_CSS_UNKNOWN,
        }
    }
}

/// The coding, by the marker of its frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// SOF0: baseline.
    Baseline,
    /// SOF1: extended sequential, Huffman.
    ExtendedSequential,
    /// SOF2: progressive, Huffman.
    Progressive,
    /// SOF3: lossless, Huffman.
    Lossless,
    /// Another.
    Unknown,
}

/// How an image is to be turned to be upright, as in EXIF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Orientation {
    /// The image does not say.
    Unknown,
    /// Not at all.
    Normal,
    /// Left for right.
    FlipHorizontal,
    /// Half a turn.
    Rotate180,
    /// Top for bottom.
    FlipVertical,
    /// Rows for columns.
    Transpose,
    /// A quarter turn.
    Rotate90,
    /// Rows for columns and half a turn.
    Transverse,
    /// Three quarters of a turn.
    Rotate270,
}

impl Orientation {
    const ALL: [Self; 9] = [
        Self::Unknown,
        Self::Normal,
        Self::FlipHorizontal,
        Self::Rotate180,
        Self::FlipVertical,
        Self::Transpose,
        Self::Rotate90,
        Self::Transverse,
        Self::Rotate270,
    ];

    pub(crate) fn raw(self) -> nvjpegExifOrientation_t {
        match self {
            Self::Unknown => nvjpegExifOrientation_t::NVJPEG_ORIENTATION_UNKNOWN,
            Self::Normal => nvjpegExifOrientation_t::NVJPEG_ORIENTATION_NORMAL,
            Self::FlipHorizontal => nvjpegExifOrientation_t::NVJPEG_ORIENTATION_FLIP_HORIZONTAL,
            Self::Rotate180 => nvjpegExifOrientation_t::NVJPEG_ORIENTATION_ROTATE_180,
            Self::FlipVertical => nvjpegExifOrientation_t::NVJPEG_ORIENTATION_FLIP_VERTICAL,
            Self::Transpose => nvjpegExifOrientation_t::NVJPEG_ORIENTATION_TRANSPOSE,
            Self::Rotate90 => nvjpegExifOrientation_t::NVJPEG_ORIENTATION_ROTATE_90,
            Self::Transverse => nvjpegExifOrientation_t::NVJPEG_ORIENTATION_TRANSVERSE,
            Self::Rotate270 => nvjpegExifOrientation_t::NVJPEG_ORIENTATION_ROTATE_270,
        }
    }
}

/// The size of one component's plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ComponentSize {
    /// Columns.
    pub width_px: u32,
    /// Rows.
    pub height_px: u32,
}

/// Sizes and subsampling of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageInfo {
    /// Columns of the whole image.
    pub width_px: u32,
    /// Rows of the whole image.
    pub height_px: u32,
    /// How much smaller the chroma planes are.
    pub subsampling: Subsampling,
    components: [ComponentSize; NVJPEG_MAX_COMPONENT as usize],
    count: usize,
}

impl ImageInfo {
    pub(crate) fn new(
        components: [ComponentSize; NVJPEG_MAX_COMPONENT as usize],
        count: usize,
        subsampling: Subsampling,
    ) -> Self {
        let ComponentSize { width_px, height_px } = components[0];
        Self { width_px, height_px, subsampling, components, count }
    }

    /// The planes' sizes, at most four.
    #[must_use]
    pub fn components(&self) -> &[ComponentSize] {
        &self.components[..self.count]
    }
}

/// Parses images, one after the other; its memory is used again for each. One for every worker.
#[derive(Debug)]
pub struct JpegStream {
    raw: nvjpegJpegStream_t,
    handle: Handle,
}

// SAFETY: nvJPEG's documentation asks for one for each thread, not for one thread for each.
unsafe impl Send for JpegStream {}

impl JpegStream {
    /// One that has parsed nothing yet.
    ///
    /// # Synchronization
    ///
    /// This and parsing are the host's work alone, complete on return.
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

    /// Parses an image for decoding. The compressed data are not copied, metadata are not kept.
    ///
    /// # Errors
    ///
    /// [`Error::Status`](crate::Error::Status): damaged, truncated, or a kind of JPEG that nvJPEG does not know.
    pub fn parse<'a>(&'a mut self, jpeg: &'a [u8]) -> Result<Jpeg<'a>> {
        let (save_metadata, save_stream) = (0, 0);
        // SAFETY: handle and stream are valid; `jpeg` is readable for its length, and as long as the result lives,
        // which is as long as nvJPEG may refer to it.
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

    /// Parses an image's header alone: quicker, and enough to choose a decoder.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`](crate::Error::MissingFunction), or [`Error::Status`](crate::Error::Status): damaged,
    /// truncated, or a kind of JPEG that nvJPEG does not know.
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
        // SAFETY: the stream is valid and owned here; what was parsed borrows it.
        self.handle.note_drop(unsafe { call!(self.handle.functions(), nvjpegJpegStreamDestroy(self.raw)) });
    }
}

/// A parsed header.
#[derive(Debug)]
pub struct Header<'a> {
    stream: &'a JpegStream,
    data: PhantomData<&'a [u8]>,
}

/// An image that is parsed for decoding. It has all that a [`Header`] has.
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
            // SAFETY: as above, and there are more than `index` components.
            unsafe {
                call!(functions, nvjpegJpegStreamGetComponentDimensions(self.as_raw(), index, width, height))?;
            }
            kept += 1;
        }
        let info = ImageInfo::new(components, kept, Subsampling::from_raw(subsampling));
        Ok(ImageInfo { width_px: whole.width_px, height_px: whole.height_px, ..info })
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

    /// Bits a sample.
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

    /// How the image is to be turned, as its EXIF data say.
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

    pub(crate) fn as_raw(&self) -> nvjpegJpegStream_t {
        self.stream.raw
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.stream.handle
    }
}
