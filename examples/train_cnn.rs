//! Trains a small network with candle: `train_cnn [DIR]`, with feature `candle`, or on a GPU with `candle-cuda`. DIR is
//! a folder of class folders; without it the program makes images.

use candle_core::{D, DType as CandleType, Device, Tensor};
use candle_nn::{AdamW, Conv2d, Conv2dConfig, Linear, Module, Optimizer, VarBuilder, VarMap, conv2d, linear, loss};
use warpfeed::ops::random_resized_crop;
use warpfeed::{
    DType, Error, IMAGENET_MEAN, IMAGENET_STD, Layout, Pipeline, Result,
    source::{ImageFolder, Source},
};
use warpfeed_bench::synth::{SynthSettings, write_folder};

const SIDE_PX: u32 = 64;
const EPOCHS: u64 = 8;

/// Three convolutions, each halving the sides, and a linear layer over the remaining pixels.
struct Cnn {
    convolutions: [Conv2d; 3],
    head: Linear,
}

impl Cnn {
    fn new(classes: usize, weights: &VarBuilder) -> candle_core::Result<Self> {
        let half = Conv2dConfig { padding: 1, stride: 2, ..Conv2dConfig::default() };
        let layer = |name, from, to| conv2d(from, to, 3, half, weights.pp(name));
        let convolutions = [layer("first", 3, 8)?, layer("second", 8, 16)?, layer("third", 16, 32)?];
        Ok(Self { convolutions, head: linear(32, classes, weights.pp("head"))? })
    }
}

impl Module for Cnn {
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let mut x = images.clone();
        for convolution in &self.convolutions {
            x = convolution.forward(&x)?.relu()?;
        }
        self.head.forward(&x.mean((2, 3))?)
    }
}

/// Runs one training step. Returns the loss, and the number of images that were classified correctly before the step.
fn train(cnn: &Cnn, optimizer: &mut AdamW, images: &Tensor, labels: &Tensor) -> candle_core::Result<(f32, f32)> {
    let logits = cnn.forward(images)?;
    let loss = loss::cross_entropy(&logits, labels)?;
    optimizer.backward_step(&loss)?;
    let right = logits.argmax(D::Minus1)?.eq(labels)?.to_dtype(CandleType::F32)?.sum_all()?;
    Ok((loss.to_scalar()?, right.to_scalar()?))
}

fn candle(error: candle_core::Error) -> Error {
    Error::Device { call: "train with candle".to_owned(), message: error.to_string() }
}

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).map_or_else(
        || {
            let folder = std::env::temp_dir().join("warpfeed-train-cnn");
            write_folder(&folder, &SynthSettings { seed: 1, ..SynthSettings::new(96, 4) }, |_done| {}).map(|_| folder)
        },
        |folder| Ok(folder.into()),
    )?;
    let source = ImageFolder::open(folder)?;
    let device = Device::cuda_if_available(0).map_err(candle)?;
    let weights = VarMap::new();
    let cnn = Cnn::new(source.classes().len(), &VarBuilder::from_varmap(&weights, CandleType::F32, &device));
    let (cnn, optimizer) = (cnn.map_err(candle)?, AdamW::new_lr(weights.all_vars(), 0.01));
    let mut optimizer = optimizer.map_err(candle)?;
    let pipeline = Pipeline::builder(source)
        .batch_size(16)
        .shuffle(42)
        .transform(random_resized_crop(SIDE_PX))
        .normalize(IMAGENET_MEAN, IMAGENET_STD)
        .output(DType::F32, Layout::Nchw)
        .build()?;
    for number in 0..EPOCHS {
        let (mut sum, mut right, mut seen, mut batches) = (0.0, 0.0, 0, 0);
        for batch in pipeline.epoch(number) {
            let (images, labels) = batch?.into_candle(&device)?;
            let (loss, count) = train(&cnn, &mut optimizer, &images, &labels).map_err(candle)?;
            (sum, right, seen, batches) = (sum + loss, right + count, seen + labels.elem_count(), batches + 1);
        }
        println!("epoch {number}: loss {:.3}, accuracy {:.2}", sum / batches as f32, right / seen as f32);
    }
    Ok(())
}
