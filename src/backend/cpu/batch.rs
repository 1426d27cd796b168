//! A batch in host memory while it is being filled.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::tensor::HostBuffer;
use std::sync::atomic::{AtomicBool, Ordering};

/// The buffer of a batch, written by several workers at once, each to slots of its own.
pub(crate) struct HostBatch {
    buffer: HostBuffer,
    start: *mut u8,
    slot_bytes: usize,
    /// Which slots are in use.
    taken: Vec<AtomicBool>,
}

// SAFETY: `start` points into `buffer`, which is owned and never reallocated while in here.
unsafe impl Send for HostBatch {}
// SAFETY: through a shared reference the buffer is reached by slots alone, of which `taken` lets nobody have one that
// somebody else has.
unsafe impl Sync for HostBatch {}

impl HostBatch {
    /// A batch of `slots` slots in a buffer that has as many.
    pub(super) fn new(mut buffer: HostBuffer, slot_bytes: usize, slots: usize) -> Self {
        debug_assert!(slots * slot_bytes <= buffer.as_bytes().len());
        let slots = slots.min(buffer.as_bytes().len() / slot_bytes.max(1));
        let start = buffer.as_bytes_mut().as_mut_ptr();
        Self { buffer, start, slot_bytes, taken: (0..slots).map(|_| AtomicBool::new(false)).collect() }
    }

    /// Slot `i`, for the caller alone until it is dropped.
    ///
    /// # Errors
    /// [`Error::Panic`] if there is no such slot or somebody has it, which would be a defect of this crate.
    pub(super) fn slot(&self, i: usize) -> Result<Slot<'_>> {
        let taken = self.taken.get(i).filter(|taken| !taken.swap(true, Ordering::Acquire));
        let taken =
            taken.ok_or_else(|| Error::Panic { message: format!("slot {i} of a batch is in use or missing") })?;
        // SAFETY: the slot lies inside the buffer, which has one for each of `taken` (`new`), and stays in place while
        // this is borrowed. `taken` was false: nobody else has it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.start.add(i * self.slot_bytes), self.slot_bytes) };
        Ok(Slot { bytes, taken })
    }

    /// The buffer with the slots at `places` at its beginning, in this rising order, and after them `padding` copies of
    /// the last of them.
    pub(super) fn into_buffer(mut self, places: &[usize], padding: usize) -> HostBuffer {
        let (bytes, slot_bytes) = (self.buffer.as_bytes_mut(), self.slot_bytes);
        for (to, from) in places.iter().enumerate() {
            if to < *from {
                bytes.copy_within(from * slot_bytes..(from + 1) * slot_bytes, to * slot_bytes);
            }
        }
        let last = places.len().saturating_sub(1) * slot_bytes;
        for i in 0..padding {
            bytes.copy_within(last..last + slot_bytes, (places.len() + i) * slot_bytes);
        }
        self.buffer
    }
}

/// One slot of a batch.
pub(super) struct Slot<'a> {
    bytes: &'a mut [u8],
    taken: &'a AtomicBool,
}

impl Slot<'_> {
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn a_slot_is_nobody_elses_and_gaps_are_closed() {
        let batch = HostBatch::new(HostBuffer::new(DType::U8, 10).unwrap(), 2, 4);
        for i in 0..4 {
            batch.slot(i).unwrap().bytes().fill(i as u8);
        }
        let held = batch.slot(1).unwrap();
        assert!(batch.slot(1).is_err() && batch.slot(4).is_err());
        drop(held);
        drop(batch.slot(1).unwrap());
        assert_eq!(batch.into_buffer(&[1, 3], 3).as_bytes(), [1, 1, 3, 3, 3, 3, 3, 3, 3, 3]);
    }
}
