//! Gives an epoch's workers the samples of a stream, by position.

use super::lanes::{LaneReader, Lanes, Pulled, beyond};
use super::{Stream, StreamSample, StreamStart};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::source::ReadRequest;
use crate::source::records::label;
use crate::source::sample::wanted_fields;
use crate::targets::{self, Found, Target};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// One epoch of a stream. Workers ask for a sample by the number of its position among those of all ranks in turn. This
/// is the sample's index too, unless the epoch is read in lanes ([`index`](Self::index)).
pub(crate) struct Feed {
    stream: Arc<dyn Stream>,
    start: StreamStart,
    /// Position of the first sample to deliver.
    first: u64,
    /// The places from which the rank's lanes are read; `None` for an epoch that is not read in lanes.
    lanes: Option<Lanes>,
    /// Number of samples whose names and labels are kept after they were read.
    known: usize,
    /// Number of samples from one stored place to the next, and number of stored places.
    every: u64,
    keep_places: usize,
    state: Mutex<State>,
    displacement_sum: AtomicU64,
    displacement_max: AtomicU64,
}

#[derive(Default)]
struct State {
    /// `None` until the first sample is requested, and while a worker pulls.
    reader: Option<LaneReader>,
    /// Whether a worker is pulling a sample, which it does without the lock.
    pulling: bool,
    /// Position of the next sample of the stream.
    next: u64,
    /// Samples that were pulled before a worker requested them, at most one for each worker.
    early: BTreeMap<u64, Result<StreamSample>>,
    /// The waiting workers, by the position of the sample that another worker pulls for them.
    waiting: BTreeMap<u64, Arc<Condvar>>,
    /// Labels, names and targets by position, which are needed longer than the samples' bytes.
    known: BTreeMap<u64, Known>,
    /// The stream's place before the sample at a position.
    places: VecDeque<(u64, Place)>,
    end: Option<Ending>,
    /// Whether samples have labels, according to the first one.
    labeled: Option<bool>,
}

/// A place in a stream.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// The cursor of the pipeline's own partition; `None` if the stream must be read again.
    Cursor(Option<Vec<u8>>),
    /// The places of the rank's lanes.
    Lanes(Lanes),
}

/// The part of a sample that is kept after its bytes were taken.
struct Known {
    index: u64,
    label: Option<u32>,
    name: String,
    /// The target; `None` after it was taken.
    target: Option<Target>,
    /// The fields, once the sample was read.
    fields: Option<Fields>,
}

/// The reason why a stream has ended.
enum Ending {
    Done,
    /// The stream had no sample at all.
    Empty,
    Failed(Error),
}

impl Ending {
    /// The answer to a request for a sample that will not come.
    fn answer(&self) -> Result<Option<StreamSample>> {
        match self {
            Self::Done => Ok(None),
            Self::Empty => {
                let expected = "one with a sample for this rank: check its files or its writer, or use fewer ranks";
                Err(Error::parameter("epoch", "stream", expected, "one without any"))
            }
            Self::Failed(error) => Err(error.clone()),
        }
    }
}

fn broken(message: impl ToString) -> Error {
    Error::Stream { shard: "the stream".to_owned(), offset: 0, message: message.to_string() }
}

impl State {
    /// Ends the pulling worker's turn. Wakes the worker that waits for the earliest missing sample; at the end of the
    /// stream, all workers.
    fn end_turn(&mut self) {
        self.pulling = false;
        let woken = if self.end.is_some() { usize::MAX } else { 1 };
        self.waiting.range(self.next..).take(woken).for_each(|(_, worker)| worker.notify_one());
    }
}

/// A worker's turn to pull. Dropping it ends the turn, also when the stream panics.
struct PullTurn<'a> {
    feed: &'a Feed,
    state: Option<MutexGuard<'a, State>>,
}

impl<'a> PullTurn<'a> {
    fn begin(feed: &'a Feed, mut state: MutexGuard<'a, State>) -> Self {
        state.pulling = true;
        Self { feed, state: Some(state) }
    }

    /// Pulls one sample and stores it for the worker that requests it.
    fn pull(&mut self) {
        let reader = self.state.take().and_then(|mut state| state.reader.take());
        // Without the lock, so that a stalled writer delays no worker whose sample has come.
        let mut reader = reader.unwrap_or_else(|| self.feed.reader());
        let pulled = reader.next(&*self.feed.stream, &self.feed.start);
        let mut state = self.feed.lock();
        self.feed.keep(&mut state, reader, pulled);
        self.state = Some(state);
    }
}

impl Drop for PullTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.state.take().unwrap_or_else(|| {
            let mut state = self.feed.lock();
            state.end = Some(Ending::Failed(broken("it has panicked")));
            state
        });
        state.end_turn();
    }
}

impl Feed {
    /// Delivers the samples from position `first` on, in batches of `batch_size`, to `threads` workers. When a batch
    /// begins, at most `ahead` earlier batches are still to be consumed. `lanes`: the places of the rank's lanes, if
    /// the epoch is read in lanes.
    pub fn new(
        stream: Arc<dyn Stream>,
        start: StreamStart,
        first: u64,
        lanes: Option<Lanes>,
        (batch_size, ahead, threads): (usize, usize, usize),
    ) -> Self {
        let (displacement_sum, displacement_max) = (AtomicU64::new(0), AtomicU64::new(0));
        // Without a cursor, delivered samples are read again and skipped.
        let next = if start.cursor.is_some() || lanes.is_some() { first } else { 0 };
        let place = lanes.clone().map_or_else(|| Place::Cursor(start.cursor.clone()), Place::Lanes);
        let state = Mutex::new(State { next, places: VecDeque::from([(first, place)]), ..State::default() });
        // A device's hardware decoder may request the name of a sample of any in-flight batch.
        let known = batch_size.saturating_mul(ahead + 2).saturating_add(threads);
        Self {
            stream,
            start,
            first,
            lanes,
            known,
            every: batch_size as u64,
            keep_places: ahead + 2,
            state,
            displacement_sum,
            displacement_max,
        }
    }

    /// Returns the stream's place at `position`, the start of a batch.
    pub fn place(&self, position: u64) -> Place {
        let state = self.lock();
        let place = state.places.iter().find(|(at, _)| *at == position).map(|(_, place)| place.clone());
        // Places of all batches on their way are kept. Were one missing, its state would have no lanes, and be refused.
        let missing = || self.lanes.as_ref().map_or(Place::Cursor(None), |_| Place::Lanes(Lanes::at_start(0)));
        place.unwrap_or_else(missing)
    }

    /// Returns the index of the sample that a worker has asked for by `number`.
    pub fn index(&self, number: u64) -> u64 {
        match self.lanes {
            None => number,
            Some(_) => self.lock().known.get(&self.position(number)).map_or(number, |known| known.index),
        }
    }

    fn reader(&self) -> LaneReader {
        match &self.lanes {
            Some(lanes) => LaneReader::new(lanes.clone()),
            None => {
                let delivered = if self.start.cursor.is_some() { self.first } else { 0 };
                LaneReader::of_partition(self.start.partition, delivered, self.start.cursor.clone())
            }
        }
    }

    /// Whether the stream has ended before sample `index`.
    pub fn ended_before(&self, index: u64) -> bool {
        let state = self.lock();
        matches!(state.end, Some(Ending::Done)) && self.position(index) >= state.next
    }

    /// Distance by which samples were moved from their places in the stream so far: the sum, and the largest distance.
    pub fn moved(&self) -> (u64, u64) {
        (self.displacement_sum.load(Relaxed), self.displacement_max.load(Relaxed))
    }

    fn position(&self, index: u64) -> u64 {
        index / u64::from(self.start.partition.world_size())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The stream's own code does not run under the lock, so a poisoned state is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the pulled sample and, at the end of a batch, the stream's place.
    fn keep(&self, state: &mut State, reader: LaneReader, pulled: Result<Option<Pulled>>) {
        let at = state.next;
        match pulled {
            Ok(Some(pulled)) => {
                state.next += 1;
                if at >= self.first {
                    self.keep_sample(state, at, pulled);
                }
                if state.next > self.first && (state.next - self.first).is_multiple_of(self.every) {
                    self.keep_place(state, &reader);
                }
                state.reader = Some(reader);
            }
            Ok(None) => {
                state.end = Some(match at {
                    0 if self.lanes.is_none() => Ending::Empty,
                    // The stream was read again from the start and is shorter than before.
                    end if end < self.first => Ending::Failed(beyond(end, self.first)),
                    _ => Ending::Done,
                });
                if state.places.back().is_none_or(|(kept, _)| *kept < at) {
                    self.keep_place(state, &reader);
                }
            }
            Err(error) => state.end = Some(Ending::Failed(error)),
        }
    }

    fn keep_sample(&self, state: &mut State, at: u64, Pulled { mut sample, index, moved }: Pulled) {
        self.displacement_sum.fetch_add(moved, Relaxed);
        self.displacement_max.fetch_max(moved, Relaxed);
        if let Ok(own) = &sample {
            let has = own.label.is_some();
            if *state.labeled.get_or_insert(has) != has {
                sample = Err(targets::wrong(None, format!("{}: {}", own.name, label::differs(has))));
            }
        }
        let known = match &mut sample {
            Ok(sample) => {
                let target = sample.target.take();
                Known { index, label: sample.label, name: sample.name.clone(), target, fields: None }
            }
            Err(_) => {
                Known { index, label: None, name: format!("sample {at} of the stream"), target: None, fields: None }
            }
        };
        state.known.insert(at, known);
        if state.known.len() > self.known {
            state.known.pop_first();
        }
        state.early.insert(at, sample);
        if let Some(worker) = state.waiting.get(&at) {
            worker.notify_one();
        }
    }

    fn keep_place(&self, state: &mut State, reader: &LaneReader) {
        let place = match self.lanes {
            Some(_) => Place::Lanes(reader.lanes()),
            None => Place::Cursor(reader.cursor()),
        };
        state.places.push_back((state.next, place));
        if state.places.len() > self.keep_places {
            state.places.pop_front();
        }
    }

    /// Returns the sample at `position`. This worker pulls it if it has not come and no other worker pulls.
    fn take(&self, position: u64) -> Result<Option<StreamSample>> {
        let mut state = self.lock();
        loop {
            if let Some(sample) = state.early.remove(&position) {
                return sample.map(Some);
            }
            if let Some(end) = &state.end {
                return end.answer();
            }
            if state.next > position {
                return Ok(None);
            }
            if state.pulling {
                let worker = Arc::clone(state.waiting.entry(position).or_default());
                state = worker.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.waiting.remove(&position);
                continue;
            }
            let mut turn = PullTurn::begin(self, state);
            while turn.state.as_ref().is_some_and(|state| state.end.is_none() && state.next <= position) {
                turn.pull();
            }
            drop(turn);
            state = self.lock();
        }
    }
}

impl Feed {
    /// Returns the encoded bytes of sample `index`.
    pub fn read(&self, index: u64) -> Result<Vec<u8>> {
        let sample = self.take(self.position(index))?.ok_or_else(|| {
            let got = format!("{index}, and the stream has ended, or has gone by");
            Error::parameter("Stream::read", "index", "that of a sample that follows", got)
        })?;
        // Without the lock: masks are decoded here.
        if let Some(fields) = sample.fields.map(|fields| fields.read(&sample.bytes)).transpose()?
            && let Some(known) = self.lock().known.get_mut(&self.position(index))
        {
            known.fields = Some(fields);
        }
        Ok(sample.bytes)
    }

    /// Returns the label of a sample that was read; `None` if it has none.
    pub fn label(&self, index: u64) -> Option<u32> {
        self.lock().known.get(&self.position(index)).and_then(|known| known.label)
    }

    /// Takes the wanted parts, besides its image, of a sample that was read.
    pub fn found(&self, index: u64, want: &ReadRequest<'_>) -> Result<Found> {
        if want.target.is_none() && want.fields.is_empty() {
            return Ok(Found::default());
        }
        let take = |known: &mut Known| (known.target.take(), known.fields.take());
        let (target, fields) = self.lock().known.get_mut(&self.position(index)).map(take).unwrap_or_default();
        let target = want.target.map(|field| target.ok_or_else(|| targets::missing(field))).transpose()?;
        Ok(Found { target, fields: wanted_fields(want, fields.as_ref())? })
    }

    /// Returns the path or key of the sample with this index, for messages.
    pub fn name(&self, index: u64) -> String {
        let state = self.lock();
        let known = match self.lanes {
            None => state.known.get(&self.position(index)),
            Some(_) => state.known.values().find(|known| known.index == index),
        };
        known.map_or_else(|| format!("sample {index} of the stream"), |known| known.name.clone())
    }
}
