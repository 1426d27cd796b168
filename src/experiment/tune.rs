//! Finds the smallest configuration that keeps a training step busy, and how many cores the step needs.

use super::configurations::{Configuration, Settings, measure_all};
use super::cores::{self, CoreRates, Machine};
use super::report::Report;
use super::subject::{Model, Subject};
use crate::error::Result;

/// Shares of the report's level: one for the configurations, one for the speed of a core.
const SHARES: usize = 2;

/// Measures every configuration against a model's training step, and the speed of a core with other loads, with packed
/// and cached images, and with decoding on the GPU. `progress` is called for each measurement.
///
/// # Errors
/// The errors of [`configurations`](super::configurations::configurations).
pub fn tune(
    subject: &Subject,
    settings: &Settings,
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
    let of_cores = of_step.map(|of_step| rates.answer(of_step, machine)).unwrap_or_default();
    let options = smallest.map(|found| [format!("Options: {}", found.options()), format!("Code: {}", found.code())]);
    of_cores.into_iter().chain(options.into_iter().flatten())
}
