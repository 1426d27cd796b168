//! Objects in stores (S3 and compatible stores, Google's, Azure's) and at web servers that support ranges. The HTTP
//! client below object_store adds login and query, so object_store's errors never contain these secrets. It follows
//! redirects itself, because stores' credential headers must not go to another server. TLS uses ring, because aws-lc
//! builds slowly.

mod fetcher;
mod http;

pub(crate) use fetcher::{Answer, Fetcher};

use crate::address::{Address, message_without_secrets};
use crate::error::{Error, Result};
use crate::os::file::too_long;
use http::{Connector, Login, Secret};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::multipart::MultipartStore;
use object_store::path::Path as ObjectPath;
use object_store::{
    ClientConfigKey, GetOptions, ListResult, ObjectMeta, ObjectStore, ObjectStoreExt, ObjectStoreScheme,
};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use url::Url;

/// Number of attempts for a request. Within each, the client itself repeats requests that get no answer or a 5xx.
const ATTEMPTS: u32 = 5;

/// Pause before the second attempt. Each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(100);

/// A bucket, a container, or a web server.
#[derive(Clone)]
pub(crate) struct Server {
    pub objects: Arc<dyn ObjectStore>,
    /// Interface for uploading an object in parts; `None` for a web server.
    pub uploads: Option<Arc<dyn MultipartStore>>,
    /// Bytes of the current listing so far.
    listed_bytes: Arc<AtomicU64>,
}

impl Server {
    /// Lists a folder, up to the limit of all listings.
    pub async fn list(&self, folder: &ObjectPath) -> object_store::Result<ListResult> {
        self.listed_bytes.store(0, Relaxed);
        patiently(|| self.objects.list_with_delimiter(Some(folder))).await
    }
}

/// An object in its store.
#[derive(Clone)]
pub(crate) struct Object {
    /// The URL in its printable form, without secrets.
    pub url: String,
    pub server: Server,
    pub path: ObjectPath,
    /// The part of the URL's query that distinguishes objects; `None` without a query.
    pub variant: Option<String>,
}

impl Object {
    /// The object at `url`, which is one of the URLs that `address` stands for. Objects of one host or bucket share a
    /// server.
    pub fn new(url: String, address: Address<'_>, servers: &mut HashMap<String, Server>) -> Result<Self> {
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
        // A URL with a login or a signature is read from a plain web server, whatever its host.
        let (scheme, path) = if !connector.logins.is_empty() || connector.query.is_some() {
            let path = ObjectPath::from_url_path(parsed.path())
                .map_err(|error| refused(schemes, &format!("{url}: {error}")))?;
            (ObjectStoreScheme::Http, path)
        } else {
            ObjectStoreScheme::parse(&parsed).map_err(|error| refused(schemes, &format!("{url}: {error}")))?
        };
        let variant = address.query.map(unsigned);
        let host = parsed[..url::Position::BeforePath].to_owned();
        if let Some(server) = servers.get(&host) {
            return Ok(Self { url, server: server.clone(), path, variant });
        }
        let server = connect(scheme, &parsed, connector)
            .map_err(|error| refused(schemes, &message_without_secrets(&format!("{url}: {error}"))))?;
        servers.insert(host, server.clone());
        Ok(Self { url, server, path, variant })
    }

    /// The object at `path`, in the folder that this object stands for.
    pub fn inside(&self, path: ObjectPath) -> Self {
        let url = format!("{}/{}", self.url.trim_end_matches('/'), path.filename().unwrap_or_default());
        Self { url, path, ..self.clone() }
    }

    /// The object's current size and tag.
    pub async fn head(&self) -> object_store::Result<ObjectMeta> {
        if self.variant.is_none() {
            return self.server.objects.head(&self.path).await;
        }
        // A signed URL may be signed for GET only, so the first byte is read instead.
        let options = GetOptions { range: Some((0..1).into()), ..GetOptions::default() };
        Ok(self.server.objects.get_opts(&self.path, options).await?.meta)
    }

    /// Reads a range of the object as it was when `meta` was read. [`object_store::Error::Precondition`] if it has
    /// changed.
    pub async fn range(&self, meta: &ObjectMeta, range: Range<u64>) -> object_store::Result<Vec<u8>> {
        patiently(|| async {
            let options = GetOptions { if_match: meta.e_tag.clone(), ..GetOptions::default() };
            let options = GetOptions { range: Some(range.clone().into()), ..options };
            let answer = self.server.objects.get_opts(&self.path, options).await?;
            // Not every server checks the condition.
            let tags = answer.meta.e_tag.as_ref().zip(meta.e_tag.as_ref());
            if tags.is_some_and(|(now, then)| now != then) || answer.meta.size != meta.size {
                let path = self.path.to_string();
                return Err(object_store::Error::Precondition { path, source: "it has changed".into() });
            }
            let bytes = answer.bytes().await?;
            if bytes.len() as u64 == range.end - range.start {
                return Ok(Vec::from(bytes));
            }
            let short = format!("{} bytes came instead of {}", bytes.len(), range.end - range.start);
            Err(object_store::Error::Generic { store: "range", source: short.into() })
        })
        .await
    }

    /// Reads a whole object, up to `max_bytes`, and its head. Starts again if the object changes meanwhile.
    pub async fn contents(&self, max_bytes: u64) -> object_store::Result<(Vec<u8>, ObjectMeta)> {
        /// Ranges are used because answers to requests without a range are limited to 1 MiB. Few objects need a second
        /// range.
        const RANGE_BYTES: u64 = 8 << 20;
        let mut attempt = 1;
        'anew: loop {
            let meta = patiently(|| self.head()).await?;
            if meta.size > max_bytes {
                return Err(object_store::Error::Generic { store: "size", source: too_long(max_bytes).into() });
            }
            let (size, mut contents) = (meta.size, Vec::new());
            while (contents.len() as u64) < size {
                let start = contents.len() as u64;
                match self.range(&meta, start..size.min(start + RANGE_BYTES)).await {
                    // The object was replaced meanwhile.
                    Err(object_store::Error::Precondition { .. }) if attempt < ATTEMPTS => {
                        attempt += 1;
                        continue 'anew;
                    }
                    bytes => contents.extend(bytes?),
                }
            }
            return Ok((contents, meta));
        }
    }
}

/// Connects to the server of a URL.
fn connect(scheme: ObjectStoreScheme, url: &Url, mut connector: Connector) -> object_store::Result<Server> {
    // Fails if the program has chosen another provider, which is then used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listed_bytes = Arc::clone(&connector.listed_bytes);
    let mut plain = url.scheme() == "http";
    if scheme == ObjectStoreScheme::Http {
        let host = HttpBuilder::new().with_url(&url[..url::Position::BeforePath]);
        let host = host.with_config(ClientConfigKey::AllowHttp, plain.to_string());
        let objects = Arc::new(host.with_http_connector(connector).build()?);
        return Ok(Server { objects, uploads: None, listed_bytes });
    }
    // Credentials, endpoint and region come from the same environment variables that the stores' own programs use.
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str()?.to_ascii_lowercase();
        let ours = ["aws_", "google_", "azure_"].iter().any(|start| name.starts_with(start));
        Some((name, value.to_str()?.to_owned())).filter(|_| ours)
    });
    let mut options: Vec<(String, String)> = variables.collect();
    // An endpoint is another server that speaks the store's protocol.
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
            let store = Arc::new(builder.with_url(url.as_str()).with_http_connector(connector).build()?);
            Server { objects: Arc::clone(&store) as _, uploads: Some(store), listed_bytes }
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

/// The part of a query that distinguishes objects: without signatures, which differ each time.
fn unsigned(query: &str) -> String {
    /// Parameters of AWS's and Google's old signatures, CloudFront's, and Azure's.
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
    Error::parameter("open", "address", expected, got)
}

/// Repeats a request, after pauses, while its error may be temporary.
pub(crate) async fn patiently<T, F>(ask: impl Fn() -> F) -> object_store::Result<T>
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

/// Turns a store's error into one with a remedy.
pub(crate) fn told(error: object_store::Error) -> io::Error {
    use object_store::Error as E;
    let text = message_without_secrets(&error.to_string());
    // Errors of listings contain the status only in their text.
    let says = |status: &[&str]| status.iter().any(|status| text.contains(status));
    let (kind, remedy) = match &error {
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => (io::ErrorKind::PermissionDenied, DENIED),
        E::Generic { .. } if says(&["403 Forbidden", "401 Unauthorized"]) => (io::ErrorKind::PermissionDenied, DENIED),
        E::NotFound { .. } => (io::ErrorKind::NotFound, MISSING),
        E::Generic { .. } if says(&["404 Not Found"]) => (io::ErrorKind::NotFound, MISSING),
        E::Generic { .. } => (io::ErrorKind::Other, FAILED),
        _ => (io::ErrorKind::Other, ""),
    };
    io::Error::new(kind, format!("{text}{remedy}"))
}

const DENIED: &str = "; check the credentials, and that they may list, read, write and delete there";
const MISSING: &str = "; check that the bucket or container is there";
const FAILED: &str = "; check the network and that the server is up and has room, then run the same command again";
