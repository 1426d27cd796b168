//! The memory of one in-flight batch: staging memory, which the host writes and the device reads; scratch memory, which
//! only the device uses; and copies of encoded bytes for the hardware decoder. Its blocks are emptied together when the
//! batch is done, and several are then replaced by one, so in the steady state nothing is allocated.
#![allow(unsafe_code)]

use super::limits::Limit;
use super::streams::{Part, Queue};
use crate::cuda::driver::{self, Context, DeviceMemory, HostMemory, Stream};
use crate::error::{Error, Result};
use bytemuck::NoUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Alignment of pieces: enough for a kernel's widest load, and a line of the device's cache for images.
const ALIGN_BYTES: usize = 128;
/// Size of the first block of each kind.
const FIRST_BLOCK_BYTES: usize = 4 << 20;
/// Bytes of staging memory that a worker takes at a time for small tables.
pub(super) const CHUNK_BYTES: usize = 32 << 10;

/// Memory of one batch.
#[derive(Debug)]
pub(super) struct Arena {
    context: Context,
    /// Largest device memory of all blocks together.
    limit_bytes: usize,
    /// The limit of the whole pipeline, which includes `limit_bytes`.
    limit: Option<Arc<Limit>>,
    /// Whether the host memory is pinned.
    pinned: bool,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    staging: Stack<Staging>,
    scratch: Stack<DeviceMemory>,
    encoded: Stack<Arc<HostMemory>>,
    /// Device memory of all blocks that the pipeline's limit knows of.
    noted_bytes: usize,
}

/// Memory from which pieces are taken in order.
trait Block {
    fn len_bytes(&self) -> usize;

    /// Says that the device no longer uses the memory.
    fn idle(&mut self) {}
}

/// Blocks of one kind, each with its number of used bytes.
#[derive(Debug)]
struct Stack<B>(Vec<(B, usize)>);

impl<B> Default for Stack<B> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<B: Block> Stack<B> {
    fn bytes(&self) -> usize {
        self.0.iter().map(|(block, _)| block.len_bytes()).sum()
    }

    /// Size of the last block, and the largest number of unused bytes of a block.
    fn last(&self) -> (usize, usize) {
        let rooms = self.0.iter().map(|(block, used)| block.len_bytes() - used);
        (self.0.last().map_or(0, |(block, _)| block.len_bytes()), rooms.max().unwrap_or(0))
    }

    /// Takes the next `len` bytes of the first block that has so much room. Returns their block and their offset in it.
    /// `more` makes a new block if none has.
    fn take(&mut self, len: usize, more: impl FnOnce() -> Result<B>) -> Result<(&B, usize)> {
        let found = self.0.iter().position(|(block, used)| block.len_bytes() - used >= len);
        if found.is_none() {
            let block = more()?;
            self.0.push((block, 0));
        }
        let at = found.unwrap_or(self.0.len() - 1);
        let Some((block, used)) = self.0.get_mut(at) else {
            return Err(Error::Device {
                call: "allocate".to_owned(),
                message: "there is no block of memory".to_owned(),
            });
        };
        let offset = *used;
        *used += len;
        Ok((block, offset))
    }

    fn idle(&mut self) {
        self.0.iter_mut().for_each(|(block, _)| block.idle());
    }

    /// Takes all pieces back, which the device no longer uses. Several blocks are replaced by a single one, an eighth
    /// larger than their used bytes because batches differ, but at most `limit_bytes`. If there is no memory for it,
    /// the next batch makes new blocks.
    fn reset(&mut self, limit_bytes: usize, make: impl FnOnce(usize) -> Result<B>) {
        if self.0.len() > 1 {
            let used: usize = self.0.iter().map(|(_, used)| used).sum();
            self.idle();
            self.0.clear();
            let len_bytes = (used + used / 8).next_multiple_of(1 << 16).min(limit_bytes);
            self.0.extend(make(len_bytes).ok().map(|block| (block, 0)));
        }
        self.0.iter_mut().for_each(|(_, used)| *used = 0);
    }
}

/// Host memory, and equally large device memory that it is copied to.
#[derive(Debug)]
struct Staging {
    host: Arc<HostMemory>,
    device: DeviceMemory,
    /// Number of bytes that were copied already.
    sent: usize,
}

impl Staging {
    fn new(context: &Context, len_bytes: usize, pinned: bool) -> Result<Self> {
        let host = Arc::new(HostMemory::new(context, len_bytes, pinned)?);
        Ok(Self { host, device: DeviceMemory::new(context, len_bytes)?, sent: 0 })
    }
}

impl Block for Staging {
    fn len_bytes(&self) -> usize {
        self.device.len_bytes()
    }

    fn idle(&mut self) {
        self.device.idle();
    }
}

impl Block for DeviceMemory {
    fn len_bytes(&self) -> usize {
        Self::len_bytes(self)
    }

    fn idle(&mut self) {
        Self::idle(self);
    }
}

impl Block for Arc<HostMemory> {
    fn len_bytes(&self) -> usize {
        HostMemory::len_bytes(self)
    }
}

/// A copy of encoded bytes in host memory. It is pinned if the arena's memory is.
#[derive(Debug, Clone)]
pub(super) struct Held {
    host: Arc<HostMemory>,
    offset: usize,
    len_bytes: usize,
}

impl Held {
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes lie within the block, which this keeps alive. They were written before this was made
        // (`Arena::hold`), and are reused only after it is gone (`Arena::reset`).
        unsafe { std::slice::from_raw_parts(self.host.start().add(self.offset), self.len_bytes) }
    }
}

/// A piece of staging memory. The host writes it, and [`Arena::upload`] copies it to the device.
#[derive(Debug)]
pub(super) struct Allocation {
    host: Arc<HostMemory>,
    offset: usize,
    len_bytes: usize,
    device: u64,
}

impl Allocation {
    /// The address of the piece on the device.
    pub(super) fn address(&self) -> u64 {
        self.device
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the piece lies within the block, which it keeps alive, and pieces of a block do not overlap
        // (`Stack::take`). Copies to the device read it only after the batch has been filled (`Arena::upload`), and the
        // block's pieces are reused only after these copies are done (`Arena::reset`).
        unsafe { std::slice::from_raw_parts_mut(self.host.start().add(self.offset), self.len_bytes) }
    }
}

impl AsMut<[u8]> for Allocation {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }
}

impl Arena {
    /// An arena without any blocks, which takes at most `limit_bytes` on the device.
    pub(super) fn new(context: &Context, limit_bytes: usize, pinned: bool) -> Self {
        Self { context: Arc::clone(context), limit_bytes, limit: None, pinned, blocks: Mutex::default() }
    }

    /// Tells a pipeline's limit how much is allocated.
    pub(super) fn part_of(mut self, limit: &Arc<Limit>) -> Self {
        self.limit = Some(Arc::clone(limit));
        self
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes staging memory. The call may wait for the device to allocate.
    pub(super) fn piece(&self, len_bytes: usize) -> Result<Allocation> {
        let mut blocks = self.lock();
        let len = len_bytes.next_multiple_of(ALIGN_BYTES);
        let size = blocks.next_size(blocks.staging.last(), len, self.limit_bytes);
        let (block, offset) = blocks.staging.take(len, || Staging::new(&self.context, size?, self.pinned))?;
        let device = block.device.address() + offset as u64;
        let allocation = Allocation { host: Arc::clone(&block.host), offset, len_bytes, device };
        blocks.note(self.limit.as_deref());
        Ok(allocation)
    }

    /// Copies bytes to staging memory. Returns their address on the device.
    pub(super) fn copy_of(&self, bytes: &[u8]) -> Result<u64> {
        let mut piece = self.piece(bytes.len())?;
        piece.bytes_mut().copy_from_slice(bytes);
        Ok(piece.address())
    }

    /// Keeps a copy of encoded bytes for a decoder that reads them later.
    pub(super) fn hold(&self, bytes: &[u8]) -> Result<Held> {
        let mut blocks = self.lock();
        let len = bytes.len().next_multiple_of(ALIGN_BYTES);
        let size = (2 * blocks.encoded.last().0).max(FIRST_BLOCK_BYTES).max(len);
        let (block, offset) =
            blocks.encoded.take(len, || HostMemory::new(&self.context, size, self.pinned).map(Arc::new))?;
        let host = Arc::clone(block);
        drop(blocks);
        // SAFETY: the bytes lie within the block, which stays allocated, and belong to this piece alone.
        unsafe { host.start().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(Held { host, offset, len_bytes: bytes.len() })
    }

    /// Takes device memory that no work on the device uses.
    pub(super) fn scratch(&self, len_bytes: usize) -> Result<u64> {
        self.scratch_sparing(len_bytes, 0)
    }

    /// Takes device memory as [`scratch`](Self::scratch) does, if at least `spared_bytes` remain for other allocations,
    /// even if all of those are staging memory.
    ///
    /// # Errors
    /// [`Error::OutOfDeviceMemory`] if less would remain.
    pub(super) fn scratch_sparing(&self, len_bytes: usize, spared_bytes: usize) -> Result<u64> {
        let mut blocks = self.lock();
        let len = len_bytes.next_multiple_of(ALIGN_BYTES);
        let room_bytes = blocks.room_bytes(self.limit_bytes);
        if room_bytes < len.saturating_add(spared_bytes) {
            return Err(no_room(len, room_bytes.saturating_sub(spared_bytes)));
        }
        let size = blocks.next_size(blocks.scratch.last(), len, self.limit_bytes);
        if spared_bytes > 0 {
            // A new block here would leave less for a block of staging memory.
            let taken = if blocks.scratch.last().1 < len { *size.as_ref().unwrap_or(&usize::MAX) } else { 0 };
            let left = blocks.free_bytes(self.limit_bytes).saturating_sub(taken) + blocks.staging.last().1;
            if left < spared_bytes {
                return Err(no_room(len, left));
            }
        }
        let (block, offset) = blocks.scratch.take(len, || DeviceMemory::new(&self.context, size?))?;
        let address = block.address() + offset as u64;
        blocks.note(self.limit.as_deref());
        Ok(address)
    }

    /// Queues the copy to the device of all pieces that were taken since the last call.
    ///
    /// # Safety
    /// None of these pieces is written any more. The arena is neither reset nor dropped before the copies are done.
    pub(super) unsafe fn upload(&self, stream: &Stream, queue: Queue) -> Result<()> {
        for (block, used) in self.lock().staging.0.iter_mut().filter(|(block, used)| *used > block.sent) {
            let (from, len_bytes) = (block.sent, *used - block.sent);
            let address = block.device.address() + from as u64;
            queue(Part::Transfer, &|| {
                // SAFETY: both blocks are at least as long as their used bytes; the rest is the contract.
                unsafe { driver::upload(address, block.host.start().add(from), len_bytes, stream) }
            })?;
            block.sent = *used;
        }
        Ok(())
    }

    /// Says that no work on the device uses the arena's memory any more, so that dropping it need not wait.
    pub(super) fn idle(&mut self) {
        let blocks = self.blocks.get_mut().unwrap_or_else(PoisonError::into_inner);
        blocks.staging.idle();
        blocks.scratch.idle();
    }

    /// Takes all memory back for the next batch.
    ///
    /// # Safety
    /// No work on the device uses the arena's memory any more, and no [`Allocation`] or [`Held`] is left.
    pub(super) unsafe fn reset(&mut self) {
        let (context, limit_bytes, pinned) = (&self.context, self.limit_bytes, self.pinned);
        let blocks = self.blocks.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Blocks { staging, scratch, encoded, .. } = blocks;
        let left = |others: usize| limit_bytes.saturating_sub(others);
        staging.reset(left(scratch.bytes()), |len_bytes| Staging::new(context, len_bytes, pinned));
        staging.0.iter_mut().for_each(|(block, _)| block.sent = 0);
        scratch.reset(left(staging.bytes()), |len_bytes| DeviceMemory::new(context, len_bytes));
        encoded.reset(usize::MAX, |len_bytes| HostMemory::new(context, len_bytes, pinned).map(Arc::new));
        blocks.note(self.limit.as_deref());
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let blocks = self.blocks.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.limit.iter().for_each(|limit| limit.changed(blocks.noted_bytes, 0));
    }
}

/// The error of a batch that needs `len` bytes, but has only `free`.
fn no_room(len: usize, free: usize) -> Error {
    Error::OutOfDeviceMemory {
        what: "a batch",
        needed_bytes: len as u64,
        available_bytes: free as u64,
        remedy: "use a smaller batch_size or prefetch, smaller images, or raise device_memory",
    }
}

impl Blocks {
    /// Tells the pipeline's limit how much is allocated.
    fn note(&mut self, limit: Option<&Limit>) {
        let bytes = self.staging.bytes() + self.scratch.bytes();
        if let Some(limit) = limit.filter(|_| bytes != self.noted_bytes) {
            limit.changed(self.noted_bytes, bytes);
            self.noted_bytes = bytes;
        }
    }

    /// Number of bytes of the limit that are in no block.
    fn free_bytes(&self, limit_bytes: usize) -> usize {
        limit_bytes.saturating_sub(self.staging.bytes() + self.scratch.bytes())
    }

    /// Number of bytes that can still be allocated: outside of blocks, or unused in those with the most room.
    fn room_bytes(&self, limit_bytes: usize) -> usize {
        self.free_bytes(limit_bytes) + self.staging.last().1 + self.scratch.last().1
    }

    /// The size of a new block that holds `len` bytes. It is twice as large as the last one if the limit leaves as much
    /// for blocks of the other kind.
    fn next_size(&self, (last_bytes, _): (usize, usize), len: usize, limit_bytes: usize) -> Result<usize> {
        let free = self.free_bytes(limit_bytes);
        if len > free {
            return Err(no_room(len, free));
        }
        Ok((2 * last_bytes).max(FIRST_BLOCK_BYTES).min(free / 2).max(len))
    }
}

/// Staging memory for small tables, taken from an arena in larger pieces. Each worker has one for each batch.
#[derive(Debug, Default)]
pub(super) struct StagingWriter {
    piece: Option<Allocation>,
    used: usize,
}

impl StagingWriter {
    /// Copies values to staging memory. Returns their address on the device, a multiple of 16.
    pub(super) fn put<T: NoUninit>(&mut self, arena: &Arena, values: &[T]) -> Result<u64> {
        const { assert!(align_of::<T>() <= 16) };
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.put_bytes(arena, bytes.len(), |to| to.copy_from_slice(bytes))
    }

    /// Has `write` fill in `len_bytes` bytes of staging memory. Returns their address on the device, a multiple of 16.
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
