//! Decoders without other work, and how much they slow down a training step.
#![allow(unsafe_code)]

use super::alone::Alone;
use super::fixed_work::FixedWork;
use crate::backend::HeldImage;
use crate::backend::cuda::arena::Arena;
use crate::backend::cuda::fatbin;
use crate::backend::cuda::jpeg::JpegKernels;
use crate::backend::cuda::lower::packed_bytes;
use crate::backend::cuda::nvjpeg::{HardwareBatch, HardwareDecoder, HardwareJob, Nvjpeg, RING};
use crate::cuda::driver::{self, Context, DeviceMemory, Scoped, Stream};
use crate::device::{JpegDecoder, StreamPriority};
use crate::error::{Error, Result};
use crate::os::threads;
use crate::raster::{Rect, Size};
use crate::source::{EncodedImages, ReadRequest, Reader, Source as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of images in a batch for the hardware decoder or the crate's own. Two batches are queued at a time.
const BATCH: usize = 64;

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
    let Decoders { path, area, images, threads } = decoders;
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
    let nvjpeg = match own {
        Some(_) => None,
        None => Some(Nvjpeg::open(context, path, StreamPriority::default())?.ok_or_else(nothing)?),
    };
    let (mut by_hybrid, mut by_hardware) = (None, None);
    if let Some(nvjpeg) = &nvjpeg {
        match &nvjpeg.hardware {
            Some(hardware) => by_hardware = Some((hardware, run.jobs_for_hardware(hardware)?.ok_or_else(nothing)?)),
            None => by_hybrid = Some((nvjpeg, run.images_for_hybrid(nvjpeg)?.ok_or_else(nothing)?)),
        }
    }
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
            if let Some((hardware, jobs)) = &by_hardware {
                let work = || run.hardware(hardware, jobs);
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

/// Two batches for the hardware decoder, with the memory of their encoded bytes and of their pixels.
struct HardwareJobs {
    batches: [Vec<HardwareJob>; 2],
    _encoded: Arena,
    _memory: Vec<DeviceMemory>,
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
            if decoder.decode(encoded, memory.address(), size).is_ok() {
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
            let decoded = decoder.decode(encoded, target.address(), size);
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

    fn jobs_for_hardware(&self, hardware: &HardwareDecoder) -> Result<Option<HardwareJobs>> {
        let arena = Arena::new(&self.context, 0, true);
        let mut batches: [Vec<HardwareJob>; 2] = [Vec::new(), Vec::new()];
        let mut memory = Vec::new();
        let mut probe = hardware.batch(&self.context)?;
        for round in 0..2 * BATCH as u64 {
            let at = usize::from(round >= BATCH as u64);
            let (encoded, size) = self.read(round % self.images.max(1), Vec::new())?;
            let target = DeviceMemory::new(&self.context, packed_bytes(size))?;
            let job = HardwareJob { encoded: arena.hold(encoded.bytes())?, destination: target.address(), size };
            // SAFETY: one image at a time, and each is waited for.
            let taken = unsafe { probe.decode(hardware, &[&job]) };
            hardware.stream.synchronize()?;
            memory.push(target);
            if taken.is_ok() {
                batches[at].push(job);
            }
        }
        let some = batches.iter().all(|batch| !batch.is_empty());
        Ok(some.then_some(HardwareJobs { batches, _encoded: arena, _memory: memory }))
    }

    /// Keeps the hardware decoder busy, with one batch queued after the one being decoded.
    fn hardware(&self, hardware: &HardwareDecoder, jobs: &HardwareJobs) -> Result<()> {
        let _entered = driver::enter(&self.context)?;
        let mut states: Vec<(Scoped<HardwareBatch>, usize)> =
            (0..2).map(|_| Ok((hardware.batch(&self.context)?, 0))).collect::<Result<_>>()?;
        let outcome = (0..2).cycle().take_while(|_| self.is_running()).try_for_each(|at| {
            let (batch, queued) = &mut states[at];
            batch.ended().synchronize()?;
            self.decoded.fetch_add(std::mem::take(queued) as u64, Ordering::Relaxed);
            let borrowed: Vec<&HardwareJob> = jobs.batches[at].iter().collect();
            // SAFETY: this state's last batch has just been waited for. Jobs and memory outlive the work, which is
            // waited for below.
            unsafe { batch.decode(hardware, &borrowed)? };
            *queued = borrowed.len();
            Ok(())
        });
        hardware.stream.synchronize()?;
        outcome
    }
}
