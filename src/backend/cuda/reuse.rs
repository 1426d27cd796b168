//! What is used again and again: workers, in-flight batches, and the buffers that encoded bytes are read into.
#![allow(unsafe_code)]

use super::gpu::Gpu;
use super::in_flight::InFlight;
use super::jpeg::Decoding;
use super::lock;
use super::worker::Worker;
use crate::error::Result;
use std::sync::atomic::Ordering::Relaxed;

/// Buffers for encoded bytes above this are given back after use.
const KEEP_ENCODED_BYTES: usize = 4 << 20;

impl Gpu {
    /// Takes up the work of a thread, on the thread itself.
    pub(super) fn take_worker(&self) -> Result<Worker> {
        if let Some(worker) = lock(&self.workers).pop() {
            return Ok(worker);
        }
        Worker::new(self.nvjpeg.as_ref().map(|nvjpeg| nvjpeg.worker(&self.context)).transpose()?)
    }

    /// Keeps a worker for the next epoch.
    pub(super) fn keep_worker(&self, worker: Worker) {
        let mut workers = lock(&self.workers);
        if workers.len() < self.options.threads.max(1) {
            workers.push(worker);
        }
    }

    /// A buffer for encoded bytes.
    pub(super) fn take_buffer(&self) -> Vec<u8> {
        lock(&self.buffers).pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next sample.
    pub(super) fn keep_buffer(&self, buffer: Vec<u8>) {
        let mut buffers = lock(&self.buffers);
        if buffer.capacity() > 0
            && buffer.capacity() <= KEEP_ENCODED_BYTES
            && buffers.len() < self.options.batch_images * self.options.batches_at_a_time()
        {
            buffers.push(buffer);
        }
    }

    /// Begins a batch of so many samples.
    ///
    /// # Synchronization
    /// Waits until the device is done with the memory, which it is unless it is behind by all batches in flight.
    pub(super) fn begin_batch(&self, samples: usize) -> Result<InFlight> {
        let idle = {
            let mut idle = lock(&self.idle);
            let more = idle.made < self.options.batches_at_a_time();
            let ready = idle.batches.front().is_some_and(|batch| !more || batch.done.is_done());
            let batch = if ready { idle.batches.pop_front() } else { None };
            idle.made += usize::from(batch.is_none());
            batch
        };
        let begun = match idle {
            Some(batch) => Ok(batch),
            None => InFlight::new(&self.context, self.in_flight_bytes, self.options.pinned),
        }
        .and_then(|batch| self.recycle(batch, samples));
        if begun.is_err() {
            lock(&self.idle).made -= 1;
        }
        begun
    }

    /// Makes the memory of a batch ready for another.
    fn recycle(&self, mut batch: InFlight, samples: usize) -> Result<InFlight> {
        batch.done.synchronize()?;
        let images = batch.on_hardware;
        if let (Some(hardware), true) = (batch.hardware_mut(), images > 0) {
            hardware.ended().synchronize()?;
            if let Some(time_ms) = hardware.took_ms() {
                self.router.hardware_took(images, time_ms);
            }
        }
        let images = batch.on_device;
        if let Some(time_ms) = batch.decoding_mut().as_ref().filter(|_| images > 0).and_then(Decoding::took_ms) {
            self.router.device_took(images, time_ms);
        }
        // SAFETY: all of its work has just been waited for; allocations live no longer than the call that writes them,
        // but for workers' staging memory, which is of an earlier number and so never written again.
        unsafe { batch.arena.reset() };
        batch.begin(1 + self.numbers.fetch_add(1, Relaxed), samples);
        Ok(batch)
    }

    /// Gives a batch up: waits for whatever of it is under way.
    pub(super) fn abandon_batch(&self, mut batch: InFlight) {
        // Where that fails, the context has, and its work with it: the memory is not used again.
        if self.settle_all(&batch).is_ok() {
            batch.begin(0, 0);
            lock(&self.idle).batches.push_back(batch);
        } else {
            lock(&self.idle).made -= 1;
        }
    }

    /// Waits for all that a batch may have queued.
    fn settle_all(&self, batch: &InFlight) -> Result<()> {
        batch.decoding().iter().try_for_each(|event| event.synchronize())?;
        self.synchronize_streams()
    }

    /// Waits for all that was queued by anybody.
    pub(super) fn synchronize(&self) -> Result<()> {
        lock(&self.workers).iter().try_for_each(Worker::synchronize)?;
        self.synchronize_streams()
    }

    fn synchronize_streams(&self) -> Result<()> {
        if let Some(hardware) = self.hardware() {
            hardware.stream.synchronize()?;
        }
        self.copy.synchronize()?;
        self.compute.synchronize()
    }
}
