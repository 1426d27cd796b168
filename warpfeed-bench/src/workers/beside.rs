//! The published figures beside the measured ones, in tables and in sentences with a verdict.

use super::{Case, median};
use crate::environment::cores;
use crate::published::{GLUON_RUNS, GRID_RUNS, IO_RUNS, IoRun, IoStorage, WorkersRun};
use crate::report::{Cell, Report, ReportTable};
use crate::stored::Stored;
use crate::train::RunTimes;
use crate::verdict::{in_percent, in_turn};

/// Reason for missing losses and accuracies.
pub(super) const NOT_TRAINED: &str =
    "loss, accuracy: this step trains nothing; --step candle-cnn does (feature candle), on images as small as MNIST's.";

/// Number of tables that are added.
pub(super) const TABLES: usize = 3;

/// Adds tables and sentences. `level`: that of each of the report's comparisons.
pub(super) fn add(report: &mut Report, cases: &[Case], stored: &[Stored], level: f64) {
    let found = Found { cases, stored, level };
    let tables: [ReportTable; TABLES] = [found.gluon(), found.grid(), found.io()];
    report.tables.extend(tables);
    report.answer.extend(found.sentences());
    let trained = cases.iter().flat_map(Case::runs).flat_map(|run| &run.epochs).any(|epoch| epoch.loss.is_some());
    if !trained {
        report.answer.push(format!("Not shown beside published: {NOT_TRAINED}"));
    }
}

struct Found<'a> {
    cases: &'a [Case],
    stored: &'a [Stored],
    level: f64,
}

/// The last epoch of each round.
fn last_epochs(case: &Case, of: fn(&RunTimes) -> Option<f64>) -> Option<f64> {
    median(&case.runs().iter().filter_map(of).collect::<Vec<_>>())
}

impl<'a> Found<'a> {
    /// A case that was run.
    fn case(&self, stored: usize, batch_size: usize, workers: usize) -> Option<&'a Case> {
        let is = |case: &&Case| (case.stored, case.batch_size, case.workers) == (stored, batch_size, workers);
        self.cases.iter().find(is).filter(|case| !case.runs().is_empty())
    }

    /// The way to store images that repeats a published one.
    fn repeats(&self, storage: IoStorage) -> Option<usize> {
        self.stored.iter().position(|stored| stored.repeats == Some(storage))
    }

    /// The smallest batches that were run.
    fn smallest_batch(&self) -> usize {
        self.cases.iter().filter(|case| !case.runs().is_empty()).map(|case| case.batch_size).min().unwrap_or(0)
    }

    /// The time of an epoch of case `b` against case `a`, in words.
    fn compared(&self, a: &Case, b: &Case) -> String {
        let ran: Vec<&Case> = self.cases.iter().filter(|case| !case.runs().is_empty()).collect();
        let seconds: Vec<Vec<f64>> = ran.iter().map(|case| case.epoch_s()).collect();
        let seconds: Vec<&[f64]> = seconds.iter().map(Vec::as_slice).collect();
        let find = |of: &Case| ran.iter().position(|case| std::ptr::eq(*case, of)).unwrap_or(0);
        in_turn(&seconds, find(a), find(b), self.level).words("shorter", "longer")
    }

    /// The reason for a change against case `a`, called `name`.
    fn why(&self, name: &str, a: &Case) -> String {
        let sleeps = self.stored[a.stored].repeats == Some(IoStorage::Sleeping);
        let made = a.images_per_s().map_or(0.0, |rate| rate.median);
        match a.of_step() {
            Some(step) => {
                let most = step / made.max(f64::MIN_POSITIVE);
                format!(
                    "since {name} the training runs at {made:.0} images/s and the step alone takes {step:.0}, which bounds \
                     the gain at {most:.2} times"
                )
            }
            None if sleeps => {
                format!("since {name} the loader makes {made:.0} images/s, and a worker that sleeps takes no core")
            }
            None => {
                format!(
                    "since {name} the loader makes {made:.0} images/s, no step bounds it, and there are {} cores",
                    cores()
                )
            }
        }
    }

    fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        // The published gains of workers against none.
        let of_workers = |name: &str, runs: &[WorkersRun], most: usize| {
            let batch_size = runs[0].batch_size;
            let published = |workers: usize| runs.iter().find(|run| run.workers == workers).map(|run| run.epoch_s);
            let none = self.case(0, batch_size, 0)?;
            let measured = runs.iter().filter(|run| (1..=most).contains(&run.workers));
            let run =
                measured.filter(|run| self.case(0, batch_size, run.workers).is_some()).max_by_key(|run| run.workers)?;
            let own = self.case(0, batch_size, run.workers)?;
            Some(format!(
                "Published ({name}): with {} in batches of {batch_size} the time of an epoch is {}, against no workers; \
                 here: {}, {}.",
                workers(run.workers),
                in_percent(run.epoch_s / published(0)?, "shorter", "longer"),
                self.compared(none, own),
                self.why("without workers", none)
            ))
        };
        sentences.extend(of_workers("Gluon, MNIST", &GLUON_RUNS, usize::MAX));
        for runs in GRID_RUNS.chunk_by(|a, b| a.batch_size == b.batch_size) {
            sentences.extend(of_workers("grid of num_workers", runs, 1));
        }
        sentences.extend(self.io_sentences());
        sentences
    }

    /// The published gains of workers and of storage, in the smallest batches.
    fn io_sentences(&self) -> Vec<String> {
        let batch_size = self.smallest_batch();
        let [raw, raw_many, resized, sleeping, sleeping_many] = IO_RUNS;
        let mut sentences = Vec::new();
        let mut told = |from: IoRun, to: IoRun, what: &str, against: &str| {
            let (a, b) = (self.repeats(from.storage)?, self.repeats(to.storage)?);
            let one = self.case(a, batch_size, from.workers)?;
            // The published number of workers, or else the largest.
            let largest = self.cases.iter().filter(|case| !case.runs().is_empty()).map(|case| case.workers).max()?;
            let here = if self.case(b, batch_size, to.workers).is_some() { to.workers } else { largest };
            let own = self.case(b, batch_size, here)?;
            if std::ptr::eq(one, own) {
                return None;
            }
            let with = if here == to.workers { String::new() } else { format!(" with {}", workers(here)) };
            sentences.push(format!(
                "Published (SageMaker I/O): {what} the time of an epoch is {}, against {against}; here{with}: {}, {}.",
                in_percent(1.0 / gain(&from, &to), "shorter", "longer"),
                self.compared(one, own),
                self.why("with 1 worker", one)
            ));
            Some(())
        };
        told(raw, raw_many, "with 7 workers", "1 worker");
        told(raw, resized, "with 1 worker and images resized ahead of time", "images as they are");
        told(sleeping, sleeping_many, "with 3 workers and a source that sleeps", "1 worker");
        for (number, stored) in self.stored.iter().enumerate().filter(|(_, stored)| stored.repeats.is_none()) {
            let workers_of = |case: &&Case| (case.stored, case.batch_size) == (number, batch_size);
            let fewest =
                self.cases.iter().filter(workers_of).map(|case| case.workers).filter(|&workers| workers > 0).min();
            let pair = fewest.and_then(|fewest| {
                Some((fewest, self.case(0, batch_size, fewest)?, self.case(number, batch_size, fewest)?))
            });
            sentences.extend(pair.map(|(fewest, given, other)| {
                format!(
                    "Published (SageMaker I/O): many small files take hours to fetch where few large ones take minutes; here, \
                     time of an epoch from {} with {}, against the images as given: {}.",
                    stored.name,
                    workers(fewest),
                    self.compared(given, other)
                )
            }));
        }
        sentences
    }

    /// Table of Gluon's figures.
    fn gluon(&self) -> ReportTable {
        let title = "Published by Gluon (MNIST, batches of 64), and here in batches of 64";
        let columns = [
            "workers",
            "published train, s",
            "published evaluation, s",
            "published accuracy",
            "published times none",
            "train, s",
            "evaluation, s",
            "accuracy",
            "times none",
        ];
        let mut table = ReportTable::new("published-gluon", title, &columns);
        let rate = |case: &Case| case.images_per_s().map(|rate| rate.median);
        for run in GLUON_RUNS {
            let own = self.case(0, run.batch_size, run.workers);
            let none = self.case(0, run.batch_size, 0).and_then(rate);
            table.rows.push(vec![
                Cell::number(run.workers as f64, 0),
                Cell::number(run.epoch_s, 2),
                Cell::number(run.evaluation_s, 2),
                Cell::number(run.accuracy, 2),
                Cell::number(GLUON_RUNS[0].epoch_s / run.epoch_s, 2),
                Cell::number(own.and_then(Case::seconds).map(|seconds| seconds.median), 3),
                Cell::number(own.and_then(|case| median(&case.evaluations_s)), 3),
                Cell::number(own.and_then(|case| median(&case.accuracies)), 3),
                Cell::number(own.and_then(rate).zip(none).map(|(own, none)| own / none), 2),
            ]);
        }
        table
            .blank
            .push("not run here (see --workers, --batch-sizes), or not evaluated (see --eval and --step).".to_owned());
        table
    }

    /// Table of the grid's figures.
    fn grid(&self) -> ReportTable {
        let title = "Published grid of num_workers, and the same here";
        let columns = [
            "batch size",
            "workers",
            "published loss",
            "published accuracy",
            "published epoch, s",
            "published run, s",
            "loss",
            "accuracy",
            "epoch, s",
            "run, s",
        ];
        let mut table = ReportTable::new("published-grid", title, &columns);
        table.in_files_only = true;
        for run in GRID_RUNS {
            let own = |of| self.case(0, run.batch_size, run.workers).and_then(|case| last_epochs(case, of));
            table.rows.push(vec![
                Cell::number(run.batch_size as f64, 0),
                Cell::number(run.workers as f64, 0),
                Cell::number(run.loss, 3),
                Cell::number(run.accuracy, 3),
                Cell::number(run.epoch_s, 2),
                Cell::number(run.run_s, 2),
                Cell::number(own(|run| run.epochs.last()?.loss), 3),
                Cell::number(own(|run| run.epochs.last()?.accuracy), 3),
                Cell::number(own(|run| Some(run.epochs.last()?.seconds)), 3),
                Cell::number(own(|run| Some(run.seconds)), 3),
            ]);
        }
        let runs = self.cases.iter().filter(|case| case.stored == 0);
        let mut reasons: Vec<String> = runs
            .filter_map(|case| Some(format!("batches of {}: {}.", case.batch_size, case.runs.as_ref().err()?)))
            .collect();
        reasons.dedup();
        table.blank.extend(reasons);
        table
            .blank
            .push("others: not run here (see --workers, --batch-sizes), or this step does not train.".to_owned());
        table
    }

    /// Table of the figures of I/O.
    fn io(&self) -> ReportTable {
        let batch_size = self.smallest_batch();
        let title = format!("Published by SageMaker on I/O (ResNet-50), and here in batches of {batch_size}");
        let columns = [
            "images",
            "workers",
            "published epoch, s",
            "published images/s",
            "published times 1 worker",
            "published GPU",
            "epoch, s",
            "images/s",
            "times 1 worker",
            "accelerator use, %",
        ];
        let mut table = ReportTable::new("published-io", title, &columns);
        let rate = |case: &Case| case.images_per_s().map(|rate| rate.median);
        for run in IO_RUNS {
            // Resized images are compared with raw ones.
            let base = if run.storage == IoStorage::Sleeping { &IO_RUNS[3] } else { &IO_RUNS[0] };
            let own = |run: &IoRun| self.case(self.repeats(run.storage)?, batch_size, run.workers);
            let case = own(&run);
            let name = match run.storage {
                IoStorage::Raw => "files, as they are",
                IoStorage::Resized => "resized ahead of time, unpacked",
                IoStorage::Sleeping => "each sleeps (published: 1 s)",
            };
            table.rows.push(vec![
                name.into(),
                Cell::number(run.workers as f64, 0),
                Cell::number(run.epoch_s, 0),
                Cell::number(run.images_per_s, 0),
                Cell::number(gain(base, &run), 1),
                run.gpu.map_or(Cell::Blank, Cell::from),
                Cell::number(case.and_then(Case::seconds).map(|seconds| seconds.median), 3),
                Cell::number(case.and_then(rate), 0),
                Cell::number(case.and_then(rate).zip(own(base).and_then(rate)).map(|(own, base)| own / base), 2),
                Cell::number(case.and_then(Case::accelerator_use).map(|share| 100.0 * share), 1),
            ]);
        }
        table
            .blank
            .push("not run here (see --workers, --resized-ahead, --sleep, --beside), or not published.".to_owned());
        table
    }
}

/// Speed of a published run relative to another: by the seconds of an epoch, if both have them, else by images/s.
fn gain(from: &IoRun, to: &IoRun) -> f64 {
    let seconds = from.epoch_s.zip(to.epoch_s);
    seconds.map_or(to.images_per_s / from.images_per_s, |(from, to)| from / to)
}

pub(super) fn workers(workers: usize) -> String {
    if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::EpochTimes;
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
                epoch: 0,
                start_s: 0.0,
                seconds: steady_s,
                setup_s: 0.0,
                fetch_s: steady_s - train_s,
                train_s,
                images,
                batches: 10,
                steady_s,
                steady_train_s: train_s,
                steady_images: images,
                loss: of_step.map(|_| 0.5),
                accuracy: None,
            };
            RunTimes { seconds: steady_s, epochs: vec![epoch], batches: Vec::new(), stages: Default::default(), bad: 0 }
        };
        let runs = Ok((0..ROUNDS).map(run).collect());
        Case { stored, workers, batch_size, runs, usage: Vec::new(), accuracies: vec![0.98], evaluations_s: vec![0.25] }
    }

    fn ways() -> Vec<Stored> {
        let images = EncodedImages::new([(Vec::new(), 0)]);
        let raw = Stored::given(images.clone().into());
        let sleeping = Stored::sleeping(images.clone(), Duration::from_millis(20)).unwrap();
        vec![raw, Stored::resized(images.clone(), 256, "/tmp/none", 0), sleeping, Stored::other("shards", images)]
    }

    fn sentences(cases: &[Case]) -> Vec<String> {
        Found { cases, stored: &ways(), level: level(20) }.sentences()
    }

    #[test]
    fn published_gains_of_workers_stand_beside_ours_with_the_reason() {
        let step = Some(444.0);
        let cases = [case(0, 64, 0, 250.0, step), case(0, 64, 1, 400.0, step), case(0, 64, 4, 400.0, step)];
        let said = sentences(&cases);
        let want = "Published (Gluon, MNIST): with 4 workers in batches of 64 the time of an epoch is 69 % shorter, against no \
                    workers; here: 3";
        assert!(said[0].starts_with(want), "{said:?}");
        let why = "since without workers the training runs at 248 images/s and the step alone takes 444, which bounds the gain at 1.79 times.";
        assert!(said[0].ends_with(why), "{said:?}");
        // No number of workers of the post on I/O but 1: the largest stands for 7.
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[1].contains(
            "with 7 workers the time of an epoch is 63 % shorter, against 1 worker; here with 4 workers: not"
        ));
        let grid = [case(0, 100, 0, 250.0, None), case(0, 100, 1, 310.0, None), case(0, 100, 16, 310.0, None)];
        let said = sentences(&grid);
        let want = "Published (grid of num_workers): with 1 worker in batches of 100 the time of an epoch is 22 % shorter, \
                    against no workers; here: 1";
        assert!(said[0].starts_with(want), "{said:?}");
        assert!(said[0].contains("no step bounds it"), "{said:?}");
    }

    #[test]
    fn published_storage_stands_beside_ours() {
        let cases = [
            case(0, 32, 1, 100.0, None),
            case(0, 32, 3, 200.0, None),
            case(1, 32, 1, 300.0, None),
            case(2, 32, 1, 50.0, None),
            case(2, 32, 3, 150.0, None),
            case(3, 32, 1, 101.0, None),
        ];
        let said = sentences(&cases);
        let begins = [
            "with 7 workers the time of an epoch is 63 % shorter, against 1 worker; here with 3 workers: 5",
            "with 1 worker and images resized ahead of time the time of an epoch is 63 % shorter, against images as they \
             are; here: 6",
            "with 3 workers and a source that sleeps the time of an epoch is 67 % shorter, against 1 worker; here: 6",
            "many small files take hours to fetch where few large ones take minutes; here, time of an epoch from shards with 1 \
             worker, against the images as given: not",
        ]
        .map(|begin| format!("Published (SageMaker I/O): {begin}"));
        assert_eq!(said.len(), begins.len(), "{said:?}");
        assert!(said.iter().zip(begins).all(|(said, begin)| said.starts_with(&begin)), "{said:#?}");
    }

    #[test]
    fn every_published_figure_has_a_row_with_ours_where_it_was_run() {
        let cases =
            [case(0, 64, 0, 250.0, Some(444.0)), case(0, 64, 8, 400.0, Some(444.0)), case(0, 100, 1, 400.0, None)];
        let ways = ways();
        let found = Found { cases: &cases, stored: &ways, level: level(1) };
        let rows = |table: ReportTable| -> Vec<String> {
            let row = |row: &Vec<Cell>| row.iter().map(Cell::text).collect::<Vec<_>>().join(" ");
            table.rows.iter().map(row).collect()
        };
        let gluon = rows(found.gluon());
        assert_eq!((gluon.len(), &gluon[0][..]), (5, "0 12.96 4.15 0.98 1.00 4.030 0.250 0.980 1.00"));
        assert!(gluon[1].starts_with("2 6.17 2.50 0.98 2.10  ") && gluon[4].ends_with(" 1.60"), "{gluon:?}");
        let grid = rows(found.grid());
        assert_eq!(grid.len(), 18);
        assert!(grid[1].starts_with("100 1 0.573 0.784 18.13 18.97   2."), "{}", grid[1]);
        assert!(grid[17].starts_with("10000 16 2.153 0.208 18.56 26.65"), "{}", grid[17]);
        let io = rows(found.io());
        assert!(io[1].starts_with("files, as they are 7 96 300 2.7 95 % on average"), "{io:?}");
        assert_eq!(io[4], "each sleeps (published: 1 s) 3  3 3.0     ");
    }
}
