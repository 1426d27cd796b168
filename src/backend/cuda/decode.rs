//! Decoding: by nvJPEG on the worker's stream, by the hardware decoder with the whole batch, or by the CPU.
#![allow(unsafe_code)]

use super::arena::Allocation;
use super::driver;
use super::gpu::Gpu;
use super::in_flight::InFlight;
use super::lower::{DeviceImage, packed_bytes};
use super::nvjpeg::{HardwareJob, HybridDecoder, Queued};
use super::route::Route;
use super::worker::Worker;
use crate::backend::{Decoded, Encoded, Sample, Settled};
use crate::decode::{Format, Header, pnm_rows, probe};
use crate::error::{Error, Result};
use crate::memory;
use crate::raster::{Pixel, Rect, Size};
use std::time::Instant;

/// Images above this many pixels give their memory back after use: 16 Mpx, 64 MiB.
const KEEP_PX: usize = 16 << 20;

impl Gpu {
    /// Decodes, or sees to it that the hardware decoder will.
    pub(super) fn decode(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        mut encoded: Encoded,
        &Sample { header, later, .. }: &Sample<'_>,
        part: Rect,
    ) -> Result<(DeviceImage, Option<HardwareJob>)> {
        let (size, len_bytes) = (header.size, encoded.bytes().len());
        let route = self.router.route(header, later);
        if let Some((destination, hybrid)) = self.whole_image(worker, batch, route, size, part)? {
            let pitch_bytes = 3 * size.width;
            let image = DeviceImage { address: destination, pitch_bytes, whole: size, part: Rect::full(size) };
            if route == Route::Hardware && hybrid.agrees(&encoded, size).unwrap_or(false) {
                return Ok((image, Some(HardwareJob { encoded, destination, size })));
            }
            let start = Instant::now();
            match hybrid.decode(encoded, destination, size) {
                Ok(Queued { event, buffer }) => {
                    self.router.measured(Route::Hybrid, len_bytes, start.elapsed());
                    worker.decoded.hybrid += 1;
                    buffer.into_iter().for_each(|buffer| self.keep_buffer(buffer));
                    batch.is_decoding(event);
                    return Ok((image, None));
                }
                // Whatever nvJPEG has against it, the CPU says whether the image is bad.
                Err(back) => encoded = back,
            }
        }
        let start = Instant::now();
        let pixels = self.decode_on_cpu(worker, encoded.bytes(), header, part, |len| batch.arena.piece(len))?;
        let image = DeviceImage { address: pixels.address(), pitch_bytes: 3 * part.width, whole: size, part };
        if header.format == Format::Jpeg {
            self.router.measured(Route::Cpu, len_bytes, start.elapsed());
        }
        self.keep_buffer(encoded.into_buffer());
        Ok((image, None))
    }

    /// Device memory for the whole of an image that nvJPEG is to decode, and the worker's decoder; `None` if the CPU is
    /// to. The CPU is also where the batch's share of memory has no room for the whole image: only the part that is
    /// needed takes room then.
    fn whole_image<'a>(
        &self,
        worker: &'a mut Worker,
        batch: &InFlight,
        route: Route,
        size: Size,
        part: Rect,
    ) -> Result<Option<(u64, &'a mut HybridDecoder)>> {
        let Worker { hybrid, decoded, .. } = worker;
        let Some(hybrid) = hybrid.as_mut().filter(|_| route != Route::Cpu) else { return Ok(None) };
        // What is left to each of the other samples, and to this one's recipe: as much as this one needs if the CPU
        // decodes it, once for the part and once for what is made of it.
        let others_bytes = batch.unprepared().saturating_mul(2 * packed_bytes(part.size()));
        match batch.arena.scratch_sparing(packed_bytes(size), others_bytes) {
            Ok(destination) => Ok(Some((destination, hybrid))),
            Err(Error::OutOfDeviceMemory { .. }) => {
                decoded.for_memory += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Decodes `part` on the CPU to memory that `room` gives: RGB bytes, row by row.
    fn decode_on_cpu<M: Pixels>(
        &self,
        worker: &mut Worker,
        bytes: &[u8],
        header: &Header,
        part: Rect,
        room: impl FnOnce(usize) -> Result<M>,
    ) -> Result<M> {
        let len_bytes = packed_bytes(part.size());
        let mut pixels;
        if header.format == Format::Pnm && header.components == 3 {
            let rows = pnm_rows(bytes, header, part)?;
            pixels = room(len_bytes)?;
            let places = pixels.bytes_mut().chunks_exact_mut(3 * part.width as usize);
            places.zip(rows).for_each(|(to, row)| to.copy_from_slice(row));
        } else {
            let Worker { decoder, image, decoded, .. } = worker;
            let skipped = decoder.decode_skipping(bytes, header, part, self.options.accept_truncated, image)?;
            decoded.restarts += u64::from(skipped);
            pixels = room(len_bytes)?;
            pack(worker.image.pixels(), pixels.bytes_mut());
            worker.image.shrink(KEEP_PX);
        }
        worker.decoded.cpu += 1;
        Ok(pixels)
    }

    /// Has the hardware decoder decode what was left to it.
    ///
    /// # Errors
    /// [`Error::Device`] or [`Error::Cuda`], after which the batch is to be abandoned.
    pub(super) fn decode_on_hardware(&self, worker: &mut Worker, batch: &mut InFlight) -> Result<Settled> {
        let mut jobs = Vec::new();
        for (place, sample) in batch.samples_mut().iter_mut().enumerate() {
            if let Some(job) = sample.as_mut().and_then(|sample| sample.hardware_job.take()) {
                jobs.push((place, job));
            }
        }
        let Some(hardware) = self.hardware().filter(|_| !jobs.is_empty()) else { return Ok(Settled::default()) };
        batch.hardware_began.record(&hardware.stream)?;
        let state = match batch.hardware_mut() {
            Some(state) => state,
            none => none.insert(hardware.batch()?),
        };
        let borrowed: Vec<&HardwareJob> = jobs.iter().map(|(_, job)| job).collect();
        // SAFETY: what the state was last used for has been waited for. The jobs stay with the batch until its memory is
        // used again, which waits for the hardware decoder; their destinations are the batch's, idle since it began.
        let queued = unsafe { state.decode(hardware, &borrowed) };
        batch.hardware_ended.record(&hardware.stream)?;
        if queued.is_ok() {
            let decoded = Decoded { hardware: jobs.len() as u64, ..Decoded::default() };
            batch.hardware_jobs = jobs.into_iter().map(|(_, job)| job).collect();
            return Ok(Settled { bad: Vec::new(), decoded });
        }
        // One of them, and nvJPEG does not say which; some may be under way.
        hardware.stream.synchronize()?;
        let mut bad = Vec::new();
        for (place, job) in jobs {
            if let Err(error) = self.instead_of_hardware(worker, &job) {
                bad.push((place, error));
            }
            self.keep_buffer(job.encoded.into_buffer());
        }
        Ok(Settled { bad, decoded: worker.take_decoded() })
    }

    /// Decodes on the CPU what the hardware decoder has refused, to where it would have.
    fn instead_of_hardware(&self, worker: &mut Worker, job: &HardwareJob) -> Result<()> {
        let header = probe(job.encoded.bytes())?;
        // Not of the batch's memory, of which the image has its share already.
        let room = |len| memory::zeros::<u8>(len, "an image", memory::FEWER_IMAGES);
        let pixels = self.decode_on_cpu(worker, job.encoded.bytes(), &header, Rect::full(job.size), room)?;
        // SAFETY: the destination is the batch's and as large as the image, the hardware decoder has been waited for, and
        // the pixels live until the copy has been waited for.
        unsafe { driver::upload(job.destination, pixels.as_ptr(), pixels.len(), &self.copy)? };
        self.copy.synchronize()
    }
}

/// Memory that pixels are decoded to.
trait Pixels {
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl Pixels for Allocation {
    fn bytes_mut(&mut self) -> &mut [u8] {
        Self::bytes_mut(self)
    }
}

impl Pixels for Vec<u8> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
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
