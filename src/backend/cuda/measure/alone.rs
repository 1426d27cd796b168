//! Batches that the device only decodes, to measure the decoder.
#![allow(unsafe_code)]

use crate::backend::cuda::arena::{Arena, CHUNK_BYTES, StagingWriter};
use crate::backend::cuda::jpeg::{JpegKernels, Lowered, Staged};
use crate::backend::cuda::streams::once;
use crate::cuda::driver::{self, Context, Event, Stream};
use crate::decode::{Baseline, DecodeWindow, DevicePoints, PointMemory, probe};
use crate::error::{Error, Result};
use crate::raster::Rect;

/// Bytes reserved for tables, descriptors and status.
const SPARED_BYTES: usize = 8 * CHUNK_BYTES;

/// A reused batch. The host does the work of a pipeline: it parses headers and copies data to staging memory.
pub(super) struct Alone {
    arena: Arena,
    /// Address of the images' status.
    status: u64,
    images: usize,
    row_starts: Vec<usize>,
    done: Event,
}

impl Alone {
    /// A batch that takes at most `limit_bytes` of device memory.
    pub(super) fn new(context: &Context, limit_bytes: usize) -> Result<Self> {
        Ok(Self {
            arena: Arena::new(context, limit_bytes, true),
            status: 0,
            images: 0,
            row_starts: Vec::new(),
            done: Event::new(context)?,
        })
    }

    /// Waits for the images of the last call. Returns their number.
    pub(super) fn finish(&mut self) -> Result<usize> {
        self.done.synchronize()?;
        Ok(std::mem::take(&mut self.images))
    }

    /// Waits for the images of the last call. Returns the number of those that the device does not flag.
    pub(super) fn take_good(&mut self, stream: &Stream) -> Result<usize> {
        let mut words = vec![0; 4 * self.finish()?];
        // SAFETY: there is a word for each image, and nothing else uses the words.
        unsafe { driver::download(&mut words, self.status, stream)? };
        let is_good = |word: &&[u8]| word.iter().all(|&byte| byte == 0);
        Ok(words.chunks_exact(4).filter(is_good).count())
    }

    /// Queues the decoding of rectangles of images on `stream`: of those that the device can decode, as many as there
    /// is memory for.
    ///
    /// # Safety
    /// This is dropped only after the stream is done.
    pub(super) unsafe fn decode(
        &mut self,
        kernels: &JpegKernels,
        images: &[(&[u8], Rect)],
        stream: &Stream,
    ) -> Result<()> {
        self.finish()?;
        // SAFETY: the last call's work has been waited for, and its pieces are dropped.
        unsafe { self.arena.reset() };
        let mut staging = StagingWriter::default();
        let (mut lowered, nothing) = (Vec::new(), PointMemory::default());
        for (bytes, part) in images {
            let header = probe(bytes)?;
            let Ok(image) = Baseline::new(bytes, &header) else { continue };
            let window = DecodeWindow::new(&image, bytes, &header, *part, &mut self.row_starts);
            let one = Lowered::new(&image, *part, &window, (&DevicePoints::Nothing, &nothing));
            let placed = self.arena.scratch_sparing(one.len_bytes, one.data.len() + SPARED_BYTES).and_then(|memory| {
                let data = self.arena.copy_of(&bytes[one.data.clone()])?;
                one.place(&self.arena, &mut staging, memory, data)
            });
            match placed {
                Err(Error::OutOfDeviceMemory { .. }) if !lowered.is_empty() => break,
                placed => lowered.push(placed?),
            }
        }
        let staged = Staged::new(lowered, &self.arena, &mut staging)?;
        (self.status, self.images) = (staged.status(), staged.len());
        // SAFETY: nothing in the arena is written any more, and it is reset only after the event has been waited for.
        unsafe { self.arena.upload(stream, once)? };
        // SAFETY: the images and all memory that they point to lie in the arena, which the same stream has filled
        // before.
        unsafe {
            staged.judge(kernels, stream)?;
            staged.make(kernels, stream)?;
        }
        self.done.record(stream)
    }
}
