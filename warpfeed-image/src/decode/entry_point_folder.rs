//! A folder that keeps entry points from one process to the next, for all processes of a machine.
//!
//! | file | content |
//! | --- | --- |
//! | `key` | the secret key of the hash that identifies images: [`KEY_MAGIC`], 32 bytes, their CRC-32C |
//! | `RANDOM.points` | entry points of many images (`entry_point_segment`) |
//! | `.RANDOM.tmp` | an incomplete file |
//! | `lock` | locked by a process that writes (`folder_lock`) |
//!
//! A process adds files and never changes one, so readers need no lock. When [`MERGE_FILES`] files are in use they are
//! merged, and so are as many small ones. A process that does not find an image looks now and then for files that
//! others have added. If room is short, files in which this process has found no image are removed, the longest unused
//! first. A key is never replaced. A file is removed only if its header was read: a file of another version belongs to
//! that version.

use super::entry_point_segment::{self, KeyCheck, Opened, Record, Segment};
use super::entry_point_store::ImageKey;
use super::folder_lock::FolderLock;
use super::shared_folder;
use crate::file::{self, Keeper, Share, open_by};
use highway::{HighwayHash as _, HighwayHasher};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::SystemTime;

/// The last byte is the version of the key and of its hash.
const KEY_MAGIC: &[u8; 8] = b"wfpkey\0\x01";
const KEY_BYTES: usize = 8 + 32 + 4;
const ENDING: &str = "points";
/// Number of files in use from which on they are merged.
const MERGE_FILES: usize = 8;
/// Number of images that are not found before the folder is listed again.
const LIST_AFTER: u64 = 512;
/// A file up to this size is merged with others of its kind, though this process uses none of them.
const SMALL_BYTES: u64 = 1 << 20;
/// Largest number of files that are read, if as many may be kept open.
const MAX_FILES: usize = 64;

/// A folder of entry points.
pub(super) struct EntryPointFolder {
    folder: PathBuf,
    limit_bytes: u64,
    pub(super) key: [u64; 4],
    check: KeyCheck,
    kept: Arc<Kept>,
    /// Files whose headers were read.
    headers: Mutex<HashMap<OsString, Header>>,
    missed: AtomicU64,
    is_merging: AtomicBool,
    _share: Share,
}

/// The files that are open, the oldest first, and how many there may be.
#[derive(Default)]
struct Kept {
    files: RwLock<Vec<NamedSegment>>,
    most: AtomicUsize,
}

impl Kept {
    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    fn set(&self, mut files: Vec<NamedSegment>) {
        let mut kept = self.files.write().unwrap_or_else(PoisonError::into_inner);
        close_beyond(&mut files, self.most());
        *kept = files;
    }
}

impl Keeper for Kept {
    fn keep_at_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
        close_beyond(&mut self.files.write().unwrap_or_else(PoisonError::into_inner), most);
    }
}

/// Closes the files beyond a number: those first that are not used, and of these the oldest.
fn close_beyond(files: &mut Vec<NamedSegment>, most: usize) {
    let mut beyond = files.len().saturating_sub(most);
    for is_used in [false, true] {
        files.retain(|file| {
            let is_closed = beyond > 0 && file.segment.is_used() == is_used;
            beyond -= usize::from(is_closed);
            !is_closed
        });
    }
}

/// Contents of a file's header.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    /// The file is one of entry points under this key.
    Good,
    /// The file is damaged, or under another key.
    Wrong,
    /// Another version wrote the file.
    OfOtherVersion,
    /// The file is good, but too many images were looked up in vain, so it must be one of other images.
    OfOtherImages,
}

#[derive(Clone)]
struct NamedSegment {
    name: OsString,
    segment: Arc<Segment>,
}

impl EntryPointFolder {
    /// Opens a folder, and makes it if it does not exist. A folder that cannot be written must have a key.
    pub(super) fn open(folder: &Path, limit_bytes: u64) -> io::Result<Self> {
        let key = read_or_make_key(folder)?;
        let check = HighwayHasher::new(highway::Key(key)).hash128(KEY_MAGIC);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&check[0].to_le_bytes());
        bytes[8..].copy_from_slice(&check[1].to_le_bytes());
        let kept = Arc::new(Kept::default());
        let keeper: Weak<Kept> = Arc::downgrade(&kept);
        let this = Self {
            folder: folder.to_owned(),
            limit_bytes,
            key,
            check: bytes,
            _share: Share::begin(keeper, MAX_FILES),
            kept,
            headers: Mutex::default(),
            missed: AtomicU64::new(0),
            is_merging: AtomicBool::new(false),
        };
        this.list()?;
        Ok(this)
    }

    pub(super) fn path(&self) -> &Path {
        &self.folder
    }

    /// Number of images in all files, and the files' bytes.
    pub(super) fn usage(&self) -> (u64, u64) {
        let files = self.files();
        files
            .iter()
            .fold((0, 0), |(images, bytes), file| (images + file.segment.images, bytes + file.segment.len_bytes))
    }

    /// Finds an image's points. They lie at the returned place in `buffer`; the flag says whether there are no more to
    /// learn.
    pub(super) fn find(&self, key: &ImageKey, buffer: &mut Vec<u8>) -> Option<(Range<usize>, bool)> {
        let found = self.look(key, buffer);
        // Others may have found out in the meantime.
        if found.is_none() && self.missed.fetch_add(1, Ordering::Relaxed) % LIST_AFTER == LIST_AFTER - 1 {
            self.list().ok()?;
            return self.look(key, buffer);
        }
        found
    }

    fn look(&self, key: &ImageKey, buffer: &mut Vec<u8>) -> Option<(Range<usize>, bool)> {
        let files = self.kept.files.read().unwrap_or_else(PoisonError::into_inner);
        // The last file comes first: it may know more of an image.
        let mut partial = None::<(&Segment, usize)>;
        for NamedSegment { segment, .. } in files.iter().rev().filter(|file| !file.segment.is_foreign()) {
            match segment.find(key, buffer) {
                Some((place, false)) if partial.is_none_or(|(_, len)| len < place.len()) => {
                    partial = Some((segment, place.len()));
                }
                Some((place, true)) => return Some((place, true)),
                _ => {}
            }
        }
        partial?.0.find(key, buffer)
    }

    fn files(&self) -> Vec<NamedSegment> {
        self.kept.files.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the files that were added, and forgets those that are gone and those of other images. A file stays open
    /// until it is no longer read. If there are too many, the newest are opened.
    fn list(&self) -> io::Result<()> {
        let mut names: Vec<_> = self.entries()?.into_iter().map(|(name, entry)| (modified(&entry), name)).collect();
        names.sort_unstable();
        let known = self.files();
        let mut headers = self.headers.lock().unwrap_or_else(PoisonError::into_inner);
        let used = known.iter().filter(|file| file.segment.is_used()).count();
        let mut room = self.kept.most().saturating_sub(used);
        let open = |(_, name): (_, OsString)| {
            let known = known.iter().find(|known| known.name == name);
            if let Some(known) = known.filter(|known| known.segment.is_used()) {
                return Some(known.clone());
            }
            if known.is_some_and(|known| known.segment.is_foreign()) {
                headers.insert(name, Header::OfOtherImages);
                return None;
            }
            let header = headers.get(&name);
            if header.is_some_and(|&header| header != Header::Good) || header.is_some() && room == 0 {
                return None;
            }
            let file = match known {
                Some(known) => known.clone(),
                None => {
                    // What cannot be read now is tried again when the folder is listed again.
                    let opened = Segment::open(&self.folder.join(&name), &self.check).ok()?;
                    let (header, segment) = match opened {
                        Opened::Good(segment) => (Header::Good, Some(Arc::new(segment))),
                        Opened::Wrong => (Header::Wrong, None),
                        Opened::OfOtherVersion => (Header::OfOtherVersion, None),
                    };
                    headers.insert(name.clone(), header);
                    NamedSegment { name, segment: segment? }
                }
            };
            // Its header is known now, also if it is closed again.
            room = room.checked_sub(1)?;
            Some(file)
        };
        let mut files: Vec<_> = names.into_iter().rev().filter_map(open).collect();
        files.reverse();
        self.kept.set(files);
        Ok(())
    }

    /// All files that may have entry points.
    fn entries(&self) -> io::Result<Vec<(OsString, DirEntry)>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| is_ours(name, ENDING)) {
                entries.push((name, entry));
            }
        }
        Ok(entries)
    }

    /// Adds a file with these images. Leaves those that are not in it: all after an error, and some if room is short.
    pub(super) fn add(self: &Arc<Self>, records: &mut Vec<Record>) -> io::Result<()> {
        let lock = self.lock()?;
        self.remove_leftovers(lock.is_some())?;
        for file in self.files().iter().filter(|file| file.segment.is_used()) {
            // Another user's file cannot be touched.
            let _ = file.segment.touch();
        }
        let mut taken = entry_point_segment::frame_bytes(records.len() as u64);
        let room = self.make_room(taken + records.iter().map(Record::len_bytes).sum::<u64>())?;
        let fitting = records.iter().take_while(|record| {
            taken += record.len_bytes();
            taken <= room
        });
        let fitting = fitting.count();
        if fitting == 0 {
            return Ok(());
        }
        records[..fitting].sort_unstable_by_key(|record| record.key);
        self.write(fitting as u64, records[..fitting].iter().map(Ok))?;
        records.drain(..fitting);
        self.list()?;
        drop(lock);
        let in_use = self.files().iter().filter(|file| file.segment.is_used()).count();
        if (in_use >= MERGE_FILES || self.small()?.len() >= MERGE_FILES)
            && !self.is_merging.swap(true, Ordering::Relaxed)
        {
            let this = Arc::clone(self);
            let merge = move || {
                // Without it, all files stay as they are. The next epoch tries again.
                let _ = this.merge();
                this.is_merging.store(false, Ordering::Relaxed);
            };
            // It may take seconds, and it is not waited for. A process that ends meanwhile leaves a temporary file.
            if std::thread::Builder::new().name("warpfeed-points".to_owned()).spawn(merge).is_err() {
                self.is_merging.store(false, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Contents of a file's header, if it was read.
    fn header(&self, name: &OsStr) -> Option<Header> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    /// Removes files that this process does not use, until `wanted` more bytes fit. Returns the bytes that there is
    /// room for. Files of other versions, and those whose headers cannot be read, stay.
    fn make_room(&self, wanted: u64) -> io::Result<u64> {
        let mut files = Vec::new();
        for (name, entry) in self.entries()? {
            let len_bytes = entry.metadata().map_or(0, |metadata| metadata.len());
            files.push((modified(&entry), name, len_bytes));
        }
        files.sort_unstable();
        let mut taken = files.iter().map(|(.., len_bytes)| len_bytes).sum::<u64>();
        let open = self.files();
        for (_, name, len_bytes) in &files {
            if taken.saturating_add(wanted) <= self.limit_bytes {
                break;
            }
            let is_used = open.iter().any(|file| file.name == *name && file.segment.is_used());
            if !is_used && matches!(self.header(name), Some(Header::Good | Header::OfOtherImages | Header::Wrong)) {
                fs::remove_file(self.folder.join(name))?;
                taken -= len_bytes;
            }
        }
        Ok(self.limit_bytes.saturating_sub(taken))
    }

    /// Small files that this process does not use, whoever wrote them, the oldest first.
    fn small(&self) -> io::Result<Vec<(SystemTime, OsString)>> {
        let open = self.files();
        let is_used = |name: &OsString| open.iter().any(|file| file.name == *name && file.segment.is_used());
        let is_small = |entry: &DirEntry| entry.metadata().is_ok_and(|metadata| metadata.len() <= SMALL_BYTES);
        let mut small = Vec::new();
        for (name, entry) in self.entries()? {
            let is_good = matches!(self.header(&name), Some(Header::Good | Header::OfOtherImages));
            if is_good && is_small(&entry) && !is_used(&name) {
                small.push((modified(&entry), name));
            }
        }
        small.sort_unstable();
        Ok(small)
    }

    /// Merges the files that are in use into one, and small ones into another.
    fn merge(&self) -> io::Result<()> {
        let lock = self.lock()?;
        self.list()?;
        if lock.is_none() {
            return Ok(());
        }
        let mut files: Vec<_> = self.files().into_iter().filter(|file| file.segment.is_used()).collect();
        if files.len() >= MERGE_FILES {
            // A file that is far larger than the others together stays, so that not all is rewritten for a little.
            files.sort_unstable_by_key(|file| file.segment.len_bytes);
            let bytes = |files: &[NamedSegment]| files.iter().map(|file| file.segment.len_bytes).sum::<u64>();
            if let Some((largest, others)) = files.split_last()
                && largest.segment.len_bytes > 4 * bytes(others)
            {
                files.pop();
            }
            self.replace(&files, SystemTime::now())?;
        }
        let mut small = self.small()?;
        if small.len() >= MERGE_FILES {
            // No more are open at a time. Those that are left come next time.
            small.truncate(MERGE_FILES);
            let modified = small.iter().map(|(modified, _)| *modified).max().unwrap_or_else(SystemTime::now);
            let open = |(_, name): (_, OsString)| match Segment::open(&self.folder.join(&name), &self.check) {
                Ok(Opened::Good(segment)) => Some(NamedSegment { name, segment: Arc::new(segment) }),
                _ => None,
            };
            self.replace(&small.into_iter().filter_map(open).collect::<Vec<_>>(), modified)?;
        }
        self.list()
    }

    /// Replaces files by one that has all their images, and that was `modified` then.
    fn replace(&self, files: &[NamedSegment], modified: SystemTime) -> io::Result<()> {
        let most = files.iter().map(|file| file.segment.images).sum();
        let sources = files.iter().map(|file| file.segment.records()).collect::<io::Result<Vec<_>>>()?;
        let merged = self.write(most, merged(sources))?;
        // It is only a matter of what goes first where room is short.
        let _ = open_by(&merged, File::options().write(true)).and_then(|(file, _)| file.set_modified(modified));
        for (number, file) in files.iter().enumerate() {
            match fs::remove_file(self.folder.join(&file.name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    if number == 0 {
                        // Another user's files cannot be removed, and all images would be there twice.
                        let _ = fs::remove_file(&merged);
                    }
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a file whole or not at all. Returns its path.
    fn write(&self, most: u64, records: impl Iterator<Item = io::Result<impl Borrow<Record>>>) -> io::Result<PathBuf> {
        let random = random_name();
        let temporary = self.folder.join(format!(".{random}.tmp"));
        let path = self.folder.join(format!("{random}.{ENDING}"));
        let written = entry_point_segment::write(&temporary, &self.check, most, records)
            .and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_file(&temporary);
        }
        written.map(|()| path)
    }

    /// Waits until no other process writes. `None` where the file system has no locks.
    ///
    /// # Errors
    /// An error if the folder has another key by now: points written under this one would be of no use.
    fn lock(&self) -> io::Result<Option<FolderLock>> {
        let lock = FolderLock::take(&self.folder)?;
        match read_key(&self.folder)? {
            Some(key) if key == self.key => Ok(lock),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the folder's key is another one by now")),
        }
    }

    /// Removes leftovers of killed processes, and damaged files and those under another key, which are of no use.
    fn remove_leftovers(&self, is_locked: bool) -> io::Result<()> {
        // Without a lock, another process may be writing it.
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix('.'));
            if is_locked && name.is_some_and(|name| is_ours(name, "tmp")) {
                fs::remove_file(path)?;
            }
        }
        self.list()?;
        let mut headers = self.headers.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong: Vec<_> = headers.extract_if(|_, header| *header == Header::Wrong).map(|(name, _)| name).collect();
        drop(headers);
        for name in wrong {
            match fs::remove_file(self.folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The records of all files in the order of their keys; of equal keys the one with the most points. It ends with an
/// error if a file cannot be read.
fn merged(mut sources: Vec<impl Iterator<Item = io::Result<Record>>>) -> impl Iterator<Item = io::Result<Record>> {
    let mut next: Vec<Option<io::Result<Record>>> = sources.iter_mut().map(Iterator::next).collect();
    std::iter::from_fn(move || {
        if let Some(failed) = next.iter_mut().find(|next| matches!(next, Some(Err(_)))) {
            return failed.take();
        }
        let key = next.iter().flatten().flatten().map(|record| record.key).min()?;
        let mut best = None::<Record>;
        for (next, source) in next.iter_mut().zip(&mut sources) {
            let is_next = |record: &mut io::Result<Record>| record.as_ref().is_ok_and(|record| record.key == key);
            let Some(Ok(record)) = next.take_if(is_next) else { continue };
            *next = source.next();
            let is_better = |best: &Record| (record.is_final, record.points.len()) > (best.is_final, best.points.len());
            if best.as_ref().is_none_or(is_better) {
                best = Some(record);
            }
        }
        best.map(Ok)
    })
}

fn modified(entry: &DirEntry) -> SystemTime {
    entry.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A name that no other process draws.
fn random_name() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// Whether a file may be one of ours. Other files are not removed.
fn is_ours(name: &str, ending: &str) -> bool {
    let random = name.strip_suffix(ending).and_then(|name| name.strip_suffix('.'));
    random.is_some_and(|random| random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// A secret key: four outputs of SipHash, whose key std draws from the operating system's random numbers.
pub(super) fn random_key() -> [u64; 4] {
    let state = RandomState::new();
    [0, 1, 2, 3].map(|word: u64| state.hash_one(word))
}

/// The key in a folder, and `None` if there is none.
///
/// # Errors
/// An error if there is one that cannot be read, or is not a key of this version.
pub(super) fn read_key(folder: &Path) -> io::Result<Option<[u64; 4]>> {
    let mut bytes = Vec::new();
    let path = folder.join("key");
    match file::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unread(error)),
        Ok((file, _)) => file.take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unread)?,
    };
    let words = (|| {
        let bytes: [u8; KEY_BYTES] = bytes.try_into().ok()?;
        let (contents, crc) = bytes.split_last_chunk::<4>()?;
        let mut key = [0; 4];
        let words = contents.strip_prefix(KEY_MAGIC)?;
        key.iter_mut().zip(words.chunks_exact(8)).for_each(|(word, bytes)| {
            *word = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        });
        (crc32c::crc32c(contents) == u32::from_le_bytes(*crc)).then_some(key)
    })();
    words.map(Some).ok_or_else(|| {
        let message = "its file `key` is no key of this version: restore it, or use another folder; what was made with a \
                       lost key is of no use any more";
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

fn unread(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("its file `key` cannot be read: {error}"))
}

/// The key in a folder. It is drawn if there is none, and the folder is made.
pub(super) fn read_or_make_key(folder: &Path) -> io::Result<[u64; 4]> {
    match read_key(folder)? {
        Some(key) => Ok(key),
        None => make_key(folder),
    }
}

/// Draws a key, unless another process has just done so. It never replaces one.
fn make_key(folder: &Path) -> io::Result<[u64; 4]> {
    shared_folder::create(folder)?;
    let key = random_key();
    let mut bytes = KEY_MAGIC.to_vec();
    key.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    let temporary = folder.join(format!(".{}.tmp", random_name()));
    let written = shared_folder::create_file(&temporary)
        .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
        .and_then(|()| name_key(folder, &temporary));
    // It has another name by now, or it is of no use. The first error is the one to report.
    let _ = fs::remove_file(&temporary);
    match written {
        Ok(()) => Ok(key),
        Err(error) => match read_key(folder)? {
            Some(key) => Ok(key),
            None => Err(error),
        },
    }
}

/// Gives the written key its name, unless there is a key.
fn name_key(folder: &Path, temporary: &Path) -> io::Result<()> {
    let path = folder.join("key");
    match fs::hard_link(temporary, &path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            // Not all file systems have links.
            let _lock = FolderLock::take(folder)?;
            match fs::symlink_metadata(&path) {
                Err(missing) if missing.kind() == io::ErrorKind::NotFound => fs::rename(temporary, &path),
                _ => Err(error),
            }
        }
        linked => linked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::ChaCha8Rng;
    use rand::{Rng as _, RngExt as _, SeedableRng as _};
    use std::time::{Duration, Instant};

    /// A folder of this test's own, which is removed at the end.
    struct Own(PathBuf);

    impl Own {
        fn new() -> Self {
            let folder = std::env::temp_dir().join(format!("warpfeed-points-{}", random_name()));
            Self(folder.join("made when it is needed"))
        }

        fn open(&self, limit_bytes: u64) -> Arc<EntryPointFolder> {
            Arc::new(EntryPointFolder::open(&self.0, limit_bytes).unwrap())
        }

        fn names(&self, ending: &str) -> Vec<PathBuf> {
            let all = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
            all.filter(|path| path.extension() == Some(OsStr::new(ending))).collect()
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            fs::remove_dir_all(self.0.parent().unwrap()).unwrap();
        }
    }

    /// The images with these numbers. Each has points of its own.
    fn records(numbers: Range<u64>) -> Vec<Record> {
        let record = |number| {
            let mut rng = ChaCha8Rng::seed_from_u64(number);
            let mut key = [0; 16];
            rng.fill_bytes(&mut key);
            let mut points = vec![0; rng.random_range(0..300)];
            rng.fill_bytes(&mut points);
            Record { key: ImageKey::from_bytes(key), points: points.into(), is_final: number.is_multiple_of(3) }
        };
        numbers.map(record).collect()
    }

    fn add(folder: &Arc<EntryPointFolder>, numbers: Range<u64>) -> usize {
        let mut all = records(numbers);
        folder.add(&mut all).unwrap();
        all.len()
    }

    /// Number of the images that are found. Checks that the found points are right.
    fn found(folder: &EntryPointFolder, numbers: Range<u64>) -> usize {
        let mut buffer = Vec::new();
        let found = |record: &Record| {
            let Some((place, is_final)) = folder.find(&record.key, &mut buffer) else { return false };
            assert!(buffer[place] == *record.points && is_final == record.is_final);
            true
        };
        records(numbers).iter().map(found).filter(|&found| found).count()
    }

    #[test]
    fn every_process_finds_what_any_has_added() {
        let own = Own::new();
        let (first, second) = (own.open(1 << 30), own.open(1 << 30));
        assert_eq!(add(&first, 0..1000), 0);
        assert_eq!(found(&first, 0..1001), 1000);
        // A process that is running lists the folder after some time; a new one at once.
        assert!(found(&second, 0..1000) > 400 && found(&second, 0..1000) == 1000);
        assert_eq!(found(&own.open(1 << 30), 0..1001), 1000);
        for small in [0..1, 1..2, 5000..5003] {
            assert_eq!(add(&second, small.clone()), 0);
            assert_eq!(found(&own.open(1 << 30), small.clone()), (small.end - small.start) as usize);
        }
    }

    #[test]
    fn files_in_use_are_merged() {
        let own = Own::new();
        let folder = own.open(1 << 30);
        for file in 0..MERGE_FILES as u64 {
            // The test merges, not a thread.
            folder.is_merging.store(true, Ordering::Relaxed);
            assert_eq!(add(&folder, 100 * file..100 * file + 150), 0);
            assert_eq!(found(&folder, 100 * file..100 * file + 150), 150);
        }
        let foreign = own.open(1 << 30);
        folder.merge().unwrap();
        assert_eq!(own.names(ENDING).len(), 1);
        assert_eq!(folder.usage().0, 850);
        assert_eq!((found(&folder, 0..900), found(&own.open(1 << 30), 0..900)), (850, 850));
        // Whoever had the old files open reads them until it lists the folder.
        assert_eq!(found(&foreign, 0..900), 850);
    }

    #[test]
    fn a_full_folder_loses_what_nobody_uses() {
        let own = Own::new();
        let bytes =
            records(0..1000).iter().map(Record::len_bytes).sum::<u64>() + entry_point_segment::frame_bytes(1000);
        let limit = 2 * bytes + bytes / 2;
        for numbers in [0..1000, 1000..2000] {
            assert_eq!(add(&own.open(limit), numbers), 0);
        }
        let folder = own.open(limit);
        assert_eq!(found(&folder, 0..10), 10);
        assert_eq!(add(&folder, 2000..3000), 0);
        let [first, second, third] = [0..1000, 1000..2000, 2000..3000].map(|numbers| found(&folder, numbers));
        assert_eq!((first, second, third), (1000, 0, 1000));
        let rest = add(&folder, 3000..4000);
        assert!((300..700).contains(&rest), "{rest}");
        assert_eq!(found(&folder, 3000..4000), 1000 - rest);
        assert!(add(&folder, 4000..4010) >= 5);
        assert!(folder.usage().1 <= limit);
    }

    #[test]
    fn damage_and_foreign_files_are_not_found() {
        let own = Own::new();
        let folder = own.open(1 << 30);
        assert_eq!(add(&folder, 0..300), 0);
        let [path] = own.names(ENDING).try_into().unwrap();
        let good = fs::read(&path).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let mut missed = 0;
        for round in 0..300 {
            let mut bad = good.clone();
            match round % 3 {
                0 => bad.truncate(rng.random_range(0..good.len())),
                1 => bad[rng.random_range(0..good.len())] ^= 1 << rng.random_range(0..8),
                _ => {
                    let at = rng.random_range(0..good.len() - 8);
                    rng.fill_bytes(&mut bad[at..at + 8]);
                }
            }
            // A file that is open is damaged too.
            let open = own.open(1 << 30);
            fs::write(&path, &bad).unwrap();
            missed += 600 - found(&open, 0..300) - found(&own.open(1 << 30), 0..300);
        }
        assert!(missed > 30_000, "{missed}");
        // Whole files of another version.
        let mut older = good.clone();
        older[7] -= 1;
        let crc = crc32c::crc32c(&older[..60]);
        older[60..64].copy_from_slice(&crc.to_le_bytes());
        fs::write(&path, &older).unwrap();
        assert_eq!(found(&own.open(1 << 30), 0..300), 0);
        // Files of another key, and of other programs.
        fs::write(&path, &good).unwrap();
        let other = Own::new();
        assert_eq!(add(&other.open(1 << 30), 0..5), 0);
        fs::copy(other.0.join("key"), own.0.join("key")).unwrap();
        for name in ["my.points", "my.tmp", ".0123456789abcdef.tmp", "0123456789abcdef.points"] {
            fs::write(own.0.join(name), "mine").unwrap();
        }
        let folder = own.open(1 << 30);
        assert_eq!((found(&folder, 0..300), add(&folder, 7..9), found(&folder, 0..300)), (0, 0, 2));
        assert!(!path.exists() && own.names(ENDING).len() == 2 && own.names("tmp").len() == 1);
    }

    /// The contents of all files.
    fn contents(own: &Own) -> Vec<(OsString, Vec<u8>)> {
        let read =
            |entry: io::Result<DirEntry>| entry.and_then(|entry| Ok((entry.file_name(), fs::read(entry.path())?)));
        let mut all: Vec<_> = fs::read_dir(&own.0).unwrap().map(|entry| read(entry).unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn files_without_use_are_closed_and_small_ones_are_merged_whoever_wrote_them() {
        let own = Own::new();
        let files = MERGE_FILES as u64 - 1;
        for number in 0..files {
            // Each by a process of its own.
            assert_eq!(add(&own.open(1 << 30), number * 10..number * 10 + 10), 0);
        }
        let folder = own.open(1 << 30);
        assert_eq!(folder.files().len() as u64, files);
        assert_eq!(found(&folder, 10_000..16_000), 0);
        assert!(folder.files().is_empty(), "none of them is of use");
        assert_eq!(add(&folder, files * 10..files * 10 + 10), 0);
        let begun = Instant::now();
        while own.names(ENDING).len() > 1 {
            assert!(begun.elapsed() < Duration::from_secs(60), "they are not merged");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(found(&own.open(1 << 30), 0..files * 10 + 10), MERGE_FILES * 10);
    }

    #[test]
    fn no_more_files_are_open_than_the_share() {
        let own = Own::new();
        for number in 0..6 {
            assert_eq!(add(&own.open(1 << 30), number * 10..number * 10 + 10), 0);
        }
        let folder = own.open(1 << 30);
        assert_eq!(found(&folder, 0..20), 20);
        let names = |folder: &EntryPointFolder| folder.files().into_iter().map(|file| file.name).collect::<Vec<_>>();
        // Another test's folder that is opened or closed at this moment gives all folders a new share.
        let keeps = |most: usize, list: bool, want: usize| {
            (0..1000).any(|_| {
                folder.kept.keep_at_most(most);
                if list {
                    folder.list().unwrap();
                }
                names(&folder).len() == want
            })
        };
        assert!(keeps(3, false, 3));
        assert_eq!(found(&folder, 0..20), 20, "those that are used stay");
        assert!(keeps(3, true, 3));
        assert_eq!(found(&folder, 0..20), 20);
        assert!(keeps(0, true, 0));
        // Closed files can still be removed for room.
        assert_eq!(own.names(ENDING).len(), 6);
        assert!(folder.make_room(1 << 30).is_ok());
        assert!(own.names(ENDING).is_empty());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pipes_in_the_place_of_files_are_no_wait() {
        let own = Own::new();
        assert_eq!(add(&own.open(1 << 30), 0..10), 0);
        let pipe = |name: &str| {
            let path = own.0.join(name);
            let _ = fs::remove_file(&path);
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
            path
        };
        pipe("0123456789abcdef.points");
        assert_eq!(found(&own.open(1 << 30), 0..10), 10);
        pipe("lock");
        let mut more = records(10..20);
        let _ = own.open(1 << 30).add(&mut more);
        pipe("key");
        let error = EntryPointFolder::open(&own.0, 1 << 30).map(drop).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        assert!(crate::decode::PackKey::in_folder(&own.0).is_err());
    }

    #[test]
    fn a_key_that_is_none_is_never_replaced() {
        let own = Own::new();
        let folder = own.open(1 << 30);
        assert_eq!(add(&folder, 0..300), 0);
        let key = own.0.join("key");
        let good = fs::read(&key).unwrap();
        let mut newer = good.clone();
        newer[7] += 1;
        let crc = crc32c::crc32c(&newer[..40]);
        newer[40..].copy_from_slice(&crc.to_le_bytes());
        for other in [&b"no key"[..], b"", &good[..43], &newer, &[&good[..], b"x"].concat()] {
            fs::write(&key, other).unwrap();
            let before = contents(&own);
            let error = EntryPointFolder::open(&own.0, 1 << 30).map(drop).unwrap_err();
            assert!(error.to_string().contains("`key`"), "{error}");
            // Who has opened the folder before writes nothing, and removes nothing.
            let mut more = records(300..310);
            assert!(folder.add(&mut more).is_err() && more.len() == 10);
            assert_eq!(contents(&own), before);
        }
        fs::remove_file(&key).unwrap();
        fs::create_dir(&key).unwrap();
        assert!(EntryPointFolder::open(&own.0, 1 << 30).is_err());
        fs::remove_dir(&key).unwrap();
        fs::write(&key, good).unwrap();
        assert_eq!((found(&own.open(1 << 30), 0..300), add(&folder, 300..310)), (300, 0));
    }

    #[test]
    fn files_of_other_versions_and_those_that_cannot_be_read_stay() {
        let own = Own::new();
        assert_eq!(add(&own.open(1 << 30), 0..300), 0);
        let [path] = own.names(ENDING).try_into().unwrap();
        let good = fs::read(&path).unwrap();
        for version in [0, 1, 3, 255] {
            let mut other = good.clone();
            other[7] = version;
            // Headers of other versions may be shorter, and have no such checksum.
            for other in [&other[..], &other[..20]] {
                fs::write(&path, other).unwrap();
                let folder = own.open(500);
                let mut more = records(300..310);
                folder.add(&mut more).unwrap();
                assert_eq!(fs::read(&path).unwrap(), other, "not for room either");
                assert!(!more.is_empty());
            }
        }
        // A folder, as a stand-in for a file that cannot be read.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let folder = own.open(1 << 30);
        assert_eq!((add(&folder, 0..300), found(&folder, 0..300)), (0, 300));
        assert!(path.exists());
    }

    #[test]
    fn a_merge_that_cannot_read_a_file_removes_none() {
        let fault = || io::Error::from(io::ErrorKind::Other);
        let mut sources: Vec<Vec<io::Result<Record>>> =
            [0..20, 10..30].map(|numbers| records(numbers).into_iter().map(Ok).collect()).into();
        sources[1].truncate(5);
        sources[1].push(Err(fault()));
        let merged: io::Result<Vec<Record>> = merged(sources.into_iter().map(Vec::into_iter).collect()).collect();
        assert!(merged.is_err());
    }

    #[test]
    #[cfg(unix)]
    fn a_group_that_may_write_to_the_folder_may_read_its_files() {
        use std::os::unix::fs::PermissionsExt as _;
        for (folder_mode, want) in [(0o700, 0o600), (0o755, 0o600), (0o1777, 0o660), (0o770, 0o660), (0o2770, 0o660)] {
            let own = Own::new();
            fs::create_dir_all(&own.0).unwrap();
            fs::set_permissions(&own.0, fs::Permissions::from_mode(folder_mode)).unwrap();
            assert_eq!(add(&own.open(1 << 30), 0..30), 0);
            let modes = fs::read_dir(&own.0).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
            let modes: Vec<_> = modes.map(|metadata| metadata.permissions().mode() & 0o777).collect();
            assert_eq!(modes, [want; 3], "{folder_mode:o}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_left() {
        let own = Own::new();
        let folder = own.open(1 << 30);
        let hidden = own.0.with_extension("hidden");
        fs::rename(&own.0, &hidden).unwrap();
        let mut all = records(0..10);
        assert!(folder.add(&mut all).is_err() && all.len() == 10);
        fs::rename(&hidden, &own.0).unwrap();
        folder.add(&mut all).unwrap();
        assert!(all.is_empty() && found(&folder, 0..10) == 10);
    }

    /// It takes 1.5 GB of disk, and some seconds.
    #[test]
    #[ignore = "it writes 1.5 GB: cargo test --lib -p warpfeed-image -- --ignored ten_million"]
    fn ten_million_images_open_at_once() {
        let own = Own::new();
        drop(own.open(1 << 40));
        let folder = own.open(1 << 40);
        let key = |number: u64| {
            let hash = HighwayHasher::new(highway::Key([number; 4])).hash64(&[]);
            ImageKey::from_bytes(((u128::from(hash) << 64) | u128::from(number << 40)).to_le_bytes())
        };
        let points: Arc<[u8]> = vec![7; 120].into();
        let record = |number| Record { key: key(number), points: Arc::clone(&points), is_final: true };
        folder.write(10_000_000, (0..10_000_000).map(record).map(Ok)).unwrap();
        let start = Instant::now();
        let folder = own.open(1 << 40);
        let opened = start.elapsed();
        let mut buffer = Vec::new();
        let start = Instant::now();
        for number in 0..100_000 {
            assert!(folder.find(&key(number * 99), &mut buffer).is_some());
        }
        println!("opened in {opened:?}, found an image in {:?}", start.elapsed() / 100_000);
        assert_eq!(folder.usage().0, 10_000_000);
        assert!(opened < Duration::from_secs(1));
    }
}
