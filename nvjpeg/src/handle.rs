//! The library handle, from which all other objects are made.

use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use nvjpeg_sys::Functions;
use nvjpeg_sys::bindings::{self, nvjpegBackend_t, nvjpegHandle_t};

use crate::error::{Error, Result, check};
use crate::library::Library;
use crate::memory::{Allocators, MemorySource};

/// Calls a function of nvJPEG and converts its status to a `Result`. For use in an unsafe block.
macro_rules! call {
    ($functions:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $crate::error::check(stringify!($name), ($functions.$name)($($argument),*))
    };
}

/// Like `call!`, for a function that some versions lack.
macro_rules! call_optional {
    ($library:expr, $name:ident($($argument:expr),* $(,)?)) => {
        match $library.functions().$name {
            Some(function) => $crate::error::check(stringify!($name), function($($argument),*)),
            None => Err($library.missing(stringify!($name))),
        }
    };
}

pub(crate) use {call, call_optional};

/// The back end that decodes images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// nvJPEG's choice.
    Default,
    /// Decodes Huffman codes on the CPU, and the rest on the device.
    Hybrid,
    /// Decodes Huffman codes on the device too, for baseline images; in batches only from 51 images on.
    GpuHybrid,
    /// The device's hardware decoder: baseline images with a single scan.
    Hardware,
}

impl Backend {
    pub(crate) fn raw(self) -> nvjpegBackend_t {
        match self {
            Self::Default => nvjpegBackend_t::NVJPEG_BACKEND_DEFAULT,
            Self::Hybrid => nvjpegBackend_t::NVJPEG_BACKEND_HYBRID,
            Self::GpuHybrid => nvjpegBackend_t::NVJPEG_BACKEND_GPU_HYBRID,
            Self::Hardware => nvjpegBackend_t::NVJPEG_BACKEND_HARDWARE,
        }
    }
}

/// Options of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u32);

impl Flags {
    /// No option.
    pub const NONE: Self = Self(bindings::NVJPEG_FLAGS_DEFAULT);
    /// Interpolates chroma, as libjpeg does, instead of repeating it. CUDA 12.1.
    pub const UPSAMPLING_WITH_INTERPOLATION: Self = Self(bindings::NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION);
}

/// Number of the device's hardware decoders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HardwareDecoders {
    /// Number of engines, in NVIDIA's words; 0 without hardware decoding.
    pub engines: u32,
    /// Number of images that each engine decodes at a time.
    pub cores_per_engine: u32,
}

/// nvJPEG on one device: the object from which all others are made. Clones refer to the same handle. It is destroyed
/// when the last clone and all objects made from it are dropped.
#[derive(Debug, Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    raw: nvjpegHandle_t,
    library: Library,
    /// The first error of destroying an object of this handle.
    drop_error: Mutex<Option<Error>>,
    /// The caller's source of memory. It is dropped after the handle is destroyed.
    _memory: Option<Box<Allocators>>,
}

// SAFETY: nvJPEG's documentation ("Thread Safety") lists the objects that each thread needs its own of, and the handle
// is not among them. The handle is not bound to a thread, only to the CUDA context that is current there.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Handle {
    /// A handle on the device that is current on this thread. CUDA provides its memory.
    ///
    /// # Synchronization
    ///
    /// Complete on return. It may allocate, which waits for the device.
    ///
    /// # Errors
    ///
    /// [`Error::Status`] with [`ExecutionFailed`](crate::Status::ExecutionFailed) if there is no driver or device, and
    /// with [`ImplementationNotSupported`](crate::Status::ImplementationNotSupported) or
    /// [`ArchMismatch`](crate::Status::ArchMismatch) if the device lacks the back end.
    ///
    /// ```
    /// use nvjpeg::{Backend, Flags, Handle, Library, Status};
    /// if let Ok(library) = Library::load() {
    ///     match Handle::new(&library, Backend::Default, Flags::NONE) {
    ///         Ok(handle) => assert!(handle.library().version()?.major >= 11),
    ///         Err(error) => assert_eq!(error.status(), Some(Status::ExecutionFailed)), // no driver
    ///     }
    /// }
    /// # Ok::<(), nvjpeg::Error>(())
    /// ```
    pub fn new(library: &Library, backend: Backend, flags: Flags) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: null allocators mean CUDA's; `raw` is written to before the call returns.
        unsafe {
            call!(
                library.functions(),
                nvjpegCreateEx(backend.raw(), ptr::null_mut(), ptr::null_mut(), flags.0, &raw mut raw)
            )?;
        }
        Ok(Self::of(raw, library, None))
    }

    /// A handle as [`new`](Self::new) makes it, whose memory comes from the caller.
    ///
    /// # Synchronization
    ///
    /// Complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`] before CUDA 12.0, and the errors of [`new`](Self::new).
    pub fn with_memory(
        library: &Library,
        backend: Backend,
        flags: Flags,
        memory: Arc<dyn MemorySource>,
    ) -> Result<Self> {
        let mut memory = Allocators::new(memory);
        let (mut raw, (device, pinned)) = (ptr::null_mut(), memory.as_raw());
        // SAFETY: both allocators stay where they are until the handle is destroyed; `raw` is written to before the
        // call returns.
        unsafe {
            call_optional!(library, nvjpegCreateExV2(backend.raw(), device, pinned, flags.0, &raw mut raw))?;
        }
        Ok(Self::of(raw, library, Some(memory)))
    }

    fn of(raw: nvjpegHandle_t, library: &Library, memory: Option<Box<Allocators>>) -> Self {
        let (library, drop_error) = (library.clone(), Mutex::new(None));
        Self { inner: Arc::new(Inner { raw, library, drop_error, _memory: memory }) }
    }

    /// Rounds the sizes of this handle's allocations up to multiples of these numbers, so that images which differ
    /// little need no new memory.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`], or [`Error::Status`].
    pub fn pad_memory(&self, device_bytes: usize, pinned_bytes: usize) -> Result<()> {
        // SAFETY: the handle is valid.
        unsafe {
            call_optional!(self.library(), nvjpegSetDeviceMemoryPadding(device_bytes, self.as_raw()))?;
            call_optional!(self.library(), nvjpegSetPinnedMemoryPadding(pinned_bytes, self.as_raw()))
        }
    }

    /// The handle's library.
    #[must_use]
    pub fn library(&self) -> &Library {
        &self.inner.library
    }

    /// The raw handle, for calls that the safe layer lacks. It is valid as long as this handle is.
    #[must_use]
    pub fn as_raw(&self) -> nvjpegHandle_t {
        self.inner.raw
    }

    /// The device's hardware decoders. A back end other than [`Backend::Hardware`] may report that there are none.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`] before CUDA 11.8, or [`Error::Status`].
    pub fn hardware_decoders(&self) -> Result<HardwareDecoders> {
        let mut found = HardwareDecoders { engines: 0, cores_per_engine: 0 };
        let (engines, cores) = (&raw mut found.engines, &raw mut found.cores_per_engine);
        // SAFETY: the handle is valid; both numbers are written to before the call returns.
        unsafe {
            call_optional!(self.library(), nvjpegGetHardwareDecoderInfo(self.as_raw(), engines, cores))?;
        }
        Ok(found)
    }

    pub(crate) fn functions(&self) -> &Functions {
        self.library().functions()
    }

    /// Fails unless an object given to `call` was made from this handle. nvJPEG does not check that.
    pub(crate) fn require_same(&self, other: &Self, call: &'static str, parameter: &'static str) -> Result<()> {
        if Arc::ptr_eq(&self.inner, &other.inner) {
            return Ok(());
        }
        Err(Error::parameter(call, parameter, "made from the same handle", "one of another handle"))
    }

    /// Fails if an earlier destruction failed. Functions that make objects call this.
    pub(crate) fn report_drop_error(&self) -> Result<()> {
        self.inner.drop_error.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// Keeps the error of a destruction, if it is the first.
    pub(crate) fn note_drop(&self, result: Result<()>) {
        if let Err(error) = result {
            self.inner.drop_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: objects made from this handle hold a clone of it, so all of them are destroyed.
        let status = unsafe { (self.library.functions().nvjpegDestroy)(self.raw) };
        // Nothing is left that could receive the error.
        let _ = check("nvjpegDestroy", status);
    }
}
