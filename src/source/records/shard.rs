//! A file of records, here or far away.

use crate::error::{Error, Result};
use crate::source::window::{ReadAt, read_exact_at};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

/// Shards beyond these are opened anew at each read: processes may often open no more than 1,024 files.
const MAX_OPEN_FILES: usize = 256;

/// A file of records.
pub(in crate::source) struct Shard {
    /// Its path or address.
    pub(super) name: PathBuf,
    pub(super) len_bytes: u64,
    /// What tells it from another of this name and length: of a file the time of its last change, in nanoseconds since
    /// 1970.
    pub(super) version: u64,
    /// Index of its first sample.
    pub(super) first: u64,
    content: Content,
}

enum Content {
    File(OnceLock<File>),
    #[cfg_attr(not(feature = "cloud"), allow(dead_code, reason = "without it nothing is far away"))]
    Far(Box<dyn ReadAt>),
}

impl Shard {
    /// The file at `path`.
    pub(super) fn file(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path).map_err(Error::io("open", path))?;
        if !metadata.is_file() {
            let expected = "regular files, which can be read in any order";
            return Err(Error::parameter("RecordShards::open", "shards", expected, path.display()));
        }
        let (len_bytes, version) = (metadata.len(), modified_ns(&metadata));
        Ok(Self { name: path.to_owned(), len_bytes, version, first: 0, content: Content::File(OnceLock::new()) })
    }

    /// What lies far away at `address`.
    #[cfg(feature = "cloud")]
    pub fn far(address: &str, len_bytes: u64, version: u64, bytes: Box<dyn ReadAt>) -> Self {
        Self { name: address.into(), len_bytes, version, first: 0, content: Content::Far(bytes) }
    }

    pub(super) fn is_far(&self) -> bool {
        matches!(self.content, Content::Far(_))
    }

    /// Its bytes. Of all shards' files that are open, `kept_open` may stay so.
    pub(super) fn open(&self, kept_open: &AtomicUsize) -> Result<Handle<'_>> {
        let Content::File(kept) = &self.content else { return self.open_once() };
        if let Some(file) = kept.get() {
            return Ok(Handle::Kept(file, &self.name));
        }
        match self.open_once()? {
            Handle::Own(file, name) if kept_open.fetch_add(1, Ordering::Relaxed) < MAX_OPEN_FILES => {
                // Another thread may have been first; then this one's file is closed again.
                Ok(Handle::Kept(kept.get_or_init(|| file), name))
            }
            handle => {
                kept_open.fetch_sub(1, Ordering::Relaxed);
                Ok(handle)
            }
        }
    }

    /// Says that a sample will be read, to what lies far away.
    pub(super) fn prefetch(&self, offset: u64, len_bytes: u64) {
        if let Content::Far(bytes) = &self.content {
            bytes.prefetch(offset, len_bytes);
        }
    }

    /// Its bytes, by a file that is closed afterwards and must be as long as it was when it was listed.
    pub(super) fn open_once(&self) -> Result<Handle<'_>> {
        if let Content::Far(bytes) = &self.content {
            return Ok(Handle::Far(&**bytes));
        }
        let file = File::open(&self.name).map_err(Error::io("open", &self.name))?;
        let len_bytes = file.metadata().map_err(Error::io("read", &self.name))?.len();
        if len_bytes != self.len_bytes {
            let changed = format!("the file had {} bytes when it was listed and has {len_bytes} now", self.len_bytes);
            return Err(Error::Io { action: "read", path: self.name.clone(), source: io::Error::other(changed) });
        }
        Ok(Handle::Own(file, &self.name))
    }
}

fn modified_ns(file: &Metadata) -> u64 {
    let since = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// A file that stays open, one for this read, or what is far away.
pub(super) enum Handle<'a> {
    Kept(&'a File, &'a Path),
    Own(File, &'a Path),
    Far(&'a dyn ReadAt),
}

impl ReadAt for Handle<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let (file, path) = match self {
            Self::Kept(file, path) => (*file, path),
            Self::Own(file, path) => (file, path),
            Self::Far(far) => return far.read_at(buffer, offset),
        };
        read_exact_at(file, buffer, offset).map_err(Error::io("read", *path))
    }

    fn read_sample(&self, buffer: &mut [u8], offset: u64, stopped: &AtomicBool) -> Result<()> {
        match self {
            Self::Far(far) => far.read_sample(buffer, offset, stopped),
            _ => self.read_at(buffer, offset),
        }
    }

    fn delay_bytes(&self) -> u64 {
        match self {
            Self::Far(far) => far.delay_bytes(),
            _ => 0,
        }
    }
}
