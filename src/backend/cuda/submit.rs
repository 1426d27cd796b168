//! The end of a batch: queues all remaining work.
#![allow(unsafe_code)]

use super::arena::StagingWriter;
use super::in_flight::InFlight;
use super::kernel::{self, Call, Kernels};
use super::lower;
use super::masks::PlacedMasks;
use super::streams::{Part, Streams};
use crate::backend::{End, Finished, OutputForm, RunOptions};
use crate::cuda::driver;
use crate::cuda::{Buffer, CudaBuffer, Pool, labels_offset, settle_aside, with_labels};
use crate::error::{Error, Result};
use crate::mix::{MixPlan, Mixing};
use crate::ops::descriptors::{DevicePointer, MixupBatch, MixupSample};
use crate::raster::Size;
use crate::tensor::Storage;
use crate::trace::{Activity, Span};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The memory of tensors, and the kernels that write it.
pub(super) struct Outputs {
    options: Arc<RunOptions>,
    /// The memory of each output.
    images: Vec<Arc<Pool>>,
    /// The memory of numeric targets.
    targets: Arc<Pool>,
    /// The memory of masks.
    masks: Arc<Pool>,
    kernels: Kernels,
    streams: Arc<Streams>,
}

impl Outputs {
    /// Says that the device has done all work.
    pub(super) fn idle(&mut self) {
        self.kernels.idle();
    }

    /// Opens the outputs and tries whether device `ordinal` has memory for a batch.
    ///
    /// # Errors
    /// [`Error::OutOfDeviceMemory`] if it has not.
    pub(super) fn open(
        options: &Arc<RunOptions>,
        mut kernels: Kernels,
        streams: &Arc<Streams>,
        ordinal: u32,
    ) -> Result<Self> {
        let pool = |keep, keep_bytes| Pool::new(&streams.context, ordinal, keep, keep_bytes).map(Arc::new);
        let image = |_| pool(options.kept_tensors(), options.spare_bytes().unwrap_or(u64::MAX));
        let images = options.outputs.iter().map(image).collect::<Result<Vec<_>>>()?;
        for (pool, output) in images.iter().zip(&options.outputs).filter(|(_, output)| output.shared_size().is_some()) {
            pool.give(pool.take(&streams.compute, options.room_bytes(output))?);
        }
        let targets = pool(options.batches_at_a_time(), u64::MAX)?;
        let masks = options.fields * options.outputs.len() * options.kept_tensors();
        let masks = pool(masks, options.most_spare_bytes())?;
        kernels.in_use();
        Ok(Self { options: Arc::clone(options), images, targets, masks, kernels, streams: Arc::clone(streams) })
    }

    /// Queues all remaining work of a batch.
    ///
    /// # Synchronization
    /// Returns at once. The tensors are complete when the device gets there.
    ///
    /// # Errors
    /// [`Error::Device`]; the batch must then be abandoned.
    pub(super) fn submit(&self, batch: &mut InFlight, end: &End<'_>) -> Result<Finished> {
        let has_sizes = self.options.is_ragged() || self.options.is_shaped();
        let mut sizes = if has_sizes { Self::sizes(batch, end)? } else { Vec::new() };
        let (rooms, targets) = (self.rooms(&sizes, end)?, self.take_targets(end)?);
        let mut masks = PlacedMasks::place(batch, end, &self.options, (&self.masks, &self.streams.compute))?;
        sizes.extend(sizes.last().copied().into_iter().cycle().take(end.padding));
        if let Err(error) = self.queue(batch, &rooms, targets.as_ref(), &mut masks, end) {
            // Wait before the memory is freed, because queued work may write it. If waiting fails, the context has
            // failed.
            let _ = self.streams.synchronize();
            return Err(error);
        }
        let of = |buffer, pool: &Arc<_>, bytes| Storage::Cuda(CudaBuffer::new(buffer, Arc::clone(pool), bytes));
        let tensor = |room: OutputMemory<'_>| {
            let (images, len_bytes) = (room.images(), room.len_bytes());
            let labeled = end.annotations.labels().is_some();
            let storage = CudaBuffer::of_images(room.buffer, Arc::clone(room.pool), len_bytes, labeled);
            self.options.elements().tensor(Storage::Cuda(storage), room.size, images)
        };
        let target_bytes = end.annotations.numbers().map_or(0, <[u8]>::len);
        Ok(Finished {
            images: rooms.into_iter().map(tensor).collect(),
            sizes,
            targets: targets.map(|targets| of(targets, &self.targets, target_bytes)),
            masks: masks.finish(&self.masks),
            mix: Duration::ZERO,
        })
    }

    /// Memory for the tensors of a batch: one for each view, or one for each image if images have sizes of their own
    /// and are not padded. `sizes`: the sizes of these images.
    fn rooms(&self, sizes: &[Size], end: &End<'_>) -> Result<Vec<OutputMemory<'_>>> {
        if self.options.is_padded() {
            let output = &self.options.outputs[0];
            let images = end.annotations.len();
            let size = output.common_size(sizes, images)?;
            let bytes = with_labels(images * output.elements.image_bytes(size), images);
            return Ok(vec![self.room((&self.images[0], bytes), size, 1, 0..images)?]);
        }
        if !self.options.is_ragged() {
            let samples = 0..end.annotations.len();
            let room = |(pool, output): (_, &OutputForm)| {
                let (mut bytes, mut size) = (self.options.room_bytes(output), output.one_size());
                if let (true, Some(of_batch)) = (self.options.is_shaped(), sizes.first()) {
                    size = *of_batch;
                    let images = samples.len() * output.times;
                    bytes = with_labels(images * output.elements.image_bytes(size), samples.len());
                }
                self.room((pool, bytes), size, output.times, samples.clone())
            };
            return self.images.iter().zip(&self.options.outputs).map(room).collect();
        }
        let room = |(i, &size): (usize, &Size)| {
            let bytes = with_labels(self.options.elements().image_bytes(size), 1);
            self.room((&self.images[0], bytes), size, 1, i..i + 1)
        };
        sizes.iter().enumerate().map(room).collect()
    }

    /// The sizes of the images of a batch with one image of each sample.
    fn sizes(batch: &mut InFlight, end: &End<'_>) -> Result<Vec<Size>> {
        let samples = batch.samples_mut();
        let size = |place: &usize| Ok(samples.get(*place).and_then(Option::as_ref).ok_or_else(missing)?.size);
        end.places.iter().map(size).collect()
    }

    /// Takes memory from a pool for `times` images of a size of each sample.
    fn room<'a>(
        &self,
        (pool, bytes): (&'a Arc<Pool>, usize),
        size: Size,
        times: usize,
        samples: Range<usize>,
    ) -> Result<OutputMemory<'a>> {
        let image_bytes = self.options.elements().image_bytes(size);
        let buffer = pool.take(&self.streams.compute, bytes)?;
        Ok(OutputMemory { buffer, pool, size, image_bytes, samples, times })
    }

    /// Stages the descriptor of the mixing of a batch with one view. Returns its address on the device.
    fn stage_mix(
        &self,
        plan: &MixPlan,
        room: &OutputMemory<'_>,
        staging: &mut StagingWriter,
        batch: &InFlight,
    ) -> Result<DevicePointer> {
        let samples = plan.images.iter().map(|image| match image.mixing {
            Mixing::Nothing => MixupSample::default(),
            Mixing::Blend => {
                let [share, rest] = image.weights();
                MixupSample { share, rest, blend: 1, ..MixupSample::default() }
            }
            Mixing::Paste(rect) => MixupSample {
                left: rect.x,
                top: rect.y,
                right: rect.right(),
                bottom: rect.bottom(),
                ..MixupSample::default()
            },
        });
        let samples = staging.put(&batch.arena, &samples.collect::<Vec<_>>())?;
        let (elements, channels) = (room.buffer.address(), self.options.elements().channels as u32);
        let Size { width, height } = room.size;
        staging.put(&batch.arena, &[MixupBatch { elements, samples, width, height, flip: plan.flip.into(), channels }])
    }

    fn take_targets(&self, end: &End<'_>) -> Result<Option<Buffer>> {
        end.annotations.numbers().map(|targets| self.targets.take(&self.streams.compute, targets.len())).transpose()
    }

    fn queue(
        &self,
        batch: &mut InFlight,
        rooms: &[OutputMemory<'_>],
        targets: Option<&Buffer>,
        masks: &mut PlacedMasks,
        end: &End<'_>,
    ) -> Result<()> {
        let calls = self.take_calls(batch, rooms, masks, end)?;
        let staged = self.stage(batch, rooms, &calls, end)?;
        self.streams.upload(batch)?;
        let (compute, _launch) = (&self.streams.compute, Span::enter(Activity::Launch));
        batch.decoding().iter().try_for_each(|event| compute.wait(event))?;
        let on_hardware = batch.on_hardware > 0;
        if let Some(engines) = batch.engines_mut().filter(|_| on_hardware) {
            compute.wait(engines.ended())?;
        }
        let buffers = || rooms.iter().map(|room| &room.buffer).chain(masks.buffers());
        buffers().flat_map(|buffer| &buffer.users).try_for_each(|user| compute.wait(user))?;
        for room in rooms.iter().filter(|_| self.options.is_padded()) {
            // SAFETY: the buffer has as many bytes, and the stream waits for its earlier users.
            unsafe { driver::clear(room.buffer.address(), room.len_bytes(), compute)? };
        }
        self.streams.queue(Part::Kernels, &|| {
            // SAFETY: descriptors and all memory that they point to lie in the arena, uploaded or decoded before, or in
            // the batch's buffers, whose earlier users the stream has been made to wait for.
            staged.groups.iter().try_for_each(|group| unsafe { self.kernels.launch(group, compute) })
        })?;
        self.queue_copies(rooms, masks, &staged, end)?;
        let channels = self.options.elements().channels;
        for &(size, mix) in &staged.mixes {
            // SAFETY: everything else that it reads lies in the arena, uploaded before. The view's images
            // are complete, and there are as many as labels.
            unsafe {
                self.kernels.launch_mix(mix, end.annotations.labels_or_zeros().len(), (size, channels), compute)?
            };
        }
        if let (Some(buffer), Some((from, len_bytes))) = (targets, staged.targets) {
            buffer.users.iter().try_for_each(|user| compute.wait(user))?;
            // SAFETY: the buffer has room for the targets of a full batch, and the stream waits for its earlier users.
            unsafe { driver::copy(buffer.address(), from, len_bytes, compute)? };
            buffer.ready.record(compute)?;
        }
        batch.done.record(compute)?;
        buffers().try_for_each(|buffer| buffer.ready.record(compute))
    }

    /// Takes the calls of all delivered images and masks, which know their places in the batch from now on.
    fn take_calls(
        &self,
        batch: &mut InFlight,
        rooms: &[OutputMemory<'_>],
        masks: &mut PlacedMasks,
        end: &End<'_>,
    ) -> Result<Vec<Vec<Call>>> {
        let padded = self.options.is_padded();
        let mut calls = Vec::with_capacity(end.places.len() * self.options.images_of_a_sample());
        for (i, place) in end.places.iter().enumerate() {
            let mut sample = batch.samples_mut().get_mut(*place).and_then(Option::take).ok_or_else(missing)?;
            let own = if self.options.is_ragged() && !padded { &rooms[i..=i] } else { rooms };
            for (calls, address) in sample.calls.iter_mut().zip(own.iter().flat_map(|room| room.addresses(i))) {
                lower::place(calls, address, padded.then(|| self.options.elements().strides(rooms[0].size)));
            }
            calls.append(&mut sample.calls);
        }
        calls.append(&mut masks.calls);
        Ok(calls)
    }

    /// Stages what the end of a batch needs on the device.
    fn stage(
        &self,
        batch: &InFlight,
        rooms: &[OutputMemory<'_>],
        calls: &[Vec<Call>],
        end: &End<'_>,
    ) -> Result<StagedEnd> {
        let mut staging = StagingWriter::default();
        let groups = kernel::stage(calls, &mut staging, &batch.arena)?;
        let mut mixes = Vec::new();
        if let Some(plan) = end.mix.filter(|plan| plan.changes()) {
            for room in rooms {
                mixes.push((room.size, self.stage_mix(plan, room, &mut staging, batch)?));
            }
        }
        let labels = staging.put(&batch.arena, end.annotations.labels_or_zeros())?;
        let targets = match end.annotations.numbers() {
            Some(targets) => Some((staging.put(&batch.arena, targets)?, targets.len())),
            None => None,
        };
        Ok(StagedEnd { groups, mixes, labels, targets })
    }

    /// Queues the copies that make padding, and those of labels.
    fn queue_copies(
        &self,
        rooms: &[OutputMemory<'_>],
        masks: &PlacedMasks,
        staged: &StagedEnd,
        &End { places, padding, .. }: &End<'_>,
    ) -> Result<()> {
        let (compute, last) = (&self.streams.compute, places.len() - 1);
        for room in rooms.iter().filter(|_| padding > 0) {
            for (from, i) in room.addresses(last).flat_map(|last| (1..=padding).map(move |i| (last, i))) {
                let to = from + (i * room.image_bytes) as u64;
                // SAFETY: both lie in the view's buffer, at least one image apart.
                unsafe { driver::copy(to, from, room.image_bytes, compute)? };
            }
        }
        for &(to, from, len_bytes) in &masks.copies {
            // SAFETY: both are places in the masks' memory that do not overlap, and the kernels have written the first.
            unsafe { driver::copy(to, from, len_bytes, compute)? };
        }
        for room in rooms {
            let to = room.buffer.address() + labels_offset(room.len_bytes()) as u64;
            let from = staged.labels + (room.samples.start * size_of::<u32>()) as u64;
            // SAFETY: the buffer has room for the labels of its samples, which are among the staged ones.
            unsafe { driver::copy(to, from, room.samples.len() * size_of::<u32>(), compute)? };
        }
        Ok(())
    }
}

/// What the end of a batch has staged, by the addresses on the device.
struct StagedEnd {
    groups: Vec<kernel::Group>,
    /// The mixing of each view of a size.
    mixes: Vec<(Size, DevicePointer)>,
    labels: DevicePointer,
    /// Numeric targets, and the number of their bytes.
    targets: Option<(DevicePointer, usize)>,
}

impl Drop for Outputs {
    fn drop(&mut self) {
        settle_aside();
    }
}

impl RunOptions {
    /// Bytes of a buffer for an output of the largest batch.
    fn room_bytes(&self, output: &OutputForm) -> usize {
        with_labels(output.len_bytes(self.batch_images), self.batch_images)
    }
}

/// The memory of a tensor, and its contents.
struct OutputMemory<'a> {
    buffer: Buffer,
    /// The pool that the memory returns to.
    pool: &'a Arc<Pool>,
    size: Size,
    image_bytes: usize,
    /// The samples of the batch, padding included, that the tensor holds.
    samples: Range<usize>,
    /// Number of images of each sample: all first ones, then all second ones.
    times: usize,
}

impl OutputMemory<'_> {
    fn images(&self) -> usize {
        self.samples.len() * self.times
    }

    fn len_bytes(&self) -> usize {
        self.images() * self.image_bytes
    }

    /// The addresses of the images of sample `i`.
    fn addresses(&self, i: usize) -> impl Iterator<Item = u64> {
        let place = move |time| time * self.samples.len() + i - self.samples.start;
        (0..self.times).map(move |time| self.buffer.address() + (place(time) * self.image_bytes) as u64)
    }
}

fn missing() -> Error {
    Error::Device { call: "submit a batch".to_owned(), message: "a sample of the batch is missing".to_owned() }
}
