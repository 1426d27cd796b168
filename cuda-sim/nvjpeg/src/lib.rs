//! A simulated nvJPEG over the simulated CUDA driver, for tests. It is a shared object with the soname
//! `libnvjpeg.so.13`. warpfeed's own decoder decodes images, in operations on streams. cuda-sim/README.md describes its
//! features and limits.
//!
//! Programs call the functions through C and believe that they talk to nvJPEG. So their contract is nvJPEG's: pointers
//! are null or point to what its manual says, for as long as it says. Objects are numbers in tables, so objects that
//! are gone are recognized.

// Other systems have no simulated driver, but the workspace must build there too.
#![cfg(target_os = "linux")]

mod api;
mod buffer;
mod driver;
mod fault;
mod jpeg;
mod object;
mod work;
