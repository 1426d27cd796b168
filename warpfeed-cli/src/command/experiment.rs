//! Options that experiments share: images, device, configurations, and the report's folder.

use super::options::PresetOptions;
use super::output::{Progress, print, print_json, say};
use super::setting_args::choice;
use super::source::SourceArgs;
use super::values::seconds;
use clap::Args;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;
use warpfeed::source::{Input, without_secrets};
use warpfeed::{Device, Error, Result, Strategy, StreamPriority};
use warpfeed_bench::configurations;
use warpfeed_bench::configurations::worker_counts;
use warpfeed_bench::environment::Environment;
use warpfeed_bench::report::Report;
use warpfeed_bench::subject::{Storage, Subject};

/// Options for the images.
#[derive(Args)]
pub struct SubjectOptions {
    #[command(flatten)]
    source: SourceArgs,
    /// End each epoch after K images.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Seed of order and random transforms.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

/// Options for the device.
#[derive(Args)]
pub struct DeviceOptions {
    /// Device for augmentations: auto, cpu, cuda, cuda:I.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Device,
    /// Priority of the pipeline's streams on a GPU.
    #[arg(long, value_parser = choice::<StreamPriority>("stream_priority"), default_value = "low")]
    stream_priority: StreamPriority,
}

impl DeviceOptions {
    /// The images, to be processed on this device.
    pub fn on(&self, subject: &SubjectOptions) -> Result<Subject> {
        // Checked first: a missing device is reported before a large folder is listed.
        self.device.available()?;
        Ok(Subject { device: self.device, stream_priority: self.stream_priority, ..subject.subject()? })
    }
}

impl SubjectOptions {
    /// Opens other images with the same options.
    pub fn other(&self, spec: &Path) -> Result<Input> {
        self.source.other(spec)
    }

    pub fn subject(&self) -> Result<Subject> {
        let subject = Subject::limited(self.source.name(), self.source.open()?, self.limit)?;
        let storage = if self.source.is_remote() { Storage::Network } else { subject.storage };
        Ok(Subject { storage, seed: self.seed, ..subject })
    }
}

/// Options for the report.
#[derive(Args)]
pub struct ReportOptions {
    /// Write report.html, report.json, CSV and SVG files into this folder.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

impl ReportOptions {
    /// Runs an experiment, which gets the progress, and writes its report.
    pub fn run(&self, experiment: impl FnOnce(&mut dyn FnMut(&str)) -> Result<Report>) -> Result<()> {
        let mut progress = self.begin()?;
        let report = experiment(&mut |line| progress.line(line))?;
        progress.end();
        self.finish(report)
    }

    /// Creates the folder, so that one that cannot be written is reported before anything is measured.
    pub fn begin(&self) -> Result<Progress> {
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder).map_err(io("create", folder))?;
            let probe = folder.join(format!(".{}", unused_name()));
            File::create(&probe).and_then(|_| std::fs::remove_file(&probe)).map_err(io("write into", folder))?;
        }
        Ok(Progress::start())
    }

    /// Prints the report before writing it, so that a full disk loses no figures.
    pub fn finish(&self, mut report: Report) -> Result<()> {
        report.command = Some(command());
        if self.json {
            print_json(&report.json())?
        } else {
            print(&report.text())?
        }
        let Some(folder) = &self.out else { return Ok(()) };
        report.write(folder)?;
        say(format_args!("Report: {}", folder.join("report.html").display()));
        Ok(())
    }
}

/// The command line, without secrets.
fn command() -> String {
    let quoted = |argument: String| {
        let public = without_secrets(&argument);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+.,:/@%".contains(c);
        if !public.is_empty() && public.chars().all(plain) {
            public.into_owned()
        } else {
            format!("'{}'", public.replace('\'', r"'\''"))
        }
    };
    std::iter::once("warpfeed".to_owned()).chain(super::arguments().map(quoted)).collect::<Vec<_>>().join(" ")
}

fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> Error + 'a {
    move |source| Error::Io { action, path: path.to_owned(), source: source.into() }
}

/// Time for each configuration, over all rounds.
const CONFIGURATION_TIME: Duration = Duration::from_secs(6);

/// Options for the configurations to measure.
#[derive(Args)]
pub struct GridOptions {
    /// Numbers of worker threads [default: 1, 2, 3, 4, 6, 8, ... and all processors but the trainers']
    #[arg(long, value_name = "T", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Numbers of prefetched batches.
    #[arg(long, value_name = "P", value_delimiter = ',', default_values_t = [1, 2, 4])]
    prefetch: Vec<usize>,
    /// GPUs that train; each takes a core or two for its trainer [default: the GPUs of this machine]
    #[arg(long, value_name = "G")]
    gpus: Option<usize>,
    /// Images in a batch.
    #[arg(long, value_name = "B", default_value_t = 32)]
    batch_size: usize,
    /// How operations are run.
    #[arg(long, value_parser = choice::<Strategy>("strategy"), default_value = "fused")]
    strategy: Strategy,
    #[command(flatten)]
    preset: PresetOptions,
    /// Seconds for each configuration and round [default: 6 over all rounds]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Measurements of each configuration, in turn with the others [default: as many as the verdicts need, 16 or more]
    #[arg(long, value_name = "R")]
    rounds: Option<u32>,
}

impl GridOptions {
    /// Number of GPUs that train.
    pub fn gpus(&self) -> usize {
        self.gpus.unwrap_or_else(|| Environment::here().gpus.len())
    }

    pub fn settings(
        &self,
        persistent: &[bool],
        pinned: &[bool],
        baseline: bool,
    ) -> Result<configurations::ConfigurationsSettings> {
        let threads = if self.threads.is_empty() {
            worker_counts(Environment::here().cores, self.gpus())
        } else {
            self.threads.clone()
        };
        let on_gpu = !Environment::here().gpus.is_empty();
        let staged = if on_gpu { pinned.len() } else { 1 };
        let count = threads.len() * self.prefetch.len() * persistent.len() * staged + usize::from(baseline);
        let rounds = self.rounds.unwrap_or_else(|| configurations::rounds_for(count));
        Ok(configurations::ConfigurationsSettings {
            threads,
            prefetch: self.prefetch.clone(),
            persistent: persistent.to_vec(),
            pinned: pinned.to_vec(),
            batch_size: self.batch_size,
            name: self.preset.name(),
            ops: self.preset.ops()?,
            strategy: self.strategy,
            time: self.seconds.unwrap_or_else(|| CONFIGURATION_TIME / rounds.max(1)),
            rounds,
            gpus: self.gpus(),
            baseline,
        })
    }
}

/// A name for a temporary file that no other process chooses.
pub fn unused_name() -> String {
    format!("warpfeed-{:016x}.tmp", RandomState::new().build_hasher().finish())
}
