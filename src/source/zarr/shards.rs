//! Shards: files of several chunks with an index.
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html>

use super::codecs::{bad, check_crc32c};
use warpfeed_image::Result;

/// Largest size of a shard's index in bytes: 64 MiB, 4 million chunks.
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// Number of bytes of an entry of the index: offset and length.
const ENTRY_BYTES: u64 = 16;

/// Number of bytes of a CRC-32C.
const SUM_BYTES: u64 = 4;

/// The form of all shards of an array.
#[derive(Debug, PartialEq)]
pub(super) struct Shards {
    /// Whether the index is at the start of the file, not at its end.
    pub(super) at_start: bool,
    /// Whether the numbers of the index have the most significant byte first.
    pub(super) is_big: bool,
    /// Whether a checksum follows the index.
    pub(super) is_checked: bool,
    /// Numbers of chunks in a shard, for each stored dimension.
    pub(super) counts: Vec<u64>,
    /// The array's dimensions in the order in which a shard stores them.
    pub(super) order: Vec<usize>,
}

impl Shards {
    /// Number of bytes of the index; `None` if it is too large.
    pub(super) fn index_bytes(&self) -> Option<u64> {
        let entries = self.counts.iter().try_fold(ENTRY_BYTES, |all, count| all.checked_mul(*count))?;
        Some(entries + if self.is_checked { SUM_BYTES } else { 0 }).filter(|bytes| *bytes <= MAX_INDEX_BYTES)
    }

    /// Place of the index in a file of `len_bytes` bytes.
    pub(super) fn index_start(&self, len_bytes: u64) -> Result<u64> {
        let index_bytes = self.index_bytes().unwrap_or(u64::MAX);
        let start = len_bytes.checked_sub(index_bytes);
        let start = start.ok_or_else(|| bad(format!("the shard has {len_bytes} bytes, fewer than its index")))?;
        Ok(if self.at_start { 0 } else { start })
    }

    pub(super) fn check_index(&self, index: &[u8]) -> Result<()> {
        if self.is_checked { check_crc32c(index) } else { Ok(()) }
    }

    /// Place and length in bytes of a chunk; `None` if it is not stored. `numbers` are the numbers of the chunk in the
    /// shard, for each dimension of the array.
    pub(super) fn place(&self, index: &[u8], numbers: &[u64]) -> Option<(u64, u64)> {
        let number =
            self.order.iter().zip(&self.counts).fold(0, |all, (dimension, count)| all * count + numbers[*dimension]);
        let entry = index.get((number * ENTRY_BYTES) as usize..)?.first_chunk::<{ ENTRY_BYTES as usize }>()?;
        let number = |bytes: &[u8]| {
            let bytes = *bytes.first_chunk::<8>()?;
            Some(if self.is_big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
        };
        let (start, len) = (number(entry)?, number(&entry[8..])?);
        if (start, len) == (u64::MAX, u64::MAX) { None } else { Some((start, len)) }
    }
}
