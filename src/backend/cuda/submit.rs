//! The end of a batch on the host: everything that is left is queued on the device.
#![allow(unsafe_code)]

use super::arena::StagingWriter;
use super::gpu::Gpu;
use super::in_flight::InFlight;
use super::kernel::{self, Call};
use super::lock;
use super::lower;
use crate::backend::{Ablation, End, Finished, ViewForm};
use crate::cuda::driver;
use crate::cuda::{Buffer, CudaBuffer};
use crate::error::{Error, Result};
use crate::mix::{MixPlan, Mixing};
use crate::ops::params::{DevicePointer, MixupBatch, MixupSample};
use crate::raster::Size;
use crate::tensor::Storage;
use std::sync::Arc;
use std::time::Duration;

impl Gpu {
    fn times(&self, what: Ablation) -> usize {
        if self.options.again == what { 2 } else { 1 }
    }

    /// Queues all that is left to be done for a batch.
    ///
    /// # Synchronization
    /// Returns at once; what it gives is complete when the device gets there.
    ///
    /// # Errors
    /// [`Error::Device`]; the batch is given up.
    pub(super) fn submit(&self, mut batch: InFlight, end: &End<'_>) -> Result<Finished> {
        let take = || {
            let buffers: Result<Vec<Buffer>> = self.outputs.iter().map(|pool| pool.take(&self.compute)).collect();
            Ok((buffers?, self.take_targets(end)?))
        };
        let (buffers, targets) = match take() {
            Ok(buffers) => buffers,
            Err(error) => {
                self.abandon_batch(batch);
                return Err(error);
            }
        };
        match self.queue(&mut batch, &buffers, targets.as_ref(), end) {
            Ok(()) => {
                lock(&self.idle).batches.push_back(batch);
                let of = |buffer, pool: &Arc<_>, bytes| Storage::Cuda(CudaBuffer::new(buffer, Arc::clone(pool), bytes));
                let view = |((buffer, pool), view): ((_, &Arc<_>), &ViewForm)| {
                    of(buffer, pool, end.labels.len() * view.times * self.options.image_bytes(view))
                };
                let target_bytes = end.targets.map_or(0, <[u8]>::len);
                Ok(Finished {
                    views: buffers.into_iter().zip(&self.outputs).zip(&self.options.views).map(view).collect(),
                    targets: targets.map(|targets| of(targets, &self.targets, target_bytes)),
                    mix: Duration::ZERO,
                })
            }
            Err(error) => {
                // Before the buffers go: some of what was queued may write them.
                self.abandon_batch(batch);
                drop((buffers, targets));
                Err(error)
            }
        }
    }

    /// Queues the copy of what the host has written for a batch since this was called last. Launches that are queued later
    /// come behind it.
    pub(super) fn upload(&self, batch: &InFlight) -> Result<()> {
        // SAFETY: what was written is not written again; its memory is neither reset nor dropped before `done` has passed
        // (`begin_batch`), or the streams have been waited for (`abandon_batch`).
        unsafe { batch.arena.upload(&self.copy, self.times(Ablation::Transfer))? };
        batch.uploaded.record(&self.copy)?;
        self.compute.wait(&batch.uploaded)
    }

    /// Writes down how a batch of one view in `buffer` is mixed; where the descriptor will lie.
    fn stage_mix(
        &self,
        plan: &MixPlan,
        (buffer, view): (&Buffer, &ViewForm),
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
        let (elements, channels) = (buffer.address(), self.options.channels as u32);
        let Size { width, height } = view.size;
        staging.put(&batch.arena, &[MixupBatch { elements, samples, width, height, flip: plan.flip.into(), channels }])
    }

    fn take_targets(&self, end: &End<'_>) -> Result<Option<Buffer>> {
        end.targets.map(|_| self.targets.take(&self.compute)).transpose()
    }

    /// Where each image of the batch's first sample goes, and the bytes of an image there: those of the other samples, and
    /// the padding, follow it.
    fn destinations(&self, buffers: &[Buffer], samples: usize) -> Vec<(u64, usize)> {
        let views = buffers.iter().zip(&self.options.views);
        let images = views.flat_map(|(buffer, view)| {
            let image_bytes = self.options.image_bytes(view);
            (0..view.times).map(move |i| (buffer.address() + (i * samples * image_bytes) as u64, image_bytes))
        });
        images.collect()
    }

    fn queue(&self, batch: &mut InFlight, buffers: &[Buffer], targets: Option<&Buffer>, end: &End<'_>) -> Result<()> {
        let &End { places, padding, labels, .. } = end;
        let destinations = self.destinations(buffers, labels.len());
        let mut calls: Vec<Vec<Call>> = Vec::with_capacity(places.len() * destinations.len());
        for (i, place) in places.iter().enumerate() {
            let sample = batch.samples_mut().get_mut(*place).and_then(Option::take);
            let Some(mut sample) = sample else {
                let message = "a sample of the batch is missing".to_owned();
                return Err(Error::Device { call: "submit a batch".to_owned(), message });
            };
            for (calls, (first, image_bytes)) in sample.calls.iter_mut().zip(&destinations) {
                lower::place(calls, first + (i * image_bytes) as u64);
            }
            calls.append(&mut sample.calls);
        }
        let mut staging = StagingWriter::default();
        let mut groups = Vec::new();
        kernel::group(&calls, |mut group, calls| {
            let bytes = calls.iter().map(|call| call.descriptor.bytes().len()).sum();
            group.samples = staging.put_bytes(&batch.arena, bytes, |to| {
                let mut at = 0;
                for call in calls {
                    let bytes = call.descriptor.bytes();
                    to[at..at + bytes.len()].copy_from_slice(bytes);
                    at += bytes.len();
                }
            })?;
            groups.push(group);
            Ok(())
        })?;
        let mut staged_mixes = Vec::new();
        if let Some(plan) = end.mix.filter(|plan| plan.changes()) {
            for (buffer, view) in buffers.iter().zip(&self.options.views) {
                staged_mixes.push((view.size, self.stage_mix(plan, (buffer, view), &mut staging, batch)?));
            }
        }
        let staged_labels = staging.put(&batch.arena, labels)?;
        let staged_targets = end.targets.map(|targets| staging.put(&batch.arena, targets)).transpose()?;

        self.upload(batch)?;
        batch.decoding().iter().try_for_each(|event| self.compute.wait(event))?;
        let on_hardware = batch.on_hardware > 0;
        if let Some(hardware) = batch.hardware_mut().as_ref().filter(|_| on_hardware) {
            self.compute.wait(hardware.ended())?;
        }
        buffers.iter().flat_map(|buffer| &buffer.users).try_for_each(|user| self.compute.wait(user))?;
        for group in std::iter::repeat_n(&groups, self.times(Ablation::Kernels)).flatten() {
            // SAFETY: descriptors and all that they point to lie in the arena, uploaded or decoded before, or in the
            // batch's buffer, whose earlier users the stream has been made to wait for.
            unsafe { self.kernels.launch(group, self.table.address(), &self.compute)? };
        }
        for (first, image_bytes) in destinations {
            let last = first + ((places.len() - 1) * image_bytes) as u64;
            for i in 0..padding {
                let to = last + ((i + 1) * image_bytes) as u64;
                // SAFETY: both lie in the view's buffer, an image or more apart.
                unsafe { driver::copy(to, last, image_bytes, &self.compute)? };
            }
        }
        for (buffer, pool) in buffers.iter().zip(&self.outputs) {
            let to = buffer.address() + pool.labels_offset() as u64;
            // SAFETY: the buffer has room for the labels of a full batch.
            unsafe { driver::copy(to, staged_labels, size_of_val(labels), &self.compute)? };
        }
        for (size, staged) in staged_mixes {
            // SAFETY: what it reads beside the batch lies in the arena, uploaded before; the view's images are complete, as
            // many as there are labels.
            unsafe { self.kernels.launch_mix(staged, labels.len(), size, &self.compute)? };
        }
        if let (Some(buffer), Some(targets), Some(staged)) = (targets, end.targets, staged_targets) {
            buffer.users.iter().try_for_each(|user| self.compute.wait(user))?;
            // SAFETY: the buffer has room for the targets of a full batch, and its earlier users are waited for.
            unsafe { driver::copy(buffer.address(), staged, targets.len(), &self.compute)? };
            buffer.ready.record(&self.compute)?;
        }
        batch.done.record(&self.compute)?;
        buffers.iter().try_for_each(|buffer| buffer.ready.record(&self.compute))
    }
}
