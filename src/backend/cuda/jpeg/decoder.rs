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
use crate::backend::cuda::direct::{Direct, ImageInFile, Wanted};
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
use crate::source::Reader;
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
    /// The sample of an image that may be read past the host later, its header, and the key of its entry points.
    to_learn: Option<(u64, Header, Option<ImageKey>)>,
    /// Address of the data of its scan, if they are read past the host.
    read_to: DevicePointer,
    pub(super) part: Rect,
    /// Knowledge of the places in its data.
    pub(super) points: DevicePoints,
}

/// An encoded image: in the host's memory, on the device, or in a file that the device reads.
pub(in crate::backend::cuda) enum Encoded {
    Held(HeldImage),
    OnDevice(Arc<CachedImage>),
    InFile(Box<ImageInFile>),
}

impl Encoded {
    /// The bytes of the file.
    ///
    /// # Synchronization
    /// Waits for a copy from the device.
    ///
    /// # Errors
    /// The errors of [`ImageInFile::to_host`].
    pub(in crate::backend::cuda) fn host_bytes(&self, streams: &Streams) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Held(held) => Ok(Cow::Borrowed(held.bytes())),
            Self::OnDevice(image) => image.to_host(streams).map(|held| Cow::Owned(held.into_buffer())),
            Self::InFile(image) => image.to_host().map(|held| Cow::Owned(held.bytes().to_vec())),
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
            Self::InFile(image) => image.to_host(),
        }
    }

    /// The buffer for another image.
    pub(in crate::backend::cuda) fn into_buffer(self) -> Vec<u8> {
        match self {
            Self::Held(held) => held.into_buffer(),
            Self::OnDevice(_) | Self::InFile(_) => Vec::new(),
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
    /// Reads images past the host, if it is to do so.
    direct: Option<Direct>,
}

impl DeviceDecoder {
    pub(in crate::backend::cuda) fn new(
        options: &Arc<RunOptions>,
        (kernels, direct): (JpegKernels, Option<Direct>),
        streams: &Arc<Streams>,
    ) -> Self {
        Self {
            options: Arc::clone(options),
            kernels,
            streams: Arc::clone(streams),
            unstored: UnstoredPlaces::default(),
            cache: DeviceCache::new(options.device_cache_bytes),
            direct,
        }
    }

    /// The image of a sample that was kept.
    pub(in crate::backend::cuda) fn cached(&self, index: u64) -> Option<Arc<CachedImage>> {
        self.cache.get(index)
    }

    /// The image of a sample, if the device can read it from a file.
    pub(in crate::backend::cuda) fn in_file(&self, index: u64, reader: &Reader) -> Option<ImageInFile> {
        let direct = self.direct.as_ref()?;
        let _entered = self.streams.enter_again().ok()?;
        direct.find(index, reader)
    }

    /// Says that the device has done all work.
    pub(in crate::backend::cuda) fn idle(&mut self) {
        self.cache.idle();
        self.direct.iter_mut().for_each(Direct::idle);
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
        let (mut parsed, mut kept_at, mut to_learn) = (None, 0, None);
        let (image, encoding) = match &encoded {
            Encoded::OnDevice(cached) => {
                kept_at = cached.data;
                (&cached.image, cached.bytes())
            }
            Encoded::InFile(in_file) => match Baseline::of_head(&in_file.known.head, header) {
                Ok(image) => (&*parsed.insert(image), in_file.bytes()),
                Err(reason) => {
                    worker.decoded.cpu_fallbacks.add(reason);
                    return Ok(Err((in_file.to_host()?, None)));
                }
            },
            Encoded::Held(held) => {
                let bytes = held.bytes();
                let _parse = Span::enter(Activity::Parse);
                let tolerant = self.options.accept_truncated;
                match if tolerant { Err(Reason::Tolerant) } else { Baseline::new(bytes, header) } {
                    Ok(image) => {
                        let image = &*parsed.insert(image);
                        let stays = index.is_some_and(|index| self.cache.takes(index, bytes.len(), image));
                        let direct = self.direct.as_ref();
                        to_learn = index.filter(|&i| direct.is_some_and(|direct| direct.takes(i, held, header)));
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
        let read_bytes = if let Encoded::InFile(in_file) = &encoded { in_file.data_bytes() } else { 0 };
        let mut taken = None;
        let placed = batch.arena.scratch_sparing(lowered.len_bytes + read_bytes, left_bytes).and_then(|memory| {
            taken = Some((memory, lowered.len_bytes));
            let staging = Span::enter(Activity::Stage);
            let in_scan = (lowered.data.start - image.scan_offset_bytes) as u64;
            let (scan, data) = match encoding {
                DeviceBytes::Window(_) => (None, batch.arena.copy_of(staged)?),
                DeviceBytes::Whole(_) => {
                    let scan = batch.arena.copy_of(staged)?;
                    (Some(scan), scan + in_scan)
                }
                DeviceBytes::OnDevice { .. } if read_bytes > 0 => {
                    let scan = memory + lowered.len_bytes as u64;
                    (Some(scan), scan + in_scan)
                }
                DeviceBytes::OnDevice { .. } => (None, kept_at + in_scan),
            };
            drop(staging);
            Ok((memory, scan, lowered.place(&batch.arena, &mut worker.staging, memory, data)?))
        });
        match placed {
            Ok((address, scan, described)) => {
                let decoded = DeviceImage { address, pitch_bytes: 3 * part.width, whole: header.size, part };
                // When a stage writes to this memory, the decoder is done with it.
                let (own, len_bytes) = (lowered.pixels_end, lowered.len_bytes);
                let spare = Some((address + own as u64, len_bytes - own));
                let stays = |image: &Baseline| match &encoded {
                    Encoded::InFile(in_file) => {
                        index.is_some_and(|index| self.cache.takes(index, in_file.known.len_bytes, image))
                    }
                    _ => true,
                };
                let room = scan.zip(index).filter(|_| stays(image)).and_then(|(scan, index)| {
                    let data_bytes = staged.len() + read_bytes;
                    let room = self.cache.room(index, data_bytes, &self.streams)?;
                    Some((room, scan, data_bytes))
                });
                let key = worker.points.key;
                let to_learn = to_learn.map(|index| (index, header.clone(), key));
                let read_to = scan.filter(|_| read_bytes > 0).unwrap_or_default();
                let to_keep = room.zip(parsed).map(|((room, scan, data_bytes), image)| ToKeep {
                    room,
                    header: header.clone(),
                    image,
                    key,
                    scan,
                    data_bytes,
                });
                let job = Job { image: described, encoded, to_keep, to_learn, read_to, part, points };
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
        let mut bad = Vec::new();
        for (place, job) in self.read(&mut jobs)? {
            worker.decoded.cpu_fallbacks.add(Reason::Storage);
            bad.extend(self.decode_instead((host, worker), &job)?.map(|error| (place, error)));
        }
        if jobs.is_empty() {
            return Ok(Settled { bad, decoded: worker.take_decoded(), ..Settled::default() });
        }
        let status = self.queue(batch, &jobs)?;
        // The copy that is running does not include what this worker stages from now on.
        worker.staging = StagingWriter::default();
        batch.on_device = jobs.len();
        for ((place, mut job), status) in jobs.into_iter().zip(status) {
            match reason_of_status(status) {
                None => {
                    worker.decoded.device += 1;
                    worker.decoded.device_cached += u64::from(matches!(job.encoded, Encoded::OnDevice(_)));
                    worker.decoded.device_direct += u64::from(matches!(job.encoded, Encoded::InFile(_)));
                    self.keep(&mut job);
                    worker.decoded.device_entry_points += u64::from(matches!(job.points, DevicePoints::Known));
                }
                Some(reason) => {
                    worker.decoded.cpu_fallbacks.add(reason);
                    bad.extend(self.decode_instead((host, worker), &job)?.map(|error| (place, error)));
                }
            }
            buffers.give(job.encoded.into_buffer());
        }
        Ok(Settled { bad, decoded: worker.take_decoded(), ..Settled::default() })
    }

    /// Decodes an image on the CPU to the place of its pixels. Returns the error of a bad image.
    fn decode_instead(&self, (host, worker): (&mut Executor, &mut Worker), job: &Job) -> Result<Option<Error>> {
        let Job { image, encoded, part, .. } = job;
        let bytes = match encoded.host_bytes(&self.streams) {
            Ok(bytes) => bytes,
            Err(error) if error.is_bad_sample() => return Ok(Some(error)),
            Err(error) => return Err(error),
        };
        let (how, to, stream) = (self.options.how(), image.pixels, &self.streams.compute);
        // SAFETY: the destination belongs to the batch and has the size of the part. All earlier work on the stream
        // belongs to this decoder, and readers of the pixels come later on the stream.
        Ok(unsafe { worker.decode_instead(host, (&bytes, how), *part, to, stream) }.err())
    }

    /// Keeps what later epochs need of an image that was decoded.
    fn keep(&self, job: &mut Job) {
        let bytes = match &job.encoded {
            Encoded::Held(held) => held.bytes(),
            Encoded::InFile(in_file) => &in_file.known.head,
            Encoded::OnDevice(_) => return,
        };
        if let Some(ToKeep { room, header, image, key, data_bytes, .. }) = job.to_keep.take() {
            let head = &bytes[..image.scan_offset_bytes.min(bytes.len())];
            self.cache.add(room, header, image, (head, data_bytes, key));
        }
        if let (Some(direct), Some((index, header, key))) = (&self.direct, job.to_learn.take()) {
            direct.learn(index, header, bytes, key);
        }
    }

    /// Reads the images that are in files, and takes out those that could not be read.
    fn read(&self, jobs: &mut Vec<(usize, Box<Job>)>) -> Result<Vec<(usize, Box<Job>)>> {
        let Some(direct) = &self.direct else { return Ok(Vec::new()) };
        let mut wanted = Vec::new();
        for (_, job) in jobs.iter() {
            if let Encoded::InFile(image) = &job.encoded {
                wanted.push(Wanted { image, to: job.read_to });
            }
        }
        // SAFETY: the places belong to the batch and are as long as the data. The decoder's work is queued later, and
        // waits for the stream of copies.
        let mut is_read = unsafe { direct.read(&wanted, &self.streams)? }.into_iter();
        let fails = |(_, job): &mut (usize, Box<Job>)| {
            matches!(job.encoded, Encoded::InFile(_)) && is_read.next() == Some(false)
        };
        Ok(jobs.extract_if(.., fails).collect())
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
