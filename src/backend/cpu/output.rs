//! The last step: writes rows of bytes to the batch, normalized and cast.

use super::normalize::{Cast, Table};
use crate::backend::{PixelForm, RunOptions};
use crate::ops::normalize::Normalization;
use crate::ops::{Overwrite, noise};
use crate::plan::Epilogue;
use crate::raster::{Pixel, Size};
use crate::tensor::{DType, Layout};
use half::{bf16, f16};
use std::sync::LazyLock;

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
}

impl<'a> Output<'a> {
    /// An output for an image of `size`. `bytes` must have the image's length in the tables' type, and its alignment.
    /// With one channel, the first is written.
    pub(crate) fn new(bytes: &'a mut [u8], size: Size, tables: &'a Tables, elements: PixelForm) -> Self {
        let order = match elements.layout {
            _ if elements.channels == 1 => Order::Gray,
            Layout::Nchw => Order::Planes,
            Layout::Nhwc => Order::Interleaved,
        };
        Self { bytes, size, tables, order, epilogue: true }
    }

    /// An output of RGB bytes, row by row, without a plan's epilogue.
    pub(super) fn rgb(bytes: &'a mut [u8], size: Size) -> Self {
        let elements = PixelForm { dtype: DType::U8, layout: Layout::Nhwc, channels: 3 };
        Self { epilogue: false, ..Self::new(bytes, size, &BYTES, elements) }
    }

    /// Writes row `y`.
    pub(crate) fn row(&mut self, y: u32, pixels: &[Pixel]) {
        debug_assert_eq!(pixels.len(), self.size.width as usize);
        let Self { size, order, .. } = *self;
        match self.tables {
            Tables::F32(table) => write(bytemuck::cast_slice_mut(self.bytes), size, order, y, pixels, table),
            Tables::F16(table) => write(bytemuck::cast_slice_mut(self.bytes), size, order, y, pixels, table),
            Tables::Bf16(table) => write(bytemuck::cast_slice_mut(self.bytes), size, order, y, pixels, table),
            Tables::U8(table) => write(self.bytes, size, order, y, pixels, table),
        }
    }

    /// Completes an image after its last row.
    pub(super) fn end(&mut self, epilogue: &Epilogue) {
        if self.epilogue {
            epilogue.erasures.iter().for_each(|erasure| self.erase(erasure));
        }
    }

    /// Overwrites a rectangle with values in the output's units.
    fn erase(&mut self, erase: &Overwrite) {
        let Self { size, order, .. } = *self;
        match self.tables {
            Tables::F32(_) => overwrite::<f32>(bytemuck::cast_slice_mut(self.bytes), size, order, erase),
            Tables::F16(_) => overwrite::<f16>(bytemuck::cast_slice_mut(self.bytes), size, order, erase),
            Tables::Bf16(_) => overwrite::<bf16>(bytemuck::cast_slice_mut(self.bytes), size, order, erase),
            Tables::U8(_) => {
                // A color is rounded, as on 8-bit images.
                let value = if erase.std == 0.0 { erase.value.map(f32::round) } else { erase.value };
                overwrite::<u8>(self.bytes, size, order, &Overwrite { value, ..*erase });
            }
        }
    }
}

/// Row `y` of each plane of an image.
fn plane_rows<T, const N: usize>(out: &mut [T], size: Size, y: u32) -> [&mut [T]; N] {
    let (width, plane) = (size.width as usize, size.area_px() as usize);
    let row = y as usize * width;
    let mut planes = out.chunks_exact_mut(plane.max(1));
    std::array::from_fn(|_| planes.next().map_or(&mut [][..], |plane| &mut plane[row..row + width]))
}

fn write<T: Cast>(out: &mut [T], size: Size, order: Order, y: u32, pixels: &[Pixel], table: &Table<T>) {
    match order {
        Order::Gray => table.planes::<1>(pixels, plane_rows(out, size, y)),
        Order::Planes => table.planes::<3>(pixels, plane_rows(out, size, y)),
        Order::Interleaved => {
            let row = 3 * size.width as usize;
            table.interleaved(pixels, &mut out[y as usize * row..][..row]);
        }
    }
}

fn overwrite<T: Cast>(out: &mut [T], size: Size, order: Order, erase: &Overwrite) {
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
        match order {
            Order::Gray => fill(0, plane_rows::<T, 1>(out, size, y)[0]),
            Order::Planes => {
                plane_rows::<T, 3>(out, size, y).into_iter().enumerate().for_each(|(channel, row)| fill(channel, row));
            }
            Order::Interleaved => {
                let (row, _) = out[3 * y as usize * size.width as usize..].as_chunks_mut::<3>();
                let row = &mut row[left..right];
                row.fill(color);
                row.iter_mut().zip(&noise).for_each(|(element, noise)| *element = *noise);
            }
        }
    }
}
