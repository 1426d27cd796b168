//! `warpfeed preview`: a contact sheet of what a pipeline makes.

use super::options::PresetOptions;
use super::output::{escape, print};
use super::source::SourceArgs;
use clap::Args;
use std::path::PathBuf;
use warpfeed::{Pipeline, Result, experiment};

/// Write a contact sheet of augmented images
///
/// Of a pipeline of several views each image is shown in all of them. What a published recipe mixes is mixed along a row.
#[derive(Args)]
pub struct Preview {
    #[command(flatten)]
    source: SourceArgs,
    /// Where the sheet goes.
    #[arg(short, long, value_name = "SHEET.png")]
    output: PathBuf,
    #[command(flatten)]
    preset: PresetOptions,
    /// Seed of order and augmentations.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Which epoch.
    #[arg(long, value_name = "E", default_value_t = 0)]
    epoch: u64,
    /// Images side by side.
    #[arg(long, value_name = "C", default_value_t = 6)]
    columns: u32,
    /// Rows of images.
    #[arg(long, value_name = "R", default_value_t = 4)]
    rows: u32,
}

impl Preview {
    pub fn run(self) -> Result<()> {
        // The transforms first: whoever has written them wrongly learns it before a large folder is listed.
        let transforms = self.preset.pixels()?;
        let builder = self.preset.add_mixing(Pipeline::builder(self.source.open()?)).shuffle(self.seed);
        let builder = builder.transforms(transforms);
        let sheet = experiment::preview::preview(builder, self.epoch, self.columns, self.rows)?;
        warpfeed::image::write_png(&sheet, &self.output)?;
        print(&format!("{} pixels: {}\n", sheet.size(), escape(self.output.display())))
    }
}
