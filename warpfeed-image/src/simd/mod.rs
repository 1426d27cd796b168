//! Vector instructions: the level that may be used, loops compiled for it, and casts of floats without the checks that
//! keep compilers from vectorizing. Code for x86 is in `x86.rs`, here and in `decode::lanes`.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::error::{Error, Result};
use std::sync::OnceLock;

/// Runs `body`, compiled for AVX2 where the processor has it.
///
/// The code is the same either way and so are its results: Rust never contracts or reorders floating-point operations.
/// `body` must be inlined to profit, so it should be a closure that calls `#[inline(always)]` functions.
#[inline(always)]
pub fn wide<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has the features that the function is compiled for, as just detected.
        return unsafe { x86::wide_avx2(body) };
    }
    body()
}

/// Like [`wide`], but compiled for AVX-512 too. It is for code in which all pipelines spend much of their time.
#[inline(always)]
pub fn widest<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the processor has the features that the function is compiled for, as just detected.
        return unsafe { x86::wide_avx512(body) };
    }
    wide(body)
}

/// A set of vector instructions, from the smallest to the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The instructions that every processor of the architecture has.
    Plain,
    /// AVX2, FMA and F16C. Every processor with AVX2 has all three.
    Avx2,
    /// AVX-512 with byte shuffles (VBMI) and dot products (VNNI), from Intel's Ice Lake and AMD's Zen 4 on.
    Avx512,
}

/// The environment variable that limits the level, so that results and times can be compared.
const VARIABLE: &str = "WARPFEED_SIMD";

/// The limit that the user has set; `None` if there is no limit.
fn limit() -> Result<Option<Level>> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    match text.to_str() {
        Some("none") => Ok(Some(Level::Plain)),
        Some("avx2") => Ok(Some(Level::Avx2)),
        Some("avx512") => Ok(Some(Level::Avx512)),
        _ => {
            let got = text.to_string_lossy().into_owned();
            Err(Error::parameter("environment", VARIABLE, "none, avx2 or avx512", got))
        }
    }
}

/// Refuses an invalid limit.
///
/// # Errors
/// [`Error::Parameter`] if `WARPFEED_SIMD` is not `none`, `avx2` or `avx512`.
pub fn check() -> Result<()> {
    limit().map(drop)
}

/// The highest level that the processor has and the user allows. It is decided at the first call.
#[inline]
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| limit().ok().flatten().map_or(detected(), |limit| limit.min(detected())))
}

fn detected() -> Level {
    #[cfg(target_arch = "x86_64")]
    return x86::detected();
    #[cfg(not(target_arch = "x86_64"))]
    Level::Plain
}

/// Whether code for [`Level::Avx2`] may run.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn has_avx2() -> bool {
    level() >= Level::Avx2
}

/// Whether code for [`Level::Avx512`] may run.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn has_avx512() -> bool {
    level() >= Level::Avx512
}

/// `value` limited to 0..=255, with the fraction dropped; 0 for NaN.
#[inline(always)]
pub fn truncate_f32(value: f32) -> i32 {
    // Each of these comparisons compiles to one instruction, and the first turns NaN into 0.
    let value = if value > 0.0 { value } else { 0.0 };
    let value = if value < 255.0 { value } else { 255.0 };
    // SAFETY: between 0 and 255 and not NaN, by the two lines above.
    unsafe { value.to_int_unchecked() }
}

/// `value` limited to 0..=255, with the fraction dropped; 0 for NaN.
#[inline(always)]
pub fn truncate_f64(value: f64) -> i32 {
    let value = if value > 0.0 { value } else { 0.0 };
    let value = if value < 255.0 { value } else { 255.0 };
    // SAFETY: between 0 and 255 and not NaN, by the two lines above.
    unsafe { value.to_int_unchecked() }
}
