//! The GPU back end: kernels of kernels/*.cu, nvJPEG, and the memory and streams between them.
//!
//! # Files
//!
//! `gpu` is what a pipeline uses, and brings the parts together. An in-flight batch (`in_flight`) is begun with the
//! memory of an earlier one (`batches`). Worker threads (`worker`) prepare samples for it (`prepare`): decoders
//! (`decode`) take the image, and `lower` turns plans into calls. A complete batch is submitted (`submit`): `kernel`
//! turns calls into launches on the device's `streams`; `masks` has the masks of samples, which take the way of images.
//! nvJPEG (`nvjpeg`, `hardware`) and the crate's own decoder (`jpeg`) decode, and `route` chooses between them. `arena` is
//! the memory of batches in flight, `limits` knows how much of it all pipelines may take, `buffers` is the memory of encoded
//! bytes, `cards` are the devices that the driver shows, and `fatbin` is the place that kernels come from. `measure` is for
//! experiments alone.
//!
//! # A batch
//!
//! Up to the plan, nothing differs from the CPU's path. The worker that took a sample then decodes it or has it
//! decoded, and turns the plan into calls, which are descriptors of kernels. The worker that finishes a batch sorts the
//! calls of all samples into launches, sends everything that the host has written in one copy, queues the launches, and
//! hands the batch over with an event. No extra thread exists for the device. No thread waits for the device, except
//! for memory that is about to be reused.
//!
//! One launch is queued for each stage of a batch, whatever the sizes of its images. With the fused strategy that is
//! one launch for each batch, whatever the augmentation load. With the sequential strategy samples have different
//! operations in different orders: the kernel that most samples wait for is launched for all of these, until no sample
//! is left. Noise takes too many registers for the fused kernel. So the erasures before the first one with noise stay
//! in the kernel that writes the image; that one and all after it are launches of their own, in their order. Weights
//! and the table of normalized values are made on the host, so they are the CPU's own numbers. Host and kernels share
//! structs, whose sizes and offsets are asserted on both sides. A recipe with a custom operation runs on the CPU, and
//! the device only normalizes the result into the batch.
//!
//! A mask is one image more: it is uploaded with 1 to 3 bytes a pixel, its own plan's calls join the launches, and each
//! field has its own memory in the batch. A mask whose plan has a pass without a kernel is moved by the CPU.
//!
//! # Memory
//!
//! An in-flight batch has an arena: staging memory (pinned, or pageable on request) with as much device memory beside
//! it, and blocks of the device's alone. Allocating moves a mark, under a lock; at the end of the batch the mark goes
//! back. A batch that needed several blocks finds one of that size the next time. So nothing is allocated in the steady
//! state, everything that the host wrote is contiguous, and a descriptor can hold device addresses from the start. The
//! budget (`device_memory`, by default half of what is free and not promised to another pipeline of the process) is
//! divided among the in-flight batches. A batch never waits for the memory of others, because all of them could end up
//! waiting. Instead, if a batch's share has no room for a whole image, the CPU decodes it and uploads only the needed part;
//! if that has no room either, the epoch ends with `Error::OutOfDeviceMemory`, which no policy skips.
//!
//! An image is decoded whole on the device only if the other samples' parts, the stages of this recipe, and what the end
//! of the batch stages for all samples still fit in the batch's share. If lowering runs out of memory all the same, the CPU
//! decodes the part, and the recipe gets the whole image's memory. nvJPEG's own buffers are reserved for images somewhat larger than the first, because growing
//! makes the device wait. The reserve is bounded, so that one huge image is not multiplied by the batch.
//!
//! # Who waits for whom
//!
//! Events order upload, nvJPEG's streams and launches. A batch's buffer remembers the streams that were made to wait
//! for it (`CudaBuffer::on_stream`). When it is dropped, an event is recorded on each of them, and the next to fill the
//! buffer waits for these events on the device. If one of the streams captures a graph, the buffer is put aside until it no
//! longer does. The host waits in two places: for the last use of an in-flight batch
//! before its memory is written again, and in a ring of three images for each thread's hybrid decoder. The first wait
//! also makes sure that the memory which the hardware decoder writes is idle at the time of the call. Hopper needs
//! this: its hardware decoder does not wait for work queued earlier.
//!
//! Nobody waits for the whole context, except for pinned batches of the CPU (`tensor::host`): on a card that ends a
//! trainer's captures, whoever captures and in whatever mode (docs/gpu.md).
//!
//! DLPack's producer is not told when the consumer has read a batch. So the deleter records an event on the stream that
//! the consumer named, or else on the legacy default stream, which waits for all blocking streams.
//!
//! # Who decodes
//!
//! On `auto` and `device` the crate's own kernels decode what they take. On `auto` the CPU gets a share where the device
//! takes longer for an image than all threads together take to feed it, so that both finish together. Whoever decodes,
//! the bytes are the CPU's. With nvJPEG the header alone decides, so that a run repeats itself on the same card: the
//! hardware decoder if it is asked for and takes the image, else nvJPEG's hybrid decoder, else the CPU. Only a lack of
//! device memory changes that; it is counted, and `run` warns of it. A file without its end marker goes to the CPU on
//! every path.
//!
//! An image that nvJPEG refuses is decoded by the CPU, which alone says whether it is bad. nvJPEG must agree about an
//! image's size before it may write it. A substitute for a bad sample never goes to the hardware decoder, which reports
//! failures only for the whole batch: the choice of a substitute must not depend on them. nvJPEG reads whole images,
//! not parts. There is no decoder trait, because the three decoders work differently: the CPU fills host memory at
//! once, the hybrid decoder queues work for one image at a time, the hardware decoder takes a batch.
//!
//! For the hardware decoder, each worker parses the whole image on a stream of that decoder's own handle, because a
//! header shows neither several scans nor damage. A batch that fails all the same is halved until the refused images
//! are known. Batches take turns: decode and record are done under one lock.

mod arena;
mod batches;
mod buffers;
pub(crate) mod cards;
mod decode;
pub(crate) mod fatbin;
mod gpu;
mod hardware;
mod in_flight;
mod jpeg;
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
mod worker;

pub(crate) use gpu::Gpu;
pub(crate) use in_flight::InFlight;
pub(super) use streams::{Part, Queue};
pub(crate) use worker::Worker;

use crate::cuda::driver::{self, Module};
use crate::error::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernels of devices that were checked, by the devices' numbers. The next pipeline on the device takes them over, so
/// that they are not loaded twice.
static CHECKED: Mutex<Vec<(u32, Arc<Module>)>> = Mutex::new(Vec::new());

/// Checks whether a CUDA device can run pipelines: that its context works and takes the kernels. The error has the reason
/// if it cannot.
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

/// The first GPU that can run pipelines, and for each one before it why it cannot. Both are empty where there is no GPU,
/// or none that this build has kernels for.
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
