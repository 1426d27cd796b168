//! Decoding one image, in phases.

use std::ptr;
use std::sync::Arc;

use nvjpeg_sys::bindings::{NVJPEG_MAX_COMPONENT, cudaStream_t, nvjpegImage_t, nvjpegJpegDecoder_t, nvjpegJpegState_t};

use crate::buffer::{DeviceBuffer, PinnedBuffer};
use crate::error::{Error, Result};
use crate::handle::{Backend, Handle, call};
use crate::params::DecodeParams;
use crate::stream::Jpeg;

/// Device memory for a decoded image: addresses and row pitches of interleaved RGB or of planes.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Image(pub(crate) nvjpegImage_t);

// SAFETY: these are addresses on the device, which this crate never reads through. The contracts of the unsafe
// functions that take an image cover their use.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// An image at an address, with the number of bytes from one row to the next. A row has 3 bytes a pixel.
    #[must_use]
    pub fn interleaved(address: *mut u8, pitch_bytes: usize) -> Self {
        const N: usize = NVJPEG_MAX_COMPONENT as usize;
        let mut image = nvjpegImage_t { channel: [ptr::null_mut(); N], pitch: [0; N] };
        (image.channel[0], image.pitch[0]) = (address, pitch_bytes);
        Self(image)
    }

    /// The planes of an image, each with its address and the number of bytes from one row to the next. A sample has one
    /// byte. Gray images have one plane, and others three.
    #[must_use]
    pub fn planes(planes: [(*mut u8, usize); 3]) -> Self {
        let mut image = Self::interleaved(ptr::null_mut(), 0);
        for (i, (address, pitch_bytes)) in planes.into_iter().enumerate() {
            (image.0.channel[i], image.0.pitch[i]) = (address, pitch_bytes);
        }
        image
    }
}

/// A decoder of single images. It holds nothing of an image, and all workers may share it. Clones refer to the same
/// decoder.
#[derive(Debug, Clone)]
pub struct Decoder {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    raw: nvjpegJpegDecoder_t,
    handle: Handle,
}

// SAFETY: by nvJPEG's documentation, everything that belongs to a decode is in the state, and the decoder is not among
// the objects that each thread needs its own of.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Decoder {
    /// A decoder with this back end.
    ///
    /// # Synchronization
    ///
    /// Complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::Status`] if the device or the library lacks the back end.
    pub fn new(handle: &Handle, backend: Backend) -> Result<Self> {
        handle.report_drop_error()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is valid; `raw` is written to before the call returns.
        unsafe { call!(handle.functions(), nvjpegDecoderCreate(handle.as_raw(), backend.raw(), &raw mut raw))? };
        Ok(Self { inner: Arc::new(Inner { raw, handle: handle.clone() }) })
    }

    /// Whether the decoder supports this image with these parameters.
    ///
    /// # Synchronization
    ///
    /// Runs on the host only, complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] for objects of another handle, or [`Error::Status`].
    pub fn supports(&self, jpeg: &Jpeg<'_>, params: &DecodeParams) -> Result<bool> {
        const CALL: &str = "nvjpegDecoderJpegSupported";
        self.handle().require_same(jpeg.handle(), CALL, "jpeg")?;
        self.handle().require_same(params.handle(), CALL, "params")?;
        let mut unsupported = -1;
        // SAFETY: all objects are valid and of one handle; the number is written to before the call returns.
        unsafe {
            call!(
                self.handle().functions(),
                nvjpegDecoderJpegSupported(self.inner.raw, jpeg.as_raw(), params.as_raw(), &raw mut unsupported)
            )?;
        }
        // 0 means yes, as nvjpeg.h says.
        Ok(unsupported == 0)
    }

    fn handle(&self) -> &Handle {
        &self.inner.handle
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the decoder is valid. States hold a clone of it, so they are destroyed already.
        self.handle.note_drop(unsafe { call!(self.handle.functions(), nvjpegDecoderDestroy(self.raw)) });
    }
}

/// State of one worker for decoding images one after another, in three phases: on the host, the transfer, and on the
/// device. It needs a pinned buffer and a device buffer first.
#[derive(Debug)]
pub struct DecoderState {
    raw: nvjpegJpegState_t,
    // Dropped after the state is destroyed, in this order, because the state refers to the buffers and the decoder.
    pinned: Option<PinnedBuffer>,
    device: Option<DeviceBuffer>,
    decoder: Decoder,
}

// SAFETY: nvJPEG's documentation asks for one state per thread at a time, and does not bind a state to a thread.
unsafe impl Send for DecoderState {}

impl DecoderState {
    /// A state of a decoder, without buffers.
    ///
    /// # Synchronization
    ///
    /// Complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub fn new(decoder: &Decoder) -> Result<Self> {
        let handle = decoder.handle();
        handle.report_drop_error()?;
        let mut raw = ptr::null_mut();
        // SAFETY: handle and decoder are valid; `raw` is written to before the call returns.
        unsafe {
            call!(handle.functions(), nvjpegDecoderStateCreate(handle.as_raw(), decoder.inner.raw, &raw mut raw))?;
        }
        Ok(Self { raw, pinned: None, device: None, decoder: decoder.clone() })
    }

    /// Attaches a pinned buffer, and returns the previous one. With two buffers in turn, the next host phase can write
    /// one while the transfer still reads the other.
    ///
    /// # Synchronization
    ///
    /// Does not wait. A transfer may still be reading the returned buffer: see
    /// [`transfer_to_device`](Self::transfer_to_device).
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] for a buffer of another handle, or [`Error::Status`]. The previous buffer then stays.
    pub fn attach_pinned(&mut self, buffer: PinnedBuffer) -> Result<Option<PinnedBuffer>> {
        let handle = self.decoder.handle();
        handle.require_same(buffer.handle(), "nvjpegStateAttachPinnedBuffer", "buffer")?;
        // SAFETY: state and buffer are valid and of one handle; the buffer is kept as long as it is attached.
        unsafe { call!(handle.functions(), nvjpegStateAttachPinnedBuffer(self.raw, buffer.as_raw()))? };
        Ok(self.pinned.replace(buffer))
    }

    /// Attaches a device buffer, and returns the previous one.
    ///
    /// # Synchronization
    ///
    /// Does not wait. The returned buffer may still be in use: see [`decode_device`](Self::decode_device).
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] for a buffer of another handle, or [`Error::Status`]. The previous buffer then stays.
    pub fn attach_device(&mut self, buffer: DeviceBuffer) -> Result<Option<DeviceBuffer>> {
        let handle = self.decoder.handle();
        handle.require_same(buffer.handle(), "nvjpegStateAttachDeviceBuffer", "buffer")?;
        // SAFETY: state and buffer are valid and of one handle; the buffer is kept as long as it is attached.
        unsafe { call!(handle.functions(), nvjpegStateAttachDeviceBuffer(self.raw, buffer.as_raw()))? };
        Ok(self.device.replace(buffer))
    }

    /// Takes the buffers out, so that they can be attached to a state of another decoder. This state decodes nothing
    /// until it has buffers again.
    pub fn detach(&mut self) -> (Option<PinnedBuffer>, Option<DeviceBuffer>) {
        (self.pinned.take(), self.device.take())
    }

    /// The first phase, which writes the pinned buffer. With [`Backend::Hybrid`] it does all Huffman decoding.
    ///
    /// # Synchronization
    ///
    /// Runs on the host only, complete on return. It does not wait for the transfer of an earlier image.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] without buffers or for objects of another handle; [`Error::Status`] for images that are
    /// damaged or that the decoder does not support.
    pub fn decode_host(&mut self, params: &DecodeParams, jpeg: &Jpeg<'_>) -> Result<()> {
        const CALL: &str = "nvjpegDecodeJpegHost";
        let handle = self.decoder.handle();
        self.require_buffers(CALL)?;
        handle.require_same(params.handle(), CALL, "params")?;
        handle.require_same(jpeg.handle(), CALL, "jpeg")?;
        // SAFETY: all objects are valid and of one handle, and the buffers are attached. The contract of
        // `transfer_to_device` says that no transfer reads the pinned buffer.
        unsafe {
            call!(
                handle.functions(),
                nvjpegDecodeJpegHost(handle.as_raw(), self.decoder.inner.raw, self.raw, params.as_raw(), jpeg.as_raw())
            )
        }
    }

    /// The second phase: queues the copy from the pinned buffer to the device buffer.
    ///
    /// # Safety
    ///
    /// - The last call on this state was a successful [`decode_host`](Self::decode_host) of this `jpeg`, and its
    ///   parameters have not been dropped since.
    /// - `stream` is a live stream of the handle's device, or null. No work uses the device buffer, except work that
    ///   `stream` waits for.
    /// - Until the copy is done, as known from an event or from synchronizing, no other host phase writes the pinned
    ///   buffer, and the pinned buffer, the image's bytes and the state are not dropped.
    ///
    /// # Synchronization
    ///
    /// Nothing is complete on return: the copy runs on `stream`.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] without buffers or for objects of another handle, or [`Error::Status`].
    pub unsafe fn transfer_to_device(&mut self, jpeg: &Jpeg<'_>, stream: cudaStream_t) -> Result<()> {
        const CALL: &str = "nvjpegDecodeJpegTransferToDevice";
        let handle = self.decoder.handle();
        self.require_buffers(CALL)?;
        handle.require_same(jpeg.handle(), CALL, "jpeg")?;
        // SAFETY: all objects are valid and of one handle, and the buffers are attached; the rest is the contract.
        unsafe {
            call!(
                handle.functions(),
                nvjpegDecodeJpegTransferToDevice(
                    handle.as_raw(),
                    self.decoder.inner.raw,
                    self.raw,
                    jpeg.as_raw(),
                    stream,
                )
            )
        }
    }

    /// The third phase: queues the decoding on the device, into `destination`.
    ///
    /// # Safety
    ///
    /// - The last call on this state was a successful [`transfer_to_device`](Self::transfer_to_device) on the same
    ///   `stream`, and the parameters of [`decode_host`](Self::decode_host) have not been dropped since.
    /// - `destination` is device memory of at least the image's rows times its pitch. The pitch is at least a row. The
    ///   memory stays allocated until the work is done.
    /// - Nothing else uses the destination before the work is done. With [`Backend::Hardware`] it must already be idle
    ///   when this is called, as known from an event or from synchronizing: the hardware decoder of Hopper does not
    ///   keep the order of the stream.
    /// - Until the work is done the state is not used again, and neither it nor its buffers are dropped.
    ///
    /// # Synchronization
    ///
    /// Nothing is complete on return. `destination` is written on `stream`, and work that is queued there afterwards
    /// may read it.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] without buffers, or [`Error::Status`].
    pub unsafe fn decode_device(&mut self, destination: &Image, stream: cudaStream_t) -> Result<()> {
        let handle = self.decoder.handle();
        self.require_buffers("nvjpegDecodeJpegDevice")?;
        // nvJPEG takes a mutable image.
        let mut image = destination.0;
        // SAFETY: all objects are valid and of one handle, and the buffers are attached; the rest is the contract.
        unsafe {
            call!(
                handle.functions(),
                nvjpegDecodeJpegDevice(handle.as_raw(), self.decoder.inner.raw, self.raw, &raw mut image, stream)
            )
        }
    }

    fn require_buffers(&self, call: &'static str) -> Result<()> {
        let lacking = match (&self.pinned, &self.device) {
            (Some(_), Some(_)) => return Ok(()),
            (None, Some(_)) => "no pinned buffer",
            (Some(_), None) => "no device buffer",
            (None, None) => "neither",
        };
        Err(Error::parameter(call, "state", "given a pinned and a device buffer", lacking))
    }
}

impl Drop for DecoderState {
    fn drop(&mut self) {
        let handle = self.decoder.handle();
        // SAFETY: the state is valid and owned here. The contracts of the phases say that no work uses it any more.
        handle.note_drop(unsafe { call!(handle.functions(), nvjpegJpegStateDestroy(self.raw)) });
    }
}
