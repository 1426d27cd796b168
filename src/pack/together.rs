//! Several processes pack into one folder.
//!
//! The manifest says how many samples a shard has, so each process knows all shards. In the folder `.pack` lie a lock for
//! each shard that is being made and a record of each that is made, until the last process to finish puts the records
//! into the manifest. The system takes a lock back when its process ends, however it ends, and another makes the shard.

use super::lock::Lock;
use super::manifest::{Manifest, PackedShard, SavedOptions};
use super::prepare::Preparer;
use super::queue::Queue;
use super::{BadCount, PackOptions, PackReport, ShardWriter, begin, finish, names, report};
use crate::atomic::{self, LEFTOVER_AGE};
use crate::error::{Error, Result};
use crate::rank::Rank;
use crate::source::Source;
use crate::source::packed::Found;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where locks and records lie until all shards are made.
const FOLDER: &str = ".pack";

/// Samples whose size says how many fill a shard.
const SIZED_SAMPLES: u64 = 256;

/// How long to wait before looking again at what another process is doing.
const PAUSE: Duration = Duration::from_millis(200);

/// What all processes know.
struct Job<'a> {
    source: &'a dyn Source,
    out: &'a Path,
    name: &'a str,
    options: &'a PackOptions,
    shard_samples: u64,
    shards: usize,
}

pub(super) fn pack(
    source: &dyn Source,
    out: &Path,
    name: &str,
    options: &PackOptions,
    rank: Rank,
    progress: &mut dyn FnMut(u64),
) -> Result<PackReport> {
    fs::create_dir_all(out.join(FOLDER)).map_err(Error::io("make", out))?;
    let fresh = Manifest::new(source, SavedOptions::new(options));
    let (mut manifest, damaged_manifest) = plan(source, out, name, options, fresh)?;
    let shard_samples = manifest.shard_samples.unwrap_or(u64::MAX);
    let shards = source.len().div_ceil(shard_samples) as usize;
    let job = Job { source, out, name, options, shard_samples, shards };
    let mut own_images = 0;
    if !manifest.complete {
        own_images = job.make(rank, &manifest, progress)?;
        manifest = job.complete(manifest)?;
    }
    let images: u64 = manifest.shards.iter().map(|shard| shard.images).sum();
    Ok(report(manifest, out, images - own_images, damaged_manifest))
}

/// The manifest that all processes go by: what another has written, or else a new one, with the number of samples in a
/// shard.
fn plan(
    source: &dyn Source,
    out: &Path,
    name: &str,
    options: &PackOptions,
    mut fresh: Manifest,
) -> Result<(Manifest, Option<String>)> {
    let _lock = lock_folder(out, &fresh)?;
    fresh.shard_samples = match Found::<Manifest>::in_folder(out)? {
        Found::Whole(manifest) if manifest.shard_samples.is_some() => manifest.shard_samples,
        _ => Some(shard_samples(source, options.shard_bytes)?),
    };
    let found = Found::<Manifest>::in_folder(out)?;
    if let Found::Whole(mut manifest) = found
        && manifest.complete
        && manifest.differs(&fresh).is_none()
    {
        let whole = |shard: &PackedShard| is_whole(out, shard);
        if manifest.shards.iter().all(whole) {
            let _ = fs::remove_dir_all(out.join(FOLDER));
            return Ok((manifest, None));
        }
        // Some were lost afterwards: the others need not be made again.
        for (i, shard) in manifest.shards.iter().enumerate().filter(|(_, shard)| whole(shard)) {
            keep_record(out, i, shard)?;
        }
        manifest.shards.clear();
        manifest.complete = false;
        manifest.write(out)?;
        return Ok((manifest, None));
    }
    begin(fresh, out, name, options, LEFTOVER_AGE)
}

/// Locks the folder, as soon as the others that pack together have planned or completed. Without them, a run that packs
/// alone is not waited for.
fn lock_folder(out: &Path, fresh: &Manifest) -> Result<Lock> {
    loop {
        let alone = matches!(Found::<Manifest>::in_folder(out)?, Found::Whole(found) if found.shard_samples.is_none());
        if alone {
            return Lock::take(out, &fresh.job());
        }
        if let Ok(lock) = Lock::try_folder(out, &fresh.job())? {
            return Ok(lock);
        }
        std::thread::sleep(PAUSE);
    }
}

/// How many samples fill a shard, by the mean of some that are spread evenly and can be read.
fn shard_samples(source: &dyn Source, shard_bytes: u64) -> Result<u64> {
    let count = source.len().min(SIZED_SAMPLES);
    let (mut buffer, mut sum, mut read) = (Vec::new(), 0_u64, 0_u64);
    for i in 0..count {
        let index = (u128::from(i) * u128::from(source.len()) / u128::from(count)) as u64;
        match source.read(index, &mut buffer) {
            Ok(bytes) => (sum, read) = (sum + bytes.len() as u64, read + 1),
            Err(error) if error.is_bad_sample() => {}
            Err(error) => return Err(error),
        }
    }
    Ok((shard_bytes.saturating_mul(read.max(1)) / sum.max(1)).max(1))
}

/// Where the record of shard `i` lies.
fn record_path(out: &Path, i: usize) -> PathBuf {
    out.join(FOLDER).join(format!("{i:06}.json"))
}

fn keep_record(out: &Path, i: usize, shard: &PackedShard) -> Result<()> {
    atomic::write_synced(&record_path(out, i), |file| Ok(serde_json::to_writer(file, shard)?))
}

/// Whether a shard's files lie there as they were written, by name and length.
fn is_whole(out: &Path, shard: &PackedShard) -> bool {
    shard.files.iter().all(|file| file.is_at(&out.join(&file.name)))
}

impl Job<'_> {
    /// The record of shard `i`, if it is made.
    fn record(&self, i: usize) -> Result<Option<PackedShard>> {
        let path = record_path(self.out, i);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        // A record that cannot be understood is none: the shard is made again.
        Ok(serde_json::from_slice(&text).ok().filter(|shard| is_whole(self.out, shard)))
    }

    fn end(&self, i: usize) -> u64 {
        self.source.len().min((i as u64 + 1).saturating_mul(self.shard_samples))
    }

    /// Makes the shards that nobody else makes, until all are there. Returns the number of images in its own.
    fn make(&self, rank: Rank, manifest: &Manifest, progress: &mut dyn FnMut(u64)) -> Result<u64> {
        let prepare = Preparer::new(self.source, self.options);
        let mut losses = BadCount::new(manifest, self.source.len(), self.options.max_bad)?;
        // Each begins in a part of its own, so that they seldom meet.
        let first = (self.shards as u64 * u64::from(rank.rank()) / u64::from(rank.world_size())) as usize;
        let mut left: Vec<usize> = (first..self.shards).chain(0..first).collect();
        let (mut done, mut images) = (0, 0);
        while !left.is_empty() {
            let mut others = Vec::new();
            for &i in &left {
                let begin = i as u64 * self.shard_samples;
                let samples = self.end(i) - begin;
                if self.record(i)?.is_none() {
                    let lock = self.out.join(FOLDER).join(format!("{i:06}.lock"));
                    let _lock = match Lock::try_take(lock, &format!("making shard {i}")) {
                        Ok(Ok(lock)) => lock,
                        Ok(Err(_)) => {
                            others.push(i);
                            continue;
                        }
                        // Locks go with the last shard.
                        Err(_) if self.is_complete()? => return Ok(images),
                        Err(error) => return Err(error),
                    };
                    // Another may have made it meanwhile.
                    if self.record(i)?.is_none() {
                        let before = done;
                        let shard = self.shard(i, &prepare, &mut losses, &mut |end| progress(before + end - begin))?;
                        keep_record(self.out, i, &shard)?;
                        images += shard.images;
                    }
                }
                done += samples;
                progress(done);
            }
            if others.len() == left.len() {
                if self.is_complete()? {
                    break;
                }
                std::thread::sleep(PAUSE);
            }
            left = others;
        }
        Ok(images)
    }

    fn shard(
        &self,
        i: usize,
        prepare: &Preparer,
        losses: &mut BadCount,
        progress: &mut dyn FnMut(u64),
    ) -> Result<PackedShard> {
        let Self { out, name, options, .. } = *self;
        let begin = i as u64 * self.shard_samples;
        let queue = Queue::new(begin..self.end(i), options.workers);
        let mut shard = PackedShard::default();
        queue.run(prepare, |queue| {
            let writer = ShardWriter { queue, prepare, out, options, limit_bytes: None };
            let file = names::final_name(options.format, name, i, self.shards);
            shard = writer.write((file, name, i), begin, &mut None, losses, progress)?;
            Ok(())
        })?;
        Ok(shard)
    }

    fn is_complete(&self) -> Result<bool> {
        Ok(matches!(Found::<Manifest>::in_folder(self.out)?, Found::Whole(manifest) if manifest.complete))
    }

    /// The complete manifest, which another process may have written meanwhile.
    fn complete(&self, mut manifest: Manifest) -> Result<Manifest> {
        let _lock = lock_folder(self.out, &manifest)?;
        if let Found::Whole(found) = Found::<Manifest>::in_folder(self.out)?
            && found.complete
        {
            return Ok(found);
        }
        manifest.shards.clear();
        for i in 0..self.shards {
            let missing = || Error::io("read", record_path(self.out, i))(io::Error::other("it was there before"));
            manifest.shards.push(self.record(i)?.ok_or_else(missing)?);
        }
        BadCount::new(&manifest, self.source.len(), self.options.max_bad)?.end()?;
        if let Some(empty) = manifest.shards.iter().find(|_| manifest.shards.iter().all(|shard| shard.images == 0)) {
            return Err(empty.nothing());
        }
        // Nobody writes any more.
        atomic::remove_leftovers(self.out, Duration::ZERO, |file| {
            names::is_name(self.options.format, self.name, file)
        })?;
        finish(self.out, self.name, self.options.format, &mut manifest)?;
        // What is left of it is hidden and does no harm.
        let _ = fs::remove_dir_all(self.out.join(FOLDER));
        Ok(manifest)
    }
}
