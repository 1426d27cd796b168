//! Batches by shape: buckets for images of many aspects ([`Buckets`]), sequences of patches ([`TokenBudget`],
//! [`SequenceSize`], [`Patches`]), and sizes that change over time ([`SizeSchedule`]).
//!
//! A [`Pipeline`](crate::Pipeline) makes all batches of a step alike on all ranks.

mod buckets;
mod naflex;
mod over_time;
mod patches;
mod sequences;
#[cfg(test)]
mod tests;
mod units;

pub(crate) use buckets::{Assignment, Fate, cover};
pub use buckets::{BucketStep, BucketSummary, Buckets, Nearest};
pub use naflex::{SequenceCrop, SequenceFit, SequenceSize};
pub use over_time::SizeSchedule;
pub use patches::{Grid, ImageValues, PatchBatch, Patches, Slot};
pub use sequences::{SequenceBatch, SequencePlan, TokenBudget};
pub(crate) use units::{Cut, Remainder, Units};

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
