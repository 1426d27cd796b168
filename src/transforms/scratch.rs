//! Memory of calls, kept from one to the next.

use crate::apply::field_mover::FieldMover;
use crate::backend::PixelRunner;
use crate::error::{Error, Result};
use crate::os::memory;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Mutex, TryLockError};

/// Elements that are kept between images, 16 MiB.
const KEEP_WORDS: usize = 4 << 20;

/// The memory of one thread: two images, two for masks, and a result whose rows cannot be written in place, or an image
/// that its result overwrites. Images over 64 MiB are freed after use.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) pixels: PixelRunner,
    pub(super) mover: FieldMover,
    /// A result without gaps, or an image that is overwritten, aligned for all elements.
    pub(super) between: Vec<u32>,
}

impl Scratch {
    /// Frees `between`, if it is large.
    pub(super) fn shrink(&mut self) {
        if self.between.capacity() > KEEP_WORDS {
            self.between = Vec::new();
        }
    }
}

/// The first `len` bytes of `between`, which grows if it must.
///
/// # Errors
/// [`Error::OutOfMemory`] if there is no memory.
pub(super) fn room(between: &mut Vec<u32>, len: usize) -> Result<&mut [u8]> {
    let words = len.div_ceil(4);
    if between.len() < words {
        *between = Vec::new();
        *between = memory::zeros(words, "an image", memory::FEWER_IMAGES)?;
    }
    Ok(&mut bytemuck::cast_slice_mut(between)[..len])
}

/// Unused memory of all threads, at most one for each processor.
static UNUSED: Mutex<Vec<Scratch>> = Mutex::new(Vec::new());
static MOST: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get));

/// Runs `work`, which may be the caller's code, with memory of earlier calls.
///
/// # Errors
/// [`Error::Panic`] if `work` panics; its own errors.
pub(super) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> Result<T>) -> Result<T> {
    let mut scratch = unused(|unused| unused.pop()).flatten().unwrap_or_default();
    match catch_unwind(AssertUnwindSafe(|| work(&mut scratch))) {
        Ok(result) => {
            unused(|unused| {
                if unused.len() < *MOST {
                    unused.push(scratch);
                }
            });
            result
        }
        // What a panic has left is not used again.
        Err(panic) => Err(Error::panic(panic.as_ref())),
    }
}

/// Calls `with` with the unused memory. If another thread has it at this moment, or had it when this process was forked,
/// there is none.
fn unused<T>(with: impl FnOnce(&mut Vec<Scratch>) -> T) -> Option<T> {
    match UNUSED.try_lock() {
        Ok(mut unused) => Some(with(&mut unused)),
        Err(TryLockError::Poisoned(unused)) => Some(with(&mut unused.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}
