//! The ranking of configurations by their rounds, and the answer.

use super::Configuration;
use crate::published::TIMES_THE_BASELINE;
use crate::report::comparison::{Comparison, SPEED};
use crate::spread::Spread;
use crate::verdict::{Choice, Verdict, in_turn, level, pairs, rounds_were};

/// Rates of all configurations by round, and the choice among them.
pub(crate) struct Ranking {
    /// The configurations, the smallest first, and the baseline last, if there is one.
    cases: Vec<(Configuration, Vec<f64>)>,
    choice: Choice,
    level: f64,
}

impl Ranking {
    /// Ranks configurations by their images per second in each round. `None` if there is none but the baseline.
    pub(crate) fn of(mut cases: Vec<(Configuration, Vec<f64>)>, shares: usize) -> Option<Self> {
        cases.sort_by_key(|(configuration, _)| {
            let Configuration { threads, prefetch, persistent, .. } = *configuration;
            (configuration.is_baseline(), threads, prefetch, !persistent, configuration.pageable())
        });
        // The fastest is chosen by the same rounds, so every pair counts. One more is whether the cores are enough.
        let level = level(shares * (pairs(cases.len()) + 1));
        let own = cases.iter().filter(|(configuration, _)| !configuration.is_baseline());
        let choice = Choice::of(&own.map(|(_, rates)| rates.as_slice()).collect::<Vec<_>>(), level)?;
        Some(Self { cases, choice, level })
    }

    pub(super) fn level(&self) -> f64 {
        self.level
    }

    pub(super) fn fastest(&self) -> Configuration {
        self.cases[self.choice.fastest].0
    }

    /// The smallest configuration that is as good as the fastest; `None` if the rounds cannot tell.
    pub(crate) fn smallest(&self) -> Option<Configuration> {
        self.choice.smallest.map(|case| self.cases[case].0)
    }

    /// The verdict on a configuration against the fastest; `None` for the fastest and the baseline.
    pub(super) fn verdict(&self, configuration: Configuration) -> Option<Verdict> {
        let case = self.cases.iter().position(|case| case.0 == configuration)?;
        self.choice.verdicts.get(case).copied().flatten()
    }

    fn rates(&self) -> Vec<&[f64]> {
        self.cases.iter().map(|(_, rates)| rates.as_slice()).collect()
    }

    fn rate(&self, case: usize) -> String {
        Spread::of(&self.cases[case].1).map(|rate| rate.words("images/s", 0)).unwrap_or_default()
    }

    /// The recommendation in sentences, or the reason why there is none, and the comparisons below. `of_step`: images
    /// per second that the step takes, if it takes time.
    pub(crate) fn answer(&self, of_step: Option<f64>) -> (Vec<String>, Vec<Comparison>) {
        let fastest = self.choice.fastest;
        let name = |case: usize| self.cases[case].0.name();
        let measured = |case: usize| format!("{}, {}", name(case), self.rate(case));
        let options = |case: usize| self.cases[case].0.options();
        let (mut answer, mut rows) = (Vec::new(), Vec::new());
        match self.choice.smallest {
            Some(smallest) if self.choice.verdicts.len() == 1 => {
                answer.push(format!("The only configuration: {}: {}", measured(smallest), options(smallest)));
            }
            Some(smallest) if smallest == fastest => {
                answer.push(format!("Recommended: {}, the fastest measured: {}", measured(fastest), options(fastest)));
            }
            Some(smallest) => {
                answer.push(format!("Recommended: {}: {}", measured(smallest), options(smallest)));
                answer.push(format!(
                    "It is the smallest that is as good as the fastest measured, {}.",
                    measured(fastest)
                ));
                let against = Comparison::new(name(smallest), format!("{}, the fastest", name(fastest)));
                rows.extend(self.choice.verdicts[smallest].map(|verdict| against.verdict(verdict, SPEED)));
            }
            None => {
                let rounds = rounds_were(self.cases[fastest].1.len());
                let needed = self.choice.rounds_needed().unwrap_or_default();
                answer.push(format!(
                    "Cannot tell which configuration to use: {rounds} measured, and {needed} or more could tell (--rounds)."
                ));
                answer.push(format!("Fastest measured: {}: {}", measured(fastest), options(fastest)));
            }
        }
        if let Some(smallest) = self.choice.smallest.filter(|&smallest| smallest > 0) {
            let unclear: Vec<String> = self.choice.unclear().map(name).collect();
            answer.push(match &unclear[..] {
                [] => "Every smaller one is slower.".to_owned(),
                [one] => format!("The rounds cannot tell whether a smaller one is slower: {one}."),
                many if many.len() == smallest => {
                    format!("The rounds cannot tell whether the {smallest} smaller ones are slower.")
                }
                many => format!(
                    "The rounds cannot tell whether {} of the {smallest} smaller ones are slower; the ranking shows which.",
                    many.len()
                ),
            });
        }
        rows.extend(self.against_the_baseline(of_step));
        rows.extend(self.pageable());
        (answer, rows)
    }

    /// The recommended configuration, or else the fastest, against the baseline.
    fn against_the_baseline(&self, of_step: Option<f64>) -> Option<Comparison> {
        let baseline = self.cases.iter().position(|(configuration, _)| configuration.is_baseline())?;
        let shown = self.choice.smallest.unwrap_or(self.choice.fastest);
        let of_baseline = Spread::median_of(&self.cases[baseline].1).unwrap_or(0.0);
        let reason = match of_step {
            Some(of_step) => {
                let most = of_step / of_baseline.max(f64::MIN_POSITIVE);
                format!("the step takes {of_step:.0} images/s, so {most:.2} times at most")
            }
            None => "no step bounds the gain".to_owned(),
        };
        let [author, first] = TIMES_THE_BASELINE.map(|(_, times)| times);
        let row = Comparison::new(self.cases[shown].0.name(), format!("the baseline, {}", self.rate(baseline)));
        let row = row.verdict(in_turn(&self.rates(), baseline, shown, self.level), SPEED).reason(reason);
        Some(Comparison { published: format!("{author:.0} and {first:.0} times as fast"), ..row })
    }

    /// The best configuration with pageable memory against the best with pinned memory.
    fn pageable(&self) -> Option<Comparison> {
        let best_of = |pinned| {
            let is = |case: &usize| {
                let configuration = self.cases[*case].0;
                configuration.pinned == Some(pinned) && !configuration.is_baseline()
            };
            let median = |case: &usize| Spread::median_of(&self.cases[*case].1).unwrap_or(0.0);
            (0..self.cases.len()).filter(is).max_by(|a, b| median(a).total_cmp(&median(b)))
        };
        let (pinned, pageable) = (best_of(true)?, best_of(false)?);
        let of = |memory: &str, case| format!("{memory} memory, {}", self.rate(case));
        let verdict = in_turn(&self.rates(), pinned, pageable, self.level);
        Some(Comparison::new(of("pageable", pageable), of("pinned", pinned)).verdict(verdict, SPEED))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::rounds_for;
    use super::*;
    use crate::report::comparison::tells;
    use crate::verdict::simulated::{BUSY, Noise, QUIET, rates};

    /// A ranking of 1 and 2 threads with prefetch 1, 2 and 4, and of a baseline, from made rounds. `of_one` and
    /// `of_none`: rates with one thread and with the baseline, where two threads make 1,000 images/s.
    pub(crate) fn made(
        report: u64,
        (of_one, of_none): (f64, f64),
        rounds: u32,
        noise: Noise,
        shares: usize,
    ) -> Ranking {
        let configuration =
            |threads, prefetch| Configuration { threads, prefetch, persistent: threads > 0, pinned: None };
        let own = [1, 2].into_iter().flat_map(|threads| [1, 2, 4].map(|prefetch| configuration(threads, prefetch)));
        let all: Vec<Configuration> = own.chain([configuration(0, 1)]).collect();
        let medians: Vec<f64> = all.iter().map(|c| [of_none, of_one, 1_000.0][c.threads]).collect();
        Ranking::of(all.into_iter().zip(rates(report, &medians, rounds, noise)).collect(), shares).unwrap()
    }

    #[test]
    fn equal_configurations_are_told_apart_in_one_of_a_hundred_reports_at_most() {
        for noise in [QUIET, BUSY] {
            let rounds = rounds_for(7);
            let told = |report: &u64| {
                let ranking = made(*report, (1_000.0, 1_000.0), rounds, noise, 2);
                let verdicts = ranking.choice.verdicts.iter().flatten();
                tells(&ranking.answer(None).1) || verdicts.into_iter().any(Verdict::differs)
            };
            let told = (0..1_000).filter(told).count();
            assert!(told <= 10, "{told} of 1,000 reports");
        }
    }

    /// On a quiet machine, where figures vary by 2 % and rounds by another 2 %, and one figure in a hundred stalls.
    #[test]
    fn differences_of_5_percent_are_found() {
        let rounds = rounds_for(6);
        let (mut found, mut chosen) = (0, 0);
        for report in 0..300 {
            let ranking = made(report, (1_000.0 / 1.05, 500.0), rounds, QUIET, 2);
            found += ranking.choice.verdicts[..3].iter().filter(|verdict| verdict.is_some_and(|v| v.differs())).count();
            chosen += usize::from(ranking.smallest().is_some_and(|smallest| smallest.threads == 2));
            let against_the_baseline = ranking.answer(None).1.pop().unwrap();
            assert!(tells(std::slice::from_ref(&against_the_baseline)), "{against_the_baseline:?}");
        }
        assert!(found >= 810 && chosen >= 255, "{found} of 900 differences found, {chosen} of 300 choices right");
    }

    #[test]
    fn published_gains_stand_beside_ours_with_what_bounds_them() {
        let of = |threads, rate: f64| {
            (Configuration { threads, prefetch: 1, persistent: threads > 0, pinned: None }, vec![rate; 16])
        };
        let ranking = Ranking::of(vec![of(2, 410.0), of(0, 308.0)], 1).unwrap();
        let row = ranking.answer(Some(444.0)).1.pop().unwrap();
        let want = Comparison {
            case: "2 threads, prefetch 1".to_owned(),
            against: "the baseline, 308 images/s (308 to 308)".to_owned(),
            here: "33 % faster".to_owned(),
            interval: "33 to 33 %".to_owned(),
            published: "35 and 15 times as fast".to_owned(),
            reason: "the step takes 444 images/s, so 1.44 times at most".to_owned(),
        };
        assert_eq!(row, want);
        assert_eq!(ranking.answer(None).1.pop().unwrap().reason, "no step bounds the gain");
    }

    #[test]
    fn few_rounds_recommend_nothing() {
        for rounds in [1, 3] {
            let ranking = made(0, (600.0, 300.0), rounds, QUIET, 1);
            let (answer, rows) = ranking.answer(None);
            assert_eq!(ranking.smallest(), None);
            assert!(
                answer[0].starts_with("Cannot tell") && answer[0].contains(" and 8 or more could tell"),
                "{answer:?}"
            );
            assert!(answer[1].starts_with("Fastest measured: 2 threads"), "{answer:?}");
            assert_eq!((&rows[0].here[..], &rows[0].interval[..]), ("cannot tell", "8 rounds or more could"));
        }
        let one = Configuration { threads: 1, prefetch: 1, persistent: true, pinned: None };
        let only = Ranking::of(vec![(one, vec![100.0])], 1).unwrap();
        assert_eq!(
            only.answer(None).0,
            ["The only configuration: 1 thread, prefetch 1, 100 images/s (100 to 100): --threads 1 --prefetch 1"]
        );
    }
}
