//! Counts of a back end: images by decoder, and time taken.

use super::CpuFallbacks;
use crate::decode::PriorKnowledge;
use std::ops::AddAssign;
use std::time::Duration;

/// Time that work took, and number of images by decoder.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WorkStats {
    pub(crate) decode: Duration,
    pub(crate) augment: Duration,
    pub(crate) decoded: Decoded,
}

/// Number of images by decoder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) cpu: u64,
    pub(crate) hybrid: u64,
    pub(crate) hardware: u64,
    /// Images decoded by the crate's own decoder on a device.
    pub(crate) device: u64,
    /// Images that the CPU decoded because device memory for the whole image was missing.
    pub(crate) for_memory: u64,
    /// Images for which the CPU skipped codes by an index of rows.
    pub(crate) restarts: u64,
    /// Images that the CPU decoded from entry points.
    pub(crate) entry_points: u64,
    /// Images that the crate's own decoder on a device decoded from entry points.
    pub(crate) device_entry_points: u64,
    /// Images that the crate's own device decoder left to the CPU, by reason.
    pub(crate) left: CpuFallbacks,
}

impl From<PriorKnowledge> for Decoded {
    fn from(knew: PriorKnowledge) -> Self {
        let (restarts, entry_points) =
            (u64::from(knew == PriorKnowledge::RowIndex), u64::from(knew == PriorKnowledge::EntryPoints));
        Self { restarts, entry_points, ..Self::default() }
    }
}

impl AddAssign for Decoded {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.hybrid += other.hybrid;
        self.hardware += other.hardware;
        self.device += other.device;
        self.for_memory += other.for_memory;
        self.restarts += other.restarts;
        self.entry_points += other.entry_points;
        self.device_entry_points += other.device_entry_points;
        self.left += other.left;
    }
}
