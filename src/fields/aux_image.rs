//! Auxiliary images of a sample: depth, stereo pairs, another resolution.

use super::mask::Kind;
use super::{Mask, MaskValues};
use crate::decode::{DecodeOptions, Decoder, Format, probe};
use crate::encode::encode_png;
use crate::error::{Error, Result};
use crate::interpolation::Interpolation;
use crate::raster::{Image, Rect, Size, check_pixels};
use std::sync::Arc;

/// An auxiliary image of a sample: depth, the other image of a stereo pair, the same scene in another resolution.
/// Operations move its pixels as the image's, with a filter of its own if it has one; changes of color, noise, blur and
/// erasing do not affect it. It is never changed, so copies share its memory.
///
/// It may have another size than the image. Then flips, quarter turns, crops, padding and resizes act on it by as many
/// pixels as the ratio of the sides says, which must be whole; other operations are refused.
///
/// ```
/// use warpfeed::{fields::AuxImage, image::Size, ops::Interpolation};
///
/// let depth = AuxImage::gray(Size::new(2, 2), vec![0_u16, 1, 1000, 65_535])?;
/// assert_eq!((depth.size(), depth.channels(), depth.interpolation()), (Size::new(2, 2), 1, Some(Interpolation::Nearest)));
/// let high = AuxImage::rgb(Size::new(4, 4), &[127; 48])?.with_interpolation(Interpolation::Bicubic);
/// assert_eq!((high.channels(), high.planes().len()), (3, 3));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AuxImage(Mask);

impl AuxImage {
    /// An image of one channel: a value for each pixel, row by row. With 16 bits it is moved by the nearest pixel,
    /// because a blend of depth or disparity at an edge is on neither side. With 8 bits it is moved by the operations'
    /// own filters, unless [`with_interpolation`](Self::with_interpolation) says otherwise.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless there is a value for each of one pixel or more.
    pub fn gray(size: Size, values: impl Into<MaskValues>) -> Result<Self> {
        let mask = Mask::new(size, values)?;
        let wide = matches!(mask.planes().first().map(|plane| &**plane), Some(MaskValues::U16(_)));
        Ok(Self(mask.of_kind(Kind::Aux(wide.then_some(Interpolation::Nearest)))))
    }

    /// An image in color: bytes red, green, blue, row by row.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless there are three bytes for each of one pixel or more.
    pub fn rgb(size: Size, bytes: &[u8]) -> Result<Self> {
        if size.is_empty() || 3 * size.area_px() != bytes.len() as u64 {
            let expected = format!("three for each of {size} pixels, at least one");
            return Err(Error::parameter("auxiliary image", "bytes", expected, bytes.len()));
        }
        let (pixels, _) = bytes.as_chunks::<3>();
        let plane = |channel: usize| MaskValues::U8(pixels.iter().map(|pixel| pixel[channel]).collect());
        Ok(Self(Mask::of_planes(size, (0..3).map(plane).collect(), Kind::Aux(None), 0)))
    }

    /// An image from a file: a gray PNG of 8 or 16 bits (or fewer) has one channel, all else is in color. Its EXIF
    /// orientation is ignored: the image's own orientation turns both.
    ///
    /// # Errors
    /// [`Error::Decode`] for damaged bytes; [`Error::Limits`] for more than `max_pixels` pixels.
    pub fn from_encoded(bytes: &[u8], max_pixels: u64) -> Result<Self> {
        let header = probe(bytes)?;
        check_pixels(header.size, max_pixels)?;
        if header.format == Format::Png && header.components == 1 {
            let mask = Mask::from_png(bytes, max_pixels)?;
            let values = mask.planes().first().map(|plane| (**plane).clone());
            return Self::gray(mask.size(), values.unwrap_or_else(|| MaskValues::U8(Vec::new())));
        }
        let mut image = Image::default();
        Decoder::new()?.decode_with(bytes, &header, Rect::full(header.size), DecodeOptions::default(), &mut image)?;
        let rgb: Vec<u8> = image.pixels().iter().flat_map(|[red, green, blue, _]| [*red, *green, *blue]).collect();
        Self::rgb(header.size, &rgb)
    }

    /// Sets the filter by which operations compute values between pixels, whatever their own. An operation without it
    /// takes the best that it has. Values of 16 bits are moved by the nearest pixel alone: with another filter,
    /// operations refuse them.
    #[must_use]
    pub fn with_interpolation(self, interpolation: Interpolation) -> Self {
        Self(self.0.of_kind(Kind::Aux(Some(interpolation))))
    }

    /// Sets the value outside the image, of all channels. Default: 0.
    #[must_use]
    pub fn with_fill(self, fill: u16) -> Self {
        Self(self.0.with_fill(fill))
    }

    /// The size in pixels.
    #[must_use]
    pub const fn size(&self) -> Size {
        self.0.size()
    }

    /// The value outside the image.
    #[must_use]
    pub const fn fill(&self) -> u16 {
        self.0.fill()
    }

    /// The filter of its own; `None` if it has those of the operations.
    #[must_use]
    pub fn interpolation(&self) -> Option<Interpolation> {
        if let Kind::Aux(interpolation) = self.0.kind() { interpolation } else { None }
    }

    /// Number of channels: 1 or 3.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.0.planes().len()
    }

    /// The values of each channel, row by row.
    #[must_use]
    pub fn planes(&self) -> &[Arc<MaskValues>] {
        self.0.planes()
    }

    /// The image as a PNG file: gray of 8 or 16 bits, or in color.
    ///
    /// # Errors
    /// [`Error::Parameter`] if PNG cannot hold it.
    pub fn to_png(&self) -> Result<Vec<u8>> {
        if self.channels() == 1 {
            return self.0.to_png(0);
        }
        let planes: Vec<&[u8]> = self.planes().iter().filter_map(|plane| plane.as_bytes()).collect();
        let pixels = 0..self.size().area_px() as usize;
        let rgb: Vec<u8> = pixels.flat_map(|i| planes.iter().map(move |plane| plane[i])).collect();
        Ok(encode_png(&Image::from_rgb(self.size(), &rgb)?)?)
    }

    /// This image, the field `name`, in the upper left corner of one of size `size`, whose other values are the fill.
    ///
    /// # Errors
    /// [`Error::Parameter`] if this image is larger.
    pub(super) fn padded(&self, name: &str, size: Size) -> Result<Self> {
        self.0.padded(name, size).map(Self)
    }

    /// The planes, as they are moved.
    pub(crate) fn as_mask(&self) -> &Mask {
        &self.0
    }

    /// The image of planes that were moved.
    pub(crate) fn of_moved(planes: Mask) -> Self {
        Self(planes)
    }
}
