//! A file of entry points, sorted by image, in which an image is found by two reads. All numbers are little endian.
//!
//! | bytes | content |
//! | --- | --- |
//! | 64 | header: [`MAGIC`]; the check of the folder's key (16 bytes); length of the file, number of images (`u64` each); the binary logarithm of the number of buckets (`u32`); zeros; CRC-32C of all this |
//! | 8 for each bucket, and 8 more | where the bucket's records begin; at last the length of the file |
//! | 24 and more for each image | records in the order of their keys: key (16 bytes); length of the points in bytes, with the highest bit set if there are no more to learn (`u32`); CRC-32C of key, length and points; the points (`entry_point_bytes`) |
//!
//! The first bits of an image's key are the number of its bucket. A bucket has about [`BUCKET_IMAGES`] images; a longer
//! one than [`MAX_BUCKET_BYTES`] is damage. Files are read by position: a mapped file that is truncated would end the
//! process.

use super::entry_point_store::ImageKey;
use super::shared_folder;
use crate::file::{self, read_exact_at};
use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The last byte is the version of this format.
const MAGIC: &[u8; 8] = b"wfpoint\x02";
const HEADER_BYTES: usize = 64;
const RECORD_HEAD_BYTES: usize = 24;
const BUCKET_IMAGES: u64 = 4;
const MAX_BUCKET_BYTES: u64 = 16 << 20;
/// Largest size of an image's points. 10^9 pixels have fewer.
const MAX_POINTS_BYTES: usize = 4 << 20;
/// In a record's length: there are no more points to learn.
const FINAL: u32 = 1 << 31;
/// Number of images that are looked up in vain before a file counts as one of other images.
const PATIENCE: u64 = 4096;

/// Check of a folder's key.
pub(super) type KeyCheck = [u8; 16];

/// An open file of entry points.
pub(super) struct Segment {
    file: File,
    pub(super) len_bytes: u64,
    pub(super) images: u64,
    bucket_bits: u32,
    lookups: AtomicU64,
    hits: AtomicU64,
}

/// The result of opening a file.
pub(super) enum Opened {
    /// A file of entry points under the key.
    Good(Segment),
    /// A file that is damaged, or under another key.
    Wrong,
    /// A file that another version wrote.
    OfOtherVersion,
}

impl Segment {
    /// Opens a file.
    ///
    /// # Errors
    /// An error if its header cannot be read: the file may be good.
    pub(super) fn open(path: &Path, check: &KeyCheck) -> io::Result<Opened> {
        let (file, metadata) = file::open(path)?;
        let mut header = [0; HEADER_BYTES];
        let read = HEADER_BYTES.min(metadata.len() as usize);
        read_exact_at(&file, &mut header[..read], 0)?;
        if let Some(version) = header.strip_prefix(&MAGIC[..7])
            && version[0] != MAGIC[7]
        {
            return Ok(Opened::OfOtherVersion);
        }
        let Some((contents, crc)) = header.split_last_chunk::<4>() else { return Ok(Opened::Wrong) };
        let len_bytes = u64_at(&header, 24);
        let (images, bucket_bits) = (u64_at(&header, 32), u32_at(&header, 40));
        let is_ours = contents.starts_with(MAGIC) && contents[8..24] == *check;
        let is_whole = crc32c::crc32c(contents) == u32::from_le_bytes(*crc) && len_bytes == metadata.len();
        let is_possible = bucket_bits < 40 && records_start(bucket_bits) <= len_bytes;
        if !(is_ours && is_whole && is_possible) {
            return Ok(Opened::Wrong);
        }
        let (lookups, hits) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Opened::Good(Self { file, len_bytes, images, bucket_bits, lookups, hits }))
    }

    /// Finds an image's points. They lie at the returned place in `buffer`; the flag says whether there are no more to
    /// learn. A damaged record is not found.
    pub(super) fn find(&self, key: &ImageKey, buffer: &mut Vec<u8>) -> Option<(Range<usize>, bool)> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let mut ends = [0; 16];
        read_exact_at(&self.file, &mut ends, HEADER_BYTES as u64 + 8 * bucket(key, self.bucket_bits)).ok()?;
        let (start, end) = (u64_at(&ends, 0), u64_at(&ends, 8));
        let len = end.checked_sub(start).filter(|&len| len <= MAX_BUCKET_BYTES)?;
        if start < records_start(self.bucket_bits) || end > self.len_bytes {
            return None;
        }
        buffer.clear();
        buffer.try_reserve(len as usize).ok()?;
        buffer.resize(len as usize, 0);
        read_exact_at(&self.file, buffer, start).ok()?;
        let mut at = 0;
        loop {
            let record = buffer.get(at..)?;
            let head = record.first_chunk::<RECORD_HEAD_BYTES>()?;
            let (points_bytes, is_final) = points_len(head);
            if ImageKey::from_bytes(*head.first_chunk()?) == *key {
                let points = record.get(RECORD_HEAD_BYTES..RECORD_HEAD_BYTES + points_bytes)?;
                (crc_of(head, points) == u32_at(head, 20)).then_some(())?;
                self.hits.fetch_add(1, Ordering::Relaxed);
                let start = at + RECORD_HEAD_BYTES;
                return Some((start..start + points_bytes, is_final));
            }
            at += RECORD_HEAD_BYTES + points_bytes;
        }
    }

    /// Whether images of this process have been found here.
    pub(super) fn is_used(&self) -> bool {
        self.hits.load(Ordering::Relaxed) > 0
    }

    /// Whether too many images were looked up in vain, so that the file must be one of other images.
    pub(super) fn is_foreign(&self) -> bool {
        !self.is_used() && self.lookups.load(Ordering::Relaxed) >= PATIENCE
    }

    /// Notes in the file's time that it was used.
    pub(super) fn touch(&self) -> io::Result<()> {
        self.file.set_modified(std::time::SystemTime::now())
    }

    /// All records, from first to last.
    pub(super) fn records(&self) -> io::Result<Records> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(records_start(self.bucket_bits)))?;
        Ok(Records { reader: BufReader::with_capacity(1 << 18, file) })
    }
}

/// An image's entry points as a record has them.
pub(super) struct Record {
    pub(super) key: ImageKey,
    pub(super) points: Arc<[u8]>,
    pub(super) is_final: bool,
}

impl Record {
    pub(super) fn len_bytes(&self) -> u64 {
        (RECORD_HEAD_BYTES + self.points.len()) as u64
    }
}

/// The records of a file, in their order. They end where one is damaged.
pub(super) struct Records {
    reader: BufReader<File>,
}

impl Iterator for Records {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<io::Result<Record>> {
        self.read().transpose()
    }
}

impl Records {
    fn read(&mut self) -> io::Result<Option<Record>> {
        let mut head = [0; RECORD_HEAD_BYTES];
        if !read_whole(&mut self.reader, &mut head)? {
            return Ok(None);
        }
        let (points_bytes, is_final) = points_len(&head);
        if points_bytes > MAX_POINTS_BYTES {
            return Ok(None);
        }
        let mut points = vec![0; points_bytes];
        if !read_whole(&mut self.reader, &mut points)? {
            return Ok(None);
        }
        let key = ImageKey::from_bytes(*head.first_chunk().unwrap_or(&[0; 16]));
        let is_whole = crc_of(&head, &points) == u32_at(&head, 20);
        Ok(is_whole.then(|| Record { key, points: points.into(), is_final }))
    }
}

/// Fills `buffer`. Returns `false` at the end of the file.
fn read_whole(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Bytes of a file of this many images besides its records.
pub(super) fn frame_bytes(images: u64) -> u64 {
    records_start(bucket_bits(images))
}

/// Writes a file that [`Segment::open`] opens. `records` come in the order of their keys, each key once; `most` is the
/// largest number of them. The file at `path` must not exist. It gets its header last.
pub(super) fn write(
    path: &Path,
    check: &KeyCheck,
    most: u64,
    records: impl Iterator<Item = io::Result<impl Borrow<Record>>>,
) -> io::Result<()> {
    // The table of buckets and the records are written side by side.
    let mut file = BufWriter::with_capacity(1 << 18, shared_folder::create_file(path)?);
    let mut table = BufWriter::new(file::open_by(path, File::options().write(true))?.0);
    let bits = bucket_bits(most);
    let mut at = records_start(bits);
    file.seek(SeekFrom::Start(at))?;
    table.seek(SeekFrom::Start(HEADER_BYTES as u64))?;
    let (mut images, mut buckets) = (0_u64, 0_u64);
    for record in records {
        let record = record?;
        let record: &Record = record.borrow();
        if record.points.len() > MAX_POINTS_BYTES {
            continue;
        }
        while buckets <= bucket(&record.key, bits) {
            table.write_all(&at.to_le_bytes())?;
            buckets += 1;
        }
        let mut head = [0; RECORD_HEAD_BYTES];
        head[..16].copy_from_slice(&record.key.to_bytes());
        let len = record.points.len() as u32 | if record.is_final { FINAL } else { 0 };
        head[16..20].copy_from_slice(&len.to_le_bytes());
        let crc = crc_of(&head, &record.points);
        head[20..].copy_from_slice(&crc.to_le_bytes());
        file.write_all(&head)?;
        file.write_all(&record.points)?;
        at += record.len_bytes();
        images += 1;
    }
    while buckets <= 1 << bits {
        table.write_all(&at.to_le_bytes())?;
        buckets += 1;
    }
    file.flush()?;
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..24].copy_from_slice(check);
    header[24..32].copy_from_slice(&at.to_le_bytes());
    header[32..40].copy_from_slice(&images.to_le_bytes());
    header[40..44].copy_from_slice(&bits.to_le_bytes());
    let crc = crc32c::crc32c(&header[..HEADER_BYTES - 4]);
    header[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    table.seek(SeekFrom::Start(0))?;
    table.write_all(&header)?;
    table.flush()
}

fn bucket_bits(images: u64) -> u32 {
    (images / BUCKET_IMAGES).max(1).ilog2()
}

fn records_start(bucket_bits: u32) -> u64 {
    HEADER_BYTES as u64 + 8 * ((1 << bucket_bits) + 1)
}

fn bucket(key: &ImageKey, bits: u32) -> u64 {
    key.first_bits(bits)
}

/// Length of a record's points in bytes, and whether there are no more to learn.
fn points_len(head: &[u8; RECORD_HEAD_BYTES]) -> (usize, bool) {
    let len = u32_at(head, 16);
    ((len & !FINAL) as usize, len & FINAL != 0)
}

fn crc_of(head: &[u8; RECORD_HEAD_BYTES], points: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&head[..20]), points)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
