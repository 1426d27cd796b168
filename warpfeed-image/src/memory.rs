//! Allocation that can fail with an error.

use crate::error::{Error, Result};
use bytemuck::Zeroable;

/// Remedy if the memory of a decoded or encoded image is refused.
pub const FEWER_IMAGES: &str =
    "use fewer threads or a lower max_pixels, or allow the process more memory (ulimit -v, or the container's limit)";

/// The error for refused memory of `what`.
pub fn refused<T>(what: &'static str, len: usize, remedy: &'static str) -> Error {
    Error::OutOfMemory { what, bytes: (len as u64).saturating_mul(size_of::<T>() as u64), remedy }
}

/// `len` zeros. The system provides their pages when they are first touched.
///
/// # Errors
/// [`Error::OutOfMemory`] if the memory is refused.
pub fn zeros<T: Zeroable>(len: usize, what: &'static str, remedy: &'static str) -> Result<Vec<T>> {
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| refused::<T>(what, len, remedy))
}

/// Reserves room in `buffer` for `len` elements. If the memory must be moved, the content is lost: callers overwrite it
/// anyway.
///
/// # Errors
/// [`Error::OutOfMemory`] if the memory is refused.
pub fn reserve<T>(buffer: &mut Vec<T>, len: usize, what: &'static str, remedy: &'static str) -> Result<()> {
    if buffer.capacity() < len {
        *buffer = Vec::new();
        buffer.try_reserve_exact(len).map_err(|_| refused::<T>(what, len, remedy))?;
    }
    Ok(())
}

/// Extends `buffer` to `len` bytes with zeros.
///
/// # Errors
/// [`Error::OutOfMemory`] if the memory is refused.
pub fn lengthen(buffer: &mut Vec<u8>, len: usize, what: &'static str, remedy: &'static str) -> Result<()> {
    let more = len.saturating_sub(buffer.len());
    buffer.try_reserve(more).map_err(|_| refused::<u8>(what, len, remedy))?;
    buffer.resize(buffer.len() + more, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any address space.
    const ABSURD: usize = 1 << 60;

    #[test]
    fn refused_memory_is_an_error() {
        let (mut kept, mut grown) = (vec![7_u8; 3], vec![7_u8; 3]);
        for error in [
            zeros::<u64>(ABSURD / 8, "an image", FEWER_IMAGES).unwrap_err(),
            reserve(&mut kept, ABSURD, "an image", FEWER_IMAGES).unwrap_err(),
            lengthen(&mut grown, ABSURD, "an image", FEWER_IMAGES).unwrap_err(),
        ] {
            assert!(matches!(error, Error::OutOfMemory { bytes: 0x1000_0000_0000_0000, .. }), "{error:?}");
            assert!(!error.is_bad_image());
            assert!(error.to_string().contains("max_pixels"), "{error}");
        }
        assert_eq!(grown, [7; 3]);
    }

    #[test]
    fn buffers_grow() {
        let mut buffer = vec![1_u8, 2];
        lengthen(&mut buffer, 4, "a file", FEWER_IMAGES).unwrap();
        assert_eq!(buffer, [1, 2, 0, 0]);
        lengthen(&mut buffer, 1, "a file", FEWER_IMAGES).unwrap();
        assert_eq!(buffer.len(), 4, "never shorter");
        reserve(&mut buffer, 1000, "a file", FEWER_IMAGES).unwrap();
        assert!(buffer.capacity() >= 1000);
        assert_eq!(zeros::<u32>(3, "an image", FEWER_IMAGES).unwrap(), [0; 3]);
    }
}
