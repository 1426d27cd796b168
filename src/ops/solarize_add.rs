//! Brightening dark values.

use super::byte_table::{self, ByteTable};
use super::kernel::Kernel;
use super::{Operation, Primitive};
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Adds a number to each value below a threshold; the sum is at most 255: timm's `solarize_add`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SolarizeAdd {
    /// Number that is added.
    pub add: u8,
    /// The smallest value that does not change.
    #[serde(default = "middle")]
    pub threshold: u8,
}

const fn middle() -> u8 {
    128
}

impl SolarizeAdd {
    pub(super) const KERNELS: &'static [Kernel] = byte_table::KERNELS;

    /// An operation that adds `add` to each value below 128.
    #[must_use]
    pub const fn new(add: u8) -> Self {
        Self { add, threshold: middle() }
    }

    setters! {
        /// The smallest value that does not change.
        threshold: u8,
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(33), Self::new(110).threshold(200)]
    }
}

impl Operation for SolarizeAdd {
    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Table(ByteTable::new(
            |value| if value < self.threshold { value.saturating_add(self.add) } else { value },
        ))
    }

    keeps_places!();
}
