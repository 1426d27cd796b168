//! Shards that lie far away: at web servers that know ranges, in S3 and stores like it, at Google and in Azure.
//!
//! A shard is fetched in ranges of [`RANGE_BYTES`], [`AHEAD`] of them at once. A range that does not come is asked for
//! again, with growing pauses; what came before it is kept. A shard that changes meanwhile is noticed by its tag.

use super::shards::{Shard, Shards};
use crate::atomic;
use crate::error::{Error, Result};
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, parse_url_opts};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use std::{fmt, fs};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use url::Url;

/// Bytes that are fetched at once: long enough that a request's delay does not count, as S3's makers advise (8 to 16 MB).
const RANGE_BYTES: u64 = 8 << 20;

/// Ranges of a shard that are fetched side by side.
const AHEAD: usize = 4;

/// How often a range is asked for. Within each, the client itself repeats requests that get no answer or a 5xx.
const ATTEMPTS: u32 = 5;

/// The first pause before a range is asked for again; each is twice the one before.
const PAUSE: Duration = Duration::from_millis(100);

/// Where fetched ranges are kept on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamCache {
    /// The folder, which is made if it is missing. Several processes may share it.
    pub folder: PathBuf,
    /// Bytes that the ranges in it take at most; the oldest make room.
    pub size_bytes: u64,
}

/// Shards at URLs.
pub(in crate::source) struct Remote {
    shards: Vec<Object>,
    runtime: Arc<Runtime>,
    cache: Option<StreamCache>,
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
        if let Some(cache) = &cache {
            fs::create_dir_all(&cache.folder).map_err(Error::io("make the folder", &cache.folder))?;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| Error::Device {
            call: "start the thread that fetches shards".into(),
            message: error.to_string(),
        })?;
        let mut stores = HashMap::new();
        let shards = urls.into_iter().map(|url| object(url, &mut stores)).collect::<Result<_>>()?;
        Ok(Self { shards, runtime: Arc::new(runtime), cache })
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
    let endpoint = options.iter().any(|(name, value)| name.starts_with("aws_endpoint") && value.starts_with("http://"));
    if parsed.scheme() == "http" || endpoint {
        options.push(("allow_http".to_owned(), "true".to_owned()));
    }
    let (store, path) = parse_url_opts(&parsed, options).map_err(|error| wrong(error.to_string()))?;
    let host = parsed[..url::Position::BeforePath].to_owned();
    let store = Arc::clone(stores.entry(host).or_insert_with(|| store.into()));
    Ok(Object { url, store, path })
}

fn broken(url: &str, offset: u64, error: &object_store::Error) -> Error {
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
        let object = self.shards[shard].clone();
        let head = unless(stopped, patiently(|| object.store.head(&object.path)));
        let gone = |error: &dyn fmt::Display| Error::Stream {
            shard: object.url.clone(),
            offset: 0,
            message: error.to_string(),
        };
        let meta = self.runtime.block_on(head).map_err(|error| gone(&error))?.map_err(|error| gone(&error))?;
        let (runtime, cache) = (Arc::clone(&self.runtime), self.cache.clone());
        Ok(Box::new(FarShard { fetch: Arc::new(Fetch { object, meta, cache }), runtime, stopped: Arc::clone(stopped) }))
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
        let hash = Sha256::digest(self.fetch.version());
        hash.first_chunk().map_or(0, |start| u64::from_le_bytes(*start))
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
    cache: Option<StreamCache>,
}

impl Fetch {
    async fn range(&self, start: u64, end: u64) -> io::Result<Vec<u8>> {
        if let Some(bytes) = self.cache.as_ref().and_then(|cache| cache.get(&self.key(start, end), end - start)) {
            return Ok(bytes);
        }
        let bytes = patiently(|| async {
            let options = GetOptions { if_match: self.meta.e_tag.clone(), ..GetOptions::default() };
            let options = GetOptions { range: Some((start..end).into()), ..options };
            let bytes = self.object.store.get_opts(&self.object.path, options).await?.bytes().await?;
            if bytes.len() as u64 == end - start {
                return Ok(Vec::from(bytes));
            }
            let short = format!("{} bytes came instead of {}", bytes.len(), end - start);
            Err(object_store::Error::Generic { store: "range", source: short.into() })
        });
        let bytes = bytes.await.map_err(io::Error::other)?;
        if let Some(cache) = &self.cache {
            cache.put(&self.key(start, end), &bytes);
        }
        Ok(bytes)
    }

    /// By what a shard is known from one that was at its address before.
    fn version(&self) -> String {
        let changed = self.meta.last_modified.timestamp_millis();
        format!("{:?}\n{changed}\n{}", self.meta.e_tag, self.meta.size)
    }

    /// What a range is called in the cache: by where it is from, and which version of that.
    fn key(&self, start: u64, end: u64) -> String {
        let text = format!("{}\n{}\n{start}\n{end}", self.object.url, self.version());
        let mut name: String = Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        name.push_str(ENDING);
        name
    }
}

/// The ending of the cache's files, by which it knows them from others.
const ENDING: &str = ".warpfeed-range";

/// A cache that cannot be read or written is none: the range is fetched.
impl StreamCache {
    fn get(&self, key: &str, len_bytes: u64) -> Option<Vec<u8>> {
        let path = self.folder.join(key);
        let mut file = fs::File::options().read(true).append(true).open(path).ok()?;
        if file.metadata().ok()?.len() != len_bytes + 4 {
            return None;
        }
        let mut bytes = Vec::with_capacity(len_bytes as usize + 4);
        file.read_to_end(&mut bytes).ok()?;
        let crc = u32::from_le_bytes(*bytes.last_chunk()?);
        bytes.truncate(len_bytes as usize);
        // What was used lately goes last.
        let _ = file.set_modified(SystemTime::now());
        (crc32c::crc32c(&bytes) == crc).then_some(bytes)
    }

    fn put(&self, key: &str, bytes: &[u8]) {
        let needed = bytes.len() as u64 + 4;
        if self.make_room(needed).is_some() {
            let crc = crc32c::crc32c(bytes).to_le_bytes();
            let _ =
                atomic::write(&self.folder.join(key), |file| file.write_all(bytes).and_then(|()| file.write_all(&crc)));
        }
    }

    /// Removes the oldest ranges until `needed` bytes have room; `None` if they cannot.
    fn make_room(&self, needed: u64) -> Option<()> {
        let room = self.size_bytes.checked_sub(needed)?;
        let mut ranges = Vec::new();
        for entry in fs::read_dir(&self.folder).ok()? {
            let entry = entry.ok()?;
            // What a killed process has left half written counts too.
            if entry.file_name().to_str().is_some_and(|name| name.contains(ENDING))
                && let Ok(metadata) = entry.metadata()
            {
                ranges.push((metadata.modified().ok()?, metadata.len(), entry.path()));
            }
        }
        ranges.sort_unstable();
        let mut taken: u64 = ranges.iter().map(|(_, len_bytes, _)| len_bytes).sum();
        for (_, len_bytes, path) in ranges {
            if taken <= room {
                break;
            }
            fs::remove_file(path).ok()?;
            taken -= len_bytes;
        }
        (taken <= room).then_some(())
    }
}
