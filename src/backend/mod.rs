//! Back ends, which run samples' plans and make batches: on the CPU, or on a CUDA device. They name no operation and no
//! strategy. Another kind of device (ROCm, wgpu) is another folder here, a variant of [`Device`] and a variant of
//! [`AnyBackend`].

mod any;
mod cpu;
mod cpu_fallbacks;
pub(crate) mod cuda;
mod exchange;
mod held;
mod open;
mod options;
mod spares;
mod twice;
mod work_stats;

pub(crate) use any::{AnyBackend, AnyBatch, AnyWorker};
pub(crate) use cpu::executor::{Executor, Job, StageRunner};
pub(crate) use cpu::output::Output;
pub(crate) use cpu::pixels::{PixelRunner, TablesOf};
pub(crate) use cpu::values::ValueOutput;
pub use cpu_fallbacks::CpuFallbacks;
pub(crate) use cuda::{ImagesOnDevice, ViewRunner};
pub(crate) use exchange::{End, Finished, MasksOfView, PlannedMask, PlannedSample, Ran, Settled};
pub(crate) use held::{Given, HeldImage};
pub(crate) use open::{Open, open};
pub(crate) use options::{CallersMemory, Largest, MAX_BATCH_BYTES, OutputForm, PixelForm, RunOptions, Strides};
pub use twice::Twice;
pub(crate) use twice::open_twice;
pub use work_stats::Decoded;
pub(crate) use work_stats::{WorkStats, counts};

use crate::error::Result;
use crate::raster::Size;

/// Runs plans and makes batches. Each thread has a host executor and a worker of the back end.
pub(crate) trait Backend: Send + Sync {
    /// The memory of one thread, besides its host executor.
    type Worker: Send;
    /// A batch being filled, by several threads at once.
    type Batch: Send + Sync;

    /// The device's name, for people.
    fn name(&self) -> &str;

    /// Largest device memory of the batches that are being filled or in flight, in bytes.
    fn device_bytes(&self) -> u64;

    /// Makes a worker for the calling thread.
    fn worker(&self) -> Result<Self::Worker>;

    /// Keeps a worker for another epoch.
    fn give_worker(&self, worker: Self::Worker);

    /// A buffer to read a sample's encoded bytes into.
    fn buffer(&self, host: &mut Executor) -> Vec<u8>;

    /// Keeps a buffer for another sample.
    fn give_buffer(&self, host: &mut Executor, buffer: Vec<u8>);

    /// Begins a batch of up to `samples` samples. `size`: that of its images, if batches have sizes of their own.
    fn begin(&self, samples: usize, size: Option<Size>) -> Result<Self::Batch>;

    /// Decodes a sample once, runs its plans into its place in the batch, and moves its masks. Earlier contents of the
    /// place are replaced.
    fn run(
        &self,
        worker: (&mut Executor, &mut Self::Worker),
        batch: &Self::Batch,
        image: Given<'_>,
        sample: &PlannedSample<'_>,
    ) -> Result<Ran>;

    /// Returns a worker's counts for a sample whose [`run`](Self::run) failed.
    fn take_counts(&self, worker: &mut Self::Worker) -> Decoded;

    /// Does the work that was left for the whole batch, once every sample has been run.
    ///
    /// # Errors
    /// Any error ends the epoch; the batch must then be abandoned.
    fn settle(&self, worker: (&mut Executor, &mut Self::Worker), batch: &mut Self::Batch) -> Result<Settled>;

    /// Makes the tensors of a batch: for each view, the samples at the given places, in this order, then repetitions of
    /// the last sample as padding. A view's second images follow all of its first ones.
    fn finish(&self, batch: Self::Batch, end: &End<'_>) -> Result<Finished>;

    /// Stores the entry points that an ended epoch has learned.
    ///
    /// # Synchronization
    /// Waits until the device is done with the batches that were finished.
    fn end_epoch(&self) {}

    /// Abandons a batch that will not be finished.
    fn abandon(&self, batch: Self::Batch);
}
