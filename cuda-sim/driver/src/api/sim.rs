//! Control of the simulation itself, for tests and for kernels.

use super::context::destroy;
use crate::call::{Out, Session};
use crate::memory::{check, memory, refuse, take_refusal};
use crate::state::Report;
use std::ffi::{CStr, c_char};

/// Whether device code may touch `bytes` bytes at `address` now: device memory that is allocated, or pinned memory.
/// A kernel that asks and is told no fails its launch with CUDA_ERROR_ILLEGAL_ADDRESS, and should return.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_check(address: *const u8, bytes: usize) -> bool {
    check(address as usize, bytes)
}

/// Finds the range that holds an address and that device code may touch, its end excluded. False, and nothing is written,
/// if there is none. It holds until the kernel that asks has ended.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_range(address: usize, start: Out<usize>, end: Out<usize>) -> bool {
    let found = memory().reachable(address);
    found.is_some_and(|range| start.set(range.0).and(end.set(range.1)).is_ok())
}

/// Refuses an access that a kernel was about to make: its launch fails with CUDA_ERROR_ILLEGAL_ADDRESS. `what` is a C
/// string that says who did what, for the message.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_illegal(address: usize, bytes: usize, what: *const c_char) {
    // SAFETY: the caller's contract.
    let what = unsafe { CStr::from_ptr(what) };
    refuse(address, bytes, &what.to_string_lossy());
}

/// Starts again as a fresh process would, with these settings; a rate of 0 injects no failures, and 0 bytes of memory
/// leaves its size. Registered kernels stay. Handles from before are invalid.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_reset(seed: u64, fail_seed: u64, fail_rate: f64, memory_bytes: usize) {
    let mut sim = Session::open("cuda_sim_reset");
    destroy(&mut sim);
    sim.config.seed = seed;
    sim.config.fail_seed = fail_seed;
    sim.config.fail_rate = fail_rate;
    if memory_bytes > 0 {
        sim.config.memory_bytes = memory_bytes;
    }
    sim.restart();
    take_refusal();
}

/// Counts of what is alive and of what has happened since the start or the last reset.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_report(out: Out<Report>) {
    out.set_if_given(Session::open("cuda_sim_report").report());
}

/// Writes what has failed since the start or the last reset, a line each with the call's name and the seed, first to
/// last, as a C string cut to fit `bytes` bytes. Returns its whole length: 0 if nothing has failed.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_message(out: *mut c_char, bytes: usize) -> usize {
    let sim = Session::open("cuda_sim_message");
    let text = sim.messages.join("\n");
    let text = text.as_bytes();
    if !out.is_null() && bytes > 0 {
        let kept = text.len().min(bytes - 1);
        // SAFETY: the caller gives `bytes` writable bytes; at most bytes - 1 and the end mark are written.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast::<u8>(), kept);
            out.add(kept).write(0);
        }
    }
    text.len()
}
