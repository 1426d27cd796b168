//! An example for CUDA_SIM_KERNELS: a shared object with kernels.

#![cfg(target_os = "linux")]

use std::ffi::{c_char, c_void};

type Launch = extern "C" fn(*const u32, *const u32, u32, *const *mut c_void);

unsafe extern "C" {
    safe fn cuda_sim_check(address: *const u8, bytes: usize) -> bool;
    safe fn cuda_sim_register_kernel_sized(name: *const c_char, launch: Launch, count: usize, sizes: *const usize);
}

/// `store(int *out, int value)`.
extern "C" fn store(_grid: *const u32, _block: *const u32, _shared_bytes: u32, params: *const *mut c_void) {
    // SAFETY: the launch passes these two parameters.
    let (out, value) = unsafe { ((*params).cast::<*mut i32>().read(), (*params.add(1)).cast::<i32>().read()) };
    if cuda_sim_check(out.cast(), size_of::<i32>()) {
        // SAFETY: checked just now.
        unsafe { out.write(value) };
    }
}

/// `store_seven(int *out)`.
extern "C" fn store_seven(_grid: *const u32, _block: *const u32, _shared_bytes: u32, params: *const *mut c_void) {
    // SAFETY: the launch passes this parameter, a device pointer, which here is memory of this process.
    unsafe { (*params).cast::<*mut i32>().read().write(7) };
}

/// Called once by the driver as it loads the first module.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_kernels(register: extern "C" fn(*const c_char, Launch)) {
    // With known sizes of the parameters, the driver need not guess.
    cuda_sim_register_kernel_sized(c"store".as_ptr(), store, 2, [8usize, 4].as_ptr());
    register(c"store_seven".as_ptr(), store_seven);
}
