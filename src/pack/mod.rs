//! Packs images into shards, which are read sequentially.

// Order. Workers prepare up to four samples each ahead, and the samples are written in order, so the shards do not
// depend on the number of workers. TFRecord's file names contain the number of shards, so these shards are hidden files
// until the end. Progressive JPEGs become baseline through libjpeg's coefficients, and tests compare all pixels. Other
// programs check that the files are right (`tests/formats/check.py`, docs/sources.md).
//
// Interruption and power loss. Every file of a shard is synced, renamed, and its folder synced, before `pack.json`
// names it. `pack.json` is written after each shard, with a checksum of each. While it is incomplete, the folder
// refuses to open. Resuming trusts names and lengths; `pack --verify` reads the contents. CRC-32C is cheaper than
// SHA-256 and finds the errors of disks and copies. A damaged `pack.json` has no checksums to trust, so `pack` starts
// anew, and removes only files of its own naming scheme. `pack.json` ends with the CRC-32C of its own text, because its
// counts cannot be compared with anything else. One without a checksum, from an earlier version, is accepted too.
//
// One run at a time packs into a folder. It holds a lock (`lock.rs`), which the system releases however the process
// ends. Names of temporary files are random, because in containers every process may have the number 1.
//
// Several processes (`together`). Each must know where a shard ends without communication, so a shard has a fixed
// number of the source's samples, bad ones included. A file lock says which process is writing a shard; the system
// releases it when that process ends. A record next to the shard says that it is complete. A rank only says where to
// begin looking for work. The last process to finish puts the records into `pack.json`, so a folder is complete or not,
// as with one process.
//
// Shards go to a `Place`: a folder, or a folder at an object store. The packer knows nothing else. A place lists,
// reads, writes whole files, renames, and locks if it can.

mod folder;
mod manifest;
mod names;
mod place;
mod prepare;
mod queue;
mod reading;
mod shards;
#[cfg(feature = "cloud")]
mod store;
mod together;
mod verify;

pub use verify::{DamagedFile, VerifyReport, verify};

use crate::error::{Error, Result};
use crate::order::Rank;
use crate::os::threads::MAX_THREADS;
use crate::pipeline::{BadLimit, BadSample};
use crate::source::packed::{MANIFEST, PackedFolder};
use crate::source::{RecordFormat, Source};
use manifest::{Manifest, PackedShard, SavedOptions};
use place::{Listing, Place};
use prepare::Preparer;
use queue::Queue;
use reading::SampleReader;
use serde::Serialize;
use shards::{ShardWriter, write_shards};
use std::path::{Path, PathBuf};

/// Smallest size of a shard in bytes. Smaller ones are no better than single files.
const MIN_SHARD_BYTES: u64 = 1_000_000;

/// Number of bad samples of each shard whose errors are kept. All bad samples are counted.
const MAX_BAD_KEPT: usize = 1_000;

options! {
    /// Options of packing.
    #[derive(Debug, Clone, PartialEq)]
    pub struct PackOptions {
        /// The format of the shards.
        pub format: RecordFormat,
        /// Largest size of a shard in bytes, 1 MB or more. A single larger image gets a shard of its own.
        pub shard_bytes: u64,
        /// Longest side. Larger images are turned upright, shrunk to it (bilinear, as torchvision resizes), and encoded
        /// as JPEG.
        pub max_side_px: Option<u32>,
        /// Quality of the images that are encoded, 1 to 100.
        pub quality: u8,
        /// Converts JPEGs for hardware decoders: progressive ones become baseline without loss, and CMYK ones are
        /// encoded again as YCbCr with full color resolution.
        pub baseline: bool,
        /// Adds a restart marker after each row of MCUs of a JPEG, and an index of the rows before the first one, so
        /// that the CPU decodes a crop without the rows above it and the columns to its right. Nothing is lost: the
        /// coefficients are copied, and the image is decoded before and after and compared. Progressive images become
        /// baseline. JPEGs that do not allow this (12 bits, lossless, damaged) are copied unchanged.
        pub restarts: bool,
        /// Puts entry points into JPEGs, so that a CPU with AVX2 or AVX-512 has them from the first epoch on. They take
        /// less than a hundredth of an image's bytes. The image's other bytes stay as they are, but progressive images
        /// become baseline. JPEGs that cannot have entry points (12 bits, lossless, small, damaged) are copied
        /// unchanged.
        ///
        /// They are packed under the user's secret key, which is drawn the first time ([`EntryPoints`]). Readers with
        /// another key check them in their first epoch, which takes longer. So shards of two users differ in these
        /// bytes.
        ///
        /// [`EntryPoints`]: crate::EntryPoints
        pub entry_points: bool,
        /// A field of the source that is packed with its images under the same name: see [`Source::target`]. Default:
        /// none. WebDataset stores it as a part, or `json.FIELD` as a field of a JSON part; TFRecord stores it as a
        /// feature; RecordIO allows only the array `label`, whose first number is the label.
        pub target: Option<String>,
        /// The fields of the source that are packed with its images
        /// ([`ReadRequest::fields`](crate::source::ReadRequest::fields)), from which the same fields are read again.
        /// Default: none. WebDataset stores them as a JSON part, and masks of the image as parts `NAME.png`; TFRecord
        /// stores them as features; RecordIO holds none. They follow images that are shrunk.
        pub fields: Vec<String>,
        /// Limit of the source's bad samples. Without a limit, packing fails if the first 100 samples, or all, are bad:
        /// an unmounted disk is not a data set.
        pub max_bad: Option<BadLimit>,
        /// Number of worker threads, 1 to 1,024. Default: one for each processor.
        pub workers: usize,
        /// This process's rank, if several processes pack into one folder together. They may run on different machines
        /// that share a file system with POSIX record locks (`fcntl`), or an object store.
        pub rank: Option<Rank>,
    }
}

impl PackOptions {
    /// Default options: 128 MB a shard, images unchanged, quality 90, one worker for each processor.
    #[must_use]
    pub fn new(format: RecordFormat) -> Self {
        Self {
            format,
            shard_bytes: 128_000_000,
            max_side_px: None,
            quality: 90,
            baseline: false,
            restarts: false,
            entry_points: false,
            target: None,
            fields: Vec::new(),
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
        self.target.as_ref().map_or(Ok(()), |field| self.format.check_packed_field(field))?;
        self.format.check_packed_fields(&self.fields, self.target.as_deref())
    }
}

/// The result of packing. Counts and shards are those of the whole folder, earlier runs included.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct PackReport {
    /// The shards, in order.
    pub shards: Vec<PathBuf>,
    /// Number of images in the shards.
    pub images: u64,
    /// Number of these images that an earlier, interrupted run or other processes packed.
    pub resumed_images: u64,
    /// Size of all shards in bytes.
    pub bytes: u64,
    /// Number of images that were shrunk.
    pub shrunk: u64,
    /// Number of progressive JPEGs that were made baseline, without loss.
    pub made_baseline: u64,
    /// Number of CMYK JPEGs that were encoded again.
    pub made_ycc: u64,
    /// Number of JPEGs with restart markers and an index of their rows.
    pub restarts: u64,
    /// Number of JPEGs with entry points.
    pub entry_points: u64,
    /// Number of samples that could not be used and were left out.
    pub bad_count: u64,
    /// The first 1,000 bad samples of each shard.
    pub bad: Vec<BadSample>,
    /// Reason why `pack.json` of an earlier run could not be read; everything was packed anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged_manifest: Option<String>,
}

/// Packs all samples of `source`, in its order, into shards in the folder `out`: a path or, with the feature `cloud`,
/// an address at an object store (`s3://bucket/train`, `gs://`, `az://`).
///
/// The files are named after the folder: in `train`, they are `train-000000.tar`, or `train-000000.rec` with
/// `train-000000.idx`, or `train-00000-of-00008.tfrecord`. Keys and identifiers are the samples' indices. Images are
/// copied byte for byte unless the options ask for more. The shards are the same for any number of workers.
///
/// A sample is bad, and left out, if it or one of the wanted fields cannot be read, or if it has no image header, is a
/// JPEG without an end marker that does not decode completely, or cannot be converted as the options ask. Faults of the
/// machine (no more file descriptors, memory or disk space, an unreachable server, a disk that fails at several samples
/// in a row) end packing, and so do more bad samples than [`PackOptions::max_bad`].
///
/// Each shard gets its name when it is complete and on the disk. `pack.json` next to the shards records the progress
/// and a checksum of each file ([`verify`]). After an interruption, even a power loss, the same call continues from
/// there. If `pack.json` itself is damaged, everything is packed anew. The complete folder is a source
/// ([`open`](crate::source::open)). A shard is taken over from an earlier call only if the source still gives the same
/// bytes, labels and fields for its samples, which are read again for that; else it and those after it are rebuilt. One
/// run at a time packs into a folder. Each worker holds four encoded images and two decoded ones in memory.
///
/// `progress` receives the number of finished samples, those of earlier runs and other processes included.
///
/// **At object stores** the shards have the same bytes. Credentials come from the variables that
/// [`open`](crate::source::open) reads. A shard of more than 8 MiB is uploaded in parts of 8 MiB, four at a time, which
/// takes another 40 MiB of memory. It appears when it is complete. Failed requests are repeated. The end of packing
/// aborts the uploads of interrupted runs. Stores have no locks: if two runs pack into one folder, the first to
/// complete a shard continues, and the other ends with an error.
///
/// **Several processes** pack together if each has a [`PackOptions::rank`]. Every process makes its part of the shards,
/// then those that are still missing, and returns when all are complete, with a report of the whole folder. Processes
/// may join, leave and die at any time. Locks keep two processes from the same shard; at a store both may make it, with
/// the same bytes. Each shard has a fixed number of the source's samples, bad ones included, so that no process needs
/// to know which samples others skip. The number fills [`PackOptions::shard_bytes`] by the mean size of 256 samples
/// spread evenly over the source. So the shards are the same for any number of processes, but differ from those of a
/// process without a rank.
///
/// # Errors
/// [`Error::Parameter`] for options out of range, a folder with other contents, a folder that was begun with another
/// source or other options, a folder that another run is packing into, or a label that the format cannot hold;
/// [`Error::TooManyBad`]; [`Error::Io`] if the folder cannot be written or the machine or the store is at fault;
/// [`Error::Unsupported`] for an address without the feature `cloud`; [`Error::Thread`] if the workers cannot be
/// started.
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
/// assert_eq!((packed.len(), packed.label(4)), (5, Some(4)));
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
    options.fields.iter().try_for_each(|name| source.check_field(name))?;
    let place = &*place::open(out)?;
    place.check(options)?;
    let expected = "a folder whose name is text and does not start with a dot";
    let name = place.name().filter(|name| !name.starts_with('.'));
    let name = name.ok_or_else(|| Error::parameter("pack", "out", expected, out.display()))?;
    let fresh = Manifest::new(source, SavedOptions::new(options));
    let reader = SampleReader::new(source, options);
    if let Some(report) = finished(place, &name, &reader, &fresh)? {
        return Ok(report);
    }
    if let Some(rank) = options.rank {
        return together::pack(&reader, place, &name, fresh, rank, progress);
    }
    place.make("")?;
    let _claim = place.claim_all(&fresh.job())?;
    let (mut manifest, damaged_manifest) = begin(fresh, place, &name, &reader, true)?;
    let resumed_images = manifest.shards.iter().map(|shard| shard.images).sum();
    if !manifest.complete {
        let next = manifest.shards.last().map_or(0, |shard| shard.end);
        progress(next);
        let prepare = Preparer::new(&reader, options)?;
        let queue = Queue::new(next..source.len(), options.workers);
        let written = queue.run(&prepare, |queue| {
            let limit_bytes = Some(options.shard_bytes);
            let check = &|| Ok(());
            let writer = ShardWriter { queue, prepare: &prepare, place, options, limit_bytes, check };
            write_shards(&writer, &name, &mut manifest, progress)
        });
        // A run that takes over a place at a store aborts this run's uploads, whose parts are then refused.
        written.map_err(|error| if has_gone_on(place, &manifest) { place.taken("another run") } else { error })?;
        finish(place, &name, options.format, &mut manifest)?;
    }
    Ok(report(manifest, place, resumed_images, damaged_manifest))
}

/// Whether another run has packed more shards than this one.
fn has_gone_on(place: &dyn Place, own: &Manifest) -> bool {
    let packed = |found: &Manifest| found.complete || found.shards.len() > own.shards.len();
    matches!(place.manifest(), Ok(PackedFolder::Whole(found)) if packed(&found))
}

/// The report of a folder that is already complete. It takes no claim, so the folder may be on a read-only disk.
fn finished(place: &dyn Place, name: &str, reader: &SampleReader, fresh: &Manifest) -> Result<Option<PackReport>> {
    let options = reader.options;
    let PackedFolder::Whole(manifest) = place.manifest()? else { return Ok(None) };
    // Whether shards have a fixed number of samples is an option; the number itself is a result.
    let mut fresh = fresh.clone();
    fresh.shard_samples = manifest.shard_samples;
    if !manifest.complete
        || manifest.shard_samples.is_some() != options.rank.is_some()
        || manifest.differs(&fresh).is_some()
        || whole_shards(&manifest, &place.list("")?, name, reader)? < manifest.shards.len()
    {
        return Ok(None);
    }
    // The last process may have been killed before it cleared the job's folder.
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
        entry_points: sum(|shard| shard.entry_points),
        bad_count: sum(|shard| shard.bad_count),
        shards: manifest.shards.iter().map(|shard| place.path(shard.name())).collect(),
        bad: manifest.shards.into_iter().flat_map(|shard| shard.bad).collect(),
        damaged_manifest,
    }
}

/// The manifest to continue from, without shards that the place has lost. An empty place or a damaged manifest gives a
/// new one; for a damaged manifest the reason comes with it. With `alone` it removes all leftovers of killed writes,
/// else only old ones.
fn begin(
    fresh: Manifest,
    place: &dyn Place,
    name: &str,
    reader: &SampleReader,
    alone: bool,
) -> Result<(Manifest, Option<String>)> {
    let is_ours = |file: &str| names::is_name(reader.options.format, name, file);
    place.remove_leftovers(alone, &|file| file == MANIFEST || is_ours(file))?;
    let damaged = match place.manifest()? {
        PackedFolder::Whole(manifest) => {
            return go_on(manifest, &fresh, place, name, reader).map(|manifest| (manifest, None));
        }
        PackedFolder::Damaged(reason) => Some(reason),
        PackedFolder::Nothing => None,
    };
    let mut stale = Vec::new();
    for found in place.list("")?.0.into_keys() {
        if damaged.is_some() && is_ours(&found) {
            stale.push(found);
        } else if damaged.is_none() && found == MANIFEST {
            // The manifest was not there before.
            return Err(place.taken("another run"));
        } else if !(found.starts_with('.') || damaged.is_some() && found == MANIFEST) {
            let why = damaged.map_or_else(String::new, |why| format!(" and a {MANIFEST} that is of no use: {why}"));
            let got = format!("{} with {found}{why}", place.path("").display());
            return Err(Error::parameter("pack", "out", "an empty or new folder", got));
        }
    }
    // Without the manifest, the number and order of these shards are unknown.
    place.remove(&stale)?;
    fresh.write(place)?;
    Ok((fresh, damaged))
}

/// An earlier run's manifest, with the shards that are still there.
fn go_on(
    mut manifest: Manifest,
    fresh: &Manifest,
    place: &dyn Place,
    name: &str,
    reader: &SampleReader,
) -> Result<Manifest> {
    if let Some(differs) = manifest.differs(fresh) {
        let expected = "a folder that was begun with the same source and options";
        let got = format!("{} with {differs}", place.path("").display());
        return Err(Error::parameter("pack", "out", expected, got));
    }
    let (found, count) = (place.list("")?, manifest.shards.len());
    let whole = whole_shards(&manifest, &found, name, reader)?;
    if whole < count {
        // Shards that are rebuilt may be fewer, or have other names.
        let named = |(i, shard): (usize, &PackedShard)| {
            let files = shard.files.iter().map(|file| file.name.clone());
            files.chain([names::final_name(reader.options.format, name, i, count)]).collect::<Vec<_>>()
        };
        let stale = manifest.shards.iter().enumerate().skip(whole).flat_map(named).filter(|name| found.has(name));
        let stale: Vec<String> = stale.collect();
        manifest.shards.truncate(whole);
        manifest.complete = false;
        manifest.write(place)?;
        place.remove(&stale)?;
    }
    Ok(manifest)
}

/// Number of shards, from the first one on, that are there with the recorded lengths, and whose samples are still what
/// the source gives.
fn whole_shards(manifest: &Manifest, found: &Listing, name: &str, reader: &SampleReader) -> Result<usize> {
    let count = manifest.shards.len();
    let is_whole = |(i, shard): (usize, &PackedShard)| {
        // The run may have ended while it gave the shards their final names.
        let mut named = shard.clone();
        named.rename(names::final_name(reader.options.format, name, i, count));
        found.has_whole(shard) || found.has_whole(&named)
    };
    let mut begin = 0;
    for (i, shard) in manifest.shards.iter().enumerate() {
        // The manifest may be anybody's: a shard may claim to end anywhere.
        let is_possible = (begin..=reader.source.len()).contains(&shard.end);
        if !is_possible || !is_whole((i, shard)) || shard.source() != Some(reader.checksum(begin..shard.end)?) {
            return Ok(i);
        }
        begin = shard.end;
    }
    Ok(count)
}

/// Gives all shards their final names, marks the manifest complete, and clears the job's folder.
fn finish(place: &dyn Place, name: &str, format: RecordFormat, manifest: &mut Manifest) -> Result<()> {
    let (count, mut renamed) = (manifest.shards.len(), Vec::new());
    for (i, shard) in manifest.shards.iter_mut().enumerate() {
        let named = names::final_name(format, name, i, count);
        if shard.name() != named {
            renamed.push((shard.name().to_owned(), named.clone()));
            shard.rename(named);
        }
    }
    // Rename before the manifest says that the names are final.
    place.rename(&renamed)?;
    manifest.complete = true;
    manifest.write(place)?;
    place.clear_job();
    Ok(())
}
