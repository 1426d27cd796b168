//! The entries that parsers find, and the faults that end parsing.

use super::fields::StoredFields;
use super::label::Label;
use crate::error::{Error, Result};
use crate::source::MAX_ENCODED_BYTES;
use crate::targets::Target;
use std::ops::Range;

/// A sample, or a fault in its place. After damage that hides where the next record starts, no entry follows.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The bytes of all parts of the sample. For damage: the bytes that were read.
    pub part: Range<u64>,
    /// Offset of the image; of the record, if that is in several parts; or of the damage.
    pub offset: u64,
    /// The image's length in bytes, or the length of all parts.
    pub len_bytes: u64,
    /// Whether its record is in several parts.
    pub split: bool,
    /// The image's name in an archive.
    pub member: Vec<u8>,
    /// The image, if the bytes come only once.
    pub image: Vec<u8>,
    /// The label, or the reason why there is no sample.
    pub label: Result<Label, String>,
    /// The content of the requested field, if the sample has it, or the reason why it is unusable.
    pub target: Option<Result<Target, String>>,
    /// The wanted fields that the sample has.
    pub fields: StoredFields,
}

impl Entry {
    pub fn new(part: Range<u64>, offset: u64) -> Self {
        let (member, image, fields) = (Vec::new(), Vec::new(), StoredFields::default());
        Self { part, offset, len_bytes: 0, split: false, member, image, label: Ok(Label::None), target: None, fields }
    }

    /// Returns an entry that cannot be used, with the reason `message`.
    pub fn bad(part: Range<u64>, offset: u64, message: impl Into<String>) -> Self {
        Self { label: Err(message.into()), ..Self::new(part, offset) }
    }
}

/// The reasons why a shard cannot be parsed further.
pub(crate) enum Fault {
    /// The bytes are not a record.
    Damaged(String),
    /// The bytes could not be read.
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

/// Returns the message for an image that is too long.
pub(super) fn too_long(len_bytes: u64) -> String {
    format!("its length of {len_bytes} bytes is over the limit of {MAX_ENCODED_BYTES}")
}
