//! Opening files that must be regular ones, and how many may be open.

use crate::error::{Error, Result};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;

/// Opens a regular file to read it. Anything else is an error at once: a pipe without a writer would be waited for.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    open_with_metadata(path).map(|(file, _)| file)
}

/// The same, with what the system says about the file.
pub(crate) fn open_with_metadata(path: &Path) -> Result<(File, Metadata)> {
    open(path).map_err(Error::io("open", path))
}

fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let file = match open_at_once(path) {
        Ok(file) => file,
        // A socket, for one, cannot be opened at all.
        Err(error) => return Err(fs::metadata(path).ok().and_then(|metadata| refuse(&metadata)).unwrap_or(error)),
    };
    let metadata = file.metadata()?;
    match refuse(&metadata) {
        Some(error) => Err(error),
        None => Ok((file, metadata)),
    }
}

/// Why what is no regular file is not read.
fn refuse(metadata: &Metadata) -> Option<io::Error> {
    let what = match metadata {
        metadata if metadata.is_file() => return None,
        metadata if metadata.is_dir() => "it is a folder and not a regular file",
        _ => "it is not a regular file (but a pipe, a socket or a device)",
    };
    let kind = if metadata.is_dir() { io::ErrorKind::IsADirectory } else { io::ErrorKind::InvalidData };
    Some(io::Error::new(kind, what))
}

/// Opens without waiting for a pipe's writer. Of a regular file the flag changes nothing.
#[cfg(target_os = "linux")]
fn open_at_once(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    File::options().read(true).custom_flags(flags.bits() as i32).open(path)
}

/// Looks before it opens, as other systems have other flags.
#[cfg(not(target_os = "linux"))]
fn open_at_once(path: &Path) -> io::Result<File> {
    match refuse(&fs::metadata(path)?) {
        Some(error) => Err(error),
        None => File::open(path),
    }
}

/// How many files a source keeps open at most: a quarter of those that the process may open, and no more than 1,024.
pub(crate) fn most_open() -> usize {
    /// What processes may open as a rule, where the system does not say.
    const USUAL: usize = 1024;
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    (soft_limit(&limits).unwrap_or(USUAL) / 4).clamp(1, 1024)
}

/// The limit in force, from Linux's table: name, soft limit, hard limit, unit. `None` too for one that is no number.
fn soft_limit(limits: &str) -> Option<usize> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn regular_files_open_and_links_to_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "contents").unwrap();
        let read = |path: &Path| {
            let mut text = String::new();
            open_regular(path).unwrap().read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(read(&path), "contents");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&path, folder.path().join("link")).unwrap();
            assert_eq!(read(&folder.path().join("link")), "contents");
        }
        assert_eq!(open_with_metadata(&path).unwrap().1.len(), 8);
    }

    #[test]
    fn folders_and_missing_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = open_regular(folder.path()).unwrap_err().to_string();
        assert!(error.contains("not a regular file") && error.contains(folder.path().to_str().unwrap()), "{error}");
        let error = open_regular(&folder.path().join("missing")).unwrap_err();
        assert!(matches!(&error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound), "{error}");
    }

    #[test]
    fn limits_are_read_from_the_systems_table() {
        let line =
            |soft: &str| format!("Max processes  7 8 processes\nMax open files            {soft} 4096  files \n");
        assert_eq!(
            [line("40"), line("unlimited"), String::new()].map(|text| soft_limit(&text)),
            [Some(40), None, None]
        );
        assert!((1..=1024).contains(&most_open()));
        #[cfg(target_os = "linux")]
        assert!(soft_limit(&fs::read_to_string("/proc/self/limits").unwrap()).is_some());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pipes_sockets_and_devices_are_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, socket) = (folder.path().join("pipe"), folder.path().join("socket"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [pipe.as_path(), &socket, Path::new("/dev/zero")] {
            let error = open_regular(path).unwrap_err().to_string();
            assert!(error.contains("not a regular file") && error.contains(path.to_str().unwrap()), "{error}");
        }
    }
}
