//! Counts of images that a device's decoder left to the CPU.

use crate::decode::Reason;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use std::ops::AddAssign;

/// The status of a good image with unused bytes, whose places are not learned (kernels/jpeg.cuh).
pub(super) const UNUSED_BYTES: u32 = 8;

/// The reason that the kernels report for an image (kernels/jpeg.cuh). `None` if they found nothing unusual.
pub(super) fn reason_of_status(status: u32) -> Option<Reason> {
    match status {
        0 | UNUSED_BYTES => None,
        _ if status & 4 != 0 => Some(Reason::Unsynchronized),
        _ if status & 1 != 0 => Some(Reason::Damaged),
        _ => Some(Reason::Truncated),
    }
}

/// Number of images that the CPU decoded although a device's decoder was in use, by reason.
///
/// ```
/// # use warpfeed::CpuFallbacks;
/// let left = CpuFallbacks::default();
/// assert_eq!(left.iter().count(), 0, "reasons without images are left out");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuFallbacks([u64; Reason::NAMES.len()]);

impl CpuFallbacks {
    /// The names of the reasons, each with its number of images.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Reason::NAMES.iter().copied().zip(self.0).filter(|(_, images)| *images > 0)
    }

    /// Number of images over all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }
}

impl AddAssign for CpuFallbacks {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, images)| *sum += images);
    }
}

/// Serializes as a map from names to numbers.
impl Serialize for CpuFallbacks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.iter().try_for_each(|(name, images)| map.serialize_entry(name, &images))?;
        map.end()
    }
}
