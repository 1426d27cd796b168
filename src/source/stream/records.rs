//! Streams of records, which read shards from front to back.

use super::extent::{Extent, InOrder, Located, damaged as damaged_cursor, put, take, take_count};
use super::shards::{Files, Shard, Shards, StandardInput};
use super::shuffle::{Shuffled, Strided, Unshuffled, WINDOW_BYTES};
use super::{Held, Samples, Stored, Stream, StreamFields, StreamSample, StreamStart};
use crate::error::{Error, Result};
use crate::os::file::most_open;
use crate::rng::{Domain, SampleRng};
use crate::source::records::entry::Entry;
use crate::source::records::fields::MAX_FIELDS_BYTES;
use crate::source::records::label::{self, Label};
use crate::source::records::parser::{Names, Parser};
use crate::source::records::{damaged, no_class, no_samples};
use crate::source::window::Forward;
use crate::source::{MAX_ENCODED_BYTES, ReadRequest, RecordFormat, RecordOptions};
use crate::targets;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Options for reading a stream of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamOptions {
    /// The parts of a record that are read.
    pub records: RecordOptions,
    /// Number of samples in the window from which shuffled epochs draw. With 1 the order within shards is kept.
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
/// Shuffled epochs read the shards in a random order and draw samples from a window ([`StreamOptions::window`]) that
/// moves over the stream. If there are at least as many shards as ranks, each rank reads whole shards; otherwise each
/// of n ranks takes every n-th sample. A sample's place in the order of delivery determines its random operations.
///
/// Labels are numbers, or names among the given [`classes`](RecordOptions::classes): a stream does not know all names
/// before its end. The first sample decides whether there are labels; a sample that differs is a bad one.
///
/// ```
/// # use warpfeed::{Pipeline, source::{RecordFormat, RecordStream, StreamOptions}};
/// # use warpfeed::ops::CenterCrop;
/// # let folder = tempfile::tempdir().unwrap();
/// # let shard = folder.path().join("train-000000.tar");
/// # let jpeg = warpfeed::image::encode_jpeg(&warpfeed::image::Image::new(warpfeed::image::Size::new(8, 8)), &Default::default())?;
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
/// let pipeline = Pipeline::builder(stream).shuffle(1).transform(CenterCrop::new(8)).build()?;
/// let labels: Vec<u32> = pipeline.epoch(0).flat_map(|batch| batch.unwrap().labels().unwrap().to_vec()).collect();
/// assert_eq!(labels, [7]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Clone)]
pub struct RecordStream {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    format: RecordFormat,
    shards: Arc<dyn Shards>,
    /// The shards that are read, in this order.
    own: Vec<usize>,
    options: StreamOptions,
    /// The options of records, shared with samples whose fields are read later.
    records: Arc<RecordOptions>,
    /// The labels by the names of the classes.
    classes: HashMap<String, u32>,
}

impl std::fmt::Debug for RecordStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inner { format, own, options, .. } = &*self.inner;
        let shards = own.len();
        f.debug_struct("RecordStream")
            .field("format", format)
            .field("shards", &shards)
            .field("options", options)
            .finish()
    }
}

impl RecordStream {
    /// Opens local shards or pipes, in this order. Each file is opened when its turn comes.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no shard, the window is 0, an option does not apply to the format, or a class
    /// is named twice.
    pub fn open(
        format: RecordFormat,
        shards: impl IntoIterator<Item = PathBuf>,
        options: StreamOptions,
    ) -> Result<Self> {
        Self::new(format, Box::new(Files(shards.into_iter().collect())), options)
    }

    /// Reads standard input, for one epoch.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the window is 0 or a class is named twice.
    pub fn standard_input(format: RecordFormat, options: StreamOptions) -> Result<Self> {
        Self::new(format, Box::new(StandardInput::default()), options)
    }

    pub(in crate::source) fn new(
        format: RecordFormat,
        shards: Box<dyn Shards>,
        options: StreamOptions,
    ) -> Result<Self> {
        format.rules().check_options(&options.records)?;
        if shards.count() == 0 {
            return Err(Error::parameter("stream", "shards", "one or more", 0));
        }
        if options.window == 0 {
            return Err(Error::parameter("stream", "window", "1 or more samples", 0));
        }
        let classes = options.records.numbers()?;
        let own = (0..shards.count()).collect();
        let records = Arc::new(options.records.clone());
        Ok(Self { inner: Arc::new(Inner { format, shards: shards.into(), own, options, records, classes }) })
    }
}

impl Stream for RecordStream {
    fn begin(&self, start: &StreamStart) -> Result<Box<dyn Samples>> {
        self.inner.format.rules().check_wanted(start.target.as_deref(), &start.fields)?;
        let mut order = self.inner.own.clone();
        if let Some(seed) = start.shuffle {
            SampleRng::new(seed, start.epoch, Domain::Shards, 0).shuffle(&mut order);
        }
        let (index, count) = (start.partition.rank() as usize, start.partition.world_size() as usize);
        let by_shard = order.len() >= count;
        if by_shard {
            order = order.into_iter().skip(index).step_by(count).collect();
        }
        let mut samples: Box<dyn InOrder> = Box::new(Records {
            inner: Arc::clone(&self.inner),
            order,
            turn: 0,
            from: 0,
            current: None,
            target: start.target.clone(),
            fields: start.fields.clone().into(),
            labeled: None,
            versions: BTreeMap::new(),
            seekable: self.inner.shards.seekable(),
            any: false,
            skipped_files: 0,
            stopped: Arc::clone(&start.stopped),
        });
        if !by_shard {
            samples = Box::new(Strided { samples, part: start.partition, at: 0 });
        }
        let cursor = start.cursor.as_deref();
        let goes_on = |outcome: Option<Option<()>>| if outcome == Some(None) { Err(damaged_cursor()) } else { Ok(()) };
        if let (Some(seed), 2..) = (start.shuffle, self.inner.options.window) {
            let (window, rank) = (self.inner.options.window, start.partition.rank());
            let mut shuffled = Shuffled::new(samples, window, seed, start.epoch, rank);
            goes_on(cursor.map(|mut cursor| shuffled.go_on(&mut cursor)))?;
            return Ok(Box::new(shuffled));
        }
        goes_on(cursor.map(|mut cursor| samples.go_on(&mut cursor)))?;
        Ok(Box::new(Unshuffled(samples)))
    }

    fn memory_bytes(&self) -> u64 {
        // The last sample of the window may exceed its limit, and one more is being read.
        WINDOW_BYTES + 2 * (MAX_ENCODED_BYTES + MAX_FIELDS_BYTES) + AHEAD_BYTES + self.inner.shards.memory_bytes()
    }

    /// A hash of the shards' names, their format and the options.
    fn fingerprint(&self) -> u64 {
        let Inner { format, shards, own, options, .. } = &*self.inner;
        let mut hash = Sha256::new();
        let (image, label) = (&options.records.image, &options.records.label);
        hash.update(format!("{format:?} {image:?} {label:?} {}", options.window));
        for class in &options.records.classes {
            hash.update(format!("\0{class}"));
        }
        for &shard in own {
            let name = shards.name(shard);
            hash.update("\n");
            hash.update(name.rsplit(['/', '\\']).next().unwrap_or(&name));
        }
        hash.finalize().iter().take(8).fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    fn classes(&self) -> &[String] {
        &self.inner.options.records.classes
    }

    fn repeats(&self) -> bool {
        self.inner.shards.seekable()
    }

    fn shards(&self) -> u64 {
        self.inner.own.len() as u64
    }

    fn part(&self, shards: &[u64]) -> Result<Arc<dyn Stream>> {
        let own = &self.inner.own;
        let shard = |number: &u64| {
            let found = usize::try_from(*number).ok().and_then(|number| own.get(number).copied());
            found.ok_or_else(|| Error::parameter("stream", "shard", format!("below {}", own.len()), number))
        };
        let own = shards.iter().map(shard).collect::<Result<Vec<_>>>()?;
        if own.is_empty() {
            return Err(Error::parameter("stream", "shards", "one or more", 0));
        }
        let inner = Inner { own, ..Inner::clone(&self.inner) };
        Ok(Arc::new(Self { inner: Arc::new(inner) }))
    }
}

/// A shard that is being read.
struct Input {
    /// The shard's number in the order of the epoch.
    turn: u32,
    bytes: Forward,
    parser: Parser,
}

/// The records of one rank's shards, in the order of an epoch.
struct Records {
    inner: Arc<Inner>,
    order: Vec<usize>,
    /// The number, in `order`, of the next shard to open, and the byte to start at.
    turn: u32,
    from: u64,
    current: Option<Input>,
    /// The field of the targets, if they are wanted.
    target: Option<String>,
    /// The names of the wanted fields.
    fields: Arc<[String]>,
    /// Whether samples have labels, according to the first one.
    labeled: Option<bool>,
    /// The versions of the shards that were read, by turn.
    versions: BTreeMap<u32, u64>,
    seekable: bool,
    /// Whether there was any sample, good or bad.
    any: bool,
    skipped_files: u64,
    stopped: Arc<AtomicBool>,
}

/// Largest gap between samples that are read again together: reading this number of bytes takes as long as a request's
/// delay.
const GAP_BYTES: u64 = 256 << 10;

/// Largest number of bytes that are read again together, unless a single sample is longer.
const RUN_BYTES: u64 = 2 << 20;

/// Number of such runs that are read at once, as long as they have fewer than [`AHEAD_BYTES`] together.
const RUNS_AHEAD: usize = 16;
const AHEAD_BYTES: u64 = RUNS_AHEAD as u64 * RUN_BYTES;

impl Records {
    /// Makes a sample of an entry, or returns the reason why it is none.
    fn sample(&mut self, shard: &str, found: Entry, names: impl FnOnce() -> Names) -> Result<StreamSample> {
        let Entry { offset, image: bytes, member, label, target, fields, .. } = found;
        let bad = |message: String| damaged(self.inner.format, shard, offset, &message);
        let label = label.map_err(bad)?;
        let name = match &member[..] {
            [] => format!("{shard} at byte {offset}"),
            member => format!("{shard}/{}", String::from_utf8_lossy(member)),
        };
        let labeled = label != Label::None;
        if self.labeled.is_none() && !labeled {
            // The first sample decides whether the stream has labels.
            label::check_absent(self.inner.format, &self.inner.options.records, &names(), &name)?;
        }
        if *self.labeled.get_or_insert(labeled) != labeled {
            return Err(bad(label::differs(labeled).to_owned()));
        }
        let target = match (&self.target, target) {
            (None, _) => None,
            (Some(field), target) => {
                let target = target.unwrap_or_else(|| Err("the sample has none".to_owned()));
                Some(target.map_err(|message| targets::wrong(Some(field), format!("{message} ({name})")))?)
            }
        };
        let fields = (!self.fields.is_empty()).then(|| {
            let (format, options) = (self.inner.format, Arc::clone(&self.inner.records));
            let (names, of) = (Arc::clone(&self.fields), name.clone());
            StreamFields(Held::Stored(Box::new(Stored { format, options, names, fields, of })))
        });
        match label {
            Label::Number(label) => {
                let label = self.inner.options.records.check_class(label).map_err(bad)?;
                Ok(StreamSample { bytes, label: Some(label), name, target, fields })
            }
            Label::None => Ok(StreamSample { bytes, label: None, name, target, fields }),
            Label::Name(label) if self.inner.classes.is_empty() => Err(Error::Unsupported {
                feature: format!("the label {label:?} of {name} in a stream"),
                remedy:
                    "give the names of the classes, as a stream does not know them all before its end, or write labels \
                         as numbers"
                        .to_owned(),
            }),
            Label::Name(label) => {
                let number = self.inner.classes.get(&label).copied().ok_or_else(|| bad(no_class(&label)))?;
                Ok(StreamSample { bytes, label: Some(number), name, target, fields })
            }
        }
    }

    /// The error for shards without a sample.
    fn no_samples(&self) -> Error {
        let Inner { format, shards, options, .. } = &*self.inner;
        let first = self.order.first().map_or_else(String::new, |&shard| shards.name(shard));
        no_samples(*format, &options.records, (self.order.len(), &first), self.skipped_files)
    }

    /// Opens the shard of a turn. An error if its version differs from the one seen before.
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
        let want = ReadRequest::IMAGE.and_target(self.target.as_deref()).and_fields(&self.fields);
        let mut parser = Parser::new(self.inner.format, &self.inner.options.records, &want, offset);
        parser.keep_names(self.labeled.is_none());
        Ok(Input { turn, bytes: Forward::new(name, read, offset), parser })
    }

    /// Returns the next sample of a shard; `None` at its end.
    fn locate(&mut self, input: &mut Input) -> Result<Option<Located>> {
        let Some(found) = input.parser.next(&mut input.bytes)? else { return Ok(None) };
        let extent = Extent { turn: input.turn, start: found.part.start, end: found.part.end };
        let sample = self.sample(&input.bytes.name, found, || input.parser.names());
        if self.labeled.is_some() {
            input.parser.keep_names(false);
        }
        match sample {
            Err(error) if !error.is_bad_sample() => Err(error),
            sample => Ok(Some(Located { extent, sample })),
        }
    }
}

impl InOrder for Records {
    fn next(&mut self) -> Result<Option<Located>> {
        loop {
            let mut input = match self.current.take() {
                Some(input) => input,
                None => {
                    if self.turn as usize == self.order.len() {
                        return if self.any { Ok(None) } else { Err(self.no_samples()) };
                    }
                    let shard = self.find(self.turn)?;
                    let input = self.input(self.turn, &*shard, self.from..u64::MAX)?;
                    (self.turn, self.from) = (self.turn + 1, 0);
                    input
                }
            };
            if let Some(located) = self.locate(&mut input)? {
                (self.current, self.any) = (Some(input), true);
                return Ok(Some(located));
            }
            self.skipped_files += input.parser.skipped_files();
        }
    }

    fn reread(&mut self, extents: &[Extent]) -> Result<Vec<Result<StreamSample>>> {
        // A valid cursor has the version of each shard in its window.
        if extents.iter().any(|extent| !self.versions.contains_key(&extent.turn)) {
            return Err(damaged_cursor());
        }
        let mut runs: VecDeque<Vec<usize>> = VecDeque::new();
        let mut order: Vec<usize> = (0..extents.len()).collect();
        order.sort_unstable_by_key(|&i| (extents[i].turn, extents[i].start));
        for i in order {
            let near = |run: &&mut Vec<usize>| {
                let (first, last) = (extents[run[0]], extents[run[run.len() - 1]]);
                let together = first.turn == extents[i].turn && extents[i].end.saturating_sub(first.start) <= RUN_BYTES;
                together && extents[i].start.saturating_sub(last.end) <= GAP_BYTES
            };
            match runs.back_mut().filter(near) {
                Some(run) => run.push(i),
                None => runs.push_back(vec![i]),
            }
        }
        let mut samples: Vec<Option<Result<StreamSample>>> = extents.iter().map(|_| None).collect();
        let (mut found, mut coming): (Option<(u32, Box<dyn Shard>)>, _) = (None, VecDeque::new());
        let (mut ahead_bytes, runs_ahead) = (0, RUNS_AHEAD.min(most_open()));
        loop {
            while coming.len() < runs_ahead
                && ahead_bytes < AHEAD_BYTES
                && let Some(run) = runs.pop_front()
            {
                let (first, last) = (extents[run[0]], extents[run[run.len() - 1]]);
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
                let located = loop {
                    match self.locate(&mut input)? {
                        Some(located) if located.extent.start < extents[i].start => {}
                        other => break other,
                    }
                };
                match located {
                    Some(Located { extent, sample }) if extent.start == extents[i].start => samples[i] = Some(sample),
                    _ => {
                        let message = "there is no sample as there was when the state was written".to_owned();
                        return Err(Error::Stream { shard: input.bytes.name, offset: extents[i].start, message });
                    }
                }
            }
        }
        Ok(samples.into_iter().flatten().collect())
    }

    fn write(&self, turns: &[u32], cursor: &mut Vec<u8>) -> Option<()> {
        if !self.seekable {
            return None;
        }
        let (turn, from) =
            self.current.as_ref().map_or((self.turn, self.from), |input| (input.turn, input.parser.rest()));
        put(cursor, turn.into());
        put(cursor, from);
        put(cursor, self.labeled.map_or(2, u64::from));
        // The current shard is included if it was begun.
        let last = Some(turn).filter(|turn| turns.last() != Some(turn) && self.versions.contains_key(turn));
        put(cursor, turns.len() as u64 + u64::from(last.is_some()));
        for turn in turns.iter().copied().chain(last) {
            put(cursor, turn.into());
            put(cursor, self.versions.get(&turn).copied().unwrap_or(0));
        }
        Some(())
    }

    fn go_on(&mut self, cursor: &mut &[u8]) -> Option<()> {
        // Pipes have no cursors.
        let turns = Some(self.order.len() as u64).filter(|_| self.seekable)?;
        self.turn = take(cursor).filter(|&turn| turn <= turns)?.try_into().ok()?;
        self.from = take_count(cursor)?;
        // Any other position than the beginning follows a sample.
        self.any = (self.turn, self.from) != (0, 0);
        self.labeled = match take(cursor)? {
            2 => None,
            labeled @ 0..=1 => Some(labeled == 1),
            _ => return None,
        };
        for _ in 0..take(cursor)? {
            let turn = take(cursor).filter(|&turn| turn < turns)?.try_into().ok()?;
            self.versions.insert(turn, take(cursor)?);
        }
        cursor.is_empty().then_some(())
    }
}
