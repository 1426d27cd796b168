//! Decodes whole images by nvJPEG, to memory of known bytes, so that unwritten pixels show.
#![allow(unsafe_code)]

use crate::backend::HeldImage;
use crate::backend::cuda::arena::{Arena, StagingWriter};
use crate::backend::cuda::decode::open_nvjpeg;
use crate::backend::cuda::engines::{EngineOptions, EngineParser, Engines, HardwareJob};
use crate::backend::cuda::fatbin;
use crate::backend::cuda::jpeg::{JpegKernels, Planes, Staged};
use crate::backend::cuda::lower::packed_bytes;
use crate::backend::cuda::nvjpeg::WorkerDecoder;
use crate::backend::cuda::route::{Route, Router};
use crate::backend::cuda::streams::once;
use crate::cuda::driver::{self, Context, DeviceMemory, Scoped, Stream};
use crate::decode::{Baseline, Header, probe};
use crate::device::{JpegDecoder, StreamPriority};
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use std::sync::Arc;

/// An encoded image, and the size in its header.
pub type Whole = (Arc<[u8]>, Size);

/// One of nvJPEG's decoders on a device.
pub struct WholeDecoder {
    route: Route,
    router: Router,
    worker: Option<Scoped<WorkerDecoder>>,
    parser: Option<Scoped<EngineParser>>,
    engines: Option<Engines>,
    /// The kernels that convert planes, if planes are decoded.
    kernels: Option<JpegKernels>,
    /// The stream for copies.
    stream: Stream,
    context: Context,
}

impl WholeDecoder {
    /// The decoder of `path`, which is [`JpegDecoder::Hybrid`] or [`JpegDecoder::Hardware`].
    ///
    /// # Errors
    /// [`Error::Device`] if the device has no such decoder, or nvJPEG is missing.
    pub fn open(ordinal: u32, path: JpegDecoder) -> Result<Self> {
        let route = match path {
            JpegDecoder::Hybrid => Route::Hybrid,
            JpegDecoder::Hardware => Route::Hardware,
            _ => return Err(Error::parameter("WholeDecoder", "path", "Hybrid or Hardware", format!("{path:?}"))),
        };
        let context = driver::context(ordinal)?;
        let _entered = driver::enter(&context)?;
        let priority = StreamPriority::default();
        let (nvjpeg, engines) = open_nvjpeg(&context, path, priority)?;
        engines.as_ref().map_or(Ok(()), Engines::wait_until_open)?;
        let router = Router::new(path, 1.0, 1);
        let worker = nvjpeg.map(|nvjpeg| nvjpeg.worker(&context)).transpose()?;
        let (parser, stream) = (engines.as_ref().and_then(Engines::parser), Stream::new(&context, priority)?);
        Ok(Self { route, router, worker, parser, engines, kernels: None, stream, context })
    }

    /// The engines, which decode planes that this crate's kernels convert to RGB as libjpeg does.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_planes(ordinal: u32) -> Result<Self> {
        let mut decoder = Self::open(ordinal, JpegDecoder::Hardware)?;
        let _entered = driver::enter(&decoder.context)?;
        // The parser's handle is that of the engines.
        (decoder.parser, decoder.engines) = (None, None);
        let options = EngineOptions { planes: true, ..EngineOptions::default() };
        let engines = Engines::open(&decoder.context, nvjpeg::Library::load()?, options)?;
        engines.wait_until_open()?;
        decoder.kernels = Some(JpegKernels::new(&fatbin::module(&decoder.context)?)?);
        (decoder.parser, decoder.engines) = (engines.parser(), Some(engines));
        Ok(decoder)
    }

    /// Whether pipelines give the decoder images with this header.
    pub fn takes(&self, header: &Header) -> bool {
        self.router.route(header, 0, true) == self.route
    }

    /// Decodes images together. Each one's memory is filled with `poison` before. Returns their pixels, three bytes
    /// each; `None` for an image that is refused.
    ///
    /// # Synchronization
    /// All work is done when this returns.
    pub fn decode(&mut self, images: &[Whole], poison: u8) -> Result<Vec<Option<Vec<u8>>>> {
        let _entered = driver::enter(&self.context)?;
        let memory = images.iter().map(|(_, size)| DeviceMemory::new(&self.context, packed_bytes(*size)));
        let memory = memory.collect::<Result<Vec<_>>>()?;
        memory.iter().try_for_each(|memory| self.fill(memory, poison))?;
        let taken = match self.route {
            Route::Hardware => self.by_hardware(images, &memory)?,
            _ => self.by_hybrid(images, &memory)?,
        };
        memory.iter().zip(taken).map(|(memory, taken)| taken.then(|| self.bytes(memory)).transpose()).collect()
    }

    /// Returns for each image whether the hybrid decoder has decoded it.
    fn by_hybrid(&mut self, images: &[Whole], memory: &[DeviceMemory]) -> Result<Vec<bool>> {
        let mut taken = Vec::with_capacity(images.len());
        let Some(worker) = &mut self.worker else { return Ok(vec![false; images.len()]) };
        for ((bytes, size), memory) in images.iter().zip(memory) {
            let encoded = HeldImage::shared(Arc::clone(bytes));
            taken.push(worker.decode(encoded, memory.address(), (*size, Rect::full(*size))).is_ok());
        }
        worker.synchronize()?;
        Ok(taken)
    }

    /// Returns for each image whether the hardware decoder has decoded it.
    fn by_hardware(&mut self, images: &[Whole], memory: &[DeviceMemory]) -> Result<Vec<bool>> {
        let mut taken = vec![false; images.len()];
        let (Some(engines), Some(parser)) = (&self.engines, &mut self.parser) else { return Ok(taken) };
        let (mut arena, tracker) = (Arena::new(&self.context, usize::MAX, true), engines.tracker()?);
        let (mut described, mut places_of) = (Vec::new(), Vec::new());
        for (place, (bytes, size)) in images.iter().enumerate() {
            let header = probe(bytes)?;
            if !parser.takes(bytes, &header) {
                continue;
            }
            let (encoded, mut destination, luma) = (arena.hold(bytes)?, memory[place].address(), header.sampling[0]);
            let mut places = [(0, 0); 3];
            if self.kernels.is_some()
                && let Ok(image) = Baseline::new(bytes, &header)
            {
                let planes = Planes::new(&image, Rect::full(*size));
                (destination, places) = (arena.scratch(planes.len_bytes)?, planes.places);
                described.push(planes.at(destination, memory[place].address()));
                places_of.push(place);
            }
            engines.queue(&tracker, place, HardwareJob { encoded, destination, planes: places, size: *size, luma });
            taken[place] = true;
        }
        let outcome = tracker.wait();
        engines.synchronize()?;
        outcome?.1.into_iter().for_each(|(place, _)| taken[place] = false);
        if let Some(kernels) = &self.kernels {
            // Planes of refused images were not written.
            let mut places = places_of.into_iter();
            described.retain(|_| places.next().is_some_and(|place| taken[place]));
            let staged = Staged::new(described, &arena, &mut StagingWriter::default())?;
            // SAFETY: nothing is written to the arena any more, which lives until the stream has been waited for.
            unsafe { arena.upload(&self.stream, once)? };
            // SAFETY: the same stream has filled the arena; the planes are complete, and the images have their memory.
            unsafe { staged.convert(kernels, &self.stream)? };
            self.stream.synchronize()?;
        }
        arena.idle();
        Ok(taken)
    }

    fn fill(&self, memory: &DeviceMemory, value: u8) -> Result<()> {
        let bytes = vec![value; memory.len_bytes()];
        // SAFETY: both are as long as the bytes, nothing else uses the memory, and the copy is waited for.
        unsafe { driver::upload(memory.address(), bytes.as_ptr(), bytes.len(), &self.stream)? };
        self.stream.synchronize()
    }

    fn bytes(&self, memory: &DeviceMemory) -> Result<Vec<u8>> {
        let mut bytes = vec![0; memory.len_bytes()];
        // SAFETY: the memory is as long as the bytes, and the work that wrote it has been waited for.
        unsafe { driver::download(&mut bytes, memory.address(), &self.stream)? };
        Ok(bytes)
    }
}
