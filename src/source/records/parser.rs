//! One parser a format, for shards that are read in any order and for those that come once.
//!
//! A parser goes from record to record, over [`Bytes`]. It says where images lie, and takes their bytes along where they
//! cannot be read again. So both ways of reading find the same samples and the same damage.

use super::label::Label;
use super::{MAX_ENCODED_BYTES, RecordFormat, RecordOptions, recordio, tar, tfrecord};
use crate::error::{Error, Result};
use std::ops::Range;

/// The bytes of a shard, which parsers look at from front to back.
pub(crate) trait Bytes {
    /// Whether images must be taken in passing, as the bytes come once.
    const ONCE: bool;

    /// `len_bytes` bytes from `offset` on; `None` if the shard ends before. Callers bound `len_bytes`.
    fn at(&mut self, offset: u64, len_bytes: usize) -> Result<Option<&[u8]>>;

    /// Makes that what lies at `range` can be looked at in any order, as far as it is there.
    fn hold(&mut self, range: Range<u64>) -> Result<()>;

    /// Adds what lies at `range` to `image` where bytes come once. `false` if the shard ends before.
    fn take(&mut self, range: Range<u64>, image: &mut Vec<u8>) -> Result<bool>;

    /// Where the shard ends, if that is before `offset`. What lies before `offset` is passed over.
    fn end_before(&mut self, offset: u64) -> Result<Option<u64>>;

    /// How far has been read.
    fn read_to(&self) -> u64;

    /// As [`at`](Self::at), for a fixed number of bytes.
    fn array<const N: usize>(&mut self, offset: u64) -> Result<Option<[u8; N]>> {
        Ok(self.at(offset, N)?.and_then(|bytes| bytes.try_into().ok()))
    }
}

/// Bytes in memory.
impl Bytes for &[u8] {
    const ONCE: bool = false;

    fn at(&mut self, offset: u64, len_bytes: usize) -> Result<Option<&[u8]>> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(start.checked_add(len_bytes).and_then(|end| self.get(start..end)))
    }

    fn hold(&mut self, _range: Range<u64>) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, range: Range<u64>, _image: &mut Vec<u8>) -> Result<bool> {
        Ok(range.end <= self.len() as u64)
    }

    fn end_before(&mut self, offset: u64) -> Result<Option<u64>> {
        Ok(Some(self.len() as u64).filter(|&end| end < offset))
    }

    fn read_to(&self) -> u64 {
        self.len() as u64
    }
}

/// What a parser finds: a sample, or what is wrong in its place. Damage behind which nothing can be made out is the last.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Where all that belongs to it lies. Of damage: as far as was read.
    pub part: Range<u64>,
    /// Where its image lies; where its record lies if that is in several parts; what is damaged.
    pub offset: u64,
    /// The image's length in bytes, or that of all parts.
    pub len_bytes: u64,
    /// Whether its record is in several parts.
    pub split: bool,
    /// The image's name in an archive.
    pub member: Vec<u8>,
    /// The image, where bytes come once.
    pub image: Vec<u8>,
    /// The label, or why there is no sample.
    pub label: Result<Label, String>,
}

impl Entry {
    pub fn new(part: Range<u64>, offset: u64) -> Self {
        let (member, image) = (Vec::new(), Vec::new());
        Self { part, offset, len_bytes: 0, split: false, member, image, label: Ok(Label::None) }
    }

    /// What cannot be used, for `message`.
    pub fn bad(part: Range<u64>, offset: u64, message: impl Into<String>) -> Self {
        Self { label: Err(message.into()), ..Self::new(part, offset) }
    }
}

/// Why a shard cannot be parsed on.
pub(super) enum Fault {
    /// What came is no record.
    Damaged(String),
    /// The bytes cannot be had.
    Failed(Error),
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self::Damaged(message)
    }
}

impl From<&str> for Fault {
    fn from(message: &str) -> Self {
        Self::Damaged(message.to_owned())
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What is wrong with an image that is too long.
pub(super) fn too_long(len_bytes: u64) -> String {
    format!("its length of {len_bytes} bytes is over the limit of {MAX_ENCODED_BYTES}")
}

/// A parser of one shard.
pub(crate) struct Parser {
    records: Records,
    rest: Rest,
}

enum Records {
    Tar(tar::Parser),
    RecordIo(recordio::Parser),
    TfRecord(tfrecord::Parser),
}

/// What follows.
enum Rest {
    Records,
    Damage(Entry),
    Nothing,
}

impl Parser {
    /// For a shard, or the rest of one from the record at byte `at` on.
    pub fn new(format: RecordFormat, options: &RecordOptions, at: u64) -> Self {
        let records = match format {
            RecordFormat::WebDataset => Records::Tar(tar::Parser::new(options, at)),
            RecordFormat::RecordIo => Records::RecordIo(recordio::Parser::new(at)),
            RecordFormat::TfRecord => Records::TfRecord(tfrecord::Parser::new(options, at)),
        };
        Self { records, rest: Rest::Records }
    }

    /// The next sample or damage; `None` at the end.
    pub fn next(&mut self, bytes: &mut impl Bytes) -> Result<Option<Entry>> {
        let mut found = None;
        while let Rest::Records = self.rest {
            let outcome = match &mut self.records {
                Records::Tar(parser) => parser.step(bytes, &mut found),
                Records::RecordIo(parser) => parser.step(bytes, &mut found),
                Records::TfRecord(parser) => parser.step(bytes, &mut found),
            };
            match outcome {
                Ok(true) => {}
                Ok(false) => self.rest = Rest::Nothing,
                Err(Fault::Damaged(message)) => {
                    let (at, message) = (self.at(), format!("{message}; the rest of the shard cannot be read"));
                    self.rest = Rest::Damage(Entry::bad(at..bytes.read_to().max(at), at, message));
                }
                Err(Fault::Failed(error)) => return Err(error),
            }
            if found.is_some() {
                return Ok(found);
            }
        }
        // What is whole is not lost with what is behind it.
        if let Records::Tar(parser) = &mut self.records
            && let Some(found) = parser.finish()
        {
            return Ok(Some(found));
        }
        match std::mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::Damage(damage) => Ok(Some(damage)),
            _ => Ok(None),
        }
    }

    /// Where the record starts that is looked at next.
    fn at(&self) -> u64 {
        match &self.records {
            Records::Tar(parser) => parser.at,
            Records::RecordIo(parser) => parser.at,
            Records::TfRecord(parser) => parser.at,
        }
    }

    /// Where what [`next`](Self::next) gives starts, as far as it is known: from there another parser goes on.
    pub fn rest(&self) -> u64 {
        match &self.records {
            Records::Tar(parser) => parser.open_sample().unwrap_or(parser.at),
            _ => self.at(),
        }
    }

    /// Records that were passed over, as they hold no image.
    pub fn skipped_files(&self) -> u64 {
        match &self.records {
            Records::Tar(parser) => parser.skipped_files,
            Records::RecordIo(parser) => parser.skipped_files,
            Records::TfRecord(parser) => parser.skipped_files,
        }
    }
}
