//! The GPU back end: kernels of kernels/*.cu, nvJPEG, and the memory and streams between them.
//!
//! `gpu` is what a pipeline uses; `flight` one batch on its way; `lower` turns plans into calls and `kernel` calls into
//! launches; `nvjpeg` and `route` decode; `arena` and `output` are memory; `driver` is CUDA's driver, `fatbin` where the
//! kernels come from; `doctor` says what a machine has of all this, `decode_only`
//! how fast nvJPEG alone is; `spin` is a training step of stated length.

mod arena;
pub(crate) mod decode_only;
pub(crate) mod doctor;
mod driver;
mod fatbin;
mod flight;
pub(crate) mod gpu;
mod kernel;
mod lower;
mod nvjpeg;
mod output;
mod route;
mod spin;

pub(crate) use flight::InFlight;
pub(crate) use nvjpeg::Encoded;
pub use output::CudaBuffer;
pub(crate) use spin::Spin;

use crate::error::Result;

/// Whether a CUDA device can run pipelines, and if not, why.
pub(crate) fn available(ordinal: u32) -> Result<()> {
    driver::context(ordinal)?;
    fatbin::fatbin().map(drop)
}
