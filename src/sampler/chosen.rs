//! An epoch's samples, possibly several times or not at all.

use super::EpochOrder;
use super::shares::Shares;
use crate::error::{Error, Result};
use crate::order::{Order, ShardedOrder};
use crate::rng::{Domain, Pick, SampleRng};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The samples of one partition in an epoch, in order.
pub(crate) struct Picks(pub(crate) Vec<(u32, u32)>);

impl Picks {
    pub(crate) fn get(&self, position: u64) -> Option<Pick> {
        let &(index, repetition) = self.0.get(usize::try_from(position).ok()?)?;
        Some(Pick { index: index.into(), repetition })
    }
}

/// A sampling that is prepared for a source.
pub(crate) struct Chosen {
    /// The sampling's identity, for states.
    pub(crate) name: String,
    pub(super) choice: Choice,
    pub(super) samples: u64,
    /// Number of positions of an epoch, over all ranks.
    pub(crate) positions: u64,
}

/// Rule that chooses the samples of an epoch.
pub(super) enum Choice {
    Repeated(u32),
    /// The sum of all weights up to and including each sample's.
    Cumulative(Vec<f64>),
    Weights(Arc<[f64]>),
    /// The shares and the number of ranks.
    Shares(Arc<Shares>, u32),
    Own(Arc<dyn EpochOrder>),
}

impl Choice {
    pub(super) fn cumulative(weights: &[f64]) -> Self {
        let sums = weights.iter().scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self::Cumulative(sums.collect())
    }
}

impl Chosen {
    /// Upper bound of the memory of an epoch's order, in bytes.
    pub(crate) fn order_bytes(&self) -> u64 {
        24 * (self.samples + self.positions)
    }

    /// How often each sample comes in every epoch; `None` if that differs.
    pub(crate) fn times(&self) -> Option<u32> {
        match self.choice {
            Choice::Repeated(times) if self.positions == self.samples * u64::from(times) => Some(times),
            _ => None,
        }
    }

    /// Whether the order of an epoch depends on the number of ranks.
    pub(crate) fn is_of_ranks(&self) -> bool {
        matches!(self.choice, Choice::Shares(..))
    }

    /// Draws a substitute for the bad sample `index`.
    pub(crate) fn substitute(&self, seed: u64, epoch: u64, index: u64, attempt: u32) -> Option<u64> {
        match &self.choice {
            Choice::Shares(shares, _) => shares.substitute(seed, epoch, index, attempt),
            _ => ShardedOrder::shuffled(self.samples, seed).substitute(epoch, index, attempt),
        }
    }

    /// The samples at the positions of `order`. These positions are positions of the whole epoch.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the caller's own order breaks its promise; [`Error::Panic`] if it panics.
    pub(crate) fn picks(&self, seed: u64, shuffle: bool, epoch: u64, order: &Order) -> Result<Picks> {
        let whole = match &self.choice {
            &Choice::Repeated(times) => self.repeated(times, seed, shuffle, epoch),
            Choice::Cumulative(sums) => self.with_replacement(sums, seed, epoch),
            Choice::Weights(weights) => self.without_replacement(weights, seed, epoch),
            Choice::Shares(shares, ranks) => shares.order(self.positions, *ranks, seed, shuffle, epoch),
            Choice::Own(own) => {
                let order = catch_unwind(AssertUnwindSafe(|| own.order(self.samples, seed, epoch)))
                    .map_err(|panic| Error::panic(panic.as_ref()))?;
                let expected = || format!("{} indices below {}, as {} has it", self.positions, self.samples, self.name);
                let wrong = |got: String| Error::parameter("sampler", "order", expected(), got);
                if order.len() as u64 != self.positions {
                    return Err(wrong(format!("{} indices", order.len())));
                }
                let narrow = |index: u64| {
                    if index < self.samples { Ok(index as u32) } else { Err(wrong(format!("the index {index}"))) }
                };
                order.into_iter().map(narrow).collect::<Result<_>>()?
            }
        };
        let mut counts = vec![0_u32; self.samples as usize];
        let counted = whole.into_iter().map(|index| {
            let count = &mut counts[index as usize];
            *count += 1;
            (index, *count - 1)
        });
        let whole: Vec<(u32, u32)> = counted.collect();
        Ok(Picks(order.iter().filter_map(|position| whole.get(position as usize).copied()).collect()))
    }

    fn repeated(&self, times: u32, seed: u64, shuffle: bool, epoch: u64) -> Vec<u32> {
        let sampler =
            if shuffle { ShardedOrder::shuffled(self.samples, seed) } else { ShardedOrder::sequential(self.samples) };
        let order = sampler.epoch(epoch);
        let repeated = order.iter().flat_map(|index| std::iter::repeat_n(index as u32, times as usize));
        repeated.take(self.positions as usize).collect()
    }

    /// Each position draws a number in [0, sum of weights) and takes the sample whose interval contains it.
    fn with_replacement(&self, sums: &[f64], seed: u64, epoch: u64) -> Vec<u32> {
        let mut draw = SampleRng::new(seed, epoch, Domain::Sampling, 0);
        let sum = sums.last().copied().unwrap_or(0.0);
        // By rounding, the number may equal the sum.
        let last = sums.partition_point(|&below| below < sum);
        let at = |number: f64| sums.partition_point(|&below| below <= number).min(last) as u32;
        (0..self.positions).map(|_| at(draw.unit() * sum)).collect()
    }

    /// Each sample draws a waiting time, exponentially distributed with its weight as rate. The samples with the
    /// shortest times are taken, in this order.
    fn without_replacement(&self, weights: &[f64], seed: u64, epoch: u64) -> Vec<u32> {
        let mut draw = SampleRng::new(seed, epoch, Domain::Sampling, 0);
        let times = weights.iter().map(|weight| -libm::log(1.0 - draw.unit()) / weight);
        let mut times: Vec<(f64, u32)> = times.zip(0..).collect();
        times.retain(|&(_, index)| weights[index as usize] > 0.0);
        times.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        times.truncate(self.positions as usize);
        times.into_iter().map(|(_, index)| index).collect()
    }
}
