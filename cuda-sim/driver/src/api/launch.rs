//! Kernel launches.

use super::device::{MAX_BLOCK, MAX_GRID, MAX_THREADS_PER_BLOCK};
use super::module::function;
use crate::call::Session;
use crate::config::NOOP;
use crate::error::{Code, Result};
use crate::kernels;
use crate::state::Work;
use std::ffi::{c_uint, c_void};

fn launch(
    sim: &mut Session,
    handle: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: u64,
    params: *mut *mut c_void,
) -> Result<()> {
    let function = function(sim, handle)?;
    let within = |size: [u32; 3], most: [u32; 3]| (0..3).all(|i| (1..=most[i]).contains(&size[i]));
    let threads: u32 = block.iter().map(|&side| side.min(2048)).product();
    if !within(grid, MAX_GRID) || !within(block, MAX_BLOCK) || threads > MAX_THREADS_PER_BLOCK {
        return Err(Code::INVALID_VALUE);
    }
    let limits = kernels::limits(function.kernel);
    if limits.is_some_and(|limits| threads > limits.most_threads) {
        return Err(Code::INVALID_VALUE);
    }
    // More than 48 KiB, static memory included, only after cuFuncSetAttribute has allowed it.
    let fixed_bytes = limits.map_or(0, |limits| limits.shared_bytes);
    if shared_bytes.saturating_add(fixed_bytes) > function.max_dynamic_shared_bytes {
        return Err(Code::INVALID_VALUE);
    }
    if *NOOP {
        sim.stream(stream)?;
        return Ok(());
    }
    let kernel = function.kernel;
    let arguments = kernels::capture(kernel, params)?;
    let injected = sim.draw_failure().then_some(Code::LAUNCH_FAILED);
    let work = Work::Kernel { kernel, grid, block, shared_bytes, arguments };
    sim.submit_after(stream, work, Vec::new(), injected)?;
    Ok(())
}

api! {
    Context fn cuLaunchKernel(
        sim, handle: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: u64, params: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        if !extra.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        launch(sim, handle, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared_bytes, stream, params)
    }
    Context fn cuLaunchCooperativeKernel(
        sim, handle: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: u64, params: *mut *mut c_void,
    ) {
        launch(sim, handle, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared_bytes, stream, params)
    }
}
