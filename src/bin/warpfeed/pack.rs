//! `warpfeed pack`: a source into shards.

use super::output::{bytes, print, print_json, progress};
use super::source::{FieldArgs, format};
use clap::{Args, ValueEnum};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;
use warpfeed::pack::{PackOptions, PackReport, pack};
use warpfeed::{RecordFormat, Result, SourceFormat};

#[derive(Clone, Copy, ValueEnum)]
enum ShardFormat {
    /// NAME-000000.tar: parts KEY.jpg and KEY.cls.
    Webdataset,
    /// NAME-000000.rec with NAME-000000.idx.
    Recordio,
    /// NAME-00000-of-00008.tfrecord: features image/encoded and image/class/label.
    Tfrecord,
}

/// Pack a source into shards, themselves a source
#[derive(Args)]
pub struct Pack {
    /// Folder of class folders, list file (path, tab, label), IDX file, shards, or a pattern of shards.
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// The folder for the shards, which are named after it; an interrupted run is taken up.
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// The format of the shards.
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: ShardFormat,
    /// The source's form, where its name does not tell: folder, list, webdataset, recordio, tfrecord, idx, parquet.
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    from: Option<SourceFormat>,
    #[command(flatten)]
    fields: FieldArgs,
    /// The largest size of a shard, with kB, MB, GB, or in bytes.
    #[arg(long, value_name = "SIZE", default_value = "128MB", value_parser = super::options::size)]
    shard_size: u64,
    /// Shrink images whose longer side has more pixels, and encode them as JPEG.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..))]
    max_side: Option<u32>,
    /// Quality of what is encoded.
    #[arg(long, value_name = "Q", default_value_t = 90, value_parser = clap::value_parser!(u8).range(1..=100))]
    quality: u8,
    /// Make baseline YCbCr of progressive JPEGs (without loss) and of those in CMYK (encoded again).
    #[arg(long)]
    baseline: bool,
    /// Worker threads [default: one for each processor]
    #[arg(long, value_name = "T")]
    workers: Option<usize>,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Pack {
    pub fn run(self) -> Result<()> {
        let source = self.fields.open(&self.source, self.from)?.into_data_set()?;
        let mut options = PackOptions::new(match self.format {
            ShardFormat::Webdataset => RecordFormat::WebDataset,
            ShardFormat::Recordio => RecordFormat::RecordIo,
            ShardFormat::Tfrecord => RecordFormat::TfRecord,
        });
        options.shard_bytes = self.shard_size;
        options.max_side_px = self.max_side;
        options.quality = self.quality;
        options.baseline = self.baseline;
        options.workers = self.workers.unwrap_or(options.workers);
        let bar = progress(source.len(), "packing");
        let started = Instant::now();
        let report = pack(&source, &self.output, &options, &mut |done| bar.set_position(done));
        bar.finish_and_clear();
        let report = report?;
        if self.json { print_json(&report) } else { print(&text(&report, started)) }
    }
}

/// A report for people.
fn text(report: &PackReport, started: Instant) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} images in {} shards, {}, {:.1} s",
        report.images,
        report.shards.len(),
        bytes(report.bytes),
        started.elapsed().as_secs_f64()
    );
    for (count, what) in [
        (report.resumed_images, "were there already"),
        (report.shrunk, "shrunk"),
        (report.made_baseline, "made baseline, without loss"),
        (report.made_ycc, "made YCbCr, encoded again"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count} {what}");
        }
    }
    if report.bad_count > 0 {
        let _ = writeln!(text, "{} left out:", report.bad_count);
        for bad in &report.bad {
            let _ = writeln!(text, "  {}: {}", bad.path, bad.error);
        }
    }
    text
}
