//! The JPEG decoder of this crate, on the device. Its pixels are the CPU decoder's.
//!
//! `decoder` takes an image: headers are parsed, memory is found, and the data are put where the device will have them. With
//! the batch complete it queues the kernels (`kernels`, `batch`), and has the CPU decode what they flag. `lower` makes
//! descriptors (`params`). What the kernels compute is written down as plain code in `decode::model`.

mod batch;
mod decoder;
mod kernels;
mod lower;
mod params;
#[cfg(all(test, target_os = "linux"))]
mod tests;

pub(super) use batch::Decoding;
pub(super) use decoder::{DeviceDecoder, Job};
pub(super) use kernels::JpegKernels;
#[cfg(feature = "experiment")]
pub(super) use {kernels::Staged, lower::Lowered};
