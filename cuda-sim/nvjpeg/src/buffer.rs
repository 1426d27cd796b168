//! Memory that nvJPEG allocates, from CUDA or from the caller's allocators.

use crate::driver::driver;
use crate::jpeg::Result;
use crate::object::{Handle, InFlight, lock};
use nvjpeg_sys::bindings::{
    cudaStream_t, nvjpegDevAllocator_t, nvjpegDevAllocatorV2_t, nvjpegPinnedAllocator_t, nvjpegPinnedAllocatorV2_t,
    nvjpegStatus_t as Status,
};
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// The source of memory.
#[derive(Clone, Copy)]
pub enum Allocator {
    Cuda { device: bool },
    Device(nvjpegDevAllocator_t),
    Pinned(nvjpegPinnedAllocator_t),
    DeviceOnStream(nvjpegDevAllocatorV2_t),
    PinnedOnStream(nvjpegPinnedAllocatorV2_t),
}

// SAFETY: by nvJPEG's contract, every thread may use the functions with the context.
unsafe impl Send for Allocator {}
// SAFETY: as above.
unsafe impl Sync for Allocator {}

/// A pointer that is null, or by nvJPEG's contract points to a `T`.
fn given<T: Copy>(pointer: *const T) -> Option<T> {
    // SAFETY: null or a T, as the caller says.
    unsafe { pointer.as_ref() }.copied()
}

impl Allocator {
    pub fn device(given_one: *const nvjpegDevAllocator_t) -> Self {
        given(given_one).map_or(Self::Cuda { device: true }, Self::Device)
    }

    pub fn pinned(given_one: *const nvjpegPinnedAllocator_t) -> Self {
        given(given_one).map_or(Self::Cuda { device: false }, Self::Pinned)
    }

    pub fn device_on_stream(given_one: *const nvjpegDevAllocatorV2_t) -> Self {
        given(given_one).map_or(Self::Cuda { device: true }, Self::DeviceOnStream)
    }

    pub fn pinned_on_stream(given_one: *const nvjpegPinnedAllocatorV2_t) -> Self {
        given(given_one).map_or(Self::Cuda { device: false }, Self::PinnedOnStream)
    }

    fn allocate(&self, bytes: usize, stream: cudaStream_t) -> Result<usize> {
        let mut address: *mut c_void = std::ptr::null_mut();
        let out = &raw mut address;
        // SAFETY: the functions are as nvjpeg.h declares them; `out` is written to before they return.
        let code = unsafe {
            match self {
                Self::Cuda { device } => return driver()?.allocate(*device, bytes),
                Self::Device(a) => a.dev_malloc.map(|f| f(out, bytes)),
                Self::Pinned(a) => a.pinned_malloc.map(|f| f(out, bytes, 0)),
                Self::DeviceOnStream(a) => a.dev_malloc.map(|f| f(a.dev_ctx, out, bytes, stream)),
                Self::PinnedOnStream(a) => a.pinned_malloc.map(|f| f(a.pinned_ctx, out, bytes, stream)),
            }
        };
        succeeded(code).map(|()| address as usize)
    }

    fn free(&self, address: usize, bytes: usize, stream: cudaStream_t) -> Result<()> {
        let pointer = address as *mut c_void;
        // SAFETY: the functions are as nvjpeg.h declares them, and the address came from `allocate`.
        let code = unsafe {
            match self {
                Self::Cuda { device } => return driver()?.free(*device, address),
                Self::Device(a) => a.dev_free.map(|f| f(pointer)),
                Self::Pinned(a) => a.pinned_free.map(|f| f(pointer)),
                Self::DeviceOnStream(a) => a.dev_free.map(|f| f(a.dev_ctx, pointer, bytes, stream)),
                Self::PinnedOnStream(a) => a.pinned_free.map(|f| f(a.pinned_ctx, pointer, bytes, stream)),
            }
        };
        succeeded(code)
    }
}

fn succeeded(code: Option<i32>) -> Result<()> {
    match code {
        None => Err(Status::NVJPEG_STATUS_INVALID_PARAMETER),
        Some(0) => Ok(()),
        Some(_) => Err(Status::NVJPEG_STATUS_ALLOCATOR_FAILURE),
    }
}

/// Memory that grows as images need it.
pub struct Buffer {
    /// Kept, so that the handle is known to be in use.
    pub _handle: Arc<Handle>,
    allocator: Allocator,
    /// Address and bytes.
    memory: Mutex<(usize, usize)>,
    /// Operations that read or write the memory.
    pub flight: InFlight,
}

impl Buffer {
    pub fn new(handle: Arc<Handle>, allocator: Allocator) -> Self {
        Self { _handle: handle, allocator, memory: Mutex::default(), flight: InFlight::default() }
    }

    /// Address and bytes; 0 and 0 without memory.
    pub fn memory(&self) -> (usize, usize) {
        *lock(&self.memory)
    }

    /// Makes the memory at least `bytes` bytes large and returns its address. Frees the previous memory.
    pub fn reserve(&self, bytes: usize, stream: cudaStream_t) -> Result<usize> {
        let mut memory = lock(&self.memory);
        if bytes > memory.1 {
            let bytes = bytes.next_multiple_of(4096);
            let address = self.allocator.allocate(bytes, stream)?;
            let old = std::mem::replace(&mut *memory, (address, bytes));
            if old.1 > 0 {
                self.allocator.free(old.0, old.1, stream)?;
            }
        }
        Ok(memory.0)
    }

    /// Frees the memory.
    pub fn free(&self) -> Result<()> {
        let (address, bytes) = std::mem::take(&mut *lock(&self.memory));
        if bytes == 0 { Ok(()) } else { self.allocator.free(address, bytes, std::ptr::null_mut()) }
    }
}
