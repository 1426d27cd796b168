//! Compares the speed of loaders, by cores, with that of training steps.

mod costs;
mod limited;
mod peers;

use super::environment::Environment;
use super::grid::in_rounds;
use super::report::comparison::Comparison;
use super::report::plot::{Axes, Limit, Series};
use super::report::{Columns, Report, ReportTable};
use super::spread::{Spread, with_rounds};
use super::subject::{Model, Subject};
use super::train::{RunTimes, SteadyState, alone, skipped, step_alone};
use super::verdict::{above, level, note};
use costs::Costs;
use limited::on_cores;
use peers::Measured;
use serde_json::json;
use std::time::Duration;
use warpfeed::ops::Transform;
use warpfeed::{PipelineBuilder, Result, Strategy};

/// Epochs of a measurement: the first, two that record entry points, and one that uses them.
pub const EPOCHS: u64 = 4;
/// The first epoch that is of the later ones.
const LATER: usize = 2;

/// Name of warpfeed's curve for epochs from the third on.
const OWN_LATER: &str = "warpfeed, later epochs";
/// Name of warpfeed's curve for the first epoch.
const OWN_FIRST: &str = "warpfeed, first epoch";

/// Settings of the experiment.
#[derive(Debug, Clone)]
pub struct SupplySettings {
    /// Numbers of cores, with a worker thread for each.
    pub cores: Vec<usize>,
    /// Images in a batch.
    pub batch_size: usize,
    /// The operations.
    pub ops: Vec<Transform>,
    /// Strategy by which they are run.
    pub strategy: Strategy,
    /// Measurements for each number of cores, in turn with the others.
    pub rounds: u32,
    /// Time in which each training step is measured.
    pub step_time: Duration,
    /// Price of a core and of a GPU for an hour, in any currency.
    pub prices: Option<(f64, f64)>,
}

/// The images per second that a loader made with each number of cores, in each round.
#[derive(Debug, Clone, PartialEq)]
struct Curve {
    name: String,
    /// One list for each number of cores; empty where it was not measured.
    rates: Vec<Vec<f64>>,
}

/// A training step by the images per second that it takes.
struct Demand {
    name: String,
    images_per_s: f64,
}

/// Measures warpfeed with each number of cores, and each model's training step. `progress` is called for each
/// measurement. On Linux the threads may run on that many processors only.
///
/// # Errors
/// [`Error::Parameter`](warpfeed::Error::Parameter) for a subject without usable images or no number of cores; errors
/// of pipelines and steps.
pub fn supply(
    subject: &Subject,
    settings: &SupplySettings,
    models: &mut [Model],
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    let mut report = subject.report("supply", QUESTION)?;
    let mut cases: Vec<(usize, Vec<RunTimes>)> = settings.cores.iter().map(|&cores| (cores, Vec::new())).collect();
    in_rounds(&mut cases, (settings.rounds, subject.seed), progress, |(cores, runs), _| {
        let run = on_cores(*cores, || measure(subject, settings, *cores))?;
        let rate = later_epochs(&run).unwrap_or(0.0);
        runs.push(run);
        Ok(format!("{cores} cores: {rate:.0} images/s"))
    })?;
    let curve = |name: &str, of: fn(&RunTimes) -> Option<f64>| Curve {
        name: name.to_owned(),
        rates: cases.iter().map(|(_, runs)| runs.iter().filter_map(of).collect()).collect(),
    };
    let curves = [curve(OWN_LATER, later_epochs), curve(OWN_FIRST, first_epoch)];
    let demands = demands(subject, settings, models, progress)?;
    report.measured();
    report.settings = json!({
        "transforms": settings.ops, "strategy": settings.strategy, "batch_size": settings.batch_size,
        "cores": settings.cores, "rounds": settings.rounds, "epochs": EPOCHS, "seed": subject.seed,
    });
    report.notes.extend(skipped(cases.iter().flat_map(|(_, runs)| runs)));
    Ok(fill(report, settings, subject.len(), &curves, &demands))
}

/// The report on warpfeed and other loaders, of the rounds that `benches/peers/run --supply` wrote, for models whose
/// training steps are measured on `subject`. Numbers of cores and rounds are the file's; of `settings` it takes those
/// of the steps, and the prices.
///
/// # Errors
/// [`Error::Parameter`](warpfeed::Error::Parameter) if `rounds` is no such file; errors of the steps.
pub fn supply_beside_peers(
    rounds: &str,
    subject: &Subject,
    settings: &SupplySettings,
    models: &mut [Model],
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    let measured = Measured::parse(rounds)?;
    let mut report = subject.report("supply", QUESTION)?;
    let demands = demands(subject, settings, models, progress)?;
    let curves = measured.curves();
    report.measured();
    report.notes.push(measured.machine.versions());
    let here = std::mem::replace(&mut report.environment, measured.machine.environment());
    if !is_same_machine(&here, &report.environment) {
        report
            .notes
            .push(format!("The training steps were measured on another machine: {}, {} cores.", here.cpu, here.cores));
    }
    let settings = SupplySettings { cores: measured.cores(), rounds: measured.rounds(), ..settings.clone() };
    report.settings = measured.settings;
    Ok(fill(report, &settings, subject.len(), &curves, &demands))
}

fn is_same_machine(one: &Environment, other: &Environment) -> bool {
    (&one.cpu, one.cores, one.memory_bytes) == (&other.cpu, other.cores, other.memory_bytes)
}

const QUESTION: &str = "How many cores does a GPU need, and how long does it wait with fewer?";

/// Images per second of the first epoch.
fn first_epoch(run: &RunTimes) -> Option<f64> {
    SteadyState::of(&run.epochs[..run.epochs.len().min(1)]).map(|steady| steady.images_per_s)
}

/// Images per second from the third epoch on.
fn later_epochs(run: &RunTimes) -> Option<f64> {
    SteadyState::of(run.epochs.get(LATER..)?).map(|steady| steady.images_per_s)
}

fn builder(subject: &Subject, settings: &SupplySettings) -> PipelineBuilder {
    let builder = subject.builder().batch_size(settings.batch_size).strategy(settings.strategy);
    settings.ops.iter().cloned().fold(builder, PipelineBuilder::transform)
}

/// Runs [`EPOCHS`] epochs without a training step.
fn measure(subject: &Subject, settings: &SupplySettings, cores: usize) -> Result<RunTimes> {
    let pipeline = builder(subject, settings).threads(cores).build()?;
    alone(|run| (0..EPOCHS).try_for_each(|epoch| run.epoch(&pipeline, epoch, None)))
}

fn demands(
    subject: &Subject,
    settings: &SupplySettings,
    models: &mut [Model],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Demand>> {
    let mut demands = Vec::new();
    for model in models {
        let images_per_s = step_alone(builder(subject, settings), settings.step_time, model.step.as_mut())?;
        if images_per_s.is_finite() {
            progress(&format!("{} alone: {images_per_s:.0} images/s", model.name));
            demands.push(Demand { name: model.name.clone(), images_per_s });
        }
    }
    demands.sort_by(|a, b| a.images_per_s.total_cmp(&b.images_per_s));
    Ok(demands)
}

/// Share of its time that a step waits for a loader of this rate.
fn waits(rate: f64, demand: f64) -> f64 {
    (1.0 - rate / demand).max(0.0)
}

/// Makes the sentences, tables and plots. `images`: those of an epoch.
fn fill(
    mut report: Report,
    settings: &SupplySettings,
    images: Option<u64>,
    curves: &[Curve],
    demands: &[Demand],
) -> Report {
    let SupplySettings { cores, .. } = settings;
    let mut rows = Vec::new();
    for demand in demands {
        let (said, needs) = answer(cores, curves, demand, demands.len());
        report.answer.push(said);
        rows.extend(needs);
    }
    report.compare(rows);
    report.tables.push(supply_table(cores, curves, demands));
    if let (Some((core, gpu)), Some(images)) = (settings.prices, images) {
        let costs = Costs { core, gpu, images };
        report.answer.extend(demands.iter().filter_map(|demand| costs.answer(cores, curves, demand)));
        report.tables.push(costs.table(cores, curves, demands));
    }
    let xs: Vec<f64> = cores.iter().map(|&cores| cores as f64).collect();
    let series = |of: &dyn Fn(Spread) -> Spread| -> Vec<Series> {
        let spreads = |curve: &Curve| curve.rates.iter().map(|rates| Spread::of(rates).map(of)).collect::<Vec<_>>();
        curves.iter().map(|curve| Series::spread(curve.name.clone(), &spreads(curve))).collect()
    };
    let limit = |demand: &Demand| Limit { name: demand.name.clone(), value: demand.images_per_s };
    let limits: Vec<Limit> = demands.iter().map(limit).collect();
    let caption = "Images per second that loaders make, and that training steps take";
    let plot = Axes::new(caption, "images/s").of("cores").limits(&limits).lines(&xs, &series(&|rate| rate));
    report.plot("supply", caption, plot);
    for demand in demands {
        let waiting = |rate: Spread| {
            let share = |rate| 100.0 * waits(rate, demand.images_per_s);
            Spread { median: share(rate.median), low: share(rate.high), high: share(rate.low), rounds: rate.rounds }
        };
        let caption = format!("{}: share of the time that the accelerator waits", demand.name);
        let plot = Axes::new(&caption, "%").of("cores").at_least((0.0, 100.0)).lines(&xs, &series(&waiting));
        report.plot(format!("waits-{}", demand.name), caption, plot);
    }
    report.leading_plots = 1;
    report.notes.extend([
        "With a number of cores, a loader's process may use that many processors, and has that many worker threads. Later \
         epochs are those from the third on, in which warpfeed knows where decoding can start."
            .to_owned(),
        "The accelerator's waits follow from the two rates. The step's rate was measured with every batch ready. The step \
         itself takes no core in this figure."
            .to_owned(),
        note(settings.rounds),
    ]);
    report.figures = json!({
        "cores": cores,
        "loaders": curves.iter().map(|curve| json!({
            "name": curve.name, "images_per_s": curve.rates.iter().map(|rates| with_rounds(rates)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "steps": demands.iter().map(|demand| json!({
            "name": demand.name, "images_per_s": demand.images_per_s,
        })).collect::<Vec<_>>(),
    });
    report
}

/// Sentence about the cores that the first loader needs for a step, and the needs of all.
fn answer(cores: &[usize], curves: &[Curve], demand: &Demand, demands: usize) -> (String, Vec<Comparison>) {
    let level = level(cores.len() * curves.len() * demands);
    let need = |curve: &Curve| {
        let told = |rates: &Vec<f64>| if rates.is_empty() { None } else { above(rates, demand.images_per_s, level) };
        let verdicts: Vec<Option<bool>> = curve.rates.iter().map(told).collect();
        let most = cores.last().copied().unwrap_or_default();
        match verdicts.iter().position(|enough| *enough == Some(true)) {
            Some(0) => format!("{} enough", is_of(cores[0])),
            Some(i) if verdicts[i - 1] == Some(false) => {
                format!("{} enough, {} not", is_of(cores[i]), is_of(cores[i - 1]))
            }
            Some(i) => format!("{} enough; the rounds cannot tell for {}", is_of(cores[i]), cores[i - 1]),
            None if verdicts.last() == Some(&Some(false)) => format!("{} too few", is_of(most)),
            None => format!("the rounds cannot tell whether {} enough", is_of(most)),
        }
    };
    let reason = |curve: &Curve| {
        let waits = |rates: &Vec<f64>| 100.0 * waits(Spread::median_of(rates).unwrap_or(0.0), demand.images_per_s);
        let most = cores.last().map(|&cores| of_cores(cores)).unwrap_or_default();
        curve
            .rates
            .last()
            .map(|rates| format!("with {most} it waits {:.0} % of the time", waits(rates)))
            .unwrap_or_default()
    };
    let row = |curve: &Curve| {
        Comparison::new(format!("{}, {}", demand.name, curve.name), "").here(need(curve)).reason(reason(curve))
    };
    let said = curves.first().map(|curve| format!(" With {}, {}.", curve.name, need(curve))).unwrap_or_default();
    (format!("{} takes {:.0} images/s.{said}", demand.name, demand.images_per_s), curves.iter().map(row).collect())
}

fn of_cores(cores: usize) -> String {
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

fn is_of(cores: usize) -> String {
    format!("{} {}", of_cores(cores), if cores == 1 { "is" } else { "are" })
}

fn supply_table(cores: &[usize], curves: &[Curve], demands: &[Demand]) -> ReportTable {
    type Row<'a> = (&'a str, usize, Spread);
    let of_curve = |curve: &'_ Curve| -> Vec<(usize, Spread)> {
        curve.rates.iter().zip(cores).filter_map(|(rates, &cores)| Some((cores, Spread::of(rates)?))).collect()
    };
    let rows =
        curves.iter().flat_map(|curve| of_curve(curve).into_iter().map(|(cores, rate)| (&*curve.name, cores, rate)));
    Columns::new()
        .text("loader", |row: &Row<'_>| row.0)
        .count("cores", |row| row.1)
        .spread("images/s", 0, |row| Some(row.2))
        .each(demands, |columns, demand| {
            let waits = |row: &Row<'_>| 100.0 * waits(row.2.median, demand.images_per_s);
            columns.number(format!("{} waits, %", demand.name), 0, waits)
        })
        .table("supply", "Images per second by cores", rows)
}

#[cfg(test)]
mod tests {
    use super::super::report::Cell;
    use super::super::verdict::simulated::{QUIET, rates};
    use super::costs::price;
    use super::*;

    fn settings(cores: &[usize], prices: Option<(f64, f64)>) -> SupplySettings {
        SupplySettings {
            cores: cores.to_vec(),
            batch_size: 32,
            ops: Vec::new(),
            strategy: Strategy::Fused,
            rounds: 16,
            step_time: Duration::ZERO,
            prices,
        }
    }

    fn curve(name: &str, number: u64, medians: &[f64]) -> Curve {
        Curve { name: name.to_owned(), rates: rates(number, medians, 16, QUIET) }
    }

    fn demand(name: &str, images_per_s: f64) -> Demand {
        Demand { name: name.to_owned(), images_per_s }
    }

    fn report(prices: Option<(f64, f64)>) -> Report {
        let curves = [curve("own", 1, &[1_000.0, 2_000.0, 4_000.0]), curve("other", 2, &[200.0, 390.0, 700.0])];
        let demands = [demand("resnet50", 201.0), demand("resnet18", 444.0), demand("fast", 3_000.0)];
        let report = Report::new("supply", QUESTION, Environment::here());
        fill(report, &settings(&[1, 2, 4], prices), Some(3_600_000), &curves, &demands)
    }

    #[test]
    fn a_step_is_told_what_feeds_it() {
        let report = report(None);
        assert_eq!(report.answer.len(), 3);
        assert_eq!(report.answer[1], "resnet18 takes 444 images/s. With own, 1 core is enough.");
        let result = report.result.as_ref().unwrap();
        let needs: Vec<(String, String)> = result.rows.iter().map(|row| (row[0].text(), row[2].text())).collect();
        let want = [
            ("resnet50, own", "1 core is enough"),
            ("resnet50, other", "2 cores are enough; the rounds cannot tell for 1"),
            ("resnet18, own", "1 core is enough"),
            ("resnet18, other", "4 cores are enough, 2 cores are not"),
            ("fast, own", "4 cores are enough, 2 cores are not"),
            ("fast, other", "4 cores are too few"),
        ];
        assert_eq!(needs, want.map(|(case, need)| (case.to_owned(), need.to_owned())));
        assert!(result.rows[5][5].text().starts_with("with 4 cores it waits 7"), "{result:?}");
        let row: Vec<String> = report.tables[0].rows[4].iter().map(Cell::text).collect();
        assert_eq!((row[0].as_str(), row[1].as_str(), row.len()), ("other", "2", 8));
        let names: Vec<&str> = report.plots.iter().map(|plot| plot.name.as_str()).collect();
        assert_eq!(names, ["supply", "waits-resnet50", "waits-resnet18", "waits-fast"]);
        assert!(
            report.plots[0].svg.contains("stroke-dasharray") && report.plots[0].svg.contains("fast: 3000 images/s")
        );
    }

    /// Equal rates are never told apart from the step's, in 99 of 100 reports.
    #[test]
    fn rates_equal_to_the_step_are_not_told_from_it() {
        let told = |number: &u64| {
            let said = answer(&[1], &[curve("own", *number, &[444.0])], &demand("resnet18", 444.0), 1).0;
            !said.contains("cannot tell")
        };
        let told = (0..1_000).filter(told).count();
        assert!(told <= 10, "{told} of 1,000 reports");
    }

    #[test]
    fn an_epoch_costs_its_time() {
        let report = report(Some((0.05, 2.0)));
        // 3.6 million images at 444 images/s are 2.252 hours.
        assert!(report.answer[4].contains("least on 1 core with own: 4.6"), "{:?}", report.answer);
        let table = report.tables.iter().find(|table| table.name == "cost").unwrap();
        assert_eq!(table.rows.len(), 3 * 6);
        assert_eq!([price(0.0123), price(1.5), price(0.0)], ["0.012", "1.50", "0.00"]);
    }
}
