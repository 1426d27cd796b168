//! Trains a small ResNet with burn's learner on the CPU, straight from warpfeed: `resnet [DIR]`.
//!
//! DIR is a folder of class folders; without it the program makes images of four classes. A tenth of each class is held
//! out for validation.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::optim::AdamConfig;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{
    ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep,
};
use std::sync::Arc;
use warpfeed::source::{Compose, ImageFolder, Source};
use warpfeed::{IMAGENET_MEAN, IMAGENET_STD, Result, experiment::synth::write_folder, ops::random_horizontal_flip};
use warpfeed_burn::{ImageBatch, Loader};

const SIDE_PX: u32 = 64;

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
        let around = (from != to).then(|| {
            Conv2dConfig::new([from, to], [1, 1]).with_stride([stride, stride]).with_bias(false).init(device)
        });
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
        let logits = self.head.forward(self.pool.forward(x).flatten(1, 3));
        let loss = CrossEntropyLossConfig::new().init(&logits.device()).forward(logits.clone(), batch.labels.clone());
        ClassificationOutput::new(loss, logits, batch.labels)
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

fn main() -> Result<()> {
    let folder = match std::env::args_os().nth(1) {
        Some(folder) => folder.into(),
        None => {
            let folder = std::env::temp_dir().join("warpfeed-burn-resnet");
            write_folder(&folder, 400, 4, 1, |_done| {})?;
            folder
        }
    };
    let images = ImageFolder::open(folder)?;
    let classes = images.classes().len();
    let (train, validation) = images.split_stratified(0.1, 42)?;
    let device = Device::flex();
    let train = Loader::new(train, &device, |builder| {
        builder
            .batch_size(32)
            .shuffle(7)
            .random_resized_crop(SIDE_PX)
            .augment(random_horizontal_flip(0.5))
            .normalize(IMAGENET_MEAN, IMAGENET_STD)
    })?;
    let validation = Loader::new(validation, &device, |builder| {
        builder.batch_size(32).resize_shorter(SIDE_PX).center_crop(SIDE_PX).normalize(IMAGENET_MEAN, IMAGENET_STD)
    })?;
    let device = device.autodiff();
    let learner = Learner::new(ResNet::new(classes, &device), AdamConfig::new().init(), 0.003);
    let artifacts = std::env::temp_dir().join("warpfeed-burn-resnet-artifacts");
    let result = SupervisedTraining::new(artifacts, Arc::new(train), Arc::new(validation))
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .num_epochs(5)
        .summary()
        .launch(learner);
    if let Some(error) = result.error {
        eprintln!("training ended early: {error}");
        std::process::exit(1);
    }
    Ok(())
}
