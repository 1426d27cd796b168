//! Training a ResNet with libtorch.

use crate::IntoTch;
use crate::autocast::Autocast;
use crate::tensor::failed;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use tch::nn::{ModuleT, Optimizer, OptimizerConfig, VarStore};
use tch::vision::resnet;
use warpfeed::{Batch, DType, Error, Layout, Result};
use warpfeed_bench::step::{Outcome, Sgd, TrainingStep};

/// torchvision's ResNets (v1.5: the stride is in the 3 x 3 convolution).
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Network {
    /// 18 layers.
    Resnet18,
    /// 50 layers.
    Resnet50,
    /// 152 layers.
    Resnet152,
}

impl Network {
    /// Name of the network in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Resnet18 => "resnet18",
            Self::Resnet50 => "resnet50",
            Self::Resnet152 => "resnet152",
        }
    }
}

/// Number format of computation. Weights are always f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Precision {
    /// All computation in f32.
    #[default]
    F32,
    /// libtorch's autocast: convolutions and products in bfloat16.
    Autocast,
}

/// Held while a network is made: libtorch draws weights from one generator for the whole process.
static DRAWING: Mutex<()> = Mutex::new(());

/// Trains a ResNet from random weights: cross-entropy, stochastic gradient descent with momentum.
///
/// Batches may have any type and layout, and may be on any device. Bytes are trained on as `v / 255`, and padding is
/// left out. A batch on the network's device is used without a copy; others are copied there.
///
/// # Synchronization
/// [`train`](TrainingStep::train) waits for the device, since it returns the loss and accuracy of the batch.
pub struct TchStep {
    network: Network,
    precision: Precision,
    classes: u32,
    sgd: Sgd,
    learning_rate: f64,
    device: tch::Device,
    module: Box<dyn ModuleT>,
    optimizer: Optimizer,
}

impl TchStep {
    /// Makes a network for labels 0 to `classes` - 1 on a device of libtorch's. Its weights are drawn from `seed`.
    ///
    /// # Errors
    /// [`Error::Parameter`] if `classes` is not 1 to 100,000; [`Error::Device`] if libtorch has no such device, or no
    /// memory left on it.
    pub fn new(
        network: Network,
        precision: Precision,
        classes: u32,
        sgd: Sgd,
        seed: i64,
        device: tch::Device,
    ) -> Result<Self> {
        if !(1..=100_000).contains(&classes) {
            return Err(parameter("classes", "1 to 100000", classes));
        }
        let make = || {
            let _drawing = DRAWING.lock().unwrap_or_else(PoisonError::into_inner);
            tch::manual_seed(seed);
            let vars = VarStore::new(device);
            let (path, count) = (vars.root(), i64::from(classes));
            let module: Box<dyn ModuleT> = match network {
                Network::Resnet18 => Box::new(resnet::resnet18(&path, count)),
                Network::Resnet50 => Box::new(resnet::resnet50(&path, count)),
                Network::Resnet152 => Box::new(resnet::resnet152(&path, count)),
            };
            let config = tch::nn::Sgd { momentum: sgd.momentum, wd: sgd.weight_decay, ..Default::default() };
            let optimizer =
                config.build(&vars, sgd.learning_rate).map_err(|error| failed("train with libtorch", error))?;
            Ok((module, optimizer))
        };
        let (module, optimizer) = guarded(make)?;
        let learning_rate = sgd.learning_rate;
        Ok(Self { network, precision, classes, sgd, learning_rate, device, module, optimizer })
    }

    fn descend(&mut self, mut batch: Batch) -> Result<Outcome> {
        let (dtype, layout) = (batch.images().dtype(), batch.images().layout());
        // The step trains on labels, whatever the targets.
        drop(batch.take_targets());
        let (images, labels) = batch.into_tch()?;
        let (images, labels) = (images.to_device(self.device), labels.to_device(self.device));
        let images = match layout {
            Layout::Nchw => images,
            Layout::Nhwc => images.permute([0, 3, 1, 2]),
        };
        let images = match dtype {
            DType::F32 => images,
            DType::U8 => images.to_kind(tch::Kind::Float) / 255.0,
            _ => images.to_kind(tch::Kind::Float),
        };
        let mixed = match self.precision {
            Precision::F32 => None,
            Precision::Autocast => Some(Autocast::begin(self.device.is_cuda())?),
        };
        let logits = self.module.forward_t(&images, true);
        // Gradients have the type that their values were computed in.
        drop(mixed);
        let loss = logits.cross_entropy_for_logits(&labels);
        let right = logits.accuracy_for_logits(&labels);
        self.optimizer.backward_step(&loss);
        Ok(Outcome { loss: Some(loss.double_value(&[])), accuracy: Some(right.double_value(&[])) })
    }
}

impl TrainingStep for TchStep {
    fn name(&self) -> String {
        let place = match self.device {
            tch::Device::Cuda(ordinal) => format!("GPU {ordinal}"),
            _ => format!("CPU, {} threads", tch::get_num_threads()),
        };
        let precision = match self.precision {
            Precision::F32 => "f32",
            Precision::Autocast => "autocast to bfloat16",
        };
        format!("{:?} in {precision}, trained with libtorch on the {place}", self.network)
    }

    fn train(&mut self, batch: Batch) -> Result<Outcome> {
        // On a GPU a label that is too large would destroy the whole context.
        if let Some(label) = batch.labels()?.iter().find(|label| **label >= self.classes) {
            return Err(parameter("labels", format!("below {}", self.classes), label));
        }
        guarded(|| self.descend(batch))
    }

    fn begin_epoch(&mut self, epoch: u64) -> Result<()> {
        self.learning_rate = self.sgd.learning_rate_of(epoch);
        self.optimizer.set_lr(self.learning_rate);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        match self.device {
            tch::Device::Cuda(ordinal) => guarded(|| {
                tch::Cuda::synchronize(ordinal as i64);
                Ok(())
            }),
            _ => Ok(()),
        }
    }

    fn learning_rate(&self) -> Option<f64> {
        Some(self.learning_rate)
    }
}

fn parameter(parameter: &'static str, expected: impl ToString, got: impl ToString) -> Error {
    Error::Parameter { operation: "TchStep", parameter, expected: expected.to_string(), got: got.to_string() }
}

/// tch's networks and optimizers panic with libtorch's errors, for example if memory is lacking.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic: Box<dyn Any + Send>| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        let message = said.and_then(|text| text.lines().next()).unwrap_or("it panicked").to_owned();
        Err(Error::Device { call: "train with libtorch".to_owned(), message })
    })
}
