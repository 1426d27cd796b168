//! A server that plays S3 for one bucket, `bucket`, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub struct Server {
    pub address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub struct State {
    pub objects: BTreeMap<String, Object>,
    /// Uploads that were begun: the object's name, and the parts.
    pub uploads: BTreeMap<String, (String, BTreeMap<usize, Vec<u8>>)>,
    /// Requests that change something and are under way, and how many there were at most.
    open: usize,
    pub most_open: usize,
    /// Time that an upload's part takes.
    pub delay: Duration,
    /// One request in this number is answered with 500, if any.
    pub moody: Option<usize>,
    /// Whether another process completes each upload in parts just before its own does, and drops its parts, as it may
    /// be at Azure's store.
    pub forestalled: bool,
    /// Requests that are refused: those whose first line contains this.
    pub forbidden: Option<&'static str>,
    /// Requests that are not answered as long as this is set: those whose first line contains it.
    pub held: Option<&'static str>,
    /// First lines of requests.
    pub requests: Vec<String>,
    written: u64,
}

#[derive(Clone)]
pub struct Object {
    pub bytes: Vec<u8>,
    pub tag: String,
}

struct Request {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Server {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The objects in a folder by their names, those in folders in it too.
    pub fn files(&self, folder: &str) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        let named = |(key, object): (&String, &Object)| {
            Some((key.strip_prefix(folder)?.strip_prefix('/')?.to_owned(), object.bytes.clone()))
        };
        state.objects.iter().filter_map(named).collect()
    }

    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        self.state().put(key, bytes);
    }
}

impl State {
    fn put(&mut self, key: &str, bytes: Vec<u8>) -> String {
        self.written += 1;
        let tag = format!("\"{:016x}\"", self.written);
        self.objects.insert(key.to_owned(), Object { bytes, tag: tag.clone() });
        tag
    }
}

fn serve(mut stream: TcpStream, shared: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (line, request) = read(&mut reader)?;
        let (fault, delay) = {
            let mut state = shared.lock().unwrap();
            state.requests.push(line.clone());
            state.open += usize::from(request.method == "PUT");
            state.most_open = state.most_open.max(state.open);
            let moody = state.moody.is_some_and(|often| state.requests.len().is_multiple_of(often));
            let forbidden = state.forbidden.is_some_and(|what| line.contains(what));
            let part = request.query.contains_key("partNumber");
            (forbidden.then_some(403).or(moody.then_some(500)), if part { state.delay } else { Duration::ZERO })
        };
        std::thread::sleep(delay);
        while shared.lock().unwrap().held.is_some_and(|what| line.contains(what)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut state = shared.lock().unwrap();
        let (status, headers, body) = match fault {
            Some(403) => (403, String::new(), "<Error><Code>AccessDenied</Code></Error>".into()),
            Some(status) => (status, String::new(), Vec::new()),
            None => state.answer(&request),
        };
        state.open -= usize::from(request.method == "PUT");
        drop(state);
        let length =
            if request.method == "HEAD" { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        stream.write_all(format!("HTTP/1.1 {status} Status\r\n{headers}{length}\r\n").as_bytes()).ok()?;
        if request.method != "HEAD" {
            stream.write_all(&body).ok()?;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<(String, Request)> {
    let mut line = || {
        let mut line = String::new();
        (reader.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    };
    let first = line()?;
    let mut headers = BTreeMap::new();
    while let Some((name, value)) = line()?.split_once(':') {
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let query = pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect();
    let key = decoded(path.trim_start_matches('/'));
    Some((first.clone(), Request { method, key, query, headers, body }))
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte == b'%' {
            bytes.push(u8::from_str_radix(std::str::from_utf8(&rest[..2]).unwrap(), 16).unwrap());
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

type Answer = (u16, String, Vec<u8>);

fn status(status: u16) -> Answer {
    (status, String::new(), Vec::new())
}

fn tagged(tag: &str) -> Answer {
    (200, format!("etag: {tag}\r\n"), Vec::new())
}

impl State {
    fn answer(&mut self, request: &Request) -> Answer {
        let (bucket, key) = request.key.split_once('/').unwrap_or((&request.key, ""));
        let query = |name: &str| request.query.get(name).map(String::as_str);
        if bucket != "bucket" {
            return (404, String::new(), "<Error><Code>NoSuchBucket</Code></Error>".into());
        }
        let part = query("partNumber").map(|number| number.parse().unwrap());
        match (&*request.method, query("uploadId"), part) {
            ("GET", None, _) if query("list-type").is_some() => self.list(query("prefix").unwrap_or_default()),
            ("GET" | "HEAD", ..) => self.get(key, request),
            ("PUT", Some(id), Some(number)) => match self.uploads.get_mut(id) {
                Some((_, parts)) => {
                    parts.insert(number, request.body.clone());
                    tagged(&format!("\"{number}\""))
                }
                None => status(404),
            },
            ("PUT", ..) => self.put_object(key, request),
            ("POST", None, _) if query("uploads").is_some() => {
                self.written += 1;
                let id = format!("upload-{}", self.written);
                self.uploads.insert(id.clone(), (key.to_owned(), BTreeMap::new()));
                let text = format!(
                    "<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>{key}</Key><UploadId>{id}</UploadId>\
                     </InitiateMultipartUploadResult>"
                );
                (200, String::new(), text.into())
            }
            ("POST", Some(id), _) if self.forestalled => {
                let parts = std::mem::take(&mut self.uploads.get_mut(id).unwrap().1);
                if !parts.is_empty() {
                    self.put(key, parts.into_values().flatten().collect());
                }
                (400, String::new(), "<Error><Code>InvalidBlockList</Code></Error>".into())
            }
            ("POST", Some(id), _) => match self.uploads.remove(id) {
                Some((_, parts)) => {
                    let tag = self.put(key, parts.into_values().flatten().collect());
                    let text =
                        format!("<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>");
                    (200, String::new(), text.into())
                }
                None => status(404),
            },
            ("POST", None, _) => {
                let text = String::from_utf8(request.body.clone()).unwrap();
                let keys = text.split("<Key>").skip(1).map(|key| key.split('<').next().unwrap());
                let deleted = |key: &str| format!("<Deleted><Key>{key}</Key></Deleted>");
                let text: String = keys.inspect(|&key| drop(self.objects.remove(key))).map(deleted).collect();
                (200, String::new(), format!("<DeleteResult>{text}</DeleteResult>").into())
            }
            ("DELETE", Some(id), _) => match self.uploads.remove(id) {
                Some(_) => status(204),
                None => status(404),
            },
            ("DELETE", ..) => {
                self.objects.remove(key);
                status(204)
            }
            other => panic!("{other:?}"),
        }
    }

    fn get(&self, key: &str, request: &Request) -> Answer {
        let Some(object) = self.objects.get(key) else { return status(404) };
        let len = object.bytes.len();
        let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let (start, end) = range.map_or((0, len), |(start, end)| {
            (start.parse().unwrap(), end.parse().map_or(len, |end: usize| len.min(end + 1)))
        });
        let mut headers = format!("etag: {}\r\nlast-modified: Sat, 21 Nov 2026 00:00:00 GMT\r\n", object.tag);
        if range.is_some() {
            headers += &format!("content-range: bytes {start}-{}/{len}\r\n", end - 1);
        }
        if request.method == "HEAD" {
            headers += &format!("content-length: {len}\r\n");
        }
        (if range.is_some() { 206 } else { 200 }, headers, object.bytes[start..end].to_vec())
    }

    fn put_object(&mut self, key: &str, request: &Request) -> Answer {
        let header = |name: &str| request.headers.get(name);
        let there = self.objects.get(key);
        let meets = match (header("if-none-match"), header("if-match")) {
            (Some(_), _) => there.is_none(),
            (None, Some(tag)) => there.is_some_and(|there| there.tag == *tag),
            (None, None) => true,
        };
        if !meets {
            return status(412);
        }
        if let Some(from) = header("x-amz-copy-source") {
            let from = decoded(from);
            let Some(object) = self.objects.get(from.trim_start_matches('/').strip_prefix("bucket/").unwrap()) else {
                return status(404);
            };
            let tag = self.put(key, object.bytes.clone());
            return (200, String::new(), format!("<CopyObjectResult><ETag>{tag}</ETag></CopyObjectResult>").into());
        }
        tagged(&self.put(key, request.body.clone()))
    }

    fn list(&self, prefix: &str) -> Answer {
        let (mut text, mut folders) =
            (String::from("<ListBucketResult><IsTruncated>false</IsTruncated>"), BTreeSet::new());
        for (key, object) in &self.objects {
            let Some(rest) = key.strip_prefix(prefix) else { continue };
            match rest.split_once('/') {
                Some((folder, _)) => {
                    folders.insert(format!("{prefix}{folder}/"));
                }
                None => {
                    text += &format!(
                        "<Contents><Key>{key}</Key><LastModified>2026-11-21T00:00:00.000Z</LastModified><ETag>{}</ETag>\
                         <Size>{}</Size></Contents>",
                        object.tag.replace('"', "&quot;"),
                        object.bytes.len()
                    );
                }
            }
        }
        for folder in folders {
            text += &format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
        }
        (200, String::new(), (text + "</ListBucketResult>").into())
    }
}
