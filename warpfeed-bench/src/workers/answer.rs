//! The answer of workers: the smallest number that is enough.

use super::{Results, count};
use crate::report::Report;
use crate::report::comparison::{Comparison, SPEED};
use crate::spread::Spread;
use crate::verdict::{Choice, in_turn, level, pairs, rounds_were};

/// Images per second of a number of workers in each round, and seconds per epoch.
struct WorkerRates {
    workers: usize,
    rates: Vec<f64>,
    seconds: Option<Spread>,
}

impl Results<'_> {
    /// Adds the sentences and the table below them.
    pub(super) fn answer(&self, report: &mut Report) {
        let of_group = |&(stored, batch_size): &(usize, usize)| -> Vec<WorkerRates> {
            let of = self.ran().filter(move |case| (case.key.stored, case.key.batch_size) == (stored, batch_size));
            let rates = of.map(|case| (case.key.workers, case.rates(), case.seconds()));
            rates.map(|(workers, rates, seconds)| WorkerRates { workers, rates, seconds }).collect()
        };
        let groups = self.groups();
        let within: usize = groups.iter().map(|group| pairs(of_group(group).len())).sum();
        let level = level(within + self.ran().filter(|case| case.key.stored > 0).count());
        let mut rows = Vec::new();
        for group in &groups {
            let batches = if self.stored.len() > 1 { "batches" } else { "Batches" };
            let name = format!("{}{batches} of {}", self.prefix(group.0), group.1);
            let (said, of_group) = answer(&name, of_group(group), level).unzip();
            report.answer.extend(said);
            rows.extend(of_group.unwrap_or_default());
        }
        if report.answer.is_empty() {
            report.answer.push("Nothing was run; the table says why.".to_owned());
        }
        rows.extend(self.published_comparisons(level));
        report.compare(rows);
    }
}

/// Sentence about the smallest number of workers that is as good as the fastest, and its comparisons. `of`: name of the
/// batches.
fn answer(of: &str, mut cases: Vec<WorkerRates>, level: f64) -> Option<(String, Vec<Comparison>)> {
    cases.sort_by_key(|case| case.workers);
    let rates: Vec<&[f64]> = cases.iter().map(|case| case.rates.as_slice()).collect();
    let choice = Choice::of(&rates, level)?;
    let workers = |case: usize| count(cases[case].workers);
    let seconds = |case: usize| cases[case].seconds.map(|seconds| seconds.words("s per epoch", 3)).unwrap_or_default();
    let row = |case: usize, against: String| Comparison::new(format!("{of}, {}", workers(case)), against);
    let fastest = choice.fastest;
    let Some(smallest) = choice.smallest else {
        let (rounds, needed) = (rounds_were(rates[fastest].len()), choice.rounds_needed().unwrap_or_default());
        let said = format!(
            "{of}: cannot tell how many workers are enough: {rounds} measured, and {needed} or more could tell (--rounds)."
        );
        return Some((said, vec![row(fastest, String::new()).here(seconds(fastest)).reason("the fastest measured")]));
    };
    let said = match cases[smallest].workers {
        _ if cases.len() == 1 => format!("{of}: {} was the only number measured", workers(smallest)),
        0 => format!("{of}: no workers are needed"),
        1 => format!("{of}: 1 worker is enough"),
        _ => format!("{of}: {} are enough", workers(smallest)),
    };
    let against_fastest = |case: usize| {
        let row = row(case, format!("{}, the fastest", workers(fastest)));
        choice.verdicts[case].map(|verdict| row.verdict(verdict, SPEED))
    };
    let mut rows: Vec<Comparison> = against_fastest(smallest).into_iter().collect();
    rows.extend(choice.unclear().filter_map(against_fastest).map(|row| row.reason("may be enough too")));
    if smallest > 0 && cases[0].workers == 0 {
        rows.push(row(smallest, count(0)).verdict(in_turn(&rates, 0, smallest, level), SPEED));
    }
    Some((format!("{said}, {}.", seconds(smallest)), rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::comparison::tells;
    use crate::verdict::default_rounds;
    use crate::verdict::simulated::{Noise, QUIET, rates};

    const WORKERS: [usize; 6] = [0, 1, 2, 4, 8, 16];
    const COMPARISONS: usize = 60;

    /// The answer for one of four batch sizes.
    fn made(report: u64, medians: &[f64], rounds: u32, noise: Noise) -> (String, Vec<Comparison>) {
        let cases = WORKERS.into_iter().zip(rates(report, medians, rounds, noise)).map(|(workers, rates)| {
            let seconds = Spread::of(&rates.iter().map(|rate| 200.0 / rate).collect::<Vec<_>>());
            WorkerRates { workers, rates, seconds }
        });
        answer("Batches of 32", cases.collect(), level(COMPARISONS)).unwrap()
    }

    #[test]
    fn equal_numbers_of_workers_are_told_apart_in_one_of_a_hundred_reports_at_most() {
        let rounds = default_rounds(COMPARISONS);
        let told = |report: &u64| {
            (0..4).any(|batch_size| {
                let (said, rows) = made(4 * report + batch_size, &[1_000.0; 6], rounds, QUIET);
                tells(&rows) || !said.starts_with("Batches of 32: no workers are needed, ")
            })
        };
        let told = (0..1_000).filter(told).count();
        assert!(told <= 10, "{told} of 1,000 reports");
    }

    #[test]
    fn workers_that_make_5_percent_more_are_found() {
        let of_none = 1_000.0 / 1.05;
        let medians = [of_none, 1_000.0, 1_000.0, 1_000.0, 1_000.0, 1_000.0];
        let right = |report: &u64| {
            let said = made(*report, &medians, default_rounds(COMPARISONS), QUIET).0;
            said.starts_with("Batches of 32: 1 worker is enough, ")
        };
        let right = (0..300).filter(right).count();
        assert!(right >= 270, "{right} of 300 answers are right");
        let (said, rows) = made(0, &medians, 1, QUIET);
        assert!(said.contains("cannot tell how many workers are enough: 1 round was measured"), "{said}");
        assert_eq!((rows.len(), &rows[0].reason[..]), (1, "the fastest measured"));
        assert!(!tells(&rows), "{rows:?}");
    }
}
