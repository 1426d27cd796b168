//! The answer of augment-load: a sentence for each model, and its comparisons.

use super::{Arm, Key, Results};
use crate::published;
use crate::report::Report;
use crate::report::comparison::{Comparison, TIME};
use crate::spread::Spread;
use crate::verdict::{Verdict, in_percent, in_turn, level};

/// Seconds of the steady state that the images of an epoch take, of all cases by round.
pub(super) struct Measured {
    cases: Vec<(Key, Vec<f64>)>,
    /// The lowest and the highest load.
    loads: (u32, u32),
    /// The way to augment that the others are compared with.
    first: Arm,
    level: f64,
}

impl Measured {
    /// `None` without cases.
    pub(super) fn of(cases: Vec<(Key, Vec<f64>)>) -> Option<Self> {
        let first = cases.first()?.0.arm;
        let loads = cases.iter().map(|(key, _)| key.load);
        let loads = (loads.clone().min()?, loads.max()?);
        // Each way at the highest load is compared with the lowest, and at each load with the first way.
        let grows = cases.iter().filter(|(key, _)| key.load == loads.1 && loads.0 < loads.1).count();
        let others = cases.iter().filter(|(key, _)| key.arm != first).count();
        Some(Self { cases, loads, first, level: level(grows + others) })
    }

    pub(super) fn seconds(&self, model: usize, load: u32, arm: Arm) -> Option<Spread> {
        let case = self.cases.iter().find(|(key, _)| *key == Key { model, load, arm });
        Spread::of(&case?.1)
    }

    /// Case `b` against case `a` of a model; `None` if either was not run.
    fn verdict(&self, model: usize, a: (u32, Arm), b: (u32, Arm)) -> Option<Verdict> {
        let of_model = self.cases.iter().filter(|(key, seconds)| key.model == model && !seconds.is_empty());
        let (keys, seconds): (Vec<_>, Vec<_>) =
            of_model.map(|(key, seconds)| ((key.load, key.arm), seconds.as_slice())).unzip();
        let find = |key| keys.iter().position(|of| *of == key);
        Some(in_turn(&seconds, find(a)?, find(b)?, self.level))
    }

    /// Share of the time that a way saves against the first at a load, in percent; `None` if the rounds show none.
    pub(super) fn saved(&self, model: usize, load: u32, arm: Arm) -> Option<f64> {
        let ratio = self.verdict(model, (load, self.first), (load, arm))?.difference()?;
        Some(100.0 * (1.0 - ratio.estimate))
    }

    /// Sentence on a model, and its comparisons. `rates`: what was measured at the highest load; `None` without a
    /// training step.
    fn answer(
        &self,
        model: usize,
        name: &str,
        rates: &dyn Fn(Arm) -> Option<StepRates>,
    ) -> (Option<String>, Vec<Comparison>) {
        let (low, high) = self.loads;
        let of_model = self.cases.iter().filter(|(key, _)| (key.model, key.load) == (model, high));
        let arms: Vec<Arm> = of_model.map(|(key, _)| key.arm).collect();
        let case = |arm: Arm, against: &str| Comparison::new(format!("{name}, {}, load {high}", arm.name()), against);
        let reason = |arm| rates(arm).map(StepRates::reason).unwrap_or_default();
        if low == high {
            let seconds = |arm| Some((arm, self.seconds(model, high, arm)?.median));
            let seconds: Vec<(Arm, f64)> = arms.into_iter().filter_map(seconds).collect();
            let said = seconds.first().map(|(arm, seconds)| {
                format!("{name}: an epoch at load {high} takes {seconds:.2} s with {}.", arm.name())
            });
            let row = |(arm, seconds)| case(arm, "").here(format!("{seconds:.2} s")).reason(reason(arm));
            return (said, seconds.into_iter().map(row).collect());
        }
        let verdict = |arm| Some((arm, self.verdict(model, (low, arm), (high, arm))?));
        let verdicts: Vec<(Arm, Verdict)> = arms.into_iter().filter_map(verdict).collect();
        let longest = verdicts.iter().filter_map(|(arm, verdict)| Some((arm, verdict.difference()?.estimate)));
        let said = match longest.max_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((arm, ratio)) => {
                let change = in_percent(ratio, TIME.0, TIME.1);
                format!("{name}: an epoch takes {change} at load {high} than at load {low} with {}.", arm.name())
            }
            None if verdicts.iter().all(|(_, verdict)| verdict.rounds_needed().is_none()) => {
                format!("{name}: the rounds show no difference between load {high} and load {low}.")
            }
            None => {
                format!("{name}: the rounds cannot tell whether load {high} makes an epoch longer than load {low}.")
            }
        };
        let published = |arm| {
            let of = match arm {
                Arm::A(_) => |epoch: &published::PublishedEpoch| epoch.trial_a_s,
                Arm::BGpu => |epoch: &published::PublishedEpoch| epoch.trial_b_s,
                _ => return None,
            };
            Some(of(published::seconds(name, high)?) / of(published::seconds(name, low)?))
        };
        let row = |&(arm, verdict): &(Arm, Verdict)| {
            let row = case(arm, &format!("load {low}")).verdict(verdict, TIME);
            row.published(published(arm), TIME).reason(reason(arm))
        };
        (Some(said), verdicts.iter().map(row).collect())
    }

    /// Trial B on the GPU against the first way at the highest load, if it was run or published.
    fn of_trial_b(&self, model: usize, name: &str) -> Option<Comparison> {
        let high = self.loads.1;
        let verdict = self.verdict(model, (high, self.first), (high, Arm::BGpu));
        let published = published::seconds(name, high).map(|epoch| epoch.trial_b_s / epoch.trial_a_s);
        let row = Comparison::new(format!("{name}, {}, load {high}", Arm::BGpu.name()), self.first.name());
        let row = row.published(published, TIME);
        match verdict {
            Some(verdict) => Some(row.verdict(verdict, TIME)),
            None => published.map(|_| row.here("not run")),
        }
    }
}

/// Rates with a training step, in images per second.
#[derive(Debug, Clone, Copy)]
struct StepRates {
    /// Accelerator use, 0 to 1.
    busy: f64,
    /// Rate of the pipeline alone, if it was measured.
    pipeline: Option<f64>,
    /// Rate that the step takes, if it takes time.
    step: Option<f64>,
}

impl StepRates {
    /// The reason why an epoch grows or does not.
    fn reason(self) -> String {
        let busy = format!("accelerator use {:.0} %", 100.0 * self.busy);
        let rates = self.pipeline.zip(self.step).map(|(pipeline, step)| {
            format!("the pipeline alone makes {pipeline:.0} images/s, the step takes {step:.0}; {busy}")
        });
        rates.unwrap_or(busy)
    }
}

impl Results<'_> {
    /// Adds the sentences and the table below them.
    pub(super) fn answer(&self, report: &mut Report) {
        let (high, mut rows) = (self.highest_load(), Vec::new());
        let none = self.models.iter().position(|model| model.name == "none");
        for (number, model) in self.models.iter().enumerate() {
            let rates = |arm| {
                let case = self.case(number, high, arm).filter(|_| model.name != "none")?;
                let alone = none.and_then(|none| self.case(none, high, arm)?.images_per_s());
                let pipeline = alone.map(|rate| rate.median);
                Some(StepRates { busy: case.accelerator_use()?, pipeline, step: case.of_step() })
            };
            let name = if model.name == "none" { "The pipeline alone" } else { &model.name };
            let (said, of_model) = self.measured.answer(number, name, &rates);
            report.answer.extend(said);
            rows.extend(of_model);
            rows.extend(self.measured.of_trial_b(number, name));
        }
        report.compare(rows);
    }
}

#[cfg(test)]
mod tests {
    use super::super::AugmentLoadSettings;
    use super::*;
    use crate::report::comparison::tells;
    use crate::verdict::simulated::{Noise, QUIET, rates};
    use warpfeed::Strategy;

    const ARMS: [Arm; 2] = [Arm::A(Strategy::Sequential), Arm::A(Strategy::Fused)];

    /// Seconds of four models. `seconds`: those of a load and a way.
    fn made(report: u64, seconds: impl Fn(u32, Arm) -> f64, noise: Noise) -> Measured {
        let AugmentLoadSettings { loads, rounds, .. } = AugmentLoadSettings::default();
        let of_model = |model| {
            let keys: Vec<_> = loads.iter().flat_map(|&load| ARMS.map(|arm| Key { model, load, arm })).collect();
            let medians: Vec<f64> = keys.iter().map(|key| 1.0 / seconds(key.load, key.arm)).collect();
            let rates = rates(4 * report + model as u64, &medians, rounds, noise).into_iter();
            let seconds = rates.map(|rates| rates.into_iter().map(|rate| 1.0 / rate).collect::<Vec<f64>>());
            keys.into_iter().zip(seconds).collect::<Vec<_>>()
        };
        Measured::of((0..4).flat_map(of_model).collect()).unwrap()
    }

    fn answer(measured: &Measured, model: usize) -> (String, Vec<Comparison>) {
        let rates = StepRates { busy: 0.5, pipeline: Some(556.0), step: Some(444.0) };
        let (said, rows) = measured.answer(model, "resnet18", &|_| Some(rates));
        let said = said.unwrap();
        assert_eq!(said.contains('%'), tells(&rows), "{said}");
        (said, rows)
    }

    #[test]
    fn equal_loads_are_told_apart_in_one_of_a_hundred_reports_at_most() {
        let told = |report: &u64| {
            let measured = made(*report, |_, _| 0.5, QUIET);
            let saves = |model| [1, 4, 8, 12].iter().any(|&load| measured.saved(model, load, ARMS[1]).is_some());
            (0..4).any(|model| saves(model) || tells(&answer(&measured, model).1))
        };
        let told = (0..1_000).filter(told).count();
        assert!(told <= 10, "{told} of 1,000 reports");
    }

    #[test]
    fn loads_that_take_5_percent_longer_are_found() {
        let (mut grows, mut saves) = (0, 0);
        for report in 0..100 {
            let measured = made(report, |load, arm| if load == 12 && arm == ARMS[0] { 0.525 } else { 0.5 }, QUIET);
            for model in 0..4 {
                let verdict = measured.verdict(model, (1, ARMS[0]), (12, ARMS[0])).unwrap();
                grows += usize::from(matches!(verdict, Verdict::Larger(_)));
                assert_eq!(verdict.differs(), tells(&answer(&measured, model).1[..1]));
                saves += usize::from(measured.saved(model, 12, ARMS[1]).is_some());
            }
        }
        assert!(grows >= 360 && saves >= 360, "{grows} and {saves} of 400 found");
    }

    #[test]
    fn published_growth_stands_beside_ours_with_the_reason() {
        let measured = made(0, |load, arm| if load == 12 && arm == ARMS[0] { 1.0 } else { 0.5 }, QUIET);
        let (said, rows) = answer(&measured, 0);
        assert!(
            said.starts_with("resnet18: an epoch takes ")
                && said.ends_with("longer at load 12 than at load 1 with A, CPU, sequential."),
            "{said}"
        );
        assert_eq!((&rows[0].case[..], &rows[0].against[..]), ("resnet18, A, CPU, sequential, load 12", "load 1"));
        for row in &rows {
            let why = "the pipeline alone makes 556 images/s, the step takes 444; accelerator use 50 %";
            assert_eq!((&row.published[..], &row.reason[..]), ("87 % longer", why));
        }
        assert!(rows[0].here.ends_with(" % longer") && rows[0].interval.contains(" to "), "{rows:?}");
        assert_eq!(rows[1].here, "not distinguishable");
        assert!(measured.answer(0, "vit", &|_| None).1.iter().all(|row| row.published.is_empty()));
        let of_b = measured.of_trial_b(0, "resnet18").unwrap();
        assert_eq!((&of_b.here[..], &of_b.published[..]), ("not run", "73 % shorter"));
        assert_eq!(measured.of_trial_b(0, "vit"), None);
    }

    #[test]
    fn one_load_is_told_without_growth() {
        let seconds = |arm| (Key { model: 0, load: 4, arm }, vec![0.5]);
        let measured = Measured::of(ARMS.map(seconds).into()).unwrap();
        let (said, rows) = answer(&measured, 0);
        assert_eq!(said, "resnet18: an epoch at load 4 takes 0.50 s with A, CPU, sequential.");
        assert!(rows[1].here == "0.50 s" && rows[1].reason.contains("accelerator use 50 %"), "{rows:?}");
        assert_eq!(measured.saved(0, 4, ARMS[1]), None, "one round shows nothing");
    }
}
