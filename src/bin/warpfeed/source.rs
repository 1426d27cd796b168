//! Where a command's pictures come from.

use clap::Args;
use std::path::{Path, PathBuf};
use warpfeed::{OpenOptions, RecordOptions, Result, Source, SourceFormat};

pub fn format(text: &str) -> std::result::Result<SourceFormat, String> {
    text.parse().map_err(|error: warpfeed::Error| error.to_string())
}

/// Which parts of records count.
#[derive(Args)]
pub struct FieldArgs {
    /// Which part of a record is the picture: an ending in WebDataset, a feature in TFRecord.
    #[arg(long, value_name = "NAME")]
    picture_field: Option<String>,
    /// Which part of a record is the label: an ending, or json.FIELD, in WebDataset; a feature in TFRecord.
    #[arg(long, value_name = "NAME")]
    label_field: Option<String>,
}

impl FieldArgs {
    pub fn open(&self, spec: &Path, format: Option<SourceFormat>) -> Result<Box<dyn Source>> {
        let (picture, label) = (self.picture_field.clone(), self.label_field.clone());
        let records = RecordOptions { picture, label, ..RecordOptions::default() };
        OpenOptions { format, records }.open(spec)
    }
}

/// The pictures.
#[derive(Args)]
pub struct SourceArgs {
    /// Folder of class folders, list file (path, tab, label), IDX file, or shards: .tar, .rec, .tfrecord, a folder of them, or a
    /// pattern like train-{000..146}.tar or '*.tar'.
    #[arg(value_name = "SOURCE")]
    spec: PathBuf,
    /// The source's form, where its name does not tell: folder, list, webdataset, recordio, tfrecord, idx.
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    format: Option<SourceFormat>,
    #[command(flatten)]
    fields: FieldArgs,
}

impl SourceArgs {
    pub fn open(&self) -> Result<Box<dyn Source>> {
        self.fields.open(&self.spec, self.format)
    }
}
