//! The shard cache: a folder with fetched ranges of remote shards.

use crate::error::{Error, Result};
use crate::os::atomic;
use crate::os::file::{open_by, read_up_to};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The place and size of a shard cache, which stores fetched ranges on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardCache {
    /// The folder, which is created if it is missing. Several processes may share it.
    pub folder: PathBuf,
    /// Largest number of bytes of all ranges in the folder. The least recently used ranges are removed first.
    pub size_bytes: u64,
}

/// The ending that tells the cache's files from others.
const ENDING: &str = ".warpfeed-range";

/// Number of processes that may fill a cache at once without exceeding its size.
const SHARERS: u64 = 16;

/// A process's access to a shard cache.
pub(super) struct Cache {
    at: ShardCache,
    /// Bytes that may be added before the folder is listed again. If samples are cached one by one, it has a million
    /// files.
    free_bytes: Mutex<u64>,
}

/// Errors of reading and writing the cache are ignored: the range is fetched.
impl Cache {
    pub fn open(at: ShardCache) -> Result<Self> {
        fs::create_dir_all(&at.folder).map_err(Error::io("make the folder", &at.folder))?;
        Ok(Self { at, free_bytes: Mutex::new(0) })
    }

    fn path(&self, key: &str) -> PathBuf {
        self.at.folder.join(format!("{key}{ENDING}"))
    }

    pub fn get(&self, key: &str, len_bytes: u64) -> Option<Vec<u8>> {
        let (file, metadata) = open_by(&self.path(key), fs::File::options().read(true).append(true)).ok()?;
        if metadata.len() != len_bytes + 4 {
            return None;
        }
        let mut bytes = read_up_to(&file, len_bytes + 4).ok()?;
        let crc = u32::from_le_bytes(*bytes.last_chunk()?);
        bytes.truncate(len_bytes as usize);
        // The modification time is the time of the last use.
        let _ = file.set_modified(SystemTime::now());
        (crc32c::crc32c(&bytes) == crc).then_some(bytes)
    }

    pub fn put(&self, key: &str, bytes: &[u8]) {
        if self.make_room(bytes.len() as u64 + 4).is_some() {
            let crc = crc32c::crc32c(bytes).to_le_bytes();
            let _ = atomic::write(&self.path(key), |file| file.write_all(bytes).and_then(|()| file.write_all(&crc)));
        }
    }

    /// Removes the least recently used ranges if `needed` bytes do not fit otherwise; `None` if they cannot fit.
    fn make_room(&self, needed: u64) -> Option<()> {
        let mut free = self.free_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rest) = free.checked_sub(needed) {
            *free = rest;
            return Some(());
        }
        *free = 0;
        let size = self.at.size_bytes;
        let room = size.checked_sub(needed)?;
        let mut ranges = Vec::new();
        for entry in fs::read_dir(&self.at.folder).ok()? {
            let entry = entry.ok()?;
            // The unfinished files of a killed process count too.
            if entry.file_name().to_str().is_some_and(|name| name.contains(ENDING))
                && let Ok(metadata) = entry.metadata()
            {
                ranges.push((metadata.modified().ok()?, metadata.len(), entry.path()));
            }
        }
        let mut taken: u64 = ranges.iter().map(|(_, len_bytes, _)| len_bytes).sum();
        if taken > room {
            ranges.sort_unstable();
            // Frees an eighth more, so that the next range does not list the folder again.
            let enough = room.saturating_sub(size / 8);
            for (_, len_bytes, path) in ranges {
                if taken <= enough {
                    break;
                }
                fs::remove_file(path).ok()?;
                taken -= len_bytes;
            }
        }
        *free = room.checked_sub(taken)? / SHARERS;
        Some(())
    }
}
