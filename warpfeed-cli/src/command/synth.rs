//! `warpfeed synth`: makes a folder of synthetic images.

use super::output::{escape, print, progress};
use super::values::chroma_sampling;
use clap::Args;
use std::path::PathBuf;
use warpfeed::Result;
use warpfeed::image::ChromaSampling;
use warpfeed_bench::synth::{SynthSettings, write_folder};

/// Make a folder of class folders with synthetic JPEGs that decode like photographs
#[derive(Args)]
pub struct Synth {
    /// Folder to make. An existing folder must be empty, or made by this command.
    dir: PathBuf,
    /// Number of images.
    #[arg(long, value_name = "N")]
    count: u64,
    /// Number of classes [default: 10; 6 with --detection, which has no more]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    classes: Option<u32>,
    /// Make images of several objects, which hide parts of each other, in DIR/images, with boxes and masks in COCO's
    /// form in DIR/annotations.json.
    #[arg(long)]
    detection: bool,
    /// Seed of the images.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Mean size of the images in millions of pixels. Above 0.2 they are like photographs as cameras store them.
    #[arg(long, value_name = "MPX", default_value_t = 0.2)]
    megapixels: f64,
    /// Quality of the JPEGs, 1 to 100.
    #[arg(long, value_name = "Q", default_value_t = 95, value_parser = clap::value_parser!(u8).range(1..=100))]
    quality: u8,
    /// Chroma subsampling of the JPEGs: 4:4:4, 4:2:2 or 4:2:0.
    #[arg(long, value_name = "J:A:B", default_value = "4:2:0", value_parser = chroma_sampling)]
    sampling: ChromaSampling,
}

impl Synth {
    pub fn run(self) -> Result<()> {
        let bar = progress(self.count, "making images");
        let Self { count, seed, megapixels, quality, sampling, detection, .. } = self;
        let usual = if detection { SynthSettings::detection(count) } else { SynthSettings::new(count, 10) };
        let classes = self.classes.unwrap_or(usual.classes);
        let settings = SynthSettings { classes, seed, megapixels, quality, sampling, ..usual };
        let written = write_folder(&self.dir, &settings, |done| bar.set_position(done));
        bar.finish_and_clear();
        let made = written?;
        print(&format!(
            "{} images made, {} were there already, {} classes: {}\n",
            made.written,
            made.kept,
            classes,
            escape(self.dir.display())
        ))
    }
}
