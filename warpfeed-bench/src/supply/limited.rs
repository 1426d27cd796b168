//! Measuring on some of the processors.

use warpfeed::Result;

/// Calls `measure` while this thread, and those that it starts, may run on the first `cores` of its processors only.
#[cfg(target_os = "linux")]
pub(super) fn on_cores<T>(cores: usize, measure: impl FnOnce() -> Result<T>) -> Result<T> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    // A system that does not tell or allow this measures with so many threads on all processors.
    let Ok(all) = sched_getaffinity(None) else { return measure() };
    let mut some = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).take(cores).for_each(|cpu| some.set(cpu));
    let limited = sched_setaffinity(None, &some).is_ok();
    let measured = measure();
    if limited {
        let _ = sched_setaffinity(None, &all);
    }
    measured
}

#[cfg(not(target_os = "linux"))]
pub(super) fn on_cores<T>(_cores: usize, measure: impl FnOnce() -> Result<T>) -> Result<T> {
    measure()
}
