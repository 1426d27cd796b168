//! The places of a stream's samples, for resuming it without reading delivered samples.

use super::StreamSample;
use crate::error::{Error, Result};

/// The place of a sample in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// The shard's number in the order of the epoch.
    pub turn: u32,
    /// Offset in the shard at which the sample's parts start, in bytes.
    pub start: u64,
    /// Offset in the shard at which the sample's parts end. For damage it is at or after the bytes that show it.
    pub end: u64,
}

/// A sample and its place.
pub(super) struct Located {
    pub extent: Extent,
    /// The sample, or the error of a bad sample.
    pub sample: Result<StreamSample>,
}

/// Samples in the order of their shards.
pub(super) trait InOrder: Send {
    /// Returns the next sample; `None` at the end. An error ends the stream.
    fn next(&mut self) -> Result<Option<Located>>;

    /// Reads samples that were returned before.
    fn reread(&mut self, extents: &[Extent]) -> Result<Vec<Result<StreamSample>>>;

    /// Appends the position, and the versions of the shards `turns`, to `cursor`. `None` if the stream cannot resume.
    fn write(&self, turns: &[u32], cursor: &mut Vec<u8>) -> Option<()>;

    /// Moves to the position that [`write`](Self::write) wrote. `None` if the cursor is damaged.
    fn go_on(&mut self, cursor: &mut &[u8]) -> Option<()>;
}

/// Appends a number in bytes of seven bits, the lowest bits first. All bytes but the last have the upper bit set.
pub(super) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a number that [`put`] wrote. `None` if it is damaged.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Largest count or offset in a cursor. The sum of two does not overflow.
const MAX_COUNT: u64 = 1 << 62;

/// Reads a count or an offset.
pub(super) fn take_count(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).filter(|&count| count <= MAX_COUNT)
}

/// Reads a flag.
pub(super) fn take_flag(bytes: &mut &[u8]) -> Option<bool> {
    match take(bytes)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// The error for a damaged cursor, or one of another stream or epoch.
pub(super) fn damaged() -> Error {
    Error::parameter("stream", "cursor", "one that such a stream has given, of the same epoch", "a damaged one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::MAX >> 1, u64::MAX];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|&number| put(&mut bytes, number));
        let mut rest = &bytes[..];
        assert_eq!(numbers.map(|_| take(&mut rest).unwrap()), numbers);
        assert_eq!((take(&mut rest), take(&mut &[0x80; 20][..])), (None, None));
    }
}
