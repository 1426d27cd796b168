//! The plots of workers.

use super::{Case, Results, count};
use crate::report::Report;
use crate::report::plot::{Axes, Limit, Series, heat_map};
use crate::train::RunTimes;
use crate::usage::{Usage, means};

impl Results<'_> {
    pub(super) fn plots(&self, report: &mut Report) {
        let workers = &self.settings.workers;
        let groups: Vec<String> = workers.iter().map(usize::to_string).collect();
        let series = |(stored, batch_size)| {
            let seconds = |&workers: &usize| self.case(stored, batch_size, workers)?.seconds();
            let values: Vec<_> = workers.iter().map(seconds).collect();
            Series::spread(format!("{}batch {batch_size}", self.prefix(stored)), &values)
        };
        let series: Vec<Series> = self.groups().into_iter().map(series).filter(Series::has_values).collect();
        let of_step = |case: &Case| Some(case.seconds()?.median * case.images_per_s()?.median / case.of_step()?);
        let least = self.cases.iter().filter_map(of_step).min_by(f64::total_cmp);
        let least = least.map(|value| Limit { name: "at least, the step alone".to_owned(), value });
        let title = "Seconds per epoch, without set-up";
        let svg = Axes::new(title, "s").of("workers").limits(least.as_slice()).grouped_bars(&groups, &series);
        report.plot("seconds-per-epoch", "Seconds per epoch for each number of workers and batch size", svg);
        type Of = fn(&Usage, &RunTimes) -> Vec<f32>;
        let all: [(&str, &str, Of); 3] = [
            ("cores", "Processors", |usage, _| floats(&means(&usage.cores))),
            ("gpu", "GPU", |usage, _| floats(&means(&usage.gpus))),
            ("step", "Training step", |usage, run| match run.images_per_s_of_step() {
                Some(_) => run.step_shares(usage.interval_s, usage.process.len()),
                None => Vec::new(),
            }),
        ];
        for (file, what, of) in all {
            self.over_time(report, file, what, of);
        }
    }

    /// Plot of a share of the last round's time, for the subject's own images in the smallest batches, whose runs have
    /// the most samples.
    fn over_time(&self, report: &mut Report, file: &str, what: &str, of: fn(&Usage, &RunTimes) -> Vec<f32>) {
        let own = || self.ran().filter(|case| case.key.stored == 0);
        let Some(batch_size) = own().map(|case| case.key.batch_size).min() else { return };
        let last = |case: &Case| {
            let usage = case.usage.last()?;
            Some((case.key.workers, usage.interval_s, of(usage, case.runs.last()?)))
        };
        let rows = own().filter(|case| case.key.batch_size == batch_size).filter_map(last);
        let rows: Vec<(usize, f64, Vec<f32>)> = rows.filter(|(.., row)| !row.is_empty()).collect();
        let interval_s = rows.iter().map(|row| row.1).fold(0.0, f64::max);
        let rows: Vec<(String, Vec<f32>)> =
            rows.iter().map(|(workers, own_s, row)| (count(*workers), merged(row, interval_s / own_s))).collect();
        let rows: Vec<(String, &[f32])> = rows.iter().map(|(name, row)| (name.clone(), &row[..])).collect();
        if !rows.is_empty() {
            let title = format!("{what} over time, by number of workers; batches of {batch_size}");
            report.plot(format!("{file}-over-time"), title.clone(), heat_map(&title, &rows, interval_s, 0.0));
        }
    }
}

fn floats(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

/// Averages `neighbors` neighboring values.
fn merged(row: &[f32], neighbors: f64) -> Vec<f32> {
    let mean = |chunk: &[f32]| chunk.iter().sum::<f32>() / chunk.len() as f32;
    row.chunks((neighbors.round() as usize).max(1)).map(mean).collect()
}
