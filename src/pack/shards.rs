//! Writes prepared samples into shards.

use super::manifest::{Manifest, PackedFile, PackedShard};
use super::place::Place;
use super::prepare::{Prepared, Preparer};
use super::queue::Queue;
use super::{PackOptions, names};
use crate::error::{Error, Result};
use crate::pipeline::{BadLimit, IO_FAILURES, Losses, Tally, io_failure};
use std::io::{self, Write};

/// Writes all samples of the queue into shards. After each shard it writes the manifest.
pub(super) fn write_shards(
    writer: &ShardWriter,
    name: &str,
    manifest: &mut Manifest,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let ShardWriter { queue, place, options, .. } = *writer;
    let mut waiting = None;
    let mut losses = BadCount::new(manifest, queue.end(), options.max_bad)?;
    loop {
        let i = manifest.shards.len();
        place.check_shards(i + 1)?;
        let begin = manifest.shards.last().map_or(0, |last| last.end);
        let file = names::hidden_name(options.format, name, i);
        let mut shard = writer.write((file, name, i), begin, &mut waiting, &mut losses, progress)?;
        if waiting.is_none() {
            losses.end()?;
        }
        if shard.images == 0 {
            let files: Vec<String> = shard.files.drain(..).map(|file| file.name).collect();
            place.remove(&files)?;
            // Bad samples at the very end are counted in the last shard, so that they are not lost.
            let Some(last) = manifest.shards.last_mut() else { return Err(shard.nothing()) };
            last.take_bad(shard);
            return manifest.write(place);
        }
        manifest.shards.push(shard);
        manifest.write(place)?;
        if waiting.is_none() && queue.is_done() {
            return Ok(());
        }
    }
}

/// Writes one shard of samples from a queue.
pub(super) struct ShardWriter<'a> {
    pub queue: &'a Queue,
    pub prepare: &'a Preparer<'a>,
    pub place: &'a dyn Place,
    pub options: &'a PackOptions,
    /// The shard ends before it exceeds this size. `None`: it ends with the queue.
    pub limit_bytes: Option<u64>,
    /// Called before a shard gets its name. An error prevents that.
    pub check: &'a dyn Fn() -> Result<()>,
}

impl ShardWriter<'_> {
    /// Writes shard `i` of `name` as `file`, starting with the sample `begin`. A sample that does not fit remains in
    /// `waiting`.
    pub fn write(
        &self,
        (file, name, i): (String, &str, usize),
        begin: u64,
        waiting: &mut Option<(u64, Prepared)>,
        losses: &mut BadCount,
        progress: &mut dyn FnMut(u64),
    ) -> Result<PackedShard> {
        let (rules, facts) = (self.options.format.rules(), self.options.format.facts());
        let mut shard = PackedShard { end: begin, ..PackedShard::default() };
        let mut offsets = String::new();
        let mut failed = None;
        let mut fill = |file: &mut Summed| -> io::Result<()> {
            let mut bytes = Vec::new();
            while let Some((index, Prepared { checksum, image })) = waiting.take().or_else(|| self.queue.next()) {
                match image {
                    Ok(sample) => {
                        bytes.clear();
                        failed = rules.write(&sample.record(index), &mut bytes).err();
                        if failed.is_some() {
                            break;
                        }
                        let len_bytes = file.len_bytes + (bytes.len() + facts.end.len()) as u64;
                        if shard.images > 0 && self.limit_bytes.is_some_and(|limit| len_bytes > limit) {
                            *waiting = Some((index, Prepared { checksum, image: Ok(sample) }));
                            break;
                        }
                        if facts.has_index {
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
                shard.add_source(checksum);
                shard.end = index + 1;
                progress(shard.end);
            }
            failed = failed.take().or_else(|| (self.check)().err());
            file.write_all(facts.end)?;
            failed.as_ref().map_or(Ok(()), |_| Err(io::Error::other("stopped")))
        };
        let written = write_summed(self.place, file, &mut fill);
        if let Some(error) = failed {
            return Err(error);
        }
        shard.files.push(written?);
        if facts.has_index && shard.images > 0 {
            let index = names::index_name(name, i);
            shard.files.push(write_summed(self.place, index, &mut |file| file.write_all(offsets.as_bytes()))?);
        }
        Ok(shard)
    }
}

/// Counts bad samples and compares their number with the limit. Those of earlier runs count too.
pub(super) struct BadCount {
    tally: Tally,
    /// Number of consecutive samples that the system failed to read.
    io_failures: u32,
}

impl BadCount {
    pub fn new(manifest: &Manifest, samples: u64, limit: Option<BadLimit>) -> Result<Self> {
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

    /// Checks the limit at the end of the samples.
    pub fn end(&mut self) -> Result<()> {
        self.tally.end()
    }
}

/// A file being written, whose length and checksum are computed on the way.
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

/// Writes a file and computes its length and checksum.
fn write_summed(
    place: &dyn Place,
    name: String,
    contents: &mut dyn FnMut(&mut Summed) -> io::Result<()>,
) -> Result<PackedFile> {
    let (mut len_bytes, mut crc32c) = (0, 0);
    place.write(&name, &mut |file| {
        let mut summed = Summed { file, len_bytes: 0, crc32c: 0 };
        contents(&mut summed)?;
        (len_bytes, crc32c) = (summed.len_bytes, summed.crc32c);
        Ok(())
    })?;
    Ok(PackedFile::new(name, len_bytes, crc32c))
}
