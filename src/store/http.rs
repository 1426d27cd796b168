//! The HTTP client below all stores: logs in, follows redirects, and limits what it reads.

use object_store::client::{
    ClientConfigKey, ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService,
};
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, LOCATION, RANGE, USER_AGENT};
use reqwest::{Client, Method, NoProxy, Proxy, Request, Response, StatusCode, Url};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Limit of all answers to one listing together, in bytes: some 300,000 shards of S3.
pub(super) const MAX_LISTING_BYTES: u64 = 128 << 20;

/// Smallest number of bytes that an answer to a listing counts as, so that endless empty answers reach the limit.
const LISTING_ANSWER_BYTES: u64 = 64 << 10;

/// Limit of an answer that is neither a listing nor a range of a shard, such as a store's login.
const MAX_OTHER_BYTES: u64 = 1 << 20;

/// Limit of an error message's bytes.
const MAX_EXPLANATION_BYTES: u64 = 4 << 10;

/// Limit of the redirects of one request.
const MAX_REDIRECTS: usize = 10;

/// The WebDAV method that lists a folder.
const LIST: &str = "PROPFIND";

/// Makes the HTTP client of one store.
#[derive(Debug, Clone, Default)]
pub(super) struct Connector {
    /// Logins, by server.
    pub logins: Vec<Login>,
    /// The query that is added to every URL.
    pub query: Option<Secret>,
    /// Bytes of the current listing so far.
    pub listed_bytes: Arc<AtomicU64>,
}

/// The login of one server.
#[derive(Debug, Clone)]
pub(super) struct Login {
    server: url::Origin,
    /// The authorization header, marked as sensitive so that it is never printed.
    authorization: HeaderValue,
}

impl Login {
    /// The login `user:password`, percent-encoded as in a URL, for the server of `url`.
    pub fn basic(url: &Url, login: &str) -> Option<Self> {
        use base64::Engine;
        let login = base64::engine::general_purpose::STANDARD.encode(percent_decoded(login));
        let mut authorization = HeaderValue::try_from(format!("Basic {login}")).ok()?;
        authorization.set_sensitive(true);
        Some(Self { server: url.origin(), authorization })
    }
}

/// Decodes a percent-encoded part of a URL.
fn percent_decoded(text: &str) -> Vec<u8> {
    let hex = |text: &str| text.get(1..3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let (mut bytes, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let encoded = (text.as_bytes()[at] == b'%').then(|| text.get(at..).and_then(hex)).flatten();
        bytes.push(encoded.unwrap_or(text.as_bytes()[at]));
        at += if encoded.is_some() { 3 } else { 1 };
    }
    bytes
}

/// Text that must not be printed.
#[derive(Clone)]
pub(super) struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = client(options).map_err(|error| {
            let source = without_url(error).into();
            object_store::Error::Generic { store: "HTTP", source }
        })?;
        Ok(HttpClient::new(Service { client, connector: self.clone() }))
    }
}

/// A client that follows no redirects: [`Service`] does, since it decides which headers are sent along.
fn client(options: &ClientOptions) -> reqwest::Result<Client> {
    let option = |key| options.get_config_value(&key);
    let is_set = |key| option(key).is_some_and(|value| value == "true");
    let after = |key| option(key).as_deref().and_then(duration);
    let mut builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        // With HTTP/2 all ranges would share one connection, which is slower.
        .http1_only()
        // Lengths must be those of the stored bytes.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .https_only(!is_set(ClientConfigKey::AllowHttp))
        .danger_accept_invalid_certs(is_set(ClientConfigKey::AllowInvalidCertificates))
        .user_agent(concat!("warpfeed/", env!("CARGO_PKG_VERSION")));
    if let Some(proxy) = option(ClientConfigKey::ProxyUrl) {
        let direct = option(ClientConfigKey::ProxyExcludes).and_then(|hosts| NoProxy::from_string(&hosts));
        builder = builder.proxy(Proxy::all(proxy)?.no_proxy(direct));
    }
    if let Some(timeout) = after(ClientConfigKey::Timeout) {
        builder = builder.timeout(timeout);
    }
    if let Some(timeout) = after(ClientConfigKey::ConnectTimeout) {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(timeout) = after(ClientConfigKey::ReadTimeout) {
        builder = builder.read_timeout(timeout);
    }
    builder.build()
}

/// Reads a duration in object_store's notation: `30s`, `1m 30s`, `500ms`.
fn duration(text: &str) -> Option<Duration> {
    text.split_whitespace().try_fold(Duration::ZERO, |sum, part| {
        let (number, unit) = part.split_at(part.find(|c: char| !c.is_ascii_digit())?);
        let number = number.parse::<u32>().ok()?;
        let unit = match unit {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3_600),
            _ => return None,
        };
        sum.checked_add(unit.checked_mul(number)?)
    })
}

/// Sends the requests of one store.
#[derive(Debug)]
struct Service {
    client: Client,
    connector: Connector,
}

impl HttpService for Service {
    fn call<'life, 'future>(
        &'life self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'future>>
    where
        'life: 'future,
        Self: 'future,
    {
        Box::pin(self.send(request))
    }
}

impl Service {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let (method, mut headers) = (parts.method, parts.headers);
        let mut url: Url = parts.uri.to_string().parse().map_err(|_| wrong("a URL that is none"))?;
        if let Some(Secret(query)) = &self.connector.query {
            url.set_query(Some(query));
        }
        if let Some(login) = self.connector.logins.iter().find(|login| login.server == url.origin()) {
            headers.entry(reqwest::header::AUTHORIZATION).or_insert_with(|| login.authorization.clone());
        }
        // All other methods change something at the server and have a body.
        let follows = method == Method::GET || method == Method::HEAD || method.as_str() == LIST;
        for _ in 0..=MAX_REDIRECTS {
            let mut request = Request::new(method.clone(), url.clone());
            *request.headers_mut() = headers.clone();
            *request.body_mut() = Some(match body.as_bytes() {
                Some(bytes) => bytes.clone().into(),
                None => reqwest::Body::wrap(body.clone()),
            });
            let response = self.client.execute(request).await.map_err(failed)?;
            let next = redirect(&response, &url).filter(|_| follows);
            let Some(next) = next else { return self.read(&method, &url, &headers, response).await };
            if next.origin() != url.origin() {
                headers = harmless(headers);
            }
            url = next;
        }
        Err(wrong("more redirects than any server needs"))
    }

    /// Reads an answer up to the limit for its request.
    async fn read(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        mut response: Response,
    ) -> Result<HttpResponse, HttpError> {
        let (status, listed) = (response.status(), &self.connector.listed_bytes);
        let is_listing = method.as_str() == LIST
            || url.query_pairs().any(|(name, value)| name == "list-type" || (name == "comp" && value == "list"));
        let range_bytes = headers.get(RANGE).map(|range| range.to_str().ok().and_then(range_bytes).unwrap_or(0));
        let (most, what) = match range_bytes {
            _ if !status.is_success() => (MAX_EXPLANATION_BYTES, None),
            // A server that does not know ranges sends the whole shard. object_store reports it.
            Some(_) if status != StatusCode::PARTIAL_CONTENT => (0, None),
            Some(bytes) => (bytes, Some("more bytes than were asked for")),
            None if is_listing => {
                let left = MAX_LISTING_BYTES.saturating_sub(listed.load(Relaxed));
                (left, Some("a listing of more than 128 MiB: name the shards by braces, or use a smaller folder"))
            }
            None => (MAX_OTHER_BYTES, Some("an answer of more than 1 MiB")),
        };
        let mut bytes = Vec::with_capacity(response.content_length().unwrap_or(0).min(most) as usize);
        let mut answer_bytes = 0;
        if method != Method::HEAD {
            while let Some(chunk) = response.chunk().await.map_err(failed)? {
                answer_bytes += chunk.len() as u64;
                let room = most - bytes.len() as u64;
                bytes.extend_from_slice(&chunk[..chunk.len().min(room as usize)]);
                if answer_bytes > most {
                    break;
                }
            }
        }
        if is_listing {
            listed.fetch_add(answer_bytes.max(LISTING_ANSWER_BYTES), Relaxed);
        }
        if let Some(what) = what.filter(|_| answer_bytes > most) {
            return Err(wrong(what));
        }
        if !status.is_success() {
            bytes = without_query(&bytes, url);
        }
        let mut answer = HttpResponse::new(bytes.into());
        *answer.status_mut() = status;
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        Ok(answer)
    }
}

/// A server's error message without the signature that it may repeat.
fn without_query(explanation: &[u8], url: &Url) -> Vec<u8> {
    /// Shorter values are not signatures, and may be parts of words.
    const SIGNATURE_BYTES: usize = 8;
    let mut text = String::from_utf8_lossy(explanation).into_owned();
    for (_, value) in url.query_pairs().filter(|(_, value)| value.len() >= SIGNATURE_BYTES) {
        text = text.replace(&*value, "...");
    }
    text.into_bytes()
}

/// The number of bytes that a range header such as `bytes=100-199` asks for.
fn range_bytes(range: &str) -> Option<u64> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
}

/// The URL of a redirect; `None` if the answer is not a redirect.
fn redirect(response: &Response, url: &Url) -> Option<Url> {
    use StatusCode as S;
    let status = [S::MOVED_PERMANENTLY, S::FOUND, S::SEE_OTHER, S::TEMPORARY_REDIRECT, S::PERMANENT_REDIRECT];
    let to = response.headers().get(LOCATION).filter(|_| status.contains(&response.status()))?;
    url.join(to.to_str().ok()?).ok()
}

/// Headers that another server may get after a redirect: the range and its conditions. This is a list of allowed
/// headers, because stores have credential headers of their own.
fn harmless(headers: HeaderMap) -> HeaderMap {
    use reqwest::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
    let harmless = [ACCEPT, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE, USER_AGENT];
    let depth = HeaderName::from_static("depth");
    headers
        .into_iter()
        .filter_map(|(name, value)| Some((name?, value)))
        .filter(|(name, _)| harmless.contains(name) || *name == depth)
        .collect()
}

/// An error that a repeated request would meet again.
fn wrong(what: &'static str) -> HttpError {
    HttpError::new_boxed(HttpErrorKind::Unknown, what.into())
}

fn failed(error: reqwest::Error) -> HttpError {
    let kind = match &error {
        error if error.is_timeout() => HttpErrorKind::Timeout,
        error if error.is_connect() => HttpErrorKind::Connect,
        error if error.is_builder() => HttpErrorKind::Unknown,
        _ => HttpErrorKind::Interrupted,
    };
    HttpError::new_boxed(kind, without_url(error).into())
}

/// An error and its causes as text, without the URL, which may contain a signature.
fn without_url(error: reqwest::Error) -> String {
    let error = error.without_url();
    let (mut text, mut cause) = (error.to_string(), std::error::Error::source(&error));
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_and_ranges_are_read() {
        let of = |seconds| Some(Duration::from_secs_f64(seconds));
        for (text, want) in [("30s", of(30.0)), ("1m 30s", of(90.0)), ("500ms", of(0.5)), ("5", None), ("5d", None)] {
            assert_eq!(duration(text), want, "{text}");
        }
        assert_eq!(duration(&ClientOptions::new().get_config_value(&ClientConfigKey::Timeout).unwrap()), of(30.0));
        for (range, want) in [("bytes=0-0", Some(1)), ("bytes=10-19", Some(10)), ("bytes=-5", None), ("bytes=5-", None)]
        {
            assert_eq!(range_bytes(range), want, "{range}");
        }
    }

    #[test]
    fn logins_are_decoded_and_never_printed() {
        assert_eq!(percent_decoded("me:p%40s%2Fs%"), b"me:p@s/s%");
        assert_eq!(percent_decoded("\u{fc}%\u{fc}"), "\u{fc}%\u{fc}".as_bytes());
        let url = "http://host/".parse().unwrap();
        let connector = Connector {
            logins: Login::basic(&url, "me:secret").into_iter().collect(),
            query: Some(Secret("sig=secret".to_owned())),
            ..Connector::default()
        };
        // The secret in base64 must not be printed either.
        let printed = format!("{connector:?}");
        assert!(!printed.contains("secret") && !printed.contains("bWU6"), "{printed}");
    }
}
