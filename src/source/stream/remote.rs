//! Remote shards. Streams fetch a shard in ranges of [`RANGE_BYTES`], [`AHEAD`] of them at once. A failed range is
//! requested again, with growing pauses.

use super::cache::{Cache, ShardCache};
use super::shards::{Shard, Shards};
use crate::address::{Address, message_without_secrets};
use crate::error::{Error, Result};
use crate::hex::hex;
use crate::os::file::read_up_to;
use crate::source::packed::{MANIFEST, MAX_BYTES, Packed, PackedFolder};
use crate::source::records::{self, AHEAD_BYTES};
use crate::source::spec::{self, MAX_NAMES, refuse};
use crate::source::window::ReadAt;
use crate::store::{Answer, Fetcher, Object, patiently, told};
use object_store::ObjectMeta;
use object_store::path::Path as ObjectPath;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a range. They are enough that a request's delay does not matter. S3's guidelines advise 8 to 16 MB.
const RANGE_BYTES: u64 = 8 << 20;

/// Bytes whose transfer takes as long as a request's delay: 10 to 20 ms at 2 MB/s for each of many connections.
const DELAY_BYTES: u64 = 32 << 10;

/// Number of shards whose headers are scanned at once for an index.
pub(in crate::source) const SCANS: usize = 64;

/// Largest number of announced samples that are fetched before they are read.
const AHEAD_SAMPLES: usize = 256;

/// Number of ranges of a shard that are fetched at once.
const AHEAD: usize = 4;

/// Shards at URLs.
pub(in crate::source) struct Remote {
    shards: Vec<Object>,
    /// The manifest that `warpfeed pack` wrote next to the shards.
    packed: Option<Object>,
    fetcher: Arc<Fetcher>,
    ahead: Arc<Mutex<Ahead>>,
    cache: Option<Arc<Cache>>,
}

impl Remote {
    /// Names the shards that the braces of `address` stand for, without requesting them.
    pub fn new(address: Address<'_>, cache: Option<ShardCache>) -> Result<Self> {
        let cache = cache.map(Cache::open).transpose()?.map(Arc::new);
        let mut servers = HashMap::new();
        let urls = spec::expand(&address.public())?;
        let shards = urls.into_iter().map(|url| Object::new(url, address, &mut servers)).collect::<Result<_>>()?;
        Ok(Self { shards, packed: None, fetcher: Arc::new(Fetcher::start()?), ahead: Arc::default(), cache })
    }

    /// Lists the shards in the folder at `address` whose names `fits` accepts, sorted.
    pub fn list(address: Address<'_>, fits: impl Fn(&str) -> bool, cache: Option<ShardCache>) -> Result<Self> {
        let mut this = Self::new(address, cache)?;
        let mut folders = std::mem::take(&mut this.shards).into_iter();
        let (Some(folder), None) = (folders.next(), folders.next()) else {
            return Err(refuse("a pattern with braces or with wildcards, not with both", address.public()));
        };
        let (server, path) = (folder.server.clone(), folder.path.clone());
        let found = this.fetcher.fetch(async move { server.list(&path).await }).wait(&AtomicBool::new(false));
        let found = found.and_then(|found| found.map_err(io::Error::other));
        let found = found.map_err(|error| broken(&folder.url, 0, &error))?;
        let mut paths: Vec<ObjectPath> = found.objects.into_iter().map(|object| object.location).collect();
        let manifest = paths.iter().find(|path| path.filename() == Some(MANIFEST)).cloned();
        this.packed = manifest.map(|path| folder.inside(path));
        paths.retain(|path| path.filename().is_some_and(&fits));
        if paths.len() > MAX_NAMES {
            return Err(refuse(&format!("a pattern for at most {MAX_NAMES} shards"), &folder.url));
        }
        paths.sort_unstable();
        this.shards.extend(paths.into_iter().map(|path| folder.inside(path)));
        Ok(this)
    }

    /// Returns the manifest of a listed folder if `warpfeed pack` made the shards. Rejects an unfinished folder.
    pub fn packed(&self) -> Result<Option<Packed>> {
        let Some(manifest) = &self.packed else { return Ok(None) };
        let (folder, _) = manifest.url.rsplit_once('/').unwrap_or_default();
        let text = match open(manifest, &self.fetcher)? {
            Some((_, bytes)) => read_up_to(bytes, MAX_BYTES).map_err(|error| broken(&manifest.url, 0, &error))?,
            None => Vec::new(),
        };
        let packed = PackedFolder::<Packed>::of(&text).whole(folder.as_ref())?;
        if !packed.as_ref().is_some_and(|packed| packed.complete) {
            let got = format!("{folder}, which is not: run it again");
            return Err(refuse("a folder that `warpfeed pack` has finished", &got));
        }
        let names = |object: &Object| object.path.filename().unwrap_or_default().to_owned();
        Ok(packed.filter(|packed| self.shards.iter().map(names).all(|name| packed.names(name.as_ref()))))
    }

    /// Requests the head of a shard, with which its ranges are fetched.
    fn find(&self, shard: usize, stopped: &AtomicBool) -> Result<Fetch> {
        let object = self.shards[shard].clone();
        let asked = object.clone();
        let head = self.fetcher.fetch(async move { patiently(|| asked.head()).await }).wait(stopped);
        let meta = head.and_then(|head| head.map_err(io::Error::other));
        let meta = meta.map_err(|error| broken(&object.url, 0, &error))?;
        Ok(Fetch { object, meta, cache: self.cache.clone() })
    }

    /// Opens the current version of a shard for random access.
    pub fn shard(&self, shard: usize) -> Result<records::Shard> {
        let fetch = self.find(shard, &AtomicBool::new(false))?;
        let (name, len_bytes, version) = (fetch.object.url.clone(), fetch.meta.size, fetch.version_number());
        let (fetch, fetcher, ahead) = (Arc::new(fetch), Arc::clone(&self.fetcher), Arc::clone(&self.ahead));
        let bytes = RemoteBytes { number: shard, fetch, fetcher, ahead };
        Ok(records::Shard::remote(&name, len_bytes, version, Box::new(bytes)))
    }
}

fn broken(url: &str, offset: u64, error: &dyn Display) -> Error {
    Error::Stream { shard: url.to_owned(), offset, message: message_without_secrets(&error.to_string()) }
}

impl Shards for Remote {
    fn count(&self) -> usize {
        self.shards.len()
    }

    fn name(&self, shard: usize) -> String {
        self.shards[shard].url.clone()
    }

    fn find(&self, shard: usize, stopped: &Arc<AtomicBool>) -> Result<Box<dyn Shard>> {
        let (fetch, fetcher) = (Arc::new(self.find(shard, stopped)?), Arc::clone(&self.fetcher));
        Ok(Box::new(RemoteShard { fetch, fetcher, stopped: Arc::clone(stopped) }))
    }

    fn seekable(&self) -> bool {
        true
    }

    fn memory_bytes(&self) -> u64 {
        (AHEAD as u64 + 1) * RANGE_BYTES
    }
}

/// One remote shard of a stream.
struct RemoteShard {
    fetch: Arc<Fetch>,
    fetcher: Arc<Fetcher>,
    stopped: Arc<AtomicBool>,
}

impl Shard for RemoteShard {
    fn version(&self) -> u64 {
        self.fetch.version_number()
    }

    fn read(&self, part: Range<u64>) -> Result<Box<dyn Read + Send>> {
        let (fetch, fetcher) = (Arc::clone(&self.fetch), Arc::clone(&self.fetcher));
        Ok(Box::new(Ranges::new(fetch, fetcher, Arc::clone(&self.stopped), part)))
    }
}

/// Returns the length of an object and its bytes from front to back; `None` if it does not exist.
pub(crate) fn open(object: &Object, fetcher: &Arc<Fetcher>) -> Result<Option<(u64, Box<dyn Read + Send>)>> {
    let (asked, stopped) = (object.clone(), Arc::default());
    let head = fetcher.fetch(async move { patiently(|| asked.head()).await }).wait(&stopped);
    let meta = match head.map_err(|error| broken(&object.url, 0, &error))? {
        Ok(meta) => meta,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(Error::io("read", &object.url)(told(error))),
    };
    let len_bytes = meta.size;
    let fetch = Arc::new(Fetch { object: object.clone(), meta, cache: None });
    Ok(Some((len_bytes, Box::new(Ranges::new(fetch, Arc::clone(fetcher), stopped, 0..len_bytes)))))
}

/// Samples that are fetched before they are read, the oldest first.
#[derive(Default)]
struct Ahead {
    coming: VecDeque<Coming>,
    len_bytes: u64,
}

struct Coming {
    sample: (usize, u64),
    len_bytes: u64,
    bytes: Answer<io::Result<Vec<u8>>>,
}

impl Ahead {
    /// Makes room for a sample of `len_bytes` by dropping the oldest ones.
    fn make_room(&mut self, len_bytes: u64) {
        while (self.len_bytes + len_bytes > AHEAD_BYTES || self.coming.len() == AHEAD_SAMPLES)
            && let Some(oldest) = self.coming.pop_front()
        {
            self.len_bytes -= oldest.len_bytes;
        }
    }

    fn position(&self, sample: (usize, u64)) -> Option<usize> {
        self.coming.iter().position(|coming| coming.sample == sample)
    }

    fn take(&mut self, sample: (usize, u64)) -> Option<Answer<io::Result<Vec<u8>>>> {
        let coming = self.position(sample).and_then(|at| self.coming.remove(at))?;
        self.len_bytes -= coming.len_bytes;
        Some(coming.bytes)
    }
}

/// Random access to a shard.
struct RemoteBytes {
    /// The shard's number.
    number: usize,
    fetch: Arc<Fetch>,
    fetcher: Arc<Fetcher>,
    ahead: Arc<Mutex<Ahead>>,
}

impl RemoteBytes {
    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the fetched bytes and copies them into `buffer`.
    fn fill(
        &self,
        buffer: &mut [u8],
        offset: u64,
        coming: Answer<io::Result<Vec<u8>>>,
        stopped: &AtomicBool,
    ) -> Result<()> {
        let bytes = coming.wait(stopped).and_then(|bytes| bytes);
        buffer.copy_from_slice(&bytes.map_err(|error| broken(&self.fetch.object.url, offset, &error))?);
        Ok(())
    }

    /// Starts to fetch a sample's bytes from the cache or the store.
    fn sample(&self, offset: u64, len_bytes: u64) -> Answer<io::Result<Vec<u8>>> {
        let fetch = Arc::clone(&self.fetch);
        self.fetcher.fetch(async move { fetch.range(offset, offset + len_bytes).await })
    }
}

impl ReadAt for RemoteBytes {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let (fetch, end) = (Arc::clone(&self.fetch), offset + buffer.len() as u64);
        let coming = self.fetcher.fetch(async move { fetch.ask(offset, end).await });
        self.fill(buffer, offset, coming, &AtomicBool::new(false))
    }

    fn read_sample(&self, buffer: &mut [u8], offset: u64, stopped: &AtomicBool) -> Result<()> {
        let coming = self.ahead().take((self.number, offset));
        let coming = coming.unwrap_or_else(|| self.sample(offset, buffer.len() as u64));
        self.fill(buffer, offset, coming, stopped)
    }

    fn prefetch(&self, offset: u64, len_bytes: u64) {
        let (mut ahead, sample) = (self.ahead(), (self.number, offset));
        if len_bytes > AHEAD_BYTES || ahead.position(sample).is_some() {
            return;
        }
        ahead.make_room(len_bytes);
        let bytes = self.sample(offset, len_bytes);
        ahead.len_bytes += len_bytes;
        ahead.coming.push_back(Coming { sample, len_bytes, bytes });
    }

    fn delay_bytes(&self) -> u64 {
        DELAY_BYTES
    }
}

/// A shard's bytes from front to back, in ranges that are being fetched.
struct Ranges {
    fetch: Arc<Fetch>,
    fetcher: Arc<Fetcher>,
    stopped: Arc<AtomicBool>,
    /// Offset of the next range to request.
    asked: u64,
    /// End of the last range.
    end: u64,
    coming: VecDeque<Answer<io::Result<Vec<u8>>>>,
    current: io::Cursor<Vec<u8>>,
}

impl Ranges {
    fn new(fetch: Arc<Fetch>, fetcher: Arc<Fetcher>, stopped: Arc<AtomicBool>, part: Range<u64>) -> Self {
        let (coming, current) = Default::default();
        let end = part.end.min(fetch.meta.size);
        let mut ranges = Self { fetch, fetcher, stopped, asked: part.start, end, coming, current };
        ranges.ask();
        ranges
    }

    /// Requests ranges until [`AHEAD`] are being fetched.
    fn ask(&mut self) {
        while self.coming.len() < AHEAD && self.asked < self.end {
            // All ranges but the first start at multiples of RANGE_BYTES, so that cached ranges can be used again.
            let end = (self.asked + 1).next_multiple_of(RANGE_BYTES).min(self.end);
            let (fetch, start) = (Arc::clone(&self.fetch), self.asked);
            self.coming.push_back(self.fetcher.fetch(async move { fetch.range(start, end).await }));
            self.asked = end;
        }
    }
}

impl Read for Ranges {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.current.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(coming) = self.coming.pop_front() else { return Ok(0) };
            self.ask();
            self.current = io::Cursor::new(coming.wait(&self.stopped)??);
        }
    }
}

/// The head of a shard and its cache, with which its ranges are fetched.
struct Fetch {
    object: Object,
    meta: ObjectMeta,
    cache: Option<Arc<Cache>>,
}

impl Fetch {
    /// Returns a range from the cache, or fetches it from the store and adds it to the cache.
    async fn range(&self, start: u64, end: u64) -> io::Result<Vec<u8>> {
        if let Some(bytes) = self.cache.as_ref().and_then(|cache| cache.get(&self.key(start, end), end - start)) {
            return Ok(bytes);
        }
        let bytes = self.ask(start, end).await?;
        if let Some(cache) = &self.cache {
            cache.put(&self.key(start, end), &bytes);
        }
        Ok(bytes)
    }

    /// Fetches a range from the store.
    async fn ask(&self, start: u64, end: u64) -> io::Result<Vec<u8>> {
        if start == end {
            return Ok(Vec::new());
        }
        let bytes = self.object.range(&self.meta, start..end);
        bytes.await.map_err(|error| match error {
            object_store::Error::Precondition { .. } => io::Error::other("it has changed since it was opened"),
            other => io::Error::other(other),
        })
    }

    /// Identifies this version of the shard among those at its address.
    fn version(&self) -> String {
        let changed = self.meta.last_modified.timestamp_millis();
        format!("{:?}\n{changed}\n{}", self.meta.e_tag, self.meta.size)
    }

    /// A hash of [`version`](Self::version).
    fn version_number(&self) -> u64 {
        let hash = Sha256::digest(self.version());
        hash.first_chunk().map_or(0, |start| u64::from_le_bytes(*start))
    }

    /// Returns a range's name in the cache, which depends on the URL, the version and the place.
    fn key(&self, start: u64, end: u64) -> String {
        let url = match &self.object.variant {
            Some(variant) => format!("{}?{variant}", self.object.url),
            None => self.object.url.clone(),
        };
        let text = format!("{url}\n{}\n{start}\n{end}", self.version());
        hex(&Sha256::digest(text)[..16])
    }
}
