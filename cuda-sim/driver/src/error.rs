//! Status codes, with CUDA's numbers and names and our own sentences.

use crate::call::Out;
use std::ffi::{CStr, c_char};

/// A CUresult other than CUDA_SUCCESS.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Code(pub u32);

pub type Result<T> = std::result::Result<T, Code>;

macro_rules! codes {
    ($($constant:ident = $number:literal $name:literal $sentence:literal)*) => {
        impl Code {
            $(#[allow(dead_code, reason = "the table is of codes a loader may meet")] pub const $constant: Code = Code($number);)*
        }
        const TABLE: &[(u32, &CStr, &CStr)] = &[(0, c"CUDA_SUCCESS", c"no error") $(, ($number, $name, $sentence))*];
    };
}

codes! {
    INVALID_VALUE = 1 c"CUDA_ERROR_INVALID_VALUE" c"an argument is outside what the call accepts"
    OUT_OF_MEMORY = 2 c"CUDA_ERROR_OUT_OF_MEMORY" c"the memory asked for could not be had"
    NOT_INITIALIZED = 3 c"CUDA_ERROR_NOT_INITIALIZED" c"cuInit has not been called"
    INVALID_DEVICE = 101 c"CUDA_ERROR_INVALID_DEVICE" c"there is no device of that number"
    INVALID_IMAGE = 200 c"CUDA_ERROR_INVALID_IMAGE" c"the device code image is not valid"
    INVALID_CONTEXT = 201 c"CUDA_ERROR_INVALID_CONTEXT" c"no valid context is current on this thread"
    ECC_UNCORRECTABLE = 214 c"CUDA_ERROR_ECC_UNCORRECTABLE" c"device memory had an error that could not be corrected"
    PEER_ACCESS_UNSUPPORTED = 217 c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED" c"the devices cannot reach each other's memory"
    NO_BINARY_FOR_GPU = 209 c"CUDA_ERROR_NO_BINARY_FOR_GPU" c"the image has no code that this device can run"
    UNSUPPORTED_PTX_VERSION = 222 c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION" c"the PTX is newer than this driver"
    FILE_NOT_FOUND = 301 c"CUDA_ERROR_FILE_NOT_FOUND" c"the file was not found"
    SHARED_OBJECT_INIT_FAILED = 303 c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED" c"a shared object could not be loaded"
    OPERATING_SYSTEM = 304 c"CUDA_ERROR_OPERATING_SYSTEM" c"a call of the operating system failed"
    INVALID_HANDLE = 400 c"CUDA_ERROR_INVALID_HANDLE" c"the handle does not name a living object"
    ILLEGAL_STATE = 401 c"CUDA_ERROR_ILLEGAL_STATE" c"the object is not in a state that allows the call"
    NOT_FOUND = 500 c"CUDA_ERROR_NOT_FOUND" c"no symbol of that name"
    NOT_READY = 600 c"CUDA_ERROR_NOT_READY" c"the work has not completed yet"
    ILLEGAL_ADDRESS = 700 c"CUDA_ERROR_ILLEGAL_ADDRESS" c"memory was accessed that may not be"
    LAUNCH_OUT_OF_RESOURCES = 701 c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" c"the launch asks for more than the device has"
    HOST_MEMORY_ALREADY_REGISTERED = 712 c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" c"the host memory is registered already"
    HOST_MEMORY_NOT_REGISTERED = 713 c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" c"the host memory is not registered"
    CONTEXT_IS_DESTROYED = 709 c"CUDA_ERROR_CONTEXT_IS_DESTROYED" c"the context that is current on this thread was destroyed, or is a primary one that was not made yet"
    LAUNCH_FAILED = 719 c"CUDA_ERROR_LAUNCH_FAILED" c"a kernel failed while it ran"
    NOT_PERMITTED = 800 c"CUDA_ERROR_NOT_PERMITTED" c"the call is not allowed here"
    NOT_SUPPORTED = 801 c"CUDA_ERROR_NOT_SUPPORTED" c"the simulated driver does not have this"
    STREAM_CAPTURE_UNSUPPORTED = 900 c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" c"the call is not allowed while a stream captures"
    STREAM_CAPTURE_INVALIDATED = 901 c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" c"the capture was invalidated by an earlier error"
    STREAM_CAPTURE_MERGE = 902 c"CUDA_ERROR_STREAM_CAPTURE_MERGE" c"two captures would become one"
    STREAM_CAPTURE_UNMATCHED = 903 c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED" c"the capture was begun on another stream"
    STREAM_CAPTURE_UNJOINED = 904 c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED" c"a stream that was drawn into the capture was not joined to its first stream"
    STREAM_CAPTURE_ISOLATION = 905 c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION" c"a dependency would cross the boundary of the capture"
    STREAM_CAPTURE_IMPLICIT = 906 c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" c"the legacy stream would wait for a stream that captures"
    CAPTURED_EVENT = 907 c"CUDA_ERROR_CAPTURED_EVENT" c"the event was last recorded on a stream that captured"
    STREAM_CAPTURE_WRONG_THREAD = 908 c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD" c"another thread has begun the capture"
    UNKNOWN = 999 c"CUDA_ERROR_UNKNOWN" c"an unknown error"
}

fn entry(code: u32) -> Option<&'static (u32, &'static CStr, &'static CStr)> {
    TABLE.iter().find(|entry| entry.0 == code)
}

/// The name of a code, for messages.
pub fn name(code: u32) -> &'static str {
    entry(code).and_then(|entry| entry.1.to_str().ok()).unwrap_or("unnamed error")
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetErrorName(code: u32, out: Out<*const c_char>) -> u32 {
    text(out, entry(code).map(|entry| entry.1))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetErrorString(code: u32, out: Out<*const c_char>) -> u32 {
    text(out, entry(code).map(|entry| entry.2))
}

fn text(out: Out<*const c_char>, text: Option<&'static CStr>) -> u32 {
    match out.set(text.map_or(std::ptr::null(), CStr::as_ptr)) {
        Ok(()) if text.is_some() => 0,
        _ => Code::INVALID_VALUE.0,
    }
}
