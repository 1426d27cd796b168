//! The first step of `warpfeed check-gpu`: a case for each kernel.

#![cfg(target_os = "linux")]

#[path = "../../tests/support/sim.rs"]
mod sim;

use cuda_sim::{Kernel, LAUNCH_BYTES};
use sim::{Sim, open};
use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use warpfeed::Device;
use warpfeed_bench::gpu_check::kernels;

type LaunchWith = extern "C" fn(*mut c_void, *const u32, *const u32, u32, *const *mut c_void) -> c_int;
type Register = extern "C" fn(*const c_char, LaunchWith, *mut c_void, usize, *const usize);

/// The kernels that have run.
fn ran() -> MutexGuard<'static, BTreeSet<&'static str>> {
    static RAN: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    RAN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the kernel with the index `data`, and remembers that it ran.
extern "C" fn remember(
    data: *mut c_void,
    grid: *const u32,
    block: *const u32,
    _shared_bytes: u32,
    parameters: *const *mut c_void,
) -> c_int {
    let kernel = Kernel::all().nth(data.addr()).unwrap();
    ran().insert(kernel.name());
    // SAFETY: grid and block have three numbers and there is the one parameter, of the size given, all by the driver's
    // contract; what it points to is the pipeline's.
    let result = unsafe {
        let launch = (*parameters).cast::<[u8; LAUNCH_BYTES]>().read();
        kernel.launch(grid.cast::<[u32; 3]>().read(), block.cast::<[u32; 3]>().read(), &launch)
    };
    c_int::from(result.is_err())
}

#[test]
fn every_kernel_runs_in_one_context() {
    static PARAMETER_BYTES: usize = LAUNCH_BYTES;

    let sim = Sim::start();
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels.image");
    // SAFETY: this file's one test, so no other thread reads the environment meanwhile.
    unsafe { std::env::set_var("WARPFEED_KERNELS", image) };
    let driver = open("libcuda_sim_driver.so");
    // SAFETY: the symbol has this type.
    let register = unsafe { driver.get::<Register>(b"cuda_sim_register_kernel_with") }.unwrap();
    for (place, kernel) in Kernel::all().enumerate() {
        let (name, data) = (CString::new(kernel.name()).unwrap(), std::ptr::without_provenance_mut(place));
        register(name.as_ptr(), remember, data, 1, &raw const PARAMETER_BYTES);
    }
    let mut loaded = Vec::new();
    let mut note = |_case: &str| {
        let report = sim.report();
        loaded.push((report.contexts, report.modules));
    };
    let found = kernels(Device::Cuda(0), &mut note).unwrap();
    assert!(found.cases > 40 && found.different.is_empty(), "{:?}", found.different);
    // One context and one module serve every case. The context stays afterwards.
    assert!(loaded.iter().all(|counts| *counts == (1, 1)), "{loaded:?}");
    assert_eq!((sim.report().alive(), sim.report().contexts), (0, 1));
    let idle: Vec<_> = Kernel::all().map(Kernel::name).filter(|name| !ran().contains(name)).collect();
    // These kernels stand in for training.
    assert_eq!(idle, ["spin", "work"]);
}
