//! Sources with other labels.

use super::first_8_bytes;
use crate::error::Result;
use crate::source::{ReadRequest, Sample, Source, as_in};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::Arc;

/// A source with other labels.
pub struct MapLabels {
    source: Arc<dyn Source>,
    classes: Vec<String>,
    /// Returns the label of a sample from its index and its label in the source.
    map: Box<dyn Fn(u64, Option<u32>) -> Option<u32> + Send + Sync>,
}

impl MapLabels {
    /// Makes a source in which `map` returns the label of a sample from its index and its label in `source`.
    pub(super) fn new(
        source: Arc<dyn Source>,
        classes: Vec<String>,
        map: impl Fn(u64, Option<u32>) -> Option<u32> + Send + Sync + 'static,
    ) -> Self {
        Self { source, classes, map: Box::new(map) }
    }
}

impl Source for MapLabels {
    as_in!(|self| self.source; len read prefetch ahead_bytes name image_size skipped check_field);

    fn label(&self, index: u64) -> Option<u32> {
        (self.map)(index, self.source.label(index))
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Combines the fingerprint of the source, the classes, and the labels of up to 1,024 samples.
    fn fingerprint(&self) -> u64 {
        let mut hash = Sha256::new();
        hash.update(b"labels\0\0");
        hash.update(self.source.fingerprint().to_le_bytes());
        hash.update(crate::source::fingerprint(self).to_le_bytes());
        first_8_bytes(hash)
    }
}

impl std::fmt::Debug for MapLabels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} samples with other labels", self.len())
    }
}
