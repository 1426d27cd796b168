//! A simulated nvJPEG over the simulated CUDA driver, as a shared object whose soname is `libnvjpeg.so.13`: images are
//! decoded by warpfeed's own decoder, in operations on streams. For tests only; cuda-sim/README.md says what it does and
//! does not do.
//!
//! The functions are called through C, by programs that believe they talk to nvJPEG, so their contract is nvJPEG's:
//! pointers are null or point at what its manual says they do, for as long as it says. Objects are numbers in tables,
//! so those that are gone are known to be.

// Elsewhere there is no simulated driver, and the workspace must build all the same.
#![cfg(target_os = "linux")]

mod api;
mod buffer;
mod driver;
mod fault;
mod jpeg;
mod object;
mod work;
