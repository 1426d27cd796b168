//! A stream as the workers of an epoch see it: samples by position, asked for in any order within a few.

use super::{Samples, Stream, StreamSample, StreamStart};
use crate::error::{Error, Result};
use crate::source::Source;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One epoch of a stream. A sample's index is its place in the order of delivery: that of the whole stream where there is
/// one rank, and among the samples of all ranks, counted in turn, where there are several.
pub(crate) struct Feed {
    stream: Arc<dyn Stream>,
    start: StreamStart,
    /// Position of the first sample that is wanted.
    first: u64,
    /// How many samples' names and labels are kept after they were read.
    keep: usize,
    /// Samples from one place to the next that is kept, and how many are kept.
    every: u64,
    keep_places: usize,
    state: Mutex<State>,
    moved: AtomicU64,
    moved_most: AtomicU64,
}

#[derive(Default)]
struct State {
    /// `None` until the first sample is asked for.
    samples: Option<Box<dyn Samples>>,
    /// The position of the sample that comes next.
    next: u64,
    /// Samples that came before they were asked for: as many as there are workers at most.
    early: BTreeMap<u64, Result<StreamSample>>,
    /// Label and name, by position.
    known: BTreeMap<u64, (u32, String)>,
    /// Where the stream stood before the sample at a position.
    places: VecDeque<(u64, Option<Vec<u8>>)>,
    end: Option<Ending>,
}

/// How a stream came to its end.
enum Ending {
    Done,
    Broken { shard: String, offset: u64, message: String },
}

impl Feed {
    /// The samples from position `first` on, in batches of `batch_size`, of which the consumer has at most `ahead` still to
    /// come when the next one is begun. `threads` ask for samples.
    pub fn new(
        stream: Arc<dyn Stream>,
        start: StreamStart,
        first: u64,
        (batch_size, ahead, threads): (usize, usize, usize),
    ) -> Self {
        let (moved, moved_most) = (AtomicU64::new(0), AtomicU64::new(0));
        // Without a place, what was given before is passed over.
        let next = if start.place.is_some() { first } else { 0 };
        let places = VecDeque::from([(first, start.place.clone())]);
        let state = Mutex::new(State { next, places, ..State::default() });
        // A device's engines may ask for the name of a sample of any batch that is on its way.
        let keep = batch_size.saturating_mul(ahead + 2).saturating_add(threads);
        Self { stream, start, first, keep, every: batch_size as u64, keep_places: ahead + 2, state, moved, moved_most }
    }

    /// What is to be known to go on from `position`, where a batch begins; `None` if the stream has to be read again.
    pub fn place(&self, position: u64) -> Option<Vec<u8>> {
        self.lock().places.iter().find(|(at, _)| *at == position)?.1.clone()
    }

    /// Has whoever waits for the stream give up.
    pub fn stop(&self) {
        self.start.stopped.store(true, Relaxed);
    }

    /// Whether the stream has ended before sample `index`.
    pub fn ended_before(&self, index: u64) -> bool {
        let state = self.lock();
        matches!(state.end, Some(Ending::Done)) && self.position(index) >= state.next
    }

    /// How far samples have moved from their places in the stream so far: all together, and the one that moved most.
    pub fn moved(&self) -> (u64, u64) {
        (self.moved.load(Relaxed), self.moved_most.load(Relaxed))
    }

    fn position(&self, index: u64) -> u64 {
        index / u64::from(self.start.partition.world_size())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A stream of the caller's that has panicked is not asked again: its `samples` were taken out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next sample of the stream, which is not at its end.
    fn pull(&self, state: &mut State) -> Result<Option<StreamSample>> {
        let broken = |message: &str| {
            let (shard, message) = ("the stream".to_owned(), message.to_owned());
            Some(Ending::Broken { shard, offset: 0, message })
        };
        // What stays if the stream panics.
        state.end = broken("it has panicked");
        let mut samples = match state.samples.take() {
            Some(samples) => samples,
            None => self.stream.begin(&self.start).inspect_err(|error| state.end = broken(&error.to_string()))?,
        };
        let sample = samples.next();
        state.end = match &sample {
            Ok(Some(_)) => None,
            Ok(None) => Some(Ending::Done),
            Err(error) if error.is_bad_sample() => None,
            Err(Error::Stream { shard, offset, message }) => {
                Some(Ending::Broken { shard: shard.clone(), offset: *offset, message: message.clone() })
            }
            Err(error) => broken(&error.to_string()),
        };
        if state.end.is_none() {
            if let (Some(origin), true) = (samples.origin(), state.next >= self.first) {
                let moved = origin.abs_diff(state.next);
                self.moved.fetch_add(moved, Relaxed);
                self.moved_most.fetch_max(moved, Relaxed);
            }
            state.next += 1;
            if state.next > self.first && (state.next - self.first).is_multiple_of(self.every) {
                self.keep_place(state, &*samples);
            }
            state.samples = Some(samples);
        } else if matches!(state.end, Some(Ending::Done)) && state.places.back().is_none_or(|(at, _)| *at < state.next)
        {
            self.keep_place(state, &*samples);
        }
        sample
    }

    fn keep_place(&self, state: &mut State, samples: &dyn Samples) {
        state.places.push_back((state.next, samples.place()));
        if state.places.len() > self.keep_places {
            state.places.pop_front();
        }
    }

    /// The sample at `position`.
    fn take(&self, position: u64) -> Result<Option<StreamSample>> {
        let mut state = self.lock();
        loop {
            if let Some(sample) = state.early.remove(&position) {
                return sample.map(Some);
            }
            match &state.end {
                Some(Ending::Broken { shard, offset, message }) => {
                    return Err(Error::Stream { shard: shard.clone(), offset: *offset, message: message.clone() });
                }
                Some(Ending::Done) => return Ok(None),
                None => {}
            }
            let next = state.next;
            if next > position {
                return Ok(None);
            }
            let sample = match self.pull(&mut state) {
                Ok(None) => return Ok(None),
                Ok(Some(sample)) => Ok(sample),
                Err(error) if error.is_bad_sample() => Err(error),
                Err(error) => return Err(error),
            };
            if next >= self.first {
                let (label, name) = match &sample {
                    Ok(sample) => (sample.label, sample.name.clone()),
                    Err(_) => (0, format!("sample {next} of the stream")),
                };
                state.known.insert(next, (label, name));
                if state.known.len() > self.keep {
                    state.known.pop_first();
                }
                state.early.insert(next, sample);
            }
        }
    }
}

impl Source for Feed {
    fn len(&self) -> u64 {
        u64::MAX
    }

    fn read<'a>(&'a self, index: u64, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        match self.take(self.position(index))? {
            Some(sample) => *buffer = sample.bytes,
            None => {
                let got = format!("{index}, and the stream has ended, or has gone by");
                return Err(Error::parameter("Stream::read", "index", "that of a sample that follows", got));
            }
        }
        Ok(buffer)
    }

    fn label(&self, index: u64) -> u32 {
        self.lock().known.get(&self.position(index)).map_or(0, |(label, _)| *label)
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        match self.lock().known.get(&self.position(index)) {
            Some((_, name)) => name.clone().into(),
            None => format!("sample {index} of the stream").into(),
        }
    }
}
