//! The primary context of each device. There are no others.

use crate::call::{CONTEXTS, Out, Session};
use crate::error::Code;
use std::ffi::{c_int, c_uint};

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
    sim.context_references = 0;
    sim.clear_context();
}

fn current() -> u64 {
    CONTEXTS.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

api! {
    Init fn cuDevicePrimaryCtxRetain(sim, out: Out<u64>, device: c_int) {
        sim.of(device)?;
        sim.context_references += 1;
        out.set(sim.context_handle())
    }
    Init fn cuDevicePrimaryCtxRelease_v2(sim, device: c_int) {
        sim.of(device)?;
        if sim.context_references == 0 {
            return Err(Code::INVALID_CONTEXT);
        }
        if sim.context_references == 1 {
            destroy(sim);
        } else {
            sim.context_references -= 1;
        }
        Ok(())
    }
    Init fn cuDevicePrimaryCtxReset_v2(sim, device: c_int) {
        sim.of(device)?;
        destroy(sim);
        Ok(())
    }
    Init fn cuDevicePrimaryCtxGetState(sim, device: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        sim.of(device)?;
        flags.set_if_given(sim.context_flags);
        active.set((sim.context_references > 0).into())
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
        out.set(sim.context_number())
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
        sim.wait_for_all()
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
