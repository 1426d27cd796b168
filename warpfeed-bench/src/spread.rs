//! Figures measured in several rounds: the median, the spread, and the order of the rounds.

use serde::Serialize;
use serde_json::{Value, json};
use warpfeed::ShardedOrder;

/// The median of a figure's rounds, and an interval. With at least six rounds, the interval contains the true median
/// with a probability of 95 %. With fewer it goes from the smallest to the largest figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// Number of rounds.
    pub rounds: usize,
}

impl Spread {
    /// The spread of the figures of all rounds; `None` if there are none.
    ///
    /// ```
    /// use warpfeed_bench::spread::Spread;
    /// let spread = Spread::of(&[104.0, 100.0, 101.0]).unwrap();
    /// assert_eq!((spread.low, spread.median, spread.high, spread.rounds), (100.0, 101.0, 104.0, 3));
    /// assert!(Spread::of(&[]).is_none());
    /// ```
    #[must_use]
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&first, &last) = (sorted.first()?, sorted.last()?);
        let (low, high) = match left_out(sorted.len()) {
            0 => (first, last),
            left_out => (sorted[left_out], sorted[sorted.len() - 1 - left_out]),
        };
        let median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { median, low, high, rounds: sorted.len() })
    }

    /// The median of the figures of all rounds; `None` if there are none.
    pub(super) fn median_of(rounds: &[f64]) -> Option<f64> {
        Self::of(rounds).map(|spread| spread.median)
    }

    /// Half the length of the interval, as a share of the median.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.median > 0.0 { (self.high - self.low) / (2.0 * self.median) } else { 0.0 }
    }

    /// Half the length of the interval in percent of the median; `None` of a single round.
    pub(super) fn share_percent(&self) -> Option<f64> {
        (self.rounds > 1).then(|| 100.0 * self.share())
    }

    /// The median and the interval as text: `444 images/s (440 to 449)`.
    pub(super) fn words(&self, unit: &str, decimals: usize) -> String {
        let Self { median, low, high, .. } = self;
        format!("{median:.decimals$} {unit} ({low:.decimals$} to {high:.decimals$})")
    }
}

/// Number of smallest, and of largest, figures that a 95 % interval for the median leaves out. The number of figures
/// below the median is binomial with p = 1/2.
fn left_out(rounds: usize) -> usize {
    let mut term = 0.5_f64.powi(rounds.min(1_000) as i32);
    let (mut below, mut count) = (term, 0);
    // Probability that at most `count` figures are below the median.
    while below <= 0.025 && count < rounds {
        count += 1;
        term *= (rounds - count + 1) as f64 / count as f64;
        below += term;
    }
    count.saturating_sub(1)
}

/// The spread of a figure for JSON, with the figure of each round, from which `compare` makes its verdicts.
pub(super) fn with_rounds(rounds: &[f64]) -> Value {
    Spread::of(rounds).map_or(Value::Null, |spread| {
        let mut value = json!(spread);
        value["each"] = json!(rounds);
        value
    })
}

/// The order of measurements: all cases once in every round, shuffled by the seed.
pub(super) fn turns(cases: usize, rounds: u32, seed: u64) -> Vec<(u32, usize)> {
    let sampler = ShardedOrder::shuffled(cases as u64, seed);
    let round = |round: u32| {
        let cases: Vec<u64> = sampler.epoch(u64::from(round)).iter().collect();
        cases.into_iter().map(move |case| (round, case as usize))
    };
    (0..rounds.max(1)).flat_map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_binomial_distribution() {
        // Order statistics for 95 %, as in tables of the sign test.
        for (rounds, want) in [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (15, 3), (20, 5), (30, 9)] {
            assert_eq!(left_out(rounds), want, "{rounds} rounds");
        }
        let figures: Vec<f64> = (1..=9).rev().map(f64::from).collect();
        let spread = Spread::of(&figures).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 5.0, 8.0));
        assert_eq!(Spread::of(&[1.0, 2.0]).unwrap().median, 1.5);
        assert!((spread.share() - 0.6).abs() < 1e-12);
        assert_eq!(with_rounds(&[2.0, 1.0])["each"], json!([2.0, 1.0]));
    }

    #[test]
    fn every_round_has_every_case_in_an_order_of_its_own() {
        let all = turns(20, 3, 7);
        assert_eq!(all, turns(20, 3, 7));
        let round = |round| all.iter().filter(|turn| turn.0 == round).map(|turn| turn.1).collect::<Vec<_>>();
        for number in 0..3 {
            let mut cases = round(number);
            assert_ne!(cases, (0..20).collect::<Vec<_>>());
            cases.sort_unstable();
            assert_eq!(cases, (0..20).collect::<Vec<_>>());
        }
        assert_ne!(round(0), round(1));
        assert_eq!(turns(2, 0, 7).len(), 2, "one round at least");
    }
}
