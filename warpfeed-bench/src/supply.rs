//! Supply and demand: the images per second that loaders make with so many cores, beside those that training steps
//! take. Where a curve passes a step's line, the accelerator no longer waits.

use super::environment::Environment;
use super::peers::Machine;
use super::report::plot::{Limit, OWN, Series, lines, lines_with_limits};
use super::report::{Cell, Report, ReportTable};
use super::spread::{Spread, turns, with_rounds};
use super::subject::{Model, Subject};
use super::train::{RunTimes, SteadyState, TrainingRun, skipped, step_alone};
use super::verdict::{above, level, note};
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use warpfeed::ops::Transform;
use warpfeed::{Error, PipelineBuilder, Result, Strategy};

/// Epochs of a measurement: the first, two that record entry points, and one that uses them.
pub const EPOCHS: u64 = 4;
/// The first epoch that is of the later ones.
const LATER: u64 = 2;

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

/// Measures warpfeed with each number of cores and each model's training step, and sets them beside each other.
/// `progress` is called for each measurement. On Linux the threads may run on so many processors only.
///
/// # Errors
/// [`Error::Parameter`] for a subject without usable images or no number of cores; errors of pipelines and steps.
pub fn supply(
    subject: &Subject,
    settings: &SupplySettings,
    models: &mut [Model],
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    let mut report = subject.report("supply", QUESTION)?;
    let (mut first, mut later) = (rounds(settings), rounds(settings));
    let turns = turns(settings.cores.len(), settings.rounds, subject.seed);
    let all = turns.len();
    let mut runs = Vec::new();
    for (done, (_, number)) in turns.into_iter().enumerate() {
        let cores = settings.cores[number];
        let run = on_cores(cores, || measure(subject, settings, cores))?;
        let of = |epochs| SteadyState::of(epochs).map(|steady| steady.images_per_s);
        let (before, after) = run.epochs.split_at(run.epochs.len().min(LATER as usize));
        first[number].extend(of(&before[..before.len().min(1)]));
        later[number].extend(of(after));
        let rate = later[number].last().map_or(0.0, |rate| *rate);
        progress(&format!("{}/{all} {cores} cores: {rate:.0} images/s", done + 1));
        runs.push(run);
    }
    let curves =
        [Curve { name: OWN_LATER.to_owned(), rates: later }, Curve { name: OWN_FIRST.to_owned(), rates: first }];
    let demands = demands(subject, settings, models, progress)?;
    report.measured();
    report.settings = json!({
        "transforms": settings.ops, "strategy": settings.strategy, "batch_size": settings.batch_size,
        "cores": settings.cores, "rounds": settings.rounds, "epochs": EPOCHS, "seed": subject.seed,
    });
    report.notes.extend(skipped(runs.iter()));
    Ok(fill(report, settings, subject.len(), &curves, &demands))
}

/// The report on warpfeed and other loaders, of the rounds that `benches/peers/run --supply` wrote, for models whose
/// training steps are measured on `subject`. Numbers of cores and rounds are the file's; of `settings` it takes those
/// of the steps, and the prices.
///
/// # Errors
/// [`Error::Parameter`] if `rounds` is no such file; errors of the steps.
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

/// The fields of the peers' file that are used.
#[derive(Deserialize)]
struct Measured {
    machine: Machine,
    settings: serde_json::Value,
    supply: Vec<Round>,
}

#[derive(Deserialize)]
struct Round {
    contender: String,
    cores: usize,
    round: u32,
    images_per_s: f64,
}

impl Measured {
    fn parse(json: &str) -> Result<Self> {
        let wrong =
            |got: String| Error::parameter("supply", "file", "what benches/peers/run --supply --out wrote", got);
        let measured: Self = serde_json::from_str(json).map_err(|error| wrong(error.to_string()))?;
        if measured.supply.is_empty() {
            return Err(wrong("a file without rounds".to_owned()));
        }
        Ok(measured)
    }

    /// The numbers of cores that were measured, in ascending order.
    fn cores(&self) -> Vec<usize> {
        self.supply.iter().map(|round| round.cores).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn rounds(&self) -> u32 {
        self.supply.iter().map(|round| round.round).max().unwrap_or(0)
    }

    /// The rounds by loader, warpfeed first.
    fn curves(&self) -> Vec<Curve> {
        let cores = self.cores();
        let mut by_name: BTreeMap<&str, Vec<Vec<f64>>> = BTreeMap::new();
        for round in &self.supply {
            let Some(place) = cores.iter().position(|&cores| cores == round.cores) else { continue };
            let rates = by_name.entry(&round.contender).or_insert_with(|| vec![Vec::new(); cores.len()]);
            rates[place].push(round.images_per_s);
        }
        const NAMES: [(&str, &str); 4] =
            [("warpfeed", OWN_LATER), ("warpfeed-first", OWN_FIRST), ("dali", "DALI"), ("torchvision", "torchvision")];
        let curve = |(key, name): (&str, &str)| Some(Curve { name: name.to_owned(), rates: by_name.remove(key)? });
        NAMES.into_iter().filter_map(curve).collect()
    }
}

fn rounds(settings: &SupplySettings) -> Vec<Vec<f64>> {
    vec![Vec::new(); settings.cores.len()]
}

fn builder(subject: &Subject, settings: &SupplySettings) -> PipelineBuilder {
    let builder = subject.builder().batch_size(settings.batch_size).strategy(settings.strategy);
    settings.ops.iter().cloned().fold(builder, PipelineBuilder::transform)
}

/// Runs [`EPOCHS`] epochs without a training step.
fn measure(subject: &Subject, settings: &SupplySettings, cores: usize) -> Result<RunTimes> {
    let pipeline = builder(subject, settings).threads(cores).build()?;
    let (mut none, mut ignore) = (Model::none(), |_: &_| Ok(()));
    let mut run = TrainingRun::start(none.step.as_mut(), &mut ignore);
    (0..EPOCHS).try_for_each(|epoch| run.epoch(&pipeline, epoch, None))?;
    Ok(run.finish())
}

/// Calls `measure` while this thread, and those that it starts, may run on the first `cores` of its processors only.
#[cfg(target_os = "linux")]
fn on_cores<T>(cores: usize, measure: impl FnOnce() -> Result<T>) -> Result<T> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    // A system that does not tell or allow this measures with so many threads on all processors.
    let Ok(all) = sched_getaffinity(None) else { return measure() };
    let mut some = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).take(cores).for_each(|cpu| some.set(cpu));
    let limited = sched_setaffinity(None, &some).is_ok();
    let measured = measure();
    if limited {
        let _ = sched_setaffinity(None, &all);
    }
    measured
}

#[cfg(not(target_os = "linux"))]
fn on_cores<T>(_cores: usize, measure: impl FnOnce() -> Result<T>) -> Result<T> {
    measure()
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
    report.answer = demands.iter().map(|demand| answer(cores, curves, demand, demands.len())).collect();
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
    let plot = lines_with_limits(caption, "images/s", "cores", &xs, &series(&|rate| rate), OWN, &limits);
    report.plot("supply", caption, plot);
    for demand in demands {
        let waiting = |rate: Spread| {
            let share = |rate| 100.0 * waits(rate, demand.images_per_s);
            Spread { median: share(rate.median), low: share(rate.high), high: share(rate.low), rounds: rate.rounds }
        };
        let caption = format!("{}: share of the time that the accelerator waits", demand.name);
        let plot = lines(&caption, "%", "cores", &xs, &series(&waiting), (0.0, 100.0));
        report.plot(format!("waits-{}", demand.name), caption, plot);
    }
    report.leading_plots = 1;
    report.notes.extend([
        "A number of cores is that of the processors that a loader's process may use, and of its worker threads. Later epochs \
         are those from the third on, in which warpfeed knows where decoding can start."
            .to_owned(),
        "The accelerator waits for the share of its time that the loader's rate lacks of the step's rate, which was measured \
         with every batch ready. The step itself takes no core in this figure."
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

/// Sentence about the cores that each loader needs for a step.
fn answer(cores: &[usize], curves: &[Curve], demand: &Demand, demands: usize) -> String {
    let level = level(cores.len() * curves.len() * demands);
    let of_curve = |curve: &Curve| {
        let told = |rates: &[f64]| if rates.is_empty() { None } else { above(rates, demand.images_per_s, level) };
        let verdicts: Vec<Option<bool>> = curve.rates.iter().map(|rates| told(rates)).collect();
        let most = cores.last().map_or_else(String::new, |&cores| of_cores(cores));
        let need = match verdicts.iter().position(|enough| *enough == Some(true)) {
            Some(0) => format!("{} enough", is_of(cores[0])),
            Some(i) if verdicts[i - 1] == Some(false) => format!("{} enough, {} not", is_of(cores[i]), cores[i - 1]),
            Some(i) => format!("{} enough, and for {} the rounds cannot tell", is_of(cores[i]), cores[i - 1]),
            None if verdicts.last() == Some(&Some(false)) => {
                let waits =
                    Spread::of(&curve.rates[cores.len() - 1]).map(|rate| waits(rate.median, demand.images_per_s));
                format!("{most} too few: it waits {:.0} % of the time", 100.0 * waits.unwrap_or(1.0))
            }
            None => format!("the rounds cannot tell whether {most} are enough"),
        };
        format!("{}: {need}", curve.name)
    };
    let needs: Vec<String> = curves.iter().map(of_curve).collect();
    format!("{} takes {:.0} images/s. {}.", demand.name, demand.images_per_s, needs.join("; "))
}

fn of_cores(cores: usize) -> String {
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

fn is_of(cores: usize) -> String {
    format!("{} {}", of_cores(cores), if cores == 1 { "is" } else { "are" })
}

fn supply_table(cores: &[usize], curves: &[Curve], demands: &[Demand]) -> ReportTable {
    let mut columns =
        vec!["loader".to_owned(), "cores".to_owned(), "images/s".to_owned(), "from".to_owned(), "to".to_owned()];
    columns.extend(demands.iter().map(|demand| format!("{} waits, %", demand.name)));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = ReportTable::new("supply", "Images per second by cores", &columns);
    for curve in curves {
        for (rates, &cores) in curve.rates.iter().zip(cores) {
            let Some(rate) = Spread::of(rates) else { continue };
            let figures = [Cell::number(cores as f64, 0), Cell::number(rate.median, 0), Cell::number(rate.low, 0)];
            let mut row: Vec<Cell> = std::iter::once(curve.name.as_str().into()).chain(figures).collect();
            row.push(Cell::number(rate.high, 0));
            row.extend(demands.iter().map(|demand| Cell::number(100.0 * waits(rate.median, demand.images_per_s), 0)));
            table.rows.push(row);
        }
    }
    table
}

/// Prices of a core and a GPU for an hour, and the images of an epoch.
#[derive(Clone, Copy)]
struct Costs {
    core: f64,
    gpu: f64,
    images: u64,
}

impl Costs {
    /// Seconds of an epoch, and its cost.
    fn of(self, cores: usize, rate: f64, demand: &Demand) -> (f64, f64) {
        let seconds = self.images as f64 / rate.min(demand.images_per_s);
        (seconds, seconds / 3_600.0 * (self.gpu + self.core * cores as f64))
    }

    /// Each loader with each number of cores, with the seconds and the cost of an epoch.
    fn all<'a>(
        self,
        cores: &'a [usize],
        curves: &'a [Curve],
        demand: &'a Demand,
    ) -> impl Iterator<Item = (&'a str, usize, f64, f64)> {
        let of_curve = move |curve: &'a Curve| {
            curve.rates.iter().zip(cores).filter_map(move |(rates, &cores)| {
                let (seconds, cost) = self.of(cores, Spread::of(rates)?.median, demand);
                Some((curve.name.as_str(), cores, seconds, cost))
            })
        };
        curves.iter().flat_map(of_curve)
    }

    fn answer(self, cores: &[usize], curves: &[Curve], demand: &Demand) -> Option<String> {
        let (name, cores, _, cost) = self.all(cores, curves, demand).min_by(|a, b| a.3.total_cmp(&b.3))?;
        let images = self.images;
        Some(format!(
            "{}: an epoch of {images} images costs least on {} with {name}: {}.",
            demand.name,
            of_cores(cores),
            price(cost)
        ))
    }

    fn table(self, cores: &[usize], curves: &[Curve], demands: &[Demand]) -> ReportTable {
        let title = format!(
            "Cost of an epoch of {} images, at {} a core and {} a GPU for an hour",
            self.images,
            price(self.core),
            price(self.gpu)
        );
        let mut table = ReportTable::new("cost", title, &["step", "loader", "cores", "s an epoch", "cost"]);
        for demand in demands {
            for (name, cores, seconds, cost) in self.all(cores, curves, demand) {
                let step = demand.name.as_str();
                let figures = [Cell::number(cores as f64, 0), Cell::number(seconds, 1), price(cost).as_str().into()];
                table.rows.push([step.into(), name.into()].into_iter().chain(figures).collect());
            }
        }
        table
    }
}

/// A price with two digits that count, in no currency.
fn price(price: f64) -> String {
    let decimals = if price > 0.0 { (1.0 - price.log10().floor()).clamp(2.0, 8.0) as usize } else { 2 };
    format!("{price:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::super::environment::Environment;
    use super::super::verdict::simulated::{QUIET, rates};
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
        let said = &report.answer[1];
        assert!(said.contains("own: 1 core is enough; other: 4 cores are enough, 2 not."), "{said}");
        let said = &report.answer[2];
        assert!(said.contains("own: 4 cores are enough, 2 not; other: 4 cores too few: it waits 7"), "{said}");
        assert!(
            report.answer[0].contains("other: 2 cores are enough, and for 1 the rounds cannot tell"),
            "{:?}",
            report.answer
        );
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
            let said = answer(&[1], &[curve("own", *number, &[444.0])], &demand("resnet18", 444.0), 1);
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

    #[test]
    fn rounds_of_peers_become_curves() {
        let machine = r#"{"date": "", "cpu": "", "cores": 8, "memory_bytes": 1, "system": "", "load_average_1min": 0.1,
            "versions": {"warpfeed": "0.1.0"}}"#;
        let file = |rounds: &str| format!(r#"{{"machine": {machine}, "settings": {{}}, "supply": [{rounds}]}}"#);
        let text = file(
            r#"{"contender": "dali", "cores": 2, "round": 1, "images_per_s": 20.0},
            {"contender": "warpfeed", "cores": 1, "round": 1, "images_per_s": 30.0},
            {"contender": "warpfeed", "cores": 1, "round": 2, "images_per_s": 31.0},
            {"contender": "warpfeed", "cores": 8, "round": 2, "images_per_s": 99.0}"#,
        );
        let measured = Measured::parse(&text).unwrap();
        assert_eq!((measured.cores(), measured.rounds()), (vec![1, 2, 8], 2));
        let want =
            [(OWN_LATER, vec![vec![30.0, 31.0], vec![], vec![99.0]]), ("DALI", vec![vec![], vec![20.0], vec![]])];
        let want = want.map(|(name, rates)| Curve { name: name.to_owned(), rates });
        assert_eq!(measured.curves(), want);
        assert!(Measured::parse(&file("")).is_err());
    }
}
