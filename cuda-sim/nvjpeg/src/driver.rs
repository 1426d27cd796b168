//! The simulated driver, which makes all accesses to device memory.

use crate::jpeg::Result;
use crate::work::{Touch, Work};
use libloading::os::unix::{Library, RTLD_NOW};
use nvjpeg_sys::bindings::{cudaStream_t, nvjpegStatus_t as Status};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

type Function = extern "C" fn(*mut c_void, bool);

/// The functions of the driver that are used here.
pub struct Driver {
    enqueue: extern "C" fn(*const c_char, cudaStream_t, Function, *mut c_void, *const Touch, usize) -> u32,
    draw_failure: extern "C" fn(*const c_char, *const c_char) -> bool,
    misuse: extern "C" fn(*const c_char, *const c_char),
    allocate: extern "C" fn(*mut *mut c_void, usize) -> u32,
    free: extern "C" fn(*mut c_void) -> u32,
    allocate_host: extern "C" fn(*mut *mut c_void, usize, c_uint) -> u32,
    free_host: extern "C" fn(*mut c_void) -> u32,
    attribute: extern "C" fn(*mut c_int, c_int, c_int) -> u32,
    host: extern "C" fn(usize) -> usize,
}

/// The driver; an error if it is not the simulated one.
pub fn driver() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    DRIVER.get_or_init(load).as_ref().ok_or(Status::NVJPEG_STATUS_EXECUTION_FAILED)
}

fn load() -> Option<Driver> {
    // SAFETY: a driver's initializers have no preconditions. A library with these functions is the simulated driver,
    // which gives them these types and stays loaded.
    unsafe {
        let library = Library::open(Some("libcuda.so.1"), RTLD_NOW).ok()?;
        let driver = Driver {
            enqueue: *library.get(b"cuda_sim_enqueue").ok()?,
            draw_failure: *library.get(b"cuda_sim_draw_failure").ok()?,
            misuse: *library.get(b"cuda_sim_misuse").ok()?,
            allocate: *library.get(b"cuMemAlloc_v2").ok()?,
            free: *library.get(b"cuMemFree_v2").ok()?,
            allocate_host: *library.get(b"cuMemHostAlloc").ok()?,
            free_host: *library.get(b"cuMemFreeHost").ok()?,
            attribute: *library.get(b"cuDeviceGetAttribute").ok()?,
            host: *library.get(b"cuda_sim_host").ok()?,
        };
        std::mem::forget(library);
        Some(driver)
    }
}

impl Driver {
    /// Queues work on a stream.
    pub fn enqueue(&self, name: &'static CStr, stream: cudaStream_t, work: Work) -> Result<()> {
        let touches = work.touches();
        let data = Box::into_raw(Box::new(work)).cast();
        if (self.enqueue)(name.as_ptr(), stream, run, data, touches.as_ptr(), touches.len()) == 0 {
            return Ok(());
        }
        run(data, false);
        Err(Status::NVJPEG_STATUS_EXECUTION_FAILED)
    }

    /// Whether the device is of the generation of RTX 50 cards.
    pub fn is_rtx_50(&self) -> bool {
        const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
        let mut major = 0;
        (self.attribute)(&raw mut major, COMPUTE_CAPABILITY_MAJOR, 0) == 0 && major == 12
    }

    /// Fails the call if a failure is drawn.
    pub fn may_fail(&self, name: &'static CStr, status: Status, status_name: &'static CStr) -> Result<()> {
        if (self.draw_failure)(name.as_ptr(), status_name.as_ptr()) { Err(status) } else { Ok(()) }
    }

    /// Fails the context because of a use that nvJPEG does not allow.
    pub fn misuse(&self, name: &'static CStr, what: &str) -> Status {
        let what = CString::new(what).unwrap_or_default();
        (self.misuse)(name.as_ptr(), what.as_ptr());
        Status::NVJPEG_STATUS_EXECUTION_FAILED
    }

    /// Allocates device memory or pinned memory.
    pub fn allocate(&self, device: bool, bytes: usize) -> Result<usize> {
        let mut address = std::ptr::null_mut();
        let code = if device {
            (self.allocate)(&raw mut address, bytes)
        } else {
            (self.allocate_host)(&raw mut address, bytes, 0)
        };
        if code == 0 { Ok(address as usize) } else { Err(Status::NVJPEG_STATUS_ALLOCATOR_FAILURE) }
    }

    pub fn free(&self, device: bool, address: usize) -> Result<()> {
        let free = if device { self.free } else { self.free_host };
        if free(address as *mut c_void) == 0 { Ok(()) } else { Err(Status::NVJPEG_STATUS_ALLOCATOR_FAILURE) }
    }
}

/// This process's address of the memory at an address of a device, or of its own memory.
pub fn host(address: usize) -> usize {
    driver().map_or(address, |driver| (driver.host)(address))
}

/// Does queued work, or gives it up.
extern "C" fn run(work: *mut c_void, run: bool) {
    // SAFETY: `enqueue` made it, and it comes back once.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    if run {
        work.run();
    }
}
