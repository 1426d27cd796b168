//! The choice of the smallest case that is not distinguishable from the fastest.

use super::{Verdict, in_turn, median};

/// A case ties with the fastest if its interval lies above the fastest's speed less this share.
const MARGIN: f64 = 0.10;

/// Choice of the smallest case that is as good as the fastest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    /// The case with the highest median.
    pub(crate) fastest: usize,
    /// The smallest case that is not distinguishable from the fastest, and surely not slower than [`MARGIN`] allows;
    /// `None` if the rounds cannot tell.
    pub(crate) smallest: Option<usize>,
    /// Each case against the fastest; `None` for the fastest.
    pub(crate) verdicts: Vec<Option<Verdict>>,
}

impl Choice {
    /// Chooses among rates of cases that were measured in turn, the smallest case first. `None` without cases.
    pub(crate) fn of(rates: &[&[f64]], level: f64) -> Option<Self> {
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
        let told = |verdict: &Verdict| verdict.rounds_needed().is_none();
        let smallest = if verdicts.iter().flatten().all(told) { (0..rates.len()).find(is_as_good) } else { None };
        Some(Self { fastest, smallest, verdicts })
    }

    /// Number of rounds that could tell, if these cannot.
    pub(crate) fn rounds_needed(&self) -> Option<usize> {
        self.verdicts.iter().flatten().find_map(Verdict::rounds_needed)
    }

    /// Cases smaller than the chosen one that may be as good: the rounds differ too much to tell.
    pub(crate) fn unclear(&self) -> impl Iterator<Item = usize> {
        let smaller = self.smallest.unwrap_or(0);
        let unclear = |case: &usize| matches!(self.verdicts[*case], Some(Verdict::NotDistinguishable(_)));
        (0..smaller).filter(unclear)
    }
}

/// Note on the choice of the smallest case.
pub(crate) fn choice_note() -> String {
    format!(
        "A case is as good as the fastest if it is not distinguishable from it, and surely not more than {:.0} % slower.",
        100.0 * MARGIN
    )
}
