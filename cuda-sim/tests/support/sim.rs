//! The simulated driver, loaded before anything looks for one.

#![allow(dead_code, reason = "each test program uses some of this")]

#[path = "../../driver/src/report.rs"]
mod report;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub use report::Report;

impl Report {
    pub fn alive(&self) -> u64 {
        self.allocations + self.host_allocations + self.streams + self.events + self.modules + self.lost
    }
}

/// The folder with cargo's libraries: that of the test, or the one above if they are uplifted.
pub fn folder() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let found = exe.ancestors().skip(1).take(2).find(|folder| folder.join("libcuda_sim_driver.so").exists());
    found.map(Path::to_owned).expect("cargo builds the libraries before the test")
}

/// Opens one of these libraries and makes its symbols global.
pub fn open(name: &str) -> Library {
    // SAFETY: the libraries are those of this workspace, whose initializers have no conditions.
    unsafe { Library::open(Some(folder().join(name)), RTLD_NOW | RTLD_GLOBAL) }.unwrap()
}

/// Runs an ignored test of this program in a process of its own, through the script `run`. Returns its output.
pub fn through_run(test: &str, variables: &[(&str, &Path)]) -> String {
    let output = std::process::Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../run"))
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env("CUDA_SIM_LIBRARIES", folder())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    text.into_owned()
}

struct Driver {
    reset: extern "C" fn(u64, u64, f64, usize),
    slow_copies: extern "C" fn(u64),
    same_context: extern "C" fn(),
    capability: extern "C" fn(c_int, c_int),
    capability_of: extern "C" fn(c_int, c_int, c_int) -> bool,
    driver_version: extern "C" fn(c_int),
    pinned_limit: extern "C" fn(usize),
    report: extern "C" fn(*mut Report),
    report_of: extern "C" fn(c_int, *mut Report) -> bool,
    break_device: extern "C" fn(c_int) -> bool,
    message: extern "C" fn(*mut c_char, usize) -> usize,
    ranges: extern "C" fn(*mut c_char, usize) -> usize,
}

fn text(write: extern "C" fn(*mut c_char, usize) -> usize) -> String {
    let mut bytes = [0u8; 8192];
    write(bytes.as_mut_ptr().cast(), bytes.len());
    CStr::from_bytes_until_nul(&bytes).unwrap().to_str().unwrap().to_owned()
}

/// The simulation. One test at a time holds it.
pub struct Sim(&'static Driver, MutexGuard<'static, ()>);

impl Sim {
    pub fn start() -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = DRIVER.get_or_init(|| {
            let library = open("libcuda_sim_driver.so");
            // SAFETY: the symbols have the types given to them here, and the library stays loaded.
            let driver = unsafe {
                Driver {
                    reset: *library.get(b"cuda_sim_reset").unwrap(),
                    slow_copies: *library.get(b"cuda_sim_slow_copies").unwrap(),
                    same_context: *library.get(b"cuda_sim_same_context").unwrap(),
                    capability: *library.get(b"cuda_sim_capability").unwrap(),
                    capability_of: *library.get(b"cuda_sim_capability_of").unwrap(),
                    driver_version: *library.get(b"cuda_sim_driver_version").unwrap(),
                    pinned_limit: *library.get(b"cuda_sim_pinned_limit").unwrap(),
                    report: *library.get(b"cuda_sim_report").unwrap(),
                    report_of: *library.get(b"cuda_sim_report_of").unwrap(),
                    break_device: *library.get(b"cuda_sim_break").unwrap(),
                    message: *library.get(b"cuda_sim_message").unwrap(),
                    ranges: *library.get(b"cuda_sim_ranges").unwrap(),
                }
            };
            std::mem::forget(library);
            driver
        });
        let sim = Sim(driver, one);
        sim.reset(0);
        sim
    }

    pub fn reset(&self, seed: u64) {
        (self.0.reset)(seed, 0, 0.0, 64 << 20);
    }

    pub fn reset_with_memory(&self, seed: u64, memory_bytes: usize) {
        (self.0.reset)(seed, 0, 0.0, memory_bytes);
    }

    pub fn reset_with_failures(&self, seed: u64, rate: f64) {
        (self.0.reset)(seed, seed, rate, 64 << 20);
    }

    pub fn reset_with_failures_and_memory(&self, seed: u64, rate: f64, memory_bytes: usize) {
        (self.0.reset)(seed, seed, rate, memory_bytes);
    }

    pub fn slow_copies(&self, bytes_per_s: u64) {
        (self.0.slow_copies)(bytes_per_s);
    }

    /// Contexts keep their handles when a device is reset, until the next `reset`.
    pub fn same_context(&self) {
        (self.0.same_context)();
    }

    pub fn capability(&self, major: c_int, minor: c_int) {
        (self.0.capability)(major, minor);
    }

    pub fn capability_of(&self, device: c_int, major: c_int, minor: c_int) {
        assert!((self.0.capability_of)(device, major, minor), "there is no device {device}");
    }

    /// Sets the version of CUDA that the driver is for, as 12000 for 12.0.
    pub fn driver_version(&self, version: c_int) {
        (self.0.driver_version)(version);
    }

    pub fn pinned_limit(&self, bytes: usize) {
        (self.0.pinned_limit)(bytes);
    }

    pub fn report(&self) -> Report {
        let mut report = Report::default();
        (self.0.report)(&mut report);
        report
    }

    pub fn report_of(&self, device: c_int) -> Report {
        let mut report = Report::default();
        assert!((self.0.report_of)(device, &mut report), "there is no device {device}");
        report
    }

    pub fn break_device(&self, device: c_int) {
        assert!((self.0.break_device)(device), "there is no device {device}");
    }

    /// All failures, one per line.
    pub fn message(&self) -> String {
        text(self.0.message)
    }

    /// All ranges that a profiler has heard of, one per line: `sample 3 of batch 0/read`.
    pub fn ranges(&self) -> String {
        text(self.0.ranges)
    }
}
