//! `warpfeed compare`: two reports side by side.

use super::output::{print, print_json};
use clap::Args;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use warpfeed::experiment::compare::{MAX_REPORT_BYTES, compare};
use warpfeed::{Error, Result};

/// Compare two reports of one experiment: settings that differ, and figures whose difference is beyond doubt
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
        let found = compare(&read(&self.a)?, &read(&self.b)?)?;
        if self.json { print_json(&found) } else { print(&found.text()) }
    }
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_REPORT_BYTES).read_to_string(&mut text));
    read.map_err(|source| Error::Io { action: "read", path: path.to_owned(), source })?;
    Ok(text)
}
