//! Code that tests of the pipeline on the simulated device share.

#![allow(dead_code, reason = "each test program uses some of this")]

use crate::sim::{Sim, folder};
use std::path::Path;
use warpfeed::{
    Batch, Pipeline, PipelineBuilder, Result, Strategy,
    image::{Image, Size},
    ops::{GaussianBlur, random_horizontal_flip, random_resized_crop, random_rotation},
    source::EncodedImages,
};

/// Number of seeds that are tried.
pub fn seeds() -> u64 {
    std::env::var("CUDA_SIM_SEEDS").map_or(20, |seeds| seeds.parse().expect("CUDA_SIM_SEEDS is a number"))
}

/// The simulation, with everything that warpfeed looks for.
pub fn start() -> Sim {
    let sim = Sim::start();
    // SAFETY: the tests of a program hold `sim`, so no other thread of them reads the environment meanwhile.
    unsafe { name_libraries() };
    sim
}

/// Names the simulated libraries for warpfeed. With CUDA_SIM_PTX the kernels are those that WARPFEED_KERNELS names
/// already.
///
/// # Safety
///
/// No other thread reads the environment.
pub unsafe fn name_libraries() {
    let kernels = [
        ("WARPFEED_KERNELS", Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels.image")),
        ("CUDA_SIM_KERNELS", folder().join("libcuda_sim_kernels.so")),
    ];
    let kernels = kernels.into_iter().filter(|_| std::env::var_os("CUDA_SIM_PTX").is_none());
    for (name, value) in kernels.chain([("WARPFEED_NVJPEG", folder().join("libcuda_sim_nvjpeg.so"))]) {
        // SAFETY: by this function's contract.
        unsafe { std::env::set_var(name, value) };
    }
}

/// An image of gradients, with some detail.
pub fn painted(size: Size, i: u32) -> Image {
    let mut image = Image::new(size);
    for (j, pixel) in (0..).zip(image.pixels_mut()) {
        *pixel = [(7 * i + 3 * j) as u8, (j.wrapping_mul(j) / 5) as u8, (i * j) as u8, 255];
    }
    image
}

/// A pipeline with the threads, prefetch and strategy of a seed, which also decides the order of the device's work.
pub fn builder(source: &EncodedImages, seed: u64) -> PipelineBuilder {
    Pipeline::builder(source.clone())
        .shuffle(seed)
        .threads(seed as usize % 3)
        .prefetch(1 + seed as usize % 2)
        .transform(random_horizontal_flip(0.5))
        .transform(random_rotation(-20.0..=20.0))
        .transform(GaussianBlur::new(3, 0.8))
        .transform(random_resized_crop(Size::new(9, 7)))
        .strategy([Strategy::Fused, Strategy::Fused, Strategy::Sequential][seed as usize % 3])
}

/// The indices of each batch's samples, and its bytes.
pub type Batches = Vec<(Vec<u64>, Vec<u8>)>;

/// An epoch's batches, read late or early and released in this order or another, as the seed decides.
pub fn batches(pipeline: &Pipeline, seed: u64) -> Result<Batches> {
    let mut read = Vec::new();
    let mut held = Vec::new();
    let mut copy = |batch: Batch| -> Result<()> {
        read.push((batch.indices().to_vec(), batch.images().to_host()?.as_bytes()?.to_vec()));
        Ok(())
    };
    for batch in pipeline.epoch(0) {
        held.push(batch?);
        if seed % 4 == 1 || held.len() > 2 {
            let at = if seed % 8 < 4 { 0 } else { held.len() - 1 };
            copy(held.remove(at))?;
        }
    }
    held.into_iter().try_for_each(copy)?;
    read.sort();
    Ok(read)
}
