//! Where a pipeline keeps entry points.

use crate::decode::{EntryPointStore, PackKey};
use crate::error::{Error, Result};
use crate::os::file;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Largest number of bytes of entry points in memory, if no folder keeps them. All of ImageNet's take 0.9 GB.
const MEMORY_BYTES: u64 = 512 << 20;
/// Largest number of bytes of entry points in the user's cache folder: four times ImageNet's.
const FOLDER_BYTES: u64 = 4 << 30;
/// Environment variable that names the place for pipelines that do not.
const VARIABLE: &str = "WARPFEED_ENTRY_POINTS";
/// Environment variable that names the folder of the key of packed entry points, or is `none`.
const KEY_VARIABLE: &str = "WARPFEED_PACK_KEY";

/// Place and size of a pipeline's entry points of JPEGs
/// ([`PipelineBuilder::entry_points`](crate::PipelineBuilder::entry_points)).
///
/// By default they are kept in the user's cache folder (`$XDG_CACHE_HOME/warpfeed/entry-points`), in at most 4 GiB, and
/// in at most 512 MiB of memory if the folder cannot be used. The environment variable `WARPFEED_ENTRY_POINTS` names
/// another folder, or is `memory` or `none`.
///
/// Entry points that `pack --entry-points` has put into images are trusted if they were packed under the key of this
/// user (`$XDG_CONFIG_HOME/warpfeed/pack-key`, `~/.config` by default; the environment variable `WARPFEED_PACK_KEY`
/// names another folder, or is `none`). Others are checked in the first epoch.
///
/// Processes that use one folder share its files, also at the same time. New entry points are written when an epoch
/// ends, and when the pipeline is dropped. Until then they take memory, usually at most 64 MiB; at most 512 MiB if they
/// cannot be written.
///
/// ```
/// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// # use warpfeed::prelude::*;
/// use warpfeed::EntryPoints;
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path().join("points");
/// # let jpeg = encode_jpeg(&Image::new(Size::new(400, 300)), &JpegOptions::default())?;
///
/// for run in 0..2 {
///     let images = EncodedImages::new([(jpeg.clone(), 0)]);
///     let builder = Pipeline::builder(images).transform(CenterCrop::new(224)).entry_points(EntryPoints::folder(&folder));
///     let pipeline = builder.build()?;
///     let mut epoch = pipeline.epoch(0);
///     epoch.by_ref().for_each(|batch| drop(batch.unwrap()));
///     // The first epoch of the second run has what the first run has found.
///     assert_eq!(epoch.stats().decoded.entry_points, run);
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryPoints {
    place: Place,
    limit_bytes: Option<u64>,
    dense: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Place {
    /// The user's cache folder if it can be used, else memory.
    #[default]
    Cache,
    Folder(PathBuf),
    Memory,
    Nowhere,
}

impl EntryPoints {
    /// No entry points: every epoch decodes every image from the front.
    #[must_use]
    pub fn none() -> Self {
        Self { place: Place::Nowhere, ..Self::default() }
    }

    /// Entry points in memory, for the epochs of one pipeline.
    #[must_use]
    pub fn memory() -> Self {
        Self { place: Place::Memory, ..Self::default() }
    }

    /// Entry points in this folder, which is made if it does not exist. Whoever can write to it can change pixels: give
    /// it to one user, or to users who trust each other.
    #[must_use]
    pub fn folder(folder: impl Into<PathBuf>) -> Self {
        Self { place: Place::Folder(folder.into()), ..Self::default() }
    }

    /// Limits the bytes that they take; 0 for none. Default: 4 GiB in a folder, 512 MiB in memory.
    ///
    /// Once the bytes are used up, further images get no entry points. In a folder, files of data sets that are not in
    /// use are removed first, the longest unused before others.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit_bytes = Some(bytes);
        self
    }

    /// Whether places between entry points are kept too, at which the threads of a GPU can start. Entry points alone
    /// take a hundredth of the images' bytes, with these places a fortieth. Default: for pipelines on a GPU. Pipelines
    /// on the CPU use the entry points of those on a GPU, and the other way round.
    #[must_use]
    pub fn dense(mut self, dense: bool) -> Self {
        self.dense = Some(dense);
        self
    }

    /// The store.
    ///
    /// # Errors
    /// [`Error::Io`] if a folder that the caller named is none and cannot be made.
    pub(super) fn open(&self) -> Result<Option<Arc<EntryPointStore>>> {
        if self.limit_bytes == Some(0) {
            return Ok(None);
        }
        let in_memory = || EntryPointStore::new(self.limit_bytes.unwrap_or(MEMORY_BYTES));
        let folder_bytes = self.limit_bytes.unwrap_or(FOLDER_BYTES);
        let in_folder = |folder: &PathBuf| {
            EntryPointStore::in_folder(folder, folder_bytes).map_err(Error::io("keep entry points in", folder))
        };
        // What cannot be read now costs time, and no more.
        let in_memory_for = |error: Error| in_memory().with_failure(error.to_string());
        let in_named = |folder: &PathBuf| {
            in_folder(folder).or_else(|error| if folder.is_dir() { Ok(in_memory_for(error)) } else { Err(error) })
        };
        let store = match &self.place {
            Place::Nowhere => return Ok(None),
            Place::Memory => in_memory(),
            Place::Folder(folder) => in_named(folder)?,
            Place::Cache => match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
                Some(value) if value == "none" => return Ok(None),
                Some(value) if value == "memory" => in_memory(),
                Some(folder) => in_named(&folder.into())?,
                None => match file::cache_folder().map(|folder| folder.join("entry-points")) {
                    None => in_memory(),
                    Some(folder) => in_folder(&folder).unwrap_or_else(in_memory_for),
                },
            },
        };
        self.dense.into_iter().for_each(|dense| store.for_devices(dense));
        // Without the key, packed points are checked like anybody's.
        let store = match key_folder().map(|folder| PackKey::read(&folder).map_err(unread_key(folder))) {
            None | Some(Ok(None)) => store,
            Some(Ok(Some(key))) => store.with_pack_key(key),
            Some(Err(error)) => store.with_failure(error.to_string()),
        };
        Ok(Some(Arc::new(store)))
    }
}

/// The key under which this user packs entry points; it is drawn if there is none. `None` if the user wants none, or
/// has no folder of settings.
///
/// # Errors
/// [`Error::Io`] if there is a key that cannot be read, or none can be made. Packing without it would leave images
/// without a seal.
pub(crate) fn pack_key() -> Result<Option<PackKey>> {
    key_folder().map(|folder| PackKey::in_folder(&folder).map_err(unread_key(folder))).transpose()
}

/// The error for a key that cannot be used.
fn unread_key(folder: PathBuf) -> impl FnOnce(io::Error) -> Error {
    let remedy =
        format!("make the folder usable, name another one ({KEY_VARIABLE}), or use no key ({KEY_VARIABLE}=none)");
    move |error| {
        let error = io::Error::new(error.kind(), format!("{error}; {remedy}"));
        Error::io("use the key of packed entry points in", folder)(error)
    }
}

/// The folder of the key of packed entry points.
fn key_folder() -> Option<PathBuf> {
    match std::env::var_os(KEY_VARIABLE).filter(|value| !value.is_empty()) {
        Some(value) if value == "none" => None,
        Some(folder) => Some(folder.into()),
        None => Some(file::settings_folder()?.join("pack-key")),
    }
}
