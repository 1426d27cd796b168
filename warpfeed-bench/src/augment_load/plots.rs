//! The plots of augment-load. Each model has a scale of its own: on a common one, the growth of the shortest epochs,
//! which grow the most, could not be seen. What is saved has a common scale.

use super::{Arm, AugmentLoadSettings, Case, Measured, improvement, published_growth, reference};
use crate::published;
use crate::report::Report;
use crate::report::plot::{OWN, Series, extent, grouped_bars, heat_map, lines, timeline};
use crate::spread::Spread;
use crate::subject::Model;
use crate::train::{LANES, RunTimes};
use crate::usage::Usage;

pub(super) fn add(
    report: &mut Report,
    settings: &AugmentLoadSettings,
    models: &[Model],
    cases: &[Case],
    seconds: &Measured,
) {
    let mut arms: Vec<Arm> = Vec::new();
    for case in cases {
        if !arms.contains(&case.arm) {
            arms.push(case.arm);
        }
    }
    let Some((&first, others)) = arms.split_first() else { return };
    times(report, settings, models, &arms, seconds);
    growth(report, settings, models, &arms, seconds);
    savings(report, settings, models, (first, others), seconds);
    compared(report, settings, models, cases);
}

/// Plot of the seconds per epoch, above the table.
fn times(report: &mut Report, settings: &AugmentLoadSettings, models: &[Model], arms: &[Arm], seconds: &Measured) {
    let groups: Vec<String> = settings.loads.iter().map(u32::to_string).collect();
    for (number, model) in models.iter().enumerate() {
        let series = |&arm: &Arm| {
            let values: Vec<_> = settings.loads.iter().map(|&load| seconds.seconds(number, load, arm)).collect();
            Series::spread(arm.name(), &values)
        };
        let caption = format!("{}: seconds per epoch", title(model));
        let series: Vec<Series> = arms.iter().map(series).collect();
        let svg = grouped_bars(&caption, "s", "load", &groups, &series, OWN);
        report.plot(format!("seconds-{}", file_name(&model.name)), caption, svg);
    }
    report.leading_plots = models.len();
}

/// Plot of the growth of times, measured and published ones by the same measure.
fn growth(report: &mut Report, settings: &AugmentLoadSettings, models: &[Model], arms: &[Arm], seconds: &Measured) {
    let xs: Vec<f64> = settings.loads.iter().map(|&load| f64::from(load)).collect();
    let low = settings.loads.iter().min().copied().unwrap_or(0);
    for (number, model) in models.iter().enumerate() {
        let reference = reference(settings, number, seconds);
        let own = |&arm: &Arm| {
            let at = |&load: &u32| {
                let Spread { median, low, high, rounds } = seconds.seconds(number, load, arm)?;
                let by = reference.filter(|&reference| reference > 0.0)?;
                Some(Spread { median: median / by, low: low / by, high: high / by, rounds })
            };
            Series::spread(arm.name(), &settings.loads.iter().map(at).collect::<Vec<_>>())
        };
        let published = |name: &str, of: fn(&published::PublishedEpoch) -> f64| {
            let at = |&load: &u32| published_growth(&settings.loads, &model.name, load, of);
            Series::new(name, settings.loads.iter().map(at).collect())
        };
        let published =
            [published("A, published", |epoch| epoch.trial_a_s), published("B, published", |epoch| epoch.trial_b_s)];
        let series: Vec<Series> = arms.iter().map(own).chain(published).filter(Series::has_values).collect();
        let title = format!("{}: how an epoch grows", title(model));
        let svg = lines(&title, "x", "load", &xs, &series, OWN);
        let caption = format!("{title} (times trial A at load {low})");
        report.plot(format!("growth-{}", file_name(&model.name)), caption, svg);
    }
}

/// Plots of the reduction against the first way to augment, all models in one, and of the published reduction.
fn savings(
    report: &mut Report,
    settings: &AugmentLoadSettings,
    models: &[Model],
    (first, others): (Arm, &[Arm]),
    seconds: &Measured,
) {
    let xs: Vec<f64> = settings.loads.iter().map(|&load| f64::from(load)).collect();
    let of_models = |name: &dyn Fn(&Model) -> String, saved: &dyn Fn(usize, u32) -> Option<f64>| -> Vec<Series> {
        let of = |(number, model): (usize, &Model)| {
            Series::new(name(model), settings.loads.iter().map(|&load| saved(number, load)).collect())
        };
        models.iter().enumerate().map(of).filter(Series::has_values).collect()
    };
    let of_arm = |&arm: &Arm| {
        let series = of_models(&|model| title(model).to_owned(), &|number, load| seconds.saved(number, load, arm));
        let title = format!("Time saved by {} against {}", arm.name(), first.name());
        (format!("saved-{}", arm.file()), title, series)
    };
    let published = |number: usize, load| {
        let epoch = published::seconds(&models[number].name, load)?;
        improvement(Some(epoch.trial_a_s), Some(epoch.trial_b_s))
    };
    let published = of_models(&|model| format!("{}, published", title(model)), &published);
    let published = ("saved-published".to_owned(), "Published: time saved by B, GPU, against A".to_owned(), published);
    let plots: Vec<_> = others.iter().map(of_arm).chain([published]).filter(|plot| !plot.2.is_empty()).collect();
    let all: Vec<Series> = plots.iter().flat_map(|plot| plot.2.clone()).collect();
    for (file, title, series) in plots {
        let svg = lines(&title, "%", "load", &xs, &series, extent(&all));
        report.plot(file, title, svg);
    }
}

/// Plots over time of the compared case: ResNet-18, or the first model that trains, at the highest load.
fn compared(report: &mut Report, settings: &AugmentLoadSettings, models: &[Model], cases: &[Case]) {
    let high = settings.loads.iter().max().copied().unwrap_or(0);
    let named = models.iter().position(|model| model.name == "resnet18");
    let timed = named.or_else(|| models.iter().position(|model| model.name != "none")).unwrap_or(0);
    let of_it: Vec<&Case> = cases.iter().filter(|case| case.load == high && case.model == timed).collect();
    let longest = |of: fn(&Case) -> f64| of_it.iter().map(|case| of(case)).fold(0.0, f64::max);
    let sampled_s = longest(|case| case.usage.last().map_or(0.0, Usage::seconds));
    let run_s = longest(|case| case.runs.last().map_or(0.0, |run| run.seconds));
    for case in &of_it {
        let name = format!("{}, load {high}, {}", models[case.model].name, case.arm.name());
        let file = format!("{}-{}", file_name(&models[case.model].name), case.arm.file());
        // A run shorter than the time between two samples has no samples.
        if let Some((usage, run)) = case.usage.last().zip(case.runs.last()).filter(|(usage, _)| usage.seconds() > 0.0) {
            let step = run.step_shares(usage.interval_s, usage.process.len());
            let mut rows = usage.rows();
            if models[case.model].name != "none" {
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

/// Name of a model in titles.
fn title(model: &Model) -> &str {
    if model.name == "none" { "pipeline alone" } else { &model.name }
}

/// Turns a name into a file name.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '-' }).collect()
}
