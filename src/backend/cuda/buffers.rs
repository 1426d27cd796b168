//! Buffers that encoded bytes are read into.

use crate::backend::spares::Spares;

/// Buffers above this size are freed after use.
const KEEP_BYTES: usize = 4 << 20;

/// Free buffers of samples, for the next samples.
pub(super) struct Buffers(Spares<Vec<u8>>);

impl Buffers {
    /// A store for at most `most` buffers.
    pub(super) fn new(most: usize) -> Self {
        Self(Spares::new(most))
    }

    pub(super) fn take(&self) -> Vec<u8> {
        self.0.take().unwrap_or_default()
    }

    pub(super) fn give(&self, buffer: Vec<u8>) {
        if (1..=KEEP_BYTES).contains(&buffer.capacity()) {
            self.0.give(buffer);
        }
    }
}
