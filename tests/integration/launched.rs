//! Packing and runs under a real launcher, while processes are killed.

#![cfg(target_os = "linux")]

use crate::common::{self, files, jpeg};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A folder of 60 images of about 90 kB.
fn images(folder: &Path) -> String {
    let class = folder.join("images/class");
    fs::create_dir_all(&class).unwrap();
    for i in 0..60_u64 {
        fs::write(class.join(format!("{i:03}.jpg")), jpeg(300 + 4 * i as u32, 320, i)).unwrap();
    }
    folder.join("images").to_str().unwrap().to_owned()
}

/// Packs in four processes of mpirun's; rank 1 is killed after a while.
fn pack(source: &str, out: &str, killed_after: Option<Duration>) {
    const SCRIPT: &str = r#"
if [ "$OMPI_COMM_WORLD_RANK" = 1 ] && [ -n "$KILLED_AFTER" ]; then
    timeout --signal KILL "$KILLED_AFTER" "$0" "$@"
    exit 0
fi
exec "$0" "$@""#;
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", "4", "sh", "-c", SCRIPT]);
    command.args([env!("CARGO_BIN_EXE_warpfeed"), "pack", source, "-o", out, "--rank", "auto"]);
    command.args(["--format", "tfrecord", "--shard-size", "1MB", "--max-side", "290", "--workers", "1", "--json"]);
    command.env("KILLED_AFTER", killed_after.map_or(String::new(), |after| after.as_secs_f64().to_string()));
    let output = command.output().expect("mpirun is installed (openmpi-bin)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Three or four processes have said the same of the whole folder.
    let text = String::from_utf8(output.stdout).unwrap();
    let reports = text.matches(r#""images": 60"#).count();
    assert!(if killed_after.is_some() { reports >= 3 } else { reports == 4 }, "{text}");
}

/// Runs 20 epochs in `ranks` processes of mpirun's. Each is killed a while after it has a file.
fn run(source: &[&str], state: &Path, ranks: u32, killed_after: Option<Duration>) {
    const SCRIPT: &str = r#"
if [ -n "$KILLED_AFTER" ]; then
    "$0" "$@" &
    process=$!
    while kill -0 $process 2>/dev/null; do
        [ -e "$FILE" ] || [ -e "$FILE.$OMPI_COMM_WORLD_RANK" ] && break
        sleep 0.05
    done
    sleep "$KILLED_AFTER.$OMPI_COMM_WORLD_RANK"
    kill -KILL $process 2>/dev/null
    wait $process
    status=$?
    [ $status = 137 ] || [ $status = 0 ]
    exit
fi
exec "$0" "$@""#;
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string(), "sh", "-c", SCRIPT]);
    command.args([env!("CARGO_BIN_EXE_warpfeed"), "run", "--rank", "auto", "--device", "cpu", "--threads", "1"]);
    command.args(source);
    command.args(["--epochs", "20", "--batch-size", "4", "--preset", "eval", "--json", "--state"]).arg(state);
    command.env("KILLED_AFTER", killed_after.map_or(String::new(), |after| after.as_secs().to_string()));
    let output = command.env("FILE", state).output().expect("mpirun is installed (openmpi-bin)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "needs mpirun: the gate's step on ranks"]
fn mpirun_goes_on_with_other_numbers_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let (source, packed) = (images(folder.path()), folder.path().join("packed"));
    pack(&source, packed.to_str().unwrap(), None);
    let shards = packed.join("*.tfrecord");
    let stream = [shards.to_str().unwrap(), "--window", "7"];
    for (number, source) in [&[&*source][..], &stream].into_iter().enumerate() {
        let state = folder.path().join(format!("state-{number}"));
        for ranks in [2, 1, 3] {
            run(source, &state, ranks, Some(Duration::from_secs(1)));
        }
        run(source, &state, 8, None);
        let mut delivered = 0;
        for rank in 0..8 {
            let text = fs::read(folder.path().join(format!("state-{number}.{rank}"))).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
            let images = |of: &serde_json::Value| of["images"].as_u64().unwrap();
            delivered += images(&json["delivered"]) + if rank == 0 { images(&json["change"]["before"]) } else { 0 };
            assert!(json["change"]["changes"].as_u64().unwrap() >= 1);
        }
        assert_eq!(delivered, 20 * 60, "{source:?}");
    }
}

/// The result of one process.
fn alone(source: &str, folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let out = folder.join("alone/train");
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
    command.args(["pack", source, "--rank", "0/1", "--format", "tfrecord", "--shard-size", "1MB", "--max-side", "290"]);
    assert!(command.arg("-o").arg(&out).output().unwrap().status.success());
    files(&out)
}

const DELAYS: [Option<Duration>; 2] = [Some(Duration::from_millis(300)), Some(Duration::from_millis(800))];

#[test]
#[ignore = "needs mpirun: the gate's step on ranks"]
fn mpirun_packs_into_a_folder_what_one_process_packs() {
    let folder = tempfile::tempdir().unwrap();
    let source = images(folder.path());
    let want = alone(&source, folder.path());
    for (i, delay) in [None].into_iter().chain(DELAYS).enumerate() {
        let out = folder.path().join(format!("{i}/train"));
        pack(&source, out.to_str().unwrap(), delay);
        assert!(files(&out) == want, "killed after {delay:?}");
    }
}

#[test]
#[ignore = "needs mpirun and a store that WARPFEED_STORE names, as s3://bucket: scripts/moto, scripts/stores"]
fn a_store_takes_what_mpirun_packs() {
    let store = std::env::var("WARPFEED_STORE").expect("WARPFEED_STORE names the store");
    let folder = tempfile::tempdir().unwrap();
    let source = images(folder.path());
    let want = alone(&source, folder.path());
    for (i, delay) in DELAYS.into_iter().enumerate() {
        let out = format!("{store}/{}/{i}/train", std::process::id());
        pack(&source, &out, delay);
        assert!(objects(&out) == want, "killed after {delay:?}");
        let verified = Command::new(env!("CARGO_BIN_EXE_warpfeed")).args(["pack", "--verify", &out]).output().unwrap();
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    }
}

/// A shard in parts, and a run that is killed while they are on their way.
#[test]
#[ignore = "needs a store that WARPFEED_STORE names, as s3://bucket: scripts/moto, scripts/stores"]
fn a_store_takes_large_shards() {
    let store = std::env::var("WARPFEED_STORE").expect("WARPFEED_STORE names the store");
    let folder = tempfile::tempdir().unwrap();
    let class = folder.path().join("raw/class");
    fs::create_dir_all(&class).unwrap();
    for i in 0..20_u64 {
        let mut random = common::Random(i + 1);
        let pixels = (0..1000 * 700 * 3 / 8).flat_map(|_| random.next().to_le_bytes());
        let image: Vec<u8> = b"P6 1000 700 255\n".iter().copied().chain(pixels).collect();
        fs::write(class.join(format!("{i:02}.ppm")), image).unwrap();
    }
    let start = |out: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command.arg("pack").arg(folder.path().join("raw")).args(["--format", "webdataset", "--shard-size", "22MB"]);
        command.args(["-o", out]).stdout(Stdio::null()).spawn().unwrap()
    };
    let local = folder.path().join("train");
    assert!(start(local.to_str().unwrap()).wait().unwrap().success());
    let out = format!("{store}/{}/large/train", std::process::id());
    for delay in [100, 300, 500, 700] {
        let mut killed = start(&out);
        std::thread::sleep(Duration::from_millis(delay));
        let _ = killed.kill();
        killed.wait().unwrap();
    }
    assert!(start(&out).wait().unwrap().success());
    assert!(objects(&out) == files(&local), "{:?}", objects(&out).keys());
    if let Some(bucket) = store.strip_prefix("s3://") {
        let endpoint = std::env::var("AWS_ENDPOINT_URL").expect("AWS_ENDPOINT_URL names the server");
        let ask = |path: &str, answer| patiently(|| get(&endpoint, &format!("/{bucket}{path}"), answer));
        // An upload may be begun and then forgotten by a kill or a lost answer, but not one that has parts.
        let listed = ask("?uploads", "</ListMultipartUploadsResult>");
        for upload in listed.split("<Upload>").skip(1) {
            let (file, id) = (tagged(upload, "Key"), tagged(upload, "UploadId"));
            let parts = ask(&format!("/{file}?uploadId={id}"), "</ListParts");
            assert!(!parts.contains("<Part>"), "{parts}");
        }
    }
}

/// The text between a tag and its end.
fn tagged<'a>(xml: &'a str, tag: &str) -> &'a str {
    let (_, after) = xml.split_once(&format!("<{tag}>")).expect(tag);
    after.split_once('<').expect(tag).0
}

/// Asks again while a server is in bad moods.
fn patiently<T>(ask: impl Fn() -> Option<T>) -> T {
    (0..50).find_map(|_| ask()).expect("the server answers at some time")
}

/// A server's answer, when it is complete.
fn get(endpoint: &str, path: &str, end: &str) -> Option<String> {
    use std::io::{Read, Write};
    let address = endpoint.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.contains(end).then_some(answer)
}

/// All objects in a folder of the store, by their names in it.
fn objects(url: &str) -> BTreeMap<String, Vec<u8>> {
    use object_store::ObjectStoreExt;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = std::env::vars().map(|(name, value)| (name.to_ascii_lowercase(), value));
    let options = options.chain([("allow_http".to_owned(), "true".to_owned())]);
    let (store, path) = object_store::parse_url_opts(&url::Url::parse(url).unwrap(), options).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let found = patiently(|| runtime.block_on(store.list_with_delimiter(Some(&path))).ok());
    assert!(found.common_prefixes.is_empty(), "{:?}", found.common_prefixes);
    let read = |path| patiently(|| runtime.block_on(async { store.get(path).await.ok()?.bytes().await.ok() })).to_vec();
    let named = |path: &object_store::path::Path| path.filename().unwrap().to_owned();
    found.objects.iter().map(|object| (named(&object.location), read(&object.location))).collect()
}
