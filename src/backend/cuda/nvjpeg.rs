//! nvJPEG's hybrid decoder of each worker, and hardware decoder.
#![allow(unsafe_code)]

use super::arena::Held;
use super::lock;
use crate::backend::HeldImage;
use crate::cuda::driver::{self, Context, Event, Scoped, Stream};
use crate::device::{JpegDecoder, StreamPriority};
use crate::error::{Error, Result};
use crate::raster::Size;
use nvjpeg::{
    Backend, BatchState, DecodeParams, Decoder, DecoderState, DeviceBuffer, Flags, Handle, Image, Jpeg, JpegStream,
    Library, PinnedBuffer,
};
use std::sync::{Arc, Mutex};

/// Number of images that a worker has on the device while it decodes the next one's Huffman codes.
pub(super) const RING: usize = 3;
/// For images with more pixels, the device also decodes Huffman codes. DALI has the same threshold
/// (`hybrid_huffman_threshold`).
const GPU_HYBRID_PX: u64 = 1_000_000;
/// Memory is reserved for at most this many times the pixels of the batch.
const MOST_RESERVED: u64 = 8;
/// Largest number of pixels for which a slot reserves memory.
const MOST_RESERVED_PX: usize = 4 << 20;

impl From<nvjpeg::Error> for Error {
    fn from(error: nvjpeg::Error) -> Self {
        match &error {
            nvjpeg::Error::Status { call, status } => Self::Device {
                call: (*call).to_owned(),
                message: format!("{} ({}): {}", status.name(), status.code(), status.meaning()),
            },
            _ => Self::Device { call: "load nvJPEG".to_owned(), message: error.to_string() },
        }
    }
}

/// nvJPEG on one device.
pub(super) struct Nvjpeg {
    handle: Handle,
    decoders: Decoders,
    pub(super) hardware: Option<HardwareDecoder>,
    /// The priority of all streams.
    priority: StreamPriority,
}

/// The decoders of single images.
#[derive(Clone)]
struct Decoders {
    /// Decodes Huffman codes on the host.
    hybrid: Decoder,
    /// Decodes Huffman codes on the device, if nvJPEG can.
    gpu_hybrid: Option<Decoder>,
}

/// The device's hardware decoder.
pub(super) struct HardwareDecoder {
    handle: Handle,
    pub(super) stream: Stream,
    /// Held by the thread that queues a batch: batches that are finished at the same time are queued one after the
    /// other, each between its own events.
    turn: Mutex<()>,
}

impl Nvjpeg {
    /// Opens nvJPEG for `path`; `None` if the path does not use it.
    ///
    /// # Errors
    /// [`Error::Device`] that names the missing part.
    pub(super) fn open(context: &Context, path: JpegDecoder, priority: StreamPriority) -> Result<Option<Scoped<Self>>> {
        let has_hardware = match path {
            JpegDecoder::Auto | JpegDecoder::Device | JpegDecoder::Cpu => return Ok(None),
            JpegDecoder::Hybrid => false,
            JpegDecoder::Hardware => true,
        };
        let _entered = driver::enter(context)?;
        let library = Library::load()?;
        // Chroma is interpolated as in libjpeg. Before CUDA 12.1 this flag did not exist.
        let handle = Handle::new(&library, Backend::Default, Flags::UPSAMPLING_WITH_INTERPOLATION)
            .or_else(|_| Handle::new(&library, Backend::Default, Flags::NONE))?;
        let hybrid = Decoder::new(&handle, Backend::Hybrid)?;
        let gpu_hybrid = Decoder::new(&handle, Backend::GpuHybrid).ok();
        let hardware = has_hardware.then(|| HardwareDecoder::open(context, &library, priority)).transpose()?;
        let nvjpeg = Self { handle, decoders: Decoders { hybrid, gpu_hybrid }, hardware, priority };
        Ok(Some(Scoped::new(context, nvjpeg)))
    }

    /// Makes the decoders of one worker.
    pub(super) fn worker(&self, context: &Context) -> Result<Scoped<WorkerDecoder>> {
        let hardware = self.hardware.as_ref().map(|hardware| JpegStream::new(&hardware.handle)).transpose()?;
        let decoder = WorkerDecoder {
            slots: (0..RING).map(|_| None).collect(),
            next: 0,
            hardware,
            handle: self.handle.clone(),
            decoders: self.decoders.clone(),
            queued: Arc::new(Event::new(context)?),
            stream: Stream::new(context, self.priority)?,
            context: Arc::clone(context),
        };
        Ok(Scoped::new(context, decoder))
    }
}

impl HardwareDecoder {
    fn open(context: &Context, library: &Library, priority: StreamPriority) -> Result<Self> {
        let handle = Handle::new(library, Backend::Hardware, Flags::UPSAMPLING_WITH_INTERPOLATION)
            .or_else(|_| Handle::new(library, Backend::Hardware, Flags::NONE))
            .map_err(|error| {
                let reason = nvjpeg::probe_nvcuvid().err().map_or_else(
                    || "this device may have none".to_owned(),
                    |_| "libnvcuvid.so.1 is missing: a container needs the driver capability `video`".to_owned(),
                );
                Error::Device { call: "open the hardware decoder".to_owned(), message: format!("{error}; {reason}") }
            })?;
        // Versions before CUDA 11.8 cannot tell the number of engines; they only refuse.
        if handle.hardware_decoders().is_ok_and(|found| found.engines == 0) {
            let message = "this device has none: use --jpeg-decoder auto".to_owned();
            return Err(Error::Device { call: "open the hardware decoder".to_owned(), message });
        }
        Ok(Self { handle, stream: Stream::new(context, priority)?, turn: Mutex::default() })
    }

    /// Makes the state of a batch in the hardware decoder.
    pub(super) fn batch(&self, context: &Context) -> Result<Scoped<HardwareBatch>> {
        let state = BatchState::new(&self.handle)?;
        let (ended, none) = (Event::new(context)?, Size::new(0, 0));
        Ok(Scoped::new(context, HardwareBatch { state, initialized: 0, reserved: (0, none), ended }))
    }
}

/// An image for the hardware decoder.
pub(super) struct HardwareJob {
    pub(super) encoded: Held,
    /// Device memory for the whole image, without gaps between rows. The host knows it to be idle, because Hopper's
    /// hardware decoder does not wait for work queued earlier.
    pub(super) destination: u64,
    pub(super) size: Size,
}

/// The state of one in-flight batch in the hardware decoder.
pub(super) struct HardwareBatch {
    state: BatchState,
    initialized: usize,
    /// The number and size of images that nvJPEG has reserved memory for.
    reserved: (usize, Size),
    ended: Event,
}

impl HardwareBatch {
    /// Queues the decoding of `jobs` on the hardware decoder's stream.
    ///
    /// # Safety
    /// No earlier batch of this state is running. The jobs stay unchanged until the work is done.
    pub(super) unsafe fn decode(&mut self, hardware: &HardwareDecoder, jobs: &[&HardwareJob]) -> Result<()> {
        let encoded: Vec<&[u8]> = jobs.iter().map(|job| job.encoded.bytes()).collect();
        let images: Vec<Image> = jobs
            .iter()
            .map(|job| Image::interleaved(job.destination as *mut u8, 3 * job.size.width as usize))
            .collect();
        let _turn = lock(&hardware.turn);
        // SAFETY: no batch is running, by contract.
        unsafe { self.reserve(jobs)? };
        // SAFETY: destinations are as large as the images are by their headers, which nvJPEG itself has read
        // (`WorkerDecoder::is_for_hardware`). They are idle and do not overlap. The rest is the contract.
        let queued = unsafe { self.state.decode(&encoded, &images, hardware.stream.raw().cast()) };
        self.ended.record(&hardware.stream)?;
        if queued.is_err() {
            self.initialized = 0;
        }
        Ok(queued?)
    }

    /// Prepares the state for a batch and reserves memory for its images. Memory that nvJPEG allocates while it decodes
    /// makes the device wait.
    ///
    /// # Safety
    /// No earlier batch of this state is running.
    unsafe fn reserve(&mut self, jobs: &[&HardwareJob]) -> Result<()> {
        if self.initialized != jobs.len() {
            self.initialized = 0;
            // SAFETY: no batch is running, by contract.
            unsafe { self.state.initialize(jobs.len(), 1)? };
            self.initialized = jobs.len();
        }
        let most = |side: fn(&Size) -> u32| jobs.iter().map(|job| side(&job.size)).max().unwrap_or(1);
        let (width, height) = (most(|size| size.width), most(|size| size.height));
        let (images, size) = self.reserved;
        if jobs.len() > images || width > size.width || height > size.height {
            // Half as wide and high again, so that slightly larger images need no new memory.
            let roomy = |side: u32, had: u32| had.max(side.saturating_add(side / 2));
            let size = Size::new(roomy(width, size.width), roomy(height, size.height));
            let images = jobs.len().max(images);
            self.reserved = (images, size);
            let pixels: u64 = jobs.iter().map(|job| job.size.area_px()).sum();
            // Nothing is reserved if a few images are much larger than the others. Then, or if reserving fails,
            // decoding allocates memory as it needs it.
            if size.area_px().saturating_mul(images as u64) <= MOST_RESERVED.saturating_mul(pixels) {
                // SAFETY: no batch is running, by contract.
                let _ = unsafe { self.state.preallocate(images, size.width, size.height) };
            }
        }
        Ok(())
    }

    /// The event after the batch.
    pub(super) fn ended(&self) -> &Event {
        &self.ended
    }
}

/// One worker's part of nvJPEG: its hybrid decoder, and the parser for the hardware decoder.
pub(super) struct WorkerDecoder {
    slots: Vec<Option<Slot>>,
    next: usize,
    /// Parses images for the hardware decoder, if there is one.
    hardware: Option<JpegStream>,
    handle: Handle,
    decoders: Decoders,
    /// Passes when all work queued on the stream is done.
    queued: Arc<Event>,
    stream: Stream,
    context: Context,
}

/// The state and buffers of one image on the device.
struct Slot {
    hybrid: DecoderState,
    gpu_hybrid: Option<DecoderState>,
    /// Whether the buffers are attached to the state of the GPU's hybrid decoder.
    on_gpu: bool,
    parser: JpegStream,
    params: DecodeParams,
    encoded: Option<HeldImage>,
    done: Event,
}

impl Slot {
    /// A slot with memory for images of this size and somewhat larger ones. Memory that nvJPEG allocates while it
    /// decodes makes the device wait.
    fn new(decoder: &WorkerDecoder, size: Size) -> Result<Self> {
        let WorkerDecoder { handle, decoders, stream, context, .. } = decoder;
        let (mut pinned, mut device) = (PinnedBuffer::new(handle)?, DeviceBuffer::new(handle)?);
        let pixels = (size.area_px() as usize).next_power_of_two().min(MOST_RESERVED_PX);
        let raw = stream.raw().cast();
        // Memory for coefficients of 16 bits and, on the device, the planes that are made of them. If it is refused, or
        // nvJPEG is older than CUDA 12.3, the buffers grow as images need it.
        // SAFETY: the stream is alive, and nothing uses the buffers yet.
        let _ = unsafe { pinned.reserve(6 * pixels, raw).and_then(|()| device.reserve(9 * pixels, raw)) };
        let mut hybrid = DecoderState::new(&decoders.hybrid)?;
        hybrid.attach_pinned(pinned)?;
        hybrid.attach_device(device)?;
        let gpu_hybrid = decoders.gpu_hybrid.as_ref().map(DecoderState::new).transpose()?;
        let params = DecodeParams::new(handle)?;
        let (parser, done) = (JpegStream::new(handle)?, Event::new(context)?);
        Ok(Self { hybrid, gpu_hybrid, on_gpu: false, parser, params, encoded: None, done })
    }
}

/// The decoder state for an image, with the slot's buffers attached.
fn state<'a>(
    hybrid: &'a mut DecoderState,
    gpu_hybrid: Option<&'a mut DecoderState>,
    on_gpu: &mut bool,
    wanted: bool,
) -> nvjpeg::Result<&'a mut DecoderState> {
    let Some(gpu_hybrid) = gpu_hybrid else { return Ok(hybrid) };
    let (from, to) = if wanted { (hybrid, gpu_hybrid) } else { (gpu_hybrid, hybrid) };
    if *on_gpu != wanted {
        let (pinned, device) = from.detach();
        *on_gpu = wanted;
        pinned.map(|pinned| to.attach_pinned(pinned)).transpose()?;
        device.map(|device| to.attach_device(device)).transpose()?;
    }
    Ok(to)
}

impl WorkerDecoder {
    /// Whether the hardware decoder takes the image and reads the same size from it. The size must match because the
    /// destination has this size. The whole image is parsed, because a header shows neither several scans nor damage.
    pub(super) fn is_for_hardware(&mut self, bytes: &[u8], size: Size) -> bool {
        let taken = |parser: &mut JpegStream| -> nvjpeg::Result<bool> {
            let jpeg = parser.parse(bytes)?;
            let supported = match jpeg.is_for_batches() {
                // Early versions of nvJPEG do not have this function.
                Err(nvjpeg::Error::MissingFunction { .. }) => true,
                supported => supported?,
            };
            Ok(supported && has_size(&jpeg, size)?)
        };
        self.hardware.as_mut().is_some_and(|parser| taken(parser).unwrap_or(false))
    }

    /// Decodes an image to device memory: its Huffman codes now, and the rest as queued work. If nvJPEG cannot, for
    /// whatever reason, the bytes are returned for another decoder.
    ///
    /// `destination` has room for the whole image, and all work that uses it has been waited for.
    pub(super) fn decode(
        &mut self,
        encoded: HeldImage,
        destination: u64,
        size: Size,
    ) -> std::result::Result<Queued, HeldImage> {
        let at = self.next;
        self.next = (at + 1) % RING;
        let mut slot = match self.slots[at].take() {
            Some(slot) => slot,
            None => match Slot::new(self, size) {
                Ok(slot) => slot,
                Err(_) => return Err(encoded),
            },
        };
        // The slot is usually done. If not, the device is slower than the host, and waiting is right.
        if !slot.done.is_done() && slot.done.synchronize().is_err() {
            return Err(encoded);
        }
        let buffer = slot.encoded.take().map(HeldImage::into_buffer);
        match self.queue(&mut slot, &encoded, destination, size) {
            Ok(()) => {
                slot.encoded = Some(encoded);
                self.slots[at] = Some(slot);
                Ok(Queued { event: Arc::clone(&self.queued), buffer })
            }
            Err(Failure { queued, .. }) => {
                // Queued work may still read the slot's memory, or the slot may be in an unknown state, so the slot is
                // dropped. If waiting fails, the context has failed, and its work with it.
                if queued {
                    let _ = self.stream.synchronize();
                } else {
                    self.slots[at] = Some(slot);
                }
                Err(encoded)
            }
        }
    }

    fn queue(&self, slot: &mut Slot, encoded: &HeldImage, destination: u64, size: Size) -> Result<(), Failure> {
        let host = |_| Failure { queued: false };
        let device = |_| Failure { queued: true };
        let Slot { hybrid, gpu_hybrid, on_gpu, parser, params, done, .. } = slot;
        let jpeg = parser.parse(encoded.bytes()).map_err(host)?;
        if !has_size(&jpeg, size).map_err(host)? {
            return Err(Failure { queued: false });
        }
        let decoder = self.decoders.gpu_hybrid.as_ref().filter(|_| size.area_px() > GPU_HYBRID_PX);
        let wanted = decoder.is_some_and(|decoder| decoder.supports(&jpeg, params).unwrap_or(false));
        // A slot that may have lost its buffers is dropped.
        let state = state(hybrid, gpu_hybrid.as_mut(), on_gpu, wanted).map_err(device)?;
        state.decode_host(params, &jpeg).map_err(host)?;
        let image = Image::interleaved(destination as *mut u8, 3 * size.width as usize);
        let stream = self.stream.raw().cast();
        // SAFETY: the host phase of this image has just succeeded. Buffers, parameters and bytes stay in the slot,
        // which is not reused before its event has passed. The destination is as large as the image, and idle.
        unsafe {
            state.transfer_to_device(&jpeg, stream).map_err(device)?;
            state.decode_device(&image, stream).map_err(device)?;
        }
        let recorded = done.record(&self.stream).and_then(|()| self.queued.record(&self.stream));
        recorded.map_err(|_| Failure { queued: true })
    }

    /// The bytes of the image that was decoded last, for another decoder.
    ///
    /// # Synchronization
    /// Waits for all queued work.
    pub(super) fn take_back(&mut self) -> Result<HeldImage> {
        self.stream.synchronize()?;
        let last = (self.next + RING - 1) % RING;
        let encoded = self.slots[last].as_mut().and_then(|slot| slot.encoded.take());
        encoded.ok_or_else(|| Error::Device {
            call: "decode by nvJPEG".to_owned(),
            message: "there is no image to take back".to_owned(),
        })
    }

    /// Waits for all queued work.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()
    }
}

/// An image that nvJPEG is decoding.
pub(super) struct Queued {
    /// The event that the batch has to wait for.
    pub(super) event: Arc<Event>,
    /// The buffer of an earlier image, which is no longer needed.
    pub(super) buffer: Option<Vec<u8>>,
}

/// A failure to decode an image, and whether any of its work was queued.
struct Failure {
    queued: bool,
}

impl Drop for WorkerDecoder {
    fn drop(&mut self) {
        // If this fails, the context has failed, and its work with it.
        let _ = self.stream.synchronize();
    }
}

/// Whether nvJPEG reads this size from an image.
fn has_size(jpeg: &Jpeg<'_>, size: Size) -> nvjpeg::Result<bool> {
    let found = jpeg.size()?;
    Ok((found.width_px, found.height_px) == (size.width, size.height))
}
