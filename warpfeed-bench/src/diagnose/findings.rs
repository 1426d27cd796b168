//! The verdict: the bottleneck, the gain without it, and the remedy.

use super::{PerImage, Rates, TrainingBottleneck};
use crate::report::{Cell, ReportTable};
use crate::subject::Storage;
use crate::verdict::{Verdict, level};
use serde::Serialize;

/// Share of its time from which on a computing trainer is itself the bottleneck.
const BUSY: f64 = 0.9;
/// Share of the workers' time from which on waiting for bytes makes the storage the bottleneck.
const BLOCKED: f64 = 0.5;
/// Share of the processors from which on other work is the bottleneck of computing stages.
const TAKEN: f64 = 0.25;
/// Share by which a pipeline takes longer with one part done twice, from which on that part is the bottleneck.
const LONGER: f64 = 0.7;
/// Number of pixels below which the cost of opening and starting to decode an image outweighs that of its pixels.
const TINY_PX: f64 = 64.0 * 64.0;
/// Number of bytes below which encoded images should be packed into shards.
const SMALL_BYTES: f64 = 16e3;

/// All measurements that the verdict is derived from.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Findings {
    pub(super) rates: Rates,
    pub(super) per_image: PerImage,
    /// Share of reading in which threads wait for bytes and do not compute, 0 to 1.
    pub(super) blocked: f64,
    /// Share of the whole training's time in the training step.
    pub(super) accelerator_use: f64,
    pub(super) threads: usize,
    pub(super) cores: usize,
    pub(super) mean_px: f64,
    pub(super) mean_bytes: f64,
    pub(super) storage: Storage,
    /// Share of the processors that other work took, 0 to 1.
    pub(super) taken: f64,
}

impl Findings {
    /// Rate of the workers if an image took `seconds` of one worker, limited by the step's rate.
    fn capped(&self, seconds: f64) -> f64 {
        (self.threads as f64 / seconds.max(1e-9)).min(self.rates.step)
    }

    /// Share by which the pipeline takes longer at `rate`.
    fn longer(&self, rate: f64) -> f64 {
        if rate.is_finite() && rate > 0.0 { self.rates.pipeline / rate - 1.0 } else { 0.0 }
    }

    /// What a part costs the pipeline, by the rate with the part done twice.
    fn done_twice(&self, rate: f64) -> String {
        if rate.is_finite() && rate > 0.0 {
            format!("; done twice, the pipeline takes {:.0} % longer", 100.0 * self.longer(rate))
        } else {
            String::new()
        }
    }

    pub(super) fn bottleneck(&self) -> TrainingBottleneck {
        let (transfer, kernels) = (self.longer(self.rates.transfer_twice), self.longer(self.rates.kernels_twice));
        let PerImage { read, decode, augment } = self.per_image;
        let all = read + decode + augment;
        if self.accelerator_use >= BUSY {
            TrainingBottleneck::Step
        } else if transfer >= LONGER && transfer >= kernels {
            TrainingBottleneck::Transfer
        } else if kernels >= LONGER {
            TrainingBottleneck::Kernels
        } else if self.storage == Storage::Pipe && self.rates.read < self.rates.whole {
            TrainingBottleneck::Pipe
        } else if self.blocked * read > BLOCKED * all {
            if self.storage == Storage::Network { TrainingBottleneck::Network } else { TrainingBottleneck::Disk }
        } else if self.taken >= TAKEN {
            TrainingBottleneck::OtherWork
        } else if self.threads < self.cores {
            TrainingBottleneck::Threads
        } else if self.mean_px < TINY_PX && augment < read + decode {
            TrainingBottleneck::PerImage
        } else if augment > decode {
            TrainingBottleneck::Augmentation
        } else if read > decode {
            TrainingBottleneck::PerImage
        } else {
            TrainingBottleneck::Decode
        }
    }

    /// Images per second without this bottleneck; `None` if no measurement limits it.
    pub(super) fn without(&self, bottleneck: TrainingBottleneck) -> Option<f64> {
        let PerImage { read, decode, augment } = self.per_image;
        let all = read + decode + augment;
        let rate = match bottleneck {
            TrainingBottleneck::Step => self.rates.pipeline,
            TrainingBottleneck::Disk | TrainingBottleneck::Network => {
                self.capped(read * (1.0 - self.blocked) + decode + augment)
            }
            TrainingBottleneck::Pipe => self.rates.whole,
            // The workers' rate if they had the processors to themselves.
            TrainingBottleneck::OtherWork => self.capped(all * (1.0 - self.taken)),
            TrainingBottleneck::Threads => {
                (self.rates.pipeline * self.cores as f64 / self.threads as f64).min(self.rates.step)
            }
            TrainingBottleneck::PerImage => self.capped(augment),
            TrainingBottleneck::Decode => self.capped(read + augment),
            TrainingBottleneck::Augmentation => self.capped(read + decode),
            // The workers' rate.
            TrainingBottleneck::Transfer | TrainingBottleneck::Kernels => self.capped(all),
        };
        (rate.is_finite() && self.rates.whole > 0.0).then_some(rate)
    }

    pub(super) fn sentence(&self, bottleneck: TrainingBottleneck) -> String {
        let PerImage { read, decode, augment } = self.per_image;
        let all = (read + decode + augment).max(1e-12);
        let trainer = if self.rates.step.is_finite() {
            format!("and the trainer computes {:.0} % of the time", 100.0 * self.accelerator_use)
        } else {
            "without a training step".to_owned()
        };
        let waits = format!("the whole runs at {:.0} images/s {trainer}", self.rates.whole);
        let of_worker = |what: &str, seconds: f64| {
            format!(
                "{what} takes {:.2} of the {:.2} ms that a worker spends on an image ({:.0} %)",
                1e3 * seconds,
                1e3 * all,
                100.0 * seconds / all
            )
        };
        match bottleneck {
            TrainingBottleneck::Step => format!(
                "The training step is the bottleneck: the trainer computes {:.0} % of the time, and the pipeline alone would make {:.0} images/s where the step takes {:.0}.",
                100.0 * self.accelerator_use,
                self.rates.pipeline,
                self.rates.step
            ),
            TrainingBottleneck::Disk | TrainingBottleneck::Network => format!(
                "The {} is the bottleneck: workers wait for bytes {:.0} % of the time ({:.2} ms an image); {waits}.",
                if bottleneck == TrainingBottleneck::Disk { "disk" } else { "network" },
                100.0 * self.blocked * read / all,
                1e3 * self.blocked * read
            ),
            TrainingBottleneck::Pipe => format!(
                "The program that writes the pipe is the bottleneck: it gave {:.0} images/s; with images from memory {waits}.",
                self.rates.read
            ),
            TrainingBottleneck::OtherWork => format!(
                "Other work on this machine is the bottleneck: it took {:.0} % of the processors; {waits}.",
                100.0 * self.taken
            ),
            TrainingBottleneck::Threads => format!(
                "Too few worker threads are the bottleneck: {} for {} processors; {waits}.",
                self.threads, self.cores
            ),
            TrainingBottleneck::PerImage => format!(
                "The cost of each image, whatever its size, is the bottleneck: images of {:.0} pixels and {:.1} kB; {}; {waits}.",
                self.mean_px,
                self.mean_bytes / 1e3,
                of_worker("opening, reading and beginning to decode", read + decode)
            ),
            TrainingBottleneck::Transfer => format!(
                "Copying to the GPU is the bottleneck: with each batch sent twice the pipeline takes {:.0} % longer; {waits}.",
                100.0 * self.longer(self.rates.transfer_twice)
            ),
            TrainingBottleneck::Kernels => format!(
                "The GPU's kernels are the bottleneck: with each run twice the pipeline takes {:.0} % longer; {waits}.",
                100.0 * self.longer(self.rates.kernels_twice)
            ),
            TrainingBottleneck::Decode => {
                let twice = self.done_twice(self.rates.decode_twice);
                format!("Decoding is the bottleneck: {}{twice}; {waits}.", of_worker("it", decode))
            }
            TrainingBottleneck::Augmentation => {
                let twice = self.done_twice(self.rates.operations_twice);
                format!("Augmentation is the bottleneck: {}{twice}; {waits}.", of_worker("it", augment))
            }
        }
    }

    pub(super) fn next(&self, bottleneck: TrainingBottleneck) -> String {
        let Some(rate) = self.without(bottleneck) else {
            return "Without it nothing that was measured would hold the training up.".to_owned();
        };
        let next = if rate >= self.rates.step { "the training step" } else { "the rest of the pipeline" };
        let gain = rate / self.rates.whole;
        match bottleneck {
            TrainingBottleneck::Pipe => {
                format!(
                    "Extrapolated: a faster writer would gain up to {:.1} times.",
                    rate / self.rates.read.max(f64::MIN_POSITIVE)
                )
            }
            TrainingBottleneck::Step => {
                format!(
                    "Extrapolated: a faster step would gain up to {gain:.1} times, until the pipeline is the bottleneck."
                )
            }
            _ => format!(
                "Extrapolated from the times of the stages: without it {next} would allow {rate:.0} images/s, {gain:.1} times as \
                 many."
            ),
        }
    }

    pub(super) fn remedy(&self, bottleneck: TrainingBottleneck) -> String {
        let change = match bottleneck {
            TrainingBottleneck::Step => {
                "nothing in the pipeline; a faster accelerator, lower precision or a larger batch. Fewer worker threads may do (warpfeed tune)"
            }
            TrainingBottleneck::Disk if self.mean_bytes < SMALL_BYTES => {
                "pack the small files into large ones, so that they are read in a row; more worker threads hide latency; a faster or local disk"
            }
            TrainingBottleneck::Disk => {
                "keep the images on a faster or local disk, or in memory; store them smaller; more worker threads hide latency, not lack of bandwidth"
            }
            TrainingBottleneck::Network => {
                "keep what was fetched (--shard-cache), or copy the shards to a local disk; a larger window and more worker threads hide latency, not lack of bandwidth"
            }
            TrainingBottleneck::Pipe => {
                "read the shards themselves, not through a pipe; or several pipes, each with a writer of its own"
            }
            TrainingBottleneck::OtherWork => {
                "end the other work, or measure again when the machine is quiet: what else is slow cannot be said until then"
            }
            TrainingBottleneck::Threads => "give it more worker threads (--threads; warpfeed tune finds how many)",
            TrainingBottleneck::PerImage => {
                "pack the images into large files, so that none is opened by itself, and give the pipeline more cores"
            }
            TrainingBottleneck::Decode => {
                "store the images smaller (their sides near what the training uses), give the pipeline more cores, or decode on a GPU"
            }
            TrainingBottleneck::Augmentation => {
                "use strategy fused or composed, cheaper operations, more cores, or a GPU for the operations"
            }
            TrainingBottleneck::Transfer => {
                "have the GPU decode, so that encoded images are sent and not pixels (--jpeg-decoder auto); store them smaller; see that the GPU has its full link, and pinned memory"
            }
            TrainingBottleneck::Kernels => {
                "use strategy fused or composed, cheaper operations, or a faster GPU; training shares the GPU with them"
            }
        };
        format!("What to change: {change}.")
    }

    /// A worker's time by stage, in seconds per image.
    pub(super) fn of_worker(&self) -> [(&'static str, f64); 4] {
        let PerImage { read, decode, augment } = self.per_image;
        let (waiting, reading) = (read * self.blocked, read * (1.0 - self.blocked));
        [("waiting for bytes", waiting), ("reading", reading), ("decode", decode), ("augment", augment)]
    }

    pub(super) fn stages(&self) -> ReportTable {
        let mut table = ReportTable::new("stages", "A worker's time for one image", &["stage", "ms", "share, %"]);
        let PerImage { read, decode, augment } = self.per_image;
        let all = (read + decode + augment).max(1e-12);
        for (name, seconds) in self.of_worker() {
            table.rows.push(vec![name.into(), Cell::number(1e3 * seconds, 3), Cell::number(100.0 * seconds / all, 1)]);
        }
        table
    }
}

/// A worker's seconds for an image in each round, by stage.
#[derive(Debug, Clone, Default)]
pub(super) struct StageRounds {
    pub(super) read: Vec<f64>,
    pub(super) decode: Vec<f64>,
    pub(super) augment: Vec<f64>,
}

impl StageRounds {
    /// Sentence about stages that may take as long as the one that was named; `None` if it surely takes the longest, or
    /// if the bottleneck is no stage.
    pub(super) fn rivals(&self, bottleneck: TrainingBottleneck) -> Option<String> {
        let (read, decode, augment) =
            (("reading", &self.read), ("decoding", &self.decode), ("augmentation", &self.augment));
        let (own, others) = match bottleneck {
            TrainingBottleneck::Decode => (decode, vec![augment, read]),
            TrainingBottleneck::Augmentation => (augment, vec![decode]),
            _ => return None,
        };
        let level = level(2);
        let is_less = |other: &[f64]| matches!(Verdict::of(own.1, other, level), Verdict::Smaller(_));
        let rivals: Vec<&str> = others.into_iter().filter(|(_, other)| !is_less(other)).map(|(name, _)| name).collect();
        (!rivals.is_empty())
            .then(|| format!(" The rounds cannot tell whether less of it goes into {}.", rivals.join(", or into ")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::verdict::simulated::{QUIET, rates};
    use super::*;

    fn stages(report: u64, [read, decode, augment]: [f64; 3], rounds: u32) -> StageRounds {
        let mut rounds = rates(report, &[read, decode, augment], rounds, QUIET).into_iter();
        let mut next = || rounds.next().unwrap();
        StageRounds { read: next(), decode: next(), augment: next() }
    }

    #[test]
    fn equal_stages_are_told_apart_in_one_of_a_hundred_reports_at_most() {
        let told = |report: &u64| {
            let stages = stages(*report, [1e-3; 3], 8);
            [TrainingBottleneck::Decode, TrainingBottleneck::Augmentation].iter().any(|&of| stages.rivals(of).is_none())
        };
        let told = (0..1_000).filter(told).count();
        assert!(told <= 10, "{told} of 1,000 reports");
        let longer =
            |report: &u64| stages(*report, [1e-3, 1.2e-3, 1e-3], 8).rivals(TrainingBottleneck::Decode).is_none();
        let found = (0..300).filter(longer).count();
        assert!(found >= 270, "{found} of 300");
        let once = stages(0, [1e-3, 5e-3, 1e-3], 1).rivals(TrainingBottleneck::Decode).unwrap();
        assert_eq!(once, " The rounds cannot tell whether less of it goes into augmentation, or into reading.");
    }

    /// Findings for photographs on a quiet machine.
    fn of(per_image: PerImage) -> Findings {
        Findings {
            rates: Rates { pipeline: 1_000.0, whole: 900.0, step: 5e3, ..Rates::default() },
            per_image,
            blocked: 0.0,
            accelerator_use: 0.5,
            threads: 2,
            cores: 2,
            mean_px: 2e5,
            mean_bytes: 1e5,
            storage: Storage::Disk,
            taken: 0.0,
        }
    }

    #[test]
    fn who_waits_for_bytes_waits_for_where_they_come_from() {
        let per_image = PerImage { read: 8e-3, decode: 1e-3, augment: 1e-4 };
        let found = |storage, read| {
            let findings = Findings { storage, blocked: 0.95, ..of(per_image) };
            let rates = Rates { read, ..findings.rates };
            let findings = Findings { rates, ..findings };
            let bottleneck = findings.bottleneck();
            (bottleneck, findings.sentence(bottleneck), findings.remedy(bottleneck))
        };
        assert_eq!(found(Storage::Disk, 1e3).0, TrainingBottleneck::Disk);
        let (bottleneck, sentence, remedy) = found(Storage::Network, 1e3);
        assert_eq!(bottleneck, TrainingBottleneck::Network);
        assert!(sentence.starts_with("The network is") && remedy.contains("--shard-cache"), "{sentence} {remedy}");
        assert_eq!(found(Storage::Pipe, 100.0).0, TrainingBottleneck::Pipe);
    }

    #[test]
    fn a_busy_machine_is_not_slow_decoding() {
        let per_image = PerImage { read: 1e-4, decode: 3e-3, augment: 1e-4 };
        assert_eq!(of(per_image).bottleneck(), TrainingBottleneck::Decode);
        let busy = Findings { taken: 0.5, ..of(per_image) };
        assert_eq!(busy.bottleneck(), TrainingBottleneck::OtherWork);
        assert!(busy.without(TrainingBottleneck::OtherWork).unwrap() > of(per_image).capped(3.2e-3) * 1.9);
        let slow_step = Findings { accelerator_use: 0.95, ..busy };
        assert_eq!(slow_step.bottleneck(), TrainingBottleneck::Step);
    }

    /// Workers that wait for the device show no wait of their own.
    #[test]
    fn what_takes_longer_when_done_twice_is_the_bottleneck() {
        let found = |transfer_twice, kernels_twice, accelerator_use| {
            let rates =
                Rates { pipeline: 1_000.0, whole: 900.0, transfer_twice, kernels_twice, step: 5e3, ..Rates::default() };
            let per_image = PerImage { read: 1e-4, decode: 3e-4, augment: 1e-4 };
            let findings = Findings { rates, accelerator_use, ..of(per_image) };
            let bottleneck = findings.bottleneck();
            (bottleneck, findings.without(bottleneck))
        };
        let workers = Some(4_000.0);
        assert_eq!(found(510.0, 990.0, 0.5), (TrainingBottleneck::Transfer, workers));
        assert_eq!(found(900.0, 505.0, 0.5), (TrainingBottleneck::Kernels, workers));
        assert_eq!(found(510.0, 550.0, 0.95).0, TrainingBottleneck::Step);
        assert_eq!(found(900.0, 850.0, 0.5).0, TrainingBottleneck::Decode);
        assert_eq!(found(f64::INFINITY, f64::INFINITY, 0.5).0, TrainingBottleneck::Decode);
        // Nothing was delivered, so these two parts count as unknown.
        assert_eq!(found(0.0, 0.0, 0.5).0, TrainingBottleneck::Decode);
    }
}
