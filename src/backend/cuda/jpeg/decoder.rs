//! The crate's own decoder, for the back end.
#![allow(unsafe_code)]

use super::batch::Decoding;
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
use crate::backend::{Executor, HeldImage, RunOptions, Settled};
use crate::decode::{Baseline, DevicePoints, Header, Reason};
use crate::error::{Error, Result};
use crate::plan::{Plan, decoded_by};
use crate::raster::Rect;
use std::sync::Arc;

/// An image whose data are in the batch's staging memory.
pub(in crate::backend::cuda) struct Job {
    pub(super) image: JpegImage,
    /// The encoded bytes for the CPU, if the device flags the image.
    pub(in crate::backend::cuda) encoded: HeldImage,
    pub(super) part: Rect,
    /// Knowledge of the places in its data.
    pub(super) points: DevicePoints,
}

/// An image that the CPU is to decode, and device memory that was taken for it.
pub(in crate::backend::cuda) type CpuFallbacks = (HeldImage, Option<Spare>);

/// The decoder on one pipeline's device.
pub(in crate::backend::cuda) struct DeviceDecoder {
    options: Arc<RunOptions>,
    kernels: JpegKernels,
    streams: Arc<Streams>,
    unstored: UnstoredPlaces,
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
        }
    }

    /// Leaves the needed part of an image to the device, or returns the image for the CPU. `masks_bytes`: the memory
    /// that the sample's masks take.
    pub(in crate::backend::cuda) fn take(
        &self,
        worker: &mut Worker,
        batch: &InFlight,
        encoded: HeldImage,
        header: &Header,
        plans: &[Plan<'_>],
        masks_bytes: usize,
    ) -> Result<std::result::Result<Source, CpuFallbacks>> {
        // Its share of the places that earlier batches have learned.
        self.store_one();
        let (bytes, part) = (encoded.bytes(), decoded_by(plans));
        let found = if self.options.accept_truncated { Err(Reason::Tolerant) } else { Baseline::new(bytes, header) };
        let image = match found {
            Ok(image) => image,
            Err(reason) => {
                worker.decoded.cpu_fallbacks.add(reason);
                return Ok(Err((encoded, None)));
            }
        };
        let (store, whole) = (self.options.entry_points.as_deref(), (&image, bytes, header));
        let (window, points) = DevicePoints::find(store, whole, part, &mut worker.points, &mut worker.row_starts);
        let lowered = Lowered::new(&image, bytes, part, &window, (&points, &worker.points));
        // This sample's plans need memory in addition to the other samples.
        let writable_bytes = if plans.len() > 1 { 0 } else { packed_bytes(part.size()) };
        let stages_bytes: usize = plans.iter().map(|plan| stages_bytes(plan, writable_bytes)).sum();
        let own_bytes = stages_bytes + lowered.staged_bytes();
        let left_bytes = needed_bytes(&self.options, batch, plans, masks_bytes).saturating_add(own_bytes);
        let mut taken = None;
        let placed = batch.arena.scratch_sparing(lowered.len_bytes, left_bytes).and_then(|memory| {
            taken = Some((memory, lowered.len_bytes));
            Ok((memory, lowered.place(&batch.arena, &mut worker.staging, memory)?))
        });
        match placed {
            Ok((address, image)) => {
                let decoded = DeviceImage { address, pitch_bytes: 3 * part.width, whole: header.size, part };
                // When a stage writes to this memory, the decoder is done with it.
                let (own, len_bytes) = (lowered.pixels_end, lowered.len_bytes);
                let spare = Some((address + own as u64, len_bytes - own));
                Ok(Ok(Source { image: decoded, by: By::Device(Box::new(Job { image, encoded, part, points })), spare }))
            }
            Err(Error::OutOfDeviceMemory { .. }) => {
                worker.decoded.cpu_fallbacks.add(Reason::Memory);
                worker.decoded.for_memory += 1;
                Ok(Err((encoded, taken)))
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
        for ((place, job), status) in jobs.into_iter().zip(status) {
            match reason_of_status(status) {
                None => {
                    worker.decoded.device += 1;
                    worker.decoded.device_entry_points += u64::from(matches!(job.points, DevicePoints::Known));
                }
                Some(reason) => {
                    worker.decoded.cpu_fallbacks.add(reason);
                    let Job { image, encoded, part, .. } = &*job;
                    let (how, to, stream) = (self.options.how(), image.pixels, &self.streams.compute);
                    // SAFETY: the destination belongs to the batch and has the size of the part. All earlier work on
                    // the stream belongs to this decoder, and readers of the pixels come later on the stream.
                    let decoded = unsafe { worker.decode_instead(host, (encoded.bytes(), how), *part, to, stream) };
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
