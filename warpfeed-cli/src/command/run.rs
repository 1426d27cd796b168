//! `warpfeed run`: runs and measures whole epochs over a source.

use super::options::PipelineOptions;
use super::output::{escape, live, print, print_json, say};
use super::run_text::{group_text, text};
use super::source::SourceArgs;
use super::values::one_device;
use clap::Args;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use warpfeed::source::{read_text_limited, without_secrets};
use warpfeed::{BatchImages, Device, Error, LogOptions, Pipeline, Result, RunLog, Stats};
use warpfeed_bench::run::{Progress, RunReport, run_logged};
use warpfeed_bench::run_group::run_group;
use warpfeed_bench::run_state::StateFile;

/// Largest file of transforms in a log, in bytes.
const MAX_TRANSFORMS_BYTES: u64 = 1 << 24;

/// Interval at which the live line is written. Reading the counters takes microseconds.
const LOOK: Duration = Duration::from_millis(250);

/// Run a pipeline over a source of images and measure it
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub pipeline: PipelineOptions,
    /// Feed several GPUs at once, each its part of every epoch: 0,1 or cuda:0,cuda:1.
    ///
    /// They share the threads and the cache. Each GPU gets what it would get in a process of its own with --rank and
    /// --equal-batches.
    #[arg(long, value_name = "I,J", value_delimiter = ',', value_parser = one_device,
        conflicts_with_all = ["device", "state", "log"])]
    devices: Vec<Device>,
    /// Number of epochs.
    #[arg(long, value_name = "E", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
    /// Save the state of the run in FILE after every batch, and continue from FILE if it exists.
    ///
    /// With --rank each process has its own file, FILE.RANK. The number of ranks may change when a run is continued:
    /// the new ranks share what all ranks before have left.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Write a line for every batch to FILE, from which `warpfeed replay` makes the batch again.
    ///
    /// With --rank each process has its own file, FILE.RANK. A run that --state continues goes on with its log.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Add the SHA-256 of every image to the log.
    #[arg(long, requires = "log")]
    digests: bool,
    /// Chain the lines of the log by hashes, so that no line can be changed unnoticed; implies --digests.
    #[arg(long, requires = "log")]
    chain: bool,
    /// Print the SHA-256 over every sample's label, target (if any) and output.
    #[arg(long)]
    digest: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Run {
    pub fn run(self, started: Instant) -> Result<()> {
        if !self.devices.is_empty() {
            return self.run_group(started);
        }
        let builder = self.pipeline.builder(&self.source)?;
        if builder.is_ragged() {
            self.measure(&builder.build_ragged()?, started)
        } else {
            self.measure(&builder.build()?, started)
        }
    }

    fn measure<I: BatchImages>(self, pipeline: &Pipeline<I>, started: Instant) -> Result<()> {
        let bar = live(pipeline.num_samples().map(|images| images.saturating_mul(self.epochs)));
        let epochs = 0..self.epochs;
        let mut looked = Instant::now();
        let mut progress = |progress: &Progress<'_>| {
            bar.inc(progress.images);
            if !bar.is_hidden() && looked.elapsed() >= LOOK {
                bar.set_message(line(&progress.stats()));
                looked = Instant::now();
            }
        };
        let state = match &self.state {
            Some(path) => Some(StateFile { path: path.clone(), settings: super::run_settings(&self.pipeline)? }),
            None => None,
        };
        let mut log = self.log.as_ref().map(|path| self.open_log(path.clone(), pipeline)).transpose()?;
        let files = (state.as_ref(), log.as_mut());
        let report = run_logged(pipeline, epochs, self.digest, files, started, &mut progress);
        bar.finish_and_clear();
        let report = report?;
        warn(pipeline, &report);
        if self.json {
            return print_json(&report);
        }
        let mixing = self.pipeline.mixing(pipeline.classes())?.map(|line| format!("recipe        {line}\n"));
        print(&(text(&report) + &mixing.unwrap_or_default()))
    }
}

/// Warns of entry points that are not used, and of too little device memory.
fn warn<I: BatchImages>(pipeline: &Pipeline<I>, report: &RunReport) {
    if let Some(failure) = pipeline.entry_points_failure() {
        say(format_args!("warning: some entry points are not kept or not used: {}", escape(failure)));
    }
    if report.decoded.for_memory > 0 {
        say(format_args!(
            "warning: the CPU decoded {} images for which the device had too little memory: use a smaller --batch-size or \
             --prefetch, or raise --device-memory",
            report.decoded.for_memory
        ));
    }
}

impl Run {
    /// Opens the log, which exists only if a run is continued.
    fn open_log<I>(&self, path: PathBuf, pipeline: &Pipeline<I>) -> Result<RunLog> {
        let path = self.pipeline.own_file(path)?;
        if self.state.is_none() && std::fs::metadata(&path).is_ok_and(|found| found.len() > 0) {
            return Err(Error::Parameter {
                operation: "run",
                parameter: "--log",
                expected: "a file that is not there yet, unless --state continues its run".to_owned(),
                got: format!("{}: give another name, or remove it", path.display()),
            });
        }
        let mut options = LogOptions::default();
        (options.digests, options.chain, options.arguments) = (self.digests, self.chain, self.logged_arguments()?);
        RunLog::open(path, pipeline, &options)
    }

    /// The command line as another machine can use it: without secrets, and with the transforms of a file in its place.
    fn logged_arguments(&self) -> Result<Vec<String>> {
        let file = self.pipeline.preset.transforms_file();
        let text = file.map(|file| read_text_limited(file, MAX_TRANSFORMS_BYTES)).transpose()?;
        let replaced = file.map(|file| file.to_string_lossy()).zip(text);
        let logged = |argument: String| match &replaced {
            Some((file, text)) if argument == **file => text.clone(),
            Some((file, text)) if argument.strip_prefix("--transforms=").is_some_and(|value| value == *file) => {
                format!("--transforms={text}")
            }
            _ => without_secrets(&argument).into_owned(),
        };
        Ok(super::arguments().map(logged).collect())
    }
}

/// The line next to the progress bar: unusable images, the bottleneck, and shares of time.
fn line(stats: &Stats) -> String {
    let stages = [("read", stats.read), ("decode", stats.decode), ("augment", stats.augment)];
    let working: Duration = stages.iter().map(|stage| stage.1).sum();
    let share = |part: Duration, of: Duration| 100.0 * part.as_secs_f64() / of.as_secs_f64().max(f64::MIN_POSITIVE);
    let shares = stages.map(|(name, time)| format!("{name} {:.0} %", share(time, working))).join(", ");
    let longest = stages.iter().max_by_key(|stage| stage.1).map_or("", |stage| stage.0);
    // If workers wait for the queue, they are not the bottleneck. On a GPU the device is.
    let bottleneck = if stats.worker_wait > working { "what takes the batches" } else { longest };
    let bad = if stats.bad == 0 { String::new() } else { format!("{} not usable, ", stats.bad) };
    // A narrow terminal shows only the beginning.
    format!("{bad}slowest: {bottleneck}; {shares}")
}

impl Run {
    /// Runs on several devices.
    fn run_group(self, started: Instant) -> Result<()> {
        self.devices.iter().try_for_each(|device| device.available())?;
        let group = self.pipeline.builder(&self.source)?.build_group(self.devices)?;
        let images = group.pipelines().iter().map(Pipeline::num_samples).sum::<Option<u64>>();
        let bar = live(images.map(|images| images.saturating_mul(self.epochs)));
        let report = run_group(&group, 0..self.epochs, self.digest, started, &|images| bar.inc(images));
        bar.finish_and_clear();
        let report = report?;
        if self.json { print_json(&report) } else { print(&group_text(&report)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_live_line_says_where_the_time_goes() {
        let ms = Duration::from_millis;
        let mut stats = Stats::default();
        (stats.read, stats.decode, stats.augment) = (ms(40), ms(710), ms(250));
        assert_eq!(line(&stats), "slowest: decode; read 4 %, decode 71 %, augment 25 %");
        (stats.bad, stats.worker_wait) = (3, ms(1_001));
        assert!(line(&stats).starts_with("3 not usable, slowest: what takes the batches; "), "{}", line(&stats));
        assert!(line(&Stats::default()).ends_with("; read 0 %, decode 0 %, augment 0 %"));
    }
}
