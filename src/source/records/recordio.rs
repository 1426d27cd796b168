//! MXNet's RecordIO. The framing is dmlc-core's (`recordio.h`), the image header MXNet's (`image_recordio.h`).

use super::bytes::Bytes;
use super::entry::{Entry, Fault, too_long};
use super::fields::FieldStorage;
use super::format::{Facts, NewSample, ShardFormat};
use super::label::{self, Label};
use super::options::RecordOptions;
use super::parser::{Names, Records};
use crate::error::{Error, Result};
use crate::source::window::Window;
use crate::source::{MAX_ENCODED_BYTES, no_fields};
use crate::targets::{self, MAX_TARGET_BYTES, Target};
use std::ops::Range;

/// The first bytes of each part. A record whose data contain them at a multiple of four bytes is cut there.
const MAGIC: [u8; 4] = 0xced7_230a_u32.to_le_bytes();

/// Bytes of magic and length, which every record has.
const HEAD_BYTES: u64 = 8;

/// Bytes of the image header before the labels: number of labels, one label, and two identifiers.
const IMAGE_HEADER_BYTES: u64 = 24;

/// Bytes up to the end of the first of several labels.
const LABEL_END_BYTES: usize = IMAGE_HEADER_BYTES as usize + 4;

const FACTS: Facts = Facts {
    title: "RecordIO",
    name: "recordio",
    packed: "NAME-000000.rec with NAME-000000.idx",
    endings: &["rec"],
    min_record_bytes: HEAD_BYTES,
    trailer_bytes: 0,
    end: &[],
    labels: (&[], "the record's own label"),
    field_storage: FieldStorage::None,
    has_members: false,
    names_have_count: false,
    has_index: true,
};

/// The format.
pub(super) struct RecordIo;

impl ShardFormat for RecordIo {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn images(&self, _image: Option<&str>) -> String {
        "records that hold an image".to_owned()
    }

    fn check_options(&self, options: &RecordOptions) -> Result<()> {
        let refuse = |parameter, got: &String| {
            let expected = "none for RecordIO, whose records hold one image and one label (or `none` for no labels)";
            Err(Error::parameter("open", parameter, expected, got))
        };
        match (&options.image, &options.label) {
            (Some(image), _) => refuse("image", image),
            (_, Some(label)) if label != label::NONE => refuse("label", label),
            _ => Ok(()),
        }
    }

    fn check_wanted(&self, field: Option<&str>, fields: &[String]) -> Result<()> {
        match (field, fields) {
            (Some(field), _) if field != LABELS => Err(no_fields("the array of labels as `label`", field)),
            (_, [first, ..]) => Err(no_fields("labels alone", first)),
            _ => Ok(()),
        }
    }

    fn parser(&self, options: &RecordOptions, field: Option<&str>, _parts: Vec<String>, at: u64) -> Records {
        Records::RecordIo(Parser::new(options, field, at))
    }

    fn start(&self, offset: u64, is_split: bool) -> Option<u64> {
        is_split.then_some(offset)
    }

    /// Appends a record with MXNet's image header, in which the label -1 stands for none, cut where its data contain
    /// the magic number at a multiple of four bytes.
    fn write(&self, sample: &NewSample<'_>, out: &mut Vec<u8>) -> Result<()> {
        if let Some(label) = sample.label.filter(|&label| label > 1 << 24) {
            let expected = "labels up to 16777216, which RecordIO stores as f32";
            return Err(Error::parameter("pack", "source", expected, label));
        }
        let label = sample.label.map_or(UNLABELED, |label| label as f32);
        let labels = sample.target.and_then(|(_, target)| target.f32s().ok()).unwrap_or_default();
        let mut data = Vec::with_capacity(IMAGE_HEADER_BYTES as usize + 4 * labels.len() + sample.image.len());
        data.extend((labels.len() as u32).to_le_bytes());
        data.extend(label.to_le_bytes());
        data.extend(sample.index.to_le_bytes());
        data.extend(0_u64.to_le_bytes());
        data.extend(labels.iter().flat_map(|label| label.to_le_bytes()));
        data.extend(sample.image);
        let (words, _) = data.as_chunks::<4>();
        let cuts: Vec<usize> = (0..words.len()).filter(|&i| words[i] == MAGIC).map(|i| 4 * i).collect();
        let mut start = 0;
        for i in 0..=cuts.len() {
            let end = cuts.get(i).copied().unwrap_or(data.len());
            let continuation: u32 = match (i == 0, i == cuts.len()) {
                (true, true) => 0,
                (true, false) => 1,
                (false, false) => 2,
                (false, true) => 3,
            };
            out.extend(MAGIC);
            out.extend((continuation << 29 | (end - start) as u32).to_le_bytes());
            out.extend(&data[start..end]);
            out.resize(out.len().next_multiple_of(4), 0);
            start = end + MAGIC.len();
        }
        Ok(())
    }

    fn can_pack(&self, field: &str) -> Result<(), &'static str> {
        if field == LABELS { Ok(()) } else { Err("`label`, RecordIO's array of numbers") }
    }

    /// Rejects a target that is not an array of labels whose first one is the class.
    fn check_packed(&self, _field: &str, target: &Target, label: Option<u32>) -> Result<(), String> {
        let label = label.map_or(UNLABELED, |label| label as f32);
        match target.f32s()?.first() {
            Some(&first) if first == label => Ok(()),
            first => Err(format!("RecordIO's array of labels begins with the label {label}, and this with {first:?}")),
        }
    }
}

/// One part of a record.
struct Part {
    /// Offset of the part's data.
    start: u64,
    len_bytes: u64,
    /// 0 for a whole record, otherwise 1 for its first part, 2 for one in the middle, 3 for its last.
    continuation: u32,
}

impl Part {
    /// Reads the head of the part at `at`.
    fn read(bytes: &mut impl Bytes, at: u64) -> Result<Self, Fault> {
        let Some(head) = bytes.array::<{ HEAD_BYTES as usize }>(at)? else {
            return Err("the file ends in the middle of a record's head".into());
        };
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let continuation = length >> 29;
        if head[..4] != MAGIC || continuation > 3 {
            return Err("there is no head of a record".into());
        }
        Ok(Self { start: at + HEAD_BYTES, len_bytes: u64::from(length & ((1 << 29) - 1)), continuation })
    }

    fn end(&self) -> u64 {
        self.start + self.len_bytes
    }

    /// Offset of the next part or record.
    fn next(&self) -> u64 {
        self.start + self.len_bytes.next_multiple_of(4)
    }

    /// Whether the part begins a record.
    fn is_first(&self) -> bool {
        self.continuation < 2
    }

    /// Whether the part ends a record.
    fn is_last(&self) -> bool {
        matches!(self.continuation, 0 | 3)
    }

    /// Returns the first bytes of the part, at most `wanted`.
    fn head<'a>(&self, bytes: &'a mut impl Bytes, wanted: usize) -> Result<&'a [u8], Fault> {
        let wanted = self.len_bytes.min(wanted as u64) as usize;
        Ok(bytes.at(self.start, wanted)?.unwrap_or_default())
    }

    /// Skips the rest of the part, which must be there.
    fn check_end(&self, bytes: &mut impl Bytes) -> Result<(), Fault> {
        match bytes.end_before(self.end())? {
            Some(end) => {
                let left = end.saturating_sub(self.start);
                Err(format!("a record of {} bytes is followed by only {left}", self.len_bytes).into())
            }
            None => Ok(()),
        }
    }
}

/// The field of targets that stands for the array of labels.
const LABELS: &str = "label";

/// Returns all labels from the beginning of a record; without an array, the header's own label. `None` if `bytes` ends
/// before them.
fn labels(bytes: &[u8]) -> Option<Result<Target, String>> {
    let (words, _) = bytes.as_chunks::<4>();
    let count = u32::from_le_bytes(*words.first()?);
    if u64::from(count) * 4 > MAX_TARGET_BYTES {
        return Some(Err(targets::too_long(u64::from(count) * 4)));
    }
    let labels = if count == 0 { words.get(1..2)? } else { words.get(6..)?.get(..count as usize)? };
    Some(Ok(Target::Floats(labels.iter().map(|&label| f32::from_le_bytes(label)).collect())))
}

/// Number of bytes of a record that are read for its labels.
const fn head_bytes(labels: bool) -> usize {
    if labels { LABEL_END_BYTES + MAX_TARGET_BYTES as usize } else { LABEL_END_BYTES }
}

/// Returns the label and the offset of the image in the record, from the record's first [`LABEL_END_BYTES`] bytes.
fn image_header(bytes: &[u8]) -> Result<(Result<Label, String>, u64), String> {
    let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
    let short = || "the record is too short for an image header".to_owned();
    let labels = word(0).filter(|_| bytes.len() as u64 >= IMAGE_HEADER_BYTES).ok_or_else(short)?;
    // If there are several labels, the header's own is unused and they follow the header.
    let label = word(if labels == 0 { 4 } else { IMAGE_HEADER_BYTES as usize }).ok_or_else(short)?;
    Ok((label::from_float(f32::from_bits(label)), IMAGE_HEADER_BYTES + 4 * u64::from(labels)))
}

/// Parses the records of a file one by one.
pub(crate) struct Parser {
    /// Offset of the next record.
    pub at: u64,
    pub skipped_files: u64,
    /// Never noted: labels are all that samples have.
    pub names: Option<Names>,
    /// Whether the labels are wanted as a target.
    labels: bool,
    /// Whether samples are taken without their labels.
    unlabeled: bool,
}

impl Parser {
    pub fn new(options: &RecordOptions, field: Option<&str>, at: u64) -> Self {
        let unlabeled = options.label.as_deref() == Some(label::NONE);
        Self { at, skipped_files: 0, names: None, labels: field == Some(LABELS), unlabeled }
    }

    /// Parses the next record. Returns `false` at the end.
    pub fn step<B: Bytes>(&mut self, bytes: &mut B, found: &mut Option<Entry>) -> Result<bool, Fault> {
        if bytes.at(self.at, 1)?.is_none() {
            let filled = bytes.end_before(self.at)?.is_none();
            return if filled { Ok(false) } else { Err("the file ends in the filling of a record".into()) };
        }
        let first = Part::read(bytes, self.at)?;
        if !first.is_first() {
            return Err("a record's first part is missing".into());
        }
        let mut entry = Entry::new(self.at..self.at, self.at);
        let outcome = if first.is_last() {
            whole(bytes, &first, self.labels, &mut entry)?
        } else {
            entry.split = true;
            split(bytes, first, self.labels, &mut entry)?
        };
        self.at = entry.part.end;
        match outcome {
            Ok(None) => self.skipped_files += 1,
            Ok(Some(_)) if self.unlabeled => *found = Some(entry),
            Ok(Some(label)) => *found = Some(Entry { label: Ok(label), ..entry }),
            Err(message) => *found = Some(Entry { label: Err(message), ..entry }),
        }
        Ok(true)
    }
}

/// Parses a record in one part and returns its label; `None` if it holds no image.
fn whole(
    bytes: &mut impl Bytes,
    part: &Part,
    with_labels: bool,
    entry: &mut Entry,
) -> Result<Result<Option<Label>, String>, Fault> {
    let header = image_header(part.head(bytes, LABEL_END_BYTES)?);
    if with_labels && let Ok((_, image)) = header {
        entry.target = labels(part.head(bytes, head_bytes(true).min(image as usize))?);
    }
    entry.part.end = part.next();
    let label = match header {
        Ok((label, image)) if image <= part.len_bytes => {
            (entry.offset, entry.len_bytes) = (part.start + image, part.len_bytes - image);
            if entry.len_bytes <= MAX_ENCODED_BYTES {
                bytes.take(entry.offset..part.end(), &mut entry.image)?;
            }
            checked(label, entry.len_bytes)
        }
        Ok(_) => Err(MANY_LABELS.to_owned()),
        Err(message) => Err(message),
    };
    part.check_end(bytes)?;
    Ok(label)
}

/// Parses a record in several parts, beginning with `part`. Joins them, including the image header.
fn split<B: Bytes>(
    bytes: &mut B,
    mut part: Part,
    with_labels: bool,
    entry: &mut Entry,
) -> Result<Result<Option<Label>, String>, Fault> {
    let (mut head, wanted) = (Vec::with_capacity(LABEL_END_BYTES), head_bytes(with_labels));
    loop {
        head.extend(part.head(bytes, wanted - head.len())?);
        entry.len_bytes += part.len_bytes;
        if entry.len_bytes <= MAX_ENCODED_BYTES {
            bytes.take(part.start..part.end(), &mut entry.image)?;
        }
        part.check_end(bytes)?;
        if part.is_last() {
            break;
        }
        part = Part::read(bytes, part.next())?;
        if part.is_first() {
            return Err("a record's last part is missing".into());
        }
        head.extend(&MAGIC[..MAGIC.len().min(wanted - head.len())]);
        entry.len_bytes += MAGIC.len() as u64;
        if B::ONCE {
            entry.image.extend(MAGIC);
        }
    }
    entry.part.end = part.next();
    if with_labels {
        entry.target = labels(&head);
    }
    Ok(match image_header(&head) {
        Ok((label, image)) if image <= entry.len_bytes => {
            if B::ONCE && entry.len_bytes <= MAX_ENCODED_BYTES {
                entry.image.drain(..image as usize);
            }
            // The length includes the header, because reading the record joins it too.
            checked(label, if image < entry.len_bytes { entry.len_bytes } else { 0 })
        }
        Ok(_) => Err(MANY_LABELS.to_owned()),
        Err(message) => Err(message),
    })
}

/// Returns the label of an image of `len_bytes`; `None` for a record without image bytes. Such records occur: indices
/// made by other programs begin with a record that has labels only.
fn checked(label: Result<Label, String>, len_bytes: u64) -> Result<Option<Label>, String> {
    match len_bytes {
        0 => Ok(None),
        1..=MAX_ENCODED_BYTES => label.map(Some),
        _ => Err(too_long(len_bytes)),
    }
}

const MANY_LABELS: &str = "it has more labels than it has room for";

/// Reads the image of the record in several parts at `at` into `buffer`.
pub(super) fn read_split(window: Window, at: u64, buffer: &mut Vec<u8>) -> Result<Result<(), String>> {
    let mut found = None;
    match (Parser::new(&RecordOptions::default(), None, at).step(&mut InPassing(window), &mut found), found) {
        (Ok(_), Some(Entry { label: Ok(_), image, .. })) => {
            *buffer = image;
            Ok(Ok(()))
        }
        (Ok(_), Some(Entry { label: Err(message), .. })) | (Err(Fault::Damaged(message)), _) => Ok(Err(message)),
        (Ok(_), None) => Ok(Err("it holds no image any more".to_owned())),
        (Err(Fault::Failed(error)), _) => Err(error),
    }
}

/// A window that behaves as if its bytes came only once.
struct InPassing<'a>(Window<'a>);

impl Bytes for InPassing<'_> {
    const ONCE: bool = true;

    fn at(&mut self, offset: u64, len_bytes: usize) -> Result<Option<&[u8]>> {
        self.0.at(offset, len_bytes)
    }

    fn hold(&mut self, _range: Range<u64>) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, range: Range<u64>, image: &mut Vec<u8>) -> Result<bool> {
        let found = self.0.at(range.start, (range.end - range.start) as usize)?;
        found.inspect(|bytes| image.extend(*bytes));
        Ok(found.is_some())
    }

    fn end_before(&mut self, offset: u64) -> Result<Option<u64>> {
        self.0.end_before(offset)
    }

    fn read_to(&self) -> u64 {
        self.0.read_to()
    }
}

/// The label that stands for none: a record always has one.
const UNLABELED: f32 = -1.0;
