//! Packs images into shards, which are read in long runs where single files are not.

mod lock;
mod manifest;
mod names;
mod prepare;
mod queue;
mod together;
mod verify;

pub use verify::{DamagedFile, VerifyReport, verify};

use crate::atomic;
use crate::error::{Error, Result};
use crate::pipeline::{BadLimit, BadSample, IO_FAILURES, Losses, MAX_THREADS, Tally, io_failure};
use crate::rank::Rank;
use crate::source::packed::{Found, MANIFEST};
use crate::source::{RecordFormat, Source};
use lock::Lock;
use manifest::{Manifest, PackedFile, PackedShard, SavedOptions};
use prepare::{Preparer, Sample};
use queue::Queue;
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Smaller shards are no better than single files.
const MIN_SHARD_BYTES: u64 = 1_000_000;

/// Bad samples of each shard that are kept with their errors; all are counted.
const MAX_BAD_KEPT: usize = 1_000;

/// How images are packed.
#[derive(Debug, Clone, PartialEq)]
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
    /// again with full color resolution; for decoders in hardware.
    pub baseline: bool,
    /// Puts a restart marker behind each row of MCUs of JPEGs, and an index of the rows in front of them, so that the CPU
    /// decodes a crop without what lies above it and to its right. It loses nothing: the coefficients are copied, and
    /// images are decoded before and after and compared. Progressive images become baseline. What cannot be written so (12
    /// bits, lossless, damaged) is copied as it is.
    pub restarts: bool,
    /// A field of the source that is packed with its images, under the same name: see [`Source::target`]. None if not given.
    /// WebDataset has it as a part, or, where it is `json.FIELD`, as a field of one; TFRecord as a feature; RecordIO has
    /// the array `label` alone, whose first number is the label.
    pub target: Option<String>,
    /// How many samples of the source may be bad. If there is no limit, packing fails where the first 100 samples, or
    /// all, are bad: an unmounted disk is no data set.
    pub max_bad: Option<BadLimit>,
    /// Worker threads, 1 to 1,024.
    pub workers: usize,
    /// Of several processes that pack into one folder together: which of them this is. They may be on different machines,
    /// whose file system has the locks of `flock(2)`.
    pub rank: Option<Rank>,
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
            restarts: false,
            target: None,
            max_bad: None,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            rank: None,
        }
    }

    fn check(&self) -> Result<()> {
        let refuse = |parameter, expected: &str, got: u64| Err(Error::parameter("pack", parameter, expected, got));
        match self {
            Self { shard_bytes: got @ ..MIN_SHARD_BYTES, .. } => refuse("shard_bytes", "1 MB or more", *got),
            Self { max_side_px: Some(0), .. } => refuse("max_side_px", "1 or more", 0),
            Self { quality: got @ (0 | 101..), .. } => refuse("quality", "1 to 100", (*got).into()),
            Self { workers, .. } if !(1..=MAX_THREADS).contains(workers) => {
                refuse("workers", &format!("1 to {MAX_THREADS}"), *workers as u64)
            }
            Self { max_bad: Some(limit), .. } => limit.check(),
            _ => Ok(()),
        }?;
        self.target.as_ref().map_or(Ok(()), |field| self.format.check_packed_field(field))
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
    /// Of these, how many were there already from an earlier, interrupted run, or come from other processes.
    pub resumed_images: u64,
    /// Bytes in all shards.
    pub bytes: u64,
    /// Images that were shrunk.
    pub shrunk: u64,
    /// Progressive JPEGs that were made baseline, without loss.
    pub made_baseline: u64,
    /// JPEGs in CMYK that were encoded again.
    pub made_ycc: u64,
    /// JPEGs with restart markers and an index of their rows.
    pub restarts: u64,
    /// Samples that could not be used and were left out.
    pub bad_count: u64,
    /// The first 1,000 of them of each shard.
    pub bad: Vec<BadSample>,
    /// Why `pack.json` of an earlier run could not be understood, so that everything was packed anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged_manifest: Option<String>,
}

/// Packs all samples of `source`, in its order, into shards in the folder `out`.
///
/// The files are called after the folder: in `train`, they are `train-000000.tar`; `train-000000.rec` with
/// `train-000000.idx`; `train-00000-of-00008.tfrecord`. Keys and identifiers are the samples' indices. Images are copied
/// byte for byte unless the options ask for more. The shards are the same for any number of workers.
///
/// A sample is bad, and left out, if it cannot be read, has no image's header, is a JPEG without end that does not
/// decode whole, or fails to be made what was asked for. Faults of the machine (no more file descriptors, memory or
/// room on the disk, a server that is gone, a disk that fails at several samples in a row) end packing; nothing is left out
/// because of them. So do more bad samples than [`PackOptions::max_bad`].
///
/// Each shard takes its name once it is complete and on the disk. `pack.json` beside them says how far packing has come
/// and has a checksum of each ([`verify`]); after an interruption, a power loss included, the same call goes on from
/// there. Where `pack.json` itself is damaged, all is packed anew. The folder is a source ([`open`](crate::source::open)) when
/// it is complete. One run at a time packs into a folder. In memory are, for each worker, four encoded images and two
/// decoded ones.
///
/// `progress` hears how many samples are done, those of an earlier run and of other processes included.
///
/// **Several processes** pack together where each has a [`PackOptions::rank`]. Every process takes the shards that nobody
/// has taken, and those of processes that have died, and returns when all are there: the report is of the whole folder.
/// Processes may join and leave at any time. A shard then has a fixed number of the source's samples, bad ones included, so
/// that no process need know what others leave out: as many as fill [`PackOptions::shard_bytes`] by the mean of 256 samples
/// spread evenly over the source. So the shards are the same for any number of processes, and not those that one process
/// without a rank makes.
///
/// # Errors
/// [`Error::Parameter`] for options out of range, a folder with other contents, one that was begun with another source
/// or other options or into which another run is packing, or a label that the format cannot hold;
/// [`Error::TooManyBad`]; [`Error::Io`] if the folder cannot be written or the machine is at fault; [`Error::Thread`] if the
/// workers cannot be started.
///
/// ```
/// use warpfeed::pack::{PackOptions, pack};
/// use warpfeed::prelude::*;
/// use warpfeed::{source::{RecordFormat, open}, image::{Image, JpegOptions, encode_jpeg}};
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
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn pack(
    source: &dyn Source,
    out: &Path,
    options: &PackOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<PackReport> {
    options.check()?;
    let name = base_name(out)?;
    if let Some(rank) = options.rank {
        return together::pack(source, out, &name, options, rank, progress);
    }
    let fresh = Manifest::new(source, SavedOptions::new(options));
    fs::create_dir_all(out).map_err(Error::io("make", out))?;
    // What is finished needs no lock, so it may be on a disk that cannot be written to.
    if let Found::Whole(manifest) = Found::<Manifest>::in_folder(out)?
        && manifest.complete
        && manifest.differs(&fresh).is_none()
        && whole_shards(&manifest, out, &name, options.format) == manifest.shards.len()
    {
        let resumed_images = manifest.shards.iter().map(|shard| shard.images).sum();
        return Ok(report(manifest, out, resumed_images, None));
    }
    let _lock = Lock::take(out, &fresh.job())?;
    let (mut manifest, damaged_manifest) = begin(fresh, out, &name, options, Duration::ZERO)?;
    let resumed_images = manifest.shards.iter().map(|shard| shard.images).sum();
    if !manifest.complete {
        let next = manifest.shards.last().map_or(0, |shard| shard.end);
        progress(next);
        let prepare = Preparer::new(source, options);
        let queue = Queue::new(next..source.len(), options.workers);
        queue.run(&prepare, |queue| write_shards(queue, &prepare, out, &name, options, &mut manifest, progress))?;
        finish(out, &name, options.format, &mut manifest)?;
    }
    Ok(report(manifest, out, resumed_images, damaged_manifest))
}

fn report(manifest: Manifest, out: &Path, resumed_images: u64, damaged_manifest: Option<String>) -> PackReport {
    let sum = |count: fn(&PackedShard) -> u64| manifest.shards.iter().map(count).sum();
    PackReport {
        images: sum(|shard| shard.images),
        resumed_images,
        bytes: sum(PackedShard::bytes),
        shrunk: sum(|shard| shard.shrunk),
        made_baseline: sum(|shard| shard.made_baseline),
        made_ycc: sum(|shard| shard.made_ycc),
        restarts: sum(|shard| shard.restarts),
        bad_count: sum(|shard| shard.bad_count),
        shards: manifest.shards.iter().map(|shard| out.join(shard.name())).collect(),
        bad: manifest.shards.into_iter().flat_map(|shard| shard.bad).collect(),
        damaged_manifest,
    }
}

/// The last part of the folder's path, which the shards are named after.
fn base_name(out: &Path) -> Result<String> {
    let absolute = std::path::absolute(out).map_err(Error::io("find", out))?;
    let name = absolute.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.'));
    let expected = "a folder whose name is text and does not start with a dot";
    name.map(str::to_owned).ok_or_else(|| Error::parameter("pack", "out", expected, out.display()))
}

/// The manifest to go on from, which fits what the folder holds; a new one for an empty folder or one whose manifest is
/// damaged, and then why it is. Temporary files that nothing was written to for `leftover_age` are of dead processes.
fn begin(
    fresh: Manifest,
    out: &Path,
    name: &str,
    options: &PackOptions,
    leftover_age: Duration,
) -> Result<(Manifest, Option<String>)> {
    atomic::remove_leftovers(out, leftover_age, |file| file == MANIFEST || names::is_name(options.format, name, file))?;
    let damaged = match Found::<Manifest>::in_folder(out)? {
        Found::Whole(manifest) => return go_on(manifest, &fresh, out, name, options).map(|manifest| (manifest, None)),
        Found::Damaged(reason) => Some(reason),
        Found::Nothing => None,
    };
    let mut stale = Vec::new();
    for entry in fs::read_dir(out).map_err(Error::io("list", out))? {
        let found = entry.map_err(Error::io("list", out))?.file_name();
        if damaged.is_some() && found.to_str().is_some_and(|file| names::is_name(options.format, name, file)) {
            stale.push(out.join(found));
        } else if !(found.as_encoded_bytes().starts_with(b".") || damaged.is_some() && found == MANIFEST) {
            let why = damaged.map_or_else(String::new, |why| format!(" and a {} that is of no use: {why}", MANIFEST));
            let got = format!("{} with {}{why}", out.display(), found.display());
            return Err(Error::parameter("pack", "out", "an empty or new folder", got));
        }
    }
    // Their number and order are not known any more.
    for path in stale {
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    }
    fresh.write(out)?;
    // The folder itself may be new.
    let parent = atomic::folder_of(out);
    atomic::sync_folder(parent).map_err(Error::io("sync", parent))?;
    Ok((fresh, damaged))
}

/// An earlier run's manifest with the shards that are still there.
fn go_on(mut manifest: Manifest, fresh: &Manifest, out: &Path, name: &str, options: &PackOptions) -> Result<Manifest> {
    if let Some(differs) = manifest.differs(fresh) {
        let expected = "a folder that was begun with the same source and options";
        return Err(Error::parameter("pack", "out", expected, format!("{} with {differs}", out.display())));
    }
    let whole = whole_shards(&manifest, out, name, options.format);
    if whole < manifest.shards.len() {
        manifest.shards.truncate(whole);
        manifest.complete = false;
    }
    Ok(manifest)
}

/// How many shards, from the first one on, lie in the folder as they were written, by name and length. Both are on the
/// disk before the manifest names them; [`verify`] reads the contents too.
fn whole_shards(manifest: &Manifest, out: &Path, name: &str, format: RecordFormat) -> usize {
    let count = manifest.shards.len();
    let is_whole = |(i, shard): (usize, &PackedShard)| match &shard.files[..] {
        // The run may have ended while shards were given their last names.
        [file] => {
            [&file.name, &names::final_name(format, name, i, count)].iter().any(|name| file.is_at(&out.join(name)))
        }
        files => files.iter().all(|file| file.is_at(&out.join(&file.name))),
    };
    manifest.shards.iter().enumerate().take_while(|&shard| is_whole(shard)).count()
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
    let mut losses = BadCount::new(manifest, queue.end(), options.max_bad)?;
    loop {
        let i = manifest.shards.len();
        let begin = manifest.shards.last().map_or(0, |last| last.end);
        let writer = ShardWriter { queue, prepare, out, options, limit_bytes: Some(options.shard_bytes) };
        let file = names::hidden_name(options.format, name, i);
        let mut shard = writer.write((file, name, i), begin, &mut waiting, &mut losses, progress)?;
        if waiting.is_none() {
            losses.end()?;
        }
        if shard.images == 0 {
            for file in shard.files.drain(..) {
                let path = out.join(file.name);
                fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            }
            // Bad samples at the very end belong to the last shard, so that they are not lost.
            let Some(last) = manifest.shards.last_mut() else { return Err(shard.nothing()) };
            last.take_bad(shard);
            return manifest.write(out);
        }
        manifest.shards.push(shard);
        manifest.write(out)?;
        if waiting.is_none() && queue.is_done() {
            return Ok(());
        }
    }
}

/// Writes one shard of what comes out of a queue.
struct ShardWriter<'a> {
    queue: &'a Queue,
    prepare: &'a Preparer<'a>,
    out: &'a Path,
    options: &'a PackOptions,
    /// The shard ends before it grows beyond this; without it, with the queue.
    limit_bytes: Option<u64>,
}

impl ShardWriter<'_> {
    /// Writes shard `i` of `name` as `file`, from the sample `begin` on. What does not fit into it is left in `waiting`.
    fn write(
        &self,
        (file, name, i): (String, &str, usize),
        begin: u64,
        waiting: &mut Option<(u64, Result<Sample>)>,
        losses: &mut BadCount,
        progress: &mut dyn FnMut(u64),
    ) -> Result<PackedShard> {
        let format = self.options.format;
        let mut shard = PackedShard { end: begin, ..PackedShard::default() };
        let mut offsets = String::new();
        let mut failed = None;
        let fill = |file: &mut Summed| -> io::Result<()> {
            let mut bytes = Vec::new();
            while let Some((index, outcome)) = waiting.take().or_else(|| self.queue.next()) {
                match outcome {
                    Ok(sample) => {
                        bytes.clear();
                        failed = format.write(&sample.record(index), &mut bytes).err();
                        if failed.is_some() {
                            break;
                        }
                        let len_bytes = file.len_bytes + (bytes.len() + format.end().len()) as u64;
                        if shard.images > 0 && self.limit_bytes.is_some_and(|limit| len_bytes > limit) {
                            *waiting = Some((index, Ok(sample)));
                            break;
                        }
                        if format == RecordFormat::RecordIo {
                            offsets += &format!("{index}\t{}\n", file.len_bytes);
                        }
                        file.write_all(&bytes)?;
                        shard.count(&sample);
                        failed = losses.good().err();
                    }
                    Err(error) if error.is_bad_sample() => {
                        let name = self.prepare.name(index);
                        shard.add_bad(index, name.clone(), &error);
                        failed = losses.bad(Error::Sample { index, name, source: Box::new(error) }).err();
                    }
                    Err(error) => failed = Some(error),
                }
                if failed.is_some() {
                    break;
                }
                shard.end = index + 1;
                progress(shard.end);
            }
            file.write_all(format.end())?;
            failed.as_ref().map_or(Ok(()), |_| Err(io::Error::other("stopped")))
        };
        let written = write_summed(self.out, file, fill);
        if let Some(error) = failed {
            return Err(error);
        }
        shard.files.push(written?);
        if format == RecordFormat::RecordIo && shard.images > 0 {
            let index = names::index_name(name, i);
            shard.files.push(write_summed(self.out, index, |file| file.write_all(offsets.as_bytes()))?);
        }
        Ok(shard)
    }
}

/// Holds bad samples against the limit, those of earlier runs included.
struct BadCount {
    tally: Tally,
    /// Samples in a row that the system failed to read.
    io_failures: u32,
}

impl BadCount {
    fn new(manifest: &Manifest, samples: u64, limit: Option<BadLimit>) -> Result<Self> {
        let packed = manifest.shards.last().map_or(0, |shard| shard.end);
        let mut tally = Tally::new(limit, Some(samples), true);
        let bad = manifest.shards.iter().map(|shard| shard.bad_count).sum();
        tally.add(packed, Losses { bad, ..Losses::default() })?;
        Ok(Self { tally, io_failures: 0 })
    }

    fn good(&mut self) -> Result<()> {
        self.io_failures = 0;
        self.tally.add(1, Losses::default())
    }

    fn bad(&mut self, error: Error) -> Result<()> {
        self.io_failures = if error.is_io_failure() { self.io_failures + 1 } else { 0 };
        if self.io_failures == IO_FAILURES {
            return Err(io_failure(error));
        }
        self.tally.add(1, Losses { bad: 1, leading: 1, first: Some(Box::new(error)) })
    }

    /// There are no more samples.
    fn end(&mut self) -> Result<()> {
        self.tally.end()
    }
}

/// A file in the making, whose length and checksum are taken on the way.
struct Summed<'a> {
    file: &'a mut dyn Write,
    len_bytes: u64,
    crc32c: u32,
}

impl Summed<'_> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.len_bytes += bytes.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        self.file.write_all(bytes)
    }
}

/// Writes a file of the folder so that it survives a power loss.
fn write_summed(out: &Path, name: String, contents: impl FnOnce(&mut Summed) -> io::Result<()>) -> Result<PackedFile> {
    let (mut len_bytes, mut crc32c) = (0, 0);
    atomic::write_synced(&out.join(&name), |file| {
        let mut summed = Summed { file, len_bytes, crc32c };
        contents(&mut summed)?;
        (len_bytes, crc32c) = (summed.len_bytes, summed.crc32c);
        Ok(())
    })?;
    Ok(PackedFile::new(name, len_bytes, crc32c))
}

/// Gives all shards their names, and the folder its completeness.
fn finish(out: &Path, name: &str, format: RecordFormat, manifest: &mut Manifest) -> Result<()> {
    let count = manifest.shards.len();
    for (i, shard) in manifest.shards.iter_mut().enumerate() {
        let (hidden, named) = (out.join(shard.name()), names::final_name(format, name, i, count));
        if shard.name() != named {
            match fs::rename(&hidden, out.join(&named)) {
                // An earlier run has renamed it and come no further.
                Err(error) if error.kind() == io::ErrorKind::NotFound && out.join(&named).exists() => {}
                renamed => renamed.map_err(Error::io("rename", &hidden))?,
            }
            shard.rename(named);
        }
    }
    // The names before the manifest that says so.
    atomic::sync_folder(out).map_err(Error::io("sync", out))?;
    manifest.complete = true;
    manifest.write(out)
}
