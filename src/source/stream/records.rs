//! Shards of records read from front to back: local files, pipes, standard input, and what lies far away.

use super::shuffle::{Shuffled, Strided, WINDOW_BYTES};
use super::{Samples, Stream, StreamSample, StreamStart};
use crate::error::{Error, Result};
use crate::recipe::draw::{Domain, Draw};
use crate::source::records::label::Label;
use crate::source::records::{recordio, tar, tfrecord};
use crate::source::{MAX_ENCODED_BYTES, RecordFormat, RecordOptions, Source};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Local files are read in pieces of this size.
const READ_BYTES: usize = 256 << 10;

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

/// Where the bytes of shards come from.
pub(in crate::source) trait Shards: Send + Sync {
    /// How many shards there are.
    fn count(&self) -> usize;

    /// A shard's path or address.
    fn name(&self, shard: usize) -> String;

    /// A shard from its first byte on.
    fn open(&self, shard: usize) -> Result<Box<dyn Read + Send>>;

    /// Bytes that reading holds at most.
    fn memory_bytes(&self) -> u64 {
        READ_BYTES as u64
    }
}

/// Local files, which may be pipes.
struct Files(Vec<PathBuf>);

impl Shards for Files {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn name(&self, shard: usize) -> String {
        self.0[shard].display().to_string()
    }

    fn open(&self, shard: usize) -> Result<Box<dyn Read + Send>> {
        let path = &self.0[shard];
        Ok(Box::new(BufReader::with_capacity(READ_BYTES, File::open(path).map_err(Error::io("open", path))?)))
    }
}

/// Standard input, which can be read once.
struct StandardInput {
    taken: AtomicBool,
}

impl Shards for StandardInput {
    fn count(&self) -> usize {
        1
    }

    fn name(&self, _shard: usize) -> String {
        "standard input".to_owned()
    }

    fn open(&self, _shard: usize) -> Result<Box<dyn Read + Send>> {
        if self.taken.swap(true, Relaxed) {
            return Err(Error::parameter("stream", "epochs", "1, as standard input can be read once", "another"));
        }
        Ok(Box::new(BufReader::with_capacity(READ_BYTES, io::stdin())))
    }
}

/// Shards of records as a [`Stream`]: WebDataset tar archives, MXNet's RecordIO, TFRecord, read from front to back.
///
/// Shuffled epochs take the shards in a random order, and draw samples from a window that the stream passes through
/// ([`StreamOptions::window`]). Several ranks take whole shards where there are as many, otherwise every n-th sample of
/// all. A sample's random operations are drawn by its place in the order of delivery.
///
/// Labels are numbers; a stream does not know all names before its end.
///
/// ```
/// # use warpfeed::{Pipeline, RecordFormat, RecordStream, StreamOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let shard = folder.path().join("train-000000.tar");
/// # let jpeg = warpfeed::encode_jpeg(&warpfeed::Picture::new(warpfeed::Size::new(8, 8)), &Default::default())?;
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
}

impl std::fmt::Debug for RecordStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inner { format, shards, options } = &*self.inner;
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
        Self::new(format, Box::new(StandardInput { taken: AtomicBool::new(false) }), options)
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
        Ok(Self { inner: Arc::new(Inner { format, shards, options }) })
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
        let Inner { format, shards, options } = &*self.inner;
        let mut hash = Sha256::new();
        let (picture, label) = (&options.records.picture, &options.records.label);
        hash.update(format!("{format:?} {picture:?} {label:?} {}", options.window));
        for shard in 0..shards.count() {
            let name = shards.name(shard);
            hash.update("\n");
            hash.update(name.rsplit(['/', '\\']).next().unwrap_or(&name));
        }
        hash.finalize().iter().take(8).fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    fn stream(&self) -> Option<Arc<dyn Stream>> {
        Some(Arc::new(self.clone()))
    }
}

impl Stream for RecordStream {
    fn begin(&self, start: &StreamStart) -> Result<Box<dyn Samples>> {
        let mut order: Vec<usize> = (0..self.inner.shards.count()).collect();
        if let Some(seed) = start.shuffle {
            Draw::new(seed, start.epoch, Domain::Shards, 0).shuffle(&mut order);
        }
        let (index, count) = (start.shard.index() as usize, start.shard.count() as usize);
        let by_shard = order.len() >= count;
        if by_shard {
            order = order.into_iter().skip(index).step_by(count).collect();
        }
        let mut samples: Box<dyn Samples> = Box::new(Records {
            parts: tar::Parts::new(&self.inner.options.records),
            inner: Arc::clone(&self.inner),
            order: order.into_iter(),
            current: None,
            labelled: None,
        });
        if !by_shard {
            samples = Box::new(Strided { samples, part: start.shard, at: 0 });
        }
        if let (Some(seed), 2..) = (start.shuffle, self.inner.options.window) {
            samples =
                Box::new(Shuffled::new(samples, self.inner.options.window, seed, start.epoch, start.shard.index()));
        }
        Ok(samples)
    }

    fn memory_bytes(&self) -> u64 {
        // A sample more than fills the window may stand in it, and one is being read.
        WINDOW_BYTES + 2 * MAX_ENCODED_BYTES + self.inner.shards.memory_bytes()
    }
}

/// A shard that is being read.
struct Input {
    name: String,
    read: Box<dyn Read + Send>,
    /// How many bytes of it have been read.
    at: u64,
    /// What of a tar archive belongs to a sample that may have more parts.
    pending: Option<Pending>,
}

/// The parts of a sample of a tar archive, as far as they have come.
struct Pending {
    key: Vec<u8>,
    /// Its file's ending, and what it holds or why not.
    picture: Option<(String, Result<Vec<u8>, String>)>,
    label: Option<(usize, Result<Label, String>)>,
}

/// What a record gives.
struct Found {
    name: String,
    picture: Result<Vec<u8>, String>,
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

    /// A picture of `len_bytes`, or, passed over, what is wrong with its length.
    fn picture(&mut self, len_bytes: u64) -> Result<Result<Vec<u8>, String>, Fault> {
        if len_bytes > MAX_ENCODED_BYTES {
            self.skip(len_bytes)?;
            return Ok(Err(too_long(len_bytes)));
        }
        self.take(len_bytes).map(Ok)
    }

    /// The next sample of a tar archive.
    fn tar(&mut self, parts: &tar::Parts) -> Result<Option<Found>, Fault> {
        let (mut long_name, mut long_len_bytes): (Option<Vec<u8>>, Option<u64>) = (None, None);
        loop {
            let Some(block) = self.array()? else {
                if long_name.is_some() || long_len_bytes.is_some() {
                    return Err("a long name is followed by no member".into());
                }
                return Ok(self.finish());
            };
            let Some(header) = tar::header(&block)? else {
                self.end_of_archive()?;
                return Ok(self.finish());
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
                    let before = self.file(parts, &name, len_bytes)?;
                    self.skip(padding)?;
                    if before.is_some() {
                        return Ok(before);
                    }
                }
                _ => self.skip(len_bytes + padding)?,
            }
            (long_name, long_len_bytes) = (None, None);
        }
    }

    /// Takes up a file of a tar archive; the sample before it, if this begins another.
    fn file(&mut self, parts: &tar::Parts, name: &[u8], len_bytes: u64) -> Result<Option<Found>, Fault> {
        let Some((key, ending)) = tar::key_and_ending(name) else {
            self.skip(len_bytes)?;
            return Ok(None);
        };
        let before = if self.pending.as_ref().is_some_and(|pending| pending.key == key) { None } else { self.finish() };
        let mut pending =
            self.pending.take().unwrap_or_else(|| Pending { key: key.to_vec(), picture: None, label: None });
        if parts.is_picture(&ending) && pending.picture.is_none() {
            pending.picture = Some((ending, self.picture(len_bytes)?));
        } else if let Some(place) = parts.label_place(&ending).filter(|_| !parts.is_picture(&ending))
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
        self.pending = Some(pending);
        Ok(before)
    }

    /// The sample whose last part has come, if it has a picture.
    fn finish(&mut self) -> Option<Found> {
        let Pending { key, picture, label } = self.pending.take()?;
        let (ending, picture) = picture?;
        let name = format!("{}/{}.{ending}", self.name, String::from_utf8_lossy(&key));
        Some(Found { name, picture, label: label.map_or(Ok(Label::None), |(_, label)| label) })
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
            let name = format!("{} at byte {start}", self.name);
            if too_long_by > 0 {
                return Ok(Some(Found { name, picture: Err(too_long(too_long_by)), label: Ok(Label::None) }));
            }
            return Ok(Some(match recordio::image_header(&record) {
                // Indices of other programs begin with a record that has labels only.
                Ok((_, picture)) if picture == record.len() as u64 => continue,
                Ok((label, picture)) if picture < record.len() as u64 => {
                    record.drain(..picture as usize);
                    Found { name, picture: Ok(record), label }
                }
                Ok(_) => {
                    let message = "it has more labels than it has room for".to_owned();
                    Found { name, picture: Err(message), label: Ok(Label::None) }
                }
                Err(message) => Found { name, picture: Err(message), label: Ok(Label::None) },
            }));
        }
    }

    /// The next record of a TFRecord file.
    fn tf_record(&mut self, options: &RecordOptions) -> Result<Option<Found>, Fault> {
        loop {
            let start = self.at;
            let Some(head) = self.array()? else { return Ok(None) };
            let wrong = "the checksum of a record's length is wrong (compressed files are not supported)";
            let len_bytes = tfrecord::head(&head).ok_or(wrong)?;
            let name = format!("{} at byte {start}", self.name);
            let bad = |message: String| Found { name: name.clone(), picture: Err(message), label: Ok(Label::None) };
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
            let picture = options.picture.as_deref().unwrap_or(tfrecord::PICTURE);
            let label = options.label.as_deref().unwrap_or(tfrecord::LABEL);
            let example = tfrecord::example(&mut &data[..], 0..len_bytes, picture, label);
            return Ok(Some(match example.map_err(|error| Fault::Damaged(error.to_string()))? {
                Ok(tfrecord::Example { picture: None, .. }) => continue,
                Ok(tfrecord::Example { picture: Some(Range { start, end }), label }) => {
                    data.truncate(end as usize);
                    data.drain(..start as usize);
                    Found { name, picture: Ok(data), label }
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
    order: std::vec::IntoIter<usize>,
    current: Option<Input>,
    /// Whether samples have labels, as the first one says.
    labelled: Option<bool>,
}

impl Records {
    fn format(&self) -> &'static str {
        match self.inner.format {
            RecordFormat::WebDataset => "tar",
            RecordFormat::RecordIo => "RecordIO",
            RecordFormat::TfRecord => "TFRecord",
        }
    }

    /// A sample of what was found, or why it is none.
    fn sample(&mut self, Found { name, picture, label }: Found) -> Result<StreamSample> {
        let format = self.format();
        let bad = |message: String| Error::decode(format, format!("{name}: {message}"));
        let bytes = picture.map_err(bad)?;
        let label = label.map_err(bad)?;
        let labelled = label != Label::None;
        if *self.labelled.get_or_insert(labelled) != labelled {
            let message =
                if labelled { "it has a label, and others have none" } else { "it has no label, and others have" };
            return Err(bad(message.to_owned()));
        }
        match label {
            Label::Number(label) => Ok(StreamSample { bytes, label, name }),
            Label::None => Ok(StreamSample { bytes, label: 0, name }),
            Label::Name(label) => Err(Error::Unsupported {
                feature: format!("the label {label:?} of {name} in a stream"),
                remedy: "write labels as numbers: a stream does not know all names before its end".to_owned(),
            }),
        }
    }
}

impl Samples for Records {
    fn next(&mut self) -> Result<Option<StreamSample>> {
        loop {
            let input = match &mut self.current {
                Some(input) => input,
                none => {
                    let Some(shard) = self.order.next() else { return Ok(None) };
                    let name = self.inner.shards.name(shard);
                    let read = self.inner.shards.open(shard).map_err(|error| match error {
                        Error::Io { source, .. } => Error::Stream {
                            shard: name.clone(),
                            offset: 0,
                            message: format!("cannot open it: {source}"),
                        },
                        other => other,
                    })?;
                    none.insert(Input { name, read, at: 0, pending: None })
                }
            };
            let found = match self.inner.format {
                RecordFormat::WebDataset => input.tar(&self.parts),
                RecordFormat::RecordIo => input.record_io(),
                RecordFormat::TfRecord => input.tf_record(&self.inner.options.records),
            };
            match found {
                Ok(Some(found)) => return self.sample(found).map(Some),
                Ok(None) => self.current = None,
                Err(fault) => {
                    let (shard, offset) = (input.name.clone(), input.at);
                    self.current = None;
                    return Err(match fault {
                        Fault::Broken(message) => Error::Stream { shard, offset, message },
                        Fault::Damaged(message) => {
                            let rest = "the rest of the shard cannot be read";
                            Error::decode(self.format(), format!("{shard} at byte {offset}: {message}; {rest}"))
                        }
                    });
                }
            }
        }
    }
}
