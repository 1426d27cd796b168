//! Events.

use super::pool::trim;
use super::{captured_now, refuse_event};
use crate::call::{Out, Session};
use crate::error::{Code, Result};
use crate::state::{Event, Point, Work};
use std::ffi::c_uint;

const BLOCKING_SYNC: c_uint = 1;
const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;

fn record(sim: &mut Session, handle: u64, stream: u64) -> Result<()> {
    let id = sim.stream(stream)?;
    sim.recordings += 1;
    let recording = sim.recordings;
    let event = sim.events.get_mut(&handle).ok_or(Code::INVALID_HANDLE)?;
    let before = (event.recording, event.at_ns);
    (event.recording, event.at_ns) = (recording, None);
    let submitted = sim.submit(stream, Work::Record { event: handle, recording });
    let captured = captured_now(sim, id);
    let Some(event) = sim.events.get_mut(&handle) else { return submitted.map(drop) };
    match submitted {
        Ok(point) => (event.point, event.captured) = (captured.is_none().then_some(point), captured),
        Err(_) => (event.recording, event.at_ns) = before,
    }
    submitted.map(drop)
}

/// An event that the host may ask for or wait for: one that was not recorded in a capture.
fn outside_captures(sim: &Session, handle: u64) -> Result<(Option<Point>, bool)> {
    let event = sim.events.get(&handle).ok_or(Code::INVALID_HANDLE)?;
    event.captured.as_ref().map_or(Ok(()), refuse_event)?;
    Ok((event.point, event.blocking))
}

fn elapsed_ms(sim: &mut Session, start: u64, end: u64) -> Result<f32> {
    outside_captures(sim, start)?;
    outside_captures(sim, end)?;
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
        sim.events.remove(&handle).ok_or(Code::INVALID_HANDLE)?;
        sim.free_handle(handle);
        Ok(())
    }
    Context fn cuEventRecord(sim, handle: u64, stream: u64) {
        record(sim, handle, stream)
    }
    Context fn cuEventRecordWithFlags(sim, handle: u64, stream: u64, _flags: c_uint) {
        record(sim, handle, stream)
    }
    Context fn cuEventQuery(sim, handle: u64) {
        match outside_captures(sim, handle)?.0 {
            Some(point) => sim.poll(point),
            None => Ok(()),
        }
    }
    Context fn cuEventSynchronize(sim, handle: u64) {
        let (point, blocking) = outside_captures(sim, handle)?;
        let Some(point) = point else { return Ok(()) };
        if !blocking && !sim.reached(point) {
            sim.counts.spinning_waits += 1;
        }
        sim.wait_for(&[point])?;
        trim(sim);
        Ok(())
    }
    Context fn cuEventElapsedTime(sim, out: Out<f32>, start: u64, end: u64) {
        out.set(elapsed_ms(sim, start, end)?)
    }
    Context fn cuEventElapsedTime_v2(sim, out: Out<f32>, start: u64, end: u64) {
        out.set(elapsed_ms(sim, start, end)?)
    }
}
