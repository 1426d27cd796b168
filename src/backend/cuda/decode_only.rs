//! How many images nvJPEG decodes when it has nothing else to do: the bound of pipelines that leave decoding to it.
#![allow(unsafe_code)]

use super::arena::Arena;
use super::driver::{self, Context, DeviceMemory, Scoped};
use super::lower::packed_bytes;
use super::nvjpeg::{HardwareBatch, HardwareDecoder, HardwareJob, Nvjpeg, RING};
use crate::backend::Encoded;
use crate::decode::probe;
use crate::device::{DecodePath, StreamPriority};
use crate::error::{Error, Result};
use crate::image::Size;
use crate::source::{EncodedImages, Reader, Source as _};
use crate::threads;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Images in a batch for the hardware decoder; two batches are under way.
const BATCH: usize = 64;

/// Decodes the images again and again for `duration`, whole, and says how many a second: on `threads` threads by the
/// hybrid decoder, or on the device's hardware decoder. What this decoder does not take is left out.
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
        message: format!("no nvJPEG, or none of the images is for the {path:?} decoder"),
    };
    let nvjpeg = nvjpeg.ok_or_else(nothing)?;
    let run = Run { context, images: images.len(), reader: Reader::DataSet(Arc::new(images)), duration };
    let images_per_s = match &nvjpeg.hardware {
        Some(hardware) if path == DecodePath::Hardware => run.hardware(hardware)?,
        _ => run.hybrid(&nvjpeg, threads)?,
    };
    images_per_s.ok_or_else(nothing)
}

struct Run {
    context: Context,
    images: u64,
    reader: Reader,
    duration: Duration,
}

impl Run {
    fn read(&self, index: u64, buffer: Vec<u8>) -> Result<(Encoded, Size)> {
        let encoded = Encoded::read(&self.reader, index, buffer, &AtomicBool::new(false))?;
        let size = probe(encoded.bytes())?.size;
        Ok((encoded, size))
    }

    fn hybrid(&self, nvjpeg: &Nvjpeg, count: usize) -> Result<Option<f64>> {
        let mut decoder = nvjpeg.worker(&self.context)?;
        let (mut taken, mut largest) = (Vec::new(), 0);
        for index in 0..self.images {
            let (encoded, size) = self.read(index, Vec::new())?;
            let memory = DeviceMemory::new(&self.context, packed_bytes(size))?;
            if decoder.decode(encoded, memory.address(), size).is_ok() {
                taken.push(index);
                largest = largest.max(packed_bytes(size));
            }
            decoder.synchronize()?;
        }
        if taken.is_empty() {
            return Ok(None);
        }
        let next = AtomicU64::new(0);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let work = || -> Result<()> {
                let _entered = driver::enter(&self.context)?;
                let mut decoder = nvjpeg.worker(&self.context)?;
                // The decoder waits for the image of as many calls ago.
                let memory: Vec<_> =
                    (0..RING).map(|_| DeviceMemory::new(&self.context, largest)).collect::<Result<_>>()?;
                let mut buffer = Vec::new();
                for target in memory.iter().cycle() {
                    if begin.elapsed() >= self.duration {
                        break;
                    }
                    let index = next.fetch_add(1, Ordering::Relaxed) as usize % taken.len();
                    let (encoded, size) = self.read(taken[index], std::mem::take(&mut buffer))?;
                    let decoded = decoder.decode(encoded, target.address(), size);
                    let lost = || Error::Device {
                        call: "decode by nvJPEG".to_owned(),
                        message: format!("image {} is refused, which was decoded before", taken[index]),
                    };
                    buffer = decoded.map_err(|_| lost())?.buffer.unwrap_or_default();
                }
                decoder.synchronize()
            };
            let spawn = |i| threads::spawn_scoped(scope, format!("warpfeed-decode-{i}"), work);
            let workers: Vec<_> = (0..count.max(1)).map(spawn).collect::<Result<_>>()?;
            workers.into_iter().try_for_each(|worker| worker.join().map_err(|panic| Error::panic(&*panic))?)
        })?;
        Ok(Some(next.into_inner() as f64 / begin.elapsed().as_secs_f64()))
    }

    fn hardware(&self, hardware: &HardwareDecoder) -> Result<Option<f64>> {
        let arena = Arena::new(&self.context, 0, true);
        let mut jobs: [Vec<HardwareJob>; 2] = [Vec::new(), Vec::new()];
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
                jobs[at].push(job);
            }
        }
        if jobs.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        let mut batches: Vec<Scoped<HardwareBatch>> =
            (0..2).map(|_| hardware.batch(&self.context)).collect::<Result<_>>()?;
        let mut decoded = 0;
        let begin = Instant::now();
        let outcome = (0..).map(|turn| turn % 2).try_for_each(|at| {
            if begin.elapsed() >= self.duration {
                return Err(None);
            }
            let batch = &mut batches[at];
            batch.ended().synchronize().map_err(Some)?;
            let borrowed: Vec<&HardwareJob> = jobs[at].iter().collect();
            // SAFETY: this state's last batch has just been waited for; jobs and memory outlive the work, which is waited
            // for below.
            unsafe { batch.decode(hardware, &borrowed) }.map_err(Some)?;
            decoded += borrowed.len();
            Ok(())
        });
        hardware.stream.synchronize()?;
        if let Err(Some(error)) = outcome {
            return Err(error);
        }
        Ok(Some(decoded as f64 / begin.elapsed().as_secs_f64()))
    }
}
