//! Several sources as one.

use super::{SourceExt, first_8_bytes};
use crate::error::{Error, Result};
use crate::raster::Size;
use crate::source::{Extent, ReadRequest, Sample, Source, most_frequent, no_such_sample};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

/// Several sources, one after the other.
#[derive(Clone)]
pub struct Concat {
    pub(crate) sources: Vec<Arc<dyn Source>>,
    /// For each source, the index after its last sample.
    ends: Vec<u64>,
}

impl Concat {
    /// Concatenates `sources`, in this order. They must have the same classes, which [`SourceExt::align_classes`] and
    /// [`SourceExt::map_labels`] can give them.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no source, or if the classes of sources differ.
    pub fn new(sources: impl IntoIterator<Item = Arc<dyn Source>>) -> Result<Self> {
        let sources: Vec<Arc<dyn Source>> = sources.into_iter().collect();
        let Some(first) = sources.first() else {
            return Err(Error::parameter("Concat::new", "sources", "one at least", "none"));
        };
        if let Some(other) = sources.iter().position(|source| source.classes() != first.classes()) {
            let expected = "sources with the same classes (align_classes makes them so)";
            let got = format!("source {other} with other classes than source 0");
            return Err(Error::parameter("Concat::new", "sources", expected, got));
        }
        if let Some(other) = sources.iter().position(|source| source.has_labels() != first.has_labels()) {
            let expected = "sources that all have labels, or none (relabel gives labels, and `none` as the field of labels \
                            takes them away)";
            let (with, without) = if first.has_labels() { (0, other) } else { (other, 0) };
            let got = format!("labels in source {with} and none in source {without}");
            return Err(Error::parameter("Concat::new", "sources", expected, got));
        }
        let ends = sources.iter().scan(0_u64, |end, source| {
            *end = end.saturating_add(source.len());
            Some(*end)
        });
        let ends = ends.collect();
        Ok(Self { sources, ends })
    }

    /// Mixes sources to `len` samples. The share of each source is proportional to its weight, the largest remainders
    /// rounded up. If a source has more samples than its share, `seed` draws some of them; if it has fewer, samples
    /// repeat ([`SourceExt::choose`]).
    ///
    /// # Errors
    /// The errors of [`new`](Self::new), and [`Error::Parameter`] if a weight is not positive, or if a source would
    /// give no sample.
    pub fn mix(sources: impl IntoIterator<Item = (Arc<dyn Source>, f64)>, len: u64, seed: u64) -> Result<Self> {
        let (sources, weights): (Vec<_>, Vec<f64>) = sources.into_iter().unzip();
        let sum: f64 = weights.iter().sum();
        if let Some(wrong) = weights.iter().find(|weight| !(weight.is_finite() && **weight > 0.0)) {
            return Err(Error::parameter("Concat::mix", "weight", "a number over 0", wrong));
        }
        let shares: Vec<f64> = weights.iter().map(|weight| weight / sum * len as f64).collect();
        let mut counts: Vec<u64> = shares.iter().map(|share| *share as u64).collect();
        let mut by_rest: Vec<usize> = (0..shares.len()).collect();
        by_rest.sort_by(|&a, &b| shares[b].fract().total_cmp(&shares[a].fract()).then(a.cmp(&b)));
        let missing = len.saturating_sub(counts.iter().sum()) as usize;
        by_rest.iter().take(missing).for_each(|&i| counts[i] += 1);
        let chosen =
            sources.into_iter().zip(counts).map(|(source, count)| Ok(source.choose(count, seed)?.into_source()));
        Self::new(chosen.collect::<Result<Vec<_>>>()?)
    }

    /// Returns the source of sample `index`, and the sample's index in it.
    fn find(&self, index: u64) -> Option<(&Arc<dyn Source>, u64)> {
        let number = self.ends.partition_point(|&end| end <= index);
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        Some((self.sources.get(number)?, index - start))
    }
}

impl Source for Concat {
    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        let (source, of) = self.find(index).ok_or_else(|| no_such_sample("Concat::read", index, self.len()))?;
        source.read(of, want, sample)
    }

    fn prefetch(&self, index: u64) {
        if let Some((source, of)) = self.find(index) {
            source.prefetch(of);
        }
    }

    fn extent(&self, index: u64) -> Option<Extent> {
        let (source, of) = self.find(index)?;
        source.extent(of)
    }

    fn image_file(&self, index: u64) -> Option<PathBuf> {
        let (source, of) = self.find(index)?;
        source.image_file(of)
    }

    fn image_version(&self, index: u64) -> Option<u64> {
        let (source, of) = self.find(index)?;
        source.image_version(of)
    }

    fn ahead_bytes(&self) -> u64 {
        self.sources.iter().map(|source| source.ahead_bytes()).fold(0, u64::saturating_add)
    }

    fn label(&self, index: u64) -> Option<u32> {
        self.find(index).and_then(|(source, of)| source.label(of))
    }

    fn has_labels(&self) -> bool {
        self.sources[0].has_labels()
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        self.find(index).map_or(Cow::Borrowed(""), |(source, of)| source.name(of))
    }

    fn image_id(&self, index: u64) -> Option<i64> {
        let (source, of) = self.find(index)?;
        source.image_id(of)
    }

    fn image_size(&self) -> Option<Size> {
        let mut sizes = self.sources.iter().map(|source| source.image_size());
        let first = sizes.next()??;
        sizes.all(|size| size == Some(first)).then_some(first)
    }

    fn classes(&self) -> &[String] {
        self.sources[0].classes()
    }

    fn skipped_files(&self) -> u64 {
        self.sources.iter().map(|source| source.skipped_files()).sum()
    }

    fn skipped_kinds(&self) -> Vec<(String, u64)> {
        most_frequent(self.sources.iter().flat_map(|source| source.skipped_kinds()))
    }

    fn warnings(&self) -> Vec<String> {
        self.sources.iter().flat_map(|source| source.warnings()).collect()
    }

    fn checked_fields(&self) -> Vec<String> {
        let mut of_all = self.sources[0].checked_fields();
        for source in &self.sources[1..] {
            let own = source.checked_fields();
            of_all.retain(|field| own.contains(field));
        }
        of_all
    }

    fn check_field(&self, field: &str) -> Result<()> {
        self.sources.iter().try_for_each(|source| source.check_field(field))
    }

    /// Combines the fingerprints of all sources, in their order.
    fn fingerprint(&self) -> u64 {
        let mut hash = Sha256::new();
        hash.update(b"concat\0\0");
        self.sources.iter().for_each(|source| hash.update(source.fingerprint().to_le_bytes()));
        first_8_bytes(hash)
    }
}

impl std::fmt::Debug for Concat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Concat of {} samples from {} sources", self.len(), self.sources.len())
    }
}
