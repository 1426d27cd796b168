//! The key of a sample's random numbers.

use crate::rng::SampleRng;

/// The key of the random numbers of one sample: a pipeline with this seed draws the same ones in this epoch for the
/// sample with this index.
///
/// ```
/// use warpfeed::ops::random_horizontal_flip;
/// use warpfeed::transforms::{Key, Transforms};
/// use warpfeed::{fields::Fields, image::Size};
///
/// let flip = Transforms::new([random_horizontal_flip(0.5)])?;
/// let key = Key::new(42, 0, 7);
/// let draw = || flip.draw(Size::new(8, 8), &Fields::new(), key);
/// assert_eq!(draw()?, draw()?);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Key {
    /// The seed ([`PipelineBuilder::shuffle`](crate::PipelineBuilder::shuffle),
    /// [`PipelineBuilder::seed`](crate::PipelineBuilder::seed)).
    pub seed: u64,
    /// Number of the epoch.
    pub epoch: u64,
    /// Index of the sample in its data set.
    pub index: u64,
}

impl Key {
    /// The key of sample `index` in an epoch.
    #[must_use]
    pub const fn new(seed: u64, epoch: u64, index: u64) -> Self {
        Self { seed, epoch, index }
    }

    pub(super) fn numbers(self) -> SampleRng {
        SampleRng::for_sample(self.seed, self.epoch, self.index)
    }
}
