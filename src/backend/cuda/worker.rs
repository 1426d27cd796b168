//! A worker thread's decoders and memory.
#![allow(unsafe_code)]

use super::arena::{Arena, StagingWriter};
use super::engines::EngineParser;
use super::lower::DeviceImage;
use super::nvjpeg::WorkerDecoder;
use crate::backend::{Decoded, Executor, Job};
use crate::cuda::driver::{self, Scoped, Stream};
use crate::decode::{DecodeOptions, Input, PointMemory, probe};
use crate::error::Result;
use crate::ops::filter::Taps;
use crate::os::memory;
use crate::raster::Rect;

/// A worker thread's memory for the device, kept from sample to sample.
pub(crate) struct Worker {
    /// The starts of the rows of an image that has an index of them.
    pub(super) row_starts: Vec<usize>,
    /// The known places of an image.
    pub(super) points: PointMemory,
    pub(super) taps: Taps,
    /// Staging memory for small tables.
    pub(super) staging: StagingWriter,
    /// The number of the batch that the staging memory belongs to.
    pub(super) staging_of: u64,
    pub(super) nvjpeg: Option<Scoped<WorkerDecoder>>,
    /// Parses images for the engines, if the pipeline uses them.
    pub(super) engines: Option<Scoped<EngineParser>>,
    /// Number of images decoded since [`take_decoded`](Self::take_decoded) was called last.
    pub(super) decoded: Decoded,
}

impl Worker {
    pub(super) fn new(nvjpeg: Option<Scoped<WorkerDecoder>>, engines: Option<Scoped<EngineParser>>) -> Self {
        Self {
            row_starts: Vec::new(),
            points: PointMemory::default(),
            taps: Taps::default(),
            staging: StagingWriter::default(),
            staging_of: 0,
            nvjpeg,
            engines,
            decoded: Decoded::default(),
        }
    }

    /// Returns and resets the counts of decoded images.
    pub(super) fn take_decoded(&mut self) -> Decoded {
        std::mem::take(&mut self.decoded)
    }

    /// Waits for the work that its decoder has queued.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.nvjpeg.as_ref().map_or(Ok(()), |nvjpeg| nvjpeg.synchronize())
    }

    /// Decodes `part` on the CPU to a batch's staging memory.
    pub(super) fn decode_to_staging(
        &mut self,
        host: &mut Executor,
        arena: &Arena,
        job: &Job<'_>,
        part: Rect,
    ) -> Result<DeviceImage> {
        let (pixels, decoded) = host.decode_to_rgb(job, part, |len| arena.piece(len))?;
        self.decoded += decoded;
        Ok(DeviceImage { address: pixels.address(), pitch_bytes: 3 * part.width, whole: job.header.size, part })
    }

    /// Decodes on the CPU an image that another decoder has refused, to that decoder's destination: the pixels of
    /// `part`.
    ///
    /// # Safety
    /// `destination` has room for the pixels, and only work that is queued on `stream` uses it before this returns.
    pub(super) unsafe fn decode_instead(
        &mut self,
        host: &mut Executor,
        (bytes, how): (&[u8], DecodeOptions<'_>),
        part: Rect,
        destination: u64,
        stream: &Stream,
    ) -> Result<()> {
        let job = Job { image: Input::Encoded(bytes), header: &probe(bytes)?, how };
        // Host memory, because the image has its share of the batch's memory already.
        let room = |len| memory::zeros::<u8>(len, "an image", memory::FEWER_IMAGES);
        let (pixels, decoded) = host.decode_to_rgb(&job, part, room)?;
        self.decoded += decoded;
        // SAFETY: this function's contract; the pixels live until the copy has been waited for.
        unsafe { driver::upload(destination, pixels.as_ptr(), pixels.len(), stream)? };
        stream.synchronize()
    }
}
