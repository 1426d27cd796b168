//! What `warpfeed pack` writes down of its shards (`pack.json`), as far as reading them needs it.

use crate::error::{Error, Result};
use crate::file;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::io;
use std::path::Path;

/// The manifest's name.
pub(crate) const MANIFEST: &str = "pack.json";

/// No manifest is larger: a million shards take a tenth of it.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// The last lines of a manifest: the checksum (CRC-32C) of the text before them.
pub(crate) fn last_lines(text: &[u8]) -> String {
    format!(",\n  \"crc32c\": \"{:08x}\"\n}}\n", crc32c::crc32c(text))
}

/// Whether the last lines of a manifest fit the text before them. `None` for a manifest that an earlier version wrote: it has
/// no checksum, and ends with its list of shards.
pub(crate) fn is_sound(manifest: &[u8]) -> Option<bool> {
    if manifest.ends_with(b"]\n}\n") {
        return None;
    }
    let (text, last) = manifest.split_at(manifest.len().saturating_sub(last_lines(b"").len()));
    Some(last == last_lines(text).as_bytes())
}

/// What stands where a folder has its manifest.
pub(crate) enum PackedFolder<T> {
    Nothing,
    Whole(T),
    /// Why it cannot be understood: it is empty, torn, changed, or of another version.
    Damaged(String),
}

impl<T: DeserializeOwned> PackedFolder<T> {
    pub(crate) fn in_folder(folder: &Path) -> Result<Self> {
        let text = file::if_there(file::read_limited(folder.join(MANIFEST), MAX_BYTES))?;
        Ok(text.map_or(Self::Nothing, |text| Self::of(&text)))
    }

    /// What the text of a manifest says.
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

    /// The manifest, if there is one.
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

/// A folder of packed shards.
#[derive(Deserialize)]
pub(crate) struct Packed {
    /// Whether all shards are there.
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
    name: String,
}

impl Packed {
    /// What the manifest in `folder` says, if there is one.
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
