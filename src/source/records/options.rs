//! The options for reading shards.

use crate::error::{Error, Result};
use crate::fields::BoxFormat;
use std::collections::HashMap;

options! {
    /// Options for reading shards.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RecordOptions {
        /// The part of a sample that is its image: an ending (`left.jpg`) in WebDataset, a feature's name in TFRecord.
        /// Default: the part that [`RecordFormat`](super::RecordFormat) names.
        pub image: Option<String>,
        /// The part that is the label: in WebDataset an ending (`cls`), an ending and a field (`json.species`), or
        /// `folder`; in TFRecord a feature's name, in Parquet a column's. `none`: samples are taken without labels.
        /// Default: the part that [`RecordFormat`](super::RecordFormat) names.
        ///
        /// With `folder` an image's label is the name of its folder in the archive, or of the inner archive that holds
        /// it. ImageNet comes that way: `ILSVRC2012_img_train.tar` holds one archive for each class.
        pub label: Option<String>,
        /// The names of the classes, label 0 first, which turn labels that are names into numbers. If empty,
        /// [`RecordShards`](super::RecordShards) sorts the names that it finds; a stream, which cannot know all names,
        /// rejects labels that are names.
        pub classes: Vec<String>,
        /// Format of boxes where the data do not say it. Without it, asking for such boxes is an error.
        pub boxes: Option<BoxFormat>,
        /// Whether an index is stored for the next time. It is a hidden file next to each shard; for remote shards and
        /// in folders that are not writable it is in the user's cache folder (`$XDG_CACHE_HOME/warpfeed`).
        pub keep_index: bool,
    }
}

impl Default for RecordOptions {
    /// The default image and label, with a stored index.
    fn default() -> Self {
        Self { image: None, label: None, classes: Vec::new(), boxes: None, keep_index: true }
    }
}

impl RecordOptions {
    /// Returns the label of each named class.
    pub(in crate::source) fn numbers(&self) -> Result<HashMap<String, u32>> {
        numbers(&self.classes)
    }

    /// Rejects names of classes for a source that has its own.
    #[cfg(feature = "parquet")]
    pub(in crate::source) fn without_classes(&self, source: &str) -> Result<()> {
        if self.classes.is_empty() {
            return Ok(());
        }
        Err(Error::parameter("open", "classes", "given for tar, RecordIO or TFRecord shards", source))
    }

    /// Checks a label that is a number: if classes are named, it must be one of theirs.
    pub(in crate::source) fn check_class(&self, label: u32) -> Result<u32, String> {
        if self.classes.is_empty() || (label as usize) < self.classes.len() {
            return Ok(label);
        }
        Err(format!("its label {label} has no name among the {} classes that were given", self.classes.len()))
    }
}

/// Returns the labels of classes by their names.
pub(super) fn numbers(classes: &[String]) -> Result<HashMap<String, u32>> {
    let mut numbers = HashMap::with_capacity(classes.len());
    for (label, name) in (0..).zip(classes) {
        if numbers.insert(name.clone(), label).is_some() {
            return Err(Error::parameter("open", "classes", "different names", format!("{name} twice")));
        }
    }
    Ok(numbers)
}

/// Returns the message for a name that is not a class.
pub(in crate::source) fn no_class(name: &str) -> String {
    format!("its label {name:?} is not among the classes that were given")
}
