//! Logs of runs and manifests of packed folders.

use crate::folder;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use warpfeed::ops::random_resized_crop;
use warpfeed::{
    LogOptions, Pipeline, Replay, RunLog,
    image::{Image, JpegOptions, Size, encode_jpeg},
    pack::{PackOptions, pack, verify},
    source::{EncodedImages, RecordFormat, open},
};

/// Largest number of bytes that a folder may take after it was packed again.
const MAX_PACKED_BYTES: u64 = 1 << 20;

fn source() -> EncodedImages {
    let jpeg = encode_jpeg(&Image::new(Size::new(20, 15)), &JpegOptions::default()).expect("a JPEG");
    EncodedImages::new((0..5).map(|label| (jpeg.clone(), label)))
}

fn pipeline() -> Pipeline {
    let builder = Pipeline::builder(source()).threads(0).batch_size(2).shuffle(3).transform(random_resized_crop(8));
    builder.build().expect("a good pipeline")
}

/// The files below the folder of this process, with the times at which they were written.
fn listing() -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of ours") {
            let (path, is_folder) = entry.map(|entry| (entry.path(), entry.path().is_dir())).expect("an entry");
            if is_folder {
                folders.push(path);
            } else {
                let metadata = fs::metadata(&path).expect("a file of ours");
                files.insert(path, (metadata.len(), metadata.modified().expect("a time")));
            }
        }
    }
    files
}

/// A log of two epochs, with a chain where it is asked for.
///
/// # Panics
/// If there is no memory or disk.
#[must_use]
pub fn good_log(chain: bool) -> Vec<u8> {
    let path = folder().join("good.log");
    let _ = fs::remove_file(&path);
    let mut options = LogOptions::default();
    (options.digests, options.chain) = (true, chain);
    options.arguments = ["run", "images", "--preset", "eval"].map(str::to_owned).to_vec();
    let pipeline = pipeline();
    let mut log = RunLog::open(&path, &pipeline, &options).expect("a new log");
    for (step, batch) in (0..2).flat_map(|epoch| pipeline.epoch(epoch)).enumerate() {
        log.write(step as u64, &batch.expect("a batch")).expect("a line");
    }
    drop(log);
    fs::read(path).expect("the log was written")
}

/// Reads a log and makes its batches again.
pub fn log(data: &[u8]) {
    let path = crate::file("run.log", data);
    let before = listing();
    if let Ok(replay) = Replay::open(&path) {
        assert!(replay.arguments().iter().map(String::len).sum::<usize>() <= data.len());
        assert!(replay.partition().contains('/'));
        let (pipeline, replay) = (pipeline(), replay.approximate(true));
        let _ = replay.summary();
        let _ = replay.verify(&pipeline, 9, 7);
        let _ = replay.batch(&pipeline, 3);
    }
    assert_eq!(listing(), before, "a log makes its reader write");
}

/// A manifest without the checksum of its text, as earlier versions wrote it, which a change does not damage.
///
/// # Panics
/// If there is no memory or disk.
#[must_use]
pub fn good_manifest() -> Vec<u8> {
    let text = fs::read_to_string(packed().join("pack.json")).expect("the manifest was written");
    let (text, _) = text.rsplit_once(",\n").expect("several entries");
    format!("{text}\n}}\n").into_bytes()
}

/// A new packed folder.
fn packed() -> PathBuf {
    let out = folder().join("train");
    let _ = fs::remove_dir_all(&out);
    pack(&source(), &out, &options(), &mut |_| {}).expect("it is packed");
    out
}

fn options() -> PackOptions {
    PackOptions::new(RecordFormat::WebDataset).workers(1)
}

/// Reads a folder with this manifest: verifies it, opens it, and packs into it again.
pub fn manifest(data: &[u8]) {
    let out = packed();
    fs::write(out.join("pack.json"), data).expect("the manifest is ours");
    let is_outside = |(path, _): &(PathBuf, _)| !path.starts_with(&out);
    let outside = || -> Vec<_> { listing().into_iter().filter(is_outside).collect() };
    let before = outside();
    let _ = verify(&out, &mut |_| {});
    if let Ok(source) = open(&out).and_then(|source| source.into_data_set()) {
        assert!(source.len() <= MAX_PACKED_BYTES / 512);
    }
    let _ = pack(&source(), &out, &options(), &mut |_| {});
    assert_eq!(outside(), before, "a manifest makes its reader write elsewhere");
    assert!(bytes_in(&out) <= MAX_PACKED_BYTES);
}

fn bytes_in(folder: &Path) -> u64 {
    listing().iter().filter(|(path, _)| path.starts_with(folder)).map(|(_, (bytes, _))| bytes).sum()
}
