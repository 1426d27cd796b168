//! The JPEG decoder of this crate, on the device. Its pixels are the CPU decoder's.
//!
//! `job` takes an image: headers are parsed, memory is found, and the data are put where the device will have them.
//! `batch` queues the kernels (`kernels`) for all images of a batch and has the CPU decode what they flag. `lower` makes
//! descriptors (`params`). `alone` is for measuring. What the kernels compute is written down as plain code in `decode::model`.

#[cfg(feature = "experiment")]
mod alone;
mod batch;
mod job;
mod kernels;
mod lower;
mod params;
#[cfg(all(test, target_os = "linux"))]
mod tests;

#[cfg(feature = "experiment")]
pub(super) use alone::Alone;
pub(super) use batch::Decoding;
pub(super) use job::Job;
pub(super) use kernels::JpegKernels;
