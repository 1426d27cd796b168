//! Memory of the simulated device, and launches of batches.

#![allow(unsafe_code)]

use crate::params::Launch;
use crate::picture::{Rect, Size};
use cuda_sim::{Kernel, LAUNCH_BYTES, Memory};

/// Memory with these values.
pub fn upload<T: Copy>(values: &[T]) -> Memory {
    let mut memory = Memory::new(size_of_val(values), 0);
    memory.bytes_mut().copy_from_slice(bytes_of(values));
    memory
}

/// The bytes of values without padding.
pub fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: the values' own memory; the types used here are numbers and structs of params.rs, which have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// A picture on the device: a rectangle of a whole, 3 bytes a pixel, rows further apart than they need be.
pub struct Image {
    pub memory: Memory,
    pub pitch_bytes: u32,
    pub whole: Size,
    pub part: Rect,
}

impl Image {
    pub fn new(whole: Size, part: Rect) -> Self {
        let pitch_bytes = 3 * part.width + part.height % 5;
        let len = (part.height - 1) * pitch_bytes + 3 * part.width;
        Self { memory: Memory::new(len as usize, 3), pitch_bytes, whole, part }
    }

    /// The part of a complete picture.
    pub fn upload(rgb: &[u8], whole: Size, part: Rect) -> Self {
        let mut image = Self::new(whole, part);
        let (pitch, width) = (image.pitch_bytes as usize, 3 * part.width as usize);
        for y in 0..part.height as usize {
            let from = ((part.y as usize + y) * whole.width as usize + part.x as usize) * 3;
            image.memory.bytes_mut()[y * pitch..][..width].copy_from_slice(&rgb[from..][..width]);
        }
        image
    }
}

/// How a kernel's grid covers a picture.
#[derive(Clone, Copy, PartialEq)]
pub enum Grid {
    /// A pixel a thread.
    Pixels,
    /// A row a thread.
    Rows,
    /// Tiles of 32 x 16 pixels a block.
    Tiles,
}

/// One picture's share of a launch.
pub struct Call {
    pub kernel: String,
    pub sample: Vec<u8>,
    pub extent: Size,
    pub grid: Grid,
    /// Address of the table of elements, for kernels that have one.
    pub table: u64,
}

/// Runs the calls of several pictures, each picture's in order, those of one kernel as one launch.
pub fn run(mut pictures: Vec<Vec<Call>>) {
    pictures.iter_mut().for_each(|calls| calls.reverse());
    loop {
        let mut calls: Vec<Call> = pictures.iter_mut().filter_map(Vec::pop).collect();
        if calls.is_empty() {
            return;
        }
        calls.sort_by(|a, b| a.kernel.cmp(&b.kernel));
        calls.chunk_by(|a, b| a.kernel == b.kernel).for_each(launch);
    }
}

fn launch(calls: &[Call]) {
    let samples: Vec<u8> = calls.iter().flat_map(|call| call.sample.iter().copied()).collect();
    let samples = upload(&samples);
    let count = calls.len() as u32;
    let most = |of: fn(&Call) -> u32| calls.iter().map(of).max().unwrap_or(0);
    let (grid, block) = match calls[0].grid {
        Grid::Pixels => {
            let (width, height) = (most(|call| call.extent.width), most(|call| call.extent.height));
            ([width.div_ceil(32), height.div_ceil(8), count], [32, 8, 1])
        }
        Grid::Rows => ([most(|call| call.extent.height).div_ceil(256), count, 1], [256, 1, 1]),
        Grid::Tiles => {
            let tiles = most(|call| call.extent.width.div_ceil(32) * call.extent.height.div_ceil(16));
            ([tiles, count, 1], [256, 1, 1])
        }
    };
    let launch = Launch { samples: samples.address(), table: calls[0].table, count, reserved: 0 };
    // The samples point to memory that the caller keeps.
    launch_one(&calls[0].kernel, grid, block, launch);
}

/// Runs the kernel that passes time.
pub fn spin(microseconds: u32) {
    launch_one("spin", [1; 3], [1; 3], Launch { count: microseconds, ..Launch::default() });
}

fn launch_one(name: &str, grid: [u32; 3], block: [u32; 3], launch: Launch) {
    let launch: &[u8; LAUNCH_BYTES] = bytes_of(std::slice::from_ref(&launch)).try_into().expect("24 bytes");
    let kernel = Kernel::find(name).unwrap_or_else(|| panic!("there is no kernel {name}"));
    // SAFETY: the callers, both above, give what the kernel asks for.
    unsafe { kernel.launch(grid, block, launch) }.unwrap_or_else(|error| panic!("{name}: {error}"));
}
