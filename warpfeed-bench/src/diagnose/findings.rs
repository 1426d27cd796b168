//! The verdict: the bottleneck, and the gain without it.

use super::{PerImage, Rates, TrainingBottleneck};
use crate::report::{Columns, ReportTable};
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
pub(super) const SMALL_BYTES: f64 = 16e3;

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
    pub(super) fn longer(&self, rate: f64) -> f64 {
        if rate.is_finite() && rate > 0.0 { self.rates.pipeline / rate - 1.0 } else { 0.0 }
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

    /// A worker's time by stage, in seconds per image.
    pub(super) fn of_worker(&self) -> [(&'static str, f64); 4] {
        let PerImage { read, decode, augment } = self.per_image;
        let (waiting, reading) = (read * self.blocked, read * (1.0 - self.blocked));
        [("waiting for bytes", waiting), ("reading", reading), ("decode", decode), ("augment", augment)]
    }

    pub(super) fn stages(&self) -> ReportTable {
        let all = self.per_image.all().max(1e-12);
        Columns::new()
            .text("stage", |row: &(&str, f64)| row.0)
            .number("ms", 3, |row| 1e3 * row.1)
            .number("share, %", 1, move |row| 100.0 * row.1 / all)
            .table("stages", "A worker's time for one image", self.of_worker())
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
        (!rivals.is_empty()).then(|| format!(" The rounds cannot tell whether {} takes less.", rivals.join(" or ")))
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
        assert_eq!(once, " The rounds cannot tell whether augmentation or reading takes less.");
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
