//! `warpfeed run`: runs and measures whole epochs over a source.

use super::options::PipelineOptions;
use super::output::{bytes, escape, live, print, print_json, say};
use super::source::SourceArgs;
use super::values::one_device;
use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use warpfeed::fields::DroppedObjects;
use warpfeed::source::{read_text_limited, without_secrets};
use warpfeed::{BatchImages, Device, Error, LogOptions, Pipeline, Result, RunLog, Stats};
use warpfeed_bench::run::{Progress, RunReport, run_logged};
use warpfeed_bench::run_group::{GroupReport, run_group};
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
        if let Some(failure) = pipeline.entry_points_failure() {
            say(format_args!("warning: some entry points are not kept or not used: {}", escape(failure)));
        }
        if report.decoded.for_memory > 0 {
            say(format_args!(
                "warning: the CPU decoded {} images that found no device memory as a whole: use a smaller --batch-size or \
                 --prefetch, or raise --device-memory",
                report.decoded.for_memory
            ));
        }
        if self.json {
            return print_json(&report);
        }
        let mixing = self.pipeline.mixing(pipeline.classes()).map(|line| format!("recipe        {line}\n"));
        print(&(text(&report) + &mixing.unwrap_or_default()))
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

/// The line beside the progress bar: shares of time, the bottleneck, and the number of images that cannot be used.
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

/// The report on several devices, as text.
fn group_text(report: &GroupReport) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} images to {} devices, {:.3} s: {:.1} images/s ({} threads)",
        report.images,
        report.devices.len(),
        report.seconds,
        report.images_per_s,
        report.threads,
    );
    for device in &report.devices {
        let digest = device.digest.as_ref().map_or_else(String::new, |digest| format!(", digest {digest}"));
        let _ = writeln!(text, "{}: {} images in {} batches{digest}", device.device, device.images, device.batches);
        if let (Some(objects), Some(dropped)) = (device.objects, device.dropped_objects) {
            let _ = writeln!(text, "  objects: {}", objects_text(objects, dropped));
        }
        for bad in &device.bad {
            let _ = writeln!(text, "  not usable: {}: {}", escape(&bad.path), escape(&bad.error));
        }
    }
    text
}

/// Number of objects delivered, and of those that operations dropped, by rule.
fn objects_text(objects: u64, dropped: DroppedObjects) -> String {
    let rules: Vec<_> = dropped.iter().map(|(rule, objects)| format!("{objects} by {rule}")).collect();
    let rules = if rules.is_empty() { String::new() } else { format!(" ({})", rules.join(", ")) };
    format!("{objects} delivered, {} dropped by operations{rules}", dropped.total())
}

/// The report as text.
fn text(report: &RunReport) -> String {
    let mut text = String::new();
    let stages = &report.stages;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} images in {} batches, {:.3} s: {:.1} images/s ({} threads, prefetch {}, {}, {})",
        report.images,
        report.batches,
        report.seconds,
        report.images_per_s,
        report.threads,
        report.prefetch,
        report.device,
        format!("{:?}", report.strategy).to_lowercase(),
    );
    let _ = writeln!(text, "source        {}", escape(&report.source));
    if report.smaller_than_crop > 0 {
        let _ = writeln!(
            text,
            "padded        {} of {} images were smaller than a crop: its fill shows beside them",
            report.smaller_than_crop, report.images
        );
    }
    if let (Some(objects), Some(dropped)) = (report.objects, report.dropped_objects) {
        let _ = writeln!(text, "objects       {}", objects_text(objects, dropped));
    }
    if let [first, .., last] = &report.each_epoch[..] {
        let _ = writeln!(
            text,
            "epochs        {}: {:.1} images/s in the first, {:.1} in the last",
            report.epochs, first.images_per_s, last.images_per_s
        );
    }
    if let Some(before) = report.other_ranks {
        let _ = writeln!(
            text,
            "continued     after {} images in {} batches; ranks before: {}",
            before.images, before.batches, before.ranks
        );
    }
    if let Some(earlier) = report.earlier {
        let _ = writeln!(text, "resumed after {} images in {} batches", earlier.images, earlier.batches);
    }
    if let Some(first) = report.first_batch_s {
        let _ = writeln!(text, "first batch   {first:.3} s after start");
    }
    let mix = if stages.mix > 0.0 { format!("mix {:.3} s, ", stages.mix) } else { String::new() };
    let _ = writeln!(
        text,
        "threads' time read {:.3} s, decode {:.3} s, augment {:.3} s, {mix}waiting {:.3} s",
        stages.read, stages.decode, stages.augment, stages.worker_wait
    );
    let _ = writeln!(text, "read          {}", bytes(report.read_bytes));
    let _ = writeln!(text, "decoded by    {}", decoders(report));
    if report.decoded.cpu_fallbacks.total() > 0 {
        let reasons = report.decoded.cpu_fallbacks.iter();
        let reasons: Vec<_> = reasons.map(|(reason, images)| format!("{images} {reason}")).collect();
        let _ = writeln!(text, "left to CPU   {}", reasons.join(", "));
    }
    let _ = writeln!(text, "consumer      waited {:.3} s for batches", stages.consumer_wait);
    if report.decoded.restarts > 0 {
        let _ = writeln!(
            text,
            "restarts      {} of {} images were decoded without what lies above and beside the crop",
            report.decoded.restarts, report.images
        );
    }
    let from_points = report.decoded.entry_points + report.decoded.device_entry_points;
    if from_points > 0 {
        let _ = writeln!(
            text,
            "entry points  {} of {} images were decoded from places that an earlier pass over them has found{}",
            from_points,
            report.images,
            report
                .entry_points_folder
                .as_ref()
                .map_or(String::new(), |folder| format!("; kept in {}", escape(folder.display())))
        );
    }
    if let Some(cache) = &report.cache {
        let _ = writeln!(
            text,
            "image cache   {} of {} images came from it; it has {} images, {} of {}{}",
            report.cached,
            report.images,
            cache.images,
            bytes(cache.bytes),
            bytes(cache.limit_bytes),
            if cache.full { ", and no room for more" } else { "" },
        );
        if let Some(failed) = &cache.failed {
            let _ = writeln!(text, "              nothing more was cached: {failed}");
        }
    }
    if let (Some(mean), Some(most)) = (report.displacement_mean, report.displacement_max) {
        let _ = writeln!(text, "shuffling     moved images by {mean:.1} places on average, {most} at most");
    }
    if let Some(targets) = report.targets {
        let _ = writeln!(
            text,
            "targets       {} for {} images, {} of them numbers, {}",
            targets.images,
            report.images,
            targets.numbers,
            bytes(targets.bytes)
        );
    }
    if let Some(peak) = report.peak_rss_bytes {
        let _ = writeln!(text, "peak memory   {}", bytes(peak));
    }
    if let Some(digest) = &report.digest {
        let _ = writeln!(text, "digest        {digest}");
    }
    if let Some(chain) = &report.log_chain {
        let _ = writeln!(text, "log's chain   {chain}");
    }
    if report.bad_count == 0 {
        let _ = writeln!(text, "not usable    none");
    } else {
        let _ = writeln!(text, "not usable    {} images:", report.bad_count);
        for bad in &report.bad {
            let _ = writeln!(text, "  {}: {}", escape(&bad.path), escape(&bad.error));
        }
    }
    text
}

/// The number of images by decoder. On the CPU there is only one decoder.
fn decoders(report: &RunReport) -> String {
    let decoded = report.decoded;
    let cpu = format!("the CPU {}", decoded.cpu);
    if report.device == "cpu" {
        return cpu;
    }
    format!(
        "{cpu}, warpfeed's kernels {}, nvJPEG's hybrid decoder {}, the hardware decoder {}",
        decoded.device, decoded.hybrid, decoded.hardware
    )
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
