//! The two places where plain code meets the processor: compiling a loop for wide vectors, and casting floats without
//! the checks that keep compilers from vectorising.

#![allow(unsafe_code)]

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

/// As [`wide`], but compiled for AVX-512 too: for what all pipelines spend much of their time in.
#[inline(always)]
pub(crate) fn widest<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the processor has the features that the function is compiled for, as just detected.
        return unsafe { wide_avx512(body) };
    }
    wide(body)
}

/// Whether AVX2, FMA and F16C are there: every processor with AVX2 has all three.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_avx2() -> bool {
    std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("fma")
        && std::is_x86_feature_detected!("f16c")
}

/// Whether AVX-512 is there, with the byte shuffles (VBMI) and the dot products (VNNI) that came with Intel's Ice Lake and
/// AMD's Zen 4.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512vl")
        && std::is_x86_feature_detected!("avx512vbmi")
        && std::is_x86_feature_detected!("avx512vnni")
        && has_avx2()
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

/// `value` cut to 0..=255, its fraction dropped; 0 if it is not a number.
#[inline(always)]
pub(crate) fn truncate_f32(value: f32) -> i32 {
    // Comparisons written so that each is one instruction and the first turns NaN into 0.
    let value = if value > 0.0 { value } else { 0.0 };
    let value = if value < 255.0 { value } else { 255.0 };
    // SAFETY: between 0 and 255 and not NaN, by the two lines above.
    unsafe { value.to_int_unchecked() }
}

/// `value` cut to 0..=255, its fraction dropped; 0 if it is not a number.
#[inline(always)]
pub(crate) fn truncate_f64(value: f64) -> i32 {
    let value = if value > 0.0 { value } else { 0.0 };
    let value = if value < 255.0 { value } else { 255.0 };
    // SAFETY: between 0 and 255 and not NaN, by the two lines above.
    unsafe { value.to_int_unchecked() }
}
