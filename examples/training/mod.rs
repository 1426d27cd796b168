//! What the examples share that train networks on made images.

pub mod layers;
mod norm;

use std::path::Path;
use warpfeed::experiment::synth::{SynthSettings, write_folder};
use warpfeed::source::CocoFiles;
use warpfeed::{Error, Result};

/// An error of candle's as one of warpfeed's.
pub fn candle(error: candle_core::Error) -> Error {
    Error::Device { call: "train with candle".to_owned(), message: error.to_string() }
}

/// The images and annotations in `folder`, which are made if they are not there.
pub fn open(folder: &Path, count: u64, seed: u64) -> Result<CocoFiles> {
    if !folder.join("annotations.json").exists() {
        let settings = SynthSettings { seed, megapixels: 0.05, ..SynthSettings::detection(count) };
        write_folder(folder, &settings, |_done| {})?;
    }
    CocoFiles::open(folder.join("images"), folder.join("annotations.json"))
}

/// Learning rate of `step` of `steps`: it rises to `most` during a tenth of them, and falls to 0 along a cosine.
pub fn learning_rate(most: f64, step: u64, steps: u64) -> f64 {
    let done = (step as f64 + 0.5) / steps as f64;
    most * (done / 0.1).min(0.5 + 0.5 * (std::f64::consts::PI * done).cos())
}
