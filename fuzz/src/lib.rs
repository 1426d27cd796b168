//! What the targets share: bytes become a file, the file a source, and all of it is read.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use warpfeed::{RecordFormat, RecordOptions, RecordShards, RecordStream, Source, StreamOptions, StreamStart};

/// The folder of this process, in memory where the system has that.
fn folder() -> PathBuf {
    thread_local!(static FOLDER: OnceCell<PathBuf> = const { OnceCell::new() });
    FOLDER.with(|folder| {
        let make = || {
            let memory = Path::new("/dev/shm");
            let root = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
            let folder = root.join(format!("warpfeed-fuzz-{}", std::process::id()));
            std::fs::create_dir_all(&folder).expect("a folder for the file");
            folder
        };
        folder.get_or_init(make).clone()
    })
}

/// Writes a file and gives its path.
pub fn file(name: &str, data: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::write(&path, data).expect("the file can be written");
    path
}

/// Options that keep no index: each file is scanned.
pub fn options() -> RecordOptions {
    RecordOptions { keep_index: false, ..RecordOptions::default() }
}

/// Reads every sample. What cannot be read must be the sample's fault.
pub fn read_all(source: &dyn Source) {
    let mut buffer = Vec::new();
    for index in 0..source.len().min(1000) {
        if let Err(error) = source.read(index, &mut buffer) {
            assert!(error.is_bad_sample(), "{error}");
        }
        source.label(index);
        source.name(index);
    }
    source.fingerprint();
}

/// Each sample's bytes and label, or what is wrong with it.
type Samples = Vec<Result<(Vec<u8>, u32), String>>;

/// What random access to the shard gives.
fn random_access(source: &dyn Source) -> Samples {
    let mut buffer = Vec::new();
    let read = |index| match source.read(index, &mut buffer) {
        Ok(bytes) => Ok((bytes.to_vec(), source.label(index))),
        Err(error) => Err(error.to_string()),
    };
    (0..source.len()).map(read).collect()
}

/// What reading the shard from front to back gives, up to the error that ends it.
fn stream(format: RecordFormat, path: PathBuf) -> Samples {
    let options = StreamOptions { records: options(), window: 1 };
    let stream = RecordStream::open(format, [path], options).expect("a shard").stream().expect("a stream");
    let mut samples = stream.begin(&StreamStart::whole(0)).expect("a beginning");
    let mut all = Vec::new();
    loop {
        match samples.next() {
            Ok(None) => return all,
            Ok(Some(sample)) => all.push(Ok((sample.bytes, sample.label))),
            Err(error) if error.is_bad_sample() => all.push(Err(error.to_string())),
            Err(_) => return all,
        }
    }
}

/// Opens the bytes as a shard and reads it both ways, which find the same samples and the same damage. Names of labels are
/// left out, as a stream does not number them.
pub fn shard(format: RecordFormat, data: &[u8]) {
    let path = file("shard", data);
    let streamed = stream(format, path.clone());
    if let Ok(source) = RecordShards::open(format, &[path], &options()) {
        // A record takes at least eight bytes.
        assert!(source.len() <= data.len() as u64 / 8 + 1);
        read_all(&source);
        if source.classes().is_empty() && labels_agree(&streamed) {
            assert_eq!(streamed, random_access(&source));
        }
    }
}

/// Whether all samples have labels, or none: a stream believes the first, random access the most.
fn labels_agree(samples: &Samples) -> bool {
    !samples.iter().any(|sample| sample.as_ref().is_err_and(|error| error.contains("others have")))
}
