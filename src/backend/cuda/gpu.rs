//! The GPU back end: a device and everything that pipelines need on it.

use super::batches::Batches;
use super::decode::Decoders;
use super::direct::{self, Direct, ImageInFile};
use super::fatbin;
use super::forget_checked;
use super::in_flight::InFlight;
use super::jpeg::{CachedImage, DeviceDecoder, JpegKernels};
use super::kernel::Kernels;
use super::limits::Limit;
use super::prepare::Preparation;
use super::streams::{Queue, Streams, once};
use super::submit::Outputs;
use super::worker::Worker;
use crate::backend::cpu::output::Tables;
use crate::backend::spares::Spares;
use crate::backend::{Backend, Decoded, End, Executor, Finished, Given, PlannedSample, Ran, RunOptions, Settled};
use crate::cuda::driver;
use crate::error::Result;
use crate::raster::Size;
use crate::source::Reader;
use std::sync::Arc;

/// A device, opened for one pipeline. The parts are in the order in which a batch uses them.
pub(crate) struct Gpu {
    options: Arc<RunOptions>,
    name: String,
    batches: Batches,
    workers: Spares<Worker>,
    decoders: Decoders,
    outputs: Outputs,
    streams: Arc<Streams>,
}

impl Gpu {
    /// Opens a device and tries whether there is memory for a batch.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) with the missing component and a remedy;
    /// [`Error::OutOfDeviceMemory`](crate::Error::OutOfDeviceMemory) if there is no memory.
    pub(crate) fn open(ordinal: u32, options: &Arc<RunOptions>, tables: &Tables) -> Result<Self> {
        Self::open_by(ordinal, options, tables, once)
    }

    /// Opens the device as `open` does. `queue` is used to queue the parts of batches.
    pub(in crate::backend) fn open_by(
        ordinal: u32,
        options: &Arc<RunOptions>,
        tables: &Tables,
        queue: Queue,
    ) -> Result<Self> {
        // Checked first: without kernels the driver need not be asked.
        fatbin::fatbin()?;
        let context = driver::context(ordinal)?;
        let _entered = driver::enter(&context)?;
        let name = driver::check("cuDeviceGetName", context.name())?;
        let module = fatbin::module(&context)?;
        forget_checked(ordinal);
        let streams = Arc::new(Streams::new(&context, options.stream_priority, options.finished_at_a_time(), queue)?);
        let form = (options.elements().dtype, options.elements().has_planes());
        let kernels = Kernels::new(&module, form, tables, &context, &streams.copy)?;
        let direct = options.gpu_direct.then(|| Direct::open(&context)).transpose()?;
        let own = DeviceDecoder::new(options, (JpegKernels::new(&module)?, direct), &streams);
        let decoders = Decoders::open(options, own, &streams)?;
        let outputs = Outputs::open(options, kernels, &streams, ordinal)?;
        let free = || driver::check("cuMemGetInfo", context.mem_get_info()).map(|(free, _)| free);
        let limit = Limit::new(ordinal, options.device_memory_bytes, free)?;
        let in_flight = options.batches_at_a_time();
        decoders.wait_until_open()?;
        options.entry_points.iter().for_each(|store| store.for_devices(true));
        Ok(Self {
            options: Arc::clone(options),
            name: format!("cuda:{ordinal} ({name})"),
            batches: Batches::new(&context, limit, options.pinned, in_flight),
            workers: Spares::new(options.threads.max(1)),
            decoders,
            outputs,
            streams,
        })
    }

    /// The image of a sample that the device has kept.
    pub(in crate::backend) fn cached(&self, index: u64) -> Option<Arc<CachedImage>> {
        self.decoders.own.cached(index)
    }

    /// The image of a sample, if the device can read it from a file.
    pub(in crate::backend) fn in_file(&self, index: u64, reader: &Reader) -> Option<ImageInFile> {
        self.decoders.own.in_file(index, reader)
    }

    /// Limits the memory of kept images. The rest is freed when the device has done the work that reads it.
    pub(in crate::backend) fn limit_cached(&self, bytes: u64) {
        let _entered = self.streams.enter();
        self.decoders.own.limit_cached(bytes);
    }

    /// Waits for all queued work.
    fn synchronize(&self) -> Result<()> {
        self.workers.all().iter().try_for_each(Worker::synchronize)?;
        self.decoders.synchronize()?;
        self.streams.synchronize()
    }

    /// Abandons a batch, after waiting for its work.
    fn give_up(&self, mut batch: InFlight) {
        batch.engines_mut().into_iter().for_each(|engines| engines.give_up());
        let decoded = batch.decoding().iter().try_for_each(|event| event.synchronize());
        let waited = decoded.and_then(|()| self.decoders.synchronize()).and_then(|()| self.streams.synchronize());
        // If waiting fails, the context has failed, and its work with it. The memory is not reused.
        match waited {
            Ok(()) => self.batches.give_up(batch),
            Err(_) => self.batches.lose(),
        }
    }
}

impl Backend for Gpu {
    type Worker = Worker;
    type Batch = InFlight;

    fn name(&self) -> &str {
        &self.name
    }

    fn device_bytes(&self) -> u64 {
        let buffers = if self.options.gpu_direct { self.options.finished_at_a_time() } else { 0 };
        (self.batches.limit_bytes * self.options.batches_at_a_time() + direct::BUFFER_BYTES * buffers) as u64
    }

    fn worker(&self) -> Result<Worker> {
        let _entered = self.streams.enter()?;
        self.workers.take().map_or_else(|| self.decoders.worker(), Ok)
    }

    fn give_worker(&self, worker: Worker) {
        self.workers.give(worker);
    }

    fn buffer(&self, _host: &mut Executor) -> Vec<u8> {
        self.decoders.buffers.take()
    }

    fn give_buffer(&self, _host: &mut Executor, buffer: Vec<u8>) {
        self.decoders.buffers.give(buffer);
    }

    fn begin(&self, samples: usize, _size: Option<Size>) -> Result<InFlight> {
        let _entered = self.streams.enter()?;
        self.batches.begin(samples, |batch| self.decoders.learn(batch))
    }

    fn run(
        &self,
        worker: (&mut Executor, &mut Worker),
        batch: &InFlight,
        image: Given<'_>,
        sample: &PlannedSample<'_>,
    ) -> Result<Ran> {
        let _entered = self.streams.enter_again()?;
        let work = Preparation::new(&self.options, &self.decoders, worker, batch).run(image, sample)?;
        Ok(Ran { work, masks: Vec::new() })
    }

    fn take_counts(&self, worker: &mut Worker) -> Decoded {
        worker.take_decoded()
    }

    fn settle(&self, worker: (&mut Executor, &mut Worker), batch: &mut InFlight) -> Result<Settled> {
        let _entered = self.streams.enter()?;
        self.decoders.settle(worker, batch)
    }

    fn finish(&self, mut batch: InFlight, end: &End<'_>) -> Result<Finished> {
        let _entered = self.streams.enter()?;
        let submitted = self.outputs.submit(&mut batch, end);
        match submitted {
            Ok(_) => self.batches.give(batch),
            Err(_) => self.give_up(batch),
        }
        submitted
    }

    fn end_epoch(&self) {
        // Without a context nothing can be found out any more.
        let _ = self.streams.enter().and_then(|_entered| self.batches.wait(|batch| self.decoders.collect(batch)));
        self.decoders.store_all();
    }

    fn abandon(&self, batch: InFlight) {
        let _entered = self.streams.enter();
        self.give_up(batch);
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Of an epoch that was broken off.
        self.decoders.store_all();
        // If this fails, the context has failed, and its work with it.
        if self.streams.enter().and_then(|_entered| self.synchronize()).is_ok() {
            self.batches.idle();
            self.decoders.own.idle();
            self.outputs.idle();
        }
    }
}
