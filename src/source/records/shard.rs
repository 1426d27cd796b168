//! A file of records, local or remote.

use crate::error::{Error, Result};
use crate::os::file::{Identity, Keeper, Share, open_with_metadata};
use crate::source::ListedFile;
use crate::source::window::{ReadAt, read_exact_at};
#[cfg(feature = "cloud")]
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A file of records.
pub(in crate::source) struct Shard {
    /// The shard's path or address.
    pub(super) name: PathBuf,
    pub(super) len_bytes: u64,
    /// Distinguishes contents of the same name and length. For a file: a hash of what [`Identity`] has.
    pub(super) version: u64,
    /// A hash of the address; 0 for a file, whose version is enough.
    name_hash: u64,
    /// `None` for a remote shard.
    pub(super) file: Option<Arc<ListedFile>>,
    /// Index of the shard's first sample in the source.
    pub(super) first: u64,
    /// Offsets of the shard's samples, once they were needed.
    starts: Mutex<Option<Vec<u64>>>,
    content: Content,
}

enum Content {
    File,
    #[cfg_attr(not(feature = "cloud"), allow(dead_code, reason = "without it nothing is remote"))]
    Remote(Box<dyn ReadAt>),
}

impl Shard {
    /// Describes the file at `path`.
    pub(super) fn file(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path).map_err(Error::io("open", path))?;
        if !metadata.is_file() {
            let expected = "regular files, which can be read in any order";
            return Err(Error::parameter("RecordShards::open", "shards", expected, path.display()));
        }
        let file = ListedFile::new(path, &metadata);
        Ok(Self {
            name: path.to_owned(),
            len_bytes: metadata.len(),
            version: file.identity().version(),
            name_hash: 0,
            file: Some(Arc::new(file)),
            first: 0,
            starts: Mutex::default(),
            content: Content::File,
        })
    }

    /// Describes a remote shard at `address`.
    #[cfg(feature = "cloud")]
    pub fn remote(address: &str, len_bytes: u64, version: u64, bytes: Box<dyn ReadAt>) -> Self {
        let hash = Sha256::digest(address);
        Self {
            name: address.into(),
            len_bytes,
            version,
            name_hash: hash.first_chunk().map_or(0, |start| u64::from_le_bytes(*start)),
            file: None,
            first: 0,
            starts: Mutex::default(),
            content: Content::Remote(bytes),
        }
    }

    /// Returns the offset of sample `index` of the source. The first call runs `scan`, which finds the offsets of all
    /// samples of the shard.
    pub(super) fn start(&self, index: u64, scan: impl FnOnce(&Self) -> Result<Vec<u64>>) -> Result<u64> {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let starts = match &mut *starts {
            Some(starts) => starts,
            none => none.insert(scan(self)?),
        };
        let start = starts.get((index - self.first) as usize).copied();
        start.ok_or_else(|| {
            let changed = io::Error::other("it has fewer samples than when it was listed");
            Error::Io { action: "read", path: self.name.clone(), source: changed.into() }
        })
    }

    pub(super) fn is_remote(&self) -> bool {
        matches!(self.content, Content::Remote(_))
    }

    /// Distinguishes the content at an offset from that of other shards and of other versions of this one.
    pub(super) fn version_at(&self, offset: u64) -> u64 {
        // Multiplied by an odd number, offsets stay different. Remote shards may have the same version.
        let at = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.version.wrapping_add(self.name_hash).wrapping_add(at)
    }

    /// Opens the shard. A file stays open afterwards, in `kept`.
    pub(super) fn open(&self, kept: &OpenFiles) -> Result<Handle<'_>> {
        if self.is_remote() {
            return self.open_once();
        }
        if let Some(file) = kept.get(self.first) {
            return Ok(Handle::File(file, &self.name));
        }
        let handle = self.open_once()?;
        if let Handle::File(file, _) = &handle {
            kept.put(self.first, file);
        }
        Ok(handle)
    }

    /// Announces to a remote shard that a sample will be read.
    pub(super) fn prefetch(&self, offset: u64, len_bytes: u64) {
        if let Content::Remote(bytes) = &self.content {
            bytes.prefetch(offset, len_bytes);
        }
    }

    /// Opens the shard. A file is closed afterwards. It must be the one that was listed, with the same length and
    /// modification time.
    pub(super) fn open_once(&self) -> Result<Handle<'_>> {
        if let Content::Remote(bytes) = &self.content {
            return Ok(Handle::Remote(&**bytes));
        }
        let (file, metadata) = open_with_metadata(&self.name)?;
        let len_bytes = metadata.len();
        if len_bytes != self.len_bytes {
            let changed = format!("the file had {} bytes when it was listed and has {len_bytes} now", self.len_bytes);
            return Err(Error::Io {
                action: "read",
                path: self.name.clone(),
                source: io::Error::other(changed).into(),
            });
        }
        let (now, listed) = (Identity::of(&metadata), self.file.as_ref().map(|file| file.identity()));
        if listed.is_some_and(|listed| (listed.modified_ns, listed.inode) != (now.modified_ns, now.inode)) {
            let changed = io::Error::other("the file was changed or replaced since it was listed");
            return Err(Error::Io { action: "read", path: self.name.clone(), source: changed.into() });
        }
        Ok(Handle::File(Arc::new(file), &self.name))
    }
}

/// Files of shards that stay open between reads. The least recently used file is closed first.
pub(super) struct OpenFiles {
    kept: Arc<Kept>,
    _share: Share,
}

#[derive(Default)]
struct Kept(Mutex<Files>);

#[derive(Default)]
struct Files {
    most: usize,
    /// By the index of the shard's first sample: the file, and the number of its last read.
    open: HashMap<u64, (Arc<File>, u64)>,
    reads: u64,
}

impl OpenFiles {
    /// Keeps at most `wanted` files open, and no more than this share of all that the process keeps open.
    pub fn new(wanted: usize) -> Self {
        let kept = Arc::new(Kept::default());
        let keeper: Weak<Kept> = Arc::downgrade(&kept);
        Self { kept, _share: Share::begin(keeper, wanted) }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.kept.files()
    }

    fn get(&self, shard: u64) -> Option<Arc<File>> {
        let mut files = self.files();
        files.reads += 1;
        let now = files.reads;
        let (file, read) = files.open.get_mut(&shard)?;
        *read = now;
        Some(Arc::clone(file))
    }

    fn put(&self, shard: u64, file: &Arc<File>) {
        let mut files = self.files();
        let now = files.reads;
        files.open.insert(shard, (Arc::clone(file), now));
        files.close_oldest();
    }
}

impl Files {
    fn close_oldest(&mut self) {
        while self.open.len() > self.most
            && let Some(oldest) = self.open.iter().min_by_key(|(_, (_, read))| *read).map(|(&shard, _)| shard)
        {
            self.open.remove(&oldest);
        }
    }
}

impl Kept {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper for Kept {
    fn keep_at_most(&self, most: usize) {
        let mut files = self.files();
        files.most = most;
        files.close_oldest();
    }
}

/// A file, or a remote shard.
pub(super) enum Handle<'a> {
    File(Arc<File>, &'a Path),
    Remote(&'a dyn ReadAt),
}

impl ReadAt for Handle<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let (file, path) = match self {
            Self::File(file, path) => (file, path),
            Self::Remote(remote) => return remote.read_at(buffer, offset),
        };
        read_exact_at(file, buffer, offset).map_err(Error::io("read", *path))
    }

    fn read_sample(&self, buffer: &mut [u8], offset: u64, stopped: &AtomicBool) -> Result<()> {
        match self {
            Self::Remote(remote) => remote.read_sample(buffer, offset, stopped),
            _ => self.read_at(buffer, offset),
        }
    }

    fn delay_bytes(&self) -> u64 {
        match self {
            Self::Remote(remote) => remote.delay_bytes(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_not_read_for_longest_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let shards: Vec<Shard> = (0..5_u8)
            .map(|i| {
                let path = folder.path().join(i.to_string());
                fs::write(&path, [i; 10]).unwrap();
                Shard { first: i.into(), ..Shard::file(&path).unwrap() }
            })
            .collect();
        let kept = OpenFiles::new(2);
        let read = |i: usize| {
            let mut byte = [9];
            shards[i].open(&kept).unwrap().read_at(&mut byte, 3).unwrap();
            assert_eq!(byte, [i as u8]);
        };
        for (i, want) in [(0, vec![0]), (1, vec![0, 1]), (0, vec![0, 1]), (2, vec![0, 2]), (4, vec![2, 4])] {
            read(i);
            let mut open: Vec<u64> = kept.files().open.keys().copied().collect();
            open.sort_unstable();
            assert_eq!(open, want, "after {i}");
        }
    }
}
