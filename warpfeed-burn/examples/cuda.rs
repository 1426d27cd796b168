//! Shows on a GPU that burn gets the pipeline's batches, and trains a small network on them:
//! `cuda [--cpu] [--batches N] [--steps N] [DIR]`, with the feature `cuda`.
//!
//! burn reads each batch after queued work, and drops it before the work is done. The values must equal the CPU's
//! batch. DIR is a folder of class folders. `--cpu` uses burn's flex.

use burn::data::dataloader::DataLoader;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Distribution, Tensor, TensorData};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use warpfeed::ops::{CenterCrop, random_horizontal_flip, random_resized_crop};
use warpfeed::source::{ImageFolder, Source, SourceExt};
use warpfeed::{DType, IMAGENET_MEAN, IMAGENET_STD, JpegDecoder, Layout, Pipeline, PipelineBuilder};
use warpfeed_bench::synth::{SynthSettings, write_folder};
use warpfeed_burn::{IntoBurn, Loader};

const BATCH: usize = 32;
const SIDE_PX: u32 = 128;
/// Batches that burn holds before they are read.
const HELD: usize = 20;
/// Side of the matrices whose products burn has queued.
const WORK: usize = 2048;
/// Time that burn is busy before it reads a batch.
const WORK_MS: f64 = 4.0;

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

struct Settings {
    source: Arc<dyn Source>,
    classes: usize,
    device: Device,
    on_cpu: bool,
    batches: usize,
    steps: usize,
}

/// A pipeline over the images, repeated until they fill the batches of the form.
fn recipe(settings: &Settings, dtype: DType, batches: usize) -> Outcome<PipelineBuilder> {
    let (images, wanted) = (settings.source.len(), (batches * BATCH) as u64);
    let source = Arc::clone(&settings.source).subset((0..wanted).map(|i| i % images))?;
    let builder = Pipeline::builder(source).batch_size(BATCH).shuffle(7).transform(random_resized_crop(SIDE_PX));
    let builder = builder.transform(random_horizontal_flip(0.5));
    Ok(match dtype {
        DType::U8 => builder.output(dtype, Layout::Nchw),
        _ => builder.normalize(IMAGENET_MEAN, IMAGENET_STD).output(dtype, Layout::Nchw),
    })
}

/// A number for the bits of a batch.
fn digest(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("it has 8 bytes")));
    words.fold(0xcbf2_9ce4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

/// The digests of the batches as the CPU makes them; of f32 with each value doubled.
fn expected(settings: &Settings, dtype: DType) -> Outcome<Vec<u64>> {
    let pipeline = recipe(settings, dtype, settings.batches)?.device(warpfeed::Device::Cpu).build()?;
    let mut digests = Vec::new();
    for batch in pipeline.epoch(0) {
        let batch = batch?;
        digests.push(match dtype {
            DType::F32 => {
                let doubled = batch.images().as_slice::<f32>()?.iter().flat_map(|value| (2.0 * value).to_le_bytes());
                digest(&doubled.collect::<Vec<u8>>())
            }
            _ => digest(batch.images().as_bytes()?),
        });
    }
    Ok(digests)
}

/// Work that keeps the device busy for milliseconds.
struct Work {
    factor: Tensor<2>,
    product: Tensor<2>,
    products: u32,
}

impl Work {
    fn new(device: &Device) -> Outcome<Self> {
        let factor = Tensor::<2>::random([WORK, WORK], Distribution::Uniform(-0.01, 0.01), device);
        let mut work = Self { product: factor.clone(), factor, products: 1 };
        // The first product compiles its kernel.
        work.queue();
        device.sync()?;
        let start = Instant::now();
        (0..4).for_each(|_| work.queue());
        device.sync()?;
        let product_ms = start.elapsed().as_secs_f64() * 1e3 / 4.0;
        work.products = (WORK_MS / product_ms).clamp(1.0, 20.0) as u32;
        Ok(work)
    }

    fn queue(&mut self) {
        for _ in 0..self.products {
            self.product = self.product.clone().matmul(self.factor.clone());
        }
    }

    /// Waits for all of it.
    fn finish(self) {
        self.product.sum().into_data();
    }
}

/// The data that burn has read of a batch, in whatever kind of tensor.
type Held = Box<dyn FnOnce() -> TensorData>;

/// Hands the batches over and compares burn's tensors. Returns the number of those that differ.
fn compare(settings: &Settings, maker: Maker, dtype: DType, expected: &[u64]) -> Outcome<usize> {
    let pipeline = maker.set(recipe(settings, dtype, settings.batches)?).build()?;
    let device = &settings.device;
    let mut work = if settings.on_cpu { None } else { Some(Work::new(device)?) };
    let (mut wrong, mut number, mut held) = (Vec::new(), 0, Vec::<Held>::new());
    let mut read = |held: &mut Vec<Held>| {
        for tensor in held.drain(..) {
            if expected.get(number) != Some(&digest(tensor().as_bytes())) {
                wrong.push(number);
            }
            number += 1;
        }
    };
    let start = Instant::now();
    let mut epoch = pipeline.epoch(0);
    for batch in epoch.by_ref() {
        let images = batch?.into_images();
        if dtype == DType::U8 {
            let images = images.into_burn_int(device)?;
            held.push(Box::new(|| images.into_data()));
        } else {
            let images = images.into_burn(device)?;
            work.iter_mut().for_each(Work::queue);
            let seen = if dtype == DType::F32 { images.mul_scalar(2.0) } else { images };
            // Work is launched, not waited for. In f32, the memory of the batch may now go to the next one.
            device.flush()?;
            held.push(Box::new(|| seen.into_data()));
        }
        if held.len() == HELD {
            read(&mut held);
        }
    }
    read(&mut held);
    if let Some(work) = work {
        work.finish();
    }
    let (seconds, stats) = (start.elapsed().as_secs_f64(), epoch.stats());
    println!(
        "{dtype}, {}: {number} batches of {BATCH}, {} differ; {} images decoded on the GPU, {} on the CPU; {:.0} images/s",
        maker.name(),
        wrong.len(),
        stats.decoded.device,
        stats.decoded.cpu,
        (number * BATCH) as f64 / seconds,
    );
    if !wrong.is_empty() || number != expected.len() {
        println!("    {number} of {} batches, and these differ: {wrong:?}", expected.len());
    }
    Ok(wrong.len() + expected.len().abs_diff(number))
}

/// Three convolutions, each halving the sides, and a linear layer over the means of the remaining pixels.
#[derive(Module, Debug)]
struct Cnn {
    convolutions: Vec<Conv2d>,
    head: Linear,
}

impl Cnn {
    fn new(classes: usize, device: &Device) -> Self {
        let half = |(from, to)| {
            let convolution = Conv2dConfig::new([from, to], [3, 3]).with_stride([2, 2]);
            convolution.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device)
        };
        let convolutions = [(3, 16), (16, 32), (32, 64)].map(half).into();
        Self { convolutions, head: LinearConfig::new(64, classes).init(device) }
    }

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = self.convolutions.iter().fold(images, |x, convolution| relu(convolution.forward(x)));
        self.head.forward(x.mean_dim(2).mean_dim(3).flatten(1, 3))
    }
}

/// Trains the network on the loader's batches. Fails if it does not learn.
fn train(settings: &Settings, maker: Maker) -> Outcome {
    let (device, steps) = (settings.device.clone().autodiff(), settings.steps);
    let (images, wanted) = (settings.source.len(), (steps * BATCH) as u64);
    let source = Arc::clone(&settings.source).subset((0..wanted).map(|i| i % images))?;
    let loader = Loader::new(source, &settings.device, move |builder| {
        let builder = builder.batch_size(BATCH).shuffle(7).transform(random_resized_crop(SIDE_PX));
        maker.set(builder.transform(random_horizontal_flip(0.5)).normalize(IMAGENET_MEAN, IMAGENET_STD))
    })?;
    let mut model = Cnn::new(settings.classes, &device);
    let (mut optimizer, loss) = (AdamConfig::new().init(), CrossEntropyLossConfig::new().init(&device));
    // burn compiles its kernels in the first steps.
    let (mut losses, begin, mut start, warm) = (Vec::new(), Instant::now(), Instant::now(), steps / 4);
    for (step, batch) in loader.iter().enumerate() {
        let batch = batch?;
        let labels = batch.labels()?.to_device(&device);
        let images = Tensor::from_inner(batch.images);
        let loss = loss.forward(model.forward(images), labels);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.003, model, gradients);
        // The loss is read later: the next batch is handed over while burn is at work.
        losses.push(loss.inner());
        device.flush()?;
        if step == 0 || step == warm {
            losses.push(losses[step].clone());
            let loss = losses.pop().map_or(f32::NAN, |loss| loss.into_scalar::<f32>());
            println!("    step {step}: loss {loss:.3}, after {:.1} s", begin.elapsed().as_secs_f64());
            start = Instant::now();
        }
    }
    let losses: Vec<f32> = losses.into_iter().map(|loss| loss.into_scalar::<f32>()).collect();
    let (trained, seconds) = ((losses.len() - warm - 1) * BATCH, start.elapsed().as_secs_f64());
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
    let (mut folder, mut on_cpu, mut batches, mut steps) = (None, false, 200, 200);
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|n| n.to_str()?.parse().ok()).ok_or("a number is missing");
        match argument.to_str() {
            Some("--cpu") => on_cpu = true,
            Some("--batches") => batches = number()?,
            Some("--steps") => steps = number()?,
            _ => folder = Some(PathBuf::from(argument)),
        }
    }
    let folder = match folder {
        Some(folder) => folder,
        None => {
            let folder = std::env::temp_dir().join("warpfeed-burn-cuda");
            write_folder(&folder, &SynthSettings { seed: 1, ..SynthSettings::new(400, 4) }, |_done| {})?;
            folder
        }
    };
    let folder = ImageFolder::open(folder)?;
    if !on_cpu {
        // Without a driver this names the missing part, and burn would panic.
        let builder = Pipeline::builder(folder.clone()).transform(CenterCrop::new(SIDE_PX));
        println!("{}", builder.device(warpfeed::Device::Cuda(0)).build()?.device_name());
    }
    let (classes, source) = (folder.classes().len(), folder.into_source());
    let device = if on_cpu { Device::flex() } else { Device::cuda(0) };
    let settings = Settings { source, classes, device, on_cpu, batches, steps };
    let (shared, own) = (Maker::Gpu(JpegDecoder::Auto), Maker::Gpu(JpegDecoder::Device));
    let (pinned, pageable) = (Maker::Cpu { pinned: true }, Maker::Cpu { pinned: false });
    let mut wrong = 0;
    let cases =
        [(DType::F32, &[shared, own, pinned, pageable][..]), (DType::F16, &[own, pinned]), (DType::U8, &[own, pinned])];
    // Without batches the network alone.
    for (dtype, makers) in cases.into_iter().filter(|_| batches > 0) {
        let expected = expected(&settings, dtype)?;
        for &maker in makers {
            wrong += compare(&settings, maker.here(on_cpu), dtype, &expected)?;
        }
    }
    if wrong > 0 {
        return Err(format!("{wrong} batches differ").into());
    }
    for maker in [shared, pinned].into_iter().filter(|_| steps > 0) {
        train(&settings, maker.here(on_cpu))?;
    }
    println!("All batches were equal{}.", if steps > 0 { ", and the network has learned" } else { "" });
    Ok(())
}
