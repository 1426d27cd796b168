//! Why images are left to the CPU's decoder.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use std::ops::AddAssign;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// Why an image is left to the CPU's decoder, where a device's would be asked.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Reason {
            $($(#[$doc])* $variant,)*
        }

        /// Their names, in order.
        const NAMES: &[&str] = &[$($name),*];
    };
}

reasons! {
    /// It is no JPEG.
    Format "no JPEG",
    /// Progressive coding.
    Progressive "progressive",
    /// Lossless, arithmetic or hierarchical coding.
    Process "not Huffman-coded baseline",
    /// Other than 8 bits a sample.
    Precision "not 8 bits a sample",
    /// Other than one or three components: CMYK.
    Components "neither gray nor three colors",
    /// Sampling factors other than those of luma at one chroma sample an MCU.
    Sampling "sampling factors",
    /// The components come in several scans.
    SeveralScans "several scans",
    /// More pixels a side than libjpeg takes, or more data than a bit position counts.
    TooLarge "too large",
    /// A header segment that is odd, or that might be read in two ways.
    Header "odd header",
    /// A quantization or Huffman table that is missing or impossible.
    Tables "odd tables",
    /// The file has no end-of-image marker.
    NoEnd "no end marker",
    /// A code that does not exist, a marker out of turn, or a fill byte.
    Damaged "damaged or odd data",
    /// The data end before the MCUs that are needed.
    Truncated "truncated",
    /// The threads took too many rounds to find where their codes begin.
    Unsynchronized "not synchronized",
    /// The device had no memory for it.
    Memory "device memory",
    /// Truncated images are accepted, of which libjpeg makes what it can.
    Tolerant "truncated images are accepted",
}

impl Reason {
    /// What the kernels say of an image (kernels/jpeg.cuh); `None` if nothing is odd.
    pub(crate) fn of_status(status: u32) -> Option<Self> {
        match status {
            0 => None,
            _ if status & 4 != 0 => Some(Self::Unsynchronized),
            _ if status & 1 != 0 => Some(Self::Damaged),
            _ => Some(Self::Truncated),
        }
    }
}

/// How many images the CPU decoded although the device's decoder was asked, by the reason.
///
/// ```
/// # use warpfeed::LeftToCpu;
/// let left = LeftToCpu::default();
/// assert_eq!(left.iter().count(), 0, "reasons without images are left out");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftToCpu([u64; NAMES.len()]);

impl LeftToCpu {
    /// The reasons, by name, each with the number of its images.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.iter().copied().zip(self.0).filter(|(_, images)| *images > 0)
    }

    /// How many images there are of all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }
}

impl AddAssign for LeftToCpu {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, images)| *sum += images);
    }
}

/// A map from names to numbers.
impl Serialize for LeftToCpu {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.iter().try_for_each(|(name, images)| map.serialize_entry(name, &images))?;
        map.end()
    }
}
