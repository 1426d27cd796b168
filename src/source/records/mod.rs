//! Images in shards: files that hold many records each.

pub(crate) mod bytes;
pub(crate) mod entry;
mod index;
pub(crate) mod label;
pub(super) mod parser;
pub(crate) mod recordio;
mod shard;
pub(crate) mod tar;
pub(crate) mod tfrecord;

use super::window::{ReadAt, Window};
use super::{KEEP_BUFFER_BYTES, MAX_ENCODED_BYTES, Source, no_fields, no_such_sample};
use crate::error::{Error, Result};
use crate::file::most_open;
use crate::memory;
use crate::target::{self, Target};
use entry::Entry;
use label::Label;
use parser::Parser;
use sha2::{Digest, Sha256};
pub(super) use shard::Shard;
use shard::{Handle, OpenFiles};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
pub(super) use tar::FOLDER;

/// Bytes of samples of remote shards that are fetched before they are read.
pub(super) const AHEAD_BYTES: u64 = 64 << 20;

/// Different texts (names of labels, kinds of damage) that are kept of one shard.
const MAX_TEXTS: usize = 100_000;

/// The formats of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordFormat {
    /// Tar archives in the manner of WebDataset: consecutive files whose names agree up to the first dot are the parts
    /// of one sample. Of each sample the first part that ends in .jpg, .jpeg, .png, .webp, .pgm or .ppm is its image,
    /// and its label is in the part .cls (a number or a name), otherwise in the field `label` of .json. An image or a label
    /// with the ending of one that the sample has already begins another sample. POSIX pax headers and GNU long names are
    /// understood. Links and devices inside are passed over.
    WebDataset,
    /// MXNet's RecordIO, as its im2rec writes it. Of several labels the first counts. Records come in the order of the
    /// .rec file; the .idx beside it is not needed.
    RecordIo,
    /// TensorFlow's TFRecord files of `tf.train.Example`: the image is the feature `image/encoded`, the label
    /// `image/class/label`, taken as it stands (some data sets count from 1). The checksums are checked.
    TfRecord,
}

impl RecordFormat {
    /// The format that a file's name tells, by its ending.
    pub(super) fn by_ending(ending: &str) -> Option<Self> {
        match ending {
            "tar" => Some(Self::WebDataset),
            "rec" => Some(Self::RecordIo),
            "tfrecord" | "tfrecords" => Some(Self::TfRecord),
            _ => None,
        }
    }

    /// Refuses a field of targets that no record can have.
    pub(super) fn check_field(self, field: Option<&str>) -> Result<()> {
        match (self, field) {
            (Self::RecordIo, Some(field)) if field != recordio::LABELS => {
                Err(no_fields("the array of labels as `label`", field))
            }
            _ => Ok(()),
        }
    }

    /// No record takes less of its shard.
    fn min_record_bytes(self) -> u64 {
        match self {
            Self::WebDataset => tar::BLOCK_BYTES,
            Self::RecordIo => recordio::HEAD_BYTES,
            Self::TfRecord => tfrecord::MIN_BYTES,
        }
    }

    /// Appends a sample to a shard.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a label that the format cannot hold.
    pub(crate) fn write(self, sample: &NewSample<'_>, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::WebDataset => tar::write(sample, out),
            Self::RecordIo => recordio::write(sample, out)?,
            Self::TfRecord => tfrecord::write(sample, out),
        }
        Ok(())
    }

    /// Refuses to pack a field of targets that could not be read again.
    ///
    /// # Errors
    /// [`Error::Parameter`] with what the format can hold.
    pub(crate) fn check_packed_field(self, field: &str) -> Result<()> {
        let (is_kept, expected) = match self {
            Self::WebDataset => (tar::can_name(field), tar::NAMED),
            Self::RecordIo => (field == recordio::LABELS, "`label`, RecordIO's array of numbers"),
            Self::TfRecord => (tfrecord::can_name(field), tfrecord::NAMED),
        };
        if is_kept { Ok(()) } else { Err(Error::parameter("pack", "target", expected, field)) }
    }

    /// Refuses a target that would not come back as it is.
    ///
    /// # Errors
    /// [`Error::Target`], by which its sample is bad.
    pub(crate) fn check_packed(self, field: &str, target: &Target, label: u32) -> Result<()> {
        match self {
            Self::WebDataset => tar::check(field, target),
            Self::RecordIo => recordio::check(target, label),
            Self::TfRecord => Ok(()),
        }
        .map_err(|message| target::wrong(Some(field), message))
    }

    /// What ends a shard.
    pub(crate) fn end(self) -> &'static [u8] {
        match self {
            Self::WebDataset => tar::END,
            Self::RecordIo | Self::TfRecord => &[],
        }
    }

    /// The name in messages.
    fn name(self) -> &'static str {
        match self {
            Self::WebDataset => "tar",
            Self::RecordIo => "RecordIO",
            Self::TfRecord => "TFRecord",
        }
    }
}

/// A sample to be written.
pub(crate) struct NewSample<'a> {
    pub(crate) index: u64,
    pub(crate) label: u32,
    pub(crate) image: &'a [u8],
    /// The ending of the image's file name.
    pub(crate) ending: &'a str,
    /// What the field of targets that is packed is called, and its target.
    pub(crate) target: Option<(&'a str, &'a Target)>,
}

/// How shards are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordOptions {
    /// Which part of a sample is its image: an ending (`left.jpg`) in WebDataset, a feature's name in TFRecord. `None`
    /// for the usual one.
    pub image: Option<String>,
    /// Which part is its label: an ending (`cls`), an ending and a field (`json.species`), or `folder`, in WebDataset; a
    /// feature's name in TFRecord. `None` for the usual one.
    ///
    /// With `folder` the label of an image is the name of the folder that it has in the archive, or of the archive in the
    /// archive, as ImageNet comes (`ILSVRC2012_img_train.tar` holds an archive a class).
    pub label: Option<String>,
    /// The names of the classes, label 0 first, by which labels that are names become numbers. Without them
    /// [`RecordShards`] sorts the names that there are, and a stream, which cannot know them all, refuses names.
    pub classes: Vec<String>,
    /// Whether an index is kept for the next time, in a hidden file beside each shard or, where that cannot be written
    /// and for remote shards, in the user's cache folder (`$XDG_CACHE_HOME/warpfeed`).
    pub keep_index: bool,
}

impl Default for RecordOptions {
    /// The usual image and label; the index is kept.
    fn default() -> Self {
        Self { image: None, label: None, classes: Vec::new(), keep_index: true }
    }
}

impl RecordOptions {
    /// The labels of the classes that are named.
    pub(super) fn numbers(&self) -> Result<HashMap<String, u32>> {
        numbers(&self.classes)
    }

    /// Refuses names of classes for what has its own.
    pub(super) fn without_classes(&self, source: &str) -> Result<()> {
        if self.classes.is_empty() {
            return Ok(());
        }
        Err(Error::parameter("open", "classes", "given for tar, RecordIO or TFRecord shards", source))
    }

    /// A label that is a number, unless classes are named and it is beyond them.
    pub(super) fn check_class(&self, label: u32) -> Result<u32, String> {
        if self.classes.is_empty() || (label as usize) < self.classes.len() {
            return Ok(label);
        }
        Err(format!("its label {label} has no name among the {} classes that were given", self.classes.len()))
    }
}

/// The labels of classes by their names.
fn numbers(classes: &[String]) -> Result<HashMap<String, u32>> {
    let mut numbers = HashMap::with_capacity(classes.len());
    for (label, name) in (0..).zip(classes) {
        if numbers.insert(name.clone(), label).is_some() {
            return Err(Error::parameter("open", "classes", "different names", format!("{name} twice")));
        }
    }
    Ok(numbers)
}

/// Why a name is no label.
pub(super) fn no_class(name: &str) -> String {
    format!("its label {name:?} is not among the classes that were given")
}

/// Where a sample lies in its shard: 16 bytes, which a million samples in memory are multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    /// Where its image starts; where the record starts if it is in several parts; what the fault is about.
    offset: u64,
    /// The length in bytes, below 2^29; [`SPLIT`]; what `label` is, from [`LABEL_SHIFT`] on.
    len_and_kind: u32,
    /// The label, or the number of its name or of the fault among the texts.
    label: u32,
}

/// The record is in several parts.
const SPLIT: u32 = 1 << 31;
const LABEL_SHIFT: u32 = 29;
const LEN_MASK: u32 = (1 << LABEL_SHIFT) - 1;

const NUMBER: u32 = 0;
const NAME: u32 = 1;
const UNLABELED: u32 = 2;
const FAULT: u32 = 3;

/// The number of a text beyond [`MAX_TEXTS`].
const NO_TEXT: u32 = u32::MAX;

const _: () = assert!(MAX_ENCODED_BYTES <= LEN_MASK as u64);

impl Record {
    fn len_bytes(self) -> u32 {
        self.len_and_kind & LEN_MASK
    }

    fn is_split(self) -> bool {
        self.len_and_kind & SPLIT != 0
    }

    fn label_kind(self) -> u32 {
        self.len_and_kind >> LABEL_SHIFT & 3
    }

    fn set_label(&mut self, kind: u32, label: u32) {
        self.len_and_kind = self.len_and_kind & !(3 << LABEL_SHIFT) | kind << LABEL_SHIFT;
        self.label = label;
    }
}

/// Different texts, numbered.
#[derive(Debug, Default, PartialEq)]
struct Texts {
    list: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Texts {
    /// The text's number; `None` once there are too many.
    fn number(&mut self, text: &str) -> Option<u32> {
        if let Some(&number) = self.numbers.get(text) {
            return Some(number);
        }
        let number = u32::try_from(self.list.len()).ok().filter(|_| self.list.len() < MAX_TEXTS)?;
        self.list.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        Some(number)
    }
}

/// What a scan finds in a shard. Damage is a sample too, one that gives an error when it is read, so that the
/// pipeline's policy decides about it and it is counted and named as every bad sample is.
#[derive(Debug, Default, PartialEq)]
struct Found {
    records: Vec<Record>,
    names: Texts,
    faults: Texts,
    skipped_files: u64,
}

impl Found {
    fn add(&mut self, Entry { offset, len_bytes, split, label, .. }: Entry) {
        match label {
            Ok(label) => self.sample(offset, len_bytes, split, label),
            Err(message) => self.fault(offset, &message),
        }
    }

    /// A sample of `len_bytes`, which are below the limit, at `offset`.
    fn sample(&mut self, offset: u64, len_bytes: u64, split: bool, label: Label) {
        let (kind, label) = match label {
            Label::Number(label) => (NUMBER, label),
            Label::None => (UNLABELED, 0),
            Label::Name(name) => match self.names.number(&name) {
                Some(number) => (NAME, number),
                None => return self.fault(offset, &format!("it has more than {MAX_TEXTS} different labels")),
            },
        };
        let split = if split { SPLIT } else { 0 };
        self.records.push(Record { offset, len_and_kind: len_bytes as u32 | split | kind << LABEL_SHIFT, label });
    }

    /// A sample that cannot be had, or the rest of a shard that cannot be made out.
    fn fault(&mut self, offset: u64, message: &str) {
        let number = self.faults.number(message).unwrap_or(NO_TEXT);
        self.records.push(Record { offset, len_and_kind: FAULT << LABEL_SHIFT, label: number });
    }
}

/// Images in shards of records: WebDataset tar archives, MXNet's RecordIO, TFRecord.
///
/// Samples come in the order of the shards as given, and in each in the order of the file. An index of 16 bytes a sample
/// is in memory. It is made by passing over all shards, in parallel, and kept for the next time (see
/// [`RecordOptions::keep_index`]); an index whose shard has another size or time of change is made anew.
///
/// Labels that are names are numbered in the order of the sorted names, which are then the [`classes`](Source::classes).
/// Where no sample has a label, all labels are 0; where only some have none, these cannot be read.
///
/// Damage does not prevent opening. A record that cannot be made out, and the rest of a shard behind it, count as one
/// sample whose [`read`](Source::read) gives [`Error::Decode`] with shard and offset: a pipeline's
/// [`OnError`](crate::OnError) decides about it. So does a shard that does not end as its format says: a tar archive
/// ends with two blocks of zeros, and behind these has no more zeros than fill up a record of 20 blocks, or of up to 1 MiB
/// if that is a power of two. Files are read by position and not mapped into memory, since a mapped file that is truncated
/// meanwhile ends the process. A quarter of the files that the process may open stay open, 1,024 at most.
///
/// An index is believed only if it is no longer than its shard's length allows: a record for each 512 bytes of a tar
/// archive, 8 of a RecordIO file, 16 of a TFRecord file, and 1 kB for each kind of damage or name of a label.
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
/// assert_eq!((source.len(), source.label(0)), (1, 7));
/// assert_eq!(source.read(0, &mut Vec::new())?, [0xff, 0xd8, 0xff]);
/// assert!(source.name(0).ends_with("train-000000.tar/000.jpg"));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub struct RecordShards {
    format: RecordFormat,
    options: RecordOptions,
    shards: Vec<Shard>,
    kept_open: OpenFiles,
    records: Vec<Record>,
    faults: Vec<String>,
    classes: Vec<String>,
    skipped_files: u64,
}

impl RecordShards {
    /// Opens `shards`, in this order.
    ///
    /// # Errors
    /// [`Error::Io`] if a shard or its index cannot be read, [`Error::Parameter`] if there is no shard or no sample in
    /// any of them, or some labels are numbers and some names.
    pub fn open(format: RecordFormat, shards: &[PathBuf], options: &RecordOptions) -> Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(most_open());
        Self::open_each(format, shards.len(), &|shard| Shard::file(&shards[shard]), threads, options)
    }

    /// Opens `count` shards that `open` gives, scanned by as many `threads`.
    pub(super) fn open_each(
        format: RecordFormat,
        count: usize,
        open: &(impl Fn(usize) -> Result<Shard> + Sync),
        threads: usize,
        options: &RecordOptions,
    ) -> Result<Self> {
        let mut found = scan_all(format, count, open, threads, options)?;
        let classes = if options.classes.is_empty() { sorted_names(&found) } else { options.classes.clone() };
        let numbers = numbers(&classes)?;
        let mut this = Self {
            format,
            options: options.clone(),
            shards: Vec::with_capacity(count),
            kept_open: OpenFiles::new(most_open()),
            records: Vec::new(),
            faults: Vec::new(),
            classes: Vec::new(),
            skipped_files: 0,
        };
        this.records.reserve_exact(found.iter().map(|(_, found)| found.records.len()).sum());
        let kinds = found.iter().flat_map(|(_, found)| &found.records).fold([0_u64; 4], |mut kinds, record| {
            kinds[record.label_kind() as usize] += 1;
            kinds
        });
        if kinds[NUMBER as usize] > 0 && kinds[NAME as usize] > 0 {
            let got = format!("{} numbers and {} names", kinds[NUMBER as usize], kinds[NAME as usize]);
            return Err(Error::parameter("RecordShards::open", "labels", "all numbers or all names", got));
        }
        let labeled = kinds[NUMBER as usize] + kinds[NAME as usize] > 0;
        let mut faults = Texts::default();
        for (mut shard, found) in found.drain(..) {
            shard.first = this.records.len() as u64;
            this.shards.push(shard);
            this.skipped_files += found.skipped_files;
            // The texts of all shards share their numbers.
            let names: Vec<Option<u32>> = found.names.list.iter().map(|name| numbers.get(name).copied()).collect();
            let kept: Vec<u32> = found.faults.list.iter().map(|text| faults.number(text).unwrap_or(NO_TEXT)).collect();
            for mut record in found.records {
                let label = match record.label_kind() {
                    NAME => {
                        names[record.label as usize].ok_or_else(|| no_class(&found.names.list[record.label as usize]))
                    }
                    NUMBER => options.check_class(record.label),
                    UNLABELED if labeled => Err("it has no label, and others have".to_owned()),
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
        this.classes = classes;
        this.faults = faults.list;
        if kinds[NUMBER as usize] + kinds[NAME as usize] + kinds[UNLABELED as usize] == 0 {
            return Err(this.no_samples());
        }
        Ok(this)
    }

    /// Names the classes, unless the labels did, where there is a name for every label.
    pub(super) fn with_classes(mut self, classes: Vec<String>) -> Self {
        let labels = self.records.iter().filter(|record| record.label_kind() != FAULT).map(|record| record.label);
        if self.classes.is_empty() && labels.max().is_none_or(|last| (last as usize) < classes.len()) {
            self.classes = classes;
        }
        self
    }

    /// The error for shards without one sample: the first damage, or what was looked for.
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

    /// A sample's record, and its shard, open.
    fn find(&self, index: u64, operation: &'static str) -> Result<(Record, &Shard, Handle<'_>)> {
        let found = usize::try_from(index).ok().and_then(|index| self.records.get(index));
        let record = *found.ok_or_else(|| no_such_sample(operation, index, self.len()))?;
        if record.label_kind() == FAULT {
            return Err(self.damaged(index));
        }
        let shard = self.shard(index);
        Ok((record, shard, shard.open(&self.kept_open)?))
    }

    /// How many bytes are read of a record: in TFRecord their checksum as well.
    fn read_bytes(&self, record: Record) -> usize {
        record.len_bytes() as usize
            + if self.format == RecordFormat::TfRecord { tfrecord::CRC_BYTES as usize } else { 0 }
    }

    /// The error of a record that is a fault.
    fn damaged(&self, index: u64) -> Error {
        let record = self.records[index as usize];
        let message = self.faults.get(record.label as usize).map_or("it is damaged", String::as_str);
        damaged(self.format, self.shard(index).name.display(), record.offset, message)
    }
}

/// The error for damage in a shard.
pub(super) fn damaged(format: RecordFormat, shard: impl Display, offset: u64, message: &str) -> Error {
    Error::decode(format.name(), format!("{shard} at byte {offset}: {message}"))
}

/// The error for shards, so many and the first of this name, that hold no sample but so many other records.
pub(super) fn no_samples(
    format: RecordFormat,
    options: &RecordOptions,
    (shards, first): (usize, &str),
    others: u64,
) -> Error {
    let image = match (format, &options.image) {
        (RecordFormat::WebDataset, None) => "parts ending in .jpg, .jpeg, .png, .webp, .pgm or .ppm".to_owned(),
        (RecordFormat::WebDataset, Some(ending)) => format!("parts ending in .{ending}"),
        (RecordFormat::RecordIo, _) => "records that hold an image".to_owned(),
        (RecordFormat::TfRecord, name) => {
            format!("examples with the feature {}", name.as_deref().unwrap_or(tfrecord::IMAGE))
        }
    };
    let got = format!("{shards} shards, the first {first}, with {others} other records");
    Error::parameter("open", "shards", format!("{} files with {image}", format.name()), got)
}

/// Makes `buffer` `len_bytes` long without clearing what will be overwritten, and gives a giant one back.
fn sized(buffer: &mut Vec<u8>, len_bytes: usize) -> Result<&mut [u8]> {
    if buffer.capacity() > KEEP_BUFFER_BYTES && len_bytes < KEEP_BUFFER_BYTES {
        *buffer = Vec::new();
    }
    memory::reserve(buffer, len_bytes, "an encoded image", memory::FEWER_IMAGES)?;
    buffer.resize(len_bytes, 0);
    Ok(buffer)
}

impl Source for RecordShards {
    fn len(&self) -> u64 {
        self.records.len() as u64
    }

    fn read<'a>(&'a self, index: u64, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        self.read_unless(index, buffer, &AtomicBool::new(false))
    }

    fn read_unless<'a>(&'a self, index: u64, buffer: &'a mut Vec<u8>, stopped: &AtomicBool) -> Result<&'a [u8]> {
        let (record, shard, file) = self.find(index, "RecordShards::read")?;
        let len_bytes = self.read_bytes(record);
        let wrong = |message: String| damaged(self.format, shard.name.display(), record.offset, &message);
        match self.format {
            RecordFormat::RecordIo if record.is_split() => {
                let window = Window::new(&file, shard.len_bytes);
                recordio::read_split(window, record.offset, buffer)?.map_err(wrong)?;
                Ok(buffer)
            }
            RecordFormat::WebDataset | RecordFormat::RecordIo => {
                file.read_sample(sized(buffer, len_bytes)?, record.offset, stopped)?;
                Ok(buffer)
            }
            RecordFormat::TfRecord => {
                file.read_sample(sized(buffer, len_bytes)?, record.offset, stopped)?;
                let (image, _) = tfrecord::checked_image(buffer, self.options.image.as_deref(), None).map_err(wrong)?;
                Ok(&buffer[image])
            }
        }
    }

    fn prefetch(&self, index: u64) {
        if let Some(&record) = self.records.get(index as usize)
            && record.label_kind() != FAULT
            && !record.is_split()
        {
            self.shard(index).prefetch(record.offset, self.read_bytes(record) as u64);
        }
    }

    fn ahead_bytes(&self) -> u64 {
        if self.shards.iter().any(Shard::is_remote) { AHEAD_BYTES } else { 0 }
    }

    fn label(&self, index: u64) -> u32 {
        let record = self.records[index as usize];
        if record.label_kind() == FAULT { 0 } else { record.label }
    }

    /// A part by its ending, or by `json.FIELD` a field of one, in WebDataset; a feature in TFRecord; the array of labels,
    /// `label`, in RecordIO. The first target of a shard, unless it is TFRecord, scans the shard's headers for where its
    /// samples begin, which takes 8 bytes a sample.
    fn target(&self, index: u64, field: Option<&str>) -> Result<Target> {
        let Some(field) = field else { return Ok(Target::Class(self.label(index))) };
        self.format.check_field(Some(field))?;
        let (record, shard, file) = self.find(index, "RecordShards::target")?;
        let start = match self.format {
            RecordFormat::TfRecord => record.offset.saturating_sub(tfrecord::HEAD_BYTES),
            RecordFormat::RecordIo if record.is_split() => record.offset,
            _ => shard.start(index, |shard| starts(self.format, &self.options, shard))?,
        };
        let mut window = Window::new(&file, shard.len_bytes);
        match Parser::new(self.format, &self.options, Some(field), start).next(&mut window)? {
            Some(entry) if entry.offset == record.offset => found_target(field, entry.target),
            _ => {
                let message = "there is no sample as there was when the shard was scanned";
                Err(damaged(self.format, shard.name.display(), record.offset, message))
            }
        }
    }

    /// A record of TFRecord has both, and is read once.
    fn read_with_target<'a>(
        &'a self,
        index: u64,
        field: &str,
        buffer: &'a mut Vec<u8>,
        stopped: &AtomicBool,
    ) -> Result<(&'a [u8], Target)> {
        if self.format != RecordFormat::TfRecord {
            let bytes = self.read_unless(index, buffer, stopped)?;
            return Ok((bytes, self.target(index, Some(field))?));
        }
        let (record, shard, file) = self.find(index, "RecordShards::read")?;
        file.read_sample(sized(buffer, self.read_bytes(record))?, record.offset, stopped)?;
        let found = tfrecord::checked_image(buffer, self.options.image.as_deref(), Some(field));
        let wrong = |message: String| damaged(self.format, shard.name.display(), record.offset, &message);
        let (image, target) = found.map_err(wrong)?;
        Ok((&buffer[image], found_target(field, target)?))
    }

    /// Shard and file name in WebDataset, shard and offset in the others. Reads the file name from the shard.
    fn name(&self, index: u64) -> Cow<'_, str> {
        let (shard, record) = (self.shard(index), self.records[index as usize]);
        let member = match self.format {
            RecordFormat::WebDataset if record.label_kind() != FAULT => {
                shard.open(&self.kept_open).ok().and_then(|file| tar::name_before(&file, record.offset))
            }
            _ => None,
        };
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

    /// Over the lengths and labels of all samples: the same for the same records in other shards.
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

impl std::fmt::Debug for RecordShards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordShards")
            .field("format", &self.format)
            .field("shards", &self.shards.len())
            .field("len", &self.records.len())
            .finish_non_exhaustive()
    }
}

/// The target that was found in a field, if it is there and whole.
fn found_target(field: &str, found: Option<Result<Target, String>>) -> Result<Target> {
    let found = found.ok_or_else(|| target::missing(field))?;
    found.map_err(|message| target::wrong(Some(field), message))
}

/// Where the samples of a shard begin.
fn starts(format: RecordFormat, options: &RecordOptions, shard: &Shard) -> Result<Vec<u64>> {
    let file = shard.open_once()?;
    let mut window = Window::new(&file, shard.len_bytes);
    let (mut parser, mut starts) = (Parser::new(format, options, None, 0), Vec::new());
    while let Some(entry) = parser.next(&mut window)? {
        starts.push(entry.part.start);
    }
    Ok(starts)
}

fn sorted_names(found: &[(Shard, Found)]) -> Vec<String> {
    let mut names: Vec<String> = found.iter().flat_map(|(_, found)| found.names.list.iter().cloned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Scans all shards, or takes their indices, on `threads` threads at most.
fn scan_all(
    format: RecordFormat,
    count: usize,
    open: &(impl Fn(usize) -> Result<Shard> + Sync),
    threads: usize,
    options: &RecordOptions,
) -> Result<Vec<(Shard, Found)>> {
    let next = AtomicUsize::new(0);
    type Scanned = Option<Result<(Shard, Found)>>;
    let results: Vec<Mutex<Scanned>> = (0..count).map(|_| Mutex::default()).collect();
    let work = || {
        while let i = next.fetch_add(1, Ordering::Relaxed)
            && i < count
        {
            let outcome = open(i).and_then(|shard| scan(format, &shard, options).map(|found| (shard, found)));
            let failed = outcome.is_err();
            *results[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            if failed {
                // The rest would be scanned for nothing.
                next.store(count, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for i in 1..threads.min(count) {
            // Where the system gives no more threads, those that there are scan all.
            if std::thread::Builder::new().name(format!("scan {i}")).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    results.into_iter().filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// Scans one shard, or takes its index where that is right.
fn scan(format: RecordFormat, shard: &Shard, options: &RecordOptions) -> Result<Found> {
    let key = index::Key::new(format, options, shard);
    if let Some(found) = options.keep_index.then(|| index::load(shard, &key)).flatten() {
        return Ok(found);
    }
    let file = shard.open_once()?;
    let mut window = Window::new(&file, shard.len_bytes);
    let mut found = Found::default();
    let mut parser = Parser::new(format, options, None, 0);
    while let Some(entry) = parser.next(&mut window)? {
        found.add(entry);
    }
    found.skipped_files = parser.skipped_files();
    if options.keep_index {
        index::keep(shard, &key, &found);
    }
    Ok(found)
}

#[cfg(all(test, feature = "cloud"))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Remote bytes whose reading is counted.
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
            let sample = NewSample { index, label: 7, image: &image, ending: "jpg", target: Some((field, &target)) };
            RecordFormat::TfRecord.write(&sample, &mut bytes).unwrap();
        }
        let open = |_shard| {
            let counted = Box::new(Counted(bytes.clone(), Arc::clone(&count)));
            Ok(Shard::remote("counted", bytes.len() as u64, 0, counted))
        };
        let options = RecordOptions { keep_index: false, ..RecordOptions::default() };
        let source = RecordShards::open_each(RecordFormat::TfRecord, 1, &open, 1, &options).unwrap();
        let (mut buffer, never) = (Vec::new(), AtomicBool::new(false));
        for index in 0..3 {
            let before = count.load(Ordering::Relaxed);
            let (image, found) = source.read_with_target(index, field, &mut buffer, &never).unwrap();
            assert_eq!((image, found), (&[index as u8; 50][..], target(index)));
            assert_eq!(count.load(Ordering::Relaxed) - before, 1);
        }
        let missing = source.read_with_target(1, "image/mask", &mut buffer, &never).unwrap_err();
        assert!(missing.is_bad_sample() && missing.to_string().contains("image/mask"), "{missing}");
    }
}
