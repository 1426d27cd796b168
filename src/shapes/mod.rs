//! Batches by shape: sizes for images of many aspects, and an epoch's order in which every batch of all ranks has one.

mod buckets;
#[cfg(test)]
mod tests;
mod units;

pub(crate) use buckets::{Assignment, Fate};
pub use buckets::{BucketSummary, Buckets, Nearest};
pub(crate) use units::{Cut, Remainder, Units};
