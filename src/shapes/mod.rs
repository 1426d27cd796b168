//! Batches by shape: sizes for images of many aspects, and an epoch's order in which every batch of all ranks has one.

mod buckets;
pub mod naflex;
pub mod over_time;
pub mod patches;
pub mod sequences;
#[cfg(test)]
mod tests;
mod units;

pub(crate) use buckets::{Assignment, Fate};
pub use buckets::{BucketSummary, Buckets, Nearest};
pub(crate) use units::{Cut, Remainder, Units};
