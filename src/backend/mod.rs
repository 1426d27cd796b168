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
mod kept;
mod left_to_cpu;
mod options;
mod work;

pub(crate) use any::{AnyBackend, AnyBatch, AnyWorker};
pub(crate) use encoded::Encoded;
pub use left_to_cpu::LeftToCpu;
pub(crate) use options::{RunOptions, ViewForm};
pub(crate) use work::{Decoded, Work};

use crate::decode::Header;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::mix::MixPlan;
use crate::ops::normalize::Normalization;
use crate::plan::Plan;
use crate::tensor::{Storage, Tensor};
use cpu::output::Tables;
use cuda::Gpu;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

/// One sample's work.
pub(crate) struct Sample<'a> {
    /// Its place in its batch.
    pub(crate) place: usize,
    pub(crate) header: &'a Header,
    /// The plan of each image that the batch has of it, orientation included: a view's repetitions, then those of the next.
    /// The images of a view come out in its size.
    pub(crate) plans: &'a [Plan<'a>],
    /// Whether part of the work may be left to be done with the whole batch ([`Backend::settle`]), which may then show
    /// that the sample is bad.
    pub(crate) later: bool,
}

/// What was left to be done with a whole batch.
#[derive(Default)]
pub(crate) struct Settled {
    /// The places of samples that cannot be used after all.
    pub(crate) bad: Vec<(usize, Error)>,
    pub(crate) decoded: Decoded,
}

impl AddAssign for Settled {
    fn add_assign(&mut self, mut other: Self) {
        self.bad.append(&mut other.bad);
        self.decoded += other.decoded;
    }
}

/// What a batch ends with.
pub(crate) struct End<'a> {
    /// The places of the samples that are delivered, in this order.
    pub(crate) places: &'a [usize],
    /// How many repetitions of the last one follow.
    pub(crate) padding: usize,
    /// Of the samples and the padding.
    pub(crate) labels: &'a [u32],
    /// The same for targets that are numbers, in the machine's byte order.
    pub(crate) targets: Option<&'a [u8]>,
    /// How the images of the only view, one of each sample, are mixed at last, if they are.
    pub(crate) mix: Option<&'a MixPlan>,
}

/// A batch where its device is: its views, or its images where each has a size of its own; and targets that are numbers.
pub(crate) struct Finished {
    pub(crate) views: Vec<Tensor>,
    pub(crate) targets: Option<Storage>,
    /// What mixing took on the host.
    pub(crate) mix: Duration,
}

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
        sample: &Sample<'_>,
    ) -> Result<Work>;

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
    ) -> Result<Work>;

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

/// A function that sets up a back end: [`open`], or an experiment's own.
pub(crate) type Open<'a> = dyn Fn(Device, &Arc<RunOptions>, Normalization) -> Result<AnyBackend> + 'a;

/// Sets up the back end for `device`.
///
/// # Errors
/// [`Error::Device`] if the device asked for is not there; [`Error::OutOfMemory`] and [`Error::OutOfDeviceMemory`] if not
/// even one batch has room.
pub(crate) fn open(device: Device, options: &Arc<RunOptions>, normalize: Normalization) -> Result<AnyBackend> {
    let tables = Tables::new(options.dtype, normalize);
    match device.resolve()? {
        None => cpu::Cpu::open(options, tables).map(AnyBackend::Cpu),
        Some(ordinal) => Gpu::open(ordinal, options, &tables).map(Box::new).map(AnyBackend::Cuda),
    }
}

impl Device {
    /// Says whether this device can run a pipeline, and if not, why.
    ///
    /// # Errors
    /// [`Error::Device`] with what was looked for.
    pub fn available(self) -> Result<()> {
        match self {
            Self::Auto | Self::Cpu => Ok(()),
            Self::Cuda(ordinal) => cuda::available(ordinal),
        }
    }

    /// The CUDA device to use, if any.
    pub(crate) fn resolve(self) -> Result<Option<u32>> {
        match self {
            Self::Cpu => Ok(None),
            Self::Auto => Ok(cuda::available(0).is_ok().then_some(0)),
            Self::Cuda(ordinal) => cuda::available(ordinal).map(|()| Some(ordinal)),
        }
    }
}
