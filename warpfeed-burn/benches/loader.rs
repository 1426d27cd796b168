//! warpfeed's loader compared with burn's own over the same folder, in images/s: `cargo bench [-- DIR]`. Both take a
//! random resized crop of 224 pixels, flip and normalize. Rounds take turns; the figures are medians.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::{Dataset, DatasetError};
use burn::tensor::{Device, Int, Tensor, TensorData};
use image::imageops::{self, FilterType};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use warpfeed::ops::SampleRng;
use warpfeed::source::{ImageFolder, Source};
use warpfeed::{IMAGENET_MEAN, IMAGENET_STD, Preset, Result};
use warpfeed_bench::synth::{SynthSettings, write_folder};
use warpfeed_burn::{ImageBatch, Loader};

const SIDE_PX: u32 = 224;
const BATCH: usize = 32;
const ROUNDS: usize = 5;

/// A folder as a dataset of burn, whose items are images ready for a batch.
struct Folder(Vec<(PathBuf, u32)>);

impl Dataset<(Vec<f32>, u32)> for Folder {
    fn get(&self, index: usize) -> Result<(Vec<f32>, u32), DatasetError> {
        let (path, label) = &self.0[index];
        let image = image::open(path).map_err(DatasetError::new)?.to_rgb8();
        let mut rng = SampleRng::for_sample(1, 0, index as u64);
        let (width, height) = (f64::from(image.width()), f64::from(image.height()));
        // torchvision's RandomResizedCrop, with its first try alone.
        let area = width * height * rng.uniform(0.08, 1.0);
        let ratio = rng.uniform((3.0_f64 / 4.0).ln(), (4.0_f64 / 3.0).ln()).exp();
        let (w, h) = ((area * ratio).sqrt().min(width).max(1.0), (area / ratio).sqrt().min(height).max(1.0));
        let (x, y) = (rng.uniform(0.0, width - w + 0.1), rng.uniform(0.0, height - h + 0.1));
        let crop = imageops::crop_imm(&image, x as u32, y as u32, w as u32, h as u32).to_image();
        let mut crop = imageops::resize(&crop, SIDE_PX, SIDE_PX, FilterType::Triangle);
        if rng.chance(0.5) {
            imageops::flip_horizontal_in_place(&mut crop);
        }
        let pixels = crop.into_raw();
        let plane = |channel: usize| {
            let (mean, std) = (IMAGENET_MEAN[channel], IMAGENET_STD[channel]);
            pixels[channel..].iter().step_by(3).map(move |&value| (f32::from(value) / 255.0 - mean) / std)
        };
        Ok(((0..3).flat_map(plane).collect(), *label))
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

struct Stack;

impl Batcher<(Vec<f32>, u32), ImageBatch> for Stack {
    fn batch(&self, items: Vec<(Vec<f32>, u32)>, device: &Device) -> ImageBatch {
        let count = items.len();
        let labels: Vec<i32> = items.iter().map(|(_, label)| *label as i32).collect();
        let pixels: Vec<f32> = items.into_iter().flat_map(|(pixels, _)| pixels).collect();
        let side = SIDE_PX as usize;
        ImageBatch {
            images: Tensor::from_data(TensorData::new(pixels, [count, 3, side, side]), device),
            views: Vec::new(),
            labels: Some(Tensor::<1, Int>::from_data(TensorData::new(labels, [count]), device)),
            indices: Vec::new(),
            targets: None,
            mixed: None,
            fields: Vec::new(),
        }
    }
}

/// Images per second of one pass, whose batches are read and dropped.
fn speed(loader: &dyn DataLoader<ImageBatch>) -> f64 {
    let started = Instant::now();
    let mut images = 0;
    for batch in loader.iter() {
        let batch = batch.unwrap_or_else(|error| panic!("{error}"));
        images += batch.images.dims()[0];
    }
    images as f64 / started.elapsed().as_secs_f64()
}

fn main() -> Result<()> {
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let temporary = std::env::temp_dir().join("warpfeed-burn-bench");
    let folder = match given {
        Some(folder) => folder.into(),
        None => {
            write_folder(&temporary, &SynthSettings { seed: 1, ..SynthSettings::new(400, 4) }, |_done| {})?;
            temporary
        }
    };
    let source = ImageFolder::open(folder)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let items = Folder((0..source.len()).map(|i| (source.path(i), source.label(i).expect("class folders"))).collect());
    let device = Device::flex();
    let ours = Loader::new(source, &device, move |builder| {
        builder.preset(Preset::Train).batch_size(BATCH).shuffle(1).threads(threads)
    })?;
    let burns: Arc<dyn DataLoader<ImageBatch>> =
        DataLoaderBuilder::new(Stack).batch_size(BATCH).shuffle(1).num_workers(threads).set_device(device).build(items);
    let mut rounds: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        rounds[0].push(speed(&ours));
        rounds[1].push(speed(&*burns));
    }
    let [ours, burns] = rounds.map(|mut round| {
        round.sort_by(f64::total_cmp);
        round[round.len() / 2]
    });
    println!("{threads} threads, batches of {BATCH}, median of {ROUNDS} rounds");
    println!("warpfeed-burn         {ours:8.0} images/s");
    println!("burn's own, image     {burns:8.0} images/s");
    println!("times                 {:8.1}", ours / burns);
    Ok(())
}
