//! Levels of x86-64, and functions compiled for them.

use super::Level;
use std::is_x86_feature_detected as has;

/// The highest level that the processor has.
pub(super) fn detected() -> Level {
    if !(has!("avx2") && has!("fma") && has!("f16c")) {
        return Level::Plain;
    }
    let has_512 = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    if has_512 && has!("avx512vbmi") && has!("avx512vnni") { Level::Avx512 } else { Level::Avx2 }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,fma,f16c")]
pub(super) fn wide_avx512<R>(body: impl FnOnce() -> R) -> R {
    body()
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn wide_avx2<R>(body: impl FnOnce() -> R) -> R {
    body()
}
