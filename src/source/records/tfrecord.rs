//! TFRecord files of `tf.train.Example`, as TensorFlow's `record_writer.h`, `example.proto` and `feature.proto` define
//! them.

use super::bytes::Bytes;
use super::entry::{Entry, Fault, too_long};
use super::fields::{FieldStorage, Part, StoredFields, part_names};
use super::format::{Checked, Facts, NewSample, ShardFormat};
use super::label::{self, Label, NO_IMAGE};
use super::options::RecordOptions;
use super::parser::{self, Records, note};
use crate::error::{Error, Result};
use crate::source::{MAX_ENCODED_BYTES, ReadRequest};
use crate::targets::{MAX_TARGET_BYTES, Target};
use std::mem::{Discriminant, discriminant};
use std::ops::Range;

/// The feature that holds the image.
const IMAGE: &str = "image/encoded";
/// The feature that holds the label.
const LABEL: &str = "image/class/label";

/// Bytes of a record's length and the checksum of the length.
const HEAD_BYTES: u64 = 12;
/// Bytes of the checksum that follows the data.
const CRC_BYTES: u64 = 4;

/// Upper bound of names of features and of labels that are text.
const MAX_TEXT_BYTES: u64 = 4096;

const FACTS: Facts = Facts {
    title: "TFRecord",
    name: "tfrecord",
    packed: "NAME-00000-of-00008.tfrecord: features image/encoded and image/class/label",
    endings: &["tfrecord", "tfrecords"],
    min_record_bytes: HEAD_BYTES + CRC_BYTES,
    trailer_bytes: CRC_BYTES,
    end: &[],
    labels: (&[LABEL], "the feature image/class/label"),
    field_storage: FieldStorage::Features,
    has_members: false,
    names_have_count: true,
    has_index: false,
};

/// The format.
pub(super) struct TfRecord;

impl ShardFormat for TfRecord {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn images(&self, image: Option<&str>) -> String {
        format!("examples with the feature {}", image.unwrap_or(IMAGE))
    }

    fn parser(&self, options: &RecordOptions, field: Option<&str>, parts: Vec<String>, at: u64) -> Records {
        Records::TfRecord(Parser::new(options, field, parts, at))
    }

    fn start(&self, offset: u64, _is_split: bool) -> Option<u64> {
        Some(offset.saturating_sub(HEAD_BYTES))
    }

    fn is_image_alone(&self) -> bool {
        false
    }

    /// Verifies a record's data, which their checksum follows.
    fn checked(
        &self,
        mut record: &[u8],
        image: Option<&str>,
        want: &ReadRequest<'_>,
    ) -> Result<Option<Checked>, String> {
        let damaged = || DAMAGED.to_owned();
        let data = 0..(record.len() as u64).checked_sub(CRC_BYTES).ok_or_else(damaged)?;
        let failed = |error: Error| error.to_string();
        if !is_whole(&mut record, data.clone()).map_err(failed)? {
            return Err(WRONG_CHECKSUM.to_owned());
        }
        let fields = &part_names(FACTS.field_storage, want.fields)[..];
        let names = Names { image: image.unwrap_or(IMAGE), label: None, target: want.target, fields, digits: false };
        let Example { image, target, fields, .. } = example(&mut record, data, names, &mut None).map_err(failed)??;
        let image = image.ok_or_else(damaged)?;
        Ok(Some(Checked { image: image.start as usize..image.end as usize, target, fields }))
    }

    /// Appends a record that holds a `tf.train.Example` with image, label, fields and target.
    fn write(&self, sample: &NewSample<'_>, out: &mut Vec<u8>) -> Result<()> {
        let image = write_feature(IMAGE, 1, &write_field(1, sample.image));
        let mut features = image;
        if let Some(label) = sample.label {
            let mut number = vec![0x08];
            write_varint(label.into(), &mut number);
            features.extend(write_feature(LABEL, 3, &number));
        }
        for (name, part) in sample.fields {
            features.extend(match part {
                Part::Bytes(list) => {
                    let list: Vec<u8> = list.iter().flat_map(|bytes| write_field(1, bytes)).collect();
                    write_feature(name, 1, &list)
                }
                Part::Floats(floats) => write_floats(name, floats),
                Part::Integers(numbers) => write_integers(name, numbers),
            });
        }
        if let Some((name, target)) = sample.target {
            features.extend(match target {
                Target::Bytes(bytes) => write_feature(name, 1, &write_field(1, bytes)),
                Target::Floats(floats) => write_floats(name, floats),
                Target::Integers(numbers) => write_integers(name, numbers),
                Target::Class(label) => write_integers(name, &[i64::from(*label)]),
            });
        }
        let example = write_field(1, &features);
        let len_bytes = (example.len() as u64).to_le_bytes();
        out.extend(len_bytes);
        out.extend(masked_crc(&len_bytes).to_le_bytes());
        out.extend(&example);
        out.extend(masked_crc(&example).to_le_bytes());
        Ok(())
    }

    fn can_pack(&self, field: &str) -> Result<(), &'static str> {
        let can = field != IMAGE && field != LABEL && !field.is_empty() && field.len() as u64 <= MAX_TEXT_BYTES;
        if can { Ok(()) } else { Err("the name of a feature, another than image/encoded and image/class/label") }
    }
}

/// Returns the masked checksum of `data`.
fn masked_crc(data: &[u8]) -> u32 {
    masked(crc32c::crc32c(data))
}

/// Masks a CRC-32C as TFRecord does, since the CRC of data that contain CRCs is weak.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the length in a record's head; `None` if its checksum is wrong.
fn head(bytes: &[u8; HEAD_BYTES as usize]) -> Option<u64> {
    let (len_bytes, crc) = bytes.split_first_chunk::<8>()?;
    (masked_crc(len_bytes).to_le_bytes() == crc).then(|| u64::from_le_bytes(*len_bytes))
}

/// The message for a damaged example.
const DAMAGED: &str = "the example's message is damaged";
const WRONG_CHECKSUM: &str = "the checksum of the record's data is wrong";

/// A field of a message: its number, and its value if that is an integer, otherwise the place of its content.
enum Field {
    Number(u64, u64),
    Bytes(u64, Range<u64>),
    Other,
}

/// Reads the varint at `at` and moves `at` past it.
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

/// Reads the field at `at` and moves `at` past it.
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

/// An example's image, label and target, and what it has of the wanted fields.
#[derive(Debug, PartialEq)]
struct Example {
    /// Place of the image.
    image: Option<Range<u64>>,
    label: Result<Label, String>,
    target: Option<Result<Target, String>>,
    fields: StoredFields,
}

/// The names of the wanted features.
#[derive(Clone, Copy)]
struct Names<'a> {
    image: &'a str,
    /// `None` if no labels are wanted.
    label: Option<&'a str>,
    target: Option<&'a str>,
    /// The features that hold wanted fields.
    fields: &'a [String],
    /// Whether labels that are digits are names of classes.
    digits: bool,
}

/// Finds the named features in the message at `range`.
fn example(
    bytes: &mut impl Bytes,
    range: Range<u64>,
    names: Names<'_>,
    noted: &mut Option<parser::Names>,
) -> Result<Result<Example, &'static str>> {
    let mut found = Example { image: None, label: Ok(Label::None), target: None, fields: StoredFields::default() };
    let mut at = range.start;
    while at < range.end {
        match field(bytes, &mut at, range.end)? {
            // Example.features
            Some(Field::Bytes(1, features)) => {
                let mut at = features.start;
                while at < features.end {
                    match field(bytes, &mut at, features.end)? {
                        // Features.feature, an entry of a map
                        Some(Field::Bytes(1, entry)) => {
                            if feature(bytes, entry, names, (&mut found, noted))?.is_none() {
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

/// Reads an entry of the map: a name (1) and a feature (2). `None` if it is damaged.
fn feature(
    bytes: &mut impl Bytes,
    entry: Range<u64>,
    names: Names<'_>,
    (found, noted): (&mut Example, &mut Option<parser::Names>),
) -> Result<Option<()>> {
    let (mut name, mut value, mut at) = (None, None, entry.start);
    while at < entry.end {
        match field(bytes, &mut at, entry.end)? {
            Some(Field::Bytes(1, range)) => name = Some(range),
            Some(Field::Bytes(2, range)) => value = Some(range),
            Some(_) => {}
            None => return Ok(None),
        }
    }
    let (Some(name), Some(value)) = (name, value) else { return Ok(Some(())) };
    if name.end - name.start > MAX_TEXT_BYTES {
        return Ok(Some(()));
    }
    let Some(name) = bytes.at(name.start, (name.end - name.start) as usize)? else { return Ok(None) };
    let is_image = name == names.image.as_bytes();
    let is_label = names.label.is_some_and(|label| name == label.as_bytes());
    let noted_name = (!is_image && noted.is_some()).then(|| String::from_utf8_lossy(name).into_owned());
    let is_target = names.target.is_some_and(|target| name == target.as_bytes());
    if let Some(wanted) = names.fields.iter().find(|wanted| name == wanted.as_bytes()) {
        let room_bytes = found.fields.room_bytes();
        let Some(part) = values(bytes, value.clone(), room_bytes)? else { return Ok(None) };
        // A feature without a list has no value of any type.
        found.fields.add(wanted, part.unwrap_or(Ok(Part::Bytes(Vec::new()))));
    }
    if is_target {
        let Some(target) = values(bytes, value.clone(), MAX_TARGET_BYTES)? else { return Ok(None) };
        found.target = target.map(|target| {
            target.map(|part| match part {
                Part::Bytes(list) => Target::Bytes(list.into_iter().next().unwrap_or_default()),
                Part::Floats(list) => Target::Floats(list),
                Part::Integers(list) => Target::Integers(list),
            })
        });
    }
    if let Some(name) = noted_name {
        let Some(single) = is_single(bytes, value.clone())? else { return Ok(None) };
        note(noted, || name, single);
    }
    if !is_image && !is_label {
        return Ok(Some(()));
    }
    let mut at = value.start;
    while at < value.end {
        match field(bytes, &mut at, value.end)? {
            // Feature.bytes_list, .float_list, .int64_list
            Some(Field::Bytes(kind, list)) => {
                let Some((first, more)) = first_value(bytes, list)? else { return Ok(None) };
                match (kind, first) {
                    _ if is_label && more => found.label = Err(MANY_LABELS.to_owned()),
                    (1, Some(Field::Bytes(_, text))) if is_image => found.image = Some(text),
                    (1, Some(Field::Bytes(_, text))) if text.end - text.start <= MAX_TEXT_BYTES => {
                        let Some(text) = bytes.at(text.start, (text.end - text.start) as usize)? else {
                            return Ok(None);
                        };
                        found.label = label::from_text(text, names.digits);
                    }
                    (3, Some(Field::Number(_, number))) if is_label => found.label = label::from_integer(number as i64),
                    (3, Some(Field::Bytes(_, packed))) if is_label => {
                        let mut at = packed.start;
                        if !packed.is_empty() {
                            let Some(number) = varint(bytes, &mut at, packed.end)? else { return Ok(None) };
                            let one = at == packed.end;
                            found.label =
                                if one { label::from_integer(number as i64) } else { Err(MANY_LABELS.to_owned()) };
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

/// Reads the values of a feature, of at most `limit_bytes`. `None` if it is damaged; `Some(None)` if it has no list.
fn values(bytes: &mut impl Bytes, value: Range<u64>, limit_bytes: u64) -> Result<Option<Option<Result<Part, String>>>> {
    let mut at = value.start;
    while at < value.end {
        let Some(found) = field(bytes, &mut at, value.end)? else { return Ok(None) };
        let Field::Bytes(kind @ 1..=3, list) = found else { continue };
        let len_bytes = list.end - list.start;
        if len_bytes > limit_bytes {
            return Ok(Some(Some(Err(format!("its {len_bytes} bytes are over the limit of {limit_bytes}")))));
        }
        let Some(list) = bytes.at(list.start, len_bytes as usize)? else { return Ok(None) };
        let values = match kind {
            1 => byte_list(list).map(Part::Bytes),
            2 => float_list(list).map(Part::Floats),
            _ => integer_list(list).map(Part::Integers),
        };
        return Ok(values.map(|part| Some(Ok(part))));
    }
    Ok(Some(None))
}

/// Returns the values of a BytesList.
fn byte_list(mut list: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut values, mut at, end) = (Vec::new(), 0, list.len() as u64);
    while at < end {
        if let Field::Bytes(1, text) = field(&mut list, &mut at, end).ok()?? {
            values.push(list[text.start as usize..text.end as usize].to_vec());
        }
    }
    Some(values)
}

/// Returns the values of a FloatList, packed or one by one.
fn float_list(mut list: &[u8]) -> Option<Vec<f32>> {
    let (mut values, mut at, end) = (Vec::new(), 0, list.len() as u64);
    let floats = |bytes: &[u8]| {
        let (floats, rest) = bytes.as_chunks::<4>();
        rest.is_empty().then(|| floats.iter().map(|&float| f32::from_le_bytes(float)).collect::<Vec<_>>())
    };
    while at < end {
        match field(&mut list, &mut at, end).ok()?? {
            Field::Bytes(1, packed) => values.extend(floats(&list[packed.start as usize..packed.end as usize])?),
            Field::Other => values.extend(floats(&list[(at as usize).checked_sub(4)?..at as usize])?),
            _ => {}
        }
    }
    Some(values)
}

/// Returns the values of an Int64List, packed or one by one.
fn integer_list(mut list: &[u8]) -> Option<Vec<i64>> {
    let (mut values, mut at, end) = (Vec::new(), 0, list.len() as u64);
    while at < end {
        match field(&mut list, &mut at, end).ok()?? {
            Field::Number(1, number) => values.push(number as i64),
            Field::Bytes(1, packed) => {
                let mut at = packed.start;
                while at < packed.end {
                    values.push(varint(&mut list, &mut at, packed.end).ok()?? as i64);
                }
            }
            _ => {}
        }
    }
    Some(values)
}

/// Whether a feature is one whole number or one text. `None` if it is damaged.
fn is_single(bytes: &mut impl Bytes, value: Range<u64>) -> Result<Option<bool>> {
    let mut at = value.start;
    while at < value.end {
        let Some(found) = field(bytes, &mut at, value.end)? else { return Ok(None) };
        let Field::Bytes(kind @ 1..=3, list) = found else { continue };
        let Some((first, more)) = first_value(bytes, list)? else { return Ok(None) };
        return Ok(Some(match (kind, first) {
            (3, Some(Field::Bytes(_, packed))) => {
                let mut at = packed.start;
                !packed.is_empty() && varint(bytes, &mut at, packed.end)?.is_some() && at == packed.end
            }
            (1 | 3, Some(_)) => !more,
            _ => false,
        }));
    }
    Ok(Some(false))
}

const MANY_LABELS: &str = "its label is a list of several: read it as a target";

/// Returns the first value of a list, which is its field 1, and whether more follow it. `None` if the list is damaged.
fn first_value(bytes: &mut impl Bytes, list: Range<u64>) -> Result<Option<(Option<Field>, bool)>> {
    let (mut at, mut first) = (list.start, None);
    while at < list.end {
        match field(bytes, &mut at, list.end)? {
            Some(Field::Bytes(1, _) | Field::Number(1, _) | Field::Other) if first.is_some() => {
                return Ok(Some((first, true)));
            }
            Some(value @ (Field::Bytes(1, _) | Field::Number(1, _) | Field::Other)) => first = Some(value),
            Some(_) => {}
            None => return Ok(None),
        }
    }
    Ok(Some((first, false)))
}

/// Whether the data in `data` match the checksum after them.
fn is_whole(bytes: &mut impl Bytes, data: Range<u64>) -> Result<bool> {
    const AT_ONCE: u64 = 64 << 10;
    let (mut crc, mut at) = (0, data.start);
    while at < data.end {
        let len_bytes = (data.end - at).min(AT_ONCE);
        let Some(part) = bytes.at(at, len_bytes as usize)? else { return Ok(false) };
        crc = crc32c::crc32c_append(crc, part);
        at += len_bytes;
    }
    Ok(bytes.array(data.end)?.is_some_and(|stored| masked(crc) == u32::from_le_bytes(stored)))
}

/// Parses the records of a file one by one.
pub(crate) struct Parser {
    /// Offset of the next record.
    pub at: u64,
    pub skipped_files: u64,
    image: String,
    /// `None` if no labels are wanted.
    label: Option<String>,
    target: Option<String>,
    /// The features that hold wanted fields.
    fields: Vec<String>,
    /// Whether labels that are digits are names of classes.
    digits: bool,
    /// The features that examples have, if they are noted.
    pub names: Option<parser::Names>,
    /// The kind of label of the last record whose checksum was verified, if that is a sample.
    checked: Option<Discriminant<Label>>,
}

impl Parser {
    pub fn new(options: &RecordOptions, target: Option<&str>, fields: Vec<String>, at: u64) -> Self {
        let name = |given: &Option<String>, usual: &str| given.as_deref().unwrap_or(usual).to_owned();
        let (image, label) = (name(&options.image, IMAGE), name(&options.label, LABEL));
        Self {
            at,
            skipped_files: 0,
            image,
            label: Some(label).filter(|label| label != label::NONE),
            target: target.map(str::to_owned),
            fields,
            digits: label::digits_are_names(&options.classes),
            names: None,
            checked: None,
        }
    }

    /// Parses the next record. Returns `false` at the end.
    ///
    /// If bytes come only once, the checksum is verified here, otherwise when the record is read. But damage could make
    /// a record look like one without an image or with another kind of label. So a record that differs from the one
    /// before in these is verified here too.
    pub fn step<B: Bytes>(&mut self, bytes: &mut B, found: &mut Option<Entry>) -> Result<bool, Fault> {
        let Some(head_bytes) = bytes.array(self.at)? else {
            let ended = bytes.end_before(self.at + 1)?.is_some();
            return if ended { Ok(false) } else { Err("the file ends in the middle of a record's head".into()) };
        };
        let wrong = "the checksum of a record's length is wrong (compressed files are not supported)";
        let len_bytes = head(&head_bytes).ok_or(wrong)?;
        let start = self.at + HEAD_BYTES;
        let data = start..start.saturating_add(len_bytes);
        // The data are followed by their checksum.
        let part = self.at..data.end.saturating_add(CRC_BYTES);
        let too_long = Some(len_bytes).filter(|&len_bytes| len_bytes > MAX_ENCODED_BYTES - CRC_BYTES).map(too_long);
        if too_long.is_none() {
            bytes.hold(start..part.end)?;
        }
        if let Some(end) = bytes.end_before(part.end)? {
            let left = end.saturating_sub(start);
            return Err(format!("a record of {len_bytes} bytes is followed by only {left}").into());
        }
        *found = match too_long {
            Some(message) => Some(Entry::bad(part.clone(), start, message)),
            None => self.record(bytes, data, part.clone())?,
        };
        self.at = part.end;
        Ok(true)
    }

    /// Parses the complete record with the data in `data`, whose length is within the limit. `None` if it holds no
    /// image.
    fn record<B: Bytes>(&mut self, bytes: &mut B, data: Range<u64>, part: Range<u64>) -> Result<Option<Entry>, Fault> {
        let (target, fields) = (self.target.as_deref(), &self.fields[..]);
        let (label, digits) = (self.label.as_deref(), self.digits);
        let names = Names { image: &self.image, label, target, fields, digits };
        let example = example(bytes, data.clone(), names, &mut self.names)?;
        let kind = match &example {
            Ok(Example { image: Some(_), label: Ok(label), .. }) => Some(discriminant(label)),
            _ => None,
        };
        if B::ONCE || kind.is_none() || kind != self.checked {
            if !is_whole(bytes, data.clone())? {
                return Ok(Some(Entry::bad(part, data.start, WRONG_CHECKSUM)));
            }
            self.checked = kind;
        }
        let mut entry = Entry::new(part, data.start);
        match example {
            Ok(Example { image: Some(image), label, target, fields }) => {
                bytes.take(image, &mut entry.image)?;
                (entry.len_bytes, entry.label) = (data.end - data.start, label);
                (entry.target, entry.fields) = (target, fields);
            }
            Ok(Example { image: None, label: Ok(Label::None), .. }) => {
                self.skipped_files += 1;
                return Ok(None);
            }
            Ok(Example { image: None, .. }) => {
                entry.label = Err(format!("it has {NO_IMAGE} in the feature {}", self.image));
            }
            Err(message) => entry.label = Err(message.to_owned()),
        }
        Ok(Some(entry))
    }
}

/// Returns a feature with a FloatList.
fn write_floats(name: &str, floats: &[f32]) -> Vec<u8> {
    let packed: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
    write_feature(name, 2, &write_field(1, &packed))
}

/// Returns a feature with an Int64List.
fn write_integers(name: &str, numbers: &[i64]) -> Vec<u8> {
    let mut packed = Vec::new();
    numbers.iter().for_each(|&number| write_varint(number as u64, &mut packed));
    write_feature(name, 3, &write_field(1, &packed))
}

/// Returns an entry of the map of features: its name, and its list of type `kind`.
fn write_feature(name: &str, kind: u8, list: &[u8]) -> Vec<u8> {
    write_field(1, &[write_field(1, name.as_bytes()), write_field(2, &write_field(kind, list))].concat())
}

/// Returns a field of a message that holds bytes.
fn write_field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + 11);
    bytes.push(number << 3 | 2);
    write_varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

fn write_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
