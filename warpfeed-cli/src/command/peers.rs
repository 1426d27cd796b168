//! `warpfeed bench peers`: DALI and torchvision on the same images.

use super::experiment::{ReportOptions, unused_name};
use clap::Args;
use std::path::{Path, PathBuf};
use warpfeed::source::{ImageFolder, read_text_limited};
use warpfeed::{Error, Result};
use warpfeed_bench::compare::MAX_REPORT_BYTES;
use warpfeed_bench::peers::peers;
use warpfeed_bench::subject::Subject;

/// Compare warpfeed with DALI and torchvision, on the same images and operations
///
/// Runs benches/peers/run of warpfeed's repository, or reports the results of an earlier run. The script needs Python,
/// and installs several gigabytes into an environment next to itself.
#[derive(Args)]
pub struct Peers {
    /// Folder of class folders with JPEGs.
    #[arg(required_unless_present = "from")]
    dir: Option<PathBuf>,
    /// Report this file, written by benches/peers/run --out.
    #[arg(long, value_name = "FILE.json", conflicts_with = "dir")]
    from: Option<PathBuf>,
    #[command(flatten)]
    script: PeersScript,
    /// Worker threads of each loader.
    #[arg(long, value_name = "T", default_value_t = 2)]
    threads: usize,
    /// Measurements of each row; the median counts.
    #[arg(long, value_name = "R", default_value_t = 3)]
    rounds: u32,
    #[command(flatten)]
    report: ReportOptions,
}

impl Peers {
    pub fn run(self) -> Result<()> {
        // The script prints its own progress.
        self.report.begin()?.end();
        let report = match (&self.from, &self.dir) {
            (Some(file), _) => peers(&read_text_limited(file, MAX_REPORT_BYTES)?)?,
            (None, dir) => {
                let dir = dir.as_deref().unwrap_or(Path::new("."));
                // Checked first, so that a folder without images is reported before anything is installed.
                let data_set = Subject::new(dir.display().to_string(), ImageFolder::open(dir)?).data_set()?;
                let options = ["--threads".to_owned(), self.threads.to_string()];
                let mut report = peers(&self.script.measure(dir, self.rounds, options)?)?;
                report.data_set = Some(data_set);
                report
            }
        };
        self.report.finish(report)
    }
}

/// The script that measures warpfeed, DALI and torchvision in turn.
#[derive(Args)]
pub struct PeersScript {
    /// The script to run.
    #[arg(long, value_name = "FILE", default_value = "benches/peers/run")]
    script: PathBuf,
    /// A Python with the peers installed [default: an environment that the script makes]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
}

impl PeersScript {
    /// Runs the script and returns its results.
    pub fn measure(&self, dir: &Path, rounds: u32, options: impl IntoIterator<Item = String>) -> Result<String> {
        let failed =
            |source: std::io::Error| Error::Io { action: "run", path: self.script.clone(), source: source.into() };
        let own = std::env::current_exe().map_err(failed)?;
        let out = std::env::temp_dir().join(unused_name());
        let mut command = std::process::Command::new(&self.script);
        command.arg(dir).arg("--out").arg(&out).arg("--warpfeed").arg(own);
        command.args(["--rounds", &rounds.to_string()]).args(options);
        if let Some(python) = &self.python {
            command.arg("--python").arg(python);
        }
        // The script's table would repeat the report. Its progress goes to standard error.
        let status = command.stdout(std::process::Stdio::null()).status().map_err(|error| {
            let message = format!("{error}: give --script, the benches/peers/run of warpfeed's repository");
            failed(std::io::Error::new(error.kind(), message))
        })?;
        if !status.success() {
            return Err(failed(std::io::Error::other(format!("it ended with {status}; what it said is above"))));
        }
        let json = read_text_limited(&out, MAX_REPORT_BYTES);
        // The file was temporary.
        let _ = std::fs::remove_file(&out);
        json
    }
}
