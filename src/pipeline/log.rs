//! The log of a run: one line of JSON for the run, and one for each batch. [`Replay`](super::Replay) reproduces a batch
//! from it.
//!
//! A line has the samples of its batch, substitutes and skipped samples; the rest is drawn again. With a chain, each
//! line ends in SHA-256 over the hash of the line before (32 zero bytes before the first) and the line's JSON without
//! that hash.

use super::batch::{Batch, BatchImages};
use super::setup::Setup;
use super::state::{Changes, EpochState};
use super::{Pipeline, recipes::ViewTransforms};
use crate::error::{Error, Result};
use crate::hex::hex;
use crate::ops::orientation::Orientation;
use crate::ops::transform::Transform;
use crate::order::{Segment, segments_of};
use crate::os::file;
use crate::os::lock::{self, Lock};
use crate::pixels::Pixels;
use crate::raster::Size;
use crate::source::Input;
use crate::source::stream::Place;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};

/// The version of logs that are written and read.
const VERSION: u32 = 1;
/// Longest line. The largest batch has 2^20 images.
const MAX_LINE_BYTES: u64 = 1 << 28;
/// Number of batches of a stream from one place in it to the next: to come to a batch again, at most as many are made.
const STREAM_PLACES: u64 = 64;
/// The text between a line's JSON and the digits of its hash.
const CHAINED: &[u8] = b",\"chain\":\"";

/// Options of a [`RunLog`]: what it writes in addition to the samples.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LogOptions {
    /// SHA-256 of each image, on the calling thread: 0.3 ms for 224 x 224 pixels in f32 on a Xeon with SHA extensions.
    /// A batch on a device is copied to the host for it.
    pub digests: bool,
    /// A hash in each line over the hash of the line before, so that no line can be changed, added or left out without
    /// changing all later hashes. It includes [`digests`](Self::digests).
    pub chain: bool,
    /// The arguments of the run, for building the pipeline again ([`Replay::arguments`](crate::Replay::arguments)).
    pub arguments: Vec<String>,
}

/// The first line of a log, and of each process that goes on with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Description {
    /// Version of the log.
    log: u32,
    /// Version of this crate.
    warpfeed: String,
    pub(super) arguments: Vec<String>,
    device: String,
    jpeg_decoder: String,
    pub(super) digests: bool,
    pub(super) chain: bool,
    /// All settings that decide about the batches.
    pub(super) pipeline: Map<String, Value>,
}

/// The line of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct LoggedBatch {
    pub(super) step: u64,
    pub(super) epoch: u64,
    /// The batch's first position in the epoch.
    pub(super) first: u64,
    /// The samples, padding included.
    pub(super) indices: Vec<u64>,
    /// Empty if no sample came before in the epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) repetitions: Vec<u32>,
    /// Places of substitutes, and the indices of the bad samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) instead_of: Vec<(usize, u64)>,
    /// Places in the batch that each image's partner has, and the share of each image that is its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) partners: Vec<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) shares: Vec<f32>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) padding: usize,
    /// Places of the images that nvJPEG decoded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) nvjpeg: Vec<usize>,
    /// SHA-256 of each image, view after view.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) digests: Vec<String>,
    /// Changes of the number of ranks earlier in the epoch, which decide how batches are mixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) segments: Vec<Segment>,
    /// The state before the batch, in the line with which an epoch of a stream goes on in the lanes of other ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<EpochState>,
    /// The state after the batch, in some lines of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<EpochState>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl LoggedBatch {
    pub(super) fn new<I: BatchImages>(step: u64, batch: &Batch<I>, digests: bool) -> Result<Self> {
        let places = || batch.drawn.iter().enumerate();
        let repetitions = batch.repetitions();
        let mixed = batch.mixed();
        Ok(Self {
            step,
            epoch: batch.moment.epoch,
            first: batch.moment.first,
            indices: batch.indices().to_vec(),
            repetitions: if repetitions.iter().all(|times| *times == 0) { Vec::new() } else { repetitions },
            instead_of: places().filter_map(|(place, drawn)| Some((place, drawn.instead_of?))).collect(),
            partners: mixed.map_or_else(Vec::new, |mixed| mixed.partners().to_vec()),
            shares: mixed.map_or_else(Vec::new, |mixed| mixed.shares().to_vec()),
            padding: batch.padding(),
            nvjpeg: places().filter(|(_, drawn)| drawn.approximate).map(|(place, _)| place).collect(),
            digests: if digests { batch.digests()? } else { Vec::new() },
            segments: segments_of(&batch.moment.changes.segments, batch.moment.epoch).to_vec(),
            before: batch.moment.epoch_start(),
            state: None,
        })
    }
}

impl Description {
    fn new<I>(pipeline: &Pipeline<I>, options: &LogOptions) -> Self {
        Self {
            log: VERSION,
            warpfeed: env!("CARGO_PKG_VERSION").to_owned(),
            arguments: options.arguments.clone(),
            device: pipeline.device_name(),
            jpeg_decoder: pipeline.setup.options.jpeg_decoder.to_string(),
            digests: options.digests || options.chain,
            chain: options.chain,
            pipeline: settings(&pipeline.setup),
        }
    }

    /// Compares the settings with those of a pipeline. An error says what differs.
    pub(super) fn check(&self, path: &Path, setup: &Setup) -> Result<()> {
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        let (own, logged) = (settings(setup), &self.pipeline);
        for key in own.keys().chain(logged.keys().filter(|key| !own.contains_key(*key))) {
            if own.get(key) != logged.get(key) {
                let word = |of: &Map<String, Value>| of.get(key).unwrap_or(&Value::Null).to_string();
                expected.push(format!("{key} {}", word(logged)));
                got.push(format!("{key} {}", word(&own)));
            }
        }
        if expected.is_empty() {
            return Ok(());
        }
        let expected = format!("that of {} ({})", path.display(), expected.join(", "));
        Err(Error::parameter("log", "pipeline", expected, got.join(", ")))
    }
}

/// All settings that decide about the batches of a pipeline, with the source's fingerprint.
fn settings(setup: &Setup) -> Map<String, Value> {
    let Setup { recipes, options, .. } = setup;
    let elements = options.elements();
    // By way of a text, in which a number of 32 bits has the digits that it was given with.
    let written = |transform: &Transform| {
        let text = serde_json::to_string(transform).ok();
        let value = text.and_then(|text| serde_json::from_str(&text).ok());
        value.unwrap_or_else(|| json!(format!("{transform:?}")))
    };
    let list = |transforms: &Vec<Transform>| transforms.iter().map(written).collect::<Value>();
    let view =
        |view: &ViewTransforms| json!({"images": view.images.iter().map(list).collect::<Value>(), "times": view.times});
    let size = |size: Size| [size.width, size.height];
    let lanes = setup.lanes.map(|lanes| ("lanes".to_owned(), json!(lanes)));
    let mut all = match json!(EpochState::new(setup, 0, &Changes::default(), 0, &Place::Cursor(None))) {
        Value::Object(state) => state,
        _ => Map::new(),
    };
    all.retain(|key, _| !["version", "epoch", "position"].contains(&key.as_str()));
    let own = json!({
        "batch_size": options.batch_size,
        "dtype": elements.dtype,
        "layout": elements.layout,
        "channels": elements.channels,
        "padded_to": options.outputs.iter().map(|output| output.padded_to).collect::<Vec<_>>(),
        "views": recipes.views.iter().map(view).collect::<Value>(),
        "strategy": recipes.planner.strategy,
        "pass_order": recipes.planner.order,
        "max_pixels": recipes.planner.max_px,
        "orientation": recipes.opening.orientation == Orientation::Apply,
        "draft": recipes.opening.draft.map(size),
        "thumbnail": recipes.opening.thumbnail,
        "accept_truncated": options.accept_truncated,
        "targets": setup.targets.as_ref().map(ToString::to_string),
        "fields": &*setup.fields,
    });
    if let Value::Object(own) = own {
        all.extend(own);
    }
    all.extend(lanes);
    if let Some(values) = options.values {
        let pixels = json!(Pixels::Kind(values.kind).to_string());
        all.extend([("pixels".to_owned(), pixels), ("max_value".to_owned(), json!(values.max_value))]);
    }
    all
}

/// Writes the log of a run, one line for each batch, so that [`Replay`](crate::Replay) can reproduce any of its
/// batches.
///
/// ```
/// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// # use warpfeed::prelude::*;
/// use warpfeed::{LogOptions, Replay, RunLog};
///
/// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// # let source = EncodedImages::new((0..10).map(|label| (jpeg.clone(), label)));
/// # let folder = tempfile::tempdir().unwrap();
/// let pipeline = Pipeline::builder(source).shuffle(7).batch_size(4).transform(random_resized_crop(8)).build()?;
/// let path = folder.path().join("run.wlog");
/// let mut log = RunLog::open(&path, &pipeline, &LogOptions::default())?;
/// for (step, batch) in (0..).zip(pipeline.epoch(0)) {
///     let batch = batch?;
///     log.write(step, &batch)?;
///     // The training step.
/// }
/// let again = Replay::open(&path)?.batch(&pipeline, 1)?;
/// assert_eq!(again.indices(), pipeline.epoch(0).nth(1).unwrap()?.indices());
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug)]
pub struct RunLog {
    file: File,
    path: PathBuf,
    /// Number of bytes of whole lines.
    len_bytes: u64,
    digests: bool,
    chain: Option<Chain>,
    /// Number of batches that this process wrote.
    written: u64,
    /// Keeps other writers away.
    _lock: Option<Lock>,
}

impl RunLog {
    /// Begins a log, or goes on with one: a training that is continued from a state writes on in the same file. If a
    /// step is written again, its later line counts.
    ///
    /// While it is open, `.NAME.lock` next to it is locked, so that no other process writes the same log.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the file is the log of another pipeline, was begun with other options, or is written by
    /// another process or another `RunLog`; [`Error::Io`] if it cannot be read or written, or is not a log.
    pub fn open<I>(path: impl Into<PathBuf>, pipeline: &Pipeline<I>, options: &LogOptions) -> Result<Self> {
        let path = path.into();
        let own = Description::new(pipeline, options);
        let lock = lock::only_writer("log", "path", &path, &format!("rank {} of a run", pipeline.partition()))?;
        let found = file::if_there(Lines::open(&path))?;
        let (mut len_bytes, mut chain) = (0, own.chain.then(Chain::default));
        if let Some(mut lines) = found.filter(|lines| !lines.is_empty) {
            let logged = lines.description.clone();
            logged.check(&path, &pipeline.setup)?;
            if (logged.digests, logged.chain) != (own.digests, own.chain) {
                let word = |of: &Description| format!("digests {}, chain {}", of.digests, of.chain);
                let expected = format!("those of {} ({})", path.display(), word(&logged));
                return Err(Error::parameter("log", "options", expected, word(&own)));
            }
            while lines.next()? {}
            (len_bytes, chain) = (lines.len_bytes, lines.chain);
        }
        let opened = file::open_by(&path, File::options().append(true).create(true));
        let (file, _) = opened.map_err(Error::io("open", &path))?;
        file.set_len(len_bytes).map_err(Error::io("write", &path))?;
        let mut log = Self { file, path, len_bytes, digests: own.digests, chain, written: 0, _lock: lock };
        log.line(&json!({ "run": own }))?;
        Ok(log)
    }

    /// Writes the line of a batch. `step` is the number by which it is found again. When this returns, the line
    /// survives the end of the process; a power loss may remove the last lines.
    ///
    /// # Errors
    /// [`Error::Io`] with the log's name if the line cannot be written, as on a full disk. The log then ends with the
    /// line before, and the next call tries again, so a training may go on after this error. [`Error::Device`] if a
    /// batch cannot be copied from its device for digests.
    pub fn write<I: BatchImages>(&mut self, step: u64, batch: &Batch<I>) -> Result<()> {
        let mut line = LoggedBatch::new(step, batch, self.digests)?;
        let is_stream = matches!(batch.moment.setup.input, Input::Stream(_));
        if is_stream && self.written.is_multiple_of(STREAM_PLACES) {
            line.state = Some(batch.state());
        }
        self.line(&line)?;
        self.written += 1;
        Ok(())
    }

    /// The hash of the last line, 64 hexadecimal digits; `None` without a chain. Whoever keeps it elsewhere can tell
    /// later that no line was changed.
    #[must_use]
    pub fn chain(&self) -> Option<String> {
        self.chain.as_ref().map(|chain| hex(&chain.0))
    }

    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(value).map_err(|error| Error::io("write", &self.path)(error.into()))?;
        let chain = self.chain.as_ref().map(|chain| chain.after(&line));
        if let Some(chain) = &chain {
            line.pop();
            line.extend_from_slice(CHAINED);
            line.extend_from_slice(hex(&chain.0).as_bytes());
            line.extend_from_slice(b"\"}");
        }
        line.push(b'\n');
        if let Err(error) = self.file.write_all(&line) {
            // The incomplete line is removed. If that fails, the next reader skips it.
            let _ = self.file.set_len(self.len_bytes);
            return Err(Error::io("write", &self.path)(error));
        }
        self.len_bytes += line.len() as u64;
        self.chain = chain;
        Ok(())
    }
}

/// The hash of a line.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Chain([u8; 32]);

impl Chain {
    /// The hash of the next line, from its JSON without the hash.
    fn after(&self, json: &[u8]) -> Self {
        Self(Sha256::new().chain_update(self.0).chain_update(json).finalize().into())
    }

    pub(super) fn text(&self) -> String {
        hex(&self.0)
    }
}

/// Reads a log line by line, and checks its chain.
pub(super) struct Lines {
    reader: BufReader<File>,
    path: PathBuf,
    /// The first line; without meaning if the log is empty.
    pub(super) description: Description,
    /// Whether the log has not even its first line.
    pub(super) is_empty: bool,
    /// Number of lines so far.
    number: u64,
    /// Number of bytes of whole lines so far.
    len_bytes: u64,
    /// The hash of the last line so far; `None` without a chain.
    pub(super) chain: Option<Chain>,
    line: Vec<u8>,
}

impl Lines {
    /// Opens a log and reads its first line.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let (file, _) = file::open_with_metadata(path)?;
        let description = Description {
            log: VERSION,
            warpfeed: String::new(),
            arguments: Vec::new(),
            device: String::new(),
            jpeg_decoder: String::new(),
            digests: false,
            chain: false,
            pipeline: Map::new(),
        };
        let mut lines = Self {
            reader: BufReader::new(file),
            path: path.to_owned(),
            description,
            is_empty: true,
            number: 0,
            len_bytes: 0,
            chain: None,
            line: Vec::new(),
        };
        if !lines.read()? {
            return Ok(lines);
        }
        let first: First = serde_json::from_slice(&lines.line)
            .map_err(|error| lines.wrong(format!("it is no log that warpfeed run --log wrote ({error})")))?;
        if first.run.log != VERSION {
            return Err(lines.wrong(format!("it is of version {}, and this program reads {VERSION}", first.run.log)));
        }
        (lines.description, lines.is_empty) = (first.run, false);
        lines.chain = lines.description.chain.then(Chain::default);
        lines.check_chain()?;
        Ok(lines)
    }

    /// Goes to the next line of a batch, and says whether there is one: none at the end, or before a line that was cut
    /// short. The lines of processes that went on with the log are skipped.
    pub(super) fn next(&mut self) -> Result<bool> {
        while self.read()? {
            self.check_chain()?;
            if !self.line.starts_with(b"{\"run\":") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Parses the line.
    pub(super) fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        serde_json::from_slice(&self.line).map_err(|error| self.wrong(format!("line {}: {error}", self.number)))
    }

    /// Reads a whole line.
    fn read(&mut self) -> Result<bool> {
        self.line.clear();
        let mut limited = (&mut self.reader).take(MAX_LINE_BYTES);
        let read = limited.read_until(b'\n', &mut self.line).map_err(Error::io("read", &self.path))?;
        if self.line.last() != Some(&b'\n') {
            if read as u64 == MAX_LINE_BYTES {
                return Err(self.wrong(format!("line {} is too long: it is no log", self.number + 1)));
            }
            return Ok(false);
        }
        self.line.pop();
        self.number += 1;
        self.len_bytes += read as u64;
        Ok(true)
    }

    /// Compares the line's hash with that of its contents and the line before.
    fn check_chain(&mut self) -> Result<()> {
        let Some(chain) = &self.chain else { return Ok(()) };
        let hash_at = self.line.len().checked_sub(64 + 2 + CHAINED.len());
        let parts = hash_at.map(|at| self.line.split_at(at)).filter(|(_, end)| end.starts_with(CHAINED));
        let next = parts.map(|(json, end)| (chain.after(&[json, b"}"].concat()), &end[CHAINED.len()..][..64]));
        match next {
            Some((next, hash)) if next.text().as_bytes() == hash => {
                self.chain = Some(next);
                Ok(())
            }
            _ => Err(self.wrong(format!(
                "line {} does not continue the chain of hashes: it, or a line before it, was changed or taken out",
                self.number
            ))),
        }
    }

    fn wrong(&self, what: String) -> Error {
        Error::io("read", &self.path)(io::Error::new(io::ErrorKind::InvalidData, what))
    }
}

/// The form of the first line.
#[derive(Deserialize)]
struct First {
    run: Description,
}
