//! Decoding: by nvJPEG on the worker's stream, by the hardware decoder with the whole batch, or by the CPU.
#![allow(unsafe_code)]

use super::arena::Allocation;
use super::gpu::Gpu;
use super::in_flight::InFlight;
use super::jpeg::Job;
use super::lower::{DeviceImage, Spare, packed_bytes, stages_bytes};
use super::nvjpeg::{HardwareBatch, HardwareDecoder, HardwareJob, Queued, WorkerDecoder};
use super::route::Route;
use super::worker::Worker;
use crate::backend::{Decoded, Encoded, Sample, Settled};
use crate::cuda::driver::{self, Stream};
use crate::decode::{Format, Header, Reason, has_end, pnm_rows, probe};
use crate::error::{Error, Result};
use crate::memory;
use crate::plan::{Plan, decoded_by};
use crate::raster::{Pixel, Rect};
use std::time::Instant;

/// Images above this many pixels give their memory back after use: 16 Mpx, 64 MiB.
const KEEP_PX: usize = 16 << 20;

/// An image on its way to the kernels.
pub(super) struct Source {
    pub(super) image: DeviceImage,
    pub(super) by: By,
    /// Device memory that was taken for it and is not needed.
    pub(super) spare: Option<Spare>,
}

/// Who decodes an image.
pub(super) enum By {
    Cpu,
    Hybrid,
    /// Later, with the others of its batch.
    Hardware(HardwareJob),
    /// The kernels, with the others of its batch.
    Device(Box<Job>),
}

impl Gpu {
    /// Decodes, or sees to it that the hardware decoder will.
    pub(super) fn decode(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        mut encoded: Encoded,
        &Sample { header, plans, later, .. }: &Sample<'_>,
    ) -> Result<Source> {
        let (size, len_bytes) = (header.size, encoded.bytes().len());
        let mut spare = None;
        let route = self.router.route(header, later);
        if route == Route::Device {
            match self.to_device(worker, batch, encoded, header, plans)? {
                Ok(source) => return Ok(source),
                Err(back) => (encoded, spare) = back,
            }
        } else if let Some((image, nvjpeg)) = self.whole_image(worker, batch, &encoded, header, route, plans)? {
            let destination = image.address;
            if route == Route::Hardware && nvjpeg.is_for_hardware(encoded.bytes(), size) {
                let job = HardwareJob { encoded: batch.arena.hold(encoded.bytes())?, destination, size };
                self.keep_buffer(encoded.into_buffer());
                return Ok(Source { image, by: By::Hardware(job), spare });
            }
            let start = Instant::now();
            match nvjpeg.decode(encoded, destination, size) {
                Ok(Queued { event, buffer }) => {
                    self.router.measured(Route::Hybrid, len_bytes, start.elapsed());
                    worker.decoded.hybrid += 1;
                    buffer.into_iter().for_each(|buffer| self.keep_buffer(buffer));
                    batch.is_decoding(event);
                    return Ok(Source { image, by: By::Hybrid, spare });
                }
                // Whatever nvJPEG has against it, the CPU says whether the image is bad.
                Err(back) => (encoded, spare) = (back, Some((destination, packed_bytes(size)))),
            }
        }
        let start = Instant::now();
        let image = self.decode_to_staging(worker, batch, encoded.bytes(), header, decoded_by(plans))?;
        if header.format == Format::Jpeg {
            self.router.measured(Route::Cpu, len_bytes, start.elapsed());
        }
        self.keep_buffer(encoded.into_buffer());
        Ok(Source { image, by: By::Cpu, spare })
    }

    /// Has the CPU decode the part that is needed of an image that nvJPEG has taken: its recipe found no more memory
    /// beside the whole image, whose memory it then has.
    pub(super) fn decode_again(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        source: Source,
        header: &Header,
        part: Rect,
    ) -> Result<Source> {
        let image = match &source.by {
            By::Cpu => return Ok(source),
            By::Hardware(job) => self.decode_to_staging(worker, batch, job.encoded.bytes(), header, part)?,
            By::Device(job) => {
                worker.decoded.left.add(Reason::Memory);
                self.decode_to_staging(worker, batch, job.encoded.bytes(), header, part)?
            }
            By::Hybrid => {
                let taken_back = worker.nvjpeg.as_mut().map(|nvjpeg| nvjpeg.take_back()).transpose()?;
                let Some(encoded) = taken_back else { return Ok(source) };
                worker.decoded.hybrid -= 1;
                let image = self.decode_to_staging(worker, batch, encoded.bytes(), header, part)?;
                self.keep_buffer(encoded.into_buffer());
                image
            }
        };
        worker.decoded.for_memory += 1;
        let spare = Some((source.image.address, packed_bytes(source.image.part.size())));
        if let By::Device(job) = source.by {
            self.keep_buffer(job.encoded.into_buffer());
        }
        Ok(Source { image, by: By::Cpu, spare })
    }

    /// Device memory for the whole of an image that nvJPEG is to decode, and the worker's decoder; `None` if the CPU is to
    /// decode it. That is also where the batch's share of memory has no room for the whole
    /// image: only the part that is needed takes room then.
    fn whole_image<'a>(
        &self,
        worker: &'a mut Worker,
        batch: &InFlight,
        encoded: &Encoded,
        header: &Header,
        route: Route,
        plans: &[Plan<'_>],
    ) -> Result<Option<(DeviceImage, &'a mut WorkerDecoder)>> {
        let size = header.size;
        let Worker { nvjpeg, decoded, .. } = worker;
        let Some(nvjpeg) = nvjpeg.as_mut().filter(|_| route != Route::Cpu) else { return Ok(None) };
        // nvJPEG may fill in what is missing at the end. Whether that is good enough, the CPU decides.
        if !has_end(encoded.bytes(), header.scan_offset_bytes) {
            return Ok(None);
        }
        // What is left to each of the other samples: as much as this one needs if the CPU decodes it, once for the part
        // and once for what is made of it. And to this one's recipes: also what their stages take beside the whole image.
        let made_bytes: usize = plans.iter().map(|plan| packed_bytes(plan.decode.size())).sum();
        let each_bytes = packed_bytes(decoded_by(plans).size()) + made_bytes;
        let own_bytes = if plans.len() > 1 { 0 } else { packed_bytes(size) };
        let stages_bytes: usize = plans.iter().map(|plan| stages_bytes(plan, own_bytes)).sum();
        let left_bytes = batch.unprepared().saturating_mul(each_bytes) + stages_bytes;
        match batch.arena.scratch_sparing(packed_bytes(size), left_bytes) {
            Ok(address) => {
                let image = DeviceImage { address, pitch_bytes: 3 * size.width, whole: size, part: Rect::full(size) };
                Ok(Some((image, nvjpeg)))
            }
            Err(Error::OutOfDeviceMemory { .. }) => {
                decoded.for_memory += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Decodes `part` on the CPU to the batch's staging memory.
    fn decode_to_staging(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        bytes: &[u8],
        header: &Header,
        part: Rect,
    ) -> Result<DeviceImage> {
        let pixels = self.decode_on_cpu(worker, bytes, header, part, |len| batch.arena.piece(len))?;
        Ok(DeviceImage { address: pixels.address(), pitch_bytes: 3 * part.width, whole: header.size, part })
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
            *decoded += decoder.decode_as(bytes, header, part, self.options.how(), image)?.into();
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
        let state = match batch.hardware_mut() {
            Some(state) => state,
            none => none.insert(hardware.batch(&self.context)?),
        };
        let borrowed: Vec<&HardwareJob> = jobs.iter().map(|(_, job)| job).collect();
        // SAFETY: what the state was last used for has been waited for. The jobs' bytes and destinations are the batch's,
        // whose memory is used again only after the hardware decoder has been waited for; destinations are idle since the
        // batch began.
        if unsafe { state.decode(hardware, &borrowed) }.is_ok() {
            batch.on_hardware = jobs.len();
            return Ok(Settled {
                bad: Vec::new(),
                decoded: Decoded { hardware: jobs.len() as u64, ..Decoded::default() },
            });
        }
        let mut refused = Vec::new();
        narrow_down(hardware, state, &jobs, &mut refused)?;
        worker.decoded.hardware += (jobs.len() - refused.len()) as u64;
        let mut bad = Vec::new();
        for (place, job) in refused {
            // SAFETY: the destination is the batch's and as large as the image, and the hardware decoder has been waited
            // for.
            let decoded = unsafe {
                self.decode_instead(worker, job.encoded.bytes(), Rect::full(job.size), job.destination, &self.copy)
            };
            if let Err(error) = decoded {
                bad.push((*place, error));
            }
        }
        Ok(Settled { bad, decoded: worker.take_decoded() })
    }

    /// Decodes on the CPU what another decoder has refused, to where that would have: the pixels of `part`.
    ///
    /// # Safety
    /// `destination` has room for them, and nobody but work that is queued on `stream` uses it before this returns.
    pub(super) unsafe fn decode_instead(
        &self,
        worker: &mut Worker,
        bytes: &[u8],
        part: Rect,
        destination: u64,
        stream: &Stream,
    ) -> Result<()> {
        let header = probe(bytes)?;
        // Not of the batch's memory, of which the image has its share already.
        let room = |len| memory::zeros::<u8>(len, "an image", memory::FEWER_IMAGES);
        let pixels = self.decode_on_cpu(worker, bytes, &header, part, room)?;
        // SAFETY: the contract; the pixels live until the copy has been waited for.
        unsafe { driver::upload(destination, pixels.as_ptr(), pixels.len(), stream)? };
        stream.synchronize()
    }
}

/// Finds out which of the jobs of a batch the hardware decoder refuses, as nvJPEG does not say: it decodes them again by
/// halves.
///
/// # Synchronization
/// The others are decoded when it returns.
fn narrow_down<'a>(
    hardware: &HardwareDecoder,
    state: &mut HardwareBatch,
    jobs: &'a [(usize, HardwareJob)],
    refused: &mut Vec<&'a (usize, HardwareJob)>,
) -> Result<()> {
    // Some of them may be under way.
    hardware.stream.synchronize()?;
    if let [job] = jobs {
        refused.push(job);
        return Ok(());
    }
    let (front, back) = jobs.split_at(jobs.len() / 2);
    for half in [front, back] {
        let borrowed: Vec<&HardwareJob> = half.iter().map(|(_, job)| job).collect();
        // SAFETY: as in `decode_on_hardware`; what was queued before has been waited for.
        if unsafe { state.decode(hardware, &borrowed) }.is_err() {
            narrow_down(hardware, state, half, refused)?;
        }
        hardware.stream.synchronize()?;
    }
    Ok(())
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
