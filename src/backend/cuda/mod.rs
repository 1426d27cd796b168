//! The GPU back end: kernels of `kernels/*.cu`, nvJPEG, and the memory and streams between them.
//!
//! Worker threads (`worker`) prepare samples (`prepare`) for an in-flight batch (`in_flight`, `batches`). A decoder
//! takes the image (`decode`), and the plan becomes calls of kernels (`lower`). The worker that finishes a batch sorts
//! all calls into launches (`kernel`), sends what the host wrote in one copy, queues the launches on the device's
//! `streams`, and hands the batch over with an event (`submit`).
//!
//! Each stage of a batch is one launch. With the sequential strategy, the kernel that most samples wait for is launched
//! for all of these, until no sample is left. Noise takes too many registers for the fused kernel, so the first erasure
//! with noise, and all after it, are launches of their own. A recipe with a custom operation runs on the CPU, and the
//! device only normalizes the result.
//!
//! Images in the caller's device memory (`views`) are copied to an in-flight batch's, and then run as its samples do.
//!
//! Of images that are not RGB of 8 bits the CPU decodes the needed part, and kernels for planes do all else (`values`).
//!
//! An in-flight batch has an `arena` with a share of the pipeline's budget (`limits`), so no batch waits for the memory
//! of another.
//!
//! # Synchronization
//!
//! A batch's buffer remembers the streams that were made to wait for it (`CudaBuffer::on_stream`). When it is dropped,
//! an event is recorded on each, and the next use of the buffer waits for these events on the device. DLPack's deleter
//! records an event on the consumer's stream, or else on the legacy default stream.
//!
//! The host waits for the last use of an in-flight batch before its memory is written again. Only pinned batches of the
//! CPU (`tensor::host`) wait for the whole context, which ends a trainer's captures.
//!
//! # Decoders
//!
//! `route` chooses between the crate's own decoder (`jpeg`), nvJPEG (`nvjpeg`, `engines`) and the CPU. With nvJPEG the
//! header and the length alone choose, so that a run repeats itself on the same card. A file without its end marker always goes to
//! the CPU.
//!
//! The hardware decoder's failures are known only when the batch is complete. So it never gets a substitute for a bad
//! sample.

mod arena;
mod batches;
mod buffers;
pub(crate) mod cards;
mod decode;
pub(crate) mod direct;
pub(crate) mod engines;
pub(crate) mod fatbin;
mod gpu;
mod in_flight;
pub(crate) mod jpeg;
mod kernel;
mod limits;
mod lower;
mod masks;
pub(crate) mod measure;
mod nvjpeg;
mod prepare;
pub(crate) mod route;
mod streams;
mod submit;
mod values;
mod views;
mod worker;

pub(crate) use gpu::Gpu;
pub(crate) use in_flight::InFlight;
pub(super) use streams::{Part, Queue};
pub(crate) use views::{ImagesOnDevice, ViewRunner};
pub(crate) use worker::Worker;

use crate::cuda::driver::{self, Module};
use crate::error::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernels of devices that were checked, by the devices' numbers. The next pipeline on the device takes them over,
/// so that they are not loaded twice.
static CHECKED: Mutex<Vec<(u32, Arc<Module>)>> = Mutex::new(Vec::new());

/// Checks whether a CUDA device can run pipelines: that its context works and takes the kernels. The error has the
/// reason if it cannot.
pub(crate) fn available(ordinal: u32) -> Result<()> {
    let context = driver::context(ordinal)?;
    let module = fatbin::module(&context)?;
    forget_checked(ordinal);
    lock(&CHECKED).push((ordinal, module));
    Ok(())
}

/// Lets go of the kernels of a device that was checked, whose user has them now.
fn forget_checked(ordinal: u32) {
    let checked: Vec<_> = lock(&CHECKED).extract_if(.., |(of, _)| *of == ordinal).collect();
    // Unloading waits for the driver, and so comes after the lock.
    drop(checked);
}

/// The first GPU that can run pipelines, and for each one before it why it cannot. Both are empty where there is no
/// GPU, or none that this build has kernels for.
pub(crate) fn first_available() -> (Option<u32>, Vec<String>) {
    let (Ok(devices), Ok(_)) = (driver::device_count(), fatbin::fatbin()) else { return (None, Vec::new()) };
    let mut reasons = Vec::new();
    for ordinal in 0..devices.cast_unsigned() {
        match available(ordinal) {
            Ok(()) => return (Some(ordinal), reasons),
            Err(error) => reasons.push(format!("cuda:{ordinal} cannot be used: {error}")),
        }
    }
    (None, reasons)
}
