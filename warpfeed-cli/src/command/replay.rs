//! `warpfeed replay`: reproduces batches of a logged run.

use super::options::PipelineOptions;
use super::output::{escape, print, print_json};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use warpfeed::{BatchImages, Error, LogSummary, Pipeline, Replay, Result};
use warpfeed_bench::replay::{WrittenBatch, write_batch, write_stages};

/// Make a batch of a logged run again, byte for byte
///
/// The run was started with warpfeed run --log. FOLDER gets the images, a sheet of them, the tensor, and a receipt for
/// each image. The CPU makes them, whatever device the run had. The images are 8-bit: normalization is undone.
///
/// A log may be somebody else's. It decides about what is made, and, without --source, where images are read; caches,
/// entry points, keys and threads are not the run's.
#[derive(Args)]
pub struct ReplayArgs {
    /// The log of the run.
    #[arg(long, value_name = "RUN.wlog")]
    log: PathBuf,
    /// Make the batch of this step again, counted from 0.
    #[arg(long, value_name = "N", conflicts_with_all = ["index", "verify"],
        required_unless_present_any = ["index", "verify"])]
    step: Option<u64>,
    /// Take the sample with this index through its operations, with an image after each.
    #[arg(long, value_name = "I", conflicts_with = "verify")]
    index: Option<u64>,
    /// Number of the epoch, for --index.
    #[arg(long, value_name = "E", default_value_t = 0, conflicts_with_all = ["step", "verify"])]
    epoch: u64,
    /// Number of times that the sample came before in the epoch, for --index.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = ["step", "verify"])]
    repetition: u32,
    /// Check the log's chain, make some batches again, and compare them with the log's digests.
    #[arg(long)]
    verify: bool,
    /// Number of batches for --verify; with 0 the chain alone is checked, without the images.
    #[arg(long, value_name = "K", default_value_t = 10, conflicts_with_all = ["step", "index"])]
    samples: u64,
    /// Seed that draws the batches for --verify [default: another one each time, which is printed]
    #[arg(long, value_name = "S", conflicts_with_all = ["step", "index"])]
    seed: Option<u64>,
    /// Where the images of the run are now [default: where they were]
    #[arg(long, value_name = "SOURCE")]
    source: Option<PathBuf>,
    /// Reproduce batches with images that nvJPEG decoded, too: their pixels differ a little.
    #[arg(long)]
    approximate: bool,
    /// Worker threads [default: as warpfeed run]
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
    /// Folder for the results.
    #[arg(short, long, value_name = "FOLDER", required_unless_present = "verify", conflicts_with = "verify")]
    output: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// The results of --verify as JSON.
#[derive(Serialize)]
struct Verified {
    log: LogSummary,
    seed: u64,
    /// The steps whose batches were made again.
    steps: Vec<u64>,
    /// The places that were read for it.
    read: Vec<String>,
}

/// The results of --index as JSON.
#[derive(Serialize)]
struct Stages {
    folder: PathBuf,
    index: u64,
    epoch: u64,
    name: Option<String>,
    files: Vec<String>,
}

impl ReplayArgs {
    pub fn run(self) -> Result<()> {
        let replay = Replay::open(&self.log)?.approximate(self.approximate);
        if self.verify && self.samples == 0 {
            return self.print_verified(&replay.summary()?, Vec::new(), 0, Vec::new());
        }
        let run = super::logged_run(replay.arguments())?;
        let source = run.source.for_replay(self.source.as_deref())?;
        let options: PipelineOptions = run.pipeline.for_replay(&replay.partition(), self.threads)?;
        let builder = options.builder(&source)?;
        if builder.is_ragged() {
            self.with(&replay, &builder.build_ragged()?, source.places())
        } else {
            self.with(&replay, &builder.build()?, source.places())
        }
    }

    fn with<I: BatchImages>(self, replay: &Replay, pipeline: &Pipeline<I>, read: Vec<String>) -> Result<()> {
        if self.verify {
            let log = replay.summary()?;
            if !log.digests {
                return Err(Error::Parameter {
                    operation: "replay",
                    parameter: "--verify",
                    expected: "a log that was written with --digests or --chain".to_owned(),
                    got: format!("{}, which has neither", self.log.display()),
                });
            }
            let random = || RandomState::new().build_hasher().finish() % 1_000_000;
            let seed = self.seed.unwrap_or_else(random);
            let steps = replay.verify(pipeline, self.samples, seed)?;
            return self.print_verified(&log, steps, seed, read);
        }
        let folder = self.output.unwrap_or_default();
        match (self.step, self.index) {
            (Some(step), _) => {
                let written = write_batch(&replay.batch(pipeline, step)?, &folder)?;
                if self.json { print_json(&written) } else { print(&batch_text(step, &written, &folder)) }
            }
            (None, index) => {
                let (index, epoch) = (index.unwrap_or_default(), self.epoch);
                replay.check(pipeline)?;
                let files = write_stages(pipeline, (epoch, index, self.repetition), &folder)?;
                let stages = Stages { name: pipeline.name(index), folder, index, epoch, files };
                if self.json { print_json(&stages) } else { print(&stages_text(&stages)) }
            }
        }
    }

    fn print_verified(&self, log: &LogSummary, steps: Vec<u64>, seed: u64, read: Vec<String>) -> Result<()> {
        if self.json {
            return print_json(&Verified { log: log.clone(), seed, steps, read });
        }
        let mut text = format!("{} batches: {}\n", log.batches, escape(self.log.display()));
        // Writing to a string cannot fail.
        let _ = match &log.chain {
            Some(chain) => writeln!(text, "chain    whole; its last hash is {chain}"),
            None => writeln!(text, "chain    none (warpfeed run --chain writes one)"),
        };
        if !steps.is_empty() {
            let count = steps.len();
            let steps: Vec<String> = steps.iter().map(u64::to_string).collect();
            let _ = writeln!(text, "made     {count} batches again, drawn with --seed {seed}: all as logged");
            let _ = writeln!(text, "steps    {}", steps.join(", "));
            let read: Vec<String> = read.iter().map(escape).collect();
            let whose = if self.source.is_some() { "given by --source" } else { "the place that the log names" };
            let _ = writeln!(text, "read     {} ({whose})", read.join(", "));
        }
        print(&text)
    }
}

/// The images of a batch, line by line.
fn batch_text(step: u64, written: &WrittenBatch, folder: &std::path::Path) -> String {
    let images = written.images.len();
    let mut text = format!("step {step}, epoch {}: {images} images in {}\n", written.epoch, escape(folder.display()));
    for image in &written.images {
        let receipt = &image.receipt;
        // Writing to a string cannot fail.
        let _ = write!(text, "{}: sample {}", image.file, receipt.index);
        let _ = match receipt.label {
            Some(label) => write!(text, ", label {label}"),
            None => write!(text, ", no label"),
        };
        if receipt.repetition > 0 {
            let _ = write!(text, ", repetition {}", receipt.repetition);
        }
        if let Some(bad) = receipt.instead_of {
            let _ = write!(text, ", instead of bad sample {bad}");
        }
        if let (Some(partner), Some(share)) = (receipt.partner, receipt.share) {
            let _ = write!(text, ", {:.0} % mixed with image {partner}", 100.0 * (1.0 - share));
        }
        if receipt.padding {
            text += ", padding";
        }
        let _ = match &receipt.name {
            Some(name) => writeln!(text, ": {}", escape(name)),
            None => writeln!(text),
        };
    }
    text
}

fn stages_text(stages: &Stages) -> String {
    let Stages { folder, index, epoch, name, files } = stages;
    let name = name.as_deref().unwrap_or_default();
    let mut text = format!("sample {index}, epoch {epoch}: {} in {}\n", escape(name), escape(folder.display()));
    for file in files {
        text += file;
        text.push('\n');
    }
    text
}
