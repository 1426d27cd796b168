//! Raw bindings to nvJPEG, NVIDIA's JPEG decoder for GPUs. [`Functions`] are pointers that are looked up at run time,
//! so a program builds and starts without nvJPEG. [`bindings`] has bindgen's types. The crate `warpfeed-nvjpeg` adds a
//! safe layer.
//!
//! ```no_run
//! use nvjpeg_sys::{Functions, bindings, libloading};
//!
//! // SAFETY: loading nvJPEG has no conditions, and what it exports under these names are its functions.
//! let (library, functions) = unsafe {
//!     let library = libloading::Library::new("libnvjpeg.so.13")?;
//!     let functions = Functions::resolve(&library).map_err(|missing| missing.join(", "))?;
//!     (library, functions)
//! };
//! let mut major = 0;
//! // SAFETY: the library is loaded, and the number lives for the length of the call.
//! let status = unsafe {
//!     (functions.nvjpegGetProperty)(bindings::libraryPropertyType_t::MAJOR_VERSION, &raw mut major)
//! };
//! assert_eq!(status, bindings::nvjpegStatus_t::NVJPEG_STATUS_SUCCESS);
//! drop(library);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    clippy::unreadable_literal,
    clippy::upper_case_acronyms,
    reason = "made from nvjpeg.h, whose names and documentation are NVIDIA's"
)]
pub mod bindings;
mod functions;

pub use functions::Functions;
pub use libloading;
