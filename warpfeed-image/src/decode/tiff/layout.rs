//! How a page stores its pixels: size, types, strips or tiles, colors and compression.

use super::directory::{Container, Directory, tag};
use super::{bad, unsupported};
use crate::decode::stored::Stored;
#[cfg(not(feature = "zstd"))]
use crate::error::Error;
use crate::error::Result;
use crate::planes::{MAX_CHANNELS, PixelKind};
use crate::raster::Size;

/// Longest side of a tile. Those of usual files have 16 to 4,096 pixels.
const MAX_TILE_SIDE: u64 = 1 << 16;

/// Strips and tiles of so many bytes may be larger than the image.
const SMALL_CHUNK_BYTES: u64 = 64 << 20;

const NUMBERS: &str = "store the values as uint8, uint16 or float32";
const OTHER_COMPRESSION: &str = "rewrite the file with deflate, LZW or no compression";

/// How the pixels of a page are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) size: Size,
    /// Type of a value. Values of fewer bits are unpacked to it.
    pub(super) stored: Stored,
    /// Number of bits of a value.
    pub(super) bits: u8,
    /// Number of values of a pixel.
    pub(super) channels: u16,
    /// Whether each channel has strips or tiles of its own.
    pub(super) is_planar: bool,
    /// Size of a strip or tile. The last strip may have fewer rows.
    pub(super) chunk: Size,
    pub(super) is_tiled: bool,
    pub(super) color: Color,
    pub(super) compression: Compression,
    pub(super) predictor: Predictor,
    /// Whether the lowest bit of a byte comes first.
    pub(super) is_bit_reversed: bool,
    pub(super) orientation: u8,
    /// The meaning of the channel after the colors.
    pub(super) alpha: Alpha,
}

/// The meaning of the channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Color {
    Gray,
    /// 0 is white.
    InvertedGray,
    Rgb,
    /// Values are places in a table of colors.
    Palette,
    /// Cyan, magenta, yellow and black.
    Inks,
    /// Luma and chroma, which the JPEG decoder converts to RGB.
    Ycc,
    /// Colors that have no conversion to RGB.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alpha {
    /// There is no alpha.
    None,
    /// The colors have been multiplied by alpha.
    Associated,
    Unassociated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Lzw,
    Deflate,
    PackBits,
    #[cfg(feature = "zstd")]
    Zstd,
    Jpeg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Predictor {
    None,
    /// Values are differences from the pixel to the left.
    Difference,
    /// The bytes of floating-point numbers, by their place in the number, as differences.
    FloatingPoint,
}

impl Layout {
    pub(super) fn of(container: &Container<'_>, directory: &Directory) -> Result<Self> {
        let first = |tag| container.first(directory, tag);
        let side = |found: Option<u64>, name: &str| match found {
            Some(side) if side > 0 && side <= i32::MAX as u64 => Ok(side as u32),
            Some(side) => Err(bad(format!("the {name} is {side} pixels, which is impossible"))),
            None => Err(bad(format!("the {name} is missing"))),
        };
        let size = Size::new(side(first(tag::WIDTH)?, "width")?, side(first(tag::HEIGHT)?, "height")?);
        let channels = match first(tag::CHANNELS)?.unwrap_or(1) {
            0 => return Err(bad("a pixel has no value")),
            channels if channels <= u64::from(MAX_CHANNELS) => channels as u16,
            channels => {
                let what = format!("an image of {channels} channels");
                return Err(unsupported(&what, &format!("an image may have {MAX_CHANNELS}")));
            }
        };
        let (stored, bits) = value_type(container, directory, channels)?;
        let photometric = first(tag::PHOTOMETRIC)?;
        let compression = compression(first(tag::COMPRESSION)?.unwrap_or(1))?;
        let color = color(photometric, first(tag::INK_SET)?, compression, channels, stored, bits)?;
        let predictor = predictor(first(tag::PREDICTOR)?.unwrap_or(1), compression, stored, bits)?;
        let is_planar = match first(tag::PLANAR)?.unwrap_or(1) {
            1 => false,
            2 => channels > 1,
            other => return Err(bad(format!("planar configuration {other} does not exist"))),
        };
        let is_bit_reversed = match first(tag::FILL_ORDER)?.unwrap_or(1) {
            1 => false,
            2 => true,
            other => return Err(bad(format!("fill order {other} does not exist"))),
        };
        let is_tiled = directory.get(tag::TILE_WIDTH).is_some() || directory.get(tag::TILE_OFFSETS).is_some();
        let chunk = if is_tiled {
            let side = |found: Option<u64>| found.filter(|side| (1..=MAX_TILE_SIDE).contains(side));
            match (side(first(tag::TILE_WIDTH)?), side(first(tag::TILE_HEIGHT)?)) {
                (Some(width), Some(height)) => Size::new(width as u32, height as u32),
                _ => return Err(bad("the size of the tiles is missing or impossible")),
            }
        } else {
            // 0 is the whole image, as in libtiff.
            let rows = first(tag::ROWS_PER_STRIP)?.filter(|rows| *rows > 0);
            Size::new(size.width, rows.map_or(size.height, |rows| rows.min(size.height.into()) as u32))
        };
        let colors = match color {
            Color::Rgb => 3,
            _ => 1,
        };
        let alpha = match first(tag::EXTRA_SAMPLES)? {
            Some(1) if channels > colors => Alpha::Associated,
            Some(2) if channels > colors => Alpha::Unassociated,
            _ => Alpha::None,
        };
        let orientation = first(tag::ORIENTATION)?.filter(|value| (1..=8).contains(value)).unwrap_or(1) as u8;
        let layout = Self {
            size,
            stored,
            bits,
            channels,
            is_planar,
            chunk,
            is_tiled,
            color,
            compression,
            predictor,
            is_bit_reversed,
            orientation,
            alpha,
        };
        layout.check(directory)?;
        Ok(layout)
    }

    /// Refuses what does not fit together.
    fn check(&self, directory: &Directory) -> Result<()> {
        let image_bytes = self.row_bytes(self.size.width).saturating_mul(self.size.height.into());
        let chunk_bytes = self.row_bytes(self.chunk.width).saturating_mul(self.chunk.height.into());
        if chunk_bytes > image_bytes.saturating_mul(4).max(SMALL_CHUNK_BYTES) {
            return Err(bad(format!("tiles of {} for an image of {} are impossible", self.chunk, self.size)));
        }
        let (offsets, counts) = self.tables();
        let needed = self.chunks_a_plane() * self.planes();
        match directory.get(offsets).map_or(0, |entry| entry.count) {
            0 => return Err(bad("there is no strip and no tile")),
            found if found < needed => {
                return Err(bad(format!("there are {found} of {needed} strips or tiles")));
            }
            _ => {}
        }
        match directory.get(counts) {
            Some(entry) if entry.count < needed => {
                Err(bad(format!("there are lengths for {} of {needed} strips or tiles", entry.count)))
            }
            None if self.compression != Compression::None => Err(bad("the lengths of strips or tiles are missing")),
            _ => Ok(()),
        }
    }

    /// The tags of the offsets and of the lengths of strips or tiles.
    pub(super) fn tables(&self) -> (u16, u16) {
        if self.is_tiled { (tag::TILE_OFFSETS, tag::TILE_COUNTS) } else { (tag::STRIP_OFFSETS, tag::STRIP_COUNTS) }
    }

    /// Number of strips or tiles in a row of them.
    pub(super) fn chunks_across(&self) -> u32 {
        self.size.width.div_ceil(self.chunk.width)
    }

    /// Number of strips or tiles that cover the image.
    pub(super) fn chunks_a_plane(&self) -> u64 {
        u64::from(self.chunks_across()) * u64::from(self.size.height.div_ceil(self.chunk.height))
    }

    /// Number of planes. Strips or tiles cover each of them.
    pub(super) fn planes(&self) -> u64 {
        if self.is_planar { self.channels.into() } else { 1 }
    }

    /// Number of values that a strip or tile has for a pixel.
    pub(super) fn chunk_channels(&self) -> usize {
        if self.is_planar { 1 } else { self.channels.into() }
    }

    /// Number of bytes of so many pixels in a row of a strip or tile. Rows begin at whole bytes.
    pub(super) fn row_bytes(&self, pixels: u32) -> u64 {
        (u64::from(pixels) * self.chunk_channels() as u64 * u64::from(self.bits)).div_ceil(8)
    }

    /// Whether values have fewer bits than their type.
    pub(super) fn is_packed(&self) -> bool {
        usize::from(self.bits) != 8 * self.stored.size_bytes()
    }

    /// The type and number of the values in [`Planes`](crate::planes::Planes).
    pub(super) fn kind(&self) -> PixelKind {
        match self.color {
            Color::Palette => PixelKind::RGB8,
            _ => PixelKind { element: self.stored.element(), channels: self.channels },
        }
    }
}

/// The type and the number of bits of the values.
fn value_type(container: &Container<'_>, directory: &Directory, channels: u16) -> Result<(Stored, u8)> {
    // One number stands for all channels.
    let same = |tag, name: &str, default| match directory.get(tag) {
        Some(entry) if entry.count > 0 => {
            let count = if entry.count == 1 { 1 } else { channels.into() };
            let numbers = container.numbers(entry, 0..count)?;
            let first = numbers.get(0);
            if numbers.iter().any(|number| number != first) {
                let what = format!("a pixel whose values have different {name}");
                return Err(unsupported(&what, "store all channels in one type"));
            }
            Ok(first)
        }
        _ => Ok(default),
    };
    let bits = same(tag::BITS, "numbers of bits", 1)?;
    let format = same(tag::SAMPLE_FORMAT, "formats", 1)?;
    let stored = match (format, bits) {
        // Undefined data are whole numbers, as in libtiff.
        (1 | 4, 1..=8) => Stored::U8,
        (1 | 4, 9..=16) => Stored::U16,
        (2, 8) => Stored::I8,
        (2, 16) => Stored::I16,
        (3, 16) => Stored::F16,
        (3, 32) => Stored::F32,
        (_, 0) => return Err(bad("a value has no bit")),
        (1 | 4, _) => return Err(unsupported(&format!("a value of type u{bits}"), NUMBERS)),
        (2, _) => return Err(unsupported(&format!("a value of type i{bits}"), NUMBERS)),
        (3, _) => return Err(unsupported(&format!("a value of type f{bits}"), NUMBERS)),
        (5 | 6, _) => {
            return Err(unsupported("a complex number", "store the real and the imaginary part as channels"));
        }
        _ => return Err(unsupported(&format!("sample format {format}"), NUMBERS)),
    };
    Ok((stored, bits as u8))
}

fn compression(number: u64) -> Result<Compression> {
    let name = match number {
        1 => return Ok(Compression::None),
        5 => return Ok(Compression::Lzw),
        7 => return Ok(Compression::Jpeg),
        8 | 32_946 => return Ok(Compression::Deflate),
        32_773 => return Ok(Compression::PackBits),
        #[cfg(feature = "zstd")]
        50_000 => return Ok(Compression::Zstd),
        #[cfg(not(feature = "zstd"))]
        50_000 => {
            return Err(Error::Unsupported {
                feature: "decoding TIFF with Zstandard compression in this build".to_owned(),
                remedy: format!("build warpfeed with its feature `zstd`, or {OTHER_COMPRESSION}"),
            });
        }
        2 | 32_771 => "CCITT run-length",
        3 => "CCITT T.4",
        4 => "CCITT T.6",
        6 => "old-style JPEG",
        9 | 10 | 34_661 => "JBIG",
        32_809 => "ThunderScan",
        33_003 | 33_004 | 33_005 | 34_712 => "JPEG 2000",
        34_676 | 34_677 => "SGI Log",
        34_887 => "LERC",
        34_892 => "lossy DNG",
        34_925 => "LZMA",
        34_927 | 50_001 => "WebP",
        50_002 | 52_546 => "JPEG XL",
        _ => "unknown",
    };
    Err(unsupported(&format!("{name} compression (number {number})"), OTHER_COMPRESSION))
}

fn color(
    photometric: Option<u64>,
    ink_set: Option<u64>,
    compression: Compression,
    channels: u16,
    stored: Stored,
    bits: u8,
) -> Result<Color> {
    let is_jpeg = compression == Compression::Jpeg;
    if is_jpeg && (stored, bits) != (Stored::U8, 8) {
        return Err(unsupported("JPEG compression of other than 8 bits a sample", OTHER_COMPRESSION));
    }
    let refused = |what: &str, remedy: &str| Err(unsupported(what, remedy));
    let color = match photometric {
        Some(0) => Color::InvertedGray,
        Some(1) => Color::Gray,
        Some(2) if channels >= 3 => Color::Rgb,
        Some(2) => return Err(bad(format!("an RGB image has {channels} channels"))),
        Some(3) if channels == 1 && stored == Stored::U8 => Color::Palette,
        Some(3) => return refused("a palette of more than 256 colors, or with further channels,", "save it as RGB"),
        Some(5) if !is_jpeg && channels == 4 && matches!(ink_set, None | Some(1)) && bits == 8 => Color::Inks,
        Some(5) => return refused("an image of inks other than CMYK of 8 bits", "save it as RGB"),
        Some(6) if is_jpeg && channels == 3 => Color::Ycc,
        Some(6) => return refused("an image of luma and chroma without JPEG compression", "save it as RGB"),
        Some(8..=10) => return refused("an image of CIE L*a*b* colors", "save it as RGB"),
        Some(32_844 | 32_845) => return refused("an image of logarithmic luminance", "save it as float32"),
        None if channels == 1 => Color::Gray,
        _ => Color::Other,
    };
    if is_jpeg && !matches!(channels, 1 | 3) {
        return Err(unsupported(&format!("JPEG compression of {channels} channels"), OTHER_COMPRESSION));
    }
    Ok(color)
}

fn predictor(number: u64, compression: Compression, stored: Stored, bits: u8) -> Result<Predictor> {
    let is_float = matches!(stored, Stored::F16 | Stored::F32);
    let name = match (number, compression) {
        // As in libtiff, the tag means nothing there.
        (1, _) | (_, Compression::None | Compression::Jpeg) => return Ok(Predictor::None),
        (_, Compression::PackBits) => "with PackBits",
        (2, _) if matches!(bits, 8 | 16 | 32) => return Ok(Predictor::Difference),
        (3, _) if is_float => return Ok(Predictor::FloatingPoint),
        (2, _) => "of packed values",
        (3, _) => "of whole numbers",
        _ => "(unknown)",
    };
    Err(unsupported(&format!("predictor {number} {name}"), "rewrite the file without a predictor"))
}
