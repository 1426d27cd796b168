//! A worker thread's decoders and memory.

use super::arena::StagingWriter;
use super::nvjpeg::WorkerDecoder;
use crate::backend::Decoded;
use crate::backend::cpu::executor::Executor;
use crate::cuda::driver::Scoped;
use crate::decode::Decoder;
use crate::error::Result;
use crate::ops::filter::Taps;
use crate::raster::Image;

/// A worker thread's decoders and memory, kept over samples.
pub(crate) struct Worker {
    /// For operations of the caller's own, which have no kernel.
    pub(super) executor: Executor,
    pub(super) decoder: Decoder,
    pub(super) image: Image,
    /// Of an image with an index of its rows: where they start.
    pub(super) row_starts: Vec<usize>,
    pub(super) taps: Taps,
    /// Staging memory for small tables.
    pub(super) staging: StagingWriter,
    /// The number of the batch that the staging memory is of.
    pub(super) staging_of: u64,
    pub(super) nvjpeg: Option<Scoped<WorkerDecoder>>,
    /// What was decoded since it was asked last.
    pub(super) decoded: Decoded,
}

impl Worker {
    pub(super) fn new(nvjpeg: Option<Scoped<WorkerDecoder>>) -> Result<Self> {
        Ok(Self {
            executor: Executor::new()?,
            decoder: Decoder::new()?,
            image: Image::default(),
            row_starts: Vec::new(),
            taps: Taps::default(),
            staging: StagingWriter::default(),
            staging_of: 0,
            nvjpeg,
            decoded: Decoded::default(),
        })
    }

    /// What the decoders have decoded since this was asked last.
    pub(super) fn take_decoded(&mut self) -> Decoded {
        std::mem::take(&mut self.decoded)
    }

    /// Waits for what its decoder has queued.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.nvjpeg.as_ref().map_or(Ok(()), |nvjpeg| nvjpeg.synchronize())
    }
}
