//! The CPU back end: each worker thread decodes its samples and runs their recipes to the end.

mod batch;
pub(crate) mod executor;
mod gather;
#[cfg(target_arch = "x86_64")]
mod horizontal;
mod mix;
mod normalize;
pub(crate) mod output;
mod resample;

use super::{Backend, Decoded, Encoded, End, Finished, RunOptions, Sample, Settled, ViewForm, Work};
use crate::cuda::driver;
use crate::decode::Header;
use crate::error::Result;
use crate::memory;
use crate::ops::Op;
use crate::raster::Size;
use crate::tensor::{DType, Layout, Pool, Storage};
use batch::{HostBatch, HostView};
use executor::{Executor, Job, Times};
use output::{Output, Tables};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most batches whose memory is tried when a pipeline is built.
const TRIED_BATCHES: usize = 8;
/// Memory tried for each worker beside the batches: its stack, its decoder and an image of moderate size.
const WORKER_BYTES: usize = 8 << 20;

/// The CPU, set up for one pipeline.
pub(crate) struct Cpu {
    options: Arc<RunOptions>,
    tables: Tables,
    rgb_tables: Tables,
    /// Of each view.
    pools: Vec<Arc<Pool>>,
    /// For targets that are numbers.
    targets: Arc<Pool>,
    /// Of threads that have ended, for the next epoch's.
    workers: Mutex<Vec<Worker>>,
}

/// A thread's decoder and memory.
pub(crate) struct Worker {
    executor: Executor,
    /// For encoded bytes.
    buffer: Vec<u8>,
}

impl Cpu {
    /// Sets it up, and tries whether the batches that there are at a time, up to a number, and the workers have room in
    /// memory: the system gives pages when they are first touched, so this takes no time.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if they have not.
    pub(super) fn open(options: &Arc<RunOptions>, tables: Tables) -> Result<Self> {
        let pins = options.pin_batches.map(driver::context).transpose()?;
        let pool = |view: &ViewForm| {
            let batch_bytes = options.batch_images * view.times * options.image_bytes(view);
            Arc::new(Pool::new(options.dtype, batch_bytes, options.batches_at_a_time()).pinned(pins.as_ref()))
        };
        let pools: Vec<_> = options.views.iter().map(pool).collect();
        let tried = options.batches_at_a_time().min(TRIED_BATCHES);
        let batches = (0..tried).flat_map(|_| &pools).map(Pool::take).collect::<Result<Vec<_>>>()?;
        let workers = options.threads.max(1).saturating_mul(WORKER_BYTES);
        drop((memory::zeros::<u8>(workers, "the workers beside the batches", memory::SMALLER_BATCHES)?, batches));
        let rgb_tables = Tables::new(DType::U8, None);
        let target_bytes = 4 * options.target_len * options.batch_images;
        let targets = Arc::new(Pool::new(DType::F32, target_bytes, options.batches_at_a_time()));
        Ok(Self { options: Arc::clone(options), tables, rgb_tables, pools, targets, workers: Mutex::default() })
    }
}

impl RunOptions {
    /// What is to be done with one encoded image on the CPU.
    pub(crate) fn job<'a>(&'a self, bytes: &'a [u8], header: &'a Header) -> Job<'a> {
        Job { bytes, header, options: self }
    }
}

/// One image has been decoded by the CPU.
fn work(times: Times) -> Work {
    let decoded = Decoded { cpu: 1, restarts: times.skipped.into(), ..Decoded::default() };
    Work { decode: times.decode, augment: times.augment, decoded }
}

/// Decodes an image and runs recipes on it, each to RGB bytes.
pub(crate) fn run_to_rgb<'a>(
    executor: &mut Executor,
    job: &Job<'_>,
    recipes: &[&[Op]],
    outs: impl IntoIterator<Item = (Size, &'a mut [u8])>,
    tables: &Tables,
) -> Result<Work> {
    let output = |(size, out)| Output::new(out, size, tables, Layout::Nhwc, 3);
    let mut outputs: Vec<_> = outs.into_iter().map(output).collect();
    executor.run(job, recipes, &mut outputs).map(work)
}

impl Backend for Cpu {
    type Worker = Worker;
    type Batch = HostBatch;

    fn name(&self) -> &str {
        "cpu"
    }

    fn device_bytes(&self) -> u64 {
        0
    }

    fn worker(&self) -> Result<Worker> {
        let kept = self.workers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(|| Ok(Worker { executor: Executor::new()?, buffer: Vec::new() }), Ok)
    }

    fn give_worker(&self, worker: Worker) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        if workers.len() < self.options.threads.max(1) {
            workers.push(worker);
        }
    }

    fn buffer(&self, worker: &mut Worker) -> Vec<u8> {
        std::mem::take(&mut worker.buffer)
    }

    fn give_buffer(&self, worker: &mut Worker, buffer: Vec<u8>) {
        if buffer.capacity() > worker.buffer.capacity() {
            worker.buffer = buffer;
        }
    }

    fn begin(&self, samples: usize) -> Result<HostBatch> {
        let view = |(pool, view): (&Arc<Pool>, &ViewForm)| {
            Ok(HostView::new(pool.take()?, self.options.image_bytes(view), view.times))
        };
        let views = self.pools.iter().zip(&self.options.views).map(view).collect::<Result<_>>()?;
        Ok(HostBatch::new(views, samples))
    }

    fn run(&self, worker: &mut Worker, batch: &HostBatch, encoded: Encoded, sample: &Sample<'_>) -> Result<Work> {
        let mut slot = batch.slot(sample.place)?;
        let options = &self.options;
        let job = options.job(encoded.bytes(), sample.header);
        let output = |(bytes, size)| Output::new(bytes, size, &self.tables, options.layout, options.channels);
        let mut outputs: Vec<_> = slot.images().zip(options.sizes()).map(output).collect();
        let times = worker.executor.run(&job, sample.recipes, &mut outputs);
        self.give_buffer(worker, encoded.into_buffer());
        times.map(work)
    }

    fn take_counts(&self, _worker: &mut Worker) -> Decoded {
        Decoded::default()
    }

    fn run_to_host(
        &self,
        worker: &mut Worker,
        bytes: &[u8],
        header: &Header,
        ops: &[Op],
        out: (Size, &mut [u8]),
    ) -> Result<Work> {
        run_to_rgb(&mut worker.executor, &self.options.job(bytes, header), &[ops], [out], &self.rgb_tables)
    }

    fn settle(&self, _worker: &mut Worker, _batch: &mut HostBatch) -> Result<Settled> {
        Ok(Settled::default())
    }

    fn finish(&self, batch: HostBatch, end: &End<'_>) -> Result<Finished> {
        let mut targets = end.targets.map(|_| self.targets.take()).transpose()?;
        if let (Some(buffer), Some(targets)) = (&mut targets, end.targets) {
            buffer.as_bytes_mut()[..targets.len()].copy_from_slice(targets);
        }
        let mut views = batch.into_buffers(end.places, end.padding);
        let mut mixing = Duration::ZERO;
        if let Some(plan) = end.mix.filter(|plan| plan.changes()) {
            let start = Instant::now();
            for (buffer, view) in views.iter_mut().zip(&self.options.views) {
                let len_bytes = plan.images.len() * self.options.image_bytes(view);
                mix::mix(&mut buffer.as_bytes_mut()[..len_bytes], plan, view.size, &self.options);
            }
            mixing = start.elapsed();
        }
        let views = views.into_iter().map(Storage::Host).collect();
        Ok(Finished { views, targets: targets.map(Storage::Host), mix: mixing })
    }

    fn abandon(&self, _batch: HostBatch) {}
}
