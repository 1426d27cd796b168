//! Stream-ordered memory pools. All pools share one store of memory and differ in their attributes only.

use crate::call::Out;
use crate::error::Code;
use crate::memory::memory;
use std::ffi::{c_int, c_uint, c_void};

pub const DEFAULT_POOL: u64 = 0x9000;

const RELEASE_THRESHOLD: c_uint = 4;
const RESERVED_CURRENT: c_uint = 5;
const USED_HIGH: c_uint = 8;

api! {
    Init fn cuDeviceGetDefaultMemPool(sim, out: Out<u64>, device: c_int) {
        sim.of(device)?;
        out.set(DEFAULT_POOL)
    }
    Init fn cuDeviceGetMemPool(sim, out: Out<u64>, device: c_int) {
        sim.of(device)?;
        out.set(DEFAULT_POOL)
    }
    Init fn cuDeviceSetMemPool(sim, device: c_int, pool: u64) {
        sim.of(device)?;
        if pool == 0 { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }
    Context fn cuMemPoolCreate(sim, out: Out<u64>, properties: *const c_void) {
        if properties.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        out.set(sim.new_handle())
    }
    Release fn cuMemPoolDestroy(sim, pool: u64) {
        if pool == 0 || pool == DEFAULT_POOL { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }
    Context fn cuMemPoolTrimTo(sim, pool: u64, _keep_bytes: usize) {
        if pool == 0 { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }
    Context fn cuMemPoolGetAttribute(sim, pool: u64, attribute: c_uint, value: *mut c_void) {
        match attribute {
            1..RELEASE_THRESHOLD => {
                let set = sim.pool_attributes.get(&(pool, attribute)).copied();
                // Reuse is allowed until it is forbidden.
                Out::<c_int>::untyped(value).set(set.unwrap_or(1) as c_int)
            }
            RELEASE_THRESHOLD => {
                let set = sim.pool_attributes.get(&(pool, attribute)).copied();
                Out::<u64>::untyped(value).set(set.unwrap_or(0))
            }
            RESERVED_CURRENT..=USED_HIGH => {
                let memory = memory();
                let high = (attribute - RESERVED_CURRENT) % 2 == 1;
                let bytes = if high { memory.peak_bytes() } else { memory.used_bytes() };
                Out::<u64>::untyped(value).set(bytes as u64)
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }
    Context fn cuMemPoolSetAttribute(sim, pool: u64, attribute: c_uint, value: *const c_void) {
        if value.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let value = match attribute {
            // SAFETY: not null, and these attributes are ints by the API's contract.
            1..RELEASE_THRESHOLD => (unsafe { value.cast::<c_int>().read_unaligned() }) as u64,
            // SAFETY: not null, and these are 64-bit.
            RELEASE_THRESHOLD..=USED_HIGH => unsafe { value.cast::<u64>().read_unaligned() },
            _ => return Err(Code::INVALID_VALUE),
        };
        sim.pool_attributes.insert((pool, attribute), value);
        Ok(())
    }
}
