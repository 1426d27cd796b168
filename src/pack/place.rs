//! Where packed shards go: a folder, or a folder at an object store.
//!
//! A folder has locks. A store has none: there two processes of a job may make the same shard, with the same bytes.

use super::PackOptions;
use super::folder::Folder;
use super::lock::Lock;
use super::manifest::{Manifest, PackedFile, PackedShard};
#[cfg(feature = "cloud")]
use super::store::Store;
use crate::address::Address;
use crate::error::{Error, Result};
use crate::file::read_up_to;
use crate::source::packed::{MANIFEST, MAX_BYTES, PackedFolder};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The folder in a place for what is there while several processes pack.
pub(super) const JOB: &str = ".pack";

/// What a folder of a place holds: names, with the lengths of files.
#[derive(Default)]
pub(super) struct Listing(pub BTreeMap<String, Option<u64>>);

impl Listing {
    pub fn has(&self, file: &str) -> bool {
        self.0.contains_key(file)
    }

    /// Whether a file lies there as it was written, by name and length. Both are on the disk before a manifest names
    /// them; [`verify`](super::verify) reads the contents too.
    pub fn is_whole(&self, file: &PackedFile) -> bool {
        self.0.get(&file.name) == Some(&Some(file.bytes))
    }

    pub fn has_whole(&self, shard: &PackedShard) -> bool {
        shard.files.iter().all(|file| self.is_whole(file))
    }
}

/// What one process does at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimOf {
    /// All of it, or what must be done once for all.
    All,
    /// The shard of this number.
    Shard(usize),
}

/// Keeps other processes from a work until it is dropped. `None` where a place cannot keep them from it.
pub(super) type Claim = Option<Lock>;

/// Writes what a file is to hold.
pub(super) type Contents<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// A folder, or a folder at a store. Names are relative to it.
///
/// A file takes its name when it is whole and survives a power loss, or it is not there at all.
pub(super) trait Place: Sync {
    /// The last part of its path, if that is text.
    fn name(&self) -> Option<String>;

    /// The path or address of a file in it; its own for an empty name.
    fn path(&self, file: &str) -> PathBuf;

    /// Refuses what it cannot hold.
    fn check(&self, _options: &PackOptions) -> Result<()> {
        Ok(())
    }

    /// How many shards it can hold.
    fn most_shards(&self) -> usize {
        usize::MAX
    }

    /// Makes it and a folder in it, if they are missing.
    fn make(&self, folder: &str) -> Result<()>;

    /// What is in it, or in a folder in it: nothing, if there is none.
    fn list(&self, folder: &str) -> Result<Listing>;

    /// The length of a file, and its bytes; `None` if there is none.
    fn open(&self, file: &str) -> Result<Option<(u64, Box<dyn Read>)>>;

    /// The contents of a file, up to the length that a manifest may have; `None` if there is none.
    fn read(&self, file: &str) -> Result<Option<Vec<u8>>> {
        let Some((_, bytes)) = self.open(file)? else { return Ok(None) };
        read_up_to(bytes, MAX_BYTES).map(Some).map_err(Error::io("read", self.path(file)))
    }

    /// The contents of small files.
    fn read_each(&self, files: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        files.iter().map(|file| self.read(file)).collect()
    }

    /// Writes a file. A store that knows conditions writes [`MANIFEST`] only over the manifest that was read or written here
    /// last, or over the same text.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a manifest that another run has written meanwhile; [`Error::Io`].
    fn write(&self, file: &str, contents: Contents) -> Result<()>;

    /// Gives files other names. One that is missing has its new name already, if there is a file of that.
    fn rename(&self, names: &[(String, String)]) -> Result<()>;

    /// Removes files, those that are still there.
    fn remove(&self, files: &[String]) -> Result<()>;

    /// Removes what killed writes of files that `is_ours` knows have left beside them: all of it, or that of processes which
    /// are dead by its age.
    fn remove_leftovers(&self, _all: bool, _is_ours: &dyn Fn(&str) -> bool) -> Result<()> {
        Ok(())
    }

    /// Removes the folder [`JOB`], once all is complete, as far as that is possible: what stays is hidden and does no harm.
    fn clear_job(&self);

    /// Claims a work, and says for whom. The other process's description, if one has the work.
    fn claim(&self, _work: ClaimOf, _job: &str) -> Result<Result<Claim, String>> {
        Ok(Ok(None))
    }
}

impl dyn Place + '_ {
    pub fn manifest(&self) -> Result<PackedFolder<Manifest>> {
        Ok(self.read(MANIFEST)?.map_or(PackedFolder::Nothing, |text| PackedFolder::of(&text)))
    }

    /// Claims all of it.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the other job, if another run has.
    pub fn claim_all(&self, job: &str) -> Result<Claim> {
        self.claim(ClaimOf::All, job)?.map_err(|other| self.taken(&other))
    }

    /// The error for a place into which another run packs.
    pub fn taken(&self, other: &str) -> Error {
        let out = self.path("");
        let got = format!("{}, into which {other} packs: wait for its end, or take another", out.display());
        Error::parameter("pack", "out", "a folder that no other run is packing into", got)
    }

    /// Refuses more shards than it can hold.
    pub fn check_shards(&self, shards: usize) -> Result<()> {
        let most = self.most_shards();
        if shards <= most {
            return Ok(());
        }
        let expected = format!("so large that {} holds them: at most {most} shards", self.path("").display());
        Err(Error::parameter("pack", "shard_bytes", expected, format!("one for {shards} shards")))
    }
}

/// The place of a path or an address.
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
