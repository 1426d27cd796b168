//! What runs samples' plans and makes batches of them: on the CPU, or on a CUDA device.
//!
//! A back end is seen through [`Backend`] alone: a batch is begun, worker threads run samples into their places of it, and
//! the thread that has run the last one finishes it. A sample comes with its plans ([`Plan`]), so a back end knows stages,
//! and neither recipes nor strategies. Another kind of device is another folder here, a variant of [`Device`] and one of
//! [`AnyBackend`].

pub(crate) mod cpu;
pub(crate) mod cuda;
mod encoded;

pub(crate) use encoded::Encoded;

use crate::decode::{EntryPoints, Header, How, Knew, LeftToCpu};
use crate::device::{DecodePath, Device, StreamPriority};
use crate::error::{Error, Result};
use crate::mix::MixPlan;
use crate::plan::Plan;
use crate::raster::Size;
use crate::tensor::{DType, Layout, Storage, Tensor};
use cpu::output::Tables;
use cuda::gpu::Gpu;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

/// How samples become batches: what the builder has settled, for the pipeline and its back end.
#[derive(Debug, Clone)]
pub(crate) struct RunOptions {
    /// The views that a batch has of each sample; none where each image has a size of its own and is a tensor by itself.
    pub(crate) views: Vec<ViewForm>,
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    /// 3, or 1: of gray pixels the first.
    pub(crate) channels: usize,
    pub(crate) decode: DecodePath,
    pub(crate) accept_truncated: bool,
    /// What is known of images that were decoded before.
    pub(crate) entry_points: Option<Arc<EntryPoints>>,
    pub(crate) batch_size: usize,
    /// Most images that a batch has: fewer than `batch_size` where an epoch has no more.
    pub(crate) batch_images: usize,
    /// Numbers of a sample's target, 4 bytes each; 0 for none.
    pub(crate) target_len: usize,
    /// Most bytes of a sample's target, numbers or not.
    pub(crate) target_bytes: u64,
    /// Batches being filled or ready ahead of the consumer.
    pub(crate) prefetch: usize,
    /// Worker threads; 0 if the consumer's does their work.
    pub(crate) threads: usize,
    /// Most device memory of the batches that are being filled or under way; a share of what is free if not given.
    pub(crate) device_memory_bytes: Option<u64>,
    /// Whether what is copied to a device is staged in pinned memory.
    pub(crate) pinned: bool,
    /// The CUDA device whose trainer copies batches from host memory, which are pinned then.
    pub(crate) pin_batches: Option<u32>,
    pub(crate) stream_priority: StreamPriority,
    pub(crate) again: Ablation,
}

/// A view that a batch has of each sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ViewForm {
    /// Size of its images.
    pub(crate) size: Size,
    /// How many images of each sample.
    pub(crate) times: usize,
}

/// The part of a batch's way over a device that is done twice: the time of the whole then shows what it costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Ablation {
    #[default]
    Nothing,
    /// The copy to the device.
    Transfer,
    /// The kernels. Those that work in place then make other pixels.
    Kernels,
}

impl RunOptions {
    /// How the CPU decodes.
    pub(crate) fn how(&self) -> How<'_> {
        How { accept_truncated: self.accept_truncated, entry_points: self.entry_points.as_deref() }
    }

    /// Whether each image has a size of its own and is a tensor by itself.
    pub(crate) fn is_unequal(&self) -> bool {
        self.views.is_empty()
    }

    /// A tensor of so many images of a size.
    pub(crate) fn tensor(&self, storage: Storage, size: Size, images: usize) -> Tensor {
        let (width, height) = (size.width as usize, size.height as usize);
        let shape = match self.layout {
            Layout::Nchw => [images, self.channels, height, width],
            Layout::Nhwc => [images, height, width, self.channels],
        };
        Tensor::new(storage, shape, self.dtype, self.layout)
    }

    /// Bytes of one image of a size.
    pub(crate) fn image_bytes(&self, size: Size) -> usize {
        self.pixel_bytes() * size.area_px() as usize
    }

    fn pixel_bytes(&self) -> usize {
        self.channels * self.dtype.size_bytes()
    }

    /// Whether channels lie in planes, as one alone does in either layout.
    pub(crate) fn has_planes(&self) -> bool {
        self.layout == Layout::Nchw || self.channels == 1
    }

    /// Most bytes of all that a batch has of one sample: its images, of which none has more than `max_px` pixels, and its
    /// target.
    pub(crate) fn sample_bytes(&self, max_px: u64) -> u64 {
        let images = self.views.iter().map(|view| (view.times * self.image_bytes(view.size)) as u64);
        let largest = if self.is_unequal() { max_px.saturating_mul(self.pixel_bytes() as u64) } else { 0 };
        images.sum::<u64>() + largest + self.target_bytes
    }

    /// How many images a batch has of a sample.
    pub(crate) fn images_of_a_sample(&self) -> usize {
        if self.is_unequal() { 1 } else { self.views.iter().map(|view| view.times).sum() }
    }

    /// How many tensors' memory is kept for later batches, of each view or of unequal images.
    pub(crate) fn kept_tensors(&self) -> usize {
        self.batches_at_a_time() * if self.is_unequal() { self.batch_images } else { 1 }
    }

    /// Batches that there may be at a time: those being filled or ready, and one that the consumer holds or a device is
    /// still at work on.
    pub(crate) fn batches_at_a_time(&self) -> usize {
        self.prefetch + 1
    }
}

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

/// What a piece of work took, and who decoded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    pub(crate) decode: Duration,
    pub(crate) augment: Duration,
    pub(crate) decoded: Decoded,
}

/// How many images each decoder has decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) cpu: u64,
    pub(crate) hybrid: u64,
    pub(crate) hardware: u64,
    /// The crate's own decoder on a device.
    pub(crate) device: u64,
    /// Of those by the CPU: a device decoder would have, had there been device memory for the whole image.
    pub(crate) for_memory: u64,
    /// Of those by the CPU: codes were passed over by means of an index of rows.
    pub(crate) restarts: u64,
    /// Of those by the CPU: from entry points.
    pub(crate) entry_points: u64,
    /// Of those by the CPU: why the crate's own decoder on a device left them to it.
    pub(crate) left: LeftToCpu,
}

impl From<Knew> for Decoded {
    fn from(knew: Knew) -> Self {
        let (restarts, entry_points) = (u64::from(knew == Knew::Rows), u64::from(knew == Knew::EntryPoints));
        Self { restarts, entry_points, ..Self::default() }
    }
}

impl AddAssign for Decoded {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.hybrid += other.hybrid;
        self.hardware += other.hardware;
        self.device += other.device;
        self.for_memory += other.for_memory;
        self.restarts += other.restarts;
        self.entry_points += other.entry_points;
        self.left += other.left;
    }
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
pub(crate) trait Backend: Send + Sync + Sized + 'static {
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

/// A back end of any kind.
pub(crate) enum AnyBackend {
    Cpu(cpu::Cpu),
    Cuda(Box<Gpu>),
}

/// Mean and std of each channel.
pub(crate) type Normalization = Option<([f32; 3], [f32; 3])>;

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
