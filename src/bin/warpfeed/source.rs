//! Where a command's images come from.

use clap::Args;
use std::path::{Path, PathBuf};
use warpfeed::{
    Result,
    source::{Input, OpenOptions, RecordOptions, SourceFormat, read_text_limited},
};

/// Largest file of class names, in bytes.
const MAX_CLASSES_BYTES: u64 = 1 << 26;

pub fn format(text: &str) -> std::result::Result<SourceFormat, String> {
    text.parse().map_err(|error: warpfeed::Error| error.to_string())
}

/// Which part of a data set, and which parts of its records, count.
#[derive(Args)]
pub struct FieldArgs {
    /// Which split of a folder that holds several: train, val, test, or as the data set calls it.
    #[arg(long, value_name = "NAME")]
    split: Option<String>,
    /// Which part of a record is the image: an extension in WebDataset, a feature in TFRecord, a column in Parquet.
    #[arg(long, value_name = "NAME")]
    image_field: Option<String>,
    /// Which part of a record is the label: an extension, json.FIELD, or folder (of the image in the archive), in WebDataset;
    /// a feature in TFRecord; a column in Parquet.
    #[arg(long, value_name = "NAME")]
    label_field: Option<String>,
    /// File with the names of the classes, one on each line, label 0 first, for labels that are names. Shards that are
    /// read from front to back need it; for others the default is all names, sorted.
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
}

impl FieldArgs {
    /// Opens a source that is to be read in any order.
    pub fn open(&self, spec: &Path, format: Option<SourceFormat>) -> Result<Input> {
        let (split, records) = (self.split.clone(), self.records()?);
        OpenOptions { format, split, records, random_access: is_remote(spec), ..OpenOptions::default() }.open(spec)
    }

    fn records(&self) -> Result<RecordOptions> {
        let (image, label) = (self.image_field.clone(), self.label_field.clone());
        let read = |path: &PathBuf| read_text_limited(path, MAX_CLASSES_BYTES);
        let classes = self.classes.as_ref().map(read).transpose()?.unwrap_or_default();
        let classes = classes.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(RecordOptions { image, label, classes, ..RecordOptions::default() })
    }
}

fn is_remote(spec: &Path) -> bool {
    spec.to_str().is_some_and(|spec| spec.contains("://"))
}

/// The images.
#[derive(Args)]
pub struct SourceArgs {
    /// Folder of class folders, list file (path, tab, label), IDX file, or shards: .tar, .rec, .tfrecord, .parquet, a
    /// folder of them, or a pattern like train-{000..146}.tar or '*.tar'.
    #[arg(value_name = "SOURCE")]
    spec: PathBuf,
    /// The source's format, where its name does not tell: folder, list, webdataset, recordio, tfrecord, idx, parquet,
    /// cifar10, cifar100.
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    format: Option<SourceFormat>,
    #[command(flatten)]
    fields: FieldArgs,
    /// Read shards from front to back and shuffle in a window of W images [default for pipes, standard input (-) and
    /// remote shards: 1000]
    #[arg(long, value_name = "W")]
    window: Option<usize>,
    /// Read remote shards in any order, each image with a request of its own. An index of them is made first.
    #[arg(long, conflicts_with = "window")]
    random_access: bool,
    /// Shard cache: keep what is fetched from remote shards in this folder.
    #[cfg(feature = "cloud")]
    #[arg(long, value_name = "FOLDER", requires = "shard_cache_size")]
    shard_cache: Option<PathBuf>,
    /// The size of the shard cache: 500MB, 20GB, 2GiB.
    #[cfg(feature = "cloud")]
    #[arg(long, value_name = "SIZE", requires = "shard_cache", value_parser = super::values::size)]
    shard_cache_size: Option<u64>,
}

impl SourceArgs {
    pub fn open(&self) -> Result<Input> {
        self.other(&self.spec)
    }

    /// Another source, by the same options.
    pub fn other(&self, spec: &Path) -> Result<Input> {
        let options = OpenOptions {
            format: self.format,
            split: self.fields.split.clone(),
            records: self.fields.records()?,
            window: self.window,
            random_access: self.random_access,
            #[cfg(feature = "cloud")]
            cache: self
                .shard_cache
                .clone()
                .zip(self.shard_cache_size)
                .map(|(folder, size_bytes)| warpfeed::source::ShardCache { folder, size_bytes }),
        };
        options.open(spec)
    }

    /// Whether its images come from a server.
    pub fn is_remote(&self) -> bool {
        is_remote(&self.spec)
    }

    /// What reports call it.
    pub fn name(&self) -> String {
        let name = self.spec.to_string_lossy();
        warpfeed::source::without_secrets(&name).into_owned()
    }
}
