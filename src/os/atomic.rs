//! Files that appear whole or not at all.

use crate::error::{Error, Result};
use std::fs::{self, DirEntry, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A temporary file that has not been written to for this long belongs to no running process.
pub const LEFTOVER_AGE: Duration = Duration::from_secs(3600);

/// Writes `path` through a temporary file next to it, which is renamed once it is complete. A failed or killed write
/// leaves the previous file as it was; a killed one may also leave `.NAME.RANDOM.tmp` ([`remove_leftovers`]). A power
/// loss may leave the file empty: [`write_synced`] is for files that must survive one.
///
/// It replaces whatever is at `path`, even a pipe. [`write_output`] is for files that the user names.
pub fn write(path: &Path, contents: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    write_then(path, contents, |_| Ok(()), |_| Ok(()))
}

/// Writes `path` like [`write`]. If `path` is a device or a pipe, writes to it directly.
pub fn write_output(path: &Path, contents: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        let opened = File::options().write(true).open(path);
        return opened.and_then(|file| fill(file, contents)).map(drop).map_err(Error::io("write", path));
    }
    write(path, contents)
}

/// Writes `path` like [`write`]. When it returns, the file and its name also survive a power loss.
pub fn write_synced(path: &Path, contents: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    write_then(path, contents, File::sync_all, |path| sync_folder(folder_of(path)))
}

/// Calls `before` and `after` before and after the file is renamed.
fn write_then(
    path: &Path,
    contents: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    before: impl FnOnce(&File) -> io::Result<()>,
    after: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<()> {
    let temporary = temporary_name(path);
    let file = File::options().write(true).create_new(true).open(&temporary).map_err(Error::io("write", path))?;
    let result = fill(file, contents)
        .and_then(|file| before(&file))
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| after(path))
        .map_err(Error::io("write", path));
    if result.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn fill(file: File, contents: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<File> {
    let mut writer = BufWriter::new(file);
    contents(&mut writer)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)
}

/// The name is random, because processes of different containers or machines may have the same process number.
fn temporary_name(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{:016x}.tmp", RandomState::new().build_hasher().finish()));
    path.with_file_name(name)
}

/// The name that a temporary file was to get.
fn intended_name(temporary: &str) -> Option<&str> {
    let (name, random) = temporary.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once('.')?;
    (random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(name)
}

/// Removes the temporary files that killed writes have left in `folder`: those whose intended name `is_ours` accepts,
/// and that have not been written to for `age`.
pub fn remove_leftovers(folder: &Path, age: Duration, is_ours: impl Fn(&str) -> bool) -> Result<()> {
    let is_leftover = |entry: &DirEntry| {
        entry.file_name().to_str().and_then(intended_name).is_some_and(&is_ours)
            && entry.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|time| {
                // A time in the future, which a server's clock may give, is not old.
                time.elapsed().is_ok_and(|elapsed| elapsed >= age)
            })
    };
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        if is_leftover(&entry)
            && let Err(error) = fs::remove_file(entry.path())
            && error.kind() != ErrorKind::NotFound
        {
            return Err(Error::io("remove", entry.path())(error));
        }
    }
    Ok(())
}

/// Makes the names in `folder` survive a power loss.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(windows) {
        return Ok(()); // Folders cannot be opened there.
    }
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some network file systems have no such call, and a folder may be writable without being readable.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}

/// The folder that contains `path`.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, |file| file.write_all(b"old")).unwrap();
        let error = write(&path, |file| file.write_all(b"new").and(Err(io::Error::other("disk full")))).unwrap_err();
        assert!(error.to_string().contains("disk full") && error.to_string().contains("file"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn places_that_cannot_be_written_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("missing/file"), PathBuf::new()] {
            let error = write_output(&path, |file| file.write_all(b"x")).unwrap_err();
            assert!(error.to_string().starts_with(&format!("cannot write {}: ", path.display())), "{error}");
        }
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn names_do_not_repeat_and_only_old_leftovers_of_ours_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let mut left = [&path, &path, &folder.path().join("other")].map(|path| temporary_name(path));
        assert_ne!(left[0], left[1]);
        // This name does not have the form of this module's temporary files.
        left[1].set_file_name(".state.json.12-0.tmp");
        for path in &left {
            fs::write(path, "left over").unwrap();
        }
        let remove = |age| remove_leftovers(folder.path(), age, |name| name == "state.json");
        remove(LEFTOVER_AGE).unwrap();
        assert!(left.iter().all(|path| path.exists()), "they may still be written to");
        let old = std::time::SystemTime::now() - 2 * LEFTOVER_AGE;
        for path in &left {
            File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
        }
        remove(LEFTOVER_AGE).unwrap();
        assert_eq!(left.map(|path| path.exists()), [false, true, true]);
    }

    #[test]
    fn a_synced_file_is_as_any_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_synced(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (b"new".to_vec(), vec!["file".to_owned()]));
        assert_eq!((folder_of(Path::new("file")), folder_of(Path::new("/a/b"))), (Path::new("."), Path::new("/a")));
        assert!(sync_folder(&path.join("missing")).is_err());
    }

    #[test]
    #[cfg(unix)]
    fn devices_are_written_to_not_replaced() {
        use std::os::unix::fs::FileTypeExt;
        write_output(Path::new("/dev/null"), |file| file.write_all(b"x")).unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        // A pipe at the path of an internal file is replaced.
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        write(&pipe, |file| file.write_all(b"x")).unwrap();
        assert_eq!(fs::read(&pipe).unwrap(), b"x");
    }
}
