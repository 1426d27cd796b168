//! Filters of random transforms.

use super::filter::Interpolation;
use crate::error::Result;
use crate::rng::SampleRng;
use serde::{Deserialize, Serialize};

/// The filter of a random transform: always the same one, or one of two, drawn for each sample. timm's `random` draws
/// bilinear or bicubic. The written form is a name, or a list of two names.
///
/// ```
/// use warpfeed::ops::{Interpolation, RandomResizedCrop, Transform};
///
/// let either = [Interpolation::Bilinear, Interpolation::Bicubic];
/// Transform::from(RandomResizedCrop::new(224).interpolation(either)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "interpolation must be nearest, bilinear, bicubic or lanczos, or a list of two of them")]
pub enum Interpolations {
    /// Always this filter.
    Always(Interpolation),
    /// One of these filters, both equally likely.
    Either([Interpolation; 2]),
}

impl Interpolations {
    pub(super) const fn nearest() -> Self {
        Self::Always(Interpolation::Nearest)
    }

    /// Draws the filter. A single filter takes no random number.
    pub(super) fn draw(self, rng: &mut SampleRng) -> Interpolation {
        match self {
            Self::Always(interpolation) => interpolation,
            Self::Either(both) => both[rng.below(2) as usize],
        }
    }

    /// Checks each filter.
    pub(super) fn validate(self, check: impl Fn(Interpolation) -> Result<()>) -> Result<()> {
        match self {
            Self::Always(interpolation) => check(interpolation),
            Self::Either(both) => both.into_iter().try_for_each(check),
        }
    }
}

impl Default for Interpolations {
    fn default() -> Self {
        Self::Always(Interpolation::default())
    }
}

impl From<Interpolation> for Interpolations {
    fn from(interpolation: Interpolation) -> Self {
        Self::Always(interpolation)
    }
}

impl From<[Interpolation; 2]> for Interpolations {
    fn from(both: [Interpolation; 2]) -> Self {
        Self::Either(both)
    }
}
