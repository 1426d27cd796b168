//! An image of an array. Only the chunks that a part needs are read.

use super::chunks::Chunks;
use crate::error::{Error, Result};
use crate::raster::Rect;
use crate::source::arrays::{Axes, DataType};
use std::path::Path;
use std::sync::Arc;
use warpfeed_image::Header;
use warpfeed_image::decode::{StoredImage, half_to_f32};
use warpfeed_image::planes::{PixelKind, Planes, Value};

/// An array whose dimensions have a meaning.
#[derive(Debug)]
pub(super) struct Images {
    pub(super) chunks: Chunks,
    axes: Axes,
    /// The header of each image.
    pub(super) header: Header,
}

/// One of the images.
#[derive(Debug)]
pub(super) struct ZarrImage {
    images: Arc<Images>,
    sample: u64,
}

/// A part of a plane that a chunk holds.
#[derive(Clone, Copy)]
struct Block {
    /// Number of the first value in the chunk.
    from: usize,
    /// Distances between rows and between columns in the chunk.
    from_row: usize,
    from_column: usize,
    /// Number of the first value in the plane.
    to: usize,
    /// Distance between rows in the plane.
    to_row: usize,
    rows: usize,
    columns: usize,
}

impl Images {
    pub(super) fn new(chunks: Chunks, axes: Axes, path: &Path) -> Result<Self> {
        let (data_type, shape) = (chunks.metadata.data_type, &chunks.metadata.shape);
        let element = data_type.element().ok_or_else(|| Error::Unsupported {
            feature: format!("images of {} in {}", data_type.name(), path.display()),
            remedy: "write the array as uint8, uint16 or float32".to_owned(),
        })?;
        let wrong = |expected: &str| {
            Error::parameter("ZarrArray::open", "path", expected, format!("the shape {shape:?} of {}", path.display()))
        };
        let header = axes.header(shape, element).map_err(wrong)?;
        if axes.samples.is_some_and(|dimension| shape[dimension] == 0) {
            return Err(wrong("an array with samples"));
        }
        Ok(Self { chunks, axes, header })
    }

    /// Number of samples.
    pub(super) fn len(&self) -> u64 {
        self.axes.samples.map_or(1, |dimension| self.chunks.metadata.shape[dimension])
    }
}

impl ZarrImage {
    pub(super) fn new(images: &Arc<Images>, sample: u64) -> Self {
        Self { images: Arc::clone(images), sample }
    }

    /// Copies the values of a chunk, whose bytes are `chunk`, to the planes.
    fn copy(&self, chunk: &[u8], block: Block, out: &mut Planes, to: usize) {
        macro_rules! copy {
            ($load:expr) => {
                copy(chunk, block, out.plane_mut(to), $load)
            };
        }
        let metadata = &self.images.chunks.metadata;
        match (metadata.data_type, metadata.codecs.is_big) {
            (DataType::Bool | DataType::U8, _) => copy!(|[value]: [u8; 1]| value),
            (DataType::I8, _) => copy!(|[value]: [u8; 1]| f32::from(value as i8)),
            (DataType::U16, false) => copy!(u16::from_le_bytes),
            (DataType::U16, true) => copy!(u16::from_be_bytes),
            (DataType::I16, false) => copy!(|value| f32::from(i16::from_le_bytes(value))),
            (DataType::I16, true) => copy!(|value| f32::from(i16::from_be_bytes(value))),
            (DataType::F16, false) => copy!(|value| half_to_f32(u16::from_le_bytes(value))),
            (DataType::F16, true) => copy!(|value| half_to_f32(u16::from_be_bytes(value))),
            (_, false) => copy!(f32::from_le_bytes),
            (_, true) => copy!(f32::from_be_bytes),
        }
    }

    /// Fills a part of a plane with the fill value.
    fn fill(&self, block: Block, out: &mut Planes, to: usize) {
        fn rows<T: Value>(block: Block, plane: &mut [T], value: T) {
            plane[block.to..]
                .chunks_mut(block.to_row)
                .take(block.rows)
                .for_each(|row| row[..block.columns].fill(value));
        }
        let metadata = &self.images.chunks.metadata;
        let [a, b, c, d, ..] = metadata.fill;
        match metadata.data_type {
            DataType::Bool | DataType::U8 => rows(block, out.plane_mut(to), a),
            DataType::I8 => rows(block, out.plane_mut(to), f32::from(a as i8)),
            DataType::U16 => rows(block, out.plane_mut(to), u16::from_le_bytes([a, b])),
            DataType::I16 => rows(block, out.plane_mut(to), f32::from(i16::from_le_bytes([a, b]))),
            DataType::F16 => rows(block, out.plane_mut(to), half_to_f32(u16::from_le_bytes([a, b]))),
            _ => rows(block, out.plane_mut(to), f32::from_le_bytes([a, b, c, d])),
        }
    }
}

fn copy<const N: usize, T: Value>(chunk: &[u8], block: Block, plane: &mut [T], load: impl Fn([u8; N]) -> T + Copy) {
    let values = chunk.as_chunks::<N>().0;
    for (row, to) in plane[block.to..].chunks_mut(block.to_row).take(block.rows).enumerate() {
        let (from, to) = (&values[block.from + row * block.from_row..], &mut to[..block.columns]);
        if block.from_column == 1 {
            to.iter_mut().zip(from).for_each(|(to, value)| *to = load(*value));
        } else {
            to.iter_mut().zip(from.iter().step_by(block.from_column)).for_each(|(to, value)| *to = load(*value));
        }
    }
}

/// The chunks of a dimension that hold some of `len` places from `start` on: the number of each, its first such place,
/// and their number.
fn chunks_of(start: u32, len: u32, chunk: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let (start, end) = (u64::from(start), u64::from(start) + u64::from(len));
    let numbers = if len == 0 { 0..0 } else { start / chunk..(end - 1) / chunk + 1 };
    numbers.map(move |number| {
        let first = start.max(number * chunk);
        (number, first, end.min((number + 1).saturating_mul(chunk)) - first)
    })
}

impl StoredImage for ZarrImage {
    fn header(&self) -> &Header {
        &self.images.header
    }

    fn decode(&self, part: Rect, bands: &[u16], out: &mut Planes) -> warpfeed_image::Result<()> {
        let Images { chunks, axes, header } = &*self.images;
        let metadata = &chunks.metadata;
        let (chunk_shape, strides) = (&metadata.chunk_shape, &metadata.strides);
        out.reset_part(PixelKind { channels: bands.len() as u16, ..header.kind }, header.size, part)?;
        // Of dimensions that the array lacks, there is one place.
        let chunk_side = |axis: Option<usize>| axis.map_or(1, |axis| chunk_shape[axis]);
        let stride = |axis: Option<usize>| axis.map_or(0, |axis| strides[axis]);
        let sample_side = chunk_side(axes.samples);
        let in_sample = (self.sample % sample_side) as usize * stride(axes.samples);
        let band_side = chunk_side(axes.channels);
        let mut band_chunks: Vec<u64> = bands.iter().map(|band| u64::from(*band) / band_side).collect();
        band_chunks.sort_unstable();
        band_chunks.dedup();
        let mut numbers = vec![0; metadata.shape.len()];
        if let Some(axis) = axes.samples {
            numbers[axis] = self.sample / sample_side;
        }
        for (row, top, rows) in chunks_of(part.y, part.height, chunk_shape[axes.rows]) {
            numbers[axes.rows] = row;
            for (column, left, columns) in chunks_of(part.x, part.width, chunk_shape[axes.columns]) {
                numbers[axes.columns] = column;
                let in_rows = (top % chunk_shape[axes.rows]) as usize * strides[axes.rows];
                let in_columns = (left % chunk_shape[axes.columns]) as usize * strides[axes.columns];
                let (y, x) = (top as usize - part.y as usize, left as usize - part.x as usize);
                let block = Block {
                    from: in_sample + in_rows + in_columns,
                    from_row: strides[axes.rows],
                    from_column: strides[axes.columns],
                    to: y * part.width as usize + x,
                    to_row: part.width as usize,
                    rows: rows as usize,
                    columns: columns as usize,
                };
                for &band_chunk in &band_chunks {
                    if let Some(axis) = axes.channels {
                        numbers[axis] = band_chunk;
                    }
                    let chunk = chunks.get(&numbers)?;
                    for (to, band) in bands.iter().map(|band| u64::from(*band)).enumerate() {
                        if band / band_side != band_chunk {
                            continue;
                        }
                        let from = block.from + (band % band_side) as usize * stride(axes.channels);
                        match &chunk {
                            Some(chunk) => self.copy(chunk, Block { from, ..block }, out, to),
                            None => self.fill(block, out, to),
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
