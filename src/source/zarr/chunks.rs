//! Chunks of an array, read from the files of its folder.

use super::cache::{Cache, Key};
use super::codecs::{bad, max_encoded_bytes, zeros};
use super::metadata::Metadata;
use super::shards::Shards;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use warpfeed_image::file::{open, read_exact_at};
use warpfeed_image::{Error, Result};

/// Number of bytes of decoded chunks that are kept: 64 MiB.
pub(super) const CACHE_BYTES: usize = 64 << 20;

/// The chunks of an array.
#[derive(Debug)]
pub(super) struct Chunks {
    pub(super) folder: PathBuf,
    pub(super) metadata: Metadata,
    cache: Cache,
}

/// The bytes of a decoded chunk; `None` if it is not stored, so that all its values are the fill value.
pub(super) type Chunk = Option<Arc<Vec<u8>>>;

impl Chunks {
    pub(super) fn new(folder: &Path, metadata: Metadata) -> Self {
        Self { folder: folder.to_owned(), metadata, cache: Cache::new(CACHE_BYTES) }
    }

    /// Whether chunks are kept for the next sample.
    pub(super) fn are_kept(&self) -> bool {
        self.cache.keeps(self.metadata.chunk_bytes)
    }

    /// The chunk with these numbers, one for each dimension.
    pub(super) fn get(&self, numbers: &[u64]) -> Result<Chunk> {
        let Metadata { shape, file_shape, chunk_shape, chunk_bytes, .. } = &self.metadata;
        let number = place(shape, chunk_shape, numbers);
        let read = || {
            let per_file = || file_shape.iter().zip(chunk_shape).map(|(file, chunk)| file / chunk);
            let of_file: Vec<u64> = numbers.iter().zip(per_file()).map(|(number, count)| number / count).collect();
            let in_file: Vec<u64> = numbers.iter().zip(per_file()).map(|(number, count)| number % count).collect();
            let path = self.folder.join(self.metadata.keys.key(&of_file));
            let read = match &self.metadata.shards {
                None => self.read_file(&path),
                Some(shards) => self.read_in_shard(&path, shards, &of_file, &in_file),
            };
            read.map_err(|error| named(&path, error))
        };
        let chunk = self.cache.get(Key::Chunk(number), *chunk_bytes, read)?;
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
    }

    /// A file that is one chunk. No bytes if there is no such file.
    fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        match opened(path)? {
            Some((file, len_bytes)) => self.decode(&file, 0, len_bytes),
            None => Ok(Vec::new()),
        }
    }

    /// A chunk of a shard. No bytes if it is not stored.
    fn read_in_shard(&self, path: &Path, shards: &Shards, of_file: &[u64], in_file: &[u64]) -> Result<Vec<u8>> {
        let Metadata { shape, file_shape, .. } = &self.metadata;
        let key = Key::Index(place(shape, file_shape, of_file));
        let index_bytes = shards.index_bytes().unwrap_or_default() as usize;
        // The file is not opened if the index is kept and has no such chunk.
        let mut shard = None;
        let index = self.cache.get(key, index_bytes, || {
            let Some((file, len_bytes)) = opened(path)? else { return Ok(Vec::new()) };
            let index = range(&file, shards.index_start(len_bytes)?, index_bytes)?;
            shards.check_index(&index)?;
            shard = Some((file, len_bytes));
            Ok(index)
        })?;
        let Some((start, chunk_bytes)) = shards.place(&index, in_file) else { return Ok(Vec::new()) };
        let shard = match shard {
            Some(shard) => Some(shard),
            None => opened(path)?,
        };
        let (file, len_bytes) = shard.ok_or_else(|| bad("the shard has been removed"))?;
        if start.checked_add(chunk_bytes).is_none_or(|end| end > len_bytes) {
            return Err(bad(format!("a chunk of {chunk_bytes} bytes at byte {start} ends after the shard's end")));
        }
        self.decode(&file, start, chunk_bytes)
    }

    /// Reads and decodes a chunk that takes `len_bytes` bytes of a file.
    fn decode(&self, file: &File, start: u64, len_bytes: u64) -> Result<Vec<u8>> {
        let Metadata { codecs, chunk_bytes, .. } = &self.metadata;
        let most = max_encoded_bytes(*chunk_bytes);
        if len_bytes > most as u64 {
            return Err(bad(format!("{len_bytes} bytes, more than a chunk of {chunk_bytes} bytes takes")));
        }
        codecs.decode(range(file, start, len_bytes as usize)?, *chunk_bytes)
    }
}

/// The number of a chunk or shard among all, from its numbers in each dimension. [`Metadata`] has checked that 64 bits
/// suffice.
fn place(shape: &[u64], chunk_shape: &[u64], numbers: &[u64]) -> u64 {
    let counts = shape.iter().zip(chunk_shape).map(|(side, chunk)| side.div_ceil(*chunk));
    counts.zip(numbers).fold(0, |all, (count, number)| all * count + number)
}

fn range(file: &File, start: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = zeros(len)?;
    read_exact_at(file, &mut bytes, start).map_err(|error| bad(format!("it cannot be read: {error}")))?;
    Ok(bytes)
}

/// A file and its length; `None` if it does not exist.
fn opened(path: &Path) -> Result<Option<(File, u64)>> {
    match open(path) {
        Ok((file, metadata)) => Ok(Some((file, metadata.len()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(bad(format!("it cannot be opened: {error}"))),
    }
}

/// An error with the file's name.
fn named(path: &Path, error: Error) -> Error {
    match error {
        Error::Decode { format, message } => {
            Error::Decode { format, message: format!("{}: {message}", path.display()) }
        }
        Error::Unsupported { feature, remedy } => {
            Error::Unsupported { feature: format!("{}: {feature}", path.display()), remedy }
        }
        other => other,
    }
}
