//! The two functions of NVTX that begin and end ranges, and what a profiler would have heard through them. They stand in
//! for NVTX's own library, which is another one than the driver.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, PoisonError};

/// Each range that there was, once, as its text behind those of the ranges that it was in, `/` between them.
static RANGES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The ranges that this thread is in.
    static OPEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Begins a range; how many there were around it, or -1 for no text.
#[unsafe(no_mangle)]
pub extern "C" fn nvtxRangePushA(text: *const c_char) -> c_int {
    if text.is_null() {
        return -1;
    }
    // SAFETY: a C string, as NVTX asks for.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    OPEN.with_borrow_mut(|open| {
        open.push(text);
        RANGES.lock().unwrap_or_else(PoisonError::into_inner).insert(open.join("/"));
        open.len() as c_int - 1
    })
}

/// Ends the range that was begun last; how many are left, or -1 if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn nvtxRangePop() -> c_int {
    OPEN.with_borrow_mut(|open| open.pop().map_or(-1, |_| open.len() as c_int))
}

/// Writes the ranges that there were, a line each, sorted, as [`cuda_sim_message`](super::sim::cuda_sim_message) writes what
/// has failed.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_ranges(out: *mut c_char, bytes: usize) -> usize {
    let ranges = RANGES.lock().unwrap_or_else(PoisonError::into_inner);
    let lines: Vec<&str> = ranges.iter().map(String::as_str).collect();
    super::sim::write_text(&lines.join("\n"), out, bytes)
}
