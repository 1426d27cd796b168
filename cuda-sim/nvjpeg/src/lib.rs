//! A simulated nvJPEG for tests (cuda-sim/README.md), as a shared object `libnvjpeg.so.13`. Pointers are null or point
//! to what nvJPEG's manual says.

// Other systems have no simulated driver, but the workspace must build there too.
#![cfg(target_os = "linux")]

mod api;
mod buffer;
mod driver;
mod fault;
mod jpeg;
mod object;
mod planes;
mod work;
