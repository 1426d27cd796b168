//! `warpfeed pack`: a source into shards.

use super::output::{bytes, escape, print, print_json, progress, say};
use super::source::FieldArgs;
use super::values::{RankName, size};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use warpfeed::pack::{PackOptions, PackReport, pack, verify};
use warpfeed::source::{RecordFormat, SourceFormat};
use warpfeed::{BadLimit, Error, Result};

/// Pack a source into shards, which are a source themselves, or verify packed shards
#[derive(Args)]
pub struct Pack {
    #[command(flatten)]
    job: Option<Job>,
    #[command(flatten)]
    fields: FieldArgs,
    /// Read packed shards in FOLDER, or at an address, and compare them with the checksums in its pack.json.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["Job", "FieldArgs"])]
    verify: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Job {
    /// Folder of class folders, list file (path, tab, label), IDX file, local or remote shards, or a pattern of shards.
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// Folder for the shards, which are named after it, or its address at a store: s3://, gs://, az://.
    ///
    /// An interrupted run continues when it is started again.
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// Format of the shards.
    #[arg(long, value_name = "FORMAT", value_parser = format())]
    format: RecordFormat,
    /// Format of the source if its name does not tell, as of run.
    #[arg(long, value_name = "FORMAT")]
    from: Option<SourceFormat>,
    /// Largest size of a shard in bytes, or with kB, MB, GB.
    #[arg(long, value_name = "SIZE", default_value = "128MB", value_parser = size)]
    shard_size: u64,
    /// Shrink images whose longer side has more pixels, and encode them as JPEG.
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..))]
    max_side: Option<u32>,
    /// Quality of the JPEGs that are encoded.
    #[arg(long, value_name = "Q", default_value_t = 90, value_parser = clap::value_parser!(u8).range(1..=100))]
    quality: u8,
    /// Also pack the field FIELD of the source, under its name: json.tags, npy, label (RecordIO's array).
    #[arg(long, value_name = "FIELD")]
    target: Option<String>,
    /// Also pack these fields of the samples: boxes,labels,mask,masks,keypoints and others.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    fields: Vec<String>,
    /// Make progressive JPEGs baseline, without loss, and JPEGs in CMYK YCbCr, by encoding them again.
    #[arg(long)]
    baseline: bool,
    /// Make random crops decode faster: add restart markers and an index of block rows to JPEGs, without loss.
    ///
    /// A marker follows each row of blocks. Progressive JPEGs become baseline.
    #[arg(long)]
    restarts: bool,
    /// Put entry points into JPEGs, for decoders to start at from the first epoch on: less than 1 % more bytes.
    ///
    /// The images' data stay as they are, but progressive JPEGs become baseline. They are used with AVX2 or AVX-512.
    #[arg(long)]
    entry_points: bool,
    /// Fail if more samples cannot be used: a number, or a share such as 1% [default: the first 100, or all]
    #[arg(long, value_name = "N|P%")]
    max_bad: Option<BadLimit>,
    /// Worker threads [default: one for each processor]
    #[arg(long, value_name = "T")]
    workers: Option<usize>,
    /// Pack together with other processes, as rank R of W; auto takes the rank from torchrun, mpirun or srun.
    ///
    /// All processes get the same other arguments. Shards then have a fixed number of images, and do not depend on the
    /// number of processes.
    #[arg(long, value_name = "R/W")]
    rank: Option<RankName>,
}

/// Parses the name of a shard format.
fn format() -> impl TypedValueParser<Value = RecordFormat> {
    let value = |format: &RecordFormat| PossibleValue::new(format.name()).help(format.packed());
    let by_name = |name: String| RecordFormat::ALL.iter().copied().find(|format| format.name() == name);
    PossibleValuesParser::new(RecordFormat::ALL.iter().map(value)).try_map(move |name| by_name(name).ok_or("no format"))
}

impl Pack {
    pub fn run(self) -> Result<()> {
        if let Some(folder) = self.verify {
            return verify_folder(&folder, self.json);
        }
        let Some(job) = self.job else {
            return Err(Error::Parameter {
                operation: "pack",
                parameter: "arguments",
                expected: "SOURCE, --output and --format, or --verify".to_owned(),
                got: "none of them".to_owned(),
            });
        };
        let started = Instant::now();
        let report = job.run(&self.fields)?;
        if let Some(reason) = &report.damaged_manifest {
            say(format_args!("warpfeed: pack.json was of no use, so everything was packed anew: {reason}"));
        }
        if self.json { print_json(&report) } else { print(&text(&report, started)) }
    }
}

impl Job {
    fn run(self, fields: &FieldArgs) -> Result<PackReport> {
        let source = fields.open(&self.source, self.from)?.into_data_set()?;
        let mut options = PackOptions::new(self.format);
        options.shard_bytes = self.shard_size;
        options.max_side_px = self.max_side;
        options.quality = self.quality;
        options.baseline = self.baseline;
        options.restarts = self.restarts;
        options.entry_points = self.entry_points;
        options.target.clone_from(&self.target);
        options.fields.clone_from(&self.fields);
        options.max_bad = self.max_bad;
        options.workers = self.workers.unwrap_or(options.workers);
        options.rank = self.rank.map(RankName::rank).transpose()?;
        let bar = progress(source.len(), "packing");
        let report = pack(&source, &self.output, &options, &mut |done| bar.set_position(done));
        bar.finish_and_clear();
        report
    }
}

/// Prints the comparison. Shards that are damaged or missing are an error.
fn verify_folder(folder: &Path, json: bool) -> Result<()> {
    let bar = progress(u64::MAX, "verifying");
    let report = verify(folder, &mut |done| bar.set_position(done));
    bar.finish_and_clear();
    let report = report?;
    if json {
        print_json(&report)?;
    } else {
        let mut text = format!("{} images in {} shards, {}\n", report.images, report.shards, bytes(report.bytes));
        if !report.manifest_verified {
            text +=
                "pack.json has no checksum of itself, as an earlier version wrote it: only the shards were verified\n";
        }
        for file in &report.damaged {
            let _ = writeln!(text, "damaged: {}: {}", escape(file.path.display()), escape(&file.error));
        }
        print(&text)?;
    }
    let failed = |path: &Path, message: String| {
        let source = std::io::Error::other(message);
        Err(Error::Io { action: "verify", path: path.to_owned(), source: source.into() })
    };
    match report.damaged.first() {
        Some(first) => {
            let others = report.damaged.len() - 1;
            let others = if others > 0 { format!(" ({others} more are damaged)") } else { String::new() };
            let remedy = "remove it and run `warpfeed pack` again as before";
            failed(&first.path, format!("{}{others}: {remedy}", first.error))
        }
        None if report.complete => Ok(()),
        None => failed(folder, "packing is not complete: run `warpfeed pack` again as before".to_owned()),
    }
}

/// The report as text.
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
        (report.restarts, "with restart markers"),
        (report.entry_points, "with entry points"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count} {what}");
        }
    }
    if report.bad_count > 0 {
        let _ = writeln!(text, "{} left out:", report.bad_count);
        for bad in &report.bad {
            let _ = writeln!(text, "  {}: {}", escape(&bad.path), escape(&bad.error));
        }
    }
    text
}
