//! The last step: writes rows of bytes to the batch, normalized and cast.

use super::normalize::{Cast, Table};
use crate::backend::{PixelForm, RunOptions, Strides};
use crate::error::Result;
use crate::ops::normalize::Normalization;
use crate::ops::{Overwrite, noise};
use crate::plan::Epilogue;
use crate::raster::{Image, Pixel, Size};
use crate::tensor::{DType, Layout};
use half::{bf16, f16};
use std::sync::LazyLock;
use warpfeed_image::layout;

/// The tables that leave bytes unchanged.
static BYTES: LazyLock<Tables> = LazyLock::new(|| Tables::new(DType::U8, None));

/// The output element for each byte value, for any output type.
pub(crate) enum Tables {
    F32(Box<Table<f32>>),
    F16(Box<Table<f16>>),
    Bf16(Box<Table<bf16>>),
    U8(Box<Table<u8>>),
}

impl Tables {
    /// Tables for `dtype`, with normalization by a mean and a standard deviation if given.
    pub(crate) fn new(dtype: DType, normalize: Option<([f32; 3], [f32; 3])>) -> Self {
        match dtype {
            DType::F32 => Self::F32(Box::new(Table::new(normalize))),
            DType::F16 => Self::F16(Box::new(Table::new(normalize))),
            DType::Bf16 => Self::Bf16(Box::new(Table::new(normalize))),
            // Images of 16 bits have no tables (`values`).
            DType::U8 | DType::U16 => Self::U8(Box::new(Table::new(normalize))),
        }
    }

    /// Tables for a pipeline's elements. Images that are not RGB have none.
    pub(crate) fn of(options: &RunOptions, normalize: Normalization) -> Self {
        let rgb = normalize.filter(|_| options.values.is_none());
        Self::new(options.elements().dtype, rgb.map(|(mean, std)| (mean.three(), std.three())))
    }

    /// The elements for all bytes of the first channel, then of the others, as they are in memory.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::F32(table) => bytemuck::cast_slice(table.values()),
            Self::F16(table) => bytemuck::cast_slice(table.values()),
            Self::Bf16(table) => bytemuck::cast_slice(table.values()),
            Self::U8(table) => table.values().as_flattened(),
        }
    }
}

/// One sample's place in a batch, written row by row.
pub(crate) struct Output<'a> {
    bytes: &'a mut [u8],
    size: Size,
    tables: &'a Tables,
    order: Order,
    strides: Strides,
    /// Whether a plan's epilogue is run too.
    epilogue: bool,
}

/// The order of an image's elements.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// Only the first channel.
    Gray,
    Planes,
    Interleaved,
    /// Pixels of four bytes, as the host computes them.
    Pixels,
}

impl<'a> Output<'a> {
    /// An output for an image of `size`. `bytes` must have the image's length in the tables' type, and its alignment.
    /// With one channel, the first is written.
    pub(crate) fn new(bytes: &'a mut [u8], size: Size, tables: &'a Tables, elements: PixelForm) -> Self {
        Self::strided(bytes, size, tables, elements, elements.strides(size))
    }

    /// An output whose rows and planes lie apart: rows, and the planes one after the other, do not overlap. `bytes` ends
    /// after the last element, or later.
    pub(crate) fn strided(
        bytes: &'a mut [u8],
        size: Size,
        tables: &'a Tables,
        elements: PixelForm,
        strides: Strides,
    ) -> Self {
        let order = match elements.layout {
            _ if elements.channels == 1 => Order::Gray,
            Layout::Nchw => Order::Planes,
            Layout::Nhwc => Order::Interleaved,
        };
        Self { bytes, size, tables, order, strides, epilogue: true }
    }

    /// An output that is an image. It becomes a complete one of this size.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is no memory for it.
    pub(crate) fn image(image: &'a mut Image, size: Size) -> Result<Self> {
        image.reserve(size)?;
        image.reset(size);
        Ok(Self::pixels(image.pixels_mut().as_flattened_mut(), size))
    }

    /// An output of pixels of four bytes, row by row.
    pub(crate) fn pixels(bytes: &'a mut [u8], size: Size) -> Self {
        let (order, strides) = (Order::Pixels, Strides { plane: 0, row: size.width });
        Self { bytes, size, tables: &BYTES, order, strides, epilogue: true }
    }

    /// An output of RGB bytes, row by row, without a plan's epilogue.
    pub(super) fn rgb(bytes: &'a mut [u8], size: Size) -> Self {
        let elements = PixelForm { dtype: DType::U8, layout: Layout::Nhwc, channels: 3 };
        Self { epilogue: false, ..Self::new(bytes, size, &BYTES, elements) }
    }

    /// Writes row `y`.
    pub(crate) fn row(&mut self, y: u32, pixels: &[Pixel]) {
        debug_assert_eq!(pixels.len(), self.size.width as usize);
        let places = self.places();
        match self.tables {
            Tables::F32(table) => write(bytemuck::cast_slice_mut(self.bytes), places, y, pixels, table),
            Tables::F16(table) => write(bytemuck::cast_slice_mut(self.bytes), places, y, pixels, table),
            Tables::Bf16(table) => write(bytemuck::cast_slice_mut(self.bytes), places, y, pixels, table),
            Tables::U8(_) => copy(self.bytes, places, y, pixels),
        }
    }

    fn places(&self) -> Places {
        Places { width: self.size.width as usize, order: self.order, strides: self.strides }
    }

    /// Completes an image after its last row.
    pub(super) fn end(&mut self, epilogue: &Epilogue) {
        if self.epilogue {
            epilogue.erasures.iter().for_each(|erasure| self.erase(erasure));
        }
    }

    /// Overwrites a rectangle with values in the output's units.
    fn erase(&mut self, erase: &Overwrite) {
        let places = self.places();
        match self.tables {
            Tables::F32(_) => overwrite::<f32>(bytemuck::cast_slice_mut(self.bytes), places, erase),
            Tables::F16(_) => overwrite::<f16>(bytemuck::cast_slice_mut(self.bytes), places, erase),
            Tables::Bf16(_) => overwrite::<bf16>(bytemuck::cast_slice_mut(self.bytes), places, erase),
            Tables::U8(_) => {
                // A color is rounded, as on 8-bit images.
                let value = if erase.std == 0.0 { erase.value.map(f32::round) } else { erase.value };
                overwrite::<u8>(self.bytes, places, &Overwrite { value, ..*erase });
            }
        }
    }
}

/// The places of an image's elements.
#[derive(Clone, Copy)]
struct Places {
    width: usize,
    order: Order,
    strides: Strides,
}

impl Places {
    /// Row `y` of each plane.
    fn planes<T, const N: usize>(self, out: &mut [T], y: u32) -> [&mut [T]; N] {
        let row = self.start(y)..self.start(y) + self.width;
        // The last plane may end with its last element, and a single one has no stride.
        let plane = if N == 1 { out.len() } else { self.strides.plane as usize };
        let mut planes = out.chunks_mut(plane.max(1));
        std::array::from_fn(|_| planes.next().map_or(&mut [][..], |plane| &mut plane[row.clone()]))
    }

    /// Row `y` of an image whose pixels have this number of elements, next to each other.
    fn row<T>(self, out: &mut [T], y: u32, channels: usize) -> &mut [T] {
        &mut out[self.start(y)..][..channels * self.width]
    }

    fn start(self, y: u32) -> usize {
        y as usize * self.strides.row as usize
    }
}

fn write<T: Cast>(out: &mut [T], places: Places, y: u32, pixels: &[Pixel], table: &Table<T>) {
    match places.order {
        Order::Gray => table.planes::<1>(pixels, places.planes(out, y)),
        Order::Planes => table.planes::<3>(pixels, places.planes(out, y)),
        Order::Interleaved => table.interleaved(pixels, places.row(out, y, 3)),
        // Images have bytes alone.
        Order::Pixels => {}
    }
}

/// Writes bytes as they are, which is what their table does.
fn copy(out: &mut [u8], places: Places, y: u32, pixels: &[Pixel]) {
    match places.order {
        Order::Gray => layout::pixels_to_planes::<1>(pixels, places.planes(out, y)),
        Order::Planes => layout::pixels_to_planes::<3>(pixels, places.planes(out, y)),
        Order::Interleaved => layout::pixels_to_triples(pixels, places.row(out, y, 3)),
        Order::Pixels => {
            let out = out.as_chunks_mut().0;
            places.row(out, y, 1).copy_from_slice(pixels);
        }
    }
}

fn overwrite<T: Cast>(out: &mut [T], places: Places, erase: &Overwrite) {
    let rect = erase.rect;
    let (left, right) = (rect.x as usize, rect.right() as usize);
    let color = erase.value.map(T::from_f32);
    let mut noise = Vec::new();
    for y in rect.y..rect.bottom() {
        if erase.std != 0.0 {
            noise.clear();
            let made = |_, deviates| noise.push(erase.noisy(deviates).map(T::from_f32));
            noise::normal_row(erase.key, rect.x, y, rect.width, made);
        }
        let fill = |channel: usize, row: &mut [T]| {
            let row = &mut row[left..right];
            row.fill(color[channel]);
            row.iter_mut().zip(&noise).for_each(|(element, noise)| *element = noise[channel]);
        };
        match places.order {
            Order::Gray => fill(0, places.planes::<T, 1>(out, y)[0]),
            Order::Planes => {
                let rows = places.planes::<T, 3>(out, y);
                rows.into_iter().enumerate().for_each(|(channel, row)| fill(channel, row));
            }
            Order::Interleaved => {
                let row = &mut places.row(out, y, 3).as_chunks_mut::<3>().0[left..right];
                row.fill(color);
                row.iter_mut().zip(&noise).for_each(|(element, noise)| *element = *noise);
            }
            // Only what has been normalized is overwritten.
            Order::Pixels => {}
        }
    }
}
