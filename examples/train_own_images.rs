//! Trains a small network with candle on images of the program's own, without a pipeline: `train_own_images`, with
//! feature `candle`. The program draws 400 images of 32 x 32 pixels with a bar that lies or stands, and
//! [`Transforms`] augments them. A flip keeps the class, and a crop moves the bar.

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{AdamW, Conv2d, Conv2dConfig, Linear, Module, Optimizer, VarBuilder, VarMap, conv2d, linear, loss};
use warpfeed::image::Size;
use warpfeed::ops::{Normalize, color_jitter, random_crop, random_horizontal_flip};
use warpfeed::transforms::{Key, Transforms, View};
use warpfeed::{Error, Result};

const SIZE: Size = Size::new(32, 32);
const CROP_PX: u32 = 28;
const IMAGES: usize = 400;
const BATCH: usize = 40;
const EPOCHS: u64 = 4;
const SEED: u64 = 42;

/// Image `i`, row by row: a bright bar on a dark ground. It lies in images of class 0 and stands in those of class 1.
fn bar(i: usize) -> (Vec<u8>, u32) {
    let (class, place) = ((i % 2) as u32, 6 + (i * 7) % 20);
    let is_bar = |along: usize, across: usize| across.abs_diff(place) < 2 && (5..27).contains(&along);
    let pixel = |at: usize| {
        let (x, y) = (at % SIZE.width as usize, at / SIZE.width as usize);
        let bright = if class == 0 { is_bar(x, y) } else { is_bar(y, x) };
        let noise = (at * 97 + i * 31) % 60;
        let value = noise as u8 + if bright { 150 } else { 20 };
        [value, value / 2 + (i % 90) as u8, value]
    };
    ((0..SIZE.area_px() as usize).flat_map(pixel).collect(), class)
}

/// Two convolutions, and a linear layer over the means.
struct Cnn {
    convolutions: [Conv2d; 2],
    head: Linear,
}

impl Cnn {
    fn new(weights: &VarBuilder) -> candle_core::Result<Self> {
        let half = Conv2dConfig { padding: 1, stride: 2, ..Conv2dConfig::default() };
        let convolutions = [conv2d(3, 8, 3, half, weights.pp("first"))?, conv2d(8, 16, 3, half, weights.pp("second"))?];
        Ok(Self { convolutions, head: linear(16, 2, weights.pp("head"))? })
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

fn candle(error: candle_core::Error) -> Error {
    Error::Device { call: "train with candle".to_owned(), message: error.to_string() }
}

fn main() -> Result<()> {
    let transforms = Transforms::new([
        random_crop(CROP_PX, 0),
        random_horizontal_flip(0.5),
        color_jitter(0.2, 0.2, 0.2, 0.0),
        Normalize::new([0.3; 3], [0.25; 3]).into(),
    ])?;
    let images: Vec<(Vec<u8>, u32)> = (0..IMAGES).map(bar).collect();
    let (device, weights) = (Device::Cpu, VarMap::new());
    let cnn = Cnn::new(&VarBuilder::from_varmap(&weights, DType::F32, &device)).map_err(candle)?;
    let mut optimizer = AdamW::new_lr(weights.all_vars(), 0.02).map_err(candle)?;
    for epoch in 0..EPOCHS {
        let (mut sum, mut right) = (0.0, 0.0);
        for (number, batch) in images.chunks(BATCH).enumerate() {
            let views = batch.iter().map(|(rgb, _)| View::hwc(rgb, SIZE, 3)).collect::<Result<Vec<_>>>()?;
            let first = (number * BATCH) as u64;
            let keys: Vec<Key> = (first..).take(batch.len()).map(|index| Key { seed: SEED, epoch, index }).collect();
            let inputs = transforms.apply_batch(&views, &keys, 2)?.into_candle(&device)?;
            let classes: Vec<u32> = batch.iter().map(|(_, class)| *class).collect();
            let step = || -> candle_core::Result<(f32, f32)> {
                let (logits, classes) = (cnn.forward(&inputs)?, Tensor::new(classes, &device)?);
                let loss = loss::cross_entropy(&logits, &classes)?;
                optimizer.backward_step(&loss)?;
                let right = logits.argmax(D::Minus1)?.eq(&classes)?.to_dtype(DType::F32)?.sum_all()?;
                Ok((loss.to_scalar()?, right.to_scalar()?))
            };
            let (loss, count) = step().map_err(candle)?;
            (sum, right) = (sum + loss, right + count);
        }
        let batches = IMAGES.div_ceil(BATCH) as f32;
        println!("epoch {epoch}: loss {:.3}, accuracy {:.2}", sum / batches, right / IMAGES as f32);
    }
    Ok(())
}
