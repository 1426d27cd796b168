//! Trains a small ResNet with burn's learner on the CPU: `resnet [DIR]`, and validates on a fifth of each class.
//! Without DIR, a folder of class folders, the program makes images that the network must learn.

use burn::data::dataloader::DataLoader;
use burn::data::dataset::DatasetError;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::optim::AdamConfig;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use warpfeed::ops::{CenterCrop, Resize, random_horizontal_flip, random_resized_crop};
use warpfeed::source::{ImageFolder, Source, SourceExt};
use warpfeed::{IMAGENET_MEAN, IMAGENET_STD};
use warpfeed_bench::synth::{SynthSettings, write_folder};
use warpfeed_burn::{ImageBatch, Loader};

const SIDE_PX: u32 = 64;
const EPOCHS: usize = 8;

/// Two convolutions and what goes around them.
#[derive(Module, Debug)]
struct Block {
    first: Conv2d,
    first_norm: BatchNorm,
    second: Conv2d,
    second_norm: BatchNorm,
    around: Option<Conv2d>,
}

impl Block {
    fn new(from: usize, to: usize, stride: usize, device: &Device) -> Self {
        let around = (from != to)
            .then(|| Conv2dConfig::new([from, to], [1, 1]).with_stride([stride, stride]).with_bias(false).init(device));
        Self {
            first: convolution(from, to, stride, device),
            first_norm: BatchNormConfig::new(to).init(device),
            second: convolution(to, to, 1, device),
            second_norm: BatchNormConfig::new(to).init(device),
            around,
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = relu(self.first_norm.forward(self.first.forward(x.clone())));
        let y = self.second_norm.forward(self.second.forward(y));
        let around = match &self.around {
            Some(convolution) => convolution.forward(x),
            None => x,
        };
        relu(y + around)
    }
}

fn convolution(from: usize, to: usize, stride: usize, device: &Device) -> Conv2d {
    Conv2dConfig::new([from, to], [3, 3])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .with_bias(false)
        .init(device)
}

/// A ResNet-10 of a quarter of the usual width.
#[derive(Module, Debug)]
struct ResNet {
    stem: Conv2d,
    norm: BatchNorm,
    blocks: Vec<Block>,
    pool: AdaptiveAvgPool2d,
    head: Linear,
}

impl ResNet {
    fn new(classes: usize, device: &Device) -> Self {
        let widths = [(16, 16, 1), (16, 32, 2), (32, 64, 2), (64, 128, 2)];
        Self {
            stem: convolution(3, 16, 2, device),
            norm: BatchNormConfig::new(16).init(device),
            blocks: widths.iter().map(|&(from, to, stride)| Block::new(from, to, stride, device)).collect(),
            pool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            head: LinearConfig::new(128, classes).init(device),
        }
    }

    fn classify(&self, batch: ImageBatch) -> ClassificationOutput {
        let mut x = relu(self.norm.forward(self.stem.forward(batch.images)));
        for block in &self.blocks {
            x = block.forward(x);
        }
        let labels = batch.labels.expect("class folders have labels");
        let logits = self.head.forward(self.pool.forward(x).flatten(1, 3));
        let loss = CrossEntropyLossConfig::new().init(&logits.device()).forward(logits.clone(), labels.clone());
        ClassificationOutput::new(loss, logits, labels)
    }
}

impl TrainStep for ResNet {
    type Input = ImageBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: ImageBatch) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for ResNet {
    type Input = ImageBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: ImageBatch) -> ClassificationOutput {
        self.classify(batch)
    }
}

/// The share of a loader's images that the model classifies rightly.
fn accuracy(model: &ResNet, loader: &dyn DataLoader<ImageBatch>) -> Result<f64, DatasetError> {
    let (mut right, mut all) = (0, 0);
    for batch in loader.iter() {
        let output = model.classify(batch?);
        let (guesses, labels) = (output.output.argmax(1).into_data(), output.targets.into_data());
        right += guesses.iter::<i64>().zip(labels.iter::<i64>()).filter(|(guess, label)| guess == label).count();
        all += labels.num_elements();
    }
    Ok(right as f64 / all as f64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = match &given {
        Some(folder) => folder.clone(),
        None => {
            let folder = std::env::temp_dir().join("warpfeed-burn-resnet");
            write_folder(&folder, &SynthSettings { seed: 1, ..SynthSettings::new(400, 4) }, |_done| {})?;
            folder
        }
    };
    let images = ImageFolder::open(folder)?;
    let classes = images.classes().len();
    let (train, validation) = images.split_stratified(0.2, 42)?;
    let device = Device::flex();
    let train = Loader::new(train, &device, |builder| {
        builder
            .batch_size(32)
            .shuffle(7)
            .transform(random_resized_crop(SIDE_PX))
            .transform(random_horizontal_flip(0.5))
            .normalize(IMAGENET_MEAN, IMAGENET_STD)
    })?;
    let validation = Arc::new(Loader::new(validation, &device, |builder| {
        builder
            .batch_size(32)
            .transform(Resize::shorter_side(SIDE_PX))
            .transform(CenterCrop::new(SIDE_PX))
            .normalize(IMAGENET_MEAN, IMAGENET_STD)
    })?);
    println!("{}", train.summary());
    let model = ResNet::new(classes, &device.clone().autodiff());
    let before = accuracy(&model.valid(), &*validation)?;
    let learner = Learner::new(model, AdamConfig::new().init(), 0.003);
    let artifacts = std::env::temp_dir().join("warpfeed-burn-resnet-artifacts");
    let result = SupervisedTraining::new(artifacts, Arc::new(train), validation.clone())
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .num_epochs(EPOCHS)
        .summary()
        .launch(learner);
    if let Some(error) = result.error {
        return Err(error.to_string().into());
    }
    let after = accuracy(&result.model, &*validation)?;
    println!("Accuracy on images held out: {before:.2} before training, {after:.2} after {EPOCHS} epochs");
    if given.is_none() && after < 0.8 {
        return Err("it has not learned".into());
    }
    Ok(())
}
