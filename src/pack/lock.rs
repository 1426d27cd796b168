//! Locks: one run at a time packs into a folder, and one process at a time writes a shard.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Most bytes that are read of another run's description.
const MAX_BYTES: u64 = 1_000;

/// Keeps other processes away from a folder or from one of its shards. The system releases the lock when the process
/// ends, however it ends, so a killed run leaves a file but no lock. On file systems without locks, and on systems
/// other than Linux, every process gets the lock.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// Holds the lock while it is open.
    _file: File,
}

impl Lock {
    /// Locks the file at `path` and writes `job` into it. If another process has locked the file, returns that
    /// process's text.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    pub fn try_take(path: PathBuf, job: &str) -> Result<Result<Self, String>> {
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let locked = || -> io::Result<Result<File, String>> {
            loop {
                let mut file = open()?;
                if !try_lock(&file)? {
                    let mut other = Vec::new();
                    file.take(MAX_BYTES).read_to_end(&mut other)?;
                    return Ok(Err(String::from_utf8_lossy(&other).trim().to_owned()));
                }
                // The previous run may have removed the file after it was opened here and before it was locked.
                if is_at(&file, &path) {
                    file.set_len(0)?;
                    file.rewind()?;
                    file.write_all(format!("{}\n", described(job)).as_bytes())?;
                    return Ok(Ok(file));
                }
            }
        };
        Ok(locked().map_err(Error::io("lock", &path))?.map(|file| Self { path, _file: file }))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If the file cannot be removed, it stays, but nobody has locked it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Describes the process and its job, for people.
fn described(job: &str) -> String {
    format!("process {}{}, {job}", std::process::id(), host())
}

/// The name of this machine, if the system tells it.
fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { String::new() } else { format!(" on {}", name.trim()) }
}

/// Locks the file. Returns `false` if another process has locked it.
#[cfg(target_os = "linux")]
fn try_lock(file: &File) -> io::Result<bool> {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK | Errno::INVAL) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn try_lock(_file: &File) -> io::Result<bool> {
    Ok(true)
}

/// Whether `path` still names this file.
#[cfg(target_os = "linux")]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata().map(id), fs::metadata(path).map(id)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(not(target_os = "linux"))]
fn is_at(_file: &File, _path: &Path) -> bool {
    true
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_locked_file_names_its_job_and_an_unlocked_one_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        // Left by a killed run.
        fs::write(&path, "process 1, which was killed in the middle of a long description").unwrap();
        let lock = Lock::try_take(path.clone(), "the first job").unwrap().unwrap();
        let text = Lock::try_take(path.clone(), "the second job").unwrap().unwrap_err();
        assert!(text.contains(&format!("process {}", std::process::id())) && text.contains("the first job"), "{text}");
        assert!(!text.contains("killed"), "{text}");
        drop(lock);
        drop(Lock::try_take(path, "the second job").unwrap().unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let error = Lock::try_take(folder.path().join("missing/lock"), "a job").unwrap_err();
        assert!(error.to_string().contains("missing/lock"), "{error}");
    }
}
