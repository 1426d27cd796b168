//! A stream that interleaves several streams.

use super::extent::{damaged, put, take, take_count, take_flag};
use super::{Samples, Stream, StreamSample, StreamStart};
use crate::error::{Error, Result};
use crate::rng::{Domain, SampleRng};
use crate::source::Input;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The behavior of a [`StreamMix`] when one of its streams ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtEnd {
    /// The mix ends, even if other streams have samples left.
    Stop,
    /// The other streams continue until all have ended, so every sample comes once.
    GoOn,
    /// The stream begins again, in a new order if the pipeline shuffles, until each stream has ended once.
    Repeat,
}

/// Interleaved streams. The seed and the epoch determine the stream of each sample. Each stream is shuffled and
/// partitioned among ranks by itself. An epoch resumes at the exact sample if each of the streams does. To leave out
/// some shards, split a stream before mixing ([`Input::split`]). For data sets use [`Concat`](crate::source::Concat).
///
/// ```no_run
/// use warpfeed::prelude::*;
/// use warpfeed::source::{AtEnd, OpenOptions, StreamMix};
///
/// let options = OpenOptions::default().window(Some(5_000));
/// let (photos, drawings) = (options.open("photos-{000..099}.tar")?, options.open("drawings-{00..09}.tar")?);
/// // 24 photographs and 8 drawings in every batch of 32.
/// let mix = StreamMix::by_count([(photos, 24), (drawings, 8)], AtEnd::Repeat, 42)?;
/// let train = Pipeline::builder(mix).batch_size(32).shuffle(7).transform(random_resized_crop(224)).build()?;
/// # let _ = train;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Clone)]
pub struct StreamMix {
    inner: Arc<Inner>,
}

struct Inner {
    streams: Vec<Arc<dyn Stream>>,
    shares: Shares,
    at_end: AtEnd,
    seed: u64,
}

/// The share of each stream.
enum Shares {
    /// The average share.
    Weights(Vec<f64>),
    /// Number of samples of each stream in every run whose length is the sum of these numbers.
    Counts(Vec<u32>),
}

impl std::fmt::Debug for StreamMix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamMix of {} streams", self.inner.streams.len())
    }
}

impl StreamMix {
    /// Draws the stream of each sample by weight, from `seed` and the epoch.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no stream, a weight is not positive and finite, classes differ between streams,
    /// an input is a data set, or a stream cannot be read again with [`AtEnd::Repeat`].
    pub fn by_weight(streams: impl IntoIterator<Item = (Input, f64)>, at_end: AtEnd, seed: u64) -> Result<Self> {
        let (inputs, weights): (Vec<_>, Vec<f64>) = streams.into_iter().unzip();
        if let Some(wrong) = weights.iter().find(|weight| !(weight.is_finite() && **weight > 0.0)) {
            return Err(refuse("weight", "a number over 0", wrong));
        }
        Self::new(inputs, Shares::Weights(weights), at_end, seed)
    }

    /// Divides the epoch into runs whose length is the sum of the counts. In each run every stream has its count of
    /// samples, in places drawn from `seed` and the epoch. With a batch size of that sum each batch is a run.
    ///
    /// # Errors
    /// The errors of [`by_weight`](Self::by_weight), with counts of 0 in place of weights, and [`Error::Parameter`] for
    /// [`AtEnd::GoOn`], which would not keep the counts.
    pub fn by_count(streams: impl IntoIterator<Item = (Input, u32)>, at_end: AtEnd, seed: u64) -> Result<Self> {
        let (inputs, counts): (Vec<_>, Vec<u32>) = streams.into_iter().unzip();
        if counts.contains(&0) {
            return Err(refuse("count", "1 or more", 0));
        }
        if at_end == AtEnd::GoOn {
            return Err(refuse("at_end", "Stop or Repeat, which keep the counts to the end", "GoOn"));
        }
        Self::new(inputs, Shares::Counts(counts), at_end, seed)
    }

    fn new(inputs: Vec<Input>, shares: Shares, at_end: AtEnd, seed: u64) -> Result<Self> {
        let streams = inputs.into_iter().map(|input| match input {
            Input::Stream(stream) => Ok(stream),
            Input::DataSet(_) => Err(refuse("streams", "streams: Concat mixes data sets", "a data set")),
        });
        let streams = streams.collect::<Result<Vec<_>>>()?;
        let Some(first) = streams.first() else { return Err(refuse("streams", "one at least", "none")) };
        if let Some(other) = streams.iter().position(|stream| stream.classes() != first.classes()) {
            let got = format!("stream {other} with other classes than stream 0");
            return Err(refuse("streams", "streams with the same classes, in the same order", got));
        }
        if at_end == AtEnd::Repeat
            && let Some(once) = streams.iter().position(|stream| !stream.repeats())
        {
            let got = format!("stream {once}, which can be read once");
            return Err(refuse("at_end", "Repeat for streams that can be read again", got));
        }
        Ok(Self { inner: Arc::new(Inner { streams, shares, at_end, seed }) })
    }
}

fn refuse(parameter: &'static str, expected: &str, got: impl ToString) -> Error {
    Error::parameter("StreamMix", parameter, expected, got.to_string())
}

impl Stream for StreamMix {
    fn begin(&self, start: &StreamStart) -> Result<Box<dyn Samples>> {
        let mut mixed = MixedSamples::new(Arc::clone(&self.inner), start);
        if let Some(mut cursor) = start.cursor.as_deref()
            && mixed.go_on(&mut cursor).is_none()
        {
            return Err(damaged());
        }
        Ok(Box::new(mixed))
    }

    fn memory_bytes(&self) -> u64 {
        self.inner.streams.iter().map(|stream| stream.memory_bytes()).fold(0, u64::saturating_add)
    }

    fn classes(&self) -> &[String] {
        self.inner.streams[0].classes()
    }

    fn repeats(&self) -> bool {
        self.inner.streams.iter().all(|stream| stream.repeats())
    }

    /// A hash of all streams, their shares, and the way of mixing.
    fn fingerprint(&self) -> u64 {
        let Inner { streams, shares, at_end, seed } = &*self.inner;
        let mut hash = Sha256::new();
        hash.update(format!("streams {at_end:?} {seed}"));
        match shares {
            Shares::Weights(weights) => weights.iter().for_each(|weight| hash.update(weight.to_le_bytes())),
            Shares::Counts(counts) => hash.update(format!("{counts:?}")),
        }
        streams.iter().for_each(|stream| hash.update(stream.fingerprint().to_le_bytes()));
        hash.finalize().first_chunk().map_or(0, |start| u64::from_le_bytes(*start))
    }
}

/// One epoch of a mix.
struct MixedSamples {
    inner: Arc<Inner>,
    start: StreamStart,
    draw: SampleRng,
    /// Number of draws, and of returned samples.
    drawn: u64,
    given: u64,
    /// Samples of each stream that the current run still lacks; empty for weights.
    left: Vec<u32>,
    streams: Vec<Part>,
    origin: Option<u64>,
    ended: bool,
}

/// The state of one of the streams.
#[derive(Default)]
struct Part {
    /// `None` before the stream begins and after it has ended.
    samples: Option<Box<dyn Samples>>,
    /// Number of times that the stream has ended.
    passes: u64,
    /// Number of samples that were returned in this pass.
    given: u64,
    /// Position to resume from, until the stream begins.
    cursor: Option<Vec<u8>>,
}

impl MixedSamples {
    fn new(inner: Arc<Inner>, start: &StreamStart) -> Self {
        let draw = SampleRng::new(inner.seed, start.epoch, Domain::Streams, start.partition.rank().into());
        let streams = inner.streams.iter().map(|_| Part::default()).collect();
        let left = match &inner.shares {
            Shares::Weights(_) => Vec::new(),
            Shares::Counts(counts) => counts.clone(),
        };
        let start = StreamStart { cursor: None, ..start.clone() };
        Self { inner, start, draw, drawn: 0, given: 0, left, streams, origin: None, ended: false }
    }

    /// Draws the stream of the next sample; `None` if all streams have ended.
    fn choose(&mut self) -> Option<usize> {
        self.drawn += 1;
        match &self.inner.shares {
            Shares::Weights(weights) => {
                let goes_on = |i: usize| self.inner.at_end == AtEnd::Repeat || self.streams[i].passes == 0;
                let live = || (0..weights.len()).filter(|&i| goes_on(i));
                let mut rest = self.draw.unit() * live().map(|i| weights[i]).sum::<f64>();
                // Rounding may leave a rest after the last weight.
                let found = live().find(|&i| {
                    rest -= weights[i];
                    rest < 0.0
                });
                found.or_else(|| live().next_back())
            }
            Shares::Counts(counts) => {
                if self.left.iter().all(|&left| left == 0) {
                    self.left.clone_from(counts);
                }
                let mut rest = self.draw.below(self.left.iter().copied().map(u64::from).sum());
                self.left.iter().position(|&left| {
                    let found = rest < left.into();
                    rest = rest.saturating_sub(left.into());
                    found
                })
            }
        }
    }

    /// Returns the next sample of stream `i` in this pass; `None` at its end.
    fn pull(&mut self, i: usize) -> Result<Option<StreamSample>> {
        let part = &mut self.streams[i];
        let samples = match &mut part.samples {
            Some(samples) => samples,
            none => {
                // For the stream, each pass is an epoch of its own.
                let epoch = self.start.epoch ^ part.passes << 32;
                let start = StreamStart { epoch, cursor: part.cursor.take(), ..self.start.clone() };
                none.insert(self.inner.streams[i].begin(&start)?)
            }
        };
        let next = samples.next();
        if matches!(next, Ok(None)) {
            return next;
        }
        // The distance from its place is the same in the mix as in its own stream.
        let at = self.given - part.given;
        self.origin = samples.origin().map(|origin| origin.saturating_add(at));
        part.given += 1;
        self.given += 1;
        if let Some(left) = self.left.get_mut(i) {
            *left -= 1;
        }
        next
    }

    /// Records that stream `i` has ended. Returns whether the mix has ended.
    fn end(&mut self, i: usize) -> Result<bool> {
        let part = &mut self.streams[i];
        let was_empty = part.given == 0;
        *part = Part { passes: part.passes + 1, ..Part::default() };
        let all = self.streams.iter().all(|part| part.passes > 0);
        if self.inner.at_end == AtEnd::Repeat && was_empty && !all {
            return Err(refuse(
                "streams",
                "streams that have samples for this rank",
                format!("stream {i} without any"),
            ));
        }
        Ok(all || self.inner.at_end == AtEnd::Stop)
    }

    /// Moves to a cursor. `None` if it is damaged.
    fn go_on(&mut self, cursor: &mut &[u8]) -> Option<()> {
        (self.drawn, self.given) = (take_count(cursor)?, take_count(cursor)?);
        self.draw.skip(self.drawn);
        self.ended = take_flag(cursor)?;
        for left in &mut self.left {
            // `left` still has the stream's whole count, which is the upper bound.
            *left = take(cursor).filter(|&now| now <= u64::from(*left))?.try_into().ok()?;
        }
        for part in &mut self.streams {
            (part.passes, part.given) = (take_count(cursor)?, take_count(cursor)?);
            if take_flag(cursor)? {
                let len = take(cursor)?.try_into().ok()?;
                let (own, rest) = cursor.split_at_checked(len)?;
                (part.cursor, *cursor) = (Some(own.to_vec()), rest);
            }
        }
        let sum = self.streams.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.given))?;
        (cursor.is_empty() && sum <= self.given).then_some(())
    }
}

impl Samples for MixedSamples {
    fn next(&mut self) -> Result<Option<StreamSample>> {
        while !self.ended {
            let Some(i) = self.choose() else { break };
            loop {
                if let Some(sample) = self.pull(i)? {
                    return Ok(Some(sample));
                }
                self.ended = self.end(i)?;
                if self.ended || self.inner.at_end != AtEnd::Repeat {
                    break;
                }
            }
        }
        Ok(None)
    }

    fn origin(&self) -> Option<u64> {
        self.origin
    }

    fn cursor(&self) -> Option<Vec<u8>> {
        let mut cursor = Vec::new();
        [self.drawn, self.given, self.ended.into()].iter().for_each(|&number| put(&mut cursor, number));
        self.left.iter().for_each(|&left| put(&mut cursor, left.into()));
        for part in &self.streams {
            put(&mut cursor, part.passes);
            put(&mut cursor, part.given);
            let own = match &part.samples {
                Some(samples) => Some(samples.cursor()?),
                None => part.cursor.clone(),
            };
            put(&mut cursor, own.is_some().into());
            if let Some(own) = own {
                put(&mut cursor, own.len() as u64);
                cursor.extend(own);
            }
        }
        Some(cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Partition;
    use crate::source::EncodedImages;

    /// Labels from `first` on, in another order in each shuffled epoch; every fifth sample is bad.
    struct Numbers {
        first: u32,
        count: u32,
        repeats: bool,
    }

    struct Given {
        labels: Vec<u32>,
        next: usize,
    }

    impl Stream for Numbers {
        fn begin(&self, start: &StreamStart) -> Result<Box<dyn Samples>> {
            let mut labels: Vec<u32> = (self.first..self.first + self.count).collect();
            if let Some(seed) = start.shuffle {
                SampleRng::new(seed, start.epoch, Domain::Shards, 0).shuffle(&mut labels);
            }
            let (rank, ranks) = (start.partition.rank() as usize, start.partition.world_size() as usize);
            let labels = labels.into_iter().skip(rank).step_by(ranks).collect();
            let next = start.cursor.as_deref().map_or(0, |mut cursor| take(&mut cursor).unwrap() as usize);
            Ok(Box::new(Given { labels, next }))
        }

        fn memory_bytes(&self) -> u64 {
            self.first.into()
        }

        fn repeats(&self) -> bool {
            self.repeats
        }

        fn fingerprint(&self) -> u64 {
            self.first.into()
        }
    }

    impl Samples for Given {
        fn next(&mut self) -> Result<Option<StreamSample>> {
            let Some(&label) = self.labels.get(self.next) else { return Ok(None) };
            self.next += 1;
            if label % 5 == 4 {
                return Err(Error::decode("image", label.to_string()));
            }
            Ok(Some(StreamSample {
                bytes: Vec::new(),
                label: Some(label),
                name: label.to_string(),
                target: None,
                fields: None,
            }))
        }

        fn origin(&self) -> Option<u64> {
            Some(self.next as u64 - 1)
        }

        fn cursor(&self) -> Option<Vec<u8>> {
            let mut cursor = Vec::new();
            put(&mut cursor, self.next as u64);
            Some(cursor)
        }
    }

    fn numbers(first: u32, count: u32) -> Input {
        Input::stream(Numbers { first, count, repeats: true })
    }

    fn by_weight(at_end: AtEnd) -> StreamMix {
        StreamMix::by_weight([(numbers(0, 40), 3.0), (numbers(100, 30), 1.0)], at_end, 7).unwrap()
    }

    fn by_count(at_end: AtEnd) -> StreamMix {
        StreamMix::by_count([(numbers(0, 40), 3), (numbers(100, 30), 1)], at_end, 7).unwrap()
    }

    /// Returns all labels, of bad samples too, and the cursor after each.
    fn all(mix: &StreamMix, start: &StreamStart) -> Vec<(u32, Vec<u8>)> {
        let mut samples = mix.begin(start).unwrap();
        let mut all = Vec::new();
        loop {
            let label = match samples.next() {
                Ok(Some(sample)) => sample.label.unwrap(),
                Ok(None) => {
                    assert!(matches!(samples.next(), Ok(None)), "it has ended");
                    all.push((u32::MAX, samples.cursor().unwrap()));
                    return all;
                }
                Err(Error::Decode { message, .. }) => message.parse().unwrap(),
                Err(error) => panic!("{error}"),
            };
            // The streams are not shuffled, so no sample has moved.
            assert!(start.shuffle.is_some() || samples.origin() == Some(all.len() as u64 + given(start)));
            all.push((label, samples.cursor().unwrap()));
        }
    }

    fn given(start: &StreamStart) -> u64 {
        start.cursor.as_deref().map_or(0, |mut cursor| {
            take(&mut cursor).unwrap();
            take(&mut cursor).unwrap()
        })
    }

    fn labels(mix: &StreamMix, start: &StreamStart) -> Vec<u32> {
        let mut labels: Vec<u32> = all(mix, start).into_iter().map(|(label, _)| label).collect();
        assert_eq!(labels.pop(), Some(u32::MAX));
        labels
    }

    #[test]
    fn every_end_is_what_it_says() {
        let start = StreamStart::whole(2);
        let sorted = |mut labels: Vec<u32>| {
            labels.sort_unstable();
            labels
        };
        let everything: Vec<u32> = (0..40).chain(100..130).collect();
        assert_eq!(sorted(labels(&by_weight(AtEnd::GoOn), &start)), everything);
        // The first stream ends before three times as many of the second have come.
        let stopped = labels(&by_count(AtEnd::Stop), &start);
        assert_eq!(stopped.iter().filter(|&&label| label < 100).count(), 40);
        assert!(stopped.chunks_exact(4).all(|run| run.iter().filter(|&&label| label < 100).count() == 3));
        let repeated = labels(&by_count(AtEnd::Repeat), &start);
        assert_eq!(repeated.iter().filter(|&&label| label >= 100).count(), 30);
        assert!(repeated.chunks_exact(4).all(|run| run.iter().filter(|&&label| label < 100).count() == 3));
        assert!(repeated.iter().filter(|&&label| label == 0).count() >= 2);
        let weighted = labels(&by_weight(AtEnd::Stop), &start);
        assert!(weighted.len() < 70 && weighted != labels(&by_weight(AtEnd::Stop), &StreamStart::whole(3)));
    }

    #[test]
    fn passes_are_shuffled_anew() {
        let start = StreamStart { shuffle: Some(1), ..StreamStart::whole(0) };
        let first = |labels: Vec<u32>| labels.into_iter().filter(|&label| label < 100).collect::<Vec<_>>();
        let passes = first(labels(&by_count(AtEnd::Repeat), &start));
        assert_ne!(passes[..40], passes[40..80]);
        assert_eq!(passes[..40], first(labels(&by_count(AtEnd::Stop), &start)));
    }

    #[test]
    fn ranks_have_the_shares_and_every_sample_once() {
        let mut together = Vec::new();
        for rank in 0..3 {
            let start = StreamStart { partition: Partition::new(rank, 3).unwrap(), ..StreamStart::whole(1) };
            together.extend(labels(&by_weight(AtEnd::GoOn), &start));
            let runs = labels(&by_count(AtEnd::Repeat), &start);
            assert!(runs.chunks_exact(4).all(|run| run.iter().filter(|&&label| label < 100).count() == 3));
        }
        together.sort_unstable();
        assert_eq!(together, (0..40).chain(100..130).collect::<Vec<_>>());
    }

    #[test]
    fn a_mix_goes_on_from_every_place() {
        for mix in [by_weight(AtEnd::Stop), by_weight(AtEnd::GoOn), by_weight(AtEnd::Repeat), by_count(AtEnd::Repeat)] {
            let start = StreamStart { shuffle: Some(3), ..StreamStart::whole(4) };
            let whole = all(&mix, &start);
            for (i, (_, cursor)) in whole.iter().enumerate() {
                let start = StreamStart { cursor: Some(cursor.clone()), ..start.clone() };
                let rest: Vec<u32> = whole[i + 1..].iter().map(|(label, _)| *label).collect();
                let want = if rest.is_empty() { vec![u32::MAX] } else { rest };
                assert_eq!(all(&mix, &start).into_iter().map(|(label, _)| label).collect::<Vec<_>>(), want, "{i}");
                for len in 0..cursor.len() {
                    let start = StreamStart { cursor: Some(cursor[..len].to_vec()), ..start.clone() };
                    assert!(mix.begin(&start).err().is_some_and(|error| error.is_parameter()));
                }
            }
        }
    }

    /// These orders are a promise, computed by a separate Python program. Never change them.
    #[test]
    fn golden_order() {
        let first = |mix: StreamMix| labels(&mix, &StreamStart::whole(0)).into_iter().take(12).collect::<Vec<_>>();
        assert_eq!(first(by_weight(AtEnd::GoOn)), GOLDEN_WEIGHTS);
        assert_eq!(first(by_count(AtEnd::Stop)), GOLDEN_COUNTS);
    }

    const GOLDEN_WEIGHTS: [u32; 12] = [100, 0, 1, 2, 3, 101, 4, 5, 6, 7, 8, 102];
    const GOLDEN_COUNTS: [u32; 12] = [100, 0, 1, 2, 3, 101, 4, 5, 6, 7, 102, 8];

    #[test]
    fn what_cannot_be_mixed_is_refused() {
        let two = |weight| [(numbers(0, 4), 1.0), (numbers(9, 4), weight)];
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(StreamMix::by_weight(two(weight), AtEnd::Stop, 0).unwrap_err().is_parameter());
        }
        let once = Input::stream(Numbers { first: 0, count: 3, repeats: false });
        for (error, says) in [
            (StreamMix::by_weight([], AtEnd::Stop, 0).unwrap_err(), "none"),
            (StreamMix::by_weight([(once, 1.0)], AtEnd::Repeat, 0).unwrap_err(), "read once"),
            (StreamMix::by_count([(numbers(0, 4), 0)], AtEnd::Stop, 0).unwrap_err(), "1 or more"),
            (StreamMix::by_count([(numbers(0, 4), 1)], AtEnd::GoOn, 0).unwrap_err(), "Stop or Repeat"),
            (StreamMix::by_weight([(EncodedImages::default().into(), 1.0)], AtEnd::Stop, 0).unwrap_err(), "Concat"),
        ] {
            assert!(error.is_parameter() && error.to_string().contains(says), "{error}");
        }
        // An empty stream is not restarted forever.
        let empty = StreamMix::by_count([(numbers(0, 4), 1), (numbers(9, 0), 1)], AtEnd::Repeat, 0).unwrap();
        let mut samples = empty.begin(&StreamStart::whole(0)).unwrap();
        let error = (0..9).find_map(|_| samples.next().err()).unwrap();
        assert!(error.to_string().contains("stream 1 without any"), "{error}");
        let mix = by_weight(AtEnd::Stop);
        assert_eq!((mix.memory_bytes(), mix.repeats()), (100, true));
        assert_ne!(mix.fingerprint(), by_weight(AtEnd::GoOn).fingerprint());
        assert_ne!(mix.fingerprint(), by_count(AtEnd::Stop).fingerprint());
    }
}
