//! A back end of any kind. Only this folder depends on the kind.

use super::cpu::{self, Cpu};
use super::cuda::{self, Gpu};
use super::spares::Spares;
use super::{Backend, Decoded, End, Executor, Finished, Given, PlannedSample, Ran, RunOptions, Settled, Twice};
use crate::backend::cuda::direct::ImageInFile;
use crate::backend::cuda::jpeg::CachedImage;
use crate::error::{Error, Result};
use crate::raster::Size;
use crate::source::Reader;
use std::sync::Arc;

/// A back end of any kind, and the host executors of its threads.
pub(crate) struct AnyBackend {
    kind: Kind,
    /// Executors of threads that have ended, for the next epoch.
    hosts: Spares<Executor>,
    /// The part of the host's work that is done twice, to measure its cost.
    twice: Option<Twice>,
}

enum Kind {
    Cpu(Cpu),
    Cuda(Box<Gpu>),
}

/// State of a thread: its host executor, and the state that its kind of back end adds.
pub(crate) struct AnyWorker {
    pub(crate) host: Executor,
    own: Own,
}

enum Own {
    Cpu(()),
    Cuda(Box<cuda::Worker>),
}

/// A batch of the same kind of back end.
pub(crate) enum AnyBatch {
    Cpu(cpu::Batch),
    Cuda(Box<cuda::InFlight>),
}

/// The error for a worker or a batch of a different back end, which would be a defect of this crate.
fn mixed_up() -> Error {
    Error::Panic { message: "a worker or a batch is of another back end".to_owned() }
}

/// A call of the back end, of whatever kind.
macro_rules! own {
    ($any:expr, $own:ident => $call:expr) => {
        match &$any.kind {
            Kind::Cpu($own) => $call,
            Kind::Cuda($own) => $call,
        }
    };
}

impl AnyBackend {
    pub(super) fn cpu(cpu: Cpu, options: &RunOptions, twice: Option<Twice>) -> Self {
        Self { kind: Kind::Cpu(cpu), hosts: Spares::new(options.threads.max(1)), twice }
    }

    pub(super) fn cuda(gpu: Gpu, options: &RunOptions) -> Self {
        Self { kind: Kind::Cuda(Box::new(gpu)), hosts: Spares::new(options.threads.max(1)), twice: None }
    }

    /// See [`Backend::name`].
    pub(crate) fn name(&self) -> &str {
        own!(self, own => own.name())
    }

    /// See [`Backend::device_bytes`].
    pub(crate) fn device_bytes(&self) -> u64 {
        own!(self, own => own.device_bytes())
    }

    /// Makes a worker for the calling thread.
    pub(crate) fn worker(&self) -> Result<AnyWorker> {
        let own = match &self.kind {
            Kind::Cpu(cpu) => Own::Cpu(cpu.worker()?),
            Kind::Cuda(gpu) => Own::Cuda(Box::new(gpu.worker()?)),
        };
        let host = self.hosts.take().map_or_else(|| Executor::new(self.twice), Ok)?;
        Ok(AnyWorker { host, own })
    }

    /// Keeps a worker for another epoch.
    pub(crate) fn give_worker(&self, AnyWorker { host, own }: AnyWorker) {
        self.hosts.give(host);
        match (&self.kind, own) {
            (Kind::Cpu(cpu), Own::Cpu(own)) => cpu.give_worker(own),
            (Kind::Cuda(gpu), Own::Cuda(own)) => gpu.give_worker(*own),
            (Kind::Cpu(_), Own::Cuda(_)) | (Kind::Cuda(_), Own::Cpu(())) => {}
        }
    }

    /// See [`Backend::buffer`].
    pub(crate) fn buffer(&self, worker: &mut AnyWorker) -> Vec<u8> {
        own!(self, own => own.buffer(&mut worker.host))
    }

    /// See [`Backend::give_buffer`].
    pub(crate) fn give_buffer(&self, worker: &mut AnyWorker, buffer: Vec<u8>) {
        own!(self, own => own.give_buffer(&mut worker.host, buffer))
    }

    /// The image of a sample that a device has kept.
    pub(crate) fn cached(&self, index: u64) -> Option<Arc<CachedImage>> {
        match &self.kind {
            Kind::Cpu(_) => None,
            Kind::Cuda(gpu) => gpu.cached(index),
        }
    }

    /// The image of a sample, if a device can read it from a file.
    pub(crate) fn in_file(&self, index: u64, reader: &Reader) -> Option<ImageInFile> {
        match &self.kind {
            Kind::Cpu(_) => None,
            Kind::Cuda(gpu) => gpu.in_file(index, reader),
        }
    }

    /// Limits the memory of the images that a device has kept.
    pub(crate) fn limit_cached(&self, bytes: u64) {
        match &self.kind {
            Kind::Cpu(_) => {}
            Kind::Cuda(gpu) => gpu.limit_cached(bytes),
        }
    }

    /// See [`Backend::begin`].
    pub(crate) fn begin(&self, samples: usize, size: Option<Size>) -> Result<AnyBatch> {
        match &self.kind {
            Kind::Cpu(cpu) => cpu.begin(samples, size).map(AnyBatch::Cpu),
            Kind::Cuda(gpu) => gpu.begin(samples, size).map(|batch| AnyBatch::Cuda(Box::new(batch))),
        }
    }

    /// See [`Backend::run`].
    pub(crate) fn run(
        &self,
        AnyWorker { host, own }: &mut AnyWorker,
        batch: &AnyBatch,
        image: Given<'_>,
        sample: &PlannedSample<'_>,
    ) -> Result<Ran> {
        match (&self.kind, own, batch) {
            (Kind::Cpu(cpu), Own::Cpu(own), AnyBatch::Cpu(batch)) => cpu.run((host, own), batch, image, sample),
            (Kind::Cuda(gpu), Own::Cuda(own), AnyBatch::Cuda(batch)) => gpu.run((host, own), batch, image, sample),
            _ => Err(mixed_up()),
        }
    }

    /// See [`Backend::take_counts`].
    pub(crate) fn take_counts(&self, worker: &mut AnyWorker) -> Decoded {
        match (&self.kind, &mut worker.own) {
            (Kind::Cpu(cpu), Own::Cpu(own)) => cpu.take_counts(own),
            (Kind::Cuda(gpu), Own::Cuda(own)) => gpu.take_counts(own),
            _ => Decoded::default(),
        }
    }

    /// See [`Backend::settle`].
    pub(crate) fn settle(&self, AnyWorker { host, own }: &mut AnyWorker, batch: &mut AnyBatch) -> Result<Settled> {
        match (&self.kind, own, batch) {
            (Kind::Cpu(cpu), Own::Cpu(own), AnyBatch::Cpu(batch)) => cpu.settle((host, own), batch),
            (Kind::Cuda(gpu), Own::Cuda(own), AnyBatch::Cuda(batch)) => gpu.settle((host, own), batch),
            _ => Err(mixed_up()),
        }
    }

    /// See [`Backend::finish`].
    pub(crate) fn finish(&self, batch: AnyBatch, end: &End<'_>) -> Result<Finished> {
        match (&self.kind, batch) {
            (Kind::Cpu(cpu), AnyBatch::Cpu(batch)) => cpu.finish(batch, end),
            (Kind::Cuda(gpu), AnyBatch::Cuda(batch)) => gpu.finish(*batch, end),
            _ => Err(mixed_up()),
        }
    }

    /// See [`Backend::end_epoch`].
    pub(crate) fn end_epoch(&self) {
        own!(self, own => own.end_epoch())
    }

    /// See [`Backend::abandon`].
    pub(crate) fn abandon(&self, batch: AnyBatch) {
        match (&self.kind, batch) {
            (Kind::Cpu(cpu), AnyBatch::Cpu(batch)) => cpu.abandon(batch),
            (Kind::Cuda(gpu), AnyBatch::Cuda(batch)) => gpu.abandon(*batch),
            _ => {}
        }
    }
}
