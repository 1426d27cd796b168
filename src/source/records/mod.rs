//! Images in shards: files that hold many records each.
//!
//! Random access and streams must agree about every sample and about all damage, so each format has one parser
//! (`parser`). A record that cannot be parsed, together with the rest of its shard, becomes one sample whose reading
//! fails. Lengths from files are compared with the file's length before anything is allocated. Files are read by
//! position, because a mapped file that is truncated raises SIGBUS.
//!
//! [`RecordShards`] reads remote shards at random over another reader by position. Its window grows to 1 MiB where less
//! than 32 kB lie between headers, because a request's delay costs as much as reading 32 kB.

pub(crate) mod bytes;
pub(crate) mod entry;
pub(crate) mod fields;
mod format;
mod found;
mod index;
pub(crate) mod label;
mod options;
pub(super) mod parser;
pub(crate) mod recordio;
mod scan;
mod shard;
pub(crate) mod tar;
pub(crate) mod tfrecord;

use super::window::{ReadAt, Window};
use super::{Extent, KEEP_BUFFER_BYTES, ReadRequest, Sample, Source, as_in, no_such_sample, shared_source};
use crate::decode::probe;
use crate::error::{Error, Result};
use crate::os::file::most_open;
use crate::os::memory;
use crate::targets::{self, Target};
use entry::Entry;
use fields::FieldReader;
#[cfg(feature = "parquet")]
pub(super) use fields::stated_size;
pub use format::RecordFormat;
pub(crate) use format::{Checked, NewSample};
pub(super) use format::{damaged, no_samples};
pub(super) use found::Texts;
use found::{FAULT, NAME, NO_TEXT, NUMBER, Record, ScannedShard, UNLABELED};
use label::{NO_IMAGE, Numbering};
pub use options::RecordOptions;
pub(super) use options::no_class;
use parser::Parser;
use scan::{scan_all, starts};
use sha2::{Digest, Sha256};
pub(super) use shard::Shard;
use shard::{Handle, OpenFiles};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
pub(super) use tar::FOLDER;

/// Bytes of samples of remote shards that may be fetched before they are read.
pub(super) const AHEAD_BYTES: u64 = 64 << 20;

shared_source! {
    /// Images in shards of records: WebDataset tar archives, MXNet's RecordIO, TFRecord.
    ///
    /// Samples come in the order of the shards as given, and within a shard in the order of the file. An index in memory
    /// takes 16 bytes for each sample. A parallel scan of all shards makes it, and it is stored for the next time (see
    /// [`RecordOptions::keep_index`]). If the size or modification time of a shard has changed, its index is rebuilt.
    ///
    /// Labels that are names are numbered in the order of the sorted names, which are then the
    /// [`classes`](Source::classes). A set in which no sample has a label has none ([`Source::has_labels`]), unless a field
    /// sounds like that of labels: then opening asks which one it is. If only some samples have no label, those cannot be
    /// read.
    ///
    /// Damage does not prevent opening. A damaged record, together with the rest of its shard, counts as one sample whose
    /// [`read`](Source::read) returns [`Error::Decode`] with shard and offset; a pipeline's [`OnError`](crate::OnError)
    /// decides about it. A shard that does not end as its format says has such a sample too: a tar archive ends with two
    /// blocks of zeros and may have as many more zeros as fill up a record of 20 blocks, or of a power of two of up to 1
    /// MiB. Files are read by position and not mapped into memory, since truncating a mapped file ends the process that
    /// reads it. A quarter of the files that the process may open stay open, 1,024 at most.
    ///
    /// An index is used only if its shard can hold its number of records, at least 512 bytes each in a tar archive, 8 in a
    /// RecordIO file and 16 in a TFRecord file, and if no name of a label and no description of damage takes more than 1
    /// kB.
    ///
    /// ```
    /// # use warpfeed::source::{RecordFormat, RecordOptions, RecordShards, Source};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let shard = folder.path().join("train-000000.tar");
    /// # let images = warpfeed::source::EncodedImages::new([(vec![0xff, 0xd8, 0xff], 7)]);
    /// # let member = |name: &str, content: &[u8]| {
    /// #     let mut block = vec![0; 512];
    /// #     block[..name.len()].copy_from_slice(name.as_bytes());
    /// #     block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    /// #     block[148..156].fill(b' ');
    /// #     let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    /// #     block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    /// #     block.extend(content);
    /// #     block.resize(1024, 0);
    /// #     block
    /// # };
    /// # let end = vec![0; 1024];
    /// # std::fs::write(&shard, [member("000.jpg", &[0xff, 0xd8, 0xff]), member("000.cls", b"7"), end].concat()).unwrap();
    /// // A shard with the files 000.jpg and 000.cls.
    /// let source = RecordShards::open(RecordFormat::WebDataset, &[shard], &RecordOptions::default())?;
    /// assert_eq!((source.len(), source.label(0)), (1, Some(7)));
    /// assert_eq!(source.encoded(0)?, [0xff, 0xd8, 0xff]);
    /// assert!(source.name(0).ends_with("train-000000.tar/000.jpg"));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// A field of targets is, in WebDataset, a part by its ending, or `json.FIELD`, a field of the JSON part; in
    /// TFRecord, a feature; in RecordIO, `label`, the array of labels. The first target that is read from a shard scans
    /// its headers for the places where samples begin, which takes 8 bytes of memory for each sample. TFRecord needs no
    /// such scan: a record holds both image and field and is read once.
    ///
    /// Fields ([`ReadRequest::fields`]) are read likewise: in WebDataset from the JSON part and, for masks of the
    /// image, from parts that end in `NAME.png`; in TFRecord from features. docs/detection.md describes both.
    ///
    /// The name of a sample is its shard and, in WebDataset, its file name, which is read from the shard; otherwise the
    /// shard and the offset. The fingerprint is a hash of the lengths and labels of all samples, which does not depend
    /// on how they are split into shards. Clones share what is in memory.
    pub struct RecordShards(Shards)
}

/// The samples of shards.
struct Shards {
    format: RecordFormat,
    options: RecordOptions,
    shards: Vec<Shard>,
    kept_open: OpenFiles,
    records: Vec<Record>,
    faults: Vec<String>,
    classes: Vec<String>,
    /// Whether samples have labels.
    labeled: bool,
    skipped_files: u64,
}

impl RecordShards {
    /// Opens `shards`, in the given order.
    ///
    /// # Errors
    /// [`Error::Io`] if a shard cannot be read, [`Error::Decode`] if the shards hold only damage, [`Error::Parameter`]
    /// if there is no shard, no shard has a sample, a shard is not a regular file, some labels are numbers and some
    /// names, the field that was named for labels is in no sample, a field of another name may hold them, or a class is
    /// named twice.
    pub fn open(format: RecordFormat, shards: &[PathBuf], options: &RecordOptions) -> Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(most_open());
        Self::open_each(format, shards.len(), &|shard| Shard::file(&shards[shard]), threads, options)
    }

    /// Opens `count` shards with `open` and scans them on at most `threads` threads.
    pub(super) fn open_each(
        format: RecordFormat,
        count: usize,
        open: &(impl Fn(usize) -> Result<Shard> + Sync),
        threads: usize,
        options: &RecordOptions,
    ) -> Result<Self> {
        Shards::open(format, count, open, threads, options).map(|shards| Self(Arc::new(shards)))
    }

    /// Names the classes, unless the labels did or a label has no name among `classes`.
    pub(super) fn with_classes(mut self, classes: Vec<String>) -> Self {
        if let Some(shards) = Arc::get_mut(&mut self.0) {
            shards.name_classes(classes);
        }
        self
    }
}

impl Shards {
    fn open(
        format: RecordFormat,
        count: usize,
        open: &(impl Fn(usize) -> Result<Shard> + Sync),
        threads: usize,
        options: &RecordOptions,
    ) -> Result<Self> {
        format.rules().check_options(options)?;
        let mut found = scan_all(format, count, open, threads, options)?;
        let mut this = Self {
            format,
            options: options.clone(),
            shards: Vec::with_capacity(count),
            kept_open: OpenFiles::new(count),
            records: Vec::new(),
            faults: Vec::new(),
            classes: Vec::new(),
            labeled: false,
            skipped_files: 0,
        };
        let all = || found.iter().flat_map(|(_, found)| &found.records);
        this.records.reserve_exact(all().count());
        let kinds = all().fold([0_u64; 4], |mut kinds, record| {
            kinds[record.label_kind() as usize] += 1;
            kinds
        });
        this.labeled = kinds[NUMBER as usize] + kinds[NAME as usize] > 0;
        if !this.labeled && kinds[UNLABELED as usize] > 0 {
            let without = found.iter().find(|(_, found)| found.records.iter().any(|r| r.label_kind() == UNLABELED));
            if let Some((shard, found)) = without {
                check_unlabeled(format, options, shard, found)?;
            }
        }
        let is_number = |record: &&Record| record.label_kind() == NUMBER;
        let numbering = Numbering::new(
            found.iter().flat_map(|(_, found)| found.names.list.iter().map(String::as_str)).collect(),
            &options.classes,
            all().find(is_number).map(|record| record.label),
            |label| all().any(|record| is_number(&record) && record.label == label),
        )?;
        let mut faults = Texts::default();
        for (mut shard, found) in found.drain(..) {
            shard.first = this.records.len() as u64;
            this.shards.push(shard);
            this.skipped_files += found.skipped_files;
            // Texts are numbered anew, over all shards.
            let names: Vec<_> = found.names.list.iter().map(|name| numbering.label(name)).collect();
            let kept: Vec<u32> = found.faults.list.iter().map(|text| faults.number(text).unwrap_or(NO_TEXT)).collect();
            for mut record in found.records {
                let label = match record.label_kind() {
                    NAME => names[record.label as usize].clone(),
                    NUMBER => options.check_class(record.label),
                    UNLABELED if this.labeled => Err(label::differs(false).to_owned()),
                    FAULT => {
                        record.set_label(FAULT, kept.get(record.label as usize).copied().unwrap_or(NO_TEXT));
                        this.records.push(record);
                        continue;
                    }
                    _ => Ok(record.label),
                };
                match label {
                    Ok(label) if record.label_kind() == UNLABELED => record.set_label(UNLABELED, label),
                    Ok(label) => record.set_label(NUMBER, label),
                    Err(message) => record.set_label(FAULT, faults.number(&message).unwrap_or(NO_TEXT)),
                }
                this.records.push(record);
            }
        }
        this.classes = numbering.classes;
        this.faults = faults.list;
        if kinds[NUMBER as usize] + kinds[NAME as usize] + kinds[UNLABELED as usize] == 0 {
            return Err(this.no_samples());
        }
        Ok(this)
    }

    fn name_classes(&mut self, classes: Vec<String>) {
        let labels = self.records.iter().filter(|record| record.label_kind() == NUMBER).map(|record| record.label);
        if self.classes.is_empty() && labels.max().is_none_or(|last| (last as usize) < classes.len()) {
            self.classes = classes;
        }
    }

    /// The error for shards without a sample: the first damage, or the parts that were expected.
    fn no_samples(&self) -> Error {
        if !self.records.is_empty() {
            return self.damaged(0);
        }
        let first = self.shards.first().map_or(String::new(), |shard| shard.name.display().to_string());
        no_samples(self.format, &self.options, (self.shards.len(), &first), self.skipped_files)
    }

    fn shard(&self, index: u64) -> &Shard {
        assert!(index < self.len(), "no sample {index} among {}", self.len());
        &self.shards[self.shards.partition_point(|shard| shard.first <= index) - 1]
    }

    /// Returns a sample's record, its shard, and the opened shard.
    fn find(&self, index: u64, operation: &'static str) -> Result<(Record, &Shard, Handle<'_>)> {
        let found = usize::try_from(index).ok().and_then(|index| self.records.get(index));
        let record = *found.ok_or_else(|| no_such_sample(operation, index, self.len()))?;
        if record.label_kind() == FAULT {
            return Err(self.damaged(index));
        }
        let shard = self.shard(index);
        Ok((record, shard, shard.open(&self.kept_open)?))
    }

    /// Number of bytes that are read for a record.
    fn read_bytes(&self, record: Record) -> usize {
        record.len_bytes() as usize + self.format.facts().trailer_bytes as usize
    }

    /// Parses sample `index` again, for the wanted parts besides its image.
    fn entry(
        &self,
        index: u64,
        record: Record,
        (shard, file): (&Shard, &Handle<'_>),
        want: &ReadRequest<'_>,
    ) -> Result<Entry> {
        let start = match self.format.rules().start(record.offset, record.is_split()) {
            Some(start) => start,
            None => shard.start(index, |shard| starts(self.format, &self.options, shard))?,
        };
        let mut window = Window::new(file, shard.len_bytes);
        match Parser::new(self.format, &self.options, want, start).next(&mut window)? {
            Some(entry) if entry.offset == record.offset => Ok(entry),
            _ => {
                let message = "there is no sample as there was when the shard was scanned";
                Err(damaged(self.format, shard.name.display(), record.offset, message))
            }
        }
    }

    /// The error for a record that is a fault.
    fn damaged(&self, index: u64) -> Error {
        let record = self.records[index as usize];
        let message = self.faults.get(record.label as usize).map_or("it is damaged", String::as_str);
        damaged(self.format, self.shard(index).name.display(), record.offset, message)
    }
}

/// Resizes `buffer` to `len_bytes` without clearing the bytes that it had, and frees it first if it is very large.
fn sized(buffer: &mut Vec<u8>, len_bytes: usize) -> Result<&mut [u8]> {
    if buffer.capacity() > KEEP_BUFFER_BYTES && len_bytes < KEEP_BUFFER_BYTES {
        *buffer = Vec::new();
    }
    memory::reserve(buffer, len_bytes, "an encoded image", memory::FEWER_IMAGES)?;
    buffer.resize(len_bytes, 0);
    Ok(buffer)
}

impl Source for Shards {
    fn len(&self) -> u64 {
        self.records.len() as u64
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        let rules = self.format.rules();
        rules.check_wanted(want.target, want.fields)?;
        let (record, shard, file) = self.find(index, "RecordShards::read")?;
        let wrong = |message: String| damaged(self.format, shard.name.display(), record.offset, &message);
        let mut found = None;
        // Fields are compared with the size in the image's header.
        if want.image || !want.fields.is_empty() {
            let buffer = sample.buffer();
            if record.is_split() {
                let window = Window::new(&file, shard.len_bytes);
                recordio::read_split(window, record.offset, buffer)?.map_err(wrong)?;
            } else {
                // The index of a shard may be one of an earlier file with the same name, size and times.
                if !shard.is_remote() && !rules.is_there(&file, record.offset, record.len_bytes().into())? {
                    let message = "there is no file as there was when the shard was scanned: it was changed since";
                    return Err(wrong(message.to_owned()));
                }
                file.read_sample(sized(buffer, self.read_bytes(record))?, record.offset, want.stopped())?;
            }
            let checked = rules.checked(buffer, self.options.image.as_deref(), want).map_err(wrong)?;
            if let Some(Checked { image, target, fields }) = checked {
                sample.keep(image);
                found = Some((target, fields));
            }
        }
        if want.without_image().is_nothing() {
            return Ok(());
        }
        let (target, fields) = match found {
            Some(found) => found,
            None => {
                let Entry { target, fields, .. } = self.entry(index, record, (shard, &file), want)?;
                (target, fields)
            }
        };
        if let Some(field) = want.target {
            sample.set_target(found_target(field, target)?);
        }
        if !want.fields.is_empty() {
            let header = probe(sample.bytes())?;
            let reader =
                FieldReader { storage: self.format.facts().field_storage, options: &self.options, names: want.fields };
            sample.set_fields(reader.read(&fields, &header, || self.name(index).into_owned())?);
        }
        Ok(())
    }

    fn prefetch(&self, index: u64) {
        if let Some(&record) = self.records.get(index as usize)
            && record.label_kind() != FAULT
            && !record.is_split()
        {
            self.shard(index).prefetch(record.offset, self.read_bytes(record) as u64);
        }
    }

    fn extent(&self, index: u64) -> Option<Extent> {
        let record = *self.records.get(usize::try_from(index).ok()?)?;
        if record.label_kind() == FAULT || record.is_split() || !self.format.rules().is_image_alone() {
            return None;
        }
        let file = Arc::clone(self.shard(index).file.as_ref()?);
        Some(Extent { file, offset: record.offset, len_bytes: record.len_bytes().into() })
    }

    fn image_version(&self, index: u64) -> Option<u64> {
        let record = self.records.get(usize::try_from(index).ok()?)?;
        Some(self.shard(index).version_at(record.offset))
    }

    fn ahead_bytes(&self) -> u64 {
        if self.shards.iter().any(Shard::is_remote) { AHEAD_BYTES } else { 0 }
    }

    fn label(&self, index: u64) -> Option<u32> {
        let record = self.records[index as usize];
        (record.label_kind() == NUMBER).then_some(record.label)
    }

    fn has_labels(&self) -> bool {
        self.labeled
    }

    fn check_field(&self, field: &str) -> Result<()> {
        self.format.rules().check_wanted(Some(field), &[])
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        let (shard, record) = (self.shard(index), self.records[index as usize]);
        let (rules, is_read) = (self.format.rules(), record.label_kind() != FAULT);
        let file = (is_read && self.format.facts().has_members).then(|| shard.open(&self.kept_open).ok()).flatten();
        let member = file.and_then(|file| rules.member(&file, record.offset));
        match member {
            Some(member) => format!("{}/{member}", shard.name.display()).into(),
            None => format!("{} at byte {}", shard.name.display(), record.offset).into(),
        }
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn skipped_files(&self) -> u64 {
        self.skipped_files
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Sha256::new();
        for class in &self.classes {
            hash.update((class.len() as u64).to_le_bytes());
            hash.update(class);
        }
        for record in &self.records {
            hash.update(record.len_and_kind.to_le_bytes());
            hash.update(record.label.to_le_bytes());
        }
        hash.finalize().first_chunk().map_or(0, |start| u64::from_le_bytes(*start))
    }
}

impl std::fmt::Debug for Shards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordShards")
            .field("format", &self.format)
            .field("shards", &self.shards.len())
            .field("len", &self.records.len())
            .finish_non_exhaustive()
    }
}

/// Returns the target found in a field, or the error for one that is missing or damaged.
fn found_target(field: &str, found: Option<Result<Target, String>>) -> Result<Target> {
    let found = found.ok_or_else(|| targets::missing(field))?;
    found.map_err(|message| targets::wrong(Some(field), message))
}

/// Checks that a set without labels has none, although a sample of this shard may have a field that was meant: the one
/// that was named, one whose name sounds like that of labels, or parts with labels that belong to no image.
///
/// # Errors
/// [`Error::Parameter`] with the fields that are there.
fn check_unlabeled(format: RecordFormat, options: &RecordOptions, shard: &Shard, found: &ScannedShard) -> Result<()> {
    let first = found.records.iter().find(|record| record.label_kind() == FAULT);
    if let Some(text) = first.and_then(|record| found.faults.list.get(record.label as usize))
        && text.contains(NO_IMAGE)
    {
        return Err(damaged(format, shard.name.display(), first.map_or(0, |record| record.offset), text));
    }
    let names = scan::names(format, options, shard)?;
    label::check_absent(format, options, &names, &shard.name.display())
}

#[cfg(all(test, feature = "cloud"))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Remote bytes that count how often they are read.
    struct Counted(Vec<u8>, Arc<AtomicUsize>);

    impl super::super::window::ReadAt for Counted {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
            Ok(())
        }
    }

    #[test]
    fn a_record_of_tfrecord_is_read_once_for_image_and_target() {
        let (count, field) = (Arc::new(AtomicUsize::new(0)), "image/object/bbox");
        let target = |index: u64| Target::Floats(vec![index as f32, 2.0]);
        let mut bytes = Vec::new();
        for index in 0..3 {
            let (image, target) = ([index as u8; 50], target(index));
            let target = Some((field, &target));
            let sample = NewSample { index, label: Some(7), image: &image, ending: "jpg", target, fields: &[] };
            RecordFormat::TfRecord.rules().write(&sample, &mut bytes).unwrap();
        }
        let open = |_shard| {
            let counted = Box::new(Counted(bytes.clone(), Arc::clone(&count)));
            Ok(Shard::remote("counted", bytes.len() as u64, 0, counted))
        };
        let options = RecordOptions { keep_index: false, ..RecordOptions::default() };
        let source = RecordShards::open_each(RecordFormat::TfRecord, 1, &open, 1, &options).unwrap();
        for index in 0..3 {
            let before = count.load(Ordering::Relaxed);
            let (mut sample, want) = (Sample::default(), ReadRequest::IMAGE.and_target(Some(field)));
            source.read(index, &want, &mut sample).unwrap();
            let found = sample.take_target(&want).unwrap();
            assert_eq!((sample.bytes(), found), (&[index as u8; 50][..], Some(target(index))));
            assert_eq!(count.load(Ordering::Relaxed) - before, 1);
        }
        let want = ReadRequest::IMAGE.and_target(Some("image/mask"));
        let missing = source.read(1, &want, &mut Sample::default()).unwrap_err();
        assert!(missing.is_bad_sample() && missing.to_string().contains("image/mask"), "{missing}");
    }
}
