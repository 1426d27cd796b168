//! Sequences of numbers of ranks, with ranks at different progress. Only positions are checked.

use super::super::EpochStart;
use super::super::context::Context;
use super::super::state::Moment;
use super::*;
use crate::Partition;
use crate::PipelineBuilder;
use crate::image::{Image, JpegOptions, Size, encode_jpeg};
use crate::ops::CenterCrop;
use crate::rng::{Domain, SampleRng};
use crate::source::{
    AtEnd, Concat, EncodedImages, Input, Samples, SourceExt as _, Stream, StreamMix, StreamSample, StreamStart,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const EPOCHS: u64 = 4;
const MOST_RANKS: u32 = 8;

/// A stream of shards with different numbers of samples.
struct Shards {
    first: u64,
    shards: u64,
    has_cursor: bool,
}

struct Given {
    samples: Vec<u64>,
    next: usize,
    has_cursor: bool,
}

impl Stream for Shards {
    fn begin(&self, start: &StreamStart) -> Result<Box<dyn Samples>> {
        let mut shards: Vec<u64> = (0..self.shards).collect();
        if let Some(seed) = start.shuffle {
            SampleRng::new(seed, start.epoch, Domain::Shards, 0).shuffle(&mut shards);
        }
        let (rank, ranks) = (start.partition.rank() as usize, start.partition.world_size() as usize);
        let of_shard = |shard: u64| (0..1 + shard * 5 % 4).map(move |sample| (shard << 8) + sample);
        let samples = shards.into_iter().skip(rank).step_by(ranks).flat_map(of_shard);
        let samples = samples.map(|sample| self.first + sample).collect();
        let next = start.cursor.as_deref().map_or(0, |cursor| usize::from(cursor[0]));
        Ok(Box::new(Given { samples, next, has_cursor: self.has_cursor }))
    }
}

impl Samples for Given {
    fn next(&mut self) -> Result<Option<StreamSample>> {
        let Some(sample) = self.samples.get(self.next) else { return Ok(None) };
        self.next += 1;
        let bytes = sample.to_le_bytes().to_vec();
        Ok(Some(StreamSample { bytes, label: None, name: String::new(), target: None, fields: None }))
    }

    fn cursor(&self) -> Option<Vec<u8>> {
        self.has_cursor.then(|| vec![self.next as u8])
    }
}

/// The pipelines of one source, by number of ranks and rank.
struct Subject {
    pipelines: BTreeMap<(u32, u32), Pipeline>,
    stream: Option<Arc<dyn Stream>>,
    lanes: Option<u32>,
    /// Whole epochs, by epoch and number of lanes.
    whole: BTreeMap<(u64, u32), Vec<Left>>,
}

/// A sample that is left of an epoch. Of a data set, `lane` and `place` are 0.
#[derive(Debug, Clone, Copy)]
struct Left {
    lane: u32,
    place: u64,
    sample: u64,
}

impl Subject {
    fn new(builder: &dyn Fn() -> PipelineBuilder, stream: Option<Arc<dyn Stream>>, lanes: Option<u32>) -> Self {
        let mut pipelines = BTreeMap::new();
        for ranks in 1..=MOST_RANKS {
            for rank in 0..ranks {
                let builder =
                    builder().threads(0).transform(CenterCrop::new(8)).partition(Partition::new(rank, ranks).unwrap());
                let builder = lanes.into_iter().fold(builder, PipelineBuilder::lanes);
                pipelines.insert((ranks, rank), builder.build().unwrap());
            }
        }
        let mut subject = Self { pipelines, stream, lanes, whole: BTreeMap::new() };
        for epoch in 0..EPOCHS {
            for lanes in 1..=lanes.unwrap_or(MOST_RANKS) {
                let whole = subject.read_whole(epoch, lanes);
                subject.whole.insert((epoch, lanes), whole);
            }
        }
        subject
    }

    /// A whole epoch in its order; of a stream in each lane's order.
    fn read_whole(&self, epoch: u64, lanes: u32) -> Vec<Left> {
        let whole = &self.pipelines[&(1, 0)];
        let Some(stream) = &self.stream else {
            let mut batches = usize::MAX;
            let (all, _) = deliver(whole.epoch_start(epoch), &mut batches);
            return all.into_iter().map(|sample| Left { lane: 0, place: 0, sample }).collect();
        };
        let mut all = Vec::new();
        for lane in 0..lanes {
            let shuffle = whole.setup.shuffle.then_some(whole.setup.recipes.seed);
            let start =
                StreamStart { shuffle, partition: Partition::new(lane, lanes).unwrap(), ..StreamStart::whole(epoch) };
            let mut samples = stream.begin(&start).unwrap();
            for place in 0.. {
                let Some(sample) = samples.next().unwrap() else { break };
                let sample = u64::from_le_bytes(*sample.bytes.first_chunk().unwrap());
                all.push(Left { lane, place, sample });
            }
        }
        all
    }

    /// The model: a rank's part of the rest of an epoch.
    fn own(&self, left: &[Left], rank: u32, ranks: u32) -> Vec<u64> {
        let mut own: Vec<&Left> = match self.stream {
            None => left.iter().skip(rank as usize).step_by(ranks as usize).collect(),
            Some(_) => left.iter().filter(|left| left.lane % ranks == rank).collect(),
        };
        if self.stream.is_some() {
            own.sort_by_key(|left| (left.place, left.lane));
        }
        own.into_iter().map(|left| left.sample).collect()
    }
}

/// Delivers at most `batches` of an epoch. Returns the samples, and the state after them.
fn deliver(epoch_start: EpochStart<'_>, batches: &mut usize) -> (Vec<u64>, EpochState) {
    let EpochStart { setup, epoch, changes, first, place, .. } = epoch_start;
    let context = Context::new(Arc::clone(setup), epoch, changes, (first, place), None);
    let (mut samples, mut given) = (Vec::new(), 0);
    while *batches > 0 {
        let before = given;
        for _ in 0..setup.options.batch_size {
            if given >= context.batches.positions() {
                break;
            }
            let pick = context.pick(given).unwrap();
            match context.reader.feed() {
                Some(feed) => match feed.read(pick.index) {
                    Ok(bytes) => samples.push(u64::from_le_bytes(*bytes.first_chunk().unwrap())),
                    Err(error) => {
                        assert!(feed.ended_before(pick.index), "{error}");
                        break;
                    }
                },
                None if given < context.batches.positions() - context.batches.padding() => {
                    samples.push((pick.index << 8) + u64::from(pick.repetition));
                }
                None => {}
            }
            given += 1;
        }
        if given == before {
            break;
        }
        *batches -= 1;
    }
    let position = first + given;
    let place = context.reader.feed().map_or(Place::Cursor(None), |feed| feed.place(position));
    let (setup, changes) = (Arc::clone(setup), context.changes);
    (samples, Moment { setup, epoch, changes, begun: first, first, position, place }.state())
}

/// Progress of a rank before the number of ranks changes.
#[derive(Debug, Clone, Copy)]
enum Pace {
    /// It writes no state, so it has only that of the beginning.
    Absent,
    Batches(usize),
    /// To the end of a number of epochs, and a number of batches more. It stops at that end, or at the next epoch's
    /// beginning.
    Epochs(u64, usize, bool),
    Finished,
}

impl Pace {
    fn draw(random: &mut impl FnMut(u64) -> u64) -> Self {
        match random(8) {
            0 => Self::Absent,
            1..=3 => Self::Batches(random(4) as usize),
            4..=6 => Self::Epochs(1 + random(2), random(3) as usize, random(2) == 0),
            _ => Self::Finished,
        }
    }

    /// A rank's part of a run. Returns what it delivered, with the epochs, and its last state.
    fn walk(self, pipeline: &Pipeline, begin: Option<&EpochState>) -> (Vec<(u64, Vec<u64>)>, EpochState) {
        let start = begin.map_or(0, EpochState::epoch);
        let at = |epoch| match begin {
            Some(begin) => pipeline.rest(&begin.for_epoch(epoch)).unwrap(),
            None => pipeline.epoch_start(epoch),
        };
        let (whole, mut more, enters) = match self {
            Self::Absent => (0, 0, false),
            Self::Batches(batches) => (0, batches, false),
            Self::Epochs(epochs, batches, enters) => (epochs, batches, enters),
            Self::Finished => (EPOCHS, 0, false),
        };
        let (mut delivered, mut state) = (Vec::new(), None);
        for epoch in start..EPOCHS {
            let is_whole = epoch < start + whole;
            if !is_whole && more == 0 && state.is_some() && !enters {
                break;
            }
            let mut all = usize::MAX;
            let (samples, after) = deliver(at(epoch), if is_whole { &mut all } else { &mut more });
            delivered.push((epoch, samples));
            state = Some(after);
            if !is_whole && more == 0 {
                break;
            }
        }
        (delivered, state.unwrap_or_else(|| begin.unwrap().clone()))
    }
}

/// Checks that a run with these numbers of ranks delivers what the model does, and each sample of each epoch once.
fn check(subject: &Subject, worlds: &[u32], random: &mut impl FnMut(u64) -> u64) {
    let mut left: BTreeMap<u64, Vec<Left>> = BTreeMap::new();
    let (mut states, mut history): (Vec<EpochState>, _) = (Vec::new(), Vec::new());
    for (phase, &ranks) in worlds.iter().enumerate() {
        let is_last = phase + 1 == worlds.len();
        for epoch in 0..EPOCHS {
            // An epoch that no rank has begun has the lanes of those that begin it.
            let whole = &subject.whole[&(epoch, subject.lanes.unwrap_or(ranks))];
            let left = left.entry(epoch).or_insert_with(|| whole.clone());
            if left.len() == whole.len() {
                left.clone_from(whole);
            }
        }
        let after = |rank| state_after(&subject.pipelines[&(ranks, rank)].setup, &states).unwrap();
        let begin = (phase > 0).then(|| after(0));
        if let Some(begin) = &begin {
            let other = random(ranks.into()) as u32;
            assert_eq!(after(other), begin.of_rank(Partition::new(other, ranks).unwrap()));
        }
        let (mut now, mut delivered) = (Vec::new(), Vec::new());
        for rank in 0..ranks {
            let pace = if is_last { Pace::Finished } else { Pace::draw(random) };
            history.push((rank, ranks, pace));
            let pipeline = &subject.pipelines[&(ranks, rank)];
            let mut state = begin.as_ref().map(|begin| begin.of_rank(pipeline.partition()));
            let mut own = Vec::new();
            // Some are interrupted, and go on from their own states.
            let interrupted = (random(4) == 0).then_some(Pace::Batches(1));
            let paces = interrupted.into_iter().chain([pace]);
            for pace in paces.filter(|pace| begin.is_none() || !matches!(pace, Pace::Absent)) {
                let (samples, after) = pace.walk(pipeline, state.as_ref());
                own.extend(samples);
                state = Some(after);
            }
            for epoch in 0..EPOCHS {
                let got = own.iter().filter(|(of, _)| *of == epoch).flat_map(|(_, samples)| samples.clone());
                let (got, want) = (got.collect::<Vec<_>>(), subject.own(&left[&epoch], rank, ranks));
                let is_right = want.starts_with(&got) && (got.len() == want.len() || !is_last);
                assert!(is_right, "epoch {epoch}: {got:?} for {want:?}, {worlds:?}, {history:?}");
                delivered.extend(got.into_iter().map(|sample| (epoch, sample)));
            }
            now.push(state.unwrap());
        }
        let delivered: BTreeSet<(u64, u64)> = delivered.into_iter().collect();
        for (epoch, left) in &mut left {
            left.retain(|left| !delivered.contains(&(*epoch, left.sample)));
        }
        states = now;
    }
    assert!(left.values().all(Vec::is_empty), "{left:?}, {worlds:?}, {history:?}");
}

/// Sequence `number` of 37,440 with one to four changes.
fn worlds(mut number: u64) -> Vec<u32> {
    let ranks = u64::from(MOST_RANKS);
    let mut len = 2;
    while number >= ranks.pow(len) {
        number -= ranks.pow(len);
        len = if len == 5 { 2 } else { len + 1 };
    }
    let mut worlds: Vec<u32> = (0..len).map(|place| 1 + (number / ranks.pow(place) % ranks) as u32).collect();
    worlds.dedup();
    worlds
}

fn subjects() -> Vec<Subject> {
    let jpeg = encode_jpeg(&Image::new(Size::new(8, 8)), &JpegOptions::default()).unwrap();
    let images = move |count: u32| EncodedImages::new((0..count).map(|label| (jpeg.clone(), label)));
    let mixed = || Concat::mix([(images(20).into_source(), 3.0), (images(5).into_source(), 1.0)], 31, 5).unwrap();
    let shards = |first, shards, has_cursor| Shards { first, shards, has_cursor };
    let mix = || {
        let [a, b] = [shards(0, 13, true), shards(1 << 20, 12, true)].map(Input::stream);
        StreamMix::by_weight([(a, 2.0), (b, 1.0)], AtEnd::GoOn, 3).unwrap()
    };
    let folder = || Pipeline::builder(images(37)).shuffle(7);
    let mut subjects = vec![
        Subject::new(&|| folder().batch_size(2), None, None),
        Subject::new(&|| folder().equal_batches(true).batch_size(3), None, None),
        Subject::new(&|| Pipeline::builder(images(29)).batch_size(1), None, None),
        Subject::new(&|| Pipeline::builder(mixed()).shuffle(7).batch_size(2), None, None),
    ];
    for lanes in [None, Some(11)] {
        let (read, again): (Arc<dyn Stream>, Arc<dyn Stream>) =
            (Arc::new(shards(0, 14, true)), Arc::new(shards(0, 14, false)));
        let of = |stream: &Arc<dyn Stream>| Pipeline::builder(Input::Stream(Arc::clone(stream)));
        subjects.push(Subject::new(&|| of(&read).shuffle(7).batch_size(2), Some(Arc::clone(&read)), lanes));
        subjects.push(Subject::new(&|| of(&again).batch_size(3), Some(Arc::clone(&again)), lanes));
        let mixed: Arc<dyn Stream> = Arc::new(mix());
        subjects.push(Subject::new(&|| of(&mixed).shuffle(7).batch_size(1), Some(Arc::clone(&mixed)), lanes));
    }
    subjects
}

fn check_all(numbers: impl Iterator<Item = u64>) {
    let mut draw = SampleRng::new(1, 0, Domain::Order, 0);
    let mut random = |end| draw.below(end);
    let subjects = subjects();
    for number in numbers {
        let subject = &subjects[(number % subjects.len() as u64) as usize];
        check(subject, &worlds(number % 37_440), &mut random);
    }
}

#[test]
fn sequences_of_numbers_of_ranks_have_every_sample_once() {
    check_all((0..1_500).map(|number| number * 7_919));
}

#[test]
#[ignore = "a million sequences take minutes: cargo test --lib a_million_sequences -- --ignored"]
fn a_million_sequences_of_numbers_of_ranks_have_every_sample_once() {
    check_all(0..1_000_000);
}
