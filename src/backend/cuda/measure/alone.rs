//! Batches of images that the device decodes when nothing is done with their pixels: its speed alone.
#![allow(unsafe_code)]

use crate::backend::cuda::arena::{Arena, CHUNK_BYTES, StagingWriter};
use crate::backend::cuda::jpeg::{JpegKernels, Lowered, Staged};
use crate::backend::cuda::streams::once;
use crate::cuda::driver::{self, Context, Event, Stream};
use crate::decode::{Baseline, probe};
use crate::error::{Error, Result};
use crate::raster::Rect;

/// For tables, descriptors and status.
const SPARED_BYTES: usize = 8 * CHUNK_BYTES;

/// A batch that is used again and again. Its host work is a pipeline's: headers are parsed, data are copied to staging memory
/// and sent.
pub(super) struct Alone {
    arena: Arena,
    /// Where the images' status is.
    status: u64,
    images: usize,
    row_starts: Vec<usize>,
    done: Event,
}

impl Alone {
    /// One that takes at most `limit_bytes` of the device's memory.
    pub(super) fn new(context: &Context, limit_bytes: usize) -> Result<Self> {
        Ok(Self {
            arena: Arena::new(context, limit_bytes, true),
            status: 0,
            images: 0,
            row_starts: Vec::new(),
            done: Event::new(context)?,
        })
    }

    /// Waits for the last call's images; how many they were.
    pub(super) fn finish(&mut self) -> Result<usize> {
        self.done.synchronize()?;
        Ok(std::mem::take(&mut self.images))
    }

    /// Waits for the last call's images; how many of them the device does not flag.
    pub(super) fn take_good(&mut self, stream: &Stream) -> Result<usize> {
        let mut words = vec![0; 4 * self.finish()?];
        // SAFETY: there is a word for each image, and nothing else uses them.
        unsafe { driver::download(&mut words, self.status, stream)? };
        let is_good = |word: &&[u8]| word.iter().all(|&byte| byte == 0);
        Ok(words.chunks_exact(4).filter(is_good).count())
    }

    /// Queues the decoding of rectangles of images, behind what was queued on `stream`: of those that are for the device, as
    /// many as have room.
    ///
    /// # Safety
    /// This is dropped only when the stream is done.
    pub(super) unsafe fn decode(
        &mut self,
        kernels: &JpegKernels,
        images: &[(&[u8], Rect)],
        stream: &Stream,
    ) -> Result<()> {
        self.finish()?;
        // SAFETY: the last call's work has been waited for, and its pieces are gone.
        unsafe { self.arena.reset() };
        let mut staging = StagingWriter::default();
        let mut lowered = Vec::new();
        for (bytes, part) in images {
            let header = probe(bytes)?;
            let Ok(image) = Baseline::new(bytes, &header) else { continue };
            let one = Lowered::new(&image, bytes, &header, *part, &mut self.row_starts);
            let placed = self
                .arena
                .scratch_sparing(one.len_bytes, one.data.len() + SPARED_BYTES)
                .and_then(|memory| one.place(&self.arena, &mut staging, memory));
            match placed {
                Err(Error::OutOfDeviceMemory { .. }) if !lowered.is_empty() => break,
                placed => lowered.push(placed?),
            }
        }
        let staged = Staged::new(lowered, &self.arena, &mut staging)?;
        (self.status, self.images) = (staged.status(), staged.len());
        // SAFETY: nothing of the arena is written any more, and it is reset when the event has been waited for.
        unsafe { self.arena.upload(stream, once)? };
        // SAFETY: the images and all that they point to lie in the arena, which the same stream has filled before.
        unsafe {
            staged.judge(kernels, stream)?;
            staged.make(kernels, stream)?;
        }
        self.done.record(stream)
    }
}
