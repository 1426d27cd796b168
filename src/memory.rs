//! Allocation that can fail with an error: that of warpfeed-image with this crate's error, and the remedy for batches.

use crate::error::{Error, Result};
use bytemuck::Zeroable;
use warpfeed_image::memory;
pub(crate) use warpfeed_image::memory::FEWER_IMAGES;

/// Remedy if a batch's memory is refused.
pub(crate) const SMALLER_BATCHES: &str =
    "use a smaller batch_size or prefetch, fewer threads, or allow more memory (ulimit -v, or the container's limit)";

/// The error for refused memory of `what`.
pub(crate) fn refused<T>(what: &'static str, len: usize, remedy: &'static str) -> Error {
    memory::refused::<T>(what, len, remedy).into()
}

/// `len` zeros. The system provides their pages when they are first touched.
///
/// # Errors
/// [`Error::OutOfMemory`] if the memory is refused.
pub(crate) fn zeros<T: Zeroable>(len: usize, what: &'static str, remedy: &'static str) -> Result<Vec<T>> {
    Ok(memory::zeros(len, what, remedy)?)
}

/// Reserves room in `buffer` for `len` elements. If the memory must be moved, the content is lost.
///
/// # Errors
/// [`Error::OutOfMemory`] if the memory is refused.
pub(crate) fn reserve<T>(buffer: &mut Vec<T>, len: usize, what: &'static str, remedy: &'static str) -> Result<()> {
    Ok(memory::reserve(buffer, len, what, remedy)?)
}

/// Extends `buffer` to `len` bytes with zeros.
///
/// # Errors
/// [`Error::OutOfMemory`] if the memory is refused.
pub(crate) fn lengthen(buffer: &mut Vec<u8>, len: usize, what: &'static str, remedy: &'static str) -> Result<()> {
    Ok(memory::lengthen(buffer, len, what, remedy)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_memory_is_an_error_that_no_policy_skips() {
        let error = zeros::<u64>(1 << 57, "a batch", SMALLER_BATCHES).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { bytes: 0x1000_0000_0000_0000, .. }), "{error:?}");
        assert!(!error.is_bad_sample());
        assert!(error.to_string().contains("batch_size"), "{error}");
    }
}
