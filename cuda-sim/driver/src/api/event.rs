//! Events.

use crate::call::{Out, Session};
use crate::error::{Code, Result};
use crate::state::{Event, Work};
use std::ffi::c_uint;

const BLOCKING_SYNC: c_uint = 1;
const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;

fn record(sim: &mut Session, handle: u64, stream: u64) -> Result<()> {
    let event = sim.events.get_mut(&handle).ok_or(Code::INVALID_HANDLE)?;
    event.recording += 1;
    event.at_ns = None;
    let recording = event.recording;
    let point = sim.submit(stream, Work::Record { event: handle, recording })?;
    if let Some(event) = sim.events.get_mut(&handle) {
        event.point = Some(point);
    }
    Ok(())
}

fn elapsed_ms(sim: &mut Session, start: u64, end: u64) -> Result<f32> {
    let start = sim.events.get(&start).ok_or(Code::INVALID_HANDLE)?;
    let end = sim.events.get(&end).ok_or(Code::INVALID_HANDLE)?;
    let recorded = start.point.is_some() && end.point.is_some();
    if !(start.timed && end.timed && recorded) {
        return Err(Code::INVALID_HANDLE);
    }
    match (start.at_ns, end.at_ns) {
        (Some(start), Some(end)) => Ok((end as f64 - start as f64) as f32 / 1e6),
        _ => Err(Code::NOT_READY),
    }
}

api! {
    Context fn cuEventCreate(sim, out: Out<u64>, flags: c_uint) {
        if flags > 7 || flags & INTERPROCESS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if sim.draw_failure() {
            return Err(sim.injected("cuEventCreate", Code::OUT_OF_MEMORY));
        }
        let handle = sim.new_handle();
        sim.events.insert(handle, Event {
            timed: flags & DISABLE_TIMING == 0,
            blocking: flags & BLOCKING_SYNC != 0,
            ..Event::default()
        });
        out.set(handle)
    }
    Release fn cuEventDestroy_v2(sim, handle: u64) {
        // Queued waits hold the point themselves.
        sim.events.remove(&handle).map(drop).ok_or(Code::INVALID_HANDLE)
    }
    Context fn cuEventRecord(sim, handle: u64, stream: u64) {
        record(sim, handle, stream)
    }
    Context fn cuEventRecordWithFlags(sim, handle: u64, stream: u64, _flags: c_uint) {
        record(sim, handle, stream)
    }
    Context fn cuEventQuery(sim, handle: u64) {
        match sim.events.get(&handle).ok_or(Code::INVALID_HANDLE)?.point {
            Some(point) => sim.poll(point),
            None => Ok(()),
        }
    }
    Context fn cuEventSynchronize(sim, handle: u64) {
        let event = sim.events.get(&handle).ok_or(Code::INVALID_HANDLE)?;
        let (point, blocking) = (event.point, event.blocking);
        let Some(point) = point else { return Ok(()) };
        if !blocking && !sim.reached(point) {
            sim.counts.spinning_waits += 1;
        }
        sim.wait_for(&[point])
    }
    Context fn cuEventElapsedTime(sim, out: Out<f32>, start: u64, end: u64) {
        out.set(elapsed_ms(sim, start, end)?)
    }
    Context fn cuEventElapsedTime_v2(sim, out: Out<f32>, start: u64, end: u64) {
        out.set(elapsed_ms(sim, start, end)?)
    }
}
