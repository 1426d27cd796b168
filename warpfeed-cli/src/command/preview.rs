//! `warpfeed preview`: a contact sheet of a pipeline's images.

use super::options::PresetOptions;
use super::output::{escape, print, print_json};
use super::source::SourceArgs;
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use warpfeed::image::Size;
use warpfeed::{Pipeline, Result};
use warpfeed_bench::preview::{Preview, PreviewedSample, preview};

/// Write a contact sheet of augmented images
///
/// Prints which sample is where, and its classes. With several views each row is one sample in all of them. Images that
/// a published recipe mixes are mixed along a row.
#[derive(Args)]
pub struct PreviewArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// File for the sheet: .png or .jpg.
    #[arg(short, long, value_name = "SHEET.png")]
    output: PathBuf,
    #[command(flatten)]
    preset: PresetOptions,
    /// Draw these fields of the samples over their images: boxes,labels,mask,masks,keypoints
    /// [default: as of run]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    fields: Vec<String>,
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
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// The output as JSON.
#[derive(Serialize)]
struct Printed {
    sheet: PathBuf,
    width: u32,
    height: u32,
    samples: Vec<PreviewedSample>,
}

impl PreviewArgs {
    pub fn run(self) -> Result<()> {
        // Checked first: an error in the transforms is reported before a large folder is listed.
        let transforms = self.preset.pixels()?;
        let builder = self.preset.add_recipe(Pipeline::builder(self.source.open()?));
        let builder = if self.fields.is_empty() { builder } else { builder.fields(&self.fields) };
        let builder = builder.shuffle(self.seed).transforms(transforms);
        let Preview { sheet, samples, .. } = preview(builder, self.epoch, self.columns, self.rows)?;
        warpfeed::image::write_image(&sheet, &self.output)?;
        let Size { width, height } = sheet.size();
        if self.json {
            return print_json(&Printed { sheet: self.output, width, height, samples });
        }
        let mut text = format!("{} pixels: {}\n", sheet.size(), escape(self.output.display()));
        for PreviewedSample { row, column, index, repetition, name, classes, .. } in &samples {
            let again = if *repetition > 0 { format!(", repetition {repetition}") } else { String::new() };
            let name = name.as_ref().map_or_else(String::new, |name| format!(": {}", escape(name)));
            // Writing to a string cannot fail.
            let classes = if classes.is_empty() { String::new() } else { format!(" ({})", escape(classes.join(", "))) };
            let _ = writeln!(text, "row {row}, column {column}: sample {index}{again}{name}{classes}");
        }
        print(&text)
    }
}
