//! The primary context of each device, and contexts that programs make.

use super::pool::trim;
use crate::call::{CONTEXTS, Out, Session};
use crate::config::DEVICES;
use crate::error::{Code, Result};
use std::ffi::{c_int, c_uint, c_void};

/// Runs the queued work, counts the objects that are left, and drops all of them.
pub fn destroy(sim: &mut Session) {
    // In a failed context the operations pass without effect.
    let _ = sim.wait_for_all();
    let report = sim.report();
    let lost = report.allocations + report.host_allocations + report.streams + report.events + report.modules;
    if lost > 0 {
        sim.log(&format!("{}: {lost} objects are alive in the context", sim.call));
    }
    sim.counts.lost += lost;
    sim.clear_context();
}

/// Makes a context of the program's own, and makes it current.
fn create(sim: &mut Session, device: c_int, flags: c_uint) -> Result<u64> {
    sim.of(device)?;
    if sim.draw_failure() {
        let call = sim.call;
        return Err(sim.injected(call, Code::OUT_OF_MEMORY));
    }
    sim.switch_to_unused();
    sim.activate();
    sim.context_flags = flags;
    let context = sim.context_handle();
    CONTEXTS.with_borrow_mut(|stack| stack.push(context));
    Ok(context)
}

fn current() -> u64 {
    CONTEXTS.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

api! {
    Init fn cuDevicePrimaryCtxRetain(sim, out: Out<u64>, device: c_int) {
        sim.of(device)?;
        sim.context_references += 1;
        if !sim.active {
            sim.activate();
        }
        out.set(sim.context_handle())
    }
    Init fn cuDevicePrimaryCtxRelease_v2(sim, device: c_int) {
        sim.of(device)?;
        if sim.context_references == 0 {
            return Err(Code::INVALID_CONTEXT);
        }
        sim.context_references -= 1;
        if sim.context_references == 0 {
            destroy(sim);
        }
        Ok(())
    }
    Init fn cuDevicePrimaryCtxReset_v2(sim, device: c_int) {
        // References stay: whoever has retained the context still releases it.
        sim.of(device)?;
        destroy(sim);
        Ok(())
    }
    Init fn cuDevicePrimaryCtxGetState(sim, device: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        sim.of(device)?;
        flags.set_if_given(sim.context_flags);
        active.set(sim.active.into())
    }
    Init fn cuDevicePrimaryCtxSetFlags_v2(sim, device: c_int, flags: c_uint) {
        sim.of(device)?;
        sim.context_flags = flags;
        Ok(())
    }
    Init fn cuCtxGetCurrent(sim, out: Out<u64>) {
        out.set(current())
    }
    Init fn cuCtxSetCurrent(sim, context: u64) {
        if context != 0 {
            sim.of_context(context)?;
        }
        CONTEXTS.with_borrow_mut(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    }
    Init fn cuCtxPushCurrent_v2(sim, context: u64) {
        sim.of_context(context)?;
        CONTEXTS.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }
    Init fn cuCtxPopCurrent_v2(sim, out: Out<u64>) {
        let popped = CONTEXTS.with_borrow_mut(Vec::pop).ok_or(Code::INVALID_CONTEXT)?;
        out.set_if_given(popped);
        Ok(())
    }
    Init fn cuCtxGetDevice(sim, out: Out<c_int>) {
        sim.of_context(current())?;
        out.set(sim.device as c_int)
    }
    Init fn cuCtxGetId(sim, context: u64, out: Out<u64>) {
        sim.of_context(if context == 0 { current() } else { context })?;
        out.set(sim.id)
    }
    Init fn cuCtxCreate_v2(sim, out: Out<u64>, flags: c_uint, device: c_int) {
        out.set(create(sim, device, flags)?)
    }
    Init fn cuCtxCreate_v3(
        sim, out: Out<u64>, _affinity: *mut c_void, _count: c_int, flags: c_uint, device: c_int,
    ) {
        out.set(create(sim, device, flags)?)
    }
    Init fn cuCtxCreate_v4(sim, out: Out<u64>, _params: *mut c_void, flags: c_uint, device: c_int) {
        out.set(create(sim, device, flags)?)
    }
    Init fn cuCtxDestroy_v2(sim, context: u64) {
        sim.of_context(context)?;
        if sim.slot < *DEVICES {
            return Err(Code::INVALID_CONTEXT);
        }
        destroy(sim);
        CONTEXTS.with_borrow_mut(|stack| stack.pop_if(|top| *top == context));
        Ok(())
    }
    Init fn cuCtxGetApiVersion(sim, _context: u64, out: Out<c_uint>) {
        out.set(13_000)
    }
    Init fn cuCtxGetFlags(sim, out: Out<c_uint>) {
        sim.of_context(current())?;
        out.set(sim.context_flags)
    }
    Init fn cuCtxSetFlags(sim, flags: c_uint) {
        sim.of_context(current())?;
        sim.context_flags = flags;
        Ok(())
    }
    Context fn cuCtxSynchronize(sim) {
        sim.wait_for_all()?;
        trim(sim);
        Ok(())
    }
    Context fn cuCtxGetStreamPriorityRange(sim, least: Out<c_int>, greatest: Out<c_int>) {
        least.set_if_given(0);
        greatest.set_if_given(-5);
        Ok(())
    }
    Context fn cuCtxGetLimit(sim, out: Out<usize>, limit: c_uint) {
        out.set(sim.limits.get(&limit).copied().unwrap_or(1024))
    }
    Context fn cuCtxSetLimit(sim, limit: c_uint, value: usize) {
        sim.limits.insert(limit, value);
        Ok(())
    }
    Context fn cuCtxGetCacheConfig(sim, out: Out<c_uint>) {
        out.set(0)
    }
    Context fn cuCtxSetCacheConfig(sim, _config: c_uint) {
        Ok(())
    }
    Context fn cuCtxEnablePeerAccess(sim, _peer: u64, _flags: c_uint) {
        Err(Code::PEER_ACCESS_UNSUPPORTED)
    }
}
