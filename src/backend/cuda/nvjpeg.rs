//! Decoding with nvJPEG: the hybrid decoder of each worker, and the device's hardware decoder.
#![allow(unsafe_code)]

use super::driver::{self, Context, Event, Stream};
use crate::backend::Encoded;
use crate::device::DecodePath;
use crate::error::{Error, Result};
use crate::raster::Size;
use nvjpeg::{
    Backend, BatchState, DecodeParams, Decoder, DecoderState, DeviceBuffer, Flags, Handle, Image, JpegStream, Library,
    OutputFormat, PinnedBuffer,
};
use std::sync::Arc;

/// Images that a worker has under way on the device while it works on the next one's Huffman codes.
pub(super) const RING: usize = 3;

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
    hybrid: Decoder,
    pub(super) hardware: Option<HardwareDecoder>,
}

/// The device's hardware decoder.
pub(super) struct HardwareDecoder {
    handle: Handle,
    pub(super) stream: Stream,
}

impl Nvjpeg {
    /// What `path` needs of nvJPEG: nothing, or as much as there is, or an error that says what is not there.
    pub(super) fn open(context: &Context, path: DecodePath) -> Result<Option<Self>> {
        if path == DecodePath::Cpu {
            return Ok(None);
        }
        driver::bind(context)?;
        match Self::load(context, path) {
            // Without it there still is the CPU; `warpfeed doctor` says why.
            Err(_) if path == DecodePath::Auto => Ok(None),
            loaded => loaded.map(Some),
        }
    }

    fn load(context: &Context, path: DecodePath) -> Result<Self> {
        let library = Library::load()?;
        // Chroma as libjpeg interpolates it; before CUDA 12.1 there was no such flag.
        let handle = Handle::new(&library, Backend::Default, Flags::UPSAMPLING_WITH_INTERPOLATION)
            .or_else(|_| Handle::new(&library, Backend::Default, Flags::NONE))?;
        let hybrid = Decoder::new(&handle, Backend::Hybrid)?;
        let hardware = match path {
            DecodePath::Hybrid | DecodePath::Cpu => None,
            DecodePath::Auto => HardwareDecoder::open(context, &library).ok(),
            DecodePath::Hardware => Some(HardwareDecoder::open(context, &library)?),
        };
        Ok(Self { handle, hybrid, hardware })
    }

    /// A decoder for one worker.
    pub(super) fn hybrid_decoder(&self, context: &Context) -> Result<HybridDecoder> {
        Ok(HybridDecoder {
            slots: (0..RING).map(|_| None).collect(),
            next: 0,
            parser: JpegStream::new(&self.handle)?,
            handle: self.handle.clone(),
            decoder: self.hybrid.clone(),
            queued: Arc::new(Event::new(context)?),
            stream: Stream::new(context)?,
            context: Arc::clone(context),
        })
    }
}

impl HardwareDecoder {
    fn open(context: &Context, library: &Library) -> Result<Self> {
        let handle = Handle::new(library, Backend::Hardware, Flags::UPSAMPLING_WITH_INTERPOLATION)
            .or_else(|_| Handle::new(library, Backend::Hardware, Flags::NONE))
            .map_err(|error| {
                let reason = nvjpeg::probe_nvcuvid().err().map_or_else(
                    || "this device may have none".to_owned(),
                    |_| "libnvcuvid.so.1 is missing: a container needs the driver capability `video`".to_owned(),
                );
                Error::Device { call: "open the hardware decoder".to_owned(), message: format!("{error}; {reason}") }
            })?;
        // Versions before CUDA 11.8 cannot say how many there are, only refuse.
        if handle.hardware_decoders().is_ok_and(|found| found.engines == 0) {
            let message = "this device has none: use --decode auto or hybrid".to_owned();
            return Err(Error::Device { call: "open the hardware decoder".to_owned(), message });
        }
        Ok(Self { handle, stream: Stream::new(context)? })
    }

    /// What a batch needs to be decoded by the hardware decoder.
    pub(super) fn batch(&self) -> Result<HardwareBatch> {
        Ok(HardwareBatch { state: BatchState::new(&self.handle)?, initialized: 0 })
    }
}

/// An image for the hardware decoder.
pub(super) struct HardwareJob {
    pub(super) encoded: Encoded,
    /// Device memory for the whole image, rows without gaps, that the host knows to be idle: the hardware decoder of Hopper does
    /// not wait for what was queued before.
    pub(super) destination: u64,
    pub(super) size: Size,
}

/// One batch's state in the hardware decoder; the next batch's is another.
pub(super) struct HardwareBatch {
    state: BatchState,
    initialized: usize,
}

impl HardwareBatch {
    /// Queues the decoding of `jobs` on the hardware decoder's stream.
    ///
    /// # Safety
    /// No earlier batch of this state is under way. The jobs stay as they are until the work is done.
    pub(super) unsafe fn decode(&mut self, hardware: &HardwareDecoder, jobs: &[&HardwareJob]) -> Result<()> {
        if self.initialized != jobs.len() {
            self.initialized = 0;
            // SAFETY: none is under way, by contract.
            unsafe { self.state.initialize(jobs.len(), 1, OutputFormat::RgbInterleaved)? };
            self.initialized = jobs.len();
        }
        let encoded: Vec<&[u8]> = jobs.iter().map(|job| job.encoded.bytes()).collect();
        let images: Vec<Image> = jobs
            .iter()
            .map(|job| Image::interleaved(job.destination as *mut u8, 3 * job.size.width as usize))
            .collect();
        // SAFETY: destinations are as large as the images are by their headers, which nvJPEG itself has read
        // (`HybridDecoder::agrees`), idle, and apart from each other; the rest is the contract.
        let queued = unsafe { self.state.decode(&encoded, &images, None, hardware.stream.raw().cast()) };
        if queued.is_err() {
            self.initialized = 0;
        }
        Ok(queued?)
    }
}

/// One worker's way through the hybrid decoder: Huffman codes on the host, the rest on the device.
pub(super) struct HybridDecoder {
    slots: Vec<Option<Slot>>,
    next: usize,
    /// Reads headers.
    parser: JpegStream,
    handle: Handle,
    decoder: Decoder,
    /// All that has been queued on the stream.
    queued: Arc<Event>,
    stream: Stream,
    context: Context,
}

/// What one image under way needs.
struct Slot {
    state: DecoderState,
    parser: JpegStream,
    params: DecodeParams,
    encoded: Option<Encoded>,
    done: Event,
}

impl Slot {
    fn new(context: &Context, handle: &Handle, decoder: &Decoder) -> Result<Self> {
        let mut state = DecoderState::new(decoder)?;
        state.attach_pinned(PinnedBuffer::new(handle)?)?;
        state.attach_device(DeviceBuffer::new(handle)?)?;
        let mut params = DecodeParams::new(handle)?;
        params.set_output_format(OutputFormat::RgbInterleaved)?;
        Ok(Self { state, parser: JpegStream::new(handle)?, params, encoded: None, done: Event::new(context)? })
    }
}

impl HybridDecoder {
    /// Whether nvJPEG reads the same size from the header: what it writes must fit what is taken for it.
    pub(super) fn agrees(&mut self, encoded: &Encoded, size: Size) -> Result<bool> {
        let info = match self.parser.parse_header(encoded.bytes()) {
            Ok(header) => header.info()?,
            // Early versions parse all or nothing.
            Err(nvjpeg::Error::MissingFunction { .. }) => self.parser.parse(encoded.bytes())?.info()?,
            Err(error) => return Err(error.into()),
        };
        Ok(info.width_px == size.width && info.height_px == size.height)
    }

    /// Decodes an image to device memory: its Huffman codes now, the rest queued. If nvJPEG cannot, for whatever reason,
    /// the bytes come back, for another decoder.
    ///
    /// `destination` has room for the whole image and is in no use by work that the host has not waited for.
    pub(super) fn decode(
        &mut self,
        encoded: Encoded,
        destination: u64,
        size: Size,
    ) -> std::result::Result<Queued, Encoded> {
        let at = self.next;
        self.next = (at + 1) % RING;
        let mut slot = match self.slots[at].take() {
            Some(slot) => slot,
            None => match Slot::new(&self.context, &self.handle, &self.decoder) {
                Ok(slot) => slot,
                Err(_) => return Err(encoded),
            },
        };
        // As a rule it is done; if not, the device is behind, and there is nothing better to do than to wait for it.
        if !slot.done.is_done() && slot.done.synchronize().is_err() {
            return Err(encoded);
        }
        let buffer = slot.encoded.take().map(Encoded::into_buffer);
        match self.queue(&mut slot, &encoded, destination, size) {
            Ok(()) => {
                slot.encoded = Some(encoded);
                self.slots[at] = Some(slot);
                Ok(Queued { event: Arc::clone(&self.queued), buffer })
            }
            Err(Failure { queued, .. }) => {
                // What is queued of it may still read the slot's memory, or be half done: the slot ends with it. Where
                // waiting fails, the context has, and its work with it.
                if queued {
                    let _ = self.stream.synchronize();
                } else {
                    self.slots[at] = Some(slot);
                }
                Err(encoded)
            }
        }
    }

    fn queue(&self, slot: &mut Slot, encoded: &Encoded, destination: u64, size: Size) -> Result<(), Failure> {
        let host = |_| Failure { queued: false };
        let device = |_| Failure { queued: true };
        let jpeg = slot.parser.parse(encoded.bytes()).map_err(host)?;
        let info = jpeg.info().map_err(host)?;
        if (info.width_px, info.height_px) != (size.width, size.height) {
            return Err(Failure { queued: false });
        }
        slot.state.decode_host(&slot.params, &jpeg).map_err(host)?;
        let image = Image::interleaved(destination as *mut u8, 3 * size.width as usize);
        let stream = self.stream.raw().cast();
        // SAFETY: the host phase of this image has just succeeded. Buffers, parameters and bytes stay in the slot,
        // which is not used again before its event has passed. The destination is as large as the image, and idle.
        unsafe {
            slot.state.transfer_to_device(&jpeg, stream).map_err(device)?;
            slot.state.decode_device(&image, stream).map_err(device)?;
        }
        let recorded = slot.done.record(&self.stream).and_then(|()| self.queued.record(&self.stream));
        recorded.map_err(|_| Failure { queued: true })
    }

    /// Waits for all that was queued.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()
    }
}

/// An image that nvJPEG will decode.
pub(super) struct Queued {
    /// What the batch has to wait for.
    pub(super) event: Arc<Event>,
    /// Of an earlier image, no longer needed.
    pub(super) buffer: Option<Vec<u8>>,
}

/// An image was not decoded; whether any of it has been queued.
struct Failure {
    queued: bool,
}

impl Drop for HybridDecoder {
    fn drop(&mut self) {
        // Where that fails, the context has, and its work with it.
        let _ = driver::bind(&self.context).and_then(|()| self.stream.synchronize());
    }
}
