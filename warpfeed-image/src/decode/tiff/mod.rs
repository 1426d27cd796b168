//! TIFF and BigTIFF, by this crate's own reader.
//!
//! Strips and tiles, chunky and planar, of 1 to 64 channels. Whole numbers without a sign of up to 16 bits and
//! floating-point numbers of 32 bits are given as they are; packed ones are not scaled. Other types that `f32` holds
//! exactly become `f32`. Compression: none, PackBits, LZW, deflate, JPEG, and Zstandard with a feature. What is not read
//! is refused by name.
//!
//! Only strips and tiles that the part needs are decoded, no further than to its last row, and in planar files only
//! those of the channels that are asked for. So damage elsewhere is not found. Strips and tiles that are not stored are
//! 0, as in GDAL. No memory is allocated for sizes that the data cannot have.
//!
//! Of several pages the first that is no thumbnail is read. Tags of GeoTIFF, also the value that means "no data", are
//! ignored.

mod chunks;
mod codecs;
mod directory;
mod jpeg;
mod layout;
mod lzw;
mod packed;
mod predictors;
mod read_at;
mod rgb;
mod stored;

pub(super) use chunks::TiffScratch;
pub use stored::TiffFile;

use super::jpeg::JpegDecoder;
use super::{Format, Header, probe};
use crate::error::{Error, Result};
use crate::planes::Planes;
use crate::raster::{Image, Rect};
use chunks::Page;
use directory::Container;
use layout::{Alpha, Color, Layout};
use read_at::ReadAt;

fn bad(message: impl Into<String>) -> Error {
    Error::decode("TIFF", message)
}

/// The error for a form of the format that is not read.
fn unsupported(what: &str, remedy: &str) -> Error {
    bad(format!("{what} is not supported: {remedy}"))
}

impl<'a> Page<'a> {
    /// The first page of a file that is no thumbnail.
    fn open(file: &'a dyn ReadAt) -> Result<Self> {
        let container = Container::open(file)?;
        let directory = container.main_directory()?;
        let layout = Layout::of(&container, &directory)?;
        Ok(Self { container, directory, layout })
    }

    fn header(&self) -> Header {
        let Layout { size, channels, bits, orientation, alpha, color, .. } = self.layout;
        Header {
            components: if color == Color::Palette { 3 } else { channels as u8 },
            precision_bits: bits,
            orientation,
            has_alpha: alpha != Alpha::None,
            kind: self.layout.kind(),
            ..probe::header(Format::Tiff, size.width, size.height)
        }
    }

    /// Refuses a header of another file.
    fn check(&self, header: &Header) -> Result<()> {
        if (self.layout.size, self.layout.kind()) == (header.size, header.kind) {
            return Ok(());
        }
        Err(bad("the image is not the one of the header"))
    }
}

/// Reads the header.
pub(super) fn header(file: &dyn ReadAt) -> Result<Header> {
    Ok(Page::open(file)?.header())
}

/// Decodes the channels `bands` of `part`.
pub(super) fn decode(
    file: &dyn ReadAt,
    header: &Header,
    part: Rect,
    bands: &[u16],
    decoder: &mut JpegDecoder,
    scratch: &mut TiffScratch,
    out: &mut Planes,
) -> Result<()> {
    let page = Page::open(file)?;
    page.check(header)?;
    if page.layout.color == Color::Inks {
        return Err(unsupported("reading inks (CMYK) as they are", "read the image as RGB"));
    }
    page.decode(part, bands, decoder, scratch, out)
}

/// Decodes `part` and converts it to RGB.
pub(super) fn decode_rgb(
    file: &dyn ReadAt,
    header: &Header,
    part: Rect,
    decoder: &mut JpegDecoder,
    scratch: &mut TiffScratch,
    planes: &mut Planes,
    out: &mut Image,
) -> Result<()> {
    let page = Page::open(file)?;
    page.check(header)?;
    let bands = rgb::bands(&page.layout)?;
    page.decode(part, bands, decoder, scratch, planes)?;
    rgb::convert(&page.layout, planes, out);
    Ok(())
}
