//! Trains a small model that makes images of a class, with candle, on images of many aspects in buckets: `train_buckets
//! [DIR]`, with feature `candle`. DIR is a folder of class folders; without it the program makes skies of three times of
//! day. It then makes an image of each class in each bucket, in `train-buckets.png` in the folder for temporary files.
//!
//! The model is a rectified flow (Liu, Gong and Liu, 2022): it learns the velocity from noise to images.

use candle_core::{DType as CandleType, Device, Tensor};
use candle_nn::{AdamW, Conv2d, Conv2dConfig, Linear, Module, Optimizer, VarBuilder, VarMap, conv2d, linear};
use warpfeed::image::{Image, JpegOptions, contact_sheet, encode_jpeg, write_png};
use warpfeed::ops::{BucketCrop, SampleRng};
use warpfeed::prelude::*;
use warpfeed::shapes::Buckets;
use warpfeed::source::{EncodedImages, ImageFolder, Input};
use warpfeed::{Error, LastBatch, Result};

const EPOCHS: u64 = 6;
/// Steps from noise to an image.
const STEPS: u32 = 12;

/// Convolutions over the image, the time, the class, and where a pixel is.
struct Flow {
    convolutions: [Conv2d; 3],
    told: Linear,
    classes: usize,
}

impl Flow {
    fn new(classes: usize, weights: &VarBuilder) -> candle_core::Result<Self> {
        let same = Conv2dConfig { padding: 1, ..Conv2dConfig::default() };
        let layer = |input, output, name: &str| conv2d(input, output, 3, same, weights.pp(name));
        let convolutions = [layer(4, 24, "first")?, layer(24, 24, "second")?, layer(24, 3, "last")?];
        Ok(Self { convolutions, told: linear(classes + 1, 24, weights.pp("told"))?, classes })
    }

    /// The velocity of images `[N, 3, H, W]` of classes at times 0 (images) to 1 (noise), each `[N]`.
    fn velocity(&self, images: &Tensor, labels: &Tensor, times: &Tensor) -> candle_core::Result<Tensor> {
        let (n, _, height, width) = images.dims4()?;
        let device = images.device();
        let rows = Tensor::arange(0_u32, height as u32, device)?.to_dtype(CandleType::F32)?;
        let rows = (rows / height as f64)?.reshape((1, 1, height, 1))?.broadcast_as((n, 1, height, width))?;
        let classes = Tensor::arange(0_u32, self.classes as u32, device)?.reshape((1, self.classes))?;
        let classes = labels.reshape((n, 1))?.broadcast_eq(&classes)?.to_dtype(CandleType::F32)?;
        let told = self.told.forward(&Tensor::cat(&[classes, times.reshape((n, 1))?], 1)?)?.reshape((n, 24, 1, 1))?;
        let mut x = self.convolutions[0].forward(&Tensor::cat(&[images, &rows], 1)?)?;
        x = x.broadcast_add(&told)?.gelu()?;
        x = self.convolutions[1].forward(&x)?.broadcast_mul(&told)?.gelu()?;
        self.convolutions[2].forward(&x)
    }

    /// How far the velocity is from that between images and noise.
    fn loss(&self, images: &Tensor, labels: &Tensor) -> candle_core::Result<Tensor> {
        let n = images.dim(0)?;
        let noise = images.randn_like(0.0, 1.0)?;
        let times = Tensor::rand(0.0_f32, 1.0, n, images.device())?;
        let share = times.reshape((n, 1, 1, 1))?;
        let between = (images.broadcast_mul(&share.affine(-1.0, 1.0)?)? + noise.broadcast_mul(&share)?)?;
        (self.velocity(&between, labels, &times)? - (noise - images)?)?.sqr()?.mean_all()
    }

    /// An image of each class.
    fn make(&self, size: Size, device: &Device) -> candle_core::Result<Tensor> {
        let n = self.classes;
        let mut images = Tensor::randn(0.0_f32, 1.0, (n, 3, size.height as usize, size.width as usize), device)?;
        let labels = Tensor::arange(0_u32, n as u32, device)?;
        for step in (1..=STEPS).rev() {
            let times = Tensor::full(step as f32 / STEPS as f32, n, device)?;
            images = (&images - (self.velocity(&images, &labels, &times)? / f64::from(STEPS))?)?;
        }
        Ok(images)
    }
}

/// Skies of day, evening and night, which are brighter or darker towards the top.
fn skies(count: u64) -> Result<EncodedImages> {
    // Red, green and blue at the top and at the bottom.
    const SKIES: [[[f64; 3]; 2]; 3] = [
        [[60.0, 130.0, 240.0], [210.0, 235.0, 255.0]],
        [[60.0, 40.0, 90.0], [250.0, 140.0, 40.0]],
        [[5.0, 5.0, 25.0], [20.0, 25.0, 70.0]],
    ];
    let sky = |index: u64| {
        let mut random = SampleRng::for_sample(3, 0, index);
        let class = (index % 3) as usize;
        let [width, height] = [0; 2].map(|_| random.uniform(20.0, 60.0) as u32);
        let (light, [top, bottom]) = (random.uniform(0.8, 1.0), SKIES[class]);
        let mut rgb = Vec::new();
        for y in (0..height).flat_map(|y| (0..width).map(move |_| f64::from(y) / f64::from(height))) {
            let noise = random.uniform(-4.0, 4.0);
            rgb.extend([0, 1, 2].map(|c| (light * (top[c] + (bottom[c] - top[c]) * y) + noise) as u8));
        }
        let image = Image::from_rgb(Size::new(width, height), &rgb)?;
        Ok((encode_jpeg(&image, &JpegOptions::default())?, class as u32))
    };
    let images = (0..count).map(sky).collect::<Result<Vec<_>>>()?;
    Ok(EncodedImages::new(images).with_classes(["day", "evening", "night"]))
}

fn candle(error: candle_core::Error) -> Error {
    Error::Device { call: "train with candle".to_owned(), message: error.to_string() }
}

fn main() -> Result<()> {
    let source: Input = match std::env::args_os().nth(1) {
        Some(folder) => ImageFolder::open(folder)?.into(),
        None => skies(180)?.into(),
    };
    let classes = source.classes().len();
    let pipeline = Pipeline::builder(source)
        .batch_size(10)
        .shuffle(42)
        .buckets(Buckets::area(Size::new(20, 20)).step(4).sides(12..=32).merge(true))
        .last_batch(LastBatch::Pad)
        .transform(BucketCrop::new().random(true))
        .transform(random_horizontal_flip(0.5))
        .normalize([0.5; 3], [0.5; 3])
        .build()?;
    let (device, weights) = (Device::Cpu, VarMap::new());
    let flow = Flow::new(classes, &VarBuilder::from_varmap(&weights, CandleType::F32, &device)).map_err(candle)?;
    let mut optimizer = AdamW::new_lr(weights.all_vars(), 0.004).map_err(candle)?;
    for number in 0..EPOCHS {
        let (mut sum, mut batches) = (0.0, 0.0);
        for batch in pipeline.epoch(number) {
            let (images, labels) = batch?.into_candle(&device)?;
            let step = || {
                let loss = flow.loss(&images, &labels)?;
                optimizer.backward_step(&loss)?;
                loss.to_scalar::<f32>()
            };
            (sum, batches) = (sum + { step }().map_err(candle)?, batches + 1.0);
        }
        println!("epoch {number}: loss {:.3}", sum / batches);
    }
    let mut made = Vec::new();
    for bucket in pipeline.buckets() {
        let size = Size::new(bucket.width, bucket.height);
        let images = flow.make(size, &device).and_then(|images| images.affine(127.5, 127.5)?.clamp(0.0, 255.0));
        let images = images.and_then(|images| images.permute((0, 2, 3, 1))?.flatten(1, 3)?.to_vec2::<f32>());
        for (class, rgb) in images.map_err(candle)?.into_iter().enumerate() {
            let mean = |c: usize| rgb.iter().skip(c).step_by(3).sum::<f32>() / size.area_px() as f32;
            println!("{size}, {}: {:.0} {:.0} {:.0}", pipeline.classes()[class], mean(0), mean(1), mean(2));
            made.push(Image::from_rgb(size, &rgb.iter().map(|value| *value as u8).collect::<Vec<u8>>())?);
        }
    }
    let path = std::env::temp_dir().join("train-buckets.png");
    write_png(&contact_sheet(&made, classes as u32, 8)?, &path)?;
    println!("wrote {}", path.display());
    Ok(())
}
