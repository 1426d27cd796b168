//! One parser for each format, both for shards that are read in any order and for streams. It goes from record to
//! record over [`Bytes`], reports where images lie, and copies bytes that cannot be read again.

use super::bytes::Bytes;
use super::entry::{Entry, Fault};
use super::fields::part_names;
use super::format::RecordFormat;
use super::options::RecordOptions;
use super::{recordio, tar, tfrecord};
use crate::error::Result;
use crate::source::ReadRequest;
use std::collections::BTreeMap;

/// Names of the fields that samples have, as [`RecordOptions::label`] takes them, and whether one of its values may be
/// a label: a single number or text.
pub(in crate::source) type Names = BTreeMap<String, bool>;

/// Largest number of names that are noted.
const MAX_NAMES: usize = 64;

/// Notes a name, if names are wanted and there is room.
pub(super) fn note(names: &mut Option<Names>, name: impl FnOnce() -> String, may_be_label: bool) {
    if let Some(names) = names
        && names.len() < MAX_NAMES
    {
        *names.entry(name()).or_default() |= may_be_label;
    }
}

/// A parser of one shard.
pub(crate) struct Parser {
    records: Records,
    rest: Rest,
}

/// The parser of a format.
pub(crate) enum Records {
    Tar(Box<tar::Parser>),
    RecordIo(recordio::Parser),
    TfRecord(tfrecord::Parser),
}

/// What `$of` is of any parser.
macro_rules! of_any {
    ($records:expr, $parser:ident => $of:expr) => {
        match $records {
            Records::Tar($parser) => $of,
            Records::RecordIo($parser) => $of,
            Records::TfRecord($parser) => $of,
        }
    };
}

/// The rest of the shard.
enum Rest {
    Records,
    Damage(Entry),
    Nothing,
}

impl Parser {
    /// Creates a parser of a shard from the record at byte `at` on, which also returns target and fields of each sample
    /// if they are wanted.
    pub fn new(format: RecordFormat, options: &RecordOptions, want: &ReadRequest<'_>, at: u64) -> Self {
        let parts = part_names(format.facts().field_storage, want.fields);
        Self { records: format.rules().parser(options, want.target, parts, at), rest: Rest::Records }
    }

    /// Begins to note the names of fields, or stops and forgets them.
    pub fn keep_names(&mut self, keep: bool) {
        of_any!(&mut self.records, parser => parser.names = keep.then(Names::new));
    }

    /// The names of the fields that samples have had.
    pub fn names(&self) -> Names {
        of_any!(&self.records, parser => parser.names.clone().unwrap_or_default())
    }

    /// Returns the next sample or fault; `None` at the end.
    pub fn next(&mut self, bytes: &mut impl Bytes) -> Result<Option<Entry>> {
        let mut found = None;
        while let Rest::Records = self.rest {
            match of_any!(&mut self.records, parser => parser.step(bytes, &mut found)) {
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
        // A complete sample before the damage is not lost.
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

    /// Offset of the next record.
    fn at(&self) -> u64 {
        of_any!(&self.records, parser => parser.at)
    }

    /// Offset at which another parser must start to return the same next entry, as far as it is known.
    pub fn rest(&self) -> u64 {
        match &self.records {
            Records::Tar(parser) => parser.open_sample().unwrap_or(parser.at),
            _ => self.at(),
        }
    }

    /// Number of records without an image, which were skipped.
    pub fn skipped_files(&self) -> u64 {
        of_any!(&self.records, parser => parser.skipped_files)
    }
}
