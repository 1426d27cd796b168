//! The crate's own decoder, for the back end.
#![allow(unsafe_code)]

use super::batch::Decoding;
use super::device_cache::{CachedImage, DeviceCache, Room};
use super::kernels::{JpegKernels, Staged};
use super::learning::{Learning, UnstoredPlaces};
use super::lower::Lowered;
use super::params::JpegImage;
use crate::backend::cpu_fallbacks::reason_of_status;
use crate::backend::cuda::arena::StagingWriter;
use crate::backend::cuda::buffers::Buffers;
use crate::backend::cuda::decode::{By, Source, needed_bytes};
use crate::backend::cuda::in_flight::InFlight;
use crate::backend::cuda::lower::{DeviceImage, Spare, packed_bytes, stages_bytes};
use crate::backend::cuda::streams::Streams;
use crate::backend::cuda::worker::Worker;
use crate::backend::{Executor, HeldImage, PlannedSample, RunOptions, Settled};
use crate::decode::{Baseline, DeviceBytes, DevicePoints, Header, ImageKey, Reason};
use crate::error::{Error, Result};
use crate::ops::descriptors::DevicePointer;
use crate::plan::decoded_by;
use crate::raster::Rect;
use crate::trace::{Activity, Span};
use std::borrow::Cow;
use std::sync::Arc;

/// An image whose data are in the batch's staging memory.
pub(in crate::backend::cuda) struct Job {
    pub(super) image: JpegImage,
    /// The encoded bytes for the CPU, if the device flags the image.
    pub(in crate::backend::cuda) encoded: Encoded,
    /// What the cache needs to use the image's data again, if there is room for them.
    to_keep: Option<ToKeep>,
    pub(super) part: Rect,
    /// Knowledge of the places in its data.
    pub(super) points: DevicePoints,
}

/// An encoded image, in the host's memory or on the device.
pub(in crate::backend::cuda) enum Encoded {
    Held(HeldImage),
    OnDevice(Arc<CachedImage>),
}

impl Encoded {
    /// The bytes of the file.
    ///
    /// # Synchronization
    /// Waits for a copy from the device.
    pub(in crate::backend::cuda) fn host_bytes(&self, streams: &Streams) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Held(held) => Ok(Cow::Borrowed(held.bytes())),
            Self::OnDevice(image) => image.to_host(streams).map(|held| Cow::Owned(held.into_buffer())),
        }
    }

    /// The image in the host's memory.
    ///
    /// # Synchronization
    /// Waits for a copy from the device.
    pub(in crate::backend::cuda) fn into_host(self, streams: &Streams) -> Result<HeldImage> {
        match self {
            Self::Held(held) => Ok(held),
            Self::OnDevice(image) => image.to_host(streams),
        }
    }

    /// The buffer for another image.
    pub(in crate::backend::cuda) fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Held(held) => held.into_buffer(),
            Self::OnDevice(_) => Vec::new(),
        }
    }
}

/// An image whose data are in staging memory, and the room where they will stay.
struct ToKeep {
    room: Room,
    header: Header,
    image: Baseline,
    key: Option<ImageKey>,
    /// Address of its data in staging memory, and their number of bytes.
    scan: DevicePointer,
    data_bytes: usize,
}

/// An image that the CPU is to decode, and device memory that was taken for it.
pub(in crate::backend::cuda) type CpuFallbacks = (HeldImage, Option<Spare>);

/// The decoder on one pipeline's device.
pub(in crate::backend::cuda) struct DeviceDecoder {
    options: Arc<RunOptions>,
    kernels: JpegKernels,
    streams: Arc<Streams>,
    unstored: UnstoredPlaces,
    cache: DeviceCache,
}

impl DeviceDecoder {
    pub(in crate::backend::cuda) fn new(
        options: &Arc<RunOptions>,
        kernels: JpegKernels,
        streams: &Arc<Streams>,
    ) -> Self {
        Self {
            options: Arc::clone(options),
            kernels,
            streams: Arc::clone(streams),
            unstored: UnstoredPlaces::default(),
            cache: DeviceCache::new(options.device_cache_bytes),
        }
    }

    /// The image of a sample that was kept.
    pub(in crate::backend::cuda) fn cached(&self, index: u64) -> Option<Arc<CachedImage>> {
        self.cache.get(index)
    }

    /// Says that the device has done all work.
    pub(in crate::backend::cuda) fn idle(&mut self) {
        self.cache.idle();
    }

    /// Limits the memory of kept images.
    pub(in crate::backend::cuda) fn limit_cached(&self, bytes: u64) {
        self.cache.limit(bytes);
    }

    /// Leaves the needed part of an image to the device, or returns the image for the CPU. `masks_bytes`: the memory
    /// that the sample's masks take.
    pub(in crate::backend::cuda) fn take(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        encoded: Encoded,
        &PlannedSample { index, header, plans, .. }: &PlannedSample<'_>,
        masks_bytes: usize,
    ) -> Result<std::result::Result<Source, CpuFallbacks>> {
        // Its share of the places that earlier batches have learned.
        self.store_one();
        let part = decoded_by(plans);
        let (mut parsed, mut kept_at) = (None, 0);
        let (image, encoding) = match &encoded {
            Encoded::OnDevice(cached) => {
                kept_at = cached.data;
                (&cached.image, cached.bytes())
            }
            Encoded::Held(held) => {
                let bytes = held.bytes();
                let _parse = Span::enter(Activity::Parse);
                let tolerant = self.options.accept_truncated;
                match if tolerant { Err(Reason::Tolerant) } else { Baseline::new(bytes, header) } {
                    Ok(image) => {
                        let image = &*parsed.insert(image);
                        let stays = index.is_some_and(|index| self.cache.takes(index, bytes.len(), image));
                        (image, if stays { DeviceBytes::Whole(bytes) } else { DeviceBytes::Window(bytes) })
                    }
                    Err(reason) => {
                        worker.decoded.cpu_fallbacks.add(reason);
                        return Ok(Err((encoded.into_host(&self.streams)?, None)));
                    }
                }
            }
        };
        let store = self.options.entry_points.as_deref();
        let looking_up = Span::enter(Activity::Lookup);
        let (window, points) =
            DevicePoints::find(store, (image, encoding, header), part, &mut worker.points, &mut worker.row_starts);
        drop(looking_up);
        let lowered = Lowered::new(image, part, &window, (&points, &worker.points));
        let staged = match encoding {
            DeviceBytes::Window(bytes) => &bytes[lowered.data.clone()],
            DeviceBytes::Whole(bytes) => &bytes[image.scan_offset_bytes..],
            DeviceBytes::OnDevice { .. } => &[],
        };
        // This sample's plans need memory in addition to the other samples.
        let writable_bytes = if plans.len() > 1 { 0 } else { packed_bytes(part.size()) };
        let stages_bytes: usize = plans.iter().map(|plan| stages_bytes(plan, writable_bytes)).sum();
        let own_bytes = stages_bytes + staged.len() + lowered.staged_bytes();
        let left_bytes = needed_bytes(&self.options, batch, plans, masks_bytes).saturating_add(own_bytes);
        let mut taken = None;
        let placed = batch.arena.scratch_sparing(lowered.len_bytes, left_bytes).and_then(|memory| {
            taken = Some((memory, lowered.len_bytes));
            let _stage = Span::enter(Activity::Stage);
            let in_scan = (lowered.data.start - image.scan_offset_bytes) as u64;
            let (scan, data) = match encoding {
                DeviceBytes::Window(_) => (None, batch.arena.copy_of(staged)?),
                DeviceBytes::Whole(_) => {
                    let scan = batch.arena.copy_of(staged)?;
                    (Some(scan), scan + in_scan)
                }
                DeviceBytes::OnDevice { .. } => (None, kept_at + in_scan),
            };
            Ok((memory, scan, lowered.place(&batch.arena, &mut worker.staging, memory, data)?))
        });
        match placed {
            Ok((address, scan, described)) => {
                let decoded = DeviceImage { address, pitch_bytes: 3 * part.width, whole: header.size, part };
                // When a stage writes to this memory, the decoder is done with it.
                let (own, len_bytes) = (lowered.pixels_end, lowered.len_bytes);
                let spare = Some((address + own as u64, len_bytes - own));
                let room = scan.zip(index).and_then(|(scan, index)| {
                    let room = self.cache.room(index, staged.len(), &self.streams)?;
                    Some((room, scan, staged.len()))
                });
                let key = worker.points.key;
                let to_keep = room.zip(parsed).map(|((room, scan, data_bytes), image)| ToKeep {
                    room,
                    header: header.clone(),
                    image,
                    key,
                    scan,
                    data_bytes,
                });
                let job = Job { image: described, encoded, to_keep, part, points };
                Ok(Ok(Source { image: decoded, by: By::Device(Box::new(job)), spare }))
            }
            Err(Error::OutOfDeviceMemory { .. }) => {
                worker.decoded.cpu_fallbacks.add(Reason::Memory);
                worker.decoded.for_memory += 1;
                Ok(Err((encoded.into_host(&self.streams)?, taken)))
            }
            Err(error) => Err(error),
        }
    }

    /// Decodes the images that were left to the device, and on the CPU those that the device flags.
    ///
    /// # Synchronization
    /// Waits until the device has reported the images that it flags. Their pixels may be written later, in the order of
    /// the kernels' stream.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda) or another one that ends the epoch; the batch must then be abandoned.
    pub(in crate::backend::cuda) fn settle(
        &self,
        (host, worker): (&mut Executor, &mut Worker),
        batch: &mut InFlight,
        buffers: &Buffers,
    ) -> Result<Settled> {
        let mut jobs = Vec::new();
        for (place, sample) in batch.samples_mut().iter_mut().enumerate() {
            if let Some(job) = sample.as_mut().and_then(|sample| sample.jpeg_job.take()) {
                jobs.push((place, job));
            }
        }
        if jobs.is_empty() {
            return Ok(Settled::default());
        }
        let status = self.queue(batch, &jobs)?;
        // The copy that is running does not include what this worker stages from now on.
        worker.staging = StagingWriter::default();
        batch.on_device = jobs.len();
        let mut bad = Vec::new();
        for ((place, mut job), status) in jobs.into_iter().zip(status) {
            match reason_of_status(status) {
                None => {
                    worker.decoded.device += 1;
                    worker.decoded.device_cached += u64::from(matches!(job.encoded, Encoded::OnDevice(_)));
                    if let (Some(keep), Encoded::Held(held)) = (job.to_keep.take(), &job.encoded) {
                        let ToKeep { room, header, image, key, .. } = keep;
                        self.cache.add(room, header, image, (held.bytes(), key));
                    }
                    worker.decoded.device_entry_points += u64::from(matches!(job.points, DevicePoints::Known));
                }
                Some(reason) => {
                    worker.decoded.cpu_fallbacks.add(reason);
                    let Job { image, encoded, part, .. } = &*job;
                    let bytes = encoded.host_bytes(&self.streams)?;
                    let (how, to, stream) = (self.options.how(), image.pixels, &self.streams.compute);
                    // SAFETY: the destination belongs to the batch and has the size of the part. All earlier work on
                    // the stream belongs to this decoder, and readers of the pixels come later on the stream.
                    let decoded = unsafe { worker.decode_instead(host, (&bytes, how), *part, to, stream) };
                    if let Err(error) = decoded {
                        bad.push((place, error));
                    }
                }
            }
            buffers.give(job.encoded.into_buffer());
        }
        Ok(Settled { bad, decoded: worker.take_decoded(), ..Settled::default() })
    }

    /// Queues the launches, and waits for the images' status.
    fn queue(&self, batch: &mut InFlight, jobs: &[(usize, Box<Job>)]) -> Result<Vec<u32>> {
        let mut staging = StagingWriter::default();
        let mut images = jobs.iter().map(|(_, job)| job.image).collect::<Vec<_>>();
        let end_bytes = batch.end_bytes(&self.options);
        let learning = Learning::place(&batch.arena, end_bytes, &mut images, jobs.iter().map(|(_, job)| &job.points));
        let staged = Staged::new(images, &batch.arena, &mut staging)?;
        self.streams.upload(batch)?;
        for keep in jobs.iter().filter_map(|(_, job)| job.to_keep.as_ref()) {
            // SAFETY: the data's upload is queued. Their memory is reused after the batch, whose last upload
            // (`Outputs::submit`) comes later on the stream, or after the stream was waited for (`Gpu::abandon`).
            unsafe { keep.room.fill(keep.scan, keep.data_bytes, &self.streams)? };
        }
        let huffman = self.streams.huffman(batch);
        huffman.wait(&batch.uploaded)?;
        let state = match batch.decoding_mut() {
            Some(state) => state,
            none => none.insert(Decoding::new(&self.streams, self.options.batch_images, self.options.pinned)?),
        };
        let pinned = self.options.pinned;
        // SAFETY: both streams have been made to wait for the staging memory, which is reused only after the batch is
        // done. `batch_images` is the largest number of images in a batch.
        unsafe { state.queue(&staged, (learning, &self.unstored), pinned, &self.kernels, huffman, &self.streams) }
    }

    /// Takes the places that were found out in a complete batch.
    pub(in crate::backend::cuda) fn collect(&self, batch: &mut InFlight) {
        if let Some(state) = batch.decoding_mut() {
            state.collect(&self.unstored);
        }
    }

    /// Stores the places of an image that a batch has found out. Returns whether there was one.
    pub(in crate::backend::cuda) fn store_one(&self) -> bool {
        self.options.entry_points.as_deref().is_some_and(|store| self.unstored.store_one(store))
    }
}
