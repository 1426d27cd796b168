//! The tables of workers.

use super::{Case, Key, Results};
use crate::report::{Cell, Columns, ReportTable};
use crate::spread::Spread;
use crate::train::{EpochTimes, RunTimes};
use crate::utilization;

/// Reason for missing losses and accuracies.
const NOT_TRAINED: &str =
    "loss, accuracy: this step trains nothing. --step candle-cnn does (feature candle), on images as small as MNIST's.";

/// An epoch of a round of a case, with the numbers of case and round.
type GridRow<'a> = (usize, usize, &'a EpochTimes, &'a Key);

impl Results<'_> {
    /// All tables. The long ones of every epoch and of utilization come last.
    pub(super) fn tables(&self) -> Vec<ReportTable> {
        let names = |Key { stored, workers, batch_size, .. }: &Key| {
            vec![self.stored_cell(*stored), Cell::count(*workers), Cell::count(*batch_size)]
        };
        let usage = self.cases.iter().map(|case| (names(&case.key), &case.usage[..]));
        vec![
            self.summary(),
            self.gluon(),
            self.published_grid(),
            self.io(),
            self.grid(),
            self.each(),
            utilization::table(&["stored", "workers", "batch size"], usage),
        ]
    }

    /// Reasons why batches of the subject's own images were not run.
    pub(super) fn not_run(&self) -> Vec<String> {
        let reason = |case: &Case| {
            let reason = case.key.not_run.as_ref().filter(|_| case.key.stored == 0)?;
            Some(format!("batches of {}: {reason}.", case.key.batch_size))
        };
        let mut reasons: Vec<String> = self.cases.iter().filter_map(reason).collect();
        reasons.dedup();
        reasons
    }

    /// Table of the seconds per epoch, one row per number of workers.
    fn summary(&self) -> ReportTable {
        let rows = (0..self.stored.len())
            .flat_map(|stored| self.settings.workers.iter().map(move |&workers| (stored, workers)));
        let columns = Columns::new()
            .cell("stored", |row: &(usize, usize)| self.stored_cell(row.0))
            .count("workers", |row| row.1)
            .each(&self.settings.batch_sizes, |columns, &batch_size| {
                let case = move |row: &(usize, usize)| self.case(row.0, batch_size, row.1);
                columns.seconds(&format!("batch {batch_size}"), move |row| case(row)?.seconds()).number(
                    format!("batch {batch_size}, images/s"),
                    0,
                    move |row| Some(case(row)?.images_per_s()?.median),
                )
            });
        columns.table("seconds-per-epoch", "Seconds per epoch, without set-up", rows).blank(self.not_run())
    }

    /// Table of each case's other figures.
    fn each(&self) -> ReportTable {
        let accuracy = |case: &&Case| Spread::of(&case.key.accuracies);
        let table = Columns::new()
            .count("workers", |case: &&Case| case.key.workers)
            .count("batch size", |case| case.key.batch_size)
            .number("images/s", 0, |case| case.images_per_s().map(|rate| rate.median))
            .number("accelerator use, %", 1, |case| case.accelerator_use().map(|share| 100.0 * share))
            .number("evaluation accuracy, %", 1, move |case| accuracy(case).map(|of| 100.0 * of.median))
            .number("± %", 1, move |case| accuracy(case).and_then(|of| of.share_percent()))
            .number("evaluation, s", 3, |case| Spread::median_of(&case.key.evaluations_s))
            .number("set-up, s", 3, |case| case.median(RunTimes::setup_s))
            .cell("stored", |case| self.stored_cell(case.key.stored))
            .table("cases", "Each case", self.cases.iter().filter(|case| case.key.not_run.is_none()));
        let reason = match self.settings.evaluation {
            Some(_) => "this step is not evaluated (see --step)",
            None => "no images to evaluate on (see --eval)",
        };
        let none = self.cases.iter().all(|case| case.key.accuracies.is_empty());
        table.in_files().blank(none.then(|| format!("evaluation accuracy: {reason}.")))
    }

    /// Table with the published grid's columns, one row per epoch.
    fn grid(&self) -> ReportTable {
        let rows: Vec<GridRow<'_>> = self.cases.iter().enumerate().flat_map(epochs).collect();
        let trained = rows.iter().any(|(_, _, epoch, _)| epoch.loss.is_some());
        let rate = self.learning_rate;
        let reasons = [
            rate.is_none().then(|| "learning rate: this step has none.".to_owned()),
            (!trained).then(|| NOT_TRAINED.to_owned()),
        ];
        Columns::new()
            .count("run", |row: &GridRow<'_>| row.0 + 1)
            .count("round", |row| row.1 + 1)
            .count("epoch, from 0", |row| row.2.epoch as usize)
            .number("loss", 4, |row| row.2.loss)
            .number("accuracy", 4, |row| row.2.accuracy)
            .number("epoch duration, s", 3, |row| row.2.seconds)
            .number("run duration, s", 3, |row| row.2.start_s + row.2.seconds)
            .cell("learning rate", move |_| rate.map_or(Cell::Blank, |rate| rate.to_string().into()))
            .count("batch size", |row| row.3.batch_size)
            .count("workers", |row| row.3.workers)
            .cell("stored", |row| self.stored_cell(row.3.stored))
            .table("grid", "Every epoch", rows)
            .blank(reasons.into_iter().flatten())
    }
}

fn epochs((number, case): (usize, &Case)) -> impl Iterator<Item = GridRow<'_>> {
    case.runs
        .iter()
        .enumerate()
        .flat_map(move |(round, run)| run.epochs.iter().map(move |epoch| (number, round, epoch, &case.key)))
}
