//! What the targets share: bytes become a file, the file a source, and all of it is read.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use warpfeed::{RecordFormat, RecordOptions, RecordShards, Source};

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

/// Opens the bytes as a shard and reads it.
pub fn shard(format: RecordFormat, data: &[u8]) {
    let path = file("shard", data);
    if let Ok(source) = RecordShards::open(format, &[path], &options()) {
        // A record takes at least eight bytes.
        assert!(source.len() <= data.len() as u64 / 8 + 1);
        read_all(&source);
    }
}
