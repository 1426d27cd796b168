//! Trains a small vision transformer of native resolution (NaFlex) with candle, on images of many aspects as sequences of
//! patches: `train_patches [DIR]`, with feature `candle`. DIR is a folder of class folders; without it the program makes
//! walls whose bricks lie flat, are square, or stand. Resizing the walls to squares would mix them up.

use candle_core::{D, DType as CandleType, Device, Tensor};
use candle_nn::ops::softmax;
use candle_nn::{
    AdamW, Embedding, Linear, Module, Optimizer, RmsNorm, VarBuilder, VarMap, embedding, linear, loss, rms_norm,
};
use std::sync::Arc;
use warpfeed::image::{Image, JpegOptions, encode_jpeg};
use warpfeed::ops::{RandomSequenceCrop, SampleRng, SequenceResize};
use warpfeed::prelude::*;
use warpfeed::shapes::{Patches, TokenBudget};
use warpfeed::source::{EncodedImages, ImageFolder, Source, SourceExt};
use warpfeed::{Batch, Error, Result, Tensor as Images};

const EPOCHS: u64 = 8;
const PATCH_PX: u32 = 8;
const WIDTH: usize = 48;
const HEADS: usize = 2;
/// Parts of an image's height, and of its width, that have embeddings of their own.
const PLACES: usize = 12;

/// Attention and a perceptron, each added to what it reads.
struct Block {
    norms: [RmsNorm; 2],
    queries_keys_values: Linear,
    attended: Linear,
    perceptron: [Linear; 2],
}

impl Block {
    fn new(weights: &VarBuilder) -> candle_core::Result<Self> {
        let norm = |name: &str| rms_norm(WIDTH, 1e-6, weights.pp(name));
        let layer = |input, output, name: &str| linear(input, output, weights.pp(name));
        Ok(Self {
            norms: [norm("norm1")?, norm("norm2")?],
            queries_keys_values: layer(WIDTH, 3 * WIDTH, "queries_keys_values")?,
            attended: layer(WIDTH, WIDTH, "attended")?,
            perceptron: [layer(WIDTH, 2 * WIDTH, "perceptron1")?, layer(2 * WIDTH, WIDTH, "perceptron2")?],
        })
    }

    /// `x`: `[N, S, WIDTH]`. `mask`: `[N, 1, 1, S]`, 0 where there is a patch and very small elsewhere.
    fn forward(&self, x: &Tensor, mask: &Tensor) -> candle_core::Result<Tensor> {
        let (n, s, _) = x.dims3()?;
        let all = self.queries_keys_values.forward(&self.norms[0].forward_diff(x)?)?;
        let all = all.reshape((n, s, 3, HEADS, WIDTH / HEADS))?.permute((2, 0, 3, 1, 4))?;
        let [queries, keys, values] = [all.get(0)?, all.get(1)?, all.get(2)?];
        let scores = (queries.matmul(&keys.t()?)? / ((WIDTH / HEADS) as f64).sqrt())?;
        let attended = softmax(&scores.broadcast_add(mask)?, D::Minus1)?.matmul(&values)?;
        let x = (x + self.attended.forward(&attended.transpose(1, 2)?.reshape((n, s, WIDTH))?)?)?;
        let [first, second] = &self.perceptron;
        &x + second.forward(&first.forward(&self.norms[1].forward_diff(&x)?)?.gelu()?)?
    }
}

struct Transformer {
    patches: Linear,
    rows: Embedding,
    columns: Embedding,
    blocks: [Block; 2],
    norm: RmsNorm,
    head: Linear,
}

impl Transformer {
    fn new(classes: usize, weights: &VarBuilder) -> candle_core::Result<Self> {
        Ok(Self {
            patches: linear(Patches::new(PATCH_PX).values(3), WIDTH, weights.pp("patches"))?,
            rows: embedding(PLACES, WIDTH, weights.pp("rows"))?,
            columns: embedding(PLACES, WIDTH, weights.pp("columns"))?,
            blocks: [Block::new(&weights.pp("block1"))?, Block::new(&weights.pp("block2"))?],
            norm: rms_norm(WIDTH, 1e-6, weights.pp("norm"))?,
            head: linear(WIDTH, classes, weights.pp("head"))?,
        })
    }

    /// The classes' logits `[N, classes]` of patches `[N, S, values]`, of their rows and columns `[N, S, 2]`, and of
    /// whether they are there `[N, S]`.
    fn forward(&self, patches: &Tensor, coord: &Tensor, valid: &Tensor) -> candle_core::Result<Tensor> {
        let (n, s, _) = patches.dims3()?;
        let coord = coord.to_dtype(CandleType::F32)?;
        let grid = (coord.max_keepdim(1)? + 1.0)?;
        let places = (coord.broadcast_div(&grid)? * PLACES as f64)?.to_dtype(CandleType::U32)?;
        let of = |axis| places.narrow(2, axis, 1)?.squeeze(2)?.contiguous();
        let mut x = self.patches.forward(patches)?;
        x = ((x + self.rows.forward(&of(0)?)?)? + self.columns.forward(&of(1)?)?)?;
        let valid = valid.to_dtype(CandleType::F32)?;
        let mask = valid.affine(1e9, -1e9)?.reshape((n, 1, 1, s))?;
        for block in &self.blocks {
            x = block.forward(&x, &mask)?;
        }
        let sum = self.norm.forward_diff(&x)?.broadcast_mul(&valid.unsqueeze(2)?)?.sum(1)?;
        self.head.forward(&sum.broadcast_div(&valid.sum_keepdim(1)?)?)
    }

    /// The logits of a batch, and its labels.
    fn classify(&self, batch: &Batch<Vec<Images>>, device: &Device) -> Result<(Tensor, Tensor)> {
        let labels = Tensor::new(batch.labels()?, device).map_err(candle)?;
        let (patches, coord, valid) = batch.patches::<f32>(Patches::new(PATCH_PX), None)?.into_candle(device)?;
        Ok((self.forward(&patches, &coord, &valid).map_err(candle)?, labels))
    }
}

/// Walls of bricks, 1 : 3 to 3 : 1. Their own shape says nothing about that of the bricks.
fn walls(count: u64) -> Result<EncodedImages> {
    let wall = |index: u64| {
        let mut random = SampleRng::for_sample(3, 0, index);
        let class = (index % 3) as usize;
        let (area, aspect) = (random.uniform(2_000.0, 4_000.0_f64), random.uniform(-1.1, 1.1_f64).exp());
        let [width, height] = [(area * aspect).sqrt(), (area / aspect).sqrt()].map(|side| side as u32);
        let [across, down] = [[14.0, 5.0], [8.4, 8.4], [5.0, 14.0]][class].map(|side| side * random.uniform(0.9, 1.1));
        let [left, top] = [across, down].map(|side| random.uniform(0.0, side));
        let mut rgb = Vec::new();
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (f64::from(y), f64::from(x)))) {
            let row = (y + top) / down;
            let column = (x + left) / across + row.floor() / 2.0;
            let is_joint = row.fract() * down < 1.2 || column.fract() * across < 1.2;
            let [r, g, b] = if is_joint { [215.0, 210.0, 200.0] } else { [150.0, 70.0, 50.0] };
            let noise = random.uniform(-15.0, 15.0);
            rgb.extend([r, g, b].map(|value: f64| (value + noise) as u8));
        }
        let image = Image::from_rgb(Size::new(width, height), &rgb)?;
        Ok((encode_jpeg(&image, &JpegOptions::default())?, class as u32))
    };
    let images = (0..count).map(wall).collect::<Result<Vec<_>>>()?;
    Ok(EncodedImages::new(images).with_classes(["flat", "square", "standing"]))
}

fn candle(error: candle_core::Error) -> Error {
    Error::Device { call: "train with candle".to_owned(), message: error.to_string() }
}

fn main() -> Result<()> {
    let source: Arc<dyn Source> = match std::env::args_os().nth(1) {
        Some(folder) => Arc::new(ImageFolder::open(folder)?),
        None => Arc::new(walls(360)?),
    };
    let classes = source.classes().len();
    let (train, validation) = source.split_stratified(0.25, 1)?;
    let builder =
        |source, lengths: &[u32]| Pipeline::builder(source).sequences(TokenBudget::new(1_024, lengths.iter().copied()));
    // Each batch has one of three lengths. A sequence of 64 patches is validated.
    let train =
        builder(train, &[36, 64, 100]).shuffle(42).transform(RandomSequenceCrop::new(PATCH_PX).scale(0.6..=1.0));
    let train = train.transform(random_horizontal_flip(0.5)).normalize([0.5; 3], [0.5; 3]).build_ragged()?;
    let validation = builder(validation, &[64]).transform(SequenceResize::new(PATCH_PX));
    let validation = validation.normalize([0.5; 3], [0.5; 3]).build_ragged()?;

    let (device, weights) = (Device::Cpu, VarMap::new());
    let network = Transformer::new(classes, &VarBuilder::from_varmap(&weights, CandleType::F32, &device));
    let (network, optimizer) = (network.map_err(candle)?, AdamW::new_lr(weights.all_vars(), 0.003));
    let mut optimizer = optimizer.map_err(candle)?;
    for number in 0..EPOCHS {
        let (mut sum, mut batches) = (0.0, 0.0);
        for batch in train.epoch(number) {
            let (logits, labels) = network.classify(&batch?, &device)?;
            let step = || {
                let loss = loss::cross_entropy(&logits, &labels)?;
                optimizer.backward_step(&loss)?;
                loss.to_scalar::<f32>()
            };
            (sum, batches) = (sum + { step }().map_err(candle)?, batches + 1.0);
        }
        let (mut right, mut seen) = (0.0, 0);
        for batch in validation.epoch(number) {
            let (logits, labels) = network.classify(&batch?, &device)?;
            let equal =
                || logits.argmax(D::Minus1)?.eq(&labels)?.to_dtype(CandleType::F32)?.sum_all()?.to_scalar::<f32>();
            (right, seen) = (right + equal().map_err(candle)?, seen + labels.elem_count());
        }
        println!("epoch {number}: loss {:.3}, accuracy {:.2}", sum / batches, right / seen as f32);
    }
    Ok(())
}
