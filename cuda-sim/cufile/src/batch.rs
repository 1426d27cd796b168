//! Batches of reads, which end late, one by one and in any order.

use crate::api::{OK, Status};
use crate::state::Session;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

/// A read.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Request {
    mode: c_int,
    base: *mut c_void,
    file_offset: i64,
    offset: i64,
    len_bytes: usize,
    file: *mut c_void,
    operation: c_int,
    cookie: *mut c_void,
}

// SAFETY: the pointers are numbers here.
unsafe impl Send for Request {}

/// The end of a read.
#[repr(C)]
pub struct Completion {
    cookie: *mut c_void,
    status: c_int,
    read: isize,
}

struct Batch {
    most: usize,
    left: Vec<Request>,
    is_canceled: bool,
}

static BATCHES: Mutex<Option<HashMap<usize, Batch>>> = Mutex::new(None);

const CANCELED: c_int = 8;
const COMPLETE: c_int = 16;
const TIMEOUT: c_int = 32;
const FAILED: c_int = 64;

fn batches<T>(work: impl FnOnce(&mut HashMap<usize, Batch>) -> T) -> T {
    work(BATCHES.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(HashMap::new))
}

/// Whether a read under way has this file or this buffer.
pub fn is_used(handle: usize) -> bool {
    let uses = |request: &Request| request.file.addr() == handle || request.base.addr() == handle;
    batches(|all| all.values().any(|batch| batch.left.iter().any(uses)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileBatchIOSetUp(batch: *mut *mut c_void, most: c_uint) -> Status {
    let mut state = Session::open();
    if !state.is_ready(c"cuFileBatchIOSetUp") {
        return Status::of(5001);
    }
    if most > 128 || state.fault("batch").as_deref() == Some("setup") {
        return Status::of(5039);
    }
    state.next += 16;
    let number = state.next;
    batches(|all| all.insert(number, Batch { most: most as usize, left: Vec::new(), is_canceled: false }));
    // SAFETY: the caller's contract.
    unsafe { batch.write(std::ptr::without_provenance_mut(number)) };
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileBatchIOSubmit(
    batch: *mut c_void,
    count: c_uint,
    requests: *mut Request,
    _flags: c_uint,
) -> Status {
    let mut state = Session::open();
    let name = c"cuFileBatchIOSubmit";
    if !state.is_ready(name) {
        return Status::of(5001);
    }
    if state.fault("batch").as_deref() == Some("full") {
        return Status::of(5037);
    }
    // SAFETY: the caller passes `count` of them.
    let requests = unsafe { std::slice::from_raw_parts(requests, count as usize) };
    if requests.iter().any(|request| request.mode != 1 || request.operation != 0) {
        return Status::of(5022);
    }
    for request in requests {
        if state.fd(name, request.file.addr()).is_none() {
            return Status::of(5027);
        }
    }
    let taken = batches(|all| {
        let batch = all.get_mut(&batch.addr())?;
        (batch.left.len() + requests.len() <= batch.most).then(|| batch.left.extend(requests))
    });
    if taken.is_none() {
        return Status::of(5037);
    }
    state.report.batches += 1;
    state.under_way += requests.len();
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileBatchIOGetStatus(
    batch: *mut c_void,
    least: c_uint,
    count: *mut c_uint,
    ended: *mut Completion,
    _timeout: *mut c_void,
) -> Status {
    let mut state = Session::open();
    let name = c"cuFileBatchIOGetStatus";
    if !state.is_ready(name) {
        return Status::of(5001);
    }
    let random = state.random();
    // SAFETY: the caller's contract.
    let room = unsafe { *count } as usize;
    let (taken, is_canceled) = batches(|all| {
        let Some(batch) = all.get_mut(&batch.addr()) else { return (Vec::new(), false) };
        let least = (least as usize).min(batch.left.len()).min(room);
        let number = (least + random as usize % 5).min(batch.left.len()).min(room);
        let mut taken = Vec::new();
        for i in 0..number {
            let at = (random >> (i % 32)) as usize % batch.left.len();
            taken.push(batch.left.swap_remove(at));
        }
        (taken, batch.is_canceled)
    });
    let mut done = 0;
    let mut late = Vec::new();
    for request in taken {
        let fault = state.fault("batch");
        if matches!(fault.as_deref(), Some("late" | "lost")) {
            late.push(request);
            continue;
        }
        let mut len_bytes = request.len_bytes;
        let (status, read) = match fault.as_deref() {
            _ if is_canceled => (CANCELED, 0),
            Some("failed") => (FAILED, -5),
            Some("timeout") => (TIMEOUT, 0),
            fault => {
                match fault {
                    Some("short") => len_bytes /= 2,
                    Some("spoil") => {
                        if let Some(fd) = state.fd(name, request.file.addr()) {
                            spoil(fd, request.file_offset as u64, len_bytes);
                        }
                    }
                    _ => {}
                }
                state.report.batch_reads += 1;
                match state.fd(name, request.file.addr()) {
                    None => (FAILED, -5),
                    Some(fd) => {
                        let range = (request.file_offset, len_bytes);
                        match state.transfer(name, fd, (request.base.addr(), request.offset), range) {
                            -1 => (FAILED, -5),
                            read => (COMPLETE, read),
                        }
                    }
                }
            }
        };
        // SAFETY: the caller has room for as many as `count` says.
        unsafe { ended.add(done).write(Completion { cookie: request.cookie, status, read }) };
        done += 1;
    }
    state.under_way -= done;
    batches(|all| all.get_mut(&batch.addr()).into_iter().for_each(|batch| batch.left.append(&mut late)));
    // SAFETY: the caller's contract.
    unsafe { count.write(done as c_uint) };
    OK
}

/// Overwrites bytes in the middle of a range of the file, as another program may.
fn spoil(fd: c_int, offset: u64, len_bytes: usize) {
    let file = std::fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{fd}"));
    if let Ok(file) = file {
        let _ = file.write_all_at(&[(offset % 251) as u8; 64], offset + len_bytes as u64 / 2);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileBatchIOCancel(batch: *mut c_void) -> Status {
    batches(|all| all.get_mut(&batch.addr()).into_iter().for_each(|batch| batch.is_canceled = true));
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileBatchIODestroy(batch: *mut c_void) {
    let mut state = Session::open();
    let left = batches(|all| all.remove(&batch.addr())).map_or(0, |batch| batch.left.len());
    if left > 0 {
        state.misuse(c"cuFileBatchIODestroy", "reads are under way");
    }
}
