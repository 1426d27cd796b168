//! A worker thread's decoders and memory, and the buffers that encoded bytes are read into.

use super::arena::StagingWriter;
use super::driver;
use super::gpu::Gpu;
use super::nvjpeg::HybridDecoder;
use crate::backend::Decoded;
use crate::backend::cpu::executor::Executor;
use crate::decode::Decoder;
use crate::error::Result;
use crate::ops::filter::Taps;
use crate::raster::Image;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Buffers for encoded bytes above this are given back after use.
const KEEP_ENCODED_BYTES: usize = 4 << 20;

/// A worker thread's decoders and memory, kept over samples.
pub(crate) struct Worker {
    /// For operations of the caller's own, which have no kernel.
    pub(super) executor: Executor,
    pub(super) decoder: Decoder,
    pub(super) image: Image,
    pub(super) taps: Taps,
    /// Staging memory for small tables.
    pub(super) staging: StagingWriter,
    /// The number of the batch that the staging memory is of.
    pub(super) staging_of: u64,
    pub(super) hybrid: Option<HybridDecoder>,
    /// What was decoded since it was asked last.
    pub(super) decoded: Decoded,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// Takes up the work of a thread, on the thread itself.
    pub(super) fn take_worker(&self) -> Result<Worker> {
        driver::bind(&self.context)?;
        if let Some(worker) = lock(&self.workers).pop() {
            return Ok(worker);
        }
        let hybrid = self.nvjpeg.as_ref().map(|nvjpeg| nvjpeg.hybrid_decoder(&self.context)).transpose()?;
        Ok(Worker {
            executor: Executor::new()?,
            decoder: Decoder::new()?,
            image: Image::default(),
            taps: Taps::default(),
            staging: StagingWriter::default(),
            staging_of: 0,
            hybrid,
            decoded: Decoded::default(),
        })
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
}

impl Worker {
    /// What the decoders have decoded since this was asked last.
    pub(super) fn take_decoded(&mut self) -> Decoded {
        std::mem::take(&mut self.decoded)
    }

    /// Waits for what its decoder has queued.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.hybrid.as_ref().map_or(Ok(()), HybridDecoder::synchronize)
    }
}
