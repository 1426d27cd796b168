//! Finds out why a trainer waits, by measuring the pipeline, its parts, and with one part of its work done twice:
//! leaving a part out would decode other pixels.

mod findings;
mod measured;
mod reading;
mod words;

use super::environment::cores;
use super::grid::in_rounds;
use super::report::Report;
use super::report::plot::{Axes, Bar};
use super::spread::Spread;
use super::subject::{Model, Subject, no_gpu};
use super::train::{about_setup, skipped};
use findings::Findings;
use measured::{Measured, Part, builder};
use serde::Serialize;
use serde_json::json;
use std::time::Duration;
use warpfeed::ops::Transform;
use warpfeed::{Result, Strategy};

/// Settings of the experiment.
#[derive(Debug, Clone)]
pub struct DiagnoseSettings {
    /// Images in a batch.
    pub batch_size: usize,
    /// Number of worker threads. If there are fewer than `cores`, the first remedy is more of them.
    pub threads: usize,
    /// Number of processors that workers may use.
    pub cores: usize,
    /// The operations. They must end in one size.
    pub ops: Vec<Transform>,
    /// Strategy by which they are run.
    pub strategy: Strategy,
    /// Time for each part, over all rounds.
    pub time: Duration,
    /// Measurements of each part, in turn with the others. Fewer than six cannot show which stage takes the longest.
    pub rounds: u32,
}

impl DiagnoseSettings {
    /// Settings for these operations: a worker thread for each processor, batches of 32, and three seconds in eight
    /// rounds per part.
    #[must_use]
    pub fn new(ops: impl IntoIterator<Item = Transform>) -> Self {
        let (cores, ops, time) = (cores(), ops.into_iter().collect(), Duration::from_secs(3));
        Self { batch_size: 32, threads: cores, cores, ops, strategy: Strategy::Fused, time, rounds: 8 }
    }
}

/// The part of a training that limits its speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TrainingBottleneck {
    /// The storage: workers wait for bytes.
    Disk,
    /// The network, or the server: workers wait for bytes.
    Network,
    /// The program that writes the pipe.
    Pipe,
    /// Other work on this machine.
    OtherWork,
    /// Too few worker threads: fewer than processors.
    Threads,
    /// Costs of an image that do not depend on its size: opening a file, starting to decode.
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
    /// Rate of reading alone.
    pub read: f64,
    /// Rate of reading and decoding whole images.
    pub read_decode: f64,
    /// Rate of the pipeline without a training step.
    pub pipeline: f64,
    /// Rate of the pipeline if the CPU decodes the pixels of each image twice; infinite on a GPU.
    pub decode_twice: f64,
    /// Rate of the pipeline if the CPU runs the operations twice on what was decoded once; infinite on a GPU.
    pub operations_twice: f64,
    /// Rate of the pipeline if each batch is copied to the GPU twice; infinite on the CPU.
    pub transfer_twice: f64,
    /// Rate of the pipeline if the GPU's kernels run twice; infinite on the CPU.
    pub kernels_twice: f64,
    /// Rate of the training step alone, with every batch ready; infinite if it does nothing.
    pub step: f64,
    /// Rate of pipeline and training step together.
    pub whole: f64,
}

/// A worker's time for one image in seconds, by stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PerImage {
    /// Reading, waits included.
    pub read: f64,
    /// Decoding.
    pub decode: f64,
    /// Drawing and running the operations.
    pub augment: f64,
}

impl PerImage {
    /// Seconds of all stages.
    fn all(self) -> f64 {
        self.read + self.decode + self.augment
    }
}

/// Results of the experiment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The report.
    pub report: Report,
    /// The bottleneck.
    pub bottleneck: TrainingBottleneck,
    /// Possible speed-up without the bottleneck, up to the next one; `None` if nothing else is near.
    pub gain: Option<f64>,
}

/// Notes on how parts are measured.
const NOTES: [&str; 4] = [
    "Read and decode is of whole images. The pipeline decodes only the part that its operations need, so it may be faster.",
    "Images/s and the trainer's share leave out set-up and the end of an epoch.",
    "Step alone: every batch is ready when the step asks for it, and no worker runs.",
    "Twice: the pipeline does this part of its work once more for the same pixels. The extra time is the part's cost. A \
     part that runs at the same time as something slower shows no cost.",
];

/// Measures the parts in rounds, in turn, and finds the bottleneck. `progress` is called for each part.
///
/// # Errors
/// [`Error::Parameter`](warpfeed::Error::Parameter) for a subject without usable images; errors of pipelines and the
/// step.
pub fn diagnose(
    subject: &Subject,
    settings: &DiagnoseSettings,
    model: &mut Model,
    progress: &mut dyn FnMut(&str),
) -> Result<Diagnosis> {
    let mut report = subject.report("diagnose", "What is the bottleneck, and what would be gained without it?")?;
    let on_gpu = subject.device.resolve()?.is_some();
    let (mean_px, mean_bytes) = report.data_set.as_ref().map_or((0.0, 0.0), |data| (data.mean_px, data.mean_bytes));
    let threads = settings.threads.max(1);
    // Built first, so that settings that a pipeline refuses are reported before anything is measured.
    let whole = builder(subject, settings).build()?;
    let (device, prefetch) = (whole.device_name(), whole.prefetch());
    // Frees its memory on the device for the measured pipelines.
    drop(whole);
    let mut parts: Vec<Part> = Part::all().into_iter().filter(|part| part.is_measured(on_gpu)).collect();
    let (rounds, mut measured) = (settings.rounds.max(1), Measured::default());
    in_rounds(&mut parts, (rounds, subject.seed), progress, |part, _| {
        let rate = measured.add(*part, subject, settings, model)?;
        let stated = if rate.is_finite() { format!("{rate:.0} images/s") } else { "no time".to_owned() };
        Ok(format!("{}: {stated}", part.name()))
    })?;
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
    let rivals = measured.stage_rounds().rivals(bottleneck).unwrap_or_default();
    let said = [findings.sentence(bottleneck) + &rivals, findings.next(bottleneck), findings.remedy(bottleneck)];
    report.answer = said.into();
    report.settings = json!({
        "device": device, "transforms": settings.ops, "strategy": settings.strategy, "threads": threads,
        "cores": settings.cores, "prefetch": prefetch, "batch_size": settings.batch_size, "step": model.about(),
        "rounds": rounds, "seconds_a_part": settings.time.as_secs_f64(), "seed": subject.seed,
    });
    let missing = if on_gpu {
        "decoded twice, operations twice: the operations run on the GPU.".to_owned()
    } else {
        let reason = no_gpu().unwrap_or_else(|| "the operations run on the CPU".to_owned());
        format!("sent twice, kernels twice: {reason}.")
    };
    report.tables = vec![measured.table(&findings.rates).blank([missing]), findings.stages()];
    plots(&mut report, &measured, &findings);
    report.notes.extend(about_setup(measured.runs.iter().map(|(_, run)| run)));
    report.notes.extend(skipped(measured.runs.iter().map(|(_, run)| run)));
    report.notes.push(format!(
        "Each part was measured {rounds} times, in turn with the others. Figures are medians, with the interval in which the \
         rounds lie."
    ));
    report.notes.extend(NOTES.map(str::to_owned));
    let spreads = measured.json();
    report.figures = json!({ "bottleneck": bottleneck, "gain": gain, "findings": findings, "rounds": spreads });
    Ok(Diagnosis { report, bottleneck, gain })
}

fn plots(report: &mut Report, measured: &Measured, findings: &Findings) {
    let bar = |part: Part| {
        let spread = measured.spread(part)?;
        let interval = Some((spread.low, spread.high));
        Some(Bar { name: part.name().to_owned(), value: spread.median, interval, marked: part == Part::Whole })
    };
    let rates: Vec<Bar> = Part::all().into_iter().filter_map(bar).collect();
    let svg = Axes::new("Images per second: each part alone, and the whole", "images/s").bars(&rates);
    report.plot("parts", "How fast each part would be alone, and the whole", svg);
    let stage = |(name, seconds): (&str, f64)| {
        let (name, value) = (name.to_owned(), 1e3 * seconds);
        Bar { name, value, interval: None, marked: false }
    };
    let svg = Axes::new("A worker's time for one image", "ms").bars(&findings.of_worker().map(stage));
    report.plot("stages", "What a worker spends its time on", svg);
    report.leading_plots = 2;
}
