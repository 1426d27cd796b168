//! Trains a small network with candle on satellites' images of 13 bands and 16 bits: `train_bands [DIR]`, with feature
//! `candle`. DIR is a folder of class folders of TIFFs; without it the program makes images of five land covers.

use candle_core::{D, DType as CandleType, Device, Tensor};
use candle_nn::{AdamW, Conv2d, Conv2dConfig, Linear, Module, Optimizer, VarBuilder, VarMap, conv2d, linear, loss};
use warpfeed::ops::{RandomResizedCrop, ToFloat};
use warpfeed::prelude::*;
use warpfeed::source::{ImageFolder, Source, SourceExt};
use warpfeed::{Error, Pixels, Result};
use warpfeed_bench::synth::{BANDS, write_bands};

const SIDE_PX: u32 = 32;
const EPOCHS: u64 = 4;

/// Two convolutions, and a linear layer over the mean of all pixels.
struct Network {
    convolutions: [Conv2d; 2],
    head: Linear,
}

impl Network {
    fn new(classes: usize, weights: &VarBuilder) -> candle_core::Result<Self> {
        let half = Conv2dConfig { padding: 1, stride: 2, ..Conv2dConfig::default() };
        let first = conv2d(BANDS, 16, 3, half, weights.pp("first"))?;
        let second = conv2d(16, 32, 3, half, weights.pp("second"))?;
        Ok(Self { convolutions: [first, second], head: linear(32, classes, weights.pp("head"))? })
    }
}

impl Module for Network {
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let mut x = images.clone();
        for convolution in &self.convolutions {
            x = convolution.forward(&x)?.relu()?;
        }
        self.head.forward(&x.mean((2, 3))?)
    }
}

/// The number of images that the network classifies correctly.
fn right(logits: &Tensor, labels: &Tensor) -> candle_core::Result<f32> {
    logits.argmax(D::Minus1)?.eq(labels)?.to_dtype(CandleType::F32)?.sum_all()?.to_scalar()
}

fn candle(error: candle_core::Error) -> Error {
    Error::Device { call: "train with candle".to_owned(), message: error.to_string() }
}

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).map_or_else(
        || {
            let folder = std::env::temp_dir().join("warpfeed-train-bands");
            write_bands(&folder, 200, 1).map(|()| folder)
        },
        |folder| Ok(folder.into()),
    )?;
    let source = ImageFolder::open(folder)?;
    let classes = source.classes().len();
    let (train, validation) = source.split_stratified(0.2, 1)?;
    // 10,000 stands for all light reflected. Values stay as the sensor has them, in all bands.
    let builder = |source| Pipeline::builder(source).batch_size(20).pixels(Pixels::Own).max_value(10_000.0);
    let crop = RandomResizedCrop::new(SIDE_PX).scale(0.5..=1.0);
    let turns = [random_horizontal_flip(0.5), random_vertical_flip(0.5)];
    let train = builder(train).shuffle(42).transform(crop).transform(turns[0].clone()).transform(turns[1].clone());
    let train = train.transform(ToFloat).build()?;
    let validation = builder(validation).transform(CenterCrop::new(SIDE_PX)).transform(ToFloat).build()?;

    let (device, weights) = (Device::Cpu, VarMap::new());
    let network = Network::new(classes, &VarBuilder::from_varmap(&weights, CandleType::F32, &device));
    let (network, optimizer) = (network.map_err(candle)?, AdamW::new_lr(weights.all_vars(), 0.02));
    let mut optimizer = optimizer.map_err(candle)?;
    for number in 0..EPOCHS {
        let (mut sum, mut batches) = (0.0, 0.0);
        for batch in train.epoch(number) {
            let (images, labels) = batch?.into_candle(&device)?;
            let step = || {
                let loss = loss::cross_entropy(&network.forward(&images)?, &labels)?;
                optimizer.backward_step(&loss)?;
                loss.to_scalar::<f32>()
            };
            (sum, batches) = (sum + { step }().map_err(candle)?, batches + 1.0);
        }
        let (mut correct, mut seen) = (0.0, 0);
        for batch in validation.epoch(number) {
            let (images, labels) = batch?.into_candle(&device)?;
            correct += network.forward(&images).and_then(|logits| right(&logits, &labels)).map_err(candle)?;
            seen += labels.elem_count();
        }
        println!("epoch {number}: loss {:.3}, accuracy {:.2}", sum / batches, correct / seen as f32);
    }
    Ok(())
}
