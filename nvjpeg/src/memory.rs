//! Memory that the caller provides.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Arc;

use nvjpeg_sys::bindings::{cudaStream_t, nvjpegDevAllocatorV2_t, nvjpegPinnedAllocatorV2_t};

/// A kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Memory of the device.
    Device,
    /// Pinned memory of the host.
    Pinned,
}

/// A source of memory for a handle and all objects made from it. nvJPEG calls it on any thread.
///
/// # Safety
///
/// Memory that [`allocate`](Self::allocate) returns is of the kind and size asked for, aligned to 256 bytes, of the
/// handle's device, and not used by anything else until it is freed.
pub unsafe trait MemorySource: Send + Sync {
    /// Allocates memory for work on `stream`, which may be null. `None` if there is none.
    fn allocate(&self, kind: MemoryKind, size_bytes: usize, stream: cudaStream_t) -> Option<*mut c_void>;

    /// Takes back memory that work queued on `stream` may still use. Returns false if that failed.
    ///
    /// # Safety
    ///
    /// `address` came from [`allocate`](Self::allocate) of the same kind and was not freed since. `stream` is a live
    /// stream of the handle's device, or null.
    unsafe fn free(&self, kind: MemoryKind, address: *mut c_void, stream: cudaStream_t) -> bool;
}

/// The allocators of a handle, whose context is the source itself.
pub(crate) struct Allocators {
    device: nvjpegDevAllocatorV2_t,
    pinned: nvjpegPinnedAllocatorV2_t,
    source: Arc<dyn MemorySource>,
}

// SAFETY: the pointers lead to this value alone, whose source may be used by all threads.
unsafe impl Send for Allocators {}
// SAFETY: as above.
unsafe impl Sync for Allocators {}

impl Allocators {
    pub(crate) fn new(source: Arc<dyn MemorySource>) -> Box<Self> {
        let context = std::ptr::null_mut();
        let device = nvjpegDevAllocatorV2_t {
            dev_malloc: Some(allocate::<true>),
            dev_free: Some(free::<true>),
            dev_ctx: context,
        };
        let pinned = nvjpegPinnedAllocatorV2_t {
            pinned_malloc: Some(allocate::<false>),
            pinned_free: Some(free::<false>),
            pinned_ctx: context,
        };
        let mut allocators = Box::new(Self { device, pinned, source });
        let context = (&raw mut allocators.source).cast::<c_void>();
        (allocators.device.dev_ctx, allocators.pinned.pinned_ctx) = (context, context);
        allocators
    }

    pub(crate) fn as_raw(&mut self) -> (*mut nvjpegDevAllocatorV2_t, *mut nvjpegPinnedAllocatorV2_t) {
        (&raw mut self.device, &raw mut self.pinned)
    }
}

impl fmt::Debug for Allocators {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Allocators").finish_non_exhaustive()
    }
}

const fn kind(is_device: bool) -> MemoryKind {
    if is_device { MemoryKind::Device } else { MemoryKind::Pinned }
}

/// # Safety
///
/// `context` is the source of a living handle, and `out` is memory for an address.
unsafe extern "C" fn allocate<const IS_DEVICE: bool>(
    context: *mut c_void,
    out: *mut *mut c_void,
    size_bytes: usize,
    stream: cudaStream_t,
) -> c_int {
    // SAFETY: the contract; the source is only read.
    let source = unsafe { &*context.cast::<Arc<dyn MemorySource>>() };
    match source.allocate(kind(IS_DEVICE), size_bytes, stream) {
        Some(address) => {
            // SAFETY: the contract.
            unsafe { out.write(address) };
            0
        }
        None => 1,
    }
}

/// # Safety
///
/// `context` is the source of a living handle; the address came from `allocate` and was not freed since.
unsafe extern "C" fn free<const IS_DEVICE: bool>(
    context: *mut c_void,
    address: *mut c_void,
    _size_bytes: usize,
    stream: cudaStream_t,
) -> c_int {
    // SAFETY: the contract; the source is only read.
    let source = unsafe { &*context.cast::<Arc<dyn MemorySource>>() };
    // SAFETY: the contract.
    c_int::from(!unsafe { source.free(kind(IS_DEVICE), address, stream) })
}
