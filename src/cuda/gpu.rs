//! The GPU back end: the device with what a pipeline needs of it, and the way of a batch through it.
//!
//! A sample is read, its recipe drawn and lowered to calls, and its tables and (if the CPU decodes) its pixels are written
//! to pinned memory by the worker thread that has taken it. The worker that finishes a batch sends all of that in one
//! copy, queues the launches behind it and behind what nvJPEG decodes, and hands the batch over with an event: nobody
//! waits for the device but for memory that is to be used again.
#![allow(unsafe_code)]

use super::arena::{Allocation, StagingWriter};
use super::driver::{self, Context, DeviceMemory, Stream};
use super::fatbin;
use super::flight::{InFlight, Prepared};
use super::kernel::{self, Call, Kernels};
use super::lower::{self, DeviceImage, Form, Lowering, packed_bytes};
use super::nvjpeg::{Encoded, HardwareJob, HybridDecoder, Nvjpeg, Queued};
use super::output::{Buffer, CudaBuffer, Pool};
use super::route::{Route, Router};
use crate::backend::cpu::executor::{Executor, Job};
use crate::backend::cpu::output::{Output, Tables};
use crate::decode::{Decoder, Format, Header, pnm_rows};
use crate::device::DecodePath;
use crate::error::{Error, Result};
use crate::image::{Image, Pixel, Rect, Size};
use crate::ops::Op;
use crate::ops::filter::{PassOrder, Taps};
use crate::plan::{Epilogue, Strategy, plan, split_epilogue};
use crate::tensor::{DType, Layout};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Images above this many pixels give their memory back after use: 16 Mpx, 64 MiB.
const KEEP_PX: usize = 16 << 20;
/// Buffers for encoded bytes above this are given back after use.
const KEEP_ENCODED_BYTES: usize = 4 << 20;

/// What a pipeline asks of the device.
pub(crate) struct Settings {
    pub(crate) size: Size,
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    pub(crate) strategy: Strategy,
    pub(crate) order: PassOrder,
    pub(crate) decode: DecodePath,
    pub(crate) accept_truncated: bool,
    /// Limit of every image on the way, in pixels.
    pub(crate) max_px: u64,
    pub(crate) batch_size: usize,
    /// Batches being filled or under way on the device at a time.
    pub(crate) flights: usize,
    /// Batches that are kept for reuse when their consumer drops them.
    pub(crate) outputs: usize,
    pub(crate) threads: usize,
    /// Most device memory of all flights together; a share of what is free if not given.
    pub(crate) memory_bytes: Option<u64>,
    /// Whether what is copied to the device is staged in pinned memory.
    pub(crate) pinned: bool,
    pub(crate) again: Ablation,
}

/// What a batch's way over the device does twice, so that it shows in the time of the whole what it costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Ablation {
    #[default]
    Nothing,
    /// The copy to the device.
    Transfer,
    /// The kernels. Those that work in place make other pixels then.
    Kernels,
}

/// A device, set up for one pipeline.
pub(crate) struct Gpu {
    settings: Settings,
    name: String,
    /// Most device memory of one flight.
    flight_bytes: usize,
    idle: Mutex<Idle>,
    workers: Mutex<Vec<Worker>>,
    /// For encoded bytes.
    buffers: Mutex<Vec<Vec<u8>>>,
    numbers: AtomicU64,
    outputs: Arc<Pool>,
    router: Router,
    nvjpeg: Option<Nvjpeg>,
    /// What each byte becomes, for the kernels that write the batch.
    table: DeviceMemory,
    kernels: Kernels,
    compute: Stream,
    copy: Stream,
    context: Context,
}

/// Flights that no batch is being filled in: the one submitted first is the first to be done.
#[derive(Default)]
struct Idle {
    flights: VecDeque<InFlight>,
    /// How many there are, idle or not.
    made: usize,
}

/// What a sample's way to the device took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) decode: Duration,
    pub(crate) augment: Duration,
}

/// How many images each decoder has decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) cpu: u64,
    pub(crate) hybrid: u64,
    pub(crate) hardware: u64,
}

/// One sample's work.
pub(crate) struct Sample<'a> {
    /// Its place among the samples of the flight.
    pub(crate) place: usize,
    pub(crate) header: &'a Header,
    /// The recipe, orientation included.
    pub(crate) ops: &'a [Op],
    /// Whether the hardware decoder may decode it, which shows only with the whole batch whether they can.
    pub(crate) hardware: bool,
}

/// A worker thread's decoders and memory, kept over samples.
pub(crate) struct Worker {
    executor: Executor,
    decoder: Decoder,
    image: Image,
    taps: Taps,
    chunk: StagingWriter,
    /// The flight that the chunk is of.
    chunk_of: u64,
    hybrid: Option<HybridDecoder>,
    decoded: Decoded,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a recipe has an operation that only the CPU can run.
fn needs_cpu(ops: &[Op]) -> bool {
    ops.iter().any(Op::needs_cpu)
}

impl Gpu {
    /// Sets a device up.
    ///
    /// # Errors
    /// [`Error::Device`] with what is missing and the remedy.
    pub(crate) fn open(ordinal: u32, settings: Settings, tables: &Tables) -> Result<Self> {
        let image = fatbin::fatbin()?;
        let context = driver::context(ordinal)?;
        let name = driver::check("cuDeviceGetName", context.name())?;
        let kernels = Kernels::load(&context, &image, settings.dtype, settings.layout)?;
        let (compute, copy) = (Stream::new(&context)?, Stream::new(&context)?);
        let bytes = tables.bytes();
        let table = DeviceMemory::new(&context, bytes.len())?;
        // SAFETY: both are as long as the bytes; the stream is waited for before anything else happens to either.
        unsafe { driver::upload(table.address(), bytes.as_ptr(), bytes.len(), &copy)? };
        copy.synchronize()?;
        let nvjpeg = Nvjpeg::open(&context, settings.decode)?;
        let hardware = nvjpeg.as_ref().is_some_and(|nvjpeg| nvjpeg.hardware.is_some());
        let router = Router::new(settings.decode, nvjpeg.is_some(), hardware, settings.threads);
        let image_bytes = packed_bytes(settings.size) * settings.dtype.size_bytes();
        let outputs = Pool::new(&context, ordinal, image_bytes, settings.batch_size, settings.outputs)?;
        let (free, _) = driver::check("cuMemGetInfo", context.mem_get_info())?;
        // Half of what is free is left to the trainer, and to nvJPEG's own memory.
        let memory_bytes = settings.memory_bytes.map_or(free / 2, |bytes| bytes as usize);
        Ok(Self {
            flight_bytes: memory_bytes / settings.flights.max(1),
            settings,
            name: format!("cuda:{ordinal} ({name})"),
            idle: Mutex::default(),
            workers: Mutex::default(),
            buffers: Mutex::default(),
            numbers: AtomicU64::new(0),
            outputs: Arc::new(outputs),
            router,
            nvjpeg,
            table,
            kernels,
            compute,
            copy,
            context,
        })
    }

    /// The device in words.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Most device memory of the batches under way together; the batches that are delivered come on top.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.flight_bytes * self.settings.flights) as u64
    }

    fn times(&self, what: Ablation) -> usize {
        if self.settings.again == what { 2 } else { 1 }
    }

    fn form(&self) -> Form {
        let Settings { size, dtype, layout, .. } = self.settings;
        Form { size, dtype, layout }
    }

    /// Takes up the work of a thread, on the thread itself.
    pub(crate) fn worker(&self) -> Result<Worker> {
        driver::bind(&self.context)?;
        if let Some(worker) = lock(&self.workers).pop() {
            return Ok(worker);
        }
        let hybrid = self.nvjpeg.as_ref().map(|nvjpeg| nvjpeg.hybrid_decoder(&self.context)).transpose()?;
        Ok(Worker {
            executor: Executor::new()?,
            decoder: Decoder::new()?,
            image: Image::default(),
            taps: Taps::default(),
            chunk: StagingWriter::default(),
            chunk_of: 0,
            hybrid,
            decoded: Decoded::default(),
        })
    }

    /// Keeps a worker for the next epoch.
    pub(crate) fn give_worker(&self, worker: Worker) {
        let mut workers = lock(&self.workers);
        if workers.len() < self.settings.threads.max(1) {
            workers.push(worker);
        }
    }

    /// A buffer for encoded bytes.
    pub(crate) fn buffer(&self) -> Vec<u8> {
        lock(&self.buffers).pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next sample.
    pub(crate) fn give_buffer(&self, buffer: Vec<u8>) {
        let mut buffers = lock(&self.buffers);
        if buffer.capacity() > 0
            && buffer.capacity() <= KEEP_ENCODED_BYTES
            && buffers.len() < self.settings.batch_size * self.settings.flights
        {
            buffers.push(buffer);
        }
    }

    /// Begins a batch of so many samples.
    ///
    /// # Synchronization
    /// Waits until the device is done with the memory, which it is unless it is behind by all batches in flight.
    pub(crate) fn begin(&self, samples: usize) -> Result<InFlight> {
        driver::bind(&self.context)?;
        let idle = {
            let mut idle = lock(&self.idle);
            let more = idle.made < self.settings.flights;
            let ready = idle.flights.front().is_some_and(|flight| !more || flight.done.is_done());
            let flight = if ready { idle.flights.pop_front() } else { None };
            idle.made += usize::from(flight.is_none());
            flight
        };
        let begun = match idle {
            Some(flight) => Ok(flight),
            None => InFlight::new(&self.context, self.flight_bytes, self.settings.pinned),
        }
        .and_then(|flight| self.recycle(flight, samples));
        if begun.is_err() {
            lock(&self.idle).made -= 1;
        }
        begun
    }

    /// Makes a flight ready for another batch.
    fn recycle(&self, mut flight: InFlight, samples: usize) -> Result<InFlight> {
        flight.done.synchronize()?;
        if !flight.hardware_jobs.is_empty() {
            flight.hardware_ended.synchronize()?;
            if let Some(time_ms) = flight.hardware_ended.since_ms(&flight.hardware_began) {
                self.router.hardware_took(flight.hardware_jobs.len(), time_ms);
            }
            flight.hardware_jobs.drain(..).for_each(|job| self.give_buffer(job.encoded.into_buffer()));
        }
        // SAFETY: all of its work has just been waited for; pieces live no longer than the call that writes them, but
        // for workers' chunks, which are of an earlier number and so never written again.
        unsafe { flight.arena.reset()? };
        flight.begin(1 + self.numbers.fetch_add(1, Relaxed), samples);
        Ok(flight)
    }

    /// Gives a batch up: waits for whatever of it is under way.
    pub(crate) fn abandon(&self, mut flight: InFlight) {
        // Where that fails, the context has, and its work with it: the flight is not used again.
        if driver::bind(&self.context).and_then(|()| self.settle(&flight)).is_ok() {
            flight.hardware_jobs.clear();
            flight.begin(0, 0);
            lock(&self.idle).flights.push_back(flight);
        } else {
            lock(&self.idle).made -= 1;
        }
    }

    /// Waits for all that a flight may have queued.
    fn settle(&self, flight: &InFlight) -> Result<()> {
        flight.decoding().iter().try_for_each(|event| event.synchronize())?;
        if let Some(hardware) = self.nvjpeg.as_ref().and_then(|nvjpeg| nvjpeg.hardware.as_ref()) {
            hardware.stream.synchronize()?;
        }
        self.copy.synchronize()?;
        self.compute.synchronize()
    }

    /// Reads, decodes and lowers one sample into its place of the flight.
    pub(crate) fn prepare(
        &self,
        worker: &mut Worker,
        flight: &InFlight,
        encoded: Encoded,
        sample: &Sample<'_>,
    ) -> Result<Times> {
        let Sample { place, header, ops, hardware } = *sample;
        if worker.chunk_of != flight.number {
            (worker.chunk, worker.chunk_of) = (StagingWriter::default(), flight.number);
        }
        let start = Instant::now();
        if needs_cpu(ops) {
            let (prepared, times) = self.on_cpu(worker, flight, &encoded, sample)?;
            self.give_buffer(encoded.into_buffer());
            flight.put(place, prepared);
            return Ok(times);
        }
        let Settings { strategy, order, max_px, .. } = self.settings;
        let plan = plan(ops, header.size, strategy, order, max_px)?;
        let planning = start.elapsed();

        let start = Instant::now();
        let (image, hardware_job) = self.decode(worker, flight, encoded, header, plan.decode, hardware)?;
        let decode = start.elapsed();

        let start = Instant::now();
        let Worker { chunk, taps, .. } = worker;
        let calls = Lowering::new(&flight.arena, chunk, taps, order, image).run(&plan, self.form())?;
        flight.put(place, Prepared { calls, hardware_job });
        Ok(Times { decode, augment: planning + start.elapsed() })
    }

    /// Decodes, or sees to it that the hardware decoder will.
    fn decode(
        &self,
        worker: &mut Worker,
        flight: &InFlight,
        encoded: Encoded,
        header: &Header,
        part: Rect,
        hardware: bool,
    ) -> Result<(DeviceImage, Option<HardwareJob>)> {
        let size = header.size;
        let whole = |address| DeviceImage { address, pitch_bytes: 3 * size.width, whole: size, part: Rect::full(size) };
        let mut encoded = encoded;
        let mut route = self.router.route(header, hardware);
        let len_bytes = encoded.bytes().len();
        if route == Route::Hardware && worker.hybrid.as_mut().is_some_and(|h| h.agrees(&encoded, size).unwrap_or(false))
        {
            let destination = flight.arena.scratch(packed_bytes(size))?;
            return Ok((whole(destination), Some(HardwareJob { encoded, destination, size })));
        }
        if route == Route::Hardware {
            route = Route::Hybrid;
        }
        if let (Route::Hybrid, Some(hybrid)) = (route, &mut worker.hybrid) {
            let destination = flight.arena.scratch(packed_bytes(size))?;
            let start = Instant::now();
            match hybrid.decode(encoded, destination, size) {
                Ok(Queued { event, buffer }) => {
                    self.router.measured(Route::Hybrid, len_bytes, start.elapsed());
                    worker.decoded.hybrid += 1;
                    buffer.into_iter().for_each(|buffer| self.give_buffer(buffer));
                    flight.is_decoding(event);
                    return Ok((whole(destination), None));
                }
                // Whatever nvJPEG has against it, the CPU says whether the image is bad.
                Err(back) => encoded = back,
            }
        }
        let start = Instant::now();
        let piece = self.decode_on_cpu(worker, flight, encoded.bytes(), header, part)?;
        let image = DeviceImage { address: piece.address(), pitch_bytes: 3 * part.width, whole: size, part };
        if header.format == Format::Jpeg {
            self.router.measured(Route::Cpu, len_bytes, start.elapsed());
        }
        self.give_buffer(encoded.into_buffer());
        Ok((image, None))
    }

    fn decode_on_cpu(
        &self,
        worker: &mut Worker,
        flight: &InFlight,
        bytes: &[u8],
        header: &Header,
        part: Rect,
    ) -> Result<Allocation> {
        let room = || flight.arena.piece(packed_bytes(part.size()));
        let mut piece;
        if header.format == Format::Pnm && header.components == 3 {
            let rows = pnm_rows(bytes, header, part)?;
            piece = room()?;
            let places = piece.bytes_mut().chunks_exact_mut(3 * part.width as usize);
            places.zip(rows).for_each(|(to, row)| to.copy_from_slice(row));
        } else {
            worker.decoder.decode(bytes, header, part, self.settings.accept_truncated, &mut worker.image)?;
            piece = room()?;
            pack(worker.image.pixels(), piece.bytes_mut());
            worker.image.shrink(KEEP_PX);
        }
        worker.decoded.cpu += 1;
        Ok(piece)
    }

    /// Runs a recipe on the CPU but for its end: operations of the caller's own have no kernel.
    fn on_cpu(
        &self,
        worker: &mut Worker,
        flight: &InFlight,
        encoded: &Encoded,
        sample: &Sample<'_>,
    ) -> Result<(Prepared, Times)> {
        let form = self.form();
        let (pixel_ops, epilogue) = split_epilogue(sample.ops);
        let epilogue = Epilogue::new(epilogue, form.size)?;
        let mut piece = flight.arena.piece(packed_bytes(form.size))?;
        let job = Job {
            bytes: encoded.bytes(),
            header: sample.header,
            ops: pixel_ops,
            strategy: self.settings.strategy,
            order: self.settings.order,
            accept_truncated: self.settings.accept_truncated,
            max_px: self.settings.max_px,
        };
        let tables = Tables::new(DType::U8, None);
        let mut output = Output::new(piece.bytes_mut(), form.size, &tables, Layout::Nhwc);
        let times = worker.executor.run(&job, &mut output)?;
        worker.decoded.cpu += 1;
        let start = Instant::now();
        let image = DeviceImage {
            address: piece.address(),
            pitch_bytes: 3 * form.size.width,
            whole: form.size,
            part: Rect::full(form.size),
        };
        let Worker { chunk, taps, .. } = worker;
        let calls = Lowering::new(&flight.arena, chunk, taps, self.settings.order, image).finish(&epilogue, form)?;
        let times = Times { decode: times.decode, augment: times.augment + start.elapsed() };
        Ok((Prepared { calls, hardware_job: None }, times))
    }

    /// Has the hardware decoder decode what was left to them; the places of samples that nothing can decode, with their errors.
    ///
    /// # Errors
    /// [`Error::Device`], after which the flight is to be abandoned.
    pub(crate) fn decode_on_hardware(&self, flight: &mut InFlight) -> Result<(Vec<(usize, Error)>, Decoded)> {
        let mut jobs = Vec::new();
        for (place, sample) in flight.samples_mut().iter_mut().enumerate() {
            if let Some(job) = sample.as_mut().and_then(|sample| sample.hardware_job.take()) {
                jobs.push((place, job));
            }
        }
        let hardware = self.nvjpeg.as_ref().and_then(|nvjpeg| nvjpeg.hardware.as_ref());
        let Some(hardware) = hardware.filter(|_| !jobs.is_empty()) else { return Ok(Default::default()) };
        flight.hardware_began.record(&hardware.stream)?;
        let batch = match flight.hardware_mut() {
            Some(batch) => batch,
            none => none.insert(hardware.batch()?),
        };
        let borrowed: Vec<&HardwareJob> = jobs.iter().map(|(_, job)| job).collect();
        // SAFETY: the flight's last batch has been waited for. The jobs stay with the flight until its next use, which
        // waits for the hardware decoder; their destinations are the flight's, idle since it began.
        let queued = unsafe { batch.decode(hardware, &borrowed) };
        flight.hardware_ended.record(&hardware.stream)?;
        if queued.is_ok() {
            let decoded = Decoded { hardware: jobs.len() as u64, ..Decoded::default() };
            flight.hardware_jobs = jobs.into_iter().map(|(_, job)| job).collect();
            return Ok((Vec::new(), decoded));
        }
        // One of them, and nvJPEG does not say which; some may be under way.
        hardware.stream.synchronize()?;
        let mut bad = Vec::new();
        let mut worker = self.worker()?;
        for (place, job) in jobs {
            if let Err(error) = self.instead_of_hardware(&mut worker, flight, &job) {
                bad.push((place, error));
            }
            self.give_buffer(job.encoded.into_buffer());
        }
        let decoded = worker.take_decoded();
        self.give_worker(worker);
        Ok((bad, decoded))
    }

    /// Decodes on the CPU what the hardware decoder has refused, to where they would have.
    fn instead_of_hardware(&self, worker: &mut Worker, flight: &InFlight, job: &HardwareJob) -> Result<()> {
        let header = crate::decode::probe(job.encoded.bytes())?;
        let mut piece = self.decode_on_cpu(worker, flight, job.encoded.bytes(), &header, Rect::full(job.size))?;
        let bytes = piece.bytes_mut();
        // SAFETY: the destination is the flight's and as large as the image, the hardware decoder has been waited for, and the
        // piece is not written again before the flight's next use.
        unsafe { driver::upload(job.destination, bytes.as_ptr(), bytes.len(), &self.copy) }
    }

    /// Queues all that is left to be done for a batch: the samples at `places`, in this order, and after them `padding`
    /// repetitions of the last.
    ///
    /// # Synchronization
    /// Returns at once; what it gives is complete when the device gets there.
    ///
    /// # Errors
    /// [`Error::Device`]; the flight is given up.
    pub(crate) fn submit(
        &self,
        mut flight: InFlight,
        places: &[usize],
        labels: &[u32],
        padding: usize,
    ) -> Result<CudaBuffer> {
        let buffer = match self.outputs.take(&self.compute) {
            Ok(buffer) => buffer,
            Err(error) => {
                self.abandon(flight);
                return Err(error);
            }
        };
        match self.queue(&mut flight, &buffer, places, labels, padding) {
            Ok(len_bytes) => {
                lock(&self.idle).flights.push_back(flight);
                Ok(CudaBuffer::new(buffer, Arc::clone(&self.outputs), len_bytes))
            }
            Err(error) => {
                // Before the buffer goes: some of what was queued may write it.
                self.abandon(flight);
                drop(buffer);
                Err(error)
            }
        }
    }

    /// The bytes of the batch's images.
    fn queue(
        &self,
        flight: &mut InFlight,
        buffer: &Buffer,
        places: &[usize],
        labels: &[u32],
        padding: usize,
    ) -> Result<usize> {
        driver::bind(&self.context)?;
        let image_bytes = packed_bytes(self.settings.size) * self.settings.dtype.size_bytes();
        let mut calls: Vec<Vec<Call>> = Vec::with_capacity(places.len());
        for (i, place) in places.iter().enumerate() {
            let sample = flight.samples_mut().get_mut(*place).and_then(Option::take);
            let Some(mut sample) = sample else {
                let message = "a sample of the batch is missing".to_owned();
                return Err(Error::Device { call: "submit a batch".to_owned(), message });
            };
            lower::place(&mut sample.calls, buffer.address() + (i * image_bytes) as u64);
            calls.push(sample.calls);
        }
        let mut chunk = StagingWriter::default();
        let mut groups = Vec::new();
        kernel::group(&calls, |mut group, calls| {
            let bytes = calls.iter().map(|call| call.descriptor.bytes().len()).sum();
            group.samples = chunk.put_bytes(&flight.arena, bytes, |to| {
                let mut at = 0;
                for call in calls {
                    let bytes = call.descriptor.bytes();
                    to[at..at + bytes.len()].copy_from_slice(bytes);
                    at += bytes.len();
                }
            })?;
            groups.push(group);
            Ok(())
        })?;
        let staged_labels = chunk.put(&flight.arena, labels)?;

        for _ in 0..self.times(Ablation::Transfer) {
            // SAFETY: the batch is filled; its flight is neither reset nor dropped before `done` has passed (`begin`), or
            // the streams have been waited for (`abandon`).
            unsafe { flight.arena.upload(&self.copy)? };
        }
        flight.uploaded.record(&self.copy)?;
        self.compute.wait(&flight.uploaded)?;
        flight.decoding().iter().try_for_each(|event| self.compute.wait(event))?;
        if !flight.hardware_jobs.is_empty() {
            self.compute.wait(&flight.hardware_ended)?;
        }
        buffer.users.iter().try_for_each(|user| self.compute.wait(user))?;
        for group in std::iter::repeat_n(&groups, self.times(Ablation::Kernels)).flatten() {
            // SAFETY: descriptors and all that they point to lie in the flight, uploaded or decoded before, or in the
            // batch's buffer, whose earlier users the stream has been made to wait for.
            unsafe { self.kernels.launch(group, self.table.address(), &self.compute)? };
        }
        let last = buffer.address() + ((places.len() - 1) * image_bytes) as u64;
        for i in 0..padding {
            let to = last + ((i + 1) * image_bytes) as u64;
            // SAFETY: both lie in the batch's buffer, an image apart.
            unsafe { driver::copy(to, last, image_bytes, &self.compute)? };
        }
        let to = buffer.address() + self.outputs.labels_offset() as u64;
        // SAFETY: the buffer has room for the labels of a full batch.
        unsafe { driver::copy(to, staged_labels, size_of_val(labels), &self.compute)? };
        flight.done.record(&self.compute)?;
        buffer.ready.record(&self.compute)?;
        Ok(labels.len() * image_bytes)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Where that fails, the context has, and its work with it.
        let _ = driver::bind(&self.context)
            .and_then(|()| lock(&self.workers).iter().try_for_each(Worker::synchronize))
            .and_then(|()| match self.nvjpeg.as_ref().and_then(|nvjpeg| nvjpeg.hardware.as_ref()) {
                Some(hardware) => hardware.stream.synchronize(),
                None => Ok(()),
            })
            .and_then(|()| self.copy.synchronize())
            .and_then(|()| self.compute.synchronize());
    }
}

impl Worker {
    /// What runs recipes on the CPU.
    pub(crate) fn executor(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// What the decoders have decoded since this was asked last.
    pub(crate) fn take_decoded(&mut self) -> Decoded {
        std::mem::take(&mut self.decoded)
    }

    fn synchronize(&self) -> Result<()> {
        self.hybrid.as_ref().map_or(Ok(()), HybridDecoder::synchronize)
    }
}

/// Pixels without their fourth byte.
fn pack(pixels: &[Pixel], out: &mut [u8]) {
    debug_assert_eq!(out.len(), 3 * pixels.len());
    // Four pixels at a time: twelve bytes are three whole words.
    let (fours, rest) = pixels.as_chunks::<4>();
    let (words, _) = out.as_chunks_mut::<12>();
    for (four, out) in fours.iter().zip(words) {
        let [a, b, c, d] = four.map(u32::from_le_bytes);
        let packed = [(a & 0xFF_FFFF) | b << 24, (b >> 8 & 0xFFFF) | c << 16, (c >> 16 & 0xFF) | d << 8];
        for (out, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(packed) {
            *out = word.to_le_bytes();
        }
    }
    for (pixel, out) in rest.iter().zip(out[12 * fours.len()..].as_chunks_mut::<3>().0) {
        *out = [pixel[0], pixel[1], pixel[2]];
    }
}
