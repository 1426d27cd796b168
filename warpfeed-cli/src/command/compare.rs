//! `warpfeed compare`: two reports side by side.

use super::output::{print, print_json};
use clap::Args;
use std::path::PathBuf;
use warpfeed::Result;
use warpfeed::source::read_text_limited;
use warpfeed_bench::compare::{MAX_REPORT_BYTES, compare};

/// Compare two reports of one experiment: settings that differ, and the verdict on each figure
#[derive(Args)]
pub struct Compare {
    /// report.json of a folder written by --out.
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// report.json of another run of the same experiment.
    #[arg(value_name = "B.json")]
    b: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Compare {
    pub fn run(self) -> Result<()> {
        let [a, b] = [&self.a, &self.b].map(|path| read_text_limited(path, MAX_REPORT_BYTES));
        let found = compare(&a?, &b?)?;
        if self.json { print_json(&found) } else { print(&found.text()) }
    }
}
