//! The JPEG decoder of this crate, on the device. Its pixels are the CPU decoder's.
//!
//! `job` takes an image: headers are parsed, memory is found, and the data are put where the device will have them.
//! `batch` queues the kernels (`kernels`) for all images of a batch and has the CPU decode what they flag. `lower` makes
//! descriptors (`params`). What the kernels compute is written down as plain code in `decode::model`.

mod batch;
mod job;
mod kernels;
mod lower;
mod params;
#[cfg(all(test, target_os = "linux"))]
mod tests;

pub(super) use batch::Decoding;
pub(super) use job::Job;
pub(super) use kernels::{JpegKernels, Staged};
pub(super) use lower::Lowered;
