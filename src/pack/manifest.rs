//! `pack.json` next to the shards, which records the progress of packing.

use super::place::Place;
use super::prepare::{Done, PackableImage};
use super::{MAX_BAD_KEPT, PackOptions, reading};
use crate::error::{Error, Result};
use crate::pipeline::BadSample;
use crate::source::Source;
use crate::source::packed::{MANIFEST, last_lines, name_in_folder};
use serde::{Deserialize, Serialize};

const VERSION: u32 = 2;

/// The contents of `pack.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    version: u32,
    /// [`Source::fingerprint`] as 16 hexadecimal digits, because not every JSON reader keeps 64 bits.
    source: String,
    /// Number of samples in the source.
    samples: u64,
    pub(super) options: SavedOptions,
    /// Number of source samples in each shard but the last, if several processes pack together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) shard_samples: Option<u64>,
    /// Whether all shards are complete.
    pub(super) complete: bool,
    classes: Vec<String>,
    pub(super) shards: Vec<PackedShard>,
}

/// The options that affect the shards' bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedOptions {
    format: String,
    shard_bytes: u64,
    max_side_px: Option<u32>,
    quality: u8,
    baseline: bool,
    #[serde(default)]
    restarts: bool,
    #[serde(default)]
    entry_points: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fields: Vec<String>,
}

impl SavedOptions {
    pub fn new(options: &PackOptions) -> Self {
        Self {
            format: options.format.name().to_owned(),
            shard_bytes: options.shard_bytes,
            max_side_px: options.max_side_px,
            quality: options.quality,
            baseline: options.baseline,
            restarts: options.restarts,
            entry_points: options.entry_points,
            target: options.target.clone(),
            fields: options.fields.clone(),
        }
    }
}

/// The record of a written file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PackedFile {
    #[serde(deserialize_with = "name_in_folder")]
    pub name: String,
    pub bytes: u64,
    /// The checksum, as [`PackedFile::checksum`] writes it.
    pub crc32c: String,
}

impl PackedFile {
    pub fn new(name: String, bytes: u64, crc32c: u32) -> Self {
        Self { name, bytes, crc32c: Self::checksum(crc32c) }
    }

    /// A checksum in the manifest's form: 8 hexadecimal digits, as other programs print it.
    pub fn checksum(crc32c: u32) -> String {
        format!("{crc32c:08x}")
    }
}

/// A complete shard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PackedShard {
    /// The shard itself and, for RecordIO, its index file.
    pub files: Vec<PackedFile>,
    /// Index of the source sample after the shard's last one.
    pub end: u64,
    /// The checksum over the source's data for the shard's samples. `None` in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_crc32c: Option<String>,
    pub images: u64,
    pub shrunk: u64,
    pub made_baseline: u64,
    pub made_ycc: u64,
    #[serde(default)]
    pub restarts: u64,
    #[serde(default)]
    pub entry_points: u64,
    pub bad_count: u64,
    pub bad: Vec<BadSample>,
}

impl PackedShard {
    /// The name of the shard itself.
    pub fn name(&self) -> &str {
        self.files.first().map_or("", |file| &file.name)
    }

    pub fn rename(&mut self, name: String) {
        if let Some(file) = self.files.first_mut() {
            file.name = name;
        }
    }

    /// Size of the shard itself in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.first().map_or(0, |file| file.bytes)
    }

    /// Adds the checksum of the shard's next sample.
    pub fn add_source(&mut self, checksum: u32) {
        self.set_source(reading::with(self.source().unwrap_or(0), checksum));
    }

    /// The checksum over the source's data for the shard's samples.
    pub fn source(&self) -> Option<u32> {
        u32::from_str_radix(self.source_crc32c.as_ref()?, 16).ok()
    }

    fn set_source(&mut self, checksum: u32) {
        self.source_crc32c = Some(PackedFile::checksum(checksum));
    }

    /// Counts an image that was written.
    pub fn count(&mut self, sample: &PackableImage) {
        self.images += 1;
        self.restarts += u64::from(sample.restarts);
        self.entry_points += u64::from(sample.entry_points);
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

    /// Adds the counts of a shard without images.
    pub fn take_bad(&mut self, empty: Self) {
        if let (Some(own), Some(added)) = (self.source(), empty.source()) {
            self.set_source(reading::joined(own, added, empty.end - self.end));
        }
        self.end = empty.end;
        self.bad_count += empty.bad_count;
        self.bad.extend(empty.bad);
        self.bad.truncate(MAX_BAD_KEPT);
    }

    /// The error for a source that has no image for the first shard.
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
            shard_samples: None,
            complete: false,
            classes: source.classes().to_vec(),
            shards: Vec::new(),
        }
    }

    pub(super) fn write(&self, place: &dyn Place) -> Result<()> {
        place.write(MANIFEST, &mut |file| {
            let mut text = serde_json::to_vec_pretty(self)?;
            // The checksum goes before the closing bracket.
            text.truncate(text.len().saturating_sub("\n}".len()));
            file.write_all(&text)?;
            file.write_all(last_lines(&text).as_bytes())
        })
    }

    /// The first difference from another call's manifest. `None` if packing can continue from that manifest.
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
            ("restarts", mine.restarts.to_string(), others.restarts.to_string()),
            ("entry points", mine.entry_points.to_string(), others.entry_points.to_string()),
            ("target", format!("{:?}", mine.target), format!("{:?}", others.target)),
            ("fields", format!("{:?}", mine.fields), format!("{:?}", others.fields)),
            ("samples a shard", format!("{:?}", self.shard_samples), format!("{:?}", other.shard_samples)),
        ]
        .into_iter()
        .find(|(_, mine, others)| mine != others)
        .map(|(what, mine, others)| format!("{what} {mine}, not {others}"))
    }

    /// Describes the job, for people.
    pub(super) fn job(&self) -> String {
        format!("packing {} samples (source {}) as {}", self.samples, self.source, self.options.format)
    }
}
