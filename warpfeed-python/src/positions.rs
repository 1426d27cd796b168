//! The samples of a data set whose samples Python makes: a pipeline of them gives the order, and nothing else.

use sha2::{Digest, Sha256};
use std::borrow::Cow;
use warpfeed::Result;
use warpfeed::image::Size;
use warpfeed::source::{ReadRequest, Sample, Source};

/// A number of samples, each an image of one pixel.
pub(crate) struct Positions {
    pub(crate) samples: u64,
    /// What identifies the data set when an epoch is resumed.
    pub(crate) name: String,
}

impl Source for Positions {
    fn len(&self) -> u64 {
        self.samples
    }

    fn read<'a>(&'a self, _index: u64, _want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        sample.lend(&[0; 3]);
        sample.set_pixels(Size::new(1, 1), 3)
    }

    fn label(&self, _index: u64) -> Option<u32> {
        None
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("{}[{index}]", self.name).into()
    }

    fn image_size(&self) -> Option<Size> {
        Some(Size::new(1, 1))
    }

    /// Fingerprint of the name and the length: what the samples are is not known before they are made.
    fn fingerprint(&self) -> u64 {
        let digest = Sha256::digest(format!("{} {}", self.name, self.samples));
        digest.iter().take(8).fold(0, |value, &byte| value << 8 | u64::from(byte))
    }
}
