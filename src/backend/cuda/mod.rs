//! The GPU back end: kernels of kernels/*.cu, nvJPEG, and the memory and streams between them.
//!
//! `gpu` is what a pipeline uses, and brings the parts together. An in-flight batch (`in_flight`) is begun, with the memory
//! of an earlier one (`batches`). Worker threads (`worker`) prepare samples for it (`prepare`): decoders (`decode`) take the
//! image, and `lower` turns plans into calls. A batch that is complete is submitted (`submit`): `kernel` turns calls into
//! launches on the device's `streams`.
//!
//! nvJPEG (`nvjpeg`, `hardware`) and the crate's own decoder (`jpeg`) decode, and `route` says what. `arena` is memory of
//! batches in flight, `buffers` are memory of encoded bytes, `cards` are what the driver shows, and `fatbin` says where the
//! kernels come from. `doctor` says what a machine has of all this, and `measure` is for experiments alone.

mod arena;
mod batches;
mod buffers;
pub(crate) mod cards;
mod decode;
pub(crate) mod doctor;
mod fatbin;
mod gpu;
mod hardware;
mod in_flight;
mod jpeg;
mod kernel;
mod lower;
#[cfg(feature = "experiment")]
pub(crate) mod measure;
mod nvjpeg;
mod prepare;
mod route;
mod streams;
mod submit;
mod worker;

pub(crate) use gpu::Gpu;
pub(crate) use in_flight::InFlight;
pub(crate) use worker::Worker;

use crate::cuda::driver;
use crate::error::Result;
use std::sync::{Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a CUDA device can run pipelines, and if not, why.
pub(crate) fn available(ordinal: u32) -> Result<()> {
    driver::context(ordinal)?;
    fatbin::fatbin().map(drop)
}
