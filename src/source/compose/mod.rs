//! Data sets made of others: parts, splits, folds, concatenations, mixes, other labels.

mod aux_images;
mod bands;
mod concat;
mod fields;
mod labels;
mod subset;
mod targets;

pub use aux_images::{AuxFolder, WithImages};
pub use bands::Bands;
pub use concat::Concat;
pub use fields::WithFields;
pub use labels::MapLabels;
pub use subset::Subset;
pub use targets::WithTargets;

use super::{Source, no_such_sample};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::rng::{Domain, SampleRng};
use crate::targets::Target;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Makes data sets from a data set. Each of them is a [`Source`] like any other: it is shuffled, partitioned over
/// ranks, resumed and prefetched like the original.
///
/// A part numbers its samples from 0. The random transforms of a sample depend on this new index.
///
/// ```
/// use warpfeed::source::{SourceExt, Concat, EncodedImages, Source};
///
/// let photos = EncodedImages::new((0..10).map(|i| (vec![i], u32::from(i) % 2)));
/// let (train, validation) = photos.clone().split(0.2, 42)?;
/// assert_eq!((train.len(), validation.len()), (8, 2));
///
/// let ones = photos.filter(|sample| sample.label == Some(1))?;
/// let all = Concat::new([train.into_source(), ones.into_source()])?;
/// assert_eq!(all.len(), 8 + 5);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub trait SourceExt: Source + Sized + 'static {
    /// Makes a shared pointer to the source.
    fn into_source(self) -> Arc<dyn Source> {
        Arc::new(self)
    }

    /// Selects the samples at `indices`, in this order. Each occurrence of an index is a separate sample.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an index beyond the last sample.
    fn subset(self, indices: impl IntoIterator<Item = u64>) -> Result<Subset> {
        let len = self.len();
        let indices = indices
            .into_iter()
            .map(|index| if index < len { Ok(index) } else { Err(no_such_sample("subset", index, len)) })
            .collect::<Result<Vec<_>>>()?;
        Ok(Subset::new(self.into_source(), &indices))
    }

    /// Adds targets in `field`, which `of` computes or looks up from a sample's index, label and name. A pipeline
    /// delivers them by [`TargetSpec::field`](crate::TargetSpec::field).
    ///
    /// ```
    /// use warpfeed::prelude::*;
    /// use warpfeed::{Target, image::{Image, JpegOptions, encode_jpeg}};
    ///
    /// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let boxes = [[0.1, 0.2, 0.5, 0.5], [0.3, 0.3, 0.9, 0.8]];
    /// let source = EncodedImages::new((0..2).map(|label| (jpeg.clone(), label)))
    ///     .targets("box", move |sample| Ok(Target::Floats(boxes[sample.index as usize].to_vec())));
    /// let pipeline = Pipeline::builder(source).targets(TargetSpec::floats(4).field("box")).transform(CenterCrop::new(8)).build()?;
    /// let batch = pipeline.epoch(0).next().unwrap()?;
    /// let Some(Targets::Numbers(numbers)) = batch.targets() else { unreachable!("they were asked for") };
    /// assert_eq!(numbers.as_slice::<f32>()?[4..], boxes[1]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    fn targets(
        self,
        field: impl Into<String>,
        of: impl Fn(Described<'_>) -> Result<Target> + Send + Sync + 'static,
    ) -> WithTargets {
        WithTargets::new(self.into_source(), field.into(), of)
    }

    /// Adds fields, which `of` computes or looks up from a sample's index, label and name: boxes, masks, keypoints. A
    /// pipeline delivers those that [`PipelineBuilder::fields`](crate::PipelineBuilder::fields) names, and
    /// [`BatchFields`](crate::fields::BatchFields) has an example. Coordinates are those of the stored image, before it
    /// is turned by its EXIF tag.
    fn fields(
        self,
        names: impl IntoIterator<Item = impl Into<String>>,
        of: impl Fn(Described<'_>) -> Result<Fields> + Send + Sync + 'static,
    ) -> WithFields {
        WithFields::new(self.into_source(), names.into_iter().map(Into::into).collect(), of)
    }

    /// Adds auxiliary images from folders next to the images' folder: depth maps, the other images of stereo pairs.
    /// They have the images' paths below their folder, with another ending if need be: `depth/a/1.png` for
    /// `left/a/1.jpg` below `root`, which is `left`. Samples' names must be paths of files, as those of image folders,
    /// lists and annotation files are.
    ///
    /// An image without such a file, or with a damaged one, is a bad sample, and the error names both files.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a field that is there twice; [`Error::Io`] if a folder is not there.
    fn aux_images(self, root: impl Into<PathBuf>, folders: impl IntoIterator<Item = AuxFolder>) -> Result<WithImages> {
        WithImages::new(self.into_source(), root.into(), folders.into_iter().collect())
    }

    /// Puts files together to images by the ends of their names: `patch_B02.tif`, `patch_B03.tif`, or `patch/B02.tif`,
    /// `patch/B03.tif` become one image `patch`, whose channels have the order of `names` (`B02`, `B03`). An ending follows
    /// `_` or `-` or is the whole name; capital letters do not matter. Other files are left out. Smaller files are enlarged
    /// by whole factors, each pixel repeated. Label, target and fields are those of the first file. The pipeline needs
    /// [`pixels`](crate::PipelineBuilder::pixels).
    ///
    /// # Errors
    /// [`Error::Parameter`] if a sample lacks one of the files, or has two of one, or if no file has such a name.
    fn bands(self, names: impl IntoIterator<Item = impl Into<String>>) -> Result<Bands> {
        Bands::new(self.into_source(), names.into_iter().map(Into::into).collect())
    }

    /// Selects the samples for which `keep` returns true, in their order.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no such sample.
    fn filter(self, mut keep: impl FnMut(Described<'_>) -> bool) -> Result<Subset> {
        let described = |index| Described { index, label: self.label(index), name: self.name(index) };
        let kept: Vec<u64> = (0..self.len()).filter(|&index| keep(described(index))).collect();
        if kept.is_empty() {
            let got = format!("none of {} samples", self.len());
            return Err(Error::parameter("filter", "keep", "one that keeps a sample at least", got));
        }
        Ok(Subset::new(self.into_source(), &kept))
    }

    /// Splits the samples into a part for training and a part for validation. The latter is a share of
    /// `0 < validation < 1` of all samples, rounded, drawn by `seed`. Each part is in the order of the source.
    ///
    /// The split depends only on the number of samples, the share and the seed. It is not the ranks'
    /// [`Partition`](crate::Partition), which is taken from the order of each epoch.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a part would have no sample.
    fn split(self, validation: f64, seed: u64) -> Result<(Subset, Subset)> {
        let (train, validation) = split_numbers(self.len(), "samples", validation, seed)?;
        Ok(parts(self.into_source(), &train, &validation))
    }

    /// Splits as [`split`](Self::split) does, with the same share of each label as nearly as whole samples allow: each
    /// label gets its share rounded down, and those that lose most by that get one more, until the whole has its share.
    ///
    /// # Errors
    /// The errors of [`split`](Self::split); [`Error::Parameter`] for a source without labels.
    fn split_stratified(self, validation: f64, seed: u64) -> Result<(Subset, Subset)> {
        let wanted = held_out(self.len(), "samples", validation)?;
        let strata = strata(&self, "split_stratified", seed)?;
        let mut counts: Vec<u64> = strata.iter().map(|stratum| (stratum.len() as f64 * validation) as u64).collect();
        let mut by_loss: Vec<usize> = (0..strata.len()).collect();
        let loss = |i: usize| strata[i].len() as f64 * validation - counts[i] as f64;
        by_loss.sort_by(|&a, &b| loss(b).total_cmp(&loss(a)).then(a.cmp(&b)));
        let missing = wanted.saturating_sub(counts.iter().sum()) as usize;
        by_loss.iter().take(missing).for_each(|&i| counts[i] += 1);
        let (mut train, mut held_out) = (Vec::new(), Vec::new());
        for (stratum, &count) in strata.iter().zip(&counts) {
            let (validation, rest) = stratum.split_at(count as usize);
            held_out.extend_from_slice(validation);
            train.extend_from_slice(rest);
        }
        train.sort_unstable();
        held_out.sort_unstable();
        Ok(parts(self.into_source(), &train, &held_out))
    }

    /// Splits the samples for cross-validation into the part for training and fold `fold` of `folds`. With the same
    /// seed, every sample is in exactly one fold, and the lengths of folds differ by at most one.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are fewer than 2 folds or more than samples, or if `fold` is not one of them.
    fn kfold(self, folds: u32, fold: u32, seed: u64) -> Result<(Subset, Subset)> {
        let (train, validation) = fold_numbers(&drawn(self.len(), seed), "samples", folds, fold)?;
        Ok(parts(self.into_source(), &train, &validation))
    }

    /// Splits as [`kfold`](Self::kfold) does, with the same share of each label as nearly as whole samples allow.
    ///
    /// # Errors
    /// The errors of [`kfold`](Self::kfold); [`Error::Parameter`] for a source without labels.
    fn kfold_stratified(self, folds: u32, fold: u32, seed: u64) -> Result<(Subset, Subset)> {
        let (train, validation) =
            fold_numbers(&strata(&self, "kfold_stratified", seed)?.concat(), "samples", folds, fold)?;
        Ok(parts(self.into_source(), &train, &validation))
    }

    /// Chooses `count` samples: all samples `count / len` times (rounded down), and for the rest a part drawn by
    /// `seed`. Repeated samples are separate samples. The choice is the same in each epoch.
    ///
    /// # Errors
    /// [`Error::Parameter`] if `count` is 0 or the source has no samples.
    fn choose(self, count: u64, seed: u64) -> Result<Subset> {
        let len = self.len();
        if count == 0 || len == 0 {
            return Err(Error::parameter("choose", "count", "1 or more, of a source with samples", count));
        }
        let mut rest = drawn(len, seed);
        rest.truncate((count % len) as usize);
        rest.sort_unstable();
        let indices: Vec<u64> = (0..count / len).flat_map(|_| 0..len).chain(rest).collect();
        Ok(Subset::new(self.into_source(), &indices))
    }

    /// Replaces each label by the result of `map`; a sample without a label still has none. `classes` are the names of
    /// the new labels, label 0 first; empty if they have no names.
    fn map_labels(
        self,
        classes: impl IntoIterator<Item = impl Into<String>>,
        map: impl Fn(u32) -> u32 + Send + Sync + 'static,
    ) -> MapLabels {
        let classes = classes.into_iter().map(Into::into).collect();
        MapLabels::new(self.into_source(), classes, move |_, label| label.map(&map))
    }

    /// Gives each sample the label that `label` returns, which is called once with the sample's index, name and old
    /// label. `classes` are the names of the new labels, label 0 first; empty if they have no names.
    ///
    /// For example, labels from a table of file names:
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use warpfeed::{Error, source::{SourceExt, EncodedImages, Source}};
    ///
    /// let table = HashMap::from([("image 0 in memory", 1), ("image 1 in memory", 0)]);
    /// let images = EncodedImages::unlabeled([vec![0xff], vec![0xd8]]);
    /// let labeled = images.relabel(["cat", "dog"], |image| {
    ///     table.get(&*image.name).copied().ok_or_else(|| Error::Unsupported {
    ///         feature: format!("training on {}, which has no label", image.name),
    ///         remedy: "add it to the table".to_owned(),
    ///     })
    /// })?;
    /// assert_eq!((labeled.label(0), labeled.label(1)), (Some(1), Some(0)));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of `label`.
    fn relabel(
        self,
        classes: impl IntoIterator<Item = impl Into<String>>,
        mut label: impl FnMut(Described<'_>) -> Result<u32>,
    ) -> Result<MapLabels> {
        let described = |index| Described { index, label: self.label(index), name: self.name(index) };
        let labels = (0..self.len()).map(|index| label(described(index))).collect::<Result<Vec<u32>>>()?;
        let classes = classes.into_iter().map(Into::into).collect();
        Ok(MapLabels::new(self.into_source(), classes, move |index, _| labels.get(index as usize).copied()))
    }

    /// Replaces each label by the position of its class in `classes`, so that data sets whose classes are in another
    /// order or incomplete can be combined. A label without a class becomes [`u32::MAX`].
    ///
    /// # Errors
    /// [`Error::Parameter`] if the source names no classes, or one that is not among `classes`, or if its images have
    /// no labels: the classes of objects are not changed.
    fn align_classes(self, classes: impl IntoIterator<Item = impl Into<String>>) -> Result<MapLabels> {
        let classes: Vec<String> = classes.into_iter().map(Into::into).collect();
        let refuse = |got: String| Error::parameter("align_classes", "classes", "all classes of the source", got);
        if !self.has_labels() {
            return Err(refuse("a source whose images have no labels".to_owned()));
        }
        if self.classes().is_empty() {
            return Err(refuse("a source whose labels have no names".to_owned()));
        }
        let label_of = |own: &String| {
            let label =
                classes.iter().position(|class| class == own).ok_or_else(|| refuse(format!("none for {own:?}")))?;
            Ok(label as u32)
        };
        let labels = self.classes().iter().map(label_of).collect::<Result<Vec<u32>>>()?;
        Ok(self.map_labels(classes, move |label| labels.get(label as usize).copied().unwrap_or(u32::MAX)))
    }
}

impl<S: Source + Sized + 'static> SourceExt for S {}

/// Description of a sample for the functions of [`SourceExt`].
#[derive(Debug, Clone)]
pub struct Described<'a> {
    /// Index of the sample.
    pub index: u64,
    /// Label of the sample; `None` if it has none.
    pub label: Option<u32>,
    /// Path or key of the sample.
    pub name: Cow<'a, str>,
}

/// Splits shards as [`SourceExt::split`] splits samples, for streams, which cannot be split by sample.
///
/// # Errors
/// The errors of [`SourceExt::split`].
pub fn split_shards(shards: &[PathBuf], validation: f64, seed: u64) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (train, validation) = split_numbers(shards.len() as u64, "shards", validation, seed)?;
    let part = |numbers: &[u64]| numbers.iter().map(|&number| shards[number as usize].clone()).collect();
    Ok((part(&train), part(&validation)))
}

/// Returns the numbers below `len` in an order drawn by `seed`.
fn drawn(len: u64, seed: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..len).collect();
    SampleRng::new(seed, 0, Domain::Split, 0).shuffle(&mut order);
    order
}

/// Returns the number of samples or shards, out of `len`, that are held out.
fn held_out(len: u64, what: &str, validation: f64) -> Result<u64> {
    let count = (len as f64 * validation).round();
    if !(0.0..1.0).contains(&validation) || count < 1.0 || count >= len as f64 {
        let expected = format!("a share between 0 and 1 that leaves one in each part of {len} {what}");
        return Err(Error::parameter("split", "validation", expected, validation));
    }
    Ok(count as u64)
}

/// Returns the numbers of the samples or shards for training, and of those that are held out.
pub(super) fn split_numbers(len: u64, what: &str, validation: f64, seed: u64) -> Result<(Vec<u64>, Vec<u64>)> {
    let count = held_out(len, what, validation)?;
    let mut order = drawn(len, seed);
    let (validation, train) = order.split_at_mut(count as usize);
    train.sort_unstable();
    validation.sort_unstable();
    Ok((train.to_vec(), validation.to_vec()))
}

/// Returns the numbers for training and those of a fold of `len` samples or shards in an order drawn by `seed`.
pub(super) fn kfold_numbers(len: u64, what: &str, folds: (u32, u32), seed: u64) -> Result<(Vec<u64>, Vec<u64>)> {
    fold_numbers(&drawn(len, seed), what, folds.0, folds.1)
}

/// Returns the numbers for training and those of a fold of samples or shards in the given order.
fn fold_numbers(order: &[u64], what: &str, folds: u32, fold: u32) -> Result<(Vec<u64>, Vec<u64>)> {
    let len = order.len();
    if folds < 2 || folds as usize > len || fold >= folds {
        let expected = format!("2 folds or more, {len} {what} at most, and one of them, from 0 on");
        return Err(Error::parameter("kfold", "folds", expected, format!("fold {fold} of {folds}")));
    }
    let part = |is_held_out: bool| {
        let in_part = |(position, _): &(usize, &u64)| (position % folds as usize == fold as usize) == is_held_out;
        let mut part: Vec<u64> = order.iter().enumerate().filter(in_part).map(|(_, &number)| number).collect();
        part.sort_unstable();
        part
    };
    Ok((part(false), part(true)))
}

/// The error for a source without labels.
pub(crate) fn no_labels(operation: &'static str) -> Error {
    let expected = "one whose images have labels (`SourceExt::relabel` gives them)";
    Error::parameter(operation, "source", expected, "one without labels")
}

/// Returns the samples of each label, in an order drawn by `seed`. Samples that cannot be read may have none.
fn strata(source: &impl Source, operation: &'static str, seed: u64) -> Result<Vec<Vec<u64>>> {
    if !source.has_labels() {
        return Err(no_labels(operation));
    }
    let mut by_label = BTreeMap::<Option<u32>, Vec<u64>>::new();
    (0..source.len()).for_each(|index| by_label.entry(source.label(index)).or_default().push(index));
    let shuffled = |(label, mut indices): (Option<u32>, Vec<u64>)| {
        let number = label.map_or(u64::MAX, |label| u64::from(label) + 1);
        SampleRng::new(seed, 0, Domain::Split, number).shuffle(&mut indices);
        indices
    };
    Ok(by_label.into_iter().map(shuffled).collect())
}

/// Makes both parts of a source.
fn parts(source: Arc<dyn Source>, train: &[u64], validation: &[u64]) -> (Subset, Subset) {
    (Subset::new(Arc::clone(&source), train), Subset::new(source, validation))
}

fn first_8_bytes(hash: Sha256) -> u64 {
    hash.finalize().iter().take(8).fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{EncodedImages, ReadRequest, Sample};
    use std::sync::Mutex;

    /// Makes samples whose bytes are their numbers. Of 100 samples, 60, 30 and 10 have the labels 0, 1 and 2.
    fn numbers(len: u64) -> EncodedImages {
        let label = |i: u64| match i % 10 {
            0..6 => 0,
            6..9 => 1,
            _ => 2,
        };
        EncodedImages::new((0..len).map(|i| (i.to_le_bytes().to_vec(), label(i)))).with_classes(["a", "b", "c"])
    }

    fn all(source: &impl Source) -> Vec<u64> {
        let number = |i| u64::from_le_bytes(source.encoded(i).unwrap().try_into().unwrap());
        (0..source.len()).map(number).collect()
    }

    fn labels(source: &impl Source) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        (0..source.len()).filter_map(|i| source.label(i)).for_each(|label| *counts.entry(label).or_default() += 1);
        counts
    }

    #[test]
    fn splits_are_disjoint_and_complete_and_follow_the_seed() {
        let mut seen = Vec::new();
        for seed in 0..3 {
            for split in [numbers(100).split(0.25, seed), numbers(100).split_stratified(0.25, seed)] {
                let (train, validation) = split.unwrap();
                assert_eq!((train.len(), validation.len()), (75, 25));
                assert!(all(&train).is_sorted() && all(&validation).is_sorted());
                let mut together = [all(&train), all(&validation)].concat();
                together.sort_unstable();
                assert_eq!(together, (0..100).collect::<Vec<_>>());
                seen.push(all(&validation));
            }
        }
        assert_eq!(all(&numbers(100).split(0.25, 1).unwrap().1), seen[2]);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 6);
        for (len, share) in [(100, 0.0), (100, 1.0), (100, 0.001), (100, 0.999), (100, f64::NAN), (1, 0.5), (0, 0.5)] {
            assert!(numbers(len).split(share, 0).unwrap_err().is_parameter(), "{share} of {len}");
        }
    }

    #[test]
    fn shards_are_split_as_samples_are() {
        let shards: Vec<PathBuf> = (0..12).map(|i| format!("{i}.tar").into()).collect();
        let (train, validation) = split_shards(&shards, 0.25, 42).unwrap();
        let (samples, held_out) = numbers(12).split(0.25, 42).unwrap();
        let named = |part: &Subset| all(part).iter().map(|i| format!("{i}.tar").into()).collect::<Vec<PathBuf>>();
        assert_eq!((train, validation), (named(&samples), named(&held_out)));
        assert!(split_shards(&shards[..1], 0.5, 42).unwrap_err().is_parameter());
    }

    /// Never change these values, which another program computed: if a split changed between runs, a model would be
    /// trained on samples of its validation set.
    #[test]
    fn golden_splits() {
        assert_eq!(all(&numbers(12).split(0.25, 42).unwrap().1), GOLDEN_SPLIT);
        assert_eq!(all(&numbers(20).split_stratified(0.3, 42).unwrap().1), GOLDEN_STRATIFIED);
        assert_eq!(all(&numbers(12).kfold(3, 1, 42).unwrap().1), GOLDEN_FOLD);
    }

    const GOLDEN_SPLIT: [u64; 3] = [0, 3, 8];
    const GOLDEN_STRATIFIED: [u64; 6] = [1, 3, 7, 9, 12, 18];
    const GOLDEN_FOLD: [u64; 4] = [2, 3, 7, 11];

    #[test]
    fn stratified_parts_have_each_labels_share() {
        let (train, validation) = numbers(100).split_stratified(0.25, 5).unwrap();
        assert_eq!(labels(&validation), BTreeMap::from([(0, 15), (1, 8), (2, 2)]));
        assert_eq!(labels(&train), BTreeMap::from([(0, 45), (1, 22), (2, 8)]));
        for fold in 0..7 {
            let counts = labels(&numbers(100).kfold_stratified(7, fold, 5).unwrap().1);
            // A seventh of 60, 30 and 10.
            assert!((8..=9).contains(&counts[&0]) && (4..=5).contains(&counts[&1]) && (1..=2).contains(&counts[&2]));
        }
    }

    #[test]
    fn folds_hold_every_sample_once() {
        for stratified in [false, true] {
            let mut together = Vec::new();
            for fold in 0..7 {
                let source = numbers(100);
                let folds = if stratified { source.kfold_stratified(7, fold, 3) } else { source.kfold(7, fold, 3) };
                let (train, validation) = folds.unwrap();
                assert!((14..=15).contains(&validation.len()) && train.len() + validation.len() == 100);
                assert!(all(&train).iter().all(|i| !all(&validation).contains(i)));
                together.extend(all(&validation));
            }
            together.sort_unstable();
            assert_eq!(together, (0..100).collect::<Vec<_>>());
        }
        for (folds, fold) in [(1, 0), (0, 0), (7, 7), (101, 0)] {
            assert!(numbers(100).kfold(folds, fold, 3).unwrap_err().is_parameter());
        }
    }

    #[test]
    fn parts_are_sources_in_every_respect() {
        let part = numbers(10).subset([7, 0, 7]).unwrap();
        assert_eq!((part.len(), part.label(0), &*part.name(1)), (3, Some(1), "image 0 in memory"));
        assert_eq!((all(&part), part.classes().len()), (vec![7, 0, 7], 3));
        assert!(part.encoded(3).unwrap_err().is_parameter());
        assert!(numbers(10).subset([10]).unwrap_err().is_parameter());
        let filtered = numbers(10).filter(|sample| sample.label == Some(1) && sample.name.contains('7')).unwrap();
        assert_eq!(filtered.indices().collect::<Vec<_>>(), [7]);
        assert!(numbers(10).filter(|_| false).unwrap_err().is_parameter());
        // A subset of a subset.
        assert_eq!(all(&part.subset([1]).unwrap()), [0]);
    }

    #[test]
    fn concatenations_and_mixes() {
        let two = || [numbers(3).into_source(), numbers(10).subset([9, 8]).unwrap().into_source()];
        let both = Concat::new(two()).unwrap();
        assert_eq!((all(&both), both.label(3)), (vec![0, 1, 2, 9, 8], Some(2)));
        assert!(both.encoded(5).unwrap_err().is_parameter());
        assert!(Concat::new([]).unwrap_err().is_parameter());
        let other = EncodedImages::new([(vec![0; 8], 1)]).with_classes(["b", "a"]);
        let error = Concat::new([numbers(3).into_source(), other.clone().into_source()]).unwrap_err().to_string();
        assert!(error.contains("align_classes"), "{error}");
        let other = other.align_classes(["a", "b", "c"]).unwrap();
        assert_eq!((other.label(0), other.classes().len()), (Some(0), 3), "its class is `a`");
        assert!(Concat::new([numbers(3).into_source(), other.into_source()]).is_ok());
        assert!(numbers(3).align_classes(["a", "b"]).unwrap_err().is_parameter());
        let unlabeled = || EncodedImages::unlabeled([vec![0; 8], vec![1; 8]]).with_classes(["a", "b", "c"]);
        let error = Concat::new([numbers(3).into_source(), unlabeled().into_source()]).unwrap_err().to_string();
        assert!(error.contains("labels in source 0 and none in source 1"), "{error}");
        assert!(unlabeled().align_classes(["a", "b", "c"]).unwrap_err().to_string().contains("no labels"));
        assert!(unlabeled().split_stratified(0.5, 1).unwrap_err().to_string().contains("without labels"));
        assert!(unlabeled().kfold_stratified(2, 0, 1).unwrap_err().to_string().contains("without labels"));
        assert_eq!(unlabeled().map_labels(["x"], |label| label).label(0), None);
        assert_eq!(unlabeled().relabel(["x"], |_| Ok(0)).unwrap().label(0), Some(0));

        let mix = Concat::mix(two().into_iter().zip([3.0, 1.0]), 10, 1).unwrap();
        // The shares are 7.5 and 2.5. The remainders are equal, so the first source has one sample more.
        assert_eq!(all(&mix)[..6], [0, 1, 2, 0, 1, 2]);
        assert_eq!((mix.len(), &all(&mix)[8..]), (10, &[9, 8][..]));
        for weights in [[0.0, 1.0], [f64::NAN, 1.0], [1e9, 1.0]] {
            assert!(Concat::mix(two().into_iter().zip(weights), 10, 1).unwrap_err().is_parameter());
        }
        let labels = numbers(10).map_labels(["odd", "even"], |label| 1 - label % 2);
        assert_eq!(
            ((0..10).filter_map(|i| labels.label(i)).collect::<Vec<_>>(), labels.classes().len()),
            (vec![1, 1, 1, 1, 1, 1, 0, 0, 0, 1], 2)
        );
    }

    #[test]
    fn fingerprints_tell_them_apart() {
        let source = || numbers(2000);
        let mut seen = vec![
            source().fingerprint(),
            source().subset(0..2000).unwrap().fingerprint(),
            // Two samples are swapped that are not among those whose names are hashed.
            source().subset((0..998).chain([999, 998]).chain(1000..2000)).unwrap().fingerprint(),
            source().split(0.5, 1).unwrap().0.fingerprint(),
            source().split(0.5, 2).unwrap().0.fingerprint(),
            source().split(0.5, 1).unwrap().1.fingerprint(),
            source().map_labels(["x"], |_| 0).fingerprint(),
            Concat::new([source().into_source()]).unwrap().fingerprint(),
            Concat::new([source().into_source(), numbers(1).into_source()]).unwrap().fingerprint(),
            Concat::new([numbers(1).into_source(), source().into_source()]).unwrap().fingerprint(),
        ];
        assert_eq!(source().split(0.5, 1).unwrap().0.fingerprint(), seen[3]);
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn prefetches_reach_the_source() {
        struct Asked(Arc<Mutex<Vec<u64>>>);
        impl Source for Asked {
            fn len(&self) -> u64 {
                5
            }
            fn read<'a>(&'a self, _index: u64, _want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
                sample.lend(&[]);
                Ok(())
            }
            fn prefetch(&self, index: u64) {
                self.0.lock().unwrap().push(index);
            }
            fn ahead_bytes(&self) -> u64 {
                7
            }
            fn label(&self, _index: u64) -> Option<u32> {
                Some(0)
            }
            fn name(&self, _index: u64) -> Cow<'_, str> {
                "".into()
            }
        }
        let asked = Arc::new(Mutex::new(Vec::new()));
        let source = || Asked(Arc::clone(&asked));
        let part = source().subset([4, 2]).unwrap().map_labels([""; 0], |label| label);
        let all = Concat::new([source().into_source(), part.into_source()]).unwrap();
        (0..8).for_each(|index| all.prefetch(index));
        assert_eq!((&asked.lock().unwrap()[..], all.ahead_bytes()), (&[0, 1, 2, 3, 4, 4, 2][..], 14));
    }
}
