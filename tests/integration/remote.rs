//! Remote shards give the samples of files, with good and faulty servers.

use crate::common::{self, built_epoch as epoch, delivered, in_order, samples, source};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use warpfeed::pack::{PackOptions, pack};
use warpfeed::{
    ImageCache, OnError,
    source::{EncodedImages, Input, OpenOptions, RecordFormat, RecordOptions, ShardCache, Source, SourceFormat, open},
};

/// A web server that has its moods.
struct Server {
    address: String,
    shared: Arc<Shared>,
}

/// For a server that is always in good moods.
const NEVER: u64 = u64::MAX;

struct Shared {
    files: Vec<(String, Vec<u8>)>,
    /// One request in this number goes wrong, each time in another way.
    moody: u64,
    /// Time that it takes to begin an answer.
    delay: Duration,
    requests: AtomicU64,
    /// Requests that are under way, and how many there were at most.
    open: AtomicU64,
    most_open: AtomicU64,
    ranges: AtomicU64,
    /// Bytes of ranges that it has sent.
    sent: AtomicU64,
    gone: AtomicBool,
    changed: AtomicBool,
    /// It begins no answer meanwhile.
    stalled: AtomicBool,
    /// Every request, its lines in lower case.
    seen: Mutex<Vec<String>>,
    /// The server that it sends requests to, if any.
    elsewhere: Mutex<Option<String>>,
}

impl Server {
    fn start(files: Vec<(String, Vec<u8>)>, moody: u64) -> Self {
        Self::slow(files, moody, Duration::ZERO)
    }

    fn slow(files: Vec<(String, Vec<u8>)>, moody: u64, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (requests, open, most_open, ranges, sent) = Default::default();
        let (gone, changed, stalled, seen, elsewhere) = Default::default();
        let shared = Shared {
            files,
            moody,
            delay,
            requests,
            open,
            most_open,
            ranges,
            sent,
            gone,
            changed,
            stalled,
            seen,
            elsewhere,
        };
        let shared = Arc::new(shared);
        let server = Arc::clone(&shared);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = Arc::clone(&server);
                std::thread::spawn(move || server.serve(stream));
            }
        });
        Self { address, shared }
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).ok()? == 0 {
                    return None;
                }
                if line.trim().is_empty() {
                    break;
                }
                lines.push(line.trim().to_ascii_lowercase());
            }
            self.seen.lock().unwrap().push(lines.join("\n"));
            while self.stalled.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let request = self.requests.fetch_add(1, SeqCst);
            let trouble = if (request + 1).is_multiple_of(self.moody) { request / self.moody % 4 } else { 9 };
            let mut words = lines[0].split(' ');
            let (method, target) = (words.next()?, words.next()?.trim_start_matches('/'));
            if let Some(server) = &*self.elsewhere.lock().unwrap() {
                let head = format!("HTTP/1.1 302 Found\r\nlocation: {server}/{target}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(head.as_bytes()).ok()?;
                continue;
            }
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            match (method, path) {
                ("propfind", "endless" | "endless/") => return endless(&mut stream, "200 OK", ""),
                ("get", "endless.tar") => {
                    return endless(&mut stream, "206 Partial Content", "content-range: bytes 0-0/20000\r\n");
                }
                ("get", _) if query.contains("list-type=2") => {
                    let page = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>more\
                                </NextContinuationToken></ListBucketResult>";
                    self.sent.fetch_add(page.len() as u64, SeqCst);
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len());
                    stream.write_all(head.as_bytes()).ok()?;
                    continue;
                }
                // Signed for reading alone; and a store says what it was given.
                (_, _) if query.contains("signature=") && (method == "head" || query.contains("expired")) => {
                    let body = format!("<Error>RequestExpired {query}</Error>");
                    let head = format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {}\r\n\r\n", body.len());
                    stream.write_all(head.as_bytes()).ok()?;
                    stream.write_all(if method == "head" { b"" } else { body.as_bytes() }).ok()?;
                    continue;
                }
                _ => {}
            }
            let path = path.to_owned();
            let Some((_, bytes)) = self.files.iter().find(|(name, _)| *name == path && !self.gone.load(SeqCst)) else {
                stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").ok()?;
                continue;
            };
            let range = lines.iter().find_map(|line| line.strip_prefix("range: bytes="));
            let (start, end) = match range.and_then(|range| range.split_once('-')) {
                Some((start, end)) => (start.parse::<usize>().ok()?, end.parse::<usize>().ok()? + 1),
                None => (0, bytes.len()),
            };
            match trouble {
                // Not a word.
                0 => return None,
                1 | 2 => {
                    let status = if trouble == 1 { "500 Internal Server Error" } else { "503 Service Unavailable" };
                    stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).ok()?;
                    continue;
                }
                _ => {}
            }
            let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
            self.most_open.fetch_max(self.open.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::sleep(self.delay);
            self.open.fetch_sub(1, SeqCst);
            let tag = if self.changed.load(SeqCst) { "two" } else { "one" };
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\ncontent-range: bytes {start}-{}/{}\r\netag: \"{tag}\"\r\n\
                 last-modified: Sat, 21 Nov 2026 00:00:00 GMT\r\naccept-ranges: bytes\r\n\r\n",
                end - start,
                end - 1,
                bytes.len(),
            );
            stream.write_all(head.as_bytes()).ok()?;
            if method == "head" {
                continue;
            }
            self.ranges.fetch_add(1, SeqCst);
            self.sent.fetch_add((end - start) as u64, SeqCst);
            if trouble == 3 {
                // Half of it.
                stream.write_all(&bytes[start..(start + end) / 2]).ok()?;
                return None;
            }
            stream.write_all(&bytes[start..end]).ok()?;
        }
    }
}

/// Bytes without end.
fn endless(stream: &mut TcpStream, status: &str, headers: &str) -> Option<()> {
    let head = format!("HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let chunk = [b"100000\r\n".as_slice(), &[b' '; 1 << 20], b"\r\n"].concat();
    loop {
        stream.write_all(&chunk).ok()?;
    }
}

impl Server {
    /// The requests that came since the last call.
    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.seen.lock().unwrap())
    }
}

fn member(name: &str, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    block[156] = b'0';
    block[257..263].copy_from_slice(b"ustar\0");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

/// Two shards of 21 MB, three ranges each, most of it never read.
fn shards() -> Vec<(String, Vec<u8>)> {
    let images = source(24);
    let filler = vec![0xa5; 5 << 20];
    (0..2)
        .map(|shard| {
            let mut bytes = Vec::new();
            for i in 12 * shard..12 * (shard + 1) {
                bytes.extend(member(&format!("{i:03}.jpg"), &images.encoded(i).unwrap()));
                bytes.extend(member(&format!("{i:03}.cls"), images.label(i).unwrap().to_string().as_bytes()));
                if i % 3 == 0 {
                    bytes.extend(member(&format!("{i:03}.bin"), &filler));
                }
            }
            bytes.extend([0; 1024]);
            (format!("data/train-{shard}.tar"), bytes)
        })
        .collect()
}

fn at(server: &Server, cache: Option<ShardCache>) -> Input {
    let url = format!("{}/data/train-{{0..1}}.tar", server.address);
    OpenOptions::default().cache(cache).open(url).unwrap()
}

#[test]
fn a_web_server_gives_what_memory_gives_in_good_and_bad_moods() {
    let want = epoch(in_order(source(24)), 0);
    for moody in [NEVER, 2] {
        let server = Server::start(shards(), moody);
        let pipeline = in_order(at(&server, None)).build().unwrap();
        assert_eq!(delivered(&pipeline, 0), want, "moody: {moody}");
        assert_eq!(delivered(&pipeline, 0), want, "moody: {moody}");
        let ranges = server.shared.ranges.load(SeqCst);
        assert!(if moody == 2 { ranges > 12 } else { ranges == 12 }, "{ranges} ranges for 2 epochs");
    }
}

#[test]
fn what_was_fetched_is_kept_within_the_size() {
    let want = epoch(in_order(source(24)), 0);
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(shards(), NEVER);
    let kept =
        || -> u64 { fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum() };
    for (size_bytes, second) in [(10 << 20, 6), (100 << 20, 0)] {
        let cache = ShardCache { folder: folder.path().join(""), size_bytes };
        for wanted in [6, second] {
            let before = server.shared.ranges.load(SeqCst);
            assert_eq!(epoch(in_order(at(&server, Some(cache.clone()))), 0), want);
            let fetched = server.shared.ranges.load(SeqCst) - before;
            assert!(fetched <= wanted && fetched + 3 > wanted, "{fetched} of 6 ranges with {size_bytes} bytes");
            assert!(kept() <= size_bytes, "{} bytes", kept());
        }
    }
    // Damage in the cache is fetched anew.
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let cache = ShardCache { folder: folder.path().to_owned(), size_bytes: 100 << 20 };
    assert_eq!(epoch(in_order(at(&server, Some(cache))), 0), want);
}

#[test]
fn a_cached_shard_that_changes_is_fetched_again() {
    let want = epoch(in_order(source(24)), 0);
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(shards(), NEVER);
    let cache = ShardCache { folder: folder.path().to_owned(), size_bytes: 200 << 20 };
    for (changed, ranges) in [(false, 6), (false, 0), (true, 6), (true, 0)] {
        server.shared.changed.store(changed, SeqCst);
        let before = server.shared.ranges.load(SeqCst);
        assert_eq!(epoch(in_order(at(&server, Some(cache.clone()))), 0), want);
        assert_eq!(server.shared.ranges.load(SeqCst) - before, ranges, "changed: {changed}");
    }
}

#[test]
fn a_shard_that_goes_away_ends_the_epoch_with_its_name_and_offset() {
    let server = Server::start(shards(), NEVER);
    let source = OpenOptions::default().format(None);
    let pipeline = in_order(source.open(format!("{}/data/gone.tar", server.address)).unwrap()).build().unwrap();
    let error = pipeline.epoch(0).next().unwrap().unwrap_err().to_string();
    assert!(error.contains("/data/gone.tar broke off at byte 0"), "{error}");
    let pipeline = in_order(at(&server, None)).on_error(OnError::Skip).batch_size(1).prefetch(1).build().unwrap();
    let mut epoch = pipeline.epoch(0);
    assert!(epoch.next().unwrap().is_ok());
    server.shared.gone.store(true, SeqCst);
    let error = epoch.find_map(Result::err).expect("the second shard is gone");
    assert!(!error.is_bad_sample() && error.to_string().contains(".tar broke off at byte "), "{error}");
}

/// Images that fill 12 shards of 1 MB.
fn many() -> EncodedImages {
    let images: Vec<Vec<u8>> = (0..8).map(|i| common::jpeg(310 + i, 230, i.into())).collect();
    EncodedImages::new((0..200).map(|i| (images[i * 5 % 8].clone(), i as u32 % 7)))
}

/// A server of what `pack` makes of them, and the pattern of their names.
fn packed(format: RecordFormat, moody: u64, delay: Duration) -> (Server, PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("train");
    let options = PackOptions::new(format).shard_bytes(1_000_000);
    let report = pack(&many(), &out, &options, &mut |_| {}).unwrap();
    let read = |name: &String| (name.clone(), fs::read(out.join(name)).unwrap());
    let names: Vec<String> =
        report.shards.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert!((10..16).contains(&names.len()), "{} shards", names.len());
    (Server::slow(names.iter().map(read).collect(), moody, delay), out, folder)
}

/// All of the server's shards, in any order or from front to back.
fn all(server: &Server, options: OpenOptions) -> Input {
    let names: Vec<&str> = server.shared.files.iter().map(|(name, _)| &**name).collect();
    let records = RecordOptions::default().keep_index(false);
    let url = format!("{}/{{{}}}", server.address, names.join(","));
    options.records(records).open(url).unwrap()
}

fn any_order() -> OpenOptions {
    OpenOptions::default().random_access(true)
}

#[test]
fn random_access_gives_the_same_over_a_network() {
    let shards = ["0/1", "0/2", "1/2"];
    let part = |source: &Arc<dyn Source>, shard: &str| {
        let builder = in_order(Arc::clone(source)).shuffle(5).partition(shard.parse().unwrap());
        epoch(builder.threads(5), 1)
    };
    let images: Arc<dyn Source> = Arc::new(many());
    let want = shards.map(|shard| part(&images, shard));
    for &format in RecordFormat::ALL {
        let moody = if format == RecordFormat::TfRecord { 50 } else { NEVER };
        let (server, out, _folder) = packed(format, moody, Duration::ZERO);
        let remote: Arc<dyn Source> = all(&server, any_order()).into_data_set().unwrap();
        let local: Arc<dyn Source> = open(&out).unwrap().into_data_set().unwrap();
        assert_eq!((remote.len(), remote.fingerprint()), (200, local.fingerprint()));
        assert!(
            remote.name(3).starts_with("http://")
                && remote.name(3).ends_with(local.name(3).rsplit('/').next().unwrap())
        );
        // The headers and the bytes read with them, not the images.
        let headers = server.shared.sent.load(SeqCst);
        let all: usize = server.shared.files.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(headers < all as u64 / 2, "{format:?}: {headers} of {all} bytes");
        for (shard, want) in shards.iter().zip(&want) {
            assert_eq!(&part(&local, shard), want, "{format:?}");
            assert_eq!(&part(&remote, shard), want, "{format:?}");
        }
    }
}

#[test]
fn random_access_fetches_what_is_read_and_a_cache_keeps_it() {
    let (server, _, _folder) = packed(RecordFormat::RecordIo, NEVER, Duration::ZERO);
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(ShardCache { folder: folder.path().to_owned(), size_bytes: 100 << 20 });
    let source = all(&server, any_order().cache(cache));
    let all_images = many();
    let images: u64 = (0..200).map(|i| all_images.encoded(i).unwrap().len() as u64).sum();
    for sent in [images, 0] {
        let (requests, before) = (server.shared.requests.load(SeqCst), server.shared.sent.load(SeqCst));
        assert_eq!(epoch(in_order(source.clone()).shuffle(1), 0).len(), 200);
        assert_eq!(server.shared.sent.load(SeqCst) - before, sent);
        assert_eq!(server.shared.requests.load(SeqCst) - requests, if sent > 0 { 200 } else { 0 });
    }
}

#[test]
fn samples_are_fetched_ahead_side_by_side() {
    let (server, _, _folder) = packed(RecordFormat::RecordIo, NEVER, Duration::from_millis(10));
    let source: Arc<dyn Source> = all(&server, any_order()).into_data_set().unwrap();
    server.shared.most_open.store(0, SeqCst);
    let requests = server.shared.requests.load(SeqCst);
    let pipeline = in_order(source).shuffle(1).threads(1).build().unwrap();
    assert!(pipeline.memory().encoded_bytes >= 64 << 20);
    assert_eq!(delivered(&pipeline, 0), epoch(in_order(many()).shuffle(1), 0));
    let most = server.shared.most_open.load(SeqCst);
    assert!(most >= 8, "{most} requests at once");
    assert_eq!(server.shared.requests.load(SeqCst) - requests, 200, "none is fetched twice");
    // Images that are kept decoded are not fetched at all.
    let kept = in_order(all(&server, any_order())).cache(ImageCache::memory(100 << 20)).build().unwrap();
    let first = delivered(&kept, 0);
    let requests = server.shared.requests.load(SeqCst);
    assert_eq!(delivered(&kept, 0), first);
    assert_eq!(server.shared.requests.load(SeqCst), requests);
}

#[test]
fn a_shard_that_changes_meanwhile_is_named() {
    let (server, _, _folder) = packed(RecordFormat::RecordIo, NEVER, Duration::ZERO);
    let pipeline = in_order(all(&server, any_order())).shuffle(1).on_error(OnError::Skip).build().unwrap();
    let stream = in_order(all(&server, OpenOptions::default())).shuffle(1).batch_size(1).build().unwrap();
    assert!(pipeline.epoch(0).next().unwrap().is_ok());
    let state = {
        let mut epoch = stream.epoch(0);
        epoch.next().unwrap().unwrap();
        epoch.state()
    };
    server.shared.changed.store(true, SeqCst);
    let error = pipeline.epoch(0).next().unwrap().unwrap_err();
    assert!(!error.is_bad_sample(), "the whole shard is at fault");
    assert!(error.to_string().contains(".rec broke off at byte ") && error.to_string().contains("changed"), "{error}");
    let error = stream.resume(&state).unwrap().next().unwrap().unwrap_err().to_string();
    assert!(error.contains(".rec broke off at byte 0: it is not what it was"), "{error}");
    server.shared.gone.store(true, SeqCst);
    let gone = any_order().format(Some(SourceFormat::Shards(RecordFormat::RecordIo)));
    let error = gone.open(format!("{}/gone.rec", server.address)).err().unwrap().to_string();
    assert!(error.contains("gone.rec broke off at byte 0"), "{error}");
}

#[test]
fn a_resumed_stream_fetches_no_more_than_it_has_to() {
    let (server, ..) = packed(RecordFormat::WebDataset, NEVER, Duration::ZERO);
    let images = many();
    let image = (0..8).map(|i| images.encoded(i).unwrap().len() as u64).max().unwrap() + 4096;
    for window in [1, 8] {
        let options = OpenOptions::default().window(Some(window));
        let builder = in_order(all(&server, options)).batch_size(5).prefetch(1);
        let pipeline = if window > 1 { builder.shuffle(5) } else { builder }.build().unwrap();
        let whole = delivered(&pipeline, 0);
        for position in [5, 100, 150, 195] {
            let mut epoch = pipeline.epoch(0);
            let first: Vec<_> = epoch.by_ref().take(position / 5).flat_map(|batch| samples(&batch.unwrap())).collect();
            let state = epoch.state();
            drop(epoch);
            let before = server.shared.sent.load(SeqCst);
            let rest: Vec<_> = pipeline.resume(&state).unwrap().flat_map(|batch| samples(&batch.unwrap())).collect();
            assert_eq!([first, rest].concat(), whole, "at {position}");
            let sent = server.shared.sent.load(SeqCst) - before;
            // The remaining samples; the window with the gaps; the archives' ends.
            let again = if window > 1 { window as u64 * (image + (256 << 10)) } else { 0 };
            let bound = (200 - position as u64) * image + again + 13 * 20_480;
            assert!(sent <= bound, "{sent} of {bound} bytes, window {window}, at {position}");
        }
    }
}

#[test]
fn a_login_is_sent_and_never_printed() {
    let server = Server::start(shards(), NEVER);
    let host = server.address.strip_prefix("http://").unwrap();
    let at = |path: &str| format!("http://me:p%40ss-word@{host}/{path}");
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(ShardCache { folder: folder.path().to_owned(), size_bytes: 100 << 20 });
    let source = OpenOptions::default().cache(cache).open(at("data/train-{0..1}.tar")).unwrap();
    assert_eq!(epoch(in_order(source), 0), epoch(in_order(common::source(24)), 0));
    let seen = server.seen();
    // me:p@ss-word, in lower case as all lines are.
    let login = "authorization: basic bwu6cebzcy13b3jk";
    assert!(seen.len() >= 8 && seen.iter().all(|request| request.contains(login)), "{seen:?}");
    let kept: String = fs::read_dir(folder.path()).unwrap().map(|entry| format!("{:?}", entry.unwrap())).collect();
    let gone = in_order(open(at("data/gone.tar")).unwrap()).build().unwrap();
    let gone = gone.epoch(0).next().unwrap().unwrap_err();
    let empty = open(at("data/*.tar")).err().unwrap();
    let records = RecordOptions::default().keep_index(false);
    let random = any_order().records(records).open(at("data/train-0.tar")).unwrap().into_data_set().unwrap();
    let printed = format!("{kept} {gone} {gone:?} {empty} {empty:?} {} {}", random.name(0), random.name(3));
    assert!(!printed.contains("ss-word") && printed.contains("/data/gone.tar"), "{printed}");
    for wrong in ["s3://me:p%40ss-word@bucket/a.tar", "http://me:p%40ss-word@[/a.tar", "ftp://me:p%40ss-word@a/b.tar"] {
        let error = open(wrong).err().unwrap();
        assert!(error.is_parameter() && !format!("{error} {error:?}").contains("ss-word"), "{error}");
    }
}

#[test]
fn a_signed_url_is_read_and_never_printed() {
    let server = Server::start(shards(), NEVER);
    let url = |query: &str| format!("{}/data/train-0.tar?{query}", server.address);
    let records = RecordOptions::default().keep_index(false);
    let signed = url("X-Amz-Expires=60&X-Amz-Signature=0123456789abcdef");
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(ShardCache { folder: folder.path().to_owned(), size_bytes: 100 << 20 });
    for random_access in [false, true] {
        let options = any_order().random_access(random_access).records(records.clone()).cache(cache.clone());
        assert_eq!(epoch(in_order(options.open(&signed).unwrap()), 0), epoch(in_order(source(24)).limit(12), 0));
        let seen = server.seen();
        assert!(seen.len() >= 4 && seen.iter().all(|request| request.contains("&x-amz-signature=0123456789abcdef ")));
    }
    // What another signature gives is in the cache; another object's bytes are not.
    for (query, ranges) in [("X-Amz-Signature=fedcba9876543210", 0), ("id=7&X-Amz-Signature=fedcba9876543210", 3)] {
        let options = OpenOptions::default().cache(cache.clone());
        assert_eq!(epoch(in_order(options.open(url(query)).unwrap()), 0).len(), 12);
        // One more says how long the shard is.
        assert_eq!(server.seen().len(), ranges + 1, "{query}");
    }
    let expired = in_order(open(url("expired=1&X-Amz-Signature=0123456789abcdef")).unwrap()).build().unwrap();
    let error = expired.epoch(0).next().unwrap().unwrap_err();
    let printed = format!("{error} {error:?}");
    assert!(printed.contains("RequestExpired") || printed.contains("requestexpired"), "{printed}");
    assert!(!printed.contains("0123456789abcdef"), "{printed}");
    for wrong in ["s3://bucket/a.tar?sig=0123456789abcdef", "http://host/*.tar?sig=0123456789abcdef"] {
        let error = open(wrong).err().unwrap();
        assert!(error.is_parameter() && !error.to_string().contains("0123456789abcdef"), "{error}");
    }
}

#[test]
fn a_redirect_takes_no_credentials_to_another_server() {
    let (near, other) = (Server::start(shards(), NEVER), Server::start(shards(), NEVER));
    *near.shared.elsewhere.lock().unwrap() = Some(other.address.clone());
    let host = near.address.strip_prefix("http://").unwrap();
    let source = open(format!("http://me:secret@{host}/data/train-{{0..1}}.tar")).unwrap();
    assert_eq!(epoch(in_order(source), 0), epoch(in_order(common::source(24)), 0));
    assert!(near.seen().iter().all(|request| request.contains("\nauthorization: basic ")));
    let seen = other.seen();
    assert!(seen.len() >= 8 && !seen.iter().any(|request| request.contains("authorization")), "{seen:?}");
    assert!(seen.iter().any(|request| request.contains("\nrange: bytes=0-8388607")), "{seen:?}");
}

/// A store's credentials come from variables, so a process of its own has them.
#[test]
fn a_stores_credentials_stay_with_the_store() {
    use std::process::Command;
    let files = || shards().into_iter().map(|(name, bytes)| (format!("bucket/{name}"), bytes)).collect();
    let (store, other) = (Server::start(files(), NEVER), Server::start(files(), NEVER));
    *store.shared.elsewhere.lock().unwrap() = Some(other.address.clone());
    let host = store.address.strip_prefix("http://").unwrap();
    let run = |source: &str, skip_signature: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command.args(["run", source, "--json", "--threads", "2"]);
        command.env("AWS_ENDPOINT_URL", format!("http://me:hidden@{host}")).env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", "hidden-id").env("AWS_SECRET_ACCESS_KEY", "hidden-key");
        command.env("AWS_SESSION_TOKEN", "hidden-token").env("AWS_SKIP_SIGNATURE", skip_signature);
        let output = command.output().unwrap();
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!printed.contains("hidden"), "{printed}");
        (output.status.success(), printed)
    };
    for (skip_signature, sent) in
        [("false", "\nx-amz-security-token: hidden-token"), ("true", "\nauthorization: basic ")]
    {
        let (success, printed) = run("s3://bucket/data/train-{0..1}.tar", skip_signature);
        assert!(success, "{printed}");
        assert!(store.seen().iter().all(|request| request.contains(sent)), "{sent}");
        let seen = other.seen();
        let leaks = ["authorization", "x-amz-", "hidden"];
        assert!(seen.len() >= 8 && !seen.iter().any(|r| leaks.iter().any(|leak| r.contains(leak))), "{seen:?}");
    }
    // A listing without end, in pages.
    *store.shared.elsewhere.lock().unwrap() = None;
    let (success, printed) = run("s3://bucket/data/*.tar", "true");
    assert!(!success && printed.contains("128 MiB"), "{printed}");
    // Nor does an error say what was in the source's name.
    let (success, printed) = run(&format!("http://me:hidden@{host}/gone.tar?signature=hidden"), "true");
    assert!(!success && printed.contains("/gone.tar"), "{printed}");
}

#[test]
fn answers_without_end_are_bounded() {
    let server = Server::start(shards(), NEVER);
    let error = open(format!("{}/endless/*.tar", server.address)).err().unwrap().to_string();
    assert!(error.contains("128 MiB"), "{error}");
    let url = format!("{}/endless.tar?signature=abcdefgh", server.address);
    let pipeline = in_order(open(url).unwrap()).build().unwrap();
    let error = pipeline.epoch(0).next().unwrap().unwrap_err().to_string();
    assert!(error.contains("more bytes than were asked for"), "{error}");
}

#[test]
fn it_works_inside_of_a_runtime() {
    let server = Server::start(shards(), NEVER);
    let want = epoch(in_order(source(24)), 0);
    let one = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let many = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for runtime in [one, many] {
        for random_access in [false, true] {
            runtime.block_on(async {
                let records = RecordOptions::default().keep_index(false);
                let options = OpenOptions::default().records(records).random_access(random_access);
                let pipeline = |threads: usize| {
                    let source = options.open(format!("{}/data/train-{{0..1}}.tar", server.address)).unwrap();
                    in_order(source).threads(threads).build().unwrap()
                };
                for threads in [0, 2] {
                    assert_eq!(delivered(&pipeline(threads), 0), want);
                }
                // Dropped in the middle of it, and on whatever thread.
                drop(pipeline(2).epoch(0));
                let pipeline = pipeline(2);
                let mut begun = pipeline.epoch(0);
                assert!(begun.next().unwrap().is_ok());
                tokio::task::spawn(async move { drop((begun, pipeline)) }).await.unwrap();
            });
        }
    }
}

#[test]
fn an_epoch_that_is_dropped_waits_for_no_request() {
    let (server, _, _folder) = packed(RecordFormat::WebDataset, NEVER, Duration::ZERO);
    for options in [any_order(), OpenOptions::default()] {
        let pipeline = in_order(all(&server, options)).shuffle(1).prefetch(1).build().unwrap();
        let mut epoch = pipeline.epoch(0);
        assert!(epoch.next().unwrap().is_ok());
        server.shared.stalled.store(true, SeqCst);
        // What had come is used up, and the threads wait.
        let begun = pipeline.epoch(1);
        std::thread::sleep(Duration::from_millis(200));
        // The server answers no more until this returns.
        drop((epoch, begun));
        server.shared.stalled.store(false, SeqCst);
    }
}

/// `warpfeed run --state` over HTTP, killed again and again.
#[test]
fn a_killed_run_goes_on_over_http() {
    use std::process::{Command, Stdio};
    let (server, out, folder) = packed(RecordFormat::WebDataset, 50, Duration::from_millis(2));
    let names: Vec<&str> = server.shared.files.iter().map(|(name, _)| &**name).collect();
    let url = format!("{}/{{{}}}", server.address, names.join(","));
    let run = |source: &str, options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command.env("XDG_CACHE_HOME", folder.path().join("cache"));
        command.args(["run", source, "--json", "--digest", "--batch-size", "4", "--epochs", "2"]).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let report = |mut command: Command| common::report(&command.output().unwrap());
    let local = out.to_str().unwrap();
    for (remote, near) in [(&["--window", "20"][..], &["--window", "20"][..]), (&["--random-access"], &[])] {
        let undisturbed = report(run(local, near));
        let state = folder.path().join(format!("{}.json", remote[0]));
        let with_state = [remote, &["--state", state.to_str().unwrap()]].concat();
        for kill in 0..5 {
            let before = fs::read(&state).ok();
            let mut child = run(&url, &with_state).spawn().unwrap();
            while fs::read(&state).ok() == before {
                assert!(child.try_wait().unwrap().is_none(), "kill {kill}: it ended by itself");
            }
            std::thread::sleep(Duration::from_millis(7 * kill));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let resumed = report(run(&url, &with_state));
        assert_eq!(resumed["digest"], undisturbed["digest"], "{remote:?}");
        let together = resumed["images"].as_u64().unwrap() + resumed["earlier"]["images"].as_u64().unwrap();
        assert_eq!(together, 400);
    }
    // The index was kept: headers are not read again.
    let before = server.shared.sent.load(SeqCst);
    report(run(&url, &["--random-access", "--limit", "1"]));
    assert!(server.shared.sent.load(SeqCst) - before < 1_000_000);
}

/// Stores as other programs play them: `scripts/moto` and `scripts/stores` start these and set the variables.
#[test]
#[ignore = "needs a store that WARPFEED_STORE names, as s3://bucket: scripts/moto, scripts/stores"]
fn a_store_gives_what_memory_gives() {
    let store = std::env::var("WARPFEED_STORE").expect("WARPFEED_STORE names the store");
    let folder = format!("{store}/{}/data", std::process::id());
    for (name, bytes) in shards() {
        put(&format!("{folder}/{}", name.rsplit('/').next().unwrap()), bytes);
    }
    let want = epoch(in_order(source(24)), 0);
    let shuffled = epoch(in_order(source(24)).shuffle(3), 0);
    for shards in ["train-{0..1}.tar", "*.tar", ""] {
        let url = format!("{folder}/{shards}");
        let kept = tempfile::tempdir().unwrap();
        let cache = Some(ShardCache { folder: kept.path().to_owned(), size_bytes: 100 << 20 });
        for _ in 0..2 {
            let source = OpenOptions::default().cache(cache.clone()).open(&url).unwrap();
            assert_eq!(epoch(in_order(source), 0), want, "{url}");
            let records = RecordOptions::default().keep_index(false);
            let source = any_order().cache(cache.clone()).records(records).open(&url).unwrap();
            assert_eq!(epoch(in_order(source).shuffle(3), 0), shuffled, "{url}");
        }
    }
    assert!(open(format!("{folder}/nothing/*.tar")).is_err());
}

fn put(url: &str, bytes: Vec<u8>) {
    // Whoever plays Google's store takes only what comes by its other interface.
    if let Some((bucket, name)) = url.strip_prefix("gs://").and_then(|path| path.split_once('/')) {
        let store = std::env::var("GOOGLE_BASE_URL").expect("GOOGLE_BASE_URL names the server");
        let address = store.trim_start_matches("http://");
        let (name, len) = (name.replace('/', "%2F"), bytes.len());
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "POST /upload/storage/v1/b/{bucket}/o?uploadType=media&name={name} HTTP/1.1\r\nhost: {address}\r\n\
             content-length: {len}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&bytes)).unwrap();
        let mut status = String::new();
        BufReader::new(stream).read_line(&mut status).unwrap();
        assert!(status.contains("200"), "{status}");
        return;
    }
    use object_store::ObjectStoreExt;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = std::env::vars().map(|(name, value)| (name.to_ascii_lowercase(), value));
    let options = options.chain([("allow_http".to_owned(), "true".to_owned())]);
    let (store, path) = object_store::parse_url_opts(&url::Url::parse(url).unwrap(), options).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(store.put(&path, bytes.into())).unwrap();
}
