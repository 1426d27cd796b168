//! The simulated driver, which knows all device memory.

use libloading::os::unix::{Library, RTLD_NOW};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

struct Driver {
    current: extern "C" fn(*mut *mut c_void) -> u32,
    device_range: extern "C" fn(usize, usize) -> usize,
    misuse: extern "C" fn(*const c_char, *const c_char),
}

fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    DRIVER.get_or_init(load).as_ref()
}

fn load() -> Option<Driver> {
    // SAFETY: a driver's initializers have no preconditions. A library with these functions is the simulated driver,
    // which gives them these types and stays loaded.
    unsafe {
        let library = Library::open(Some("libcuda.so.1"), RTLD_NOW).ok()?;
        let driver = Driver {
            current: *library.get(b"cuCtxGetCurrent").ok()?,
            device_range: *library.get(b"cuda_sim_device_range").ok()?,
            misuse: *library.get(b"cuda_sim_misuse").ok()?,
        };
        std::mem::forget(library);
        Some(driver)
    }
}

/// Whether a context is current on this thread.
pub fn has_context() -> bool {
    let mut current = std::ptr::null_mut();
    driver().is_some_and(|driver| (driver.current)(&raw mut current) == 0 && !current.is_null())
}

/// This process's address of a range of device memory. `None` if it is not the device's.
pub fn device_range(address: usize, bytes: usize) -> Option<usize> {
    Some((driver()?.device_range)(address, bytes)).filter(|host| *host != 0)
}

/// Fails the context because of a use that cuFile does not allow.
pub fn misuse(name: &'static CStr, what: &str) {
    let text = CString::new(what).unwrap_or_default();
    match driver() {
        Some(driver) => (driver.misuse)(name.as_ptr(), text.as_ptr()),
        None => eprintln!("cuda-sim: {}: {what}", name.to_string_lossy()),
    }
}
