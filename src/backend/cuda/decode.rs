//! The decoders of a pipeline: nvJPEG, the device's decoders of whole batches, and the CPU.

use super::arena::CHUNK_BYTES;
use super::buffers::Buffers;
use super::engines::{self, EngineOptions, Engines, HardwareJob};
use super::in_flight::InFlight;
use super::jpeg::{self, DeviceDecoder, Encoded, Job};
use super::lower::{DeviceImage, Spare, descriptors_bytes, packed_bytes, stages_bytes};
use super::masks;
use super::nvjpeg::{Nvjpeg, Queued};
use super::route::{Route, Router};
use super::streams::Streams;
use super::worker::Worker;
use crate::backend::{Executor, Given, HeldImage, PlannedSample, RunOptions, Settled};
use crate::cuda::driver::{Context, Scoped};
use crate::decode::{Format, Header, Input, Reason, has_end};
use crate::device::{JpegDecoder, StreamPriority};
use crate::error::{Error, Result};
use crate::ops::descriptors::MixupSample;
use crate::plan::{Plan, decoded_by};
use crate::raster::Rect;
use std::sync::Arc;
use std::time::Instant;

/// A decoded image, or one that a decoder on the device will decode, for the kernels to read.
pub(super) struct Source {
    pub(super) image: DeviceImage,
    pub(super) by: By,
    /// Device memory that was taken for the image but is not needed.
    pub(super) spare: Option<Spare>,
}

/// The decoder of an image.
pub(super) enum By {
    Cpu,
    Hybrid,
    /// The engines of the hardware decoder, later, with other images.
    Hardware(HardwareJob),
    /// The crate's own kernels, later, with other images of the batch.
    Device(Box<Job>),
}

/// Bytes that a piece of memory takes in addition to its own: for rounding up, and for small tables.
const BESIDE_BYTES: usize = 256;

/// Memory of a batch's share that must remain for its samples without an image on the device, and for its end. It is as
/// much as for a sample with these plans that the CPU decodes: for masks, the decoded part and the results. At the end
/// come each sample's descriptors, label and target; twice as much, because some of these are pieces of memory that
/// hold those of all samples, and the free memory may be in two places.
pub(super) fn needed_bytes(options: &RunOptions, batch: &InFlight, plans: &[Plan<'_>], masks_bytes: usize) -> usize {
    let made_bytes: usize = plans.iter().map(|plan| packed_bytes(plan.decode.size())).sum();
    let beside_bytes = (1 + plans.len()) * BESIDE_BYTES;
    let each_bytes = packed_bytes(decoded_by(plans).size()) + made_bytes + masks_bytes + beside_bytes;
    let described_bytes: usize = plans.iter().map(descriptors_bytes).sum();
    let end_bytes = 2 * (described_bytes + labeled_bytes(options));
    // Pieces for small tables of each worker, of the decoder, and of the end of the batch.
    let tables_bytes = (options.threads + 2) * CHUNK_BYTES;
    let samples_bytes = batch.unprepared().saturating_mul(each_bytes);
    samples_bytes.saturating_add(batch.samples().saturating_mul(end_bytes)).saturating_add(tables_bytes)
}

/// Bytes that the end of a batch stages for each sample, without the descriptors of its calls.
pub(super) fn labeled_bytes(options: &RunOptions) -> usize {
    jpeg::DESCRIBED_BYTES + size_of::<u32>() + size_of::<MixupSample>() + options.target_bytes as usize
}

/// The decoders of one pipeline on a device. They choose a decoder for each image.
pub(super) struct Decoders {
    options: Arc<RunOptions>,
    router: Router,
    nvjpeg: Option<Scoped<Nvjpeg>>,
    engines: Option<Engines>,
    pub(super) own: DeviceDecoder,
    /// Buffers for encoded bytes.
    pub(super) buffers: Buffers,
    streams: Arc<Streams>,
}

impl Decoders {
    /// Opens the decoders that the options' path needs.
    ///
    /// # Errors
    /// [`Error::Device`] if a decoder that the path names is missing.
    pub(super) fn open(options: &Arc<RunOptions>, own: DeviceDecoder, streams: &Arc<Streams>) -> Result<Self> {
        let (nvjpeg, engines) = open_nvjpeg(&streams.context, options.jpeg_decoder, options.stream_priority)?;
        let router = Router::new(options.jpeg_decoder, options.hardware_share, options.threads);
        let buffers = Buffers::new(options.batch_images * options.batches_at_a_time());
        let (options, streams) = (Arc::clone(options), Arc::clone(streams));
        Ok(Self { options, router, nvjpeg, engines, own, buffers, streams })
    }

    /// Waits until all decoders are open.
    ///
    /// # Errors
    /// [`Error::Device`] if the hardware decoder is missing.
    pub(super) fn wait_until_open(&self) -> Result<()> {
        self.engines.as_ref().map_or(Ok(()), Engines::wait_until_open)
    }

    /// Makes a worker for the calling thread.
    pub(super) fn worker(&self) -> Result<Worker> {
        let hybrid = self.nvjpeg.as_ref().map(|nvjpeg| nvjpeg.worker(&self.streams.context)).transpose()?;
        Ok(Worker::new(hybrid, self.engines.as_ref().and_then(Engines::parser)))
    }

    /// Leaves the image of a prepared sample to the engines.
    pub(super) fn put_on_engines(&self, batch: &InFlight, sample: usize, job: HardwareJob) -> Result<()> {
        self.engines.as_ref().map_or(Ok(()), |engines| batch.put_on_engines(engines, sample, job))
    }

    /// Decodes an image, or leaves it to a decoder on the device that decodes the batch together.
    pub(super) fn decode(
        &self,
        (host, worker): (&mut Executor, &mut Worker),
        batch: &InFlight,
        image: Given<'_>,
        sample @ &PlannedSample { header, plans, masks, later, .. }: &PlannedSample<'_>,
    ) -> Result<Source> {
        let (size, part) = (header.size, decoded_by(plans));
        let encoded = match image {
            Given::Held(encoded) => Encoded::Held(encoded),
            Given::OnDevice(image) => Encoded::OnDevice(image),
            Given::InFile(image) => Encoded::InFile(image),
            Given::Pixels(pixels) => {
                let job = self.options.job(Input::Pixels(pixels), header);
                let image = worker.decode_to_staging(host, &batch.arena, &job, part)?;
                return Ok(Source { image, by: By::Cpu, spare: None });
            }
        };
        let masks_bytes = masks.iter().map(masks::most_bytes).sum();
        let (mut encoded, mut spare, mut route) = (encoded, None, Route::Device);
        // Images on the device are those that the crate's own decoder has decoded before.
        if let Encoded::Held(held) = encoded {
            route = self.router.route(header, held.bytes().len(), later);
            if route == Route::Hardware {
                route = self.router.without_hardware(header, later);
                if worker.engines.as_mut().is_some_and(|engines| engines.takes(held.bytes(), header)) {
                    let for_memory = worker.decoded.for_memory;
                    let whole = Rect::full(size);
                    if let Some(image) = self.room(worker, batch, &held, (header, whole), plans, masks_bytes)? {
                        let (destination, luma) = (image.address, header.sampling[0]);
                        let (encoded, planes) = (batch.arena.hold(held.bytes())?, [(0, 0); 3]);
                        let job = HardwareJob { encoded, destination, planes, size, luma };
                        self.buffers.give(held.into_buffer());
                        return Ok(Source { image, by: By::Hardware(job), spare });
                    }
                    match route {
                        // It would need as much memory.
                        Route::Hybrid => route = Route::Cpu,
                        _ => worker.decoded.for_memory = for_memory,
                    }
                }
            }
            encoded = Encoded::Held(held);
        }
        if route == Route::Device {
            let start = Instant::now();
            match self.own.take(worker, batch, encoded, sample, masks_bytes)? {
                Ok(source) => {
                    self.router.handing_over_took(start.elapsed());
                    return Ok(source);
                }
                Err((held, room)) => (encoded, spare) = (Encoded::Held(held), room),
            }
        }
        let mut encoded = encoded.into_host(&self.streams)?;
        if route == Route::Hybrid
            && let Some(region) = worker.nvjpeg.as_ref().map(|nvjpeg| nvjpeg.region(header, part))
            && let Some(image) = self.room(worker, batch, &encoded, (header, region), plans, masks_bytes)?
            && let Some(nvjpeg) = worker.nvjpeg.as_mut()
        {
            let destination = image.address;
            match nvjpeg.decode(encoded, destination, (size, region)) {
                Ok(Queued { event, buffer }) => {
                    worker.decoded.hybrid += 1;
                    buffer.into_iter().for_each(|buffer| self.buffers.give(buffer));
                    batch.is_decoding(event);
                    return Ok(Source { image, by: By::Hybrid, spare });
                }
                // Whatever the reason for nvJPEG's refusal, the CPU decides whether the image is bad.
                Err(back) => (encoded, spare) = (back, Some((destination, packed_bytes(region.size())))),
            }
        }
        let start = Instant::now();
        let job = self.options.job(encoded.input(), header);
        let image = worker.decode_to_staging(host, &batch.arena, &job, part)?;
        if header.format == Format::Jpeg {
            self.router.cpu_took(start.elapsed());
        }
        self.buffers.give(encoded.into_buffer());
        Ok(Source { image, by: By::Cpu, spare })
    }

    /// Counts an image that is not RGB, which the CPU decodes, where a decoder of the device is in use.
    pub(super) fn leave_to_cpu(&self, worker: &mut Worker, header: &Header, later: bool) {
        if header.format != Format::Jpeg && self.router.without_hardware(header, later) == Route::Device {
            worker.decoded.cpu_fallbacks.add(Reason::Format);
        }
    }

    /// Brings an image to the host's memory if it is elsewhere.
    pub(super) fn on_host<'a>(&self, image: Given<'a>) -> Result<Given<'a>> {
        match image {
            Given::OnDevice(image) => Encoded::OnDevice(image).into_host(&self.streams).map(Given::Held),
            Given::InFile(image) => Encoded::InFile(image).into_host(&self.streams).map(Given::Held),
            image => Ok(image),
        }
    }

    /// Decodes the needed part of an image on the CPU after another decoder had taken the whole image. This is for
    /// plans that find no memory while the whole image is on the device; they get the image's memory.
    pub(super) fn decode_again(
        &self,
        (host, worker): (&mut Executor, &mut Worker),
        batch: &InFlight,
        source: Source,
        header: &Header,
        part: Rect,
    ) -> Result<Source> {
        let mut decode = |worker: &mut Worker, bytes: &[u8]| {
            worker.decode_to_staging(host, &batch.arena, &self.options.job(Input::Encoded(bytes), header), part)
        };
        let image = match &source.by {
            By::Cpu => return Ok(source),
            By::Hardware(job) => decode(worker, job.encoded.bytes())?,
            By::Device(job) => {
                worker.decoded.cpu_fallbacks.add(Reason::Memory);
                decode(worker, &job.encoded.host_bytes(&self.streams)?)?
            }
            By::Hybrid => {
                let taken_back = worker.nvjpeg.as_mut().map(|nvjpeg| nvjpeg.take_back()).transpose()?;
                let Some(encoded) = taken_back else { return Ok(source) };
                worker.decoded.hybrid -= 1;
                let image = decode(worker, encoded.bytes())?;
                self.buffers.give(encoded.into_buffer());
                image
            }
        };
        worker.decoded.for_memory += 1;
        let spare = Some((source.image.address, packed_bytes(source.image.part.size())));
        if let By::Device(job) = source.by {
            self.buffers.give(job.encoded.into_buffer());
        }
        Ok(Source { image, by: By::Cpu, spare })
    }

    /// Returns device memory for a region of an image. `None` if another decoder is to decode the image, for example
    /// because the batch's share of memory has no room for the region: the CPU uploads only the needed part.
    fn room(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        encoded: &HeldImage,
        (header, part): (&Header, Rect),
        plans: &[Plan<'_>],
        masks_bytes: usize,
    ) -> Result<Option<DeviceImage>> {
        // nvJPEG may fill in a missing end. The CPU decides whether the image is acceptable.
        if !has_end(encoded.bytes(), header) {
            return Ok(None);
        }
        // This sample's plans need memory for their stages, in addition to the memory of the other samples and of the
        // region.
        let region_bytes = packed_bytes(part.size());
        let own_bytes = if plans.len() > 1 { 0 } else { region_bytes };
        let stages_bytes: usize = plans.iter().map(|plan| stages_bytes(plan, own_bytes)).sum();
        let left_bytes = needed_bytes(&self.options, batch, plans, masks_bytes).saturating_add(stages_bytes);
        match batch.arena.scratch_sparing(region_bytes, left_bytes) {
            Ok(address) => Ok(Some(DeviceImage { address, pitch_bytes: 3 * part.width, whole: header.size, part })),
            Err(Error::OutOfDeviceMemory { .. }) => {
                worker.decoded.for_memory += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Decodes on the device the images that were left for the whole batch.
    ///
    /// # Errors
    /// Any error ends the epoch; the batch must then be abandoned.
    pub(super) fn settle(&self, (host, worker): (&mut Executor, &mut Worker), batch: &mut InFlight) -> Result<Settled> {
        if let Some(engines) = batch.engines_mut() {
            engines.hurry();
        }
        let mut settled = self.own.settle((host, worker), batch, &self.buffers)?;
        settled += engines::settle((host, worker), batch, &self.streams, self.options.how())?;
        Ok(settled)
    }

    /// Takes the places that a complete batch has learned.
    pub(super) fn collect(&self, batch: &mut InFlight) {
        self.own.collect(batch);
    }

    /// Stores all that was found out.
    pub(super) fn store_all(&self) {
        while self.own.store_one() {}
    }

    /// Records the device's decoding time for a completed batch, and the places that it has learned.
    pub(super) fn learn(&self, batch: &mut InFlight) -> Result<()> {
        self.collect(batch);
        if batch.on_hardware > 0
            && let Some(engines) = batch.engines_mut()
        {
            engines.ended().synchronize()?;
        }
        let images = batch.on_device;
        if let Some(time_ms) = batch.decoding_mut().as_ref().filter(|_| images > 0).and_then(jpeg::Decoding::took_ms) {
            self.router.device_took(images, time_ms);
        }
        Ok(())
    }

    /// Waits for all work of the engines.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.engines.as_ref().map_or(Ok(()), Engines::synchronize)
    }
}

/// Opens what a path needs of nvJPEG: the hybrid decoder, and in the background the engines of the hardware decoder.
///
/// # Errors
/// [`Error::Device`] that names the missing part.
pub(super) fn open_nvjpeg(
    context: &Context,
    path: JpegDecoder,
    priority: StreamPriority,
) -> Result<(Option<Scoped<Nvjpeg>>, Option<Engines>)> {
    let (hybrid, hardware) = match path {
        JpegDecoder::Auto | JpegDecoder::Device | JpegDecoder::Cpu => return Ok((None, None)),
        JpegDecoder::Hybrid => (true, false),
        JpegDecoder::Hardware => (true, true),
        JpegDecoder::HardwareDevice => (false, true),
    };
    let library = nvjpeg::Library::load()?;
    let engines = || Engines::open(context, library.clone(), EngineOptions::default());
    let engines = hardware.then(engines).transpose()?;
    let nvjpeg = hybrid.then(|| Nvjpeg::open(context, &library, priority)).transpose()?;
    Ok((nvjpeg, engines))
}
