//! A simulated CUDA driver for tests: the part of the driver API that a data loader needs, over host memory. It is a
//! shared object with the soname `libcuda.so.1`. cuda-sim/README.md describes its features and limits.
//!
//! Programs call the functions through C and believe that they talk to a driver. So their contract is that of the CUDA
//! driver API: pointers are null or point to what the API says, for as long as it says.

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
