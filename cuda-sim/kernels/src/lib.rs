//! warpfeed's kernels, compiled for the host, for `CUDA_SIM_KERNELS`.

// Where there is no simulated driver, the workspace must build all the same.
#![cfg(target_os = "linux")]

use cuda_sim::{Kernel, LAUNCH_BYTES, LaunchError};
use std::ffi::{CString, c_char, c_int, c_void};

type LaunchWith = extern "C" fn(*mut c_void, *const u32, *const u32, u32, *const *mut c_void) -> c_int;

// Functions of the driver.
unsafe extern "C" {
    fn cuda_sim_register_kernel_with(
        name: *const c_char,
        launch: LaunchWith,
        data: *mut c_void,
        count: usize,
        sizes: *const usize,
    );
    safe fn cuda_sim_launch_order() -> u64;
    safe fn cuda_sim_range(address: usize, start: *mut usize, end: *mut usize) -> bool;
    safe fn cuda_sim_illegal(address: usize, bytes: usize, what: *const c_char);
}

extern "C" fn range(address: usize, start: *mut usize, end: *mut usize) -> bool {
    cuda_sim_range(address, start, end)
}

extern "C" fn illegal(address: usize, bytes: usize, what: *const c_char) {
    cuda_sim_illegal(address, bytes, what);
}

extern "C" fn launch(
    kernel: *mut c_void,
    grid: *const u32,
    block: *const u32,
    _shared_bytes: u32,
    params: *const *mut c_void,
) -> c_int {
    // SAFETY: by the driver's contract, `kernel` is the registered pointer, grid and block have three numbers, and
    // there is one parameter of the given size. If a launch points to memory that does not exist, the access is refused
    // when a kernel makes it.
    let result = unsafe {
        let kernel = &*kernel.cast::<Kernel>();
        let launch = (*params).cast::<[u8; LAUNCH_BYTES]>().read();
        let (grid, block) = (grid.cast::<[u32; 3]>().read(), block.cast::<[u32; 3]>().read());
        kernel.launch_in_order(grid, block, &launch, cuda_sim_launch_order())
    };
    match result {
        // The driver already knows of the access.
        Ok(()) | Err(LaunchError::IllegalAccess) => 0,
        Err(error) => {
            eprintln!("cuda-sim: {error}");
            error as c_int
        }
    }
}

/// Called once by the driver as it loads the first module.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_kernels(_register: *const c_void) {
    if std::env::var_os("CUDA_SIM_CHECK").is_none_or(|value| value != "0") {
        // SAFETY: no kernel has been registered, so none is running; the driver runs one at a time.
        unsafe { cuda_sim::check_with(range, illegal) };
    }
    for kernel in Kernel::all() {
        let name = CString::new(kernel.name()).unwrap_or_default();
        // Registered for as long as the process lives.
        let data = std::ptr::from_mut(Box::leak(Box::new(kernel))).cast();
        // SAFETY: the name is a C string, which is copied, and there is one size.
        unsafe { cuda_sim_register_kernel_with(name.as_ptr(), launch, data, 1, &raw const LAUNCH) };
    }
}

static LAUNCH: usize = LAUNCH_BYTES;
