//! Comparing sets of rounds: whether two cases differ, by how much, and how many rounds can tell.
//!
//! # The test
//!
//! Two cases are compared by the Mann-Whitney test (Wilcoxon's rank sum), with its exact distribution. It counts the
//! pairs of rounds, one of each case, whose order speaks against the difference. Times of rounds are not normally
//! distributed: disturbances make rounds slower and never faster, and now and then one stalls. A stalled round costs
//! the test as many pairs as the other case has rounds, however long it stalled.
//!
//! Cases are measured in turn, once in each round, so a paired test suggests itself. An exact one has only 2^n
//! arrangements of n rounds, the rank sum has (2n)! / n!^2. For the level of 15 comparisons in one report, pairs need
//! 13 rounds without a single stall, the rank sum needs 7, and with 16 it stands two stalled rounds.
//!
//! What rounds share does not harm the rank sum. If a machine's speed changes from round to round, the rounds of a case
//! are no longer alike. But for independent measurements whose distribution is the same for both cases in each round,
//! and different from round to round, complete separation is at most as probable as for rounds that are all alike. (The
//! probability is the integral of the product of 1 - F over the product of F. With u for the geometric mean of F, the
//! geometric mean of 1 - F is at most 1 - u. So the integral is at most that for equal F.) Simulations show the same
//! for all counts that the test accepts.
//!
//! It costs power, though. So, if a report has at least three further cases, both cases are first divided by the speed
//! of the round: the median of the further cases' figures, each relative to its own median. It belongs to the round,
//! not to one of the two, so the argument above holds for the divided figures.
//!
//! # The level
//!
//! A report contains a false verdict with a probability of at most [`LEVEL`]. Each of its comparisons gets an equal
//! share (Bonferroni). If the fastest case is chosen by the same measurement, all pairs of cases count as comparisons.
//! The interval beside a verdict is that of Hodges and Lehmann at the same level: it excludes "no change" if, and only
//! if, the test finds a difference. So all intervals of a report hold together.
//!
//! Differences of less than [`SMALLEST`] are never told: two builds of the same code differ by as much.

use super::spread::Spread;
use serde::Serialize;

/// Probability that a report contains a false verdict, at most.
pub const LEVEL: f64 = 0.01;

/// Smallest difference that is told, as a share.
pub const SMALLEST: f64 = 0.02;

/// A case counts as good as the fastest only if it is surely not slower than this share of it.
const MARGIN: f64 = 0.10;

/// Fewest rounds that are measured by default. With 16 rounds in which figures vary by 2 %, a difference of 5 % is
/// found in nine of ten reports.
const DEFAULT_ROUNDS: usize = 16;

/// Most rounds of a case that are compared one by one. Of more rounds, neighbors are averaged.
const MOST_ROUNDS: usize = 50;

/// Least number of further cases that tell the speed of a round.
const FURTHER_CASES: usize = 3;

/// Ratio of a case's figures to another's, with its interval at the level of the report.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Ratio {
    /// The estimate: the median ratio of all pairs of rounds.
    pub estimate: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

/// Whether a case's figures differ from another's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Verdict {
    /// They are smaller.
    Smaller(Ratio),
    /// They are larger.
    Larger(Ratio),
    /// The rounds do not show a difference.
    NotDistinguishable(Ratio),
    /// No figures of so few rounds could show a difference.
    CannotTell {
        /// Number of rounds that could.
        rounds: usize,
    },
}

impl Verdict {
    /// Compares the figures of `b`'s rounds with `a`'s, at a level from [`level`]. All figures are above zero.
    ///
    /// ```
    /// use warpfeed_bench::verdict::{Verdict, level};
    ///
    /// let rounds = |by: f64| (0..8).map(|i| by * (100.0 + f64::from(i))).collect::<Vec<f64>>();
    /// let Verdict::Larger(ratio) = Verdict::of(&rounds(1.0), &rounds(1.5), level(15)) else { panic!() };
    /// assert!(ratio.low > 1.3 && ratio.high < 1.7);
    /// assert_eq!(Verdict::of(&[100.0], &[300.0], level(15)), Verdict::CannotTell { rounds: 7 });
    /// ```
    #[must_use]
    pub fn of(a: &[f64], b: &[f64], level: f64) -> Self {
        let [a, b] = [a, b].map(thinned);
        let Some(misplaced) = misplaced(a.len(), b.len(), level) else {
            return Self::CannotTell { rounds: fewest_rounds(level) };
        };
        let ratio_of = |a: f64, b: f64| b.max(f64::MIN_POSITIVE) / a.max(f64::MIN_POSITIVE);
        let mut ratios: Vec<f64> = a.iter().flat_map(|&a| b.iter().map(move |&b| ratio_of(a, b))).collect();
        ratios.sort_by(f64::total_cmp);
        let (low, high) = (ratios[misplaced], ratios[ratios.len() - 1 - misplaced]);
        let estimate = f64::midpoint(ratios[(ratios.len() - 1) / 2], ratios[ratios.len() / 2]);
        let ratio = Ratio { estimate, low, high };
        if low > 1.0 && estimate >= 1.0 + SMALLEST {
            Self::Larger(ratio)
        } else if high < 1.0 && estimate <= 1.0 - SMALLEST {
            Self::Smaller(ratio)
        } else {
            Self::NotDistinguishable(ratio)
        }
    }

    /// Whether a difference was found.
    #[must_use]
    pub fn differs(&self) -> bool {
        matches!(self, Self::Smaller(_) | Self::Larger(_))
    }

    /// The verdict in words. `less` and `more` say what smaller and larger figures mean: slower and faster, or shorter
    /// and longer.
    #[must_use]
    pub fn words(&self, less: &str, more: &str) -> String {
        let side = |ratio: f64| in_percent(ratio, less, more);
        match *self {
            Self::Smaller(Ratio { estimate, low, high }) => {
                format!("{} ({} to {} %)", side(estimate), percent(high), percent(low))
            }
            Self::Larger(Ratio { estimate, low, high }) => {
                format!("{} ({} to {} %)", side(estimate), percent(low), percent(high))
            }
            Self::NotDistinguishable(Ratio { low, high, .. }) => {
                format!("not distinguishable ({} to {})", side(low), side(high))
            }
            Self::CannotTell { rounds } => format!("cannot tell ({rounds} rounds or more could)"),
        }
    }
}

/// Percent by which figures of this ratio differ.
fn percent(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0).abs();
    if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

/// A ratio as a change in percent.
pub(super) fn in_percent(ratio: f64, less: &str, more: &str) -> String {
    format!("{} % {}", percent(ratio), if ratio < 1.0 { less } else { more })
}

/// Level of each of a report's comparisons.
#[must_use]
pub fn level(comparisons: usize) -> f64 {
    LEVEL / comparisons.max(1) as f64
}

/// Number of pairs among so many cases.
#[must_use]
pub fn pairs(cases: usize) -> usize {
    cases * cases.saturating_sub(1) / 2
}

/// Number of rounds to measure for so many comparisons in a report: with it, two stalled rounds do not hide a
/// difference.
///
/// ```
/// use warpfeed_bench::verdict::default_rounds;
/// assert_eq!((default_rounds(1), default_rounds(15), default_rounds(2_556)), (16, 16, 20));
/// ```
#[must_use]
pub fn default_rounds(comparisons: usize) -> u32 {
    let enough = |&rounds: &usize| misplaced(rounds, rounds, level(comparisons)).is_some_and(|most| most >= 2 * rounds);
    (DEFAULT_ROUNDS..MOST_ROUNDS).find(enough).unwrap_or(MOST_ROUNDS) as u32
}

/// Fewest rounds with which the test can find a difference at this level.
fn fewest_rounds(level: f64) -> usize {
    (1..MOST_ROUNDS).find(|&rounds| misplaced(rounds, rounds, level).is_some()).unwrap_or(MOST_ROUNDS)
}

/// Largest number of misplaced pairs with which `n` and `m` rounds differ at this level (two-sided); `None` if not even
/// complete separation is enough.
fn misplaced(n: usize, m: usize, level: f64) -> Option<usize> {
    let total = (1..=n).fold(1.0, |total, i| total * (m + i) as f64 / i as f64);
    // Number of arrangements by misplaced pairs: the coefficients of the product over i of
    // (1 - q^(m + i)) / (1 - q^i). They are whole numbers and exact as far as they matter.
    let mut counts = vec![0.0; n * m / 2 + 1];
    counts[0] = 1.0;
    for i in 1..=n {
        for u in (m + i..counts.len()).rev() {
            counts[u] -= counts[u - m - i];
        }
        for u in i..counts.len() {
            counts[u] += counts[u - i];
        }
    }
    let below = counts.iter().scan(0.0, |sum, count| {
        *sum += count;
        Some(*sum)
    });
    below.take_while(|sum| 2.0 * sum <= level * total).count().checked_sub(1)
}

/// At most [`MOST_ROUNDS`] figures: the means of neighbors.
fn thinned(figures: &[f64]) -> Vec<f64> {
    let of_one = figures.len().div_ceil(MOST_ROUNDS).max(1);
    figures.chunks(of_one).map(|chunk| chunk.iter().sum::<f64>() / chunk.len() as f64).collect()
}

fn median(figures: &[f64]) -> f64 {
    Spread::of(figures).map_or(0.0, |spread| spread.median)
}

/// Compares case `b` with case `a` of cases that were measured in turn: entry i of each is of round i.
pub(super) fn in_turn(cases: &[&[f64]], a: usize, b: usize, level: f64) -> Verdict {
    let rounds = cases[a].len();
    let further: Vec<(&[f64], f64)> = (cases.iter().enumerate())
        .filter(|(case, rates)| ![a, b].contains(case) && rates.len() == rounds)
        .map(|(_, rates)| (*rates, median(rates)))
        .filter(|(_, median)| *median > 0.0)
        .collect();
    if further.len() < FURTHER_CASES || cases[b].len() != rounds {
        return Verdict::of(cases[a], cases[b], level);
    }
    let speeds: Vec<f64> = (0..rounds)
        .map(|round| median(&further.iter().map(|(rates, median)| rates[round] / median).collect::<Vec<_>>()))
        .collect();
    let divided = |case: usize| {
        let by_speed = cases[case].iter().zip(&speeds).map(|(figure, speed)| figure / speed.max(f64::MIN_POSITIVE));
        by_speed.collect::<Vec<f64>>()
    };
    Verdict::of(&divided(a), &divided(b), level)
}

/// Whether figures are above a limit: `None` if the rounds cannot tell. This is the sign test, at a level from
/// [`level`].
pub(super) fn above(figures: &[f64], limit: f64, level: f64) -> Option<bool> {
    let above = figures.iter().filter(|&&figure| figure > limit).count();
    let fewer = above.min(figures.len() - above);
    // Probability that so few of the rounds, or fewer, are on one side of the median.
    let mut term = 2.0 * 0.5_f64.powi(figures.len().min(1_000) as i32);
    let mut probability = term;
    for count in 0..fewer {
        term *= (figures.len() - count) as f64 / (count + 1) as f64;
        probability += term;
    }
    (probability <= level).then_some(above > fewer)
}

/// Choice of the smallest case that is as good as the fastest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    /// The case with the highest median.
    pub(super) fastest: usize,
    /// The smallest case that is not distinguishable from the fastest, and surely not slower than [`MARGIN`] allows;
    /// `None` if the rounds cannot tell.
    pub(super) smallest: Option<usize>,
    /// Each case against the fastest; `None` for the fastest.
    pub(super) verdicts: Vec<Option<Verdict>>,
}

impl Choice {
    /// Chooses among rates of cases that were measured in turn, the smallest case first. `None` without cases.
    pub(super) fn of(rates: &[&[f64]], level: f64) -> Option<Self> {
        let medians: Vec<f64> = rates.iter().map(|rates| median(rates)).collect();
        let fastest = (0..rates.len()).rev().max_by(|&a, &b| medians[a].total_cmp(&medians[b]))?;
        let of = |case: usize| (case != fastest).then(|| in_turn(rates, fastest, case, level));
        let verdicts: Vec<Option<Verdict>> = (0..rates.len()).map(of).collect();
        let is_as_good = |&case: &usize| match verdicts[case] {
            None => true,
            Some(Verdict::NotDistinguishable(ratio)) => {
                ratio.low >= 1.0 - MARGIN && medians[case] >= (1.0 - MARGIN) * medians[fastest]
            }
            _ => false,
        };
        let told = |verdict: &Verdict| !matches!(verdict, Verdict::CannotTell { .. });
        let smallest = if verdicts.iter().flatten().all(told) { (0..rates.len()).find(is_as_good) } else { None };
        Some(Self { fastest, smallest, verdicts })
    }

    /// Number of rounds that could tell, if these cannot.
    pub(super) fn rounds_needed(&self) -> Option<usize> {
        self.verdicts.iter().flatten().find_map(|verdict| match verdict {
            Verdict::CannotTell { rounds } => Some(*rounds),
            _ => None,
        })
    }

    /// Cases smaller than the chosen one that may be as good: the rounds differ too much to tell.
    pub(super) fn unclear(&self) -> impl Iterator<Item = usize> {
        let smaller = self.smallest.unwrap_or(0);
        let unclear = |case: &usize| matches!(self.verdicts[*case], Some(Verdict::NotDistinguishable(_)));
        (0..smaller).filter(unclear)
    }
}

/// Note on how verdicts come about.
pub(super) fn note(rounds: u32) -> String {
    match rounds {
        0 | 1 => "Everything was measured once, which tells no difference (--rounds).".to_owned(),
        rounds => format!(
            "Everything was measured {rounds} times, in turn: medians, with the interval in which the rounds lie. Differences are \
             told if an exact rank test finds them, and if they are {:.0} % or more; all verdicts of the report, with the \
             intervals beside them, hold together in {:.0} of 100 reports.",
            100.0 * SMALLEST,
            100.0 * (1.0 - LEVEL)
        ),
    }
}

/// Note on the choice of the smallest case.
pub(super) fn choice_note() -> String {
    format!(
        "As good as the fastest: not distinguishable from it, and surely not more than {:.0} % slower.",
        100.0 * MARGIN
    )
}

/// Rounds of made-up cases.
#[cfg(test)]
pub(super) mod simulated {
    use warpfeed::internal::SampleRng;

    /// Noise of rounds, as shares of a figure.
    #[derive(Clone, Copy)]
    pub(crate) struct Noise {
        /// Standard deviation of a figure's own noise.
        pub(crate) own: f64,
        /// Standard deviation of the noise that all cases of a round share.
        pub(crate) shared: f64,
        /// Share of the figures that stall: they take 1.1 to 2.5 times as long.
        pub(crate) stalls: f64,
    }

    /// A machine that does nothing else. Differences of 5 % must be found with it.
    pub(crate) const QUIET: Noise = Noise { own: 0.02, shared: 0.02, stalls: 0.01 };
    /// A machine with other work beside.
    pub(crate) const BUSY: Noise = Noise { own: 0.10, shared: 0.15, stalls: 0.05 };

    /// Rates of cases of these median rates, in turn.
    pub(crate) fn rates(report: u64, medians: &[f64], rounds: u32, noise: Noise) -> Vec<Vec<f64>> {
        let mut rng = SampleRng::for_sample(7, 0, report);
        let mut cases = vec![Vec::new(); medians.len()];
        for _ in 0..rounds {
            let shared = noise.shared * rng.normal();
            for (case, median) in cases.iter_mut().zip(medians) {
                let own = noise.own * rng.normal();
                let stall = if rng.chance(noise.stalls) { rng.uniform(1.1, 2.5) } else { 1.0 };
                case.push(median * (shared + own).exp() / stall);
            }
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::simulated::{BUSY, Noise, QUIET, rates};
    use super::*;

    #[test]
    fn counts_are_those_of_the_rank_sum() {
        // By hand: 1, 1, 2, 3, 5, 7 arrangements have 0 to 5 misplaced pairs.
        for (sum, misplaced_pairs) in [(1.0, 0), (2.0, 1), (4.0, 2), (7.0, 3), (12.0, 4), (19.0, 5)] {
            let (total, just) = (12_870.0, 2.0 * sum / 12_870.0);
            assert_eq!(misplaced(8, 8, just + 1e-9), Some(misplaced_pairs), "{sum} of {total}");
            assert_ne!(misplaced(8, 8, just - 1e-9), Some(misplaced_pairs), "{sum} of {total}");
        }
        // Two rounds of each are separated by chance in one of three comparisons, three in one of ten.
        assert_eq!((misplaced(2, 2, 1.0 / 3.0 + 1e-9), misplaced(2, 2, 0.33)), (Some(0), None));
        assert_eq!((misplaced(3, 3, 0.1 + 1e-9), misplaced(3, 3, 0.09)), (Some(0), None));
        // Tables of the test (two-sided, 0.05): 23 of 10 and 10, 17 of 9 and 9, 24 of 7 and 15 rounds.
        assert_eq!([(10, 10), (9, 9), (7, 15)].map(|(n, m)| misplaced(n, m, 0.05)), [Some(23), Some(17), Some(24)]);
        assert_eq!(misplaced(0, 5, 0.05), None);
        assert_eq!((fewest_rounds(level(1)), fewest_rounds(level(15))), (5, 7));
    }

    #[test]
    fn a_limit_is_told_by_the_signs_of_the_rounds() {
        // 2 / 2^8 is less than 1 %, and 2 (1 + 16 + 120) / 2^16 as well.
        let figures = |above: usize, below: usize| [vec![2.0; above], vec![1.0; below]].concat();
        for (above_it, below, want) in
            [(8, 0, Some(true)), (0, 8, Some(false)), (7, 0, None), (2, 14, Some(false)), (13, 3, None), (8, 8, None)]
        {
            assert_eq!(above(&figures(above_it, below), 1.5, LEVEL), want, "{above_it} above, {below} below");
        }
        assert_eq!(above(&[], 1.5, LEVEL), None);
    }

    #[test]
    fn few_rounds_cannot_tell_and_many_are_averaged() {
        let rounds = |n: usize, by: f64| (0..n).map(|i| by * (1.0 + 1e-3 * i as f64)).collect::<Vec<f64>>();
        assert_eq!(Verdict::of(&rounds(4, 1.0), &rounds(4, 9.0), LEVEL), Verdict::CannotTell { rounds: 5 });
        assert!(matches!(Verdict::of(&rounds(5, 1.0), &rounds(5, 9.0), LEVEL), Verdict::Larger(_)));
        assert!(matches!(Verdict::of(&rounds(5_000, 9.0), &rounds(5_000, 1.0), LEVEL), Verdict::Smaller(_)));
        assert!(matches!(Verdict::of(&rounds(20, 1.0), &rounds(20, 1.01), LEVEL), Verdict::NotDistinguishable(_)));
        let same = Verdict::of(&[1.0; 20], &[1.0; 20], LEVEL);
        assert_eq!(same.words("slower", "faster"), "not distinguishable (0.0 % faster to 0.0 % faster)");
        assert!(Verdict::of(&[0.0; 20], &rounds(20, 1.0), LEVEL).differs());
        let slower = Verdict::of(&rounds(8, 1.0), &rounds(8, 0.7), LEVEL).words("slower", "faster");
        assert!(slower.starts_with("30 % slower (30 to 30 %)"), "{slower}");
    }

    #[test]
    fn the_smallest_that_is_surely_as_good_is_chosen() {
        let choice = |medians: &[f64], rounds, noise| {
            let rates = rates(1, medians, rounds, noise);
            Choice::of(&rates.iter().map(Vec::as_slice).collect::<Vec<_>>(), level(pairs(medians.len()))).unwrap()
        };
        let found = choice(&[60.0, 100.0, 100.0, 100.0, 100.0], 16, QUIET);
        assert_eq!(found.smallest, Some(1));
        assert!(matches!(found.verdicts[0], Some(Verdict::Smaller(_))), "{found:?}");
        let few = choice(&[60.0, 100.0], 1, QUIET);
        assert_eq!((few.fastest, few.smallest, few.rounds_needed()), (1, None, Some(5)));
        let wild = Noise { own: 0.5, ..BUSY };
        let unclear = choice(&[100.0; 4], 16, wild);
        assert_eq!(unclear.smallest, Some(unclear.fastest), "nothing is as good for sure: {unclear:?}");
        assert_eq!(unclear.unclear().count(), unclear.fastest);
        assert_eq!(choice(&[100.0], 1, QUIET).smallest, Some(0), "nothing to compare it with");
        assert!(Choice::of(&[], LEVEL).is_none());
    }

    /// Speeds that change from round to round make false verdicts no more frequent.
    #[test]
    fn complete_separation_is_no_more_frequent_where_rounds_differ() {
        let separated = |shared| {
            let noise = Noise { own: 0.1, shared, stalls: 0.0 };
            let separated = |report: &u64| {
                let cases = rates(*report, &[1.0, 1.0], 3, noise);
                Verdict::of(&cases[0], &cases[1], 0.1 + 1e-9).differs()
            };
            (0..20_000).filter(separated).count()
        };
        let [alike, different] = [separated(0.0), separated(0.2)];
        assert!((1_600..2_100).contains(&alike) && different < alike, "{alike} and {different} of 20,000");
    }
}
