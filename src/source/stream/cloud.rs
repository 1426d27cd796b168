//! Shards that lie far away: at web servers that know ranges, in S3 and stores like it, at Google and in Azure.
//!
//! Read from front to back, a shard is fetched in ranges of [`RANGE_BYTES`], [`AHEAD`] of them at once. A range that does not come is asked for
//! again, with growing pauses; what came before it is kept. A shard that changes meanwhile is noticed by its tag.

use super::cache::{Cache, StreamCache};
use super::shards::{Shard, Shards};
use crate::error::{Error, Result};
use crate::source::records::{self, AHEAD_BYTES};
use crate::source::window::ReadAt;
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, parse_url_opts};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use url::Url;

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

/// How often a range is asked for. Within each, the client itself repeats requests that get no answer or a 5xx.
const ATTEMPTS: u32 = 5;

/// The first pause before a range is asked for again; each is twice the one before.
const PAUSE: Duration = Duration::from_millis(100);

/// Shards at URLs.
pub(in crate::source) struct Remote {
    shards: Vec<Object>,
    runtime: Arc<Runtime>,
    ahead: Arc<Mutex<Ahead>>,
    cache: Option<Arc<Cache>>,
}

/// A shard in its store.
#[derive(Clone)]
struct Object {
    url: String,
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
}

impl Remote {
    /// The shards at `urls`, which are not asked for yet.
    pub fn new(urls: Vec<String>, cache: Option<StreamCache>) -> Result<Self> {
        // Whoever has chosen another provider already keeps it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cache = cache.map(Cache::open).transpose()?.map(Arc::new);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| Error::Device {
            call: "start the thread that fetches shards".into(),
            message: error.to_string(),
        })?;
        let mut stores = HashMap::new();
        let shards = urls.into_iter().map(|url| object(url, &mut stores)).collect::<Result<_>>()?;
        Ok(Self { shards, runtime: Arc::new(runtime), ahead: Arc::default(), cache })
    }

    /// The shards whose names begin with `url`, sorted, as far as `fits` takes their names.
    pub fn list(url: &str, fits: impl Fn(&str) -> bool, cache: Option<StreamCache>) -> Result<Self> {
        let mut this = Self::new(vec![url.to_owned()], cache)?;
        let folder = this.shards.remove(0);
        let found = this.runtime.block_on(patiently(|| folder.store.list_with_delimiter(Some(&folder.path))));
        let found = found.map_err(|error| broken(url, 0, &error))?;
        let mut paths: Vec<ObjectPath> = found.objects.into_iter().map(|object| object.location).collect();
        paths.retain(|path| path.filename().is_some_and(&fits));
        paths.sort_unstable();
        this.shards.extend(paths.into_iter().map(|path| Object {
            url: format!("{}/{}", url.trim_end_matches('/'), path.filename().unwrap_or_default()),
            store: Arc::clone(&folder.store),
            path,
        }));
        Ok(this)
    }

    /// How the ranges of a shard are had, as it is now.
    fn fetch(&self, shard: usize, stopped: &AtomicBool) -> Result<Fetch> {
        let object = self.shards[shard].clone();
        let head = unless(stopped, patiently(|| object.store.head(&object.path)));
        let head = self.runtime.block_on(head).and_then(|head| head.map_err(io::Error::other));
        let meta = head.map_err(|error| broken(&object.url, 0, &error))?;
        Ok(Fetch { object, meta, cache: self.cache.clone() })
    }

    /// A shard as it is now, for reading at any position.
    pub fn shard(&self, shard: usize) -> Result<records::Shard> {
        let fetch = self.fetch(shard, &AtomicBool::new(false))?;
        let (name, len_bytes, version) = (fetch.object.url.clone(), fetch.meta.size, fetch.version_number());
        let (fetch, runtime, ahead) = (Arc::new(fetch), Arc::clone(&self.runtime), Arc::clone(&self.ahead));
        let bytes = FarBytes { number: shard, fetch, runtime, ahead };
        Ok(records::Shard::far(&name, len_bytes, version, Box::new(bytes)))
    }
}

/// The store's part that a URL names, and the object in it. Shards of one host or bucket share their store.
fn object(url: String, stores: &mut HashMap<String, Arc<dyn ObjectStore>>) -> Result<Object> {
    let wrong = |got: String| {
        let expected = "a URL that begins with http://, https://, s3://, gs:// or az://";
        Error::parameter("open", "source", expected, format!("{url}: {got}"))
    };
    let parsed = Url::parse(&url).map_err(|error| wrong(error.to_string()))?;
    if parsed.query().is_some() {
        return Err(wrong("it has a query, which would be left out".to_owned()));
    }
    // Credentials, endpoint and region are taken from where the stores' own programs have them.
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str()?.to_ascii_lowercase();
        let ours = ["aws_", "google_", "azure_"].iter().any(|start| name.starts_with(start));
        Some((name, value.to_str()?.to_owned())).filter(|_| ours)
    });
    let mut options: Vec<(String, String)> = variables.collect();
    // Of a server that plays the store.
    let endpoint = |name: &str| name.contains("endpoint") || name == "google_base_url";
    let plain = options.iter().any(|(name, value)| endpoint(name) && value.starts_with("http://"));
    if parsed.scheme() == "http" || plain {
        options.push(("allow_http".to_owned(), "true".to_owned()));
    }
    let (store, path) = parse_url_opts(&parsed, options).map_err(|error| wrong(error.to_string()))?;
    let host = parsed[..url::Position::BeforePath].to_owned();
    let store = Arc::clone(stores.entry(host).or_insert_with(|| store.into()));
    Ok(Object { url, store, path })
}

fn broken(url: &str, offset: u64, error: &dyn Display) -> Error {
    Error::Stream { shard: url.to_owned(), offset, message: error.to_string() }
}

impl Shards for Remote {
    fn count(&self) -> usize {
        self.shards.len()
    }

    fn name(&self, shard: usize) -> String {
        self.shards[shard].url.clone()
    }

    fn find(&self, shard: usize, stopped: &Arc<AtomicBool>) -> Result<Box<dyn Shard>> {
        let (fetch, runtime) = (Arc::new(self.fetch(shard, stopped)?), Arc::clone(&self.runtime));
        Ok(Box::new(FarShard { fetch, runtime, stopped: Arc::clone(stopped) }))
    }

    fn seekable(&self) -> bool {
        true
    }

    fn memory_bytes(&self) -> u64 {
        (AHEAD as u64 + 1) * RANGE_BYTES
    }
}

/// Asks again, after pauses, while what went wrong may pass.
async fn patiently<T, F>(ask: impl Fn() -> F) -> object_store::Result<T>
where
    F: Future<Output = object_store::Result<T>>,
{
    let mut attempt = 1;
    loop {
        match ask().await {
            Err(object_store::Error::Generic { .. }) if attempt < ATTEMPTS => {
                tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
                attempt += 1;
            }
            other => return other,
        }
    }
}

/// How often those who wait look whether they are to go on.
const LOOK: Duration = Duration::from_millis(50);

/// What comes of `work`, unless it is `stopped` before.
async fn unless<T>(stopped: &AtomicBool, work: impl Future<Output = T>) -> io::Result<T> {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(LOOK, &mut work).await {
            Ok(done) => return Ok(done),
            Err(_) if stopped.load(Relaxed) => return Err(io::Error::other("the epoch was dropped")),
            Err(_) => {}
        }
    }
}

/// One shard.
struct FarShard {
    fetch: Arc<Fetch>,
    runtime: Arc<Runtime>,
    stopped: Arc<AtomicBool>,
}

impl Shard for FarShard {
    fn version(&self) -> u64 {
        self.fetch.version_number()
    }

    fn read(&self, part: Range<u64>) -> Result<Box<dyn Read + Send>> {
        let mut ranges = Ranges {
            fetch: Arc::clone(&self.fetch),
            runtime: Arc::clone(&self.runtime),
            stopped: Arc::clone(&self.stopped),
            asked: part.start,
            end: part.end.min(self.fetch.meta.size),
            coming: VecDeque::new(),
            current: io::Cursor::default(),
        };
        ranges.ask();
        Ok(Box::new(ranges))
    }
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
    bytes: JoinHandle<io::Result<Vec<u8>>>,
}

impl Ahead {
    /// Makes room, by giving up samples that nobody has read.
    fn make_room(&mut self, len_bytes: u64) {
        while (self.len_bytes + len_bytes > AHEAD_BYTES || self.coming.len() == AHEAD_SAMPLES)
            && let Some(oldest) = self.coming.pop_front()
        {
            oldest.bytes.abort();
            self.len_bytes -= oldest.len_bytes;
        }
    }

    fn position(&self, sample: (usize, u64)) -> Option<usize> {
        self.coming.iter().position(|coming| coming.sample == sample)
    }

    fn take(&mut self, sample: (usize, u64)) -> Option<JoinHandle<io::Result<Vec<u8>>>> {
        let coming = self.position(sample).and_then(|at| self.coming.remove(at))?;
        self.len_bytes -= coming.len_bytes;
        Some(coming.bytes)
    }
}

/// The bytes of a shard at any position.
struct FarBytes {
    /// Which of the shards it is.
    number: usize,
    fetch: Arc<Fetch>,
    runtime: Arc<Runtime>,
    ahead: Arc<Mutex<Ahead>>,
}

impl FarBytes {
    fn take(&self, bytes: io::Result<Vec<u8>>, buffer: &mut [u8], offset: u64) -> Result<()> {
        let bytes = bytes.map_err(|error| broken(&self.fetch.object.url, offset, &error))?;
        buffer.copy_from_slice(&bytes);
        Ok(())
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadAt for FarBytes {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let bytes = self.runtime.block_on(self.fetch.ask(offset, offset + buffer.len() as u64));
        self.take(bytes, buffer, offset)
    }

    fn read_sample(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let coming = self.ahead().take((self.number, offset));
        let bytes = match coming {
            Some(coming) => self.runtime.block_on(coming).map_err(io::Error::other).and_then(|bytes| bytes),
            None => self.runtime.block_on(self.fetch.range(offset, offset + buffer.len() as u64)),
        };
        self.take(bytes, buffer, offset)
    }

    fn prefetch(&self, offset: u64, len_bytes: u64) {
        let (mut ahead, sample) = (self.ahead(), (self.number, offset));
        if len_bytes > AHEAD_BYTES || ahead.position(sample).is_some() {
            return;
        }
        ahead.make_room(len_bytes);
        let fetch = Arc::clone(&self.fetch);
        let bytes = self.runtime.spawn(async move { fetch.range(offset, offset + len_bytes).await });
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
    runtime: Arc<Runtime>,
    stopped: Arc<AtomicBool>,
    /// Where the range begins that is asked for next.
    asked: u64,
    /// Where the last one ends.
    end: u64,
    coming: VecDeque<JoinHandle<io::Result<Vec<u8>>>>,
    current: io::Cursor<Vec<u8>>,
}

impl Ranges {
    /// Has as many ranges on their way as may be.
    fn ask(&mut self) {
        while self.coming.len() < AHEAD && self.asked < self.end {
            // Ranges begin at the same bytes wherever reading begins, so that those in the cache serve.
            let end = (self.asked + 1).next_multiple_of(RANGE_BYTES).min(self.end);
            let (fetch, start) = (Arc::clone(&self.fetch), self.asked);
            self.coming.push_back(self.runtime.spawn(async move { fetch.range(start, end).await }));
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
            let range = self.runtime.block_on(unless(&self.stopped, coming))?.map_err(io::Error::other)??;
            self.current = io::Cursor::new(range);
        }
    }
}

impl Drop for Ranges {
    fn drop(&mut self) {
        self.coming.iter().for_each(JoinHandle::abort);
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
        let bytes = patiently(|| async {
            let options = GetOptions { if_match: self.meta.e_tag.clone(), ..GetOptions::default() };
            let options = GetOptions { range: Some((start..end).into()), ..options };
            let answer = self.object.store.get_opts(&self.object.path, options).await?;
            // Not every server heeds the condition.
            let tags = answer.meta.e_tag.as_ref().zip(self.meta.e_tag.as_ref());
            if tags.is_some_and(|(now, then)| now != then) || answer.meta.size != self.meta.size {
                let path = self.object.path.to_string();
                return Err(object_store::Error::Precondition { path, source: "it has changed".into() });
            }
            let bytes = answer.bytes().await?;
            if bytes.len() as u64 == end - start {
                return Ok(Vec::from(bytes));
            }
            let short = format!("{} bytes came instead of {}", bytes.len(), end - start);
            Err(object_store::Error::Generic { store: "range", source: short.into() })
        });
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
        let text = format!("{}\n{}\n{start}\n{end}", self.object.url, self.version());
        Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}
