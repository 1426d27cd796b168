//! Parameters of the JPEG decoder's kernels, as in kernels/jpeg_params.cuh, which explains them. Both sides assert
//! sizes and offsets.
#![allow(unsafe_code)]

use crate::ops::descriptors::DevicePointer;
use bytemuck::{NoUninit, Zeroable};
use std::mem::offset_of;

/// A Huffman code.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct JpegCode {
    pub(super) end: [u32; 17],
    pub(super) first: [i32; 17],
    pub(super) symbols: [u8; 256],
}

/// The codes and quantization steps of up to three components.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct JpegTables {
    pub(super) codes: [[JpegCode; 2]; 3],
    pub(super) quant: [[u16; 64]; 3],
}

/// Look-up tables, written by the kernels.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct JpegLookUp {
    look: [[u16; 1024]; 6],
    more: [[u16; 1024]; 3],
    more_from: [u32; 4],
}

/// Steps from code to code, written by the kernels.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct JpegSteps {
    of: [[[u16; 1024]; 3]; 3],
    more: [[u16; 1024]; 3],
    more_from: [u32; 4],
}

/// The samples of a component.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct JpegComponent {
    pub(super) samples: DevicePointer,
    pub(super) row_samples: u32,
    pub(super) columns: u32,
    pub(super) rows: u32,
    pub(super) first_block: u32,
    pub(super) across: u32,
    pub(super) down: u32,
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) last_x: u32,
    pub(super) last_y: u32,
    pub(super) blends_across: u32,
    pub(super) blends_down: u32,
}

/// The start of a run, written by the kernels.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct JpegRun {
    pub(super) bit: u32,
    pub(super) place: u32,
    pub(super) block: u32,
}

/// MCUs of a row whose places are known, for one thread.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct JpegStretch {
    pub(super) bit: u32,
    pub(super) end_bit: u32,
    pub(super) mcu: u32,
    pub(super) mcus: u32,
}

/// MCUs from an entry point on.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct JpegSums {
    pub(super) dc: u64,
    pub(super) end_dc: u64,
    pub(super) mcu: u32,
    pub(super) mcus: u32,
}

/// The descriptor of an image, for all kernels.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(in crate::backend::cuda) struct JpegImage {
    pub(super) data: DevicePointer,
    pub(super) bytes: DevicePointer,
    pub(super) bounds: DevicePointer,
    pub(super) tiles: DevicePointer,
    pub(super) look_up: DevicePointer,
    pub(super) steps: DevicePointer,
    pub(super) runs: DevicePointer,
    pub(super) ends: DevicePointer,
    pub(super) dc: DevicePointer,
    pub(super) ac: DevicePointer,
    pub(super) tables: DevicePointer,
    pub(super) status: DevicePointer,
    pub(super) pixels: DevicePointer,
    pub(super) components: [JpegComponent; 3],
    pub(super) color: u32,
    pub(super) data_bytes: u32,
    pub(super) segments: u32,
    pub(super) segment_blocks: u32,
    pub(super) first_restart: u32,
    pub(super) mcu_blocks: u32,
    pub(super) block_components: u32,
    pub(super) mcu_columns: u32,
    pub(super) checked_begin: u32,
    pub(super) checked_end: u32,
    pub(super) column: u32,
    pub(super) columns: u32,
    pub(super) row: u32,
    pub(super) rows: u32,
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) kept: DevicePointer,
    pub(super) mcus: DevicePointer,
    pub(super) point_dc: DevicePointer,
    pub(super) stretches: DevicePointer,
    pub(super) sums: DevicePointer,
    pub(super) stretch_count: u32,
    pub(super) sum_count: u32,
    pub(super) point_step: u32,
    pub(super) reserved: u32,
}

const _: () = {
    assert!(size_of::<JpegCode>() == 392 && offset_of!(JpegCode, symbols) == 136);
    assert!(size_of::<JpegTables>() == 2736 && offset_of!(JpegTables, quant) == 2352);
    assert!(size_of::<JpegLookUp>() == 18448 && offset_of!(JpegLookUp, more_from) == 18432);
    assert!(size_of::<JpegSteps>() == 24592 && offset_of!(JpegSteps, more_from) == 24576);
    assert!(size_of::<JpegComponent>() == 56 && offset_of!(JpegComponent, last_x) == 40);
    assert!(size_of::<JpegRun>() == 12 && offset_of!(JpegRun, block) == 8);
    assert!(size_of::<JpegStretch>() == 16 && size_of::<JpegSums>() == 24);
    assert!(size_of::<JpegImage>() == 400 && offset_of!(JpegImage, components) == 104);
    assert!(offset_of!(JpegImage, color) == 272 && offset_of!(JpegImage, x) == 328);
    assert!(offset_of!(JpegImage, kept) == 344 && offset_of!(JpegImage, point_step) == 392);
};

// SAFETY: plain numbers without padding, as the sizes above show, for which zero bits are valid.
unsafe impl Zeroable for JpegTables {}
// SAFETY: as above.
unsafe impl NoUninit for JpegTables {}
// SAFETY: as above.
unsafe impl NoUninit for JpegStretch {}
// SAFETY: as above.
unsafe impl NoUninit for JpegSums {}
// SAFETY: as above.
unsafe impl NoUninit for JpegImage {}
