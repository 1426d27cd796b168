//! The index of a shard, stored so that the shard need not be scanned again.
//!
//! All numbers are little endian: [`MAGIC`], the [`Key`] (three `u64`), the number of skipped records (`u64`), the
//! number of records (`u64`), the numbers of names and of faults (`u32` each); then names and faults, each as length
//! (`u32`) and UTF-8; then the records, each as offset (`u64`), length and kind (`u32`), label (`u32`); then the
//! CRC-32C of all that (`u32`).

use super::found::{FAULT, NAME, Record, ScannedShard, Texts};
use super::shard::Shard;
use super::{RecordFormat, RecordOptions, label};
use crate::hex::hex;
use crate::os::atomic;
use crate::os::file::{cache_folder, open_with_metadata};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;

/// The last byte is the version of this format and of the scan's results.
const MAGIC: &[u8; 8] = b"wfindex\x03";
const HEADER_BYTES: usize = 8 + 3 * 8 + 8 + 8 + 4 + 4;
const RECORD_BYTES: usize = 16;
const CRC_BYTES: usize = 4;

/// Upper bound of a text: names of labels have at most 256 bytes, and descriptions of faults are shorter than this.
const MAX_TEXT_BYTES: u64 = 1024;

/// The properties of the shard and the options that an index was made from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Key {
    len_bytes: u64,
    /// The shard's version.
    version: u64,
    /// Start of the SHA-256 of format and options.
    options: u64,
    /// Smallest number of bytes that a record of the shard's format takes.
    min_record_bytes: u64,
}

impl Key {
    pub fn new(format: RecordFormat, options: &RecordOptions, shard: &Shard) -> Self {
        let names = label::digits_are_names(&options.classes);
        let text = format!("{format:?}\0{:?}\0{:?}\0{names}", options.image, options.label);
        let hash: [u8; 32] = Sha256::digest(text).into();
        Self {
            len_bytes: shard.len_bytes,
            version: shard.version,
            options: hash.first_chunk().map_or(0, |start| u64::from_le_bytes(*start)),
            min_record_bytes: format.facts().min_record_bytes,
        }
    }
}

/// Returns the places for a shard's index: next to the shard if it is a file, and in the user's cache folder.
fn locations(shard: &Shard) -> impl Iterator<Item = PathBuf> {
    let beside = (!shard.is_remote()).then(|| {
        let mut name = OsString::from(".");
        name.push(shard.name.file_name().unwrap_or_default());
        name.push(".warpfeed-index");
        shard.name.with_file_name(name)
    });
    let name = if shard.is_remote() { Some(shard.name.clone()) } else { fs::canonicalize(&shard.name).ok() };
    let in_cache = cache_folder().zip(name).map(|(cache, name)| {
        let hash = Sha256::digest(name.as_os_str().as_encoded_bytes());
        cache.join("index").join(hex(&hash[..16]))
    });
    beside.into_iter().chain(in_cache)
}

/// Loads the stored index of a shard, if there is one that is undamaged and matches `key`.
pub(super) fn load(shard: &Shard, key: &Key) -> Option<ScannedShard> {
    locations(shard).find_map(|location| {
        let (mut file, metadata) = open_with_metadata(&location).ok()?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header).ok()?;
        let counts = Counts::read(&header, key)?;
        if !counts.fit(metadata.len(), key) {
            return None;
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(metadata.len() as usize).ok()?;
        bytes.extend(header);
        file.take(metadata.len() - HEADER_BYTES as u64).read_to_end(&mut bytes).ok()?;
        parse(&bytes, &counts, key)
    })
}

/// The numbers in an index's header, after its key.
struct Counts {
    skipped_files: u64,
    records: u64,
    names: u32,
    faults: u32,
}

impl Counts {
    /// Whether an index of `len_bytes` and its shard can hold these numbers. An index that claims more is not read.
    fn fit(&self, len_bytes: u64, key: &Key) -> bool {
        let texts = u64::from(self.names) + u64::from(self.faults);
        let frame_bytes = (HEADER_BYTES + CRC_BYTES) as u64;
        let records = self.records.saturating_mul(RECORD_BYTES as u64).saturating_add(frame_bytes);
        let most = records.saturating_add(texts * (4 + MAX_TEXT_BYTES));
        // The last record may be a truncated one.
        self.records <= key.len_bytes / key.min_record_bytes + 1
            && texts <= self.records
            && (records..=most).contains(&len_bytes)
    }

    fn read(header: &[u8; HEADER_BYTES], key: &Key) -> Option<Self> {
        let mut rest = header.strip_prefix(MAGIC)?;
        let (len_bytes, version, options) = (u64_le(&mut rest)?, u64_le(&mut rest)?, u64_le(&mut rest)?);
        let found = Key { len_bytes, version, options, ..*key };
        let counts = Self {
            skipped_files: u64_le(&mut rest)?,
            records: u64_le(&mut rest)?,
            names: u32_le(&mut rest)?,
            faults: u32_le(&mut rest)?,
        };
        (found == *key).then_some(counts)
    }
}

fn parse(bytes: &[u8], counts: &Counts, key: &Key) -> Option<ScannedShard> {
    let (contents, crc) = bytes.split_last_chunk::<CRC_BYTES>()?;
    if crc32c::crc32c(contents) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut rest = &contents[HEADER_BYTES..];
    let mut texts = |count: u32| -> Option<Texts> {
        let mut texts = Texts::default();
        for _ in 0..count {
            let (text, after) = { u32_le(&mut rest).and_then(|len| rest.split_at_checked(len as usize))? };
            rest = after;
            texts.number(std::str::from_utf8(text).ok()?)?;
        }
        Some(texts)
    };
    let (names, faults) = (texts(counts.names)?, texts(counts.faults)?);
    let (records, left) = rest.as_chunks::<RECORD_BYTES>();
    if !left.is_empty() || records.len() as u64 != counts.records {
        return None;
    }
    let read = |record: &[u8; RECORD_BYTES]| {
        let mut rest = &record[..];
        let record = Record { offset: u64_le(&mut rest)?, len_and_kind: u32_le(&mut rest)?, label: u32_le(&mut rest)? };
        let end = record.offset.checked_add(record.len_bytes().into())?;
        let inside = record.is_split() || record.label_kind() == FAULT || end <= key.len_bytes;
        let named = record.label_kind() != NAME || (record.label as usize) < names.list.len();
        (inside && named).then_some(record)
    };
    let records = records.iter().map(read).collect::<Option<_>>()?;
    Some(ScannedShard { records, names, faults, skipped_files: counts.skipped_files })
}

fn u64_le(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_le_bytes(*number))
}

fn u32_le(rest: &mut &[u8]) -> Option<u32> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_le_bytes(*number))
}

/// Stores the results of a scan. If no place is writable, the shard is scanned again the next time.
pub(super) fn keep(shard: &Shard, key: &Key, found: &ScannedShard) {
    let bytes = bytes(key, found);
    for location in locations(shard) {
        // Skips anything but a file: it is not an index, and opening a pipe would block.
        if fs::metadata(&location).is_ok_and(|there| !there.is_file()) {
            continue;
        }
        let folder = location.parent().filter(|folder| shard.is_remote() || Some(*folder) != shard.name.parent());
        if folder.is_none_or(|folder| fs::create_dir_all(folder).is_ok())
            && atomic::write(&location, |file| file.write_all(&bytes)).is_ok()
        {
            break;
        }
    }
}

fn bytes(key: &Key, found: &ScannedShard) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + found.records.len() * RECORD_BYTES + 4);
    bytes.extend(MAGIC);
    for number in [key.len_bytes, key.version, key.options, found.skipped_files, found.records.len() as u64] {
        bytes.extend(number.to_le_bytes());
    }
    for texts in [&found.names, &found.faults] {
        bytes.extend((texts.list.len() as u32).to_le_bytes());
    }
    for text in found.names.list.iter().chain(&found.faults.list) {
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    for record in &found.records {
        bytes.extend(record.offset.to_le_bytes());
        bytes.extend(record.len_and_kind.to_le_bytes());
        bytes.extend(record.label.to_le_bytes());
    }
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::label::Label;
    use super::*;

    fn found() -> ScannedShard {
        let mut found = ScannedShard { skipped_files: 3, ..ScannedShard::default() };
        found.sample(512, 100, false, Label::Number(7));
        found.sample(1024, 200, true, Label::Name("Größe".to_owned()));
        found.sample(2048, 10, false, Label::None);
        found.fault(4000, "torn");
        found
    }

    #[test]
    fn an_index_is_taken_only_whole_and_of_the_same_shard() {
        let folder = tempfile::tempdir().unwrap();
        let shard = folder.path().join("a.tar");
        fs::write(&shard, [0; 5000]).unwrap();
        let shard = Shard::file(&shard).unwrap();
        let key = Key::new(RecordFormat::WebDataset, &RecordOptions::default(), &shard);
        keep(&shard, &key, &found());
        assert_eq!(load(&shard, &key), Some(found()));
        for other in [
            Key { len_bytes: 5001, ..key },
            Key { version: key.version + 1, ..key },
            Key { options: key.options ^ 1, ..key },
        ] {
            assert_eq!(load(&shard, &other), None);
        }
        let location = locations(&shard).next().unwrap();
        let whole = fs::read(&location).unwrap();
        for i in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[i] ^= 0x10;
            fs::write(&location, &damaged).unwrap();
            assert_eq!(load(&shard, &key), None, "byte {i}");
            fs::write(&location, &whole[..i]).unwrap();
            assert_eq!(load(&shard, &key), None, "{i} bytes");
        }
    }

    #[test]
    fn an_index_that_lies_with_a_right_checksum_is_refused() {
        let key = Key { len_bytes: 5000, version: 1, options: 2, min_record_bytes: 512 };
        let take = |found: &ScannedShard| {
            let bytes = bytes(&key, found);
            let counts = Counts::read(bytes.first_chunk().unwrap(), &key).unwrap();
            parse(&bytes, &counts, &key)
        };
        assert!(take(&found()).is_some());
        let with = |change: fn(&mut Record)| {
            let mut found = found();
            change(&mut found.records[1]);
            found
        };
        assert_eq!(take(&with(|record| record.label = 1)), None, "a name that is not there");
        assert_eq!(take(&with(|record| record.offset = u64::MAX)), None, "an offset that overflows");
        assert_eq!(take(&with(|record| (record.offset, record.len_and_kind) = (4999, 2))), None, "beyond the end");
    }
}
