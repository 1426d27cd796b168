//! Targets of samples other than their class: their form in sources and in batches. In a tar shard, parts of a sample
//! may come before its image, so the first target asked for in a shard finds where its samples begin.

mod numbers;
mod spec;

pub(crate) use spec::{Annotation, Form};
pub use spec::{TargetSpec, TargetType};

use crate::error::Error;
use crate::fields::Fields;
use std::sync::Arc;

/// Largest size of a sample's stored target: 1 MiB.
pub const MAX_TARGET_BYTES: u64 = 1 << 20;

/// A sample's training target, as stored in its source. [`TargetSpec`] defines its form in a batch.
///
/// ```
/// use warpfeed::Target;
///
/// // The tags of an image, as a JSON field has them: a multi-hot target or class numbers come of them.
/// let tags = Target::Bytes(b"[3, 17]".to_vec());
/// assert_ne!(tags, Target::Integers(vec![3, 17]), "nothing is parsed before it is known what for");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// The number of a class: the label.
    Class(u32),
    /// Whole numbers.
    Integers(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
    /// Bytes as they are stored: a text, JSON, or an `.npy` file. If numbers are asked for, they are parsed from an
    /// `.npy` file, from JSON that begins with `[`, or from a text with blanks or commas between the numbers.
    Bytes(Vec<u8>),
}

impl Target {
    /// Size in memory, in bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        match self {
            Self::Class(_) => 4,
            Self::Integers(numbers) => 8 * numbers.len() as u64,
            Self::Floats(numbers) => 4 * numbers.len() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// The parts of a sample, besides its image, that a source has found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The content of the wanted target field; `None` if none was wanted.
    pub target: Option<Target>,
    /// The wanted fields; `None` if none were wanted.
    pub fields: Option<Arc<Fields>>,
}

/// The error of a sample without the field that was asked for.
pub(crate) fn missing(field: &str) -> Error {
    wrong(Some(field), "the sample has none")
}

/// The error of a sample whose target cannot be used.
pub(crate) fn wrong(field: Option<&str>, message: impl Into<String>) -> Error {
    Error::Target { field: field.unwrap_or("label").to_owned(), message: message.into() }
}

/// The message about a target that is too long.
pub(crate) fn too_long(len_bytes: u64) -> String {
    format!("its {len_bytes} bytes are over the limit of {MAX_TARGET_BYTES}")
}
