//! A lock on a folder, for one writer at a time.
//!
//! It is a POSIX record lock, because an `flock` would stay as long as a forked child lives. It does not exclude
//! threads of one process, and a process loses it when it closes any descriptor of the file. So a process has a list of
//! its locked folders.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time to wait for another writer. It may have been stopped, and unwritten points cost only time.
const MOST_WAIT: Duration = Duration::from_millis(50);

/// Holds a folder's lock until it is dropped, or until the process ends.
pub(super) struct FolderLock {
    /// It is closed before the folder leaves the list.
    _file: File,
    _listed: Listed,
}

impl FolderLock {
    /// Waits a short time until no other process writes. `None` where the file system has no locks.
    ///
    /// # Errors
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if somebody else writes for longer than that, or an error of the
    /// file system.
    pub(super) fn take(folder: &Path) -> io::Result<Option<Self>> {
        let start = Instant::now();
        loop {
            if let Some(listed) = Listed::new(folder)? {
                let file = super::shared_folder::create_lock(folder)?;
                match try_lock(&file) {
                    Ok(true) => return Ok(Some(Self { _file: file, _listed: listed })),
                    Ok(false) => {}
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
            if start.elapsed() >= MOST_WAIT {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process is writing there"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(unix)]
fn try_lock(file: &File) -> io::Result<bool> {
    use rustix::fs::{FlockOperation, fcntl_lock};
    use rustix::io::Errno;
    match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK | Errno::INVAL) => Err(io::ErrorKind::Unsupported.into()),
        Err(error) => Err(error.into()),
    }
}

/// Systems without `fork`.
#[cfg(not(unix))]
fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(std::fs::TryLockError::WouldBlock) => Ok(false),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(unix)]
use listed::Listed;
#[cfg(unix)]
mod listed {
    use std::fs;
    use std::io;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;
    use std::sync::{Mutex, PoisonError, TryLockError};

    /// Process, device and inode.
    type Entry = (u32, u64, u64);

    /// The folders that this process has locked. A forked child inherits the list, but not the locks.
    static LISTED: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

    pub(super) struct Listed(Entry);

    impl Listed {
        /// `None` if a thread of this process has the folder. It never waits, as a child may inherit a list that a
        /// thread was changing.
        pub(super) fn new(folder: &Path) -> io::Result<Option<Self>> {
            let metadata = fs::metadata(folder)?;
            let entry = (std::process::id(), metadata.dev(), metadata.ino());
            let mut listed = match LISTED.try_lock() {
                Ok(listed) => listed,
                Err(TryLockError::Poisoned(error)) => error.into_inner(),
                Err(TryLockError::WouldBlock) => return Ok(None),
            };
            if listed.contains(&entry) {
                return Ok(None);
            }
            listed.retain(|(process, ..)| *process == entry.0);
            listed.push(entry);
            Ok(Some(Self(entry)))
        }
    }

    impl Drop for Listed {
        fn drop(&mut self) {
            // What a child has inherited is none of its own.
            if self.0.0 == std::process::id() {
                LISTED.lock().unwrap_or_else(PoisonError::into_inner).retain(|entry| *entry != self.0);
            }
        }
    }
}

/// Where locks belong to open files, no list is needed.
#[cfg(not(unix))]
struct Listed;
#[cfg(not(unix))]
impl Listed {
    fn new(_: &Path) -> io::Result<Option<Self>> {
        Ok(Some(Self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_a_folder() {
        let [one, other] = ["one", "other"].map(|name| {
            let folder = std::env::temp_dir().join(format!("warpfeed-lock-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            folder
        });
        let held = FolderLock::take(&one).unwrap();
        let start = Instant::now();
        let busy = FolderLock::take(&one).map(drop).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        assert!(start.elapsed() < Duration::from_secs(5), "it must not wait long");
        drop(FolderLock::take(&other).unwrap());
        drop(held);
        drop(FolderLock::take(&one).unwrap());
        [one, other].iter().for_each(|folder| std::fs::remove_dir_all(folder).unwrap());
    }
}
