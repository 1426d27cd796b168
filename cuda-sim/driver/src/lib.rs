//! A simulated CUDA driver for tests (cuda-sim/README.md), as a shared object `libcuda.so.1`. Pointers are null or
//! point to what the driver API says, for as long as it says.

// Other systems have another name for the driver, but the workspace must build there too.
#![cfg(target_os = "linux")]

#[macro_use]
mod api;
mod call;
mod child;
mod config;
mod error;
mod kernels;
mod memory;
mod ptx;
mod random;
mod report;
mod state;
