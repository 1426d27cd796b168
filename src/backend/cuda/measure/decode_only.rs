//! Decoders without other work, and how much they slow down a training step.
#![allow(unsafe_code)]

use super::alone::Alone;
use super::fixed_work::FixedWork;
use crate::backend::HeldImage;
use crate::backend::cuda::arena::{Arena, StagingWriter};
use crate::backend::cuda::decode::open_nvjpeg;
use crate::backend::cuda::engines::{EngineOptions, Engines, HardwareJob, Tracker};
use crate::backend::cuda::fatbin;
use crate::backend::cuda::jpeg::{JpegImage, JpegKernels, Planes, Staged};
use crate::backend::cuda::lower::packed_bytes;
use crate::backend::cuda::nvjpeg::{Nvjpeg, RING};
use crate::backend::cuda::streams::once;
use crate::cuda::driver::{self, Context, DeviceMemory, Event, Stream};
use crate::decode::Baseline;
use crate::device::{JpegDecoder, StreamPriority};
use crate::error::{Error, Result};
use crate::os::threads;
use crate::raster::{Rect, Size};
use crate::source::{EncodedImages, ReadRequest, Reader, Source as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of images in a batch for the crate's own decoder. Two batches are queued at a time.
const BATCH: usize = 64;
/// Number of images in a batch for the engines, and of batches that are under way.
const ENGINE_BATCH: usize = 128;
const ENGINE_BATCHES: usize = 4;

/// Approximate length of the training step when nothing is decoded.
const STEP: Duration = Duration::from_millis(5);

/// The area of an image that is decoded.
pub type Area = fn(Size) -> Rect;

/// The decoders to measure, their images and their threads.
pub struct Decoders {
    /// The decoder.
    pub path: JpegDecoder,
    /// The area of each image that is decoded. nvJPEG decodes whole images.
    pub area: Area,
    /// The images, which are decoded again and again.
    pub images: EncodedImages,
    /// Number of threads.
    pub threads: usize,
    /// How the engines are used.
    pub engines: EngineOptions,
    /// Whether the encoded images for the engines lie in pinned memory.
    pub pinned: bool,
}

/// The times of a training step alone and together with decoders.
pub struct Beside {
    /// Decoded images per second.
    pub images_per_s: f64,
    /// Milliseconds of a step without decoders.
    pub alone_ms: f64,
    /// Milliseconds of a step while decoders run.
    pub beside_ms: f64,
}

/// Decodes the images again and again, and returns images/s. The hybrid decoder and the crate's own run on `threads`
/// threads. Images that a decoder does not take are left out. The clock runs for `duration`, after all decoders have
/// started.
pub fn decode_only(ordinal: u32, decoders: Decoders, duration: Duration) -> Result<f64> {
    let context = driver::context(ordinal)?;
    let _entered = driver::enter(&context)?;
    let ((), images_per_s) = while_decoding(&context, decoders, duration, || {
        std::thread::sleep(duration);
        Ok(())
    })?;
    Ok(images_per_s)
}

/// Runs training steps for `duration` without decoders, and then with them.
pub fn beside_a_step(ordinal: u32, decoders: Decoders, duration: Duration) -> Result<Beside> {
    let context = driver::context(ordinal)?;
    let _entered = driver::enter(&context)?;
    let mut step = FixedWork::new(&context, STEP.min(duration))?;
    let alone_ms = step.median_ms(duration)?;
    let (beside_ms, images_per_s) = while_decoding(&context, decoders, duration, || step.median_ms(duration))?;
    Ok(Beside { images_per_s, alone_ms, beside_ms })
}

/// Runs the decoders while `measure` runs. Returns its result and the images/s decoded meanwhile.
fn while_decoding<T>(
    context: &Context,
    decoders: Decoders,
    duration: Duration,
    measure: impl FnOnce() -> Result<T>,
) -> Result<(T, f64)> {
    let Decoders { path, area, images, threads, engines, pinned } = decoders;
    let threads = threads.max(1);
    let run = DecodeRun {
        images: images.len(),
        reader: Reader::DataSet(Arc::new(images)),
        area,
        decoded: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        context: Arc::clone(context),
    };
    let nothing = || Error::Device {
        call: "decode".to_owned(),
        message: match path {
            JpegDecoder::Device => "none of the images is for the crate's own decoder".to_owned(),
            _ => format!("no nvJPEG, or none of the images is for the {path:?} decoder"),
        },
    };
    let own = match path {
        JpegDecoder::Device => Some(run.images_for_own(threads)?.ok_or_else(nothing)?),
        _ => None,
    };
    let (mut nvjpeg, mut hardware) = (None, None);
    match path {
        JpegDecoder::Hybrid => nvjpeg = open_nvjpeg(context, path, StreamPriority::default())?.0,
        JpegDecoder::Hardware => {
            let library = nvjpeg::Library::load()?;
            hardware = Some(Engines::open(context, library, engines)?);
        }
        _ => {}
    }
    let by_hybrid = match &nvjpeg {
        Some(nvjpeg) => Some((&**nvjpeg, run.images_for_hybrid(nvjpeg)?.ok_or_else(nothing)?)),
        None => None,
    };
    let by_hardware = match &hardware {
        Some(found) => Some((found, run.jobs_for_engines(found, engines.planes, pinned)?.ok_or_else(nothing)?)),
        None => None,
    };
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        let spawned = (|| {
            for i in 0..threads {
                let name = || format!("warpfeed-decode-{i}");
                if let Some((nvjpeg, images)) = &by_hybrid {
                    workers.push(threads::spawn_scoped(scope, name(), || run.hybrid(nvjpeg, images))?);
                }
                if let Some(images) = &own {
                    workers.push(threads::spawn_scoped(scope, name(), || run.own(images))?);
                }
            }
            if let Some((engines, jobs)) = &by_hardware {
                let work = || run.engines(engines, jobs);
                workers.push(threads::spawn_scoped(scope, "warpfeed-hardware".to_owned(), work)?);
            }
            Ok(())
        })();
        let measured = spawned.and_then(|()| {
            // Decoders allocate memory for their first images.
            std::thread::sleep(duration / 4);
            let (begin, before) = (Instant::now(), run.decoded.load(Ordering::Relaxed));
            let measured = measure()?;
            let decoded = run.decoded.load(Ordering::Relaxed) - before;
            Ok((measured, decoded as f64 / begin.elapsed().as_secs_f64()))
        });
        run.stop.store(true, Ordering::Relaxed);
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|panic| Error::panic(&*panic))?)?;
        measured
    })
}

struct DecodeRun {
    images: u64,
    reader: Reader,
    area: Area,
    /// Number of images decoded so far.
    decoded: AtomicU64,
    stop: AtomicBool,
    context: Context,
}

/// Images that the hybrid decoder takes, and the largest size of their pixels in bytes.
struct HybridImages {
    indices: Vec<u64>,
    largest: usize,
    next: AtomicU64,
}

/// Images that the crate's own decoder takes, and its kernels.
struct OwnImages {
    indices: Vec<u64>,
    kernels: JpegKernels,
    /// Device memory for each of a worker's two batches.
    batch_bytes: usize,
    next: AtomicU64,
}

/// Batches for the engines, with the memory of their encoded bytes and of their pixels.
struct EngineJobs {
    batches: Vec<Vec<HardwareJob>>,
    /// What converts the planes of each batch, if planes are decoded.
    converters: Vec<Converter>,
    arena: Arena,
    _memory: Vec<DeviceMemory>,
}

/// Descriptors of a batch's planes.
struct Converter {
    staged: Staged,
    done: Event,
}

impl DecodeRun {
    fn read(&self, index: u64, buffer: Vec<u8>) -> Result<(HeldImage, Size)> {
        let encoded = HeldImage::read(&self.reader, index, &ReadRequest::IMAGE, buffer)?.0;
        let size = encoded.input().header()?.size;
        Ok((encoded, size))
    }

    fn is_running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn images_for_hybrid(&self, nvjpeg: &Nvjpeg) -> Result<Option<HybridImages>> {
        let mut decoder = nvjpeg.worker(&self.context)?;
        let (mut indices, mut largest) = (Vec::new(), 0);
        for index in 0..self.images {
            let (encoded, size) = self.read(index, Vec::new())?;
            let memory = DeviceMemory::new(&self.context, packed_bytes(size))?;
            if decoder.decode(encoded, memory.address(), (size, Rect::full(size))).is_ok() {
                indices.push(index);
                largest = largest.max(packed_bytes(size));
            }
            decoder.synchronize()?;
        }
        Ok((!indices.is_empty()).then(|| HybridImages { indices, largest, next: AtomicU64::new(0) }))
    }

    /// Runs one worker of the hybrid decoder.
    fn hybrid(&self, nvjpeg: &Nvjpeg, images: &HybridImages) -> Result<()> {
        let _entered = driver::enter(&self.context)?;
        let mut decoder = nvjpeg.worker(&self.context)?;
        // The decoder waits for the image that was decoded [`RING`] calls ago.
        let memory: Vec<_> =
            (0..RING).map(|_| DeviceMemory::new(&self.context, images.largest)).collect::<Result<_>>()?;
        let mut buffer = Vec::new();
        for target in memory.iter().cycle().take_while(|_| self.is_running()) {
            let turn = images.next.fetch_add(1, Ordering::Relaxed) as usize;
            let index = images.indices[turn % images.indices.len()];
            let (encoded, size) = self.read(index, std::mem::take(&mut buffer))?;
            let decoded = decoder.decode(encoded, target.address(), (size, Rect::full(size)));
            let lost = || Error::Device {
                call: "decode by nvJPEG".to_owned(),
                message: format!("image {index} is refused, which was decoded before"),
            };
            buffer = decoded.map_err(|_| lost())?.buffer.unwrap_or_default();
            self.decoded.fetch_add(1, Ordering::Relaxed);
        }
        decoder.synchronize()
    }

    /// The images that the kernels decode without flags.
    fn images_for_own(&self, threads: usize) -> Result<Option<OwnImages>> {
        let module = fatbin::module(&self.context)?;
        let (free, _) = driver::check("cuMemGetInfo", self.context.mem_get_info())?;
        let kernels = JpegKernels::new(&module)?;
        let batch_bytes = free / 4 / threads;
        let mut own = OwnImages { indices: Vec::new(), kernels, batch_bytes, next: AtomicU64::new(0) };
        let stream = Stream::new(&self.context, StreamPriority::default())?;
        let mut batch = Alone::new(&self.context, own.batch_bytes)?;
        for index in 0..self.images {
            let (encoded, size) = self.read(index, Vec::new())?;
            // SAFETY: the stream is waited for before the next call, and before `batch` is dropped.
            let decoded = unsafe { batch.decode(&own.kernels, &[(encoded.bytes(), (self.area)(size))], &stream) };
            let finished = decoded.and_then(|()| batch.take_good(&stream));
            stream.synchronize()?;
            if finished? == 1 {
                own.indices.push(index);
            }
        }
        Ok((!own.indices.is_empty()).then_some(own))
    }

    /// Runs one worker of the crate's own decoder, with one batch queued after the one being decoded.
    fn own(&self, images: &OwnImages) -> Result<()> {
        let _entered = driver::enter(&self.context)?;
        let stream = Stream::new(&self.context, StreamPriority::default())?;
        let mut batches: Vec<Alone> =
            (0..2).map(|_| Alone::new(&self.context, images.batch_bytes)).collect::<Result<_>>()?;
        let outcome = (0..2).cycle().take_while(|_| self.is_running()).try_for_each(|at| {
            self.decoded.fetch_add(batches[at].finish()? as u64, Ordering::Relaxed);
            let first = images.next.fetch_add(BATCH as u64, Ordering::Relaxed) as usize;
            let turns = first..first + BATCH;
            let read = turns.map(|turn| self.read(images.indices[turn % images.indices.len()], Vec::new()));
            let read = read.collect::<Result<Vec<_>>>()?;
            let parts: Vec<_> = read.iter().map(|(encoded, size)| (encoded.bytes(), (self.area)(*size))).collect();
            // SAFETY: the stream is waited for below, before the batches are dropped.
            unsafe { batches[at].decode(&images.kernels, &parts, &stream) }
        });
        stream.synchronize()?;
        outcome
    }

    fn jobs_for_engines(&self, engines: &Engines, as_planes: bool, pinned: bool) -> Result<Option<EngineJobs>> {
        engines.wait_until_open()?;
        let Some(mut parser) = engines.parser() else { return Ok(None) };
        let arena = Arena::new(&self.context, usize::MAX, pinned);
        let (mut memory, mut jobs, mut described) = (Vec::new(), Vec::new(), Vec::new());
        // Few images, as on a simulated device, make small batches.
        for round in 0..8 * self.images.min((ENGINE_BATCH * ENGINE_BATCHES / 8) as u64) {
            let (encoded, size) = self.read(round % self.images.max(1), Vec::new())?;
            let (bytes, header) = (encoded.bytes(), encoded.input().header()?);
            if !parser.takes(bytes, &header) {
                continue;
            }
            let pixels = DeviceMemory::new(&self.context, packed_bytes(size))?;
            let (mut destination, mut planes) = (pixels.address(), [(0, 0); 3]);
            if as_planes && let Ok(image) = Baseline::new(bytes, &header) {
                let lowered = Planes::new(&image, Rect::full(size));
                (destination, planes) = (arena.scratch(lowered.len_bytes)?, lowered.places);
                described.push(lowered.at(destination, pixels.address()));
            }
            let (encoded, luma) = (arena.hold(bytes)?, header.sampling[0]);
            jobs.push(HardwareJob { encoded, destination, planes, size, luma });
            memory.push(pixels);
        }
        if jobs.is_empty() {
            return Ok(None);
        }
        // The same number of batches however many images there are, so that the same number is under way.
        let len = jobs.len().div_ceil(ENGINE_BATCHES).max(1);
        let batches: Vec<Vec<HardwareJob>> = jobs.chunks(len).map(<[HardwareJob]>::to_vec).collect();
        let mut staging = StagingWriter::default();
        let converter = |images: &[JpegImage]| {
            let staged = Staged::new(images.to_vec(), &arena, &mut staging)?;
            Ok(Converter { staged, done: Event::new(&self.context)? })
        };
        let converters = described.chunks(len).map(converter).collect::<Result<_>>()?;
        Ok(Some(EngineJobs { batches, converters, arena, _memory: memory }))
    }

    /// Keeps the engines busy with all batches but one.
    fn engines(&self, engines: &Engines, jobs: &EngineJobs) -> Result<()> {
        let _entered = driver::enter(&self.context)?;
        let trackers: Vec<Arc<Tracker>> = jobs.batches.iter().map(|_| engines.tracker()).collect::<Result<_>>()?;
        let stream = Stream::new(&self.context, StreamPriority::default())?;
        let kernels = JpegKernels::new(&fatbin::module(&self.context)?)?;
        // SAFETY: nothing is written to the arena any more, and it outlives the stream's work, which is waited for below.
        unsafe { jobs.arena.upload(&stream, once)? };
        let turns = (0..jobs.batches.len()).cycle().take_while(|_| self.is_running());
        let outcome = turns.into_iter().try_for_each(|at| {
            let tracker = &trackers[at];
            let (places, refused) = tracker.wait()?;
            match jobs.converters.get(at).filter(|_| !places.is_empty()) {
                Some(Converter { staged, done }) => {
                    stream.wait(tracker.ended())?;
                    // SAFETY: the same stream has filled the arena, and waits for the planes. The images own their
                    // memory, and are decoded again once this is done.
                    unsafe { staged.convert(&kernels, &stream)? };
                    done.record(&stream)?;
                    done.synchronize()?;
                }
                None => tracker.ended().synchronize()?,
            }
            self.decoded.fetch_add((places.len() - refused.len()) as u64, Ordering::Relaxed);
            jobs.batches[at].iter().cloned().enumerate().for_each(|(place, job)| engines.queue(tracker, place, job));
            Ok(())
        });
        trackers.iter().for_each(|tracker| tracker.give_up());
        engines.synchronize()?;
        stream.synchronize()?;
        outcome
    }
}
