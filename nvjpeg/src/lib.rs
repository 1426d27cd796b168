//! NVIDIA's JPEG decoder for GPUs, nvJPEG, loaded at run time ([`Library::load`]). A program builds and starts without
//! nvJPEG, CUDA toolkit and driver. [`sys`] has the raw bindings.
//!
//! ```no_run
//! use nvjpeg::{
//!     Backend, DecodeParams, Decoder, DecoderState, DeviceBuffer, Flags, Handle, Image, JpegStream, Library,
//!     PinnedBuffer,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (device_pointer, stream) = (std::ptr::null_mut(), std::ptr::null_mut());
//! let handle = Handle::new(&Library::load()?, Backend::Default, Flags::UPSAMPLING_WITH_INTERPOLATION)?;
//! let decoder = Decoder::new(&handle, Backend::Hybrid)?;
//!
//! // One of each for every worker.
//! let mut state = DecoderState::new(&decoder)?;
//! state.attach_pinned(PinnedBuffer::new(&handle)?)?;
//! state.attach_device(DeviceBuffer::new(&handle)?)?;
//! let mut parser = JpegStream::new(&handle)?;
//! let params = DecodeParams::new(&handle)?;
//!
//! let bytes = std::fs::read("photo.jpg")?;
//! let jpeg = parser.parse(&bytes)?;
//! let pitch_bytes = 3 * jpeg.size()?.width_px as usize;
//! state.decode_host(&params, &jpeg)?;
//! // SAFETY: `device_pointer` is the start of height x pitch idle bytes on the device; everything lives until the
//! // stream has been synchronized.
//! unsafe {
//!     state.transfer_to_device(&jpeg, stream)?;
//!     state.decode_device(&Image::interleaved(device_pointer, pitch_bytes), stream)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Threads
//!
//! Streams, states and buffers belong to one thread at a time ([`Send`], not [`Sync`]); threads may share the handle,
//! the decoder and the parameters ([`Sync`]). The CUDA context that is current on the calling thread must be the same
//! in every call on a handle and on objects made from it, drops included.
//!
//! # Drops
//!
//! Dropping never panics. If nvJPEG refuses to destroy an object, the next creation on the same handle returns the
//! first such status.

mod batch;
mod buffer;
mod decoder;
mod error;
mod handle;
mod library;
mod memory;
mod params;
mod stream;

pub use batch::BatchState;
pub use buffer::{DeviceBuffer, PinnedBuffer};
pub use decoder::{Decoder, DecoderState, Image};
pub use error::{Attempt, Error, Result, Status};
pub use handle::{Backend, Flags, Handle, HardwareDecoders};
pub use library::{Library, PATH_VARIABLE, Version, probe_nvcuvid};
pub use memory::{MemoryKind, MemorySource};
pub use nvjpeg_sys as sys;
pub use nvjpeg_sys::Functions;
pub use nvjpeg_sys::bindings::cudaStream_t as CudaStream;
pub use params::{DecodeParams, Region};
pub use stream::{Jpeg, JpegStream, Size};
