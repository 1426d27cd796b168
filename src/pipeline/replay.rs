//! Reproduces batches of a logged run. A stream goes on from the last place in the log before the batch.

use super::Pipeline;
use super::batch::{Batch, BatchImages};
use super::context::FixedPicks;
use super::epoch::{Epoch, EpochStart};
use super::log::{Description, Lines, LoggedBatch};
use super::policy::{LastBatch, OnError, Policy};
use super::setup::Setup;
use super::state::{Changes, EpochState};
use crate::error::{Error, Result};
use crate::order::{Segment, Segments};
use crate::rng::{Domain, Pick, SampleRng};
use crate::source::Input;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A logged run ([`RunLog`](crate::RunLog)) whose batches are reproduced, byte for byte, by a pipeline over the same
/// source with the same settings, on any machine.
///
/// ```
/// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// # use warpfeed::prelude::*;
/// use warpfeed::{LogOptions, Mix, Replay, RunLog};
///
/// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// # let source = EncodedImages::new((0..10).map(|label| (jpeg.clone(), label)));
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("run.wlog");
/// let builder = Pipeline::builder(source).shuffle(7).batch_size(4).transform(random_resized_crop(8));
/// let builder = builder.targets(TargetSpec::soft(10)).mix(Mix::timm(0.8, 1.0));
/// let pipeline = builder.clone().build()?;
/// let mut options = LogOptions::default();
/// options.chain = true;
/// let mut log = RunLog::open(&path, &pipeline, &options)?;
/// for (step, batch) in (0..).zip(pipeline.epoch(3)) {
///     log.write(step, &batch?)?;
/// }
///
/// let replay = Replay::open(&path)?;
/// let want = pipeline.epoch(3).nth(1).unwrap()?;
/// assert_eq!(replay.batch(&pipeline, 1)?.images().as_bytes()?, want.images().as_bytes()?);
/// assert_eq!(replay.summary()?.chain, log.chain());
/// assert_eq!(replay.verify(&pipeline, 2, 0)?.len(), 2);
///
/// let error = replay.batch(&builder.batch_size(5).build()?, 1).unwrap_err();
/// assert!(error.to_string().contains("batch_size 4"), "{error}");
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug)]
pub struct Replay {
    path: PathBuf,
    description: Description,
    approximate: bool,
}

/// Summary of a log ([`Replay::summary`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LogSummary {
    /// Number of lines of batches. A step that was logged twice counts twice.
    pub batches: u64,
    /// Whether lines have SHA-256 of each image.
    pub digests: bool,
    /// The hash of the last line, 64 hexadecimal digits; `None` without a chain.
    pub chain: Option<String>,
}

/// A line, and the last state before it.
struct Found {
    line: LoggedBatch,
    before: Option<EpochState>,
}

/// Goes through the lines of a log's batches.
struct Walk {
    lines: Lines,
    /// Contents of the current line.
    passed: Passed,
    /// States from which the current line can be reached, in the order of their places. A run that went on with an
    /// older state, or began again, has lines of earlier places after those of later ones.
    states: Vec<EpochState>,
}

/// Largest number of states that are kept. If there are more, every second one is dropped; the walk from a state to a
/// line is longer then.
const MOST_STATES: usize = 4_096;

/// The parts of a line that are read.
#[derive(Default, Deserialize)]
struct Passed {
    step: u64,
    epoch: u64,
    first: u64,
    #[serde(default)]
    before: Option<EpochState>,
    #[serde(default)]
    state: Option<EpochState>,
}

impl Walk {
    fn open(path: &Path) -> Result<Self> {
        Ok(Self { lines: Lines::open(path)?, passed: Passed::default(), states: Vec::new() })
    }

    /// Goes to the next line, and returns its step; `None` at the end.
    fn next(&mut self) -> Result<Option<u64>> {
        self.states.extend(self.passed.state.take());
        if !self.lines.next()? {
            return Ok(None);
        }
        self.passed = self.lines.parse()?;
        let place = (self.passed.epoch, self.passed.first);
        while self.states.pop_if(|state| (state.epoch(), state.position()) > place).is_some() {}
        self.states.extend(self.passed.before.take());
        if self.states.len() > MOST_STATES {
            // The first one of an epoch may have what later ones were made from.
            let (mut number, mut epoch) = (0, None);
            self.states.retain(|state| {
                number += 1;
                epoch.replace(state.epoch()) != Some(state.epoch()) || number % 2 == 0
            });
        }
        Ok(Some(self.passed.step))
    }

    /// The current line.
    fn line(&self) -> Result<Found> {
        let line: LoggedBatch = self.lines.parse()?;
        let before = self.states.last().filter(|state| state.epoch() == line.epoch).cloned();
        Ok(Found { line, before })
    }
}

impl Replay {
    /// Opens a log and reads its entry of the run.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read or is not a log.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let lines = Lines::open(&path)?;
        if lines.is_empty {
            return Err(wrong("read", &path, "it has no line: the run ended before its first batch".to_owned()));
        }
        Ok(Self { path, description: lines.description, approximate: false })
    }

    /// Sets whether batches with images that nvJPEG decoded are reproduced too. The CPU then decodes these images, and
    /// their pixels differ a little. Default: false.
    #[must_use]
    pub fn approximate(mut self, approximate: bool) -> Self {
        self.approximate = approximate;
        self
    }

    /// The arguments of the run ([`LogOptions::arguments`](crate::LogOptions::arguments)).
    #[must_use]
    pub fn arguments(&self) -> &[String] {
        &self.description.arguments
    }

    /// The part of each epoch that the run had: `0/1` for all of it, as [`Partition`](crate::Partition) is written.
    #[must_use]
    pub fn partition(&self) -> String {
        let partition = self.description.pipeline.get("partition");
        let number = |i| partition.and_then(|numbers| numbers[i].as_u64()).unwrap_or(i as u64);
        format!("{}/{}", number(0), number(1))
    }

    /// Reads the whole log, and checks its chain if it has one. No image is read.
    ///
    /// # Errors
    /// [`Error::Io`] if the log cannot be read, or a line was changed, added or taken out.
    pub fn summary(&self) -> Result<LogSummary> {
        let (mut lines, mut batches) = (Lines::open(&self.path)?, 0);
        while lines.next()? {
            batches += 1;
        }
        let chain = lines.chain.map(|chain| chain.text());
        Ok(LogSummary { batches, digests: self.description.digests, chain })
    }

    /// Checks that a pipeline is that of the run.
    ///
    /// # Errors
    /// [`Error::Parameter`], which names the differences, if it is not.
    pub fn check<I>(&self, pipeline: &Pipeline<I>) -> Result<()> {
        self.description.check(&self.path, &pipeline.setup)
    }

    /// Reproduces the batch of a step. If the step was logged several times, the last counts. If the log has digests,
    /// they are compared.
    ///
    /// # Errors
    /// [`Error::Parameter`], which names the differences, if the pipeline is not that of the run, or if the log has no
    /// such step; [`Error::Unsupported`] if nvJPEG decoded an image and approximate pixels are not allowed;
    /// [`Error::Io`] with the step and the image if the result is not that of the run; the errors of reading the
    /// samples.
    pub fn batch<I: BatchImages>(&self, pipeline: &Pipeline<I>, step: u64) -> Result<Batch<I>> {
        self.check(pipeline)?;
        let (mut walk, mut found) = (Walk::open(&self.path)?, None);
        while let Some(at) = walk.next()? {
            if at == step {
                found = Some(walk.line()?);
            }
        }
        let missing = || {
            let expected = format!("a step that {} has", self.path.display());
            Error::parameter("replay", "step", expected, step)
        };
        self.again(pipeline, found.ok_or_else(missing)?)
    }

    /// Reproduces some of the batches, drawn by the seed, and compares them with the log: samples, mixing, and each
    /// image's digest if the log has digests. Returns the steps. The chain is checked on the way.
    ///
    /// # Errors
    /// The errors of [`summary`](Self::summary) and [`batch`](Self::batch).
    pub fn verify<I: BatchImages>(&self, pipeline: &Pipeline<I>, batches: u64, seed: u64) -> Result<Vec<u64>> {
        self.check(pipeline)?;
        let wanted = drawn(self.summary()?.batches, batches, seed);
        let (mut walk, mut steps) = (Walk::open(&self.path)?, Vec::new());
        for number in 0.. {
            let Some(step) = walk.next()? else { break };
            if wanted.contains(&number) {
                self.again(pipeline, walk.line()?)?;
                steps.push(step);
            }
        }
        Ok(steps)
    }

    /// Makes the batch of a line again, and compares it.
    fn again<I: BatchImages>(&self, pipeline: &Pipeline<I>, Found { line, before }: Found) -> Result<Batch<I>> {
        if !line.nvjpeg.is_empty() && !self.approximate {
            return Err(Error::Unsupported {
                feature: format!(
                    "an exact replay of step {}, of which nvJPEG decoded {} images",
                    line.step,
                    line.nvjpeg.len()
                ),
                remedy: "allow pixels that differ a little (--approximate), or run with --jpeg-decoder auto".to_owned(),
            });
        }
        let mut batch = match &pipeline.setup.input {
            Input::DataSet(source) => {
                self.check_line(&line, &pipeline.setup, source.len())?;
                pipeline.batch_of(&line)?
            }
            Input::Stream(_) => pipeline.stream_batch_of(&line, before.as_ref())?,
        };
        for &(place, index) in &line.instead_of {
            if let Some(drawn) = batch.drawn.get_mut(place) {
                drawn.instead_of = Some(index);
            }
        }
        self.compare(&batch, &line)?;
        Ok(batch)
    }

    /// Checks that a line is one of a run of the pipeline, whose source has `samples`.
    fn check_line(&self, line: &LoggedBatch, setup: &Setup, samples: u64) -> Result<()> {
        let images = line.indices.len();
        let is_right = (1..=setup.options.most_images()).contains(&images)
            && line.padding <= images
            && line.segments.iter().all(Segment::is_valid)
            && line.first <= setup.rest(line.epoch, &line.segments, 1).len()
            && line.indices.iter().all(|index| *index < samples);
        let what = || format!("step {}: its line was changed: it is none of this run", line.step);
        if is_right { Ok(()) } else { Err(wrong("replay", &self.path, what())) }
    }

    /// Compares a batch with its line.
    fn compare<I: BatchImages>(&self, batch: &Batch<I>, logged: &LoggedBatch) -> Result<()> {
        let differs = |what: String| Err(wrong("replay", &self.path, format!("step {}: {what}", logged.step)));
        let exact = logged.nvjpeg.is_empty();
        let own = LoggedBatch::new(logged.step, batch, exact && !logged.digests.is_empty())?;
        let samples = |line: &LoggedBatch| (line.indices.clone(), line.repetitions.clone(), line.padding);
        if samples(&own) != samples(logged) {
            return differs(format!("its samples are {:?}, and were {:?}", own.indices, logged.indices));
        }
        if (&own.partners, &own.shares) != (&logged.partners, &logged.shares) {
            return differs(
                "its images are mixed otherwise: take the version of warpfeed that the log names".to_owned(),
            );
        }
        let mut pairs = own.digests.iter().zip(&logged.digests).enumerate();
        if exact && let Some((image, (own, logged))) = pairs.find(|(_, (own, logged))| own != logged) {
            let index = batch.indices()[image % batch.len()];
            let name = match &batch.moment.setup.input {
                Input::DataSet(source) => source.name(index).into_owned(),
                Input::Stream(_) => "of a stream".to_owned(),
            };
            return differs(format!(
                "image {image} (sample {index}, {name}) is not that of the run: its digest is {own}, and was {logged}; its \
                 file, or the log, was changed"
            ));
        }
        Ok(())
    }
}

fn wrong(action: &'static str, path: &Path, what: String) -> Error {
    Error::io(action, path)(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// `count` different numbers below `of` (all, if there are fewer), in rising order: Floyd's algorithm.
fn drawn(of: u64, count: u64, seed: u64) -> BTreeSet<u64> {
    let mut draw = SampleRng::new(seed, 0, Domain::Replay, 0);
    let mut numbers = BTreeSet::new();
    for last in of.saturating_sub(count)..of {
        let number = draw.below(last + 1);
        if !numbers.insert(number) {
            numbers.insert(last);
        }
    }
    numbers
}

impl<I: BatchImages> Pipeline<I> {
    /// Makes a batch of a data set again from its samples.
    fn batch_of(&self, line: &LoggedBatch) -> Result<Batch<I>> {
        let repetitions = line.repetitions.iter().copied().chain(std::iter::repeat(0));
        let picks = line.indices.iter().zip(repetitions);
        let picks = picks.map(|(&index, repetition)| Pick { index, repetition }).collect();
        let given = FixedPicks { picks, padding: line.padding as u64 };
        // The line has decided about bad samples and the end of the epoch.
        let policy = Policy { on_error: OnError::Fail, max_bad: None, last: LastBatch::Keep };
        let setup = Arc::new(Setup { policy, ..(*self.setup).clone() });
        let changes = Changes { segments: Segments::from([(line.epoch, line.segments.clone())]), ..Changes::default() };
        let changes = Arc::new(changes);
        let beginning = EpochStart {
            setup: &setup,
            changes,
            first: line.first,
            given: Some(given),
            ..self.epoch_start(line.epoch)
        };
        one(&mut Epoch::start_all(vec![beginning]).swap_remove(0), line.step)
    }

    /// Makes a batch of a stream again, from the last known state before it on.
    fn stream_batch_of(&self, line: &LoggedBatch, before: Option<&EpochState>) -> Result<Batch<I>> {
        let mut epoch = before.map_or_else(|| Ok(self.epoch(line.epoch)), |state| self.resume(state))?;
        loop {
            let batch = one(&mut epoch, line.step)?;
            if batch.moment.first >= line.first {
                return Ok(batch);
            }
        }
    }
}

/// The next batch of an epoch, which must have one.
fn one<I: BatchImages>(epoch: &mut Epoch<I>, step: u64) -> Result<Batch<I>> {
    let ended = || Error::parameter("replay", "source", "that of the run", format!("one that ends before step {step}"));
    epoch.next().unwrap_or_else(|| Err(ended()))
}

#[cfg(test)]
mod tests {
    use super::drawn;

    #[test]
    fn different_numbers_are_drawn_by_the_seed() {
        let numbers = drawn(1_000, 10, 1);
        assert!(numbers.len() == 10 && numbers.iter().all(|number| *number < 1_000), "{numbers:?}");
        assert!(numbers == drawn(1_000, 10, 1) && numbers != drawn(1_000, 10, 2));
        assert_eq!(drawn(3, 10, 1), (0..3).collect());
        assert!(drawn(0, 10, 1).is_empty() && drawn(10, 0, 1).is_empty());
    }
}
