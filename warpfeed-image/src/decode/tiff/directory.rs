//! The directories of a TIFF: pages, their tags, and the tags' values.

use super::read_at::ReadAt;
use super::{bad, unsupported};
use crate::decode::stored::ByteOrder;
use crate::error::Result;
use std::borrow::Cow;
use std::ops::Range;

/// Numbers of the tags that are read.
pub(super) mod tag {
    pub(in super::super) const NEW_SUBFILE_TYPE: u16 = 254;
    pub(in super::super) const SUBFILE_TYPE: u16 = 255;
    pub(in super::super) const WIDTH: u16 = 256;
    pub(in super::super) const HEIGHT: u16 = 257;
    pub(in super::super) const BITS: u16 = 258;
    pub(in super::super) const COMPRESSION: u16 = 259;
    pub(in super::super) const PHOTOMETRIC: u16 = 262;
    pub(in super::super) const FILL_ORDER: u16 = 266;
    pub(in super::super) const STRIP_OFFSETS: u16 = 273;
    pub(in super::super) const ORIENTATION: u16 = 274;
    pub(in super::super) const CHANNELS: u16 = 277;
    pub(in super::super) const ROWS_PER_STRIP: u16 = 278;
    pub(in super::super) const STRIP_COUNTS: u16 = 279;
    pub(in super::super) const PLANAR: u16 = 284;
    pub(in super::super) const PREDICTOR: u16 = 317;
    pub(in super::super) const COLOR_MAP: u16 = 320;
    pub(in super::super) const TILE_WIDTH: u16 = 322;
    pub(in super::super) const TILE_HEIGHT: u16 = 323;
    pub(in super::super) const TILE_OFFSETS: u16 = 324;
    pub(in super::super) const TILE_COUNTS: u16 = 325;
    pub(in super::super) const SUB_DIRECTORIES: u16 = 330;
    pub(in super::super) const INK_SET: u16 = 332;
    pub(in super::super) const EXTRA_SAMPLES: u16 = 338;
    pub(in super::super) const SAMPLE_FORMAT: u16 = 339;
    pub(in super::super) const JPEG_TABLES: u16 = 347;

    pub(super) const ALL: [u16; 25] = [
        NEW_SUBFILE_TYPE,
        SUBFILE_TYPE,
        WIDTH,
        HEIGHT,
        BITS,
        COMPRESSION,
        PHOTOMETRIC,
        FILL_ORDER,
        STRIP_OFFSETS,
        ORIENTATION,
        CHANNELS,
        ROWS_PER_STRIP,
        STRIP_COUNTS,
        PLANAR,
        PREDICTOR,
        COLOR_MAP,
        TILE_WIDTH,
        TILE_HEIGHT,
        TILE_OFFSETS,
        TILE_COUNTS,
        SUB_DIRECTORIES,
        INK_SET,
        EXTRA_SAMPLES,
        SAMPLE_FORMAT,
        JPEG_TABLES,
    ];
}

/// Number of directories that are searched for one that is no thumbnail.
const MAX_DIRECTORIES: usize = 1024;

/// A TIFF, whose header has been read.
#[derive(Clone, Copy)]
pub(super) struct Container<'a> {
    file: &'a dyn ReadAt,
    pub(super) order: ByteOrder,
    /// Whether it is a BigTIFF, with offsets of 64 bits.
    is_big: bool,
}

/// A tag in a directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    number: u16,
    /// The type of the values.
    kind: u16,
    /// Number of values.
    pub(super) count: u64,
    /// The values if they fit, else their offset.
    value: [u8; 8],
}

/// The tags of a page that are needed to read it.
#[derive(Debug)]
pub(super) struct Directory {
    entries: Vec<Entry>,
    /// Offset of the next directory; 0 if this is the last one.
    next: u64,
}

/// Some of a tag's values.
pub(super) struct Numbers<'a> {
    bytes: Cow<'a, [u8]>,
    value_bytes: usize,
    order: ByteOrder,
}

impl Numbers<'_> {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() / self.value_bytes
    }

    pub(super) fn get(&self, index: usize) -> u64 {
        let bytes = &self.bytes[index * self.value_bytes..][..self.value_bytes];
        number(bytes, self.order)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// A whole number of up to 8 bytes.
fn number(bytes: &[u8], order: ByteOrder) -> u64 {
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    match order {
        ByteOrder::Big => bytes.iter().fold(0, add),
        ByteOrder::Little => bytes.iter().rev().fold(0, add),
    }
}

/// Whether a file begins like a TIFF.
fn is_tiff(bytes: &[u8]) -> bool {
    matches!(bytes.first_chunk(), Some(b"II*\0" | b"MM\0*" | b"II+\0" | b"MM\0+"))
}

impl<'a> Container<'a> {
    /// Reads the header of a file.
    pub(super) fn open(file: &'a dyn ReadAt) -> Result<Self> {
        let start = file.read_at(0, file.len_bytes().min(8) as usize)?;
        if start.len() < 8 || !is_tiff(&start) {
            return Err(bad("truncated: the data end inside the header"));
        }
        let order = if start[0] == b'I' { ByteOrder::Little } else { ByteOrder::Big };
        let is_big = start[2..4].contains(&b'+');
        if is_big && (number(&start[4..6], order), number(&start[6..8], order)) != (8, 0) {
            return Err(bad("the header of a BigTIFF has offsets of other than 8 bytes"));
        }
        Ok(Self { file, order, is_big })
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.file.len_bytes()
    }

    /// Reads bytes of the file.
    pub(super) fn read(&self, offset: u64, len: u64, what: &str) -> Result<Cow<'a, [u8]>> {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.len_bytes());
        match usize::try_from(len) {
            Ok(len) if is_inside => self.file.read_at(offset, len),
            _ => Err(bad(format!(
                "truncated: {what} would be {len} bytes at {offset}, but the file has {} bytes",
                self.len_bytes()
            ))),
        }
    }

    /// Reads a whole number of `len` bytes.
    fn read_number(&self, offset: u64, len: u64, what: &str) -> Result<u64> {
        Ok(number(&self.read(offset, len, what)?, self.order))
    }

    /// The first page that is no thumbnail.
    pub(super) fn main_directory(&self) -> Result<Directory> {
        let (at, len) = if self.is_big { (8, 8) } else { (4, 4) };
        let first = self.directory(self.read_number(at, len, "the header")?)?;
        if !self.is_thumbnail(&first)? {
            return Ok(first);
        }
        let (mut seen, mut next) = (Vec::new(), first.next);
        while next != 0 && !seen.contains(&next) && seen.len() < MAX_DIRECTORIES {
            seen.push(next);
            let directory = self.directory(next)?;
            if !self.is_thumbnail(&directory)? {
                return Ok(directory);
            }
            next = directory.next;
        }
        if first.get(tag::SUB_DIRECTORIES).is_some() {
            let remedy = "develop it, and save the result as an ordinary TIFF";
            return Err(unsupported("a file whose pages are all thumbnails, as a camera's raw file,", remedy));
        }
        Ok(first)
    }

    /// Whether a page is a smaller version of another one.
    fn is_thumbnail(&self, directory: &Directory) -> Result<bool> {
        let is_reduced = self.first(directory, tag::NEW_SUBFILE_TYPE)?.is_some_and(|kind| kind & 1 == 1);
        Ok(is_reduced || self.first(directory, tag::SUBFILE_TYPE)? == Some(2))
    }

    fn directory(&self, at: u64) -> Result<Directory> {
        let (count_bytes, entry_bytes, value_bytes) = if self.is_big { (8, 20, 8) } else { (2, 12, 4) };
        if at < 8 {
            return Err(bad("the file has no page"));
        }
        let count = self.read_number(at, count_bytes, "a directory")?;
        if count == 0 || count > u64::from(u16::MAX) {
            return Err(bad(format!("a directory has {count} tags")));
        }
        let start = at + count_bytes;
        let bytes = self.read(start, count * entry_bytes, "a directory")?;
        let mut entries: Vec<Entry> = Vec::new();
        for entry in bytes.chunks_exact(entry_bytes as usize) {
            let tag = number(&entry[..2], self.order) as u16;
            if !tag::ALL.contains(&tag) || entries.iter().any(|entry| entry.number == tag) {
                continue;
            }
            let (head, found) = entry.split_at(entry.len() - value_bytes);
            let mut value = [0; 8];
            value[..value_bytes].copy_from_slice(found);
            let count = number(&head[4..], self.order);
            entries.push(Entry { number: tag, kind: number(&head[2..4], self.order) as u16, count, value });
        }
        // A file may end after its last directory.
        let next = self.read_number(start + count * entry_bytes, value_bytes as u64, "a directory").unwrap_or(0);
        Ok(Directory { entries, next })
    }

    /// Values of a tag that is a list of whole numbers, or of bytes.
    pub(super) fn numbers(&self, entry: &Entry, range: Range<u64>) -> Result<Numbers<'a>> {
        let value_bytes: u64 = match entry.kind {
            1 | 2 | 7 => 1,
            3 => 2,
            4 | 13 => 4,
            16 | 18 => 8,
            kind => return Err(bad(format!("tag {} has values of type {kind}, not whole numbers", entry.number))),
        };
        if range.end > entry.count {
            return Err(bad(format!("tag {} has {} of {} values", entry.number, entry.count, range.end)));
        }
        let inline_bytes = if self.is_big { 8 } else { 4 };
        let is_inline = entry.count.checked_mul(value_bytes).is_some_and(|len| len <= inline_bytes);
        let bytes = if is_inline {
            Cow::Owned(entry.value[(range.start * value_bytes) as usize..(range.end * value_bytes) as usize].to_vec())
        } else {
            let what = format!("the values of tag {}", entry.number);
            let start = number(&entry.value[..inline_bytes as usize], self.order);
            let skipped = range.start.checked_mul(value_bytes);
            let len = (range.end - range.start).saturating_mul(value_bytes);
            let offset = skipped.and_then(|skipped| start.checked_add(skipped)).unwrap_or(u64::MAX);
            self.read(offset, len, &what)?
        };
        Ok(Numbers { bytes, value_bytes: value_bytes as usize, order: self.order })
    }

    /// The first value of a tag.
    pub(super) fn first(&self, directory: &Directory, tag: u16) -> Result<Option<u64>> {
        match directory.get(tag) {
            Some(entry) if entry.count > 0 => Ok(Some(self.numbers(entry, 0..1)?.get(0))),
            _ => Ok(None),
        }
    }

    /// The bytes of a tag, at most `max` of them.
    pub(super) fn bytes(&self, entry: &Entry, max: u64) -> Result<Cow<'a, [u8]>> {
        if entry.count > max {
            return Err(bad(format!("tag {} has {} values, more than {max}", entry.number, entry.count)));
        }
        let numbers = self.numbers(entry, 0..entry.count)?;
        if numbers.value_bytes != 1 {
            return Err(bad(format!("the values of tag {} are not bytes", entry.number)));
        }
        Ok(numbers.bytes)
    }
}

impl Directory {
    pub(super) fn get(&self, tag: u16) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.number == tag)
    }
}
