//! Images to be decoded, and pixels in memory, which need no decoding.

use super::probe::{header, probe};
use super::stored::{ByteOrder, Places, Stored, StoredPixels};
use super::{Format, Header, pnm};
use crate::error::{Error, Result};
use crate::layout;
use crate::planes::{PixelKind, Planes};
use crate::raster::{Image, Rect, Size};
use std::fmt;

/// An image to be decoded, or its pixels.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// The bytes of a file.
    Encoded(&'a [u8]),
    /// Pixels, which need no decoding.
    Pixels(Pixels<'a>),
    /// An image that is read when a part of it is wanted.
    Stored(&'a dyn StoredImage),
}

/// An image that is read in parts, each when it is wanted: a large file, an array in chunks. Several threads may read it
/// at once.
pub trait StoredImage: fmt::Debug + Send + Sync {
    /// Size and kind of the image.
    fn header(&self) -> &Header;

    /// Reads the channels `bands` of the rectangle `part`, and makes `out` this part.
    ///
    /// # Errors
    /// [`Error::Decode`] if the data are damaged, or cannot be read.
    fn decode(&self, part: Rect, bands: &[u16], out: &mut Planes) -> Result<()>;

    /// Number of bytes that reading all of it takes, as far as it is known.
    fn len_bytes(&self) -> u64 {
        let header = self.header();
        header.kind.len_bytes(header.size.area_px())
    }
}

impl<'a> Input<'a> {
    /// Encoded bytes, or pixels of this size and with this number of channels.
    #[must_use]
    pub fn new(bytes: &'a [u8], pixels: Option<(Size, u8)>) -> Self {
        match pixels {
            Some((size, channels)) => Self::Pixels(Pixels { size, channels, bytes }),
            None => Self::Encoded(bytes),
        }
    }

    /// The header of the image.
    ///
    /// # Errors
    /// The errors of [`probe`].
    pub fn header(&self) -> Result<Header> {
        match self {
            Self::Encoded(bytes) => probe(bytes),
            Self::Pixels(pixels) => Ok(pixels.header()),
            Self::Stored(image) => Ok(image.header().clone()),
        }
    }
}

/// The pixels of an image, row by row without gaps. A pixel is one gray value, red, green and blue, or a
/// [`Pixel`](crate::raster::Pixel).
///
/// Methods that take a part expect one inside the image.
#[derive(Debug, Clone, Copy)]
pub struct Pixels<'a> {
    /// Size of the image.
    pub size: Size,
    /// Number of bytes of a pixel: 1, 3 or 4.
    pub channels: u8,
    /// Values of all pixels.
    pub bytes: &'a [u8],
}

impl<'a> From<&'a Image> for Pixels<'a> {
    /// The stored pixels of an image.
    fn from(image: &'a Image) -> Self {
        Self { size: image.size(), channels: 4, bytes: image.pixels().as_flattened() }
    }
}

impl<'a> Pixels<'a> {
    /// The pixels of a PNM file.
    ///
    /// # Errors
    /// [`Error::Decode`] if the data end before the last pixel.
    pub(super) fn of_pnm(bytes: &'a [u8], header: &Header) -> Result<Self> {
        let pixels = bytes.get(header.scan_offset_bytes..).unwrap_or_default();
        if (pixels.len() as u128) < u128::from(header.size.area_px()) * u128::from(header.components) {
            return Err(Error::decode("PNM", format!("truncated: the data end after {} bytes", bytes.len())));
        }
        Ok(Self { size: header.size, channels: header.components, bytes: pixels })
    }

    /// The header that a PNM file with these pixels has.
    #[must_use]
    pub fn header(&self) -> Header {
        let components = if self.channels == 1 { 1 } else { 3 };
        let kind = PixelKind { channels: components.into(), ..PixelKind::RGB8 };
        Header { components, kind, ..header(Format::Pnm, self.size.width, self.size.height) }
    }

    /// A PNM file with these pixels.
    #[must_use]
    pub fn to_pnm(&self) -> Vec<u8> {
        let mut file = pnm::written(self.size, self.channels).into_bytes();
        if self.channels == 4 {
            file.extend(self.bytes.as_chunks::<4>().0.iter().flat_map(|&[r, g, b, _]| [r, g, b]));
        } else {
            file.extend_from_slice(self.bytes);
        }
        file
    }

    /// Copies a part into an image.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is too little memory.
    pub fn to_image(&self, part: Rect, out: &mut Image) -> Result<()> {
        out.reserve(part.size())?;
        out.reset_part(self.size, part);
        for (y, row) in (0..).zip(self.rows(part)) {
            let to = out.row_mut(y);
            match self.channels {
                1 => layout::planes_to_pixels([row; 3], to),
                3 => layout::triples_to_pixels(row, to),
                _ => to.iter_mut().zip(row.as_chunks::<4>().0).for_each(|(to, &[r, g, b, _])| *to = [r, g, b, 255]),
            }
        }
        Ok(())
    }

    /// Copies a part to RGB bytes, row by row.
    pub fn to_rgb(&self, part: Rect, out: &mut [u8]) {
        let rows = out.chunks_exact_mut((3 * part.width as usize).max(1));
        for (to, row) in rows.zip(self.rows(part)) {
            match self.channels {
                1 => to.as_chunks_mut::<3>().0.iter_mut().zip(row).for_each(|(to, &gray)| *to = [gray; 3]),
                3 => to.copy_from_slice(row),
                _ => layout::pixels_to_triples(row.as_chunks::<4>().0, to),
            }
        }
    }

    /// Copies the channels `bands` of a part. Pixels of four bytes have their fourth byte as a channel.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is too little memory.
    pub(super) fn to_planes(self, part: Rect, bands: &[u16], out: &mut Planes) -> Result<()> {
        out.reset_part(PixelKind { channels: bands.len() as u16, ..PixelKind::RGB8 }, self.size, part)?;
        let (count, channels) = (part.width as usize, usize::from(self.channels));
        for (y, bytes) in self.rows(part).enumerate() {
            let row = StoredPixels { bytes, stored: Stored::U8, order: ByteOrder::NATIVE, channels };
            for (to, band) in bands.iter().enumerate() {
                row.write(usize::from(*band), out, to, Places { start: y * count, count, step: 1 });
            }
        }
        Ok(())
    }

    /// The bytes of the rows of a part.
    fn rows(&self, part: Rect) -> impl Iterator<Item = &'a [u8]> {
        let channels = usize::from(self.channels);
        let rows = self.bytes.chunks_exact((self.size.width as usize * channels).max(1));
        let columns = part.x as usize * channels..part.right() as usize * channels;
        rows.skip(part.y as usize).take(part.height as usize).map(move |row| &row[columns.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_all_kinds_of_pixels() {
        let (size, part) = (Size::new(11, 3), Rect { x: 2, y: 1, width: 9, height: 2 });
        let rgb: Vec<u8> = (0..size.area_px() * 3).map(|i| (i * 7) as u8).collect();
        let image = Image::from_rgb(size, &rgb).unwrap();
        let gray: Vec<u8> = rgb.iter().step_by(3).copied().collect();
        let wanted = |of: fn(&[u8]) -> [u8; 3]| -> Vec<u8> {
            let rows = rgb.chunks_exact(33).skip(1);
            rows.flat_map(|row| row[6..].chunks_exact(3).flat_map(of)).collect()
        };
        let color = wanted(|p| [p[0], p[1], p[2]]);
        for (pixels, want) in [
            (Pixels { size, channels: 1, bytes: &gray }, wanted(|p| [p[0]; 3])),
            (Pixels { size, channels: 3, bytes: &rgb }, color.clone()),
            (Pixels::from(&image), color),
        ] {
            let (mut made, mut bytes) = (Image::default(), vec![0; want.len()]);
            pixels.to_image(part, &mut made).unwrap();
            pixels.to_rgb(part, &mut bytes);
            assert_eq!((made.to_rgb(), made.whole(), made.part(), &bytes), (want.clone(), size, part, &want));
            assert!(made.pixels().iter().all(|pixel| pixel[3] == 255));
            let mut planes = Planes::default();
            let bands: &[u16] = if pixels.channels == 1 { &[0, 0, 0] } else { &[0, 1, 2] };
            pixels.to_planes(part, bands, &mut planes).unwrap();
            assert_eq!((planes.whole(), planes.part()), (size, part));
            for (channel, band) in (0..).zip(bands) {
                let plane: Vec<u8> = want.iter().skip(usize::from(*band)).step_by(3).copied().collect();
                assert_eq!(planes.plane::<u8>(channel), plane);
            }
            let file = pixels.to_pnm();
            let header = probe(&file).unwrap();
            assert_eq!(Header { scan_offset_bytes: 0, ..header.clone() }, pixels.header());
            Pixels::of_pnm(&file, &header).unwrap().to_rgb(part, &mut bytes);
            assert_eq!(bytes, want);
        }
    }
}
