//! Packs images into shards, which are read in long runs instead of as single files.

// Order. Workers prepare samples, four ahead each, and the samples are written in order, so the shards do not depend
// on the workers. TFRecord's file names contain the number of shards, so these shards are hidden files until the end.
// Progressive JPEGs become baseline through libjpeg's coefficients, and tests compare all pixels. Other programs check
// that the files are right (`tests/formats/check.py`, docs/sources.md).
//
// Interruption and power loss. Every file of a shard is synced, renamed, and its folder synced, before `pack.json`
// names it. `pack.json` is written after each shard, with a checksum of each, and makes an incomplete folder refuse to
// open. Resuming then trusts names and lengths. `pack --verify` reads the contents: CRC-32C costs an eighth of SHA-256
// with SHA instructions, and finds the errors of disks and copies. A damaged `pack.json` has no checksums to trust, so
// `pack` starts anew, and removes only files of its own naming scheme. `pack.json` ends with the CRC-32C of its own text,
// because its counts cannot be compared with anything else. One without a checksum, from an earlier version, is read too.
//
// One run at a time packs into a folder. It holds an flock, which the system releases however the process ends. Names
// of temporary files are random, because in containers every process may have the number 1.
//
// Many processes (`together`). Each must know where a shard ends without hearing of the others, so a shard has a fixed
// number of the source's samples, bad ones included. A file lock says which process is writing a shard; the system
// releases it when that process ends. A record beside the shard says that it is complete. Ranks only say where to
// begin looking for work. The last process to finish puts the records into `pack.json`, so a folder is complete or
// not, as with one process.
//
// Shards go to a `Place`: a folder, or a folder at an object store. The packer knows nothing else. A place lists,
// reads, writes whole files, renames, and locks if it can.

mod folder;
mod lock;
mod manifest;
mod names;
mod place;
mod prepare;
mod queue;
mod shards;
#[cfg(feature = "cloud")]
mod store;
mod together;
mod verify;

pub use verify::{DamagedFile, VerifyReport, verify};

use crate::error::{Error, Result};
use crate::pipeline::{BadLimit, BadSample};
use crate::rank::Rank;
use crate::source::packed::{MANIFEST, PackedFolder};
use crate::source::{RecordFormat, Source};
use crate::threads::MAX_THREADS;
use manifest::{Manifest, PackedShard, SavedOptions};
use place::{Listing, Place};
use prepare::Preparer;
use queue::Queue;
use serde::Serialize;
use shards::{ShardWriter, write_shards};
use std::path::{Path, PathBuf};

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
    /// Of several processes that pack into one folder together: which of them this is. They may be on different machines
    /// that share a file system with the locks of `flock(2)`, or an object store.
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

/// Packs all samples of `source`, in its order, into shards in the folder `out`: a path, or with the feature `cloud` an
/// address at an object store (`s3://bucket/train`, `gs://`, `az://`).
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
/// **At object stores** the same bytes come, with credentials from the variables that [`open`](crate::source::open) reads. A
/// shard of more than 8 MiB goes up in parts of 8 MiB, four at a time, which are 40 MiB more in memory. It is there when it
/// is complete. The parts that interrupted runs have sent are given up at the end. Requests that fail are repeated. Stores
/// have no locks: of two runs into one folder the first to complete a shard goes on, and the other ends with an error.
///
/// **Several processes** pack together where each has a [`PackOptions::rank`]. Every process makes its part of the shards,
/// then those that nobody has made, and returns when all are there: the report is of the whole folder. Processes may join,
/// leave and die at any time. Locks keep two from the same shard; at a store both may make it, with the same bytes. A shard then has a fixed number of the source's samples, bad ones included, so
/// that no process need know what others leave out: as many as fill [`PackOptions::shard_bytes`] by the mean of 256 samples
/// spread evenly over the source. So the shards are the same for any number of processes, and not those that one process
/// without a rank makes.
///
/// # Errors
/// [`Error::Parameter`] for options out of range, a folder with other contents, one that was begun with another source
/// or other options or into which another run is packing, or a label that the format cannot hold;
/// [`Error::TooManyBad`]; [`Error::Io`] if the folder cannot be written or the machine or the store is at fault;
/// [`Error::Unsupported`] for an address without the feature `cloud`; [`Error::Thread`] if the workers cannot be started.
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
/// assert_eq!(packed.encoded(4)?, jpeg);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn pack(
    source: &dyn Source,
    out: &Path,
    options: &PackOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<PackReport> {
    options.check()?;
    let place = &*place::open(out)?;
    place.check(options)?;
    let expected = "a folder whose name is text and does not start with a dot";
    let name = place.name().filter(|name| !name.starts_with('.'));
    let name = name.ok_or_else(|| Error::parameter("pack", "out", expected, out.display()))?;
    let fresh = Manifest::new(source, SavedOptions::new(options));
    if let Some(report) = finished(place, &name, options, &fresh)? {
        return Ok(report);
    }
    if let Some(rank) = options.rank {
        return together::pack(source, place, &name, options, fresh, rank, progress);
    }
    place.make("")?;
    let _claim = place.claim_all(&fresh.job())?;
    let (mut manifest, damaged_manifest) = begin(fresh, place, &name, options, true)?;
    let resumed_images = manifest.shards.iter().map(|shard| shard.images).sum();
    if !manifest.complete {
        let next = manifest.shards.last().map_or(0, |shard| shard.end);
        progress(next);
        let prepare = Preparer::new(source, options);
        let queue = Queue::new(next..source.len(), options.workers);
        queue.run(&prepare, |queue| {
            let limit_bytes = Some(options.shard_bytes);
            let check = &|| Ok(());
            let writer = ShardWriter { queue, prepare: &prepare, place, options, limit_bytes, check };
            write_shards(&writer, &name, &mut manifest, progress)
        })?;
        finish(place, &name, options.format, &mut manifest)?;
    }
    Ok(report(manifest, place, resumed_images, damaged_manifest))
}

/// The report of what is complete already. That takes no claim, so it may be on a disk that cannot be written to.
fn finished(place: &dyn Place, name: &str, options: &PackOptions, fresh: &Manifest) -> Result<Option<PackReport>> {
    let PackedFolder::Whole(manifest) = place.manifest()? else { return Ok(None) };
    // The number of samples in a shard is a result, but that there is one is an option.
    let mut fresh = fresh.clone();
    fresh.shard_samples = manifest.shard_samples;
    if !manifest.complete
        || manifest.shard_samples.is_some() != options.rank.is_some()
        || manifest.differs(&fresh).is_some()
        || whole_shards(&manifest, &place.list("")?, name, options.format) < manifest.shards.len()
    {
        return Ok(None);
    }
    // The last process may have been killed before it did so.
    place.clear_job();
    let resumed_images = manifest.shards.iter().map(|shard| shard.images).sum();
    Ok(Some(report(manifest, place, resumed_images, None)))
}

fn report(manifest: Manifest, place: &dyn Place, resumed_images: u64, damaged_manifest: Option<String>) -> PackReport {
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
        shards: manifest.shards.iter().map(|shard| place.path(shard.name())).collect(),
        bad: manifest.shards.into_iter().flat_map(|shard| shard.bad).collect(),
        damaged_manifest,
    }
}

/// The manifest to go on from, which fits what the place holds; a new one for an empty place or one whose manifest is
/// damaged, and then why it is. `alone`, all that killed writes have left is removed, else what is old.
fn begin(
    fresh: Manifest,
    place: &dyn Place,
    name: &str,
    options: &PackOptions,
    alone: bool,
) -> Result<(Manifest, Option<String>)> {
    let is_ours = |file: &str| names::is_name(options.format, name, file);
    place.remove_leftovers(alone, &|file| file == MANIFEST || is_ours(file))?;
    let damaged = match place.manifest()? {
        PackedFolder::Whole(manifest) => {
            return go_on(manifest, &fresh, place, name, options).map(|manifest| (manifest, None));
        }
        PackedFolder::Damaged(reason) => Some(reason),
        PackedFolder::Nothing => None,
    };
    let mut stale = Vec::new();
    for found in place.list("")?.0.into_keys() {
        if damaged.is_some() && is_ours(&found) {
            stale.push(found);
        } else if damaged.is_none() && found == MANIFEST {
            // It was not there before.
            return Err(place.taken("another run"));
        } else if !(found.starts_with('.') || damaged.is_some() && found == MANIFEST) {
            let why = damaged.map_or_else(String::new, |why| format!(" and a {MANIFEST} that is of no use: {why}"));
            let got = format!("{} with {found}{why}", place.path("").display());
            return Err(Error::parameter("pack", "out", "an empty or new folder", got));
        }
    }
    // Their number and order are not known any more.
    place.remove(&stale)?;
    fresh.write(place)?;
    Ok((fresh, damaged))
}

/// An earlier run's manifest with the shards that are still there.
fn go_on(
    mut manifest: Manifest,
    fresh: &Manifest,
    place: &dyn Place,
    name: &str,
    options: &PackOptions,
) -> Result<Manifest> {
    if let Some(differs) = manifest.differs(fresh) {
        let expected = "a folder that was begun with the same source and options";
        let got = format!("{} with {differs}", place.path("").display());
        return Err(Error::parameter("pack", "out", expected, got));
    }
    let whole = whole_shards(&manifest, &place.list("")?, name, options.format);
    if whole < manifest.shards.len() {
        manifest.shards.truncate(whole);
        manifest.complete = false;
    }
    Ok(manifest)
}

/// How many shards, from the first one on, lie there as they were written.
fn whole_shards(manifest: &Manifest, found: &Listing, name: &str, format: RecordFormat) -> usize {
    let count = manifest.shards.len();
    let is_whole = |(i, shard): (usize, &PackedShard)| {
        // The run may have ended while shards were given their last names.
        let mut named = shard.clone();
        named.rename(names::final_name(format, name, i, count));
        found.has_whole(shard) || found.has_whole(&named)
    };
    manifest.shards.iter().enumerate().take_while(|&shard| is_whole(shard)).count()
}

/// Gives all shards their names, and the place its completeness. Nothing of the job stays.
fn finish(place: &dyn Place, name: &str, format: RecordFormat, manifest: &mut Manifest) -> Result<()> {
    let (count, mut renamed) = (manifest.shards.len(), Vec::new());
    for (i, shard) in manifest.shards.iter_mut().enumerate() {
        let named = names::final_name(format, name, i, count);
        if shard.name() != named {
            renamed.push((shard.name().to_owned(), named.clone()));
            shard.rename(named);
        }
    }
    // The names before the manifest that says so.
    place.rename(&renamed)?;
    manifest.complete = true;
    manifest.write(place)?;
    place.clear_job();
    Ok(())
}
