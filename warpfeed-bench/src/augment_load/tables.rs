//! The tables of augment-load.

use super::{Arm, Case, Results};
use crate::published::{self, PublishedEpoch};
use crate::report::{Cell, Columns, ReportTable};
use crate::train::RunTimes;
use crate::utilization;

/// Reduction from `old` to `new`, in percent.
pub(super) fn improvement(old: Option<f64>, new: Option<f64>) -> Option<f64> {
    Some(100.0 * (1.0 - new? / old?))
}

impl Results<'_> {
    pub(super) fn tables(&self, no_gpu: Option<&str>) -> Vec<ReportTable> {
        let gpu = || no_gpu.map(|reason| format!("the GPU's columns: {reason}."));
        let names = |case: &Case| {
            vec![
                self.models[case.key.model].name.as_str().into(),
                Cell::count(case.key.load as usize),
                case.key.arm.name().into(),
            ]
        };
        let usage = self.cases.iter().map(|case| (names(case), &case.usage[..]));
        vec![
            self.seconds().blank(gpu()),
            self.growths().blank(gpu()),
            published_table(),
            self.published_utilization(),
            self.details(),
            utilization::table(&["model", "load", "trial"], usage),
        ]
    }

    /// A model with a load for each row.
    fn rows(&self) -> impl Iterator<Item = (usize, u32)> {
        (0..self.models.len()).flat_map(|model| self.loads.iter().map(move |&load| (model, load)))
    }

    fn columns(&self) -> Columns<'_, (usize, u32)> {
        Columns::new().text("model", |row: &(usize, u32)| &*self.models[row.0].name).count("load", |row| row.1 as usize)
    }

    fn seconds(&self) -> ReportTable {
        let (first, others) = (self.arms[0], &self.arms[1..]);
        let measured = &self.measured;
        let published = |row: &(usize, u32)| published::seconds(&self.models[row.0].name, row.1);
        let a = move |row: &(usize, u32)| published(row).map(|epoch| epoch.trial_a_s);
        let b = move |row: &(usize, u32)| published(row).map(|epoch| epoch.trial_b_s);
        let columns = (self.columns())
            .each(&self.arms, |columns, &arm| {
                columns.seconds(&arm.name(), move |row| measured.seconds(row.0, row.1, arm))
            })
            .each(others, |columns, &arm| {
                columns.number(format!("{} saves, %", arm.name()), 1, move |row| measured.saved(row.0, row.1, arm))
            })
            .number("published A, s", 2, a)
            .number("published B, s", 2, b)
            .number("published B saves, %", 1, move |row| improvement(a(row), b(row)));
        let hides = |(model, load): (usize, u32)| {
            let hides =
                |&arm: &Arm| measured.seconds(model, load, arm).is_some() && measured.saved(model, load, arm).is_none();
            others.iter().any(hides)
        };
        let hidden = self.rows().any(hides).then(|| "savings: the rounds show no difference.".to_owned());
        let title = format!("Seconds per epoch without set-up, and the time saved against {}", first.name());
        columns.table("seconds-per-epoch", title, self.rows()).blank(hidden)
    }

    /// Times relative to the lowest load: measured and published ones by the same measure.
    fn growths(&self) -> ReportTable {
        let low = self.lowest_load();
        let title = format!("Times the epoch of {} at load {low}; published, of A at load {low}", self.arms[0].name());
        let columns = self.columns().each(&self.arms, |columns, &arm| {
            columns.number(arm.name(), 2, move |row| self.growth(row.0, row.1, arm).map(|times| times.median))
        });
        columns
            .number("published A", 2, |row| self.published_growth(row.0, row.1, |epoch| epoch.trial_a_s))
            .number("published B", 2, |row| self.published_growth(row.0, row.1, |epoch| epoch.trial_b_s))
            .table("growth", title, self.rows())
    }

    /// The published 95th percentiles of utilization with those of the same model and load.
    pub(super) fn published_utilization(&self) -> ReportTable {
        let (model, load) = published::UTILIZATION_OF;
        let number = self.models.iter().position(|of| of.name == model);
        let p95 = |arm: Arm, of: &str| utilization::p95(of, &self.case(number?, load, arm)?.usage);
        let columns = Columns::new()
            .text("of", |row: &(&str, f64, f64)| row.0)
            .number("published A, %", 0, |row| row.1)
            .number("published B, %", 0, |row| row.2)
            .each(&self.arms, |columns, &arm| {
                columns.number(format!("{}, %", arm.name()), 0, move |row| p95(arm, row.0))
            });
        let blank =
            format!("{model} at load {load} was not run so, there is no GPU, or there are fewer than 20 samples.");
        let title = format!("95th percentile of utilization, {model} at load {load}");
        columns.table("published-utilization", title, published::UTILIZATION).blank([blank])
    }

    /// All cases with their times.
    fn details(&self) -> ReportTable {
        Columns::new()
            .text("model", |case: &&Case| &*self.models[case.key.model].name)
            .count("load", |case| case.key.load as usize)
            .text("trial", |case| case.key.arm.name())
            .number("images/s", 0, |case| case.images_per_s().map(|rate| rate.median))
            .number("per epoch, s", 3, |case| case.seconds().map(|seconds| seconds.median))
            .number("set-up, s", 3, |case| case.median(RunTimes::setup_s))
            .number("first epoch, s", 3, |case| case.median(|run| Some(run.epochs.first()?.seconds)))
            .number("accelerator use, %", 1, |case| case.accelerator_use().map(|share| 100.0 * share))
            .waits(|case| case.wait_percentiles())
            .table("cases", "Every case", &self.cases)
            .in_files()
    }
}

/// All published figures.
fn published_table() -> ReportTable {
    let growth = |row: &PublishedEpoch, of| published::growth(row.model, (1, row.load), of);
    Columns::new()
        .text("model", |row: &PublishedEpoch| row.model)
        .count("load", |row| row.load as usize)
        .number("A, s", 2, |row| row.trial_a_s)
        .number("B, s", 2, |row| row.trial_b_s)
        .number("B saves, %", 1, |row| improvement(Some(row.trial_a_s), Some(row.trial_b_s)))
        .number("A, times", 2, move |row| growth(row, |epoch| epoch.trial_a_s))
        .number("B, times", 2, move |row| growth(row, |epoch| epoch.trial_b_s))
        .table(
            "published",
            "Published seconds per epoch, what trial B saves, and times trial A at load 1",
            published::EPOCHS,
        )
        .in_files()
}

#[cfg(test)]
mod tests {
    use super::super::answer::Measured;
    use super::super::{Case, Key};
    use super::*;
    use crate::subject::Model;
    use crate::usage::Usage;
    use warpfeed::Strategy;

    #[test]
    fn published_utilization_stands_beside_that_of_its_case() {
        let models = [Model { name: "resnet18".to_owned(), ..Model::none() }];
        let arms = super::super::AugmentLoadSettings::default().arms();
        let key = Key { model: 0, load: 12, arm: Arm::A(Strategy::Fused) };
        let usage = Usage { cores: vec![vec![0.5; 20]], ..Usage::default() };
        let mut case = Case::new(key);
        case.usage.push(usage);
        let measured = Measured::of(vec![(key, Vec::new())]).unwrap();
        let table =
            Results { loads: &[12], models: &models, arms, cases: vec![case], measured }.published_utilization();
        let rows: Vec<Vec<String>> = table.rows.iter().map(|row| row.iter().map(Cell::text).collect()).collect();
        assert_eq!(rows, [["CPU", "100", "65", "", "50", "", ""], ["GPU", "31", "55", "", "", "", ""]]);
    }
}
