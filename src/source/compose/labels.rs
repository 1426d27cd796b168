//! Sources with other labels.

use super::first_8_bytes;
use crate::error::Result;
use crate::source::{Sample, Source, Want};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::Arc;

/// A source with other labels.
pub struct MapLabels {
    source: Arc<dyn Source>,
    classes: Vec<String>,
    /// Returns the label of a sample from its index and its label in the source.
    map: Box<dyn Fn(u64, u32) -> u32 + Send + Sync>,
}

impl MapLabels {
    /// Makes a source in which `map` returns the label of a sample from its index and its label in `source`.
    pub(super) fn new(
        source: Arc<dyn Source>,
        classes: Vec<String>,
        map: impl Fn(u64, u32) -> u32 + Send + Sync + 'static,
    ) -> Self {
        Self { source, classes, map: Box::new(map) }
    }
}

impl Source for MapLabels {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read<'a>(&'a self, index: u64, want: &Want<'_>, sample: &mut Sample<'a>) -> Result<()> {
        self.source.read(index, want, sample)
    }

    fn prefetch(&self, index: u64) {
        self.source.prefetch(index);
    }

    fn ahead_bytes(&self) -> u64 {
        self.source.ahead_bytes()
    }

    fn label(&self, index: u64) -> u32 {
        (self.map)(index, self.source.label(index))
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        self.source.name(index)
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn skipped_files(&self) -> u64 {
        self.source.skipped_files()
    }

    fn skipped_kinds(&self) -> Vec<(String, u64)> {
        self.source.skipped_kinds()
    }

    fn check_field(&self, field: &str) -> Result<()> {
        self.source.check_field(field)
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
