//! The order of an epoch, the same on every machine.

mod rank;
mod segments;

pub use rank::Rank;
pub(crate) use segments::{Remaining, Segment, Segments, segments_of};

use crate::error::{Error, Result};
use crate::os::memory;
use crate::rng::{Domain, SampleRng};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A rank's part of an epoch: positions `rank`, `rank + world_size`, `rank + 2 * world_size`, ... of its order.
///
/// ```
/// # use warpfeed::Partition;
/// let partition: Partition = "1/4".parse()?;
/// assert_eq!(partition, Partition::new(1, 4)?);
/// assert!(Partition::new(4, 4).is_err());
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Partition {
    rank: u32,
    world_size: u32,
}

impl Partition {
    /// The whole epoch: partition 0 of 1.
    pub const WHOLE: Self = Self { rank: 0, world_size: 1 };

    /// Partition `rank` of `world_size`, counted from 0.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `rank` is below `world_size`.
    pub fn new(rank: u32, world_size: u32) -> Result<Self> {
        if rank < world_size { Ok(Self { rank, world_size }) } else { Err(Self::wrong(format!("{rank}/{world_size}"))) }
    }

    /// The rank, from 0.
    #[must_use]
    pub const fn rank(self) -> u32 {
        self.rank
    }

    /// Number of ranks that share the epoch.
    #[must_use]
    pub const fn world_size(self) -> u32 {
        self.world_size
    }

    /// Number of this partition's samples, of `len`. The partitions of an epoch differ by at most one sample.
    #[must_use]
    pub const fn share(self, len: u64) -> u64 {
        let (rank, world_size) = (self.rank as u64, self.world_size as u64);
        len / world_size + (rank < len % world_size) as u64
    }

    /// The position of the order that this partition has at its own position `own`.
    const fn position(self, own: u64) -> u64 {
        own * self.world_size as u64 + self.rank as u64
    }

    fn wrong(got: String) -> Error {
        Error::parameter(
            "partition",
            "rank/world_size",
            "two whole numbers, the rank (from 0) below the world size",
            got,
        )
    }
}

impl Default for Partition {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.rank, self.world_size)
    }
}

text_value!(Partition: "R/W");

impl FromStr for Partition {
    type Err = Error;

    /// Reads `rank/world_size`, as in `0/4`.
    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('/').and_then(|(rank, size)| Some((rank.parse().ok()?, size.parse().ok()?)));
        let (rank, world_size) = parts.ok_or_else(|| Self::wrong(format!("{text:?}")))?;
        Self::new(rank, world_size)
    }
}

/// Decides which samples an epoch delivers, and in which order.
///
/// The order of a shuffled epoch depends only on the number of samples, the seed and the epoch. It is a Fisher-Yates
/// shuffle of all samples by ChaCha8 with a fixed mapping to whole numbers, so it is the same on every machine and in
/// every version. Rank *r* of *w* takes positions *r*, *r* + *w*, *r* + 2*w*, ... of it. Together the partitions hold
/// every sample once, for every world size *w*.
///
/// ```
/// # use warpfeed::{ShardedOrder, Partition};
/// let sampler = ShardedOrder::shuffled(10, 42);
/// let mut all: Vec<u64> = sampler.epoch(0).iter().collect();
/// assert_ne!(all, sampler.epoch(1).iter().collect::<Vec<_>>());
///
/// let half = sampler.partition(Partition::new(1, 2)?).epoch(0);
/// assert_eq!(half.iter().collect::<Vec<_>>(), [all[1], all[3], all[5], all[7], all[9]]);
///
/// all.sort_unstable();
/// assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardedOrder {
    len: u64,
    seed: u64,
    shuffle: bool,
    shares: u32,
    partition: Partition,
    equal_batches: Option<EqualBatches>,
}

/// The way in which all partitions of an epoch become equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EqualBatches {
    /// A partition with one sample fewer than others gets a sample from the start of the order at its end, as padding
    /// ([`Order::padding`]).
    Padded,
    /// A partition with one sample more than others leaves its last sample out of the epoch.
    Cut,
}

impl ShardedOrder {
    /// `len` samples in their own order.
    #[must_use]
    pub const fn sequential(len: u64) -> Self {
        Self { len, seed: 0, shuffle: false, shares: 1, partition: Partition::WHOLE, equal_batches: None }
    }

    /// `len` samples, shuffled anew each epoch.
    #[must_use]
    pub const fn shuffled(len: u64, seed: u64) -> Self {
        Self { len, seed, shuffle: true, shares: 1, partition: Partition::WHOLE, equal_batches: None }
    }

    /// The same order, restricted to the positions of this partition.
    #[must_use]
    pub const fn partition(self, partition: Partition) -> Self {
        Self { partition, ..self }
    }

    /// A shuffled order in which the samples are dealt to this number of shares once, at random, and each share is
    /// shuffled anew each epoch: positions `s`, `s + shares`, `s + 2 * shares`, ... are those of share `s`. With as many
    /// shares as partitions each partition has the same samples in every epoch, so that what it keeps of them is there
    /// again. The order stays one of all samples, for any number of partitions. 0 counts as 1.
    ///
    /// ```
    /// # use warpfeed::{Partition, ShardedOrder};
    /// let order = ShardedOrder::shuffled(9, 7).shares(2).partition(Partition::new(1, 2)?);
    /// let sorted = |epoch| {
    ///     let mut samples: Vec<u64> = order.epoch(epoch).iter().collect();
    ///     samples.sort_unstable();
    ///     samples
    /// };
    /// assert_eq!(sorted(0), sorted(1));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub const fn shares(self, shares: u32) -> Self {
        Self { shares: if shares == 0 { 1 } else { shares }, ..self }
    }

    /// The same order, with partitions of equal length.
    ///
    /// ```
    /// # use warpfeed::{EqualBatches, ShardedOrder, Partition};
    /// let order = |partition, even| ShardedOrder::sequential(5).partition(partition).equal_batches(even).epoch(0);
    /// let (first, second) = (Partition::new(0, 2)?, Partition::new(1, 2)?);
    /// let padded = order(second, EqualBatches::Padded);
    /// assert_eq!((padded.iter().collect::<Vec<_>>(), padded.padding()), (vec![1, 3, 0], 1));
    /// assert_eq!(order(first, EqualBatches::Padded).iter().collect::<Vec<_>>(), [0, 2, 4]);
    /// assert_eq!(order(first, EqualBatches::Cut).iter().collect::<Vec<_>>(), [0, 2]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    #[must_use]
    pub const fn equal_batches(self, equal: EqualBatches) -> Self {
        Self { equal_batches: Some(equal), ..self }
    }

    /// Number of samples of this partition in an epoch, without padding.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len_of(self.len)
    }

    /// Number of positions of this partition that are padding: 0 or 1.
    #[must_use]
    pub const fn padding(&self) -> u64 {
        self.padding_of(self.len)
    }

    /// Number of positions that this partition has of `left`, without padding.
    const fn len_of(&self, left: u64) -> u64 {
        match self.equal_batches {
            Some(EqualBatches::Cut) => left / self.partition.world_size as u64,
            Some(EqualBatches::Padded) | None => self.partition.share(left),
        }
    }

    /// Number of positions of this partition that are padding if the partitions share `left` positions: 0 or 1.
    const fn padding_of(&self, left: u64) -> u64 {
        match self.equal_batches {
            Some(EqualBatches::Padded) => left.div_ceil(self.partition.world_size as u64) - self.partition.share(left),
            Some(EqualBatches::Cut) | None => 0,
        }
    }

    /// Number of positions that this partition has of the rest of an epoch, padding included.
    pub(crate) const fn positions_of(&self, rest: &Remaining) -> u64 {
        self.len_of(rest.len()) + self.padding_of(rest.len())
    }

    /// Number of all partitions' samples in an epoch.
    pub(crate) const fn all(&self) -> u64 {
        self.len
    }

    pub(crate) const fn own_partition(&self) -> Partition {
        self.partition
    }

    /// Number of shares; `None` if the order is not shuffled, or has one.
    pub(crate) fn several_shares(&self) -> Option<u32> {
        (self.shuffle && self.shares > 1).then_some(self.shares)
    }

    pub(crate) const fn is_equal(&self) -> bool {
        self.equal_batches.is_some()
    }

    /// Whether this partition has no samples at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The order of epoch `epoch`.
    ///
    /// A shuffled order takes 4 bytes a sample (8 if there are more than 2^32): for all samples while it is made, and
    /// for those of the partition afterwards. A sequential order takes none.
    #[must_use]
    pub fn epoch(&self, epoch: u64) -> Order {
        let order = self.order_of(epoch, Remaining::whole(self.len));
        // As any collection that finds no memory.
        order.unwrap_or_else(|_| std::alloc::handle_alloc_error(std::alloc::Layout::new::<Order>()))
    }

    /// The order of the rest of epoch `epoch`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if a shuffled order does not fit into memory.
    pub(crate) fn order_of(&self, epoch: u64, rest: Remaining) -> Result<Order> {
        let (len, padding) = (self.len_of(rest.len()), self.padding_from(&rest));
        let (indices, padding) = match u32::try_from(self.len) {
            _ if !self.shuffle => (Indices::InOrder(self.partition, rest), padding),
            Ok(all) => {
                let (share, padding) = self.shuffled_share(listed(0..all)?, epoch, &rest, padding)?;
                (Indices::Narrow(share), padding.map(u64::from))
            }
            Err(_) => {
                let (share, padding) = self.shuffled_share(listed(0..self.len)?, epoch, &rest, padding)?;
                (Indices::Wide(share), padding)
            }
        };
        Ok(Order { indices, len, padding })
    }

    fn shuffled_share<T: Copy>(
        &self,
        mut all: Vec<T>,
        epoch: u64,
        rest: &Remaining,
        padding: Option<u64>,
    ) -> Result<(Vec<T>, Option<T>)> {
        self.shuffle(&mut all, epoch)?;
        let padding = padding.map(|position| all[position as usize]);
        let len = self.len_of(rest.len());
        if len < self.len {
            // A position is never before its number, so nothing is overwritten that is still needed.
            for own in 0..len {
                all[own as usize] = all[rest.get(self.partition.position(own)) as usize];
            }
            all.truncate(len as usize);
            all.shrink_to_fit();
        }
        Ok((all, padding))
    }

    /// Shuffles all samples, or deals them to the shares and shuffles each.
    fn shuffle<T: Copy>(&self, all: &mut [T], epoch: u64) -> Result<()> {
        let draw = |epoch, index| SampleRng::new(self.seed, epoch, Domain::Order, index);
        if self.shares == 1 {
            draw(epoch, 0).shuffle(all);
            return Ok(());
        }
        draw(0, 1).shuffle(all);
        let mut share = Vec::new();
        memory::reserve(&mut share, all.len().div_ceil(self.shares as usize), "a shuffled order", FEWER_SAMPLES)?;
        for first in 0..(self.shares as usize).min(all.len()) {
            share.clear();
            share.extend(all[first..].iter().step_by(self.shares as usize));
            draw(epoch, 2 + first as u64).shuffle(&mut share);
            all[first..].iter_mut().step_by(self.shares as usize).zip(&share).for_each(|(to, from)| *to = *from);
        }
        Ok(())
    }

    /// The position of the whole order that this partition's padding repeats, as if the order began again at its end.
    fn padding_from(&self, rest: &Remaining) -> Option<u64> {
        let beyond = rest.len() % u64::from(self.partition.world_size);
        let position = u64::from(self.partition.rank).checked_sub(beyond)?;
        (self.padding_of(rest.len()) > 0).then(|| position.checked_rem(self.len)).flatten()
    }

    /// Draws a substitute for the bad sample `index` among all other samples, a new one for each `attempt`. `None` if
    /// there is no other sample.
    #[must_use]
    pub fn substitute(&self, epoch: u64, index: u64, attempt: u32) -> Option<u64> {
        let others = self.len.checked_sub(1).filter(|&n| n > 0)?;
        let draw = SampleRng::new(self.seed, epoch, Domain::Substitute, index).at(attempt).below(others);
        Some(draw + u64::from(draw >= index))
    }
}

/// The remedy for an order that does not fit into memory.
const FEWER_SAMPLES: &str = "use fewer samples, or do not shuffle";

/// The numbers of a range, whose length a caller's source says.
fn listed<T>(range: Range<T>) -> Result<Vec<T>>
where
    Range<T>: Iterator<Item = T>,
{
    let mut all = Vec::new();
    let len = range.size_hint().1.unwrap_or(usize::MAX);
    memory::reserve(&mut all, len, "a shuffled order", FEWER_SAMPLES)?;
    all.extend(range);
    Ok(all)
}

/// The samples of one partition in one epoch, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    indices: Indices,
    /// Number of positions without padding.
    len: u64,
    padding: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Indices {
    InOrder(Partition, Remaining),
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Order {
    /// Number of positions, padding included.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len + self.padding()
    }

    /// Whether it has no positions.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of positions at the end that repeat a sample of another partition, so that all partitions are equally
    /// long ([`EqualBatches::Padded`]): 0 or 1.
    #[must_use]
    pub const fn padding(&self) -> u64 {
        self.padding.is_some() as u64
    }

    /// The index of the sample at `position`; `None` past the end.
    #[must_use]
    pub fn get(&self, position: u64) -> Option<u64> {
        if position >= self.len {
            return self.padding.filter(|_| position == self.len);
        }
        Some(match &self.indices {
            Indices::InOrder(partition, rest) => rest.get(partition.position(position)),
            Indices::Narrow(indices) => u64::from(indices[position as usize]),
            Indices::Wide(indices) => indices[position as usize],
        })
    }

    /// The sample indices in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).map_while(|position| self.get(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(sampler: ShardedOrder, epoch: u64) -> Vec<u64> {
        sampler.epoch(epoch).iter().collect()
    }

    #[test]
    fn shares_keep_their_samples_and_every_epoch_has_all() {
        for (len, shares) in [(1, 2), (2, 3), (23, 1), (23, 2), (40, 4), (40, 7), (41, 4)] {
            let order = ShardedOrder::shuffled(len, 9).shares(shares);
            let whole = |epoch| order.epoch(epoch).iter().collect::<Vec<_>>();
            let of_share = |epoch, share: usize| {
                let mut samples: Vec<_> = whole(epoch).into_iter().skip(share).step_by(shares as usize).collect();
                samples.sort_unstable();
                samples
            };
            for epoch in 0..4 {
                let mut all = whole(epoch);
                all.sort_unstable();
                assert_eq!(all, (0..len).collect::<Vec<_>>());
                for share in 0..shares as usize {
                    assert_eq!(of_share(epoch, share), of_share(0, share), "{len} samples, {shares} shares");
                    let partition = Partition::new(share as u32, shares).unwrap();
                    let own: Vec<_> = order.partition(partition).epoch(epoch).iter().collect();
                    assert_eq!(own, whole(epoch).into_iter().skip(share).step_by(shares as usize).collect::<Vec<_>>());
                }
            }
            if len > 20 {
                assert_ne!(whole(0), whole(1));
                assert_ne!(
                    whole(0),
                    ShardedOrder::shuffled(len, 9).shares(shares + 1).epoch(0).iter().collect::<Vec<_>>()
                );
            }
        }
        let order = ShardedOrder::shuffled(50, 3);
        assert_eq!(order.shares(1).epoch(2), order.epoch(2));
    }

    #[test]
    fn every_sample_exactly_once_in_another_order_each_epoch() {
        for len in [0, 1, 2, 3, 10, 1000, 4099] {
            let mut seen = Vec::new();
            for epoch in 0..4 {
                let mut indices = order(ShardedOrder::shuffled(len, 7), epoch);
                seen.push(indices.clone());
                indices.sort_unstable();
                assert_eq!(indices, (0..len).collect::<Vec<_>>());
            }
            if len >= 10 {
                seen.push(order(ShardedOrder::shuffled(len, 8), 0));
                seen.push((0..len).collect());
                seen.sort();
                seen.dedup();
                assert_eq!(seen.len(), 6, "{len} samples: two orders alike");
            }
        }
    }

    /// These orders are a promise: a seed means the same in every version. Never change them.
    #[test]
    fn golden_orders() {
        assert_eq!(order(ShardedOrder::shuffled(10, 42), 0), GOLDEN_EPOCH_0);
        assert_eq!(order(ShardedOrder::shuffled(10, 42), 1), GOLDEN_EPOCH_1);
        let substitutes = [(0, 5, 0), (0, 5, 1), (1, 5, 0), (0, 6, 0)]
            .map(|(epoch, index, attempt)| ShardedOrder::shuffled(10, 42).substitute(epoch, index, attempt).unwrap());
        assert_eq!(substitutes, GOLDEN_SUBSTITUTES);
    }

    const GOLDEN_EPOCH_0: [u64; 10] = [3, 6, 5, 9, 2, 0, 1, 8, 7, 4];
    const GOLDEN_EPOCH_1: [u64; 10] = [6, 0, 1, 9, 8, 2, 7, 4, 5, 3];
    const GOLDEN_SUBSTITUTES: [u64; 4] = [8, 3, 9, 2];

    #[test]
    fn partitions_are_disjoint_complete_and_even() {
        for base in [ShardedOrder::sequential(103), ShardedOrder::shuffled(103, 1), ShardedOrder::shuffled(2, 1)] {
            let whole = order(base, 3);
            for count in [1, 2, 3, 7, 103, 104, 250] {
                let mut merged = vec![None; whole.len()];
                for index in 0..count {
                    let partition = base.partition(Partition::new(index, count).unwrap());
                    let own = order(partition, 3);
                    assert_eq!(own.len() as u64, partition.len());
                    assert_eq!(partition.is_empty(), own.is_empty());
                    assert!(own.len().abs_diff(whole.len() / count as usize) <= 1);
                    for (turn, &sample) in own.iter().enumerate() {
                        assert_eq!(merged[turn * count as usize + index as usize].replace(sample), None);
                    }
                }
                assert_eq!(merged, whole.iter().map(|&s| Some(s)).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn even_partitions_have_one_length() {
        for base in [
            ShardedOrder::sequential(103),
            ShardedOrder::shuffled(103, 1),
            ShardedOrder::shuffled(2, 1),
            ShardedOrder::shuffled(0, 1),
        ] {
            let whole = order(base, 3);
            for count in [1, 2, 3, 7, 103, 104, 250] {
                for even in [EqualBatches::Padded, EqualBatches::Cut] {
                    let (mut seen, mut positions) = (Vec::new(), std::collections::BTreeSet::new());
                    for index in 0..count {
                        let partition = base.partition(Partition::new(index, count).unwrap());
                        let (own, plain) = (partition.equal_batches(even).epoch(3), order(partition, 3));
                        let indices: Vec<u64> = own.iter().collect();
                        assert_eq!(indices.len() as u64, own.len());
                        assert_eq!(own.len() - own.padding(), partition.equal_batches(even).len());
                        assert_eq!(own.padding(), partition.equal_batches(even).padding());
                        positions.insert(own.len());
                        let real = &indices[..indices.len() - own.padding() as usize];
                        assert!(plain.starts_with(real) && indices.iter().all(|index| whole.contains(index)));
                        seen.extend_from_slice(real);
                    }
                    assert_eq!(positions.len(), 1, "{even:?}, {count} partitions");
                    seen.sort_unstable();
                    seen.dedup();
                    let left_out = if even == EqualBatches::Cut { whole.len() % count as usize } else { 0 };
                    assert_eq!(seen.len(), whole.len() - left_out, "{even:?}, {count} partitions");
                }
            }
        }
    }

    #[test]
    fn sequential_orders_store_nothing_however_long() {
        let sampler = ShardedOrder::sequential(u64::MAX).partition(Partition::new(u32::MAX - 1, u32::MAX).unwrap());
        let order = sampler.epoch(9);
        assert_eq!(order.get(order.len() - 1), Some(u64::MAX - 1));
        assert_eq!(order.get(order.len()), None);
        let last = ShardedOrder::sequential(10).epoch(0);
        assert_eq!((last.get(9), last.get(10)), (Some(9), None));
    }

    #[test]
    fn an_order_that_does_not_fit_into_memory_is_an_error() {
        for len in [1 << 62, u64::MAX] {
            let error = ShardedOrder::shuffled(len, 1).order_of(0, Remaining::whole(len)).unwrap_err();
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
            assert!(ShardedOrder::sequential(len).order_of(0, Remaining::whole(len)).is_ok());
        }
    }

    #[test]
    fn a_substitute_is_any_other_sample() {
        let sampler = ShardedOrder::shuffled(5, 3);
        for bad in 0..5 {
            let drawn: std::collections::BTreeSet<u64> =
                (0..200).map(|attempt| sampler.substitute(0, bad, attempt).unwrap()).collect();
            assert_eq!(drawn.into_iter().collect::<Vec<_>>(), (0..5).filter(|&i| i != bad).collect::<Vec<_>>());
        }
        assert_eq!(ShardedOrder::shuffled(1, 3).substitute(0, 0, 0), None);
        assert_eq!(ShardedOrder::sequential(0).substitute(0, 0, 0), None);
    }

    #[test]
    fn partitions_are_written_rank_of_world_size() {
        assert_eq!("3/8".parse::<Partition>().unwrap().to_string(), "3/8");
        for wrong in ["", "3", "8/8", "9/8", "0/0", "-1/2", "1/2/3", "a/b", "1 /2"] {
            let error = wrong.parse::<Partition>().unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains("below the world size"), "{wrong}: {error}");
        }
    }
}
