//! A folder of shards on disk.

use super::place::{Claim, ClaimOf, Contents, JOB, Listing, Place};
use crate::error::{Error, Result};
use crate::os::atomic::{self, LEFTOVER_AGE};
use crate::os::file;
use crate::os::lock::Lock;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

const LOCK: &str = ".pack.lock";

pub(super) struct Folder(pub PathBuf);

impl Place for Folder {
    fn name(&self) -> Option<String> {
        let absolute = std::path::absolute(&self.0).ok()?;
        Some(absolute.file_name()?.to_str()?.to_owned())
    }

    fn path(&self, file: &str) -> PathBuf {
        if file.is_empty() { self.0.clone() } else { self.0.join(file) }
    }

    fn make(&self, folder: &str) -> Result<()> {
        fs::create_dir_all(self.path(folder)).map_err(Error::io("make", &self.0))?;
        // The folder may be new.
        let parent = atomic::folder_of(&self.0);
        atomic::sync_folder(parent).map_err(Error::io("sync", parent))
    }

    fn list(&self, folder: &str) -> Result<Listing> {
        let folder = self.path(folder);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
            entries => entries.map_err(Error::io("list", &folder))?,
        };
        let mut listing = Listing::default();
        for entry in entries {
            let entry = entry.map_err(Error::io("list", &folder))?;
            // The entry may be a link to a file, or a file that has been removed by now.
            let found = fs::metadata(entry.path()).ok().filter(fs::Metadata::is_file);
            let name = entry.file_name().to_string_lossy().into_owned();
            listing.0.insert(name, found.map(|metadata| metadata.len()));
        }
        Ok(listing)
    }

    fn open(&self, file: &str) -> Result<Option<(u64, Box<dyn Read>)>> {
        let opened = file::if_there(file::open_with_metadata(&self.path(file)))?;
        Ok(opened.map(|(file, metadata)| (metadata.len(), Box::new(file) as Box<dyn Read>)))
    }

    fn write(&self, file: &str, contents: Contents) -> Result<()> {
        atomic::write_synced(&self.path(file), |file| contents(file))
    }

    fn rename(&self, names: &[(String, String)]) -> Result<()> {
        for (hidden, named) in names {
            let (hidden, named) = (self.path(hidden), self.path(named));
            match fs::rename(&hidden, &named) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && named.exists() => {}
                renamed => renamed.map_err(Error::io("rename", &hidden))?,
            }
        }
        atomic::sync_folder(&self.0).map_err(Error::io("sync", &self.0))
    }

    fn remove(&self, files: &[String]) -> Result<()> {
        for file in files {
            match fs::remove_file(self.path(file)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(Error::io("remove", self.path(file)))?,
            }
        }
        Ok(())
    }

    fn remove_leftovers(&self, all: bool, is_ours: &dyn Fn(&str) -> bool) -> Result<()> {
        let age = if all { Duration::ZERO } else { LEFTOVER_AGE };
        atomic::remove_leftovers(&self.0, age, is_ours)
    }

    fn clear_job(&self) {
        let _ = fs::remove_dir_all(self.path(JOB));
        // A process that is killed at its very end leaves the file that it had locked.
        let lock = self.path(LOCK);
        if lock.exists() {
            drop(Lock::try_take(lock, "the end of a finished job"));
        }
    }

    fn claim(&self, work: ClaimOf, job: &str) -> Result<Result<Claim, String>> {
        let lock = match work {
            ClaimOf::All => self.path(LOCK),
            ClaimOf::Shard(i) => self.path(JOB).join(format!("{i:06}.lock")),
        };
        Ok(Lock::try_take(lock, job)?.map(Some))
    }
}
