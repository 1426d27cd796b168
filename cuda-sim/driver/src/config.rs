//! Settings from the environment.

use crate::api::COMPUTE_CAPABILITY;
use std::ffi::c_int;
use std::str::FromStr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI32, AtomicUsize};

/// Whether kernels, copies and fills do nothing and all work completes at once. Only the cost of the calls is left, so
/// that a program's own cost can be measured.
pub static NOOP: LazyLock<bool> = LazyLock::new(|| is_on("CUDA_SIM_NOOP"));

/// Treatment of objects that are still alive when the process ends.
#[derive(Clone, Copy, PartialEq)]
pub enum Leaks {
    Ignore,
    Report,
    Fail,
}

#[derive(Clone)]
pub struct Config {
    pub seed: u64,
    pub fail_seed: u64,
    /// Probability in [0, 1] that a call which can fail does fail.
    pub fail_rate: f64,
    /// Memory of each device.
    pub memory_bytes: usize,
    /// Largest speed of copies; 0 for the speed of memory.
    pub copy_bytes_per_s: u64,
    /// Whether the primary context has the same handle after a reset of the device, as on cards.
    pub same_context: bool,
    /// Major and minor number of the compute capability.
    pub capability: (c_int, c_int),
    pub verbose: bool,
    pub leaks: Leaks,
}

/// Largest amount of pinned memory of all contexts: CUDA_SIM_PINNED_BYTES, or a test's value.
pub static PINNED_BYTES: LazyLock<AtomicUsize> = LazyLock::new(|| AtomicUsize::new(most_pinned_bytes()));

/// The setting of the environment. Default: no limit.
pub fn most_pinned_bytes() -> usize {
    number("CUDA_SIM_PINNED_BYTES").unwrap_or(usize::MAX)
}

/// The version of CUDA that the driver is for, as 13000 for 13.0, or a test's value.
pub static DRIVER_VERSION: AtomicI32 = AtomicI32::new(NEWEST_DRIVER);
pub const NEWEST_DRIVER: c_int = 13_000;

/// Largest number of devices.
pub const MOST_DEVICES: usize = 8;

/// Number of devices: CUDA_SIM_DEVICES. Default: 1.
pub static DEVICES: LazyLock<usize> = LazyLock::new(|| match number("CUDA_SIM_DEVICES") {
    None => 1,
    Some(devices @ 1..=MOST_DEVICES) => devices,
    Some(other) => refuse("CUDA_SIM_DEVICES", &other.to_string(), "1 to 8"),
});

impl Config {
    pub fn from_environment() -> Self {
        let fail_seed = number::<u64>("CUDA_SIM_FAIL_SEED");
        let fail_rate = number::<f64>("CUDA_SIM_FAIL_RATE");
        Config {
            seed: number("CUDA_SIM_SEED").unwrap_or(0),
            // Each of the two variables alone turns failures on.
            fail_rate: fail_rate.unwrap_or(if fail_seed.is_some() { 0.01 } else { 0.0 }),
            fail_seed: fail_seed.unwrap_or(0),
            memory_bytes: number("CUDA_SIM_MEMORY_BYTES").unwrap_or(1 << 30),
            copy_bytes_per_s: 0,
            same_context: false,
            capability: number("CUDA_SIM_CAPABILITY").map_or(COMPUTE_CAPABILITY, |of: c_int| (of / 10, of % 10)),
            verbose: is_on("CUDA_SIM_VERBOSE"),
            leaks: match std::env::var("CUDA_SIM_LEAKS").as_deref() {
                Err(_) | Ok("" | "ignore") => Leaks::Ignore,
                Ok("report") => Leaks::Report,
                Ok("fail") => Leaks::Fail,
                Ok(other) => refuse("CUDA_SIM_LEAKS", other, "ignore, report or fail"),
            },
        }
    }
}

fn is_on(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

fn number<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| refuse(name, &text, "a number")))
}

/// Ends the process. If a wrong setting were ignored, a test would pass without testing anything.
fn refuse(name: &str, value: &str, wanted: &str) -> ! {
    eprintln!("cuda-sim: {name}={value}: expected {wanted}");
    std::process::exit(2);
}
