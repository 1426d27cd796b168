//! The plots of augment-load, with a scale for each model.

use super::tables::improvement;
use super::{Arm, Case, Results};
use crate::published;
use crate::report::Report;
use crate::report::plot::{Axes, Series, extent, heat_map, timeline};
use crate::subject::Model;
use crate::train::{LANES, RunTimes};
use crate::usage::Usage;

impl Results<'_> {
    pub(super) fn plots(&self, report: &mut Report) {
        for model in 0..self.models.len() {
            self.times(report, model);
        }
        report.leading_plots = self.models.len();
        for model in 0..self.models.len() {
            self.growth_plot(report, model);
        }
        self.savings(report);
        self.compared(report);
    }

    /// The ways to augment that were run.
    fn run(&self) -> impl Iterator<Item = Arm> {
        let is_run = |arm: &Arm| self.cases.iter().any(|case| case.key.arm == *arm);
        self.arms.iter().copied().filter(is_run)
    }

    fn xs(&self) -> Vec<f64> {
        self.loads.iter().map(|&load| f64::from(load)).collect()
    }

    /// Plot of the seconds per epoch.
    fn times(&self, report: &mut Report, number: usize) {
        let groups: Vec<String> = self.loads.iter().map(u32::to_string).collect();
        let series = |arm: Arm| {
            let values: Vec<_> = self.loads.iter().map(|&load| self.measured.seconds(number, load, arm)).collect();
            Series::spread(arm.name(), &values)
        };
        let caption = format!("{}: seconds per epoch", title(&self.models[number]));
        let series: Vec<Series> = self.run().map(series).collect();
        let svg = Axes::new(&caption, "s").of("load").grouped_bars(&groups, &series);
        report.plot(format!("seconds-{}", file_name(&self.models[number].name)), caption, svg);
    }

    /// Plot of the growth of times, measured and published ones by the same measure.
    fn growth_plot(&self, report: &mut Report, number: usize) {
        let own = |arm: Arm| {
            let times: Vec<_> = self.loads.iter().map(|&load| self.growth(number, load, arm)).collect();
            Series::spread(arm.name(), &times)
        };
        let published = |name: &str, of: fn(&published::PublishedEpoch) -> f64| {
            Series::new(name, self.loads.iter().map(|&load| self.published_growth(number, load, of)).collect())
        };
        let published =
            [published("A, published", |epoch| epoch.trial_a_s), published("B, published", |epoch| epoch.trial_b_s)];
        let series: Vec<Series> = self.run().map(own).chain(published).filter(Series::has_values).collect();
        let title = format!("{}: how an epoch grows", title(&self.models[number]));
        let svg = Axes::new(&title, "x").of("load").lines(&self.xs(), &series);
        let caption = format!("{title} (times trial A at load {})", self.lowest_load());
        report.plot(format!("growth-{}", file_name(&self.models[number].name)), caption, svg);
    }

    /// Plots of the reduction against the first way to augment, all models in one, and of the published reduction.
    fn savings(&self, report: &mut Report) {
        let of_models = |published: &str, saved: &dyn Fn(usize, u32) -> Option<f64>| -> Vec<Series> {
            let of = |(number, model): (usize, &Model)| {
                let values = self.loads.iter().map(|&load| saved(number, load)).collect();
                Series::new(format!("{}{published}", title(model)), values)
            };
            self.models.iter().enumerate().map(of).filter(Series::has_values).collect()
        };
        let of_arm = |arm: Arm| {
            let series = of_models("", &|number, load| self.measured.saved(number, load, arm));
            let title = format!("Time saved by {} against {}", arm.name(), self.arms[0].name());
            (format!("saved-{}", arm.file()), title, series)
        };
        let published = of_models(", published", &|number, load| {
            let epoch = published::seconds(&self.models[number].name, load)?;
            improvement(Some(epoch.trial_a_s), Some(epoch.trial_b_s))
        });
        let published =
            ("saved-published".to_owned(), "Published: time saved by B, GPU, against A".to_owned(), published);
        let plots: Vec<_> =
            self.run().skip(1).map(of_arm).chain([published]).filter(|plot| !plot.2.is_empty()).collect();
        let all: Vec<Series> = plots.iter().flat_map(|plot| plot.2.clone()).collect();
        for (file, title, series) in plots {
            let svg = Axes::new(&title, "%").of("load").at_least(extent(&all)).lines(&self.xs(), &series);
            report.plot(file, title, svg);
        }
    }

    /// Plots over time of the compared case: ResNet-18, or the first model that trains, at the highest load.
    fn compared(&self, report: &mut Report) {
        let (high, models) = (self.highest_load(), self.models);
        let named = models.iter().position(|model| model.name == "resnet18");
        let timed = named.or_else(|| models.iter().position(|model| model.name != "none")).unwrap_or(0);
        let of_it: Vec<&Case> =
            self.cases.iter().filter(|case| case.key.load == high && case.key.model == timed).collect();
        let longest = |of: fn(&Case) -> f64| of_it.iter().map(|case| of(case)).fold(0.0, f64::max);
        let sampled_s = longest(|case| case.usage.last().map_or(0.0, Usage::seconds));
        let run_s = longest(|case| case.runs.last().map_or(0.0, |run| run.seconds));
        for case in &of_it {
            let name = format!("{}, load {high}, {}", models[case.key.model].name, case.key.arm.name());
            let file = format!("{}-{}", file_name(&models[case.key.model].name), case.key.arm.file());
            // A run shorter than the time between two samples has no samples.
            if let Some((usage, run)) =
                case.usage.last().zip(case.runs.last()).filter(|(usage, _)| usage.seconds() > 0.0)
            {
                let step = run.step_shares(usage.interval_s, usage.process.len());
                let mut rows = usage.rows();
                if models[case.key.model].name != "none" {
                    rows.push(("training step".to_owned(), &step));
                }
                let svg = heat_map(&format!("Utilization: {name}"), &rows, usage.interval_s, sampled_s);
                let caption = format!("Every core, GPU and the training step over time: {name}");
                report.plot(format!("utilization-{file}"), caption, svg);
            }
            let stretches = case.runs.last().map_or_else(Vec::new, RunTimes::stretches);
            // A timeline shows a limited number of batches, and may end before the run does.
            let shown_s = stretches.iter().map(|stretch| stretch.end_s).fold(0.0, f64::max);
            let whole = case.runs.last().is_some_and(|run| shown_s > 0.9 * run.seconds);
            let svg = timeline(&format!("Batches: {name}"), &LANES, &stretches, if whole { run_s } else { 0.0 });
            report.plot(format!("timeline-{file}"), format!("Set-up, fetch and train of each batch: {name}"), svg);
        }
    }
}

/// Name of a model in titles.
fn title(model: &Model) -> &str {
    if model.name == "none" { "pipeline alone" } else { &model.name }
}

/// Turns a name into a file name.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '-' }).collect()
}
