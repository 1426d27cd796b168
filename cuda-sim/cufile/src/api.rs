//! cuFile's functions for files, buffers and single reads.

use crate::batch::is_used;
use crate::driver::{device_range, has_context};
use crate::state::{Registered, Session, identity};
use std::ffi::{c_int, c_uint, c_void};
use std::time::Duration;

/// What calls return.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Status {
    error: c_int,
    cuda: c_int,
}

pub const OK: Status = Status::of(0);

impl Status {
    pub const fn of(error: c_int) -> Self {
        Self { error, cuda: if error == 5011 { 700 } else { 0 } }
    }
}

/// A file to be registered.
#[repr(C)]
pub struct Description {
    kind: c_int,
    _padding: c_int,
    /// The first half of a union with a pointer.
    fd: c_int,
    _rest: c_int,
    _operations: *const c_void,
}

#[repr(C)]
pub struct Properties {
    major: c_uint,
    minor: c_uint,
    poll_threshold: usize,
    max_direct_io: usize,
    status_flags: c_uint,
    control_flags: c_uint,
    feature_flags: c_uint,
    max_device_cache: c_uint,
    per_buffer_cache: c_uint,
    max_device_pinned: c_uint,
    max_batch_io: c_uint,
    max_batch_timeout_ms: c_uint,
}

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

const EINTR: c_int = 4;
const EIO: c_int = 5;

fn set_errno(code: c_int) {
    // SAFETY: the C library's own variable of this thread.
    unsafe { __errno_location().write(code) };
}

/// Version 1.20.
#[unsafe(no_mangle)]
pub extern "C" fn cuFileGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller's contract.
    unsafe { version.write(1200) };
    OK
}

/// Without a context the real one does not return.
#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverOpen() -> Status {
    let mut state = Session::open();
    if !has_context() {
        state.misuse(c"cuFileDriverOpen", "no context is current: the real one would not return");
        return Status::of(5001);
    }
    if state.is_open {
        return Status::of(5026);
    }
    match state.fault("open").as_deref() {
        Some("hang") => {
            drop(state);
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        Some(code) => return Status::of(code.parse().unwrap_or(5030)),
        None => {}
    }
    // Before it is known whether opening succeeds.
    let log = std::env::var_os("CUFILE_LOGFILE_PATH").unwrap_or_else(|| "cufile.log".into());
    let _ = std::fs::write(log, "");
    state.is_open = true;
    state.report.opened += 1;
    OK
}

/// Refused while files or buffers are registered.
#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverClose_v2() -> Status {
    let mut state = Session::open();
    if state.under_way > 0 || !state.files.is_empty() || !state.buffers.is_empty() {
        return Status::of(5006);
    }
    state.is_open = false;
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverGetProperties(properties: *mut Properties) -> Status {
    let mut state = Session::open();
    let has_module = state.fault("module").is_none();
    // SAFETY: the caller's contract.
    unsafe {
        properties.write(Properties {
            major: if has_module { 2 } else { 0 },
            minor: if has_module { 24 } else { 0 },
            poll_threshold: 4,
            max_direct_io: 16384,
            status_flags: 1 << 4,
            control_flags: 2,
            feature_flags: 0,
            max_device_cache: 131_072,
            per_buffer_cache: 1024,
            max_device_pinned: 1 << 25,
            max_batch_io: 128,
            max_batch_timeout_ms: 5,
        });
    }
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileHandleRegister(handle: *mut *mut c_void, description: *mut Description) -> Status {
    let mut state = Session::open();
    if !state.is_ready(c"cuFileHandleRegister") {
        return Status::of(5001);
    }
    if let Some(code) = state.code("handle") {
        return Status::of(code);
    }
    // SAFETY: the caller's contract.
    let (kind, fd) = unsafe { ((*description).kind, (*description).fd) };
    let Some(file) = identity(fd).filter(|_| kind == 1) else { return Status::of(5022) };
    if state.files.values().any(|known| known.fd == fd) {
        return Status::of(5028);
    }
    state.next += 16;
    let number = state.next;
    state.files.insert(number, Registered { fd, file });
    // SAFETY: the caller's contract.
    unsafe { handle.write(std::ptr::without_provenance_mut(number)) };
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileHandleDeregister(handle: *mut c_void) {
    let mut state = Session::open();
    let name = c"cuFileHandleDeregister";
    if is_used(handle.addr()) {
        state.misuse(name, "reads are under way");
    }
    let _ = state.fd(name, handle.addr());
    state.files.remove(&handle.addr());
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileBufRegister(base: *const c_void, len_bytes: usize, _flags: c_int) -> Status {
    let mut state = Session::open();
    let name = c"cuFileBufRegister";
    if !state.is_ready(name) {
        return Status::of(5001);
    }
    if let Some(code) = state.code("buffer") {
        return Status::of(code);
    }
    let base = base.addr();
    if device_range(base, len_bytes).is_none() {
        state.misuse(name, "the range is not device memory");
        return Status::of(5012);
    }
    if state.buffers.contains_key(&base) {
        return Status::of(5023);
    }
    state.buffers.insert(base, len_bytes);
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileBufDeregister(base: *const c_void) -> Status {
    let mut state = Session::open();
    let name = c"cuFileBufDeregister";
    if is_used(base.addr()) {
        state.misuse(name, "reads are under way");
    }
    let Some(len_bytes) = state.buffers.remove(&base.addr()) else { return Status::of(5024) };
    if device_range(base.addr(), len_bytes).is_none() {
        state.misuse(name, "the memory was freed before it was deregistered");
    }
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileRead(
    handle: *mut c_void,
    base: *mut c_void,
    len_bytes: usize,
    file_offset: i64,
    offset: i64,
) -> isize {
    let mut state = Session::open();
    let name = c"cuFileRead";
    if !state.is_ready(name) {
        return -5001;
    }
    let Some(fd) = state.fd(name, handle.addr()) else { return -5027 };
    state.report.reads += 1;
    let mut len_bytes = len_bytes;
    match state.fault("read").as_deref() {
        Some("short") => len_bytes = (len_bytes / 2).max(1),
        Some("zero") => return 0,
        Some("eio") => {
            set_errno(EIO);
            return -1;
        }
        Some("eintr") => {
            set_errno(EINTR);
            return -1;
        }
        Some("change") => touch(fd),
        Some(code) => return -code.parse::<isize>().unwrap_or(5030),
        None => {}
    }
    let read = state.transfer(name, fd, (base.addr(), offset), (file_offset, len_bytes));
    if read < 0 {
        set_errno(EIO);
    }
    read
}

/// Changes the file's times, as a write to it would.
fn touch(fd: c_int) {
    // SAFETY: the descriptor is open, and it is not closed here.
    let file = std::mem::ManuallyDrop::new(unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(fd) });
    let _ = file.set_modified(std::time::SystemTime::now());
}
