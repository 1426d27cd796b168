//! Step 1: the scan's data without stuffed zeros and markers.
//!
//! A byte's fate depends on the byte before it alone, so threads can share the data out.

use super::Reason;

/// Zeros behind the data, so that a look-up may read on.
const PADDING_BYTES: usize = 8;

/// The entropy-coded data of a scan.
pub(crate) struct Scan {
    /// The segments' bytes, one behind the other, and zeros.
    pub bytes: Vec<u8>,
    /// Where segments start, in bytes, and where the last one ends.
    pub bounds: Vec<usize>,
}

impl Scan {
    /// The bits from a place on, left-aligned; at least 57 of them.
    pub fn bits(&self, at: usize) -> u64 {
        let bytes = self.bytes.get(at / 8..).and_then(<[u8]>::first_chunk);
        u64::from_be_bytes(*bytes.unwrap_or(&[0; 8])) << (at % 8)
    }
}

/// Takes the data up to the first marker, restart markers excepted: `restarts` is the number of the first one that is due,
/// if the image has them.
pub(super) fn unstuff(data: &[u8], restarts: Option<u32>) -> Result<Scan, Reason> {
    let mut scan = Scan { bytes: Vec::with_capacity(data.len() + PADDING_BYTES), bounds: vec![0] };
    let mut before = 0;
    for &byte in data {
        match (before, byte) {
            // Fill bytes, of which libjpeg makes more than it should.
            (0xFF, 0xFF) => return Err(Reason::Damaged),
            // May be stuffed, or a marker's first byte.
            (_, 0xFF) => {}
            (0xFF, 0) => scan.bytes.push(0xFF),
            (0xFF, 0xD0..=0xD7) if let Some(first) = restarts => {
                let expected = 0xD0 + (first as usize + scan.bounds.len() - 1) % 8;
                if usize::from(byte) != expected {
                    return Err(Reason::Damaged);
                }
                scan.bounds.push(scan.bytes.len());
            }
            (0xFF, _) => break,
            _ => scan.bytes.push(byte),
        }
        before = byte;
    }
    scan.bounds.push(scan.bytes.len());
    scan.bytes.extend([0; PADDING_BYTES]);
    Ok(scan)
}
