//! Remote shards: at web servers that know ranges, in S3 and stores like it, at Google and in Azure.
//!
//! Read from front to back, a shard is fetched in ranges of [`RANGE_BYTES`], [`AHEAD`] of them at once. A range that does
//! not come is asked for again, with growing pauses; what came before it is kept. A shard that changes meanwhile is noticed
//! by its tag.

use super::cache::{Cache, ShardCache};
use super::shards::{Shard, Shards};
use crate::address::{Address, message_without_secrets};
use crate::error::{Error, Result};
use crate::file::read_up_to;
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

/// Bytes that are fetched at once: long enough that a request's delay does not count, as S3's makers advise (8 to 16 MB).
const RANGE_BYTES: u64 = 8 << 20;

/// What a request's delay costs beside its bytes: 10 to 20 ms at the 2 MB/s that each of so many gets of a fast line.
const DELAY_BYTES: u64 = 32 << 10;

/// Shards whose headers are read side by side where an index is made.
pub(in crate::source) const SCANS: usize = 64;

/// So many samples that were announced are fetched before they are read.
const AHEAD_SAMPLES: usize = 256;

/// Ranges of a shard that are fetched side by side.
const AHEAD: usize = 4;

/// Shards at URLs.
pub(in crate::source) struct Remote {
    shards: Vec<Object>,
    /// What `warpfeed pack` has written down beside them.
    packed: Option<Object>,
    fetcher: Arc<Fetcher>,
    ahead: Arc<Mutex<Ahead>>,
    cache: Option<Arc<Cache>>,
}

impl Remote {
    /// The shards that the braces of `address` stand for, which are not asked for yet.
    pub fn new(address: Address<'_>, cache: Option<ShardCache>) -> Result<Self> {
        let cache = cache.map(Cache::open).transpose()?.map(Arc::new);
        let mut servers = HashMap::new();
        let urls = spec::expand(&address.public())?;
        let shards = urls.into_iter().map(|url| Object::new(url, address, &mut servers)).collect::<Result<_>>()?;
        Ok(Self { shards, packed: None, fetcher: Arc::new(Fetcher::start()?), ahead: Arc::default(), cache })
    }

    /// The shards in the folder at `address`, sorted, as far as `fits` takes their names.
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

    /// What `warpfeed pack` says of a folder that was listed, if it made the shards. A folder that it has not finished is
    /// refused.
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

    /// How the ranges of a shard are had, as it is now.
    fn find(&self, shard: usize, stopped: &AtomicBool) -> Result<Fetch> {
        let object = self.shards[shard].clone();
        let asked = object.clone();
        let head = self.fetcher.fetch(async move { patiently(|| asked.head()).await }).wait(stopped);
        let meta = head.and_then(|head| head.map_err(io::Error::other));
        let meta = meta.map_err(|error| broken(&object.url, 0, &error))?;
        Ok(Fetch { object, meta, cache: self.cache.clone() })
    }

    /// A shard as it is now, for reading at any position.
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

/// One shard.
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

/// The length of an object and its bytes from front to back; `None` if there is none.
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

/// Samples that are fetched before they are read, by shard and offset, the oldest first.
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
    /// Makes room, by giving up samples that nobody has read.
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

/// The bytes of a shard at any position.
struct RemoteBytes {
    /// Which of the shards it is.
    number: usize,
    fetch: Arc<Fetch>,
    fetcher: Arc<Fetcher>,
    ahead: Arc<Mutex<Ahead>>,
}

impl RemoteBytes {
    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills `buffer` with what comes.
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

    /// A sample's bytes, from the cache or the store.
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

/// Bytes of a shard on their way.
struct Ranges {
    fetch: Arc<Fetch>,
    fetcher: Arc<Fetcher>,
    stopped: Arc<AtomicBool>,
    /// Where the range begins that is asked for next.
    asked: u64,
    /// Where the last one ends.
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

    /// Has as many ranges on their way as may be.
    fn ask(&mut self) {
        while self.coming.len() < AHEAD && self.asked < self.end {
            // Ranges begin at the same bytes wherever reading begins, so that those in the cache serve.
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

/// How the ranges of a shard are had.
struct Fetch {
    object: Object,
    meta: ObjectMeta,
    cache: Option<Arc<Cache>>,
}

impl Fetch {
    /// From the cache, or from the store and then kept.
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

    /// From the store.
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

    /// By what a shard is known from one that was at its address before.
    fn version(&self) -> String {
        let changed = self.meta.last_modified.timestamp_millis();
        format!("{:?}\n{changed}\n{}", self.meta.e_tag, self.meta.size)
    }

    /// The same as a number.
    fn version_number(&self) -> u64 {
        let hash = Sha256::digest(self.version());
        hash.first_chunk().map_or(0, |start| u64::from_le_bytes(*start))
    }

    /// What a range is called in the cache: by where it is from, and which version of that.
    fn key(&self, start: u64, end: u64) -> String {
        let url = match &self.object.variant {
            Some(variant) => format!("{}?{variant}", self.object.url),
            None => self.object.url.clone(),
        };
        let text = format!("{url}\n{}\n{start}\n{end}", self.version());
        Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}
