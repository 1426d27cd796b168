//! Several processes pack into one place. Each makes its own part, then the missing shards: the manifest says how many
//! samples a shard has. The folder `.pack` holds a record of each complete shard and, where the place has locks, a lock
//! for each shard being made. A process that finds all records puts them into the manifest.

use super::manifest::{Manifest, PackedShard};
use super::place::{Claim, ClaimOf, JOB, Place};
use super::prepare::Preparer;
use super::queue::Queue;
use super::reading::SampleReader;
use super::shards::{BadCount, ShardWriter};
use super::{PackOptions, PackReport, begin, finish, names, report};
use crate::error::Result;
use crate::order::Rank;
use crate::source::packed::PackedFolder;
use crate::source::{ReadRequest, Sample, Source};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Number of samples whose mean size decides how many samples fill a shard.
const SIZED_SAMPLES: u64 = 256;

/// Longest time for which a listing of the others' shards is used. It saves asking for each record.
const LIST_AGAIN: Duration = Duration::from_secs(30);

/// Pause before checking again a process that holds a lock.
const PAUSE: Duration = Duration::from_millis(200);

/// The job, as all processes know it.
struct Job<'a> {
    reader: &'a SampleReader<'a>,
    place: &'a dyn Place,
    name: &'a str,
    options: &'a PackOptions,
    shard_samples: u64,
    shards: usize,
}

/// The result of trying to make a shard.
enum Outcome {
    /// It was made here, with this number of images.
    Made(u64),
    /// Another process has made it.
    There,
    /// Another process is making it.
    Others,
    /// The whole job is complete.
    AllThere,
}

pub(super) fn pack(
    reader: &SampleReader,
    place: &dyn Place,
    name: &str,
    fresh: Manifest,
    rank: Rank,
    progress: &mut dyn FnMut(u64),
) -> Result<PackReport> {
    let (source, options) = (reader.source, reader.options);
    place.make(JOB)?;
    let (mut manifest, damaged_manifest) = plan(reader, place, name, fresh)?;
    let shard_samples = manifest.shard_samples.unwrap_or(u64::MAX);
    let shards = source.len().div_ceil(shard_samples) as usize;
    place.check_shards(shards)?;
    let job = Job { reader, place, name, options, shard_samples, shards };
    let mut own_images = 0;
    while !manifest.complete {
        own_images += job.make(rank, &manifest, progress)?;
        manifest = job.complete(manifest)?;
    }
    let images: u64 = manifest.shards.iter().map(|shard| shard.images).sum();
    // A shard that was lost after it was made counts twice.
    Ok(report(manifest, place, images.saturating_sub(own_images), damaged_manifest))
}

/// The manifest that all processes use: the one that another process has written or, if there is none, a new one with
/// the number of samples in a shard.
fn plan(
    reader: &SampleReader,
    place: &dyn Place,
    name: &str,
    mut fresh: Manifest,
) -> Result<(Manifest, Option<String>)> {
    let _claim = loop {
        if let Some(found) = begun(place.manifest()?, &mut fresh)
            && !found.complete
        {
            return Ok((found, None));
        }
        if let Some(claim) = claim_all(place, &fresh)? {
            break claim;
        }
    };
    if let Some(mut manifest) = begun(place.manifest()?, &mut fresh) {
        if !manifest.complete {
            return Ok((manifest, None));
        }
        let found = place.list("")?;
        let (mut begin, mut whole) = (0, Vec::new());
        for (i, shard) in manifest.shards.iter().enumerate() {
            if found.has_whole(shard) && is_of_source(shard, begin, reader)? {
                whole.push((i, shard));
            }
            begin = shard.end;
        }
        if whole.len() == manifest.shards.len() {
            place.clear_job();
            return Ok((manifest, None));
        }
        // Some shards were lost after packing, or their samples have changed. Keep the records of the others, so that
        // they are not rebuilt.
        whole.into_iter().try_for_each(|(i, shard)| keep_record(place, i, shard))?;
        manifest.shards.clear();
        manifest.complete = false;
        manifest.write(place)?;
        return Ok((manifest, None));
    }
    if fresh.shard_samples.is_none() {
        fresh.shard_samples = Some(shard_samples(reader.source, reader.options.shard_bytes)?);
    }
    let begin = begin(fresh.clone(), place, name, reader, false);
    // Another process may have begun, or even completed, the job since the manifest was read.
    begin.or_else(|error| {
        let found = place.manifest().ok().and_then(|found| begun(found, &mut fresh));
        found.map(|found| (found, None)).ok_or(error)
    })
}

/// The manifest of this same job, if another process has begun it. `fresh` takes the number of samples in a shard from
/// any manifest of several processes.
fn begun(found: PackedFolder<Manifest>, fresh: &mut Manifest) -> Option<Manifest> {
    let PackedFolder::Whole(found) = found else { return None };
    if found.shard_samples.is_some() {
        fresh.shard_samples = found.shard_samples;
    }
    (found.shard_samples.is_some() && found.differs(fresh).is_none()).then_some(found)
}

/// Claims the steps that one process does for all. If another process of the job has the claim, pauses and returns
/// `None`. It does not wait for a run that packs alone.
fn claim_all(place: &dyn Place, fresh: &Manifest) -> Result<Option<Claim>> {
    let alone = matches!(place.manifest()?, PackedFolder::Whole(found) if found.shard_samples.is_none());
    if alone {
        return place.claim_all(&fresh.job()).map(Some);
    }
    let claim = place.claim(ClaimOf::All, &fresh.job())?.ok();
    if claim.is_none() {
        std::thread::sleep(PAUSE);
    }
    Ok(claim)
}

/// The number of samples that fill a shard, by the mean size of readable samples spread evenly over the source.
fn shard_samples(source: &dyn Source, shard_bytes: u64) -> Result<u64> {
    let count = source.len().min(SIZED_SAMPLES);
    let at = |i: u64| (u128::from(i) * u128::from(source.len()) / u128::from(count)) as u64;
    let (mut sample, mut sum, mut read) = (Sample::default(), 0_u64, 0_u64);
    (0..count).for_each(|i| source.prefetch(at(i)));
    for i in 0..count {
        match source.read(at(i), &ReadRequest::IMAGE, &mut sample) {
            Ok(()) => (sum, read) = (sum + sample.encoded().len() as u64, read + 1),
            Err(error) if error.is_bad_sample() => {}
            Err(error) => return Err(error),
        }
    }
    Ok((shard_bytes.saturating_mul(read.max(1)) / sum.max(1)).max(1))
}

/// The name of the record of shard `i`.
fn record_name(i: usize) -> String {
    format!("{JOB}/{i:06}.json")
}

/// Whether the source still gives the samples from `begin` on that a shard was made from.
fn is_of_source(shard: &PackedShard, begin: u64, reader: &SampleReader) -> Result<bool> {
    Ok(shard.source() == Some(reader.checksum(begin..shard.end)?))
}

fn keep_record(place: &dyn Place, i: usize, shard: &PackedShard) -> Result<()> {
    place.write(&record_name(i), &mut |file| Ok(serde_json::to_writer(file, shard)?))
}

/// Parses a record. A record that cannot be parsed counts as missing: the shard is rebuilt.
fn record(text: Option<Vec<u8>>) -> Option<PackedShard> {
    serde_json::from_slice(&text?).ok()
}

impl Job<'_> {
    fn begin(&self, i: usize) -> u64 {
        i as u64 * self.shard_samples
    }

    fn end(&self, i: usize) -> u64 {
        self.reader.source.len().min((i as u64 + 1).saturating_mul(self.shard_samples))
    }

    /// The shards that are complete, by the names of their records and files. Records of shards that were lost since
    /// are removed.
    fn made(&self) -> Result<HashSet<usize>> {
        let Self { name, options, place, .. } = *self;
        // Records first: a shard exists before its record.
        let (records, files) = (place.list(JOB)?, place.list("")?);
        let has_files = |i: &usize| {
            let shard = names::final_name(options.format, name, *i, self.shards);
            let index = options.format.facts().has_index;
            files.has(&shard) && (!index || files.has(&names::index_name(name, *i)))
        };
        let of_record = |record: &String| record.strip_suffix(".json")?.parse().ok();
        let (made, lost): (HashSet<usize>, HashSet<usize>) =
            records.0.keys().filter_map(of_record).partition(has_files);
        place.remove(&lost.into_iter().map(record_name).collect::<Vec<_>>())?;
        Ok(made)
    }

    /// Makes the shards that no other process makes, until all are complete. Returns the number of images in its own
    /// shards.
    fn make(&self, rank: Rank, manifest: &Manifest, progress: &mut dyn FnMut(u64)) -> Result<u64> {
        let prepare = Preparer::new(self.reader, self.options)?;
        let mut losses = BadCount::new(manifest, self.reader.source.len(), self.options.max_bad)?;
        // First this process's own part, then the others' shards in an order of its own, so that two processes seldom
        // meet.
        let begin = |part: u32| (self.shards as u64 * u64::from(part) / u64::from(rank.world_size())) as usize;
        let own = begin(rank.rank())..begin(rank.rank() + 1);
        let order = RandomState::new();
        let mut left: Vec<usize> = (0..self.shards).collect();
        left.sort_by_cached_key(|i| if own.contains(i) { (0, *i as u64) } else { (1, order.hash_one(i)) });
        let (mut made, mut listed) = (self.made()?, Instant::now());
        // Each process checks the shards of its own part, because earlier runs may have left some.
        for i in own.filter(|i| made.contains(i)).collect::<Vec<_>>() {
            let shard = record(self.place.read(&record_name(i))?);
            if !shard.map_or(Ok(false), |shard| is_of_source(&shard, self.begin(i), self.reader))? {
                self.place.remove(&[record_name(i)])?;
                made.remove(&i);
            }
        }
        let (mut done, mut images) = (0, 0);
        while !left.is_empty() {
            let mut others = Vec::new();
            for &i in &left {
                if !made.contains(&i) {
                    match self.take(i, &prepare, &mut losses, &mut |end| progress(done + end - self.begin(i)))? {
                        Outcome::Made(own) => images += own,
                        Outcome::There if listed.elapsed() > LIST_AGAIN => {
                            (made, listed) = (self.made()?, Instant::now());
                        }
                        Outcome::There => {}
                        Outcome::Others => {
                            others.push(i);
                            continue;
                        }
                        Outcome::AllThere => return Ok(images),
                    }
                }
                done += self.end(i) - self.begin(i);
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

    /// Makes shard `i`, unless another process is making it or has made it.
    fn take(
        &self,
        i: usize,
        prepare: &Preparer,
        losses: &mut BadCount,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Outcome> {
        let _claim = match self.place.claim(ClaimOf::Shard(i), &format!("making shard {i}")) {
            Ok(Ok(claim)) => claim,
            Ok(Err(_)) => return Ok(Outcome::Others),
            // Locks and records are removed after the last shard.
            Err(_) if self.is_complete()? => return Ok(Outcome::AllThere),
            Err(error) => return Err(error),
        };
        if let Some(there) = self.there(i)? {
            return Ok(there);
        }
        let shard = self.shard(i, prepare, losses, progress);
        let made = shard.and_then(|shard| keep_record(self.place, i, &shard).map(|()| Outcome::Made(shard.images)));
        // Another process may have made it meanwhile.
        made.or_else(|error| self.there(i).ok().flatten().ok_or(error))
    }

    /// Whether shard `i`, or the whole job, is complete.
    fn there(&self, i: usize) -> Result<Option<Outcome>> {
        if record(self.place.read(&record_name(i))?).is_some() {
            return Ok(Some(Outcome::There));
        }
        Ok(self.is_complete()?.then_some(Outcome::AllThere))
    }

    fn shard(
        &self,
        i: usize,
        prepare: &Preparer,
        losses: &mut BadCount,
        progress: &mut dyn FnMut(u64),
    ) -> Result<PackedShard> {
        let Self { place, name, options, .. } = *self;
        let begin = self.begin(i);
        let queue = Queue::new(begin..self.end(i), options.workers);
        let mut shard = PackedShard::default();
        queue.run(prepare, |queue| {
            // A complete shard is not replaced, because somebody may be reading it.
            let check = &|| self.there(i)?.map_or(Ok(()), |_| Err(place.taken("another process")));
            let writer = ShardWriter { queue, prepare, place, options, limit_bytes: None, check };
            let file = names::final_name(options.format, name, i, self.shards);
            shard = writer.write((file, name, i), begin, &mut None, losses, progress)?;
            Ok(())
        })?;
        Ok(shard)
    }

    fn is_complete(&self) -> Result<bool> {
        Ok(matches!(self.place.manifest()?, PackedFolder::Whole(manifest) if manifest.complete))
    }

    /// Writes the manifest with all records, unless another process has written it meanwhile. The manifest is not
    /// complete if a shard does not match its record; that shard is rebuilt.
    fn complete(&self, mut manifest: Manifest) -> Result<Manifest> {
        let place = self.place;
        let _claim = loop {
            if let Some(complete) = self.found_complete()? {
                return Ok(complete);
            }
            if let Some(claim) = claim_all(place, &manifest)? {
                break claim;
            }
        };
        if let Some(complete) = self.found_complete()? {
            return Ok(complete);
        }
        let names: Vec<String> = (0..self.shards).map(record_name).collect();
        let files = place.list("")?;
        let records = place.read_each(&names)?.into_iter();
        let records: Vec<_> = records.map(|text| record(text).filter(|shard| files.has_whole(shard))).collect();
        let missing: Vec<String> =
            names.into_iter().zip(&records).filter(|(_, record)| record.is_none()).map(|(name, _)| name).collect();
        if !missing.is_empty() {
            place.remove(&missing)?;
            return Ok(manifest);
        }
        manifest.shards = records.into_iter().flatten().collect();
        BadCount::new(&manifest, self.reader.source.len(), self.options.max_bad)?.end()?;
        if let Some(empty) = manifest.shards.iter().find(|_| manifest.shards.iter().all(|shard| shard.images == 0)) {
            return Err(empty.nothing());
        }
        // No process is writing any more.
        place.remove_leftovers(true, &|file| names::is_name(self.options.format, self.name, file))?;
        let finished = finish(place, self.name, self.options.format, &mut manifest);
        // Another process may have finished the job meanwhile.
        finished.map(|()| manifest).or_else(|error| self.found_complete().ok().flatten().ok_or(error))
    }

    /// The manifest, if another process has completed it.
    fn found_complete(&self) -> Result<Option<Manifest>> {
        let PackedFolder::Whole(found) = self.place.manifest()? else { return Ok(None) };
        if !found.complete {
            return Ok(None);
        }
        // This process may have written a record since then.
        self.place.clear_job();
        Ok(Some(found))
    }
}
