//! Reasons for leaving an image to the CPU's decoder.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use std::ops::AddAssign;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// Reason for leaving an image to the CPU's decoder when a device's decoder is in use.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Reason {
            $($(#[$doc])* $variant,)*
        }

        /// Names of the reasons, in order.
        const NAMES: &[&str] = &[$($name),*];
    };
}

reasons! {
    /// The image is no JPEG.
    Format "no JPEG",
    /// The coding is progressive.
    Progressive "progressive",
    /// The coding is lossless, arithmetic or hierarchical.
    Process "not Huffman-coded baseline",
    /// Samples do not have 8 bits.
    Precision "not 8 bits a sample",
    /// The number of components is neither one nor three, as in CMYK.
    Components "neither gray nor three colors",
    /// The sampling factors are others than those of luma with one chroma sample per MCU.
    Sampling "sampling factors",
    /// The components come in several scans.
    SeveralScans "several scans",
    /// A side has more pixels than libjpeg allows, or the data are longer than a bit position can count.
    TooLarge "too large",
    /// A header segment is odd, or could be read in two ways.
    Header "odd header",
    /// A quantization or Huffman table is missing or impossible.
    Tables "odd tables",
    /// The file has no end-of-image marker.
    NoEnd "no end marker",
    /// The data contain a code that does not exist, an unexpected marker, or a fill byte.
    Damaged "damaged or odd data",
    /// The data end before the MCUs that are needed.
    Truncated "truncated",
    /// The threads took too many rounds to find where their codes begin.
    Unsynchronized "not synchronized",
    /// The device had too little memory for the image.
    Memory "device memory",
    /// Truncated images are accepted, and libjpeg decides about their pixels.
    Tolerant "truncated images are accepted",
}

impl Reason {
    /// The reason that the kernels report for an image (kernels/jpeg.cuh); `None` if they found nothing odd.
    pub(crate) fn of_status(status: u32) -> Option<Self> {
        match status {
            0 => None,
            _ if status & 4 != 0 => Some(Self::Unsynchronized),
            _ if status & 1 != 0 => Some(Self::Damaged),
            _ => Some(Self::Truncated),
        }
    }
}

/// Number of images that the CPU decoded although a device's decoder was in use, by reason.
///
/// ```
/// # use warpfeed::LeftToCpu;
/// let left = LeftToCpu::default();
/// assert_eq!(left.iter().count(), 0, "reasons without images are left out");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftToCpu([u64; NAMES.len()]);

impl LeftToCpu {
    /// The names of the reasons, each with its number of images.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.iter().copied().zip(self.0).filter(|(_, images)| *images > 0)
    }

    /// Number of images of all reasons.
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

/// Serializes as a map from names to numbers.
impl Serialize for LeftToCpu {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.iter().try_for_each(|(name, images)| map.serialize_entry(name, &images))?;
        map.end()
    }
}
