//! Images that are arrays of numbers, in Zarr and in Parquet: their types, their dimensions, and whole samples.

mod axes;
mod data_type;

pub(super) use axes::Axes;
pub(super) use data_type::DataType;

use super::Sample;
use crate::error::Result;
use crate::os::memory::{self, FEWER_IMAGES};
use crate::output::npy;
use crate::raster::Size;
use warpfeed_image::planes::{Element, PixelKind, Planes, Value};

/// Makes an image the whole sample: pixels if it is gray or RGB of 8 bits, else a NumPy file of rows, columns,
/// channels.
pub(super) fn write(planes: &Planes, sample: &mut Sample<'_>) -> Result<()> {
    let (Size { width, height }, PixelKind { element, channels }) = (planes.size(), planes.kind());
    let shape = [height as usize, width as usize, channels.into()];
    let are_pixels = element == Element::U8 && matches!(channels, 1 | 3);
    let head = match element {
        Element::U8 if are_pixels => Vec::new(),
        Element::U8 => npy::header("|u1", &shape)?,
        Element::U16 => npy::header("<u2", &shape)?,
        Element::F32 => npy::header("<f4", &shape)?,
    };
    let file = sample.buffer();
    file.clear();
    memory::reserve(file, head.len() + planes.as_bytes().len(), "an image", FEWER_IMAGES)?;
    file.extend(head);
    pixels(planes, file);
    if are_pixels { sample.set_pixels(planes.size(), channels as u8) } else { Ok(()) }
}

/// Writes the values of an image, pixel by pixel and little-endian.
pub(super) fn pixels(planes: &Planes, out: &mut Vec<u8>) {
    fn write<T: Value, const N: usize>(planes: &Planes, out: &mut Vec<u8>, bytes: impl Fn(T) -> [u8; N]) {
        let count = planes.size().area_px() as usize;
        let values = planes.values::<T>();
        out.reserve_exact(values.len() * N);
        for at in 0..count {
            values.iter().skip(at).step_by(count).for_each(|value| out.extend(bytes(*value)));
        }
    }
    match planes.kind().element {
        Element::U8 => write(planes, out, u8::to_le_bytes),
        Element::U16 => write(planes, out, u16::to_le_bytes),
        Element::F32 => write(planes, out, f32::to_le_bytes),
    }
}
