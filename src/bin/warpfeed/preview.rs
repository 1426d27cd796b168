//! `warpfeed preview`: a contact sheet of a pipeline's images.

use super::options::PresetOptions;
use super::output::{escape, print};
use super::source::SourceArgs;
use clap::Args;
use std::path::PathBuf;
use warpfeed::{Pipeline, Result, experiment};

/// Write a contact sheet of augmented images
///
/// With several views each image is shown in all of them. Images that a published recipe mixes are mixed along a row.
#[derive(Args)]
pub struct Preview {
    #[command(flatten)]
    source: SourceArgs,
    /// File for the sheet.
    #[arg(short, long, value_name = "SHEET.png")]
    output: PathBuf,
    #[command(flatten)]
    preset: PresetOptions,
    /// Seed of order and random transforms.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Number of the epoch.
    #[arg(long, value_name = "E", default_value_t = 0)]
    epoch: u64,
    /// Images in a row.
    #[arg(long, value_name = "C", default_value_t = 6)]
    columns: u32,
    /// Rows of images.
    #[arg(long, value_name = "R", default_value_t = 4)]
    rows: u32,
}

impl Preview {
    pub fn run(self) -> Result<()> {
        // Checked first: an error in the transforms is reported before a large folder is listed.
        let transforms = self.preset.pixels()?;
        let builder = self.preset.add_mixing(Pipeline::builder(self.source.open()?)).shuffle(self.seed);
        let builder = builder.transforms(transforms);
        let sheet = experiment::preview::preview(builder, self.epoch, self.columns, self.rows)?;
        warpfeed::image::write_png(&sheet, &self.output)?;
        print(&format!("{} pixels: {}\n", sheet.size(), escape(self.output.display())))
    }
}
