//! Initialization and the devices, which are all equal.

use crate::call::{Out, Session};
use crate::child;
use crate::config::{DEVICES, DRIVER_VERSION};
use crate::error::Code;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::atomic::Ordering;

const NAME: &CStr = c"simulated device";
/// Compute capability of an H100, until `cuda_sim_capability` sets another.
pub const COMPUTE_CAPABILITY: (c_int, c_int) = (9, 0);
pub const MULTIPROCESSORS: c_int = 132;
pub const MAX_THREADS_PER_BLOCK: u32 = 1024;
pub const SHARED_BYTES_PER_BLOCK: u32 = 48 << 10;
pub const SHARED_BYTES_PER_BLOCK_OPTIN: u32 = 227 << 10;
pub const SHARED_BYTES_PER_MULTIPROCESSOR: u32 = 228 << 10;
pub const THREADS_PER_MULTIPROCESSOR: u32 = 2048;
pub const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];

/// An attribute by its number in cuda.h. Other attributes are 0, which means no if the attribute is a question.
fn attribute(number: c_int, capability: (c_int, c_int)) -> c_int {
    match number {
        1 => MAX_THREADS_PER_BLOCK as c_int,
        2..=4 => MAX_BLOCK[number as usize - 2] as c_int,
        5..=7 => MAX_GRID[number as usize - 5] as c_int,
        8 => SHARED_BYTES_PER_BLOCK as c_int,
        9 => 64 << 10,       // constant memory
        10 => 32,            // warp
        11 => i32::MAX,      // pitch
        12 | 82 => 64 << 10, // registers of a block, of a multiprocessor
        13 => 1_000_000,     // clock in kHz
        14 => 512,           // texture alignment
        15 | 31 => 1,        // copies during kernels, kernels during kernels
        16 => MULTIPROCESSORS,
        19 => 1,         // maps host memory
        36 => 1_000_000, // memory clock in kHz
        37 => 512,       // memory bus in bits
        38 => 50 << 20,  // L2 cache
        39 => THREADS_PER_MULTIPROCESSOR as c_int,
        40 => 3,  // copy engines
        41 => 1,  // one address space with pinned memory
        51 => 32, // pitch alignment
        75 => capability.0,
        76 => capability.1,
        78 => 1,      // stream priorities
        79 | 80 => 1, // L1 caches
        81 => SHARED_BYTES_PER_MULTIPROCESSOR as c_int,
        91 => 1, // registered memory keeps its address
        97 => SHARED_BYTES_PER_BLOCK_OPTIN as c_int,
        99 => 1,        // host memory can be registered
        106 => 32,      // blocks of a multiprocessor
        111 => 1 << 10, // shared memory reserved of each block
        115 => 1,       // memory pools
        _ => 0,
    }
}

/// Reports the objects that are still alive when the process ends.
extern "C" fn at_exit() {
    // What a child has inherited is its parent's.
    if child::is_child() {
        return;
    }
    let status = Session::try_open("exit").and_then(|mut session| {
        let each = (0..session.slots()).map(|slot| {
            session.switch(slot);
            session.at_exit()
        });
        each.fold(None, Option::or)
    });
    if let Some(status) = status {
        // SAFETY: writes out what C's streams hold, then ends the process at once.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(status);
        }
    }
}

fn uuid(device: usize) -> [u8; 16] {
    let mut uuid = *b"simulated device";
    uuid[15] = uuid[15].wrapping_add(device as u8);
    uuid
}

api! {
    Nothing fn cuInit(sim, flags: c_uint) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: the functions have the types that are wanted and live as long as the library, which is not unloaded
        // before handlers run.
        ONCE.call_once(|| unsafe {
            libc::atexit(at_exit);
            child::watch();
        });
        for slot in 0..sim.slots() {
            sim.switch(slot);
            sim.initialized = true;
        }
        Ok(())
    }
    Nothing fn cuDriverGetVersion(sim, out: Out<c_int>) {
        out.set(DRIVER_VERSION.load(Ordering::Relaxed))
    }
    Init fn cuDeviceGetCount(sim, out: Out<c_int>) {
        out.set(*DEVICES as c_int)
    }
    Init fn cuDeviceGet(sim, out: Out<c_int>, ordinal: c_int) {
        sim.of(ordinal)?;
        out.set(ordinal)
    }
    Init fn cuDeviceGetName(sim, out: *mut c_char, bytes: c_int, device: c_int) {
        sim.of(device)?;
        if out.is_null() || bytes < 1 {
            return Err(Code::INVALID_VALUE);
        }
        let name = NAME.to_bytes();
        let kept = name.len().min(bytes as usize - 1);
        // SAFETY: the caller gives `bytes` writable bytes; at most bytes - 1 and the end mark are written.
        unsafe {
            std::ptr::copy_nonoverlapping(name.as_ptr(), out.cast::<u8>(), kept);
            out.add(kept).write(0);
        }
        Ok(())
    }
    Init fn cuDeviceGetAttribute(sim, out: Out<c_int>, number: c_int, device: c_int) {
        sim.of(device)?;
        out.set(attribute(number, sim.config.capability))
    }
    Init fn cuDeviceComputeCapability(sim, major: Out<c_int>, minor: Out<c_int>, device: c_int) {
        sim.of(device)?;
        major.set(sim.config.capability.0)?;
        minor.set(sim.config.capability.1)
    }
    Init fn cuDeviceTotalMem_v2(sim, out: Out<usize>, device: c_int) {
        sim.of(device)?;
        out.set(sim.config.memory_bytes)
    }
    Init fn cuDeviceGetUuid(sim, out: Out<[u8; 16]>, device: c_int) {
        sim.of(device)?;
        out.set(uuid(sim.device))
    }
    Init fn cuDeviceGetUuid_v2(sim, out: Out<[u8; 16]>, device: c_int) {
        sim.of(device)?;
        out.set(uuid(sim.device))
    }
    Init fn cuDeviceGetPCIBusId(sim, out: *mut c_char, bytes: c_int, device: c_int) {
        sim.of(device)?;
        let id = format!("0000:{:02x}:00.0\0", sim.device);
        if out.is_null() || (bytes as usize) < id.len() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller gives `bytes` writable bytes, which are enough.
        unsafe { std::ptr::copy_nonoverlapping(id.as_ptr(), out.cast::<u8>(), id.len()) };
        Ok(())
    }
    Init fn cuDeviceCanAccessPeer(sim, out: Out<c_int>, device: c_int, peer: c_int) {
        sim.of(device)?;
        sim.of(peer)?;
        out.set(0)
    }
    Init fn cuDeviceGetP2PAttribute(sim, out: Out<c_int>, _attribute: c_int, device: c_int, peer: c_int) {
        sim.of(device)?;
        sim.of(peer)?;
        out.set(0)
    }
}
