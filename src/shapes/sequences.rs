//! Batches of sequences whose length differs from batch to batch, while all hold about as many tokens.

use super::naflex::MAX_SEQUENCE;
use crate::error::{Error, Result};
use crate::rng::{Domain, SampleRng};
use std::str::FromStr;

/// Largest number of batches in a plan.
const MAX_BATCHES: u64 = 1 << 28;

/// Streams of random numbers: of the lengths, and of the order of an epoch's batches.
const LENGTHS: u64 = 0;
const EPOCHS: u64 = 1;

/// The lengths that sequences may have, and the number of tokens in a batch
/// ([`PipelineBuilder::sequences`](crate::PipelineBuilder::sequences)).
///
/// The written form is `128,256,784/4096`, lengths and tokens; `,divisor=1` may follow.
///
/// ```
/// use warpfeed::shapes::TokenBudget;
///
/// let budget = TokenBudget::new(4_096, [128, 256, 784]);
/// assert_eq!(budget.batch_size(256)?, 16);
/// // 5 fit, which is less than the divisor. timm gives 1.
/// assert_eq!(budget.batch_size(784)?, 5);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBudget {
    tokens: u64,
    seq_lens: Vec<u32>,
    divisor: u32,
}

/// Batches of one length that all ranks make at the same step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequenceBatch {
    /// Number of patches in a sequence.
    pub seq_len: u32,
    /// Number of samples in a rank's batch.
    pub batch_size: u64,
}

impl TokenBudget {
    /// Sequences of these lengths in batches of at most `tokens` tokens on each rank.
    #[must_use]
    pub fn new(tokens: u64, seq_lens: impl IntoIterator<Item = u32>) -> Self {
        Self { tokens, seq_lens: seq_lens.into_iter().collect(), divisor: 8 }
    }

    /// The number that batch sizes are multiples of, where as many samples fit. Default: 8, as in timm.
    #[must_use]
    pub const fn divisor(mut self, divisor: u32) -> Self {
        self.divisor = divisor;
        self
    }

    /// Number of samples in a batch of sequences of this length: as many as fit, rounded down to a multiple of the
    /// divisor. If fewer fit than the divisor, all of them. timm makes batches of one sample then.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a length or a divisor of 0, and for fewer tokens than one sequence has. timm exceeds its
    /// budget then.
    pub fn batch_size(&self, seq_len: u32) -> Result<u64> {
        let wrong = |parameter, expected: String, got: u64| Err(Error::parameter("naflex", parameter, expected, got));
        if !(1..=MAX_SEQUENCE).contains(&seq_len) {
            return wrong("seq_lens", format!("1 to {MAX_SEQUENCE} patches"), seq_len.into());
        }
        if self.divisor == 0 {
            return wrong("divisor", "1 or more".to_owned(), 0);
        }
        match (self.tokens / u64::from(seq_len), u64::from(self.divisor)) {
            (0, _) => wrong("tokens", format!("{seq_len} or more, the longest sequence"), self.tokens),
            (fit, divisor) if fit < divisor => Ok(fit),
            (fit, divisor) => Ok(fit - fit % divisor),
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no length, and the errors of [`batch_size`](Self::batch_size) for each.
    pub fn validate(&self) -> Result<()> {
        if self.seq_lens.is_empty() {
            return Err(Error::parameter("naflex", "seq_lens", "one length or more", "none"));
        }
        self.seq_lens.iter().try_for_each(|seq_len| self.batch_size(*seq_len).map(drop))
    }
}

text_value!(TokenBudget);

/// Reads the written form.
impl FromStr for TokenBudget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let expected = "lengths and tokens such as 128,256,784/4096, and then ,divisor=N";
            Error::parameter("sequences", "text", expected, format!("{text:?}"))
        };
        let (seq_lens, rest) = text.split_once('/').ok_or_else(wrong)?;
        let (tokens, divisor) = rest.split_once(',').map_or((rest, None), |(tokens, divisor)| (tokens, Some(divisor)));
        let seq_lens = seq_lens.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>().map_err(|_| wrong())?;
        let budget = Self::new(tokens.parse().map_err(|_| wrong())?, seq_lens);
        let budget = match divisor {
            None => budget,
            Some(text) => {
                let divisor = text.strip_prefix("divisor=").and_then(|divisor| divisor.parse().ok());
                budget.divisor(divisor.ok_or_else(wrong)?)
            }
        };
        budget.validate()?;
        Ok(budget)
    }
}

/// The batches of an epoch: their lengths and sizes, the same on all ranks.
///
/// Lengths are drawn from the seed, all equally likely, until each rank has its share of the samples. They are those of
/// every epoch, in another order in each, so all epochs have equally many batches. The last batch takes what is left,
/// and is the only one that may be smaller. It stays the last; timm's comes anywhere. Where samples do not divide
/// evenly, each rank's share is rounded up, as in timm: some samples come twice.
///
/// ```
/// use warpfeed::shapes::{SequencePlan, TokenBudget};
///
/// let plan = SequencePlan::new(42, 1_001, 2, &TokenBudget::new(16_384, [128, 576]))?;
/// let epoch = plan.epoch(3);
/// assert_eq!((epoch.len(), plan.samples_per_rank()), (plan.len(), 501));
/// assert_eq!(epoch.iter().map(|batch| batch.batch_size).sum::<u64>(), 501);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequencePlan {
    seed: u64,
    batches: Vec<SequenceBatch>,
    /// Whether the last batch is smaller than others of its length.
    is_last_short: bool,
    samples_per_rank: u64,
}

impl SequencePlan {
    /// Draws the batches of a data set of `samples` samples that `ranks` ranks share.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no ranks, and the errors of [`TokenBudget::validate`]; [`Error::Limits`] for more than
    /// 268,435,456 batches.
    pub fn new(seed: u64, samples: u64, ranks: u64, budget: &TokenBudget) -> Result<Self> {
        budget.validate()?;
        if ranks == 0 {
            return Err(Error::parameter("naflex", "ranks", "1 or more", 0));
        }
        let kinds = budget.seq_lens.iter().map(|&seq_len| Ok((seq_len, budget.batch_size(seq_len)?)));
        let kinds: Vec<(u32, u64)> = kinds.collect::<Result<_>>()?;
        let samples_per_rank = samples.div_ceil(ranks);
        let least = kinds.iter().map(|kind| kind.1).min().unwrap_or(1);
        if samples_per_rank / least > MAX_BATCHES {
            return Err(Error::Limits {
                what: "the batches of an epoch",
                got: samples_per_rank / least,
                limit: MAX_BATCHES,
                remedy: "allow more tokens in a batch",
            });
        }
        let (mut left, mut is_last_short, mut batches) = (samples_per_rank, false, Vec::new());
        let mut rng = SampleRng::new(seed, 0, Domain::Sequences, LENGTHS);
        while left > 0 {
            let (seq_len, full) = kinds[rng.below(kinds.len() as u64) as usize];
            let batch_size = full.min(left);
            is_last_short = batch_size < full;
            batches.push(SequenceBatch { seq_len, batch_size });
            left -= batch_size;
        }
        Ok(Self { seed, batches, is_last_short, samples_per_rank })
    }

    /// The batches of an epoch, in their order.
    #[must_use]
    pub fn epoch(&self, epoch: u64) -> Vec<SequenceBatch> {
        let mut batches = self.batches.clone();
        let full = batches.len() - usize::from(self.is_last_short);
        SampleRng::new(self.seed, epoch, Domain::Sequences, EPOCHS).shuffle(&mut batches[..full]);
        batches
    }

    /// Number of batches in an epoch, on each rank.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether there are no batches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Number of samples in an epoch on each rank, those that come twice included.
    #[must_use]
    pub fn samples_per_rank(&self) -> u64 {
        self.samples_per_rank
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::naflex::tests::{lines, number};

    #[test]
    fn as_many_samples_as_fit() {
        for (tokens, seq_len, divisor, want) in [
            (16_384, 576, 8, 24),
            (16_384, 784, 8, 16),
            (16_384, 784, 1, 20),
            (4_096, 784, 8, 5),
            (4_096, 4_096, 8, 1),
            (4_096, 512, 8, 8),
        ] {
            let budget = TokenBudget::new(tokens, [seq_len]).divisor(divisor);
            assert_eq!(budget.batch_size(seq_len).unwrap(), want, "{tokens} {seq_len} {divisor}");
        }
        let error = TokenBudget::new(4_096, [64, 4_097]).validate().unwrap_err();
        assert!(error.to_string().contains("tokens must be 4097 or more"), "{error}");
        for budget in [
            TokenBudget::new(4_096, []),
            TokenBudget::new(4_096, [0]),
            TokenBudget::new(4_096, [64]).divisor(0),
            TokenBudget::new(u64::MAX, [u32::MAX]),
        ] {
            assert!(budget.validate().unwrap_err().is_parameter() && SequencePlan::new(1, 9, 1, &budget).is_err());
        }
        let one = TokenBudget::new(64, [64]);
        assert!(SequencePlan::new(1, 9, 0, &one).unwrap_err().is_parameter());
        assert!(matches!(SequencePlan::new(1, u64::MAX, 1, &one), Err(Error::Limits { .. })));
        assert!(SequencePlan::new(1, 0, 3, &one).unwrap().is_empty());
    }

    #[test]
    #[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
    fn shared_batch_sizes() {
        let (mut equal, mut more, mut refused) = (0, 0, 0);
        for line in lines("naflex-batch-sizes.jsonl", "batch_size") {
            let [tokens, seq_len, divisor, theirs] =
                ["tokens", "seq_len", "divisor", "batch_size"].map(|name| u64::from(number(&line[name])));
            if line["rounding"] != "floor" {
                continue;
            }
            let budget = TokenBudget::new(tokens, [seq_len as u32]).divisor(divisor as u32);
            match budget.batch_size(seq_len as u32) {
                Ok(own) if tokens / seq_len < divisor => {
                    assert_eq!((own, theirs), (tokens / seq_len, 1));
                    more += u32::from(own > 1);
                    equal += u32::from(own == 1);
                }
                Ok(own) => {
                    assert_eq!(own, theirs, "{line}");
                    equal += 1;
                }
                Err(_) => {
                    assert!(tokens < seq_len && theirs == 1, "{line}");
                    refused += 1;
                }
            }
        }
        assert_eq!(equal + more + refused, 80);
        assert!(equal > 50 && more > 0 && refused > 0, "{equal} {more} {refused}");
    }

    /// Orders are of another generator, so shapes and numbers are compared.
    #[test]
    #[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
    fn shared_schedules() {
        for line in lines("naflex-schedules.jsonl", "schedule") {
            let [samples, ranks, tokens] =
                ["samples", "world_size", "tokens"].map(|name| u64::from(number(&line[name])));
            let seq_lens: Vec<u32> = line["seq_lens"].as_array().unwrap().iter().map(number).collect();
            let budget = TokenBudget::new(tokens, seq_lens.iter().copied()).divisor(number(&line["divisor"]));
            let plan = SequencePlan::new(42, samples, ranks, &budget).unwrap();
            let epoch = plan.epoch(u64::from(number(&line["epoch"])));
            let of_rank: u64 = epoch.iter().map(|batch| batch.batch_size).sum();
            assert_eq!(of_rank * ranks, line["delivered"].as_u64().unwrap());
            let shapes = line["shapes_of_rank_0"].as_array().unwrap();
            for shape in shapes {
                let (seq_len, theirs) = (number(&shape[0]), u64::from(number(&shape[1])));
                // The rest, and timm's batches of one sample.
                assert!(theirs <= budget.batch_size(seq_len).unwrap(), "{shape}");
            }
            assert!(epoch.iter().all(|batch| seq_lens.contains(&batch.seq_len)));
        }
    }

    #[test]
    fn each_rank_has_its_share_in_full_batches_and_one_rest() {
        let seq_lens = [128, 256, 576, 784, 1_024];
        let budget = TokenBudget::new(16_384, seq_lens);
        for (samples, ranks) in [(1_000, 1), (1_001, 2), (10_007, 8), (50, 4), (5, 8), (1_000_000, 64)] {
            let plan = SequencePlan::new(42, samples, ranks, &budget).unwrap();
            assert_eq!(plan.samples_per_rank(), samples.div_ceil(ranks));
            let sorted = |mut batches: Vec<SequenceBatch>| {
                batches.sort_unstable_by_key(|batch| (batch.seq_len, batch.batch_size));
                batches
            };
            let first = plan.epoch(0);
            assert_eq!((first.len(), first.clone()), (plan.len(), plan.epoch(0)));
            for epoch in 0..5 {
                let batches = plan.epoch(epoch);
                assert_eq!(batches.iter().map(|batch| batch.batch_size).sum::<u64>(), samples.div_ceil(ranks));
                let full = |batch: &SequenceBatch| batch.batch_size == budget.batch_size(batch.seq_len).unwrap();
                assert!(batches[..batches.len() - 1].iter().all(full));
                assert_eq!(sorted(batches.clone()), sorted(first.clone()));
                assert!(epoch == 0 || batches.len() < 5 || batches != first);
            }
        }
        // All lengths are equally likely.
        let drawn: Vec<SequenceBatch> =
            (0..20).flat_map(|seed| SequencePlan::new(seed, 1_000_000, 1, &budget).unwrap().epoch(0)).collect();
        for seq_len in seq_lens {
            let share = drawn.iter().filter(|batch| batch.seq_len == seq_len).count() as f64 / drawn.len() as f64;
            assert!((share - 0.2).abs() < 0.003, "{seq_len}: {share}");
        }
        let of = |seed| SequencePlan::new(seed, 10_000, 1, &budget).unwrap().epoch(0);
        assert!(of(7) == of(7) && of(7) != of(8));
    }

    /// A promise: a seed means the same in every version. Never change these.
    #[test]
    fn plans_do_not_change() {
        let plan = SequencePlan::new(42, 150, 1, &TokenBudget::new(4_096, [128, 256, 576])).unwrap();
        let lengths = |epoch| plan.epoch(epoch).iter().map(|batch| batch.seq_len).collect::<Vec<_>>();
        assert_eq!([lengths(0), lengths(1)], [[576, 256, 128, 128, 128, 128], [128, 128, 256, 128, 576, 128]]);
        let rest = SequenceBatch { seq_len: 128, batch_size: 31 };
        assert_eq!([0, 1].map(|epoch| plan.epoch(epoch)[5]), [rest; 2]);
    }
}
