//! The plots of augment-load. Plots of one kind have equal scales for comparison, unless one would dwarf another.

use super::{Arm, AugmentLoadSettings, Case, Measured, improvement, published_growth, reference};
use crate::experiment::published;
use crate::experiment::report::Report;
use crate::experiment::report::plot::{OWN, Series, extent, grouped_bars, heat_map, lines, timeline};
use crate::experiment::spread::Spread;
use crate::experiment::subject::Model;
use crate::experiment::train::{LANES, RunTimes};
use crate::experiment::usage::Usage;

/// Loads with published figures.
const PUBLISHED_LOADS: [u32; 4] = [1, 4, 8, 12];

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
    improvements(report, settings, models, (first, others), seconds);
    compared(report, settings, models, cases);
}

/// If a model's epochs take more than this many times as long as another's, the two get different scales. On a common
/// one, the smaller figures could not be seen.
const DWARFS: f64 = 8.0;

/// Plot of the seconds per epoch, above the table.
fn times(report: &mut Report, settings: &AugmentLoadSettings, models: &[Model], arms: &[Arm], seconds: &Measured) {
    let groups: Vec<String> = settings.loads.iter().map(u32::to_string).collect();
    let of = |number: usize| -> Vec<Series> {
        let series = |&arm: &Arm| {
            let values: Vec<_> = settings.loads.iter().map(|&load| seconds.seconds(number, load, arm)).collect();
            Series::spread(arm.name(), &values)
        };
        arms.iter().map(series).collect()
    };
    let all: Vec<Vec<Series>> = (0..models.len()).map(of).collect();
    // The pipeline alone is not comparable with a training.
    let trained = all.iter().zip(models).filter(|(_, model)| model.name != "none");
    let highs: Vec<f64> = trained.map(|(series, _)| extent(series).1).collect();
    for (series, model) in all.iter().zip(models) {
        let scale = if model.name == "none" { OWN } else { (0.0, comparable(&highs, extent(series).1)) };
        let caption = format!("{}: seconds per epoch", title(model));
        let svg = grouped_bars(&caption, "s", "load", &groups, series, scale);
        report.plot(format!("seconds-{}", file_name(&model.name)), caption, svg);
    }
    report.leading_plots = models.len();
}

/// The largest of the highs that would not dwarf `own`.
fn comparable(highs: &[f64], own: f64) -> f64 {
    highs.iter().copied().filter(|&high| high <= DWARFS * own).fold(own, f64::max)
}

/// Plot of the growth of times, measured and published ones by the same measure and on the same scale.
fn growth(report: &mut Report, settings: &AugmentLoadSettings, models: &[Model], arms: &[Arm], seconds: &Measured) {
    let xs = |loads: &[u32]| loads.iter().map(|&load| f64::from(load)).collect::<Vec<f64>>();
    let mut plots: Vec<(String, String, Vec<f64>, Vec<Series>)> = Vec::new();
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
        let (name, file) = (title(model), format!("growth-{}", file_name(&model.name)));
        plots.push((
            file.clone(),
            format!("{name}: how an epoch grows"),
            xs(&settings.loads),
            arms.iter().map(own).collect(),
        ));
        let published = |name: &str, of: fn(&published::Epoch) -> f64| {
            let at = |&load: &u32| published_growth(&PUBLISHED_LOADS, &model.name, load, of);
            Series::new(name, PUBLISHED_LOADS.iter().map(at).collect())
        };
        let published = vec![
            published("A, published", |epoch| epoch.trial_a_s),
            published("B, published", |epoch| epoch.trial_b_s),
        ];
        if published[0].values.iter().any(Option::is_some) {
            plots.push((
                format!("{file}-published"),
                format!("{name}, published: how an epoch grows"),
                xs(&PUBLISHED_LOADS),
                published,
            ));
        }
    }
    let all: Vec<Series> = plots.iter().flat_map(|plot| plot.3.clone()).collect();
    let low = settings.loads.iter().min().copied().unwrap_or(0);
    for (file, title, xs, series) in plots {
        let of = if file.ends_with("-published") { PUBLISHED_LOADS[0] } else { low };
        let svg = lines(&title, "x", "load", &xs, &series, extent(&all));
        report.plot(file, format!("{title} (times trial A at load {of})"), svg);
    }
}

/// Plot of the reduction against the first way to augment, with the published reduction.
fn improvements(
    report: &mut Report,
    settings: &AugmentLoadSettings,
    models: &[Model],
    (first, others): (Arm, &[Arm]),
    seconds: &Measured,
) {
    let of_model = |(number, model): (usize, &Model)| -> Vec<Series> {
        let own = |&arm: &Arm| {
            let at = |&load: &u32| seconds.saved(number, load, arm);
            Series::new(arm.name(), settings.loads.iter().map(at).collect())
        };
        let published = |&load: &u32| {
            let epoch = published::seconds(&model.name, load)?;
            improvement(Some(epoch.trial_a_s), Some(epoch.trial_b_s))
        };
        let published = Series::new("B against A, published", settings.loads.iter().map(published).collect());
        let all = others.iter().map(own).chain([published]);
        all.filter(|series| series.values.iter().any(Option::is_some)).collect()
    };
    let plots: Vec<Vec<Series>> = models.iter().enumerate().map(of_model).collect();
    let scale = extent(&plots.concat());
    let xs: Vec<f64> = settings.loads.iter().map(|&load| f64::from(load)).collect();
    for (model, series) in models.iter().zip(&plots).filter(|plot| !plot.1.is_empty()) {
        let title = format!("{}: time saved against {}", title(model), first.name());
        let svg = lines(&title, "%", "load", &xs, series, scale);
        report.plot(format!("improvement-{}", file_name(&model.name)), title, svg);
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
        if let Some(usage) = case.usage.last().filter(|usage| usage.rows().iter().any(|(_, values)| !values.is_empty()))
        {
            let svg = heat_map(&format!("Utilization: {name}"), &usage.rows(), usage.interval_s, sampled_s);
            report.plot(format!("utilization-{file}"), format!("Every core and GPU over time: {name}"), svg);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_shares_its_scale_with_those_that_do_not_dwarf_it() {
        let highs = [0.8, 1.1, 2.6, 24.0];
        assert_eq!(highs.map(|own| comparable(&highs, own)), [2.6, 2.6, 2.6, 24.0]);
        assert_eq!(comparable(&[], 3.0), 3.0);
    }
}
