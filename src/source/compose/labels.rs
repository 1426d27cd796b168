//! Other labels.

use super::first_8_bytes;
use crate::error::Result;
use crate::source::Source;
use crate::targets::Target;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A source with other labels.
pub struct MapLabels {
    source: Arc<dyn Source>,
    classes: Vec<String>,
    /// The label of a sample by its index and its label in the source.
    map: Box<dyn Fn(u64, u32) -> u32 + Send + Sync>,
}

impl MapLabels {
    /// `map` is asked for the label of a sample by its index and its label in `source`.
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

    fn read<'a>(&'a self, index: u64, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        self.source.read(index, buffer)
    }

    fn read_unless<'a>(&'a self, index: u64, buffer: &'a mut Vec<u8>, stopped: &AtomicBool) -> Result<&'a [u8]> {
        self.source.read_unless(index, buffer, stopped)
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

    /// The label is the mapped one; fields are the source's.
    fn target(&self, index: u64, field: Option<&str>) -> Result<Target> {
        match field {
            None => Ok(Target::Class(self.label(index))),
            Some(_) => self.source.target(index, field),
        }
    }

    fn read_with_target<'a>(
        &'a self,
        index: u64,
        field: &str,
        buffer: &'a mut Vec<u8>,
        stopped: &AtomicBool,
    ) -> Result<(&'a [u8], Target)> {
        self.source.read_with_target(index, field, buffer, stopped)
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

    /// Of the source, and of the labels and classes of up to 1,024 samples.
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
