//! The published figures of workers, and ours for them.

use super::{Case, Results, count};
use crate::environment::cores;
use crate::published::{GLUON_RUNS, GRID_RUNS, IO_RUNS, IoRun, IoStorage, WorkersRun};
use crate::report::comparison::{Comparison, TIME};
use crate::report::{Cell, Columns, ReportTable};
use crate::spread::Spread;
use crate::verdict::{Verdict, in_turn};

fn rate(case: &Case) -> Option<f64> {
    Some(case.images_per_s()?.median)
}

fn seconds(case: &Case) -> Option<f64> {
    Some(case.seconds()?.median)
}

impl Results<'_> {
    /// The way to store images that repeats a published one.
    fn repeats(&self, storage: IoStorage) -> Option<usize> {
        self.stored.iter().position(|stored| stored.repeats == Some(storage))
    }

    /// The time of an epoch of case `b` against case `a`.
    fn compared(&self, a: &Case, b: &Case, level: f64) -> Verdict {
        let seconds: Vec<Vec<f64>> = self.ran().map(Case::epochs_s).collect();
        let seconds: Vec<&[f64]> = seconds.iter().map(Vec::as_slice).collect();
        let find = |of: &Case| self.ran().position(|case| std::ptr::eq(case, of)).unwrap_or(0);
        in_turn(&seconds, find(a), find(b), level)
    }

    /// The reason for a change against case `a`.
    fn why(&self, a: &Case) -> String {
        let (name, made) = (count(a.key.workers), rate(a).unwrap_or(0.0));
        if let Some(step) = a.of_step() {
            let most = step / made.max(f64::MIN_POSITIVE);
            return format!("{name}: {made:.0} images/s; the step takes {step:.0}, so {most:.2} times at most");
        }
        if self.stored[a.key.stored].repeats == Some(IoStorage::Sleeping) {
            return format!("{name}: {made:.0} images/s; a worker that sleeps takes no core");
        }
        format!("{name}: {made:.0} images/s; no step; {} cores", cores())
    }

    /// The published gains compared with ours.
    pub(super) fn published_comparisons(&self, level: f64) -> Vec<Comparison> {
        let mut rows: Vec<Comparison> =
            self.of_workers("Gluon, MNIST", &GLUON_RUNS, usize::MAX, level).into_iter().collect();
        for runs in GRID_RUNS.chunk_by(|a, b| a.batch_size == b.batch_size) {
            rows.extend(self.of_workers("Grid of num_workers", runs, 1, level));
        }
        let [raw, raw_many, resized, sleeping, sleeping_many] = IO_RUNS;
        rows.extend(self.of_io((raw, raw_many), "as they are", level));
        rows.extend(self.of_io((raw, resized), "resized ahead of time", level));
        rows.extend(self.of_io((sleeping, sleeping_many), "sleeping", level));
        let others = self.stored.iter().enumerate().filter(|(_, stored)| stored.repeats.is_none());
        rows.extend(others.filter_map(|(number, _)| self.of_other(number, level)));
        rows
    }

    /// The published gain of workers against none, for the most workers up to `most` that were measured here too.
    fn of_workers(&self, name: &str, runs: &[WorkersRun], most: usize, level: f64) -> Option<Comparison> {
        let batch_size = runs[0].batch_size;
        let published_none = runs.iter().find(|run| run.workers == 0)?.epoch_s;
        let none = self.case(0, batch_size, 0)?;
        let measured = runs.iter().filter(|run| (1..=most).contains(&run.workers));
        let measured = measured.filter_map(|run| Some((run, self.case(0, batch_size, run.workers)?)));
        let (run, own) = measured.max_by_key(|(run, _)| run.workers)?;
        let row = Comparison::new(format!("{name}: {}, batches of {batch_size}", count(run.workers)), count(0));
        let row = row.verdict(self.compared(none, own, level), TIME);
        Some(row.published(run.epoch_s / published_none, TIME).reason(self.why(none)))
    }

    /// A published gain of workers or of storage, in the smallest batches. If the published number of workers was not
    /// measured here, the largest stands for it.
    fn of_io(&self, (from, to): (IoRun, IoRun), what: &str, level: f64) -> Option<Comparison> {
        let (a, b, batch_size) = (self.repeats(from.storage)?, self.repeats(to.storage)?, self.smallest_batch());
        let one = self.case(a, batch_size, from.workers)?;
        let largest = self.ran().map(|case| case.key.workers).max()?;
        let own = self.case(b, batch_size, to.workers).or_else(|| self.case(b, batch_size, largest))?;
        if std::ptr::eq(one, own) {
            return None;
        }
        let workers = own.key.workers;
        let published = if workers == to.workers { String::new() } else { format!(" (published: {})", to.workers) };
        let case = format!("SageMaker I/O: images {what}, {}{published}", count(workers));
        let against = if a == b { count(from.workers) } else { format!("images as they are, {}", count(from.workers)) };
        let row = Comparison::new(case, against).verdict(self.compared(one, own, level), TIME);
        Some(row.published(1.0 / gain(&from, &to), TIME).reason(self.why(one)))
    }

    /// Images stored in another way against the images as given, with the fewest workers.
    fn of_other(&self, number: usize, level: f64) -> Option<Comparison> {
        let batch_size = self.smallest_batch();
        let of = self.cases.iter().filter(|case| (case.key.stored, case.key.batch_size) == (number, batch_size));
        let fewest = of.map(|case| case.key.workers).filter(|&workers| workers > 0).min()?;
        let (given, other) = (self.case(0, batch_size, fewest)?, self.case(number, batch_size, fewest)?);
        let case = format!("SageMaker I/O: {}, {}", self.stored[number].name, count(fewest));
        let row = Comparison::new(case, "images as given").verdict(self.compared(given, other, level), TIME);
        Some(Comparison { published: "minutes for few large files, hours for many small ones".to_owned(), ..row })
    }

    /// Gluon's figures.
    pub(super) fn gluon(&self) -> ReportTable {
        let own = |run: &WorkersRun| self.case(0, run.batch_size, run.workers);
        let none = |run: &WorkersRun| rate(self.case(0, run.batch_size, 0)?);
        let blank = "not run here (see --workers, --batch-sizes), or not evaluated (see --eval and --step).";
        let title = "Published by Gluon (MNIST, batches of 64), and here in batches of 64";
        Columns::new()
            .count("workers", |run: &WorkersRun| run.workers)
            .number("published train, s", 2, |run| run.epoch_s)
            .number("published evaluation, s", 2, |run| run.evaluation_s)
            .number("published accuracy", 2, |run| run.accuracy)
            .number("published times none", 2, |run| GLUON_RUNS[0].epoch_s / run.epoch_s)
            .number("train, s", 3, move |run| seconds(own(run)?))
            .number("evaluation, s", 3, move |run| Spread::median_of(&own(run)?.key.evaluations_s))
            .number("accuracy", 3, move |run| Spread::median_of(&own(run)?.key.accuracies))
            .number("times none", 2, move |run| Some(rate(own(run)?)? / none(run)?))
            .table("published-gluon", title, GLUON_RUNS)
            .blank([blank.to_owned()])
    }

    /// The grid's figures.
    pub(super) fn published_grid(&self) -> ReportTable {
        let own = |run: &WorkersRun| self.case(0, run.batch_size, run.workers);
        let others = "others: not run here (see --workers, --batch-sizes), or this step does not train.".to_owned();
        Columns::new()
            .count("batch size", |run: &WorkersRun| run.batch_size)
            .count("workers", |run| run.workers)
            .number("published loss", 3, |run| run.loss)
            .number("published accuracy", 3, |run| run.accuracy)
            .number("published epoch, s", 2, |run| run.epoch_s)
            .number("published run, s", 2, |run| run.run_s)
            .number("loss", 3, move |run| own(run)?.median(|run| run.epochs.last()?.loss))
            .number("accuracy", 3, move |run| own(run)?.median(|run| run.epochs.last()?.accuracy))
            .number("epoch, s", 3, move |run| own(run)?.median(|run| Some(run.epochs.last()?.seconds)))
            .number("run, s", 3, move |run| own(run)?.median(|run| Some(run.seconds)))
            .table("published-grid", "Published grid of num_workers, and the same here", GRID_RUNS)
            .in_files()
            .blank(self.not_run().into_iter().chain([others]))
    }

    /// The figures of I/O.
    pub(super) fn io(&self) -> ReportTable {
        let batch_size = self.smallest_batch();
        let own = move |run: &IoRun| self.case(self.repeats(run.storage)?, batch_size, run.workers);
        // Resized images are compared with raw ones.
        let base = |run: &IoRun| if run.storage == IoStorage::Sleeping { IO_RUNS[3] } else { IO_RUNS[0] };
        let name = |run: &IoRun| match run.storage {
            IoStorage::Raw => "files, as they are",
            IoStorage::Resized => "resized ahead of time, unpacked",
            IoStorage::Sleeping => "each sleeps (published: 1 s)",
        };
        let title = format!("Published by SageMaker on I/O (ResNet-50), and here in batches of {batch_size}");
        let blank = "not run here (see --workers, --resized-ahead, --sleep, --beside), or not published.";
        Columns::new()
            .text("images", move |run: &IoRun| name(run))
            .count("workers", |run| run.workers)
            .number("published epoch, s", 0, |run| run.epoch_s)
            .number("published images/s", 0, |run| run.images_per_s)
            .number("published times 1 worker", 1, move |run| gain(&base(run), run))
            .cell("published GPU", |run| run.gpu.map_or(Cell::Blank, Cell::from))
            .number("epoch, s", 3, move |run| seconds(own(run)?))
            .number("images/s", 0, move |run| rate(own(run)?))
            .number("times 1 worker", 2, move |run| Some(rate(own(run)?)? / rate(own(&base(run))?)?))
            .number("accelerator use, %", 1, move |run| Some(100.0 * own(run)?.accelerator_use()?))
            .table("published-io", title, IO_RUNS)
            .blank([blank.to_owned()])
    }
}

/// Speed of a published run relative to another: by the seconds of an epoch, if both have them, else by images/s.
fn gain(from: &IoRun, to: &IoRun) -> f64 {
    let seconds = from.epoch_s.zip(to.epoch_s);
    seconds.map_or(to.images_per_s / from.images_per_s, |(from, to)| from / to)
}

#[cfg(test)]
mod tests {
    use super::super::{Key, WorkersSettings};
    use super::*;
    use crate::stored::Stored;
    use crate::train::{EpochTimes, RunTimes};
    use crate::verdict::level;
    use std::time::Duration;
    use warpfeed::source::EncodedImages;

    const ROUNDS: u32 = 16;

    /// Rounds that make about so many images per second, with a step that takes so many; `None`: no step.
    fn case(stored: usize, batch_size: usize, workers: usize, rate: f64, of_step: Option<f64>) -> Case {
        let run = |round: u32| {
            let (images, by) = (1_000, 1.0 + 0.001 * f64::from(round));
            let steady_s = by * images as f64 / rate;
            let train_s = of_step.map_or(0.0, |step| images as f64 / step);
            let epoch = EpochTimes {
                seconds: steady_s,
                fetch_s: steady_s - train_s,
                train_s,
                images,
                batches: 10,
                steady_s,
                steady_train_s: train_s,
                steady_images: images,
                loss: of_step.map(|_| 0.5),
                ..EpochTimes::default()
            };
            RunTimes { seconds: steady_s, epochs: vec![epoch], batches: Vec::new(), stages: Default::default(), bad: 0 }
        };
        let (accuracies, evaluations_s) = (vec![0.98], vec![0.25]);
        let mut case = Case::new(Key { stored, workers, batch_size, not_run: None, accuracies, evaluations_s });
        case.runs = (0..ROUNDS).map(run).collect();
        case
    }

    fn ways() -> Vec<Stored> {
        let images = EncodedImages::new([(Vec::new(), 0)]);
        let raw = Stored::given(images.clone().into());
        let sleeping = Stored::sleeping(images.clone(), Duration::from_millis(20)).unwrap();
        vec![raw, Stored::resized(images.clone(), 256, "/tmp/none", 0), sleeping, Stored::other("shards", images)]
    }

    fn settings() -> WorkersSettings {
        let (workers, batch_sizes) = (Vec::new(), Vec::new());
        WorkersSettings {
            workers,
            batch_sizes,
            epochs: 1,
            rounds: 1,
            ops: Vec::new(),
            evaluation: None,
            others: Vec::new(),
        }
    }

    fn comparisons(cases: Vec<Case>) -> Vec<Comparison> {
        Results { settings: &settings(), stored: ways(), learning_rate: None, cases }.published_comparisons(level(20))
    }

    /// Case, against, published, and the beginning of what was measured here.
    fn assert_row(row: &Comparison, [case, against, published, here]: [&str; 4]) {
        assert_eq!((&row.case[..], &row.against[..], &row.published[..]), (case, against, published));
        assert!(row.here.starts_with(here), "{row:?}");
    }

    #[test]
    fn published_gains_of_workers_stand_beside_ours_with_the_reason() {
        let step = Some(444.0);
        let cases = vec![case(0, 64, 0, 250.0, step), case(0, 64, 1, 400.0, step), case(0, 64, 4, 400.0, step)];
        let rows = comparisons(cases);
        assert_row(&rows[0], ["Gluon, MNIST: 4 workers, batches of 64", "no workers", "69 % shorter", "3"]);
        assert!(rows[0].here.ends_with("% shorter"), "{rows:?}");
        assert_eq!(rows[0].reason, "no workers: 248 images/s; the step takes 444, so 1.79 times at most");
        // No number of workers of the post on I/O but 1: the largest stands for 7.
        assert_eq!(rows.len(), 2, "{rows:?}");
        let of_io = "SageMaker I/O: images as they are, 4 workers (published: 7)";
        assert_row(&rows[1], [of_io, "1 worker", "63 % shorter", "not distinguishable"]);
        let grid = vec![case(0, 100, 0, 250.0, None), case(0, 100, 1, 310.0, None), case(0, 100, 16, 310.0, None)];
        let rows = comparisons(grid);
        assert_row(&rows[0], ["Grid of num_workers: 1 worker, batches of 100", "no workers", "22 % shorter", "1"]);
        assert!(rows[0].reason.contains("no step"), "{rows:?}");
    }

    #[test]
    fn published_storage_stands_beside_ours() {
        let rows = comparisons(vec![
            case(0, 32, 1, 100.0, None),
            case(0, 32, 3, 200.0, None),
            case(1, 32, 1, 300.0, None),
            case(2, 32, 1, 50.0, None),
            case(2, 32, 3, 150.0, None),
            case(3, 32, 1, 101.0, None),
        ]);
        let want = [
            ["SageMaker I/O: images as they are, 3 workers (published: 7)", "1 worker", "63 % shorter", "5"],
            [
                "SageMaker I/O: images resized ahead of time, 1 worker",
                "images as they are, 1 worker",
                "63 % shorter",
                "6",
            ],
            ["SageMaker I/O: images sleeping, 3 workers", "1 worker", "67 % shorter", "6"],
            [
                "SageMaker I/O: shards, 1 worker",
                "images as given",
                "minutes for few large files, hours for many small ones",
                "not",
            ],
        ];
        assert_eq!(rows.len(), want.len(), "{rows:?}");
        rows.iter().zip(want).for_each(|(row, want)| assert_row(row, want));
    }

    #[test]
    fn every_published_figure_has_a_row_with_ours_where_it_was_run() {
        let cases =
            vec![case(0, 64, 0, 250.0, Some(444.0)), case(0, 64, 8, 400.0, Some(444.0)), case(0, 100, 1, 400.0, None)];
        let settings = settings();
        let found = Results { settings: &settings, stored: ways(), learning_rate: None, cases };
        let rows = |table: ReportTable| -> Vec<String> {
            let row = |row: &Vec<Cell>| row.iter().map(Cell::text).collect::<Vec<_>>().join(" ");
            table.rows.iter().map(row).collect()
        };
        let gluon = rows(found.gluon());
        assert_eq!((gluon.len(), &gluon[0][..]), (5, "0 12.96 4.15 0.98 1.00 4.030 0.250 0.980 1.00"));
        assert!(gluon[1].starts_with("2 6.17 2.50 0.98 2.10  ") && gluon[4].ends_with(" 1.60"), "{gluon:?}");
        let grid = rows(found.published_grid());
        assert_eq!(grid.len(), 18);
        assert!(grid[1].starts_with("100 1 0.573 0.784 18.13 18.97   2."), "{}", grid[1]);
        assert!(grid[17].starts_with("10000 16 2.153 0.208 18.56 26.65"), "{}", grid[17]);
        let io = rows(found.io());
        assert!(io[1].starts_with("files, as they are 7 96 300 2.7 95 % on average"), "{io:?}");
        assert_eq!(io[4], "each sleeps (published: 1 s) 3  3 3.0     ");
    }
}
