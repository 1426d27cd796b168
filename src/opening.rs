//! How an image is opened, before the first operation of its recipe.

use crate::decode::{Header, probe};
use crate::error::Result;
use crate::ops::Op;
use crate::ops::orientation::{Orientation, oriented};
use crate::raster::{Size, check_pixels};

/// The first steps with every image, before its recipe's own operations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Opening {
    pub(crate) orientation: Orientation,
    /// The size for which JPEGs are decoded at a smaller scale. `None` if all are decoded whole.
    pub(crate) draft: Option<Size>,
}

impl Opening {
    /// Reads the header of an encoded image, checks its size as stored against the limit, and makes it the header of a
    /// draft if one is wanted.
    pub(crate) fn header(self, bytes: &[u8], max_px: u64) -> Result<Header> {
        let mut header = probe(bytes)?;
        check_pixels(header.size, max_px)?;
        if let Some(size) = self.draft {
            header.draft(size);
        }
        Ok(header)
    }

    /// The operations that turn an image with this EXIF tag upright.
    pub(crate) fn turns(self, tag: u8) -> Vec<Op> {
        oriented(tag, self.orientation)
    }
}
