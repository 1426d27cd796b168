//! Vector instructions: the level that may be used, loops compiled for it, and casts of floats without the checks that
//! keep compilers from vectorizing.

#![allow(unsafe_code)]

use crate::error::{Error, Result};
use std::sync::OnceLock;

/// Runs `body`, compiled for AVX2 where the processor has it.
///
/// The code is the same either way and so are its results: Rust never contracts or reorders floating-point operations.
/// `body` must be inlined to profit, so it should be a closure that calls `#[inline(always)]` functions.
#[inline(always)]
pub(crate) fn wide<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has the features that the function is compiled for, as just detected.
        return unsafe { wide_avx2(body) };
    }
    body()
}

/// Like [`wide`], but compiled for AVX-512 too. It is for code in which all pipelines spend much of their time.
#[inline(always)]
pub(crate) fn widest<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the processor has the features that the function is compiled for, as just detected.
        return unsafe { wide_avx512(body) };
    }
    wide(body)
}

/// A set of vector instructions, from the smallest to the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
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
pub(crate) fn check() -> Result<()> {
    limit().map(drop)
}

/// The highest level that the processor has and the user allows. It is decided at the first call.
#[inline]
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| limit().ok().flatten().map_or(detected(), |limit| limit.min(detected())))
}

fn detected() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        use std::is_x86_feature_detected as has;
        if has!("avx2") && has!("fma") && has!("f16c") {
            let has_512 = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            let has_both = has!("avx512vbmi") && has!("avx512vnni");
            return if has_512 && has_both { Level::Avx512 } else { Level::Avx2 };
        }
    }
    Level::Plain
}

#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_avx2() -> bool {
    level() >= Level::Avx2
}

#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_avx512() -> bool {
    level() >= Level::Avx512
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,fma,f16c")]
fn wide_avx512<R>(body: impl FnOnce() -> R) -> R {
    body()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn wide_avx2<R>(body: impl FnOnce() -> R) -> R {
    body()
}

/// `value` limited to 0..=255, with the fraction dropped; 0 for NaN.
#[inline(always)]
pub(crate) fn truncate_f32(value: f32) -> i32 {
    // Each of these comparisons compiles to one instruction, and the first turns NaN into 0.
    let value = if value > 0.0 { value } else { 0.0 };
    let value = if value < 255.0 { value } else { 255.0 };
    // SAFETY: between 0 and 255 and not NaN, by the two lines above.
    unsafe { value.to_int_unchecked() }
}

/// `value` limited to 0..=255, with the fraction dropped; 0 for NaN.
#[inline(always)]
pub(crate) fn truncate_f64(value: f64) -> i32 {
    let value = if value > 0.0 { value } else { 0.0 };
    let value = if value < 255.0 { value } else { 255.0 };
    // SAFETY: between 0 and 255 and not NaN, by the two lines above.
    unsafe { value.to_int_unchecked() }
}
