//! Training a network with candle.

use super::descent::Descent;
use super::resnet::ResNet;
use super::two_convolutions::TwoConvolutions;
use super::{Outcome, Sgd, TrainingStep};
use candle_core::{D, Device, Tensor};
use candle_nn::loss::cross_entropy;
use warpfeed::internal::candle_failed;
use warpfeed::{Batch, DType, Error, Layout, Result};

/// The networks that [`CandleStep`] trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// 18 layers, in blocks of two convolutions.
    ResNet18,
    /// 50 layers, in blocks of three convolutions, the stride in the 3 x 3 one (v1.5).
    ResNet50,
    /// Two convolutions and two linear layers, for small images such as MNIST's, of 28 pixels or more.
    TwoConvolutions,
}

/// A network to be trained.
pub(super) trait Network {
    /// Maps `[N, 3, H, W]` to logits `[N, classes]`. In training, normalizations use the batch's own mean and variance;
    /// in evaluation, those collected in training.
    fn forward(&self, images: &Tensor, train: bool) -> candle_core::Result<Tensor>;
}

impl Architecture {
    /// Number of blocks in each stage of a ResNet.
    pub(super) fn blocks(self) -> [usize; 4] {
        if self == Self::ResNet50 { [3, 4, 6, 3] } else { [2, 2, 2, 2] }
    }

    pub(super) fn bottleneck(self) -> bool {
        self == Self::ResNet50
    }
}

/// Trains a network from random weights with candle, directly on the batches, by cross-entropy and stochastic gradient
/// descent.
///
/// Batches may have any type and layout. They are trained on as f32, bytes as `v / 255`. Images for a ResNet must be
/// square, with a side that is a multiple of 32. Padding is left out. On candle's CPU an f32 NCHW batch is used without
/// a copy.
pub struct CandleStep {
    name: String,
    network: Box<dyn Network>,
    descent: Descent,
    classes: usize,
    device: Device,
}

impl std::fmt::Debug for CandleStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CandleStep").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CandleStep {
    /// Makes a `model` for labels 0 to `classes` - 1 on a device of candle's. `width`: number of channels in a ResNet's
    /// first stage (64 as published; fewer for CPUs). `seed`: seed of its weights.
    ///
    /// # Errors
    /// [`Error::Parameter`] if `width` or `classes` is not 1 to 4,096; [`Error::Device`] if candle cannot make the
    /// weights.
    pub fn new(
        model: Architecture,
        width: usize,
        classes: usize,
        sgd: Sgd,
        seed: u64,
        device: &Device,
    ) -> Result<Self> {
        for (parameter, value) in [("width", width), ("classes", classes)] {
            if !(1..=4_096).contains(&value) {
                return Err(Error::parameter("CandleStep::new", parameter, "1 to 4096", value));
            }
        }
        let failed = |error| candle_failed("make a network's weights with candle", &error);
        let (network, vars): (Box<dyn Network>, _) = if model == Architecture::TwoConvolutions {
            let (network, vars) = TwoConvolutions::new(classes, seed, device).map_err(failed)?;
            (Box::new(network), vars)
        } else {
            let (network, vars) = ResNet::new(model, width, classes, seed, device).map_err(failed)?;
            (Box::new(network), vars)
        };
        let place = if device.is_cpu() { "CPU" } else { "GPU" };
        let width = if model == Architecture::TwoConvolutions { String::new() } else { format!(" of width {width}") };
        let name = format!("{model:?}{width}, trained with candle on the {place}");
        Ok(Self { name, network, descent: Descent::new(sgd, vars), classes, device: device.clone() })
    }

    /// A batch's images as f32 `[N, 3, H, W]`, and its labels, without padding.
    fn tensors(&self, mut batch: Batch) -> Result<(Tensor, Tensor)> {
        let count = batch.len() - batch.padding();
        if let Some(label) = batch.labels()?.iter().find(|label| **label as usize >= self.classes) {
            return Err(Error::parameter("CandleStep", "labels", format!("below {}", self.classes), label));
        }
        let (dtype, layout) = (batch.images().dtype(), batch.images().layout());
        // The step trains on labels, whatever the targets.
        drop(batch.take_targets());
        let (images, labels) = batch.into_candle(&self.device)?;
        let ready = || {
            let images = images.narrow(0, 0, count)?.to_dtype(candle_core::DType::F32)?;
            let images = if dtype == DType::U8 { (images / 255.0)? } else { images };
            let images = if layout == Layout::Nhwc { images.permute((0, 3, 1, 2))?.contiguous()? } else { images };
            Ok((images, labels.narrow(0, 0, count)?))
        };
        ready().map_err(|error| candle_failed("train with candle", &error))
    }

    fn descend(&mut self, images: &Tensor, labels: &Tensor) -> candle_core::Result<Outcome> {
        let logits = self.network.forward(images, true)?;
        let loss = cross_entropy(&logits, labels)?;
        self.descent.step(&loss.backward()?)?;
        let right = accuracy(&logits, labels)?;
        Ok(Outcome { loss: Some(loss.to_scalar::<f32>()?.into()), accuracy: Some(right) })
    }
}

/// Share of the logits whose maximum is at the label.
fn accuracy(logits: &Tensor, labels: &Tensor) -> candle_core::Result<f64> {
    let right = logits.argmax(D::Minus1)?.eq(labels)?.to_dtype(candle_core::DType::F32)?.mean_all()?;
    Ok(right.to_scalar::<f32>()?.into())
}

impl TrainingStep for CandleStep {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn train(&mut self, batch: Batch) -> Result<Outcome> {
        let (images, labels) = self.tensors(batch)?;
        self.descend(&images, &labels).map_err(|error| candle_failed("train with candle", &error))
    }

    fn evaluate(&mut self, batch: Batch) -> Result<Option<f64>> {
        let (images, labels) = self.tensors(batch)?;
        let right = self.network.forward(&images, false).and_then(|logits| accuracy(&logits, &labels));
        right.map(Some).map_err(|error| candle_failed("evaluate with candle", &error))
    }

    fn begin_epoch(&mut self, epoch: u64) -> Result<()> {
        self.descent.begin_epoch(epoch);
        Ok(())
    }

    fn learning_rate(&self) -> Option<f64> {
        Some(self.descent.learning_rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::image;
    use std::ops::Range;
    use std::sync::LazyLock;
    use warpfeed::image::{Image, Size};
    use warpfeed::image::{JpegOptions, encode_jpeg};
    use warpfeed::ops::Resize;
    use warpfeed::source::EncodedImages;
    use warpfeed::{LastBatch, Pipeline, Preprocessor, PreprocessorOptions};

    /// Images of three classes. They are made once, and small, because the networks get 64 rows and columns at most.
    fn images(range: Range<u32>) -> EncodedImages {
        static JPEGS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
            let options = PreprocessorOptions::default().dtype(DType::U8).layout(Layout::Nhwc);
            let resize = Preprocessor::new([Resize::new(Size::new(96, 72)).into()], &options).unwrap();
            let small = |i: u32| {
                let tensor = resize.run_images(&[&image(3, i.into(), i % 3, 3)]).unwrap();
                let image = Image::from_rgb(Size::new(96, 72), tensor.as_bytes().unwrap()).unwrap();
                encode_jpeg(&image, &JpegOptions::default()).unwrap()
            };
            (0..96).map(small).collect()
        });
        EncodedImages::new(range.map(|i| (JPEGS[i as usize].clone(), i % 3)))
    }

    /// Mean loss and accuracy of each epoch, on `count` images of three classes with this side, in batches of 16.
    fn learn(model: Architecture, count: u32, side: u32, epochs: u64, format: (DType, Layout)) -> Vec<(f64, f64)> {
        let builder = Pipeline::builder(images(0..count));
        let builder = builder.batch_size(16).last_batch(LastBatch::Pad).shuffle(1).transform(Resize::new(side));
        let pipeline = builder.output(format.0, format.1).build().unwrap();
        let sgd = Sgd { learning_rate: 0.01, ..Sgd::default() };
        let mut step = CandleStep::new(model, 8, 3, sgd, 1, &Device::Cpu).unwrap();
        let mut means = Vec::new();
        for epoch in 0..epochs {
            step.begin_epoch(epoch).unwrap();
            let outcomes: Vec<Outcome> =
                pipeline.epoch(epoch).map(|batch| step.train(batch.unwrap()).unwrap()).collect();
            let mean = |of: fn(&Outcome) -> Option<f64>| {
                outcomes.iter().map(|outcome| of(outcome).unwrap()).sum::<f64>() / outcomes.len() as f64
            };
            means.push((mean(|outcome| outcome.loss), mean(|outcome| outcome.accuracy)));
        }
        means
    }

    /// Compares the last quarter of the epochs with the first, in loss and accuracy. Single epochs are noisy, because
    /// batches are small.
    fn assert_learns(model: Architecture, side: u32, epochs: u64) {
        let means = learn(model, 48, side, epochs, (DType::F32, Layout::Nchw));
        let quarter = means.len().div_ceil(4);
        let mean =
            |part: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| part.iter().map(of).sum::<f64>() / part.len() as f64;
        let (first, last) = (&means[..quarter], &means[means.len() - quarter..]);
        assert!(mean(last, |epoch| epoch.0) < 0.6 * mean(first, |epoch| epoch.0), "loss and accuracy {means:?}");
        assert!(mean(last, |epoch| epoch.1) > 0.65, "{means:?}, of which chance is 0.33");
    }

    /// The network also classifies images that it was not trained on.
    #[test]
    fn two_convolutions_learn_and_are_evaluated() {
        let of = |range| Pipeline::builder(images(range)).batch_size(16).transform(Resize::new(28)).build().unwrap();
        let (trained, held_out) = (of(0..48), of(48..96));
        let sgd = Sgd { learning_rate: 0.01, ..Sgd::default() };
        let mut step = CandleStep::new(Architecture::TwoConvolutions, 16, 3, sgd, 1, &Device::Cpu).unwrap();
        let evaluate = |step: &mut CandleStep| {
            let of = |batch: Result<Batch>| step.evaluate(batch.unwrap()).unwrap().unwrap();
            held_out.epoch(0).map(of).sum::<f64>() / 3.0
        };
        let before = evaluate(&mut step);
        for epoch in 0..10 {
            trained.epoch(epoch).for_each(|batch| {
                step.train(batch.unwrap()).unwrap();
            });
        }
        let after = evaluate(&mut step);
        assert_eq!(after, evaluate(&mut step), "evaluation changes nothing");
        assert!(after > 0.5 && after > before, "{before} {after}, of which chance is 0.33");
        let small = Pipeline::builder(images(0..1)).transform(Resize::new(16)).build().unwrap();
        let refused = step.train(small.epoch(0).next().unwrap().unwrap()).unwrap_err();
        assert!(refused.to_string().contains("28"), "{refused}");
    }

    #[test]
    fn resnet18_learns() {
        assert_learns(Architecture::ResNet18, 32, 8);
    }

    #[test]
    fn resnet50_learns() {
        assert_learns(Architecture::ResNet50, 32, 14);
    }

    /// Padding, type and layout of a batch change results only by rounding. There are 18 images, 2 of them in the
    /// second batch.
    #[test]
    fn batches_of_any_format_are_the_same_to_it() {
        let want = learn(Architecture::ResNet18, 18, 64, 1, (DType::F32, Layout::Nchw))[0].0;
        for format in [(DType::F32, Layout::Nhwc), (DType::U8, Layout::Nhwc), (DType::U8, Layout::Nchw)] {
            let got = learn(Architecture::ResNet18, 18, 64, 1, format)[0].0;
            assert!((got - want).abs() < 1e-3 * want, "{format:?}: {got} {want}");
        }
    }

    #[test]
    fn a_label_beyond_the_classes_is_refused() {
        let jpeg = encode_jpeg(&image(3, 0, 0, 1), &JpegOptions::default()).unwrap();
        let pipeline = Pipeline::builder(EncodedImages::new([(jpeg, 4)])).transform(Resize::new(32)).build().unwrap();
        let mut step = CandleStep::new(Architecture::ResNet18, 4, 4, Sgd::default(), 1, &Device::Cpu).unwrap();
        let batch = pipeline.epoch(0).next().unwrap().unwrap();
        assert!(step.train(batch).unwrap_err().is_parameter());
        assert!(
            CandleStep::new(Architecture::ResNet18, 0, 4, Sgd::default(), 1, &Device::Cpu).unwrap_err().is_parameter()
        );
    }
}
