//! Memory of the caller's for batches.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

/// The multiple that the address of every batch is.
pub(super) const LINE_BYTES: usize = 64;

/// Source of the memory of a pipeline's batches, such as memory that another library has pinned
/// ([`PipelineBuilder::batch_memory`](crate::PipelineBuilder::batch_memory)).
pub trait BatchMemory: Send + Sync {
    /// Returns a block of at least `len_bytes` bytes, for one output of one batch, at an address that 64 divides.
    ///
    /// The worker thread that begins a batch calls this, and several may at once. If images differ in size and are not
    /// padded, it is called for each image.
    ///
    /// # Errors
    /// Whatever stops the caller, as [`Error::foreign`]. It ends the epoch.
    fn block(&self, len_bytes: usize) -> Result<MemoryBlock>;
}

/// A block of host memory that is the caller's.
///
/// The pipeline fills it with a batch, whose [`Tensor`](crate::Tensor) then has it. The owner is dropped with the
/// tensor, unless [`Tensor::into_block`](crate::Tensor::into_block) has taken the block. The pipeline never fills a
/// block again, so only the caller decides when memory is free.
///
/// ```
/// use warpfeed::MemoryBlock;
/// use std::ptr::NonNull;
///
/// #[repr(align(64))]
/// struct Line([u8; 64]);
///
/// let mut lines: Vec<Line> = (0..10).map(|_| Line([0; 64])).collect();
/// let (start, len_bytes) = (NonNull::new(lines.as_mut_ptr()).unwrap().cast(), 64 * lines.len());
/// // SAFETY: the vector's memory stays where it is while the owner, the vector, lives, and no other code uses it.
/// let block = unsafe { MemoryBlock::new(start, len_bytes, lines) };
/// let lines: Box<Vec<Line>> = block.into_owner().downcast().unwrap();
/// assert_eq!(lines.len(), 10);
/// ```
pub struct MemoryBlock {
    start: NonNull<u8>,
    len_bytes: usize,
    owner: Box<dyn Any + Send>,
}

// SAFETY: the owner is `Send`, and the memory is the block's alone (`new`).
unsafe impl Send for MemoryBlock {}
// SAFETY: a shared block gives bytes to read, and never its owner.
unsafe impl Sync for MemoryBlock {}

impl MemoryBlock {
    /// A block of `len_bytes` bytes at `start`. Dropping `owner`, on any thread, releases the memory.
    ///
    /// # Safety
    /// Until the owner is dropped or returned by [`into_owner`](Self::into_owner), these bytes can be read and written,
    /// stay where they are, and are used by no other code. They are initialized, or come from an allocator that is not
    /// Rust's.
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, len_bytes: usize, owner: impl Any + Send) -> Self {
        Self { start, len_bytes, owner: Box::new(owner) }
    }

    /// The owner of the memory.
    #[must_use]
    pub fn into_owner(self) -> Box<dyn Any + Send> {
        self.owner
    }

    /// The block, if it is large enough for a batch and begins where one may begin.
    pub(super) fn checked(self, len_bytes: usize) -> Result<Self> {
        let wrong = |expected, got| Err(Error::parameter("batch_memory", "block", expected, got));
        if self.len_bytes < len_bytes {
            return wrong(format!("{len_bytes} bytes at least"), format!("{} bytes", self.len_bytes));
        }
        if !self.start.addr().get().is_multiple_of(LINE_BYTES) {
            return wrong(format!("an address that {LINE_BYTES} divides"), format!("{:p}", self.start));
        }
        Ok(self)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        // SAFETY: readable memory of this length, which no other code writes (`new`).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len_bytes) }
    }

    pub(super) fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: writable memory of this length, which no other code uses (`new`).
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len_bytes) }
    }
}

impl fmt::Debug for MemoryBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryBlock({} bytes)", self.len_bytes)
    }
}
