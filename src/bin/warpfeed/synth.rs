//! `warpfeed synth`: makes a folder of synthetic images.

use super::output::{escape, print, progress};
use clap::Args;
use std::path::PathBuf;
use warpfeed::Result;
use warpfeed::experiment::synth;

/// Make a folder of class folders with synthetic JPEGs that decode like photographs
#[derive(Args)]
pub struct Synth {
    /// Folder to make. An existing folder must be empty, or made by this command.
    dir: PathBuf,
    /// Number of images.
    #[arg(long, value_name = "N")]
    count: u64,
    /// Number of classes.
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    classes: u32,
    /// Seed of the images.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

impl Synth {
    pub fn run(self) -> Result<()> {
        let bar = progress(self.count, "making images");
        let written =
            synth::write_folder(&self.dir, self.count, self.classes, self.seed, |done| bar.set_position(done));
        bar.finish_and_clear();
        let made = written?;
        print(&format!(
            "{} images made, {} were there already, {} classes: {}\n",
            made.written,
            made.kept,
            self.classes,
            escape(self.dir.display())
        ))
    }
}
