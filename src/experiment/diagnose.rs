//! Finds out why a trainer waits, by measuring the pipeline with parts left out, one after the other.

use super::environment::cores;
use super::report::plot::{Bar, bars};
use super::report::{Cell, Report, Table};
use super::run::StageSeconds;
use super::spread::{Spread, turns};
use super::subject::{Model, Storage, Subject, next, no_gpu};
use super::train::{NO_STEP_S, Run, RunTimes, skipped};
use crate::backend::Ablation;
use crate::decode::{Decoder, probe};
use crate::error::{Error, Result};
use crate::ops::transform::Transform;
use crate::ops::{CenterCrop, Op};
use crate::pipeline::{Builder, DEFAULT_MAX_PIXELS, Pipeline};
use crate::plan::Strategy;
use crate::raster::{Image, Rect, Size, check_pixels};
use crate::sampler::{Order, Sampler};
use crate::source::{Input, Samples, Source, Stream, StreamSample, StreamStart};
use crate::threads::spawn_scoped;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A trainer that computes for at least this share of its time is itself the bottleneck.
const BUSY: f64 = 0.9;
/// If workers wait for bytes for at least this share of their time, the storage is the bottleneck.
const BLOCKED: f64 = 0.5;
/// If other work takes at least this share of the processors, it is the bottleneck of what computes.
const TAKEN: f64 = 0.25;
/// If a pipeline takes longer by at least this share with one part done twice, that part is the bottleneck.
const LONGER: f64 = 0.7;
/// Below this many pixels, the cost of opening and starting to decode an image outweighs that of its pixels.
const TINY_PX: f64 = 64.0 * 64.0;
/// Encoded images of fewer bytes should be packed into shards.
const SMALL_BYTES: f64 = 16e3;

/// What to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Images a batch.
    pub batch_size: usize,
    /// Worker threads. If there are fewer than `cores`, the first remedy is more of them.
    pub threads: usize,
    /// Processors that workers may have.
    pub cores: usize,
    /// The operations, ending in one size.
    pub ops: Vec<Transform>,
    /// How they are run.
    pub strategy: Strategy,
    /// Time for each part, all rounds together.
    pub time: Duration,
    /// How often each part is measured, in turn with the others; medians count.
    pub rounds: u32,
}

impl Settings {
    /// These operations with a worker thread for each processor, batches of 32, and three rounds of a second a part.
    #[must_use]
    pub fn new(ops: impl IntoIterator<Item = Transform>) -> Self {
        let (cores, ops, time) = (cores(), ops.into_iter().collect(), Duration::from_secs(3));
        Self { batch_size: 32, threads: cores, cores, ops, strategy: Strategy::Fused, time, rounds: 3 }
    }
}

/// What a training waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Bottleneck {
    /// The storage: workers wait for bytes.
    Disk,
    /// The network, or the server: workers wait for bytes.
    Network,
    /// The program that writes the pipe.
    Pipe,
    /// Other work on this machine.
    OtherWork,
    /// Fewer worker threads than processors.
    Threads,
    /// What each image costs whatever its size: opening a file, beginning to decode.
    PerImage,
    /// Decoding.
    Decode,
    /// The operations.
    Augmentation,
    /// Copying to the GPU.
    Transfer,
    /// The GPU's kernels.
    Kernels,
    /// The training step: the pipeline is fast enough.
    Step,
}

/// Rates, in images per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rates {
    /// Reading alone.
    pub read: f64,
    /// Reading and decoding whole images.
    pub read_decode: f64,
    /// The pipeline with a center crop in the place of its operations, without a training step.
    pub no_augmentation: f64,
    /// The pipeline without a training step.
    pub pipeline: f64,
    /// The same with each batch copied to the GPU twice; infinite on the CPU.
    pub transfer_twice: f64,
    /// The same with the GPU's kernels run twice; infinite on the CPU.
    pub kernels_twice: f64,
    /// The training step alone, with every batch ready; infinite if it does nothing.
    pub step: f64,
    /// The whole: pipeline and training step.
    pub whole: f64,
}

/// Where a worker's time goes for one image, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PerImage {
    /// Reading, waiting included.
    pub read: f64,
    /// Decoding.
    pub decode: f64,
    /// Drawing and running the operations.
    pub augment: f64,
}

/// What was found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The report.
    pub report: Report,
    /// What the training waits for.
    pub bottleneck: Bottleneck,
    /// How many times as fast the next bottleneck would allow it to be; `None` if nothing else is near.
    pub gain: Option<f64>,
}

/// All measurements that the verdict is derived from.
#[derive(Debug, Clone, Copy, Serialize)]
struct Findings {
    rates: Rates,
    per_image: PerImage,
    /// Share of reading that is waiting for bytes, not computing, 0 to 1.
    blocked: f64,
    /// Share of the whole's time in the training step.
    accelerator_use: f64,
    threads: usize,
    cores: usize,
    mean_px: f64,
    mean_bytes: f64,
    storage: Storage,
    /// Share of the processors that other work took, 0 to 1.
    taken: f64,
}

/// Measures the parts in rounds, in turn, and says what the bottleneck is. `progress` hears of each part.
///
/// # Errors
/// [`Error::Parameter`] for a subject without usable images; errors of pipelines and the step.
pub fn diagnose(
    subject: &Subject,
    settings: &Settings,
    model: &mut Model,
    progress: &mut dyn FnMut(&str),
) -> Result<Diagnosis> {
    let mut report = subject.report("diagnose", "What is the bottleneck, and what would be gained without it?")?;
    let on_gpu = subject.device.resolve()?.is_some();
    let (mean_px, mean_bytes) = report.data_set.as_ref().map_or((0.0, 0.0), |data| (data.mean_px, data.mean_bytes));
    let threads = settings.threads.max(1);
    // Settings that a pipeline refuses are refused before anything is measured.
    let whole = builder(subject, settings, settings.ops.clone()).build()?;
    let (device, size, prefetch) = (whole.device_name(), whole.image_size(), whole.prefetch());
    // Its memory on the device is free again for those that are measured.
    drop(whole);
    let parts: Vec<Part> = Part::ALL.into_iter().filter(|part| on_gpu || !part.is_of_gpu()).collect();
    let rounds = settings.rounds.max(1);
    let mut measured = Measured::default();
    for (done, (_, part)) in turns(parts.len(), rounds, subject.seed).into_iter().enumerate() {
        let part = parts[part];
        let rate = measured.add(part, subject, settings, size, model)?;
        let stated = if rate.is_finite() { format!("{rate:.0} images/s") } else { "no time".to_owned() };
        progress(&format!("{}/{} {}: {stated}", done + 1, parts.len() * rounds as usize, part.name()));
    }
    report.measured();

    let findings = Findings {
        rates: measured.rates(subject.intake),
        per_image: measured.per_image(),
        blocked: measured.reading.blocked(),
        accelerator_use: Spread::of(&measured.accelerator_use).map_or(0.0, |share| share.median),
        threads,
        cores: settings.cores,
        mean_px,
        mean_bytes,
        storage: subject.storage,
        taken: report.busy.map_or(0.0, |busy| busy.share()),
    };
    let bottleneck = findings.bottleneck();
    let gain = findings.without(bottleneck).map(|rate| rate / findings.rates.whole);
    report.answer = vec![findings.sentence(bottleneck), findings.next(bottleneck), findings.remedy(bottleneck)];
    report.settings = json!({
        "device": device, "transforms": settings.ops, "strategy": settings.strategy, "threads": threads,
        "cores": settings.cores, "prefetch": prefetch, "batch_size": settings.batch_size, "step": model.about(),
        "rounds": rounds, "seconds_a_part": settings.time.as_secs_f64(), "seed": subject.seed,
    });
    report.tables = vec![findings.table(&measured), findings.stages()];
    let bar = |part: Part| {
        let spread = measured.spread(part)?;
        let interval = Some((spread.low, spread.high));
        Some(Bar { name: part.name().to_owned(), value: spread.median, interval, marked: part == Part::Whole })
    };
    let rates: Vec<Bar> = Part::ALL.into_iter().filter_map(bar).collect();
    let svg = bars("Images per second: each part alone, and the whole", "1/s", &rates);
    report.plot("parts", "How fast each part would be alone, and the whole", svg);
    let stage = |(name, seconds): (&str, f64)| {
        let (name, value) = (name.to_owned(), 1e3 * seconds);
        Bar { name, value, interval: None, marked: false }
    };
    let svg = bars("A worker's time for one image", "ms", &findings.of_worker().map(stage));
    report.plot("stages", "What a worker spends its time on", svg);
    report.leading_plots = 2;
    report.notes.extend(skipped(measured.runs.iter().map(|(_, run)| run)));
    report.notes.extend([
        format!(
            "Each part was measured {rounds} times, in turn with the others: the median, and from where to where the rounds lie."
        ),
        "Read and decode: whole images; the pipeline decodes only what its operations need, so it may be faster."
            .to_owned(),
        "Without augmentation: a center crop in the place of all operations.".to_owned(),
        "Step alone: every batch is there when the step asks, and no worker runs beside it.".to_owned(),
    ]);
    if on_gpu {
        report.notes.push(
            "Sent twice, kernels twice: the pipeline with each batch copied to the GPU once more, and with the GPU's kernels \
             run once more. What takes time beside something slower does not show."
                .to_owned(),
        );
    } else {
        let reason = no_gpu().unwrap_or_else(|| "the operations run on the CPU".to_owned());
        report.tables[0].blank.push(format!("sent twice, kernels twice: {reason}."));
    }
    let spreads: Map<String, Value> =
        Part::ALL.into_iter().map(|part| (part.name().to_owned(), json!(measured.spread(part)))).collect();
    report.figures = json!({ "bottleneck": bottleneck, "gain": gain, "findings": findings, "rounds": spreads });
    Ok(Diagnosis { report, bottleneck, gain })
}

/// What is measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Read,
    ReadDecode,
    NoAugmentation,
    Pipeline,
    TransferTwice,
    KernelsTwice,
    Step,
    Whole,
}

impl Part {
    const ALL: [Self; 8] = [
        Self::Read,
        Self::ReadDecode,
        Self::NoAugmentation,
        Self::Pipeline,
        Self::TransferTwice,
        Self::KernelsTwice,
        Self::Step,
        Self::Whole,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadDecode => "read, decode",
            Self::NoAugmentation => "no augmentation",
            Self::Pipeline => "pipeline alone",
            Self::TransferTwice => "sent twice",
            Self::KernelsTwice => "kernels twice",
            Self::Step => "step alone",
            Self::Whole => "whole",
        }
    }

    fn is_of_gpu(self) -> bool {
        matches!(self, Self::TransferTwice | Self::KernelsTwice)
    }
}

/// What all rounds gave.
#[derive(Default)]
struct Measured {
    /// Images a second, of every round of every part.
    rates: Vec<(Part, f64)>,
    reading: Reading,
    /// The rounds of those that are pipelines.
    runs: Vec<(Part, RunTimes)>,
    /// Of the whole's rounds.
    accelerator_use: Vec<f64>,
}

impl Measured {
    /// Measures a part once more: images a second, infinite for a step that does nothing.
    fn add(
        &mut self,
        part: Part,
        subject: &Subject,
        settings: &Settings,
        size: Size,
        model: &mut Model,
    ) -> Result<f64> {
        let time = settings.time / settings.rounds.max(1);
        let builder = |ops| builder(subject, settings, ops);
        let all = || settings.ops.clone();
        let run = match part {
            Part::Read | Part::ReadDecode => {
                let reading = read(subject, settings.threads.max(1), time, part == Part::ReadDecode)?;
                if part == Part::Read {
                    self.reading += reading;
                }
                Err(reading.images_per_s())
            }
            Part::Step => Err(ready(subject, settings, time, model)?),
            Part::NoAugmentation => Ok(alone(&builder(without_augmentation(size, &settings.ops)).build()?, time)?),
            Part::Pipeline => Ok(alone(&builder(all()).build()?, time)?),
            Part::TransferTwice => Ok(alone(&builder(all()).again(Ablation::Transfer).build()?, time)?),
            Part::KernelsTwice => Ok(alone(&builder(all()).again(Ablation::Kernels).build()?, time)?),
            Part::Whole => {
                let mut ignore = |_: &_| Ok(());
                let mut run = Run::start(model.step.as_mut(), &mut ignore);
                run.for_time(&builder(all()).build()?, time)?;
                Ok(run.finish())
            }
        };
        let rate = match run {
            Ok(run) => {
                let rate = run.images_per_s().unwrap_or(0.0);
                if part == Part::Whole {
                    self.accelerator_use.push(run.accelerator_use().unwrap_or(0.0));
                }
                self.runs.push((part, run));
                rate
            }
            Err(rate) => rate,
        };
        self.rates.push((part, rate));
        Ok(rate)
    }

    /// The rounds of a part; `None` if it was not run, or takes no time.
    fn spread(&self, part: Part) -> Option<Spread> {
        let rates: Vec<f64> = self.rates.iter().filter(|rate| rate.0 == part).map(|rate| rate.1).collect();
        Spread::of(&rates).filter(|spread| spread.median.is_finite())
    }

    /// Medians. A pipe gives no more images a second than it gave those that were kept.
    fn rates(&self, intake: Option<f64>) -> Rates {
        let of = |part| self.spread(part).map_or(f64::INFINITY, |spread| spread.median);
        Rates {
            read: of(Part::Read).min(intake.unwrap_or(f64::INFINITY)),
            read_decode: of(Part::ReadDecode),
            no_augmentation: of(Part::NoAugmentation),
            pipeline: of(Part::Pipeline),
            transfer_twice: of(Part::TransferTwice),
            kernels_twice: of(Part::KernelsTwice),
            step: of(Part::Step),
            whole: of(Part::Whole),
        }
    }

    /// Where the time of the pipeline's workers went, over all rounds.
    fn per_image(&self) -> PerImage {
        let runs = || self.runs.iter().filter(|(part, _)| *part == Part::Pipeline).map(|(_, run)| run);
        let images = runs().map(RunTimes::images).sum::<u64>().max(1) as f64;
        let of = |stage: fn(&StageSeconds) -> f64| runs().map(|run| stage(&run.stages)).sum::<f64>() / images;
        PerImage {
            read: of(|stages| stages.read),
            decode: of(|stages| stages.decode),
            augment: of(|stages| stages.augment),
        }
    }
}

impl Findings {
    /// The rate that the workers could reach if an image took so many seconds of one of them, or that of the step.
    fn capped(&self, seconds: f64) -> f64 {
        (self.threads as f64 / seconds.max(1e-9)).min(self.rates.step)
    }

    /// By what share of its time the pipeline takes longer at such a rate.
    fn longer(&self, rate: f64) -> f64 {
        if rate.is_finite() && rate > 0.0 { self.rates.pipeline / rate - 1.0 } else { 0.0 }
    }

    fn bottleneck(&self) -> Bottleneck {
        let (transfer, kernels) = (self.longer(self.rates.transfer_twice), self.longer(self.rates.kernels_twice));
        let PerImage { read, decode, augment } = self.per_image;
        let all = read + decode + augment;
        if self.accelerator_use >= BUSY {
            Bottleneck::Step
        } else if transfer >= LONGER && transfer >= kernels {
            Bottleneck::Transfer
        } else if kernels >= LONGER {
            Bottleneck::Kernels
        } else if self.storage == Storage::Pipe && self.rates.read < self.rates.whole {
            Bottleneck::Pipe
        } else if self.blocked * read > BLOCKED * all {
            if self.storage == Storage::Network { Bottleneck::Network } else { Bottleneck::Disk }
        } else if self.taken >= TAKEN {
            Bottleneck::OtherWork
        } else if self.threads < self.cores {
            Bottleneck::Threads
        } else if self.mean_px < TINY_PX && augment < read + decode {
            Bottleneck::PerImage
        } else if augment > decode {
            Bottleneck::Augmentation
        } else if read > decode {
            Bottleneck::PerImage
        } else {
            Bottleneck::Decode
        }
    }

    /// Images per second if a bottleneck were not there; `None` if that is not bounded by anything measured.
    fn without(&self, bottleneck: Bottleneck) -> Option<f64> {
        let PerImage { read, decode, augment } = self.per_image;
        let all = read + decode + augment;
        let rate = match bottleneck {
            Bottleneck::Step => self.rates.pipeline,
            Bottleneck::Disk | Bottleneck::Network => self.capped(read * (1.0 - self.blocked) + decode + augment),
            Bottleneck::Pipe => self.rates.whole,
            // Had the workers the processors to themselves.
            Bottleneck::OtherWork => self.capped(all * (1.0 - self.taken)),
            Bottleneck::Threads => (self.rates.pipeline * self.cores as f64 / self.threads as f64).min(self.rates.step),
            Bottleneck::PerImage => self.capped(augment),
            Bottleneck::Decode => self.capped(read + augment),
            Bottleneck::Augmentation => self.capped(read + decode),
            // What the workers could do.
            Bottleneck::Transfer | Bottleneck::Kernels => self.capped(all),
        };
        (rate.is_finite() && self.rates.whole > 0.0).then_some(rate)
    }

    fn sentence(&self, bottleneck: Bottleneck) -> String {
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
            Bottleneck::Step => format!(
                "The training step is the bottleneck: the trainer computes {:.0} % of the time, and the pipeline alone would make {:.0} images/s where the step takes {:.0}.",
                100.0 * self.accelerator_use,
                self.rates.pipeline,
                self.rates.step
            ),
            Bottleneck::Disk | Bottleneck::Network => format!(
                "The {} is the bottleneck: workers wait for bytes {:.0} % of the time ({:.2} ms an image); {waits}.",
                if bottleneck == Bottleneck::Disk { "disk" } else { "network" },
                100.0 * self.blocked * read / all,
                1e3 * self.blocked * read
            ),
            Bottleneck::Pipe => format!(
                "The program that writes the pipe is the bottleneck: it gave {:.0} images/s; with images from memory {waits}.",
                self.rates.read
            ),
            Bottleneck::OtherWork => format!(
                "Other work on this machine is the bottleneck: it took {:.0} % of the processors; {waits}.",
                100.0 * self.taken
            ),
            Bottleneck::Threads => format!(
                "Too few worker threads are the bottleneck: {} for {} processors; {waits}.",
                self.threads, self.cores
            ),
            Bottleneck::PerImage => format!(
                "The cost of each image, whatever its size, is the bottleneck: images of {:.0} pixels and {:.1} kB; {}; {waits}.",
                self.mean_px,
                self.mean_bytes / 1e3,
                of_worker("opening, reading and beginning to decode", read + decode)
            ),
            Bottleneck::Transfer => format!(
                "Copying to the GPU is the bottleneck: with each batch sent twice the pipeline takes {:.0} % longer; {waits}.",
                100.0 * self.longer(self.rates.transfer_twice)
            ),
            Bottleneck::Kernels => format!(
                "The GPU's kernels are the bottleneck: with each run twice the pipeline takes {:.0} % longer; {waits}.",
                100.0 * self.longer(self.rates.kernels_twice)
            ),
            Bottleneck::Decode => format!("Decoding is the bottleneck: {}; {waits}.", of_worker("it", decode)),
            Bottleneck::Augmentation => {
                format!("Augmentation is the bottleneck: {}; {waits}.", of_worker("it", augment))
            }
        }
    }

    fn next(&self, bottleneck: Bottleneck) -> String {
        let Some(rate) = self.without(bottleneck) else {
            return "Without it nothing that was measured would hold the training up.".to_owned();
        };
        let next = if rate >= self.rates.step { "the training step" } else { "the rest of the pipeline" };
        let gain = rate / self.rates.whole;
        match bottleneck {
            Bottleneck::Pipe => {
                format!("A faster writer would gain up to {:.1} times.", rate / self.rates.read.max(f64::MIN_POSITIVE))
            }
            Bottleneck::Step => {
                format!("A faster step would gain up to {gain:.1} times, until the pipeline is the bottleneck.")
            }
            _ => format!("Without it {next} would allow {rate:.0} images/s, {gain:.1} times as many."),
        }
    }

    fn remedy(&self, bottleneck: Bottleneck) -> String {
        let change = match bottleneck {
            Bottleneck::Step => {
                "nothing in the pipeline; a faster accelerator, lower precision or a larger batch. Fewer worker threads may do (warpfeed tune)"
            }
            Bottleneck::Disk if self.mean_bytes < SMALL_BYTES => {
                "pack the small files into large ones, so that they are read in a row; more worker threads hide latency; a faster or local disk"
            }
            Bottleneck::Disk => {
                "keep the images on a faster or local disk, or in memory; store them smaller; more worker threads hide latency, not lack of bandwidth"
            }
            Bottleneck::Network => {
                "keep what was fetched (--shard-cache), or copy the shards to a local disk; a larger window and more worker threads hide latency, not lack of bandwidth"
            }
            Bottleneck::Pipe => {
                "read the shards themselves, not through a pipe; or several pipes, each with a writer of its own"
            }
            Bottleneck::OtherWork => {
                "end the other work, or measure again when the machine is quiet: what else is slow cannot be said until then"
            }
            Bottleneck::Threads => "give it more worker threads (--threads; warpfeed tune finds how many)",
            Bottleneck::PerImage => {
                "pack the images into large files, so that none is opened by itself, and give the pipeline more cores"
            }
            Bottleneck::Decode => {
                "store the images smaller (their sides near what the training uses), give the pipeline more cores, or decode on a GPU"
            }
            Bottleneck::Augmentation => {
                "use strategy fused or composed, cheaper operations, more cores, or a GPU for the operations"
            }
            Bottleneck::Transfer => {
                "have nvJPEG decode, so that encoded images are sent and not pixels (--decode auto); store them smaller; see that the GPU has its full link, and pinned memory"
            }
            Bottleneck::Kernels => {
                "use strategy fused or composed, cheaper operations, or a faster GPU; training shares the GPU with them"
            }
        };
        format!("What to change: {change}.")
    }

    fn table(&self, measured: &Measured) -> Table {
        let columns = ["part", "images/s", "from", "to", "of the whole, times"];
        let mut table = Table::new("parts", "How fast each part would be alone", &columns);
        for part in Part::ALL {
            let spread = measured.spread(part);
            let of = |of: fn(Spread) -> f64| Cell::number(spread.map(of), 0);
            let times = spread.map(|spread| spread.median / self.rates.whole.max(1e-9));
            let rates = [of(|spread| spread.median), of(|spread| spread.low), of(|spread| spread.high)];
            table.rows.push([part.name().into()].into_iter().chain(rates).chain([Cell::number(times, 2)]).collect());
        }
        if self.rates.step.is_infinite() {
            table.blank.push("the step alone: it does nothing.".to_owned());
        }
        table
    }

    /// What a worker spends its time on, in seconds an image.
    fn of_worker(&self) -> [(&'static str, f64); 4] {
        let PerImage { read, decode, augment } = self.per_image;
        let (waiting, reading) = (read * self.blocked, read * (1.0 - self.blocked));
        [("waiting for bytes", waiting), ("reading", reading), ("decode", decode), ("augment", augment)]
    }

    fn stages(&self) -> Table {
        let mut table = Table::new("stages", "A worker's time for one image", &["stage", "ms", "share, %"]);
        let PerImage { read, decode, augment } = self.per_image;
        let all = (read + decode + augment).max(1e-12);
        for (name, seconds) in self.of_worker() {
            table.rows.push(vec![name.into(), Cell::number(1e3 * seconds, 3), Cell::number(100.0 * seconds / all, 1)]);
        }
        table
    }
}

fn builder(subject: &Subject, settings: &Settings, ops: Vec<Transform>) -> Builder {
    let builder = subject.builder().batch_size(settings.batch_size).threads(settings.threads);
    ops.into_iter().fold(builder.strategy(settings.strategy), Builder::augment)
}

/// A center crop to the size of a pipeline's images, and its normalization.
fn without_augmentation(size: Size, ops: &[Transform]) -> Vec<Transform> {
    let normalize = ops.iter().filter(|op| matches!(op, Transform::Explicit(Op::Normalize(_))));
    let crop = CenterCrop::new(size);
    std::iter::once(crop.into()).chain(normalize.cloned()).collect()
}

/// A pipeline without a training step.
fn alone(pipeline: &Pipeline, time: Duration) -> Result<RunTimes> {
    let (mut none, mut ignore) = (Model::none(), |_: &_| Ok(()));
    let mut run = Run::start(none.step.as_mut(), &mut ignore);
    run.for_time(pipeline, time)?;
    Ok(run.finish())
}

/// Images per second of the training step alone, with every batch ready and nothing else at work; infinite if it does
/// nothing. The step keeps the batches it is given, so each is made while the clock is stopped.
fn ready(subject: &Subject, settings: &Settings, time: Duration, model: &mut Model) -> Result<f64> {
    let builder = builder(subject, settings, settings.ops.clone()).threads(0).prefetch(1);
    let (mut step, mut images) = (Duration::ZERO, 0);
    let begin = Instant::now();
    for batch in builder.build()?.epoch(0) {
        let batch = batch?;
        batch.images().synchronize()?;
        let (start, len) = (Instant::now(), batch.len());
        model.step.train(batch)?;
        model.step.finish()?;
        (step, images) = (step + start.elapsed(), images + len);
        if begin.elapsed() >= time {
            break;
        }
    }
    if images == 0 {
        return Err(Error::parameter("diagnose", "source", "images that can be used", "none"));
    }
    let a_batch_s = step.as_secs_f64() * settings.batch_size as f64 / images as f64;
    Ok(if a_batch_s < NO_STEP_S { f64::INFINITY } else { settings.batch_size as f64 / a_batch_s })
}

/// What threads did that read, and decoded if told to.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    images: u64,
    /// From the start of the first to the end of the last.
    wall: Duration,
    /// The threads' time in `read`, together.
    reading: Duration,
    /// The part of `reading` in which they were neither computing nor ready to compute; all of it if the system does
    /// not say.
    blocked: Duration,
}

impl Reading {
    /// Does what reads, and counts its time.
    fn timed<T>(&mut self, read: impl FnOnce() -> T) -> T {
        let (from, start) = (scheduled(), Instant::now());
        let result = read();
        let elapsed = start.elapsed();
        self.reading += elapsed;
        self.blocked += match (from, scheduled()) {
            (Some(from), Some(to)) => elapsed.saturating_sub(to.saturating_sub(from)),
            _ => elapsed,
        };
        result
    }

    fn images_per_s(&self) -> f64 {
        self.images as f64 / self.wall.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn blocked(&self) -> f64 {
        (self.blocked.as_secs_f64() / self.reading.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0)
    }
}

impl AddAssign for Reading {
    fn add_assign(&mut self, other: Self) {
        self.images += other.images;
        self.wall += other.wall;
        self.reading += other.reading;
        self.blocked += other.blocked;
    }
}

/// Encoded images, one after the other, round and round, for any number of threads.
enum Images<'a> {
    /// In an epoch's order.
    DataSet { source: &'a dyn Source, order: Order, next: AtomicU64 },
    /// As they come; who has the lock waits for the next.
    Stream { stream: &'a dyn Stream, samples: Mutex<Box<dyn Samples>> },
}

impl<'a> Images<'a> {
    fn of(subject: &'a Subject) -> Result<Self> {
        Ok(match &subject.input {
            Input::DataSet(source) => {
                let order = Sampler::shuffled(source.len(), subject.seed).epoch(0);
                Self::DataSet { source: source.as_ref(), order, next: AtomicU64::new(0) }
            }
            Input::Stream(stream) => {
                let samples = Mutex::new(stream.begin(&StreamStart::whole(0))?);
                Self::Stream { stream: stream.as_ref(), samples }
            }
        })
    }

    /// Reads the next one; `None` if there is none at all. The time that it takes, and how much of it is waiting, is added
    /// to `sum`.
    fn read<'b>(&'b self, buffer: &'b mut Vec<u8>, sum: &mut Reading) -> Option<Result<&'b [u8]>> {
        match self {
            Self::DataSet { source, order, next } => {
                let index = order.get(next.fetch_add(1, Relaxed) % order.len().max(1))?;
                Some(sum.timed(|| source.read(index, buffer)))
            }
            Self::Stream { stream, samples } => {
                let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
                let sample = sum.timed(|| {
                    if let Some(sample) = next(samples.as_mut())? {
                        return Ok(Some(sample));
                    }
                    *samples = stream.begin(&StreamStart::whole(0))?;
                    next(samples.as_mut())
                });
                drop(samples);
                Some(match sample.transpose()? {
                    Ok(StreamSample { bytes, .. }) => {
                        *buffer = bytes;
                        Ok(&buffer[..])
                    }
                    Err(error) => Err(error),
                })
            }
        }
    }
}

/// Reads images, round and round, on `threads` threads, and decodes them as a whole if told to. Those that cannot be used
/// are skipped.
fn read(subject: &Subject, threads: usize, time: Duration, decode: bool) -> Result<Reading> {
    let (images, stop) = (Images::of(subject)?, AtomicBool::new(false));
    let begin = Instant::now();
    let work = || -> Result<Reading> {
        let mut sum = Reading::default();
        let (mut buffer, mut decoder, mut image) = (Vec::new(), Decoder::new()?, Image::new(Size::new(1, 1)));
        while let Some(bytes) = images.read(&mut buffer, &mut sum) {
            let done = bytes.and_then(|bytes| {
                if decode {
                    let header = probe(bytes)?;
                    check_pixels(header.size, DEFAULT_MAX_PIXELS)?;
                    decoder.decode(bytes, &header, Rect::full(header.size), false, &mut image)?;
                }
                Ok(())
            });
            match done {
                Ok(()) => sum.images += 1,
                Err(error) if error.is_bad_sample() => {}
                Err(error) => return Err(error),
            }
            // At most once through the order: a source of only bad images must not keep this going forever.
            if begin.elapsed() >= time || stop.load(Relaxed) {
                break;
            }
        }
        Ok(sum)
    };
    let parts: Vec<Result<Reading>> = std::thread::scope(|scope| -> Result<_> {
        let start = |i| spawn_scoped(scope, format!("warpfeed-reader-{i}"), work);
        let threads = (0..threads).map(start).collect::<Result<Vec<_>>>().inspect_err(|_| stop.store(true, Relaxed))?;
        let panicked = |panic: Box<dyn std::any::Any + Send>| Err(Error::panic(panic.as_ref()));
        Ok(threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect())
    })?;
    let mut sum = Reading { wall: begin.elapsed(), ..Reading::default() };
    for part in parts {
        sum += part?;
    }
    Ok(sum)
}

/// Time that this thread has computed or been ready to compute, if the system says.
fn scheduled() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut fields = text.split_whitespace().map(|field| field.parse::<u64>().ok());
    Some(Duration::from_nanos(fields.next()?? + fields.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Photographs on a quiet machine.
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
        assert_eq!(found(Storage::Disk, 1e3).0, Bottleneck::Disk);
        let (bottleneck, sentence, remedy) = found(Storage::Network, 1e3);
        assert_eq!(bottleneck, Bottleneck::Network);
        assert!(sentence.starts_with("The network is") && remedy.contains("--shard-cache"), "{sentence} {remedy}");
        assert_eq!(found(Storage::Pipe, 100.0).0, Bottleneck::Pipe);
    }

    #[test]
    fn a_busy_machine_is_not_slow_decoding() {
        let per_image = PerImage { read: 1e-4, decode: 3e-3, augment: 1e-4 };
        assert_eq!(of(per_image).bottleneck(), Bottleneck::Decode);
        let busy = Findings { taken: 0.5, ..of(per_image) };
        assert_eq!(busy.bottleneck(), Bottleneck::OtherWork);
        assert!(busy.without(Bottleneck::OtherWork).unwrap() > of(per_image).capped(3.2e-3) * 1.9);
        let slow_step = Findings { accelerator_use: 0.95, ..busy };
        assert_eq!(slow_step.bottleneck(), Bottleneck::Step);
    }

    /// Workers that wait for the device seem to wait for nothing of their own.
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
        assert_eq!(found(510.0, 990.0, 0.5), (Bottleneck::Transfer, workers));
        assert_eq!(found(900.0, 505.0, 0.5), (Bottleneck::Kernels, workers));
        assert_eq!(found(510.0, 550.0, 0.95).0, Bottleneck::Step);
        assert_eq!(found(900.0, 850.0, 0.5).0, Bottleneck::Decode);
        assert_eq!(found(f64::INFINITY, f64::INFINITY, 0.5).0, Bottleneck::Decode);
        // Nothing was delivered: nothing is known.
        assert_eq!(found(0.0, 0.0, 0.5).0, Bottleneck::Decode);
    }
}
