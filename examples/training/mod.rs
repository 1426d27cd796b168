//! Code of the examples that train networks on synthetic images.

pub mod layers;
mod norm;

use candle_core::{Tensor, backprop::GradStore};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarMap};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;
use warpfeed::source::CocoFiles;
use warpfeed::{Batch, Error, Pipeline, Result};
use warpfeed_bench::synth::{SynthSettings, write_folder};

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

/// The program's arguments: whether it is to train a few steps only, and the folder of images, which is temporary if
/// none is named.
pub fn arguments(example: &str) -> (bool, PathBuf) {
    let (options, folders): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word == "--short");
    let is_short = !options.is_empty();
    let folder = folders.first().map(PathBuf::from);
    // The few images of a short run would be taken for those of a full one.
    let own = || std::env::temp_dir().join(format!("warpfeed-{example}{}", if is_short { "-short" } else { "" }));
    (is_short, folder.unwrap_or_else(own))
}

/// Trains `weights` on all batches of `epochs` epochs, and prints the mean loss of each. All of `networks` have these
/// weights, and each has a thread: a step takes a batch for each, and follows the sum of their gradients. `loss` turns
/// a batch into a tensor that has the loss's gradient, and the loss.
pub fn train<N: Send>(
    weights: &VarMap,
    networks: &mut [N],
    pipeline: &Pipeline,
    epochs: u64,
    loss: impl Fn(&N, Batch) -> Result<(Tensor, f32)> + Sync,
) -> Result<()> {
    let options = ParamsAdamW { weight_decay: 1e-4, ..ParamsAdamW::default() };
    let mut optimizer = AdamW::new(weights.all_vars(), options).map_err(candle)?;
    let gradients = |network: &mut N, batch: Batch| -> Result<(GradStore, f32)> {
        let (tensor, loss) = loss(network, batch)?;
        Ok((tensor.backward().map_err(candle)?, loss))
    };
    let (began, gradients) = (Instant::now(), &gradients);
    let steps = pipeline.batches().unwrap_or(0) / networks.len() as u64;
    for number in 0..epochs {
        let (mut sum, mut batches) = (0.0, pipeline.epoch(number));
        for step in 0..steps {
            let batches: Vec<Batch> = batches.by_ref().take(networks.len()).collect::<Result<_>>()?;
            let results: Vec<_> = thread::scope(|scope| {
                let start = |(network, batch)| scope.spawn(move || gradients(network, batch));
                let threads: Vec<_> = networks.iter_mut().zip(batches).map(start).collect();
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
            });
            let mut total = GradStore::default();
            for result in results {
                let (gradients, loss) = result?;
                total.extend(gradients).map_err(candle)?;
                sum += loss / networks.len() as f32;
            }
            optimizer.set_learning_rate(learning_rate(number * steps + step, epochs * steps));
            // AdamW takes the same step whether gradients are added or averaged.
            optimizer.step(&total).map_err(candle)?;
        }
        println!("epoch {number}: loss {:.4} ({:.0} s)", sum / steps as f32, began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Learning rate of `step` of `steps`: it rises to the highest during a tenth of them, and falls to 0 along a cosine.
fn learning_rate(step: u64, steps: u64) -> f64 {
    let done = (step as f64 + 0.5) / steps as f64;
    LEARNING_RATE * (done / 0.1).min(0.5 + 0.5 * (std::f64::consts::PI * done).cos())
}
