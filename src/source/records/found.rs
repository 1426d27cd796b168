//! The results of scanning a shard.

use super::entry::Entry;
use super::label::Label;
use crate::source::MAX_ENCODED_BYTES;
use std::collections::HashMap;

/// Largest number of different texts (names of labels, kinds of damage) that are kept for one shard.
const MAX_TEXTS: usize = 100_000;

/// The place of a sample in its shard. 16 bytes, since every sample of a data set has one in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    /// Offset of the image; of the record, if that is in several parts; or of the fault.
    pub(super) offset: u64,
    /// The length in bytes (below 2^29), [`SPLIT`], and the kind of `label` from [`LABEL_SHIFT`] on.
    pub(super) len_and_kind: u32,
    /// The label, or the number of its name or of the fault's text.
    pub(super) label: u32,
}

/// The bit of a record in several parts.
const SPLIT: u32 = 1 << 31;
const LABEL_SHIFT: u32 = 29;
const LEN_MASK: u32 = (1 << LABEL_SHIFT) - 1;

pub(super) const NUMBER: u32 = 0;
pub(super) const NAME: u32 = 1;
pub(super) const UNLABELED: u32 = 2;
pub(super) const FAULT: u32 = 3;

/// The number of all texts beyond [`MAX_TEXTS`].
pub(super) const NO_TEXT: u32 = u32::MAX;

const _: () = assert!(MAX_ENCODED_BYTES <= LEN_MASK as u64);

impl Record {
    pub(super) fn len_bytes(self) -> u32 {
        self.len_and_kind & LEN_MASK
    }

    pub(super) fn is_split(self) -> bool {
        self.len_and_kind & SPLIT != 0
    }

    pub(super) fn label_kind(self) -> u32 {
        self.len_and_kind >> LABEL_SHIFT & 3
    }

    pub(super) fn set_label(&mut self, kind: u32, label: u32) {
        self.len_and_kind = self.len_and_kind & !(3 << LABEL_SHIFT) | kind << LABEL_SHIFT;
        self.label = label;
    }
}

/// Different texts, numbered.
#[derive(Debug, Default, PartialEq)]
pub(in crate::source) struct Texts {
    pub(in crate::source) list: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Texts {
    /// Returns the text's number; `None` if there are too many texts.
    pub(in crate::source) fn number(&mut self, text: &str) -> Option<u32> {
        if let Some(&number) = self.numbers.get(text) {
            return Some(number);
        }
        let number = u32::try_from(self.list.len()).ok().filter(|_| self.list.len() < MAX_TEXTS)?;
        self.list.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        Some(number)
    }
}

/// The records of a shard. Damage is a record too, whose reading fails, so that the pipeline's policy decides about it
/// and it is counted and named like every bad sample.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ScannedShard {
    pub(super) records: Vec<Record>,
    pub(super) names: Texts,
    pub(super) faults: Texts,
    pub(super) skipped_files: u64,
}

impl ScannedShard {
    pub(super) fn add(&mut self, Entry { offset, len_bytes, split, label, .. }: Entry) {
        match label {
            Ok(label) => self.sample(offset, len_bytes, split, label),
            Err(message) => self.fault(offset, &message),
        }
    }

    /// Adds a sample of `len_bytes`, which is below the limit, at `offset`.
    pub(super) fn sample(&mut self, offset: u64, len_bytes: u64, split: bool, label: Label) {
        let (kind, label) = match label {
            Label::Number(label) => (NUMBER, label),
            Label::None => (UNLABELED, 0),
            Label::Name(name) => match self.names.number(&name) {
                Some(number) => (NAME, number),
                None => return self.fault(offset, &format!("it has more than {MAX_TEXTS} different labels")),
            },
        };
        let split = if split { SPLIT } else { 0 };
        self.records.push(Record { offset, len_and_kind: len_bytes as u32 | split | kind << LABEL_SHIFT, label });
    }

    /// Adds a sample that cannot be read, or the unreadable rest of a shard.
    pub(super) fn fault(&mut self, offset: u64, message: &str) {
        let number = self.faults.number(message).unwrap_or(NO_TEXT);
        self.records.push(Record { offset, len_and_kind: FAULT << LABEL_SHIFT, label: number });
    }
}
