//! The facts of each image that an audit keeps in memory: 40 bytes.

use super::finding::Finding;
use super::record::Record;
use super::{AuditOptions, SLOW_TIMES, SLOW_US};
use warpfeed::image::Format;

/// Bits of [`Row::found`] that are no findings.
pub(super) const DONE: u32 = 1 << 31;
const HASHED: u32 = 1 << 30;
const READ: u32 = 1 << 29;
const FORMAT_SHIFT: u32 = 26;
/// Number of the numbers of formats. Number 0 is an image whose header cannot be read.
pub(super) const FORMATS: usize = Format::ALL.len() + 1;

/// An image.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Row {
    /// The first 128 bits of SHA-256 of its bytes.
    pub(super) sha256: [u64; 2],
    /// The perceptual hash.
    pub(super) look: u64,
    pub(super) decode_us: f32,
    pub(super) px: u32,
    /// Findings, and the bits above.
    pub(super) found: u32,
}

impl Row {
    pub(super) fn new(record: &Record, options: &AuditOptions) -> Self {
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
        let sha256 = [record.sha256.get(..16), record.sha256.get(16..)].map(|half| half.and_then(hexadecimal));
        let look = hexadecimal(&record.look);
        let format = Format::ALL.iter().position(|format| format.name() == record.format).map_or(0, |at| at + 1);
        let mut found = DONE | (format as u32) << FORMAT_SHIFT | header_findings(record, options);
        if let [Some(_), Some(_)] = sha256 {
            found |= READ;
        }
        if look.is_some() {
            found |= HASHED;
        }
        Self {
            sha256: sha256.map(Option::unwrap_or_default),
            look: look.unwrap_or_default(),
            decode_us: record.decode_us,
            px: u32::try_from(u64::from(record.width) * u64::from(record.height)).unwrap_or(u32::MAX),
            found,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.found & DONE != 0
    }

    pub(super) fn is_hashed(&self) -> bool {
        self.found & HASHED != 0
    }

    /// Whether the file could be read and is not empty.
    pub(super) fn is_read(&self) -> bool {
        self.found & READ != 0
    }

    /// Number of the format, below [`FORMATS`].
    pub(super) fn format(&self) -> usize {
        (self.found >> FORMAT_SHIFT & 7) as usize
    }

    pub(super) fn has(&self, finding: Finding) -> bool {
        self.found & finding.bit() != 0
    }

    /// Whether the image took so much longer than `median_us_per_px` that it is timed again.
    pub(super) fn is_slow(&self, median_us_per_px: f32) -> bool {
        self.decode_us > SLOW_US && self.decode_us > SLOW_TIMES * median_us_per_px * self.px as f32
    }
}

/// The findings that a record alone shows.
fn header_findings(record: &Record, options: &AuditOptions) -> u32 {
    let is_known = !record.format.is_empty();
    let (long, short) = (record.width.max(record.height), record.width.min(record.height));
    let checks = [
        (Finding::Truncated, record.truncated),
        (Finding::Unreadable, !record.error.is_empty() && !record.truncated),
        (Finding::Annotations, !record.annotations.is_empty()),
        (Finding::Extension, !record.content.is_empty()),
        (Finding::Turned, record.orientation > 1),
        (Finding::Cmyk, is_known && record.format == "JPEG" && record.components == 4),
        (Finding::Gray, is_known && matches!(record.components, 1 | 2)),
        (Finding::SixteenBits, record.bits > 8),
        (Finding::Alpha, record.alpha),
        (Finding::Animated, record.animated),
        (Finding::Tiny, is_known && short < options.tiny_px),
        (Finding::Huge, u64::from(long) * u64::from(short) > options.huge_px),
        (Finding::Ratio, is_known && f64::from(long) > options.max_ratio * f64::from(short)),
    ];
    checks.iter().filter(|(_, found)| *found).fold(0, |bits, (finding, _)| bits | finding.bit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_takes_40_bytes() {
        assert_eq!(size_of::<Row>(), 40);
        assert!(Finding::ALL.len() < FORMAT_SHIFT as usize);
    }
}
