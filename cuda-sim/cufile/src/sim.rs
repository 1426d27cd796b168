//! Control of the simulation itself, for tests.

use crate::faults::Faults;
use crate::state::{Random, Report, Session};
use std::ffi::{CStr, c_char};
use std::fmt::Write as _;

/// Sets the faults of later calls, and the seed that decides which calls have them. Counts and the log begin anew.
/// Returns false if the text names an unknown fault.
#[unsafe(no_mangle)]
pub extern "C" fn cufile_sim_faults(text: *const c_char, seed: u64) -> bool {
    // SAFETY: the caller's contract.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let Ok(faults) = Faults::read(&text) else { return false };
    let mut state = Session::open();
    state.faults = faults;
    state.random = Some(Random::new(seed));
    state.report = Report::default();
    state.log.clear();
    true
}

#[unsafe(no_mangle)]
pub extern "C" fn cufile_sim_report(out: *mut Report) {
    let state = Session::open();
    let (files, buffers) = (state.files.len() as u64, state.buffers.len() as u64);
    // SAFETY: the caller's contract.
    unsafe { out.write(Report { files, buffers, ..state.report }) };
}

/// Writes offset and length of each read, one a line, as a C string cut to `bytes` bytes. Returns the length of the
/// whole text.
#[unsafe(no_mangle)]
pub extern "C" fn cufile_sim_log(out: *mut c_char, bytes: usize) -> usize {
    let mut text = String::new();
    for (offset, len_bytes) in &Session::open().log {
        let _ = writeln!(text, "{offset} {len_bytes}");
    }
    let kept = text.len().min(bytes.saturating_sub(1));
    if bytes > 0 {
        // SAFETY: the caller gives `bytes` writable bytes; at most bytes - 1 and the end mark are written.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast::<u8>(), kept);
            out.add(kept).write(0);
        }
    }
    text.len()
}
