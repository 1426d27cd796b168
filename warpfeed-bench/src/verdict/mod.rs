//! Whether two cases differ, by how much, and how many rounds can tell.
//!
//! The exact Mann-Whitney test (Wilcoxon's rank sum) compares two cases, without assuming a distribution of times. A
//! report contains a false verdict with a probability of at most [`LEVEL`]: each comparison gets an equal share
//! (Bonferroni). If the fastest case is chosen by the same rounds, all pairs count. Intervals are those of Hodges and
//! Lehmann at the same level. Two builds of one source differ by [`SMALLEST`], so smaller differences are not reported.

mod choice;
#[cfg(test)]
pub(super) mod simulated;
#[cfg(test)]
mod tests;

use super::spread::Spread;
pub(crate) use choice::{Choice, choice_note};
use serde::Serialize;

/// Probability that a report contains a false verdict, at most.
pub const LEVEL: f64 = 0.01;

/// Smallest difference that is told, as a share.
pub const SMALLEST: f64 = 0.02;

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
        self.difference().is_some()
    }

    /// The ratio, if a difference was found.
    pub(super) fn difference(&self) -> Option<Ratio> {
        match *self {
            Self::Smaller(ratio) | Self::Larger(ratio) => Some(ratio),
            _ => None,
        }
    }

    /// Number of rounds that could tell, if these cannot.
    pub(super) fn rounds_needed(&self) -> Option<usize> {
        if let Self::CannotTell { rounds } = *self { Some(rounds) } else { None }
    }

    /// The verdict in words. `less` and `more` say what smaller and larger figures mean: slower and faster, or shorter
    /// and longer.
    #[must_use]
    pub fn words(&self, less: &str, more: &str) -> String {
        let (change, interval) = self.change_and_interval(less, more);
        format!("{change} ({interval})")
    }

    /// The change, and its interval or the number of rounds that could tell.
    pub(crate) fn change_and_interval(&self, less: &str, more: &str) -> (String, String) {
        let side = |ratio: f64| in_percent(ratio, less, more);
        match *self {
            Self::Smaller(Ratio { estimate, low, high }) => {
                (side(estimate), format!("{} to {} %", percent(high), percent(low)))
            }
            Self::Larger(Ratio { estimate, low, high }) => {
                (side(estimate), format!("{} to {} %", percent(low), percent(high)))
            }
            Self::NotDistinguishable(Ratio { low, high, .. }) => {
                ("not distinguishable".to_owned(), format!("{} to {}", side(low), side(high)))
            }
            Self::CannotTell { rounds } => ("cannot tell".to_owned(), format!("{rounds} rounds or more could")),
        }
    }
}

/// Percent by which figures of this ratio differ.
fn percent(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0).abs();
    if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

/// A ratio as a change in percent.
pub(crate) fn in_percent(ratio: f64, less: &str, more: &str) -> String {
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
///
/// With three further cases or more, both cases are first divided by the speed of the round: the median of the further
/// cases' figures, each relative to its own median. Speeds that change from round to round do not make false verdicts
/// more frequent (a test simulates this), but they cost power. A paired test would have only 2^n arrangements of n
/// rounds, against (2n)! / n!^2 of the rank sum.
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

/// A number of rounds, and the verb after it.
pub(super) fn rounds_were(rounds: usize) -> String {
    if rounds == 1 { "1 round was".to_owned() } else { format!("{rounds} rounds were") }
}

/// Note on how verdicts come about.
pub(super) fn note(rounds: u32) -> String {
    match rounds {
        0 | 1 => "Everything was measured once, which shows no difference (--rounds).".to_owned(),
        rounds => format!(
            "Everything was measured {rounds} times, in turn. Figures are medians, with the interval in which the rounds lie. \
             A difference is reported if an exact rank test finds it and it is {:.0} % or more. All verdicts of a report, with \
             their intervals, hold together in {:.0} of 100 reports.",
            100.0 * SMALLEST,
            100.0 * (1.0 - LEVEL)
        ),
    }
}
