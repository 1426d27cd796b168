//! Trains a small segmentation network with candle on the CPU, and prints its mean IoU:
//! `train_segmentation [DIR] [--short]`, with the feature `candle`.
//!
//! DIR has the folders `train` and `valid`, each with `images` and COCO's `annotations.json`, which the program makes
//! if necessary; `--short` makes few and trains 6 steps. Set `RAYON_NUM_THREADS=1`, because candle's threads do not
//! sleep; two networks with the same weights each take a batch in a step instead. With glibc,
//! `MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=4294967296` makes steps faster.

mod training;
// Not a part of `training`, as the detector does not use it.
#[path = "training/unfold.rs"]
mod unfold;

use candle_core::{DType as CandleType, Device, Tensor};
use candle_nn::init::DEFAULT_KAIMING_NORMAL;
use candle_nn::{ModuleT, VarBuilder, VarMap};
use training::layers::{Convolution, Pixelwise};
use training::{candle, open};
use unfold::Unfold;
use warpfeed::fields::{BatchFields, MaskValues};
use warpfeed::ops::{RandomResize, Resize, SegmentationCrop};
use warpfeed::prelude::*;
use warpfeed::{PaddedPipeline, Result};

/// Side of the crops that it is trained on.
const SIDE_PX: u32 = 160;
/// Length of the shorter side of the images that the crops are cut out of.
const SHORTER_PX: std::ops::RangeInclusive<u32> = 160..=192;
/// Length of the shorter side of the images that it is evaluated on: the middle of these.
const EVALUATED_PX: u32 = 176;
/// The features are narrower by this factor than the image.
const DIVISOR: u32 = 16;
/// Images that a network sees in a step. With twice as many the same images taught much less.
const BATCH: usize = 4;
/// Networks that share the weights, one for each core.
const NETWORKS: usize = 2;
/// Class of the ground. The kinds of objects come after it.
const GROUND: u8 = 0;
/// Class of pixels outside the image, which do not count.
const OUTSIDE: u8 = 255;

/// A 2 x 2 convolution that doubles the sides.
struct Up {
    weight: Tensor,
}

impl Up {
    fn new(inputs: usize, outputs: usize, weights: &VarBuilder) -> candle_core::Result<Self> {
        Ok(Self { weight: weights.get_with_hints((4 * outputs, inputs), "weight", DEFAULT_KAIMING_NORMAL)? })
    }

    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let (_, n, height, width) = x.dims4()?;
        self.weight.matmul(&x.flatten_from(1)?)?.apply_op1(Unfold([n, height, width]))
    }
}

/// Convolutions that each add to their input.
struct Residual(Vec<Convolution>);

impl Residual {
    fn new(count: usize, channels: usize, weights: &VarBuilder) -> candle_core::Result<Self> {
        let layer = |number| Convolution::new(channels, channels, 1, &weights.pp(number));
        (0..count).map(layer).collect::<candle_core::Result<_>>().map(Self)
    }

    fn forward(&self, x: Tensor, train: bool) -> candle_core::Result<Tensor> {
        self.0.iter().try_fold(x, |x, layer| &x + layer.forward_t(&x, train)?)
    }
}

/// A U-Net (arXiv:1505.04597) whose narrow features are added to the wide ones.
struct Network {
    down: Vec<(Convolution, Residual)>,
    up: Vec<(Up, Residual)>,
    classes: Pixelwise,
}

/// The features at a half, a quarter, an eighth and a sixteenth of the sides: their channels, and how many layers add
/// to them on the way down and on the way up.
const LEVELS: [(usize, usize, usize); 4] = [(16, 0, 1), (32, 0, 1), (64, 2, 2), (128, 6, 0)];

impl Network {
    fn new(classes: usize, weights: &VarBuilder) -> candle_core::Result<Self> {
        let (mut down, mut up, mut inputs) = (Vec::new(), Vec::new(), 3);
        for (number, (channels, layers, _)) in LEVELS.into_iter().enumerate() {
            let weights = weights.pp("down").pp(number);
            let narrow = Convolution::new(inputs, channels, 2, &weights.pp("narrow"))?;
            down.push((narrow, Residual::new(layers, channels, &weights)?));
            inputs = channels;
        }
        for (number, (channels, _, layers)) in LEVELS.into_iter().enumerate().rev().skip(1) {
            let weights = weights.pp("up").pp(number);
            up.push((Up::new(inputs, channels, &weights)?, Residual::new(layers, channels, &weights)?));
            inputs = channels;
        }
        Ok(Self { down, up, classes: Pixelwise::new(inputs, 4 * classes, 0.0, &weights.pp("classes"))? })
    }

    /// The logits of the classes `[classes, N, H, W]` of images `[N, 3, H, W]`.
    fn forward(&self, images: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let (mut x, mut wide) = (images.transpose(0, 1)?, Vec::new());
        for (narrow, layers) in &self.down {
            let narrow = narrow.forward_t(&x, train)?;
            wide.push(std::mem::replace(&mut x, layers.forward(narrow, train)?));
        }
        // The first of `wide` are the images.
        for ((up, layers), wide) in self.up.iter().zip(wide.into_iter().rev()) {
            x = layers.forward((up.forward(&x)? + wide)?, train)?;
        }
        let (_, n, height, width) = x.dims4()?;
        self.classes.forward(&x)?.apply_op1(Unfold([n, height, width]))
    }
}

/// The class of each pixel `[N, H, W]` of a batch's images, each in the upper left corner of a place of size `size`.
fn classes_of(fields: &BatchFields, size: Size) -> Result<Vec<u8>> {
    let (width, area) = (size.width as usize, size.width as usize * size.height as usize);
    let mut classes = vec![OUTSIDE; fields.len() * area];
    for (image, own) in classes.chunks_exact_mut(area).zip(fields.sizes()) {
        image.chunks_exact_mut(width).take(own.height as usize).for_each(|row| row[..own.width as usize].fill(GROUND));
    }
    // Masks of objects have 8 bits.
    let MaskValues::U8(masks) = fields.padded_masks("masks", size)? else { return Ok(classes) };
    let objects = fields.batch_indices().into_iter().zip(fields.integers("labels")?);
    for (mask, (image, label)) in masks.chunks_exact(area).zip(objects) {
        let image = &mut classes[image as usize * area..][..area];
        image.iter_mut().zip(mask).filter(|(_, own)| **own != 0).for_each(|(class, _)| *class = label as u8 + 1);
    }
    Ok(classes)
}

/// The loss of logits `[classes, N * H * W]` for these classes, and its gradient: the mean cross entropy, and the mean
/// over the classes of how far their Dice coefficients in the batch are from 1 (arXiv:1606.04797). The latter counts
/// small classes as much as the ground.
fn loss(logits: &[f32], truth: &[u8], classes: usize) -> (f32, Vec<f32>) {
    let pixels = truth.len();
    // Probabilities first, then gradients.
    let mut values = logits.to_vec();
    let (mut entropy, mut both, mut sums) = (0.0, vec![0.0; classes], vec![0.0; classes]);
    let mut own = vec![0.0_f32; classes];
    for (at, class) in truth.iter().map(|class| usize::from(*class)).enumerate() {
        let of = |c: usize| c * pixels + at;
        let most = (0..classes).map(|c| values[of(c)]).fold(f32::MIN, f32::max);
        (0..classes).for_each(|c| own[c] = (values[of(c)] - most).exp());
        let sum: f32 = own.iter().sum();
        entropy += f64::from(sum.ln() + most - values[of(class)]);
        for c in 0..classes {
            let share = own[c] / sum;
            values[of(c)] = share;
            sums[c] += f64::from(share);
        }
        both[class] += f64::from(values[of(class)]);
        sums[class] += 1.0;
    }
    let dice: f64 = (0..classes).map(|c| 2.0 * both[c] / sums[c]).sum::<f64>() / classes as f64;
    // Slopes of the loss by the probability of a class, where the class is wrong and where it is right.
    let gain = |c: usize, right: f64| (2.0 * (right * sums[c] - both[c]) / sums[c].powi(2) / classes as f64) as f32;
    let gains: Vec<[f32; 2]> = (0..classes).map(|c| [gain(c, 0.0), gain(c, 1.0)]).collect();
    for (at, class) in truth.iter().map(|class| usize::from(*class)).enumerate() {
        let of = |c: usize| c * pixels + at;
        let gain = |c: usize| gains[c][usize::from(c == class)];
        let mean: f32 = (0..classes).map(|c| values[of(c)] * gain(c)).sum();
        for c in 0..classes {
            let share = values[of(c)];
            values[of(c)] = (share - f32::from(u8::from(c == class))) / pixels as f32 - share * (gain(c) - mean);
        }
    }
    ((entropy / pixels as f64 + 1.0 - dice) as f32, values)
}

/// Intersection over union of each class, over all pixels of all images, as in torchvision's references.
fn evaluate(network: &Network, pipeline: &PaddedPipeline, classes: usize) -> Result<Vec<f64>> {
    let (mut right, mut found, mut there) = (vec![0_u64; classes], vec![0_u64; classes], vec![0_u64; classes]);
    for batch in pipeline.epoch(0) {
        let batch = batch?;
        let [_, _, height, width] = batch.images().tensor().shape();
        let truth = batch.fields(0).map(|fields| classes_of(fields, Size::new(width as u32, height as u32)));
        let truth = truth.transpose()?.unwrap_or_default();
        let images = batch.into_images().into_tensor().into_candle(&Device::Cpu)?;
        let logits = network.forward(&images, false).and_then(|logits| logits.flatten_all()?.to_vec1::<f32>());
        let logits = logits.map_err(candle)?;
        for (at, class) in truth.iter().enumerate().filter(|(_, class)| **class != OUTSIDE) {
            let logit = |c: &usize| logits[c * truth.len() + at];
            let best = (0..classes).max_by(|a, b| logit(a).total_cmp(&logit(b))).unwrap_or_default();
            right[best] += u64::from(best == usize::from(*class));
            found[best] += 1;
            there[usize::from(*class)] += 1;
        }
    }
    let share = |c: usize| right[c] as f64 / (found[c] + there[c] - right[c]) as f64;
    Ok((0..classes).map(share).collect())
}

fn main() -> Result<()> {
    let (short, folder) = training::arguments("train-segmentation");
    let (images, held_out, epochs) = if short { (16, 8, 3) } else { (12_000, 300, 11) };
    let train = open(&folder.join("train"), images, 1)?;
    let valid = open(&folder.join("valid"), held_out, 2)?;
    let names: Vec<String> = std::iter::once("ground".to_owned()).chain(train.classes().iter().cloned()).collect();

    let train = Pipeline::builder(train)
        .fields(["labels", "masks"])
        .batch_size(BATCH)
        .shuffle(42)
        .last_batch(LastBatch::Drop)
        .transform(RandomResize::new(SHORTER_PX))
        .transform(random_horizontal_flip(0.5))
        .transform(random_vertical_flip(0.5))
        .transform(SegmentationCrop::new(SIDE_PX))
        .normalize(IMAGENET_MEAN, IMAGENET_STD)
        .build()?;
    let valid = Pipeline::builder(valid)
        .fields(["labels", "masks"])
        .batch_size(BATCH)
        .transform(Resize::shorter_side(EVALUATED_PX))
        .normalize(IMAGENET_MEAN, IMAGENET_STD)
        .build_padded(DIVISOR)?;

    let weights = VarMap::new();
    let builder = VarBuilder::from_varmap(&weights, CandleType::F32, &Device::Cpu);
    let networks: candle_core::Result<Vec<_>> = (0..NETWORKS).map(|_| Network::new(names.len(), &builder)).collect();
    let mut networks = networks.map_err(candle)?;
    training::train(&weights, &mut networks, &train, epochs, |network, batch| {
        let truth = batch.fields(0).map(|fields| classes_of(fields, Size::new(SIDE_PX, SIDE_PX)));
        let truth = truth.transpose()?.unwrap_or_default();
        let images = batch.into_images().into_candle(&Device::Cpu)?;
        let of_batch = || {
            let logits = network.forward(&images, true)?;
            let (loss, gradient) = loss(&logits.flatten_all()?.to_vec1()?, &truth, names.len());
            // The gradient of this sum is that of the loss.
            let gradient = Tensor::from_vec(gradient, logits.shape(), &Device::Cpu)?;
            Ok(((&logits * gradient)?.sum_all()?, loss))
        };
        of_batch().map_err(candle)
    })?;
    // Each network has running statistics of its own batches; the first one's are as good as the other's.
    let shares = evaluate(&networks[0], &valid, names.len())?;
    for (name, share) in names.iter().zip(&shares) {
        println!("{name}: IoU {share:.3}");
    }
    println!("mean IoU {:.3} on {held_out} images", shares.iter().sum::<f64>() / shares.len() as f64);
    Ok(())
}
