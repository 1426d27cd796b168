//! Allocation, copies and fills.

use super::pool::{DEFAULT_POOL, number};
use super::{check_idle, check_legacy};
use crate::call::{Out, Session};
use crate::config::{NOOP, PINNED_BYTES};
use crate::error::{Code, Result};
use crate::memory::memory;
use crate::state::{Place, Point, Work};
use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};
use std::sync::atomic::Ordering;

/// Reserves addresses. If there is no room, waits for queued frees first.
fn reserve(sim: &mut Session, bytes: usize, order: Option<(u64, u64)>) -> Result<(u64, u64)> {
    sim.counts.allocation_calls += 1;
    if sim.draw_failure() {
        let call = sim.call;
        return Err(sim.injected(call, Code::OUT_OF_MEMORY));
    }
    for last_try in [false, true] {
        let found = memory().reserve(bytes, order, &mut sim.random);
        if let Some(found) = found {
            return Ok(found);
        }
        if !last_try {
            sim.wait_for_all()?;
        }
    }
    Err(Code::OUT_OF_MEMORY)
}

fn allocate_async(sim: &mut Session, bytes: usize, handle: u64, pool: u64) -> Result<u64> {
    let pool = number(sim, pool)?;
    let stream = sim.stream(handle)?;
    if bytes == 0 {
        return Ok(0);
    }
    check_legacy(sim, stream)?;
    let (id, address) = reserve(sim, bytes, Some((stream, pool)))?;
    sim.submit(handle, Work::Allocate { id })?;
    Ok(address)
}

/// Freeing something that is not an allocation is the caller's mistake. As in CUDA, it leaves the context whole.
fn retire(sim: &mut Session, address: u64, stream: Option<u64>) -> Result<u64> {
    let retired = memory().retire(address, stream);
    retired.map_err(|what| {
        sim.counts.illegal_accesses += 1;
        let message = format!("{}: {what} (CUDA_SIM_SEED={})", sim.call, sim.config.seed);
        sim.log(&message);
        sim.remember(message);
        Code::INVALID_VALUE
    })
}

/// The place of an address of either kind.
pub fn any_place(sim: &mut Session, address: usize, bytes: usize) -> Result<Place> {
    let of_device = memory().is_device_address(address);
    if of_device { device_place(sim, address as u64, bytes) } else { host_place(sim, address, bytes) }
}

fn device_place(sim: &mut Session, address: u64, bytes: usize) -> Result<Place> {
    let found = memory().find(address, bytes);
    match found {
        Ok(id) => Ok(Place::Device { address, id }),
        Err(what) => {
            let call = sim.call;
            Err(sim.illegal(call, &what))
        }
    }
}

fn host_place(sim: &mut Session, address: usize, bytes: usize) -> Result<Place> {
    if address == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let call = sim.call;
    let memory = memory();
    if memory.is_device_address(address) {
        drop(memory);
        return Err(sim.illegal(call, "a device address was given for a host address"));
    }
    let Some((base, block)) = memory.host_block(address) else { return Ok(Place::Pageable { address }) };
    let left = block.size - (address - base);
    if bytes > left {
        drop(memory);
        return Err(sim.illegal(call, &format!("{bytes} bytes run past the end of pinned memory with {left} left")));
    }
    Ok(Place::Pinned { address, id: block.id })
}

/// Draws how a copy fails: it is refused at once, or a fault is found while it runs.
fn draw_copy_failure(sim: &mut Session) -> Result<Option<Code>> {
    if !sim.draw_failure() {
        return Ok(None);
    }
    if sim.fail_random.coin() {
        let call = sim.call;
        return Err(sim.injected(call, Code::OPERATING_SYSTEM));
    }
    Ok(Some(Code::ECC_UNCORRECTABLE))
}

fn submit(sim: &mut Session, stream: u64, work: Work, injected: Option<Code>) -> Result<Point> {
    sim.submit_after(stream, work, Vec::new(), injected)
}

fn to_device(sim: &mut Session, to: u64, from: *const c_void, bytes: usize, stream: u64, wait: bool) -> Result<()> {
    let id = sim.stream(stream)?;
    if bytes == 0 || *NOOP {
        return Ok(());
    }
    let to = device_place(sim, to, bytes)?;
    let from = host_place(sim, from as usize, bytes)?;
    let injected = draw_copy_failure(sim)?;
    let work = match from {
        // CUDA copies pageable memory to its own buffer before it returns. The copy to the device may come later, even
        // for the synchronous call.
        Place::Pageable { address } => {
            if wait {
                check_idle(sim, id)?;
                let point = (id, sim.streams[&id].enqueued);
                sim.wait_for(&[point])?;
            }
            let mut staged = vec![0; bytes];
            // SAFETY: by the API's contract the caller's memory is readable for this many bytes.
            unsafe { std::ptr::copy_nonoverlapping(address as *const u8, staged.as_mut_ptr(), bytes) };
            submit(sim, stream, Work::CopyStaged { to, bytes: staged }, injected)?;
            return Ok(());
        }
        _ => Work::Copy { to, from, bytes },
    };
    let point = submit(sim, stream, work, injected)?;
    if wait { sim.wait_for(&[point]) } else { Ok(()) }
}

fn to_host(sim: &mut Session, to: *mut c_void, from: u64, bytes: usize, stream: u64, wait: bool) -> Result<()> {
    sim.stream(stream)?;
    if bytes == 0 || *NOOP {
        return Ok(());
    }
    let from = device_place(sim, from, bytes)?;
    let to = host_place(sim, to as usize, bytes)?;
    let injected = draw_copy_failure(sim)?;
    let point = submit(sim, stream, Work::Copy { to, from, bytes }, injected)?;
    // With pageable memory, CUDA returns only when the copy is done.
    if wait || matches!(to, Place::Pageable { .. }) { sim.wait_for(&[point]) } else { Ok(()) }
}

/// The host does not wait for copies within the device, not even in the synchronous call.
fn within_device(sim: &mut Session, to: u64, from: u64, bytes: usize, stream: u64) -> Result<()> {
    sim.stream(stream)?;
    if bytes == 0 || *NOOP {
        return Ok(());
    }
    let to = device_place(sim, to, bytes)?;
    let from = device_place(sim, from, bytes)?;
    let injected = draw_copy_failure(sim)?;
    submit(sim, stream, Work::Copy { to, from, bytes }, injected).map(drop)
}

/// Like copies within the device, also in the synchronous call.
fn fill(sim: &mut Session, to: u64, value: u32, width: usize, count: usize, stream: u64) -> Result<()> {
    sim.stream(stream)?;
    if count == 0 || *NOOP {
        return Ok(());
    }
    if !to.is_multiple_of(width as u64) {
        return Err(Code::INVALID_VALUE);
    }
    let bytes = count.checked_mul(width).ok_or(Code::INVALID_VALUE)?;
    let to = device_place(sim, to, bytes)?;
    let injected = draw_copy_failure(sim)?;
    submit(sim, stream, Work::Fill { to, value, width, count }, injected).map(drop)
}

/// Refuses to pin more memory than may be.
fn check_pinned(bytes: usize) -> Result<()> {
    let room = PINNED_BYTES.load(Ordering::Relaxed).saturating_sub(memory().pinned_bytes());
    if bytes > room { Err(Code::OUT_OF_MEMORY) } else { Ok(()) }
}

fn allocate_host(sim: &mut Session, bytes: usize, flags: c_uint) -> Result<*mut c_void> {
    if bytes == 0 || flags & !7 != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if sim.draw_failure() {
        let call = sim.call;
        return Err(sim.injected(call, Code::OUT_OF_MEMORY));
    }
    sim.counts.allocation_calls += 1;
    check_pinned(bytes)?;
    let found = memory().allocate_host(bytes, flags);
    found.map(|base| base as *mut c_void).ok_or(Code::OUT_OF_MEMORY)
}

const MEMORY_TYPE_HOST: c_uint = 1;
const MEMORY_TYPE_DEVICE: c_uint = 2;

fn pointer_attribute(sim: &Session, data: *mut c_void, attribute: c_uint, address: u64) -> Result<()> {
    let memory = memory();
    let device = memory.extent(address);
    let host = memory.host_block(address as usize).map(|(base, block)| (base as u64, block.size));
    let (base, size) = device.or(host).ok_or(Code::INVALID_VALUE)?;
    match attribute {
        1 => Out::<u64>::untyped(data).set(sim.context_handle()),
        2 => Out::<c_uint>::untyped(data).set(if device.is_some() { MEMORY_TYPE_DEVICE } else { MEMORY_TYPE_HOST }),
        3 => Out::<u64>::untyped(data).set(address),
        4 if host.is_some() => Out::<u64>::untyped(data).set(address),
        8 => Out::<u8>::untyped(data).set(0),    // managed
        9 => Out::<c_int>::untyped(data).set(0), // device ordinal
        11 => Out::<u64>::untyped(data).set(base),
        12 => Out::<usize>::untyped(data).set(size),
        13 => Out::<u8>::untyped(data).set(1), // mapped
        17 => Out::<u64>::untyped(data).set(if device.is_some() { DEFAULT_POOL } else { 0 }),
        _ => Err(Code::INVALID_VALUE),
    }
}

api! {
    Context fn cuMemGetInfo_v2(sim, free: Out<usize>, total: Out<usize>) {
        let memory = memory();
        free.set(memory.capacity_bytes() - memory.used_bytes())?;
        total.set(memory.capacity_bytes())
    }
    Context fn cuMemAlloc_v2(sim, out: Out<u64>, bytes: usize) {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (id, address) = reserve(sim, bytes, None)?;
        memory().activate(id);
        out.set(address)
    }
    Release fn cuMemFree_v2(sim, address: u64) {
        if address == 0 {
            return Ok(());
        }
        let id = retire(sim, address, None)?;
        // Drivers wait here, although the manual does not promise it; not for memory of a pool, whatever still uses it.
        // In a failed context nothing is used any more.
        let at_once = memory().is_of_pool(id) && sim.healthy().is_ok();
        let waited = if at_once { Ok(()) } else { sim.wait_for_all() };
        let released = memory().release(id);
        if let Err(damage) = released {
            return Err(sim.illegal("cuMemFree_v2", &damage));
        }
        waited
    }
    Context fn cuMemAllocAsync(sim, out: Out<u64>, bytes: usize, stream: u64) {
        out.set(allocate_async(sim, bytes, stream, DEFAULT_POOL)?)
    }
    Context fn cuMemAllocFromPoolAsync(sim, out: Out<u64>, bytes: usize, pool: u64, stream: u64) {
        out.set(allocate_async(sim, bytes, stream, pool)?)
    }
    Release fn cuMemFreeAsync(sim, address: u64, stream: u64) {
        let id = sim.stream(stream)?;
        if address == 0 {
            return Ok(());
        }
        let id = retire(sim, address, Some(id))?;
        sim.submit(stream, Work::Free { id }).map(drop)
    }
    Context fn cuMemGetAddressRange_v2(sim, base: Out<u64>, bytes: Out<usize>, address: u64) {
        let (start, size) = memory().extent(address).ok_or(Code::NOT_FOUND)?;
        base.set_if_given(start);
        bytes.set_if_given(size);
        Ok(())
    }
    Context fn cuPointerGetAttribute(sim, data: *mut c_void, attribute: c_uint, address: u64) {
        pointer_attribute(sim, data, attribute, address)
    }

    Context fn cuMemHostAlloc(sim, out: Out<*mut c_void>, bytes: usize, flags: c_uint) {
        out.set(allocate_host(sim, bytes, flags)?)
    }
    Context fn cuMemAllocHost_v2(sim, out: Out<*mut c_void>, bytes: usize) {
        out.set(allocate_host(sim, bytes, 0)?)
    }
    Release fn cuMemFreeHost(sim, address: *mut c_void) {
        if !memory().remove_host(address as usize, true) {
            return Err(Code::INVALID_VALUE);
        }
        if sim.counts.pending == 0 {
            memory().drain_quarantine();
        }
        Ok(())
    }
    Context fn cuMemHostRegister_v2(sim, address: *mut c_void, bytes: usize, flags: c_uint) {
        if address.is_null() || bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if sim.draw_failure() {
            return Err(sim.injected("cuMemHostRegister_v2", Code::OUT_OF_MEMORY));
        }
        check_pinned(bytes)?;
        let registered = memory().register_host(address as usize, bytes, flags);
        if registered { Ok(()) } else { Err(Code::HOST_MEMORY_ALREADY_REGISTERED) }
    }
    Release fn cuMemHostUnregister(sim, address: *mut c_void) {
        let removed = memory().remove_host(address as usize, false);
        if removed { Ok(()) } else { Err(Code::HOST_MEMORY_NOT_REGISTERED) }
    }
    Context fn cuMemHostGetDevicePointer_v2(sim, out: Out<u64>, address: *mut c_void, _flags: c_uint) {
        memory().host_block(address as usize).ok_or(Code::INVALID_VALUE)?;
        out.set(address as u64)
    }
    Context fn cuMemHostGetFlags(sim, out: Out<c_uint>, address: *mut c_void) {
        let flags = memory().host_block(address as usize).ok_or(Code::INVALID_VALUE)?.1.flags;
        out.set(flags)
    }

    Context fn cuMemcpyHtoD_v2(sim, to: u64, from: *const c_void, bytes: usize) {
        to_device(sim, to, from, bytes, 0, true)
    }
    Context fn cuMemcpyHtoDAsync_v2(sim, to: u64, from: *const c_void, bytes: usize, stream: u64) {
        to_device(sim, to, from, bytes, stream, false)
    }
    Context fn cuMemcpyDtoH_v2(sim, to: *mut c_void, from: u64, bytes: usize) {
        to_host(sim, to, from, bytes, 0, true)
    }
    Context fn cuMemcpyDtoHAsync_v2(sim, to: *mut c_void, from: u64, bytes: usize, stream: u64) {
        to_host(sim, to, from, bytes, stream, false)
    }
    Context fn cuMemcpyDtoD_v2(sim, to: u64, from: u64, bytes: usize) {
        within_device(sim, to, from, bytes, 0)
    }
    Context fn cuMemcpyDtoDAsync_v2(sim, to: u64, from: u64, bytes: usize, stream: u64) {
        within_device(sim, to, from, bytes, stream)
    }
    Context fn cuMemcpyPeerAsync(
        sim, to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64,
    ) {
        if to_context != sim.context_handle() || from_context != sim.context_handle() {
            return Err(Code::INVALID_CONTEXT);
        }
        within_device(sim, to, from, bytes, stream)
    }

    Context fn cuMemsetD8_v2(sim, to: u64, value: c_uchar, count: usize) {
        fill(sim, to, value.into(), 1, count, 0)
    }
    Context fn cuMemsetD8Async(sim, to: u64, value: c_uchar, count: usize, stream: u64) {
        fill(sim, to, value.into(), 1, count, stream)
    }
    Context fn cuMemsetD16_v2(sim, to: u64, value: c_ushort, count: usize) {
        fill(sim, to, value.into(), 2, count, 0)
    }
    Context fn cuMemsetD16Async(sim, to: u64, value: c_ushort, count: usize, stream: u64) {
        fill(sim, to, value.into(), 2, count, stream)
    }
    Context fn cuMemsetD32_v2(sim, to: u64, value: c_uint, count: usize) {
        fill(sim, to, value, 4, count, 0)
    }
    Context fn cuMemsetD32Async(sim, to: u64, value: c_uint, count: usize, stream: u64) {
        fill(sim, to, value, 4, count, stream)
    }
}
