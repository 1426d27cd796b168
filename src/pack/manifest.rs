//! How far packing has come, in `pack.json` beside the shards.

use super::prepare::{Done, Sample};
use super::{MAX_BAD_KEPT, PackOptions};
use crate::atomic;
use crate::error::{Error, Result};
use crate::pipeline::BadSample;
use crate::source::{RecordFormat, Source};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// The manifest's name.
pub(super) const FILE: &str = "pack.json";

/// No manifest is larger: a million shards take a tenth of it.
const MAX_BYTES: u64 = 1 << 30;

const VERSION: u32 = 1;

/// What `pack.json` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    version: u32,
    /// [`Source::fingerprint`], 16 hexadecimal digits: not every reader of JSON keeps 64 bits.
    source: String,
    /// Samples of the source.
    samples: u64,
    pub(super) options: SavedOptions,
    /// Whether all shards are there.
    pub(crate) complete: bool,
    pub(crate) classes: Vec<String>,
    pub(super) shards: Vec<PackedShard>,
}

/// The options that decide about the shards' bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedOptions {
    format: String,
    shard_bytes: u64,
    max_side_px: Option<u32>,
    quality: u8,
    baseline: bool,
}

impl SavedOptions {
    pub fn new(options: &PackOptions) -> Self {
        Self {
            format: match options.format {
                RecordFormat::WebDataset => "webdataset",
                RecordFormat::RecordIo => "recordio",
                RecordFormat::TfRecord => "tfrecord",
            }
            .to_owned(),
            shard_bytes: options.shard_bytes,
            max_side_px: options.max_side_px,
            quality: options.quality,
            baseline: options.baseline,
        }
    }
}

/// A complete shard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PackedShard {
    pub file: String,
    /// The source's sample behind the shard's last one.
    pub end: u64,
    pub images: u64,
    pub bytes: u64,
    pub shrunk: u64,
    pub made_baseline: u64,
    pub made_ycc: u64,
    pub bad_count: u64,
    pub bad: Vec<BadSample>,
}

impl PackedShard {
    /// Counts an image that was written.
    pub fn count(&mut self, sample: &Sample) {
        self.images += 1;
        match sample.done {
            Done::Copied => {}
            Done::Shrunk => self.shrunk += 1,
            Done::MadeBaseline => self.made_baseline += 1,
            Done::MadeYcc => self.made_ycc += 1,
        }
    }

    /// Counts a sample that is left out.
    pub fn add_bad(&mut self, index: u64, path: String, error: &Error) {
        self.bad_count += 1;
        if self.bad.len() < MAX_BAD_KEPT {
            self.bad.push(BadSample { path, index, error: error.to_string() });
        }
    }

    /// Takes over what a shard without images has counted.
    pub fn take_bad(&mut self, empty: Self) {
        self.end = empty.end;
        self.bad_count += empty.bad_count;
        self.bad.extend(empty.bad);
        self.bad.truncate(MAX_BAD_KEPT);
    }

    /// The error for a source that had no image for the very first shard.
    pub fn nothing(&self) -> Error {
        let first =
            self.bad.first().map_or_else(|| "no samples".to_owned(), |bad| format!("{}: {}", bad.path, bad.error));
        let got = format!("{} bad samples, the first {first}", self.bad_count);
        Error::parameter("pack", "source", "one with images that can be used", got)
    }
}

impl Manifest {
    pub(super) fn new(source: &dyn Source, options: SavedOptions) -> Self {
        Self {
            version: VERSION,
            source: format!("{:016x}", source.fingerprint()),
            samples: source.len(),
            options,
            complete: false,
            classes: source.classes().to_vec(),
            shards: Vec::new(),
        }
    }

    /// The manifest in `folder`, if there is one.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(Error::io("open", &path))?,
        };
        let mut text = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut text).map_err(Error::io("read", &path))?;
        let damaged = |error| Error::io("read", &path)(std::io::Error::from(error));
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        atomic::write(&folder.join(FILE), |file| {
            serde_json::to_writer_pretty(&mut *file, self)?;
            file.write_all(b"\n")
        })
    }

    /// In what this differs from a manifest of another call; `None` if nothing keeps that one from going on.
    pub(super) fn differs(&self, other: &Self) -> Option<String> {
        let (mine, others) = (&self.options, &other.options);
        [
            ("version", self.version.to_string(), other.version.to_string()),
            ("source fingerprint", self.source.clone(), other.source.clone()),
            ("samples", self.samples.to_string(), other.samples.to_string()),
            ("format", mine.format.clone(), others.format.clone()),
            ("shard size", mine.shard_bytes.to_string(), others.shard_bytes.to_string()),
            ("max side", format!("{:?}", mine.max_side_px), format!("{:?}", others.max_side_px)),
            ("quality", mine.quality.to_string(), others.quality.to_string()),
            ("baseline", mine.baseline.to_string(), others.baseline.to_string()),
        ]
        .into_iter()
        .find(|(_, mine, others)| mine != others)
        .map(|(what, mine, others)| format!("{what} {mine}, not {others}"))
    }

    /// The names of the shards' files.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.shards.iter().map(|shard| shard.file.as_str())
    }

    /// Whether a file of this name is one of the shards.
    pub(crate) fn names(&self, file: &OsStr) -> bool {
        self.files().any(|name| OsStr::new(name) == file)
    }
}
