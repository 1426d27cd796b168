//! TFRecord files of `tf.train.Example`. The framing is TensorFlow's (`record_writer.h`), the messages those of its
//! `example.proto` and `feature.proto` in protobuf's wire format.

use super::label::{self, Label};
use super::{Found, MAX_ENCODED_BYTES, RecordOptions, too_long};
use crate::error::Result;
use crate::source::window::Window;
use std::ops::Range;

/// The feature that holds the image.
pub(crate) const IMAGE: &str = "image/encoded";
/// The feature that holds the label.
pub(crate) const LABEL: &str = "image/class/label";

/// Length and its checksum.
pub(crate) const HEAD_BYTES: u64 = 12;

/// Names of features, and labels that are text, are no longer than this.
const MAX_TEXT_BYTES: u64 = 4096;

/// CRC-32C, turned and moved so that a checksum of data that hold checksums is still one.
pub(crate) fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The length that a record's head gives; `None` if its checksum is wrong.
pub(crate) fn head(bytes: &[u8; HEAD_BYTES as usize]) -> Option<u64> {
    let (len_bytes, crc) = bytes.split_first_chunk::<8>()?;
    (masked_crc(len_bytes).to_le_bytes() == crc).then(|| u64::from_le_bytes(*len_bytes))
}

/// Bytes at a position: of a file, or in memory.
pub(crate) trait Bytes {
    /// `len_bytes` bytes from `offset` on, `None` if they end before.
    fn at(&mut self, offset: u64, len_bytes: usize) -> Result<Option<&[u8]>>;
}

impl Bytes for Window<'_> {
    fn at(&mut self, offset: u64, len_bytes: usize) -> Result<Option<&[u8]>> {
        Window::at(self, offset, len_bytes)
    }
}

impl Bytes for &[u8] {
    fn at(&mut self, offset: u64, len_bytes: usize) -> Result<Option<&[u8]>> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(start.checked_add(len_bytes).and_then(|end| self.get(start..end)))
    }
}

/// What is damaged in a message.
const DAMAGED: &str = "the example's message is damaged";

/// A field of a message: its number, and where its content lies or, for whole numbers, what they are.
enum Field {
    Number(u64, u64),
    Bytes(u64, Range<u64>),
    Other,
}

/// Reads a varint at `at`, which it moves behind it.
fn varint(bytes: &mut impl Bytes, at: &mut u64, end: u64) -> Result<Option<u64>> {
    let len = end.saturating_sub(*at).min(10) as usize;
    let Some(found) = bytes.at(*at, len)? else { return Ok(None) };
    let mut number = 0_u64;
    for (i, &byte) in found.iter().enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *at += i as u64 + 1;
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// Reads the field at `at`, which it moves behind it.
fn field(bytes: &mut impl Bytes, at: &mut u64, end: u64) -> Result<Option<Field>> {
    let Some(tag) = varint(bytes, at, end)? else { return Ok(None) };
    let skipped = match tag & 7 {
        0 => return Ok(varint(bytes, at, end)?.map(|number| Field::Number(tag >> 3, number))),
        1 => 8,
        2 => {
            let Some(len) = varint(bytes, at, end)? else { return Ok(None) };
            let Some(last) = at.checked_add(len).filter(|&last| last <= end) else { return Ok(None) };
            let content = *at..last;
            *at = last;
            return Ok(Some(Field::Bytes(tag >> 3, content)));
        }
        5 => 4,
        _ => return Ok(None),
    };
    *at += skipped;
    Ok((*at <= end).then_some(Field::Other))
}

/// An example's image and label.
#[derive(Debug, PartialEq)]
pub(crate) struct Example {
    /// Where the image lies.
    pub image: Option<Range<u64>>,
    pub label: Result<Label, String>,
}

/// Finds the features named `image` and `label` in the message that lies at `place`.
pub(crate) fn example(
    bytes: &mut impl Bytes,
    place: Range<u64>,
    image: &str,
    label: &str,
) -> Result<Result<Example, &'static str>> {
    let mut found = Example { image: None, label: Ok(Label::None) };
    let mut at = place.start;
    while at < place.end {
        match field(bytes, &mut at, place.end)? {
            // Example.features
            Some(Field::Bytes(1, features)) => {
                let mut at = features.start;
                while at < features.end {
                    match field(bytes, &mut at, features.end)? {
                        // Features.feature, an entry of a map
                        Some(Field::Bytes(1, entry)) => {
                            if feature(bytes, entry, image, label, &mut found)?.is_none() {
                                return Ok(Err(DAMAGED));
                            }
                        }
                        Some(_) => {}
                        None => return Ok(Err(DAMAGED)),
                    }
                }
            }
            Some(_) => {}
            None => return Ok(Err(DAMAGED)),
        }
    }
    Ok(Ok(found))
}

/// Looks at an entry of the map: a name (1) and a feature (2). `None`: it is damaged.
fn feature(
    bytes: &mut impl Bytes,
    entry: Range<u64>,
    image: &str,
    label: &str,
    found: &mut Example,
) -> Result<Option<()>> {
    let (mut name, mut value, mut at) = (None, None, entry.start);
    while at < entry.end {
        match field(bytes, &mut at, entry.end)? {
            Some(Field::Bytes(1, place)) => name = Some(place),
            Some(Field::Bytes(2, place)) => value = Some(place),
            Some(_) => {}
            None => return Ok(None),
        }
    }
    let (Some(name), Some(value)) = (name, value) else { return Ok(Some(())) };
    if name.end - name.start > MAX_TEXT_BYTES {
        return Ok(Some(()));
    }
    let Some(name) = bytes.at(name.start, (name.end - name.start) as usize)? else { return Ok(None) };
    let (is_image, is_label) = (name == image.as_bytes(), name == label.as_bytes());
    if !is_image && !is_label {
        return Ok(Some(()));
    }
    let mut at = value.start;
    while at < value.end {
        match field(bytes, &mut at, value.end)? {
            // Feature.bytes_list, .float_list, .int64_list
            Some(Field::Bytes(kind, list)) => {
                let Some(first) = first_value(bytes, list)? else { return Ok(None) };
                match (kind, first) {
                    (1, Some(Field::Bytes(_, text))) if is_image => found.image = Some(text),
                    (1, Some(Field::Bytes(_, text))) if text.end - text.start <= MAX_TEXT_BYTES => {
                        let Some(text) = bytes.at(text.start, (text.end - text.start) as usize)? else {
                            return Ok(None);
                        };
                        found.label = label::from_text(text);
                    }
                    (3, Some(Field::Number(_, number))) if is_label => found.label = label::from_integer(number as i64),
                    (3, Some(Field::Bytes(_, packed))) if is_label => {
                        let mut at = packed.start;
                        if !packed.is_empty() {
                            let Some(number) = varint(bytes, &mut at, packed.end)? else { return Ok(None) };
                            found.label = label::from_integer(number as i64);
                        }
                    }
                    (_, None) => {}
                    _ if is_label => found.label = Err("its label is no whole number and no text".to_owned()),
                    _ => {}
                }
            }
            Some(_) => {}
            None => return Ok(None),
        }
    }
    Ok(Some(()))
}

/// The first value of a list, which is its field 1. `None`: it is damaged; `Some(None)`: it is empty.
fn first_value(bytes: &mut impl Bytes, list: Range<u64>) -> Result<Option<Option<Field>>> {
    let mut at = list.start;
    while at < list.end {
        match field(bytes, &mut at, list.end)? {
            Some(value @ (Field::Bytes(1, _) | Field::Number(1, _) | Field::Other)) => return Ok(Some(Some(value))),
            Some(_) => {}
            None => return Ok(None),
        }
    }
    Ok(Some(None))
}

/// Passes over the records of a file. Their own checksums are checked when they are read.
pub(super) fn scan(window: &mut Window, options: &RecordOptions, found: &mut Found) -> Result<()> {
    let image = options.image.as_deref().unwrap_or(IMAGE);
    let label = options.label.as_deref().unwrap_or(LABEL);
    let mut at = 0;
    while at < window.len_bytes() {
        let rest = |message: &str| format!("{message}; the rest of the file cannot be read");
        let Some(bytes) = window.array(at)? else {
            found.fault(at, &rest("the file ends in the middle of a record's head"));
            break;
        };
        let Some(len_bytes) = head(&bytes) else {
            found.fault(at, &rest("the checksum of a record's length is wrong (compressed files are not supported)"));
            break;
        };
        let start = at + HEAD_BYTES;
        // Behind the data comes their checksum.
        if !window.holds(start, len_bytes.saturating_add(4)) {
            let left = window.len_bytes() - start;
            found.fault(at, &rest(&format!("a record of {len_bytes} bytes is followed by only {left}")));
            break;
        }
        if len_bytes > MAX_ENCODED_BYTES - 4 {
            found.fault(at, &too_long(len_bytes));
        } else {
            match example(window, start..start + len_bytes, image, label)? {
                Ok(Example { image: Some(_), label }) => found.sample(start, len_bytes, false, label),
                Ok(Example { image: None, .. }) => found.skipped_files += 1,
                Err(message) => found.fault(at, message),
            }
        }
        at = start + len_bytes + 4;
    }
    Ok(())
}

/// Where the image lies in a record's data, which their checksum follows.
pub(crate) fn checked_image(mut record: &[u8], image: Option<&str>) -> Result<Range<usize>, String> {
    let damaged = || DAMAGED.to_owned();
    let (data, crc) = record.split_last_chunk::<4>().ok_or_else(damaged)?;
    if masked_crc(data) != u32::from_le_bytes(*crc) {
        return Err("the checksum of the record's data is wrong".to_owned());
    }
    let len_bytes = data.len() as u64;
    let found = example(&mut record, 0..len_bytes, image.unwrap_or(IMAGE), LABEL).map_err(|e| e.to_string())??;
    let place = found.image.ok_or_else(damaged)?;
    Ok(place.start as usize..place.end as usize)
}
