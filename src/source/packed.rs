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

/// What stands where a folder has its manifest.
pub(crate) enum Found<T> {
    Nothing,
    Whole(T),
    /// Why it cannot be understood: it is empty, torn, or of another version.
    Damaged(String),
}

impl<T: DeserializeOwned> Found<T> {
    pub(crate) fn in_folder(folder: &Path) -> Result<Self> {
        let text = file::if_there(file::read_limited(folder.join(MANIFEST), MAX_BYTES))?;
        Ok(text.map_or(Self::Nothing, |text| Self::of(&text)))
    }

    /// What the text of a manifest says.
    pub(crate) fn of(text: &[u8]) -> Self {
        match serde_json::from_slice(text) {
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
        Found::in_folder(folder)?.whole(folder)
    }

    /// Whether a file of this name is one of the shards.
    pub(super) fn names(&self, file: &OsStr) -> bool {
        self.shards.iter().any(|shard| shard.files.first().is_some_and(|first| OsStr::new(&first.name) == file))
    }
}
