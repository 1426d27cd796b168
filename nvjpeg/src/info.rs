//! Information in an image's header.

use nvjpeg_sys::bindings::{NVJPEG_MAX_COMPONENT, nvjpegChromaSubsampling_t, nvjpegExifOrientation_t};

/// Size of the chroma planes compared with the luma plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subsampling {
    /// 4:4:4: equal size.
    S444,
    /// 4:2:2: half the width.
    S422,
    /// 4:2:0: half the width and height.
    S420,
    /// 4:4:0: half the height.
    S440,
    /// 4:1:1: a quarter of the width.
    S411,
    /// 4:1:0: a quarter of the width and half the height.
    S410,
    /// 4:1:0 with width and height exchanged.
    S410V,
    /// No chroma.
    Gray,
    /// Another subsampling, or another number of components than one or three.
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
    /// Another coding.
    Unknown,
}

/// The turn that brings an image upright, as in EXIF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Orientation {
    /// The image has no orientation.
    Unknown,
    /// The image is upright.
    Normal,
    /// Mirror left and right.
    FlipHorizontal,
    /// Turn by half.
    Rotate180,
    /// Mirror top and bottom.
    FlipVertical,
    /// Exchange rows and columns.
    Transpose,
    /// Turn by a quarter.
    Rotate90,
    /// Exchange rows and columns, then turn by half.
    Transverse,
    /// Turn by three quarters.
    Rotate270,
}

impl Orientation {
    pub(crate) const ALL: [Self; 9] = [
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
    /// Number of columns.
    pub width_px: u32,
    /// Number of rows.
    pub height_px: u32,
}

/// Sizes and subsampling of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageInfo {
    /// Number of columns of the whole image.
    pub width_px: u32,
    /// Number of rows of the whole image.
    pub height_px: u32,
    /// Size of the chroma planes compared with the luma plane.
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

    /// The sizes of the planes, at most four.
    #[must_use]
    pub fn components(&self) -> &[ComponentSize] {
        &self.components[..self.count]
    }
}
