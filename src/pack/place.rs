//! Destinations of packed shards: a folder, or an object store, which has no locks.

use super::PackOptions;
use super::folder::Folder;
use super::manifest::{Manifest, PackedFile, PackedShard};
#[cfg(feature = "cloud")]
use super::store::Store;
use crate::address::Address;
use crate::error::{Error, Result};
use crate::os::file::read_up_to;
use crate::os::lock::Lock;
use crate::source::packed::{MANIFEST, MAX_BYTES, PackedFolder};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The hidden folder in a place for the state of several processes that pack together.
pub(super) const JOB: &str = ".pack";

/// The contents of a folder: names, with the lengths of files.
#[derive(Default)]
pub(super) struct Listing(pub BTreeMap<String, Option<u64>>);

impl Listing {
    pub fn has(&self, file: &str) -> bool {
        self.0.contains_key(file)
    }

    /// Whether the folder has this file, by name and length. A file is on the disk before a manifest names it;
    /// [`verify`](super::verify) also reads the contents.
    pub fn is_whole(&self, file: &PackedFile) -> bool {
        self.0.get(&file.name) == Some(&Some(file.bytes))
    }

    pub fn has_whole(&self, shard: &PackedShard) -> bool {
        shard.files.iter().all(|file| self.is_whole(file))
    }
}

/// The part of the work that one process claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimOf {
    /// The whole job, or a step that must be done once for all processes.
    All,
    /// The shard with this number.
    Shard(usize),
}

/// Keeps other processes from a piece of work until it is dropped. `None` where the place has no locks.
pub(super) type Claim = Option<Lock>;

/// A function that writes a file's contents.
pub(super) type Contents<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// A folder, or a folder at a store. File names are relative to it.
///
/// A file gets its name when it is complete and would survive a power loss. Before that, it does not exist.
pub(super) trait Place: Sync {
    /// The last part of the place's path. `None` if it is not text.
    fn name(&self) -> Option<String>;

    /// The path or address of a file in the place; an empty name gives the place's own.
    fn path(&self, file: &str) -> PathBuf;

    /// Refuses options that the place does not support.
    fn check(&self, _options: &PackOptions) -> Result<()> {
        Ok(())
    }

    /// Largest number of shards that the place can hold.
    fn most_shards(&self) -> usize {
        usize::MAX
    }

    /// Makes the place, and a folder in it, if they are missing.
    fn make(&self, folder: &str) -> Result<()>;

    /// Lists the place, or a folder in it. A missing folder gives an empty list.
    fn list(&self, folder: &str) -> Result<Listing>;

    /// The length of a file and a reader of its bytes. `None` if there is no such file.
    fn open(&self, file: &str) -> Result<Option<(u64, Box<dyn Read>)>>;

    /// The contents of a file, up to the largest length of a manifest. `None` if there is no such file.
    fn read(&self, file: &str) -> Result<Option<Vec<u8>>> {
        let Some((_, bytes)) = self.open(file)? else { return Ok(None) };
        read_up_to(bytes, MAX_BYTES).map(Some).map_err(Error::io("read", self.path(file)))
    }

    /// The contents of small files, in the same order.
    fn read_each(&self, files: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        files.iter().map(|file| self.read(file)).collect()
    }

    /// Writes a file. A store with conditional writes replaces [`MANIFEST`] only if it is as this process last read or
    /// wrote it, or already has the same text.
    ///
    /// # Errors
    /// [`Error::Parameter`] if another run has written the manifest meanwhile; [`Error::Io`].
    fn write(&self, file: &str, contents: Contents) -> Result<()>;

    /// Renames files. A missing file counts as renamed if there is a file with the new name.
    fn rename(&self, names: &[(String, String)]) -> Result<()>;

    /// Removes files. Missing files are not error.
    fn remove(&self, files: &[String]) -> Result<()>;

    /// Removes leftovers of killed writes to files for which `is_ours` is true: all of them, or only those old enough
    /// to belong to dead processes.
    fn remove_leftovers(&self, _all: bool, _is_ours: &dyn Fn(&str) -> bool) -> Result<()> {
        Ok(())
    }

    /// Removes the folder [`JOB`] after packing, as far as possible. Files that remain are hidden and harmless.
    fn clear_job(&self);

    /// Claims a piece of work in the name of `job`. If another process has it, returns that process's description.
    fn claim(&self, _work: ClaimOf, _job: &str) -> Result<Result<Claim, String>> {
        Ok(Ok(None))
    }
}

impl dyn Place + '_ {
    pub fn manifest(&self) -> Result<PackedFolder<Manifest>> {
        Ok(self.read(MANIFEST)?.map_or(PackedFolder::Nothing, |text| PackedFolder::of(&text)))
    }

    /// Claims the whole job.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the other job's description, if another run has the claim.
    pub fn claim_all(&self, job: &str) -> Result<Claim> {
        self.claim(ClaimOf::All, job)?.map_err(|other| self.taken(&other))
    }

    /// The error for a place that another run is packing into.
    pub fn taken(&self, other: &str) -> Error {
        let out = self.path("");
        let got = format!("{}, into which {other} packs: wait for its end, or take another", out.display());
        Error::parameter("pack", "out", "a folder that no other run is packing into", got)
    }

    /// Refuses more shards than the place can hold.
    pub fn check_shards(&self, shards: usize) -> Result<()> {
        let most = self.most_shards();
        if shards <= most {
            return Ok(());
        }
        let expected = format!("so large that {} holds them: at most {most} shards", self.path("").display());
        Err(Error::parameter("pack", "shard_bytes", expected, format!("one for {shards} shards")))
    }
}

/// Opens the place at a path or an address.
pub(super) fn open(out: &Path) -> Result<Box<dyn Place>> {
    match out.to_str().and_then(Address::parse) {
        #[cfg(feature = "cloud")]
        Some(address) => Ok(Box::new(Store::open(address)?)),
        #[cfg(not(feature = "cloud"))]
        Some(address) => Err(Error::Unsupported {
            feature: format!("packing at {} by this build", address.public()),
            remedy: "build warpfeed with the feature cloud (cargo install warpfeed --features cloud)".to_owned(),
        }),
        None => Ok(Box::new(Folder(out.to_owned()))),
    }
}
