//! Strips and tiles that are JPEGs, whose tables may be in a tag of the page.

use super::bad;
use crate::decode::probe::{be16, next_marker};
use crate::error::Result;

/// Largest number of bytes of the tables. Those of three colors have about 600.
pub(super) const MAX_TABLE_BYTES: u64 = 1 << 16;

/// A JPEG of the tables and the data of a strip or tile. `is_ycc` says whether three channels are luma and chroma; the
/// markers that would say so in the data are dropped, as in libtiff.
pub(super) fn whole_file(tables: &[u8], data: &[u8], is_ycc: bool) -> Result<Vec<u8>> {
    let mut file = Vec::with_capacity(tables.len() + data.len() + 18);
    file.extend(b"\xFF\xD8\xFF\xEE\x00\x0EAdobe\x00\x64\x00\x00\x00\x00");
    file.push(is_ycc.into());
    if !tables.is_empty() {
        let end = copy_segments(tables, &mut file).ok_or_else(|| bad("the JPEG tables are damaged"))?;
        if end < tables.len() && tables[end - 1] != 0xD9 {
            return Err(bad("the JPEG tables have a scan"));
        }
    }
    let end = copy_segments(data, &mut file).ok_or_else(|| bad("the JPEG of a strip or tile is damaged"))?;
    // The scan's marker, and all that follows.
    file.extend_from_slice(&data[end - 2..]);
    Ok(file)
}

/// Copies segments up to the first scan or the end of the image, without comments and application data. Returns the
/// offset after the marker of the scan or of the end. `None` if the bytes end before it.
fn copy_segments(bytes: &[u8], file: &mut Vec<u8>) -> Option<usize> {
    let mut at = 0;
    if bytes.get(..2)? != [0xFF, 0xD8] {
        return None;
    }
    at += 2;
    loop {
        let (marker, start) = next_marker(bytes, at)?;
        match marker {
            0xDA | 0xD9 => return Some(start),
            0x00 | 0x01 | 0xD0..=0xD8 => at = start,
            _ => {
                let next = start + usize::from(be16(bytes, start)?);
                let segment = bytes.get(start..next)?;
                if !matches!(marker, 0xE0..=0xEF | 0xFE) {
                    file.extend([0xFF, marker]);
                    file.extend_from_slice(segment);
                }
                at = next.max(start + 2);
            }
        }
    }
}
