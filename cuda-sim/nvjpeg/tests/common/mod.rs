//! Code that tests of warpfeed's pipeline on the simulated device share.

use crate::sim::{Sim, folder};
use std::path::Path;
use warpfeed::{Batch, Pipeline, Result};

/// Number of seeds that are tried.
pub fn seeds() -> u64 {
    std::env::var("CUDA_SIM_SEEDS").map_or(100, |seeds| seeds.parse().expect("CUDA_SIM_SEEDS is a number"))
}

/// The simulation, with everything that warpfeed looks for.
pub fn start() -> Sim {
    let sim = Sim::start();
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels.image");
    for (name, value) in [
        ("WARPFEED_KERNELS", kernels),
        ("WARPFEED_NVJPEG", folder().join("libcuda_sim_nvjpeg.so")),
        ("CUDA_SIM_KERNELS", folder().join("libcuda_sim_kernels.so")),
    ] {
        // SAFETY: the tests of a program hold `sim`, so no other thread of them reads the environment meanwhile.
        unsafe { std::env::set_var(name, value) };
    }
    sim
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
