//! Step 1: the scan's data without stuffed zeros and markers.
//!
//! Whether a byte is kept depends only on the byte before it, so threads can share the data.

use super::Reason;

/// Number of zeros after the data, so that a look-up may read beyond the end.
const PADDING_BYTES: usize = 8;

/// The entropy-coded data of a scan.
pub struct UnstuffedData {
    /// The bytes of all segments, followed by zeros.
    pub bytes: Vec<u8>,
    /// Start of each segment in bytes, and the end of the last one.
    pub bounds: Vec<usize>,
    /// For each byte its place in the data before, and the place after the last one.
    pub places: Vec<usize>,
}

impl UnstuffedData {
    /// The bit that is this one of the data before.
    pub(super) fn unstuffed_bit(&self, bit: usize) -> usize {
        let last = self.places.len() - 1;
        (8 * self.places[..last].partition_point(|&place| place < bit / 8) + bit % 8).min(8 * last)
    }

    /// The bits from a place on, left-aligned. At least 57 of them are valid.
    pub fn bits(&self, at: usize) -> u64 {
        let bytes = self.bytes.get(at / 8..).and_then(<[u8]>::first_chunk);
        u64::from_be_bytes(*bytes.unwrap_or(&[0; 8])) << (at % 8)
    }
}

/// Takes the data up to the first marker that is not a restart marker. `restarts` is the number of the first restart
/// marker that is due, if the image has them.
pub(super) fn unstuff(data: &[u8], restarts: Option<u32>) -> Result<UnstuffedData, Reason> {
    let bytes = Vec::with_capacity(data.len() + PADDING_BYTES);
    let mut scan = UnstuffedData { bytes, bounds: vec![0], places: Vec::with_capacity(data.len()) };
    let (mut before, mut end) = (0, 0);
    for (at, &byte) in data.iter().enumerate() {
        match (before, byte) {
            // Fill bytes: libjpeg takes some of them for markers.
            (0xFF, 0xFF) => return Err(Reason::Damaged),
            // The byte may be stuffed, or a marker's first byte.
            (_, 0xFF) => {}
            (0xFF, 0) => {
                scan.bytes.push(0xFF);
                scan.places.push(at - 1);
                end = at + 1;
            }
            (0xFF, 0xD0..=0xD7) if let Some(first) = restarts => {
                let expected = 0xD0 + (first as usize + scan.bounds.len() - 1) % 8;
                if usize::from(byte) != expected {
                    return Err(Reason::Damaged);
                }
                scan.bounds.push(scan.bytes.len());
            }
            (0xFF, _) => break,
            _ => {
                scan.bytes.push(byte);
                scan.places.push(at);
                end = at + 1;
            }
        }
        before = byte;
    }
    scan.bounds.push(scan.bytes.len());
    scan.places.push(end);
    scan.bytes.extend([0; PADDING_BYTES]);
    Ok(scan)
}
