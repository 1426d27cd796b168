//! Memory that nvJPEG allocates.

use crate::driver::driver;
use crate::jpeg::Result;
use crate::object::{Handle, InFlight, lock};
use std::sync::{Arc, Mutex};

/// Memory that grows as images need it.
pub struct Buffer {
    /// Kept, so that the handle is known to be in use.
    pub _handle: Arc<Handle>,
    /// Whether it is device memory; otherwise it is pinned.
    device: bool,
    /// Address and bytes.
    memory: Mutex<(usize, usize)>,
    /// Operations that read or write the memory.
    pub flight: InFlight,
}

impl Buffer {
    pub fn new(handle: Arc<Handle>, device: bool) -> Self {
        Self { _handle: handle, device, memory: Mutex::default(), flight: InFlight::default() }
    }

    /// Address and bytes; 0 and 0 without memory.
    pub fn memory(&self) -> (usize, usize) {
        *lock(&self.memory)
    }

    /// Makes the memory at least `bytes` bytes large and returns its address. Frees the previous memory.
    pub fn reserve(&self, bytes: usize) -> Result<usize> {
        let mut memory = lock(&self.memory);
        if bytes > memory.1 {
            let bytes = bytes.next_multiple_of(4096);
            let address = driver()?.allocate(self.device, bytes)?;
            let old = std::mem::replace(&mut *memory, (address, bytes));
            if old.1 > 0 {
                driver()?.free(self.device, old.0)?;
            }
        }
        Ok(memory.0)
    }

    /// Frees the memory.
    pub fn free(&self) -> Result<()> {
        let (address, bytes) = std::mem::take(&mut *lock(&self.memory));
        if bytes == 0 { Ok(()) } else { driver()?.free(self.device, address) }
    }
}
