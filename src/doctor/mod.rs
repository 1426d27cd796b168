//! Checks of this machine, with a remedy for each lack.

mod check;
mod gpu;

pub use check::Check;

use crate::decode;
use std::num::NonZero;

/// Checks everything that affects speed or function.
///
/// ```
/// let checks = warpfeed::doctor();
/// assert!(checks.iter().all(|check| check.ok == check.remedy.is_none()));
/// ```
#[must_use]
pub fn doctor() -> Vec<Check> {
    let mut checks = vec![version(), processors(), vectors(), jpeg(), memory()];
    checks.extend(gpu::checks());
    checks
}

fn version() -> Check {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let remedy = cfg!(debug_assertions).then_some("build with --release: this build is several times slower");
    Check::new("warpfeed", format!("{} ({build} build)", env!("CARGO_PKG_VERSION")), remedy)
}

fn processors() -> Check {
    match std::thread::available_parallelism().map(NonZero::get) {
        Ok(count) => Check::new("processors", format!("{count} for this process"), None),
        Err(error) => Check::new(
            "processors",
            error.to_string(),
            Some("give --threads: the system does not say how many processors this process may use"),
        ),
    }
}

fn vectors() -> Check {
    use crate::simd::{self, Level};
    if let Err(error) = simd::check() {
        return Check::new(
            "vector instructions",
            error.to_string(),
            Some("unset WARPFEED_SIMD, or set it to one of these"),
        );
    }
    let found = match simd::level() {
        Level::Avx512 => "AVX-512",
        Level::Avx2 => "AVX2",
        Level::Plain if cfg!(target_arch = "x86_64") => "SSE2",
        Level::Plain => std::env::consts::ARCH,
    };
    if let Some(limit) = std::env::var_os("WARPFEED_SIMD").filter(|limit| !limit.is_empty()) {
        return Check::new("vector instructions", format!("{found} (WARPFEED_SIMD={})", limit.display()), None);
    }
    let remedy = (found == "SSE2")
        .then_some("use a processor with AVX2 (2013 or later): resizing and rotation run without it, more slowly");
    Check::new("vector instructions", found, remedy)
}

fn jpeg() -> Check {
    let simd = decode::libjpeg_has_simd();
    Check::new(
        "JPEG decoder",
        if simd { "libjpeg-turbo with SIMD" } else { "libjpeg-turbo without SIMD" },
        (!simd).then_some(
            "install nasm (apt-get install nasm) and rebuild (cargo clean -p mozjpeg-sys -p warpfeed): decoding gives the \
             same bytes without it, more slowly: a twentieth with AVX2",
        ),
    )
}

fn memory() -> Check {
    let free = std::fs::read_to_string("/proc/meminfo").ok().and_then(|info| {
        let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    match free {
        Some(kib) if kib < 256 << 10 => Check::new(
            "memory",
            format!("{} MB available", kib >> 10),
            Some("free memory, or use a smaller --batch-size and --prefetch"),
        ),
        Some(kib) => Check::new("memory", format!("{:.1} GB available", kib as f64 * 1024.0 / 1e9), None),
        None => Check::new("memory", "the system does not say", None),
    }
}
