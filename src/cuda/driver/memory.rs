//! Memory of the device, memory of the host that it can read, and copies.
#![allow(unsafe_code)]

use super::{Context, Owned, Stream, allocated, check, enter, is_capture, leave, wait_for_all};
use crate::error::{Error, Result};
use crate::os::memory;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// Device memory. Freeing memory of a pool does not wait for its users on a card. So an owner that has waited for them
/// says so ([`idle`](Self::idle)). Other memory waits for the whole device when it is dropped, which ends a trainer's
/// capture; while the context cannot be waited for, it is left for later.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    /// `None` once it was freed or given away.
    memory: Option<Owned<sys::CUdeviceptr>>,
    address: sys::CUdeviceptr,
    len_bytes: usize,
    /// Whether nothing uses it any more.
    is_idle: bool,
    /// The pool that the memory is from, which must live as long.
    pool: Option<Arc<MemoryPool>>,
}

impl DeviceMemory {
    /// Allocates `len_bytes` bytes, aligned to 256, with undefined contents.
    ///
    /// # Synchronization
    /// This may wait for the device. The memory is idle when this returns.
    pub(crate) fn new(context: &Context, len_bytes: usize) -> Result<Self> {
        let _entered = enter(context)?;
        // SAFETY: what it holds is written before it is read.
        let address = allocated(context, "cuMemAlloc", len_bytes, unsafe { result::malloc_sync(len_bytes.max(1)) })?;
        // SAFETY: it was just allocated, as long as it is said to be.
        Ok(unsafe { Self::of(context, address, len_bytes, None) })
    }

    /// # Safety
    /// `len_bytes` bytes were allocated at the address, in this context, for this owner alone.
    unsafe fn of(context: &Context, address: u64, len_bytes: usize, pool: Option<Arc<MemoryPool>>) -> Self {
        // SAFETY: nothing uses the memory when it is freed (`drop`).
        let memory = unsafe { Owned::of(context, address, |address| result::free_sync(address)) };
        Self { memory: Some(memory), address, len_bytes, is_idle: false, pool }
    }

    /// Says that nothing uses the memory any more.
    pub(crate) fn idle(&mut self) {
        self.is_idle = true;
    }

    /// Says that work may use the memory again.
    pub(crate) fn in_use(&mut self) {
        self.is_idle = false;
    }

    /// Frees the memory once the work is done that `stream` has queued so far. The caller has made the stream wait for
    /// all users.
    ///
    /// # Synchronization
    /// Returns at once if the memory is from a pool; otherwise this waits for the stream.
    pub(crate) fn free_after(&mut self, stream: &Stream) -> Result<()> {
        if self.pool.is_none() {
            stream.synchronize()?;
            self.is_idle = true;
            return Ok(());
        }
        // SAFETY: from a pool, and freed once: it is forgotten below. Its users come before in the order of the stream.
        check("cuMemFreeAsync", unsafe { result::free_async(self.address, stream.raw()) })?;
        self.forget();
        Ok(())
    }

    /// Whether it is neither freed nor given away.
    pub(crate) fn is_there(&self) -> bool {
        self.memory.is_some()
    }

    /// Leaves the memory to whoever frees it.
    fn forget(&mut self) {
        if let Some(memory) = self.memory.take() {
            // Only the handle is forgotten. The context has an owner less.
            let mut memory = ManuallyDrop::new(memory);
            // SAFETY: it is dropped once: `memory` is never used again.
            unsafe { std::ptr::drop_in_place(&raw mut memory.context) };
        }
    }

    /// Gives the memory to a caller who frees it. A pool that is destroyed goes once its memory is freed.
    #[cfg(feature = "candle-cuda")]
    pub(crate) fn leak(&mut self) -> u64 {
        self.forget();
        self.address
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        // In a failed context nothing runs any more.
        if !self.is_idle && wait_for_all(&memory.context).is_err_and(|error| is_capture(&error)) {
            let context = Arc::clone(&memory.context);
            leave(&context, (memory, self.pool.take()));
        }
    }
}

/// A stream-ordered pool of device memory. It keeps freed memory, so allocations are cheap. The device's default pool
/// stays as the trainer has set it.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    /// `None` on devices without pools.
    raw: Option<Owned<sys::CUmemoryPool>>,
    context: Context,
}

impl MemoryPool {
    /// A pool that keeps at most `kept_bytes` of free memory, and gives the rest back to the device.
    pub(crate) fn new(context: &Context, kept_bytes: u64) -> Result<Self> {
        if !context.has_async_alloc() {
            return Ok(Self { raw: None, context: Arc::clone(context) });
        }
        let _entered = enter(context)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: zeros are valid in every field, and mean none of what is not set below.
        let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        // SAFETY: in every version of CUDA the number of the device follows the type, under different names.
        unsafe { (&raw mut properties.location).cast::<i32>().add(1).write(context.cu_device()) };
        // SAFETY: the pool is written before the call returns.
        check("cuMemPoolCreate", unsafe { sys::cuMemPoolCreate(&raw mut raw, &raw const properties) }.result())?;
        // SAFETY: it was just made. It goes once memory that was given away is freed.
        let owned = unsafe { Owned::of(context, raw, |pool| sys::cuMemPoolDestroy(pool).result()) };
        let pool = Self { raw: Some(owned), context: Arc::clone(context) };
        let mut threshold_bytes = kept_bytes;
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let value = (&raw mut threshold_bytes).cast::<c_void>();
        // SAFETY: the pool is alive; the threshold is a 64-bit number.
        check("cuMemPoolSetAttribute", unsafe { result::mem_pool::set_attribute(raw, threshold, value) })?;
        Ok(pool)
    }

    /// Allocates in the order of `stream`, for work that is queued there or waits for it.
    pub(crate) fn allocate(self: &Arc<Self>, stream: &Stream, len_bytes: usize) -> Result<DeviceMemory> {
        let Some(raw) = &self.raw else { return DeviceMemory::new(&self.context, len_bytes) };
        let (context, mut address) = (&self.context, 0);
        let _entered = enter(context)?;
        // SAFETY: the address is written before the call returns, and what the memory holds before it is read.
        let made =
            unsafe { sys::cuMemAllocFromPoolAsync(&raw mut address, len_bytes.max(1), raw.handle, stream.raw()) };
        allocated(context, "cuMemAllocFromPoolAsync", len_bytes, made.result())?;
        // SAFETY: it was just allocated, as long as it is said to be.
        Ok(unsafe { DeviceMemory::of(context, address, len_bytes, Some(Arc::clone(self))) })
    }
}

/// Host memory that copies to a device read: pinned, so that the copy runs while the host goes on, or pageable, from
/// which the driver first copies to a buffer of its own.
#[derive(Debug)]
pub(crate) struct HostMemory {
    start: NonNull<u8>,
    len_bytes: usize,
    _memory: Host,
}

/// Who frees host memory.
#[derive(Debug)]
enum Host {
    Pinned(#[expect(dead_code, reason = "it is dropped")] Owned<*mut c_void>),
    Pageable(#[expect(dead_code, reason = "it is dropped")] Box<[u8]>),
}

// SAFETY: plain memory, owned.
unsafe impl Send for HostMemory {}
// SAFETY: through a shared reference only its address can be had.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates `len_bytes` zero bytes. Pinned memory is not write-combined, since the host may read it too.
    pub(crate) fn new(context: &Context, len_bytes: usize, pinned: bool) -> Result<Self> {
        let len_bytes = len_bytes.max(1);
        if !pinned {
            let bytes = memory::zeros::<u8>(len_bytes, "staging a batch", memory::SMALLER_BATCHES)?;
            let mut memory = bytes.into_boxed_slice();
            return Ok(Self { start: NonNull::from(&mut *memory).cast(), len_bytes, _memory: Host::Pageable(memory) });
        }
        let _entered = enter(context)?;
        // SAFETY: it is written right below.
        let start = unsafe { result::malloc_host(len_bytes, 0) };
        if matches!(start, Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))) {
            let remedy = "use a smaller batch_size or prefetch, or pageable memory (pinned(false), --pageable)";
            return Err(memory::refused::<u8>("staging a batch in pinned memory", len_bytes, remedy));
        }
        let start = check("cuMemHostAlloc", start)?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| Error::Device {
            call: "cuMemHostAlloc".to_owned(),
            message: "the driver gave no memory and no error".to_owned(),
        })?;
        // SAFETY: as long as was asked for, and only owned here.
        unsafe { start.write_bytes(0, len_bytes) };
        // SAFETY: it was just allocated. Owners wait for copies from it before they drop it.
        let memory = unsafe { Owned::of(context, start.as_ptr().cast(), |start| result::free_host(start)) };
        Ok(Self { start, len_bytes, _memory: Host::Pinned(memory) })
    }

    /// Address of the first byte, valid for reads and writes of `len_bytes` bytes while this lives.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

/// Existing host memory that is pinned until this is dropped. Its owner has waited by then for copies from it.
#[derive(Debug)]
pub(crate) struct Pin(Owned<*mut c_void>);

impl Pin {
    /// Pins memory for copies in all contexts.
    ///
    /// # Safety
    /// The memory is allocated until this is dropped, and begins and ends with a page.
    pub(crate) unsafe fn new(context: &Context, memory: &mut [u8]) -> Result<Self> {
        let _entered = enter(context)?;
        let (start, len_bytes) = (memory.as_mut_ptr().cast::<c_void>(), memory.len());
        // SAFETY: allocated, by contract.
        let pinned = unsafe { sys::cuMemHostRegister_v2(start, len_bytes, sys::CU_MEMHOSTREGISTER_PORTABLE).result() };
        if matches!(pinned, Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))) {
            let remedy = "use a smaller batch_size or prefetch, or leave out pin_batches";
            return Err(memory::refused::<u8>("pinning a batch", len_bytes, remedy));
        }
        check("cuMemHostRegister", pinned)?;
        // SAFETY: it was just pinned, and is allocated until this is dropped.
        Ok(Self(unsafe { Owned::of(context, start, |start| sys::cuMemHostUnregister(start).result()) }))
    }

    /// The context that was named when the memory was pinned.
    pub(crate) fn context(&self) -> &Context {
        &self.0.context
    }
}

/// Queues a copy of `len_bytes` bytes to the device.
///
/// # Safety
/// Both ranges are valid until the copy is done. Until then `from` is not written, and `to` is not used.
pub(crate) unsafe fn upload(to: u64, from: *const u8, len_bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: readable for the length, by contract.
    let from = unsafe { std::slice::from_raw_parts(from, len_bytes) };
    // SAFETY: the contract.
    check("cuMemcpyHtoDAsync", unsafe { result::memcpy_htod_async(to, from, stream.raw()) })
}

/// Queues zeros for a range of device memory.
///
/// # Safety
/// The range is valid until it is written, and not used before.
pub(crate) unsafe fn clear(to: u64, len_bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: the contract.
    check("cuMemsetD8Async", unsafe { result::memset_d8_async(to, 0, len_bytes, stream.raw()) })
}

/// Queues a copy within the device.
///
/// # Safety
/// Both ranges are valid until the copy is done, and do not overlap. Until then `from` is not written, and `to` is not
/// used.
pub(crate) unsafe fn copy(to: u64, from: u64, len_bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: the contract.
    check("cuMemcpyDtoDAsync", unsafe { result::memcpy_dtod_async(to, from, len_bytes, stream.raw()) })
}

/// Queues a copy of `len_bytes` bytes to memory of the host. If that is not pinned, this waits for the copy.
///
/// # Safety
/// Both ranges are valid until the copy is done. Until then `from` is not written, and `to` is not used.
pub(crate) unsafe fn download_later(to: *mut u8, from: u64, len_bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: writable for the length, by contract.
    let to = unsafe { std::slice::from_raw_parts_mut(to, len_bytes) };
    // SAFETY: the contract.
    check("cuMemcpyDtoHAsync", unsafe { result::memcpy_dtoh_async(to, from, stream.raw()) })
}

/// Queues a copy to the host and waits for it.
///
/// # Safety
/// The device's range is valid, and nothing writes it that the stream does not wait for.
pub(crate) unsafe fn download(to: &mut [u8], from: u64, stream: &Stream) -> Result<()> {
    // SAFETY: the contract; `to` is borrowed until the stream has been waited for.
    check("cuMemcpyDtoHAsync", unsafe { result::memcpy_dtoh_async(to, from, stream.raw()) })?;
    stream.synchronize()
}
