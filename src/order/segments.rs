//! The remaining positions of an epoch when the number of ranks changes.
//!
//! They are numbered anew from 0, in the order of the epoch, and the new ranks share these numbers. A segment is the
//! part of an epoch that one number of ranks delivered. Its positions are numbers of the remainder of the earlier
//! segments. A row is one position of each rank. Between two ranks' progress the same ranks have positions left in each
//! row (a section), so a position is found by division.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The segments of each epoch that has any, by the epoch's number.
pub(crate) type Segments = BTreeMap<u64, Vec<Segment>>;

/// The segments of epoch `epoch`, first segment first.
pub(crate) fn segments_of(segments: &Segments, epoch: u64) -> &[Segment] {
    segments.get(&epoch).map_or(&[], Vec::as_slice)
}

/// The part of an epoch that the ranks of one number have delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    /// Number of ranks.
    ranks: u32,
    /// Number of positions that each rank has delivered; a single number if all have delivered equally many.
    delivered: Vec<u64>,
}

impl Segment {
    /// A segment of as many ranks as there are numbers in `delivered`; `None` if they have delivered nothing.
    pub(crate) fn new(mut delivered: Vec<u64>) -> Option<Self> {
        let ranks = u32::try_from(delivered.len()).ok()?;
        let first = *delivered.first()?;
        if delivered.iter().all(|&count| count == first) {
            delivered.truncate(1);
        }
        (delivered != [0]).then_some(Self { ranks, delivered })
    }

    /// A segment of `ranks` ranks that have delivered `each` positions each; `None` if that is nothing.
    pub(crate) fn even(ranks: u32, each: u64) -> Option<Self> {
        (ranks > 0 && each > 0).then(|| Self { ranks, delivered: vec![each] })
    }

    /// Number of ranks.
    pub(crate) const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Whether there is a number for each rank. A segment from a file may have any.
    pub(crate) fn is_valid(&self) -> bool {
        self.ranks > 0 && (self.delivered.len() == 1 || self.delivered.len() as u64 == u64::from(self.ranks))
    }

    /// Number of batches, if each rank had as many as the one that has most.
    pub(crate) fn batches(&self, batch_size: u64) -> u64 {
        let most = self.delivered.iter().max().map_or(0, |most| most.div_ceil(batch_size));
        most.saturating_mul(self.ranks.into())
    }
}

/// The positions that segments have left of an epoch, numbered from 0 in the order of the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remaining {
    steps: Vec<Step>,
    len: u64,
}

/// The positions that one segment has left.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    ranks: u64,
    /// Number of positions that each rank has delivered; empty if all have delivered equally many.
    delivered: Vec<u64>,
    sections: Vec<Section>,
}

/// Rows in which the same ranks have positions left. It ends where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Section {
    /// The first row.
    row: u64,
    /// Number of positions that are left before it.
    before: u64,
    /// Number of ranks with a position left in each row.
    ranks: u64,
}

impl Remaining {
    /// All of an epoch's `len` positions.
    pub(crate) const fn whole(len: u64) -> Self {
        Self { steps: Vec::new(), len }
    }

    /// The positions that valid segments have left of `len`.
    pub(crate) fn new(len: u64, segments: &[Segment]) -> Self {
        segments.iter().fold(Self::whole(len), Self::after)
    }

    fn after(mut self, segment: &Segment) -> Self {
        let ranks = u64::from(segment.ranks);
        let (step, delivered) = match segment.delivered[..] {
            // A rank that is at its end may have one position fewer than the others; then nothing is left.
            [each] => {
                let sections = vec![Section { row: each, before: 0, ranks }];
                (Step { ranks, delivered: Vec::new(), sections }, each.saturating_mul(ranks).min(self.len))
            }
            ref each => {
                // Padding is not a position of the order.
                let own = |(rank, each): (u64, &u64)| (*each).min(share(self.len, rank, ranks));
                let delivered: Vec<u64> = (0..).zip(each).map(own).collect();
                let sum = delivered.iter().sum();
                (Step { ranks, sections: sections(&delivered), delivered }, sum)
            }
        };
        self.steps.push(step);
        self.len -= delivered;
        self
    }

    /// Number of positions that are left.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// The epoch's position that has number `number`, which is below [`len`](Self::len).
    pub(crate) fn get(&self, number: u64) -> u64 {
        self.steps.iter().rfold(number, |number, step| step.get(number))
    }
}

/// Number of positions of a rank, of `len`.
fn share(len: u64, rank: u64, ranks: u64) -> u64 {
    len / ranks + u64::from(rank < len % ranks)
}

/// The sections of rows for ranks that have `delivered`.
fn sections(delivered: &[u64]) -> Vec<Section> {
    let mut rows = delivered.to_vec();
    rows.sort_unstable();
    let mut sections: Vec<Section> = Vec::new();
    for (ranks, row) in (1..).zip(rows) {
        match sections.last_mut() {
            Some(last) if last.row == row => last.ranks = ranks,
            last => {
                let before = last.map_or(0, |last| last.before + (row - last.row) * last.ranks);
                sections.push(Section { row, before, ranks });
            }
        }
    }
    sections
}

impl Step {
    /// The position before this segment of the one that has number `number` after it.
    fn get(&self, number: u64) -> u64 {
        let section = &self.sections[self.sections.partition_point(|section| section.before <= number) - 1];
        let (row, place) = ((number - section.before) / section.ranks, (number - section.before) % section.ranks);
        let rank = if section.ranks == self.ranks {
            place
        } else {
            let mut left = (0..).zip(&self.delivered).filter(|(_, delivered)| **delivered <= section.row);
            left.nth(place as usize).map_or(place, |(rank, _)| rank)
        };
        (section.row + row) * self.ranks + rank
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator: xorshift64*.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end
        }
    }

    /// Segments of ranks that are anywhere between the beginning and the end of their partitions, or one position of
    /// padding after it.
    fn segments(random: &mut Random, len: u64, worlds: &[u32]) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::new();
        for &ranks in worlds {
            let left = Remaining::new(len, &segments).len();
            let most = left / u64::from(ranks) + 2;
            let about = random.below(most);
            let delivered = |_| match random.below(4) {
                0 => random.below(most),
                1 => about,
                _ => (about + random.below(3)).min(most - 1),
            };
            let delivered: Vec<u64> = (0..ranks).map(delivered).collect();
            // Another half is left for the ranks that follow.
            segments.extend(Segment::new(delivered.into_iter().map(|count| count / 2).collect()));
        }
        segments
    }

    /// The rank that delivers a position of the epoch, by segment, and its number after the last segment if no rank
    /// does.
    fn deliverer(len: u64, segments: &[Segment], position: u64) -> Result<(usize, u64), u64> {
        let (mut left, mut number) = (len, position);
        for (segment, Segment { ranks, delivered }) in segments.iter().enumerate() {
            let ranks = u64::from(*ranks);
            let given = |rank: u64| delivered[if delivered.len() == 1 { 0 } else { rank as usize }];
            let given = |rank: u64| given(rank).min((rank..left).step_by(ranks as usize).size_hint().0 as u64);
            if number / ranks < given(number % ranks) {
                return Ok((segment, number % ranks));
            }
            // Those that are left before it, rank by rank.
            let earlier = |rank: u64| (number / ranks + u64::from(rank < number % ranks)).saturating_sub(given(rank));
            number = (0..ranks).map(earlier).sum();
            left -= (0..ranks).map(given).sum::<u64>();
        }
        Err(number)
    }

    #[test]
    fn what_is_left_is_what_a_list_has_left() {
        let mut random = Random(5);
        for case in 0..400 {
            let len = random.below(300);
            let worlds: Vec<u32> = (0..case % 5).map(|_| 1 + random.below(9) as u32).collect();
            let segments = segments(&mut random, len, &worlds);
            let mut left: Vec<u64> = (0..len).collect();
            for Segment { ranks, delivered } in &segments {
                let delivers = |place: usize| {
                    let (rank, row) = (place % *ranks as usize, (place / *ranks as usize) as u64);
                    row < delivered[if delivered.len() == 1 { 0 } else { rank }]
                };
                let kept = left.iter().enumerate().filter(|(place, _)| !delivers(*place));
                left = kept.map(|(_, position)| *position).collect();
            }
            let rest = Remaining::new(len, &segments);
            assert_eq!((0..rest.len()).map(|number| rest.get(number)).collect::<Vec<_>>(), left, "{segments:?}");
        }
    }

    /// Checks that every position is delivered once: by a rank of one segment, or after all of them. `positions`: the
    /// positions to check.
    fn each_once(len: u64, segments: &[Segment], positions: impl Iterator<Item = u64>) -> (u64, u64) {
        let rest = Remaining::new(len, segments);
        let (mut delivered, mut left) = (0, 0);
        for position in positions {
            match deliverer(len, segments, position) {
                Ok(_) => delivered += 1,
                Err(number) => {
                    assert!(number < rest.len(), "{segments:?}");
                    assert_eq!(rest.get(number), position, "{segments:?}");
                    left += 1;
                }
            }
        }
        (delivered, left)
    }

    const WORLDS: [&[u32]; 5] = [&[2, 1, 3, 8], &[8, 6], &[1, 1000, 7], &[3, 3, 3, 3, 3, 3], &[256, 5, 64]];

    #[test]
    fn of_a_billion_samples_each_is_delivered_once() {
        let (mut random, len) = (Random(9), 1_000_000_007);
        for worlds in WORLDS {
            let segments = segments(&mut random, len, worlds);
            let rest = Remaining::new(len, &segments);
            // Memory depends on the number of ranks, not of samples.
            let ranks: usize = segments.iter().map(|segment| segment.ranks as usize).sum();
            let numbers = rest.steps.iter().map(|step| step.delivered.len() + step.sections.len());
            assert!(numbers.sum::<usize>() <= 2 * ranks);
            let somewhere: Vec<u64> = (0..300).map(|_| random.below(len - 64)).chain([0, len - 64]).collect();
            each_once(len, &segments, somewhere.into_iter().flat_map(|first| first..first + 64));
            let numbers: Vec<u64> = (0..300).map(|_| random.below(rest.len())).chain([0, rest.len() - 1]).collect();
            for number in numbers {
                assert_eq!(deliverer(len, &segments, rest.get(number)), Err(number), "{segments:?}");
            }
        }
    }

    #[test]
    fn every_single_position_is_delivered_once() {
        let (mut random, len) = (Random(3), 20_011);
        for worlds in WORLDS {
            let segments = segments(&mut random, len, worlds);
            let left = Remaining::new(len, &segments).len();
            assert_eq!(each_once(len, &segments, 0..len), (len - left, left), "{segments:?}");
        }
    }

    #[test]
    #[ignore = "a billion positions take minutes: cargo test --lib every_position_of_a_billion -- --ignored"]
    fn every_position_of_a_billion_is_delivered_once() {
        let (mut random, len) = (Random(3), 1_000_000_007);
        let segments = segments(&mut random, len, &[2, 1, 3, 8]);
        let left = Remaining::new(len, &segments).len();
        assert_eq!(each_once(len, &segments, 0..len), (len - left, left), "{segments:?}");
    }

    #[test]
    fn a_leg_that_is_written_has_a_number_for_each_rank() {
        assert_eq!(Segment::new(vec![0, 0]), None);
        assert_eq!(Segment::new(vec![4, 4]), Segment::even(2, 4));
        let text = serde_json::to_string(&Segment::new(vec![4, 3])).unwrap();
        assert_eq!(text, r#"{"ranks":2,"delivered":[4,3]}"#);
        for (text, is_valid) in [
            (r#"{"ranks":2,"delivered":[4,3]}"#, true),
            (r#"{"ranks":3,"delivered":[18446744073709551615]}"#, true),
            (r#"{"ranks":0,"delivered":[4]}"#, false),
            (r#"{"ranks":0,"delivered":[]}"#, false),
            (r#"{"ranks":3,"delivered":[4,3]}"#, false),
        ] {
            let segment: Segment = serde_json::from_str(text).unwrap();
            assert_eq!(segment.is_valid(), is_valid, "{text}");
            if is_valid {
                let rest = Remaining::new(10, std::slice::from_ref(&segment));
                (0..rest.len()).for_each(|number| assert!(rest.get(number) < 10));
            }
        }
    }

    #[test]
    fn batches_are_numbered_after_those_of_the_rank_that_had_most() {
        assert_eq!(Segment::new(vec![8, 12, 7]).unwrap().batches(4), 9);
        assert_eq!(Segment::even(2, 5).unwrap().batches(4), 4);
    }
}
