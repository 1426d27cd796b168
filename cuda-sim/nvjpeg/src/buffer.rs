//! Memory that nvJPEG allocates.

use crate::jpeg::Result;
use crate::object::{Handle, InFlight, lock};
use nvjpeg_sys::bindings::cudaStream_t;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Memory that grows as images need it.
pub struct Buffer {
    handle: Arc<Handle>,
    /// Whether it is device memory; otherwise it is pinned.
    device: bool,
    /// Address and bytes.
    memory: Mutex<(usize, usize)>,
    /// The stream for which the memory was asked for last.
    stream: AtomicUsize,
    /// Operations that read or write the memory.
    pub flight: InFlight,
}

impl Buffer {
    pub fn new(handle: Arc<Handle>, device: bool) -> Self {
        let (memory, stream) = (Mutex::default(), AtomicUsize::new(0));
        Self { handle, device, memory, stream, flight: InFlight::default() }
    }

    /// Address and bytes; 0 and 0 without memory.
    pub fn memory(&self) -> (usize, usize) {
        *lock(&self.memory)
    }

    /// Makes the memory at least `bytes` bytes large, for work on a stream, and returns its address. Frees the previous
    /// memory.
    pub fn reserve(&self, bytes: usize, stream: cudaStream_t) -> Result<usize> {
        let mut memory = lock(&self.memory);
        self.stream.store(stream as usize, Ordering::Relaxed);
        if bytes > memory.1 {
            let new = self.handle.allocate(self.device, bytes, stream)?;
            let old = std::mem::replace(&mut *memory, new);
            if old.1 > 0 {
                self.handle.free(self.device, old, stream)?;
            }
        }
        Ok(memory.0)
    }

    /// Frees the memory.
    pub fn free(&self) -> Result<()> {
        let memory = std::mem::take(&mut *lock(&self.memory));
        let stream = self.stream.load(Ordering::Relaxed) as cudaStream_t;
        if memory.1 == 0 { Ok(()) } else { self.handle.free(self.device, memory, stream) }
    }
}
