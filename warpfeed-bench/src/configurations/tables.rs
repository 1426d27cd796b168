//! The tables and plots of configurations.

use super::{Case, Results};
use crate::cores::Machine;
use crate::published::{BASELINE_EPOCHS, TIMES_THE_BASELINE, WORKER_CORES};
use crate::report::plot::{Axes, Bar, Limit, histogram, timeline};
use crate::report::{Cell, Columns, Report, ReportTable};
use crate::spread::Spread;
use crate::subject::no_gpu;
use crate::train::LANES;
use crate::utilization;

/// Number of bars in the plot: the best configurations.
const SHOWN: usize = 12;

/// Fewest waits in a histogram; of fewer, percentiles say as much.
const FEWEST_WAITS: usize = 10;

impl Results {
    pub(super) fn tables(&self, machine: Machine, of_step: Option<f64>) -> Vec<ReportTable> {
        let usage = self.cases.iter().map(|case| (vec![case.name().into()], &case.usage[..]));
        let against = self.baseline().map(|_| times_table(self.against(), self.ceiling(of_step)));
        let last = [worker_cores(machine), utilization::table(&["configuration"], usage)];
        [self.ranked()].into_iter().chain(against).chain(last).collect()
    }

    fn ranked(&self) -> ReportTable {
        let yes_or_no = |value| Cell::from(if value { "yes" } else { "no" });
        let verdict = |configuration| match self.ranking.verdict(configuration) {
            Some(verdict) => Cell::from(verdict.words("slower", "faster")),
            None => Cell::Blank,
        };
        let gpu = self.best().key.configuration.pinned.is_none().then(|| {
            let reason = no_gpu().unwrap_or_else(|| "the operations run on the CPU".to_owned());
            format!("pinned: nothing is copied to a GPU ({reason}).")
        });
        let not_measured = "times the baseline: it was not measured (warpfeed bench configurations does).";
        let baseline = self.baseline().is_none().then(|| not_measured.to_owned());
        Columns::new()
            .count("threads", |case: &&Case| case.key.configuration.threads)
            .count("prefetch", |case| case.key.configuration.prefetch)
            .cell("persistent", move |case| yes_or_no(case.key.configuration.persistent))
            .cell("pinned", move |case| case.key.configuration.pinned.map_or(Cell::Blank, yes_or_no))
            .spread("images/s", 0, |case| case.images_per_s())
            .cell("against the fastest", move |case| verdict(case.key.configuration))
            .number("times the baseline", 2, |case| self.times(case.rate()))
            .number("accelerator use, %", 1, |case| 100.0 * case.accelerator_use().unwrap_or(0.0))
            .number("set-up, s", 3, |case| Spread::median_of(&case.setup_s()))
            .count("epochs", |case| case.runs.iter().map(|run| run.epochs.len()).sum())
            .waits(|case| case.wait_percentiles())
            .table("ranking", "Configurations, the fastest first", &self.cases)
            .blank(baseline.into_iter().chain(gpu))
    }

    /// Speed relative to the baseline, measured and published, by the same measure.
    fn against(&self) -> Vec<(String, f64)> {
        let own = [self.smallest().map(|case| ("recommended", case)), Some(("fastest measured", self.best()))];
        let times = |(name, case): (&str, &Case)| Some((format!("{name}: {}", case.name()), self.times(case.rate())?));
        let published = TIMES_THE_BASELINE.map(|(name, times)| (name.to_owned(), times));
        own.into_iter().flatten().filter_map(times).chain(published).collect()
    }

    /// The step's speed relative to the baseline: no configuration can be faster.
    fn ceiling(&self, of_step: Option<f64>) -> Option<f64> {
        self.times(of_step?)
    }

    pub(super) fn plots(&self, report: &mut Report, of_step: Option<f64>) {
        let chosen = self.shown();
        let bar = |case: &Case| Bar {
            name: case.name().replace("built anew", "anew"),
            value: case.rate(),
            interval: case.images_per_s().map(|rate| (rate.low, rate.high)),
            marked: case.key.configuration == chosen.key.configuration,
        };
        let shown: Vec<Bar> = self.cases.iter().take(SHOWN).map(bar).collect();
        let caption = format!("Images per second, the best {} of {}", shown.len(), self.cases.len());
        let marked = if self.smallest().is_some() { "recommended" } else { "fastest measured" };
        report.plot(
            "ranking",
            caption.clone(),
            Axes::new(&format!("{caption}; the {marked} in blue"), "images/s").bars(&shown),
        );
        if self.baseline().is_some() {
            let bar = |(name, value)| Bar { name, value, interval: None, marked: false };
            let ceiling = self.ceiling(of_step);
            let ceiling = ceiling.map(|value| Limit { name: "ceiling, the step alone".to_owned(), value });
            let caption = "Times as fast as the baseline; published in orange";
            let all: Vec<Bar> = self.against().into_iter().map(bar).collect();
            report.plot("times-the-baseline", caption, Axes::new(caption, "x").limits(ceiling.as_slice()).bars(&all));
        }
        // The chosen configuration and the baseline, over the same time.
        let first = |case: &Case| case.runs.first().map_or_else(Vec::new, |run| run.stretches());
        let compared: Vec<&Case> = [Some(chosen), self.baseline()].into_iter().flatten().collect();
        let ends = compared.iter().flat_map(|case| first(case)).map(|stretch| stretch.end_s);
        let until_s = ends.fold(0.0, f64::max);
        for case in compared {
            let name = case.name();
            let file = if case.key.configuration.is_baseline() { "timeline-baseline" } else { "timeline" };
            let svg = timeline(&format!("Batches: {name}"), &LANES, &first(case), until_s);
            report.plot(file, format!("Set-up, fetch and train of each batch: {name}"), svg);
        }
        let (name, waits) = (chosen.name(), chosen.waits());
        if waits.len() >= FEWEST_WAITS {
            let svg = histogram(&format!("Waits: {name}"), &waits);
            report.plot("waits", format!("How long the trainer waited for each batch: {name}"), svg);
        }
    }
}

fn times_table(own: Vec<(String, f64)>, ceiling: Option<f64>) -> ReportTable {
    let of_step = ceiling.map(|times| ("ceiling: the step alone".to_owned(), times));
    let title = "How many times as fast as the baseline: no worker, no prefetch, everything built anew";
    Columns::new()
        .text("configuration", |row: &(String, f64)| row.0.clone())
        .number("times the baseline", 2, |row| row.1)
        .number(format!("epochs in the time of {BASELINE_EPOCHS:.0} of the baseline"), 1, |row| BASELINE_EPOCHS * row.1)
        .table("times-the-baseline", title, own.into_iter().chain(of_step))
        .blank(ceiling.is_none().then(|| "the ceiling: the step takes no time (see --step).".to_owned()))
}

/// Table of the cores that are left to workers, as published and by the rule of
/// [`worker_counts`](super::worker_counts).
fn worker_cores(here: Machine) -> ReportTable {
    let published = WORKER_CORES.map(|(cores, gpus, fewest, most)| {
        let cell = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
        ("published", Machine { cores, gpus }, Cell::from(cell))
    });
    Columns::new()
        .text("machine", |row: &(&str, Machine, Cell)| row.0)
        .count("cores", |row| row.1.cores)
        .count("GPUs", |row| row.1.gpus)
        .cell("published: cores for workers", |row| row.2.clone())
        .count("here: cores for workers", |row| row.1.for_images())
        .table(
            "cores-for-workers",
            "Cores for workers, without those of the trainers",
            published.into_iter().chain([("this one", here, Cell::Blank)]),
        )
        .blank(["nothing was published about this machine.".to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_have_rows() {
        let text = times_table(vec![("published, the author's".to_owned(), 35.0)], Some(1.44)).text();
        assert!(text.contains("35.00") && text.contains("140.0") && text.contains("ceiling: the step alone"), "{text}");
        let rows: Vec<String> = (worker_cores(Machine { cores: 2, gpus: 0 }).rows.iter())
            .map(|row| row.iter().map(Cell::text).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(rows, ["published 20 1 18 18", "published 160 8 144 to 152 144", "this one 2 0  2"]);
    }
}
