//! One parser a format, for shards that are read in any order and for those that come once.
//!
//! A parser goes from record to record, over [`Bytes`]. It says where images lie, and takes their bytes along where they
//! cannot be read again. So both ways of reading find the same samples and the same damage.

use super::bytes::Bytes;
use super::entry::{Entry, Fault};
use super::format::RecordFormat;
use super::options::RecordOptions;
use super::{recordio, tar, tfrecord};
use crate::error::Result;

/// A parser of one shard.
pub(crate) struct Parser {
    records: Records,
    rest: Rest,
}

enum Records {
    Tar(Box<tar::Parser>),
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
    /// For a shard, or the rest of one from the record at byte `at` on. Of each sample it takes what is in `field` along.
    pub fn new(format: RecordFormat, options: &RecordOptions, field: Option<&str>, at: u64) -> Self {
        let records = match format {
            RecordFormat::WebDataset => Records::Tar(Box::new(tar::Parser::new(options, field, at))),
            RecordFormat::RecordIo => Records::RecordIo(recordio::Parser::new(field, at)),
            RecordFormat::TfRecord => Records::TfRecord(tfrecord::Parser::new(options, field, at)),
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
