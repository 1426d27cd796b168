//! Tar archives in the manner of WebDataset. Headers as POSIX.1-2001 (ustar, pax) and the GNU tar manual describe them.

use super::label::{self, Label};
use super::{Found, RecordOptions};
use crate::error::Result;
use crate::source::window::{ReadAt, Window};

pub(crate) const BLOCK_BYTES: u64 = 512;

/// Long names, and pax headers, are no longer than this.
const MAX_NAME_BYTES: u64 = 1 << 20;

/// Parts that hold labels are no longer than this.
const MAX_LABEL_BYTES: u64 = 1 << 20;

/// The endings of images, without their dot, in lower case.
pub(crate) const IMAGES: [&str; 6] = ["jpg", "jpeg", "png", "webp", "pgm", "ppm"];

/// A member's header.
#[derive(Debug, PartialEq)]
pub(crate) struct Header {
    pub name: Vec<u8>,
    /// Bytes of content, which follow the header and are filled up to whole blocks.
    pub len_bytes: u64,
    /// What the member is: `b'0'` for a regular file.
    pub kind: u8,
}

/// Reads a header block; `None` for the block of zeros that ends an archive.
pub(crate) fn header(block: &[u8; BLOCK_BYTES as usize]) -> Result<Option<Header>, &'static str> {
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
    // GNU's own format keeps times where ustar has a prefix.
    if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
        name = [prefix, b"/", &name].concat();
    }
    let len_bytes = number(&block[124..136]).ok_or("the header's size is no number")?;
    // The oldest programs wrote zero for regular files.
    let kind = if block[156] == 0 { b'0' } else { block[156] };
    Ok(Some(Header { name, len_bytes, kind }))
}

/// A field up to its zero.
fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|&byte| byte == 0).unwrap_or(field.len())]
}

/// An octal number, or, marked by the first bit, a binary one.
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

/// Name and size from a pax header: lines of length, blank, keyword, equals sign, value.
pub(crate) fn pax(mut lines: &[u8], name: &mut Option<Vec<u8>>, len_bytes: &mut Option<u64>) -> Result<(), String> {
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

const SPARSE: &str = "sparse files are not supported";

/// Splits a member's name into its sample's key and its ending, as WebDataset does: at the first dot behind the last
/// slash. `None` for names that have no dot or begin with it, and for WebDataset's own (`__name__`).
pub(crate) fn key_and_ending(name: &[u8]) -> Option<(&[u8], String)> {
    let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].iter().position(|&byte| byte == b'.')?;
    if dot == base || base == 0 && name.starts_with(b"__") && name.ends_with(b"__") {
        return None;
    }
    Some((&name[..dot], std::str::from_utf8(&name[dot + 1..]).ok()?.to_ascii_lowercase()))
}

/// Which parts of a sample count.
pub(crate) struct Parts {
    image: Option<String>,
    /// Ending and, in JSON, field; the first that is there.
    labels: Vec<(String, Option<String>)>,
}

impl Parts {
    pub fn new(options: &RecordOptions) -> Self {
        let split = |label: &String| match label.rsplit_once('.') {
            Some((ending, field)) if ending.ends_with("json") => (ending.to_ascii_lowercase(), Some(field.to_owned())),
            _ => (label.to_ascii_lowercase(), None),
        };
        let usual = || vec![("cls".to_owned(), None), ("json".to_owned(), Some("label".to_owned()))];
        Self {
            image: options.image.as_ref().map(|ending| ending.to_ascii_lowercase()),
            labels: options.label.as_ref().map_or_else(usual, |label| vec![split(label)]),
        }
    }

    pub fn is_image(&self, ending: &str) -> bool {
        self.image.as_ref().map_or_else(|| IMAGES.contains(&ending), |image| image == ending)
    }

    /// Which of the places of labels this part is; the lowest counts.
    pub fn label_place(&self, ending: &str) -> Option<usize> {
        self.labels.iter().position(|(label, _)| label == ending)
    }

    pub fn label(&self, place: usize, content: &[u8]) -> Result<Label, String> {
        match &self.labels[place].1 {
            Some(field) => label::from_json(content, field),
            None => label::from_text(content),
        }
    }
}

/// The sample that is being put together.
#[derive(Default)]
struct Sample {
    key: Vec<u8>,
    /// Offset and length.
    image: Option<(u64, u64)>,
    label: Option<(usize, Result<Label, String>)>,
}

impl Sample {
    fn finish(self, found: &mut Found) {
        match self.image {
            Some((offset, len_bytes)) => {
                let label = self.label.map_or(Ok(Label::None), |(_, label)| label);
                found.sample(offset, len_bytes, false, label);
            }
            None if self.key.is_empty() => {}
            None => found.skipped_files += 1,
        }
    }
}

/// Passes over an archive.
pub(super) fn scan(window: &mut Window, options: &RecordOptions, found: &mut Found) -> Result<()> {
    let parts = Parts::new(options);
    let mut sample = Sample::default();
    let mut at = 0;
    let outcome = loop {
        match member(window, &parts, &mut at, &mut sample, found)? {
            Ok(true) => {}
            Ok(false) => break None,
            Err(message) => break Some(message),
        }
    };
    sample.finish(found);
    if let Some(message) = outcome {
        found.fault(at, &format!("{message}; the rest of the archive cannot be read"));
    }
    Ok(())
}

/// Takes up one member with the headers that extend it, and moves `at` behind it. `false` at the archive's end.
fn member(
    window: &mut Window,
    parts: &Parts,
    at: &mut u64,
    sample: &mut Sample,
    found: &mut Found,
) -> Result<Result<bool, String>> {
    let (mut long_name, mut long_len_bytes) = (None, None);
    let mut place = *at;
    loop {
        let Some(block) = window.array(place)? else {
            // Some programs leave out the blocks of zeros that should end it.
            let whole = place == window.len_bytes() && place == *at;
            return Ok(if whole { Ok(false) } else { Err("the archive ends in the middle of a header".to_owned()) });
        };
        let header = match header(&block) {
            Ok(Some(header)) => header,
            Ok(None) if place != *at => return Ok(Err("a long name is followed by no member".to_owned())),
            Ok(None) => return nothing_follows(window, place),
            Err(message) => return Ok(Err(message.to_owned())),
        };
        let len_bytes = if matches!(header.kind, b'x' | b'g' | b'L' | b'K') {
            header.len_bytes
        } else {
            long_len_bytes.unwrap_or(header.len_bytes)
        };
        let content = place + BLOCK_BYTES;
        if !window.holds(content, len_bytes) {
            let left = window.len_bytes() - content;
            return Ok(Err(format!("a member of {len_bytes} bytes is followed by only {left}")));
        }
        place = content + len_bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
        match header.kind {
            b'x' | b'L' => {
                if len_bytes > MAX_NAME_BYTES {
                    return Ok(Err(format!("a name or extended header has {len_bytes} bytes")));
                }
                let Some(bytes) = window.at(content, len_bytes as usize)? else { return Ok(Ok(false)) };
                if header.kind == b'L' {
                    long_name = Some(text(bytes).to_vec());
                } else if let Err(message) = pax(bytes, &mut long_name, &mut long_len_bytes) {
                    return Ok(Err(message));
                }
            }
            // What holds for all members, and long names of links: nothing that is needed here.
            b'g' | b'K' => {}
            b'S' => return Ok(Err(SPARSE.to_owned())),
            b'0' | b'7' => {
                *at = place;
                let name = long_name.unwrap_or(header.name);
                file(window, parts, (&name, content, len_bytes), sample, found)?;
                return Ok(Ok(true));
            }
            kind => {
                // Links are not followed, whatever they name; of a folder there is nothing to miss.
                found.skipped_files += u64::from(kind != b'5');
                *at = place;
                return Ok(Ok(true));
            }
        }
    }
}

/// Whether the archive ends here indeed: one that another is appended to would lose that one in silence.
fn nothing_follows(window: &mut Window, at: u64) -> Result<Result<bool, String>> {
    // Archives are filled up with zeros to whole records, of 20 blocks unless asked otherwise.
    for block in 1..=64 {
        let Some(next) = window.array::<{ BLOCK_BYTES as usize }>(at + block * BLOCK_BYTES)? else { break };
        if next.iter().any(|&byte| byte != 0) {
            return Ok(Err("its end is followed by more, perhaps another archive".to_owned()));
        }
    }
    Ok(Ok(false))
}

/// Takes up a regular file: name, offset, length.
fn file(
    window: &mut Window,
    parts: &Parts,
    (name, offset, len_bytes): (&[u8], u64, u64),
    sample: &mut Sample,
    found: &mut Found,
) -> Result<()> {
    let Some((key, ending)) = key_and_ending(name) else {
        found.skipped_files += u64::from(!name.starts_with(b"__"));
        return Ok(());
    };
    if sample.key != key {
        std::mem::replace(sample, Sample { key: key.to_vec(), ..Sample::default() }).finish(found);
    }
    if parts.is_image(&ending) {
        if sample.image.is_none() {
            sample.image = Some((offset, len_bytes));
        } else {
            found.skipped_files += 1;
        }
    } else if let Some(place) = parts.label_place(&ending)
        && sample.label.as_ref().is_none_or(|&(other, _)| place < other)
    {
        let label = if len_bytes > MAX_LABEL_BYTES {
            Err(format!("its label takes {len_bytes} bytes"))
        } else {
            window.at(offset, len_bytes as usize)?.map_or(Ok(Label::None), |content| parts.label(place, content))
        };
        // A JSON part without the field leaves the others to be looked at.
        if label != Ok(Label::None) {
            sample.label = Some((place, label));
        }
    }
    Ok(())
}

/// The name in the header before the content at `offset`; of a long one, its beginning.
pub(super) fn name_before(file: &dyn ReadAt, offset: u64) -> Option<String> {
    let mut block = [0; BLOCK_BYTES as usize];
    file.read_at(&mut block, offset.checked_sub(BLOCK_BYTES)?).ok()?;
    let header = header(&block).ok()??;
    Some(String::from_utf8_lossy(&header.name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_endings_are_webdatasets() {
        // What webdataset 1.0.2's base_plus_ext gives, in lower case; but to it `a/.hidden` is a part of `a/`.
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
}
