//! The GPU back end: the device with what a pipeline needs of it.
//!
//! A sample is read, its recipe drawn and lowered to calls, and its tables and (if the CPU decodes) its pixels are written
//! to pinned memory by the worker thread that has taken it. The worker that finishes a batch sends all of that in one
//! copy, queues the launches behind it and behind what nvJPEG decodes, and hands the batch over with an event. The host
//! waits for the device only before it uses memory again.
#![allow(unsafe_code)]

use super::fatbin;
use super::in_flight::{Idle, InFlight};
use super::kernel::Kernels;
use super::lower::Form;
use super::nvjpeg::{HardwareDecoder, Nvjpeg};
use super::route::Router;
use super::worker::Worker;
use crate::backend::cpu::output::Tables;
use crate::backend::cpu::run_to_rgb;
use crate::backend::{Backend, Decoded, Encoded, End, Finished, RunOptions, Sample, Settled, ViewForm, Work};
use crate::cuda::driver::{self, Context, DeviceMemory, Entered, Scoped, Stream};
use crate::cuda::{Pool, with_labels};
use crate::decode::Header;
use crate::error::Result;
use crate::plan::Plan;
use crate::raster::Size;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// A device, set up for one pipeline.
pub(crate) struct Gpu {
    pub(super) options: Arc<RunOptions>,
    name: String,
    /// Most device memory of one batch in flight.
    pub(super) in_flight_bytes: usize,
    pub(super) idle: Mutex<Idle>,
    pub(super) workers: Mutex<Vec<Worker>>,
    /// For encoded bytes.
    pub(super) buffers: Mutex<Vec<Vec<u8>>>,
    /// The number of the batch that was begun last.
    pub(super) numbers: AtomicU64,
    /// Of each view; one where each image has a size of its own.
    pub(super) outputs: Vec<Arc<Pool>>,
    /// For targets that are numbers.
    pub(super) targets: Arc<Pool>,
    pub(super) router: Router,
    pub(super) nvjpeg: Option<Scoped<Nvjpeg>>,
    /// What each byte becomes, for the kernels that write the batch.
    pub(super) table: DeviceMemory,
    pub(super) kernels: Kernels,
    pub(super) compute: Stream,
    pub(super) copy: Stream,
    pub(super) context: Context,
}

impl Gpu {
    /// Sets a device up, and tries whether a batch has room in its memory.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) with what is missing and the remedy;
    /// [`Error::OutOfDeviceMemory`](crate::Error::OutOfDeviceMemory) if there is no room.
    pub(crate) fn open(ordinal: u32, options: &Arc<RunOptions>, tables: &Tables) -> Result<Self> {
        let image = fatbin::fatbin()?;
        let context = driver::context(ordinal)?;
        let _entered = driver::enter(&context)?;
        let name = driver::check("cuDeviceGetName", context.name())?;
        let kernels = Kernels::load(&context, &image, options.dtype, options.has_planes())?;
        let priority = options.stream_priority;
        let (compute, copy) = (Stream::new(&context, priority)?, Stream::new(&context, priority)?);
        let bytes = tables.bytes();
        let table = DeviceMemory::new(&context, bytes.len())?;
        // SAFETY: both are as long as the bytes; the stream is waited for before anything else happens to either.
        unsafe { driver::upload(table.address(), bytes.as_ptr(), bytes.len(), &copy)? };
        copy.synchronize()?;
        let nvjpeg = Nvjpeg::open(&context, options.decode, priority)?;
        let hardware = nvjpeg.as_ref().is_some_and(|nvjpeg| nvjpeg.hardware.is_some());
        let router = Router::new(options.decode, nvjpeg.is_some(), hardware, options.threads);
        let in_flight = options.batches_at_a_time();
        let pool = |_| Pool::new(&context, ordinal, options.kept_tensors()).map(Arc::new);
        let outputs: Vec<_> = (0..options.views.len().max(1)).map(pool).collect::<Result<_>>()?;
        for (pool, view) in outputs.iter().zip(&options.views) {
            pool.give(pool.take(&compute, options.room_bytes(view))?);
        }
        let targets = Pool::new(&context, ordinal, in_flight)?;
        let (free, _) = driver::check("cuMemGetInfo", context.mem_get_info())?;
        // Half of what is free is left to the trainer, and to nvJPEG's own memory.
        let memory_bytes = options.device_memory_bytes.map_or(free / 2, |bytes| bytes as usize);
        Ok(Self {
            options: Arc::clone(options),
            name: format!("cuda:{ordinal} ({name})"),
            in_flight_bytes: memory_bytes / in_flight,
            idle: Mutex::default(),
            workers: Mutex::default(),
            buffers: Mutex::default(),
            numbers: AtomicU64::new(0),
            outputs,
            targets: Arc::new(targets),
            router,
            nvjpeg,
            table,
            kernels,
            compute,
            copy,
            context,
        })
    }

    /// What its batches are made of: the form of an image of a size.
    pub(super) fn form(&self, size: Size) -> Form {
        let RunOptions { dtype, channels, .. } = *self.options;
        Form { size, dtype, planes: self.options.has_planes(), channels: channels as u32 }
    }

    fn enter(&self) -> Result<Entered> {
        driver::enter(&self.context)
    }

    /// The device's hardware decoder, if it has one and is to use it.
    pub(super) fn hardware(&self) -> Option<&HardwareDecoder> {
        self.nvjpeg.as_ref().and_then(|nvjpeg| nvjpeg.hardware.as_ref())
    }
}

impl RunOptions {
    /// Bytes of a buffer for a view of the largest batch.
    pub(super) fn room_bytes(&self, view: &ViewForm) -> usize {
        with_labels(self.batch_images * view.times * self.image_bytes(view.size), self.batch_images)
    }
}

impl Backend for Gpu {
    type Worker = Worker;
    type Batch = InFlight;

    fn name(&self) -> &str {
        &self.name
    }

    fn device_bytes(&self) -> u64 {
        (self.in_flight_bytes * self.options.batches_at_a_time()) as u64
    }

    fn worker(&self) -> Result<Worker> {
        let _entered = self.enter()?;
        self.take_worker()
    }

    fn give_worker(&self, worker: Worker) {
        self.keep_worker(worker);
    }

    fn buffer(&self, _worker: &mut Worker) -> Vec<u8> {
        self.take_buffer()
    }

    fn give_buffer(&self, _worker: &mut Worker, buffer: Vec<u8>) {
        self.keep_buffer(buffer);
    }

    fn begin(&self, samples: usize) -> Result<InFlight> {
        let _entered = self.enter()?;
        self.begin_batch(samples)
    }

    fn run(&self, worker: &mut Worker, batch: &InFlight, encoded: Encoded, sample: &Sample<'_>) -> Result<Work> {
        let _entered = self.enter()?;
        self.prepare(worker, batch, encoded, sample)
    }

    fn take_counts(&self, worker: &mut Worker) -> Decoded {
        worker.take_decoded()
    }

    fn run_to_host(
        &self,
        worker: &mut Worker,
        bytes: &[u8],
        header: &Header,
        plan: &Plan<'_>,
        out: &mut [u8],
    ) -> Result<Work> {
        run_to_rgb(&mut worker.executor, &self.options.job(bytes, header), std::slice::from_ref(plan), [out])
    }

    fn settle(&self, worker: &mut Worker, batch: &mut InFlight) -> Result<Settled> {
        let _entered = self.enter()?;
        let mut settled = self.decode_on_device(worker, batch)?;
        settled += self.decode_on_hardware(worker, batch)?;
        Ok(settled)
    }

    fn finish(&self, batch: InFlight, end: &End<'_>) -> Result<Finished> {
        let _entered = self.enter()?;
        self.submit(batch, end)
    }

    fn abandon(&self, batch: InFlight) {
        let _entered = self.enter();
        self.abandon_batch(batch);
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Where that fails, the context has, and its work with it.
        let _ = self.enter().and_then(|_entered| self.synchronize());
    }
}
