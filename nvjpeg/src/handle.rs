//! The library handle, from which all other objects are made.

use std::ffi::{c_int, c_void};
use std::ops::BitOr;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use nvjpeg_sys::Functions;
use nvjpeg_sys::bindings::{
    self, cudaStream_t, nvjpegBackend_t, nvjpegDevAllocatorV2_t, nvjpegHandle_t, nvjpegPinnedAllocatorV2_t,
};

use crate::error::{Error, Result, check};
use crate::info::{ComponentSize, ImageInfo, Subsampling};
use crate::library::Library;

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
    /// Like `GpuHybrid`, with the compressed images in device memory.
    GpuHybridDevice,
    /// Like `Hardware`, with the compressed images in device memory.
    HardwareDevice,
    /// Decodes lossless JPEG.
    Lossless,
}

impl Backend {
    pub(crate) fn raw(self) -> nvjpegBackend_t {
        match self {
            Self::Default => nvjpegBackend_t::NVJPEG_BACKEND_DEFAULT,
            Self::Hybrid => nvjpegBackend_t::NVJPEG_BACKEND_HYBRID,
            Self::GpuHybrid => nvjpegBackend_t::NVJPEG_BACKEND_GPU_HYBRID,
            Self::Hardware => nvjpegBackend_t::NVJPEG_BACKEND_HARDWARE,
            Self::GpuHybridDevice => nvjpegBackend_t::NVJPEG_BACKEND_GPU_HYBRID_DEVICE,
            Self::HardwareDevice => nvjpegBackend_t::NVJPEG_BACKEND_HARDWARE_DEVICE,
            Self::Lossless => nvjpegBackend_t::NVJPEG_BACKEND_LOSSLESS_JPEG,
        }
    }
}

/// Options of a handle, combined with `|`.
///
/// ```
/// use nvjpeg::Flags;
/// let flags = Flags::UPSAMPLING_WITH_INTERPOLATION | Flags::BITSTREAM_STRICT;
/// assert_eq!(flags.bits(), 32 | 4);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u32);

impl Flags {
    /// No option.
    pub const NONE: Self = Self(bindings::NVJPEG_FLAGS_DEFAULT);
    /// The hardware decoders do not overlap images, and take less memory.
    pub const HARDWARE_NO_PIPELINE: Self = Self(bindings::NVJPEG_FLAGS_HW_DECODE_NO_PIPELINE);
    /// Memory comes from the device's pools (cudaMallocAsync), allocated in the order of the stream.
    pub const MEMORY_POOLS: Self = Self(bindings::NVJPEG_FLAGS_ENABLE_MEMORY_POOLS);
    /// Images that violate the standard are refused.
    pub const BITSTREAM_STRICT: Self = Self(bindings::NVJPEG_FLAGS_BITSTREAM_STRICT);
    /// Decodes in parts, with less memory. CUDA 12.0.
    pub const REDUCED_MEMORY: Self = Self(bindings::NVJPEG_FLAGS_REDUCED_MEMORY_DECODE);
    /// Decodes in parts without copying, with less memory. CUDA 12.0.
    pub const REDUCED_MEMORY_ZERO_COPY: Self = Self(bindings::NVJPEG_FLAGS_REDUCED_MEMORY_DECODE_ZERO_COPY);
    /// Interpolates chroma, as libjpeg does, instead of repeating it. CUDA 12.1.
    pub const UPSAMPLING_WITH_INTERPOLATION: Self = Self(bindings::NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION);

    /// nvJPEG's number for these options.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The caller's allocator: two functions, and the context that is passed to them.
///
/// nvJPEG calls them from every thread that decodes, with the stream whose work uses the memory. When memory is freed,
/// work queued on this stream earlier may still use it.
#[derive(Debug, Clone, Copy)]
pub struct Allocator {
    /// `allocate(context, out, size_bytes, stream)`: writes the address to `out` and returns 0, or returns another
    /// number if there is no memory. It must not unwind.
    pub allocate: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, usize, cudaStream_t) -> c_int,
    /// `free(context, address, size_bytes, stream)`: returns 0, or another number if it failed. It must not unwind.
    pub free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, cudaStream_t) -> c_int,
    /// The first argument of both functions.
    pub context: *mut c_void,
}

impl Allocator {
    pub(crate) fn device(self) -> nvjpegDevAllocatorV2_t {
        nvjpegDevAllocatorV2_t { dev_malloc: Some(self.allocate), dev_free: Some(self.free), dev_ctx: self.context }
    }

    pub(crate) fn pinned(self) -> nvjpegPinnedAllocatorV2_t {
        nvjpegPinnedAllocatorV2_t {
            pinned_malloc: Some(self.allocate),
            pinned_free: Some(self.free),
            pinned_ctx: self.context,
        }
    }
}

/// The allocators of a handle.
#[derive(Debug, Clone, Copy)]
pub struct Allocators {
    /// Device memory.
    pub device: Allocator,
    /// Pinned host memory.
    pub pinned: Allocator,
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
    /// Kept, because nvJPEG has their addresses.
    _allocators: Option<Box<(nvjpegDevAllocatorV2_t, nvjpegPinnedAllocatorV2_t)>>,
}

// SAFETY: nvJPEG's documentation ("Thread Safety") lists the objects that each thread needs its own of, and the handle
// is not among them. The contract of `with_allocators` says that the allocators' contexts may be used by every thread.
// The handle is not bound to a thread, only to the CUDA context that is current there.
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
                nvjpegCreateEx(backend.raw(), ptr::null_mut(), ptr::null_mut(), flags.bits(), &raw mut raw)
            )?;
        }
        Ok(Self::from_raw(raw, library, None))
    }

    /// A handle whose memory, and the memory of states made from it, comes from the caller. Buffers have their own
    /// allocators.
    ///
    /// # Safety
    ///
    /// Until the handle and everything made from it are destroyed, the functions must be callable with their contexts
    /// from every thread at once. The memory that they return must have the requested size, be aligned to 256 bytes, be
    /// of the right kind (device or pinned), and not be used by anything else before it is freed.
    ///
    /// # Synchronization
    ///
    /// Complete on return.
    ///
    /// # Errors
    ///
    /// The errors of [`Handle::new`]; [`Error::MissingFunction`] before CUDA 11.7.
    pub unsafe fn with_allocators(
        library: &Library,
        backend: Backend,
        flags: Flags,
        allocators: Allocators,
    ) -> Result<Self> {
        let mut raw = ptr::null_mut();
        let mut kept = Box::new((allocators.device.device(), allocators.pinned.pinned()));
        let (device, pinned) = (&raw mut kept.0, &raw mut kept.1);
        // SAFETY: by this function's contract the allocators are as nvJPEG needs them. Their address stays the same
        // until the handle is destroyed. `raw` is written to before the call returns.
        unsafe {
            call_optional!(library, nvjpegCreateExV2(backend.raw(), device, pinned, flags.bits(), &raw mut raw))?;
        }
        Ok(Self::from_raw(raw, library, Some(kept)))
    }

    fn from_raw(
        raw: nvjpegHandle_t,
        library: &Library,
        allocators: Option<Box<(nvjpegDevAllocatorV2_t, nvjpegPinnedAllocatorV2_t)>>,
    ) -> Self {
        let (library, drop_error) = (library.clone(), Mutex::new(None));
        Self { inner: Arc::new(Inner { raw, library, drop_error, _allocators: allocators }) }
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

    /// Reads an image's header in one call, on any thread. [`JpegStream`](crate::JpegStream) reads more.
    ///
    /// # Synchronization
    ///
    /// Runs on the host only, complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::Status`] for a damaged header, or for a kind of JPEG that nvJPEG does not know.
    pub fn image_info(&self, jpeg: &[u8]) -> Result<ImageInfo> {
        const N: usize = bindings::NVJPEG_MAX_COMPONENT as usize;
        let (mut count, mut widths, mut heights) = (0, [0; N], [0; N]);
        let mut subsampling = bindings::nvjpegChromaSubsampling_t::NVJPEG_CSS_UNKNOWN;
        // SAFETY: during the call, `jpeg` is readable for its length, and the arrays have the length that nvJPEG writes
        // to. The handle is valid.
        unsafe {
            call!(
                self.functions(),
                nvjpegGetImageInfo(
                    self.as_raw(),
                    jpeg.as_ptr(),
                    jpeg.len(),
                    &raw mut count,
                    &raw mut subsampling,
                    widths.as_mut_ptr(),
                    heights.as_mut_ptr(),
                )
            )?;
        }
        let count = usize::try_from(count).unwrap_or(0).min(N);
        let mut components = [ComponentSize::default(); N];
        for (component, (width, height)) in components.iter_mut().zip(widths.into_iter().zip(heights)).take(count) {
            *component = ComponentSize { width_px: width.unsigned_abs(), height_px: height.unsigned_abs() };
        }
        Ok(ImageInfo::new(components, count, Subsampling::from_raw(subsampling)))
    }

    /// The first error of destroying an object of this handle since the last call of this function.
    #[must_use]
    pub fn take_drop_error(&self) -> Option<Error> {
        self.inner.drop_error.lock().unwrap_or_else(PoisonError::into_inner).take()
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
        self.take_drop_error().map_or(Ok(()), Err)
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
        // Nobody is left to receive the error.
        let _ = check("nvjpegDestroy", status);
    }
}
