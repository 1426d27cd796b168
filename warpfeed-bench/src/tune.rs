//! Finds the smallest configuration that is fast enough, and the cores that a step needs.

use super::configurations::{Configuration, ConfigurationsSettings, measure_all};
use super::cores::{self, CoreRates, Machine};
use super::report::Report;
use super::subject::{Model, Subject};
use warpfeed::Result;

/// Shares of the report's level: one for the configurations, one for the speed of a core.
const SHARES: usize = 2;

/// Measures every configuration against a model's training step, and the speed of a core with other loads, with packed
/// and cached images, and with decoding on the GPU. `progress` is called for each measurement.
///
/// # Errors
/// The errors of [`configurations`](super::configurations::configurations).
pub fn tune(
    subject: &Subject,
    settings: &ConfigurationsSettings,
    model: &mut Model,
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    let found = measure_all(subject, settings, model, SHARES, &mut |_| Ok(()), progress)?;
    let mut report = found.report;
    report.experiment = "tune";
    let (machine, of_step) = (Machine::here(settings.gpus), found.step_images_per_s);
    let rates = cores::measure(subject, settings, progress)?;
    rates.add_to(&mut report, of_step, machine);
    report.answer.extend(answer(found.smallest, &rates, of_step, machine));
    Ok(report)
}

/// The sentences after those on the configurations.
fn answer(
    smallest: Option<Configuration>,
    rates: &CoreRates,
    of_step: Option<f64>,
    machine: Machine,
) -> impl Iterator<Item = String> {
    let mut of_cores = of_step.map(|of_step| rates.answer(of_step, machine)).unwrap_or_default();
    of_cores.extend(smallest.and_then(|found| machine.shared(found.threads)));
    let options = smallest.map(|found| [format!("Options: {}", found.options()), format!("Code: {}", found.code())]);
    of_cores.into_iter().chain(options.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::super::configurations::Ranking;
    use super::super::configurations::ranking_tests::made;
    use super::super::cores::Way;
    use super::super::report::comparison::{Comparison, tells};
    use super::super::verdict::simulated::{BUSY, Noise, QUIET, rates};
    use super::*;

    const MACHINE: Machine = Machine { cores: 2, gpus: 1 };

    fn report(number: u64, of_one: f64, rounds: u32, noise: Noise) -> (Ranking, Vec<String>, Vec<Comparison>) {
        let ranking = made(number, (of_one, 400.0), rounds, noise, SHARES);
        let ways = [Way::Asked, Way::Load(4), Way::Load(12), Way::Packed, Way::Cached];
        let rounds = rates(number + 10_000, &[900.0; 5], rounds, noise);
        let rates = CoreRates::made("train", ways.into_iter().zip(rounds).collect());
        let (mut answer, rows) = ranking.answer(Some(444.0));
        answer.extend(super::answer(ranking.smallest(), &rates, Some(444.0), MACHINE));
        (ranking, answer, rows)
    }

    #[test]
    fn equal_ways_are_told_apart_in_one_of_a_hundred_reports_at_most() {
        let told = |number: &u64| {
            let (_, answer, mut rows) = report(*number, 1_000.0, 16, QUIET);
            rows.retain(|row| !row.against.contains("baseline"));
            answer.iter().any(|sentence| sentence.contains("Prepared differently")) || tells(&rows)
        };
        let told = (0..1_000).filter(told).count();
        assert!(told <= 10, "{told} of 1,000 reports");
    }

    /// Whatever the rounds are, the sentences agree with each other and with the figures.
    #[test]
    fn sentences_do_not_contradict_each_other() {
        let wild = Noise { own: 0.5, shared: 0.3, stalls: 0.1 };
        for (number, noise) in (0..200).flat_map(|number| [(number, QUIET), (number, BUSY), (number, wild)]) {
            for (of_one, rounds) in [(600.0, 16), (950.0, 16), (1_000.0, 16), (950.0, 9), (1_000.0, 3), (600.0, 1)] {
                let (ranking, answer, rows) = report(number, of_one, rounds, noise);
                let text = answer.join("\n");
                let count = |what: &str| text.matches(what).count();
                let options = |line: &str| line.rsplit_once(": ").map(|(_, options)| options.to_owned());
                // One recommendation, or none and the reason.
                assert_eq!(count("Recommended: ") + count("Cannot tell which"), 1, "{text}");
                assert_eq!(
                    (count("Options: "), count("Code: ")),
                    (count("Recommended: "), count("Recommended: ")),
                    "{text}"
                );
                if count("Recommended: ") == 1 {
                    let given = answer.iter().find_map(|line| line.strip_prefix("Options: ")).unwrap();
                    assert_eq!(options(&answer[0]).as_deref(), Some(given), "{text}");
                } else {
                    assert_eq!(count("Fastest measured: "), 1, "{text}");
                    assert!(!tells(&rows), "{text}");
                }
                // Images/s of the recommended and the fastest configuration are alike.
                let rates: Vec<f64> = answer[..2]
                    .iter()
                    .filter_map(|line| line.split(" images/s").next()?.rsplit(", ").next()?.parse().ok())
                    .collect();
                if ranking.smallest().is_some() && answer[1].starts_with("It is the smallest") {
                    assert!(rates[0] >= 0.89 * rates[1], "{text}");
                    assert_eq!(rows[0].here, "not distinguishable", "{text}");
                }
                let unclear = count("cannot tell whether a smaller one is slower") + count(" smaller ones are slower");
                assert!(!(count("Every smaller one is slower") == 1 && unclear > 0), "{text}");
                // One figure of cores, with the trainer's counted once.
                assert_eq!(
                    (count(" cores, and the trainers 1 more"), count("This machine has 1 for images")),
                    (1, 1),
                    "{text}"
                );
                assert!(!text.contains("trial A") && !text.contains("equal"), "{text}");
            }
        }
    }
}
