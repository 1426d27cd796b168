//! The two functions of NVTX for ranges, and a record of the ranges.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, PoisonError};

/// All ranges so far, once each: the texts of the ranges around it and its own, joined by `/`.
static RANGES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The ranges that this thread is in.
    static OPEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Begins a range. Returns the number of ranges around it, or -1 without a text.
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

/// Ends the range that was begun last. Returns the number of ranges that are left, or -1 if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn nvtxRangePop() -> c_int {
    OPEN.with_borrow_mut(|open| open.pop().map_or(-1, |_| open.len() as c_int))
}

/// Writes all ranges so far, one per line, sorted, in the way of [`cuda_sim_message`](super::sim::cuda_sim_message).
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_ranges(out: *mut c_char, bytes: usize) -> usize {
    let ranges = RANGES.lock().unwrap_or_else(PoisonError::into_inner);
    let lines: Vec<&str> = ranges.iter().map(String::as_str).collect();
    super::sim::write_text(&lines.join("\n"), out, bytes)
}
