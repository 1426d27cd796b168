//! How many images nvJPEG decodes when it has nothing else to do: the bound of pipelines that leave decoding to it.
#![allow(unsafe_code)]

use super::arena::Arena;
use super::lower::packed_bytes;
use super::nvjpeg::{HardwareBatch, HardwareDecoder, HardwareJob, Nvjpeg, RING};
use crate::backend::Encoded;
use crate::cuda::driver::{self, Context, DeviceMemory, Scoped};
use crate::decode::probe;
use crate::device::{DecodePath, StreamPriority};
use crate::error::{Error, Result};
use crate::raster::Size;
use crate::source::{EncodedImages, Reader, Source as _};
use crate::threads;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Images in a batch for the hardware decoder; two batches are under way.
const BATCH: usize = 64;

/// Decodes the images again and again, whole, and says how many a second: on `threads` threads by the hybrid decoder, on the
/// device's hardware decoder, or, for [`DecodePath::Auto`], by both at the same time. What a decoder does not take is
/// left out. The clock runs for `duration`, once all are at work.
pub(crate) fn decode_only(
    ordinal: u32,
    path: DecodePath,
    images: EncodedImages,
    threads: usize,
    duration: Duration,
) -> Result<f64> {
    let context = driver::context(ordinal)?;
    let _entered = driver::enter(&context)?;
    let nvjpeg = Nvjpeg::open(&context, path, StreamPriority::default())?;
    let nothing = || Error::Device {
        call: "decode".to_owned(),
        message: match path {
            DecodePath::Auto => "no nvJPEG, no hardware decoder, or none of the images is for both".to_owned(),
            _ => format!("no nvJPEG, or none of the images is for the {path:?} decoder"),
        },
    };
    let nvjpeg = nvjpeg.ok_or_else(nothing)?;
    let run = Run {
        images: images.len(),
        reader: Reader::DataSet(Arc::new(images)),
        decoded: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        context,
    };
    let by_hybrid = match path {
        DecodePath::Hardware => None,
        _ => Some(run.images_for_hybrid(&nvjpeg)?.ok_or_else(nothing)?),
    };
    let by_hardware = match (path, &nvjpeg.hardware) {
        (DecodePath::Hybrid, _) => None,
        (_, Some(hardware)) => Some((hardware, run.jobs_for_hardware(hardware)?.ok_or_else(nothing)?)),
        (_, None) => return Err(nothing()),
    };
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        let spawned = (|| {
            for i in 0..by_hybrid.iter().map(|_| threads.max(1)).sum() {
                let work = || by_hybrid.as_ref().map_or(Ok(()), |images| run.hybrid(&nvjpeg, images));
                workers.push(threads::spawn_scoped(scope, format!("warpfeed-decode-{i}"), work)?);
            }
            if let Some((hardware, jobs)) = &by_hardware {
                let work = || run.hardware(hardware, jobs);
                workers.push(threads::spawn_scoped(scope, "warpfeed-hardware".to_owned(), work)?);
            }
            Ok(())
        })();
        let images_per_s = run.rate(if spawned.is_ok() { duration } else { Duration::ZERO });
        run.stop.store(true, Ordering::Relaxed);
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|panic| Error::panic(&*panic))?)?;
        spawned.map(|()| images_per_s)
    })
}

struct Run {
    images: u64,
    reader: Reader,
    /// Images decoded so far.
    decoded: AtomicU64,
    stop: AtomicBool,
    context: Context,
}

/// Images that the hybrid decoder takes, and the bytes of the largest.
struct HybridImages {
    indices: Vec<u64>,
    largest: usize,
    next: AtomicU64,
}

/// Two batches for the hardware decoder, the memory of their bytes, and that which they are decoded to.
struct HardwareJobs {
    batches: [Vec<HardwareJob>; 2],
    _encoded: Arena,
    _memory: Vec<DeviceMemory>,
}

impl Run {
    fn read(&self, index: u64, buffer: Vec<u8>) -> Result<(Encoded, Size)> {
        let encoded = Encoded::read(&self.reader, index, buffer, &AtomicBool::new(false))?;
        let size = probe(encoded.bytes())?.size;
        Ok((encoded, size))
    }

    /// Images a second while the decoders are at work.
    fn rate(&self, duration: Duration) -> f64 {
        // Decoders take their memory with their first images.
        std::thread::sleep(duration / 4);
        let (begin, before) = (Instant::now(), self.decoded.load(Ordering::Relaxed));
        std::thread::sleep(duration);
        let decoded = self.decoded.load(Ordering::Relaxed) - before;
        decoded as f64 / begin.elapsed().as_secs_f64()
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

    /// One worker of the hybrid decoder.
    fn hybrid(&self, nvjpeg: &Nvjpeg, images: &HybridImages) -> Result<()> {
        let _entered = driver::enter(&self.context)?;
        let mut decoder = nvjpeg.worker(&self.context)?;
        // The decoder waits for the image of as many calls ago.
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
            // SAFETY: one at a time, each waited for.
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

    /// Keeps the hardware decoder at work, with a batch queued behind the one that it decodes.
    fn hardware(&self, hardware: &HardwareDecoder, jobs: &HardwareJobs) -> Result<()> {
        let _entered = driver::enter(&self.context)?;
        let mut states: Vec<(Scoped<HardwareBatch>, usize)> =
            (0..2).map(|_| Ok((hardware.batch(&self.context)?, 0))).collect::<Result<_>>()?;
        let outcome = (0..2).cycle().take_while(|_| self.is_running()).try_for_each(|at| {
            let (batch, queued) = &mut states[at];
            batch.ended().synchronize()?;
            self.decoded.fetch_add(std::mem::take(queued) as u64, Ordering::Relaxed);
            let borrowed: Vec<&HardwareJob> = jobs.batches[at].iter().collect();
            // SAFETY: this state's last batch has just been waited for; jobs and memory outlive the work, which is waited
            // for below.
            unsafe { batch.decode(hardware, &borrowed)? };
            *queued = borrowed.len();
            Ok(())
        });
        hardware.stream.synchronize()?;
        outcome
    }
}
