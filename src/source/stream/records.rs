//! Shards of records read from front to back.

use super::place::{InOrder, Place, Placed, put, take};
use super::shards::{Files, Shard, Shards, StandardInput};
use super::shuffle::{Shuffled, Strided, Unshuffled, WINDOW_BYTES};
use super::{Samples, Stream, StreamSample, StreamStart};
use crate::error::{Error, Result};
use crate::ops::rng::{Domain, SampleRng};
use crate::source::records::label::Label;
use crate::source::records::{no_class, recordio, tar, tfrecord};
use crate::source::{MAX_ENCODED_BYTES, RecordFormat, RecordOptions, Source};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Names and labels inside of shards are no longer than this.
const MAX_PART_BYTES: u64 = 1 << 20;

/// How a stream of records is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamOptions {
    /// Which parts of a record count.
    pub records: RecordOptions,
    /// Samples that stand in the window from which shuffled epochs draw: 1 keeps the order within shards.
    pub window: usize,
}

impl Default for StreamOptions {
    /// A window of 1,000 samples.
    fn default() -> Self {
        Self { records: RecordOptions::default(), window: 1_000 }
    }
}

/// Shards of records as a [`Stream`]: WebDataset tar archives, MXNet's RecordIO, TFRecord, read from front to back.
///
/// Shuffled epochs take the shards in a random order, and draw samples from a window that the stream passes through
/// ([`StreamOptions::window`]). Several ranks take whole shards where there are as many, otherwise every n-th sample of
/// all. A sample's random operations are drawn by its place in the order of delivery.
///
/// Labels are numbers, or names of the [`classes`](RecordOptions::classes) that are given: a stream does not know all names
/// before its end.
///
/// ```
/// # use warpfeed::{Pipeline, RecordFormat, RecordStream, StreamOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let shard = folder.path().join("train-000000.tar");
/// # let jpeg = warpfeed::encode_jpeg(&warpfeed::Image::new(warpfeed::Size::new(8, 8)), &Default::default())?;
/// # let member = |name: &str, content: &[u8]| {
/// #     let mut block = vec![0; 512];
/// #     block[..name.len()].copy_from_slice(name.as_bytes());
/// #     block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
/// #     block[148..156].fill(b' ');
/// #     let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
/// #     block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
/// #     block.extend(content);
/// #     block.resize(block.len().next_multiple_of(512), 0);
/// #     block
/// # };
/// # std::fs::write(&shard, [member("000.jpg", &jpeg), member("000.cls", b"7"), vec![0; 1024]].concat()).unwrap();
/// // A shard with the files 000.jpg and 000.cls, which might be a pipe.
/// let stream = RecordStream::open(RecordFormat::WebDataset, [shard], StreamOptions::default())?;
/// let pipeline = Pipeline::builder(stream).shuffle(1).center_crop(8).build()?;
/// let labels: Vec<u32> = pipeline.epoch(0).flat_map(|batch| batch.unwrap().labels().to_vec()).collect();
/// assert_eq!(labels, [7]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Clone)]
pub struct RecordStream {
    inner: Arc<Inner>,
}

struct Inner {
    format: RecordFormat,
    shards: Box<dyn Shards>,
    options: StreamOptions,
    /// Labels by the names of the classes.
    classes: HashMap<String, u32>,
}

impl std::fmt::Debug for RecordStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inner { format, shards, options, .. } = &*self.inner;
        let shards = shards.count();
        f.debug_struct("RecordStream")
            .field("format", format)
            .field("shards", &shards)
            .field("options", options)
            .finish()
    }
}

impl RecordStream {
    /// Local shards or pipes in this order. They are opened when it is their turn.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no shard or no place in the window.
    pub fn open(
        format: RecordFormat,
        shards: impl IntoIterator<Item = PathBuf>,
        options: StreamOptions,
    ) -> Result<Self> {
        Self::new(format, Box::new(Files(shards.into_iter().collect())), options)
    }

    /// Standard input, for one epoch.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no place in the window.
    pub fn standard_input(format: RecordFormat, options: StreamOptions) -> Result<Self> {
        Self::new(format, Box::new(StandardInput::default()), options)
    }

    pub(in crate::source) fn new(
        format: RecordFormat,
        shards: Box<dyn Shards>,
        options: StreamOptions,
    ) -> Result<Self> {
        if shards.count() == 0 {
            return Err(Error::parameter("stream", "shards", "one or more", 0));
        }
        if options.window == 0 {
            return Err(Error::parameter("stream", "window", "1 or more samples", 0));
        }
        let classes = options.records.numbers()?;
        Ok(Self { inner: Arc::new(Inner { format, shards, options, classes }) })
    }
}

impl Source for RecordStream {
    /// Not known: [`u64::MAX`].
    fn len(&self) -> u64 {
        u64::MAX
    }

    fn read<'a>(&'a self, index: u64, _buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let feature = format!("reading sample {index} of a stream");
        Err(Error::Unsupported { feature, remedy: "streams are read by epochs, from front to back".to_owned() })
    }

    fn label(&self, _index: u64) -> u32 {
        0
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("sample {index} of the stream").into()
    }

    /// Over the shards' names, their format and how they are read.
    fn fingerprint(&self) -> u64 {
        let Inner { format, shards, options, .. } = &*self.inner;
        let mut hash = Sha256::new();
        let (image, label) = (&options.records.image, &options.records.label);
        hash.update(format!("{format:?} {image:?} {label:?} {}", options.window));
        for class in &options.records.classes {
            hash.update(format!("\0{class}"));
        }
        for shard in 0..shards.count() {
            let name = shards.name(shard);
            hash.update("\n");
            hash.update(name.rsplit(['/', '\\']).next().unwrap_or(&name));
        }
        hash.finalize().iter().take(8).fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    fn classes(&self) -> &[String] {
        &self.inner.options.records.classes
    }

    fn stream(&self) -> Option<Arc<dyn Stream>> {
        Some(Arc::new(self.clone()))
    }
}

impl Stream for RecordStream {
    fn begin(&self, start: &StreamStart) -> Result<Box<dyn Samples>> {
        let mut order: Vec<usize> = (0..self.inner.shards.count()).collect();
        if let Some(seed) = start.shuffle {
            SampleRng::new(seed, start.epoch, Domain::Shards, 0).shuffle(&mut order);
        }
        let (index, count) = (start.partition.rank() as usize, start.partition.world_size() as usize);
        let by_shard = order.len() >= count;
        if by_shard {
            order = order.into_iter().skip(index).step_by(count).collect();
        }
        let mut samples: Box<dyn InOrder> = Box::new(Records {
            parts: tar::Parts::new(&self.inner.options.records),
            inner: Arc::clone(&self.inner),
            order,
            turn: 0,
            from: 0,
            current: None,
            labelled: None,
            versions: BTreeMap::new(),
            seekable: self.inner.shards.seekable(),
            stopped: Arc::clone(&start.stopped),
        });
        if !by_shard {
            samples = Box::new(Strided { samples, part: start.partition, at: 0 });
        }
        let place = start.place.as_deref();
        let damaged = || Error::parameter("stream", "place", "one that such a stream has given", "another");
        let goes_on = |outcome: Option<Option<()>>| if outcome == Some(None) { Err(damaged()) } else { Ok(()) };
        if let (Some(seed), 2..) = (start.shuffle, self.inner.options.window) {
            let (window, rank) = (self.inner.options.window, start.partition.rank());
            let mut shuffled = Shuffled::new(samples, window, seed, start.epoch, rank);
            goes_on(place.map(|mut place| shuffled.go_on(&mut place)))?;
            return Ok(Box::new(shuffled));
        }
        goes_on(place.map(|mut place| samples.go_on(&mut place)))?;
        Ok(Box::new(Unshuffled(samples)))
    }

    fn memory_bytes(&self) -> u64 {
        // A sample more than fills the window may stand in it, and one is being read.
        WINDOW_BYTES + 2 * MAX_ENCODED_BYTES + AHEAD_BYTES + self.inner.shards.memory_bytes()
    }
}

/// A shard that is being read.
struct Input {
    name: String,
    /// Which it is in the order of the epoch.
    turn: u32,
    read: Box<dyn Read + Send>,
    /// Where in the shard it stands, in bytes.
    at: u64,
    /// Where the record or the tar archive's member starts that was read last.
    last: u64,
    /// What of a tar archive belongs to a sample that may have more parts.
    pending: Option<Pending>,
    /// What was found behind the last sample.
    fault: Option<Fault>,
    /// Whether its rest is lost.
    lost: bool,
}

/// The parts of a sample of a tar archive, as far as they have come.
struct Pending {
    key: Vec<u8>,
    /// Where the first of them starts.
    start: u64,
    /// Its file's ending, and what it holds or why not.
    image: Option<(String, Result<Vec<u8>, String>)>,
    label: Option<(usize, Result<Label, String>)>,
}

/// What a record gives.
struct Found {
    name: String,
    /// Where it lies.
    part: Range<u64>,
    image: Result<Vec<u8>, String>,
    label: Result<Label, String>,
}

/// Why a shard cannot be read on.
enum Fault {
    /// What came is no record: the rest of the shard is lost.
    Damaged(String),
    /// Nothing more comes.
    Broken(String),
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self::Damaged(message)
    }
}

impl From<&str> for Fault {
    fn from(message: &str) -> Self {
        Self::Damaged(message.to_owned())
    }
}

impl Input {
    fn new(name: String, turn: u32, read: Box<dyn Read + Send>, at: u64) -> Self {
        Self { name, turn, read, at, last: at, pending: None, fault: None, lost: false }
    }

    /// Where the next sample starts, as far as it is known.
    fn rest(&self) -> u64 {
        self.pending.as_ref().map_or(if self.fault.is_some() { self.last } else { self.at }, |pending| pending.start)
    }

    /// Fills `buffer`. `false` if the shard is at its end.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<bool, Fault> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err("the shard ends in the middle of a record".into()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::Broken(error.to_string())),
            }
        }
        self.at += filled as u64;
        Ok(true)
    }

    /// The next `N` bytes; `None` if the shard is at its end.
    fn array<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Fault> {
        let mut bytes = [0; N];
        Ok(self.fill(&mut bytes)?.then_some(bytes))
    }

    /// The next `len_bytes` bytes, which the caller bounds, behind those in `bytes`. Memory is taken as they come.
    fn append(&mut self, len_bytes: u64, bytes: &mut Vec<u8>) -> Result<(), Fault> {
        let read = (&mut self.read).take(len_bytes).read_to_end(bytes);
        let read = read.map_err(|error| Fault::Broken(error.to_string()))? as u64;
        self.at += read;
        if read < len_bytes {
            return Err(format!("a part of {len_bytes} bytes is followed by only {read}").into());
        }
        Ok(())
    }

    fn take(&mut self, len_bytes: u64) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        self.append(len_bytes, &mut bytes)?;
        Ok(bytes)
    }

    fn skip(&mut self, len_bytes: u64) -> Result<(), Fault> {
        let skipped = io::copy(&mut (&mut self.read).take(len_bytes), &mut io::sink());
        let skipped = skipped.map_err(|error| Fault::Broken(error.to_string()))?;
        self.at += skipped;
        if skipped < len_bytes {
            return Err(format!("a part of {len_bytes} bytes is followed by only {skipped}").into());
        }
        Ok(())
    }

    /// An image of `len_bytes`, or, passed over, what is wrong with its length.
    fn image(&mut self, len_bytes: u64) -> Result<Result<Vec<u8>, String>, Fault> {
        if len_bytes > MAX_ENCODED_BYTES {
            self.skip(len_bytes)?;
            return Ok(Err(too_long(len_bytes)));
        }
        self.take(len_bytes).map(Ok)
    }

    /// The next sample of a tar archive.
    fn tar(&mut self, parts: &tar::Parts) -> Result<Option<Found>, Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        match self.members(parts) {
            // What is whole is not lost with what is behind it.
            Err(Fault::Damaged(message)) => match self.finish(self.last) {
                Some(found) => {
                    self.fault = Some(message.into());
                    Ok(Some(found))
                }
                None => Err(message.into()),
            },
            other => other,
        }
    }

    /// Takes up members of a tar archive until a sample is whole.
    fn members(&mut self, parts: &tar::Parts) -> Result<Option<Found>, Fault> {
        let (mut long_name, mut long_len_bytes): (Option<Vec<u8>>, Option<u64>) = (None, None);
        self.last = self.at;
        loop {
            let Some(block) = self.array()? else {
                if long_name.is_some() || long_len_bytes.is_some() {
                    return Err("a long name is followed by no member".into());
                }
                return Ok(self.finish(self.last));
            };
            let Some(header) = tar::header(&block)? else {
                self.end_of_archive()?;
                return Ok(self.finish(self.last));
            };
            let extends = matches!(header.kind, b'x' | b'g' | b'L' | b'K');
            let len_bytes = if extends { header.len_bytes } else { long_len_bytes.unwrap_or(header.len_bytes) };
            if len_bytes > u64::MAX / 2 {
                return Err(format!("a member claims {len_bytes} bytes").into());
            }
            let padding = len_bytes.next_multiple_of(tar::BLOCK_BYTES) - len_bytes;
            match header.kind {
                b'x' | b'L' => {
                    if len_bytes > MAX_PART_BYTES {
                        return Err(format!("a name or extended header has {len_bytes} bytes").into());
                    }
                    let bytes = self.take(len_bytes)?;
                    self.skip(padding)?;
                    if header.kind == b'L' {
                        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
                        long_name = Some(bytes[..end].to_vec());
                    } else {
                        tar::pax(&bytes, &mut long_name, &mut long_len_bytes)?;
                    }
                    continue;
                }
                b'g' | b'K' => {
                    self.skip(len_bytes + padding)?;
                    continue;
                }
                b'S' => return Err("sparse files are not supported".into()),
                b'0' | b'7' => {
                    let name = long_name.take().unwrap_or(header.name);
                    let before = self.file(parts, &name, len_bytes, padding)?;
                    if before.is_some() {
                        return Ok(before);
                    }
                }
                _ => self.skip(len_bytes + padding)?,
            }
            (long_name, long_len_bytes) = (None, None);
            self.last = self.at;
        }
    }

    /// Takes up a file of a tar archive; the sample before it, if this begins another.
    fn file(&mut self, parts: &tar::Parts, name: &[u8], len_bytes: u64, padding: u64) -> Result<Option<Found>, Fault> {
        let Some((key, ending)) = tar::key_and_ending(name) else {
            self.skip(len_bytes + padding)?;
            return Ok(None);
        };
        let same = self.pending.as_ref().is_some_and(|pending| pending.key == key);
        let before = if same { None } else { self.finish(self.last) };
        let start = self.last;
        let new = || Pending { key: key.to_vec(), start, image: None, label: None };
        let mut pending = self.pending.take().unwrap_or_else(new);
        match self.part(parts, &ending, len_bytes, &mut pending).and_then(|()| self.skip(padding)) {
            Ok(()) => self.pending = Some(pending),
            Err(fault) if before.is_some() => self.fault = Some(fault),
            Err(fault) => return Err(fault),
        }
        Ok(before)
    }

    /// Takes what is in a file of a tar archive.
    fn part(&mut self, parts: &tar::Parts, ending: &str, len_bytes: u64, pending: &mut Pending) -> Result<(), Fault> {
        if parts.is_image(ending) && pending.image.is_none() {
            pending.image = Some((ending.to_owned(), self.image(len_bytes)?));
        } else if let Some(place) = parts.label_place(ending).filter(|_| !parts.is_image(ending))
            && pending.label.as_ref().is_none_or(|&(other, _)| place < other)
        {
            let label = if len_bytes > MAX_PART_BYTES {
                self.skip(len_bytes)?;
                Err(format!("its label takes {len_bytes} bytes"))
            } else {
                parts.label(place, &self.take(len_bytes)?)
            };
            // A JSON part without the field leaves the others to be looked at.
            if label != Ok(Label::None) {
                pending.label = Some((place, label));
            }
        } else {
            self.skip(len_bytes)?;
        }
        Ok(())
    }

    /// The sample whose last part has come, which ends at byte `end`, if it has an image.
    fn finish(&mut self, end: u64) -> Option<Found> {
        let Pending { key, start, image, label } = self.pending.take()?;
        let (ending, image) = image?;
        let name = format!("{}/{}.{ending}", self.name, String::from_utf8_lossy(&key));
        let label = label.map_or(Ok(Label::None), |(_, label)| label);
        Some(Found { name, part: start..end, image, label })
    }

    /// Reads what follows the end of an archive: nothing but zeros, or another archive would be lost in silence.
    fn end_of_archive(&mut self) -> Result<(), Fault> {
        let mut rest = [0; 4096];
        loop {
            match self.read.read(&mut rest) {
                Ok(0) => return Ok(()),
                Ok(read) if rest[..read].iter().all(|&byte| byte == 0) => self.at += read as u64,
                Ok(_) => return Err("the archive's end is followed by more, perhaps another archive".into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::Broken(error.to_string())),
            }
        }
    }

    /// The next record of a RecordIO file.
    fn record_io(&mut self) -> Result<Option<Found>, Fault> {
        loop {
            let start = self.at;
            self.last = start;
            let Some(head) = self.array()? else { return Ok(None) };
            let mut record = Vec::new();
            let mut too_long_by = 0;
            let (mut place, mut len_bytes) = recordio::head(head).ok_or("there is no head of a record")?;
            if place >= 2 {
                return Err("a record's first part is missing".into());
            }
            loop {
                let filled_up = len_bytes.next_multiple_of(4) - len_bytes;
                if record.len() as u64 + len_bytes > MAX_ENCODED_BYTES {
                    too_long_by = record.len() as u64 + len_bytes;
                    self.skip(len_bytes)?;
                } else {
                    self.append(len_bytes, &mut record)?;
                }
                self.skip(filled_up)?;
                if matches!(place, 0 | 3) {
                    break;
                }
                let head = self.array()?.ok_or("a record's last part is missing")?;
                (place, len_bytes) = recordio::head(head).ok_or("there is no head of a record")?;
                if place < 2 {
                    return Err("a record's last part is missing".into());
                }
                record.extend(recordio::MAGIC);
            }
            let (name, part) = (format!("{} at byte {start}", self.name), start..self.at);
            if too_long_by > 0 {
                return Ok(Some(Found { name, part, image: Err(too_long(too_long_by)), label: Ok(Label::None) }));
            }
            return Ok(Some(match recordio::image_header(&record) {
                // Indices of other programs begin with a record that has labels only.
                Ok((_, image)) if image == record.len() as u64 => continue,
                Ok((label, image)) if image < record.len() as u64 => {
                    record.drain(..image as usize);
                    Found { name, part, image: Ok(record), label }
                }
                Ok(_) => {
                    let message = "it has more labels than it has room for".to_owned();
                    Found { name, part, image: Err(message), label: Ok(Label::None) }
                }
                Err(message) => Found { name, part, image: Err(message), label: Ok(Label::None) },
            }));
        }
    }

    /// The next record of a TFRecord file.
    fn tf_record(&mut self, options: &RecordOptions) -> Result<Option<Found>, Fault> {
        loop {
            let start = self.at;
            self.last = start;
            let Some(head) = self.array()? else { return Ok(None) };
            let wrong = "the checksum of a record's length is wrong (compressed files are not supported)";
            let len_bytes = tfrecord::head(&head).ok_or(wrong)?;
            // Behind the data comes their checksum.
            let part = start..start.saturating_add(tfrecord::HEAD_BYTES + 4).saturating_add(len_bytes);
            let name = format!("{} at byte {start}", self.name);
            let bad = |message: String| {
                let (name, part) = (name.clone(), part.clone());
                Found { name, part, image: Err(message), label: Ok(Label::None) }
            };
            if len_bytes > MAX_ENCODED_BYTES - 4 {
                self.skip(len_bytes)?;
                self.skip(4)?;
                return Ok(Some(bad(too_long(len_bytes))));
            }
            let mut data = self.take(len_bytes)?;
            let crc = self.array()?.ok_or("the checksum of a record's data is missing")?;
            if tfrecord::masked_crc(&data) != u32::from_le_bytes(crc) {
                return Ok(Some(bad("the checksum of the record's data is wrong".to_owned())));
            }
            let image = options.image.as_deref().unwrap_or(tfrecord::IMAGE);
            let label = options.label.as_deref().unwrap_or(tfrecord::LABEL);
            let example = tfrecord::example(&mut &data[..], 0..len_bytes, image, label);
            return Ok(Some(match example.map_err(|error| Fault::Damaged(error.to_string()))? {
                Ok(tfrecord::Example { image: None, .. }) => continue,
                Ok(tfrecord::Example { image: Some(Range { start, end }), label }) => {
                    data.truncate(end as usize);
                    data.drain(..start as usize);
                    Found { name, part, image: Ok(data), label }
                }
                Err(message) => bad(message.to_owned()),
            }));
        }
    }
}

fn too_long(len_bytes: u64) -> String {
    format!("its length of {len_bytes} bytes is over the limit of {MAX_ENCODED_BYTES}")
}

/// The records of one rank's shards, in the order of an epoch.
struct Records {
    inner: Arc<Inner>,
    parts: tar::Parts,
    order: Vec<usize>,
    /// Which of the order is opened next, and at which byte.
    turn: u32,
    from: u64,
    current: Option<Input>,
    /// Whether samples have labels, as the first one says.
    labelled: Option<bool>,
    /// Of the shards that were read, by turn.
    versions: BTreeMap<u32, u64>,
    seekable: bool,
    stopped: Arc<AtomicBool>,
}

/// Damage shows in what was read and no more than this behind it.
const SEEN_BYTES: u64 = 4096;

/// Samples that are read once more are read together if no more than this is between them: what else a request's delay
/// costs.
const GAP_BYTES: u64 = 256 << 10;

/// As much is read together at most, but for a sample that is longer by itself.
const RUN_BYTES: u64 = 2 << 20;

/// So many such runs are under way at once, while they have no more bytes than this together.
const RUNS_AHEAD: usize = 16;
const AHEAD_BYTES: u64 = RUNS_AHEAD as u64 * RUN_BYTES;

impl Records {
    fn format(&self) -> &'static str {
        match self.inner.format {
            RecordFormat::WebDataset => "tar",
            RecordFormat::RecordIo => "RecordIO",
            RecordFormat::TfRecord => "TFRecord",
        }
    }

    /// A sample of what was found, or why it is none.
    fn sample(&mut self, Found { name, image, label, .. }: Found) -> Result<StreamSample> {
        let format = self.format();
        let bad = |message: String| Error::decode(format, format!("{name}: {message}"));
        let bytes = image.map_err(bad)?;
        let label = label.map_err(bad)?;
        let labelled = label != Label::None;
        if *self.labelled.get_or_insert(labelled) != labelled {
            let message =
                if labelled { "it has a label, and others have none" } else { "it has no label, and others have" };
            return Err(bad(message.to_owned()));
        }
        match label {
            Label::Number(label) => {
                let label = self.inner.options.records.check_class(label).map_err(bad)?;
                Ok(StreamSample { bytes, label, name })
            }
            Label::None => Ok(StreamSample { bytes, label: 0, name }),
            Label::Name(label) if self.inner.classes.is_empty() => Err(Error::Unsupported {
                feature: format!("the label {label:?} of {name} in a stream"),
                remedy:
                    "give the names of the classes, as a stream does not know them all before its end, or write labels \
                         as numbers"
                        .to_owned(),
            }),
            Label::Name(label) => {
                let number = self.inner.classes.get(&label).copied().ok_or_else(|| bad(no_class(&label)))?;
                Ok(StreamSample { bytes, label: number, name })
            }
        }
    }

    /// The shard whose turn it is, in the version that was seen before, if any was.
    fn find(&mut self, turn: u32) -> Result<Box<dyn Shard>> {
        let number = self.order[turn as usize];
        let shard = self.inner.shards.find(number, &self.stopped)?;
        if *self.versions.entry(turn).or_insert_with(|| shard.version()) != shard.version() {
            let message = "it is not what it was when the epoch began".to_owned();
            return Err(Error::Stream { shard: self.inner.shards.name(number), offset: 0, message });
        }
        Ok(shard)
    }

    fn input(&self, turn: u32, shard: &dyn Shard, part: Range<u64>) -> Result<Input> {
        let (name, offset) = (self.inner.shards.name(self.order[turn as usize]), part.start);
        let read = shard.read(part).map_err(|error| match error {
            Error::Io { source, .. } => {
                Error::Stream { shard: name.clone(), offset, message: format!("cannot open it: {source}") }
            }
            other => other,
        })?;
        Ok(Input::new(name, turn, read, offset))
    }

    /// The next sample of a shard, which is at its end if there is none and after damage.
    fn placed(&mut self, input: &mut Input) -> Result<Option<Placed>> {
        if input.lost {
            return Ok(None);
        }
        let found = match self.inner.format {
            RecordFormat::WebDataset => input.tar(&self.parts),
            RecordFormat::RecordIo => input.record_io(),
            RecordFormat::TfRecord => input.tf_record(&self.inner.options.records),
        };
        let turn = input.turn;
        match found {
            Ok(Some(found)) => {
                let place = Place { turn, start: found.part.start, end: found.part.end };
                match self.sample(found) {
                    Err(error) if !error.is_bad_sample() => Err(error),
                    sample => Ok(Some(Placed { place, sample })),
                }
            }
            Ok(None) => Ok(None),
            Err(Fault::Broken(message)) => Err(Error::Stream { shard: input.name.clone(), offset: input.at, message }),
            Err(Fault::Damaged(message)) => {
                let (shard, at) = (&input.name, input.at);
                let message = format!("{shard} at byte {at}: {message}; the rest of the shard cannot be read");
                let place = Place { turn, start: input.last, end: at.saturating_add(SEEN_BYTES) };
                input.lost = true;
                Ok(Some(Placed { place, sample: Err(Error::decode(self.format(), message)) }))
            }
        }
    }
}

impl InOrder for Records {
    fn next(&mut self) -> Result<Option<Placed>> {
        loop {
            let mut input = match self.current.take() {
                Some(input) => input,
                None => {
                    if self.turn as usize == self.order.len() {
                        return Ok(None);
                    }
                    let shard = self.find(self.turn)?;
                    let input = self.input(self.turn, &*shard, self.from..u64::MAX)?;
                    (self.turn, self.from) = (self.turn + 1, 0);
                    input
                }
            };
            if let Some(placed) = self.placed(&mut input)? {
                self.current = Some(input).filter(|input| !input.lost);
                return Ok(Some(placed));
            }
        }
    }

    fn again(&mut self, places: &[Place]) -> Result<Vec<Result<StreamSample>>> {
        let mut runs: VecDeque<Vec<usize>> = VecDeque::new();
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_unstable_by_key(|&i| (places[i].turn, places[i].start));
        for i in order {
            let near = |run: &&mut Vec<usize>| {
                let (first, last) = (places[run[0]], places[run[run.len() - 1]]);
                let together = first.turn == places[i].turn && places[i].end.saturating_sub(first.start) <= RUN_BYTES;
                together && places[i].start.saturating_sub(last.end) <= GAP_BYTES
            };
            match runs.back_mut().filter(near) {
                Some(run) => run.push(i),
                None => runs.push_back(vec![i]),
            }
        }
        let mut samples: Vec<Option<Result<StreamSample>>> = places.iter().map(|_| None).collect();
        let (mut found, mut coming): (Option<(u32, Box<dyn Shard>)>, _) = (None, VecDeque::new());
        let mut ahead_bytes = 0;
        loop {
            while coming.len() < RUNS_AHEAD
                && ahead_bytes < AHEAD_BYTES
                && let Some(run) = runs.pop_front()
            {
                let (first, last) = (places[run[0]], places[run[run.len() - 1]]);
                let shard = match &mut found {
                    Some((turn, shard)) if *turn == first.turn => shard,
                    other => &mut other.insert((first.turn, self.find(first.turn)?)).1,
                };
                let input = self.input(first.turn, &**shard, first.start..last.end)?;
                let run_bytes = last.end.saturating_sub(first.start);
                ahead_bytes = run_bytes.saturating_add(ahead_bytes);
                coming.push_back((input, run, run_bytes));
            }
            let Some((mut input, run, run_bytes)) = coming.pop_front() else { break };
            ahead_bytes = ahead_bytes.saturating_sub(run_bytes);
            for i in run {
                let placed = loop {
                    match self.placed(&mut input)? {
                        Some(placed) if placed.place.start < places[i].start => {}
                        other => break other,
                    }
                };
                match placed {
                    Some(Placed { place, sample }) if place.start == places[i].start => samples[i] = Some(sample),
                    _ => {
                        let message = "there is no sample as there was when the state was written".to_owned();
                        return Err(Error::Stream { shard: input.name, offset: places[i].start, message });
                    }
                }
            }
        }
        Ok(samples.into_iter().flatten().collect())
    }

    fn write(&self, turns: &[u32], place: &mut Vec<u8>) -> Option<()> {
        if !self.seekable {
            return None;
        }
        let (turn, from) = self.current.as_ref().map_or((self.turn, self.from), |input| (input.turn, input.rest()));
        put(place, turn.into());
        put(place, from);
        put(place, self.labelled.map_or(2, u64::from));
        // The shard that is read on from counts too, where it has been begun.
        let last = Some(turn).filter(|turn| turns.last() != Some(turn) && self.versions.contains_key(turn));
        put(place, turns.len() as u64 + u64::from(last.is_some()));
        for turn in turns.iter().copied().chain(last) {
            put(place, turn.into());
            put(place, self.versions.get(&turn).copied().unwrap_or(0));
        }
        Some(())
    }

    fn go_on(&mut self, place: &mut &[u8]) -> Option<()> {
        let turns = self.order.len() as u64;
        self.turn = take(place).filter(|&turn| turn <= turns)?.try_into().ok()?;
        self.from = take(place)?;
        self.labelled = match take(place)? {
            2 => None,
            labelled => Some(labelled == 1),
        };
        for _ in 0..take(place)? {
            let turn = take(place).filter(|&turn| turn < turns)?.try_into().ok()?;
            self.versions.insert(turn, take(place)?);
        }
        place.is_empty().then_some(())
    }
}
