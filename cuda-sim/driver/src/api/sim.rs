//! Control of the simulation itself, for tests and for kernels.

use super::context::destroy;
use super::device::COMPUTE_CAPABILITY;
use super::memory::any_place;
use crate::call::{Needs, Out, Session, call};
use crate::child;
use crate::config::{DEVICES, DRIVER_VERSION, NEWEST_DRIVER, PINNED_BYTES, most_pinned_bytes};
use crate::error::{Code, Result};
use crate::kernels::order;
use crate::memory::{check, host, memory, refuse, scribble, take_refusal};
use crate::report::Report;
use crate::state::{External, Place, Work};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering;

/// Whether device code may access `bytes` bytes at `address` now: allocated device memory, or pinned memory. If not,
/// the kernel's launch fails with CUDA_ERROR_ILLEGAL_ADDRESS, and the kernel should return.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_check(address: *const u8, bytes: usize) -> bool {
    check(address as usize, bytes)
}

/// Finds the range that contains an address and that device code may access; the end is excluded. Returns false and
/// writes nothing if there is none. The range is valid until the kernel that asks has ended.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_range(address: usize, start: Out<usize>, end: Out<usize>) -> bool {
    let found = memory().reachable(address);
    found.is_some_and(|range| start.set(range.0).and(end.set(range.1)).is_ok())
}

/// Refuses an access that a kernel was about to make: its launch fails with CUDA_ERROR_ILLEGAL_ADDRESS. `what` is a C
/// string that says who did what, for the message. With 0 bytes it is another forbidden action.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_illegal(address: usize, bytes: usize, what: *const c_char) {
    // SAFETY: the caller's contract.
    let what = unsafe { CStr::from_ptr(what) };
    refuse(address, bytes, &what.to_string_lossy());
}

/// The host's address of the memory at an address of a device, or of its own memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_host(address: usize) -> usize {
    host(address)
}

/// The host's address of a range of device memory that another library reads or writes during its call, ahead of all
/// queued work. 0 if the range is not allocated memory of the current context.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_device_range(address: usize, bytes: usize) -> usize {
    let _session = Session::open("cuda_sim_device_range");
    let memory = memory();
    let found = memory.find(address as u64, bytes).and_then(|id| memory.require_live(id));
    drop(memory);
    found.map_or(0, |()| host(address))
}

/// A number that decides in which order the launch that runs now has its blocks run.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_launch_order() -> u64 {
    order()
}

/// Memory that another library's operation accesses.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Touch {
    /// Address of device memory, pinned memory, or other host memory, which is not checked.
    address: usize,
    bytes: usize,
    /// Whether the memory is spoiled during the call, ahead of queued work, as some hardware does.
    ahead: bool,
}

/// A library's name in messages: a C string that is never freed.
fn static_name(name: *const c_char) -> &'static str {
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("?")
}

/// Queues an operation of another library on a stream. When its turn comes, `function` runs with `data` and then
/// accesses the given ranges, which are checked now and when it runs. It must not call the driver. It is called once,
/// or never if this returns an error. `name` is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_enqueue(
    name: *const c_char,
    stream: u64,
    function: External,
    data: *mut c_void,
    touches: *const Touch,
    count: usize,
) -> u32 {
    let touches = match count {
        0 => &[],
        // SAFETY: the caller passes `count` of them.
        _ => unsafe { std::slice::from_raw_parts(touches, count) },
    };
    call(static_name(name), Needs::Context, |sim| {
        let name = sim.call;
        let found = touches.iter().map(|touch| any_place(sim, touch.address, touch.bytes));
        let places = found.collect::<Result<Vec<_>>>()?;
        for (touch, place) in touches.iter().zip(&places).filter(|(touch, _)| touch.ahead) {
            place.require_live().map_err(|what| sim.illegal(name, &format!("ahead of the stream's order, {what}")))?;
            scribble(touch.address, touch.bytes);
        }
        let pageable = places.iter().filter(|place| matches!(place, Place::Pageable { .. }));
        sim.counts.pageable_inputs += pageable.count() as u64;
        sim.submit(stream, Work::External { function, data: data as usize, places }).map(drop)
    })
}

/// Whether a failure is drawn for another library's call. The call then returns the status named `status`.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_draw_failure(name: *const c_char, status: *const c_char) -> bool {
    let mut sim = Session::open(static_name(name));
    let drawn = sim.draw_failure();
    if drawn {
        let seed = sim.config.fail_seed;
        let message = format!("{}: injected {} (CUDA_SIM_FAIL_SEED={seed})", sim.call, static_name(status));
        sim.log(&message);
        sim.remember(message);
    }
    drawn
}

/// Fails the context because another library was used in a forbidden way. `what` is a C string. In a failed context one
/// cannot wait for work, so queued work is not a mistake there.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_misuse(name: *const c_char, what: *const c_char) {
    let mut sim = Session::open(static_name(name));
    if sim.healthy().is_err() {
        return;
    }
    // SAFETY: the caller's contract.
    let what = unsafe { CStr::from_ptr(what) }.to_string_lossy();
    eprintln!("cuda-sim: {}: {what}", sim.call);
    let call = sim.call;
    sim.illegal(call, &what);
}

/// Restarts all devices as in a fresh process, with these settings. A rate of 0 injects no failures, and 0 bytes of
/// memory keep its size. Registered kernels stay. Handles from before become invalid.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_reset(seed: u64, fail_seed: u64, fail_rate: f64, memory_bytes: usize) {
    let mut sim = Session::open("cuda_sim_reset");
    // Contexts of programs' own first: they use the memory of their device.
    for slot in (0..sim.slots()).rev() {
        sim.switch(slot);
        destroy(&mut sim);
        sim.config.seed = seed;
        sim.config.fail_seed = fail_seed;
        sim.config.fail_rate = fail_rate;
        sim.config.copy_bytes_per_s = 0;
        sim.config.same_context = false;
        sim.config.capability = COMPUTE_CAPABILITY;
        if memory_bytes > 0 {
            sim.config.memory_bytes = memory_bytes;
        }
        sim.restart();
    }
    PINNED_BYTES.store(most_pinned_bytes(), Ordering::Relaxed);
    DRIVER_VERSION.store(NEWEST_DRIVER, Ordering::Relaxed);
    child::reset();
    take_refusal();
}

/// Fails the context of a device, like a memory error that cannot be corrected. Returns false if there is no such
/// device.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_break(device: c_int) -> bool {
    let mut sim = Session::open("cuda_sim_break");
    let found = sim.of(device).is_ok();
    if found {
        sim.fail(Code::ECC_UNCORRECTABLE, format!("device {device} was broken"));
    }
    found
}

/// Limits the speed of copies until the next reset. 0 means the speed of memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_slow_copies(bytes_per_s: u64) {
    Session::open("cuda_sim_slow_copies").config.copy_bytes_per_s = bytes_per_s;
}

/// Gives the primary context of each device the same handle after `cuDevicePrimaryCtxReset`, until the next reset of
/// the simulation. Only the context's number tells the two apart then, as on cards.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_same_context() {
    let mut sim = Session::open("cuda_sim_same_context");
    for device in 0..*DEVICES {
        sim.switch(device);
        sim.config.same_context = true;
    }
}

/// Sets the device's compute capability until the next reset. The device is that of the current context, or device 0.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_capability(major: c_int, minor: c_int) {
    Session::open("cuda_sim_capability").config.capability = (major, minor);
}

/// The same for a device, whichever context is current. Returns false if there is no such device.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_capability_of(device: c_int, major: c_int, minor: c_int) -> bool {
    let mut sim = Session::open("cuda_sim_capability_of");
    sim.of(device).map(|()| sim.config.capability = (major, minor)).is_ok()
}

/// Sets the version of CUDA that the driver is for until the next reset, as 12000 for 12.0.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_driver_version(version: c_int) {
    DRIVER_VERSION.store(version, Ordering::Relaxed);
}

/// Limits pinned memory, of all contexts together, until the next reset.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_pinned_limit(bytes: usize) {
    PINNED_BYTES.store(bytes, Ordering::Relaxed);
}

/// Counts of living objects and of past events since the start or the last reset. The device is that of the current
/// context, or device 0.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_report(out: Out<Report>) {
    out.set_if_given(Session::open("cuda_sim_report").report());
}

/// The same counts for a device, whichever context is current. Returns false and writes nothing if there is no such
/// device.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_report_of(device: c_int, out: Out<Report>) -> bool {
    let mut sim = Session::open("cuda_sim_report_of");
    sim.of(device).and_then(|()| out.set(sim.report())).is_ok()
}

/// Writes all failures on any device since the start or the last reset, one per line in order, with the call's name and
/// the seed, as a C string cut to `bytes` bytes. Returns the length of the whole text: 0 if nothing has failed.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_message(out: *mut c_char, bytes: usize) -> usize {
    let mut sim = Session::open("cuda_sim_message");
    let mut messages = Vec::new();
    for slot in 0..sim.slots() {
        sim.switch(slot);
        messages.extend_from_slice(&sim.messages);
    }
    if child::calls() > 0 {
        messages.push(format!("{} calls in child processes, which may not use the driver", child::calls()));
    }
    write_text(&messages.join("\n"), out, bytes)
}

/// Writes a text as a C string, cut to `bytes` bytes. Returns the length of the whole text.
pub(super) fn write_text(text: &str, out: *mut c_char, bytes: usize) -> usize {
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
