//! Trains a small network with candle to tell the distance of each pixel of an image in fog: `train_depth [DIR]`, with
//! feature `candle`. DIR has a folder `images`, and a folder `depth` with a PNG of 16 bits for each image, in
//! millimeters; without it the program makes such images.

use candle_core::{DType as CandleType, Device, Tensor};
use candle_nn::{AdamW, Conv2d, Conv2dConfig, Linear, Module, Optimizer, VarBuilder, VarMap, conv2d, linear};
use std::path::PathBuf;
use warpfeed::prelude::*;
use warpfeed::source::{AuxFolder, ImageFolder, SourceExt};
use warpfeed::{Error, Result};
use warpfeed_bench::synth::write_depth;

const SIDE_PX: u32 = 48;
const EPOCHS: u64 = 4;

/// A convolution, and two linear layers for each pixel, which give the logarithm of its distance in meters.
struct Network {
    neighbors: Conv2d,
    layers: [Linear; 2],
}

impl Network {
    fn new(weights: &VarBuilder) -> candle_core::Result<Self> {
        let same_size = Conv2dConfig { padding: 1, ..Conv2dConfig::default() };
        let layers = [linear(16, 16, weights.pp("hidden"))?, linear(16, 1, weights.pp("distance"))?];
        Ok(Self { neighbors: conv2d(3, 16, 3, same_size, weights.pp("neighbors"))?, layers })
    }

    /// `[N * H * W]` of images `[N, 3, H, W]`.
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let x = self.neighbors.forward(images)?.relu()?.permute((0, 2, 3, 1))?.flatten_to(2)?.contiguous()?;
        self.layers[1].forward(&self.layers[0].forward(&x)?.relu()?)?.flatten_all()
    }
}

/// The images of a batch, and the distance of each pixel in meters: `[N, 3, H, W]` and `[N * H * W]`.
fn take(batch: Batch, device: &Device) -> Result<(Tensor, Tensor)> {
    // The values of 16 bits went through the same crops and flips as the image, each from the nearest pixel.
    let fields = batch.fields(0).expect("the pipeline was told to read the depth");
    let millimeters = fields.image_tensor("depth")?.into_candle(device)?;
    let meters = millimeters.to_dtype(CandleType::F32).and_then(|depth| (depth / 1000.0)?.flatten_all());
    Ok((batch.into_images().into_candle(device)?, meters.map_err(candle)?))
}

fn candle(error: candle_core::Error) -> Error {
    Error::Device { call: "train with candle".to_owned(), message: error.to_string() }
}

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.map_or_else(
        || {
            let folder = std::env::temp_dir().join("warpfeed-train-depth");
            write_depth(&folder, 150, 1).map(|()| folder)
        },
        Ok,
    )?;
    let images = folder.join("images");
    let depth = AuxFolder::new("depth", folder.join("depth"));
    let source = ImageFolder::open(&images)?.aux_images(&images, [depth])?;
    let (train, validation) = source.split(0.2, 1)?;
    let builder = |source| Pipeline::builder(source).batch_size(4).fields(["depth"]);
    let train =
        builder(train).shuffle(42).transform(random_resized_crop(SIDE_PX)).transform(random_horizontal_flip(0.5));
    let train = train.normalize(IMAGENET_MEAN, IMAGENET_STD).build()?;
    let validation = builder(validation).transform(CenterCrop::new(SIDE_PX));
    let validation = validation.normalize(IMAGENET_MEAN, IMAGENET_STD).build()?;

    let (device, weights) = (Device::Cpu, VarMap::new());
    let network = Network::new(&VarBuilder::from_varmap(&weights, CandleType::F32, &device)).map_err(candle)?;
    let mut optimizer = AdamW::new_lr(weights.all_vars(), 0.02).map_err(candle)?;
    for number in 0..EPOCHS {
        optimizer.set_learning_rate(0.02 * 0.5_f64.powi(number as i32));
        let (mut sum, mut batches) = (0.0, 0.0);
        for batch in train.epoch(number) {
            let (images, meters) = take(batch?, &device)?;
            let step = || {
                let loss = (network.forward(&images)? - meters.log()?)?.sqr()?.mean_all()?;
                optimizer.backward_step(&loss)?;
                loss.to_scalar::<f32>()
            };
            (sum, batches) = (sum + { step }().map_err(candle)?, batches + 1.0);
        }
        let (mut wrong, mut seen) = (0.0, 0.0);
        for batch in validation.epoch(number) {
            let (images, meters) = take(batch?, &device)?;
            let off =
                || ((network.forward(&images)?.exp()? - &meters)?.abs()? / &meters)?.mean_all()?.to_scalar::<f32>();
            (wrong, seen) = (wrong + off().map_err(candle)?, seen + 1.0);
        }
        println!("epoch {number}: loss {:.3}, distances wrong by {:.1} %", sum / batches, 100.0 * wrong / seen);
    }
    Ok(())
}
