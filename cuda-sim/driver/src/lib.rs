//! A simulated CUDA driver: the part of the driver API that a data loader needs, over host memory, as a shared
//! object whose soname is `libcuda.so.1`. For tests only; cuda-sim/README.md says what it does and does not do.
//!
//! The functions are called through C, by programs that believe they talk to a driver, so their contract is the CUDA
//! driver API's: pointers are null or point at what the API says they do, for as long as it says.

// Elsewhere programs look for the driver under another name, and the workspace must build all the same.
#![cfg(target_os = "linux")]

#[macro_use]
mod api;
mod call;
mod config;
mod error;
mod kernels;
mod memory;
mod random;
mod state;
