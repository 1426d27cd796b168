//! What parsers find, and why they end.

use super::label::Label;
use crate::error::{Error, Result};
use crate::source::MAX_ENCODED_BYTES;
use crate::targets::Target;
use std::ops::Range;

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
    /// What is in the field that was asked for, if the sample has it, or what is wrong with it.
    pub target: Option<Result<Target, String>>,
}

impl Entry {
    pub fn new(part: Range<u64>, offset: u64) -> Self {
        let (member, image) = (Vec::new(), Vec::new());
        Self { part, offset, len_bytes: 0, split: false, member, image, label: Ok(Label::None), target: None }
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
