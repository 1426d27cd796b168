//! Stream-ordered memory pools. A pool keeps memory that is freed to it, up to its threshold, for its own allocations.

use crate::call::{Out, Session};
use crate::error::{Code, Result};
use crate::memory::memory;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

pub const DEFAULT_POOL: u64 = 0x9000;
/// The number of each device's default pool; those of others are above.
const DEFAULT_NUMBER: u64 = 1;
static NUMBERS: AtomicU64 = AtomicU64::new(DEFAULT_NUMBER + 1);

/// The number of a pool.
pub fn number(sim: &Session, pool: u64) -> Result<u64> {
    if pool == DEFAULT_POOL {
        return Ok(DEFAULT_NUMBER);
    }
    sim.pools.get(&pool).copied().ok_or(Code::INVALID_VALUE)
}

/// Has pools give back the memory above their thresholds: a stream, an event or the context was waited for.
pub fn trim(sim: &Session) {
    for (pool, number) in sim.pools.iter().chain([(&DEFAULT_POOL, &DEFAULT_NUMBER)]) {
        let threshold = sim.pool_attributes.get(&(*pool, RELEASE_THRESHOLD)).copied();
        memory().trim(*number, usize::try_from(threshold.unwrap_or(0)).unwrap_or(usize::MAX));
    }
}

const RELEASE_THRESHOLD: c_uint = 4;
const RESERVED_CURRENT: c_uint = 5;
const USED_CURRENT: c_uint = 7;
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
        let handle = sim.new_handle();
        sim.pools.insert(handle, NUMBERS.fetch_add(1, Ordering::Relaxed));
        out.set(handle)
    }
    Release fn cuMemPoolDestroy(sim, pool: u64) {
        // Memory that is allocated from it stays until it is freed.
        let number = sim.pools.remove(&pool).ok_or(Code::INVALID_VALUE)?;
        memory().drop_pool(number);
        sim.pool_attributes.retain(|(of, _), _| *of != pool);
        sim.free_handle(pool);
        Ok(())
    }
    Context fn cuMemPoolTrimTo(sim, pool: u64, keep_bytes: usize) {
        memory().trim(number(sim, pool)?, keep_bytes);
        Ok(())
    }
    Context fn cuMemPoolGetAttribute(sim, pool: u64, attribute: c_uint, value: *mut c_void) {
        let number = number(sim, pool)?;
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
                let (used, kept) = memory.pool_bytes(number);
                let bytes = match attribute {
                    RESERVED_CURRENT => used + kept,
                    USED_CURRENT => used,
                    _ => memory.peak_bytes(),
                };
                Out::<u64>::untyped(value).set(bytes as u64)
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }
    Context fn cuMemPoolSetAttribute(sim, pool: u64, attribute: c_uint, value: *const c_void) {
        number(sim, pool)?;
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
