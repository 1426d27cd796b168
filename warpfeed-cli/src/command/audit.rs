//! `warpfeed audit`: a look through a data set before training.

use super::experiment::ReportOptions;
use super::output::progress;
use super::source::FieldArgs;
use crate::audit::{AuditOptions, Finding, Split, audit};
use clap::Args;
use std::path::{Path, PathBuf};
use warpfeed::Result;
use warpfeed::source::{SourceFormat, without_secrets};

/// Look through images before training: damage, copies within and between splits, odd formats and sizes
///
/// Each image is read once and decoded at a small scale. Results go to standard output. --out writes report.html with
/// pictures of what was found, report.json and CSV files, found.jsonl with the images that have findings, and
/// audit.jsonl with a record of each image.
#[derive(Args)]
pub struct AuditArgs {
    /// Folder of class folders, list file (path, tab, label), IDX file, local or remote shards, or a pattern of shards.
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// Other splits, such as the validation images: copies between them and SOURCE are found.
    #[arg(long, value_name = "SOURCE", value_delimiter = ',')]
    against: Vec<PathBuf>,
    /// Format of the sources if their names do not tell, as of run.
    #[arg(long, value_name = "FORMAT")]
    format: Option<SourceFormat>,
    #[command(flatten)]
    fields: FieldArgs,
    /// Write a list file of the images of SOURCE that are kept, which is a source itself.
    #[arg(long, value_name = "FILE")]
    kept: Option<PathBuf>,
    /// Fields to read with each image, to find annotations that cannot be used: boxes,labels.
    ///
    /// Default: those that all images of the format have, as boxes and labels of coco, voc and yolo. Name those of
    /// shards.
    #[arg(long = "fields", value_name = "NAMES", value_delimiter = ',')]
    checked: Vec<String>,
    /// Findings whose images are not kept: unreadable,truncated,duplicate,near-duplicate,other-split and others.
    ///
    /// unreadable, truncated, annotations, extension, turned, cmyk, gray, 16-bit, alpha, animated, tiny, huge, ratio,
    /// slow, duplicate, near-duplicate, other-label, other-split. Of copies within SOURCE the first is kept, unless it
    /// has another of these findings.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', requires = "kept")]
    drop: Vec<Finding>,
    /// Shorter side below which an image is tiny, in pixels.
    #[arg(long, value_name = "PIXELS", default_value_t = AuditOptions::default().tiny_px)]
    tiny: u32,
    /// Pixels above which an image is huge, in millions.
    #[arg(long, value_name = "MPX", default_value_t = AuditOptions::default().huge_px / 1_000_000)]
    huge: u64,
    /// Ratio of the sides above which an image is long and narrow.
    #[arg(long, value_name = "R", default_value_t = AuditOptions::default().max_ratio)]
    ratio: f64,
    /// Go on with the records of --out, also those of a finished audit; the images must not have changed.
    #[arg(long, requires = "out")]
    resume: bool,
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "T")]
    threads: Option<usize>,
    #[command(flatten)]
    report: ReportOptions,
}

impl AuditArgs {
    pub fn run(self) -> Result<()> {
        let specs = std::iter::once(&self.source).chain(&self.against);
        let splits = specs.clone().zip(names(&specs.map(PathBuf::as_path).collect::<Vec<_>>()));
        let split = |(spec, name): (&PathBuf, String)| -> Result<Split> {
            Ok(Split { name, images: self.fields.open_alone(spec, self.format)?.into_data_set()? })
        };
        let splits = splits.map(split).collect::<Result<Vec<_>>>()?;
        let mut options = AuditOptions::default();
        options.threads = self.threads.unwrap_or(options.threads);
        options.tiny_px = self.tiny;
        options.huge_px = self.huge.saturating_mul(1_000_000);
        options.max_ratio = self.ratio;
        options.folder.clone_from(&self.report.out);
        options.kept.clone_from(&self.kept);
        options.drop.clone_from(&self.drop);
        options.fields.clone_from(&self.checked);
        options.resume = self.resume;
        let bar = progress(splits.iter().map(|split| split.images.len()).sum::<u64>(), "auditing");
        let audited = audit(splits, &options, &mut |done| bar.set_position(done));
        bar.finish_and_clear();
        self.report.finish(audited?.report()?)
    }
}

/// Names of splits: the last parts of their paths, or the whole paths if two parts are equal.
fn names(specs: &[&Path]) -> Vec<String> {
    let last = |spec: &&Path| spec.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let short: Vec<String> = specs.iter().map(last).collect();
    let is_used = |name: &String| short.iter().filter(|other| *other == name).count() > 1 || name.is_empty();
    if !short.iter().any(is_used) && specs.iter().all(|spec| !spec.to_string_lossy().contains("://")) {
        return short;
    }
    specs.iter().map(|spec| without_secrets(&spec.to_string_lossy()).into_owned()).collect()
}
