//! Locks between processes: one run at a time packs into a folder, writes a state file or a log. A lock is a POSIX
//! record lock on a file of its own: the system releases it when the process ends, and a forked child does not inherit
//! it. A process loses it when it closes any descriptor of the file, so that file is not opened again.

use crate::error::{Error, Result};
use crate::os::atomic;
use crate::os::file;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Largest number of bytes that are read of another run's description.
const MAX_BYTES: u64 = 1_000;
/// Number of attempts for a locked file, and the pause between them: others hold it for a moment to see whether it is
/// locked, and a process that ends may need a moment too.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// The locks of this process.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

struct Held {
    /// The process that took it: a forked child has its parent's list, but not the locks.
    process: u32,
    file: FileId,
    text: String,
}

/// Keeps other processes, and others in this process, away from something. A killed process leaves a file but no lock.
/// On file systems without locks, and on systems other than Linux, only others in this process are kept away.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    id: FileId,
    process: u32,
    /// Has the lock while it is open.
    file: Option<File>,
}

impl Lock {
    /// Locks the file at `path` and writes `job` into it. If it is locked already, returns the text of whoever has
    /// locked it.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    pub(crate) fn try_take(path: PathBuf, job: &str) -> Result<Result<Self, String>> {
        let taken = take(&path, &described(job)).map_err(Error::io("lock", &path))?;
        Ok(taken.map(|(file, id)| Self { path, id, process: std::process::id(), file: Some(file) }))
    }

    /// The text of the process that has locked the file at `path`, if it is one that `is_wrong`; `None` if the file is
    /// not locked.
    pub fn holder(path: &Path, is_wrong: impl Fn(&str) -> bool) -> io::Result<Option<String>> {
        // Whoever has just taken the lock has not written a text yet, and the file has that of an earlier one.
        for tries in (0..TRIES).rev() {
            match Self::holder_now(path)?.filter(|text| is_wrong(text)) {
                Some(_) if tries > 0 => std::thread::sleep(PAUSE),
                holder => return Ok(holder),
            }
        }
        Ok(None)
    }

    fn holder_now(path: &Path) -> io::Result<Option<String>> {
        let held = held();
        let Ok(id) = fs::metadata(path).map(|metadata| FileId::of(path, &metadata)) else { return Ok(None) };
        if let Some(own) = find(&held, &id) {
            return Ok(Some(own.text.clone()));
        }
        let file = match file::open_by(path, File::options().read(true).write(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?.0,
        };
        if try_lock(&file, Kind::Shared)? { Ok(None) } else { read_text(file).map(Some) }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A forked child has no lock, and its parent may still have it.
        if self.process == std::process::id() {
            let mut held = held();
            if names(&self.path, &self.id) {
                // If the file cannot be removed, it stays, but it is not locked.
                let _ = fs::remove_file(&self.path);
            }
            drop(self.file.take());
            held.retain(|held| held.process != self.process || held.file != self.id);
        }
    }
}

/// The path of the file that is locked by whoever writes the file at `path`.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".lock");
    path.with_file_name(name)
}

/// Locks the output that the user names by `path`, which two processes may not write at the same time: `.NAME.lock`
/// next to it. `None` for a device or a pipe.
///
/// # Errors
/// [`Error::Parameter`] with the process that has it; [`Error::Io`] if it cannot be locked.
pub fn only_writer(operation: &'static str, parameter: &'static str, path: &Path, job: &str) -> Result<Option<Lock>> {
    // A link is locked where it leads: the file has one lock, whatever it is called.
    let real = fs::canonicalize(path);
    let path = real.as_deref().unwrap_or(path);
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) || !atomic::folder_of(path).is_dir() {
        // If the folder is missing, writing the file will report it.
        return Ok(None);
    }
    let mut tries = TRIES;
    loop {
        tries -= 1;
        match Lock::try_take(beside(path), job)? {
            Ok(lock) => return Ok(Some(lock)),
            Err(other) if tries == 0 => return Err(is_held(operation, parameter, path, &other)),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// The error for a file that another process writes.
pub fn is_held(operation: &'static str, parameter: &'static str, path: &Path, other: &str) -> Error {
    let got = format!("{}, which is written by {other}: wait until it has ended, or end it", path.display());
    Error::parameter(operation, parameter, "a file that nobody else is writing", got)
}

fn held() -> MutexGuard<'static, Vec<Held>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find<'a>(held: &'a [Held], id: &FileId) -> Option<&'a Held> {
    let process = std::process::id();
    held.iter().find(|held| held.process == process && held.file == *id)
}

fn take(path: &Path, text: &str) -> io::Result<Result<(File, FileId), String>> {
    let mut held = held();
    loop {
        if let Ok(metadata) = fs::metadata(path)
            && let Some(own) = find(&held, &FileId::of(path, &metadata))
        {
            return Ok(Err(own.text.clone()));
        }
        let (mut file, metadata) =
            file::open_by(path, File::options().read(true).write(true).create(true).truncate(false))?;
        if !try_lock(&file, Kind::Exclusive)? {
            return read_text(file).map(Err);
        }
        let id = FileId::of(path, &metadata);
        // The previous holder may have removed the file after it was opened here and before it was locked.
        if names(path, &id) {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(format!("{text}\n").as_bytes())?;
            held.push(Held { process: std::process::id(), file: id.clone(), text: text.to_owned() });
            return Ok(Ok((file, id)));
        }
    }
}

/// Whether a path still names this file.
fn names(path: &Path, id: &FileId) -> bool {
    fs::metadata(path).is_ok_and(|metadata| FileId::of(path, &metadata) == *id)
}

fn read_text(file: File) -> io::Result<String> {
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    Ok(if text.trim().is_empty() { "another process".to_owned() } else { text.trim().to_owned() })
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

/// Processes that only check whether a file is locked do not disturb each other.
#[derive(Clone, Copy)]
enum Kind {
    Exclusive,
    Shared,
}

/// Locks the file. Returns `false` if another process has locked it.
#[cfg(target_os = "linux")]
fn try_lock(file: &File, kind: Kind) -> io::Result<bool> {
    use rustix::fs::{FlockOperation, fcntl_lock};
    use rustix::io::Errno;
    let operation = match kind {
        Kind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        Kind::Shared => FlockOperation::NonBlockingLockShared,
    };
    match fcntl_lock(file, operation) {
        Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK | Errno::INVAL) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn try_lock(_file: &File, _kind: Kind) -> io::Result<bool> {
    Ok(true)
}

/// The identity of a file, whatever its name.
#[cfg(unix)]
#[derive(Debug, Clone, PartialEq)]
struct FileId(u64, u64);

#[cfg(unix)]
impl FileId {
    fn of(_path: &Path, metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self(metadata.dev(), metadata.ino())
    }
}

#[cfg(not(unix))]
#[derive(Debug, Clone, PartialEq)]
struct FileId(PathBuf);

#[cfg(not(unix))]
impl FileId {
    fn of(path: &Path, _metadata: &fs::Metadata) -> Self {
        Self(path.to_owned())
    }
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

    #[test]
    fn a_locked_file_is_refused_by_any_name_until_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["log", "link"].map(|name| folder.path().join(name));
        fs::write(&path, "").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let lock = only_writer("run", "log", &path, "rank 0/1").unwrap();
        let error = only_writer("run", "log", &link, "rank 0/1").unwrap_err();
        let text = error.to_string();
        assert!(error.is_parameter() && text.contains(&format!("process {}", std::process::id())), "{text}");
        assert!(Lock::holder(&beside(&path), |_| true).unwrap().unwrap().ends_with("rank 0/1"));
        drop(lock);
        assert_eq!(Lock::holder(&beside(&path), |_| true).unwrap(), None);
        drop(only_writer("run", "log", &link, "rank 0/1").unwrap().unwrap());
        // A device has no lock.
        assert!(only_writer("run", "log", Path::new("/dev/null"), "rank 0/1").unwrap().is_none());
    }

    #[test]
    fn a_killed_process_leaves_no_lock() {
        use std::io::BufRead as _;
        use std::process::{Command, Stdio};
        const PLACE: &str = "WARPFEED_TEST_LOCK";
        if let Some(path) = std::env::var_os(PLACE) {
            let _lock = Lock::try_take(path.into(), "a test").unwrap().unwrap();
            println!("has it");
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let name = "os::lock::tests::a_killed_process_leaves_no_lock";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(PLACE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = io::BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("has it")));
        let other = Lock::try_take(path.clone(), "another").unwrap().unwrap_err();
        assert!(other.contains(&format!("process {}", child.id())), "{other}");
        assert_eq!(Lock::holder(&path, |_| true).unwrap(), Some(other));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Lock::holder(&path, |_| true).unwrap(), None);
        drop(Lock::try_take(path, "another").unwrap().unwrap());
    }
}
