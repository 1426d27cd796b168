//! Packs images into shards, which are read in long runs where single files are not.

mod manifest;
mod prepare;
mod queue;
mod record;

pub(crate) use manifest::Manifest;

use crate::atomic;
use crate::error::{Error, Result};
use crate::pipeline::BadSample;
use crate::source::{RecordFormat, Source};
use manifest::{PackedShard, SavedOptions};
use prepare::Preparer;
use queue::Queue;
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Smaller shards are no better than single files.
const MIN_SHARD_BYTES: u64 = 1_000_000;

/// Bad samples of each shard that are kept with their errors; all are counted.
const MAX_BAD_KEPT: usize = 1_000;

/// How images are packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackOptions {
    /// The format of the shards.
    pub format: RecordFormat,
    /// A shard is ended before it grows beyond this many bytes, 1 MB or more. A single larger image has its own.
    pub shard_bytes: u64,
    /// Images whose longer side has more pixels are turned upright, shrunk to it (bilinear, as torchvision resizes),
    /// and encoded as JPEG.
    pub max_side_px: Option<u32>,
    /// The quality of what is encoded, 1 to 100.
    pub quality: u8,
    /// Makes baseline JPEGs of progressive ones, which loses nothing, and YCbCr ones of those in CMYK, by encoding them
    /// again with full colour resolution; for decoders in hardware.
    pub baseline: bool,
    /// Worker threads, at least 1.
    pub workers: usize,
}

impl PackOptions {
    /// 128 MB a shard, images as they are, quality 90, a worker for each processor.
    #[must_use]
    pub fn new(format: RecordFormat) -> Self {
        Self {
            format,
            shard_bytes: 128_000_000,
            max_side_px: None,
            quality: 90,
            baseline: false,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    fn check(&self) -> Result<()> {
        let refuse = |parameter, expected: &str, got: u64| Err(Error::parameter("pack", parameter, expected, got));
        match self {
            Self { shard_bytes: got @ ..MIN_SHARD_BYTES, .. } => refuse("shard_bytes", "1 MB or more", *got),
            Self { max_side_px: Some(0), .. } => refuse("max_side_px", "1 or more", 0),
            Self { quality: got @ (0 | 101..), .. } => refuse("quality", "1 to 100", (*got).into()),
            Self { workers: 0, .. } => refuse("workers", "1 or more", 0),
            _ => Ok(()),
        }
    }
}

/// What packing did. Numbers and shards are those of the whole folder, with what was there before.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct PackReport {
    /// The shards, in order.
    pub shards: Vec<PathBuf>,
    /// Images in them.
    pub images: u64,
    /// Of these, how many were there already from an earlier, interrupted run.
    pub resumed_images: u64,
    /// Bytes in all shards.
    pub bytes: u64,
    /// Images that were shrunk.
    pub shrunk: u64,
    /// Progressive JPEGs that were made baseline, without loss.
    pub made_baseline: u64,
    /// JPEGs in CMYK that were encoded again.
    pub made_ycc: u64,
    /// Samples that could not be used and were left out.
    pub bad_count: u64,
    /// The first 1,000 of them of each shard.
    pub bad: Vec<BadSample>,
}

/// Packs all samples of `source`, in its order, into shards in the folder `out`.
///
/// The files are called after the folder: in `train`, they are `train-000000.tar`; `train-000000.rec` with
/// `train-000000.idx`; `train-00000-of-00008.tfrecord`. Keys and identifiers are the samples' indices. Images are copied
/// byte for byte unless the options ask for more. The shards are the same for any number of workers.
///
/// A sample is bad, and left out, if it cannot be read, has no image's header, is a JPEG without end that does not
/// decode whole, or fails to be made what was asked for.
///
/// Each shard takes its name once it is complete. `pack.json` beside them says how far packing has come; after an
/// interruption the same call goes on from there. The folder is a source ([`open`](crate::open)) when it is complete.
/// In memory are, for each worker, four encoded images and what shrinking takes.
///
/// `progress` hears how many samples are done, those of an earlier run included.
///
/// # Errors
/// [`Error::Parameter`] for options out of range, a folder with other contents, one that was begun with another source
/// or other options, or a label that the format cannot hold; [`Error::Io`] if it cannot be written.
///
/// ```
/// use warpfeed::pack::{PackOptions, pack};
/// use warpfeed::*;
///
/// let folder = tempfile::tempdir().unwrap();
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..5).map(|label| (jpeg.clone(), label)));
/// let out = folder.path().join("train");
/// let report = pack(&source, &out, &PackOptions::new(RecordFormat::WebDataset), &mut |_done| {})?;
/// assert_eq!((report.images, report.shards), (5, vec![out.join("train-000000.tar")]));
/// let packed = open(&out)?.into_data_set()?;
/// assert_eq!((packed.len(), packed.label(4)), (5, 4));
/// assert_eq!(packed.read(4, &mut Vec::new())?, jpeg);
/// # Ok::<(), Error>(())
/// ```
pub fn pack(
    source: &dyn Source,
    out: &Path,
    options: &PackOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<PackReport> {
    options.check()?;
    let name = base_name(out)?;
    let mut manifest = begin(source, out, &name, options)?;
    let resumed_images = manifest.shards.iter().map(|shard| shard.images).sum();
    if !manifest.complete {
        let next = manifest.shards.last().map_or(0, |shard| shard.end);
        progress(next);
        let prepare = Preparer::new(source, options);
        let queue = Queue::new(next..source.len(), options.workers);
        queue.run(&prepare, |queue| write_shards(queue, &prepare, out, &name, options, &mut manifest, progress))?;
        finish(out, &name, options.format, &mut manifest)?;
    }
    let sum = |count: fn(&PackedShard) -> u64| manifest.shards.iter().map(count).sum();
    Ok(PackReport {
        images: sum(|shard| shard.images),
        resumed_images,
        bytes: sum(|shard| shard.bytes),
        shrunk: sum(|shard| shard.shrunk),
        made_baseline: sum(|shard| shard.made_baseline),
        made_ycc: sum(|shard| shard.made_ycc),
        bad_count: sum(|shard| shard.bad_count),
        shards: manifest.files().map(|file| out.join(file)).collect(),
        bad: manifest.shards.into_iter().flat_map(|shard| shard.bad).collect(),
    })
}

/// The last part of the folder's path, which the shards are named after.
fn base_name(out: &Path) -> Result<String> {
    let absolute = std::path::absolute(out).map_err(Error::io("find", out))?;
    let name = absolute.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.'));
    let expected = "a folder whose name is text and does not start with a dot";
    name.map(str::to_owned).ok_or_else(|| Error::parameter("pack", "out", expected, out.display()))
}

/// The manifest to go on from, which fits what the folder holds; a new one for an empty folder.
fn begin(source: &dyn Source, out: &Path, name: &str, options: &PackOptions) -> Result<Manifest> {
    fs::create_dir_all(out).map_err(Error::io("make", out))?;
    let fresh = Manifest::new(source, SavedOptions::new(options));
    let Some(mut manifest) = Manifest::read(out)? else {
        for entry in fs::read_dir(out).map_err(Error::io("list", out))? {
            let found = entry.map_err(Error::io("list", out))?.file_name();
            if !found.as_encoded_bytes().starts_with(b".") {
                let got = format!("{} with {}", out.display(), found.display());
                return Err(Error::parameter("pack", "out", "an empty or new folder", got));
            }
        }
        fresh.write(out)?;
        return Ok(fresh);
    };
    if let Some(differs) = manifest.differs(&fresh) {
        let expected = "a folder that was begun with the same source and options";
        return Err(Error::parameter("pack", "out", expected, format!("{} with {differs}", out.display())));
    }
    remove_leftovers(out, name)?;
    // What lies there counts, not what was written down.
    let whole = |shard: &PackedShard, i, count| {
        let is = |file: &str| fs::metadata(out.join(file)).is_ok_and(|metadata| metadata.len() == shard.bytes);
        is(&record::hidden_name(options.format, name, i)) || is(&record::final_name(options.format, name, i, count))
    };
    let count = manifest.shards.len();
    let kept = (0..count).take_while(|&i| whole(&manifest.shards[i], i, count)).count();
    if kept < count {
        manifest.shards.truncate(kept);
        manifest.complete = false;
    }
    Ok(manifest)
}

/// Removes the temporary files that a killed run has left.
fn remove_leftovers(out: &Path, name: &str) -> Result<()> {
    for entry in fs::read_dir(out).map_err(Error::io("list", out))? {
        let path = entry.map_err(Error::io("list", out))?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let ours = [format!(".{name}-"), format!("..{name}-"), format!(".{}.", manifest::FILE)];
        if file.ends_with(".tmp") && ours.iter().any(|start| file.starts_with(start)) {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}

/// Writes what comes out of the queue into shards, each followed by the manifest.
fn write_shards(
    queue: &Queue,
    prepare: &Preparer,
    out: &Path,
    name: &str,
    options: &PackOptions,
    manifest: &mut Manifest,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut waiting = None;
    loop {
        let i = manifest.shards.len();
        let mut shard =
            PackedShard { end: manifest.shards.last().map_or(0, |last| last.end), ..PackedShard::default() };
        let mut offsets = String::new();
        let mut failed = None;
        let mut fill = |file: &mut dyn Write| -> std::io::Result<()> {
            let mut bytes = Vec::new();
            while let Some((index, outcome)) = waiting.take().or_else(|| queue.next()) {
                match outcome {
                    Ok(sample) => {
                        bytes.clear();
                        if let Err(error) = record::append(options.format, index, &sample, &mut bytes) {
                            failed = Some(error);
                            break;
                        }
                        let end = record::end_bytes(options.format).len() as u64;
                        if shard.images > 0 && shard.bytes + bytes.len() as u64 + end > options.shard_bytes {
                            waiting = Some((index, Ok(sample)));
                            break;
                        }
                        if options.format == RecordFormat::RecordIo {
                            offsets += &format!("{index}\t{}\n", shard.bytes);
                        }
                        file.write_all(&bytes)?;
                        shard.bytes += bytes.len() as u64;
                        shard.count(&sample);
                    }
                    Err(error) if error.is_bad_sample() => shard.add_bad(index, prepare.name(index), &error),
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
                shard.end = index + 1;
                progress(shard.end);
            }
            file.write_all(record::end_bytes(options.format))?;
            shard.bytes += record::end_bytes(options.format).len() as u64;
            failed.as_ref().map_or(Ok(()), |_| Err(std::io::Error::other("stopped")))
        };
        let path = out.join(record::hidden_name(options.format, name, i));
        let written = atomic::write(&path, |file| fill(file));
        if let Some(error) = failed {
            return Err(error);
        }
        written?;
        if shard.images == 0 {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            // Bad samples at the very end belong to the last shard, so that they are not lost.
            let Some(last) = manifest.shards.last_mut() else { return Err(shard.nothing()) };
            last.take_bad(shard);
            return manifest.write(out);
        }
        if options.format == RecordFormat::RecordIo {
            atomic::write(&path.with_extension("idx"), |file| file.write_all(offsets.as_bytes()))?;
        }
        manifest.shards.push(shard);
        manifest.write(out)?;
        if waiting.is_none() && queue.is_done() {
            return Ok(());
        }
    }
}

/// Gives all shards their names, and the folder its completeness.
fn finish(out: &Path, name: &str, format: RecordFormat, manifest: &mut Manifest) -> Result<()> {
    let count = manifest.shards.len();
    for i in 0..count {
        let (hidden, named) = (record::hidden_name(format, name, i), record::final_name(format, name, i, count));
        let hidden = out.join(hidden);
        if hidden.exists() && hidden != out.join(&named) {
            fs::rename(&hidden, out.join(&named)).map_err(Error::io("rename", &hidden))?;
        }
        manifest.shards[i].file = named;
    }
    manifest.complete = true;
    manifest.write(out)
}
