//! Functions that the simulation lacks: they return errors, because bindings panic at a missing symbol.

use crate::error::Code;
use std::ffi::{c_int, c_uint, c_void};

api! {
    Context fn cuMemAllocManaged(sim, _out: *mut u64, _bytes: usize, _flags: c_uint) {
        Err(Code::NOT_SUPPORTED)
    }
    Context fn cuMemAdvise(sim, _address: u64, _bytes: usize, _advice: c_uint, _device: c_int) {
        Err(Code::NOT_SUPPORTED)
    }
    Context fn cuMemPrefetchAsync(sim, _address: u64, _bytes: usize, _device: c_int, _stream: u64) {
        Err(Code::NOT_SUPPORTED)
    }
    Context fn cuMemAdvise_v2(sim, _address: u64, _bytes: usize, _advice: c_uint, _location: u64) {
        Err(Code::NOT_SUPPORTED)
    }
    Context fn cuMemPrefetchAsync_v2(sim, _address: u64, _bytes: usize, _location: u64, _flags: c_uint, _stream: u64) {
        Err(Code::NOT_SUPPORTED)
    }
    Context fn cuStreamAttachMemAsync(sim, _stream: u64, _address: u64, _bytes: usize, _flags: c_uint) {
        Err(Code::NOT_SUPPORTED)
    }
    Context fn cuImportExternalMemory(sim, _out: *mut u64, _description: *const c_void) {
        Err(Code::NOT_SUPPORTED)
    }
    Context fn cuExternalMemoryGetMappedBuffer(sim, _out: *mut u64, _memory: u64, _description: *const c_void) {
        Err(Code::NOT_SUPPORTED)
    }
    Context fn cuDestroyExternalMemory(sim, _memory: u64) {
        Err(Code::INVALID_HANDLE)
    }
    Context fn cuOccupancyMaxActiveClusters(sim, _out: *mut c_int, _function: u64, _config: *const c_void) {
        Err(Code::NOT_SUPPORTED)
    }
    Context fn cuOccupancyMaxPotentialClusterSize(sim, _out: *mut c_int, _function: u64, _config: *const c_void) {
        Err(Code::NOT_SUPPORTED)
    }
    Init fn cuProfilerStart(sim) {
        Ok(())
    }
    Init fn cuProfilerStop(sim) {
        Ok(())
    }
}
