//! MXNet's RecordIO. The framing is dmlc-core's (`recordio.h`), the image header MXNet's (`image_recordio.h`).

use super::label::{self, Label};
use super::{Found, MAX_ENCODED_BYTES, too_long};
use crate::error::Result;
use crate::source::window::Window;

/// Each part starts with it. Where it occurs in the data at a multiple of four bytes, the record is cut there.
pub(crate) const MAGIC: [u8; 4] = 0xced7_230a_u32.to_le_bytes();

/// Magic and length.
pub(crate) const HEAD_BYTES: u64 = 8;

/// Bytes of the image header up to the labels: their number, a label, and two identifiers.
pub(crate) const IMAGE_HEADER_BYTES: u64 = 24;

/// The image header and the first of several labels.
const LABEL_END_BYTES: usize = IMAGE_HEADER_BYTES as usize + 4;

/// One part of a record.
struct Part {
    /// Where its data start.
    start: u64,
    len_bytes: u64,
    /// 0 for a whole record, otherwise 1 for its first part, 2 for one in the middle, 3 for its last.
    place: u32,
    /// Where the next part or record starts.
    next: u64,
}

/// What a part's head says: its place and its length in bytes.
pub(crate) fn head(bytes: [u8; HEAD_BYTES as usize]) -> Option<(u32, u64)> {
    let length = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let place = length >> 29;
    (bytes[..4] == MAGIC && place < 4).then_some((place, u64::from(length & ((1 << 29) - 1))))
}

fn part(window: &mut Window, at: u64) -> Result<Result<Part, String>> {
    let Some(bytes) = window.array(at)? else {
        return Ok(Err("the file ends in the middle of a record's head".to_owned()));
    };
    let Some((place, len_bytes)) = head(bytes) else { return Ok(Err("there is no head of a record".to_owned())) };
    let start = at + HEAD_BYTES;
    if !window.holds(start, len_bytes) {
        let left = window.len_bytes() - start;
        return Ok(Err(format!("a record of {len_bytes} bytes is followed by only {left}")));
    }
    Ok(Ok(Part { start, len_bytes, place, next: start + len_bytes.next_multiple_of(4) }))
}

/// The label and where the image starts, from the first bytes of a record: as much as [`LABEL_END_BYTES`] of it.
pub(crate) fn image_header(bytes: &[u8]) -> Result<(Result<Label, String>, u64), String> {
    let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
    let short = || "the record is too short for an image header".to_owned();
    let labels = word(0).filter(|_| bytes.len() as u64 >= IMAGE_HEADER_BYTES).ok_or_else(short)?;
    // With several labels the header's own is unused and they follow it.
    let label = word(if labels == 0 { 4 } else { IMAGE_HEADER_BYTES as usize }).ok_or_else(short)?;
    Ok((label::from_float(f32::from_bits(label)), IMAGE_HEADER_BYTES + 4 * u64::from(labels)))
}

/// Passes over the records of a file.
pub(super) fn scan(window: &mut Window, found: &mut Found) -> Result<()> {
    let mut at = 0;
    while at < window.len_bytes() {
        match record(window, at, found)? {
            Ok(next) => at = next,
            Err(message) => {
                found.fault(at, &format!("{message}; the rest of the file cannot be read"));
                return Ok(());
            }
        }
    }
    if at > window.len_bytes() {
        found.fault(window.len_bytes(), "the file ends in the filling of a record");
    }
    Ok(())
}

/// Takes up the record at `at` and gives where the next one starts.
fn record(window: &mut Window, at: u64, found: &mut Found) -> Result<Result<u64, String>> {
    let first = match part(window, at)? {
        Ok(part) if part.place < 2 => part,
        Ok(_) => return Ok(Err("a record's first part is missing".to_owned())),
        Err(message) => return Ok(Err(message)),
    };
    let mut start = Vec::with_capacity(LABEL_END_BYTES);
    let (mut len_bytes, mut next) = (first.len_bytes, first.next);
    take(window, &first, &mut start)?;
    let split = first.place != 0;
    let mut last = !split;
    while !last {
        let part = match part(window, next)? {
            Ok(part) if part.place >= 2 => part,
            Ok(_) => return Ok(Err("a record's last part is missing".to_owned())),
            Err(message) => return Ok(Err(message)),
        };
        start.extend(&MAGIC[..MAGIC.len().min(LABEL_END_BYTES - start.len())]);
        take(window, &part, &mut start)?;
        len_bytes += MAGIC.len() as u64 + part.len_bytes;
        (next, last) = (part.next, part.place == 3);
    }
    match image_header(&start) {
        Ok((_, image)) if image > len_bytes => found.fault(at, "it has more labels than it has room for"),
        // Indices of other programs begin with a record that has labels only.
        Ok((_, image)) if image == len_bytes => found.skipped_files += 1,
        // A record in parts is put together when it is read, with its header.
        Ok((label, _)) if split => found.sample(at, len_bytes, true, label),
        Ok((label, image)) => found.sample(first.start + image, len_bytes - image, false, label),
        Err(message) => found.fault(at, &message),
    }
    Ok(Ok(next))
}

/// Adds a part's first bytes to those of its record.
fn take(window: &mut Window, part: &Part, start: &mut Vec<u8>) -> Result<()> {
    let wanted = part.len_bytes.min((LABEL_END_BYTES - start.len()) as u64) as usize;
    start.extend(window.at(part.start, wanted)?.unwrap_or_default());
    Ok(())
}

/// Reads the image of the record at `at`, which is in several parts of `len_bytes` together, into `buffer`.
pub(super) fn read_split(
    window: &mut Window,
    mut at: u64,
    len_bytes: usize,
    buffer: &mut Vec<u8>,
) -> Result<Result<(), String>> {
    buffer.clear();
    buffer.reserve(len_bytes);
    loop {
        let part = match part(window, at)? {
            Ok(part) => part,
            Err(message) => return Ok(Err(message)),
        };
        if part.place >= 2 {
            buffer.extend(MAGIC);
        }
        if buffer.len() as u64 + part.len_bytes > MAX_ENCODED_BYTES {
            return Ok(Err(too_long(buffer.len() as u64 + part.len_bytes)));
        }
        buffer.extend(window.at(part.start, part.len_bytes as usize)?.unwrap_or_default());
        at = part.next;
        if matches!(part.place, 0 | 3) {
            break;
        }
    }
    match image_header(buffer) {
        Ok((_, image)) if image <= buffer.len() as u64 => {
            buffer.drain(..image as usize);
            Ok(Ok(()))
        }
        Ok(_) => Ok(Err("it has more labels than it has room for".to_owned())),
        Err(message) => Ok(Err(message)),
    }
}
