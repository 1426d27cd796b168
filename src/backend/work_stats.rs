//! Counts of a back end: who decoded, and how long the work took.

use super::LeftToCpu;
use crate::decode::PriorKnowledge;
use std::ops::AddAssign;
use std::time::Duration;

/// What a piece of work took, and who decoded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WorkStats {
    pub(crate) decode: Duration,
    pub(crate) augment: Duration,
    pub(crate) decoded: Decoded,
}

/// How many images each decoder has decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) cpu: u64,
    pub(crate) hybrid: u64,
    pub(crate) hardware: u64,
    /// The crate's own decoder on a device.
    pub(crate) device: u64,
    /// Of those by the CPU: a device decoder would have, had there been device memory for the whole image.
    pub(crate) for_memory: u64,
    /// Of those by the CPU: codes were passed over by means of an index of rows.
    pub(crate) restarts: u64,
    /// Of those by the CPU: from entry points.
    pub(crate) entry_points: u64,
    /// Of those by the CPU: why the crate's own decoder on a device left them to it.
    pub(crate) left: LeftToCpu,
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
        self.left += other.left;
    }
}
