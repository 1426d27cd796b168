//! Planes of a mask or an auxiliary image in the three bytes of a pixel, on their way through a plan, which copies
//! whole pixels: one plane of 8 bits, both bytes of a plane of 16 bits, one bit for each of 24 objects' planes, or the
//! channels.

use super::{Mask, MaskValues};
use crate::error::Result;
use crate::os::memory;
use crate::raster::{Image, Pixel, Rect, Size};
use bytemuck::Zeroable;
use std::ops::Range;

/// Planes of objects that are moved at a time, a bit each.
const OBJECTS: usize = 24;
/// Channels of an image that are moved at a time, a byte each.
const CHANNELS: usize = 3;

/// Planes of a mask or an auxiliary image that are moved together.
pub(crate) enum Carried<'a> {
    /// Up to three planes of 8 bits, a byte each.
    Bytes(Vec<&'a [u8]>),
    /// A plane of 16 bits, in the first two bytes.
    Word(&'a [u16]),
    /// The planes of up to 24 objects, a bit each.
    Bits(Vec<&'a [u8]>),
}

/// The planes of a mask, in groups that are moved together.
pub(crate) fn groups(mask: &Mask) -> impl Iterator<Item = Carried<'_>> {
    let of_objects = mask.is_of_objects();
    mask.planes().chunks(if of_objects { OBJECTS } else { CHANNELS }).map(move |planes| {
        // Several planes have 8 bits (`Mask::of_objects`, `AuxImage::rgb`).
        if let Some(MaskValues::U16(values)) = planes.first().map(|plane| &**plane) {
            return Carried::Word(values);
        }
        let planes = planes.iter().filter_map(|plane| plane.as_bytes()).collect();
        if of_objects { Carried::Bits(planes) } else { Carried::Bytes(planes) }
    })
}

/// The value of a mask outside the image, as a color.
pub(crate) fn fill(mask: &Mask) -> [u8; 3] {
    let [low, high] = mask.fill().to_le_bytes();
    match mask.planes().first().map(|plane| &**plane) {
        _ if mask.is_of_objects() => [if mask.fill() == 0 { 0 } else { 255 }; 3],
        Some(MaskValues::U16(_)) => [low, high, 0],
        _ => [low; 3],
    }
}

impl Mask {
    /// This mask after each group of its planes has gone through `run`, which makes pixels of 3 bytes of an image of
    /// size `size`. `made` is memory for these.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is no memory for the result;
    /// [`Error::Limits`](crate::Error::Limits) if the masks of all objects are too large; the errors of `run`.
    pub(crate) fn moved(
        &self,
        size: Size,
        made: &mut Vec<u8>,
        mut run: impl FnMut(&Carried<'_>, &mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        self.check_moved(size)?;
        let mut planes = Vec::with_capacity(self.planes().len());
        for group in groups(self) {
            let len_bytes = 3 * size.area_px() as usize;
            memory::reserve(made, len_bytes, "a mask", memory::FEWER_IMAGES)?;
            made.resize(len_bytes, 0);
            run(&group, made)?;
            planes.extend(group.unpack(made.as_chunks().0)?);
        }
        Ok(self.with_planes(size, planes))
    }
}

impl Carried<'_> {
    /// Number of bytes of a pixel that carry something.
    pub(crate) fn pixel_bytes(&self) -> usize {
        match self {
            Self::Bytes(planes) => planes.len(),
            Self::Word(_) => 2,
            Self::Bits(planes) => planes.len().div_ceil(8).max(1),
        }
    }

    /// Number of planes.
    pub(crate) fn planes(&self) -> usize {
        if let Self::Bits(planes) | Self::Bytes(planes) = self { planes.len() } else { 1 }
    }

    /// The bytes of pixels that carry something, of a part of an image of a size, row by row.
    pub(crate) fn pack(&self, size: Size, part: Rect, out: &mut [u8]) {
        let row_bytes = part.width as usize * self.pixel_bytes();
        for (row, out) in rows(size, part).zip(out.chunks_exact_mut(row_bytes)) {
            match self {
                Self::Bytes(planes) => {
                    if let [values] = planes[..] {
                        out.copy_from_slice(&values[row]);
                        continue;
                    }
                    for (i, values) in planes.iter().enumerate() {
                        let pixels = out.chunks_exact_mut(planes.len());
                        pixels.zip(&values[row.clone()]).for_each(|(pixel, value)| pixel[i] = *value);
                    }
                }
                Self::Word(values) => {
                    out.as_chunks_mut()
                        .0
                        .iter_mut()
                        .zip(&values[row])
                        .for_each(|(to, value)| *to = value.to_le_bytes());
                }
                Self::Bits(planes) => {
                    out.fill(0);
                    for (i, values) in planes.iter().enumerate() {
                        let pixels = out.chunks_exact_mut(self.pixel_bytes());
                        pixels.zip(&values[row.clone()]).for_each(|(pixel, value)| pixel[i / 8] |= value << (i % 8));
                    }
                }
            }
        }
    }

    /// Makes a part of an image of a size, which has memory for it.
    pub(crate) fn load_part(&self, size: Size, part: Rect, image: &mut Image) {
        image.reset_part(size, part);
        (0..).zip(rows(size, part)).for_each(|(y, values)| self.load(values, image.row_mut(y)));
    }

    /// Makes a row's pixels, from the values in a range.
    fn load(&self, values_of: Range<usize>, pixels: &mut [Pixel]) {
        match self {
            Self::Bytes(planes) => {
                if let [values] = planes[..] {
                    let pixels = pixels.iter_mut().zip(&values[values_of]);
                    return pixels.for_each(|(pixel, value)| *pixel = [*value, 0, 0, 255]);
                }
                pixels.fill([0, 0, 0, 255]);
                for (i, values) in planes.iter().enumerate() {
                    let pixels = pixels.iter_mut().zip(&values[values_of.clone()]);
                    pixels.for_each(|(pixel, value)| pixel[i] = *value);
                }
            }
            Self::Word(values) => {
                for (pixel, value) in pixels.iter_mut().zip(&values[values_of]) {
                    let [low, high] = value.to_le_bytes();
                    *pixel = [low, high, 0, 255];
                }
            }
            Self::Bits(planes) => {
                pixels.fill([0, 0, 0, 255]);
                for (i, values) in planes.iter().enumerate() {
                    let pixels = pixels.iter_mut().zip(&values[values_of.clone()]);
                    pixels.for_each(|(pixel, value)| pixel[i / 8] |= value << (i % 8));
                }
            }
        }
    }

    /// The planes that pixels carry, after a plan.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is no memory for them.
    fn unpack(&self, pixels: &[[u8; 3]]) -> Result<Vec<MaskValues>> {
        fn plane<T: Zeroable>(pixels: &[[u8; 3]], value: impl Fn(&[u8; 3]) -> T) -> Result<Vec<T>> {
            let mut plane = memory::zeros(pixels.len(), "a mask", memory::FEWER_IMAGES)?;
            plane.iter_mut().zip(pixels).for_each(|(to, pixel)| *to = value(pixel));
            Ok(plane)
        }
        match self {
            Self::Bytes(planes) => {
                (0..planes.len()).map(|i| Ok(MaskValues::U8(plane(pixels, |pixel| pixel[i])?))).collect()
            }
            Self::Word(_) => {
                let word = |[low, high, _]: &[u8; 3]| u16::from_le_bytes([*low, *high]);
                Ok(vec![MaskValues::U16(plane(pixels, word)?)])
            }
            Self::Bits(planes) => (0..planes.len())
                .map(|i| Ok(MaskValues::U8(plane(pixels, |pixel| pixel[i / 8] >> (i % 8) & 1)?)))
                .collect(),
        }
    }
}

/// The values of each row of a part in an image of a size.
fn rows(size: Size, part: Rect) -> impl Iterator<Item = Range<usize>> {
    (part.y..part.bottom()).map(move |y| {
        let start = y as usize * size.width as usize + part.x as usize;
        start..start + part.width as usize
    })
}
