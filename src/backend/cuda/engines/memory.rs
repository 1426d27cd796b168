//! Memory that nvJPEG's handles for the engines ask for.
#![allow(unsafe_code)]

use crate::backend::cuda::lock;
use crate::cuda::driver::{self, Context, DeviceMemory, Event, HostMemory, MemoryPool, Stream};
use crate::error::Result;
use nvjpeg::{CudaStream, MemoryKind, MemorySource};
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// Largest number of unused bytes that are kept of each kind.
const KEPT_BYTES: usize = 256 << 20;

/// A source of memory that keeps what comes back. Memory is given out again only once the host knows that its last user
/// is done: Hopper's engines do not wait for work queued earlier on their stream.
pub(super) struct EngineMemory {
    pool: Arc<MemoryPool>,
    blocks: Mutex<Blocks>,
    stream: Arc<Stream>,
    context: Context,
}

#[derive(Default)]
struct Blocks {
    taken: Vec<Block>,
    /// Blocks to be used again, in the order in which they came back.
    free: Vec<Block>,
}

struct Block {
    memory: Memory,
    /// Passes when the last user is done.
    idle: Event,
}

enum Memory {
    Device(DeviceMemory),
    Pinned(HostMemory),
}

impl Block {
    fn kind(&self) -> MemoryKind {
        match self.memory {
            Memory::Device(_) => MemoryKind::Device,
            Memory::Pinned(_) => MemoryKind::Pinned,
        }
    }

    fn address(&self) -> *mut c_void {
        match &self.memory {
            Memory::Device(memory) => memory.address() as *mut c_void,
            Memory::Pinned(memory) => memory.start().cast(),
        }
    }

    fn len_bytes(&self) -> usize {
        match &self.memory {
            Memory::Device(memory) => memory.len_bytes(),
            Memory::Pinned(memory) => memory.len_bytes(),
        }
    }

    /// Frees the block, whose users are done.
    fn free(mut self) {
        if let Memory::Device(memory) = &mut self.memory {
            memory.idle();
        }
    }
}

impl EngineMemory {
    pub(super) fn new(context: &Context, stream: &Arc<Stream>) -> Result<Self> {
        let pool = Arc::new(MemoryPool::new(context, KEPT_BYTES as u64)?);
        Ok(Self { pool, blocks: Mutex::default(), stream: Arc::clone(stream), context: Arc::clone(context) })
    }

    fn take(&self, kind: MemoryKind, len_bytes: usize) -> Result<*mut c_void> {
        let _entered = driver::enter(&self.context)?;
        let mut blocks = lock(&self.blocks);
        // A block that is far too large stays for others.
        let fits = |block: &Block| {
            let len = block.len_bytes();
            block.kind() == kind && len >= len_bytes && len / 2 <= len_bytes && block.idle.is_done()
        };
        let found = blocks.free.iter().position(fits);
        let block = match found {
            Some(at) => blocks.free.remove(at),
            None => {
                // What nvJPEG asks for next, after somewhat larger images, shall fit.
                let len_bytes = len_bytes + len_bytes / 4;
                let memory = match kind {
                    MemoryKind::Pinned => Memory::Pinned(HostMemory::new(&self.context, len_bytes, true)?),
                    MemoryKind::Device => {
                        let memory = Memory::Device(self.pool.allocate(&self.stream, len_bytes)?);
                        // The engines may use it before the stream gets there.
                        self.stream.synchronize()?;
                        memory
                    }
                };
                Block { memory, idle: Event::new(&self.context)? }
            }
        };
        let address = block.address();
        blocks.taken.push(block);
        Ok(address)
    }

    /// # Safety
    /// `stream` is a live stream of the device, or null.
    unsafe fn give(&self, kind: MemoryKind, address: *mut c_void, stream: CudaStream) -> Result<bool> {
        let _entered = driver::enter(&self.context)?;
        let mut blocks = lock(&self.blocks);
        let Some(at) = blocks.taken.iter().position(|block| (block.kind(), block.address()) == (kind, address)) else {
            return Ok(false);
        };
        let block = blocks.taken.swap_remove(at);
        if stream.is_null() {
            block.idle.record(&self.stream)?;
        } else {
            // SAFETY: the contract.
            unsafe { block.idle.record_raw(stream.cast())? };
        }
        blocks.free.push(block);
        let mut kept_bytes: usize = blocks.free.iter().filter(|block| block.kind() == kind).map(Block::len_bytes).sum();
        while kept_bytes > KEPT_BYTES {
            let Some(at) = blocks.free.iter().position(|block| block.kind() == kind && block.idle.is_done()) else {
                break;
            };
            let block = blocks.free.remove(at);
            kept_bytes -= block.len_bytes();
            block.free();
        }
        Ok(true)
    }
}

// SAFETY: blocks are as large as asked for or larger, of the device or pinned, and aligned to 256 bytes and more. One is
// given out again once it has come back and the event after its last user has passed.
unsafe impl MemorySource for EngineMemory {
    fn allocate(&self, kind: MemoryKind, size_bytes: usize, _stream: CudaStream) -> Option<*mut c_void> {
        self.take(kind, size_bytes).ok()
    }

    unsafe fn free(&self, kind: MemoryKind, address: *mut c_void, stream: CudaStream) -> bool {
        // SAFETY: the contract.
        unsafe { self.give(kind, address, stream) }.unwrap_or(false)
    }
}

impl Drop for EngineMemory {
    fn drop(&mut self) {
        // If this fails, the context has failed, and its work with it.
        let _ = self.stream.synchronize();
        let blocks = std::mem::take(&mut *lock(&self.blocks));
        blocks.taken.into_iter().chain(blocks.free).for_each(Block::free);
    }
}
