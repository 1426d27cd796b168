//! From a file's bytes to pixels.

mod baseline;
mod entry_points;
mod huffman;
#[cfg(target_arch = "x86_64")]
mod idct;
mod inks;
mod jpeg;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod lossless;
mod lossless_jpeg;
#[cfg(any(test, fuzzing))]
pub(crate) mod model;
#[cfg(any(test, fuzzing))]
mod oddities;
mod pnm;
mod probe;
mod reason;
mod restarts;
mod window;

pub(crate) use baseline::{Baseline, Color};
pub(crate) use entry_points::EntryPoints;
pub(crate) use huffman::Code;
pub(crate) use jpeg::{How, Knew, has_end, simd};
pub(crate) use pnm::{rows as pnm_rows, written as pnm_header};
pub use probe::probe;
pub use reason::LeftToCpu;
pub(crate) use reason::Reason;
pub(crate) use restarts::{indexed, is_indexed};
pub(crate) use window::Window;

use crate::error::{Error, Result};
use crate::raster::{Image, Rect, Size};
use std::ops::Range;

/// The file formats that are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG, baseline, progressive or lossless, 8 bits a sample.
    Jpeg,
    /// PNG.
    Png,
    /// WebP, lossy or lossless; of an animation, the first image.
    WebP,
    /// PNM, binary, with one or three channels of 8 bits: .pgm and .ppm.
    Pnm,
}

/// What an image's header says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// The file format.
    pub format: Format,
    /// Width and height as stored, before [`orientation`](Self::orientation) is applied.
    pub size: Size,
    /// EXIF orientation, 1 to 8; 1 if it is absent or absurd.
    pub orientation: u8,
    /// Whether a JPEG comes in scans of rising quality. `false` for other formats.
    pub progressive: bool,
    /// Color components a pixel, alpha included; 3 for a palette.
    pub components: u8,
    /// Bits a sample, or of a palette's index.
    pub precision_bits: u8,
    /// A JPEG's horizontal and vertical sampling factors, one pair a component; (0, 0) where there is none.
    pub sampling: [(u8, u8); 4],
    /// A JPEG's restart interval in MCUs, 0 without restarts.
    pub restart_interval_mcus: u16,
    /// Whether a JPEG of three components says that they are red, green and blue, and not luma and chroma.
    pub(crate) rgb: bool,
    /// Second byte of a JPEG's frame marker.
    pub(crate) process: u8,
    /// Where the data of a JPEG's first scan start, or the pixels of a PNM.
    pub(crate) scan_offset_bytes: usize,
    /// Where the index of a JPEG's rows stands, behind its signature.
    pub(crate) row_index: Option<Range<usize>>,
}

/// Decodes images, one after the other; one for each thread.
///
/// # Examples
/// ```
/// use warpfeed::image::{Decoder, Image, JpegOptions, Rect, Size, encode_jpeg, probe};
///
/// let bytes = encode_jpeg(&Image::new(Size::new(64, 48)), &JpegOptions::default())?;
/// let header = probe(&bytes)?;
/// let mut image = Image::default();
/// let part = Rect { x: 10, y: 20, width: 30, height: 8 };
/// Decoder::new()?.decode(&bytes, &header, part, false, &mut image)?;
/// assert_eq!(image.size(), Size::new(30, 8));
/// assert_eq!(image.whole(), Size::new(64, 48));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub struct Decoder {
    jpeg: jpeg::JpegDecoder,
}

impl Decoder {
    /// A decoder.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no memory for it; [`Error::Parameter`] if the environment's `WARPFEED_SIMD` is not
    /// `none`, `avx2` or `avx512`.
    pub fn new() -> Result<Self> {
        crate::ops::simd::check()?;
        Ok(Self { jpeg: jpeg::JpegDecoder::new()? })
    }

    /// Decodes the rectangle `part` of an image into `out`: the pixels that a full decode has there, at less cost.
    /// `header` is what [`probe`] gave for these `bytes`; its orientation is not applied. What the pixels of `out` hold
    /// after an error is unspecified.
    ///
    /// Missing or damaged data are an error also where they lie outside of `part`, if the file lacks its end. With
    /// `accept_truncated` a JPEG is taken as Pillow takes it with `ImageFile.LOAD_TRUNCATED_IMAGES`: what is missing is
    /// gray, or black where decoding could not go on.
    ///
    /// # Errors
    /// [`Error::Decode`] if the image is damaged, truncated, or of a kind that is not supported;
    /// [`Error::OutOfMemory`] if there is no memory for its pixels; [`Error::Parameter`] if `part` is empty or not inside
    /// the image.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        part: Rect,
        accept_truncated: bool,
        out: &mut Image,
    ) -> Result<()> {
        self.decode_as(bytes, header, part, How { accept_truncated, ..How::default() }, out).map(drop)
    }

    /// As [`decode`](Self::decode); what was known of the image.
    pub(crate) fn decode_as(
        &mut self,
        bytes: &[u8],
        header: &Header,
        part: Rect,
        how: How<'_>,
        out: &mut Image,
    ) -> Result<Knew> {
        if part.size().is_empty() || !part.fits(header.size) {
            return Err(Error::parameter(
                "decode",
                "part",
                format!("a rectangle inside the image of {}, at least one pixel", header.size),
                format!("{} at ({}, {})", part.size(), part.x, part.y),
            ));
        }
        // Here, because the decoders' own growing would end the process where there is no memory.
        out.reserve(part.size())?;
        match header.format {
            Format::Jpeg => self.jpeg.decode(bytes, header, part, how, out),
            Format::Png | Format::WebP => lossless::decode(bytes, header, part, out).map(|()| Knew::Nothing),
            Format::Pnm => pnm::decode(bytes, header, part, out).map(|()| Knew::Nothing),
        }
    }
}

/// Decodes parts of a JPEG in all ways that there are, with entry points and without; panics if their pixels differ. The bytes
/// of `choices` decide which parts, and which oddities are put into the data first. For the fuzz targets.
#[cfg(fuzzing)]
pub fn decode_oddly(jpeg: &[u8], choices: &[u8]) {
    let mut choices = oddities::Choices::new(choices);
    oddities::decode_in_all_ways(&oddities::odd(jpeg, &mut choices), &mut choices);
}

/// The device's JPEG decoder as plain code; `None` if it leaves the image to the CPU. For the fuzz targets.
#[cfg(fuzzing)]
pub fn device_model(bytes: &[u8], header: &Header, part: Rect) -> Option<Image> {
    model::decode(bytes, header, part).ok().map(|steps| steps.image)
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}
