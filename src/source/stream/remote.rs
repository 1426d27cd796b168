//! Remote shards: at web servers that know ranges, in S3 and stores like it, at Google and in Azure.
//!
//! Read from front to back, a shard is fetched in ranges of [`RANGE_BYTES`], [`AHEAD`] of them at once. A range that does
//! not come is asked for again, with growing pauses; what came before it is kept. A shard that changes meanwhile is noticed
//! by its tag.

use super::cache::{Cache, ShardCache};
use super::fetcher::{Answer, Fetcher};
use super::http::{Connector, Login, Secret};
use super::shards::{Shard, Shards};
use crate::error::{Error, Result};
use crate::source::address::{Address, message_without_secrets};
use crate::source::records::{self, AHEAD_BYTES};
use crate::source::spec::{self, MAX_NAMES};
use crate::source::window::ReadAt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path as ObjectPath;
use object_store::{ClientConfigKey, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, ObjectStoreScheme};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
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
    fetcher: Arc<Fetcher>,
    ahead: Arc<Mutex<Ahead>>,
    cache: Option<Arc<Cache>>,
}

/// A shard in its store.
#[derive(Clone)]
struct Object {
    /// Its URL, as it may be printed.
    url: String,
    store: Arc<dyn ObjectStore>,
    path: ObjectPath,
    /// What of the URL's query tells it from others; `None` without a query.
    variant: Option<String>,
}

impl Remote {
    /// The shards that the braces of `address` stand for, which are not asked for yet.
    pub fn new(address: Address<'_>, cache: Option<ShardCache>) -> Result<Self> {
        // Whoever has chosen another provider already keeps it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cache = cache.map(Cache::open).transpose()?.map(Arc::new);
        let mut stores = HashMap::new();
        let urls = spec::expand(&address.public())?;
        let shards = urls.into_iter().map(|url| object(url, address, &mut stores)).collect::<Result<_>>()?;
        Ok(Self { shards, fetcher: Arc::new(Fetcher::start()?), ahead: Arc::default(), cache })
    }

    /// The shards in the folder at `address`, sorted, as far as `fits` takes their names.
    pub fn list(address: Address<'_>, fits: impl Fn(&str) -> bool, cache: Option<ShardCache>) -> Result<Self> {
        let mut this = Self::new(address, cache)?;
        let mut folders = std::mem::take(&mut this.shards).into_iter();
        let (Some(folder), None) = (folders.next(), folders.next()) else {
            return Err(refused("a pattern with braces or with wildcards, not with both", &address.public()));
        };
        let (store, path) = (Arc::clone(&folder.store), folder.path.clone());
        let listing = async move { patiently(|| store.list_with_delimiter(Some(&path))).await };
        let found = this.fetcher.fetch(listing).wait(&AtomicBool::new(false));
        let found = found.and_then(|found| found.map_err(io::Error::other));
        let found = found.map_err(|error| broken(&folder.url, 0, &error))?;
        let mut paths: Vec<ObjectPath> = found.objects.into_iter().map(|object| object.location).collect();
        paths.retain(|path| path.filename().is_some_and(&fits));
        if paths.len() > MAX_NAMES {
            return Err(refused(&format!("a pattern for at most {MAX_NAMES} shards"), &folder.url));
        }
        paths.sort_unstable();
        this.shards.extend(paths.into_iter().map(|path| Object {
            url: format!("{}/{}", folder.url.trim_end_matches('/'), path.filename().unwrap_or_default()),
            path,
            ..folder.clone()
        }));
        Ok(this)
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

/// The object at `url`, one of those that `address` stands for. Shards of one host or bucket share their store.
fn object(url: String, address: Address<'_>, stores: &mut HashMap<String, Arc<dyn ObjectStore>>) -> Result<Object> {
    let wrong = |expected: &str| refused(expected, &url);
    let schemes = "a URL that begins with http://, https://, s3://, gs:// or az://";
    let parsed = Url::parse(&url).map_err(|error| refused(schemes, &format!("{url}: {error}")))?;
    let is_http = ["http", "https"].contains(&parsed.scheme());
    if address.query.is_some() && !is_http {
        return Err(wrong("a URL without a query, or a signed one that begins with https://"));
    }
    if address.login.is_some() && !is_http {
        return Err(wrong(
            "a URL without a login: credentials of stores are taken from their variables, AWS_ACCESS_KEY_ID",
        ));
    }
    let connector = Connector {
        logins: address.login.and_then(|login| Login::basic(&parsed, login)).into_iter().collect(),
        query: address.query.map(|query| Secret(query.to_owned())),
        ..Connector::default()
    };
    // A login or a signature is for a web server, whoever it is.
    let (scheme, path) = if !connector.logins.is_empty() || connector.query.is_some() {
        let path =
            ObjectPath::from_url_path(parsed.path()).map_err(|error| refused(schemes, &format!("{url}: {error}")))?;
        (ObjectStoreScheme::Http, path)
    } else {
        ObjectStoreScheme::parse(&parsed).map_err(|error| refused(schemes, &format!("{url}: {error}")))?
    };
    let variant = address.query.map(unsigned);
    let host = parsed[..url::Position::BeforePath].to_owned();
    if let Some(store) = stores.get(&host) {
        return Ok(Object { url, store: Arc::clone(store), path, variant });
    }
    let store = store(scheme, &parsed, connector)
        .map_err(|error| refused(schemes, &message_without_secrets(&format!("{url}: {error}"))))?;
    stores.insert(host, Arc::clone(&store));
    Ok(Object { url, store, path, variant })
}

/// The store of a URL.
fn store(scheme: ObjectStoreScheme, url: &Url, mut connector: Connector) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut plain = url.scheme() == "http";
    if scheme == ObjectStoreScheme::Http {
        let host = HttpBuilder::new().with_url(&url[..url::Position::BeforePath]);
        let host = host.with_config(ClientConfigKey::AllowHttp, plain.to_string());
        return Ok(Arc::new(host.with_http_connector(connector).build()?));
    }
    // Credentials, endpoint and region are taken from where the stores' own programs have them.
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str()?.to_ascii_lowercase();
        let ours = ["aws_", "google_", "azure_"].iter().any(|start| name.starts_with(start));
        Some((name, value.to_str()?.to_owned())).filter(|_| ours)
    });
    let mut options: Vec<(String, String)> = variables.collect();
    // Of a server that plays the store.
    let is_endpoint = |name: &str| name.contains("endpoint") || name == "google_base_url";
    for (_, endpoint) in options.iter_mut().filter(|(name, _)| is_endpoint(name)) {
        plain |= endpoint.starts_with("http://");
        if let Some(address) = Address::parse(endpoint)
            && let Some(login) = address.login
            && let Ok(url) = Url::parse(&address.public())
        {
            connector.logins.extend(Login::basic(&url, login));
            *endpoint = address.public();
        }
    }
    if plain {
        options.push(("allow_http".to_owned(), "true".to_owned()));
    }
    macro_rules! built {
        ($builder:ty) => {{
            let builder = options.into_iter().fold(<$builder>::new(), |builder, (key, value)| match key.parse() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            });
            Arc::new(builder.with_url(url.as_str()).with_http_connector(connector).build()?)
        }};
    }
    Ok(match scheme {
        ObjectStoreScheme::AmazonS3 => built!(AmazonS3Builder),
        ObjectStoreScheme::GoogleCloudStorage => built!(GoogleCloudStorageBuilder),
        ObjectStoreScheme::MicrosoftAzure => built!(MicrosoftAzureBuilder),
        other => {
            let source = format!("{other:?} is no store of shards").into();
            return Err(object_store::Error::Generic { store: "URL", source });
        }
    })
}

/// What of a query tells one object from another: all but what signs it, which is another each time.
fn unsigned(query: &str) -> String {
    /// AWS's and Google's signatures of old, CloudFront's, and Azure's.
    const SIGNS: &str = "awsaccesskeyid googleaccessid signature expires policy key-pair-id hash-algorithm token \
                         sig se st sp sv sr spr sip ses si ss srt skoid sktid skt ske sks skv";
    let signs = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.starts_with("x-amz-") || name.starts_with("x-goog-") || SIGNS.split(' ').any(|sign| sign == name)
    };
    let named = query.split('&').filter(|part| !signs(part.split('=').next().unwrap_or_default()));
    named.collect::<Vec<_>>().join("&")
}

fn refused(expected: &str, got: &str) -> Error {
    Error::parameter("open", "source", expected, got)
}

fn broken(url: &str, offset: u64, error: &dyn Display) -> Error {
    Error::Stream { shard: url.to_owned(), offset, message: message_without_secrets(&error.to_string()) }
}

impl Object {
    /// What it is, as it is now.
    async fn head(&self) -> object_store::Result<ObjectMeta> {
        if self.variant.is_none() {
            return self.store.head(&self.path).await;
        }
        // What is signed is signed for reading alone.
        let options = GetOptions { range: Some((0..1).into()), ..GetOptions::default() };
        Ok(self.store.get_opts(&self.path, options).await?.meta)
    }
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
        let mut ranges = Ranges {
            fetch: Arc::clone(&self.fetch),
            fetcher: Arc::clone(&self.fetcher),
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
        let url = match &self.object.variant {
            Some(variant) => format!("{}?{variant}", self.object.url),
            None => self.object.url.clone(),
        };
        let text = format!("{url}\n{}\n{start}\n{end}", self.version());
        Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}
