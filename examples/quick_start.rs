//! Batches for training: `quick_start [DIR]`, with a folder of class folders, or a few made images.

use warpfeed::ops::{random_resized_crop, repeat};
use warpfeed::{
    DType, IMAGENET_MEAN, IMAGENET_STD, Layout, Pipeline, Result,
    ops::{random_horizontal_flip, random_rotation, random_vertical_flip},
    source::ImageFolder,
};
use warpfeed_bench::synth::{SynthSettings, write_folder};

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).map_or_else(
        || {
            let folder = std::env::temp_dir().join("warpfeed-quick-start");
            write_folder(&folder, &SynthSettings { seed: 1, ..SynthSettings::new(40, 4) }, |_done| {}).map(|_| folder)
        },
        |folder| Ok(folder.into()),
    )?;
    let train = Pipeline::builder(ImageFolder::open(folder)?)
        .batch_size(16)
        .shuffle(42)
        .transform(repeat(4, [random_horizontal_flip(0.5), random_vertical_flip(0.5), random_rotation(-5.0..=5.0)]))
        .transform(random_resized_crop(224))
        .normalize(IMAGENET_MEAN, IMAGENET_STD)
        .output(DType::F32, Layout::Nchw)
        .build()?;
    for epoch in 0..2 {
        for batch in train.epoch(epoch) {
            let batch = batch?;
            println!("epoch {epoch}: {:?} {:?}", batch.images().shape(), batch.labels()?);
        }
    }
    Ok(())
}
