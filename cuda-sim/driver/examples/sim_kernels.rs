//! What CUDA_SIM_KERNELS names: a shared object with kernels for the simulated driver.

use std::ffi::{CStr, c_char, c_void};

type Launch = extern "C" fn(*const u32, *const u32, u32, *const *mut c_void);

/// `store_seven(int *out)`.
extern "C" fn store_seven(_grid: *const u32, _block: *const u32, _shared_bytes: u32, params: *const *mut c_void) {
    // SAFETY: the launch has one parameter, a device pointer to an int, which here is memory of this process.
    unsafe { (*params).cast::<*mut i32>().read().write(7) };
}

/// Called once by the driver as it loads the first module.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_kernels(register: extern "C" fn(*const c_char, Launch)) {
    let name: &CStr = c"store_seven";
    register(name.as_ptr(), store_seven);
}
