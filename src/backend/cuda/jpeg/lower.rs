//! Lowers an image's headers to the kernels' descriptor.

use super::params::{
    JpegCode, JpegComponent, JpegImage, JpegLookUp, JpegRun, JpegSteps, JpegStretch, JpegSums, JpegTables,
};
use crate::backend::cuda::arena::{Arena, StagingWriter};
use crate::backend::cuda::lower::packed_bytes;
use crate::decode::{
    Baseline, BaselineColor, Code, Component, DecodeWindow, DevicePoints, KnownStretch, KnownSums, PointMemory,
};
use crate::error::Result;
use crate::ops::descriptors::DevicePointer;
use crate::raster::Rect;
use bytemuck::{NoUninit, Zeroable as _};
use std::ops::Range;

/// Number of bits of a run, and number of runs that a block of jpeg_sync finds: as in kernels/jpeg.cuh.
const RUN_BITS: usize = 640;
pub(super) const BLOCK_RUNS: usize = 224;
/// Number of bytes that a block of jpeg_unstuff takes, and those of a thread.
const TILE_BYTES: usize = 4096;
const PIECE_BYTES: usize = 16;
/// In the number of MCUs of a stretch, as in kernels/jpeg_coefficients.cu.
const PADDED: u32 = 1 << 31;

/// Alignment of the pieces of an image's memory.
const ALIGN_BYTES: usize = 128;

/// An image's descriptor without addresses: its memory begins at 0.
pub(in crate::backend::cuda) struct Lowered<'a> {
    source: &'a Baseline,
    image: JpegImage,
    /// Knowledge of the image's places.
    known: Option<&'a PointMemory>,
    /// The part of the file that is needed.
    pub(in crate::backend::cuda) data: Range<usize>,
    /// Bytes of device memory that the image needs.
    pub(in crate::backend::cuda) len_bytes: usize,
    /// The offset after the pixels. The memory from there on is used only by the decoder's own kernels.
    pub(super) pixels_end: usize,
}

/// Takes pieces of memory, one after the other.
struct Pieces(usize);

impl Pieces {
    fn take(&mut self, len_bytes: usize) -> DevicePointer {
        let at = self.0;
        self.0 += len_bytes.next_multiple_of(ALIGN_BYTES);
        at as DevicePointer
    }
}

impl JpegImage {
    /// Largest number of runs.
    pub(super) fn runs(&self) -> usize {
        (8 * self.data_bytes as usize).div_ceil(RUN_BITS).max(1)
    }

    /// Number of blocks of threads that find the runs.
    pub(super) fn run_blocks(&self) -> usize {
        self.runs().div_ceil(BLOCK_RUNS)
    }

    /// Number of MCUs whose codes must be good.
    pub(super) fn checked_mcus(&self) -> usize {
        ((self.checked_end - self.checked_begin) / self.mcu_blocks) as usize
    }

    /// Number of blocks of coefficients in the window.
    pub(super) fn window_blocks(&self) -> u32 {
        self.columns * self.rows * self.mcu_blocks
    }

    /// Number of tiles of the data.
    pub(super) fn tiles(&self) -> usize {
        (self.data_bytes as usize).div_ceil(TILE_BYTES).max(1)
    }
}

fn code(code: &Code) -> JpegCode {
    JpegCode { end: code.end, first: code.first, symbols: code.symbols }
}

/// DC coefficients in 16 bits each.
fn packed_dc(dc: [i16; 4]) -> u64 {
    dc.iter().take(3).rev().fold(0, |packed, &dc| packed << 16 | u64::from(dc as u16))
}

/// DC coefficients that [`packed_dc`] has packed.
pub(super) fn unpacked_dc(dc: u64) -> [i16; 4] {
    [0, 16, 32, 48].map(|shift| (dc >> shift) as i16)
}

fn stretch(&KnownStretch { bit, end_bit, mcu, mcus, is_padded }: &KnownStretch) -> JpegStretch {
    JpegStretch { bit, end_bit, mcu, mcus: mcus | if is_padded { PADDED } else { 0 } }
}

fn sum(&KnownSums { mcu, mcus, dc, end_dc }: &KnownSums) -> JpegSums {
    JpegSums { dc: packed_dc(dc), end_dc: end_dc.map_or(u64::MAX, packed_dc), mcu, mcus }
}

/// Writes values to staging memory. Returns their address on the device.
fn put_all<T: NoUninit>(
    arena: &Arena,
    staging: &mut StagingWriter,
    values: impl ExactSizeIterator<Item = T>,
) -> Result<DevicePointer> {
    staging.put_bytes(arena, size_of::<T>() * values.len(), |to| {
        let places = to.chunks_exact_mut(size_of::<T>());
        places.zip(values).for_each(|(to, value)| to.copy_from_slice(bytemuck::bytes_of(&value)));
    })
}

fn color(source: &Baseline) -> u32 {
    match source.color {
        BaselineColor::Gray => 0,
        BaselineColor::Ycc => 1,
        BaselineColor::Rgb => 2,
    }
}

/// Describes a component. In memory are `width` x `height` of its samples, from the place (`x`, `y`) on.
fn component(
    source: &Baseline,
    component: &Component,
    samples: DevicePointer,
    (x, y): (u32, u32),
    (width, height): (u32, u32),
) -> JpegComponent {
    let (across, down) = source.pixels_a_sample(component);
    let whole = (source.size.width.div_ceil(across), source.size.height.div_ceil(down));
    // libjpeg interpolates between pairs of samples, horizontally only if there are more than two in a row, and repeats
    // samples otherwise.
    let (wide, pairs) = (whole.0 > 2, matches!((across, down), (1 | 2, 1 | 2)));
    JpegComponent {
        samples,
        row_samples: width,
        columns: component.columns,
        rows: component.rows,
        first_block: 0,
        across,
        down,
        x,
        y,
        last_x: whole.0.min(x + width) - 1,
        last_y: whole.1.min(y + height) - 1,
        blends_across: (pairs && across == 2 && wide).into(),
        blends_down: (pairs && down == 2 && (across == 1 || wide)).into(),
    }
}

/// An image whose planes another decoder writes: one after the other, without gaps between rows.
pub(in crate::backend::cuda) struct Planes {
    image: JpegImage,
    /// Offset and row pitch of each plane.
    pub(in crate::backend::cuda) places: [(usize, usize); 3],
    /// Bytes of all planes.
    pub(in crate::backend::cuda) len_bytes: usize,
}

impl Planes {
    /// Lowers the rectangle `part` of an image.
    pub(in crate::backend::cuda) fn new(source: &Baseline, part: Rect) -> Self {
        let (mut pieces, mut places) = (Pieces(0), [(0, 0); 3]);
        let mut components = [JpegComponent::default(); 3];
        for ((lowered, place), component) in components.iter_mut().zip(&mut places).zip(&source.components) {
            let (across, down) = source.pixels_a_sample(component);
            let (width, height) = (source.size.width.div_ceil(across), source.size.height.div_ceil(down));
            let samples = pieces.take(width as usize * height as usize);
            *lowered = self::component(source, component, samples, (0, 0), (width, height));
            *place = (samples as usize, width as usize);
        }
        let Rect { x, y, width, height } = part;
        let image = JpegImage { components, color: color(source), x, y, width, height, ..JpegImage::default() };
        Self { image, places, len_bytes: pieces.0 }
    }

    /// The descriptor with the planes at `memory` and the rectangle's pixels at `pixels`.
    pub(in crate::backend::cuda) fn at(&self, memory: DevicePointer, pixels: DevicePointer) -> JpegImage {
        let mut image = JpegImage { pixels, ..self.image };
        image.components.iter_mut().for_each(|component| component.samples += memory);
        image
    }
}

impl<'a> Lowered<'a> {
    /// Lowers the rectangle `part` of an image, which needs `window`. If its places are known, `memory` has them.
    pub(in crate::backend::cuda) fn new(
        source: &'a Baseline,
        part: Rect,
        window: &DecodeWindow,
        (points, memory): (&DevicePoints, &'a PointMemory),
    ) -> Self {
        let mcu_blocks = source.mcu_blocks();
        let (columns, rows) = (window.columns.len() as u32, window.rows.len() as u32);
        let segment_blocks = source.restart_interval_mcus as usize * mcu_blocks;
        let segments = match segment_blocks {
            0 => 1,
            _ => window.checked.end.div_ceil(segment_blocks) - window.checked.start / segment_blocks,
        };
        let (known, point_step) = match points {
            DevicePoints::Known => (Some(memory), 0),
            DevicePoints::New(points) => (None, points.step()),
            DevicePoints::Nothing => (None, 0),
        };
        let data = window.data.clone();
        let data_bytes = data.len();
        let mut image = JpegImage { data_bytes: data_bytes as u32, ..JpegImage::default() };
        let (tiles, runs, run_blocks) = (image.tiles(), image.runs(), image.run_blocks());

        let mut pieces = Pieces(0);
        let pixels = pieces.take(packed_bytes(part.size()));
        let pixels_end = pieces.0;
        // Zeros after the data, up to a whole word.
        let bytes = pieces.take(data_bytes + 32);
        let bounds = pieces.take(size_of::<u32>() * (segments + 1));
        let tiles = pieces.take(size_of::<u64>() * tiles);
        let look_up = pieces.take(size_of::<JpegLookUp>());
        let kept = pieces.take(size_of::<u32>() * data_bytes.div_ceil(PIECE_BYTES));
        let (runs, run_blocks) = if known.is_some() { (0, 0) } else { (runs, run_blocks) };
        let steps = pieces.take(if known.is_some() { 0 } else { size_of::<JpegSteps>() });
        let runs = pieces.take(size_of::<JpegRun>() * runs);
        let ends = pieces.take(size_of::<JpegRun>() * 2 * run_blocks);
        let dc = pieces.take(size_of::<u16>() * window.checked.len());
        let ac = pieces.take(size_of::<[i16; 64]>() * window.mcus() * mcu_blocks);
        let mut components = [JpegComponent::default(); 3];
        let mut first_block = 0;
        for (lowered, component) in components.iter_mut().zip(&source.components) {
            let row_samples = 8 * component.columns * columns;
            let column_samples = 8 * component.rows * rows;
            let place = (8 * component.columns * window.columns.start, 8 * component.rows * window.rows.start);
            let samples = pieces.take(row_samples as usize * column_samples as usize);
            *lowered = JpegComponent {
                first_block,
                ..self::component(source, component, samples, place, (row_samples, column_samples))
            };
            first_block += component.columns * component.rows;
        }
        image = JpegImage {
            bytes,
            bounds,
            tiles,
            look_up,
            steps,
            runs,
            ends,
            dc,
            ac,
            pixels,
            components,
            color: color(source),
            segments: segments as u32,
            segment_blocks: segment_blocks as u32,
            first_restart: window.first_restart,
            mcu_blocks: mcu_blocks as u32,
            block_components: (0..).zip(&source.block_components).map(|(i, &c)| (c as u32) << (2 * i)).sum(),
            mcu_columns: source.mcu_columns,
            checked_begin: window.checked.start as u32,
            checked_end: window.checked.end as u32,
            column: window.columns.start,
            columns,
            row: window.rows.start,
            rows,
            x: part.x,
            y: part.y,
            width: part.width,
            height: part.height,
            kept,
            stretch_count: known.map_or(0, |known| known.stretches.len() as u32),
            sum_count: known.map_or(0, |known| known.sums.len() as u32),
            point_step,
            ..image
        };
        Self { source, image, known, data, len_bytes: pieces.0, pixels_end }
    }

    /// Bytes of staging memory that the image needs besides its data.
    pub(super) fn staged_bytes(&self) -> usize {
        let JpegImage { stretch_count, sum_count, .. } = self.image;
        let stretches_bytes = size_of::<JpegStretch>() * stretch_count as usize;
        let sums_bytes = size_of::<JpegSums>() * sum_count as usize;
        size_of::<JpegTables>() + stretches_bytes + sums_bytes
    }

    /// The tables of the image.
    pub(super) fn tables(&self) -> JpegTables {
        let mut tables = JpegTables::zeroed();
        for (c, component) in self.source.components.iter().enumerate() {
            tables.codes[c] = [code(&component.dc), code(&component.ac)];
            tables.quant[c] = component.quant;
        }
        tables
    }

    /// The descriptor with the image's memory at `memory` and its data at `data`. Writes tables to staging memory.
    pub(in crate::backend::cuda) fn place(
        &self,
        arena: &Arena,
        staging: &mut StagingWriter,
        memory: DevicePointer,
        data: DevicePointer,
    ) -> Result<JpegImage> {
        let tables = staging.put(arena, &[self.tables()])?;
        let mut image = self.at(memory, data, tables);
        if let Some(PointMemory { stretches, sums, .. }) = self.known {
            image.stretches = put_all(arena, staging, stretches.iter().map(stretch))?;
            image.sums = put_all(arena, staging, sums.iter().map(sum))?;
        }
        Ok(image)
    }

    /// Knowledge of the image's places.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn points(&self) -> (Vec<JpegStretch>, Vec<JpegSums>) {
        let known =
            |known: &PointMemory| (known.stretches.iter().map(stretch).collect(), known.sums.iter().map(sum).collect());
        self.known.map_or((Vec::new(), Vec::new()), known)
    }

    /// The descriptor with these addresses of the image's memory, its data and its tables, without a status and without
    /// known places.
    pub(super) fn at(&self, memory: DevicePointer, data: DevicePointer, tables: DevicePointer) -> JpegImage {
        let mut image = JpegImage { data, tables, ..self.image };
        let JpegImage { bytes, bounds, tiles, look_up, steps, runs, ends, dc, ac, pixels, kept, .. } = &mut image;
        let addresses = [bytes, bounds, tiles, look_up, steps, runs, ends, dc, ac, pixels, kept];
        addresses.into_iter().for_each(|address| *address += memory);
        image.components.iter_mut().for_each(|component| component.samples += memory);
        image
    }
}
