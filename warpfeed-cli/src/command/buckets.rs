//! `warpfeed buckets`: which batches a data set makes by shape, and what is cropped, repeated and lost.

use super::output::{escape, print, print_json};
use super::source::SourceArgs;
use super::values::RankName;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use warpfeed::ops::BucketCrop;
use warpfeed::shapes::{BucketStep, BucketSummary, Buckets};
use warpfeed::{Device, EntryPoints, LastBatch, Partition, Pipeline, Rank, Result};

/// Largest number of names that a table lists.
const NAMED: usize = 10;

/// Show the batches by shape of a data set: samples, steps, what is cropped, enlarged, repeated and left out
///
/// Only headers are read. The batches are those of warpfeed run with the same options.
#[derive(Args)]
pub struct BucketArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Buckets: sdxl, flux, kohya, kohya-no-upscale, novelai, diffusers, diffusion-pipe, ai-toolkit, pixart, sizes such
    /// as 1024x1024,832x1216, or area=WxH.
    ///
    /// After commas may follow step=N, sides=A..B, nearest=RULE, min-samples=N, merge, budget=PIXELS, no-upscale and
    /// lossy.
    #[arg(long, value_name = "SPEC")]
    buckets: Buckets,
    /// Images in a batch of one rank.
    #[arg(long, value_name = "B", default_value_t = 32)]
    batch_size: usize,
    /// Images that share a shape, one after the other in the order of all ranks [default: those of a batch].
    #[arg(long, value_name = "N")]
    unit: Option<u64>,
    /// Keep the sizes of images in this file, so that headers are read once.
    #[arg(long, value_name = "FILE")]
    sizes_file: Option<PathBuf>,
    /// What to do with a bucket's last batch that is not full.
    #[arg(long, value_parser = super::setting_args::choice::<LastBatch>("last_batch"), default_value = "keep")]
    last_batch: LastBatch,
    /// The rank whose batches are shown.
    #[arg(long, value_name = "R/W")]
    rank: Option<RankName>,
    /// Number of the epoch.
    #[arg(long, value_name = "E", default_value_t = 0)]
    epoch: u64,
    /// Seed of the order.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Deliver images in the source's order.
    #[arg(long)]
    no_shuffle: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Add the size and the samples of each batch of the rank.
    #[arg(long)]
    steps: bool,
}

/// The report of a data set.
#[derive(Serialize)]
struct Report {
    /// Images of the source.
    samples: u64,
    /// Batches of each rank in an epoch.
    batches: u64,
    /// Images that an epoch leaves out.
    dropped: u64,
    /// Images that an epoch delivers once more than the others.
    repeated: u64,
    buckets: Vec<BucketSummary>,
    /// Buckets with too few images, which went to others.
    merged: Vec<Sides>,
    /// Images that never come.
    lost: Vec<Lost>,
}

#[derive(Serialize)]
struct Sides {
    width: u32,
    height: u32,
}

#[derive(Serialize)]
struct Lost {
    index: u64,
    name: String,
}

/// A report with the batches of the rank.
#[derive(Serialize)]
struct WithSteps {
    #[serde(flatten)]
    report: Report,
    steps: Vec<BucketStep>,
}

impl BucketArgs {
    pub fn run(self) -> Result<()> {
        let rank = self.rank.map(RankName::rank).transpose()?;
        let builder = Pipeline::builder(self.source.open()?)
            .batch_size(self.batch_size)
            .buckets(self.buckets.clone())
            .last_batch(self.last_batch)
            .partition(rank.map_or(Partition::WHOLE, Rank::partition))
            .transform(BucketCrop::new())
            .entry_points(EntryPoints::none())
            .device(Device::Cpu);
        let builder = if self.no_shuffle { builder } else { builder.shuffle(self.seed) };
        let builder = self.unit.into_iter().fold(builder, |builder, unit| builder.unit(unit));
        let builder = self.sizes_file.into_iter().fold(builder, |builder, file| builder.sizes_file(file));
        let pipeline = builder.build()?;
        let buckets = pipeline.buckets();
        let sum = |of: fn(&BucketSummary) -> u64| buckets.iter().map(of).sum();
        let name = |index: &u64| Lost { index: *index, name: pipeline.name(*index).unwrap_or_default() };
        let report = Report {
            samples: pipeline.source_summary().images.unwrap_or_default(),
            batches: sum(|bucket| bucket.steps),
            dropped: sum(|bucket| bucket.dropped),
            repeated: sum(|bucket| bucket.repeated),
            merged: pipeline
                .merged_buckets()
                .iter()
                .map(|size| Sides { width: size.width, height: size.height })
                .collect(),
            lost: pipeline.lost().iter().map(name).collect(),
            buckets,
        };
        let steps = if self.steps { pipeline.steps(self.epoch)?.unwrap_or_default() } else { Vec::new() };
        if self.json && self.steps {
            return print_json(&WithSteps { report, steps });
        }
        if self.json {
            return print_json(&report);
        }
        let step = |step: &BucketStep| format!("{} x {}: {:?}\n", step.width, step.height, step.indices);
        let steps = steps.iter().map(step);
        print(&(text(&report) + &steps.collect::<String>()))
    }
}

/// The report as a table.
fn text(report: &Report) -> String {
    let mut text = "bucket        samples  batch  steps  cropped  enlarged  repeated  dropped\n".to_owned();
    for bucket in &report.buckets {
        let BucketSummary { width, height, samples, batch_size, steps, dropped, repeated, cropped, enlarged, .. } =
            bucket;
        let (size, cropped) = (format!("{width} x {height}"), 100.0 * cropped);
        text += &format!(
            "{size:12} {samples:8} {batch_size:6} {steps:6} {cropped:6.1} % {enlarged:9} {repeated:9} {dropped:8}\n"
        );
    }
    let Report { samples, batches, dropped, repeated, .. } = report;
    text += &format!(
        "{samples} images, {batches} steps of each rank, {repeated} repeated, {dropped} dropped in an epoch\n"
    );
    if !report.merged.is_empty() {
        let merged: Vec<String> =
            report.merged.iter().map(|size| format!("{} x {}", size.width, size.height)).collect();
        text += &format!("too few images, which went to other buckets: {}\n", merged.join(", "));
    }
    if !report.lost.is_empty() {
        let names: Vec<String> = report.lost.iter().take(NAMED).map(|lost| escape(&lost.name)).collect();
        let more = if report.lost.len() > NAMED { ", ..." } else { "" };
        text += &format!("{} images never come: {}{more}\n", report.lost.len(), names.join(", "));
    }
    text
}
