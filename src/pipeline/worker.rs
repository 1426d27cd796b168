//! A thread's work on samples: reading, decoding, augmenting, and what the policy says of those that cannot be used.

use super::cache::{Kept, KeptBytes};
use super::epoch::{Shared, Slot};
use super::store::Target;
use super::{Inner, OnError, Stored};
use crate::backend::cpu::executor::Executor;
use crate::cuda::gpu::{self, Decoded, Gpu};
use crate::cuda::{Encoded, InFlight};
use crate::decode::Header;
use crate::error::{Error, Result};
use crate::ops::Op;
use std::sync::Arc;
use std::time::Instant;

/// Samples tried in the place of a bad one before the epoch ends with an error.
const SUBSTITUTES: u32 = 16;

/// One thread's decoder and memory.
#[allow(clippy::large_enum_variant, reason = "there is one a thread, and it stays where it is")]
pub(super) enum Worker {
    /// Runs recipes itself.
    Cpu { executor: Result<Executor>, read_buffer: Vec<u8> },
    /// Prepares them for a device.
    Cuda { gpu: Arc<Gpu>, worker: Option<gpu::Worker> },
}

impl Worker {
    /// A worker for the thread that calls.
    pub(super) fn new(inner: &Inner) -> Self {
        match &inner.gpu {
            Some(gpu) => Self::Cuda { gpu: Arc::clone(gpu), worker: None },
            None => Self::Cpu { executor: inner.executor(), read_buffer: Vec::new() },
        }
    }

    /// Keeps what it has for the next epoch.
    pub(super) fn end(self, inner: &Inner) {
        match self {
            Self::Cpu { executor: Ok(executor), .. } => inner.give_executor(executor),
            Self::Cuda { gpu, worker: Some(worker) } => gpu.give_worker(worker),
            _ => {}
        }
    }

    /// Forgets what a panic has left half done.
    pub(super) fn reset(&mut self) {
        match self {
            Self::Cpu { executor, .. } => *executor = Executor::new(),
            Self::Cuda { worker, .. } => *worker = None,
        }
    }

    /// Works on the sample at one position, or on what stands in for it.
    pub(super) fn position(&mut self, shared: &Shared, index: u64, target: &mut Target<'_>) -> Slot {
        match self.sample(shared, index, target, true) {
            Ok(label) => Slot::Done { index, label },
            Err(_) if shared.ended_before(index) => Slot::Ended,
            Err(error) => self.instead(shared, index, error, target),
        }
    }

    /// Does with a sample that could not be used what the policy says.
    pub(super) fn instead(&mut self, shared: &Shared, index: u64, error: Error, target: &mut Target<'_>) -> Slot {
        let policy = shared.inner.on_error;
        if policy == OnError::Fail || !error.is_bad_sample() {
            return Slot::Failed(shared.sample_error(index, error));
        }
        shared.record_bad(index, &error);
        if policy == OnError::Skip {
            return Slot::Skipped;
        }
        for attempt in 0..SUBSTITUTES {
            let Some(other) = shared.inner.sampler.substitute(shared.epoch, index, attempt) else {
                let error = Error::decode("image", format!("{error}; there is no other sample to take its place"));
                return Slot::Failed(shared.sample_error(index, error));
            };
            match self.sample(shared, other, target, false) {
                Ok(label) => return Slot::Done { index: other, label },
                Err(error) if error.is_bad_sample() => {}
                Err(error) => return Slot::Failed(shared.sample_error(other, error)),
            }
        }
        let error = Error::decode(
            "image",
            format!("{error}; nor could {SUBSTITUTES} others drawn in its place be used: check the data set"),
        );
        Slot::Failed(shared.sample_error(index, error))
    }

    /// Reads one sample and does the work on it, down to its place in the batch; its label. `later`: whether part of the
    /// work may be left to be done with the whole batch, which may then show that the sample is bad.
    fn sample(&mut self, shared: &Shared, index: u64, target: &mut Target<'_>, later: bool) -> Result<u32> {
        match (self, target) {
            (Self::Cpu { executor, read_buffer }, Target::Host(out)) => {
                let executor = match executor {
                    Ok(executor) => executor,
                    Err(_) => {
                        *executor = Executor::new();
                        return Err(Error::Device {
                            call: "create a decoder".into(),
                            message: "the decoder library gave none; free memory".into(),
                        });
                    }
                };
                on_cpu(executor, read_buffer, shared, index, out)?;
            }
            (Self::Cuda { gpu, worker }, Target::Cuda(flight, place)) => {
                let worker = match worker {
                    Some(worker) => worker,
                    none => none.insert(gpu.worker()?),
                };
                on_gpu(gpu, worker, shared, index, flight, *place, later)?;
            }
            _ => {
                debug_assert!(false, "workers and batches are of one device");
            }
        }
        Ok(shared.source.label(index))
    }
}

/// Reads, decodes and augments one sample into its slot.
fn on_cpu(
    executor: &mut Executor,
    read_buffer: &mut Vec<u8>,
    shared: &Shared,
    index: u64,
    out: &mut [u8],
) -> Result<()> {
    let cache = shared.inner.cache.as_ref();
    if let Some(kept) = cache.and_then(|cache| cache.known(shared, index, read_buffer)) {
        run_kept(executor, shared, index, &kept, out)?;
        kept.bytes.into_buffer().into_iter().for_each(|buffer| *read_buffer = buffer);
        return Ok(());
    }
    let start = Instant::now();
    let bytes = shared.source.read(index, read_buffer)?;
    shared.counters.add_read(bytes.len(), start.elapsed());
    let header = header(shared, bytes)?;
    if let Some(cache) = cache
        && let Some(kept) = cache.image(shared, executor, index, bytes, &header)?
    {
        return run_kept(executor, shared, index, &kept, out);
    }
    let ops = draw(shared, index, &header)?;
    run(executor, shared, bytes, &header, &ops, out)?;
    shared.counters.add_decoded(Decoded { cpu: 1, ..Decoded::default() });
    Ok(())
}

/// Augments an image from the cache.
fn run_kept(executor: &mut Executor, shared: &Shared, index: u64, kept: &Kept, out: &mut [u8]) -> Result<()> {
    let ops = draw_for_kept(shared, index, kept.stored)?;
    run(executor, shared, &kept.bytes, &kept.header, &ops, out)
}

fn run(
    executor: &mut Executor,
    shared: &Shared,
    bytes: &[u8],
    header: &Header,
    ops: &[Op],
    out: &mut [u8],
) -> Result<()> {
    let (inner, counters) = (&shared.inner, &shared.counters);
    let times = executor.run(&inner.job(bytes, header, ops), &mut inner.output(out))?;
    counters.add_decode(times.decode);
    counters.add_augment(times.augment);
    Ok(())
}

/// Reads and decodes one sample and prepares what the device has to do for it.
fn on_gpu(
    gpu: &Gpu,
    worker: &mut gpu::Worker,
    shared: &Shared,
    index: u64,
    flight: &InFlight,
    place: usize,
    later: bool,
) -> Result<()> {
    let (counters, cache) = (&shared.counters, shared.inner.cache.as_ref());
    let prepare = |worker: &mut gpu::Worker, encoded: Encoded, header: &Header, ops: &[Op]| {
        let sample = gpu::Sample { place, header, ops, hardware: later };
        let times = gpu.prepare(worker, flight, encoded, &sample)?;
        counters.add_decode(times.decode);
        counters.add_augment(times.augment);
        Ok(worker.take_decoded())
    };
    let prepare_kept = |worker: &mut gpu::Worker, kept: Kept| {
        let ops = draw_for_kept(shared, index, kept.stored)?;
        // It was decoded when it was kept.
        let encoded = match kept.bytes {
            KeptBytes::Shared(bytes) => Encoded::shared(bytes),
            KeptBytes::Own(buffer) => Encoded::owned(buffer),
        };
        prepare(worker, encoded, &kept.header, &ops).map(drop)
    };
    let mut buffer = gpu.buffer();
    if let Some(kept) = cache.and_then(|cache| cache.known(shared, index, &mut buffer)) {
        gpu.give_buffer(buffer);
        return prepare_kept(worker, kept);
    }
    let start = Instant::now();
    let encoded = Encoded::read(&shared.source, index, buffer)?;
    counters.add_read(encoded.bytes().len(), start.elapsed());
    let header = header(shared, encoded.bytes())?;
    if let Some(cache) = cache
        && let Some(kept) = cache.image(shared, worker.executor(), index, encoded.bytes(), &header)?
    {
        gpu.give_buffer(encoded.into_buffer());
        return prepare_kept(worker, kept);
    }
    let ops = draw(shared, index, &header)?;
    counters.add_decoded(prepare(worker, encoded, &header, &ops)?);
    Ok(())
}

fn header(shared: &Shared, bytes: &[u8]) -> Result<Header> {
    let start = Instant::now();
    let header = shared.inner.header(bytes)?;
    shared.counters.add_decode(start.elapsed());
    Ok(header)
}

/// A sample's recipe.
fn draw(shared: &Shared, index: u64, header: &Header) -> Result<Vec<Op>> {
    let start = Instant::now();
    let ops = shared.inner.recipe(shared.epoch, index, Stored::from(header))?;
    shared.counters.add_augment(start.elapsed());
    Ok(ops)
}

/// What is left of a sample's recipe for an image from the cache.
fn draw_for_kept(shared: &Shared, index: u64, stored: Stored) -> Result<Vec<Op>> {
    let start = Instant::now();
    let ops = shared.inner.recipe_for_kept(shared.epoch, index, stored)?;
    shared.counters.add_augment(start.elapsed());
    Ok(ops)
}
