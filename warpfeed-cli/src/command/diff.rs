//! `warpfeed diff`: what a change of a policy does to the images.

use super::options::PresetOptions;
use super::output::{escape, print, print_json, progress};
use super::source::SourceArgs;
use clap::Args;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use warpfeed::image::Size;
use warpfeed::ops::Op;
use warpfeed::{Pipeline, Result};
use warpfeed_bench::policies::{ChangedImage, PolicyDiff, diff};

/// Compare two policies on the same images: how many they make differently, and by how much
///
/// Both draw with one seed. Transforms with a name ("as") draw alike whatever is added beside them. Batches are not
/// mixed.
#[derive(Args)]
pub struct Diff {
    /// File of transforms, or a preset.
    #[arg(value_name = "A.json")]
    a: String,
    /// Another one.
    #[arg(value_name = "B.json")]
    b: String,
    #[command(flatten)]
    source: SourceArgs,
    /// File for a sheet of the images that differ most, A's at the left: .png or .jpg.
    #[arg(short, long, value_name = "SHEET.png")]
    output: Option<PathBuf>,
    /// Number of images to list and to show.
    #[arg(long, value_name = "R", default_value_t = 8)]
    rows: usize,
    /// Fields of the samples, for transforms that look at boxes or masks [default: as of the presets]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    fields: Vec<String>,
    /// Seed of random transforms.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Number of the epoch.
    #[arg(long, value_name = "E", default_value_t = 0)]
    epoch: u64,
    /// Compare the first K images only.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Diff {
    pub fn run(self) -> Result<()> {
        // Checked first: an error in the transforms is reported before a large folder is listed.
        let [a, b] = [&self.a, &self.b].map(|policy| PresetOptions::of(policy));
        let policies = [a.pixels()?, b.pixels()?];
        let fields: BTreeSet<&str> = match &self.fields[..] {
            [] => [a.fields(), b.fields()].into_iter().flatten().copied().collect(),
            named => named.iter().map(String::as_str).collect(),
        };
        let input = self.source.open()?;
        let images = input.summary().images;
        let builder = Pipeline::builder(input).seed(self.seed).fields(fields);
        let builder = self.limit.into_iter().fold(builder, warpfeed::PipelineBuilder::limit);
        let bar = progress(images.map(|images| self.limit.map_or(images, |limit| images.min(limit))), "comparing");
        let found = diff(&builder, policies, self.epoch, self.rows, |compared| bar.set_position(compared));
        bar.finish_and_clear();
        let found = found?;
        let sheet = if self.output.is_some() { found.sheet()? } else { None };
        if let (Some(path), Some(sheet)) = (&self.output, &sheet) {
            warpfeed::image::write_image(sheet, path)?;
        }
        if self.json { print_json(&found) } else { print(&self.text(&found, sheet.map(|sheet| sheet.size()))) }
    }

    fn text(&self, found: &PolicyDiff, sheet: Option<Size>) -> String {
        let PolicyDiff { images, changed, mean, unusable, most, .. } = found;
        let mut text = format!("{changed} of {images} images differ, by {mean:.2} levels of 255 on average over all\n");
        // Writing to a string cannot fail.
        if unusable != &[0; 2] {
            let _ = writeln!(text, "{} images cannot be used with A, {} with B", unusable[0], unusable[1]);
        }
        for ChangedImage { index, name, sizes: [a, b], difference, share, first, .. } in most {
            let name = name.as_ref().map_or_else(String::new, |name| format!(" {}", escape(name)));
            let _ = match difference {
                Some((mean, largest)) => {
                    write!(
                        text,
                        "sample {index}{name}: {:.1} % of the pixels, by {mean:.2}, at most {largest}",
                        100.0 * share
                    )
                }
                None => write!(text, "sample {index}{name}: {}x{} and {}x{} pixels", a[0], a[1], b[0], b[1]),
            };
            let name = |op: &Option<Op>| op.as_ref().map_or("no operation", |op| op.name());
            if let Some([a, b]) = first {
                let _ = match (name(a), name(b)) {
                    (a, b) if a == b => write!(text, "; {a} with other parameters"),
                    (a, b) => write!(text, "; {a} in A, {b} in B"),
                };
            }
            text.push('\n');
        }
        if let (Some(path), Some(size)) = (&self.output, sheet) {
            let _ = writeln!(text, "{size} pixels: {}", escape(path.display()));
        }
        text
    }
}
