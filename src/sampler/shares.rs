//! Batches with fixed numbers of samples of each part.

use super::{MOST, Sampler};
use crate::error::{Error, Result};
use crate::order::ShardedOrder;
use crate::rng::{Domain, SampleRng};
use crate::source::Concat;

impl Concat {
    /// An order for batches that have `counts` samples of each source, in the order of the sources; for example, 24 of
    /// the first and 8 of the second in each batch of 32. Give it to
    /// [`PipelineBuilder::sampler`](crate::PipelineBuilder::sampler) of a pipeline over this source. The batch size
    /// must be the sum of the counts. If the pipeline shuffles, the places in a batch are shuffled too.
    ///
    /// Each source delivers its samples in order, or shuffled, and then starts again. Default length of an epoch: as
    /// many batches as the source that lasts longest needs, equally many on each rank.
    /// [`positions`](Sampler::positions) sets another length, which must be a multiple of the batch size for each
    /// rank. The substitute for a bad sample ([`OnError::Substitute`](crate::OnError)) comes from the same source.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless there is one count per source, each count is at least 1, and no source is empty.
    ///
    /// ```
    /// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// use warpfeed::prelude::*;
    /// use warpfeed::source::{SourceExt, Concat};
    ///
    /// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// let images = |label, count| EncodedImages::new((0..count).map(|_| (jpeg.clone(), label))).into_source();
    /// let both = Concat::new([images(0, 9), images(1, 2)])?;
    /// let shares = both.shares([3, 1])?;
    /// let pipeline = Pipeline::builder(both).sampler(shares).batch_size(4).shuffle(42).transform(CenterCrop::new(8)).build()?;
    /// for batch in pipeline.epoch(0) {
    ///     assert_eq!(batch?.labels()?.iter().sum::<u32>(), 1);
    /// }
    /// assert_eq!(pipeline.batches(), Some(3));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn shares(&self, counts: impl IntoIterator<Item = u32>) -> Result<Sampler> {
        let counts: Vec<u32> = counts.into_iter().collect();
        let lens: Vec<u64> = self.sources.iter().map(|source| source.len()).collect();
        if counts.len() != lens.len() || counts.contains(&0) || lens.contains(&0) {
            let expected = format!("1 or more for each of {} sources with samples", lens.len());
            return Err(Error::parameter(
                "Concat::shares",
                "counts",
                expected,
                format!("{counts:?} of {lens:?} samples"),
            ));
        }
        Ok(Sampler::shares(&lens, counts))
    }
}

/// Number of samples of each part in a batch.
pub(super) struct Shares {
    /// The index after each part's last sample.
    ends: Vec<u64>,
    /// Number of samples of each part in a batch.
    counts: Vec<u32>,
}

impl Shares {
    /// There are as many parts as counts; no part and no count is empty.
    pub fn new(lens: &[u64], counts: Vec<u32>) -> Self {
        let ends = lens.iter().scan(0_u64, |end, len| {
            *end = end.saturating_add(*len);
            Some(*end)
        });
        Self { ends: ends.collect(), counts }
    }

    pub fn name(&self) -> String {
        format!("shares {:?} of parts that end at {:?}", self.counts, self.ends)
    }

    fn batch(&self) -> u64 {
        self.counts.iter().copied().map(u64::from).sum()
    }

    /// The first index of a part, and the number of its samples.
    fn part(&self, part: usize) -> (u64, u64) {
        let start = if part == 0 { 0 } else { self.ends[part - 1] };
        (start, self.ends[part] - start)
    }

    /// Number of positions of an epoch: whole batches, equally many for each rank.
    pub fn positions(&self, samples: u64, ranks: u32, batch_size: usize, asked: Option<u64>) -> Result<u64> {
        let refuse =
            |parameter, expected: String, got: String| Err(Error::parameter("sampler", parameter, expected, got));
        let batch = self.batch();
        if batch != batch_size as u64 {
            return refuse("batch_size", format!("{batch}, the sum of the shares"), batch_size.to_string());
        }
        if self.ends.last() != Some(&samples) {
            let expected = format!("the one of {:?} samples that the shares were made for", self.ends.last());
            return refuse("source", expected, format!("one of {samples}"));
        }
        let batches = |part: usize| self.part(part).1.div_ceil(self.counts[part].into());
        let longest = (0..self.counts.len()).map(batches).max().unwrap_or(0);
        let unit = batch.saturating_mul(ranks.into());
        let positions = asked.unwrap_or_else(|| longest.div_ceil(ranks.into()).saturating_mul(unit));
        if !positions.is_multiple_of(unit) || !(1..=MOST).contains(&positions) {
            let expected = format!("a multiple of {unit} up to {MOST}: whole batches for each of {ranks} ranks");
            return refuse("positions", expected, positions.to_string());
        }
        Ok(positions)
    }

    /// The samples at all ranks' positions. Rank r of w has the positions r, r + w, and so on; each batch of them has
    /// the shares.
    pub fn order(&self, positions: u64, ranks: u32, seed: u64, shuffle: bool, epoch: u64) -> Vec<u32> {
        let mut turns: Vec<Turns> = (0..self.counts.len()).map(|part| Turns::new(self.part(part), part)).collect();
        let (batch, ranks) = (self.batch(), u64::from(ranks));
        let mut order = Vec::with_capacity(positions as usize);
        for round in 0..positions / (batch * ranks) {
            let batches: Vec<Vec<usize>> =
                (0..ranks).map(|rank| self.places(round * ranks + rank, seed, shuffle, epoch)).collect();
            for place in 0..batch as usize {
                order.extend(batches.iter().map(|parts| turns[parts[place]].next(seed, shuffle, epoch)));
            }
        }
        order
    }

    /// The part that each place of a batch takes its sample from.
    fn places(&self, number: u64, seed: u64, shuffle: bool, epoch: u64) -> Vec<usize> {
        let of_part = |(part, &count): (usize, &u32)| std::iter::repeat_n(part, count as usize);
        let mut parts: Vec<usize> = self.counts.iter().enumerate().flat_map(of_part).collect();
        if shuffle {
            SampleRng::new(seed, epoch, Domain::Sampling, number).shuffle(&mut parts);
        }
        parts
    }

    /// Draws a substitute for the bad sample `index` from its own part.
    pub fn substitute(&self, seed: u64, epoch: u64, index: u64, attempt: u32) -> Option<u64> {
        let part = self.ends.partition_point(|&end| end <= index);
        let (start, len) = if part < self.ends.len() { self.part(part) } else { return None };
        ShardedOrder::shuffled(len, seed).substitute(epoch, index - start, attempt).map(|other| start + other)
    }
}

/// The samples of a part, in repeated passes.
struct Turns {
    start: u64,
    len: u64,
    part: u64,
    /// Number of samples taken so far.
    taken: u64,
    /// The order of the current pass, if it is shuffled.
    pass: Vec<u32>,
}

impl Turns {
    fn new((start, len): (u64, u64), part: usize) -> Self {
        Self { start, len, part: part as u64, taken: 0, pass: Vec::new() }
    }

    fn next(&mut self, seed: u64, shuffle: bool, epoch: u64) -> u32 {
        let (pass, at) = (self.taken / self.len, self.taken % self.len);
        self.taken += 1;
        if !shuffle {
            return (self.start + at) as u32;
        }
        if at == 0 {
            self.pass = (self.start..self.start + self.len).map(|index| index as u32).collect();
            // Region 0 is for the places in batches.
            SampleRng::new(seed, epoch, Domain::Sampling, pass << 32 | self.part).at(1).shuffle(&mut self.pass);
        }
        self.pass[at as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares() -> Shares {
        Shares::new(&[10, 3], vec![3, 1])
    }

    fn order(ranks: u32, shuffle: bool, epoch: u64) -> Vec<u32> {
        let shares = shares();
        let positions = shares.positions(13, ranks, 4, None).unwrap();
        shares.order(positions, ranks, 42, shuffle, epoch)
    }

    #[test]
    fn batches_of_every_rank_have_the_shares() {
        for ranks in [1, 2, 3, 5] {
            for shuffle in [false, true] {
                let all = order(ranks, shuffle, 1);
                for rank in 0..ranks as usize {
                    let own: Vec<u32> = all.iter().copied().skip(rank).step_by(ranks as usize).collect();
                    assert!(own.chunks(4).all(|batch| batch.iter().filter(|&&index| index < 10).count() == 3));
                }
                // Every sample of the larger part comes at least once, and none comes a second time before all came
                // once.
                let mut larger: Vec<u32> = all.iter().copied().filter(|&index| index < 10).take(10).collect();
                larger.sort_unstable();
                assert_eq!(larger, (0..10).collect::<Vec<_>>());
            }
        }
        assert_eq!(order(1, false, 0), [0, 1, 2, 10, 3, 4, 5, 11, 6, 7, 8, 12, 9, 0, 1, 10]);
        assert!(order(1, true, 0) != order(1, true, 1));
    }

    /// This order is a promise; a separate Python program computed it. Never change it.
    #[test]
    fn golden_order() {
        assert_eq!(order(1, true, 0), GOLDEN);
    }

    const GOLDEN: [u32; 16] = [10, 9, 1, 2, 12, 5, 4, 3, 11, 7, 8, 0, 6, 7, 0, 11];

    #[test]
    fn what_does_not_fit_is_refused_and_substitutes_are_of_the_same_part() {
        let shares = shares();
        for (samples, ranks, batch, asked, says) in [
            (13, 1, 5, None, "4, the sum"),
            (12, 1, 4, None, "one of 12"),
            (13, 2, 4, Some(12), "a multiple of 8"),
            (13, 1, 4, Some(0), "a multiple of 4"),
        ] {
            let error = shares.positions(samples, ranks, batch, asked).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains(says), "{error}");
        }
        assert_eq!(shares.positions(13, 2, 4, Some(24)).unwrap(), 24);
        for attempt in 0..50 {
            let other = shares.substitute(1, 0, 11, attempt).unwrap();
            assert!(other == 10 || other == 12);
        }
        assert_eq!(Shares::new(&[1, 5], vec![1, 1]).substitute(1, 0, 0, 0), None);
    }
}
