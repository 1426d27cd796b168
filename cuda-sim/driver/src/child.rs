//! Children of the process that has initialized the driver: every call is refused, and the parent is told.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// Whether this process is a child.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// Number of calls in children, in memory that they share with the parent.
static CALLS: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn in_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Begins to watch for children.
///
/// # Safety
///
/// The library is not unloaded.
pub unsafe fn watch() {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping touches no existing memory.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<AtomicU32>(), access, kind, -1, 0) };
    if page != libc::MAP_FAILED {
        CALLS.store(page.cast(), Ordering::Relaxed);
    }
    // SAFETY: the function only stores a flag, and lives as long as the process.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Whether this process is a child of the one that has initialized the driver.
pub fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

fn count() -> Option<&'static AtomicU32> {
    // SAFETY: null, or zeros that were mapped for it and are never unmapped.
    unsafe { CALLS.load(Ordering::Relaxed).as_ref() }
}

/// Whether a call is refused because this process is a child.
pub fn refuses(call: &str) -> bool {
    if !is_child() {
        return false;
    }
    eprintln!("cuda-sim: {call} in a child process, which may not use the driver");
    count().inspect(|count| _ = count.fetch_add(1, Ordering::Relaxed));
    true
}

/// Number of calls that children have made since the last reset.
pub fn calls() -> u32 {
    count().map_or(0, |count| count.load(Ordering::Relaxed))
}

/// Forgets the calls.
pub fn reset() {
    count().inspect(|count| count.store(0, Ordering::Relaxed));
}
