//! A training loop to copy: `train_resume RUN [BATCHES]`, with feature `candle`. It trains with MixUp and CutMix,
//! validates, writes checkpoints, and continues after an interruption with the next image. `train_resume RUN look STEP`
//! writes the images of a step into RUN/step-STEP.
//!
//! RUN is a folder for the checkpoint and for images that the program makes. After BATCHES batches the program stops as
//! if killed.

use candle_core::{D, DType as CandleType, Device, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Linear, Module, Optimizer, SGD, VarBuilder, VarMap, conv2d, linear, ops};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use warpfeed::prelude::*;
use warpfeed::source::open_splits;
use warpfeed::{EpochState, Error, LogOptions, Mix, Replay, Result, RunLog, Stats, TargetSpec, Targets};
use warpfeed_bench::{
    replay::write_batch,
    synth::{SynthSettings, write_folder},
};

const SIDE_PX: u32 = 32;
const EPOCHS: u64 = 3;
/// Number of batches from one checkpoint to the next.
const CHECKPOINT: u64 = 4;

/// Two convolutions, each halving the sides, and a linear layer over the remaining pixels.
struct Network {
    convolutions: [Conv2d; 2],
    head: Linear,
}

impl Network {
    fn new(classes: usize, weights: &VarBuilder) -> candle_core::Result<Self> {
        let half = Conv2dConfig { padding: 1, stride: 2, ..Conv2dConfig::default() };
        let layer = |name, from, to| conv2d(from, to, 3, half, weights.pp(name));
        Ok(Self {
            convolutions: [layer("first", 3, 8)?, layer("second", 8, 16)?],
            head: linear(16, classes, weights.pp("head"))?,
        })
    }
}

impl Module for Network {
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let mut layers = self.convolutions.iter();
        let features = layers.try_fold(images.clone(), |x, layer| layer.forward(&x)?.relu())?;
        self.head.forward(&features.mean((2, 3))?)
    }
}

/// Contents of the checkpoint file, besides the weights.
#[derive(Serialize, Deserialize)]
struct Checkpoint {
    /// State of the epoch.
    state: EpochState,
    /// File with the weights.
    weights: PathBuf,
    /// Sum of the epoch's losses so far, and number of their batches.
    loss: f32,
    batches: u64,
}

impl Checkpoint {
    /// Reads the last checkpoint, if there is one.
    fn read(run: &Path) -> Result<Option<Self>> {
        let path = run.join("checkpoint.json");
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| io("read", path)(error.into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io("read", path)(error)),
        }
    }

    /// Writes the weights, then the file that names them. If the process is killed in between, the last checkpoint
    /// stays whole.
    fn write(&self, run: &Path, weights: &VarMap) -> Result<()> {
        weights.save(run.join(&self.weights)).map_err(candle)?;
        let (path, new) = (run.join("checkpoint.json"), run.join("checkpoint.new"));
        let text = serde_json::to_vec(self).map_err(|error| io("write", &path)(error.into()))?;
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(io("write", &path))
    }
}

fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.into();
    move |source| Error::Io { action, path, source: source.into() }
}

fn candle(error: candle_core::Error) -> Error {
    Error::Device { call: "train with candle".to_owned(), message: error.to_string() }
}

/// Cross entropy of the network's logits and the `[N, K]` shares of the classes.
fn cross_entropy(logits: &Tensor, shares: &Tensor) -> candle_core::Result<Tensor> {
    (shares * ops::log_softmax(logits, D::Minus1)?)?.sum(D::Minus1)?.mean(0)?.neg()
}

/// Share of the validation images that are classified correctly.
fn validate(network: &Network, pipeline: &Pipeline, device: &Device) -> Result<f64> {
    let (mut right, mut seen) = (0.0, 0);
    for batch in pipeline.epoch(0) {
        let (images, labels) = batch?.into_candle(device)?;
        let count = || network.forward(&images)?.argmax(D::Minus1)?.eq(&labels)?.to_dtype(CandleType::F64)?.sum_all();
        right += count().and_then(|count| count.to_scalar::<f64>()).map_err(candle)?;
        seen += labels.elem_count();
    }
    Ok(right / seen as f64)
}

/// Speed of an epoch, share of the time that the step waited, and the slower side.
fn speed(stats: &Stats, time: Duration) -> String {
    let waited = stats.consumer_wait.as_secs_f64() / time.as_secs_f64();
    let slower = if waited > 0.5 { "the pipeline" } else { "the step" };
    let rate = stats.images as f64 / time.as_secs_f64();
    format!("{rate:.0} images/s; the step waited {:.0} % of the time, {slower} is slower", 100.0 * waited)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let run = PathBuf::from(arguments.next().unwrap_or_else(|| "train-resume".to_owned()));
    let (word, number) = (arguments.next(), arguments.next());
    let mut left = word.as_ref().and_then(|batches| batches.parse().ok()).unwrap_or(u64::MAX);
    let [train, valid] = ["train", "valid"].map(|name| run.join("images").join(name));
    for (folder, count, seed) in [(&train, 96, 1), (&valid, 32, 2)] {
        write_folder(folder, &SynthSettings { seed, ..SynthSettings::new(count, 4) }, |_done| {})?;
    }

    // Opened together, so that the classes of train number the labels of both.
    let [source, valid] = open_splits(run.join("images"), ["train", "valid"])?;
    let device = Device::cuda_if_available(0).map_err(candle)?;
    let mut weights = VarMap::new();
    let classes = source.classes().len();
    let network = Network::new(classes, &VarBuilder::from_varmap(&weights, CandleType::F32, &device));
    let network = network.map_err(candle)?;
    let train = Pipeline::builder(source)
        .batch_size(8)
        .shuffle(42)
        .transform(random_resized_crop(SIDE_PX))
        .transform(random_horizontal_flip(0.5))
        .normalize(IMAGENET_MEAN, IMAGENET_STD)
        .targets(TargetSpec::soft(classes as u32))
        .mix(Mix::torchvision(0.2, 1.0))
        .build()?;
    let valid = Pipeline::builder(valid)
        .transform(Resize::shorter_side(SIDE_PX))
        .transform(CenterCrop::new(SIDE_PX))
        .normalize(IMAGENET_MEAN, IMAGENET_STD)
        .build()?;

    let path = run.join("run.wlog");
    if let (Some("look"), Some(step)) = (word.as_deref(), number.and_then(|step| step.parse().ok())) {
        let folder = run.join(format!("step-{step}"));
        write_batch(&Replay::open(path)?.batch(&train, step)?, &folder)?;
        println!("{}", folder.join("sheet.png").display());
        return Ok(());
    }
    let mut log = RunLog::open(path, &train, &LogOptions::default())?;

    let first = run.join("weights-0.safetensors");
    let found = Checkpoint::read(&run)?;
    match &found {
        Some(found) => weights.load(run.join(&found.weights)).map_err(candle)?,
        // candle draws other initial weights in each process, so the first process's are kept.
        None if first.exists() => weights.load(&first).map_err(candle)?,
        None => weights.save(&first).map_err(candle)?,
    }
    // Without momentum the weights are the optimizer's whole state.
    let mut optimizer = SGD::new(weights.all_vars(), 0.1).map_err(candle)?;
    let (start, mut sum, mut batches) = found.as_ref().map_or((0, 0.0, 0), |c| (c.state.epoch(), c.loss, c.batches));
    let mut resumed = found.map(|found| found.state);
    for number in start..EPOCHS {
        let mut epoch = match resumed.take() {
            Some(state) => train.resume(&state)?,
            None => train.epoch(number),
        };
        let (began, mut worst) = (Instant::now(), (0.0, 0));
        for batch in epoch.by_ref() {
            if left == 0 {
                println!("stopped in epoch {number} after {batches} batches");
                return Ok(());
            }
            left -= 1;
            let mut batch = batch?;
            let (state, step_number) = (batch.state(), number * train.batches().unwrap_or(0) + batches);
            log.write(step_number, &batch)?;
            let Some(Targets::Numbers(shares)) = batch.take_targets() else { unreachable!("they were asked for") };
            let (shares, (images, _)) = (shares.into_candle(&device)?, batch.into_candle(&device)?);
            let step = || {
                let loss = cross_entropy(&network.forward(&images)?, &shares)?;
                optimizer.backward_step(&loss)?;
                loss.to_scalar::<f32>()
            };
            let loss = { step }().map_err(candle)?;
            if loss > worst.0 {
                worst = (loss, step_number);
            }
            (sum, batches) = (sum + loss, batches + 1);
            if batches % CHECKPOINT == 0 {
                // Two files take turns, so that the file named by the checkpoint is never being written.
                let turn = (number * 1_000 + batches) / CHECKPOINT % 2;
                let weights_file = PathBuf::from(format!("weights-turn-{turn}.safetensors"));
                Checkpoint { state, weights: weights_file, loss: sum, batches }.write(&run, &weights)?;
            }
        }
        let speed = speed(&epoch.stats(), began.elapsed());
        let accuracy = validate(&network, &valid, &device)?;
        let (mean, (loss, step)) = (sum / batches as f32, worst);
        println!(
            "epoch {number}: loss {mean:.4}, validation accuracy {accuracy:.3} ({speed}); {loss:.2} in step {step}"
        );
        (sum, batches) = (0.0, 0);
    }
    Ok(())
}
