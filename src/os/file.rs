//! Reading whole regular files up to a limit, and the identity of files.

use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
pub use warpfeed_image::file::open_by;
pub(crate) use warpfeed_image::file::{Keeper, Share, most_open, open};

/// warpfeed's folder in the user's cache folder. `None` if no variable names the latter.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    user_folder("XDG_CACHE_HOME", ".cache")
}

/// warpfeed's folder in the user's folder of settings. `None` if no variable names the latter.
pub(crate) fn settings_folder() -> Option<PathBuf> {
    user_folder("XDG_CONFIG_HOME", ".config")
}

fn user_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute(variable).or_else(|| Some(absolute("HOME")?.join(in_home)))?;
    Some(folder.join("warpfeed"))
}

/// The identity of a file among others of its name and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Modification time, in nanoseconds since 1970.
    pub(crate) modified_ns: u64,
    /// Time of the last change, also of the file's attributes, in nanoseconds since 1970. Programs cannot set it.
    changed_ns: u64,
    pub(crate) inode: u64,
}

impl Identity {
    pub(crate) fn of(file: &Metadata) -> Self {
        let since = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_ns = since.map_or(0, |since| since.as_nanos() as u64);
        #[cfg(unix)]
        let (changed_ns, inode) = {
            use std::os::unix::fs::MetadataExt;
            let nanoseconds = file.ctime().wrapping_mul(1_000_000_000).wrapping_add(file.ctime_nsec());
            (nanoseconds as u64, file.ino())
        };
        #[cfg(not(unix))]
        let (changed_ns, inode) = (0, 0);
        Self { modified_ns, changed_ns, inode }
    }

    /// A hash of all of it.
    pub(crate) fn version(self) -> u64 {
        let mut hash = Sha256::new();
        [self.modified_ns, self.changed_ns, self.inode].iter().for_each(|number| hash.update(number.to_le_bytes()));
        hash.finalize().first_chunk().map_or(0, |start| u64::from_le_bytes(*start))
    }
}

/// The version of the file that a sample comes from, by the sample's name: a file, a member of one (`a.tar/1.jpg`), or
/// a place in one (`a.rec at byte 7`). `None` if there is no such file.
pub fn version_of_sample(name: &str) -> Option<u64> {
    let version = |path: &Path| {
        let metadata = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
        Some(Identity::of(&metadata).version() ^ metadata.len())
    };
    let place = [" at byte ", " row "].iter().find_map(|word| name.rsplit_once(word)).map_or(name, |(file, _)| file);
    Path::new(name).ancestors().chain([Path::new(place)]).find_map(version)
}

/// Reads a whole file of at most `max_bytes`. A longer file is not read at all. Everything but a regular file is
/// refused at once: a pipe without a writer would be waited for, and a device may never end.
///
/// ```
/// use warpfeed::source::read_limited;
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("image.jpg");
/// std::fs::write(&path, [0xff, 0xd8]).unwrap();
/// assert_eq!(read_limited(&path, 2)?, [0xff, 0xd8]);
/// assert!(read_limited(&path, 1).unwrap_err().to_string().contains("more than 1 byte"));
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// [`Error::Io`] if the file cannot be read, is longer, or is not a regular file.
pub fn read_limited(path: impl AsRef<Path>, max_bytes: u64) -> Result<Vec<u8>> {
    let path = path.as_ref();
    read(path, max_bytes).map_err(Error::io("read", path))
}

/// Reads a text file as [`read_limited`] reads any file.
///
/// ```
/// use warpfeed::source::read_text_limited;
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("classes.txt");
/// std::fs::write(&path, "cat\ndog\n").unwrap();
/// assert_eq!(read_text_limited(&path, 1 << 20)?.lines().collect::<Vec<_>>(), ["cat", "dog"]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// The errors of [`read_limited`], and [`Error::Io`] if the file is not UTF-8.
pub fn read_text_limited(path: impl AsRef<Path>, max_bytes: u64) -> Result<String> {
    let path = path.as_ref();
    String::from_utf8(read_limited(path, max_bytes)?).map_err(|error| {
        let message = format!("it is not text in UTF-8: {}", error.utf8_error());
        Error::io("read", path)(io::Error::new(io::ErrorKind::InvalidData, message))
    })
}

/// Reads all that comes from a reader, at most `max_bytes`.
///
/// ```
/// use warpfeed::source::read_up_to;
///
/// assert_eq!(read_up_to(&b"12345"[..], 5).unwrap(), b"12345");
/// assert!(read_up_to(std::io::repeat(0), 1 << 10).is_err());
/// ```
///
/// # Errors
/// The errors of the reader, and [`InvalidData`](io::ErrorKind::InvalidData) if more comes.
pub fn read_up_to(reader: impl Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    fill(reader, Vec::new(), max_bytes)
}

/// Like [`read_limited`], for callers with their own error.
pub(crate) fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let (file, metadata) = open(path)?;
    if metadata.len() > max_bytes {
        return Err(too_long(max_bytes));
    }
    let mut bytes = Vec::new();
    // One byte more, so that the end shows without another buffer.
    bytes.try_reserve_exact(metadata.len() as usize + 1)?;
    fill(file, bytes, max_bytes)
}

fn fill(reader: impl Read, mut bytes: Vec<u8>, max_bytes: u64) -> io::Result<Vec<u8>> {
    reader.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes { Err(too_long(max_bytes)) } else { Ok(bytes) }
}

/// Error for a file that is longer than may be read.
pub(crate) fn too_long(max_bytes: u64) -> io::Error {
    let plural = if max_bytes == 1 { "" } else { "s" };
    let limit = format!("it has more than {max_bytes} byte{plural}, the most that is read of such a file");
    let message = format!("{limit}: check that it is the right one");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// The result of reading a file; `None` if there is none.
pub fn if_there<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Opens a regular file to read it, with its metadata. Anything else is an error at once: a pipe without a writer would
/// be waited for.
pub(crate) fn open_with_metadata(path: &Path) -> Result<(File, Metadata)> {
    open(path).map_err(Error::io("open", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn regular_files_open_and_links_to_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "contents").unwrap();
        let read = |path: &Path| read_text_limited(path, 8).unwrap();
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
        let error = read_limited(folder.path(), 9).unwrap_err().to_string();
        assert!(error.contains("not a regular file") && error.contains(folder.path().to_str().unwrap()), "{error}");
        let missing = read_limited(folder.path().join("missing"), 9);
        assert!(matches!(&missing, Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound));
        assert!(if_there(missing).unwrap().is_none() && if_there(read_limited(folder.path(), 9)).is_err());
    }

    #[test]
    fn what_is_too_long_is_refused_and_not_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "12345678").unwrap();
        assert_eq!(read_limited(&path, 8).unwrap(), b"12345678");
        let error = read_limited(&path, 7).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.contains("more than 7 bytes"), "{error}");
        assert_eq!(read_up_to(&b"12345678"[..], 8).unwrap(), b"12345678");
        assert!(read_up_to(io::repeat(0), 1 << 20).unwrap_err().to_string().contains("more than 1048576 bytes"));
        // More than any memory has: it is not read.
        File::create(&path).unwrap().set_len(1 << 42).unwrap();
        assert!(read_limited(&path, 1 << 20).is_err());
        fs::write(&path, [0xff]).unwrap();
        assert!(read_text_limited(&path, 8).unwrap_err().to_string().contains("not text in UTF-8"));
        // The system says of these that they are empty.
        #[cfg(target_os = "linux")]
        {
            assert!(read_text_limited("/proc/self/status", 1 << 20).unwrap().starts_with("Name:"));
            assert!(read_limited("/proc/self/status", 10).unwrap_err().to_string().contains("more than 10 bytes"));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pipes_sockets_and_devices_are_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, socket) = (folder.path().join("pipe"), folder.path().join("socket"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [pipe.as_path(), &socket, Path::new("/dev/zero")] {
            let error = read_limited(path, 9).unwrap_err().to_string();
            assert!(error.contains("not a regular file") && error.contains(path.to_str().unwrap()), "{error}");
        }
    }
}
