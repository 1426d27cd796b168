//! nvJPEG's hybrid decoder of each worker.
#![allow(unsafe_code)]

use crate::backend::HeldImage;
use crate::cuda::driver::{self, Context, Event, Scoped, Stream};
use crate::decode::Header;
use crate::device::StreamPriority;
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use nvjpeg::{
    Backend, DecodeParams, Decoder, DecoderState, DeviceBuffer, Flags, Handle, Image, Jpeg, JpegStream, Library,
    PinnedBuffer, Region, Status,
};
use std::sync::Arc;

/// Number of images that a worker has on the device while it decodes the next one's Huffman codes.
pub(super) const RING: usize = 3;
/// For images with more pixels, the device also decodes Huffman codes. DALI has the same threshold
/// (`hybrid_huffman_threshold`).
const GPU_HYBRID_PX: u64 = 1_000_000;
/// Pixels around a region that are decoded too: before nvJPEG 13.2 those at its sides may be wrong.
const MARGIN_PX: u32 = 8;
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

/// nvJPEG's hybrid decoder on one device.
pub(super) struct Nvjpeg {
    handle: Handle,
    decoders: Decoders,
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

impl Nvjpeg {
    /// Opens the hybrid decoder.
    ///
    /// # Errors
    /// [`Error::Device`] that names the missing part.
    pub(super) fn open(context: &Context, library: &Library, priority: StreamPriority) -> Result<Scoped<Self>> {
        let _entered = driver::enter(context)?;
        // Chroma is interpolated as in libjpeg.
        let flags = Flags::UPSAMPLING_WITH_INTERPOLATION;
        let handle = Handle::new(library, Backend::Default, flags).or_else(|error| match error.status() {
            // Before CUDA 12.1 the flag did not exist.
            Some(Status::InvalidParameter) => Handle::new(library, Backend::Default, Flags::NONE),
            _ => Err(error),
        })?;
        let hybrid = Decoder::new(&handle, Backend::Hybrid)?;
        let gpu_hybrid = Decoder::new(&handle, Backend::GpuHybrid).ok();
        let nvjpeg = Self { handle, decoders: Decoders { hybrid, gpu_hybrid }, priority };
        Ok(Scoped::new(context, nvjpeg))
    }

    /// Makes the decoders of one worker.
    pub(super) fn worker(&self, context: &Context) -> Result<Scoped<WorkerDecoder>> {
        let decoder = WorkerDecoder {
            slots: (0..RING).map(|_| None).collect(),
            next: 0,
            handle: self.handle.clone(),
            decoders: self.decoders.clone(),
            queued: Arc::new(Event::new(context)?),
            stream: Stream::new(context, self.priority)?,
            context: Arc::clone(context),
        };
        Ok(Scoped::new(context, decoder))
    }
}

/// One worker's hybrid decoder.
pub(super) struct WorkerDecoder {
    slots: Vec<Option<Slot>>,
    next: usize,
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
    /// The region in the parameters.
    region: Option<Region>,
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
        Ok(Self { hybrid, gpu_hybrid, on_gpu: false, parser, params, region: None, encoded: None, done })
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
    /// The region to decode where `part` is needed.
    pub(super) fn region(&self, header: &Header, part: Rect) -> Rect {
        let whole = Rect::full(header.size);
        // That regions of progressive images are decoded is not documented.
        if header.progressive || self.handle.library().functions().nvjpegDecodeParamsSetROI.is_none() {
            return whole;
        }
        let (x, y) = (part.x.saturating_sub(MARGIN_PX), part.y.saturating_sub(MARGIN_PX));
        let right = part.right().saturating_add(MARGIN_PX).min(whole.width);
        let bottom = part.bottom().saturating_add(MARGIN_PX).min(whole.height);
        Rect { x, y, width: right - x, height: bottom - y }
    }

    /// Decodes a region of an image to device memory: its Huffman codes now, and the rest as queued work. If nvJPEG
    /// cannot, for whatever reason, the bytes are returned for another decoder.
    ///
    /// `destination` has room for the region, and all work that uses it has been waited for.
    pub(super) fn decode(
        &mut self,
        encoded: HeldImage,
        destination: u64,
        (size, region): (Size, Rect),
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
        match self.queue(&mut slot, &encoded, destination, (size, region)) {
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

    fn queue(
        &self,
        slot: &mut Slot,
        encoded: &HeldImage,
        destination: u64,
        (size, region): (Size, Rect),
    ) -> Result<(), Failure> {
        let host = |_| Failure { queued: false };
        let device = |_| Failure { queued: true };
        let Slot { hybrid, gpu_hybrid, on_gpu, parser, params, region: set, done, .. } = slot;
        let jpeg = parser.parse(encoded.bytes()).map_err(host)?;
        if !has_size(&jpeg, size).map_err(host)? {
            return Err(Failure { queued: false });
        }
        let wanted = (region != Rect::full(size)).then_some(Region {
            x_px: region.x,
            y_px: region.y,
            width_px: region.width,
            height_px: region.height,
        });
        if *set != wanted {
            params.set_region(wanted).map_err(host)?;
            *set = wanted;
        }
        let decoder = self.decoders.gpu_hybrid.as_ref().filter(|_| size.area_px() > GPU_HYBRID_PX);
        let wanted = decoder.is_some_and(|decoder| decoder.supports(&jpeg, params).unwrap_or(false));
        // A slot that may have lost its buffers is dropped.
        let state = state(hybrid, gpu_hybrid.as_mut(), on_gpu, wanted).map_err(device)?;
        state.decode_host(params, &jpeg).map_err(host)?;
        let image = Image::interleaved(destination as *mut u8, 3 * region.width as usize);
        let stream = self.stream.raw().cast();
        // SAFETY: the host phase of this image has just succeeded. Buffers, parameters and bytes stay in the slot,
        // which is not reused before its event has passed. The destination is as large as the region, and idle.
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
pub(super) fn has_size(jpeg: &Jpeg<'_>, size: Size) -> nvjpeg::Result<bool> {
    let found = jpeg.size()?;
    Ok((found.width_px, found.height_px) == (size.width, size.height))
}
