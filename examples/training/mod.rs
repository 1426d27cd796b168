//! Code that the examples share which train networks on made images.

pub mod layers;
mod norm;

use candle_core::Tensor;
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarMap};
use std::path::{Path, PathBuf};
use std::time::Instant;
use warpfeed::experiment::synth::{SynthSettings, write_folder};
use warpfeed::source::CocoFiles;
use warpfeed::{Batch, Error, Pipeline, Result};

const LEARNING_RATE: f64 = 3e-3;

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

/// The program's arguments: whether it is to train a few steps only, and the folder of images, which is temporary if none
/// is named.
pub fn arguments(example: &str) -> (bool, PathBuf) {
    let (options, folders): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word == "--short");
    let folder = folders.first().map(PathBuf::from);
    (!options.is_empty(), folder.unwrap_or_else(|| std::env::temp_dir().join(format!("warpfeed-{example}"))))
}

/// Trains `weights` on all batches of so many epochs, and prints the mean loss of each. `loss` makes of a batch a tensor
/// that has the loss's gradient, and the loss.
pub fn train(
    weights: &VarMap,
    pipeline: &Pipeline,
    epochs: u64,
    loss: impl Fn(Batch) -> Result<(Tensor, f32)>,
) -> Result<()> {
    let options = ParamsAdamW { weight_decay: 1e-4, ..ParamsAdamW::default() };
    let mut optimizer = AdamW::new(weights.all_vars(), options).map_err(candle)?;
    let (began, steps, mut step) = (Instant::now(), epochs * pipeline.batches().unwrap_or(0), 0);
    for number in 0..epochs {
        let (mut sum, before) = (0.0, step);
        for batch in pipeline.epoch(number) {
            let (tensor, loss) = loss(batch?)?;
            optimizer.set_learning_rate(learning_rate(step, steps));
            optimizer.backward_step(&tensor).map_err(candle)?;
            sum += loss;
            step += 1;
        }
        println!("epoch {number}: loss {:.4} ({:.0} s)", sum / (step - before) as f32, began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Learning rate of `step` of `steps`: it rises to the highest during a tenth of them, and falls to 0 along a cosine.
fn learning_rate(step: u64, steps: u64) -> f64 {
    let done = (step as f64 + 0.5) / steps as f64;
    LEARNING_RATE * (done / 0.1).min(0.5 + 0.5 * (std::f64::consts::PI * done).cos())
}
