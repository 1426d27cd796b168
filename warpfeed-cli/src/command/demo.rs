//! `warpfeed demo`: the standard pipeline and the augmentation load.

use super::output::{bytes, escape, print, print_json, progress};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;
use warpfeed::ops::Transform;
use warpfeed::{Device, Error, OnError, Pipeline, PipelineBuilder, Preset, Result};
use warpfeed_bench::run::{RunReport, run};
use warpfeed_bench::synth::SynthSettings;
use warpfeed_bench::trial::Trial;
use warpfeed_bench::{preview, synth};

/// Number of images that are generated if no folder is given.
const MADE: u64 = 200;
/// Number of their classes.
const CLASSES: u32 = 10;
/// Number of images that each pipeline delivers, over as many epochs as needed.
const IMAGES: u64 = 600;
/// The augmentation loads of the published comparison.
const LOADS: [u32; 4] = [1, 4, 8, 12];
const SEED: u64 = 42;

/// Run the standard training pipeline and the augmentation load 1, 4, 8, 12, and show their images
#[derive(Args)]
pub struct Demo {
    /// Folder of class folders, list file, or shards [default: generated images, kept in your cache folder]
    dir: Option<PathBuf>,
    /// File for the contact sheet [default: in your cache folder]
    #[arg(short, long, value_name = "SHEET.png")]
    output: Option<PathBuf>,
    /// Worker threads [default: one for each processor]
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
    /// Device for augmentations: auto, cpu, cuda, cuda:I.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Device,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// One line of the table.
#[derive(Serialize)]
struct Row {
    pipeline: String,
    #[serde(flatten)]
    report: RunReport,
}

impl Demo {
    pub fn run(self) -> Result<()> {
        self.device.available()?;
        let dir = self.images()?;
        let mut rows = Vec::new();
        let pipelines = std::iter::once(("train".to_owned(), Preset::Train.ops()))
            .chain(LOADS.map(|load| (format!("trial-a, load {load}"), Trial::A { load }.ops())));
        for (name, ops) in pipelines {
            rows.push(self.measure(name, ops, &dir)?);
        }
        let sheet = match &self.output {
            Some(sheet) => sheet.clone(),
            None => own_folder()?.join("sheet.png"),
        };
        let builder = Pipeline::builder(warpfeed::source::open(&dir)?).shuffle(SEED);
        let pixel_ops = Trial::A { load: 1 }.pixel_ops();
        let builder = pixel_ops.into_iter().fold(builder, PipelineBuilder::transform);
        warpfeed::image::write_png(&preview::preview(builder, 0, 6, 4)?.sheet, &sheet)?;
        if self.json {
            return print_json(&serde_json::json!({ "source": dir, "sheet": sheet, "runs": rows }));
        }
        let first = &rows[0].report;
        print(&format!(
            "{} on {} with {} threads, images from {}\n\n{}\nBatch of augmented images: {}\n",
            format_args!("warpfeed {}", env!("CARGO_PKG_VERSION")),
            first.device,
            first.threads,
            escape(dir.display()),
            table(&rows),
            escape(sheet.display())
        ))
    }

    /// The given folder, or one of generated images, which is kept for the next time.
    fn images(&self) -> Result<PathBuf> {
        if let Some(dir) = &self.dir {
            return Ok(dir.clone());
        }
        let dir = own_folder()?.join("images");
        let bar = progress(MADE, "making images");
        let made =
            synth::write_folder(&dir, &SynthSettings { seed: SEED, ..SynthSettings::new(MADE, CLASSES) }, |done| {
                bar.set_position(done)
            });
        bar.finish_and_clear();
        made.map(|_| dir)
    }

    fn measure(&self, name: String, ops: Vec<Transform>, dir: &Path) -> Result<Row> {
        let started = Instant::now();
        let mut builder =
            Pipeline::builder(warpfeed::source::open(dir)?).shuffle(SEED).device(self.device).on_error(OnError::Skip);
        builder = ops.into_iter().fold(builder, PipelineBuilder::transform);
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        let pipeline = builder.build()?;
        let images = pipeline.num_samples().unwrap_or(IMAGES);
        let epochs = IMAGES.div_ceil(images.max(1)).max(1);
        let bar = progress(images * epochs, &name);
        let report = run(&pipeline, 0..epochs, false, started, &mut |progress| bar.inc(progress.images));
        bar.finish_and_clear();
        Ok(Row { pipeline: name, report: report? })
    }
}

/// The folder for the demo's files. It belongs to this user alone: in the system's temporary folder users would
/// overwrite each other's files.
fn own_folder() -> Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let cache = cache.or_else(|| absolute("LOCALAPPDATA")).ok_or_else(|| Error::Parameter {
        operation: "demo",
        parameter: "DIR and --output",
        expected: "given where no HOME or XDG_CACHE_HOME tells your cache folder".to_owned(),
        got: "neither".to_owned(),
    })?;
    let folder = cache.join("warpfeed").join(format!("demo-{}", env!("CARGO_PKG_VERSION")));
    let unusable =
        |source: std::io::Error| Error::Io { action: "make the folder", path: folder.clone(), source: source.into() };
    std::fs::create_dir_all(&folder).map_err(unusable)?;
    Ok(folder)
}

/// The reports as a table. Shares are of the worker threads' time.
fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:18} {:>10} {:>12} {:>11} {:>6} {:>7} {:>8} {:>7} {:>12}\n",
        "pipeline", "images", "images/s", "1st batch", "read", "decode", "augment", "waits", "peak memory"
    );
    for Row { pipeline, report } in rows {
        let stages = &report.stages;
        let total = stages.read + stages.decode + stages.augment + stages.worker_wait;
        let share = |seconds: f64| format!("{:.0} %", 100.0 * seconds / total.max(f64::MIN_POSITIVE));
        text += &format!(
            "{pipeline:18} {:>10} {:>12.1} {:>11} {:>6} {:>7} {:>8} {:>7} {:>12}\n",
            report.images,
            report.images_per_s,
            report.first_batch_s.map_or_else(String::new, |s| format!("{:.0} ms", 1e3 * s)),
            share(stages.read),
            share(stages.decode),
            share(stages.augment),
            share(stages.worker_wait),
            report.peak_rss_bytes.map_or_else(String::new, bytes),
        );
        if let Some(first) = report.bad.first() {
            text += &format!(
                "  {} images could not be used, the first: {}: {}\n",
                report.bad_count,
                escape(&first.path),
                escape(&first.error)
            );
        }
    }
    text
}
