//! Where samples lie in a stream, by which it goes on in another process without reading what it has given.

use super::StreamSample;
use crate::error::{Error, Result};

/// Where a sample lies in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Its shard, counted in the order of the epoch.
    pub turn: u32,
    /// Where all that belongs to it starts in the shard, in bytes.
    pub start: u64,
    /// Where that ends. Of damage: no less than what showed it.
    pub end: u64,
}

/// A sample and where it lies.
pub(super) struct Located {
    pub extent: Extent,
    /// Or why there is none: an error of a bad sample.
    pub sample: Result<StreamSample>,
}

/// Samples in the order in which they lie.
pub(super) trait InOrder: Send {
    /// The next one; `None` at the end. An error ends the stream.
    fn next(&mut self) -> Result<Option<Located>>;

    /// Reads samples that were given before.
    fn reread(&mut self, extents: &[Extent]) -> Result<Vec<Result<StreamSample>>>;

    /// Writes down where it stands, and which versions of the shards `turns` it has seen. `None` if it cannot go on from
    /// there.
    fn write(&self, turns: &[u32], cursor: &mut Vec<u8>) -> Option<()>;

    /// Goes to what [`write`](Self::write) has written. `None` if that is damaged.
    fn go_on(&mut self, cursor: &mut &[u8]) -> Option<()>;
}

/// Writes a number: seven bits a byte, the lowest first; all but the last byte have the upper bit.
pub(super) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads what [`put`] has written.
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

/// Largest count or offset in a cursor: sums of two do not overflow.
const MAX_COUNT: u64 = 1 << 62;

/// Reads a count or an offset.
pub(super) fn take_count(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).filter(|&count| count <= MAX_COUNT)
}

/// Reads a yes or no.
pub(super) fn take_flag(bytes: &mut &[u8]) -> Option<bool> {
    match take(bytes)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Error for a cursor that no such stream has given.
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
