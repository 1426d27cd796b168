//! Counts of a back end: images by decoder, and time taken.

use super::CpuFallbacks;
use crate::decode::PriorKnowledge;
use serde::Serialize;
use std::time::Duration;

/// Declares a struct of counts and its sum: `sum` adds a count, `most` takes the larger one.
macro_rules! counts {
    ($(#[$meta:meta])* $name:ident { $($(#[$of:meta])* $field:ident: $type:ty = $how:ident,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$of])* pub $field: $type,)*
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(counts!($how self.$field, other.$field);)*
            }
        }
    };
    (sum $all:expr, $other:expr) => { $all += $other };
    (most $all:expr, $other:expr) => { $all = $all.max($other) };
}
pub(crate) use counts;

/// Time that work took, and number of images by decoder.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WorkStats {
    pub(crate) decode: Duration,
    pub(crate) augment: Duration,
    pub(crate) decoded: Decoded,
    /// Whether the image's pixels are not the CPU's, because of its decoder.
    pub(crate) approximate: bool,
}

counts! {
    /// Number of images by decoder.
    #[derive(Eq)]
    Decoded {
        /// Images that the CPU decoded.
        #[serde(rename = "decoded_cpu")]
        cpu: u64 = sum,
        /// Images that nvJPEG's hybrid decoder decoded.
        #[serde(rename = "decoded_hybrid")]
        hybrid: u64 = sum,
        /// Images that the device's hardware decoder decoded.
        #[serde(rename = "decoded_hardware")]
        hardware: u64 = sum,
        /// Images that the crate's own decoder on the device decoded.
        #[serde(rename = "decoded_device")]
        device: u64 = sum,
        /// Images that the CPU decoded because the device had not enough memory for whole images, which its decoders
        /// need. They are included in [`cpu`](Self::cpu).
        #[serde(rename = "decoded_for_memory")]
        for_memory: u64 = sum,
        /// Images for which the CPU skipped rows and columns outside the needed part, using the restart markers that
        /// [`PackOptions::restarts`](crate::pack::PackOptions::restarts) writes. They are included in
        /// [`cpu`](Self::cpu).
        #[serde(rename = "decoded_restarts")]
        restarts: u64 = sum,
        /// Images that the CPU decoded from entry points
        /// ([`PipelineBuilder::entry_points`](crate::PipelineBuilder::entry_points)). They are included in
        /// [`cpu`](Self::cpu).
        #[serde(rename = "decoded_entry_points")]
        entry_points: u64 = sum,
        /// Images that the crate's own decoder on the device decoded from entry points. They are included in
        /// [`device`](Self::device).
        #[serde(rename = "decoded_device_entry_points")]
        device_entry_points: u64 = sum,
        /// Images whose data the device has kept since an earlier epoch
        /// ([`PipelineBuilder::device_cache`](crate::PipelineBuilder::device_cache)). They are included in
        /// [`device`](Self::device).
        #[serde(rename = "decoded_device_cached")]
        device_cached: u64 = sum,
        /// Images that the device has read from their files, past the host
        /// ([`PipelineBuilder::gpu_direct`](crate::PipelineBuilder::gpu_direct)). They are included in
        /// [`device`](Self::device).
        #[serde(rename = "decoded_device_direct")]
        device_direct: u64 = sum,
        /// Images that the crate's own decoder on the device left to the CPU, by reason. They are included in
        /// [`cpu`](Self::cpu), or bad.
        cpu_fallbacks: CpuFallbacks = sum,
    }
}

impl From<PriorKnowledge> for Decoded {
    fn from(knew: PriorKnowledge) -> Self {
        let (restarts, entry_points) =
            (u64::from(knew == PriorKnowledge::RowIndex), u64::from(knew == PriorKnowledge::EntryPoints));
        Self { restarts, entry_points, ..Self::default() }
    }
}
