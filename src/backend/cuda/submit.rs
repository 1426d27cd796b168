//! The end of a batch on the host: everything that is left is queued on the device.
#![allow(unsafe_code)]

use super::arena::StagingWriter;
use super::gpu::Gpu;
use super::in_flight::InFlight;
use super::kernel::{self, Call};
use super::lock;
use super::lower;
use crate::backend::Ablation;
use crate::cuda::driver;
use crate::cuda::{Buffer, CudaBuffer};
use crate::error::{Error, Result};
use std::sync::Arc;

impl Gpu {
    fn times(&self, what: Ablation) -> usize {
        if self.options.again == what { 2 } else { 1 }
    }

    /// Queues all that is left to be done for a batch: the samples at `places`, in this order, and after them `padding`
    /// repetitions of the last.
    ///
    /// # Synchronization
    /// Returns at once; what it gives is complete when the device gets there.
    ///
    /// # Errors
    /// [`Error::Device`]; the batch is given up.
    pub(super) fn submit(
        &self,
        mut batch: InFlight,
        places: &[usize],
        labels: &[u32],
        padding: usize,
    ) -> Result<CudaBuffer> {
        let buffer = match self.outputs.take(&self.compute) {
            Ok(buffer) => buffer,
            Err(error) => {
                self.abandon_batch(batch);
                return Err(error);
            }
        };
        match self.queue(&mut batch, &buffer, places, labels, padding) {
            Ok(len_bytes) => {
                lock(&self.idle).batches.push_back(batch);
                Ok(CudaBuffer::new(buffer, Arc::clone(&self.outputs), len_bytes))
            }
            Err(error) => {
                // Before the buffer goes: some of what was queued may write it.
                self.abandon_batch(batch);
                drop(buffer);
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

    /// The bytes of the batch's images.
    fn queue(
        &self,
        batch: &mut InFlight,
        buffer: &Buffer,
        places: &[usize],
        labels: &[u32],
        padding: usize,
    ) -> Result<usize> {
        let image_bytes = self.options.image_bytes();
        let mut calls: Vec<Vec<Call>> = Vec::with_capacity(places.len());
        for (i, place) in places.iter().enumerate() {
            let sample = batch.samples_mut().get_mut(*place).and_then(Option::take);
            let Some(mut sample) = sample else {
                let message = "a sample of the batch is missing".to_owned();
                return Err(Error::Device { call: "submit a batch".to_owned(), message });
            };
            lower::place(&mut sample.calls, buffer.address() + (i * image_bytes) as u64);
            calls.push(sample.calls);
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
        let staged_labels = staging.put(&batch.arena, labels)?;

        self.upload(batch)?;
        batch.decoding().iter().try_for_each(|event| self.compute.wait(event))?;
        let on_hardware = batch.on_hardware > 0;
        if let Some(hardware) = batch.hardware_mut().as_ref().filter(|_| on_hardware) {
            self.compute.wait(hardware.ended())?;
        }
        buffer.users.iter().try_for_each(|user| self.compute.wait(user))?;
        for group in std::iter::repeat_n(&groups, self.times(Ablation::Kernels)).flatten() {
            // SAFETY: descriptors and all that they point to lie in the arena, uploaded or decoded before, or in the
            // batch's buffer, whose earlier users the stream has been made to wait for.
            unsafe { self.kernels.launch(group, self.table.address(), &self.compute)? };
        }
        let last = buffer.address() + ((places.len() - 1) * image_bytes) as u64;
        for i in 0..padding {
            let to = last + ((i + 1) * image_bytes) as u64;
            // SAFETY: both lie in the batch's buffer, an image apart.
            unsafe { driver::copy(to, last, image_bytes, &self.compute)? };
        }
        let to = buffer.address() + self.outputs.labels_offset() as u64;
        // SAFETY: the buffer has room for the labels of a full batch.
        unsafe { driver::copy(to, staged_labels, size_of_val(labels), &self.compute)? };
        batch.done.record(&self.compute)?;
        buffer.ready.record(&self.compute)?;
        Ok(labels.len() * image_bytes)
    }
}
