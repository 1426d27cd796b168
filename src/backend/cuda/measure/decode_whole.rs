//! Decodes whole images by nvJPEG, to memory of known bytes, so that unwritten pixels show.
#![allow(unsafe_code)]

use crate::backend::HeldImage;
use crate::backend::cuda::arena::Arena;
use crate::backend::cuda::lower::packed_bytes;
use crate::backend::cuda::nvjpeg::{HardwareBatch, HardwareJob, Nvjpeg, WorkerDecoder};
use crate::backend::cuda::route::{Route, Router};
use crate::cuda::driver::{self, Context, DeviceMemory, Scoped, Stream};
use crate::decode::Header;
use crate::device::{JpegDecoder, StreamPriority};
use crate::error::{Error, Result};
use crate::raster::Size;
use std::sync::Arc;

/// An encoded image, and the size in its header.
pub type Whole = (Arc<[u8]>, Size);

/// One of nvJPEG's decoders on a device.
pub struct WholeDecoder {
    route: Route,
    router: Router,
    worker: Scoped<WorkerDecoder>,
    hardware: Option<Scoped<HardwareBatch>>,
    nvjpeg: Scoped<Nvjpeg>,
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
        let none = || Error::Device { call: "open nvJPEG".to_owned(), message: format!("no {path:?} decoder") };
        let _entered = driver::enter(&context)?;
        let priority = StreamPriority::default();
        let nvjpeg = Nvjpeg::open(&context, path, priority)?.ok_or_else(none)?;
        let hardware = nvjpeg.hardware.as_ref().map(|hardware| hardware.batch(&context)).transpose()?;
        let router = Router::new(path, 1);
        let (worker, stream) = (nvjpeg.worker(&context)?, Stream::new(&context, priority)?);
        Ok(Self { route, router, worker, hardware, nvjpeg, stream, context })
    }

    /// Whether pipelines give the decoder images with this header.
    pub fn takes(&self, header: &Header) -> bool {
        self.router.route(header, true) == self.route
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
            Route::Hardware => self.by_hardware(images, &memory, poison)?,
            _ => self.by_hybrid(images, &memory)?,
        };
        memory.iter().zip(taken).map(|(memory, taken)| taken.then(|| self.bytes(memory)).transpose()).collect()
    }

    /// Returns for each image whether the hybrid decoder has decoded it.
    fn by_hybrid(&mut self, images: &[Whole], memory: &[DeviceMemory]) -> Result<Vec<bool>> {
        let mut taken = Vec::with_capacity(images.len());
        for ((bytes, size), memory) in images.iter().zip(memory) {
            let encoded = HeldImage::shared(Arc::clone(bytes));
            taken.push(self.worker.decode(encoded, memory.address(), *size).is_ok());
        }
        self.worker.synchronize()?;
        Ok(taken)
    }

    /// Returns for each image whether the hardware decoder has decoded it: in one batch or, if the batch is refused,
    /// one by one.
    fn by_hardware(&mut self, images: &[Whole], memory: &[DeviceMemory], poison: u8) -> Result<Vec<bool>> {
        let arena = Arena::new(&self.context, 0, true);
        let mut jobs = Vec::with_capacity(images.len());
        for (place, (bytes, size)) in images.iter().enumerate() {
            if self.worker.is_for_hardware(bytes, *size) {
                let (encoded, destination) = (arena.hold(bytes)?, memory[place].address());
                jobs.push((place, HardwareJob { encoded, destination, size: *size }));
            }
        }
        let mut taken = vec![false; images.len()];
        let together: Vec<&HardwareJob> = jobs.iter().map(|(_, job)| job).collect();
        if self.batch(&together)? {
            jobs.iter().for_each(|(place, _)| taken[*place] = true);
            return Ok(taken);
        }
        for (place, job) in &jobs {
            self.fill(&memory[*place], poison)?;
            taken[*place] = self.batch(&[job])?;
        }
        Ok(taken)
    }

    /// Whether the hardware decoder has decoded these images. It is waited for in any case.
    fn batch(&mut self, jobs: &[&HardwareJob]) -> Result<bool> {
        let (Some(hardware), Some(batch)) = (&self.nvjpeg.hardware, &mut self.hardware) else { return Ok(false) };
        if jobs.is_empty() {
            return Ok(true);
        }
        // SAFETY: this state's last batch was waited for below, and so is this one, during which the jobs live.
        let queued = unsafe { batch.decode(hardware, jobs) };
        hardware.stream.synchronize()?;
        Ok(queued.is_ok())
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
