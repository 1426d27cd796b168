//! Some samples of a source.

use super::first_8_bytes;
use crate::error::Result;
use crate::source::{Extent, ReadRequest, Sample, Source, as_in, no_such_sample};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

/// Some samples of a source. Each takes 4 bytes (8 if the source has 2^32 samples or more).
#[derive(Clone)]
pub struct Subset {
    source: Arc<dyn Source>,
    indices: Indices,
}

#[derive(Clone)]
enum Indices {
    Narrow(Box<[u32]>),
    Wide(Box<[u64]>),
}

impl Subset {
    /// Makes a subset of the samples at `indices`, which must all exist.
    pub(super) fn new(source: Arc<dyn Source>, indices: &[u64]) -> Self {
        let narrow = u32::try_from(source.len()).is_ok();
        let indices = if narrow {
            Indices::Narrow(indices.iter().map(|&index| index as u32).collect())
        } else {
            Indices::Wide(indices.into())
        };
        Self { source, indices }
    }

    /// Returns the index of sample `index` in the source; `None` if there is no such sample.
    fn get(&self, index: u64) -> Option<u64> {
        let index = usize::try_from(index).ok()?;
        match &self.indices {
            Indices::Narrow(indices) => indices.get(index).copied().map(u64::from),
            Indices::Wide(indices) => indices.get(index).copied(),
        }
    }

    /// Returns the index of sample `index` in the source. May panic if there is no such sample.
    fn at(&self, index: u64) -> u64 {
        match &self.indices {
            Indices::Narrow(indices) => indices[index as usize].into(),
            Indices::Wide(indices) => indices[index as usize],
        }
    }

    /// Returns the samples' indices in the source, in order.
    pub fn indices(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).map(|index| self.at(index))
    }
}

impl Source for Subset {
    as_in!(|self| self.source; ahead_bytes classes image_size skipped check_field);

    fn len(&self) -> u64 {
        match &self.indices {
            Indices::Narrow(indices) => indices.len() as u64,
            Indices::Wide(indices) => indices.len() as u64,
        }
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        let of = self.get(index).ok_or_else(|| no_such_sample("Subset::read", index, self.len()))?;
        self.source.read(of, want, sample)
    }

    fn prefetch(&self, index: u64) {
        if let Some(of) = self.get(index) {
            self.source.prefetch(of);
        }
    }

    fn extent(&self, index: u64) -> Option<Extent> {
        self.source.extent(self.get(index)?)
    }

    fn image_file(&self, index: u64) -> Option<PathBuf> {
        self.source.image_file(self.get(index)?)
    }

    fn image_version(&self, index: u64) -> Option<u64> {
        self.source.image_version(self.get(index)?)
    }

    fn label(&self, index: u64) -> Option<u32> {
        self.source.label(self.at(index))
    }

    fn has_labels(&self) -> bool {
        self.source.has_labels()
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        self.source.name(self.at(index))
    }

    fn image_id(&self, index: u64) -> Option<i64> {
        self.source.image_id(self.at(index))
    }

    /// Combines the fingerprint of the source and all indices.
    fn fingerprint(&self) -> u64 {
        let mut hash = Sha256::new();
        hash.update(b"subset\0\0");
        hash.update(self.source.fingerprint().to_le_bytes());
        self.indices().for_each(|index| hash.update(index.to_le_bytes()));
        first_8_bytes(hash)
    }
}

impl std::fmt::Debug for Subset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Subset of {} of {} samples", self.len(), self.source.len())
    }
}
