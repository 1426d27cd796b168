//! A worker thread's decoders and memory.
#![allow(unsafe_code)]

use super::arena::{Allocation, Arena, StagingWriter};
use super::lower::{DeviceImage, packed_bytes};
use super::nvjpeg::WorkerDecoder;
use crate::backend::Decoded;
use crate::backend::cpu::executor::Executor;
use crate::backend::masks::MaskRunner;
use crate::cuda::driver::{self, Scoped, Stream};
use crate::decode::{DecodeOptions, Decoder, Format, Header, PointMemory, pnm_rows, probe};
use crate::error::Result;
use crate::ops::filter::Taps;
use crate::os::memory;
use crate::raster::{Image, Pixel, Rect};

/// Images above this many pixels free their memory after use: 16 Mpx, 64 MiB.
const KEEP_PX: usize = 16 << 20;

/// A worker thread's decoders and memory, kept from sample to sample.
pub(crate) struct Worker {
    /// Runs the caller's own operations, which have no kernel.
    pub(super) executor: Executor,
    /// Moves masks through such operations.
    pub(super) masks: MaskRunner,
    decoder: Decoder,
    image: Image,
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
    /// Number of images decoded since [`take_decoded`](Self::take_decoded) was called last.
    pub(super) decoded: Decoded,
}

impl Worker {
    pub(super) fn new(nvjpeg: Option<Scoped<WorkerDecoder>>) -> Result<Self> {
        Ok(Self {
            executor: Executor::new()?,
            masks: MaskRunner::default(),
            decoder: Decoder::new()?,
            image: Image::default(),
            row_starts: Vec::new(),
            points: PointMemory::default(),
            taps: Taps::default(),
            staging: StagingWriter::default(),
            staging_of: 0,
            nvjpeg,
            decoded: Decoded::default(),
        })
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
        how: DecodeOptions<'_>,
        arena: &Arena,
        bytes: &[u8],
        header: &Header,
        part: Rect,
    ) -> Result<DeviceImage> {
        let pixels = self.decode(how, bytes, header, part, |len| arena.piece(len))?;
        Ok(DeviceImage { address: pixels.address(), pitch_bytes: 3 * part.width, whole: header.size, part })
    }

    /// Decodes on the CPU an image that another decoder has refused, to that decoder's destination: the pixels of
    /// `part`.
    ///
    /// # Safety
    /// `destination` has room for the pixels, and only work that is queued on `stream` uses it before this returns.
    pub(super) unsafe fn decode_instead(
        &mut self,
        how: DecodeOptions<'_>,
        bytes: &[u8],
        part: Rect,
        destination: u64,
        stream: &Stream,
    ) -> Result<()> {
        let header = probe(bytes)?;
        // Host memory, because the image has its share of the batch's memory already.
        let room = |len| memory::zeros::<u8>(len, "an image", memory::FEWER_IMAGES);
        let pixels = self.decode(how, bytes, &header, part, room)?;
        // SAFETY: this function's contract; the pixels live until the copy has been waited for.
        unsafe { driver::upload(destination, pixels.as_ptr(), pixels.len(), stream)? };
        stream.synchronize()
    }

    /// Decodes `part` on the CPU to memory from `room`: RGB bytes, row by row.
    fn decode<M: Pixels>(
        &mut self,
        how: DecodeOptions<'_>,
        bytes: &[u8],
        header: &Header,
        part: Rect,
        room: impl FnOnce(usize) -> Result<M>,
    ) -> Result<M> {
        let len_bytes = packed_bytes(part.size());
        let mut pixels;
        if header.format == Format::Pnm && header.components == 3 {
            let rows = pnm_rows(bytes, header, part)?;
            pixels = room(len_bytes)?;
            let places = pixels.bytes_mut().chunks_exact_mut(3 * part.width as usize);
            places.zip(rows).for_each(|(to, row)| to.copy_from_slice(row));
        } else {
            self.decoded += self.decoder.decode_with(bytes, header, part, how, &mut self.image)?.into();
            pixels = room(len_bytes)?;
            pack(self.image.pixels(), pixels.bytes_mut());
            self.image.shrink(KEEP_PX);
        }
        self.decoded.cpu += 1;
        Ok(pixels)
    }
}

/// Memory that pixels are decoded to.
trait Pixels {
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl Pixels for Allocation {
    fn bytes_mut(&mut self) -> &mut [u8] {
        Self::bytes_mut(self)
    }
}

impl Pixels for Vec<u8> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Copies pixels without their fourth byte.
fn pack(pixels: &[Pixel], out: &mut [u8]) {
    debug_assert_eq!(out.len(), 3 * pixels.len());
    // Four pixels at a time, because their twelve bytes are three whole words.
    let (fours, rest) = pixels.as_chunks::<4>();
    let (words, _) = out.as_chunks_mut::<12>();
    for (four, out) in fours.iter().zip(words) {
        let [a, b, c, d] = four.map(u32::from_le_bytes);
        let packed = [(a & 0xFF_FFFF) | b << 24, (b >> 8 & 0xFFFF) | c << 16, (c >> 16 & 0xFF) | d << 8];
        for (out, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(packed) {
            *out = word.to_le_bytes();
        }
    }
    for (pixel, out) in rest.iter().zip(out[12 * fours.len()..].as_chunks_mut::<3>().0) {
        *out = [pixel[0], pixel[1], pixel[2]];
    }
}
