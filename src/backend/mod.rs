//! Back ends, which run samples' plans and make batches of them: on the CPU, or on a CUDA device.
//!
//! A back end knows stages. `plan` has settled everything else: strategy, which resize is last, mirrors, quarter turns,
//! sizes and limits. A pipeline sees a back end through [`Backend`] alone: a batch is begun, worker threads run samples
//! into their places in it, and the thread that has run the last sample finishes it. A back end's worker and its batch
//! storage are its own types. It names no operation and no strategy, and `pipeline` names no back end. Another kind of
//! device (ROCm, wgpu) is another folder here, a variant of [`Device`] and one of [`AnyBackend`].

mod any;
mod cpu;
pub(crate) mod cuda;
mod encoded;
mod exchange;
mod left_to_cpu;
mod open;
mod options;
mod spares;
mod work_stats;

pub(crate) use any::{AnyBackend, AnyBatch, AnyWorker};
pub(crate) use encoded::Encoded;
pub(crate) use exchange::{End, Finished, PlannedSample, Settled};
pub use left_to_cpu::LeftToCpu;
pub(crate) use open::{Open, open};
pub(crate) use options::{Elements, OutputForm, RunOptions};
pub(crate) use work_stats::{Decoded, WorkStats};

use crate::decode::Header;
use crate::error::Result;
use crate::plan::Plan;

/// Runs plans and makes batches.
pub(crate) trait Backend: Send + Sync {
    /// One thread's decoders and memory.
    type Worker: Send;
    /// A batch being filled, by several threads at once.
    type Batch: Send + Sync;

    /// The device in words.
    fn name(&self) -> &str;

    /// Most memory of a device that batches take while they are being filled or under way.
    fn device_bytes(&self) -> u64;

    /// Takes up the work of the calling thread.
    fn worker(&self) -> Result<Self::Worker>;

    /// Keeps a worker for another epoch.
    fn give_worker(&self, worker: Self::Worker);

    /// A buffer to read a sample's encoded bytes into.
    fn buffer(&self, worker: &mut Self::Worker) -> Vec<u8>;

    /// Keeps a buffer for another sample.
    fn give_buffer(&self, worker: &mut Self::Worker, buffer: Vec<u8>);

    /// Begins a batch of up to so many samples.
    fn begin(&self, samples: usize) -> Result<Self::Batch>;

    /// Decodes one sample, once, and runs its plans into its place of the batch. What was there is replaced.
    fn run(
        &self,
        worker: &mut Self::Worker,
        batch: &Self::Batch,
        encoded: Encoded,
        sample: &PlannedSample<'_>,
    ) -> Result<WorkStats>;

    /// What a worker counted for a sample whose [`run`](Self::run) failed.
    fn take_counts(&self, worker: &mut Self::Worker) -> Decoded;

    /// Decodes an image and runs a plan on it, but for its epilogue, to host memory: RGB bytes, row by row.
    fn run_to_host(
        &self,
        worker: &mut Self::Worker,
        bytes: &[u8],
        header: &Header,
        plan: &Plan<'_>,
        out: &mut [u8],
    ) -> Result<WorkStats>;

    /// Does what was left to be done with the whole batch, once every sample has been run.
    ///
    /// # Errors
    /// What ends the epoch; the batch is then to be abandoned.
    fn settle(&self, worker: &mut Self::Worker, batch: &mut Self::Batch) -> Result<Settled>;

    /// Makes a batch of what its samples have become: each view of the samples at the given places, in this order, and after
    /// them repetitions of the last for padding. A view's second images follow all of its first ones.
    fn finish(&self, batch: Self::Batch, end: &End<'_>) -> Result<Finished>;

    /// Gives up a batch that will not be finished.
    fn abandon(&self, batch: Self::Batch);
}
