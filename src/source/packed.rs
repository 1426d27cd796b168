//! The manifest of `warpfeed pack` (`pack.json`), for readers.

use crate::error::{Error, Result};
use crate::os::file;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use std::ffi::OsStr;
use std::io;
use std::path::Path;

/// Name of the manifest's file.
pub(crate) const MANIFEST: &str = "pack.json";

/// Largest size of a manifest, in bytes: ten times that of a million shards.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// Returns the last lines of a manifest: the checksum (CRC-32C) of the text before them.
pub(crate) fn last_lines(text: &[u8]) -> String {
    format!(",\n  \"crc32c\": \"{:08x}\"\n}}\n", crc32c::crc32c(text))
}

/// Whether the checksum in the last lines of a manifest fits the text before them. `None` for a manifest of an earlier
/// version, which has no checksum and ends with its list of shards.
pub(crate) fn is_sound(manifest: &[u8]) -> Option<bool> {
    if manifest.ends_with(b"]\n}\n") {
        return None;
    }
    let (text, last) = manifest.split_at(manifest.len().saturating_sub(last_lines(b"").len()));
    Some(last == last_lines(text).as_bytes())
}

/// The state of the manifest in a folder: missing, valid or damaged.
pub(crate) enum PackedFolder<T> {
    Nothing,
    Whole(T),
    /// The reason why it cannot be read: it is empty, cut off, changed, or of another version.
    Damaged(String),
}

impl<T: DeserializeOwned> PackedFolder<T> {
    pub(crate) fn in_folder(folder: &Path) -> Result<Self> {
        let text = file::if_there(file::read_limited(folder.join(MANIFEST), MAX_BYTES))?;
        Ok(text.map_or(Self::Nothing, |text| Self::of(&text)))
    }

    /// Parses the text of a manifest.
    pub(crate) fn of(text: &[u8]) -> Self {
        match serde_json::from_slice(text) {
            Ok(_) if is_sound(text) == Some(false) => {
                Self::Damaged("it is damaged (its checksum is not that of its text)".to_owned())
            }
            Ok(manifest) => Self::Whole(manifest),
            Err(_) if text.is_empty() => Self::Damaged("it is empty".to_owned()),
            Err(error) => Self::Damaged(format!("it is damaged ({error})")),
        }
    }

    /// Returns the manifest, if there is one.
    ///
    /// # Errors
    /// [`Error::Io`] if it is damaged.
    pub(crate) fn whole(self, folder: &Path) -> Result<Option<T>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Whole(manifest) => Ok(Some(manifest)),
            Self::Damaged(reason) => {
                let remedy = format!("{reason}: run `warpfeed pack` again with the same source, options and folder");
                let damaged = io::Error::new(io::ErrorKind::InvalidData, remedy);
                Err(Error::io("read", folder.join(MANIFEST))(damaged))
            }
        }
    }
}

/// The manifest of a folder of packed shards.
#[derive(Deserialize)]
pub(crate) struct Packed {
    /// Whether all shards have been written.
    pub(super) complete: bool,
    pub(super) classes: Vec<String>,
    shards: Vec<PackedShard>,
}

#[derive(Deserialize)]
struct PackedShard {
    /// The shard itself comes first.
    files: Vec<PackedFile>,
}

#[derive(Deserialize)]
struct PackedFile {
    #[serde(deserialize_with = "name_in_folder")]
    name: String,
}

/// Reads the name of a file in the manifest's folder. One that leads elsewhere is none: whoever wrote the manifest
/// would have other files read, renamed or removed.
pub(crate) fn name_in_folder<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    let is_plain = !name.contains(|c| c == '\0' || std::path::is_separator(c)) && !["", ".", ".."].contains(&&*name);
    if is_plain { Ok(name) } else { Err(D::Error::custom(format!("{name:?} is no name of a file in its folder"))) }
}

impl Packed {
    /// Reads the manifest in `folder`, if there is one.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read or is damaged.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        PackedFolder::in_folder(folder)?.whole(folder)
    }

    /// Whether a file of this name is one of the shards.
    pub(super) fn names(&self, file: &OsStr) -> bool {
        self.shards.iter().any(|shard| shard.files.first().is_some_and(|first| OsStr::new(&first.name) == file))
    }
}
