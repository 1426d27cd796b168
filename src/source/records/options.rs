//! How shards are read.

use crate::error::{Error, Result};
use std::collections::HashMap;

/// How shards are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordOptions {
    /// Which part of a sample is its image: an ending (`left.jpg`) in WebDataset, a feature's name in TFRecord. `None`
    /// for the usual one.
    pub image: Option<String>,
    /// Which part is its label: an ending (`cls`), an ending and a field (`json.species`), or `folder`, in WebDataset; a
    /// feature's name in TFRecord. `None` for the usual one.
    ///
    /// With `folder` the label of an image is the name of the folder that it has in the archive, or of the archive in the
    /// archive, as ImageNet comes (`ILSVRC2012_img_train.tar` holds an archive a class).
    pub label: Option<String>,
    /// The names of the classes, label 0 first, by which labels that are names become numbers. Without them
    /// [`RecordShards`](super::RecordShards) sorts the names that there are, and a stream, which cannot know them all, refuses names.
    pub classes: Vec<String>,
    /// Whether an index is kept for the next time, in a hidden file beside each shard or, where that cannot be written
    /// and for remote shards, in the user's cache folder (`$XDG_CACHE_HOME/warpfeed`).
    pub keep_index: bool,
}

impl Default for RecordOptions {
    /// The usual image and label; the index is kept.
    fn default() -> Self {
        Self { image: None, label: None, classes: Vec::new(), keep_index: true }
    }
}

impl RecordOptions {
    /// The labels of the classes that are named.
    pub(in crate::source) fn numbers(&self) -> Result<HashMap<String, u32>> {
        numbers(&self.classes)
    }

    /// Refuses names of classes for what has its own.
    pub(in crate::source) fn without_classes(&self, source: &str) -> Result<()> {
        if self.classes.is_empty() {
            return Ok(());
        }
        Err(Error::parameter("open", "classes", "given for tar, RecordIO or TFRecord shards", source))
    }

    /// A label that is a number, unless classes are named and it is beyond them.
    pub(in crate::source) fn check_class(&self, label: u32) -> Result<u32, String> {
        if self.classes.is_empty() || (label as usize) < self.classes.len() {
            return Ok(label);
        }
        Err(format!("its label {label} has no name among the {} classes that were given", self.classes.len()))
    }
}

/// The labels of classes by their names.
pub(super) fn numbers(classes: &[String]) -> Result<HashMap<String, u32>> {
    let mut numbers = HashMap::with_capacity(classes.len());
    for (label, name) in (0..).zip(classes) {
        if numbers.insert(name.clone(), label).is_some() {
            return Err(Error::parameter("open", "classes", "different names", format!("{name} twice")));
        }
    }
    Ok(numbers)
}

/// Why a name is no label.
pub(in crate::source) fn no_class(name: &str) -> String {
    format!("its label {name:?} is not among the classes that were given")
}
