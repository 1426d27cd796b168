//! Memory of one batch in flight: what the host writes and the device reads, and what only the device uses.
//!
//! Both are taken piece by piece from a few blocks, which are emptied together when the batch is done. A batch that
//! needed several blocks finds one of that size the next time, so that in the steady state nothing is allocated and all
//! that the host wrote goes to the device in one copy.
#![allow(unsafe_code)]

use super::driver::{self, Context, DeviceMemory, HostMemory, Stream};
use crate::error::{Error, Result};
use bytemuck::NoUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pieces begin at multiples of this: a kernel's widest load, and a line of the device's cache for images.
const ALIGN_BYTES: usize = 128;
/// The first block of either kind.
const FIRST_BLOCK_BYTES: usize = 4 << 20;
/// What a worker takes at a time for small tables.
const CHUNK_BYTES: usize = 32 << 10;

/// Memory of one batch.
#[derive(Debug)]
pub(super) struct Arena {
    context: Context,
    /// Most device memory of all blocks together.
    limit_bytes: usize,
    /// Whether the host's memory is.
    pinned: bool,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    staging: Vec<Staging>,
    scratch: Vec<Scratch>,
}

/// Memory of the host, and as much of the device's, which it is copied to.
#[derive(Debug)]
struct Staging {
    host: Arc<HostMemory>,
    device: DeviceMemory,
    used: usize,
}

impl Staging {
    fn new(context: &Context, len_bytes: usize, pinned: bool) -> Result<Self> {
        let host = Arc::new(HostMemory::new(context, len_bytes, pinned)?);
        Ok(Self { host, device: DeviceMemory::new(context, len_bytes)?, used: 0 })
    }
}

#[derive(Debug)]
struct Scratch {
    device: DeviceMemory,
    used: usize,
}

/// A piece of staging memory: the host writes it, and the device has it after [`Arena::upload`].
#[derive(Debug)]
pub(super) struct Allocation {
    host: Arc<HostMemory>,
    offset: usize,
    len_bytes: usize,
    device: u64,
}

impl Allocation {
    /// Where the device will have it.
    pub(super) fn address(&self) -> u64 {
        self.device
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the piece lies within the block, which it keeps alive, and pieces of a block do not overlap
        // (`Blocks::piece`). Copies to the device read it only after the batch has been filled (`Arena::upload`), and a
        // block's pieces are given out anew only after all of that is done (`Arena::reset`).
        unsafe { std::slice::from_raw_parts_mut(self.host.start().add(self.offset), self.len_bytes) }
    }
}

impl Arena {
    /// An arena without memory as yet, of at most `limit_bytes` on the device.
    pub(super) fn new(context: &Context, limit_bytes: usize, pinned: bool) -> Self {
        Self { context: Arc::clone(context), limit_bytes, pinned, blocks: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Staging memory. The device waits for nobody: the call may.
    pub(super) fn piece(&self, len_bytes: usize) -> Result<Allocation> {
        let mut blocks = self.lock();
        let len = len_bytes.next_multiple_of(ALIGN_BYTES);
        let last = blocks.staging.last().map_or((0, 0), |block| (block.host.len_bytes(), block.used));
        if last.0 - last.1 < len {
            let size = blocks.next_size(last.0, len, self.limit_bytes)?;
            blocks.staging.push(Staging::new(&self.context, size, self.pinned)?);
        }
        let Some(block) = blocks.staging.last_mut() else { return Err(no_block()) };
        let offset = block.used;
        block.used += len;
        Ok(Allocation {
            host: Arc::clone(&block.host),
            offset,
            len_bytes,
            device: block.device.address() + offset as u64,
        })
    }

    /// Device memory that nothing uses: the host knows it to be idle.
    pub(super) fn scratch(&self, len_bytes: usize) -> Result<u64> {
        self.scratch_sparing(len_bytes, 0)
    }

    /// The same, if at least `spared_bytes` are left for other allocations.
    ///
    /// # Errors
    /// [`Error::OutOfDeviceMemory`] if they are not.
    pub(super) fn scratch_sparing(&self, len_bytes: usize, spared_bytes: usize) -> Result<u64> {
        let mut blocks = self.lock();
        let len = len_bytes.next_multiple_of(ALIGN_BYTES);
        let room_bytes = blocks.room_bytes(self.limit_bytes);
        if room_bytes < len.saturating_add(spared_bytes) {
            return Err(no_room(len, room_bytes.saturating_sub(spared_bytes)));
        }
        let last = blocks.scratch.last().map_or((0, 0), |block| (block.device.len_bytes(), block.used));
        if last.0 - last.1 < len {
            let size = blocks.next_size(last.0, len, self.limit_bytes)?;
            blocks.scratch.push(Scratch { device: DeviceMemory::new(&self.context, size)?, used: 0 });
        }
        let Some(block) = blocks.scratch.last_mut() else { return Err(no_block()) };
        let address = block.device.address() + block.used as u64;
        block.used += len;
        Ok(address)
    }

    /// Queues the copy of all pieces to the device; their bytes that were sent.
    ///
    /// # Safety
    /// No piece is written any more. The arena is neither reset nor dropped before the copies are done.
    pub(super) unsafe fn upload(&self, stream: &Stream) -> Result<u64> {
        let mut sent = 0;
        for block in self.lock().staging.iter().filter(|block| block.used > 0) {
            // SAFETY: both blocks are at least as long as what is used of them; the rest is the contract.
            unsafe { driver::upload(block.device.address(), block.host.start(), block.used, stream)? };
            sent += block.used as u64;
        }
        Ok(sent)
    }

    /// Takes all memory back for the next batch.
    ///
    /// # Safety
    /// No work that uses the arena's memory is under way on the device, and no [`Allocation`] is left.
    pub(super) unsafe fn reset(&mut self) {
        let (context, limit_bytes) = (&self.context, self.limit_bytes);
        let blocks = self.blocks.get_mut().unwrap_or_else(PoisonError::into_inner);
        // A block for as much as the last batch used, and an eighth more: batches differ. Where there is no memory for
        // it, the next batch takes blocks of its own.
        let roomy = |used: usize, others: usize| {
            (used + used / 8).next_multiple_of(1 << 16).min(limit_bytes.saturating_sub(others))
        };
        let used: usize = blocks.staging.iter().map(|block| block.used).sum();
        if blocks.staging.len() > 1 {
            let len_bytes = roomy(used, blocks.scratch_bytes());
            blocks.staging.clear();
            blocks.staging.extend(Staging::new(context, len_bytes, self.pinned).ok());
        }
        let used: usize = blocks.scratch.iter().map(|block| block.used).sum();
        if blocks.scratch.len() > 1 {
            let len_bytes = roomy(used, blocks.staging_bytes());
            blocks.scratch.clear();
            blocks.scratch.extend(DeviceMemory::new(context, len_bytes).ok().map(|device| Scratch { device, used: 0 }));
        }
        blocks.staging.iter_mut().for_each(|block| block.used = 0);
        blocks.scratch.iter_mut().for_each(|block| block.used = 0);
    }
}

/// The error of a batch that needs `len` bytes more than the `free` ones.
fn no_room(len: usize, free: usize) -> Error {
    Error::OutOfDeviceMemory {
        what: "a batch",
        needed_bytes: len as u64,
        available_bytes: free as u64,
        remedy: "use a smaller batch_size or prefetch, smaller images, or raise device_memory",
    }
}

fn no_block() -> Error {
    Error::Device { call: "allocate".to_owned(), message: "there is no block of memory".to_owned() }
}

impl Blocks {
    fn staging_bytes(&self) -> usize {
        self.staging.iter().map(|block| block.device.len_bytes()).sum()
    }

    fn scratch_bytes(&self) -> usize {
        self.scratch.iter().map(|block| block.device.len_bytes()).sum()
    }

    /// Bytes of the limit that no block has.
    fn free_bytes(&self, limit_bytes: usize) -> usize {
        limit_bytes.saturating_sub(self.staging_bytes() + self.scratch_bytes())
    }

    /// Bytes that can still be allocated: in no block yet, or in the last blocks behind what is used of them.
    fn room_bytes(&self, limit_bytes: usize) -> usize {
        let staging = self.staging.last().map_or(0, |block| block.device.len_bytes() - block.used);
        let scratch = self.scratch.last().map_or(0, |block| block.device.len_bytes() - block.used);
        self.free_bytes(limit_bytes) + staging + scratch
    }

    /// The size of a further block that holds `len` bytes: twice as large as the last one, if the limit then has as much
    /// left for blocks of the other kind.
    fn next_size(&self, last: usize, len: usize, limit_bytes: usize) -> Result<usize> {
        let free = self.free_bytes(limit_bytes);
        if len > free {
            return Err(no_room(len, free));
        }
        Ok((2 * last).max(FIRST_BLOCK_BYTES).min(free / 2).max(len))
    }
}

/// Staging memory for small tables, taken from an arena in larger pieces: one for each worker and batch.
#[derive(Debug, Default)]
pub(super) struct StagingWriter {
    piece: Option<Allocation>,
    used: usize,
}

impl StagingWriter {
    /// Puts values where the device will have them; their address, a multiple of 16.
    pub(super) fn put<T: NoUninit>(&mut self, arena: &Arena, values: &[T]) -> Result<u64> {
        const { assert!(align_of::<T>() <= 16) };
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.put_bytes(arena, bytes.len(), |to| to.copy_from_slice(bytes))
    }

    /// The same for `len_bytes` bytes that `write` fills in.
    pub(super) fn put_bytes(&mut self, arena: &Arena, len_bytes: usize, write: impl FnOnce(&mut [u8])) -> Result<u64> {
        let start = self.used.next_multiple_of(16);
        if let Some(piece) = self.piece.as_mut().filter(|piece| start + len_bytes <= piece.len_bytes) {
            write(&mut piece.bytes_mut()[start..start + len_bytes]);
            self.used = start + len_bytes;
            return Ok(piece.address() + start as u64);
        }
        let mut piece = arena.piece(len_bytes.max(CHUNK_BYTES))?;
        write(&mut piece.bytes_mut()[..len_bytes]);
        let address = piece.address();
        (self.piece, self.used) = (Some(piece), len_bytes);
        Ok(address)
    }
}
