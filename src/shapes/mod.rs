//! Batches by shape: sizes for images of many aspects, and an epoch's order in which every batch of all ranks has one.

mod buckets;
pub mod naflex;
pub mod over_time;
pub mod patches;
pub mod sequences;
#[cfg(test)]
mod tests;
mod units;

use crate::raster::Size;

/// What the images of a batch have in common, where it differs from batch to batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchShape {
    /// The size of all images: that of a bucket, or of a step.
    Size(Size),
    /// The largest number of patches of an image.
    SeqLen(u32),
}

impl BatchShape {
    /// The size of all images, if they have one.
    #[must_use]
    pub const fn size(self) -> Option<Size> {
        match self {
            Self::Size(size) => Some(size),
            Self::SeqLen(_) => None,
        }
    }
}

pub(crate) use buckets::{Assignment, Fate, cover};
pub use buckets::{BucketSummary, Buckets, Nearest};
pub(crate) use units::{Cut, Remainder, Units};
