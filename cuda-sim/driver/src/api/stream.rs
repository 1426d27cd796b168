//! Streams.

use super::pool::trim;
use super::{check_idle, forget_captures, joins};
use crate::call::{Out, Session};
use crate::error::{Code, Result};
use crate::state::{Event, Kind, LEGACY, PER_THREAD, Work};
use std::ffi::{c_int, c_uint, c_void};

const NON_BLOCKING: c_uint = 1;
const WAIT_EXTERNAL: c_uint = 1;

fn create(sim: &mut Session, flags: c_uint, priority: c_int) -> Result<u64> {
    if flags & !NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if sim.draw_failure() {
        let call = sim.call;
        return Err(sim.injected(call, Code::OUT_OF_MEMORY));
    }
    let kind = if flags & NON_BLOCKING != 0 { Kind::NonBlocking } else { Kind::Blocking };
    let handle = sim.new_handle();
    let stream = sim.new_stream(kind, flags, priority.clamp(-5, 0));
    sim.insert_stream(handle, stream);
    Ok(handle)
}

api! {
    Context fn cuStreamCreate(sim, out: Out<u64>, flags: c_uint) {
        out.set(create(sim, flags, 0)?)
    }
    Context fn cuStreamCreateWithPriority(sim, out: Out<u64>, flags: c_uint, priority: c_int) {
        out.set(create(sim, flags, priority)?)
    }
    Release fn cuStreamDestroy_v2(sim, handle: u64) {
        if handle <= PER_THREAD {
            return Err(Code::INVALID_HANDLE);
        }
        let id = sim.stream(handle)?;
        forget_captures(sim.context_handle(), Some(id));
        let stream = sim.streams.get_mut(&id).ok_or(Code::INVALID_HANDLE)?;
        // Returns at once. Queued work still runs.
        stream.destroyed = true;
        if stream.queue.is_empty() && !stream.busy {
            sim.remove_stream(id);
        }
        Ok(())
    }
    Context fn cuStreamSynchronize(sim, handle: u64) {
        let stream = sim.stream(handle)?;
        check_idle(sim, stream)?;
        let point = match stream {
            // The legacy stream waits for the blocking streams whenever something is queued on it.
            LEGACY => sim.submit(handle, Work::Wait)?,
            _ => (stream, sim.streams[&stream].enqueued),
        };
        sim.wait_for(&[point])?;
        trim(sim);
        Ok(())
    }
    Context fn cuStreamQuery(sim, handle: u64) {
        let stream = sim.stream(handle)?;
        check_idle(sim, stream)?;
        let point = (stream, sim.streams[&stream].enqueued);
        sim.poll(point)
    }
    Context fn cuStreamWaitEvent(sim, handle: u64, event: u64, flags: c_uint) {
        let stream = sim.stream(handle)?;
        let Some(Event { point, captured, .. }) = sim.events.get(&event) else {
            // An event of another device may be waited for, though not recorded here. The wait is over when this
            // returns.
            joins(sim, stream, None, true, flags & WAIT_EXTERNAL != 0)?;
            return sim.wait_for_other(event);
        };
        let (point, captured) = (*point, captured.clone());
        if joins(sim, stream, captured.as_ref(), point.is_some(), flags & WAIT_EXTERNAL != 0)? {
            return Ok(());
        }
        // An event that was never recorded causes no wait.
        if let Some(point) = point {
            sim.submit_after(handle, Work::Wait, vec![point], None)?;
        }
        Ok(())
    }
    Context fn cuStreamGetPriority(sim, handle: u64, out: Out<c_int>) {
        let stream = sim.stream(handle)?;
        out.set(sim.streams[&stream].priority)
    }
    Context fn cuStreamGetFlags(sim, handle: u64, out: Out<c_uint>) {
        let stream = sim.stream(handle)?;
        out.set(sim.streams[&stream].flags)
    }
    Context fn cuStreamGetCtx(sim, handle: u64, out: Out<u64>) {
        // Every context's streams can be asked for, whichever context is current.
        let owner = match sim.stream(handle) {
            Ok(_) => sim.context_handle(), // the default streams are the current context's
            Err(_) => sim.context_of_stream(handle).ok_or(Code::INVALID_HANDLE)?,
        };
        out.set(owner)
    }
    Context fn cuStreamGetId(sim, handle: u64, out: Out<u64>) {
        let stream = sim.stream(handle)?;
        out.set(stream)
    }
    Context fn cuLaunchHostFunc(
        sim, handle: u64, function: Option<extern "C" fn(*mut c_void)>, data: *mut c_void,
    ) {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        sim.submit(handle, Work::Host { function, data: data as usize })?;
        Ok(())
    }
}
