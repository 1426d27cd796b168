//! Tar archives like WebDataset's (POSIX.1-2001 ustar and pax, and the GNU tar manual).

use super::bytes::Bytes;
use super::entry::{Entry, Fault, too_long};
use super::fields::{FieldStorage, Part};
use super::format::{Facts, NewSample, ShardFormat};
use super::label::{self, Label, NO_IMAGE};
use super::options::RecordOptions;
use super::parser::{Names, Records, note};
use crate::decode::Format;
use crate::error::{Error, Result};
use crate::source::MAX_ENCODED_BYTES;
use crate::source::folder::image_endings;
use crate::source::window::ReadAt;
use crate::targets::{self, MAX_TARGET_BYTES, Target};
use serde_json::Value;
use std::ops::Range;

/// Bytes of a block, the unit of archives; a member takes one at least.
const BLOCK_BYTES: u64 = 512;

/// Bytes of the two blocks of zeros that end an archive.
const END_BYTES: u64 = 2 * BLOCK_BYTES;
const END: &[u8] = &[0; END_BYTES as usize];

/// Upper bound of long names and pax headers.
const MAX_NAME_BYTES: u64 = 1 << 20;

/// Upper bound of parts that hold labels.
const MAX_LABEL_BYTES: u64 = 1 << 20;

const FACTS: Facts = Facts {
    title: "tar",
    name: "webdataset",
    packed: "NAME-000000.tar: parts KEY.jpg and KEY.cls",
    endings: &["tar"],
    min_record_bytes: BLOCK_BYTES,
    trailer_bytes: 0,
    end: END,
    labels: (&["cls", "json.label"], "the part .cls or the field json.label"),
    field_storage: FieldStorage::Parts,
    has_members: true,
    names_have_count: false,
    has_index: false,
};

/// The format.
pub(super) struct WebDataset;

impl ShardFormat for WebDataset {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn images(&self, image: Option<&str>) -> String {
        match image {
            None => format!("parts ending in {}", image_endings()),
            Some(ending) => format!("parts ending in .{ending}"),
        }
    }

    fn parser(&self, options: &RecordOptions, field: Option<&str>, parts: Vec<String>, at: u64) -> Records {
        Records::Tar(Box::new(Parser::new(options, field, parts, at)))
    }

    /// Whether the header before the content at `offset` is that of a file of `len_bytes`, or of one whose length an
    /// extended header gives.
    fn is_there(&self, file: &dyn ReadAt, offset: u64, len_bytes: u64) -> Result<bool> {
        let mut block = [0; BLOCK_BYTES as usize];
        file.read_at(&mut block, offset.saturating_sub(BLOCK_BYTES))?;
        let found = header(&block).ok().flatten();
        let is_it = |found: Header| matches!(found.kind, b'0' | b'7') && [0, len_bytes].contains(&found.len_bytes);
        Ok(found.is_some_and(is_it))
    }

    /// The name in the header before the content at `offset`; for a long name, its beginning.
    fn member(&self, file: &dyn ReadAt, offset: u64) -> Option<String> {
        let mut block = [0; BLOCK_BYTES as usize];
        file.read_at(&mut block, offset.checked_sub(BLOCK_BYTES)?).ok()?;
        let header = header(&block).ok()??;
        Some(String::from_utf8_lossy(&header.name).into_owned())
    }

    /// Appends the image, the label as `cls`, the parts of the fields, and the target as a part or a field of JSON.
    fn write(&self, sample: &NewSample<'_>, out: &mut Vec<u8>) -> Result<()> {
        write_member(&format!("{:09}.{}", sample.index, sample.ending), sample.image, out);
        if let Some(label) = sample.label {
            write_member(&format!("{:09}.cls", sample.index), label.to_string().as_bytes(), out);
        }
        for (ending, part) in sample.fields {
            if let Part::Bytes(contents) = part {
                contents
                    .iter()
                    .for_each(|content| write_member(&format!("{:09}.{ending}", sample.index), content, out));
            }
        }
        let Some((field, target)) = sample.target else { return Ok(()) };
        let (ending, json) = ending_and_field(field);
        let content = match (json, target) {
            (Some(field), target) => serde_json::json!({ field: target.to_json() }).to_string().into_bytes(),
            (None, Target::Bytes(bytes)) => bytes.clone(),
            (None, target) => target.to_json().to_string().into_bytes(),
        };
        write_member(&format!("{:09}.{ending}", sample.index), &content, out);
        Ok(())
    }

    fn can_pack(&self, field: &str) -> Result<(), &'static str> {
        let (ending, json) = ending_and_field(field);
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_' | '/');
        let can = match json {
            Some(_) => ending == "json",
            None => {
                let taken = is_image(field) || field == "cls" || field == "json";
                let is_ending = !field.is_empty() && ending.len() <= 60 && !field.starts_with('.');
                !taken && is_ending && field.chars().all(is_plain)
            }
        };
        if can { Ok(()) } else { Err("an ending in lower case that is no image's and not cls, or json.FIELD") }
    }

    /// Rejects a target that JSON would change.
    fn check_packed(&self, field: &str, target: &Target, _label: Option<u32>) -> Result<(), String> {
        match target {
            Target::Bytes(bytes) if ending_and_field(field).1.is_some() && std::str::from_utf8(bytes).is_err() => {
                Err("JSON holds texts in UTF-8 alone".to_owned())
            }
            Target::Floats(floats) if !floats.iter().all(|float| float.is_finite()) => {
                Err("JSON holds finite numbers alone".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn part_of(&self, field: &str) -> String {
        ending_and_field(field).0
    }
}

/// A member's header.
#[derive(Debug, PartialEq)]
struct Header {
    name: Vec<u8>,
    /// Bytes of the content, which follows the header and is padded to whole blocks.
    len_bytes: u64,
    /// The member's type: `b'0'` for a regular file.
    kind: u8,
}

/// Reads a header block; `None` for the block of zeros that ends an archive.
fn header(block: &[u8; BLOCK_BYTES as usize]) -> Result<Option<Header>, &'static str> {
    if block.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    // The checksum counts its own field as blanks. Some old programs added signed bytes.
    let sum = |value: fn(u8) -> i64| -> i64 {
        let at = |(i, &byte): (usize, &u8)| value(if (148..156).contains(&i) { b' ' } else { byte });
        block.iter().enumerate().map(at).sum()
    };
    let stored = number(&block[148..156]).and_then(|sum| i64::try_from(sum).ok());
    if stored != Some(sum(i64::from)) && stored != Some(sum(|byte| i64::from(byte as i8))) {
        return Err("the header's checksum is wrong");
    }
    let mut name = text(&block[..100]).to_vec();
    let prefix = text(&block[345..500]);
    // GNU's own format stores times where ustar has a prefix.
    if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
        name = [prefix, b"/", &name].concat();
    }
    let len_bytes = number(&block[124..136]).ok_or("the header's size is no number")?;
    // The oldest programs wrote zero for regular files.
    let kind = if block[156] == 0 { b'0' } else { block[156] };
    Ok(Some(Header { name, len_bytes, kind }))
}

/// Returns a field up to its first zero byte.
fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|&byte| byte == 0).unwrap_or(field.len())]
}

/// Parses an octal number, or a binary one, which the first bit marks.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let digits = [&[field[0] & 0x7f], &field[1..]].concat();
        return digits.iter().try_fold(0_u64, |number, &byte| number.checked_mul(256)?.checked_add(byte.into()));
    }
    let digits = text(field).trim_ascii();
    digits.iter().try_fold(0_u64, |number, &digit| match digit {
        b'0'..=b'7' => number.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// Reads name and size from a pax header, whose lines consist of length, blank, keyword, equals sign, value.
fn pax(mut lines: &[u8], name: &mut Option<Vec<u8>>, len_bytes: &mut Option<u64>) -> Result<(), String> {
    let damaged = || "the extended header is damaged".to_owned();
    while !lines.is_empty() {
        let blank = lines.iter().take(20).position(|&byte| byte == b' ').ok_or_else(damaged)?;
        let len = std::str::from_utf8(&lines[..blank]).ok().and_then(|len| len.parse::<usize>().ok());
        let line = len.and_then(|len| lines.get(blank + 1..len)).ok_or_else(damaged)?;
        let line_and_blank = blank + 1 + line.len();
        lines = &lines[line_and_blank..];
        let line = line.strip_suffix(b"\n").ok_or_else(damaged)?;
        let equals = line.iter().position(|&byte| byte == b'=').ok_or_else(damaged)?;
        let value = &line[equals + 1..];
        match &line[..equals] {
            b"path" => *name = Some(value.to_vec()),
            b"size" => {
                let digits = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
                *len_bytes = Some(digits.ok_or_else(damaged)?);
            }
            keyword if keyword.starts_with(b"GNU.sparse.") => return Err(SPARSE.to_owned()),
            _ => {}
        }
    }
    Ok(())
}

/// The ending of inner archives.
const ARCHIVE: &[u8] = b".tar";

fn has_archive(name: &[u8]) -> bool {
    name.len() > ARCHIVE.len() && name.ends_with(ARCHIVE)
}

const SPARSE: &str = "sparse files are not supported";

/// Splits a member's name into its sample's key and its ending, as WebDataset does: at the first dot after the last
/// slash. `None` for names that have no dot or begin with it, and for WebDataset's own (`__name__`).
fn key_and_ending(name: &[u8]) -> Option<(&[u8], String)> {
    let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].iter().position(|&byte| byte == b'.')?;
    if dot == base || base == 0 && name.starts_with(b"__") && name.ends_with(b"__") {
        return None;
    }
    Some((&name[..dot], std::str::from_utf8(&name[dot + 1..]).ok()?.to_ascii_lowercase()))
}

/// The value of [`RecordOptions::label`] that makes an image's folder its label.
pub(crate) const FOLDER: &str = "folder";

/// The parts of a sample that are used.
struct Parts {
    image: Option<String>,
    /// Whether the label is the image's folder, or the inner archive that holds it.
    by_folder: bool,
    /// Ending and, in JSON, field of each part that may hold the label. The first one that a sample has counts.
    labels: Vec<(String, Option<String>)>,
    /// Whether labels that are digits are names of classes.
    names: bool,
    /// Ending and, in JSON, field of the target, if one is wanted.
    target: Option<(String, Option<String>)>,
    /// The endings of the parts that hold wanted fields.
    fields: Vec<String>,
}

/// The replacement of a slash in an ending. [`ShardFormat::can_pack`] rejects percent signs, so no two names share an
/// ending.
const SLASH: &str = "%2f";

/// Splits the name of a part into its ending and, in JSON, a field.
fn ending_and_field(name: &str) -> (String, Option<String>) {
    match name.rsplit_once('.') {
        Some((ending, field)) if ending.ends_with("json") => (ending.to_ascii_lowercase(), Some(field.to_owned())),
        // Features of TFRecord may have slashes in their names, endings may not.
        _ => (name.to_ascii_lowercase().replace('/', SLASH), None),
    }
}

impl Parts {
    fn new(options: &RecordOptions, target: Option<&str>, fields: Vec<String>) -> Self {
        let usual = || vec![("cls".to_owned(), None), ("json".to_owned(), Some("label".to_owned()))];
        Self {
            image: options.image.as_ref().map(|ending| ending.to_ascii_lowercase()),
            by_folder: options.label.as_deref() == Some(FOLDER),
            labels: match options.label.as_deref() {
                None => usual(),
                Some(FOLDER | label::NONE) => Vec::new(),
                Some(label) => vec![ending_and_field(label)],
            },
            names: label::digits_are_names(&options.classes),
            target: target.map(ending_and_field),
            fields,
        }
    }

    fn is_image(&self, ending: &str) -> bool {
        self.image.as_ref().map_or_else(|| is_image(ending), |image| image == ending)
    }

    /// Returns the place of this ending among the parts that may hold the label. The lowest one counts.
    fn label_priority(&self, ending: &str) -> Option<usize> {
        self.labels.iter().position(|(label, _)| label == ending)
    }

    /// Returns the target in a part with the target's ending: all of it, or a field of JSON. `None` if the field is
    /// missing.
    fn target(&self, content: &[u8]) -> Option<Result<Target, String>> {
        match self.target.as_ref()? {
            (_, None) => Some(Ok(Target::Bytes(content.to_vec()))),
            (_, Some(field)) => json_field(content, field).transpose(),
        }
    }

    fn label(&self, priority: usize, content: &[u8]) -> Result<Label, String> {
        match &self.labels[priority].1 {
            Some(field) => label::from_json(content, field, self.names),
            None => label::from_text(content, self.names),
        }
    }
}

/// Returns the field `field` of a JSON object: the bytes of a text, or any other value as JSON. `None` if it is
/// missing.
pub(crate) fn json_field(object: &[u8], field: &str) -> Result<Option<Target>, String> {
    let object: Value = serde_json::from_slice(object).map_err(|error| format!("its JSON is damaged: {error}"))?;
    Ok(match object.get(field) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(Target::Bytes(text.clone().into_bytes())),
        Some(other) => Some(Target::Bytes(other.to_string().into_bytes())),
    })
}

/// The sample whose parts are being collected.
struct TarSample {
    key: Vec<u8>,
    /// The entry and the ending of the image, both filled in when the image has come.
    entry: Entry,
    ending: Option<String>,
    /// The label, and the place of its part among [`Parts::labels`].
    label: Option<(usize, Result<Label, String>)>,
    /// One bit for each of [`Parts::labels`] that the sample has.
    priorities: u32,
    target: Option<Result<Target, String>>,
}

impl TarSample {
    /// Creates a sample whose first part is at byte `start`.
    fn new(key: &[u8], start: u64) -> Self {
        let (key, entry) = (key.to_owned(), Entry::new(start..start, start));
        Self { key, entry, ending: None, label: None, priorities: 0, target: None }
    }
}

/// Parses the members of an archive one by one.
pub(crate) struct Parser {
    parts: Parts,
    /// Offset of the next member, including the headers that extend it.
    pub at: u64,
    sample: Option<TarSample>,
    /// The inner archive that `at` is in.
    inner: Option<Inner>,
    /// Damage of an inner archive, which is returned after the current sample.
    damage: Option<Entry>,
    pub skipped_files: u64,
    /// The endings and fields of JSON that samples have, if they are noted.
    pub names: Option<Names>,
}

/// An inner archive. ImageNet has one for each class.
struct Inner {
    class: Vec<u8>,
    /// Offset at which the outer archive continues.
    end: u64,
}

/// A regular file: its name and the place of its content.
struct File {
    name: Vec<u8>,
    content: Range<u64>,
}

impl File {
    fn len_bytes(&self) -> u64 {
        self.content.end - self.content.start
    }
}

impl Parser {
    pub fn new(options: &RecordOptions, target: Option<&str>, fields: Vec<String>, at: u64) -> Self {
        let parts = Parts::new(options, target, fields);
        Self { parts, at, sample: None, inner: None, damage: None, skipped_files: 0, names: None }
    }

    /// Returns the offset of the current sample.
    pub fn open_sample(&self) -> Option<u64> {
        self.sample.as_ref().map(|sample| sample.entry.part.start)
    }

    /// Ends the current sample and returns it if it has an image. A label without one is a fault.
    pub fn finish(&mut self) -> Option<Entry> {
        let TarSample { key, mut entry, ending, label, target, .. } = self.sample.take()?;
        if ending.is_none() {
            if label.is_some() {
                let key = String::from_utf8_lossy(&key);
                let message = format!(
                    "{key} has {NO_IMAGE}: the parts of a sample must follow each other (tar --sort=name writes them so), \
                     and its image must have one of the endings of images"
                );
                return Some(Entry::bad(entry.part.start..self.at, entry.part.start, message));
            }
            self.skipped_files += 1;
            return None;
        }
        (entry.part.end, entry.target) = (self.at, target);
        if let (Ok(_), Some((_, label))) = (&entry.label, label) {
            entry.label = label;
        }
        Some(entry)
    }

    /// Parses one member and the headers that extend it. Returns `false` at the archive's end.
    pub fn step<B: Bytes>(&mut self, bytes: &mut B, found: &mut Option<Entry>) -> Result<bool, Fault> {
        if self.damage.is_some() {
            *found = self.finish().or_else(|| self.damage.take());
            return Ok(true);
        }
        let outcome = self.member(bytes, found);
        let Err(Fault::Damaged(message)) = &outcome else { return outcome };
        let Some(Inner { class, end }) = self.inner.take() else { return outcome };
        // The inner archives after it are still readable.
        let message = format!("{message}; the rest of {}.tar in it cannot be read", String::from_utf8_lossy(&class));
        self.damage = Some(Entry::bad(self.at..end, self.at, message));
        self.at = end;
        Ok(true)
    }

    fn member<B: Bytes>(&mut self, bytes: &mut B, found: &mut Option<Entry>) -> Result<bool, Fault> {
        let (mut long_name, mut long_len_bytes) = (None, None);
        let mut offset = self.at;
        loop {
            let inner_end = self.inner.as_ref().map(|inner| inner.end);
            if inner_end.is_some_and(|end| offset >= end) {
                return Err(NO_END.into());
            }
            let Some(block) = bytes.array(offset)? else {
                return Err(self.cut_off(bytes, offset)?);
            };
            let Some(header) = header(&block)? else {
                return match self.inner.take_if(|_| offset == self.at) {
                    Some(inner) => {
                        self.at = inner.end;
                        Ok(true)
                    }
                    None if offset == self.at => self.end(bytes),
                    None => Err(NO_MEMBER.into()),
                };
            };
            let extends = matches!(header.kind, b'x' | b'g' | b'L' | b'K');
            let len_bytes = if extends { header.len_bytes } else { long_len_bytes.unwrap_or(header.len_bytes) };
            let content = offset + BLOCK_BYTES..(offset + BLOCK_BYTES).saturating_add(len_bytes);
            if let Some(end) = inner_end.filter(|&end| content.end > end) {
                return Err(format!(
                    "a member of {len_bytes} bytes is followed by only {}",
                    end.saturating_sub(content.start)
                )
                .into());
            }
            let mut file = None;
            match header.kind {
                b'x' | b'L' if len_bytes > MAX_NAME_BYTES => {
                    if bytes.end_before(content.end)?.is_none() {
                        return Err(format!("a name or extended header has {len_bytes} bytes").into());
                    }
                }
                b'x' | b'L' => match bytes.at(content.start, len_bytes as usize)? {
                    None => {}
                    Some(name) if header.kind == b'L' => long_name = Some(text(name).to_vec()),
                    Some(lines) => pax(lines, &mut long_name, &mut long_len_bytes)?,
                },
                // Global headers and long names of links are not needed.
                b'g' | b'K' => {}
                b'S' => return Err(SPARSE.into()),
                b'0' | b'7' => {
                    let name = long_name.take().unwrap_or(header.name);
                    file = Some(File { name, content: content.clone() });
                }
                // Links are not followed. Folders do not count as skipped, since they have no content.
                kind => self.skipped_files += u64::from(kind != b'5'),
            }
            if let Some(file) = file {
                if self.parts.by_folder && self.inner.is_none() && has_archive(&file.name) {
                    return self.enter::<B>(file);
                }
                self.file(bytes, file, found)?;
            }
            if let Some(end) = bytes.end_before(content.end)? {
                let left = end.saturating_sub(content.start);
                return Err(format!("a member of {len_bytes} bytes is followed by only {left}").into());
            }
            offset = content.start.saturating_add(len_bytes.next_multiple_of(BLOCK_BYTES));
            if !extends {
                self.at = offset;
                return Ok(true);
            }
        }
    }

    /// Continues inside an inner archive.
    fn enter<B: Bytes>(&mut self, file: File) -> Result<bool, Fault> {
        if B::ONCE {
            return Err(Fault::Failed(Error::Unsupported {
                feature: "reading archives in an archive from front to back".to_owned(),
                remedy: "read them in any order: as a file, without a window".to_owned(),
            }));
        }
        let name = file.name.rsplit(|&byte| byte == b'/').next().unwrap_or(&file.name);
        let class = name[..name.len() - ARCHIVE.len()].to_vec();
        self.at = file.content.start;
        self.inner = Some(Inner {
            class,
            end: file.content.start.saturating_add(file.len_bytes().next_multiple_of(BLOCK_BYTES)),
        });
        Ok(true)
    }

    /// Returns an image's label: the name of its folder or of the inner archive that holds it.
    fn folder(&self, name: &[u8]) -> Result<Label, String> {
        let folder = match &self.inner {
            Some(inner) => Some(&inner.class[..]),
            None => name.rsplit(|&byte| byte == b'/').nth(1).filter(|&folder| !matches!(folder, b"" | b"." | b"..")),
        };
        folder.map_or(Ok(Label::None), label::from_name)
    }

    /// Returns the fault for an archive that ends before a whole header at `offset`.
    fn cut_off(&self, bytes: &mut impl Bytes, offset: u64) -> Result<Fault> {
        Ok(match bytes.end_before(offset + 1)? {
            None => "the archive ends in the middle of a header".into(),
            Some(_) if offset != self.at => NO_MEMBER.into(),
            Some(end) if end == offset => NO_END.into(),
            Some(_) => "the archive ends in the filling of a member".into(),
        })
    }

    /// Checks that the archive ends with the zeros that begin here. Samples after them, or overwritten by them, would
    /// be lost silently.
    fn end(&self, bytes: &mut impl Bytes) -> Result<bool, Fault> {
        let is_zero = |block: &[u8]| block.iter().all(|&byte| byte == 0);
        let mut offset = self.at;
        while let Some(block) = bytes.at(offset, BLOCK_BYTES as usize)? {
            if !is_zero(block) {
                return Err(format!("zeros are followed by more at byte {offset}, perhaps another archive").into());
            }
            offset += BLOCK_BYTES;
        }
        let end = bytes.end_before(offset + BLOCK_BYTES)?.unwrap_or(offset);
        let zeros = end - self.at;
        if zeros < END_BYTES {
            return Err(NO_END.into());
        }
        if bytes.at(offset, (end - offset) as usize)?.is_some_and(|rest| !is_zero(rest)) {
            return Err(format!("zeros are followed by more at byte {offset}").into());
        }
        if zeros >= END_BYTES + record_bytes(end) {
            return Err(format!("{zeros} bytes of zeros follow, more than fill up an archive").into());
        }
        Ok(false)
    }

    /// Adds a regular file to the current sample, or to a new one.
    fn file(&mut self, bytes: &mut impl Bytes, file: File, found: &mut Option<Entry>) -> Result<(), Fault> {
        let Some((key, ending)) = key_and_ending(&file.name) else {
            self.skipped_files += u64::from(!file.name.starts_with(b"__"));
            return Ok(());
        };
        let is_image = self.parts.is_image(&ending);
        if !is_image {
            note(&mut self.names, || ending.clone(), true);
        }
        let priority = if is_image { None } else { self.parts.label_priority(&ending) };
        // A part that the sample already has belongs to the next sample.
        let goes_on = |sample: &TarSample| {
            let has = sample.ending.as_ref() == Some(&ending)
                || priority.is_some_and(|priority| sample.priorities >> priority & 1 == 1);
            sample.key == key && !has
        };
        let mut sample = match self.sample.take_if(|sample| goes_on(sample)) {
            Some(sample) => sample,
            None => {
                *found = self.finish();
                TarSample::new(key, self.at)
            }
        };
        let len_bytes = file.len_bytes();
        if sample.target.is_none() && self.parts.target.as_ref().is_some_and(|(target, _)| *target == ending) {
            if len_bytes > MAX_TARGET_BYTES {
                sample.target = Some(Err(targets::too_long(len_bytes)));
            } else {
                let Some(content) = bytes.at(file.content.start, len_bytes as usize)? else { return Ok(()) };
                sample.target = self.parts.target(content);
            }
        }
        if !is_image && self.parts.fields.contains(&ending) && !sample.entry.fields.has(&ending) {
            let room_bytes = sample.entry.fields.room_bytes();
            let part = if len_bytes > room_bytes {
                Err(format!("its {len_bytes} bytes are over the limit of {room_bytes}"))
            } else {
                let Some(content) = bytes.at(file.content.start, len_bytes as usize)? else { return Ok(()) };
                Ok(Part::Bytes(vec![content.to_vec()]))
            };
            sample.entry.fields.add(&ending, part);
        }
        if self.names.is_some() && ending.ends_with("json") && len_bytes <= MAX_LABEL_BYTES {
            let Some(content) = bytes.at(file.content.start, len_bytes as usize)? else { return Ok(()) };
            if let Ok(Value::Object(object)) = serde_json::from_slice(content) {
                for (field, value) in &object {
                    let single = value.is_number() || value.is_string() || value.is_boolean();
                    note(&mut self.names, || format!("{ending}.{field}"), single);
                }
            }
        }
        if is_image && sample.ending.is_none() {
            let entry = &mut sample.entry;
            (entry.offset, entry.len_bytes) = (file.content.start, len_bytes);
            let whole = if len_bytes > MAX_ENCODED_BYTES {
                entry.label = Err(too_long(len_bytes));
                bytes.end_before(file.content.end)?.is_none()
            } else {
                bytes.take(file.content, &mut entry.image)?
            };
            if !whole {
                // The archive ends here, so the sample is lost.
                return Ok(());
            }
            if self.parts.by_folder {
                sample.label = Some((0, self.folder(&file.name)));
            }
            (entry.member, sample.ending) = (file.name, Some(ending));
        } else if is_image {
            self.skipped_files += 1;
        } else if let Some(priority) = priority {
            sample.priorities |= 1 << priority;
            if sample.label.as_ref().is_none_or(|&(other, _)| priority < other) {
                let label = if len_bytes > MAX_LABEL_BYTES {
                    Err(format!("its label takes {len_bytes} bytes"))
                } else {
                    let Some(content) = bytes.at(file.content.start, len_bytes as usize)? else { return Ok(()) };
                    self.parts.label(priority, content)
                };
                // If a JSON part lacks the field, another part may still give the label.
                if label != Ok(Label::None) {
                    sample.label = Some((priority, label));
                }
            }
        }
        self.sample = Some(sample);
        Ok(())
    }
}

const NO_MEMBER: &str = "a long name is followed by no member";
const NO_END: &str = "the archive ends without the two blocks of zeros that end it";

/// Returns the number of bytes to whose multiple an archive that ends at `end` may be padded. Most programs pad to 20
/// blocks. Longer records are usually a power of two and at most 1 MiB.
fn record_bytes(end: u64) -> u64 {
    const USUAL: u64 = 20 * BLOCK_BYTES;
    const MOST: u64 = 1 << 20;
    (1 << end.trailing_zeros().min(MOST.trailing_zeros())).max(USUAL)
}

/// Returns the content of the file whose path ends in `name`, from an archive in memory.
pub(crate) fn member<'a>(archive: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut rest = archive;
    loop {
        let (block, behind) = rest.split_first_chunk()?;
        let header = header(block).ok()??;
        let len = usize::try_from(header.len_bytes).ok()?;
        if header.kind == b'0' && header.name.ends_with(name.as_bytes()) {
            return behind.get(..len);
        }
        rest = behind.get(len.checked_next_multiple_of(BLOCK_BYTES as usize)?..)?;
    }
}

/// Appends a ustar member, without time and owner, so that equal images give equal shards.
pub(crate) fn write_member(name: &str, content: &[u8], out: &mut Vec<u8>) {
    let mut header = [0; BLOCK_BYTES as usize];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    // The length fits: no encoded image has more than 256 MiB.
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend(header);
    out.extend(content);
    out.resize(out.len().next_multiple_of(BLOCK_BYTES as usize), 0);
}

/// Whether parts with this ending are images. Arrays are not, unless the user says so: features and labels are stored in
/// them too.
fn is_image(ending: &str) -> bool {
    Format::by_extension(ending.as_bytes()).is_some_and(|format| !format.is_array())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ReadRequest;

    #[test]
    fn keys_and_endings_are_webdatasets() {
        // The results of webdataset 1.0.2's base_plus_ext, in lower case, except that there `a/.hidden` is a part of
        // `a/`.
        let cases: &[(&str, Option<(&str, &str)>)] = &[
            ("000.jpg", Some(("000", "jpg"))),
            ("a/b.c/000.left.JPG", Some(("a/b.c/000", "left.jpg"))),
            ("./x.cls", Some(("./x", "cls"))),
            ("no-dot", None),
            ("a/.hidden", None),
            ("__index__", None),
        ];
        for (name, want) in cases {
            let want = want.map(|(key, ending)| (key.as_bytes(), ending.to_owned()));
            assert_eq!(key_and_ending(name.as_bytes()), want, "{name}");
        }
    }

    #[test]
    fn numbers_are_octal_or_binary() {
        assert_eq!(number(b"00000000017\0"), Some(15));
        assert_eq!(number(b"   17 \0     "), Some(15));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\x02\0\0\0\0"), Some(2 << 32));
        for bad in [&b"8\0"[..], b"-1\0", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"77777777777777777777777777"] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn pax_lines_have_honest_lengths() {
        let read = |lines: &[u8]| {
            let (mut name, mut len_bytes) = (None, None);
            pax(lines, &mut name, &mut len_bytes).map(|()| (name, len_bytes))
        };
        assert_eq!(read(b"12 path=abc\n11 size=12\n14 mtime=1.23\n"), Ok((Some(b"abc".to_vec()), Some(12))));
        for bad in [&b"12 path=ab\n"[..], b"99 path=abc\n", b"0 path=abc\n", b"x", b"7 path\n", b"10 size=x\n", b"3 \n"]
        {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        assert_eq!(read(b"22 GNU.sparse.major=1\n"), Err(SPARSE.to_owned()));
    }

    /// Returns name and label of each sample of an archive in memory, with labels by folder, and its faults.
    fn by_folder(archive: &[u8]) -> (Vec<(String, Label)>, Vec<String>) {
        let options = RecordOptions { label: Some(FOLDER.to_owned()), ..RecordOptions::default() };
        let mut parser =
            super::super::Parser::new(super::super::RecordFormat::WebDataset, &options, &ReadRequest::IMAGE, 0);
        let (mut found, mut wrong, mut bytes) = (Vec::new(), Vec::new(), archive);
        while let Some(entry) = parser.next(&mut bytes).unwrap() {
            match entry.label {
                Ok(label) => {
                    let image = &archive[entry.offset as usize..][..entry.len_bytes as usize];
                    assert_eq!(image, entry.member.rsplit(|&byte| byte == b'/').next().unwrap());
                    found.push((String::from_utf8(entry.member).unwrap(), label));
                }
                Err(message) => wrong.push(message),
            }
        }
        (found, wrong)
    }

    /// Makes an archive of images whose content is their name.
    fn archive(names: &[&str]) -> Vec<u8> {
        let mut archive = Vec::new();
        names.iter().for_each(|name| write_member(name, name.rsplit('/').next().unwrap().as_bytes(), &mut archive));
        [&archive[..], END].concat()
    }

    fn name(class: &str) -> Label {
        Label::Name(class.to_owned())
    }

    #[test]
    fn a_folder_is_a_label() {
        let (found, wrong) =
            by_folder(&archive(&["train/cat/1.jpg", "train/7/1.jpg", "./dog/2.JPEG", "3.jpg", "cat/note.txt"]));
        let want = [("train/cat/1.jpg", name("cat")), ("train/7/1.jpg", name("7")), ("./dog/2.JPEG", name("dog"))];
        assert_eq!(found[..3], want.map(|(name, label)| (name.to_owned(), label)));
        assert_eq!((&found[3], wrong.len()), (&("3.jpg".to_owned(), Label::None), 0));
    }

    #[test]
    fn archives_in_an_archive_are_classes() {
        let mut all = Vec::new();
        // Images of one name in two classes, an empty class, and an inner archive that is not padded to whole records.
        for (class, names) in
            [("n01", &["1.JPEG", "2.JPEG"][..]), ("n02", &[]), ("n03", &["1.JPEG"]), ("n04", &["1.JPEG"])]
        {
            let mut inner = archive(names);
            if class == "n03" {
                inner.resize(10_240, 0);
            }
            write_member(&format!("{class}.tar"), &inner, &mut all);
        }
        let whole = [&all[..], END].concat();
        let want = [("1.JPEG", "n01"), ("2.JPEG", "n01"), ("1.JPEG", "n03"), ("1.JPEG", "n04")];
        let want = want.map(|(image, class)| (image.to_owned(), name(class)));
        assert_eq!(by_folder(&whole), (want.to_vec(), Vec::new()));

        // Damage in one inner archive does not affect the others.
        let mut damaged = whole.clone();
        damaged[512 + 1024 + 10] ^= 1;
        let (found, wrong) = by_folder(&damaged);
        assert_eq!(found, [want[0].clone(), want[2].clone(), want[3].clone()]);
        assert!(wrong.len() == 1 && wrong[0].contains("the rest of n01.tar"), "{wrong:?}");

        // Wherever the archive is cut, complete samples are found and the missing rest is reported.
        for end in (0..whole.len()).step_by(100) {
            let (found, wrong) = by_folder(&whole[..end]);
            assert!(want.starts_with(&found) && !wrong.is_empty(), "{end} bytes: {found:?} {wrong:?}");
        }
    }

    #[test]
    fn a_member_of_an_archive_in_memory() {
        let mut all = Vec::new();
        write_member("kit/a.txt", b"one", &mut all);
        write_member("kit/b.txt", b"two", &mut all);
        assert_eq!((member(&all, "b.txt"), member(&all, "c.txt")), (Some(&b"two"[..]), None));
        assert_eq!(member(&all[..512 + 512 + 512 + 1], "b.txt"), None);
    }
}
