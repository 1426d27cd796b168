//! Shows on a GPU that candle gets the pipeline's batches, and trains a small network on them:
//! `candle_cuda [--cpu] [--batches N] [--pinned N] [--steps N] [DIR]`, with the feature `candle-cuda`.
//!
//! candle copies each batch after queued work, and drops it before the work is done. The copy must equal the CPU's
//! batch. DIR is a folder of class folders. `--cpu` uses candle's CPU.

use candle_core::{DType as CandleType, Device, Tensor, WithDType};
use candle_nn::{AdamW, Conv2d, Conv2dConfig, Linear, Module, Optimizer, VarBuilder, VarMap, conv2d, linear, loss};
use half::f16;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use warpfeed::ops::{CenterCrop, random_horizontal_flip, random_resized_crop};
use warpfeed::source::{ImageFolder, Source, SourceExt};
use warpfeed::{DType, IMAGENET_MEAN, IMAGENET_STD, JpegDecoder, Layout, Pipeline, PipelineBuilder};
use warpfeed_bench::synth::{SynthSettings, write_folder};

/// Batches that candle holds before they are read.
const HELD: usize = 20;
/// Side of the matrices whose products candle has queued.
const WORK: usize = 2048;
/// Time that candle is busy before it reads a batch.
const WORK_MS: f64 = 2.0;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Device that makes batches.
#[derive(Clone, Copy)]
enum Maker {
    Gpu(JpegDecoder),
    Cpu { pinned: bool },
}

impl Maker {
    /// This maker, or without a GPU a CPU maker with ordinary memory.
    fn here(self, on_cpu: bool) -> Self {
        if on_cpu { Self::Cpu { pinned: false } } else { self }
    }

    fn set(self, builder: PipelineBuilder) -> PipelineBuilder {
        match self {
            Self::Gpu(decode) => builder.device(warpfeed::Device::Cuda(0)).jpeg_decoder(decode),
            Self::Cpu { pinned: true } => builder.device(warpfeed::Device::Cpu).pin_batches(0),
            Self::Cpu { pinned: false } => builder.device(warpfeed::Device::Cpu),
        }
    }

    fn name(self) -> String {
        match self {
            Self::Gpu(decode) => format!("made on the GPU, decode {decode:?}"),
            Self::Cpu { pinned: true } => "made on the CPU, pinned".to_owned(),
            Self::Cpu { pinned: false } => "made on the CPU".to_owned(),
        }
    }
}

/// The form of an epoch.
#[derive(Clone, Copy)]
struct Form {
    batches: usize,
    batch: usize,
    side_px: u32,
    dtype: DType,
}

/// A pipeline over the images, repeated until they fill the batches of the form.
fn recipe(source: &Arc<dyn Source>, form: Form) -> Outcome<PipelineBuilder> {
    let (images, wanted) = (source.len(), (form.batches * form.batch) as u64);
    let source = Arc::clone(source).subset((0..wanted).map(|i| i % images))?;
    let builder =
        Pipeline::builder(source).batch_size(form.batch).shuffle(7).transform(random_resized_crop(form.side_px));
    let builder = builder.transform(random_horizontal_flip(0.5)).output(form.dtype, Layout::Nchw);
    Ok(if form.dtype == DType::U8 { builder } else { builder.normalize(IMAGENET_MEAN, IMAGENET_STD) })
}

/// A number for the bits of a batch.
fn digest(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("it has 8 bytes")));
    words.fold(0xcbf2_9ce4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

/// The digests of the batches as the CPU makes them.
fn expected(source: &Arc<dyn Source>, form: Form) -> Outcome<Vec<u64>> {
    let pipeline = recipe(source, form)?.device(warpfeed::Device::Cpu).build()?;
    pipeline.epoch(0).map(|batch| Ok(digest(batch?.images().as_bytes()?))).collect()
}

/// The digest of candle's tensor.
fn digest_of(tensor: &Tensor) -> Outcome<u64> {
    fn bytes<T: WithDType, const N: usize>(tensor: &Tensor, of: fn(T) -> [u8; N]) -> candle_core::Result<Vec<u8>> {
        Ok(tensor.flatten_all()?.to_vec1::<T>()?.into_iter().flat_map(of).collect())
    }
    Ok(digest(&match tensor.dtype() {
        CandleType::F32 => bytes(tensor, f32::to_le_bytes)?,
        CandleType::F16 => bytes(tensor, f16::to_le_bytes)?,
        CandleType::U8 => tensor.flatten_all()?.to_vec1::<u8>()?,
        other => return Err(format!("{other:?} is no type of a batch here").into()),
    }))
}

/// Work that keeps the device busy for milliseconds.
struct Work {
    factor: Tensor,
    product: Tensor,
    products: u32,
}

impl Work {
    fn new(device: &Device) -> Outcome<Self> {
        let factor = Tensor::zeros((WORK, WORK), CandleType::F32, device)?;
        let mut work = Self { product: factor.matmul(&factor)?, factor, products: 1 };
        device.synchronize()?;
        let start = Instant::now();
        (0..4).try_for_each(|_| work.queue())?;
        device.synchronize()?;
        let product_ms = start.elapsed().as_secs_f64() * 1e3 / 4.0;
        work.products = (WORK_MS / product_ms).clamp(1.0, 20.0) as u32;
        Ok(work)
    }

    fn queue(&mut self) -> Outcome {
        for _ in 0..self.products {
            self.product = self.product.matmul(&self.factor)?;
        }
        Ok(())
    }
}

/// Hands the batches over and compares candle's tensors. Returns the number of those that differ.
fn compare(source: &Arc<dyn Source>, form: Form, maker: Maker, device: &Device, expected: &[u64]) -> Outcome<usize> {
    let pipeline = maker.set(recipe(source, form)?).build()?;
    let mut work = if device.is_cpu() { None } else { Some(Work::new(device)?) };
    let (mut wrong, mut number, mut held) = (Vec::new(), 0, Vec::<Tensor>::new());
    let mut read = |held: &mut Vec<Tensor>| {
        for tensor in held.drain(..) {
            if expected.get(number) != Some(&digest_of(&tensor)?) {
                wrong.push(number);
            }
            number += 1;
        }
        Ok::<_, Box<dyn Error>>(())
    };
    let start = Instant::now();
    let mut epoch = pipeline.epoch(0);
    for (i, batch) in epoch.by_ref().enumerate() {
        // Work of some milliseconds, after which candle reads the batch.
        work.as_mut().map_or(Ok(()), Work::queue)?;
        let images = batch?.into_images().into_candle(device)?;
        // Every other batch is copied, so that its own memory is given up while the copy is queued.
        held.push(if i % 2 == 0 { images.copy()? } else { images });
        if held.len() == HELD {
            read(&mut held)?;
        }
    }
    read(&mut held)?;
    let (seconds, stats) = (start.elapsed().as_secs_f64(), epoch.stats());
    println!(
        "{}, {}: {number} batches of {}, {} differ; {} images decoded on the GPU, {} on the CPU; {:.0} images/s",
        form.dtype,
        maker.name(),
        form.batch,
        wrong.len(),
        stats.decoded.device,
        stats.decoded.cpu,
        (number * form.batch) as f64 / seconds,
    );
    if !wrong.is_empty() || number != expected.len() {
        println!("    {number} of {} batches, and these differ: {wrong:?}", expected.len());
    }
    Ok(wrong.len() + expected.len().abs_diff(number))
}

/// Three convolutions, each halving the sides, and a linear layer over the means of the remaining pixels.
struct Cnn {
    convolutions: [Conv2d; 3],
    head: Linear,
}

impl Cnn {
    fn new(classes: usize, weights: &VarBuilder) -> candle_core::Result<Self> {
        let half = Conv2dConfig { padding: 1, stride: 2, ..Conv2dConfig::default() };
        let layer = |name, from, to| conv2d(from, to, 3, half, weights.pp(name));
        let convolutions = [layer("first", 3, 16)?, layer("second", 16, 32)?, layer("third", 32, 64)?];
        Ok(Self { convolutions, head: linear(64, classes, weights.pp("head"))? })
    }

    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let mut x = images.clone();
        for convolution in &self.convolutions {
            x = convolution.forward(&x)?.relu()?;
        }
        self.head.forward(&x.mean((2, 3))?)
    }
}

/// Trains the network on batches of this form. Fails if it does not learn.
fn train(source: &Arc<dyn Source>, classes: usize, form: Form, maker: Maker, device: &Device) -> Outcome {
    let pipeline = maker.set(recipe(source, form)?).build()?;
    let weights = VarMap::new();
    let cnn = Cnn::new(classes, &VarBuilder::from_varmap(&weights, CandleType::F32, device))?;
    let mut optimizer = AdamW::new_lr(weights.all_vars(), 0.003)?;
    let (mut losses, mut start, warm) = (Vec::new(), Instant::now(), form.batches / 4);
    for (step, batch) in pipeline.epoch(0).enumerate() {
        let (images, labels) = batch?.into_candle(device)?;
        let loss = loss::cross_entropy(&cnn.forward(&images)?, &labels)?;
        optimizer.backward_step(&loss)?;
        // The loss is read later: the next batch is handed over while candle is at work.
        losses.push(loss.detach());
        if step == warm {
            device.synchronize()?;
            start = Instant::now();
        }
    }
    let losses = losses.iter().map(Tensor::to_scalar::<f32>).collect::<candle_core::Result<Vec<f32>>>()?;
    let (trained, seconds) = (losses.len().saturating_sub(warm + 1) * form.batch, start.elapsed().as_secs_f64());
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    let tenth = losses.len().div_ceil(10);
    let (before, after) = (mean(&losses[..tenth]), mean(&losses[losses.len() - tenth..]));
    println!(
        "training, {}: {} steps, loss {before:.3}, then {after:.3}; {:.0} images/s",
        maker.name(),
        losses.len(),
        trained as f64 / seconds,
    );
    if after < before { Ok(()) } else { Err("it has not learned".into()) }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let (mut folder, mut on_cpu, mut batches, mut pinned, mut steps) = (None, false, 200, 2000, 200);
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|n| n.to_str()?.parse().ok()).ok_or("a number is missing");
        match argument.to_str() {
            Some("--cpu") => on_cpu = true,
            Some("--batches") => batches = number()?,
            Some("--pinned") => pinned = number()?,
            Some("--steps") => steps = number()?,
            _ => folder = Some(PathBuf::from(argument)),
        }
    }
    let folder = match folder {
        Some(folder) => folder,
        None => {
            let folder = std::env::temp_dir().join("warpfeed-candle-cuda");
            write_folder(&folder, &SynthSettings { seed: 1, ..SynthSettings::new(400, 4) }, |_done| {})?;
            folder
        }
    };
    let folder = ImageFolder::open(folder)?;
    if !on_cpu {
        // Without a device this names the missing part.
        let builder = Pipeline::builder(folder.clone()).transform(CenterCrop::new(32));
        println!("{}", builder.device(warpfeed::Device::Cuda(0)).build()?.device_name());
    }
    let (classes, source) = (folder.classes().len(), folder.into_source());
    // The default stream of this thread, and a stream of its own.
    let devices =
        if on_cpu { [Device::Cpu, Device::Cpu] } else { [Device::new_cuda(0)?, Device::new_cuda_with_stream(0)?] };
    let [default, own_stream] = &devices;
    let (shared, own) = (Maker::Gpu(JpegDecoder::Auto), Maker::Gpu(JpegDecoder::Device));
    let (pinned_cpu, pageable) = (Maker::Cpu { pinned: true }, Maker::Cpu { pinned: false });
    let mut wrong = 0;
    let form = |dtype| Form { batches, batch: 32, side_px: 128, dtype };
    let small = Form { batches: pinned, batch: 16, side_px: 64, dtype: DType::F32 };
    let cases = [
        (form(DType::F32), &[(shared, default), (own, own_stream), (pinned_cpu, own_stream), (pageable, default)][..]),
        (form(DType::F16), &[(own, own_stream)]),
        (form(DType::U8), &[(own, default)]),
        (small, &[(pinned_cpu, own_stream)]),
    ];
    for (form, makers) in cases.into_iter().filter(|(form, _)| form.batches > 0) {
        let expected = expected(&source, form)?;
        for (maker, device) in makers {
            wrong += compare(&source, form, maker.here(on_cpu), device, &expected)?;
        }
    }
    if wrong > 0 {
        return Err(format!("{wrong} batches differ").into());
    }
    if steps > 0 {
        for (maker, device) in [(shared, default), (pinned_cpu, own_stream)] {
            train(&source, classes, Form { batches: steps, ..form(DType::F32) }, maker.here(on_cpu), device)?;
        }
    }
    println!("All batches were equal{}.", if steps > 0 { ", and the network has learned" } else { "" });
    Ok(())
}
