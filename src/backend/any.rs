//! A back end of any kind. Only this folder depends on the kind.

use super::cpu::{self, Cpu};
use super::cuda::{self, Gpu};
use super::{Backend, Decoded, Encoded, End, Finished, PlannedSample, Settled, WorkStats};
use crate::decode::Header;
use crate::error::{Error, Result};
use crate::plan::Plan;

/// A back end of any kind.
pub(crate) enum AnyBackend {
    Cpu(Cpu),
    Cuda(Box<Gpu>),
}

/// A worker of the same kind of back end.
pub(crate) enum AnyWorker {
    Cpu(Box<cpu::Worker>),
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

impl Backend for AnyBackend {
    type Worker = AnyWorker;
    type Batch = AnyBatch;

    fn name(&self) -> &str {
        match self {
            Self::Cpu(cpu) => cpu.name(),
            Self::Cuda(gpu) => gpu.name(),
        }
    }

    fn device_bytes(&self) -> u64 {
        match self {
            Self::Cpu(cpu) => cpu.device_bytes(),
            Self::Cuda(gpu) => gpu.device_bytes(),
        }
    }

    fn moves_masks(&self) -> bool {
        match self {
            Self::Cpu(cpu) => cpu.moves_masks(),
            Self::Cuda(gpu) => gpu.moves_masks(),
        }
    }

    fn worker(&self) -> Result<AnyWorker> {
        match self {
            Self::Cpu(cpu) => cpu.worker().map(|worker| AnyWorker::Cpu(Box::new(worker))),
            Self::Cuda(gpu) => gpu.worker().map(|worker| AnyWorker::Cuda(Box::new(worker))),
        }
    }

    fn give_worker(&self, worker: AnyWorker) {
        match (self, worker) {
            (Self::Cpu(cpu), AnyWorker::Cpu(worker)) => cpu.give_worker(*worker),
            (Self::Cuda(gpu), AnyWorker::Cuda(worker)) => gpu.give_worker(*worker),
            _ => {}
        }
    }

    fn buffer(&self, worker: &mut AnyWorker) -> Vec<u8> {
        match (self, worker) {
            (Self::Cpu(cpu), AnyWorker::Cpu(worker)) => cpu.buffer(worker),
            (Self::Cuda(gpu), AnyWorker::Cuda(worker)) => gpu.buffer(worker),
            _ => Vec::new(),
        }
    }

    fn give_buffer(&self, worker: &mut AnyWorker, buffer: Vec<u8>) {
        match (self, worker) {
            (Self::Cpu(cpu), AnyWorker::Cpu(worker)) => cpu.give_buffer(worker, buffer),
            (Self::Cuda(gpu), AnyWorker::Cuda(worker)) => gpu.give_buffer(worker, buffer),
            _ => {}
        }
    }

    fn begin(&self, samples: usize) -> Result<AnyBatch> {
        match self {
            Self::Cpu(cpu) => cpu.begin(samples).map(AnyBatch::Cpu),
            Self::Cuda(gpu) => gpu.begin(samples).map(|batch| AnyBatch::Cuda(Box::new(batch))),
        }
    }

    fn run(
        &self,
        worker: &mut AnyWorker,
        batch: &AnyBatch,
        encoded: Encoded,
        sample: &PlannedSample<'_>,
    ) -> Result<WorkStats> {
        match (self, worker, batch) {
            (Self::Cpu(cpu), AnyWorker::Cpu(worker), AnyBatch::Cpu(batch)) => cpu.run(worker, batch, encoded, sample),
            (Self::Cuda(gpu), AnyWorker::Cuda(worker), AnyBatch::Cuda(batch)) => {
                gpu.run(worker, batch, encoded, sample)
            }
            _ => Err(mixed_up()),
        }
    }

    fn take_counts(&self, worker: &mut AnyWorker) -> Decoded {
        match (self, worker) {
            (Self::Cpu(cpu), AnyWorker::Cpu(worker)) => cpu.take_counts(worker),
            (Self::Cuda(gpu), AnyWorker::Cuda(worker)) => gpu.take_counts(worker),
            _ => Decoded::default(),
        }
    }

    fn run_to_host(
        &self,
        worker: &mut AnyWorker,
        bytes: &[u8],
        header: &Header,
        plan: &Plan<'_>,
        out: &mut [u8],
    ) -> Result<WorkStats> {
        match (self, worker) {
            (Self::Cpu(cpu), AnyWorker::Cpu(worker)) => cpu.run_to_host(worker, bytes, header, plan, out),
            (Self::Cuda(gpu), AnyWorker::Cuda(worker)) => gpu.run_to_host(worker, bytes, header, plan, out),
            _ => Err(mixed_up()),
        }
    }

    fn settle(&self, worker: &mut AnyWorker, batch: &mut AnyBatch) -> Result<Settled> {
        match (self, worker, batch) {
            (Self::Cpu(cpu), AnyWorker::Cpu(worker), AnyBatch::Cpu(batch)) => cpu.settle(worker, batch),
            (Self::Cuda(gpu), AnyWorker::Cuda(worker), AnyBatch::Cuda(batch)) => gpu.settle(worker, batch),
            _ => Err(mixed_up()),
        }
    }

    fn finish(&self, batch: AnyBatch, end: &End<'_>) -> Result<Finished> {
        match (self, batch) {
            (Self::Cpu(cpu), AnyBatch::Cpu(batch)) => cpu.finish(batch, end),
            (Self::Cuda(gpu), AnyBatch::Cuda(batch)) => gpu.finish(*batch, end),
            _ => Err(mixed_up()),
        }
    }

    fn end_epoch(&self) {
        match self {
            Self::Cpu(cpu) => cpu.end_epoch(),
            Self::Cuda(gpu) => gpu.end_epoch(),
        }
    }

    fn abandon(&self, batch: AnyBatch) {
        match (self, batch) {
            (Self::Cpu(cpu), AnyBatch::Cpu(batch)) => cpu.abandon(batch),
            (Self::Cuda(gpu), AnyBatch::Cuda(batch)) => gpu.abandon(*batch),
            _ => {}
        }
    }
}
